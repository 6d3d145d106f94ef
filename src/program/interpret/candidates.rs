//! Reference implementation of the most likely tokens. Sums are in f64.

use crate::base::HostTensor;
use crate::program::graph::Value;
use crate::program::op::Kind;

use super::experts::largest;
use super::training::made;

pub(in crate::program) fn candidates(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Candidates { count, parts } = *kind else { unreachable!("candidates' kind") };
    let x = operands[0];
    let size = x.shape.last().copied().unwrap_or_default() / parts;
    let rows = x.floats().chunks(size.max(1)).flat_map(|part| {
        let part: Vec<f64> = part.iter().map(|x| f64::from(*x)).collect();
        let selected = largest(&part, count);
        let values: Vec<f64> = selected.iter().map(|at| part[*at]).collect();
        let sum: f64 = part.iter().map(|x| (x - values[0]).exp()).sum();
        let logarithm = values[0] + sum.ln();
        values.into_iter().chain(selected.into_iter().map(|at| at as f64)).chain([logarithm])
    });
    made(result, rows)
}
