//! Sharding does not change results: random programs, meshes, pins and sizes, run on emulated cards
//! and compared with `interpret` of the whole program.
//!
//! - Exact programs must give the same bits for every value.
//! - Transformer blocks, which round, are compared op by op within the bounds of `bounds`.
//! - Every op's sharding rule is tried in all combinations of layouts.
//!
//! `cargo xtask soak suite equivalence::` runs more random cases.

mod assemble;
mod block;
mod bounds;
pub(crate) mod random;
mod rules;
mod split;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use ascend_tp::base::{DType, Id, Precision};
use ascend_tp::device::Cann;
use ascend_tp::emulator::{self, Emulator, Mode};
use ascend_tp::placement::{self, Placed};
use ascend_tp::program::interpret::meaning;
use ascend_tp::program::{HostTensor, Program, Role, ValueId, interpret, text};
use ascend_tp::schedule::{Scheduling, schedule};
use ascend_tp::{Mesh, Pins, parallelize};
use proptest::prelude::any;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::common::cases::{cases, seed};
use crate::common::instruction_sets::{is_other_instruction_set, run_under_each};
use crate::common::{Run, Tensors, cann, run, start};
use assemble::{Whole, assemble, difference, indices};

pub(crate) struct Data {
    pub(crate) params: Tensors,
    pub(crate) inputs: Vec<Tensors>,
}

/// Runs a lowered program and compares every value with its meaning.
///
/// Each op is interpreted on the operands of the ranks, so only its own rounding counts. Exact ops
/// have a bound of 0.
pub(crate) fn check(cann: &Arc<Cann>, lowered: &Placed, data: &Data) -> Result<(), String> {
    let mut states = zero_states(&lowered.program);
    let plans =
        schedule(lowered, Scheduling::default()).map_err(|problems| format!("schedule: {problems}"))?;
    let mut engine = start(cann, plans, &data.params).map_err(|error| format!("start: {error}"))?;
    for inputs in &data.inputs {
        let run = run(&mut engine, inputs).map_err(|error| format!("run: {error}"))?;
        let given = given(&lowered.program, &data.params, inputs, &states);
        check_ops(lowered, &given, &run)?;
        states = last_states(&lowered.program, &states, |id| {
            assemble(lowered, id, &run.parts[&id]).map(|whole| whole.tensor)
        })?;
    }
    Ok(())
}

fn zero_states(program: &Program) -> Tensors {
    let states = program.with_role(Role::State).map(|id| &program.values[id]);
    states.map(|value| (value.name.clone(), HostTensor::zeros(value.shape.clone(), value.dtype))).collect()
}

fn last_states(
    program: &Program,
    before: &Tensors,
    mut value: impl FnMut(ValueId) -> Result<HostTensor, String>,
) -> Result<Tensors, String> {
    let mut states = before.clone();
    let mut names: BTreeMap<ValueId, String> =
        program.with_role(Role::State).map(|id| (id, program.values[id].name.clone())).collect();
    for op in program.ops.values() {
        for (operand, result) in op.kind.row().in_place.iter().zip(&op.results) {
            if let Some(name) = names.get(&op.operands[*operand]).cloned() {
                states.insert(name.clone(), value(*result)?);
                names.insert(*result, name);
            }
        }
    }
    Ok(states)
}

fn given(
    program: &Program,
    params: &Tensors,
    inputs: &Tensors,
    states: &Tensors,
) -> BTreeMap<ValueId, HostTensor> {
    let of = |role: Role| match role {
        Role::Param => params,
        Role::State => states,
        Role::Input | Role::Result => inputs,
    };
    let values = program.values.iter().filter(|(_, value)| value.role != Role::Result);
    values.map(|(id, value)| (id, of(value.role)[&value.name].clone())).collect()
}

