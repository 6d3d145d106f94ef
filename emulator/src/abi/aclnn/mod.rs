//! The two phases of aclnn operators, driven by [`ascend_tp_emulator_operators::operator`].
//!
//! Invariants: the first phase reads host data only and refuses arguments that the operator's row
//! does not accept. The second phase finds freed or foreign memory before the task runs. An
//! executor runs once unless it was made repeatable.

mod argument;
mod blocked;
mod joined;
mod objects;
mod weights;

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Weak};

use ascend_tp_emulator_operators::operator::{
    self, CallArgument, Decided, OperatorKernel, Refusal, StridedViews,
};
use ascend_tp_emulator_operators::raw::MemorySpan;
use ascend_tp_emulator_operators::view::StridedView;
use ascend_tp_emulator_operators::{Tiles, dtype};
use ascend_tp_sys::{aclOpExecutor, aclrtStream};

pub(super) use self::argument::CArgument;
use self::blocked::BlockedTensors;
use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::report::{Report, ReportKind};
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::raw::RawSpan;
use crate::nn::executor::{BoundTensor, Executor, RunMemory};
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;
use crate::scheduler::pool::{StreamTask, Workers};

pub(super) fn is_modelled(name: &str) -> bool {
    operator::find(name).is_some()
}

fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.code, refusal.message)
}

struct WorkerTiles<'a>(&'a Workers);

impl Tiles for WorkerTiles<'_> {
    fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync)) {
        self.0.tiles(count, tile);
    }
}

