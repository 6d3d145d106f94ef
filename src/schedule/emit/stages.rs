//! Emits the plans of a pipeline: each rank runs its stage's part of all micro-batches.
//!
//! All stages have the same mesh, and a rank exchanges values with the ranks at its position in
//! other stages.
//!
//! Invariants: a value is sent to a stage at most once. Values that depend only on inputs or
//! weights are computed where they are read. Ops after the micro-batches run in program order on
//! all stages, so their transfers have one order.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Id, IdVec, Reduce, Shape, defect};
use crate::call::{BufferId, Call, View};
use crate::placement::Placed;
use crate::program::op::Kind;
use crate::program::{OpId, Program, Role, Value, ValueId};

use super::super::Ranks;
use super::super::memory::Reserved;
use super::super::overlap::Emitted;
use super::super::pipeline::{Pass, Pipeline, StageEntry, Task};
use super::super::plan::{
    Action, Collective, CollectiveKind, GroupId, Launched, OpNote, Plan, Region, Step, StreamKind, Tensor,
};
use super::cut::{StageCut, StageTransfer};
use super::names::numbered;
use super::{Emitter, groups};

/// Phase of an op in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpPhase {
    /// The forward pass of a micro-batch.
    Forward,
    /// Gradients that an earlier part waits for.
    InputGrad,
    /// Gradients that no part waits for.
    WeightGrad,
    /// Ops after all micro-batches.
    Update,
}

/// Part and phase of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpPlace {
    /// Index of the model part.
    pub part: usize,
    /// Phase in that part.
    pub when: OpPhase,
}

/// A micro-batch's program, split into parts.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'a> {
    /// Lowered program on a stage's mesh.
    pub placed: &'a Placed,
    /// Place of each op. `None`: the op reads only inputs and weights, and runs where its result is
    /// read.
    pub places: &'a [Option<OpPlace>],
    /// A program that gives the layout of weights and caches, so that ops can share launches.
    /// `None`: every tensor has its own buffer.
    pub like: Option<&'a Placed>,
}

/// A step's micro-batches on a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct StagedStep<'a> {
    /// Name of the step in messages.
    pub name: &'a str,
    /// Schedule of the passes.
    pub pipeline: Pipeline,
    /// Number of pipeline stages.
    pub stages: usize,
    /// Share weights and states.
    pub programs: &'a [Staged<'a>],
    /// Part of each weight and state, by name.
    pub homes: &'a BTreeMap<String, usize>,
    /// Program of each micro-batch. Only the last may have ops after the micro-batches.
    pub micro_batches: &'a [usize],
}

impl StagedStep<'_> {
    pub(super) fn stage(&self, part: usize) -> usize {
        self.pipeline.stage(self.stages, part)
    }

    pub(super) fn home(&self, name: &str) -> Option<usize> {
        self.homes.get(name).map(|part| self.stage(*part))
    }

    fn micro_batch_places(&self) -> impl Iterator<Item = &OpPlace> {
        self.programs
            .iter()
            .flat_map(|staged| staged.places)
            .flatten()
            .filter(|place| place.when != OpPhase::Update)
    }

    fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut need = |what: &str, holds: bool, expected: String, found: String| {
            if !holds {
                problems.push(Diagnostic::new(self.name, what).expected(expected).found(found));
            }
        };
        let (programs, count) = (self.programs.len(), self.micro_batches.len());
        need("has no stage", self.stages > 0, "1 or more".to_owned(), self.stages.to_string());
        need("has no micro-batch", count > 0, "1 or more".to_owned(), count.to_string());
        for program in self.micro_batches {
            let found = format!("program {program}");
            need(
                "a micro-batch has no program",
                *program < programs,
                format!("one of {programs} programs"),
                found,
            );
        }
        for (program, staged) in self.programs.iter().enumerate() {
            let (ops, places) = (staged.placed.program.ops.len(), staged.places.len());
            need(
                "places are not of the ops",
                ops == places,
                format!("{ops} of program {program}"),
                places.to_string(),
            );
            let is_behind = staged.places.iter().flatten().any(|place| place.when == OpPhase::Update);
            let is_last = self.micro_batches.last() == Some(&program);
            let found = || format!("program {program}");
            need(
                "has ops behind micro-batches",
                !is_behind || is_last,
                "only the last has".to_owned(),
                found(),
            );
            need(
                "no micro-batch has a program",
                self.micro_batches.contains(&program),
                "one has".to_owned(),
                found(),
            );
        }
        let parts = self.stages * self.pipeline.chunks();
        let last =
            self.programs.iter().flat_map(|staged| staged.places).flatten().map(|place| place.part).max();
        let last = last.unwrap_or_default();
        need(
            "has ops of a part that no stage has",
            last < parts,
            format!("fewer than {parts} parts"),
            last.to_string(),
        );
        let divides = self.pipeline.divides(self.stages, count) || self.micro_batch_places().next().is_none();
        let found = format!("{count} over {} stages", self.stages);
        need(
            "the order does not take the micro-batches",
            divides,
            format!("what {} divides", self.pipeline),
            found,
        );
        problems.into_result(())
    }

    fn named(&self, micro_batch: usize, name: &str) -> String {
        if self.micro_batches.len() > 1 { numbered(micro_batch, name) } else { name.to_owned() }
    }
}

