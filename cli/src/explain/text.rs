//! The text report of `explain`. Equal layers share a row.

use std::fmt::Write;

use ascend_tp::emulator::Soc;
use ascend_tp_planner::table::Align;

use super::fold::{class_of, fold};
use super::report::{
    Alternative, BorderReport, CardBytes, ExplainReport, FormatReport, KeysRead, LaunchReport, PassReport,
    Totals, UnpackedReport,
};
use crate::numbers::{counted, decimal_bytes, grouped, in_billions};
use crate::terminal;

pub(super) fn render(report: &ExplainReport) -> String {
    let mut text = String::new();
    let active = report.active_parameters.map(|active| format!(" ({} active)", in_billions(active)));
    let _ = writeln!(
        text,
        "{} ({}): {}, {} parameters{}, {}{} on {}, {}",
        report.model,
        report.architecture,
        counted(report.layers, "layer"),
        in_billions(report.parameters),
        active.unwrap_or_default(),
        report.dtype,
        report.kv_dtype.map(|dtype| format!(" with {dtype} caches")).unwrap_or_default(),
        counted(report.cards, "card"),
        report.mesh,
    );
    let _ = writeln!(text, "{}", describe(&report.program));
    let tokens = counted(report.deciding_sequence, "token");
    let _ = writeln!(
        text,
        "\nWeights (bytes of the fullest card; sharded for the least communication in a prefill of {tokens} per sequence; `_` is an unsharded dim)\n{}",
        weights(report)
    );
    let _ = writeln!(text, "Collectives of one pass\n{}", collectives(report));
    let _ = writeln!(
        text,
        "Launches per layer and card: {}\n{}",
        report.launches.count,
        launches(&report.launches)
    );
    let _ = writeln!(text, "Totals\n{}", totals(report));
    if !report.formats.is_empty() {
        let _ = writeln!(text, "Weights by format in the files\n{}", formats(&report.formats));
        text.push_str(&unpacked(&report.unpacked));
    }
    if !report.borders.is_empty() {
        let _ = writeln!(text, "Shards that end at groups of the format\n{}", borders(&report.borders));
    }
    let _ = writeln!(text, "Bytes of the fullest card\n{}", memory(&report.memory, &report.program));
    text.push_str(&room(&report.memory));
    text
}

/// Describes a pass, such as `decode step: batch 1, 1 new token per sequence, …`.
fn describe(pass: &PassReport) -> String {
    let name = if pass.sequence == 1 { "decode step" } else { "prefill" };
    let residual = match pass.residual {
        "seq" => "sharded along the sequence",
        _ => "replicated on every card",
    };
    format!(
        "{name}: batch {}, {} per sequence, a KV cache of {}, residual stream {residual}",
        pass.batch,
        counted(pass.sequence, "new token"),
        counted(pass.context, "position"),
    )
}

