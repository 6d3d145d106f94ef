//! The aclnn operators: both phases of every operator, over the rows of [`ascend_tp_emulator_operators::operator`].
//!
//! Input: the C arguments of a first phase. Output: an executor handle and the size of the workspace; then, from the second
//! phase, a task on the stream. Invariants: the first phase looks at host data only and refuses what the operator's row
//! does not accept; the second resolves addresses, so freed or foreign memory is found before anything runs; an executor
//! that was not made repeatable serves once. Does not: know any operator (see `ascend_tp_emulator_operators`).

mod argument;
mod blocked;
mod joined;
mod objects;
mod weights;

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Weak};

use ascend_tp_emulator_operators::operator::{self, CallArgument, Decided, OperatorKernel, Refusal, StridedViews};
use ascend_tp_emulator_operators::raw::MemorySpan;
use ascend_tp_emulator_operators::view::StridedView;
use ascend_tp_emulator_operators::{Tiles, dtype};
use ascend_tp_sys::{aclOpExecutor, aclrtStream};

pub(super) use self::argument::CArgument;
use self::blocked::Blocks;
use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::report::{Report, ReportKind};
use crate::machine::Machine;
use crate::memory::raw::RawSpan;
use crate::nn::executor::{Bound, Executor, RunMemory};
use crate::runtime::stream::{Access, Entry};
use crate::runtime::thread;
use crate::scheduler::pool::{Task, Workers};

/// Whether the operator called `name` has a row.
pub(super) fn is_modelled(name: &str) -> bool {
    operator::find(name).is_some()
}

/// A refusal of an operator's row as the failure of the call.
fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.code, refusal.message)
}

/// The pool as kernels see it.
struct WorkerTiles<'a>(&'a Workers);

impl Tiles for WorkerTiles<'_> {
    fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync)) {
        self.0.tiles(count, tile);
    }
}

impl Machine {
    /// First phase of the operator called `name`; each argument with what the declaration calls it.
    ///
    /// # Safety
    /// Arguments are as the declaration of the operator asks for.
    pub(super) unsafe fn plan_operator(
        &self,
        name: &'static str,
        arguments: &[(&str, CArgument)],
        workspace_size: Out<u64>,
        executor: Out<*mut aclOpExecutor>,
    ) -> Result<(), Failure> {
        let arguments = {
            let objects = self.aclnn().lock();
            // SAFETY: a text is what the declaration asks for.
            let on_host = |&(name, argument): &(&str, CArgument)| unsafe { argument.on_host(name, &objects) };
            arguments.iter().map(on_host).collect::<Result<Vec<CallArgument>, Failure>>()?
        };
        if workspace_size.is_null() || executor.is_null() {
            let which = if executor.is_null() { "executor" } else { "workspaceSize" };
            return Err(Failure::new(code::NULL_POINTER_ACLNN, format!("{name}: {which}: is NULL and must be given")));
        }
        let signature = operator::find(name).ok_or_else(|| {
            Failure::new(code::FEATURE_NOT_SUPPORTED, format!("{name} is not modelled by this emulator"))
        })?;
        let call = operator::check(signature, arguments).map_err(refused)?;
        let plan = call.plan().map_err(refused)?;
        if let Some(strict) = self.strict() {
            let note = |text: &String| Report::new(ReportKind::Misuse, text, self.here().into_iter().collect());
            plan.notes.iter().for_each(|text| strict.tell_note(&note(text)));
        }
        if let Some(joined) = &plan.joined {
            self.joined_member(name, joined, self.current_card()?)?;
        }
        let cost = self.operator_load(name, || operator::work(name, &call, &plan));
        let blocked = plan.blocked.and_then(|(slot, fractal)| {
            let placed = call.slots().find(|placed| placed.tensor.slot == slot)?;
            Some((placed.tensor.handle, fractal))
        });
        let planned = Executor::new(name, &call, plan, cost);
        let needed = planned.workspace_bytes() as u64;
        let handle = {
            let mut objects = self.aclnn().lock();
            blocked.into_iter().for_each(|(tensor, fractal)| objects.block(tensor, fractal));
            objects.insert_executor(planned)
        };
        workspace_size.set("workspaceSize", needed)?;
        executor.set("executor", handle)
    }

