//! Timelines of the cards' work, on a virtual clock or from device events.
//!
//! Input: [`Span`]s of the plans of all ranks. Output: [`Shares`] of the time, and a [`trace`] for
//! Perfetto. Invariant: all times come from the caller; nothing runs here.

mod span;
pub mod trace;

pub use span::{Phase, Shares, Span, SpanWork, TimedCall, side_by_side};

use crate::call::View;
use crate::schedule::plan::{Action, CollectiveKind, Plan, Region, Step, Tensor};

/// Returns a description of a step, without the layer number. `+2` means that two more weights
/// follow the named one.
#[must_use]
pub fn step_name(plan: &Plan, step: &Step) -> String {
    let Some(note) = plan.notes.get(step.op) else { return String::new() };
    let weight = || {
        let is_weight = |view: &&View| plan.buffers[view.buffer].region == Region::Weights;
        // An exchange is named after the value it moves, even if fused with a product.
        let Action::Launch(call) = &step.action else { return None };
        let view = call.reads().into_iter().find(is_weight)?;
        let is_read = |param: &&Tensor| param.buffer == view.buffer && view.span().contains(&param.offset);
        let mut read = plan.params.iter().filter(is_read);
        let first = read.next()?.name.clone();
        Some(match read.count() {
            0 => first,
            others => format!("{first} +{others}"),
        })
    };
    // A value without a name, such as `%17`, says nothing.
    let named = Some(&note.value).filter(|value| !value.starts_with('%')).cloned();
    // The op of a transfer is the one that computed the value.
    let exchanged = if let Action::Exchange(of) = &step.action { Some(&of.kind) } else { None };
    let kind = match exchanged {
        Some(CollectiveKind::Send { .. }) => "send",
        Some(CollectiveKind::Receive { .. }) => "receive",
        _ => note.kind,
    };
    match weight().or(named) {
        Some(name) => format!("{kind} {}", without_layer(&name)),
        None => kind.to_owned(),
    }
}

/// Maps `layers.3.mlp.out` to `mlp.out`. The text before the number is the same for all layers.
fn without_layer(name: &str) -> &str {
    let mut rest = name;
    while let Some((part, after)) = rest.split_once('.') {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            return after;
        }
        rest = after;
    }
    name.trim_start_matches("model.").trim_start_matches("transformer.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_one_name() {
        for (name, expected) in [
            ("model.layers.3.mlp.gate_proj.weight", "mlp.gate_proj.weight"),
            ("transformer.h.12.attn.c_attn.q.weight", "attn.c_attn.q.weight"),
            ("residual.7.mlp", "mlp"),
            ("model.embed_tokens.weight", "embed_tokens.weight"),
            ("lm_head.weight", "lm_head.weight"),
            ("logits", "logits"),
        ] {
            assert_eq!(without_layer(name), expected);
        }
    }
}
