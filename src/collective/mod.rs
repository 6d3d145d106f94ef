//! Makes all communication explicit, and verifies that nothing is missing.
//!
//! Input: a program and its placement. Output: a [`Placed`] program of ops on local shards and
//! collectives. The passes are [`insert_reshards`], [`lower`], [`fuse`] and
//! [`share`](fn@share). [`verify`] checks the result using only the ops' rules.
//!
//! Invariants: values keep their ids through all passes. Every rank runs the same ops in the same
//! order.
//!
//! Not here: the choice of layouts (`placement`) and the execution order (`schedule`).

mod explain;
mod fuse;
mod lower;
mod reshard;
mod share;
mod verify;

pub use explain::{ExplainedExchange, exchanges};
pub use fuse::fuse;
pub use lower::lower;
pub use reshard::insert_reshards;
pub use share::{SMALL_BYTES, share};
pub use verify::{verify, verify_resharded};

use tracing::debug_span;

use crate::base::Diagnostics;
use crate::placement::{Mesh, Pins, Placed, Placement, place};
use crate::program::Program;

/// A program split over a mesh, after each pass.
#[derive(Clone, Debug)]
pub struct Parallelized {
    /// The chosen layouts of all values.
    pub placement: Placement,
    /// The program with explicit reshards.
    pub resharded: Placed,
    /// The program with collectives, which the schedule runs.
    pub lowered: Placed,
}

/// Splits a program over a mesh: chooses layouts, inserts reshards, lowers them to collectives, and
/// verifies.
///
/// ```
/// use ascend_tp::compiler::{Builder, print_placed};
/// use ascend_tp::{DType, Mesh, Pins, parallelize};
///
/// let mut build = Builder::new("linear");
/// let x = build.input("x", [2, 4], DType::F32);
/// let w = build.param("w", [6, 4], DType::F32);
/// let y = build.matmul("bi,oi->bo", x, w);
/// build.output("y", y);
/// let pins = Pins::default().split_axis("w", 1);
/// let split = parallelize(&build.finish()?, &Mesh::new(&[("tp", 2)])?, &pins)?;
/// assert!(print_placed(&split.lowered).contains("all_reduce"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns all problems of the first pass that fails.
pub fn parallelize(program: &Program, mesh: &Mesh, pins: &Pins) -> Result<Parallelized, Diagnostics> {
    parallelize_apart(program, mesh, pins, |_| Vec::new())
}

/// Like [`parallelize`], but small tensors share a collective only if their ops have the same
/// number in `apart`. `apart` gets the lowered program, with the original value ids, and returns
/// one number per op.
///
/// # Errors
/// Fails like [`parallelize`].
pub fn parallelize_apart(
    program: &Program,
    mesh: &Mesh,
    pins: &Pins,
    apart: impl Fn(&Program) -> Vec<usize>,
) -> Result<Parallelized, Diagnostics> {
    let _span = debug_span!("parallelize", program = program.name).entered();
    crate::program::verify::verify(program)?;
    let placement = debug_span!("place").in_scope(|| place(program, mesh, pins))?;
    let resharded = debug_span!("insert_reshards").in_scope(|| insert_reshards(program, mesh, &placement));
    // A stage is verified in parallel with the pass that follows it.
    let (checked, fused) = rayon::join(
        || check(&resharded, verify_resharded),
        || {
            let lowered = debug_span!("lower").in_scope(|| lower(&resharded))?;
            Ok::<_, Diagnostics>(debug_span!("fuse").in_scope(|| fuse(lowered)))
        },
    );
    checked?;
    let fused = fused?;
    let apart = apart(&fused.program);
    let lowered = debug_span!("share").in_scope(|| share(fused, &apart));
    check(&lowered, verify)?;
    Ok(Parallelized { placement, resharded, lowered })
}

