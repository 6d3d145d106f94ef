//! A checked operator that can be enqueued repeatedly.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use ascend_tp_sys::{ACL_SUCCESS, aclOpExecutor, aclnnStatus, aclrtStream, c_void};

use super::buffer::BufferSlice;
use super::card::{Device, same_device};
use super::error::Result;
use super::handle::AclnnObject;
use super::operator::{AclnnOperator, OwnedArgument};
use super::stream::Stream;
use crate::base::Diagnostic;

pub(super) type RunFunction =
    unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> aclnnStatus;

/// A checked operator with its operands, which can be enqueued any number of times.
///
/// It keeps the operands' memory alive. Shapes, strides and addresses are fixed; the contents may
/// change between runs.
pub struct Prepared {
    device: Arc<Device>,
    operator: &'static AclnnOperator,
    arguments: Vec<OwnedArgument>,
    executor: AclOpExecutor,
    workspace_bytes: usize,
}

enum AclOpExecutor {
    Repeatable(AclnnObject<aclOpExecutor>),
    /// The library frees it after one run; the next run creates a new one.
    Once(Option<AclnnObject<aclOpExecutor>>),
}

impl Prepared {
    pub(super) fn new(
        device: &Arc<Device>,
        operator: &'static AclnnOperator,
        arguments: Vec<OwnedArgument>,
    ) -> Result<Self> {
        let executor = AclOpExecutor::Once(None);
        let mut prepared =
            Self { device: Arc::clone(device), operator, arguments, executor, workspace_bytes: 0 };
        let (executor, workspace_bytes) = prepared.plan()?;
        prepared.workspace_bytes = workspace_bytes;
        let _planning = device.planning();
        // SAFETY: the executor was just made and not yet run.
        let status = unsafe { (device.table().aclSetAclOpExecutorRepeatable)(executor.as_ptr()) };
        prepared.executor = if status == ACL_SUCCESS {
            AclOpExecutor::Repeatable(executor)
        } else {
            AclOpExecutor::Once(Some(executor))
        };
        Ok(prepared)
    }

