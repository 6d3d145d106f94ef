//! Type checker of the lowered program. On each mesh axis a value is replicated, sharded along a
//! dim, or partial.
//!
//! Checks for each axis, based only on the sharding rules of the ops:
//! - The operands of an op agree on one letter of its rule, are replicated, or are partial sums in
//!   a linear op.
//! - The result has exactly the type that follows. A movement changes only the types of its own
//!   axes.
//! - Dims that must be whole are whole. No op reads a partial value as if it were complete.
//! - Inputs and params are not partial, states are at most partial sums, and outputs are
//!   replicated. Layouts are valid, and no reshard is left.
//!
//! The checker shares no code with the passes that choose layouts and insert collectives.

use crate::base::{AxisId, Diagnostic, Diagnostics, Id, Reduce};
use crate::placement::{Layout, Mesh, Placed};
use crate::program::op::{Linear, Stage, rule_of};
use crate::program::text::op_text;
use crate::program::{Factor, Kind, Op, Role, Rule};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Whole,
    Sharded(usize),
    Partial(Reduce),
}

fn type_of(layout: &Layout, axis: AxisId) -> Type {
    match (layout.dim_of(axis), layout.partial_on(axis)) {
        (Some(dim), _) => Type::Sharded(dim),
        (None, Some(reduce)) => Type::Partial(reduce),
        (None, None) => Type::Whole,
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Sharded(dim) => write!(f, "sharded along dim {dim}"),
            Self::Partial(reduce) => write!(f, "a partial {reduce}"),
        }
    }
}

/// Checks a program with explicit reshards. Like [`verify`], but a reshard may change any layout.
///
/// # Errors
/// Returns all problems, in op order.
pub fn verify_resharded(placed: &Placed) -> Result<(), Diagnostics> {
    check(placed, Stage::Placed)
}

/// Checks a lowered program.
///
/// # Errors
/// Returns all problems, in op order.
pub fn verify(placed: &Placed) -> Result<(), Diagnostics> {
    check(placed, Stage::Lowered)
}

fn check(placed: &Placed, stage: Stage) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    check_layouts(placed, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    for (_, op) in placed.program.ops.iter() {
        let place = || op_text(&placed.program, op);
        if stage < op.kind.row().stage {
            problems.push(Diagnostic::new(place(), "does not occur before lowering"));
        } else if op.kind == Kind::Reshard {
            if stage > Stage::Placed {
                problems.push(Diagnostic::new(place(), "remains, but lowering replaces every reshard"));
            }
        } else if op.kind.is_movement() {
            for (operand, result) in op.operands.iter().zip(&op.results) {
                let (from, to) = (&placed.layouts[*operand], &placed.layouts[*result]);
                for message in movement_problems(&op.kind, from, to, &placed.mesh) {
                    problems.push(Diagnostic::new(place(), message));
                }
            }
        } else {
            check_types(placed, op, stage, &mut problems);
        }
    }
    check_outputs(placed, &mut problems);
    problems.into_result(())
}

fn check_layouts(placed: &Placed, problems: &mut Diagnostics) {
    let program = &placed.program;
    for (id, value) in program.values.iter() {
        let layout = &placed.layouts[id];
        if let Some(problem) = layout.problem(&placed.mesh, value.shape.rank()) {
            problems.push(Diagnostic::new(program.label(id), problem));
        }
        let is_sum = layout.partial.iter().all(|(_, reduce)| *reduce == Reduce::Sum);
        // A state starts as zeros, which are valid partial sums.
        let may_be_partial = value.role == Role::Result || value.role == Role::State && is_sum;
        if !may_be_partial && !layout.partial.is_empty() {
            problems.push(Diagnostic::new(
                program.label(id),
                "a given tensor must be whole or sharded, not partial",
            ));
        }
    }
}

