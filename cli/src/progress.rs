//! Progress on stderr, if stderr is a terminal: a spinner during compilation, and bars for weights,
//! files and training steps.

use std::sync::Once;
use std::time::Duration;

use ascend_tp::base::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Verbosity, is_at_least};

const COMPILING: &str = "compiling {spinner}";
const LOADING: &str = "loading weights {bar:32} {bytes} of {total_bytes}, {bytes_per_sec}";

const TRAINING: &str = "{bar:32} step {pos} of {len}, {eta} left, {msg}";

const READING: &str = "reading {bar:32} {bytes} of {total_bytes}, {bytes_per_sec}";

const TURN: Duration = Duration::from_millis(120);

#[derive(Debug)]
pub(super) struct ProgressLine {
    bar: ProgressBar,
    loads: Once,
}

impl ProgressLine {
    /// Starts a spinner. Nothing is drawn if stderr is not a terminal, if `speaks` is false, or
    /// with `--quiet`.
    pub(super) fn start(speaks: bool) -> Self {
        let bar = ProgressBar::new(0);
        if !speaks || !is_at_least(Verbosity::Normal) {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        draw_as(&bar, COMPILING);
        if !bar.is_hidden() {
            bar.enable_steady_tick(TURN);
        }
        Self { bar, loads: Once::new() }
    }

    /// Starts a bar for reading files of `total` bytes. [`advance`](Self::advance) moves the bar.
    pub(super) fn reading(total: Bytes) -> Self {
        let bar = ProgressBar::new(total.0);
        if !is_at_least(Verbosity::Normal) {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        draw_as(&bar, READING);
        Self { bar, loads: Once::new() }
    }

    /// Starts a bar of training steps; the first `first` steps are already done.
    pub(super) fn training(first: usize, steps: usize, speaks: bool) -> Self {
        let bar = ProgressBar::new(steps as u64);
        if !speaks || !is_at_least(Verbosity::Normal) {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        draw_as(&bar, TRAINING);
        // Steps of an earlier run must not affect the estimated time.
        let bar = bar.with_position(first as u64);
        bar.reset_eta();
        Self { bar, loads: Once::new() }
    }

    pub(super) fn step(&self, done: usize, line: &str, message: String) {
        self.bar.suspend(|| super::note(line));
        self.bar.set_message(message);
        self.bar.set_position(done as u64);
    }

    pub(super) fn advance(&self, read: Bytes) {
        self.bar.inc(read.0);
    }

    /// Adds bytes of weights that were copied to a card. The first call replaces the spinner by a
    /// bar.
    pub(super) fn moved(&self, piece: Bytes, total: Bytes) {
        self.loads.call_once(|| {
            self.bar.disable_steady_tick();
            self.bar.set_length(total.0);
            draw_as(&self.bar, LOADING);
        });
        self.bar.inc(piece.0);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn draw_as(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_moves_with_what_comes() {
        let progress = ProgressLine::start(true);
        progress.moved(Bytes(8), Bytes(16));
        assert_eq!((progress.bar.position(), progress.bar.length()), (8, Some(16)));
        progress.moved(Bytes(8), Bytes(16));
        assert_eq!((progress.bar.position(), progress.bar.length()), (16, Some(16)));
        progress.finish();
    }

    #[test]
    fn files_move_their_bar() {
        let progress = ProgressLine::reading(Bytes(16));
        progress.advance(Bytes(4));
        progress.advance(Bytes(8));
        assert_eq!((progress.bar.position(), progress.bar.length()), (12, Some(16)));
    }

    #[test]
    fn steps_move_their_bar() {
        let progress = ProgressLine::training(3, 8, false);
        assert_eq!((progress.bar.position(), progress.bar.length()), (3, Some(8)));
        progress.step(4, "step 3", "loss 2.5".to_owned());
        assert_eq!((progress.bar.position(), progress.bar.message().as_str()), (4, "loss 2.5"));
    }

    #[test]
    fn the_templates_are_templates() {
        assert!(
            [COMPILING, LOADING, READING, TRAINING]
                .into_iter()
                .all(|template| ProgressStyle::with_template(template).is_ok())
        );
    }
}
