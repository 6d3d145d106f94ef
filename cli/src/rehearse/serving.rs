//! `rehearse --serve`: the serving engine under a load of requests.

use std::fmt::Write;
use std::path::Path;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp_planner::rehearse::Setting;
use ascend_tp_planner::rehearse::serving::{
    Arrival, MOST_REQUESTS, Quantiles, ServingReport, ServingSetting, arrivals_at_rate,
};
use ascend_tp_planner::table::Align;

use super::super::arguments::RehearseOptions;
use super::super::failure::{Failure, Outcome};
use super::super::site::keep;
use super::super::{files, print_json, print_report};
use super::text;
use crate::numbers::{counted, grouped};
use crate::terminal;

/// Largest number of sequences that a rehearsal runs at once.
const MOST_SEQUENCES: usize = 4096;

/// Largest number of cache blocks of a card.
const MOST_BLOCKS: usize = 1 << 24;

pub(super) fn run(options: &RehearseOptions, mut problems: Diagnostics) -> Result<Outcome, Failure> {
    let load = &options.serving;
    let arrivals = match &load.requests_from {
        Some(path) => keep(read(path), &mut problems).unwrap_or_default(),
        None if load.requests > MOST_REQUESTS => Vec::new(),
        None if load.rate > 0.0 && load.rate.is_finite() => {
            arrivals_at_rate(load.rate, load.requests, options.input, options.output)
        }
        None => {
            problems
                .push(Diagnostic::new("--rate", "no requests arrive").expected("above 0").found(load.rate));
            Vec::new()
        }
    };
    for (option, size, most) in [
        ("--requests", load.requests, MOST_REQUESTS),
        ("--max-num-seqs", load.max_num_seqs, MOST_SEQUENCES),
        ("--kv-cache-blocks", load.kv_cache_blocks.unwrap_or(1), MOST_BLOCKS),
    ] {
        if size == 0 || size > most {
            let problem = Diagnostic::new(option, "is out of range");
            problems.push(problem.expected(format!("1 to {most}")).found(size));
        }
    }
    let setting = Setting { batch: load.max_num_seqs, ..super::setting(options, problems)? };
    // The null block belongs to no sequence.
    let cache_blocks = load.kv_cache_blocks.map(|blocks| blocks.saturating_add(1));
    let report = ServingSetting { setting, arrivals, cache_blocks }.run()?;
    if let Some(path) = &options.html {
        files::write("--html", path, |out| out.write_all(page(&report).as_bytes()))?;
    }
    super::say_written(options);
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&render(&report))?;
    }
    Ok(Outcome::Done)
}

fn read(path: &Path) -> Result<Vec<Arrival>, Diagnostics> {
    let mut problems = Diagnostics::new();
    let place = |line: usize| format!("{}, line {}", path.display(), line + 1);
    let text = std::fs::read_to_string(path).map_err(|error| {
        Diagnostic::new("--requests-from", format!("cannot read {}: {error}", path.display()))
    })?;
    let mut arrivals = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(arrival) => arrivals.push(arrival),
            Err(error) => {
                let problem = Diagnostic::new(place(number), "is not a request");
                let expected = r#"a JSON object such as {"arrival_s": 0.5, "input": 100, "output": 20}"#;
                problems.push(problem.expected(expected).found(error));
            }
        }
    }
    problems.into_result(arrivals)
}

fn render(report: &ServingReport) -> String {
    let mut text = String::new();
    let ServingReport { model, cards, card, dtype, .. } = report;
    let _ = writeln!(
        text,
        "{model} on {cards} × {card}, {dtype}: {} in {:.1} s, at most {} at once\n",
        counted(report.requests, "request"),
        report.duration_s,
        counted(report.max_num_seqs, "sequence"),
    );
    let mut times = terminal::table([
        ("", Align::Left),
        ("p50", Align::Right),
        ("p90", Align::Right),
        ("p99", Align::Right),
    ]);
    let mut row = |name: &str, Quantiles { p50, p90, p99 }: Quantiles| {
        let cells = [p50, p90, p99].map(|time| format!("{time:.1} ms"));
        times.row([vec![name.to_owned()], cells.to_vec()].concat());
    };
    row("time to first token (TTFT)", report.ttft_ms);
    row("time per output token (TPOT)", report.tpot_ms);
    row("whole request", report.latency_ms);
    let _ = writeln!(text, "Time: {}\n{times}", report.error_bar);
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let mut load = terminal::table([("", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: String| load.row([name.to_owned(), value]);
    row("generated tokens per second", format!("{:.1}", report.tokens_per_s));
    row("prompt tokens per second", format!("{:.1}", report.prompt_tokens_per_s));
    row("time in prompts, decode steps, idle", {
        let shares = report.shares;
        [shares.prefill, shares.decode, shares.idle].map(percent).join(", ")
    });
    row("mean rows of a decode step", format!("{:.1}", report.rows_mean));
    row(
        "blocks of the KV cache",
        format!("{} of {} tokens", grouped(report.cache_blocks as u64), report.block_tokens),
    );
    if let Some(blocks) = report.window_cache_blocks {
        row("blocks of the cache of layers with a window", grouped(blocks as u64));
    }
    row(
        "use of the cache, mean and most",
        [report.cache_use_mean, report.cache_use_max].map(percent).join(", "),
    );
    row("prompt tokens from prefix hits", grouped(report.hit_tokens));
    row("preemptions", grouped(report.preemptions));
    let _ = writeln!(text, "Load\n{load}");
    let _ = writeln!(text, "Limits\n  {}\n", report.bottlenecks.join("\n  "));
    let _ = writeln!(text, "Bytes of the fullest card\n{}", text::memory(&report.memory, "KV cache"));
    let _ = writeln!(
        text,
        "{} steps; {} runs measured on the clock, {} with the time of a run with keys that differ by less than 1 % \
         (checked: off by at most {:.2} %)",
        grouped(report.steps),
        grouped(report.runs_measured),
        grouped(report.runs_reused),
        100.0 * report.reuse_error,
    );
    text
}

/// Returns a page with the report as text.
fn page(report: &ServingReport) -> String {
    let escaped = render(report).replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Serving rehearsal: {}</title>\n\
         <style>body {{ margin: 2rem; }} pre {{ font: 14px/1.4 monospace; }}</style>\n</head>\n<body>\n\
         <pre>{escaped}</pre>\n</body>\n</html>\n",
        report.model.replace('&', "&amp;").replace('<', "&lt;"),
    )
}
