//! The reports of the command `data` as text.

use std::fmt::Write as _;

use ascend_tp::train::data::Lengths;

use super::super::numbers::{counted, decimal_bytes, grouped};
use super::{InspectReport, PrepareReport, TokenizerReport};

pub(super) fn prepared(report: &PrepareReport) -> String {
    let tokens = grouped(report.tokens);
    let mut text = format!(
        "{}: {}, {tokens} tokens in {}",
        report.out.display(),
        counted(report.documents, "document"),
        report.dtype.name()
    );
    if report.ignored > 0 {
        let _always = write!(text, ", {} of them not learned", grouped(report.ignored));
    }
    text + "\n"
}

pub(super) fn inspected(InspectReport { summary, texts }: &InspectReport) -> String {
    let mut rows = vec![
        ("documents", grouped(summary.documents)),
        ("sequences", grouped(summary.sequences)),
        (
            "tokens",
            format!(
                "{} in {}, {}",
                grouped(summary.tokens),
                summary.dtype.name(),
                decimal_bytes(summary.bytes.0)
            ),
        ),
    ];
    if let (Some(smallest), Some(largest)) = (summary.smallest_id, summary.largest_id) {
        rows.push(("ids", format!("{smallest} to {largest}")));
    }
    if let Some(negative) = &summary.negative {
        let first = format!("the first at document {}, token {}", negative.document, negative.token);
        let tokens = counted(usize::try_from(negative.tokens).unwrap_or(usize::MAX), "token");
        rows.push(("ids below 0", format!("{tokens}, {first}; no model has such ids")));
    }
    if let Some(ignored) = summary.ignored {
        rows.push(("not learned", format!("{} tokens", grouped(ignored))));
    }
    if let Some(Lengths { shortest, p10, median, p90, p99, longest, mean }) = &summary.lengths {
        let shares = [
            ("shortest", shortest),
            ("10 %", p10),
            ("half", median),
            ("90 %", p90),
            ("99 %", p99),
            ("longest", longest),
        ];
        let shares: Vec<String> =
            shares.iter().map(|(name, length)| format!("{name} {}", grouped(**length))).collect();
        rows.push(("lengths", format!("{}, mean {mean:.1}", shares.join(", "))));
    }
    let mut text = String::new();
    for (name, value) in rows {
        let _always = writeln!(text, "  {name:<11}  {value}");
    }
    for (index, document) in summary.first.iter().enumerate() {
        let mut ids: Vec<String> = document.ids.iter().map(ToString::to_string).collect();
        if document.ids.len() as u64 != document.tokens {
            ids.push("…".to_owned());
        }
        let _always =
            writeln!(text, "  document {index}: {} tokens: {}", grouped(document.tokens), ids.join(" "));
        if let Some(beginning) = texts.as_ref().and_then(|texts| texts.get(index)) {
            let _always = writeln!(text, "    {beginning:?}");
        }
    }
    text
}

pub(super) fn learned(report: &TokenizerReport) -> String {
    format!(
        "{}: {} tokens from {} of text\n",
        report.out.display(),
        grouped(report.size as u64),
        decimal_bytes(report.bytes.0)
    )
}