/// Emits the plans of all ranks, by stage, without offsets and events. `takes` and `transfer_us`
/// predict the times that order the transfers.
///
/// Refuses ops without a place, weights that several stages read, values for a stage other than the
/// next, and outputs that cannot be summed.
pub(in super::super) fn emit_stages(
    step: &StagedStep<'_>,
    ranks: Ranks,
    takes: &dyn Fn(usize, Pass) -> f64,
    transfer_us: f64,
) -> Result<Vec<Vec<Emitted>>, Diagnostics> {
    step.check()?;
    let mut problems = Diagnostics::new();
    let mut cuts: Vec<StageCut<'_>> = Vec::new();
    for staged in step.programs {
        let first_note = cuts.last().map_or(0, |cut| cut.first_note + cut.staged.placed.program.ops.len());
        let cut = StageCut::new(step, *staged, first_note);
        cut.check(step, &mut problems);
        let program = &staged.placed.program;
        for (name, id) in &program.outputs {
            let value = &program.values[*id];
            let refused = |expected: &str| {
                Diagnostic::new(&**name, "is not an output of a pipeline").expected(expected)
            };
            if value.dtype == DType::Bool || !staged.placed.layouts[*id].is_replicated() {
                problems.push(refused("numbers present on all cards of a stage").found(program.label(*id)));
            }
            if cut.maker[id.index()].is_none_or(|maker| staged.places[maker.index()].is_none()) {
                problems
                    .push(refused("a value made by an op of a stage").found("a value that no stage makes"));
            }
        }
        cuts.push(cut);
    }
    problems.into_result(())?;
    let mesh = &step.programs[0].placed.mesh;
    let inner = mesh.cards();
    let mut all: Vec<Vec<usize>> = Vec::new();
    for ranks in step.programs.iter().flat_map(|staged| groups(staged.placed, ranks).values().to_vec()) {
        for stage in 0..step.stages {
            let ranks: Vec<usize> = ranks.iter().map(|rank| stage * inner + rank).collect();
            if !all.contains(&ranks) {
                all.push(ranks);
            }
        }
    }
    let columns = all.len();
    let column = |local| (0..step.stages).map(|stage| stage * inner + local).collect();
    all.extend(ranks.among(inner).map(column));
    let groups: IdVec<GroupId, Vec<usize>> = all.into_iter().collect();
    let entries = match step.micro_batch_places().next() {
        Some(_) => step.pipeline.entries(step.stages, step.micro_batches.len(), takes, transfer_us),
        None => vec![Vec::new(); step.stages],
    };
    let emitted = |stage: usize, local: usize| {
        let rank = stage * inner + local;
        let plan = Plan::empty(step.name.to_owned(), rank, step.stages * inner, groups.clone());
        let column = GroupId::from_index(columns + local);
        StageRank::new(step, &cuts, stage, local, column, plan).run(&entries[stage])
    };
    let of_stage = |stage| ranks.among(inner).into_par_iter().map(|local| emitted(stage, local)).collect();
    Ok((0..step.stages).into_par_iter().map(of_stage).collect())
}

