//! A progress bar on stderr, where stderr is a terminal.

use ascend_tp::base::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "loading weights {bar:32} {bytes} of {total_bytes}, {bytes_per_sec}";

/// Bytes of weights that have reached a card.
#[derive(Clone, Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar. Nothing is drawn where stderr is no terminal, or by a process that does not speak.
    pub(super) fn start(speaks: bool) -> Self {
        let bar = if speaks { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// What the loader calls.
    pub(super) fn moved(&self, piece: Bytes, total: Bytes) {
        self.0.set_length(total.0);
        self.0.inc(piece.0);
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_moves_with_what_comes() {
        let progress = Progress::start(true);
        progress.moved(Bytes(8), Bytes(16));
        assert_eq!((progress.0.position(), progress.0.length()), (8, Some(16)));
        progress.moved(Bytes(8), Bytes(16));
        assert_eq!((progress.0.position(), progress.0.length()), (16, Some(16)));
        progress.finish();
    }

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
