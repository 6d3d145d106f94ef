//! A progress bar on stderr, where stderr is a terminal.

use std::sync::Arc;

use ascend_tp::base::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "loading weights {bar:32} {bytes} of {total_bytes}, {bytes_per_sec}";

/// Bytes of weights that have reached a card.
#[derive(Clone, Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `expected` bytes. The cards may get more, because some weights are whole on several: the bar grows then.
    /// Nothing is drawn where stderr is no terminal.
    pub(super) fn start(expected: Bytes) -> Self {
        let bar = ProgressBar::new(expected.0);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// What the loader calls.
    pub(super) fn callback(&self) -> Arc<dyn Fn(Bytes) + Send + Sync> {
        let bar = self.0.clone();
        Arc::new(move |bytes| {
            bar.inc(bytes.0);
            if bar.length().is_some_and(|length| bar.position() > length) {
                bar.set_length(bar.position());
            }
        })
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
    fn the_bar_grows_with_what_comes() {
        let progress = Progress::start(Bytes(10));
        let callback = progress.callback();
        callback(Bytes(8));
        assert_eq!((progress.0.position(), progress.0.length()), (8, Some(10)));
        callback(Bytes(8));
        assert_eq!((progress.0.position(), progress.0.length()), (16, Some(16)));
        progress.finish();
    }

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