fn check(placed: &Placed, layouts: fn(&Placed) -> Result<(), Diagnostics>) -> Result<(), Diagnostics> {
    let _span = debug_span!("verify_placed", program = placed.program.name).entered();
    let (program, layouts) =
        rayon::join(|| crate::program::verify::verify(&placed.program), || layouts(placed));
    program.and(layouts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::DType;
    use crate::config::{GroupedAttention, ModelConfig, QkNorm};
    use crate::placement::{self, Residual};
    use crate::program::Role;
    use crate::program::models::{Head, RunShape, decoder};

    fn split(config: &ModelConfig, cards: usize, run: RunShape, head: Head, pins: &Pins) -> Parallelized {
        let program = decoder(config, run, DType::BF16, head).unwrap();
        let mesh = Mesh::tensor_parallel(cards, config.kv_heads, config.heads_per_kv_head()).unwrap();
        parallelize(&program, &mesh, pins).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn counts(lowered: &Placed) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for exchange in exchanges(lowered) {
            *counts.entry(exchange.kind).or_default() += 1;
        }
        counts
    }

    const DECODE: RunShape = RunShape::new(1, 1, 64);
    const PREFILL: RunShape = RunShape::new(1, 64, 64);

    #[test]
    fn two_all_reduces_a_layer_and_one_for_the_embedding() {
        for preset in ModelConfig::dense_presets() {
            let config = ModelConfig::preset(preset).unwrap();
            // A norm over all heads adds the squares of queries, and the squares of keys.
            let has_sums = |attention: &GroupedAttention| attention.qk_norm == Some(QkNorm::AllHeads);
            let norms = 2 * config.attentions().filter(|attention| has_sums(attention)).count();
            let all_reduces = 2 * config.layers + 1 + norms;
            let megatron = Pins::megatron(Residual::Replicate);
            // See `the_automatic_cut_is_megatrons`.
            let auto = match config.query_width() < config.hidden_size {
                true => megatron.clone(),
                false => Pins::auto(Residual::Replicate),
            };
            for pins in [auto.clone(), megatron] {
                let found = counts(&split(&config, 8, DECODE, Head::LastLogits, &pins).lowered);
                assert_eq!(
                    found,
                    BTreeMap::from([("all_reduce", all_reduces), ("all_gather", 1)]),
                    "{preset}"
                );
            }
            // The most likely token needs its value and index, not all logits.
            let greedy = split(&config, 8, DECODE, Head::LastToken, &auto);
            assert_eq!(
                counts(&greedy.lowered),
                BTreeMap::from([("all_reduce", all_reduces + 2)]),
                "{preset}"
            );
        }
    }

    #[test]
    fn heads_that_do_not_divide_exchange_no_more() {
        for (heads, kv_heads) in [(64, 8), (8, 2), (28, 4), (6, 3)] {
            let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
            (config.layers, config.heads, config.kv_heads) = (3, heads, kv_heads);
            config.hidden_size = heads * config.head_dim;
            for cards in [2, 3, 5, 6, 7, 8, 12] {
                for run in [DECODE, PREFILL] {
                    let found =
                        split(&config, cards, run, Head::LastLogits, &Pins::auto(Residual::Replicate));
                    let expected = BTreeMap::from([("all_reduce", 7), ("all_gather", 1)]);
                    assert_eq!(
                        counts(&found.lowered),
                        expected,
                        "{heads} heads, {kv_heads} of keys, {cards} cards"
                    );
                }
            }
        }
    }

    #[test]
    fn a_residual_stream_along_the_sequence_turns_each_all_reduce_into_two_halves() {
        let config = ModelConfig::preset("qwen2.5-72b").unwrap();
        let found = split(&config, 8, PREFILL, Head::LastLogits, &Pins::auto(Residual::Seq));
        let halves = 2 * config.layers + 1;
        // One more gather for the logits.
        let expected = BTreeMap::from([("reduce_scatter", halves), ("all_gather", halves + 1)]);
        assert_eq!(counts(&found.lowered), expected);
    }

    #[test]
    fn the_automatic_cut_is_megatrons() {
        for preset in ModelConfig::dense_presets() {
            let mut config = ModelConfig::preset(preset).unwrap();
            config.layers = 3;
            if config.query_width() < config.hidden_size {
                // Fewer bytes gather the heads than add the outputs, so `Pins::decoder` chooses
                // Megatron's cuts.
                continue;
            }
            for cards in [1, 2, 3, 5, 8, 16] {
                for residual in [Residual::Replicate, Residual::Seq] {
                    let auto = split(&config, cards, PREFILL, Head::LastLogits, &Pins::auto(residual));
                    let megatron =
                        split(&config, cards, PREFILL, Head::LastLogits, &Pins::megatron(residual));
                    for id in auto.lowered.program.with_role(Role::Param) {
                        let name = auto.lowered.program.label(id);
                        assert_eq!(
                            auto.lowered.layouts[id], megatron.lowered.layouts[id],
                            "{preset} {cards} {name}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_pin_on_one_layer_leaves_the_others_alone() {
        let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
        config.layers = 3;
        let free = split(&config, 8, DECODE, Head::LastLogits, &Pins::auto(Residual::Replicate));
        for layer in 0..3 {
            let name = format!("model.layers.{layer}.mlp.down_proj.weight");
            let pins = Pins::auto(Residual::Replicate).split_axis(&name, 0);
            let pinned = split(&config, 8, DECODE, Head::LastLogits, &pins);
            for id in free.lowered.program.with_role(Role::Param) {
                let (free, found) = (&free.lowered.layouts[id], &pinned.lowered.layouts[id]);
                let is_pinned = pinned.lowered.program.values[id].name == name;
                assert_eq!(
                    free != found,
                    is_pinned,
                    "{} with a pin on layer {layer}",
                    pinned.lowered.program.label(id)
                );
            }
        }
    }

    #[test]
    fn placed_texts_parse_to_what_was_printed() {
        let mut config = ModelConfig::preset("qwen3-32b").unwrap();
        config.layers = 1;
        let found = split(&config, 16, PREFILL, Head::LastToken, &Pins::auto(Residual::Seq));
        for placed in [&found.resharded, &found.lowered] {
            assert_eq!(placement::parse(&placement::print(placed)).unwrap(), *placed);
        }
    }

    #[test]
    fn one_card_exchanges_nothing() {
        let mut config = ModelConfig::preset("llama-3-70b").unwrap();
        config.layers = 2;
        let found = split(&config, 1, PREFILL, Head::AllLogits, &Pins::auto(Residual::Seq));
        assert!(found.lowered.program.ops.values().iter().all(|op| !op.kind.is_movement()));
    }
}