fn shape(sizes: &[usize]) -> String {
    format!("[{}]", sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

fn weights(report: &ExplainReport) -> String {
    let mut table = terminal::table([
        ("layers", Align::Right),
        ("weight", Align::Left),
        ("shape", Align::Left),
        ("local shape", Align::Left),
        ("layout", Align::Left),
        ("bytes", Align::Right),
        ("reason", Align::Left),
    ])
    .optional(["shape", "local shape"]);
    let rows = fold(&report.weights, |row| {
        (
            class_of(&row.name),
            row.shape.clone(),
            row.local_shape.clone(),
            row.layout.clone(),
            class_of(&row.reason),
        )
    });
    for (count, row) in rows {
        let local = if row.least_local_shape == row.local_shape {
            shape(&row.local_shape)
        } else {
            format!("{} to {}", shape(&row.least_local_shape), shape(&row.local_shape))
        };
        table.row([
            layers(count, row.layer),
            class_of(&row.name),
            shape(&row.shape),
            local,
            row.layout.clone(),
            grouped(row.bytes_per_card),
            class_of(&row.reason),
        ]);
    }
    table.to_string()
}

fn layers(count: usize, layer: Option<usize>) -> String {
    if layer.is_some() { format!("{count} x") } else { String::new() }
}

fn collectives(report: &ExplainReport) -> String {
    if report.collectives.is_empty() {
        return "  none: one card holds everything\n".to_owned();
    }
    let mut table = terminal::table([
        ("count", Align::Right),
        ("op", Align::Left),
        ("axis", Align::Left),
        ("cards", Align::Right),
        ("bytes each", Align::Right),
        ("of", Align::Left),
        ("reason", Align::Left),
    ])
    .optional(["cards", "axis"]);
    let rows = fold(&report.collectives, |row| {
        (row.op, class_of(&row.value), row.axes.clone(), row.bytes, class_of(&row.reason))
    });
    for (count, row) in rows {
        table.row([
            format!("{count} x"),
            row.op.to_owned(),
            row.axes.clone(),
            row.group.to_string(),
            grouped(row.bytes),
            class_of(&row.value),
            class_of(&row.reason),
        ]);
    }
    table.to_string()
}

fn launches(launches: &LaunchReport) -> String {
    let mut table =
        terminal::table([("count", Align::Right), ("call", Align::Left), ("computes", Align::Left)]);
    for call in &launches.calls {
        table.row([format!("{} x", call.count), call.call.clone(), call.computes.join(", ")]);
    }
    let mut text = table.to_string();
    for apart in &launches.apart {
        let _ = writeln!(text, "  Separate launch: {}: {}.", apart.op, apart.reason);
    }
    let _ = match launches.keys {
        KeysRead::There => {
            writeln!(text, "  Attention reads the cached rows; the host passes their number, in graphs too.")
        }
        KeysRead::All => {
            writeln!(
                text,
                "  Attention reads all blocks of a sequence, because no operator supports this type or head size."
            )
        }
    };
    text
}

fn totals(report: &ExplainReport) -> String {
    let mut table = terminal::table([
        ("pass", Align::Left),
        ("tokens", Align::Right),
        ("collectives", Align::Left),
        ("sent per card", Align::Right),
        ("per token", Align::Right),
        ("arena", Align::Right),
    ]);
    let mut row = |pass: &PassReport, totals: &Totals, arena: u64| {
        table.row([
            name(pass),
            grouped(totals.tokens as u64),
            counts(totals),
            decimal_bytes(totals.sent_bytes_per_card),
            decimal_bytes(totals.sent_bytes_per_card_and_token),
            decimal_bytes(arena),
        ]);
    };
    row(&report.program, &report.totals, report.memory.arena);
    for Alternative { program, totals, arena } in &report.alternatives {
        row(program, totals, *arena);
    }
    format!(
        "{table}  Sent on a ring: 2(n-1)/n of the bytes of an all_reduce among n cards, (n-1)/n of other collectives.\n"
    )
}

fn name(pass: &PassReport) -> String {
    let kind = if pass.sequence == 1 { "decode step" } else { "prefill" };
    let output = if pass.output == "token" { "most likely token only" } else { "logits" };
    let residual = if pass.residual == "seq" { ", residual seq" } else { "" };
    format!("{kind}, {output}{residual}")
}

/// Formats collectives by kind, such as `161 all_reduce (2.6 MB), 1 all_gather (304.1 kB)`.
fn counts(totals: &Totals) -> String {
    if totals.by_op.is_empty() {
        return "none".to_owned();
    }
    let one = |total: &super::report::OpTotal| {
        format!("{} {} ({})", total.count, total.op, decimal_bytes(total.bytes))
    };
    totals.by_op.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn formats(formats: &[FormatReport]) -> String {
    let mut table = terminal::table([
        ("format", Align::Left),
        ("weights", Align::Right),
        ("bytes in the files", Align::Right),
        ("bytes on the first card", Align::Right),
    ]);
    for FormatReport { format, weights, stored_bytes, bytes_per_card } in formats {
        table.row([
            format.clone(),
            grouped(*weights as u64),
            grouped(*stored_bytes),
            grouped(*bytes_per_card),
        ]);
    }
    table.to_string()
}

/// Formats the weights that become floats, a sentence for each reason.
fn unpacked(reports: &[UnpackedReport]) -> String {
    let mut text = String::new();
    for UnpackedReport { format, name, weights, dtype, reason } in reports {
        let count = counted(*weights, "weight");
        let _ = writeln!(text, "  {count} in {format}, such as {name}, become {dtype}: {reason}.");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn borders(borders: &[BorderReport]) -> String {
    let mut table = terminal::table([
        ("layers", Align::Right),
        ("weight", Align::Left),
        ("axis", Align::Left),
        ("group", Align::Right),
        ("shards", Align::Left),
        ("if borders were free", Align::Left),
    ]);
    let rows = fold(borders, |row| (class_of(&row.name), row.axis, row.group, row.parts.clone()));
    for (count, row) in rows {
        table.row([
            layers(count, row.layer),
            class_of(&row.name),
            row.axis.to_owned(),
            row.group.to_string(),
            shape(&row.parts),
            shape(&row.balanced),
        ]);
    }
    table.to_string()
}

fn memory(memory: &CardBytes, pass: &PassReport) -> String {
    let mut table = terminal::table([
        ("kind", Align::Left),
        ("bytes", Align::Right),
        ("", Align::Right),
        ("", Align::Left),
    ]);
    let tokens = pass.batch * pass.context;
    // Layers with a window store fewer positions.
    let most = if memory.kv_cache < memory.kv_per_token * tokens as u64 { "at most " } else { "" };
    let caches =
        format!("{most}{} for each of {}", grouped(memory.kv_per_token), counted(tokens, "position"));
    for (kind, bytes, note) in [
        ("weights", memory.weights, String::new()),
        ("KV cache", memory.kv_cache, caches),
        ("inputs", memory.inputs, String::new()),
        ("outputs", memory.outputs, String::new()),
        ("arena", memory.arena, "intermediate values, which share memory".to_owned()),
        (
            "communicators",
            memory.communicators,
            "HCCL buffers, two of HCCL_BUFFSIZE per communicator".to_owned(),
        ),
        ("total", memory.total, "plus the workspace of operators, known when a card starts".to_owned()),
    ] {
        table.row([kind.to_owned(), grouped(bytes), decimal_bytes(bytes), note]);
    }
    table.to_string()
}

/// Formats the memory of a card that is left for more sequences.
fn room(memory: &CardBytes) -> String {
    let chip = Soc::default();
    let card = chip.hbm_usable_bytes();
    let name = chip.name();
    let Some(left) = card.checked_sub(memory.total) else {
        return format!(
            "  More than the {} of an {name} by {}: use more cards, a shorter --context or a 16-bit --dtype.\n",
            decimal_bytes(card),
            decimal_bytes(memory.total - card)
        );
    };
    let more = left.checked_div(memory.kv_per_token).unwrap_or(0);
    format!(
        "  An {name} has {}: {} remain for a KV cache of {} more.\n",
        decimal_bytes(card),
        decimal_bytes(left),
        counted(usize::try_from(more).unwrap_or(usize::MAX), "position"),
    )
}
