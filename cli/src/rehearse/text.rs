//! Text reports of `rehearse`.

use std::fmt::Write;

use ascend_tp::base::Bytes;
use ascend_tp_planner::fit_memory::MemoryKind;
use ascend_tp_planner::rehearse::{
    FormatBytes, PhaseReport, RehearsalMemory, RehearsalReport, StepLimits, train,
};
use ascend_tp_planner::table::{Align, Table};

use crate::numbers::{counted, grouped, in_billions};
use crate::terminal;

/// Maximum rows of an operator table. One line summarizes the rest.
const ROWS: usize = 12;

pub(super) fn render(report: &RehearsalReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} on {} × {}{}: {} parameters, {}, {}, {}",
        report.model,
        report.cards,
        report.card,
        report.stages.map_or_else(String::new, |stages| format!(" in {}", counted(stages, "stage"))),
        in_billions(report.parameters),
        counted(report.layers, "layer"),
        report.dtype,
        report.topology,
    );
    let _ = writeln!(
        text,
        "{}, {} in, {} out, residual stream {}, {}\n",
        counted(report.batch, "sequence"),
        counted(report.input, "token"),
        counted(report.output, "token"),
        report.residual,
        report.launching,
    );
    let _ =
        writeln!(text, "Bytes of the fullest card\n{}", memory(&report.memory, MemoryKind::KvCache.name()));
    if !report.formats.is_empty() {
        let _ = writeln!(text, "Weights by format in the files\n{}", formats(&report.formats));
    }
    let _ = writeln!(text, "Time: {}\n{}", report.error_bar, times(report));
    let _ = writeln!(text, "Time by activity\n{}", shares(&report.phases));
    for phase in &report.phases {
        tables(&mut text, phase, &report.limits);
    }
    if let Some(hint) = hint(report) {
        let _ = writeln!(text, "{hint}");
    }
    text
}

pub(super) fn render_step(report: &train::TrainingReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} on {} × {}, {}: {} parameters, {}, {}, {}",
        report.model,
        report.cards,
        report.card,
        report.mesh,
        in_billions(report.parameters),
        counted(report.layers, "layer"),
        report.dtype,
        report.topology,
    );
    let _ = writeln!(
        text,
        "{} of {} a step in {}, residual stream {}\n",
        counted(report.global_batch, "sequence"),
        counted(report.seq, "token"),
        counted(report.micro_batches, "micro-batch"),
        report.residual,
    );
    let _ = writeln!(
        text,
        "Bytes of the fullest card\n{}",
        memory(&report.memory, "optimizer state and gradient sums")
    );
    let mut times = terminal::table([("", Align::Left), ("", Align::Left)]);
    times.row(["step".to_owned(), time(report.step_us)]);
    for phase in &report.phases {
        let total = format!("{} in {}", time(phase.total_us), counted(phase.times, "run"));
        times.row([phase.first.name.clone(), total]);
    }
    times.row(["tokens per second".to_owned(), format!("{:.1}", report.tokens_per_s)]);
    times.row(["MFU".to_owned(), percent(report.mfu)]);
    let _ = writeln!(text, "Time: {}\n{times}", report.error_bar);
    let phases: Vec<&PhaseReport> = report.phases.iter().map(|phase| &phase.first).collect();
    let _ = writeln!(text, "Time by activity\n{}", shares(phases.iter().copied()));
    for phase in phases {
        tables(&mut text, phase, &report.limits);
    }
    text
}

fn tables(text: &mut String, phase: &PhaseReport, limits: &StepLimits) {
    let _ = writeln!(text, "Operators of the {} on one card\n{}", phase.name, operators(phase, limits));
    if !phase.collectives.is_empty() {
        let _ = writeln!(text, "Collectives of the {} on one card\n{}", phase.name, collectives(phase));
    }
}

/// Formats the memory table. `states` names the memory that persists between runs.
pub(super) fn memory(memory: &RehearsalMemory, states: &str) -> Table {
    let mut table = terminal::table([
        ("", Align::Left),
        ("", Align::Right),
        ("bytes", Align::Right),
        ("of available", Align::Right),
    ]);
    let mut row = |name: &str, bytes: u64| {
        let part = format!("{:.1} %", 100.0 * bytes as f64 / memory.offered.max(1) as f64);
        table.row([name.to_owned(), Bytes(bytes).to_string(), grouped(bytes), part]);
    };
    for (kind, bytes) in memory.kinds.kinds() {
        row(if kind == MemoryKind::KvCache { states } else { kind.name() }, bytes.0);
    }
    row("used", memory.used);
    row("free", memory.offered.saturating_sub(memory.used));
    row("available", memory.offered);
    table.row([
        "reserved by driver and runtime".to_owned(),
        Bytes(memory.kept_by_driver).to_string(),
        grouped(memory.kept_by_driver),
        String::new(),
    ]);
    table
}

/// Formats the bytes of weights in the files and on the fullest card, with their sums.
fn formats(formats: &[FormatBytes]) -> Table {
    let mut table = terminal::table([
        ("format", Align::Left),
        ("weights", Align::Right),
        ("bytes in the files", Align::Right),
        ("bytes on the fullest card", Align::Right),
    ]);
    let mut row = |name: &str, weights: usize, stored: u64, on_card: u64| {
        table.row([name.to_owned(), grouped(weights as u64), grouped(stored), grouped(on_card)]);
    };
    for FormatBytes { format, weights, stored, on_card } in formats {
        row(format, *weights, *stored, *on_card);
    }
    let sum = |of: &dyn Fn(&FormatBytes) -> u64| formats.iter().map(of).sum();
    let weights = formats.iter().map(|format| format.weights).sum();
    row("all", weights, sum(&|format| format.stored), sum(&|format| format.on_card));
    table
}