    /// Second phase of every operator. What a repeatable executor has made of its memory is taken over by its next run, until
    /// any memory of this machine has gone; strict mode, which watches every access, looks each time.
    pub(super) fn run_operator(
        &self,
        name: &'static str,
        workspace: *mut c_void,
        workspace_bytes: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let planned = self.aclnn().take_executor(name, executor)?;
        if let Some(joined) = planned.joined() {
            return self.run_joined(&planned, joined, workspace, workspace_bytes, stream);
        }
        let generation = self.memory().keepers().generation();
        let current = thread::context(self.key());
        let new = self.update(|state| {
            let id = state.resolve_stream(stream, current)?;
            let card = state.runtime.streams[&id].card;
            let place = RunMemory { generation, card, workspace: workspace.addr(), workspace_bytes };
            let Some(task) = planned.passed(place) else { return Ok(Some((id, place))) };
            let entry = Entry::Task { name, task, load: planned.load(), is_brief: false };
            let queued = self.queued(state, id, entry, Vec::new());
            state.enqueue(id, queued)?;
            Ok(None)
        })?;
        let Some((id, place)) = new else { return Ok(()) };
        let (task, accesses) = self.bind(&planned, planned.kernel(), workspace, workspace_bytes, place.card)?;
        if planned.is_repeatable() && self.strict().is_none() {
            planned.pass(place, task.clone());
            let keeper: Weak<Executor> = Arc::downgrade(&planned);
            self.memory().keepers().keep(generation, keeper);
        }
        let entry = Entry::Task { name, task, load: planned.load(), is_brief: false };
        self.update(|state| {
            let queued = self.queued(state, id, entry, accesses);
            state.enqueue(id, queued)
        })
    }

    /// What a run of a kernel of an executor does and which bytes it touches, once its memory is found in order; no work on a machine
    /// without numbers.
    fn bind(
        &self,
        planned: &Executor,
        kernel: OperatorKernel,
        workspace: *mut c_void,
        workspace_bytes: u64,
        card: u32,
    ) -> Result<(Option<Task>, Vec<Access>), Failure> {
        let scratch = self.workspace(planned, workspace, workspace_bytes, card)?;
        let mut spans: Vec<RawSpan> = Vec::with_capacity(planned.tensors().len());
        let mut views = Vec::with_capacity(planned.tensors().len());
        let mut blocks = Blocks::default();
        let mut accesses = self.watched(|| scratch.iter().map(|span| Access::write("workspace", span)).collect());
        for (i, bound) in planned.tensors().iter().enumerate() {
            let tensor = &bound.tensor;
            let invalid = |text: String| Failure::new(code::PARAM_INVALID_ACLNN, format!("tensor {i}: {text}"));
            let span = self.memory_of(i, bound, card)?;
            let span = if let Some(span) = span {
                // SAFETY: `span` is bounds-checked device memory and moves into the task below, together with the view;
                // it keeps the allocation mapped for as long as the view is used.
                let raw = unsafe { MemorySpan::from_raw(span.bytes(), span.len_bytes()) };
                accesses.extend(self.watched(|| vec![bound.access(&span)]));
                spans.push(span);
                raw
            } else {
                empty_span()
            };
            blocks.keep(i, bound, span);
            views.push(
                StridedView::new(span, tensor.dtype, &tensor.dims, &tensor.strides, tensor.offset).map_err(invalid)?,
            );
        }
        for (tensor, span) in joined::workspace_tensors(planned).iter().zip(scratch.iter().cycle()) {
            // SAFETY: as above: the workspace moves into the task below, together with the view.
            let raw = unsafe { MemorySpan::from_raw(span.bytes(), span.len_bytes()) };
            let invalid = |text: String| Failure::new(code::PARAM_INVALID_ACLNN, format!("workspace: {text}"));
            views.push(
                StridedView::new(raw, tensor.dtype, &tensor.dims, &tensor.strides, tensor.offset).map_err(invalid)?,
            );
        }
        if !self.has_numbers() {
            return Ok((None, accesses));
        }
        let saturation = self.saturation(card);
        let outputs: Vec<usize> =
            planned.tensors().iter().enumerate().filter(|(_, bound)| bound.is_written).map(|(i, _)| i).collect();
        let handles: Vec<usize> = planned.tensors().iter().map(|bound| bound.tensor.handle).collect();
        let objects = Arc::clone(self.aclnn());
        // The memory outlives the views: it is let go with the task.
        let memory = (spans, scratch);
        let task = move |workers: &Workers| {
            let _mapped = &memory;
            let (decided, mut buffers) = (Decided::default(), Vec::new());
            let failed = |text| Failure::new(code::AICORE_EXCEPTION, text);
            let apart = blocks.opened(&WorkerTiles(workers), &views, &mut buffers).map_err(failed)?;
            let views = apart.as_deref().unwrap_or(&views);
            kernel(&StridedViews::new(views, &decided), &WorkerTiles(workers)).map_err(failed)?;
            for (slot, dims) in decided.take() {
                objects.lock().reshape(handles[slot.0], &dims);
            }
            if saturation.is_on() {
                outputs.iter().for_each(|output| saturation.pass(&views[*output]));
            }
            blocks.close(&buffers);
            Ok(())
        };
        Ok((Some(Arc::new(task)), accesses))
    }