fn check_types(placed: &Placed, op: &Op, stage: Stage, problems: &mut Diagnostics) {
    let (program, mesh) = (&placed.program, &placed.mesh);
    let place = || op_text(program, op);
    let rule = match rule_of(op, &program.operand_shapes(op)) {
        Ok(rule) => rule,
        Err(message) => return problems.push(Diagnostic::new(place(), message)),
    };
    if op.kind.row().linear == Linear::Joins && stage == Stage::Lowered {
        let joined: Vec<AxisId> =
            placed.layouts[op.operands[0]].partial.iter().map(|(axis, _)| *axis).collect();
        if joined != op.kind.axes() {
            let problem = Diagnostic::new(place(), "combines other cards than the ones with shards");
            problems.push(problem.expected(mesh.describe(&joined)).found(mesh.describe(op.kind.axes())));
        }
    }
    if let Some(around) = op.kind.row().around.filter(|_| stage == Stage::Lowered) {
        for operand in around.operands {
            let cut = &placed.layouts[op.operands[*operand]].dims[around.dim];
            if cut.as_slice() != op.kind.axes() {
                let problem = Diagnostic::new(
                    place(),
                    format!("exchanges between other cards than the ones with operand {operand}"),
                );
                problems.push(problem.expected(mesh.describe(cut)).found(mesh.describe(op.kind.axes())));
            }
        }
    }
    for own in &rule.own_size {
        let axes = &placed.layouts[op.operands[own.operand]].dims[own.dim];
        let shards: usize = axes.iter().map(|axis| mesh.size(*axis)).product();
        if !rule.pools.is_multiple_of(shards) {
            let problem = Diagnostic::new(place(), format!("splits parts of operand {}", own.operand));
            problems.push(problem.expected(format!("a divisor of {} parts", rule.pools)).found(shards));
        }
    }
    for axis in mesh.ids() {
        let name = &mesh.axes()[axis.index()].name;
        let operands: Vec<Type> = op.operands.iter().map(|id| type_of(&placed.layouts[*id], axis)).collect();
        let results: Vec<Type> = op.results.iter().map(|id| type_of(&placed.layouts[*id], axis)).collect();
        let expected = match follows(op, &rule, &operands, &results) {
            Ok(expected) => expected,
            Err(message) => {
                problems.push(Diagnostic::new(place(), format!("on axis `{name}` {message}")));
                continue;
            }
        };
        for ((index, result), found) in op.results.iter().enumerate().zip(results.iter().copied()) {
            let expected = expected(index);
            if expected != found {
                let what = format!("on axis `{name}` {result} has another type");
                problems.push(Diagnostic::new(place(), what).expected(expected).found(found));
            }
        }
    }
}

fn check_outputs(placed: &Placed, problems: &mut Diagnostics) {
    for (name, id) in &placed.program.outputs {
        for axis in placed.mesh.ids() {
            let actual = type_of(&placed.layouts[*id], axis);
            if actual != Type::Whole {
                let axis = &placed.mesh.axes()[axis.index()].name;
                let problem = Diagnostic::new(
                    format!("output \"{name}\""),
                    format!("on axis `{axis}` it is not whole"),
                );
                problems.push(problem.expected(Type::Whole).found(actual));
            }
        }
    }
}

