//! The latent attention that a `config.json` describes.
//!
//! Input: the keys `kv_lora_rank`, `q_lora_rank`, `qk_nope_head_dim`, `qk_rope_head_dim` and
//! `v_head_dim`. Output: [`LatentDims`].
//!
//! Invariants: the rotated dims of a head can be paired.
//!
//! Not here: the rotary embedding.

use super::fields::Fields;
use super::layer::{LatentAttention, Rotary};
use crate::base::Diagnostic;

/// Dims of latent attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatentDims {
    width: usize,
    query_width: Option<usize>,
    plain_dims: usize,
    /// Rotated dims of a head.
    pub(super) rotary_dims: usize,
    value_dims: usize,
}

impl LatentDims {
    /// Returns the width of a row of the cache.
    pub(super) const fn row_width(&self) -> usize {
        self.width + self.rotary_dims
    }

    /// Returns the dims of a query or key head.
    pub(super) const fn head_dim(&self) -> usize {
        self.plain_dims + self.rotary_dims
    }

    /// Returns the attention of which the rotary embedding multiplies the scores by `factor`.
    pub(super) fn attention(&self, factor: f64) -> LatentAttention {
        let Self { width, query_width, plain_dims, rotary_dims, value_dims } = *self;
        let scale = factor / (self.head_dim() as f64).sqrt();
        let (rotary, norm_epsilon) = (Rotary::Global, NORM_EPSILON);
        LatentAttention {
            width,
            query_width,
            plain_dims,
            rotary_dims,
            value_dims,
            scale,
            norm_epsilon,
            rotary,
        }
    }
}

/// Number that the norms of latents add to the mean square. The classes of transformers do not read
/// it from the file.
const NORM_EPSILON: f64 = 1e-6;

/// Reads the dims.
pub(super) fn read(fields: &mut Fields<'_>) -> Option<LatentDims> {
    // All heads have separate keys. Files write some number.
    fields.get("num_key_value_heads");
    let width = fields.size("kv_lora_rank");
    let query_width = query_width(fields);
    let plain_dims = fields.size("qk_nope_head_dim");
    let rotary_dims = fields.size("qk_rope_head_dim").and_then(|dims| paired(fields, dims));
    let value_dims = fields.size("v_head_dim");
    let dims = LatentDims {
        width: width?,
        query_width: query_width?,
        plain_dims: plain_dims?,
        rotary_dims: rotary_dims?,
        value_dims: value_dims?,
    };
    agrees(fields, "head_dim", &[dims.rotary_dims, dims.head_dim()])?;
    agrees(fields, "qk_head_dim", &[dims.head_dim()])?;
    Some(dims)
}

/// Reads the width of the latent of queries. `null` means that there is none. A file without the
/// key is not clear.
fn query_width(fields: &mut Fields<'_>) -> Option<Option<usize>> {
    const KEY: &str = "q_lora_rank";
    if fields.has(KEY) && fields.get(KEY).is_none() {
        return Some(None);
    }
    fields.size(KEY).map(Some)
}

fn paired(fields: &mut Fields<'_>, dims: usize) -> Option<usize> {
    if dims.is_multiple_of(2) {
        return Some(dims);
    }
    fields.report(
        Diagnostic::new(fields.place("qk_rope_head_dim"), "the rotated dims of a head cannot be paired")
            .expected("an even number")
            .found(dims),
    );
    None
}

/// Refuses other dims of a head than transformers writes: the number of rotated dims, or the number
/// of all dims.
fn agrees(fields: &mut Fields<'_>, key: &str, expected: &[usize]) -> Option<()> {
    if fields.get(key).is_none() {
        return Some(());
    }
    let found = fields.size(key)?;
    if expected.contains(&found) {
        return Some(());
    }
    let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
    fields.report(
        Diagnostic::new(fields.place(key), "contradicts the dims of latent attention")
            .expected(expected.join(" or "))
            .found(found),
    );
    None
}
