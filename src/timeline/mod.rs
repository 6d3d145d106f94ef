//! What cards did and when: on a virtual clock, or by events of their own streams.
//!
//! Input → output: [`Span`]s of the plans of all ranks → [`Shares`] of the time, and a [`trace`] that Perfetto opens. Invariant: it
//! is told when everything was, and computes no time of its own. Does not: run anything.

mod span;
pub mod trace;

pub use span::{Phase, Shares, Span, SpanWork, TimedCall, side_by_side};

use crate::call::View;
use crate::schedule::plan::{Action, CollectiveKind, Plan, Region, Step, Tensor};

/// What a step is about, without the layer's number; `+2`: and two more weights, behind the one that is named.
#[must_use]
pub fn step_name(plan: &Plan, step: &Step) -> String {
    let Some(note) = plan.notes.get(step.op) else { return String::new() };
    let weight = || {
        let is_weight = |view: &&View| plan.buffers[view.buffer].region == Region::Weights;
        // An exchange is about what it moves, also where it multiplies in the same call.
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
    // Values without a name are called `%17`, which says nothing.
    let named = Some(&note.value).filter(|value| !value.starts_with('%')).cloned();
    // The op of a transfer between stages is the one that made what goes.
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

/// `layers.3.mlp.out` → `mlp.out`; what stands before the number is the same for all layers.
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
