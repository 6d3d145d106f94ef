//! Text reports of `plan --serve`.

use std::fmt::Write;

use ascend_tp::base::Bytes;
use ascend_tp_planner::serve::{Objective, ServingRequest};
use ascend_tp_planner::table::Align;

use super::report::{Explanation, PlanReport, SplitEntry};
use crate::numbers::{counted, grouped};
use crate::terminal;

fn heading(name: &str, request: &ServingRequest<'_>) -> String {
    let wanted = match request.objective {
        Objective::Throughput => "highest throughput",
        Objective::Latency => "lowest latency",
    };
    let within = |limit: Option<f64>, what: &str| {
        limit.map_or(String::new(), |limit| format!(" within {:.1} ms {what}", limit / 1e3))
    };
    let limits = [(request.max_token_us, "per token"), (request.max_first_token_us, "to the first token")];
    let limit = limits.map(|(limit, what)| within(limit, what)).concat();
    format!(
        "{name} in {} on {} of {} ({}): {} of {} + {}, {wanted}{limit}\n",
        request.precision,
        counted(request.cards, "card"),
        request.profile.soc,
        request.topology.name,
        counted(request.batch, "sequence"),
        grouped(request.input_tokens as u64),
        counted(request.output_tokens, "token"),
    )
}

fn table(entries: &[SplitEntry]) -> String {
    let mut table = terminal::table([
        ("", Align::Right),
        ("split", Align::Left),
        ("first token", Align::Right),
        ("per token", Align::Right),
        ("tokens/s", Align::Right),
        ("memory per card", Align::Right),
        ("of usable", Align::Right),
    ])
    .optional(["memory per card"]);
    for (index, entry) in entries.iter().enumerate() {
        table.row([
            format!("{}", index + 1),
            entry.split.clone(),
            format!("{:.1} ms", entry.first_token_ms),
            format!("{:.2} ms", entry.token_ms),
            format!("{:.1}", entry.tokens_per_s),
            Bytes(entry.memory_bytes).to_string(),
            format!("{:.0} %", entry.memory_share * 100.0),
        ]);
    }
    table.to_string()
}

pub(super) fn report(name: &str, request: &ServingRequest<'_>, report: &PlanReport) -> String {
    let mut text = heading(name, request);
    let _ = write!(text, "Times are predictions: {}\n\n{}\n", report.error_bar, table(&report.best));
    for (index, entry) in report.best.iter().enumerate() {
        let idle = match entry.idle_cards {
            0 => String::new(),
            idle => {
                format!("; {} idle", if idle == 1 { "1 card is".into() } else { format!("{idle} cards are") })
            }
        };
        let _ = writeln!(text, "{:3}  {}{idle}", index + 1, entry.reason);
    }
    for entry in &report.beaten {
        let _ = writeln!(text, "  -  {}: {}", entry.split, entry.reason);
    }
    if let Some(grid) = &report.grid {
        let _ = writeln!(
            text,
            "\nThe best split with weights sharded over two axes (tp_row) is {}: {}",
            grid.split, grid.reason
        );
    }
    if report.others > 0 {
        let _ =
            writeln!(text, "\n{} more can run; use --top N to show more.", counted(report.others, "split"));
    }
    if !report.refused.is_empty() {
        text.push_str("\nCannot run:\n");
        for entry in &report.refused {
            let _ = writeln!(text, "  {}: {}", entry.split, entry.reason);
        }
    }
    text.push_str("\nUse --why tp=N to explain a split in full.\n");
    text
}

pub(super) fn explanation(name: &str, request: &ServingRequest<'_>, explanation: &Explanation) -> String {
    let entry = &explanation.entry;
    let mut text = heading(name, request);
    let _ = writeln!(text, "Times are predictions: {}", explanation.error_bar);
    let state = match explanation.place {
        Some(1) => "best split".to_owned(),
        Some(place) => format!("rank {place}"),
        None if explanation.can_run => "can run; one axis is faster".to_owned(),
        None => "cannot run".to_owned(),
    };
    let _ = writeln!(text, "\n{}: {state}\n  {}", entry.split, entry.reason);
    let over =
        if explanation.levels.is_empty() { "no links".to_owned() } else { explanation.levels.join(" and ") };
    let _ = writeln!(
        text,
        "  {} of {} per replica, collectives over {over}; {:.1} ms to the first token, {:.2} ms per token, {:.1} tokens/s",
        counted(entry.sequences, "sequence"),
        counted(request.input_tokens + request.output_tokens, "token"),
        entry.first_token_ms,
        entry.token_ms,
        entry.tokens_per_s,
    );
    text.push_str("\nBytes of the fullest card\n");
    let mut memory = terminal::table([("kind", Align::Left), ("bytes", Align::Right), ("", Align::Right)]);
    for (kind, bytes) in &explanation.memory {
        memory.row([(*kind).to_owned(), grouped(bytes.0), bytes.to_string()]);
    }
    memory.row(["total".into(), grouped(entry.memory_bytes), Bytes(entry.memory_bytes).to_string()]);
    memory.row(["usable".into(), grouped(explanation.usable.0), explanation.usable.to_string()]);
    text.push_str(&memory.to_string());
    for phase in &explanation.phases {
        let parts = &phase.breakdown;
        let _ = writeln!(
            text,
            "\nTime of {}: {:.3} ms, {}, {} of {:.3} ms ({:.3} ms exposed)",
            phase.name,
            parts.duration_us / 1e3,
            counted(parts.kernels, "operator"),
            counted(parts.collectives, "collective"),
            parts.collectives_us / 1e3,
            parts.exposed_us / 1e3,
        );
        let mut terms =
            terminal::table([("term", Align::Left), ("ms", Align::Right), ("share", Align::Right)]);
        for (name, us) in &phase.terms {
            let share = us / parts.duration_us * 100.0;
            terms.row([(*name).to_owned(), format!("{:.3}", us / 1e3), format!("{share:.1} %")]);
        }
        text.push_str(&terms.to_string());
    }
    if explanation.alike > 0 {
        let _ = writeln!(
            text,
            "\n{} more with these properties; the best is shown.",
            counted(explanation.alike, "split")
        );
    }
    text
}