fn times(report: &RehearsalReport) -> Table {
    let mut table = terminal::table([("", Align::Left), ("", Align::Left)]);
    let token = &report.token_us;
    table.row(["time to first token".to_owned(), time(report.first_token_us)]);
    let spread = format!("{} (first {}, last {})", time(token.mean), time(token.first), time(token.last));
    table.row(["time per token".to_owned(), spread]);
    let rate =
        format!("{:.1} ({:.1} with the prefill)", report.tokens_per_s, report.tokens_per_s_with_prefill);
    table.row(["tokens per second".to_owned(), rate]);
    table
}

fn shares<'a>(phases: impl IntoIterator<Item = &'a PhaseReport>) -> Table {
    let mut table = terminal::table([
        ("", Align::Left),
        ("time", Align::Right),
        ("computing", Align::Right),
        ("communication", Align::Right),
        ("exposed", Align::Right),
        ("waiting for peers", Align::Right),
        ("launch-bound", Align::Right),
        ("host before and after", Align::Right),
    ]);
    for phase in phases {
        let shares = &phase.shares;
        table.row([
            phase.name.clone(),
            time(phase.duration_us),
            percent(shares.compute + shares.hidden_communication),
            percent(phase.communication),
            percent(shares.exposed_communication),
            percent(shares.waiting_for_peers),
            percent(shares.launch),
            percent(shares.host),
        ]);
    }
    table
}

fn operators(phase: &PhaseReport, limits: &StepLimits) -> String {
    let mut table = terminal::table([
        ("operator", Align::Left),
        ("count", Align::Right),
        ("mean", Align::Right),
        ("total", Align::Right),
        ("share", Align::Right),
        ("bound by", Align::Left),
        ("TFLOP/s", Align::Right),
        ("of peak", Align::Right),
        ("GB/s", Align::Right),
        ("of HBM", Align::Right),
        ("shapes", Align::Left),
    ])
    .optional(["shapes", "GB/s", "TFLOP/s", "mean"]);
    for row in phase.operators.iter().take(ROWS) {
        table.row([
            row.name.clone(),
            grouped(row.count as u64),
            time(row.mean_us),
            time(row.total_us),
            percent(row.share),
            row.bound.clone(),
            format!("{:.1}", row.flops_per_s / 1e12),
            percent(row.flops_per_s / limits.flops_per_s),
            format!("{:.0}", row.bytes_per_s / 1e9),
            // A rate above the HBM bandwidth comes from the cache.
            if row.bytes_per_s > limits.bytes_per_s {
                "cache".to_owned()
            } else {
                percent(row.bytes_per_s / limits.bytes_per_s)
            },
            row.shapes.clone(),
        ]);
    }
    let mut text = table.to_string();
    let rest = phase.operators.iter().skip(ROWS);
    let (kinds, share): (usize, f64) = (rest.clone().count(), rest.map(|row| row.share).sum());
    if kinds > 0 {
        let _ = writeln!(text, "  and {} with {} of the time", counted(kinds, "more kind"), percent(share));
    }
    text
}

fn collectives(phase: &PhaseReport) -> Table {
    let mut table = terminal::table([
        ("collective", Align::Left),
        ("ranks", Align::Right),
        ("bytes", Align::Right),
        ("count", Align::Right),
        ("mean", Align::Right),
        ("wait", Align::Right),
        ("total", Align::Right),
        ("share", Align::Right),
        ("bound by", Align::Left),
        ("GB/s", Align::Right),
    ])
    .optional(["ranks", "GB/s", "mean"]);
    for row in &phase.collectives {
        table.row([
            row.name.clone(),
            row.group.to_string(),
            Bytes(row.bytes as u64).to_string(),
            grouped(row.count as u64),
            time(row.mean_us),
            time(row.wait_us),
            time(row.total_us),
            percent(row.share),
            row.bound.clone(),
            format!("{:.1}", row.bytes_per_s / 1e9),
        ]);
    }
    table
}

/// Suggests `--captured` if decode steps wait for the host.
fn hint(report: &RehearsalReport) -> Option<String> {
    const WORTH_SAYING: f64 = 0.1;
    let decode = report.phases.iter().find(|phase| phase.name == "decode")?;
    let calls = grouped(decode.calls as u64);
    (report.launching == "eager" && decode.shares.launch > WORTH_SAYING).then(|| {
        let share = percent(decode.shares.launch);
        format!(
            "{share} of a decode step is spent waiting for {calls} calls of the host; pass --captured to replay a graph instead"
        )
    })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats a time, such as `12.3 µs`, `4.56 ms` or `1.23 s`.
fn time(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{:.2} s", us / 1e6),
        _ if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        _ => format!("{us:.1} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!([0.04, 12.34, 4_560.0, 1_234_567.0].map(time), ["0.0 µs", "12.3 µs", "4.56 ms", "1.23 s"]);
    }
}