/// Returns a function from a result's index to its type on one axis. A letter that occurs only in a
/// shape operand is sharded like the result.
fn follows<'a>(
    op: &Op,
    rule: &'a Rule,
    operands: &[Type],
    results: &'a [Type],
) -> Result<Box<dyn Fn(usize) -> Type + 'a>, String> {
    let mut letter = None;
    let read: Vec<usize> = (0..operands.len()).filter(|at| !op.kind.row().shape_only.contains(at)).collect();
    for index in read.iter().copied() {
        let (operand, factors) = (&operands[index], &rule.operands[index]);
        let Type::Sharded(dim) = operand else { continue };
        match factors[*dim] {
            Factor::Letter(found) if letter.is_none_or(|known| known == found) => letter = Some(found),
            Factor::Letter(found) => {
                let known = char::from(letter.unwrap_or(found));
                return Err(format!(
                    "operand {index} is sharded along `{}`, another along `{known}`",
                    found as char
                ));
            }
            Factor::Whole(name) => {
                return Err(format!("operand {index}'s dim `{}` must be whole", name as char));
            }
            Factor::One => return Err(format!("operand {index}'s dim {dim} of size 1 is sharded")),
        }
    }
    let Some(letter) = letter else {
        let partial: Vec<usize> =
            read.iter().copied().filter(|at| matches!(operands[*at], Type::Partial(_))).collect();
        let passes = match (op.kind.row().linear, partial.as_slice()) {
            (_, []) => {
                let is_free = move |result: usize, dim: usize| match rule.results[result][dim] {
                    Factor::Letter(letter) => read.iter().all(|at| rule.operand_dim(*at, letter).is_none()),
                    Factor::Whole(_) | Factor::One => false,
                };
                return Ok(Box::new(move |result| match results[result] {
                    Type::Sharded(dim) if is_free(result, dim) => Type::Sharded(dim),
                    _ => Type::Whole,
                }));
            }
            (Linear::Jointly | Linear::Parts, all) => all.len() == read.len(),
            // All other operands must be replicated.
            (Linear::Joins, all) => all.iter().copied().eq(0..=op.kind.row().in_place.len()),
            (Linear::InEach(linear), [at]) => linear.contains(at),
            (Linear::InEach(_) | Linear::No, _) => false,
        };
        let sums = partial.iter().all(|at| operands[*at] == Type::Partial(Reduce::Sum));
        let (joins, kept) = (op.kind.row().linear == Linear::Joins, op.kind.row().in_place.len());
        return if passes && sums && joins {
            Ok(Box::new(move |result| if result < kept { Type::Partial(Reduce::Sum) } else { Type::Whole }))
        } else if passes && sums {
            Ok(Box::new(|_| Type::Partial(Reduce::Sum)))
        } else {
            Err(format!("{} reads a partial sum as a whole value", op.kind.row().name))
        };
    };
    for (index, operand) in read.into_iter().map(|index| (index, &operands[index])) {
        let carries = rule.operand_dim(index, letter).is_some();
        if carries != matches!(operand, Type::Sharded(_)) || matches!(operand, Type::Partial(_)) {
            return Err(format!(
                "operand {index} is {operand}, but another is sharded along `{}`",
                letter as char
            ));
        }
    }
    Ok(Box::new(move |result| {
        rule.result_dim(result, letter).map_or(Type::Partial(rule.reduce), Type::Sharded)
    }))
}

fn movement_problems(kind: &Kind, before: &Layout, after: &Layout, mesh: &Mesh) -> Vec<String> {
    let mut problems = Vec::new();
    let axes = kind.axes();
    if axes.is_empty() {
        problems.push(format!("{} moves over no axis", kind.row().name));
    }
    for axis in mesh.ids() {
        let name = &mesh.axes()[axis.index()].name;
        let types = (type_of(before, axis), type_of(after, axis));
        let legal = if axes.contains(&axis) {
            match (kind, types) {
                (Kind::AllReduce { reduce, .. }, (Type::Partial(found), Type::Whole)) => found == *reduce,
                (Kind::AllGather { dim, .. }, (Type::Sharded(from), Type::Whole)) => from == *dim,
                (Kind::ReduceScatter { dim, reduce, .. }, (Type::Partial(found), Type::Sharded(to))) => {
                    found == *reduce && to == *dim
                }
                (Kind::AllToAll { from, to, .. }, (Type::Sharded(before), Type::Sharded(after))) => {
                    before == *from && after == *to
                }
                (Kind::Slice { dim, .. }, (Type::Whole, Type::Sharded(to))) => to == *dim,
                (Kind::Leader { .. }, (Type::Whole, Type::Partial(Reduce::Sum))) => true,
                (Kind::Pad { dim, .. }, (Type::Sharded(from), Type::Partial(Reduce::Sum))) => from == *dim,
                _ => false,
            }
        } else {
            types.0 == types.1
        };
        if !legal {
            problems.push(format!(
                "{} cannot turn {} into {} on axis `{name}`",
                kind.row().name,
                types.0,
                types.1
            ));
        }
    }
    // The moved axes must be the innermost of their dim, so that each shard is one contiguous
    // range.
    for (dim, (before, after)) in before.dims.iter().zip(&after.dims).enumerate() {
        let (long, short) = if before.len() > after.len() { (before, after) } else { (after, before) };
        if !long.starts_with(short) {
            problems.push(format!("the axes of dim {dim} must be moved from the outermost inwards"));
        }
    }
    problems
}
