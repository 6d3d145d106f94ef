//! Bytes of weights by format, in the files and on a card.
//!
//! Input: the plans of all ranks. Output: one row per format, if some weights are not floats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use ascend_tp::base::{Bytes, DType};
use ascend_tp::program::Form;
use ascend_tp::program::models::{COPY, QuantisedWeight, quantised_source};
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::Tensor;

/// Bytes of the weights of one format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FormatBytes {
    /// Format in the files, such as `int4 groups of 128`. Embeddings, norms and scales of 8-bit
    /// integers count as `float`.
    pub format: String,
    /// Number of weights.
    pub weights: usize,
    /// Bytes in the files. Scales count 16 bits, and 32 bits for blocks.
    pub stored: u64,
    /// Bytes on the card with the most.
    pub on_card: u64,
}

/// Name of the format of all other weights.
const FLOAT: &str = "float";

/// Returns the bytes by format of the weights that the plans of a program load. Returns nothing if
/// all weights are floats.
pub(super) fn of_plans(programs: &[Vec<Arc<Plan>>]) -> Vec<FormatBytes> {
    let mut formats: BTreeMap<String, FormatBytes> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for plan in programs.first().into_iter().flatten() {
        let mut on_card: BTreeMap<String, u64> = BTreeMap::new();
        for param in &plan.params {
            let (format, stored) = stored(param);
            let own: usize = param.ranges.iter().map(ExactSizeIterator::len).product();
            *on_card.entry(format.clone()).or_default() += Bytes::of(own, param.dtype.size_bytes()).0;
            // The copy of a tied embedding is not stored again.
            if seen.insert(&param.name) && !param.name.starts_with(COPY) {
                let sum = formats
                    .entry(format.clone())
                    .or_insert_with(|| FormatBytes { format, ..FormatBytes::default() });
                sum.weights += usize::from(!is_of_group(param));
                sum.stored += stored.0;
            }
        }
        for (format, bytes) in on_card {
            if let Some(sum) = formats.get_mut(&format) {
                sum.on_card = sum.on_card.max(bytes);
            }
        }
    }
    if formats.keys().all(|format| format == FLOAT) {
        return Vec::new();
    }
    // Floats are the last row.
    let floats = formats.remove(FLOAT);
    formats.into_values().chain(floats).collect()
}

/// Returns whether a param has the scales or offsets of a packed weight, which counts them.
fn is_of_group(param: &Tensor) -> bool {
    let form = param.source.as_ref().map(|source| source.form);
    matches!(form, Some(Form::GroupScales(_) | Form::GroupOffsets(_)))
}

/// Returns the format of a weight and its bytes in the files.
fn stored(param: &Tensor) -> (String, Bytes) {
    let quantised =
        param.source.as_ref().and_then(|source| quantised_source(source, &param.shape, param.dtype));
    if let Some(QuantisedWeight { format, stored }) = quantised {
        return (format.to_string(), stored);
    }
    let is_scale = param.source.as_ref().is_some_and(|source| source.form == Form::QuantParams);
    let dtype = if is_scale { DType::BF16 } else { param.dtype };
    (FLOAT.to_owned(), Bytes::of(param.shape.elems(), dtype.size_bytes()))
}