fn too_far(found: &HostTensor, expected: &HostTensor, bounds: &[f64]) -> Option<String> {
    if !expected.dtype.is_float() {
        return difference(found, expected);
    }
    let shape = &expected.shape;
    let pairs = found.floats().iter().zip(expected.floats()).zip(bounds);
    pairs.enumerate().find_map(|(at, ((found, expected), bound))| {
        let error = (f64::from(*found) - f64::from(*expected)).abs();
        let is_close = found == expected || error <= *bound;
        (!is_close).then(|| {
            let index = indices(shape).nth(at).unwrap_or_default();
            format!("at {index:?} found {found}, expected {expected}, off by {error:e}, at most {bound:e}")
        })
    })
}

fn check_ops(lowered: &Placed, given: &BTreeMap<ValueId, HostTensor>, run: &Run) -> Result<(), String> {
    let program = &lowered.program;
    let mut wholes: BTreeMap<ValueId, Whole> =
        given.iter().map(|(id, tensor)| (*id, Whole::given(tensor.clone()))).collect();
    for op in program.ops.values() {
        let fail = |message: String| format!("{}: {message}", text::op_text(program, op));
        let operands: Vec<&HostTensor> = op.operands.iter().map(|id| &wholes[id].tensor).collect();
        let expected = meaning(program, op, &operands);
        let mut made = Vec::new();
        for (at, (id, expected)) in op.results.iter().zip(&expected).enumerate() {
            let found = assemble(lowered, *id, &run.parts[id]).map_err(fail)?;
            let bounds = if op.kind.is_movement() {
                let group = lowered.mesh.joint_size(op.kind.axes());
                bounds::movement_bound(&op.kind, &wholes[&op.operands[at]], group)
            } else {
                bounds::bound(lowered, op, at, &operands, expected, &found.magnitude)
            };
            if let Some(message) = too_far(&found.tensor, expected, &bounds) {
                return Err(fail(message));
            }
            made.push((*id, found));
        }
        wholes.extend(made);
    }
    for (name, id) in &program.outputs {
        let found = run.outputs.get(name).ok_or_else(|| format!("output \"{name}\" is missing"))?;
        if let Some(message) = difference(found, &wholes[id].tensor) {
            return Err(format!("output \"{name}\" of rank 0: {message}"));
        }
    }
    Ok(())
}

fn exact(
    cann: &Arc<Cann>,
    program: &Program,
    data: &Data,
    mesh: &Mesh,
    pins: &Pins,
) -> Result<Placed, String> {
    let lowered =
        parallelize(program, mesh, pins).map_err(|problems| format!("parallelize: {problems}"))?.lowered;
    let in_lowered = |message: String| format!("{message}\n{}", placement::print(&lowered));
    let plans = schedule(&lowered, Scheduling::default())
        .map_err(|problems| in_lowered(format!("schedule: {problems}")))?;
    let mut engine =
        start(cann, plans, &data.params).map_err(|error| in_lowered(format!("start: {error}")))?;
    let mut states = zero_states(program);
    for inputs in &data.inputs {
        let run = run(&mut engine, inputs).map_err(|error| in_lowered(format!("run: {error}")))?;
        let given = given(program, &data.params, inputs, &states);
        let expected = interpret(program, |id, _| given[&id].clone());
        let mut meaning: Vec<Option<HostTensor>> = expected.iter().cloned().map(Some).collect();
        meaning.resize(lowered.program.values.len(), None);
        let ops = lowered.program.ops.values().iter();
        let results =
            ops.flat_map(|op| op.results.iter().enumerate().map(move |(at, result)| (op, at, *result)));
        for (op, at, result) in results {
            if meaning[result.index()].is_none() {
                meaning[result.index()] = meaning[op.operands[at].index()].clone();
            }
            let found = assemble(&lowered, result, &run.parts[&result]).map(|whole| whole.tensor);
            let message = match (&found, &meaning[result.index()]) {
                (Err(message), _) => Some(message.clone()),
                (Ok(found), Some(expected)) => difference(found, expected),
                (Ok(_), None) => Some("has no meaning".to_owned()),
            };
            if let Some(message) = message {
                return Err(in_lowered(format!("{}: {message}", text::op_text(&lowered.program, op))));
            }
        }
        for (name, id) in &program.outputs {
            let found =
                run.outputs.get(name).ok_or_else(|| in_lowered(format!("output \"{name}\" is missing")))?;
            if let Some(message) = difference(found, &expected[id.index()]) {
                return Err(in_lowered(format!("output \"{name}\" of rank 0: {message}")));
            }
        }
        states = last_states(program, &states, |id| Ok(expected[id.index()].clone()))?;
    }
    Ok(lowered)
}

