//! The report of `bench` as a Markdown page, with its drawings in a folder next to it.
//!
//! - Input: a report and the path of the page.
//! - Output: `NAME.md` and `name/TABLE.svg`.
//! - Everything on the page was measured in one run, except figures of peers that are marked as
//!   recorded.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::measure::{BenchReport, plot};
use ascend_tp::base::Diagnostic;

use super::text;
use crate::failure::Failure;
use crate::files;

const HEAD: &str = "\
Measured in one run, every ratio to a limit of that run. Times are medians; the spread is that of the middle half of the
samples. Emulated cards are threads of the processor named here, so cards share its memory and its cores: a model on eight of
them can be as fast as on one, not faster.
";

/// Explanation of each table, by prefix of the name.
const BOUNDS: [(&str, &str); 15] = [
    ("figures", "`reached` is the figure over its target, so 100 % meets it."),
    (
        "limits",
        "Denominators of all ratios: all cores at once, buffers several times the caches, arithmetic in registers.",
    ),
    (
        "collectives",
        "Small exchanges are bound by how soon ranks that sleep are woken, large ones by memory: each input is read once and \
         each output written once. `alone` is an exchange whose end the host waits for before the next.",
    ),
    ("products", "Many rows are bound by multiplications, one row by reading the weight."),
    ("prefill", "Bound by multiplications; the limit is all necessary operations at the peak rate."),
    (
        "decode",
        "Bound by reading all weights and the keys and values so far; the limit is that at read bandwidth.",
    ),
    ("ops", "Bound by what the column says; operators of some microseconds are bound by the cost of a call."),
    (
        "host",
        "Processor time of the ranks' threads: checks of the C ABI and queues of the emulator included.",
    ),
    ("compile", "From a configuration to the plans of all ranks; nothing runs on a card."),
    (
        "load",
        "The limit is a copy in memory in use; the first load also waits for the system to clear the cards' memory. A load \
         before both has made the host of a virtual machine give the pages, which can take seconds.",
    ),
    (
        "peers",
        "Ours runs, then a peer, round after round, in the same minutes on the same cores. Times of both sides are medians over \
         the rounds; `times faster` is theirs to ours of the same round: the median, the least and the most. Below 1 theirs is \
         faster.",
    ),
    ("peers_missing", "They would stand in the table above."),
    (
        "peers_recorded",
        "On another machine or another day, so nothing here is divided by them; `bench peers` measures anew.",
    ),
    ("scaling", "Each size grows alone, the others stay."),
    (
        "scaling_messages",
        "Memory must move what each rank gives and gets, so time grows with ranks at the same bytes.",
    ),
];

const OPTION: &str = "--report";

/// Checks before the measurement that the page and its drawings can be written.
pub(super) fn check(path: &Path) -> Result<(), Diagnostic> {
    files::check(OPTION, path)?;
    files::check_folder(OPTION, &folder(path).1)
}

fn folder(page: &Path) -> (String, PathBuf) {
    let stem = page.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
    let folder = page.with_file_name(&stem);
    (stem, folder)
}

pub(super) fn write(report: &BenchReport, path: &Path) -> Result<(), Failure> {
    let (stem, folder) = folder(path);
    let put = |path: &Path, text: &str| files::write(OPTION, path, |out| out.write_all(text.as_bytes()));
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|text| text.display().to_string()).collect();
    let command = arguments.join(" ");
    let machine = text::machine(&report.machine);
    let mut page = format!("# Performance\n\nMade by `ascend-tp {command}`. {HEAD}\n{machine}\n");
    for table in &report.tables {
        let _ = write!(page, "\n## {}\n\n", table.title);
        if let Some((_, bound)) = BOUNDS.iter().rev().find(|(name, _)| table.name.starts_with(name)) {
            let _ = write!(page, "{bound}\n\n");
        }
        page.push_str(&text::shown_table(table).markdown());
        if let Some(svg) = plot::svg(table) {
            fs::create_dir_all(&folder)?;
            put(&folder.join(format!("{}.svg", table.name)), &svg)?;
            let _ = write!(page, "\n![{}]({stem}/{}.svg)\n", table.title, table.name);
        }
    }
    put(path, &page)
}
