//! Executors: results of a first phase, for the second phase.
//!
//! Invariant: the first phase fixes shapes, strides and types; only addresses change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ascend_tp_emulator_operators::fractal::Fractal;
use ascend_tp_emulator_operators::operator::{
    CallPlan, CheckedTensor, Joined, OperatorCall, OperatorKernel, PartRead, Strides, TensorRole,
};

use crate::base::failure::{Failure, code};
use crate::memory::access::{AccessMode, MemoryAccess};
use crate::memory::footprint::Footprint;
use crate::memory::keeper::Keeper;
use crate::memory::raw::RawSpan;
use crate::scheduler::pool::StreamTask;
use crate::timed::load::LoadId;

/// Granularity of the library's allocations.
const ALIGNMENT: usize = 512;

#[derive(Clone, Debug)]
pub(crate) struct BoundTensor {
    pub(crate) tensor: CheckedTensor,
    pub(super) name: &'static str,
    parameter: usize,
    /// 0 for a single tensor.
    place: usize,
    /// The part that the operator reads, if not the whole tensor.
    part: Option<PartRead>,
    /// The call may write the tensor.
    pub(crate) is_written: bool,
    pub(crate) becomes: Option<Fractal>,
}

impl BoundTensor {
    /// Returns the number of bytes from the address to the end of the accessed range.
    pub(crate) fn reach_bytes(&self) -> usize {
        self.tensor.reach_bytes().max(self.becomes.map_or(0, |fractal| fractal.bytes()))
    }

