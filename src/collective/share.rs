//! Lets small tensors share one collective. A collective takes at least the time to send
//! [`SMALL_BYTES`].
//!
//! Collectives over the same axes, with the same reduction and float type, become one `all_reduce`
//! of several operands. It runs when the last operand is ready. To avoid packing, operands and
//! results are parts of one buffer: a `reduce_scatter` becomes an `all_reduce` and a slice, an
//! `all_gather` becomes a zero `pad` and an `all_reduce`. This moves more bytes, but the tensors
//! are small.
//!
//! Sharing delays nothing: a collective does not wait for others if its result is needed much
//! earlier. Only ops that overwrite a state without readers, such as weight updates, wait for the
//! shared collective.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::base::{AxisId, DType, Id, Reduce, defect};
use crate::placement::Placed;
use crate::placement::transition::{apply, seen_elems};
use crate::program::{Kind, Op, OpId, Program, Role, Value, ValueId};

/// Size limit of small tensors, and of one shared collective. Sending these bytes takes as long as
/// the fixed cost of a collective, 16 µs.
pub const SMALL_BYTES: u64 = 1 << 20;

/// Properties that must match to share a collective: axes, reduction, type, whether it gathers, and
/// the caller's number.
type Sort = (Vec<AxisId>, Reduce, DType, bool, usize);

struct SharedCollectives {
    sort: Sort,
    members: Vec<OpId>,
    bytes: u64,
    /// Bytes computed until the first result is needed.
    until: u64,
}

/// Returns the program with shared collectives. Values keep their ids. Ops with different numbers
/// in `apart` share none; ops without a number are all alike.
#[must_use]
pub fn share(lowered: Placed, apart: &[usize]) -> Placed {
    let late = late(&lowered.program);
    let shared: Vec<SharedCollectives> =
        groups(&lowered, &late, apart).into_iter().filter(|group| group.members.len() > 1).collect();
    if shared.is_empty() { lowered } else { rewrite(&lowered, &late, &shared) }
}

/// Returns for each op whether it can run later: it overwrites a state or param, and its results
/// have no reader.
fn late(program: &Program) -> Vec<bool> {
    let mut is_read = vec![false; program.values.len()];
    let operands = program.ops.values().iter().flat_map(|op| &op.operands);
    operands.chain(program.outputs.iter().map(|(_, id)| id)).for_each(|id| is_read[id.index()] = true);
    let is_late = |op: &Op| {
        !op.kind.row().in_place.is_empty() && op.results.iter().all(|result| !is_read[result.index()])
    };
    program.ops.values().iter().map(is_late).collect()
}

fn groups(lowered: &Placed, late: &[bool], apart: &[usize]) -> Vec<SharedCollectives> {
    let Placed { program, mesh, layouts } = lowered;
    let bytes_of = |id: ValueId, axes: &[AxisId]| {
        let value = &program.values[id];
        (seen_elems(&layouts[id], axes, mesh, &value.shape) * value.dtype.size_bytes()) as u64
    };
    let mut first_use = vec![program.ops.len(); program.values.len()];
    // By op: bytes computed by the ops before it.
    let mut made = vec![0];
    for (id, op) in program.ops.iter() {
        let readers = op.operands.iter().filter(|_| !late[id.index()]);
        readers.for_each(|operand| first_use[operand.index()] = first_use[operand.index()].min(id.index()));
        let own: u64 = op.results.iter().map(|result| bytes_of(*result, &[])).sum();
        made.push(made[id.index()] + if op.kind.is_movement() { 0 } else { own });
    }
    // Values with a freely chosen buffer.
    let local = program.ops.values().iter().filter(|op| !op.kind.is_movement());
    let written =
        local.flat_map(|op| op.results.iter().skip(op.kind.row().in_place.len()).copied()).collect();
    let mut closed: Vec<SharedCollectives> = Vec::new();
    let mut open: Vec<SharedCollectives> = Vec::new();
    for (id, op) in program.ops.iter() {
        if !late[id.index()] {
            let is_read = |member: &OpId| op.operands.contains(&program.ops[*member].result());
            closed.extend(open.extract_if(.., |group| group.members.iter().any(is_read)));
        }
        let own = apart.get(id.index()).copied().unwrap_or_default();
        let Some(sort) = sort(program, op, &written, own) else { continue };
        let bytes = bytes_of(op.operands[0], op.kind.axes());
        if bytes >= SMALL_BYTES {
            continue;
        }
        let until = made[first_use[op.result().index()]];
        let fits = |group: &SharedCollectives| {
            group.bytes + bytes <= SMALL_BYTES && until < group.until + SMALL_BYTES
        };
        if let Some(group) = open.iter_mut().find(|group| group.sort == sort && fits(group)) {
            group.members.push(id);
            (group.bytes, group.until) = (group.bytes + bytes, group.until.min(until));
        } else {
            closed.extend(open.extract_if(.., |group| group.sort == sort));
            open.push(SharedCollectives { sort, members: vec![id], bytes, until });
        }
    }
    closed.extend(open);
    closed
}

