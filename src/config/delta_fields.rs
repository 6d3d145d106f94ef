//! The gated delta rule that a `config.json` describes.
//!
//! Input: the keys that a table of a family names. Output: [`GatedDelta`].
//!
//! Invariants: the number of value heads is a multiple of the number of key heads.
//!
//! Not here: the layers that have the rule.

use super::families::DeltaKeys;
use super::fields::Fields;
use super::layer::GatedDelta;
use crate::base::Diagnostic;

/// Reads the heads and the convolution.
pub(super) fn read(fields: &mut Fields<'_>, keys: &DeltaKeys) -> Option<GatedDelta> {
    let key_heads = fields.size(keys.key_heads);
    let value_heads = fields.size(keys.value_heads);
    let key_dims = fields.size(keys.key_dims);
    let value_dims = fields.size(keys.value_dims);
    let convolution = fields.size(keys.convolution);
    let (key_heads, value_heads) = (key_heads?, value_heads?);
    if !value_heads.is_multiple_of(key_heads) {
        fields.report(
            Diagnostic::new(fields.place(keys.value_heads), format!("not a multiple of {}", keys.key_heads))
                .expected(format!("a multiple of {key_heads}"))
                .found(value_heads),
        );
        return None;
    }
    Some(GatedDelta {
        key_heads,
        value_heads,
        key_dims: key_dims?,
        value_dims: value_dims?,
        convolution: convolution?,
    })
}