    pub(crate) fn access(&self, span: &RawSpan) -> MemoryAccess {
        let tensor = &self.tensor;
        let mode = if self.is_written { AccessMode::Write } else { AccessMode::Read };
        if tensor.fractal.or(self.becomes).is_some() {
            return MemoryAccess::new(self.name, span, mode);
        }
        let size = tensor.dtype.size();
        let first = tensor.offset.unsigned_abs() * size;
        let Some(PartRead { dim, lengths, .. }) = &self.part else {
            let whole = Footprint::tensor(first, size, &tensor.dims, &tensor.strides);
            return MemoryAccess::new(self.name, span, mode).within(whole);
        };
        let mut dims = tensor.dims.clone();
        dims[0] = 1;
        let pitch = tensor.strides[0].unsigned_abs() * size;
        let parts = lengths.iter().enumerate().map(|(index, length)| {
            dims[*dim] = *length;
            Footprint::tensor(first + index * pitch, size, &dims, &tensor.strides)
        });
        let parts = parts.collect::<Option<Vec<Footprint>>>();
        MemoryAccess::new(self.name, span, mode).within(parts.map(Footprint::all))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutorLife {
    Once,
    Repeatable,
}

#[derive(Clone)]
pub(crate) struct Executor {
    name: &'static str,
    tensors: Vec<BoundTensor>,
    kernel: OperatorKernel,
    workspace_bytes: usize,
    life: ExecutorLife,
    load: Option<LoadId>,
    joined: Option<Joined>,
    /// Reused by a run with the same memory.
    passed: Passed,
}

/// Memory and task of the last run; the task keeps the memory mapped.
#[derive(Default)]
struct Passed(Mutex<Option<(RunMemory, PassedTask)>>);

/// `None` if the run takes only virtual time.
type PassedTask = Option<StreamTask>;

impl Passed {
    fn lock(&self) -> MutexGuard<'_, Option<(RunMemory, PassedTask)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Passed {
    /// The copy's addresses may change, so its cache is empty.
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunMemory {
    pub(crate) generation: u64,
    pub(crate) card: u32,
    pub(crate) workspace: usize,
    pub(crate) workspace_bytes: u64,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executor({}, {:?}, {} tensors)", self.name, self.life, self.tensors.len())
    }
}

impl Keeper for Executor {
    fn let_go(&self) {
        let kept = self.passed.lock().take();
        drop(kept);
    }
}

/// The tensors that an address update counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Every tensor parameter, in the order of the prototype.
    All,
    Inputs,
    Outputs,
}

impl Counted {
    fn counts(self, role: TensorRole) -> bool {
        match self {
            Self::All => true,
            Self::Inputs => role != TensorRole::Output,
            Self::Outputs => role != TensorRole::Input,
        }
    }
}

impl Executor {
    pub(crate) fn new(name: &'static str, call: &OperatorCall, plan: CallPlan, load: Option<LoadId>) -> Self {
        let tensors: Vec<BoundTensor> = call
            .slots()
            .map(|placed| BoundTensor {
                part: plan.parts.iter().find(|part| part.slot == placed.tensor.slot).cloned(),
                tensor: placed.tensor.clone(),
                name: placed.name,
                parameter: placed.parameter,
                place: placed.place,
                is_written: plan.writes(placed.tensor),
                becomes: plan
                    .blocked
                    .filter(|(slot, _)| *slot == placed.tensor.slot)
                    .map(|(_, fractal)| fractal),
            })
            .collect();
        // The card copies a strided tensor to the workspace first.
        let copies = tensors
            .iter()
            .filter(|bound| {
                let as_it_lies = plan.strides == Strides::Transposed && bound.tensor.is_transposed();
                !bound.tensor.is_contiguous() && !as_it_lies
            })
            .map(|bound| (bound.tensor.len() * bound.tensor.dtype.size()).next_multiple_of(ALIGNMENT));
        let workspace_bytes = plan.workspace_bytes + copies.sum::<usize>();
        let passed = Passed::default();
        let (kernel, joined, life) = (plan.kernel, plan.joined, ExecutorLife::Once);
        Self { name, tensors, kernel, workspace_bytes, life, load, joined, passed }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Returns the tensors in the order of the kernel's views.
    pub(crate) fn tensors(&self) -> &[BoundTensor] {
        &self.tensors
    }

    pub(crate) fn kernel(&self) -> OperatorKernel {
        Arc::clone(&self.kernel)
    }

    pub(crate) fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    pub(crate) fn load(&self) -> Option<LoadId> {
        self.load
    }

    /// Returns `None` if the last run used other memory, or the memory has changed.
    pub(crate) fn passed(&self, place: RunMemory) -> Option<PassedTask> {
        self.passed.lock().as_ref().filter(|(passed, _)| *passed == place).map(|(_, work)| work.clone())
    }

    pub(crate) fn pass(&self, place: RunMemory, work: PassedTask) {
        *self.passed.lock() = Some((place, work));
    }

    pub(crate) fn is_repeatable(&self) -> bool {
        self.life == ExecutorLife::Repeatable
    }

    pub(crate) fn make_repeatable(&mut self) -> Result<(), Failure> {
        let strided =
            |bound: &BoundTensor| bound.tensor.role != TensorRole::Input && !bound.tensor.is_contiguous();
        if let Some(bound) = self.tensors.iter().find(|bound| strided(bound)) {
            let what = format!(
                "{}: an executor that copies to a strided output (dims {:?}, strides {:?}) cannot be repeated: repeat the \
                 first phase instead",
                self.name, bound.tensor.dims, bound.tensor.strides
            );
            // Quiet: a program can only try.
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what).quiet());
        }
        self.life = ExecutorLife::Repeatable;
        Ok(())
    }

    /// `index` is among the counted parameters, `place` in a list.
    pub(crate) fn set_address(
        &mut self,
        counted: Counted,
        index: usize,
        place: usize,
        address: usize,
    ) -> Result<(), Failure> {
        let mut parameters: Vec<usize> = self
            .tensors
            .iter()
            .filter(|bound| counted.counts(bound.tensor.role))
            .map(|bound| bound.parameter)
            .collect();
        parameters.dedup();
        let wanted = match counted {
            // Absent tensors keep their index in the prototype.
            Counted::All => Some(index),
            Counted::Inputs | Counted::Outputs => parameters.get(index).copied(),
        };
        let name = self.name;
        let found = self.tensors.iter_mut().find(|bound| {
            Some(bound.parameter) == wanted && bound.place == place && counted.counts(bound.tensor.role)
        });
        let Some(bound) = found else {
            let what = format!(
                "{name}: no tensor has index {index}, place {place} among {counted:?} ({parameters:?} are given)"
            );
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        };
        bound.tensor.address = address;
        self.passed = Passed::default();
        Ok(())
    }
}