    /// The memory of the tensor at a position of the call; None without elements.
    fn memory_of(&self, position: usize, bound: &Bound, card: u32) -> Result<Option<RawSpan>, Failure> {
        let (tensor, bytes) = (&bound.tensor, bound.reach_bytes());
        if bytes == 0 {
            return Ok(None);
        }
        let address = std::ptr::without_provenance(tensor.address);
        let span = self.device_span(address, bytes).map_err(|failure| in_tensor(position, &failure))?;
        expect_card(&span, card).map_err(|failure| in_tensor(position, &failure))?;
        if !tensor.address.is_multiple_of(tensor.dtype.size()) {
            let what = format!("tensor {position}: {}", misaligned(tensor.address, tensor.dtype));
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        }
        Ok(Some(span))
    }

    /// Checks the workspace of a second phase; the span keeps it mapped while the task is queued.
    fn workspace(
        &self,
        planned: &Executor,
        workspace: *mut c_void,
        size: u64,
        card: u32,
    ) -> Result<Option<RawSpan>, Failure> {
        let needed = planned.workspace_bytes();
        if needed == 0 {
            return Ok(None);
        }
        if size < needed as u64 || workspace.is_null() {
            let what =
                format!("workspace: expected {needed} bytes of device memory, found {size} bytes at {workspace:p}");
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        }
        let named = |failure: Failure| Failure { message: format!("workspace: {}", failure.message), ..failure };
        let span = self.device_span(workspace, needed).map_err(named)?;
        expect_card(&span, card).map_err(named)?;
        Ok(Some(span))
    }

    pub(super) fn aclnnInit(&self, config_path: *const c_char) -> Result<(), Failure> {
        if !config_path.is_null() {
            let what = "configPath: expected NULL, the emulator reads no configuration file";
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
        }
        self.lock().runtime.has_operators = true;
        Ok(())
    }

    pub(super) fn aclnnFinalize(&self) -> Result<(), Failure> {
        self.lock().runtime.has_operators = false;
        Ok(())
    }
}

/// Memory of no bytes, for tensors without elements.
fn empty_span() -> MemorySpan {
    // SAFETY: no byte of the span exists, so none can be accessed.
    unsafe { MemorySpan::from_raw(std::ptr::dangling_mut(), 0) }
}

/// A failure of the memory of the tensor at a position of the call.
fn in_tensor(position: usize, failure: &Failure) -> Failure {
    Failure::new(failure.code, format!("tensor {position}: {}", failure.message))
}

fn misaligned(address: usize, dtype: dtype::AclType) -> String {
    format!("expected an address that is a multiple of {} bytes for {dtype}, found {address:#x}", dtype.size())
}

/// Refuses memory that is not on the card of the stream.
fn expect_card(span: &RawSpan, card: u32) -> Result<(), Failure> {
    match span.card() {
        Some(found) if found == card => Ok(()),
        Some(found) => Err(Failure::new(
            code::RUNTIME_ACLNN,
            format!("expected memory of card {card}, where the stream is, found memory of card {found}"),
        )
        .found(
            ReportKind::WrongContext,
            span.allocation().and_then(|owner| owner.site()).cloned().into_iter().collect(),
        )),
        None => Err(Failure::new(code::RUNTIME_ACLNN, "expected device memory, found page-locked host memory")),
    }
}

#[cfg(test)]
mod tests;
