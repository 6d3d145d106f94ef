//! One row per aclnn operator: accepted arguments on a 910B, documentation, and computation.
//!
//! Invariants: the emulator is the strictest legal device, so rows accept a subset of the
//! documented arguments. A [`Refusal`] names operator, parameter, expected and found values.
//! Planning a [`CallPlan`] reads no device memory.

pub(crate) mod argument;
pub(crate) mod call;
pub(crate) mod names;
pub(crate) mod plan;
pub(crate) mod row;
pub(crate) mod sizes;
pub(crate) mod work;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::LazyLock;

use super::dtype::list_names;
use crate::prototypes::{PROTOTYPES, Prototype};

pub use argument::{CallArgument, CheckedTensor, Scalar, TensorDesc, TensorRole};
pub use call::{OperatorCall, check};
pub(crate) use plan::{Attended, KeySequence, sets};
pub use plan::{
    CallPlace, CallPlan, Decided, INVALID, Joined, JoinedExchange, NULL_POINTER, OperatorKernel, PartRead,
    Refusal, StridedViews, Strides, ViewIndex, WorkspaceTensor,
};
pub use row::Signature;
pub(crate) use row::{Nullability, Operator, ParameterKind};
pub use work::work;

const FAMILIES: [&[Operator]; 74] = [
    crate::matmul::rows::OPERATORS,
    crate::matmul::transposed_rows::OPERATORS,
    crate::matmul::collective_rows::OPERATORS,
    crate::shape::fractal_rows::OPERATORS,
    crate::quantization::rows::OPERATORS,
    crate::quantization::weight_rows::OPERATORS,
    crate::elementwise::arithmetic::OPERATORS,
    crate::elementwise::pointwise::OPERATORS,
    crate::elementwise::comparison::OPERATORS,
    crate::elementwise::complex::OPERATORS,
    crate::normalization::rows::OPERATORS,
    crate::gradient::rows::OPERATORS,
    crate::loss::rows::OPERATORS,
    crate::loss::ctc_rows::OPERATORS,
    crate::optimizer::rows::OPERATORS,
    crate::attention::rows::OPERATORS,
    crate::attention::training_rows::OPERATORS,
    crate::attention::ring_rows::OPERATORS,
    crate::indexing::rows::OPERATORS,
    crate::indexing::cache_rows::OPERATORS,
    crate::reduction::rows::OPERATORS,
    crate::reduction::statistics_rows::OPERATORS,
    crate::elementwise::foreach::OPERATORS,
    crate::random::rows::OPERATORS,
    crate::indexing::selection_rows::OPERATORS,
    crate::indexing::data_dependent_rows::OPERATORS,
    crate::experts::rows::OPERATORS,
    crate::experts::dispatch_rows::OPERATORS,
    crate::matmul::grouped_rows::OPERATORS,
    crate::linear_algebra::rows::OPERATORS,
    crate::matmul::vector_rows::OPERATORS,
    crate::distance::rows::OPERATORS,
    crate::shape::rows::OPERATORS,
    crate::indexing::scatter_rows::OPERATORS,
    crate::compression::sign_rows::OPERATORS,
    crate::pooling::rows::OPERATORS,
    crate::reduction::extremum_rows::OPERATORS,
    crate::loss::elementwise_rows::OPERATORS,
    crate::convolution::rows::OPERATORS,
    crate::normalization::channel_rows::OPERATORS,
    crate::normalization::synchronized_rows::OPERATORS,
    crate::shape::arrangement::OPERATORS,
    crate::resampling::rows::OPERATORS,
    crate::elementwise::activation::OPERATORS,
    crate::elementwise::custom::OPERATORS,
    crate::compression::exponent_rows::OPERATORS,
    crate::resampling::grid_rows::OPERATORS,
    crate::indexing::lookup_rows::OPERATORS,
    crate::pooling::unpool_rows::OPERATORS,
    crate::loss::margin_rows::OPERATORS,
    crate::elementwise::leaky_rows::OPERATORS,
    crate::quantization::fake_rows::OPERATORS,
    crate::normalization::fused_rows::OPERATORS,
    crate::normalization::group_rows::OPERATORS,
    crate::normalization::masked_rows::OPERATORS,
    crate::quantization::dynamic_rows::OPERATORS,
    crate::attention::merge_rows::OPERATORS,
    crate::attention::packed_rows::OPERATORS,
    crate::experts::gating_rows::OPERATORS,
    crate::indexing::serving_rows::OPERATORS,
    crate::elementwise::further_rows::OPERATORS,
    crate::shape::further_rows::OPERATORS,
    crate::reduction::further_rows::OPERATORS,
    crate::elementwise::special_rows::OPERATORS,
    crate::matmul::einsum_rows::OPERATORS,
    crate::matmul::reduced_rows::OPERATORS,
    crate::matmul::feed_forward_rows::OPERATORS,
    crate::loss::vocabulary_rows::OPERATORS,
    crate::attention::recurrent_rows::OPERATORS,
    crate::attention::sparse_rows::OPERATORS,
    crate::attention::cache_rows::OPERATORS,
    crate::experts::routing_rows::OPERATORS,
    crate::experts::map_rows::OPERATORS,
    crate::experts::gradient_rows::OPERATORS,
];