struct StageRank<'a> {
    step: &'a StagedStep<'a>,
    cuts: &'a [StageCut<'a>],
    stage: usize,
    column: GroupId,
    plan: Plan,
    /// Steps up to the end of each op, send and receive.
    ends: Vec<usize>,
    emitters: Vec<Emitter<'a>>,
    /// Casts that all micro-batches share, by name and op.
    casts: FxHashMap<(&'a str, String), View>,
    begins: Vec<usize>,
    exchanged: Vec<(BufferId, Range<usize>)>,
}

/// Tasks for which receive buffers are reserved in advance, and send buffers are kept: a transfer
/// neither waits for the current pass nor delays the next.
const TASKS_APART: usize = 2;

impl<'a> StageRank<'a> {
    fn new(
        step: &'a StagedStep<'a>,
        cuts: &'a [StageCut<'a>],
        stage: usize,
        local: usize,
        column: GroupId,
        plan: Plan,
    ) -> Self {
        let inner = step.programs[0].placed.mesh.cards();
        let emitter = |program: &usize| {
            let cut = &cuts[*program];
            let none = Plan::empty(String::new(), plan.rank, plan.world, IdVec::new());
            let emitter = Emitter::new(cut.staged.placed, local, stage * inner, none);
            Emitter { first_note: cut.first_note, joins: cut.joins.clone(), ..emitter }
        };
        let emitters = step.micro_batches.iter().map(emitter).collect();
        Self {
            step,
            cuts,
            stage,
            column,
            plan,
            ends: Vec::new(),
            emitters,
            casts: FxHashMap::default(),
            begins: Vec::new(),
            exchanged: Vec::new(),
        }
    }

    fn run(mut self, entries: &[StageEntry]) -> Emitted {
        for (number, cut) in self.cuts.iter().enumerate() {
            let first =
                self.step.micro_batches.iter().position(|program| *program == number).unwrap_or_default();
            for op in cut.staged.placed.program.ops.values() {
                self.with(first, |emitter| emitter.note(op));
            }
        }
        self.given();
        for micro_batch in 0..self.emitters.len() {
            let (cut, stage, step) = (self.cut(micro_batch), self.stage, self.step);
            let is_here = |id: OpId| {
                let place = cut.staged.places[id.index()];
                place.is_none_or(|place| step.stage(place.part) == stage)
            };
            self.with(micro_batch, |emitter| emitter.lay_out(&is_here));
        }
        for entry in entries {
            defect!(TaskMissing, continue);
            self.entry(*entry);
        }
        let reserved = self.reserved();
        self.begins.push(self.plan.steps.len());
        self.update();
        self.outputs();
        // Taps need one micro-batch, and values of one stage.
        let cut = self.cut(0);
        let is_of_one = self.step.micro_batches.len() == 1;
        let has_place = |value: ValueId| {
            cut.maker[value.index()].is_some_and(|op| cut.staged.places[op.index()].is_some())
        };
        self.plan.taps.retain(|tap| is_of_one && has_place(tap.value));
        Emitted { plan: self.plan, ends: self.ends, begins: self.begins, reserved }
    }

    fn reserved(&self) -> Vec<Reserved> {
        let begin = |task: usize| self.begins.get(task).copied().unwrap_or(self.plan.steps.len());
        let reserved = |(buffer, tasks): &(BufferId, Range<usize>)| Reserved {
            buffer: *buffer,
            steps: begin(tasks.start)..begin(tasks.end),
        };
        self.exchanged.iter().map(reserved).collect()
    }

    fn cut(&self, micro_batch: usize) -> &'a StageCut<'a> {
        &self.cuts[self.step.micro_batches[micro_batch]]
    }

    fn with<T>(&mut self, micro_batch: usize, emit: impl FnOnce(&mut Emitter<'a>) -> T) -> T {
        let emitter = &mut self.emitters[micro_batch];
        std::mem::swap(&mut self.plan, &mut emitter.plan);
        let done = emit(emitter);
        std::mem::swap(&mut self.plan, &mut emitter.plan);
        done
    }

    /// Weights and states once, inputs of each micro-batch. Tensors that the stage does not read
    /// are empty.
    fn given(&mut self) {
        let mut kept: BTreeMap<String, (Tensor, View)> = BTreeMap::new();
        for micro_batch in 0..self.emitters.len() {
            let program: &'a Program = &self.cut(micro_batch).staged.placed.program;
            for (role, region) in [(Role::Param, Region::Weights), (Role::State, Region::States)] {
                for id in program.with_role(role) {
                    let name = &program.values[id].name;
                    if let Some((_, view)) = kept.get(name) {
                        self.emitters[micro_batch].views[id.index()] = Some(view.clone());
                        continue;
                    }
                    let is_read = self.step.home(name) == Some(self.stage);
                    let (tensor, view) = self.tensor(micro_batch, id, region, name.clone(), is_read);
                    match role {
                        Role::Param => self.plan.params.push(tensor.clone()),
                        _ => self.plan.states.push(tensor.clone()),
                    }
                    kept.insert(name.clone(), (tensor, view));
                }
            }
            for id in program.with_role(Role::Input) {
                let name = self.step.named(micro_batch, &program.values[id].name);
                let is_read = self.reads(micro_batch, id);
                let (tensor, _) = self.tensor(micro_batch, id, Region::Inputs, name, is_read);
                self.plan.inputs.push(tensor);
            }
        }
    }

    fn reads(&self, micro_batch: usize, id: ValueId) -> bool {
        self.cut(micro_batch).readers[id.index()].iter().any(|(stage, _)| *stage == self.stage)
    }

    fn tensor(
        &mut self,
        micro_batch: usize,
        id: ValueId,
        region: Region,
        name: String,
        is_read: bool,
    ) -> (Tensor, View) {
        self.with(micro_batch, |emitter| {
            let mut tensor = Tensor { name, ..emitter.tensor(id, region) };
            // A scalar has no dim that could be empty.
            if !is_read && tensor.shape.rank() > 0 {
                tensor.ranges = vec![0..0; tensor.shape.rank()];
                tensor.offset = 0;
                emitter.plan.buffers[tensor.buffer].bytes = Bytes(0);
            }
            let view = emitter.view(id);
            (tensor, view)
        })
    }

    fn entry(&mut self, entry: StageEntry) {
        match entry {
            StageEntry::Run(task) => {
                self.begins.push(self.plan.steps.len());
                let micro_batch = task.micro_batch as usize;
                for id in self.cut(micro_batch).of_task(self.part(self.stage, task), task.pass) {
                    self.op(micro_batch, id);
                }
            }
            StageEntry::Send { made_by, to } => {
                for (id, value) in self.crossing(made_by, self.stage, to) {
                    let micro_batch = made_by.micro_batch as usize;
                    defect!(TransferOfOtherMicroBatch, let micro_batch = if micro_batch == 0 { 1 } else { 0 });
                    self.send(micro_batch, id, value, to);
                }
            }
            StageEntry::Receive { made_by, from } => {
                for (id, value) in self.crossing(made_by, from, self.stage) {
                    self.receive(made_by.micro_batch as usize, id, value, from);
                }
            }
        }
    }

    fn part(&self, stage: usize, task: Task) -> usize {
        self.step.pipeline.part(self.step.stages, stage, task)
    }

    /// Results of a task of stage `from` that stage `to` reads during the micro-batches.
    fn crossing(&self, made_by: Task, from: usize, to: usize) -> Vec<(OpId, ValueId)> {
        let cut = self.cut(made_by.micro_batch as usize);
        let ops = cut.of_task(self.part(from, made_by), made_by.pass);
        let of = |id: &OpId| {
            let id = *id;
            let crossings = cut.crossings[id.index()].iter();
            crossings
                .filter(move |crossing| crossing.to == to && !crossing.is_late)
                .map(move |found| (id, found.value))
        };
        ops.iter().flat_map(of).collect()
    }

    /// Emits the ops without a place first.
    fn op(&mut self, micro_batch: usize, id: OpId) {
        let cut = self.cut(micro_batch);
        let op = &cut.staged.placed.program.ops[id];
        for operand in &op.operands {
            let is_made = self.emitters[micro_batch].views[operand.index()].is_some();
            if let Some(maker) = cut.maker[operand.index()]
                .filter(|maker| !is_made && cut.staged.places[maker.index()].is_none())
            {
                self.op(micro_batch, maker);
            }
        }
        self.only(micro_batch, id);
        self.ends.push(self.plan.steps.len());
    }

    fn only(&mut self, micro_batch: usize, id: OpId) {
        let program: &'a Program = &self.cut(micro_batch).staged.placed.program;
        let op = &program.ops[id];
        // Weights change only after all micro-batches.
        let origin = &program.values[op.operands[0]];
        let is_shared = matches!(op.kind, Kind::Cast { .. })
            && origin.role == Role::Param
            && self.emitters[micro_batch].windows[op.result().index()].is_none();
        if !is_shared {
            self.with(micro_batch, |emitter| emitter.op(id, op));
            return;
        }
        let key = (origin.name.as_str(), format!("{:?}", op.kind));
        if let Some(view) = self.casts.get(&key) {
            self.emitters[micro_batch].views[op.result().index()] = Some(view.clone());
            return;
        }
        self.with(micro_batch, |emitter| emitter.op(id, op));
        self.casts.insert(key, self.emitters[micro_batch].view(op.result()));
    }

    fn send(&mut self, micro_batch: usize, id: OpId, value: ValueId, to: usize) {
        let column = self.column;
        let buffer = self.with(micro_batch, |emitter| {
            let view = emitter.view(value);
            let send = emitter.dense(id, view);
            defect!(TransferToOtherStage, let to = if to == 0 { 1 } else { to - 1 });
            let (recv, buffer) = (nothing(&send), send.buffer);
            emitter.transfer(id, Collective::alone(CollectiveKind::Send { to }, column, send, recv));
            buffer
        });
        self.ends.push(self.plan.steps.len());
        self.exchanged.push((buffer, self.begins.len()..self.begins.len() + TASKS_APART));
    }

    fn receive(&mut self, micro_batch: usize, id: OpId, value: ValueId, from: usize) {
        let column = self.column;
        let buffer = self.with(micro_batch, |emitter| {
            let recv = emitter.received(value);
            emitter.views[value.index()] = Some(recv.clone());
            let (send, buffer) = (nothing(&recv), recv.buffer);
            emitter.transfer(id, Collective::alone(CollectiveKind::Receive { from }, column, send, recv));
            buffer
        });
        self.ends.push(self.plan.steps.len());
        self.exchanged.push((buffer, self.begins.len().saturating_sub(TASKS_APART)..self.begins.len()));
    }

    fn update(&mut self) {
        let last = self.emitters.len() - 1;
        let cut = self.cut(last);
        for id in cut.staged.placed.program.ops.ids() {
            let Some(OpPlace { part, when }) = cut.staged.places[id.index()] else { continue };
            let stage = self.step.stage(part);
            if when == OpPhase::Update && stage == self.stage {
                self.op(last, id);
            }
            for StageTransfer { value, to, is_late } in &cut.crossings[id.index()] {
                match (*is_late, stage == self.stage, *to == self.stage) {
                    (true, true, _) => self.send(last, id, *value, *to),
                    (true, _, true) => self.receive(last, id, *value, stage),
                    _ => {}
                }
            }
        }
    }

    /// A rank contributes 0 for outputs that it does not compute, so the sum over the stages is the
    /// output. Outputs of one type share a sum.
    fn outputs(&mut self) {
        let of = |micro_batch: usize| {
            let program: &'a Program = &self.cut(micro_batch).staged.placed.program;
            program.outputs.iter().map(move |(name, id)| (micro_batch, name, *id))
        };
        let all: Vec<(usize, &'a String, ValueId)> = (0..self.emitters.len()).flat_map(of).collect();
        let op = OpId::from_index(self.plan.notes.len());
        self.plan.notes.push(OpNote {
            kind: "output",
            value: "all stages".to_owned(),
            layer: None,
            launch: Launched::Alone,
        });
        let mut dtypes: Vec<DType> = Vec::new();
        for (micro_batch, _, id) in &all {
            let dtype = self.value(*micro_batch, *id).dtype;
            if !dtypes.contains(&dtype) {
                dtypes.push(dtype);
            }
        }
        for dtype in dtypes {
            let own: Vec<_> = all
                .iter()
                .copied()
                .filter(|(micro_batch, _, id)| self.value(*micro_batch, *id).dtype == dtype)
                .collect();
            self.outputs_of(op, dtype, &own);
        }
    }

    fn value(&self, micro_batch: usize, id: ValueId) -> &'a Value {
        let program: &'a Program = &self.cut(micro_batch).staged.placed.program;
        &program.values[id]
    }

    fn outputs_of(&mut self, op: OpId, dtype: DType, all: &[(usize, &'a String, ValueId)]) {
        let mut elems = 0;
        let mut windows: Vec<(usize, Shape)> = Vec::with_capacity(all.len());
        for (micro_batch, _, id) in all {
            let shape = self.value(*micro_batch, *id).shape.clone();
            windows.push((elems, shape.clone()));
            elems += shape.elems();
        }
        let mut buffer = || {
            let buffer = self.plan.buffer(Region::Arena, Bytes::of(elems, dtype.size_bytes()));
            View::contiguous(buffer, dtype, [elems].into())
        };
        let (send, recv) = (buffer(), buffer());
        let window = |all: &View, (offset, shape): &(usize, Shape)| View {
            offset: *offset,
            ..View::contiguous(all.buffer, dtype, shape.clone())
        };
        self.launch(op, Call::Zero { into: send.clone() });
        for ((micro_batch, _, id), place) in all.iter().zip(&windows) {
            if let Some(from) = self.emitters[*micro_batch].views[id.index()]
                .clone()
                .filter(|_| self.makes(*micro_batch, *id))
            {
                self.launch(op, Call::Copy { from, into: window(&send, place) });
            }
        }
        let kind = CollectiveKind::AllReduce { reduce: Reduce::Sum };
        let action = Action::Exchange(Box::new(Collective::alone(kind, self.column, send, recv.clone())));
        self.plan.steps.push(Step { stream: StreamKind::Transfers, action, op });
        for ((micro_batch, name, id), place) in all.iter().zip(&windows) {
            let (tensor, into) =
                self.tensor(*micro_batch, *id, Region::Outputs, self.step.named(*micro_batch, name), true);
            self.launch(op, Call::Copy { from: window(&recv, place), into });
            self.plan.outputs.push(Tensor { source: None, ..tensor });
        }
    }

    fn makes(&self, micro_batch: usize, id: ValueId) -> bool {
        let cut = self.cut(micro_batch);
        let place = cut.maker[id.index()].and_then(|maker| cut.staged.places[maker.index()]);
        place.is_some_and(|place| self.step.stage(place.part) == self.stage)
    }

    fn launch(&mut self, op: OpId, call: Call) {
        self.plan.steps.push(Step {
            stream: StreamKind::Compute,
            action: Action::Launch(Box::new(call)),
            op,
        });
    }
}

impl Emitter<'_> {
    fn transfer(&mut self, op: OpId, transfer: Collective) {
        if transfer.send.elems() + transfer.recv.elems() > 0 {
            defect!(TransferMissing, return);
            let action = Action::Exchange(Box::new(transfer));
            self.plan.steps.push(Step { stream: StreamKind::Transfers, action, op: self.noted(op) });
        }
    }
}

fn nothing(view: &View) -> View {
    View { offset: view.offset, ..View::contiguous(view.buffer, view.dtype, [0].into()) }
}