    /// Returns the C name.
    #[must_use]
    #[doc(hidden)]
    pub const fn name(&self) -> &'static str {
        self.operator.name
    }

    /// Returns the card of the operator.
    #[must_use]
    #[doc(hidden)]
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the workspace size.
    #[must_use]
    pub const fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Enqueues the operator. Runs on one stream can share a workspace of
    /// [`Self::workspace_bytes`].
    ///
    /// # Errors
    /// The workspace is missing or too short, or stream or workspace belong to another card.
    /// Waiting for the stream reports errors of the work itself.
    pub fn enqueue(&mut self, stream: &Stream, workspace: Option<&BufferSlice>) -> Result<()> {
        same_device(self.operator.name, &self.device, stream.device())?;
        let workspace = self.check_workspace(workspace)?;
        if matches!(self.executor, AclOpExecutor::Once(None)) {
            let (executor, workspace_bytes) = self.plan()?;
            self.executor = AclOpExecutor::Once(Some(executor));
            self.check_plan(workspace_bytes)?;
        }
        self.device.enter()?;
        let _planning = self.device.planning();
        let executor = match &mut self.executor {
            AclOpExecutor::Repeatable(executor) => executor.as_ptr(),
            // The second phase frees the executor, even if it fails.
            AclOpExecutor::Once(executor) => {
                executor.take().map_or(ptr::null_mut(), |executor| executor.as_ptr())
            }
        };
        let run = (self.operator.run)(self.device.table());
        // SAFETY: the executor was made by the operator's first phase and may be run (once or
        // repeatedly, see `AclOpExecutor`). `arguments` keeps its operands alive, and the workspace
        // has the requested length. All of this memory is freed only after the device's work is
        // done.
        let status = unsafe { run(workspace, self.workspace_bytes as u64, executor, stream.raw()) };
        self.device.check(self.operator.name, status)
    }

    fn check_workspace(&self, workspace: Option<&BufferSlice>) -> Result<*mut c_void> {
        if self.workspace_bytes == 0 {
            return Ok(ptr::null_mut());
        }
        let found = workspace.map_or(0, BufferSlice::len_bytes);
        match workspace {
            Some(workspace) if found >= self.workspace_bytes => {
                same_device(self.operator.name, &self.device, workspace.device())?;
                Ok(workspace.address())
            }
            _ => Err(Diagnostic::new(self.operator.name, "the workspace is too short")
                .expected(format!("{} bytes", self.workspace_bytes))
                .found(format!("{found} bytes"))
                .into()),
        }
    }

    /// A new executor must not need a larger workspace than the first one.
    fn check_plan(&self, workspace_bytes: usize) -> Result<()> {
        if workspace_bytes <= self.workspace_bytes {
            return Ok(());
        }
        Err(Diagnostic::new(self.operator.plan_name, "the workspace of unchanged operands grew")
            .expected(format!("at most {} bytes", self.workspace_bytes))
            .found(format!("{workspace_bytes} bytes"))
            .into())
    }

    fn plan(&self) -> Result<(AclnnObject<aclOpExecutor>, usize)> {
        let table = self.device.enter()?;
        let _planning = self.device.planning();
        let mut workspace_bytes = 0;
        let mut executor = ptr::null_mut();
        let status =
            (self.operator.plan)(table, &self.arguments, &raw mut workspace_bytes, &raw mut executor);
        let status = status
            .ok_or_else(|| Diagnostic::new(self.operator.name, "the arguments do not match the prototype"))?;
        self.device.check(self.operator.plan_name, status)?;
        let executor = AclnnObject::made(&self.device, self.operator.plan_name, executor)?;
        // The allocation is refused later.
        Ok((executor, usize::try_from(workspace_bytes).unwrap_or(usize::MAX)))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let executor = match &self.executor {
            AclOpExecutor::Repeatable(executor) | AclOpExecutor::Once(Some(executor)) => executor.as_ptr(),
            AclOpExecutor::Once(None) => return,
        };
        let Some(table) = self.device.enter_teardown() else { return };
        // Work in flight may still read the executor.
        self.device.synchronize_teardown();
        let _planning = self.device.planning();
        // SAFETY: the executor was made by the first phase, no run has freed it, and this is its
        // only owner.
        let status = unsafe { (table.aclDestroyAclOpExecutor)(executor) };
        self.device.park("aclDestroyAclOpExecutor", status);
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("name", &self.operator.name)
            .field("workspace_bytes", &self.workspace_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ascend_tp_emulator::{Config, Emulator};
    use ascend_tp_sys::{Table, aclError, aclTensor};

    use super::*;
    use crate::base::DType;
    use crate::device::{Buffer, Cann, ErrorKind, Tensor, operator};

    type Plan = unsafe extern "C" fn(
        *const aclTensor,
        *mut aclTensor,
        *mut u64,
        *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    static PLAN: OnceLock<Plan> = OnceLock::new();
    static PLANS: AtomicUsize = AtomicUsize::new(0);

    /// Like the emulator's first phase, with a workspace.
    unsafe extern "C" fn plan_with_workspace(
        x: *const aclTensor,
        out: *mut aclTensor,
        workspace_bytes: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus {
        PLANS.fetch_add(1, Ordering::Relaxed);
        let plan = PLAN.get().expect("set before the table is used");
        // SAFETY: the arguments are the caller's.
        let status = unsafe { plan(x, out, workspace_bytes, executor) };
        // SAFETY: the caller passes a number to write to.
        unsafe { *workspace_bytes = 64 };
        status
    }

    extern "C" fn not_repeatable(_: *mut aclOpExecutor) -> aclError {
        ascend_tp_sys::ACL_ERROR_FEATURE_UNSUPPORTED
    }

    #[test]
    fn an_operator_that_runs_once_and_wants_a_workspace() {
        let mut table = Table::clone(&Emulator::new(Config::with_cards(1)).unwrap().table());
        PLAN.set(table.aclnnNegGetWorkspaceSize).unwrap();
        table.aclnnNegGetWorkspaceSize = plan_with_workspace;
        table.aclSetAclOpExecutorRepeatable = not_repeatable;
        let device = Device::open(&Cann::new(Arc::new(table)).unwrap(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let memory = Buffer::new(&device, 8).unwrap();
        let tensor = |range| Tensor::contiguous(&memory.slice(range).unwrap(), DType::F32, [1]).unwrap();
        let workspace = Buffer::new(&device, 64).unwrap();

        let mut negate =
            operator::prepare("aclnnNeg", [(&tensor(0..4)).into(), (&tensor(4..8)).into()]).unwrap();
        assert_eq!(negate.workspace_bytes(), 64);
        for short in [None, Some(workspace.slice(0..63).unwrap())] {
            let error = negate.enqueue(&stream, short.as_ref()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("expected 64 bytes"), "{error}");
        }
        for value in [1.0_f32, -2.5, 3.0] {
            memory.write(0, &value.to_le_bytes()).unwrap();
            negate.enqueue(&stream, Some(&workspace.whole())).unwrap();
            let mut found = [0; 4];
            memory.read(4, &mut found).unwrap();
            assert_eq!(f32::from_le_bytes(found), -value);
        }
        assert_eq!(PLANS.load(Ordering::Relaxed), 3);
        drop((negate, stream, memory, workspace));
        device.close().unwrap();
    }
}