/// Operators that write to their first tensor.
const INPLACE: &str = "aclnnInplace";

/// The rows, and declared in-place forms without a row.
static SIGNATURES: LazyLock<BTreeMap<&str, Signature>> = LazyLock::new(|| {
    let rows: HashMap<&str, &'static Operator> =
        operators().map(|operator| (operator.name, operator)).collect();
    let prototypes: HashMap<&str, &Prototype> =
        PROTOTYPES.iter().map(|prototype| (prototype.name, prototype)).collect();
    let signature = |name: &'static str| {
        let plain = || rows.get(format!("aclnn{}", name.strip_prefix(INPLACE)?).as_str());
        let operator = rows.get(name).or_else(plain)?;
        Some((name, Signature::of(name, operator, prototypes.get(operator.name)?)))
    };
    PROTOTYPES.iter().filter_map(|prototype| signature(prototype.name)).collect()
});

fn operators() -> impl Iterator<Item = &'static Operator> {
    FAMILIES.iter().copied().flatten()
}

#[cfg(test)]
pub(crate) fn count() -> usize {
    SIGNATURES.len()
}

/// Returns the signature of a supported function.
pub fn find(name: &str) -> Option<&'static Signature> {
    SIGNATURES.get(name)
}

/// Formats the rows as a Markdown table with one line per parameter.
pub fn markdown() -> String {
    let mut text =
        String::from("| operator | parameter | accepts | limits | source |\n|---|---|---|---|---|\n");
    for operator in operators() {
        for (i, parameter) in find(operator.name).into_iter().flat_map(Signature::parameters).enumerate() {
            let (name, limits, source) =
                if i == 0 { (operator.name, operator.limits, operator.source) } else { ("", "", "") };
            let accepts = match parameter.kind {
                ParameterKind::Tensor { role, need, dtypes, ranks, layout } => format!(
                    "{role} tensor{}, {}, rank {}–{}{}",
                    if need == Nullability::Optional { " or NULL" } else { "" },
                    list_names(dtypes),
                    if ranks.or_scalar { 0 } else { ranks.least },
                    ranks.most,
                    layout.words()
                ),
                ParameterKind::Tensors { role, need, dtypes, ranks, layout } => format!(
                    "list of {role} tensors{}, {}, rank {}–{}{}",
                    if need == Nullability::Optional { " or NULL" } else { "" },
                    list_names(dtypes),
                    ranks.least,
                    ranks.most,
                    layout.words()
                ),
                ParameterKind::Unmodelled => "NULL".to_owned(),
                ParameterKind::Scalar(need) => {
                    if need == Nullability::Optional { "scalar or NULL" } else { "scalar" }.to_owned()
                }
                ParameterKind::Ints(need) => {
                    if need == Nullability::Optional { "array of INT64 or NULL" } else { "array of INT64" }
                        .to_owned()
                }
                ParameterKind::Scalars => "list of scalars".to_owned(),
                ParameterKind::Flags(need) => {
                    if need == Nullability::Optional { "array of BOOL or NULL" } else { "array of BOOL" }
                        .to_owned()
                }
                ParameterKind::Attribute => "value".to_owned(),
                ParameterKind::OptionalText => "text or NULL".to_owned(),
            };
            let _ = writeln!(text, "| {name} | {} | {accepts} | {limits} | {source} |", parameter.name);
        }
    }
    for signature in SIGNATURES.values().filter(|signature| signature.in_place) {
        let (name, plain, source) = (signature.name, signature.operator.name, signature.operator.source);
        let _ = writeln!(text, "| {name} | selfRef | first tensor and output of {plain} | | {source} |");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