fn sort(program: &Program, op: &Op, made: &FxHashSet<ValueId>, apart: usize) -> Option<Sort> {
    let dtype = program.values[*op.operands.first()?].dtype;
    let (axes, reduce, gathers) = match &op.kind {
        Kind::AllReduce { axes, reduce } | Kind::ReduceScatter { axes, reduce, .. } => (axes, *reduce, false),
        // Other operands would have to be copied into the zeroed buffer.
        Kind::AllGather { axes, .. } if made.contains(&op.operands[0]) => (axes, Reduce::Sum, true),
        _ => return None,
    };
    dtype.is_float().then(|| (axes.clone(), reduce, dtype, gathers, apart))
}

fn rewrite(lowered: &Placed, late: &[bool], shared: &[SharedCollectives]) -> Placed {
    let mut out = lowered.without_ops();
    // By member, and by its result: the group.
    let mut of_member: FxHashMap<OpId, &SharedCollectives> = FxHashMap::default();
    let mut of_result: FxHashMap<ValueId, &SharedCollectives> = FxHashMap::default();
    for group in shared {
        for member in &group.members {
            of_member.insert(*member, group);
            of_result.insert(lowered.program.ops[*member].result(), group);
        }
    }
    let place = |group: &SharedCollectives| group.members[group.members.len() - 1];
    // By op: the ops that run after it.
    let mut waiting: FxHashMap<OpId, Vec<Op>> = FxHashMap::default();
    for (id, op) in lowered.program.ops.iter() {
        if let Some(group) = of_member.get(&id) {
            let last = place(group);
            defect!(SharedTooEarly, let last = group.members[0]);
            if last == id {
                write(&mut out, lowered, group);
                for op in waiting.remove(&id).into_iter().flatten() {
                    out.program.ops.push(op);
                }
            }
            continue;
        }
        let behind =
            op.operands.iter().filter_map(|operand| of_result.get(operand)).map(|group| place(group)).max();
        match behind.filter(|behind| late[id.index()] && *behind > id) {
            Some(behind) => waiting.entry(behind).or_default().push(op.clone()),
            None => {
                out.program.ops.push(op.clone());
            }
        }
    }
    out
}

