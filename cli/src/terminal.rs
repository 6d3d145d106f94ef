//! The width of the terminal, and text wrapped to it.
//!
//! JSON and generated text are never wrapped. A word longer than the width stays whole, so that a
//! path can be copied.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use ascend_tp_planner::table::{Align, Table};
use rustix::termios::tcgetwinsize;
use textwrap::{Options, WordSplitter, WrapAlgorithm};

/// Width of a report without a terminal, in characters.
const DEFAULT: usize = 100;

/// Minimum width at which lines are wrapped, in characters.
const LEAST: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineWidth {
    Terminal,
    Wide,
}

static WIDTH: OnceLock<LineWidth> = OnceLock::new();

/// Sets the limit of the line width for this process. Only the first call has an effect.
pub(super) fn set(width: LineWidth) {
    let _first = WIDTH.set(width);
}

/// Returns the width of reports on stdout, in characters: `COLUMNS`, the width of the terminal, or
/// 100. None means no limit.
pub(super) fn width() -> Option<usize> {
    limited(|| Some(columns(&std::io::stdout()).unwrap_or(DEFAULT)))
}

/// Returns the width of messages on stderr, in characters.
///
/// Without `COLUMNS` and without a terminal there is no limit, so that log files contain whole
/// lines.
fn message_width() -> Option<usize> {
    limited(|| columns(&std::io::stderr()))
}

fn limited(shown: impl FnOnce() -> Option<usize>) -> Option<usize> {
    match WIDTH.get() {
        Some(LineWidth::Wide) => None,
        _ => stated(std::env::var("COLUMNS").ok().as_deref()).or_else(shown).map(|width| width.max(LEAST)),
    }
}

fn stated(columns: Option<&str>) -> Option<usize> {
    columns?.trim().parse().ok().filter(|columns| *columns > 0)
}

fn columns(stream: &impl AsFd) -> Option<usize> {
    tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

pub(super) fn table(headings: impl IntoIterator<Item = (&'static str, Align)>) -> Table {
    Table::new(headings).within(width())
}

pub(super) fn fit(text: &str) -> String {
    wrapped(text, width())
}

pub(super) fn fit_message(text: &str) -> String {
    wrapped(text, message_width())
}

/// Wraps lines at spaces. Continuation lines are indented by two more characters than the first
/// line.
fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    // Keep a number and its percent sign on one line.
    let joined = text.replace(" %", "\u{a0}%");
    let lines = joined.split('\n').map(|line| {
        if textwrap::core::display_width(line) <= width {
            return line.to_owned();
        }
        let indent = " ".repeat(line.len() - line.trim_start_matches(' ').len() + 2);
        let options = Options::new(width).break_words(false).subsequent_indent(&indent);
        let options =
            options.word_splitter(WordSplitter::NoHyphenation).wrap_algorithm(WrapAlgorithm::FirstFit);
        textwrap::fill(line, options)
    });
    lines.collect::<Vec<_>>().join("\n").replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_goes_on_below_its_beginning() {
        let text = "short\n  a line of words that is longer, 12.5 % of it\n\n";
        let expected = "short\n  a line of words\n    that is\n    longer, 12.5 %\n    of it\n\n";
        assert_eq!(wrapped(text, Some(18)), expected);
        assert_eq!(wrapped(text, None), text);
        assert_eq!(wrapped("see --max-new-tokens and /a/path/that/is/longer", Some(12)).lines().count(), 4);
    }

    #[test]
    fn columns_are_a_number_above_zero() {
        assert_eq!(
            [Some("80"), Some(" 72 "), Some("0"), Some("wide"), None].map(stated),
            [Some(80), Some(72), None, None, None]
        );
    }
}