#[test]
fn the_random_programs_reach_every_exact_op_and_every_movement() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let seen_cell = RefCell::new(&mut seen);
    let result = runner(400).run(&(random::genomes(), split::splits()), |(genome, split)| {
        let drawn = genome.draw();
        let mesh = split.mesh();
        let (pins, _) = split.pins(&mesh, &drawn.pinnable, &drawn.weights);
        let lowered = parallelize(&drawn.program, &mesh, &pins)
            .map_err(|problems| TestCaseError::fail(format!("parallelize: {problems}")))?
            .lowered;
        for op in lowered.program.ops.values() {
            *seen_cell.borrow_mut().entry(op.kind.row().name).or_default() += 1;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let expected = "add all_gather all_reduce all_to_all cast embed index_of matmul mul permute reduce_max \
                    reduce_scatter reduce_sum scale slice take write_slots";
    let missing: Vec<&str> =
        expected.split_whitespace().filter(|name| seen.get(name).is_none_or(|n| *n < 5)).collect();
    assert!(missing.is_empty(), "fewer than 5 of {missing:?} in {seen:?}");
}

fn runner(few: usize) -> TestRunner {
    // On other instruction sets only arithmetic differs, so a few cases are enough.
    let cases = if is_other_instruction_set() { cases(few.min(8)) } else { cases(few) };
    TestRunner::new(Config {
        cases: u32::try_from(cases).unwrap(),
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    })
}

fn report(program: &Program, mesh: &Mesh, pins: &str, message: &str) -> TestCaseError {
    TestCaseError::fail(format!("{message}\n{mesh}\n{pins}{}", text::print(program)))
}

#[test]
fn exact_programs_give_the_same_bits_on_any_mesh() {
    let cann = cann(split::CARDS);
    let result = runner(80).run(&(random::genomes(), split::splits()), |(genome, split)| {
        let drawn = genome.draw();
        let mesh = split.mesh();
        let (pins, pins_text) = split.pins(&mesh, &drawn.pinnable, &drawn.weights);
        let data = Data { params: drawn.params(), inputs: vec![drawn.inputs(0), drawn.inputs(1)] };
        let found = exact(&cann, &drawn.program, &data, &mesh, &pins);
        found.map(|_| ()).map_err(|message| report(&drawn.program, &mesh, &pins_text, &message))
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn gradients_of_exact_programs_have_the_same_bits_on_any_mesh() {
    let cann = cann(split::CARDS);
    let seen: RefCell<BTreeMap<&str, usize>> = RefCell::default();
    let result = runner(160).run(&(random::genomes(), split::splits()), |(genome, split)| {
        let Some(drawn) = genome.draw_gradients().filter(random::Drawn::is_exact) else { return Ok(()) };
        let mesh = split.mesh();
        let (pins, pins_text) = split.pins(&mesh, &drawn.pinnable, &drawn.weights);
        let data = Data { params: drawn.params(), inputs: vec![drawn.inputs(0)] };
        let found = exact(&cann, &drawn.program, &data, &mesh, &pins);
        let lowered = found.map_err(|message| report(&drawn.program, &mesh, &pins_text, &message))?;
        for op in lowered.program.ops.values() {
            *seen.borrow_mut().entry(op.kind.row().name).or_default() += 1;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let expected = "add all_gather all_reduce all_to_all cast embed embed_grad expand matmul mul permute reduce_scatter \
                    reduce_sum reduce_to rope scale slice take take_grad total";
    let seen = seen.into_inner();
    let missing: Vec<&str> =
        expected.split_whitespace().filter(|name| seen.get(name).is_none_or(|n| *n < 5)).collect();
    assert!(missing.is_empty(), "fewer than 5 of {missing:?} in {seen:?}");
}

#[test]
fn exact_programs_give_the_same_bits_in_any_order_of_calls_and_tasks() {
    let result =
        runner(24).run(&(random::genomes(), split::splits(), any::<u64>()), |(genome, split, seed)| {
            let drawn = genome.draw();
            let mesh = split.mesh();
            let (pins, pins_text) = split.pins(&mesh, &drawn.pinnable, &drawn.weights);
            let data = Data { params: drawn.params(), inputs: vec![drawn.inputs(0)] };
            let mode = Mode::Strict { seed };
            let emulator =
                Emulator::new(emulator::Config { mode, ..emulator::Config::with_cards(split::CARDS) })
                    .unwrap();
            let cann = Cann::new(emulator.table()).unwrap();
            let found = exact(&cann, &drawn.program, &data, &mesh, &pins).and_then(|_| {
                drop(cann);
                let reports: Vec<String> = emulator.reports().iter().map(ToString::to_string).collect();
                if reports.is_empty() { Ok(()) } else { Err(reports.join("\n")) }
            });
            found.map_err(|message| {
                report(&drawn.program, &mesh, &format!("seed {seed}\n{pins_text}"), &message)
            })
        });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

fn blocks_stay_within_bounds(precision: Precision) {
    let cann = cann(split::CARDS);
    let result = runner(20).run(&(block::blocks(precision), split::splits()), |(block, split)| {
        let drawn = block.draw();
        let data = Data { params: drawn.params.clone(), inputs: vec![drawn.inputs.clone()] };
        let whole = Mesh::new(&[("tp", 1)]).unwrap();
        let mesh = split.mesh();
        let (pins, pins_text) = split.pins(&mesh, &drawn.pinnable, &drawn.weights);
        for (mesh, pins) in [(&whole, &Pins::default()), (&mesh, &pins)] {
            let found = parallelize(&drawn.program, mesh, pins)
                .map_err(|problems| format!("parallelize: {problems}"));
            found
                .and_then(|split| {
                    check(&cann, &split.lowered, &data)
                        .map_err(|message| format!("{message}\n{}", placement::print(&split.lowered)))
                })
                .map_err(|message| report(&drawn.program, mesh, &pins_text, &message))?;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn blocks_in_f32_stay_within_bounds() {
    blocks_stay_within_bounds(DType::F32.into());
}

#[test]
fn blocks_in_f16_stay_within_bounds() {
    blocks_stay_within_bounds(DType::F16.into());
}

#[test]
fn blocks_in_bf16_stay_within_bounds() {
    blocks_stay_within_bounds(DType::BF16.into());
}

#[test]
fn quantised_blocks_in_f16_stay_within_bounds() {
    blocks_stay_within_bounds(Precision::w8a8(DType::F16));
}

#[test]
fn quantised_blocks_in_bf16_stay_within_bounds() {
    blocks_stay_within_bounds(Precision::w8a8(DType::BF16));
}

#[test]
fn every_instruction_set_keeps_them() {
    // Tests that do not depend on the instruction set.
    let but = [
        "gradients_of_exact_programs_have_the_same_bits_on_any_mesh",
        "every_instruction_set_keeps_them",
        "exact_programs_give_the_same_bits_in_any_order_of_calls_and_tasks",
        "the_random_programs_reach_every_exact_op_and_every_movement",
        "rules::",
    ];
    run_under_each("equivalence", &but);
}
