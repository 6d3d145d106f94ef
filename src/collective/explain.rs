//! What the cards exchange, one row a collective, with the reason.

use crate::base::{Bytes, Id};
use crate::placement::Placed;
use crate::placement::transition::step_cost;
use crate::program::{OpId, ValueId};

/// One collective of a lowered program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The op.
    pub op: OpId,
    /// `all_reduce`, …
    pub kind: &'static str,
    /// Mesh axes it runs over, for people.
    pub axes: String,
    /// Cards in one group.
    pub group: usize,
    /// Name of the value, or of the one it was made from.
    pub value: String,
    /// Bytes of the tensor as one group sees it.
    pub bytes: Bytes,
    /// Why it is there.
    pub reason: String,
}

/// The collectives of a lowered program, in order.
#[must_use]
pub fn exchanges(placed: &Placed) -> Vec<Exchange> {
    let (program, mesh) = (&placed.program, &placed.mesh);
    let mut maker = vec![None; program.values.len()];
    let mut users: Vec<Vec<OpId>> = vec![Vec::new(); program.values.len()];
    for (id, op) in program.ops.iter() {
        op.results.iter().for_each(|result| maker[result.index()] = Some(id));
        op.operands.iter().for_each(|operand| users[operand.index()].push(id));
    }
    // Back over movements to the op that made the data, and forward to the first that reads it.
    let origin = |mut value: ValueId| loop {
        match maker[value.index()].map(|id: OpId| &program.ops[id]) {
            Some(op) if op.kind.is_movement() => value = op.operands[0],
            found => return (value, found),
        }
    };
    let reader = |mut value: ValueId| loop {
        match users[value.index()].first().map(|id| &program.ops[*id]) {
            Some(op) if op.kind.is_movement() => value = op.result(),
            found => return found,
        }
    };
    let name = |value: ValueId| {
        let label = program.label(value);
        if label.starts_with('%') { String::new() } else { format!(" {label}") }
    };
    let row = |(id, op): (OpId, &crate::program::Op)| {
        let (value, made_by) = origin(op.operands[0]);
        let before = &placed.layouts[op.operands[0]];
        let shape = &program.values[value].shape;
        let size_bytes = program.values[value].dtype.size_bytes();
        let cost = step_cost(&op.kind, before, mesh, shape, size_bytes);
        let factor = if op.kind.row().name == "all_reduce" { 2 } else { 1 };
        let made = made_by.map_or_else(
            || format!("{} is given", program.label(value)),
            |made| format!("{}{} leaves it", made.kind.row().name, name(made.result())),
        );
        let state = if before.partial.is_empty() { "sharded" } else { "partial" };
        let needs = reader(op.result()).map_or_else(
            || "the output is whole".to_owned(),
            |user| {
                let layout = &placed.layouts[op.result()];
                let wanted = match layout.is_replicated() {
                    true => "it whole".to_owned(),
                    false => format!("it as {{{}}}", layout.text(&mesh.axis_names())),
                };
                format!("{}{} needs {wanted}", user.kind.row().name, name(user.result()))
            },
        );
        Exchange {
            op: id,
            kind: op.kind.row().name,
            axes: mesh.describe(op.kind.axes()),
            group: mesh.joint_size(op.kind.axes()),
            value: program.label(value),
            bytes: Bytes(cost.moved_bytes / factor),
            reason: format!("{made} {state}, {needs}"),
        }
    };
    program.ops.iter().filter(|(_, op)| op.kind.is_collective()).map(row).collect()
}