fn write(out: &mut Placed, lowered: &Placed, group: &SharedCollectives) {
    let (axes, reduce, ..) = &group.sort;
    let whole = Kind::AllReduce { axes: axes.clone(), reduce: *reduce };
    let mut new = |of: ValueId, kind: &Kind| {
        let value = Value {
            name: String::new(),
            role: Role::Result,
            source: None,
            ..lowered.program.values[of].clone()
        };
        let mut layout = lowered.layouts[of].clone();
        apply(&mut layout, kind);
        out.layouts.push(layout);
        out.program.values.push(value)
    };
    let (mut operands, mut results): (Vec<ValueId>, SmallVec<[ValueId; 2]>) = (Vec::new(), SmallVec::new());
    let (mut before, mut behind): (Vec<Op>, Vec<Op>) = (Vec::new(), Vec::new());
    for Op { kind, operands: of, results: makes } in
        group.members.iter().map(|member| &lowered.program.ops[*member])
    {
        let (mut operand, mut result) = (of[0], makes[0]);
        match kind {
            Kind::AllGather { axes, dim } => {
                let pad = Kind::Pad { axes: axes.clone(), dim: *dim };
                operand = new(of[0], &pad);
                before.push(Op { kind: pad, operands: vec![of[0]], results: smallvec![operand] });
            }
            Kind::ReduceScatter { axes, dim, .. } => {
                result = new(of[0], &whole);
                let slice = Kind::Slice { axes: axes.clone(), dim: *dim };
                behind.push(Op { kind: slice, operands: vec![result], results: makes.clone() });
            }
            _ => {}
        }
        defect!(SharedMemberMissing, continue);
        operands.push(operand);
        results.push(result);
    }
    defect!(SharedMembersSwapped, operands.swap(0, 1));
    let ops = before.into_iter().chain([Op { kind: whole, operands, results }]).chain(behind);
    for op in ops {
        out.program.ops.push(op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::parallelize;
    use crate::placement::{Mesh, Pins};
    use crate::program::{Builder, Operand};

    /// Returns names and operand counts of the collectives and of the ops that wait for them.
    fn split(build: Builder, pins: &Pins) -> Vec<(&'static str, usize)> {
        let mesh = Mesh::new(&[("dp", 2)]).unwrap();
        let lowered = parallelize(&build.finish().unwrap(), &mesh, pins).unwrap().lowered;
        let is_shown = |op: &&Op| op.kind.is_movement() || !op.kind.row().in_place.is_empty();
        lowered
            .program
            .ops
            .values()
            .iter()
            .filter(is_shown)
            .map(|op| (op.kind.row().name, op.operands.len()))
            .collect()
    }

    fn sum(build: &mut Builder, name: &str, width: usize) -> Operand {
        let x = build.input(&format!("{name}.x"), [8, width], DType::F32);
        let sum = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
        build.name(sum, name)
    }

    fn pins() -> Pins {
        Pins::default().value("sum*", &[]).value("*.x", &[(0, "dp")])
    }

    fn work(build: &mut Builder, name: &str, row: Operand) {
        let wide = build.input(&format!("{name}.wide"), [1024, 512], DType::F32);
        let much = build.mul(wide, row);
        build.output(name, much);
    }

    #[test]
    fn what_is_needed_in_the_end_shares_one_and_what_is_large_goes_alone() {
        let mut build = Builder::new("small");
        let sums = [("sum0", 512), ("sum1", 512), ("large", 1 << 18), ("sum2", 512)].map(|(name, width)| {
            let made = sum(&mut build, name, width);
            (name, made)
        });
        sums.into_iter().for_each(|(name, made)| build.output(name, made));
        let pins = pins().value("large", &[]);
        assert_eq!(split(build, &pins), [("all_reduce", 1), ("all_reduce", 3)]);
    }

    #[test]
    fn what_is_needed_early_waits_for_nothing_but_takes_along_what_is_there() {
        let mut build = Builder::new("early");
        let early = sum(&mut build, "sum0", 512);
        let late = sum(&mut build, "sum1", 512);
        work(&mut build, "work", early);
        build.output("late", late);
        assert_eq!(split(build, &pins()), [("all_reduce", 1), ("all_reduce", 1)]);

        let mut build = Builder::new("late");
        let late = sum(&mut build, "sum0", 512);
        let early = sum(&mut build, "sum1", 512);
        work(&mut build, "work", early);
        build.output("late", late);
        assert_eq!(split(build, &pins()), [("all_reduce", 2)]);
    }

    #[test]
    fn no_more_than_a_mebibyte_shares_one() {
        let mut build = Builder::new("many");
        for at in 0..5 {
            let made = sum(&mut build, &format!("sum{at}"), 1 << 17);
            build.output(&format!("out{at}"), made);
        }
        assert_eq!(split(build, &pins()), [("all_reduce", 2), ("all_reduce", 2), ("all_reduce", 1)]);
    }

    #[test]
    fn shards_are_made_among_zeros_and_read_as_slices() {
        let mut build = Builder::new("update");
        let gradients = [0, 1].map(|at| {
            let x = build.input(&format!("in{at}.x"), [8, 5, 3], DType::F32);
            let gradient = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
            build.name(gradient, format!("gradient{at}"))
        });
        for (at, gradient) in gradients.into_iter().enumerate() {
            let state = build.state(&format!("state{at}"), [5, 3], DType::F32);
            let param = build.param(&format!("param{at}"), [5, 3], DType::F32);
            let moved = build.add(state, gradient);
            build.op(Kind::Assign, &[param, moved]);
        }
        let cut = [(0, "dp")];
        let pins = Pins::default()
            .value("*.x", &cut)
            .value("gradient*", &cut)
            .value("state*", &cut)
            .value("param*", &[]);
        let reduced = [("all_reduce", 2), ("slice", 1), ("slice", 1)];
        let gathered = [("pad", 1), ("pad", 1), ("all_reduce", 2), ("assign", 2), ("assign", 2)];
        assert_eq!(split(build, &pins), [&reduced[..], &gathered].concat());
    }
}
