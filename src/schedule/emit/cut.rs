//! Analyses the program of a micro-batch for a pipeline: which stages read which values, and which
//! are transferred.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::{Diagnostic, Diagnostics, Id, Kernels};
use crate::program::{OpId, Role, ValueId};

use super::super::join::Joins;
use super::super::pipeline::Pass;
use super::stages::{OpPhase, OpPlace, Staged, StagedStep};

pub(super) struct StageTransfer {
    pub(super) value: ValueId,
    pub(super) to: usize,
    pub(super) is_late: bool,
}

pub(super) struct StageCut<'a> {
    pub(super) staged: Staged<'a>,
    pub(super) maker: Vec<Option<OpId>>,
    /// Reading stages, with the first phase.
    pub(super) readers: Vec<SmallVec<[(usize, OpPhase); 2]>>,
    pub(super) crossings: Vec<SmallVec<[StageTransfer; 1]>>,
    ops: FxHashMap<OpPlace, Vec<OpId>>,
    pub(super) joins: Joins,
    pub(super) first_note: usize,
}

impl<'a> StageCut<'a> {
    pub(super) fn new(step: &StagedStep<'_>, staged: Staged<'a>, first_note: usize) -> Self {
        let program = &staged.placed.program;
        let mut maker = vec![None; program.values.len()];
        let mut readers: Vec<SmallVec<[(usize, OpPhase); 2]>> = vec![SmallVec::new(); program.values.len()];
        let mut ops: FxHashMap<OpPlace, Vec<OpId>> = FxHashMap::default();
        for (id, op) in program.ops.iter() {
            op.results.iter().for_each(|result| maker[result.index()] = Some(id));
            if let Some(place) = staged.places[id.index()] {
                ops.entry(place).or_default().push(id);
            }
        }
        for (id, op) in program.ops.iter().rev() {
            let own = match staged.places[id.index()] {
                Some(place) => SmallVec::from_slice(&[(step.stage(place.part), place.when)]),
                None => op.results.iter().flat_map(|result| readers[result.index()].clone()).collect(),
            };
            let own: SmallVec<[(usize, OpPhase); 2]> = own;
            for operand in &op.operands {
                let known = &mut readers[operand.index()];
                for (stage, when) in &own {
                    match known.iter_mut().find(|(known, _)| known == stage) {
                        Some((_, first)) => *first = (*first).min(*when),
                        None => known.push((*stage, *when)),
                    }
                }
            }
        }
        let crossings = |(id, op): (OpId, &crate::program::Op)| -> SmallVec<[StageTransfer; 1]> {
            let Some(place) = staged.places[id.index()] else { return SmallVec::new() };
            let own = step.stage(place.part);
            let of = |value: &ValueId| {
                let value = *value;
                let readers = readers[value.index()].iter().filter(move |(stage, _)| *stage != own);
                readers.map(move |(to, when)| StageTransfer {
                    value,
                    to: *to,
                    is_late: *when == OpPhase::Update,
                })
            };
            op.results.iter().flat_map(of).collect()
        };
        let crossings = program.ops.iter().map(crossings).collect();
        let joins = match staged.like {
            Some(other) => Joins::of(staged.placed, Kernels::NONE).on_memory_of(staged.placed, other),
            None => Joins::of_any_memory(staged.placed, Kernels::NONE),
        };
        let is_at_once = |a: OpId, b: OpId| {
            let place = staged.places[a.index()];
            place.is_some() && place == staged.places[b.index()]
        };
        let joins = joins.among(is_at_once);
        Self { staged, maker, readers, crossings, ops, joins, first_note }
    }

    /// Reports weights that two stages read, and values that no entry transfers.
    pub(super) fn check(&self, step: &StagedStep<'_>, problems: &mut Diagnostics) {
        let program = &self.staged.placed.program;
        for (id, value) in
            program.values.iter().filter(|(_, value)| matches!(value.role, Role::Param | Role::State))
        {
            let home = step.home(&value.name);
            if let Some((stage, _)) = self.readers[id.index()].iter().find(|(stage, _)| Some(*stage) != home)
            {
                let problem = Diagnostic::new(&*value.name, "is read by a stage that does not have it");
                problems.push(
                    problem
                        .expected(home.map_or("none".to_owned(), |home| format!("stage {home}")))
                        .found(stage),
                );
            }
        }
        let parts = step.stages * step.pipeline.chunks();
        for (id, place) in program.ops.ids().zip(self.staged.places) {
            let Some(OpPlace { part, when }) = *place else { continue };
            for crossing in &self.crossings[id.index()] {
                // Results of the last part are not sent forward, and results of the first part are
                // not sent back.
                let next = match when {
                    OpPhase::Forward => (part + 1 < parts).then(|| step.stage(part + 1)),
                    OpPhase::InputGrad => part.checked_sub(1).map(|part| step.stage(part)),
                    OpPhase::WeightGrad | OpPhase::Update => None,
                };
                if !crossing.is_late && next != Some(crossing.to) {
                    let problem = Diagnostic::new(
                        program.label(crossing.value),
                        "is read by a stage that is not the next",
                    );
                    let expected = next.map_or("no other stage".to_owned(), |stage| format!("stage {stage}"));
                    problems.push(problem.expected(expected).found(format!("stage {}", crossing.to)));
                }
            }
        }
    }

    pub(super) fn of_task(&self, part: usize, pass: Pass) -> Vec<OpId> {
        let of = |when| self.ops.get(&OpPlace { part, when }).cloned().unwrap_or_default();
        match pass {
            Pass::Forward => of(OpPhase::Forward),
            Pass::InputGrad => of(OpPhase::InputGrad),
            Pass::WeightGrad => of(OpPhase::WeightGrad),
            Pass::Backward => {
                let mut both = [of(OpPhase::InputGrad), of(OpPhase::WeightGrad)].concat();
                both.sort_unstable();
                both
            }
        }
    }
}
