//! The report of `bench` as a Markdown page `NAME.md`, with drawings `name/TABLE.svg`.
//!
//! Everything on the page was measured in one run, except results of peers that are marked as
//! recorded.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::measure::{BenchReport, plot};
use ascend_tp::base::Diagnostic;

use super::text;
use crate::failure::Failure;
use crate::files;

const HEAD: &str = "\
Everything was measured in one run, and every ratio uses a limit of that run. Times are medians. The spread covers the middle
half of the samples. Emulated cards are threads of the processor named below and share its memory and cores. A model on eight of
these cards can therefore be as fast as on one card, but not faster.
";

/// Explanation of each table, by prefix of the name.
const BOUNDS: [(&str, &str); 17] = [
    ("figures", "`reached` is the figure divided by the target, so 100 % meets the target."),
    (
        "limits",
        "Limits are the denominators of all ratios. They are measured with all cores, buffers several times larger than the caches, \
         and arithmetic in registers.",
    ),
    (
        "collectives",
        "Small exchanges are bound by the wake-up time of sleeping ranks, large ones by memory: each input is read once and \
         each output is written once. For `alone`, the host waits for the end of each exchange before the next one.",
    ),
    (
        "products",
        "With many rows, multiplications are the bound; with one row, reading the weight is the bound.",
    ),
    (
        "prefill",
        "Prefill is bound by multiplications. The limit is the time of all necessary operations at the peak rate.",
    ),
    (
        "decode",
        "Decoding is bound by reading all weights and the KV cache. The limit is the time at full read bandwidth.",
    ),
    (
        "ops",
        "The column `bound by` names the bound. Operators of a few microseconds are bound by the cost of a call.",
    ),
    (
        "host",
        "Processor time of the ranks' threads, including checks of the C ABI and queues of the emulator.",
    ),
    ("compile", "Time from a configuration to the plans of all ranks. Nothing runs on a card."),
    (
        "load",
        "The limit is a copy within used memory. The first load also waits until the system has cleared the memory of the cards. \
         An earlier, unmeasured load makes the host of a virtual machine provide the pages, which can take seconds.",
    ),
    (
        "peers",
        "This library and a peer run in turns, in the same minutes and on the same cores. Times are medians over the rounds. \
         `times faster` is the peer's time divided by ours in the same round: median, minimum and maximum. Below 1, the peer is \
         faster.",
    ),
    ("peers_missing", "These peers are missing in the table above."),
    (
        "peers_recorded",
        "These results are from another machine or another day, so no ratio uses them. `bench peers` measures again.",
    ),
    (
        "serve",
        "This library and llama.cpp take turns, with the same prompts. Rates are medians over the rounds. The rate without prompts \
         counts the tokens after each stream has its first one.",
    ),
    (
        "serve_first_token",
        "`server` is the time that the server measures from the arrival of a request. `added` is the client's time minus the \
         server's, of the same request.",
    ),
    ("scaling", "One size grows at a time; other sizes stay constant."),
    (
        "scaling_messages",
        "Memory must transfer the input and output of each rank, so time grows with the number of ranks for equal sizes.",
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
