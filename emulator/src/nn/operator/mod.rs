//! One row per aclnn operator: what it accepts on a 910B, where that is documented, and how it is computed.
//!
//! Input: the arguments of a first-phase call as host values ([`Argument`]). Output: a [`Plan`], or a [`Refusal`] that
//! names operator, parameter, expected and found.
//! Invariants: the emulator is the strictest legal card, so a row accepts a subset of what the cited page allows; every
//! tensor a plan touches has been checked against its row; planning reads no device memory.
//! Not here: handles of the C ABI, executors and streams (see `abi`).

mod arithmetic;
mod attention;
mod call;
mod comparison;
mod flash;
mod gradient;
mod indexing;
mod loss;
mod normal;
mod optimizer;
mod plan;
mod product;
mod quantized;
mod reduction;
mod row;
mod shape;

use std::fmt::Write as _;

use super::dtype::list_names;

pub(crate) use call::{Argument, OperatorCall, Scalar, Tensor, TensorDesc, check};
pub(crate) use plan::{INVALID, Kernel, NULL_POINTER, Plan, Refusal, Strides, ViewIndex, Views, sets};
pub(crate) use row::{Layout, Need, Operator, ParameterKind, Role};

/// All rows, family by family.
const FAMILIES: [&[Operator]; 13] = [
    product::OPERATORS,
    quantized::OPERATORS,
    arithmetic::OPERATORS,
    comparison::OPERATORS,
    normal::OPERATORS,
    gradient::OPERATORS,
    loss::OPERATORS,
    optimizer::OPERATORS,
    attention::OPERATORS,
    flash::OPERATORS,
    indexing::OPERATORS,
    reduction::OPERATORS,
    shape::OPERATORS,
];

/// Every modelled operator.
pub(crate) fn operators() -> impl Iterator<Item = &'static Operator> {
    FAMILIES.iter().copied().flatten()
}

/// The row of the operator called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    operators().find(|operator| operator.name == name)
}

/// The rows as a Markdown table: one line per parameter.
pub(crate) fn markdown() -> String {
    let mut text = String::from("| operator | parameter | accepts | limits | source |\n|---|---|---|---|---|\n");
    for operator in operators() {
        for (i, parameter) in operator.parameters.iter().enumerate() {
            let (name, limits, source) =
                if i == 0 { (operator.name, operator.limits, operator.source) } else { ("", "", "") };
            let accepts = match parameter.kind {
                ParameterKind::Tensor { role, need, dtypes, ranks, layout } => format!(
                    "{role} tensor{}, {}, rank {}–{}{}",
                    if need == Need::Optional { " or NULL" } else { "" },
                    list_names(dtypes),
                    ranks.0,
                    ranks.1,
                    if layout == Layout::Contiguous { ", contiguous" } else { "" }
                ),
                ParameterKind::Tensors { dtypes, ranks, layout } => format!(
                    "list of tensors, {}, rank {}–{}{}",
                    list_names(dtypes),
                    ranks.0,
                    ranks.1,
                    if layout == Layout::Contiguous { ", contiguous" } else { "" }
                ),
                ParameterKind::Unmodelled => "NULL".to_owned(),
                ParameterKind::Scalar(need) => {
                    if need == Need::Optional { "scalar or NULL" } else { "scalar" }.to_owned()
                }
                ParameterKind::Ints(need) => {
                    if need == Need::Optional { "array of INT64 or NULL" } else { "array of INT64" }.to_owned()
                }
                ParameterKind::Attribute => "value".to_owned(),
            };
            let _ = writeln!(text, "| {name} | {} | {accepts} | {limits} | {source} |", parameter.name);
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