impl Machine {
    /// Each argument comes with its declared name.
    ///
    /// # Safety
    ///
    /// The arguments satisfy the operator's declaration.
    pub(super) unsafe fn plan_operator(
        &self,
        name: &'static str,
        arguments: &[(&str, CArgument)],
        workspace_size: Out<u64>,
        executor: Out<*mut aclOpExecutor>,
    ) -> Result<(), Failure> {
        let arguments = {
            let objects = self.aclnn().lock();
            // SAFETY: text arguments satisfy the declaration.
            let on_host = |&(name, argument): &(&str, CArgument)| unsafe { argument.on_host(name, &objects) };
            arguments.iter().map(on_host).collect::<Result<Vec<CallArgument>, Failure>>()?
        };
        if workspace_size.is_null() || executor.is_null() {
            let which = if executor.is_null() { "executor" } else { "workspaceSize" };
            return Err(Failure::new(
                code::NULL_POINTER_ACLNN,
                format!("{name}: {which}: is NULL and must be given"),
            ));
        }
        let signature = operator::find(name).ok_or_else(|| {
            Failure::new(code::FEATURE_NOT_SUPPORTED, format!("{name} is not modelled by this emulator"))
        })?;
        let call = operator::check(signature, arguments).map_err(refused)?;
        let plan = call.plan().map_err(refused)?;
        if let Some(strict) = self.strict() {
            let note =
                |text: &String| Report::new(ReportKind::Misuse, text, self.here().into_iter().collect());
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

    /// A repeatable executor reuses its last task until memory of this machine is freed. Strict
    /// mode checks every access, so it binds the memory in each run.
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
            let entry = StreamEntry::Task { name, task, load: planned.load(), is_brief: false };
            let queued = self.queued(state, id, entry, Vec::new());
            state.enqueue(id, queued)?;
            Ok(None)
        })?;
        let Some((id, place)) = new else { return Ok(()) };
        let (task, accesses) =
            self.bind(&planned, planned.kernel(), workspace, workspace_bytes, place.card)?;
        if planned.is_repeatable() && self.strict().is_none() {
            planned.pass(place, task.clone());
            let keeper: Weak<Executor> = Arc::downgrade(&planned);
            self.memory().keepers().keep(generation, keeper);
        }
        let entry = StreamEntry::Task { name, task, load: planned.load(), is_brief: false };
        self.update(|state| {
            let queued = self.queued(state, id, entry, accesses);
            state.enqueue(id, queued)
        })
    }

    /// Returns one kernel's task and its accesses. The task is `None` on a machine without numbers.
    fn bind(
        &self,
        planned: &Executor,
        kernel: OperatorKernel,
        workspace: *mut c_void,
        workspace_bytes: u64,
        card: u32,
    ) -> Result<(Option<StreamTask>, Vec<MemoryAccess>), Failure> {
        let scratch = self.workspace(planned, workspace, workspace_bytes, card)?;
        let mut spans: Vec<RawSpan> = Vec::with_capacity(planned.tensors().len());
        let mut views = Vec::with_capacity(planned.tensors().len());
        let mut blocks = BlockedTensors::default();
        let mut accesses =
            self.watched(|| scratch.iter().map(|span| MemoryAccess::write("workspace", span)).collect());
        for (i, bound) in planned.tensors().iter().enumerate() {
            let tensor = &bound.tensor;
            let invalid =
                |text: String| Failure::new(code::PARAM_INVALID_ACLNN, format!("tensor {i}: {text}"));
            let span = self.memory_of(i, bound, card)?;
            let span = if let Some(span) = span {
                // SAFETY: `span` is bounds-checked device memory. The task below owns it together
                // with the view, so the allocation stays mapped.
                let raw = unsafe { MemorySpan::from_raw(span.bytes(), span.len_bytes()) };
                accesses.extend(self.watched(|| vec![bound.access(&span)]));
                spans.push(span);
                raw
            } else {
                empty_span()
            };
            blocks.keep(i, bound, span);
            views.push(
                StridedView::new(span, tensor.dtype, &tensor.dims, &tensor.strides, tensor.offset)
                    .map_err(invalid)?,
            );
        }
        for (tensor, span) in joined::workspace_tensors(planned).iter().zip(scratch.iter().cycle()) {
            // SAFETY: as above; the task below owns the workspace too.
            let raw = unsafe { MemorySpan::from_raw(span.bytes(), span.len_bytes()) };
            let invalid =
                |text: String| Failure::new(code::PARAM_INVALID_ACLNN, format!("workspace: {text}"));
            views.push(
                StridedView::new(raw, tensor.dtype, &tensor.dims, &tensor.strides, tensor.offset)
                    .map_err(invalid)?,
            );
        }
        if !self.has_numbers() {
            return Ok((None, accesses));
        }
        let saturation = self.saturation(card);
        let outputs: Vec<usize> = planned
            .tensors()
            .iter()
            .enumerate()
            .filter(|(_, bound)| bound.is_written)
            .map(|(i, _)| i)
            .collect();
        let handles: Vec<usize> = planned.tensors().iter().map(|bound| bound.tensor.handle).collect();
        let objects = Arc::clone(self.aclnn());
        // The memory outlives the views.
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

    /// Returns `None` for a tensor without elements.
    fn memory_of(&self, position: usize, bound: &BoundTensor, card: u32) -> Result<Option<RawSpan>, Failure> {
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

    /// The span keeps the workspace mapped while the task is queued.
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
            let what = format!(
                "workspace: expected {needed} bytes of device memory, found {size} bytes at {workspace:p}"
            );
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        }
        let named =
            |failure: Failure| Failure { message: format!("workspace: {}", failure.message), ..failure };
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

fn empty_span() -> MemorySpan {
    // SAFETY: the span has no bytes.
    unsafe { MemorySpan::from_raw(std::ptr::dangling_mut(), 0) }
}

fn in_tensor(position: usize, failure: &Failure) -> Failure {
    Failure::new(failure.code, format!("tensor {position}: {}", failure.message))
}

fn misaligned(address: usize, dtype: dtype::AclType) -> String {
    format!(
        "expected an address that is a multiple of {} bytes for {dtype}, found {address:#x}",
        dtype.size()
    )
}

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
        None => {
            Err(Failure::new(code::RUNTIME_ACLNN, "expected device memory, found page-locked host memory"))
        }
    }
}

#[cfg(test)]
mod tests;
