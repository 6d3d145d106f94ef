//! Lists the collectives of a program, each with the reason for it.

use crate::base::{Bytes, Id};
use crate::placement::transition::step_cost;
use crate::placement::{Layout, Mesh, Placed};
use crate::program::{Kind, Op, OpId, Program, ValueId};

/// One collective of a lowered program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedExchange {
    /// The op in the lowered program.
    pub op: OpId,
    /// Name of the op, such as `all_reduce`.
    pub kind: &'static str,
    /// User-facing names of the mesh axes.
    pub axes: String,
    /// Number of cards in a group.
    pub group: usize,
    /// Name of the value or its origin. For several tensors, the first one.
    pub value: String,
    /// Number of tensors in the collective.
    pub tensors: usize,
    /// Size of the tensors in one group.
    pub bytes: Bytes,
    /// Why the collective is necessary.
    pub reason: String,
}

/// Returns the entry of `there` at the index of `value` in `here`.
fn other_side(here: &[ValueId], there: &[ValueId], value: ValueId) -> ValueId {
    // A movement has as many results as operands.
    there[here.iter().position(|other| *other == value).unwrap_or_default()]
}

/// Returns the collectives of a lowered program, in order.
#[must_use]
pub fn exchanges(placed: &Placed) -> Vec<ExplainedExchange> {
    let (program, mesh) = (&placed.program, &placed.mesh);
    let mut maker = vec![None; program.values.len()];
    let mut users: Vec<Vec<OpId>> = vec![Vec::new(); program.values.len()];
    for (id, op) in program.ops.iter() {
        op.results.iter().for_each(|result| maker[result.index()] = Some(id));
        op.operands.iter().for_each(|operand| users[operand.index()].push(id));
    }
    // Follows movements back to the op that computed the data, and forward to its first reader.
    let origin = |mut value: ValueId| loop {
        match maker[value.index()].map(|id: OpId| &program.ops[id]) {
            Some(op) if op.kind.is_movement() => value = other_side(&op.results, &op.operands, value),
            found => return (value, found),
        }
    };
    let reader = |mut value: ValueId| loop {
        match users[value.index()].first().map(|id| &program.ops[*id]) {
            Some(op) if op.kind.is_movement() => value = other_side(&op.operands, &op.results, value),
            found => return (value, found),
        }
    };
    let name = |value: ValueId| {
        let label = program.label(value);
        if label.starts_with('%') { String::new() } else { format!(" {label}") }
    };
    let reason = |operand: ValueId, result: ValueId| {
        let (value, made_by) = origin(operand);
        let made = made_by.map_or_else(
            || format!("{} is given", program.label(value)),
            |made| format!("{}{} leaves it", made.kind.row().name, name(made.result())),
        );
        // Skips the padding of a shared collective.
        let padded = maker[operand.index()]
            .map(|id| &program.ops[id])
            .filter(|op| matches!(op.kind, Kind::Pad { .. }));
        let left = &placed.layouts[padded.map_or(operand, |pad| pad.operands[0])];
        let state = if left.partial.is_empty() { "sharded" } else { "partial" };
        let needs = match reader(result) {
            (_, None) => "the output is whole".to_owned(),
            (value, Some(user)) => {
                let wanted = as_wanted(&placed.layouts[value], mesh);
                format!("{}{} needs {wanted}", user.kind.row().name, name(user.result()))
            }
        };
        format!("{made} {state}, {needs}")
    };
    let row = |(id, op): (OpId, &Op)| {
        let sent = sent(op);
        let own = all_see(program, op, &sent).unwrap_or_else(|| {
            let given = op.kind.row().in_place.len();
            reason(op.operands[0], op.results.get(given).copied().unwrap_or_else(|| op.result()))
        });
        ExplainedExchange {
            op: id,
            kind: op.kind.row().name,
            axes: mesh.describe(op.kind.axes()),
            group: mesh.joint_size(op.kind.axes()),
            value: program.label(origin(op.operands[sent[0]]).0),
            tensors: sent.len(),
            bytes: sent_bytes(placed, op, &sent),
            reason: if op.kind.is_movement() && sent.len() > 1 {
                format!("small tensors are grouped; for the first: {own}")
            } else {
                own
            },
        }
    };
    program
        .ops
        .iter()
        .filter(|(_, op)| op.kind.is_collective() && !op.kind.axes().is_empty())
        .map(row)
        .collect()
}

fn as_wanted(layout: &Layout, mesh: &Mesh) -> String {
    match layout.is_replicated() {
        true => "it whole".to_owned(),
        false => format!("it as {{{}}}", layout.text(&mesh.axis_names())),
    }
}

fn all_see(program: &Program, op: &Op, sent: &[usize]) -> Option<String> {
    op.kind.row().around?;
    let named: Vec<String> = sent.iter().map(|operand| program.label(op.operands[*operand])).collect();
    Some(format!("the queries of each card attend to {} of all cards", named.join(" and ")))
}

/// Returns the operands that an exchange moves. Operands that are overwritten stay local, and ring
/// attention moves only keys and values.
fn sent(op: &Op) -> Vec<usize> {
    let row = op.kind.row();
    match row.around {
        Some(around) => around.operands.to_vec(),
        None => (0..op.operands.len()).filter(|at| !row.in_place.contains(at)).collect(),
    }
}

fn sent_bytes(placed: &Placed, op: &Op, sent: &[usize]) -> Bytes {
    let factor = if matches!(op.kind, Kind::AllReduce { .. }) { 2 } else { 1 };
    let bytes = |id: &ValueId| {
        let (value, layout) = (&placed.program.values[*id], &placed.layouts[*id]);
        let cost = step_cost(&op.kind, layout, &placed.mesh, &value.shape, value.dtype.size_bytes());
        Bytes(cost.moved_bytes / factor)
    };
    let summands = op.kind.row().around.map_or(&[][..], |around| around.results);
    let results = summands.iter().filter_map(|at| op.results.get(*at));
    sent.iter().map(|at| &op.operands[*at]).chain(results).map(bytes).sum()
}
