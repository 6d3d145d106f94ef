//! The C functions for the storm; failures have code and message.
#![expect(unsafe_code, reason = "the storm calls C functions")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use ascend_tp_sys::{
    HcclComm, HcclCommConfig, HcclResult, HcclRootInfo, Table, aclDataType, aclError, aclFormat,
    aclOpExecutor, aclTensor, aclnnStatus, aclrtContext, aclrtEvent, aclrtEventRecordedStatus,
    aclrtEventWaitStatus, aclrtFuncHandle, aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtNotify,
    aclrtReduceKind, aclrtStream, aclrtStreamStatus,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) call: &'static str,
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {}: {}", self.call, self.code, self.message)
    }
}

pub(crate) type StormResult<T = ()> = Result<T, Failed>;

pub(crate) trait StatusNumber {
    fn number(self) -> i64;
}

impl StatusNumber for aclError {
    fn number(self) -> i64 {
        i64::from(self)
    }
}

impl StatusNumber for HcclResult {
    fn number(self) -> i64 {
        i64::from(self.0)
    }
}

/// A failure is a [`Failed`].
macro_rules! call {
    ($api:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $api.table.$name;
        // SAFETY: handles and addresses come from the table, pointers are valid during the call,
        // and memory outlives asynchronous work.
        let status = unsafe { function($($arg),*) };
        $api.outcome(stringify!($name), status)
    }};
}
pub(crate) use call;

/// Like [`call!`], for functions newer than the oldest supported CANN.
macro_rules! young {
    ($api:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        match $api.table.$name {
            // SAFETY: as for `call!`.
            Some(function) => $api.outcome(stringify!($name), unsafe { function($($arg),*) }),
            None => Err(Failed { call: stringify!($name), code: -1, message: "not in the table".to_owned() }),
        }
    }};
}
pub(crate) use young;

#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) table: Arc<Table>,
}

/// `aclrtCreateEvent`, `aclrtCreateEventWithFlag` or `aclrtCreateEventExWithFlag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventCreation {
    Plain,
    WithFlag,
    ExWithFlag,
}

impl EventCreation {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::WithFlag, Self::ExWithFlag];
}

/// `ACL_EVENT_SYNC`: streams wait for the event.
const SYNC: u32 = 1;

impl Api {
    #[must_use]
    pub(crate) fn new(table: Arc<Table>) -> Self {
        Self { table }
    }

    pub(crate) fn outcome(&self, call: &'static str, status: impl StatusNumber) -> StormResult {
        let code = status.number();
        if code == 0 { Ok(()) } else { Err(Failed { call, code, message: self.message() }) }
    }

    fn message(&self) -> String {
        let function = self.table.aclGetRecentErrMsg;
        // SAFETY: the function takes no arguments.
        let text = unsafe { function() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a C string that stays valid on this thread until the next call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    pub(crate) fn init(&self) -> StormResult {
        call!(self, aclInit(null()))
    }

    pub(crate) fn finalize(&self) -> StormResult {
        call!(self, aclFinalize())
    }

    pub(crate) fn create_context(&self, device: i32) -> StormResult<aclrtContext> {
        let mut context = null_mut();
        call!(self, aclrtCreateContext(&raw mut context, device)).map(|()| context)
    }

    pub(crate) fn create_stream(&self) -> StormResult<aclrtStream> {
        let mut stream = null_mut();
        call!(self, aclrtCreateStream(&raw mut stream)).map(|()| stream)
    }

    pub(crate) fn synchronize(&self, stream: aclrtStream) -> StormResult {
        call!(self, aclrtSynchronizeStream(stream))
    }

    pub(crate) fn synchronize_within(&self, stream: aclrtStream, limit: Duration) -> StormResult {
        call!(self, aclrtSynchronizeStreamWithTimeout(stream, limit.as_millis() as i32))
    }

    pub(crate) fn is_complete(&self, stream: aclrtStream) -> StormResult<bool> {
        let mut status = aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY;
        call!(self, aclrtStreamQuery(stream, &raw mut status))?;
        Ok(status == aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE)
    }

    pub(crate) fn create_event(&self, making: EventCreation) -> StormResult<aclrtEvent> {
        let mut event = null_mut();
        match making {
            EventCreation::Plain => call!(self, aclrtCreateEvent(&raw mut event)),
            EventCreation::WithFlag => call!(self, aclrtCreateEventWithFlag(&raw mut event, SYNC)),
            EventCreation::ExWithFlag => call!(self, aclrtCreateEventExWithFlag(&raw mut event, SYNC)),
        }?;
        Ok(event)
    }

    pub(crate) fn is_recorded(&self, event: aclrtEvent) -> StormResult<bool> {
        let mut status = aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY;
        call!(self, aclrtQueryEventStatus(event, &raw mut status))?;
        Ok(status == aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE)
    }

    pub(crate) fn is_waited(&self, event: aclrtEvent) -> StormResult<bool> {
        let mut status = aclrtEventWaitStatus::ACL_EVENT_WAIT_STATUS_NOT_READY;
        call!(self, aclrtQueryEventWaitStatus(event, &raw mut status))?;
        Ok(status == aclrtEventWaitStatus::ACL_EVENT_WAIT_STATUS_COMPLETE)
    }

    pub(crate) fn create_notify(&self) -> StormResult<aclrtNotify> {
        let mut notify = null_mut();
        young!(self, aclrtCreateNotify(&raw mut notify, 0)).map(|()| notify)
    }

    pub(crate) fn malloc(&self, bytes: u64) -> StormResult<*mut c_void> {
        let mut address = null_mut();
        let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
        call!(self, aclrtMalloc(&raw mut address, bytes as usize, policy)).map(|()| address)
    }

    pub(crate) fn upload(&self, to: *mut c_void, bytes: &[u8]) -> StormResult {
        let kind = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE;
        call!(self, aclrtMemcpy(to, bytes.len(), bytes.as_ptr().cast(), bytes.len(), kind))
    }

    pub(crate) fn download(&self, from: *const c_void, bytes: u64) -> StormResult<Vec<u8>> {
        let mut read = vec![0_u8; bytes as usize];
        let kind = aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST;
        call!(self, aclrtMemcpy(read.as_mut_ptr().cast(), read.len(), from, read.len(), kind))?;
        Ok(read)
    }

    pub(crate) fn fill(&self, at: *mut c_void, bytes: u64, value: u8, stream: aclrtStream) -> StormResult {
        call!(self, aclrtMemsetAsync(at, bytes as usize, i32::from(value), bytes as usize, stream))
    }

    /// The pageable memory was read when the call returns.
    pub(crate) fn load(&self, to: *mut c_void, bytes: &[u8], stream: aclrtStream) -> StormResult {
        let kind = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE;
        call!(self, aclrtMemcpyAsync(to, bytes.len(), bytes.as_ptr().cast(), bytes.len(), kind, stream))
    }

    /// The returned page-locked memory must live until the stream has been awaited.
    pub(crate) fn load_pinned(
        &self,
        to: *mut c_void,
        bytes: &[u8],
        stream: aclrtStream,
    ) -> StormResult<*mut c_void> {
        let mut host = null_mut();
        call!(self, aclrtMallocHost(&raw mut host, bytes.len()))?;
        // SAFETY: new page-locked memory of this length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host.cast::<u8>(), bytes.len()) };
        let kind = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE;
        call!(self, aclrtMemcpyAsync(to, bytes.len(), host, bytes.len(), kind, stream))?;
        Ok(host)
    }

    fn tensor(&self, element: aclDataType, at: *mut c_void, dims: &[u64]) -> *mut aclTensor {
        let dims: Vec<i64> = dims.iter().map(|dim| dim.cast_signed()).collect();
        let mut strides = vec![1_i64; dims.len()];
        for dim in (1..dims.len()).rev() {
            strides[dim - 1] = strides[dim] * dims[dim];
        }
        let (rank, format, function) =
            (dims.len() as u64, aclFormat::ACL_FORMAT_ND, self.table.aclCreateTensor);
        // SAFETY: both arrays have `rank` numbers and are read during the call.
        unsafe {
            function(dims.as_ptr(), rank, element, strides.as_ptr(), 0, format, dims.as_ptr(), rank, at)
        }
    }

    fn destroy(&self, tensors: &[*mut aclTensor]) -> StormResult {
        tensors.iter().try_for_each(|tensor| call!(self, aclDestroyTensor(*tensor)))
    }

    /// Computes y += x in int32.
    pub(crate) fn add(&self, [x, y]: [*mut c_void; 2], count: u64, stream: aclrtStream) -> StormResult {
        let of = |at| self.tensor(aclDataType::ACL_INT32, at, &[count]);
        let (x, y) = (of(x), of(y));
        let (mut one, create) = (1_i32, self.table.aclCreateScalar);
        // SAFETY: the value is read during the call.
        let alpha = unsafe { create((&raw mut one).cast(), aclDataType::ACL_INT32) };
        let plan =
            |bytes, executor| call!(self, aclnnInplaceAddGetWorkspaceSize(y, x, alpha, bytes, executor));
        self.run(plan, self.table.aclnnInplaceAdd, stream)?;
        call!(self, aclDestroyScalar(alpha))?;
        self.destroy(&[x, y])
    }

    /// Computes y += x in int32, with the copy engine.
    pub(crate) fn reduce_async(
        &self,
        [x, y]: [*mut c_void; 2],
        count: u64,
        stream: aclrtStream,
    ) -> StormResult {
        let (kind, element) = (aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, aclDataType::ACL_INT32);
        young!(self, aclrtReduceAsync(y, x, 4 * count, kind, element, stream, null_mut()))
    }

    pub(crate) fn cast(&self, [x, y]: [*mut c_void; 2], count: u64, stream: aclrtStream) -> StormResult {
        let from = self.tensor(aclDataType::ACL_INT32, x, &[count]);
        let to = self.tensor(aclDataType::ACL_INT64, y, &[count]);
        let plan = |bytes, executor| {
            call!(self, aclnnCastGetWorkspaceSize(from, aclDataType::ACL_INT64, to, bytes, executor))
        };
        self.run(plan, self.table.aclnnCast, stream)?;
        self.destroy(&[from, to])
    }

    /// Computes z = x times y in fp32.
    pub(crate) fn matmul(
        &self,
        [x, y, z]: [*mut c_void; 3],
        [m, k, n]: [u64; 3],
        stream: aclrtStream,
    ) -> StormResult {
        let of = |at, dims: [u64; 2]| self.tensor(aclDataType::ACL_FLOAT, at, &dims);
        let (x, y, z) = (of(x, [m, k]), of(y, [k, n]), of(z, [m, n]));
        let plan = |bytes, executor| call!(self, aclnnMatmulGetWorkspaceSize(x, y, z, 0, bytes, executor));
        self.run(plan, self.table.aclnnMatmul, stream)?;
        self.destroy(&[x, y, z])
    }

    fn run(
        &self,
        plan: impl FnOnce(*mut u64, *mut *mut aclOpExecutor) -> StormResult,
        second: unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> aclnnStatus,
        stream: aclrtStream,
    ) -> StormResult {
        let (mut bytes, mut executor) = (0, null_mut());
        plan(&raw mut bytes, &raw mut executor)?;
        let workspace = if bytes == 0 { null_mut() } else { self.malloc(bytes)? };
        // SAFETY: executor and workspace size of the first phase.
        let status = unsafe { second(workspace, bytes, executor, stream) };
        self.outcome("the second phase of an operator", status)?;
        if bytes > 0 {
            self.synchronize(stream)?;
            call!(self, aclrtFree(workspace))?;
        }
        Ok(())
    }

    pub(crate) fn kernel(&self, name: &CStr) -> StormResult<aclrtFuncHandle> {
        let path =
            std::env::current_exe().ok().and_then(|path| CString::new(path.display().to_string()).ok());
        let (path, mut binary, mut function) = (path.unwrap_or_default(), null_mut(), null_mut());
        call!(self, aclrtBinaryLoadFromFile(path.as_ptr(), null_mut(), &raw mut binary))?;
        call!(self, aclrtBinaryGetFunction(binary, name.as_ptr(), &raw mut function))?;
        Ok(function)
    }

    pub(crate) fn root_info(&self) -> StormResult<Vec<u8>> {
        let mut info = Box::new(HcclRootInfo { internal: [0; 4108] });
        call!(self, HcclGetRootInfo(&raw mut *info))?;
        Ok(info.internal.iter().flat_map(|byte| byte.to_ne_bytes()).collect())
    }

    pub(crate) fn join(&self, info: &[u8], world: usize, member: usize) -> StormResult<HcclComm> {
        let mut root = Box::new(HcclRootInfo { internal: [0; 4108] });
        for (into, from) in root.internal.iter_mut().zip(info) {
            *into = from.cast_signed() as c_char;
        }
        let mut comm = null_mut();
        call!(self, HcclCommInitRootInfo(world as u32, &raw const *root, member as u32, &raw mut comm))?;
        Ok(comm)
    }

    /// `number` distinguishes communicators with the same parent.
    pub(crate) fn sub_comm(
        &self,
        mut parent: HcclComm,
        ranks: &mut [u32],
        number: u64,
        member: usize,
    ) -> StormResult<HcclComm> {
        // SAFETY: a C structure of numbers and characters, for which zeros are valid.
        let mut config: HcclCommConfig = unsafe { std::mem::zeroed() };
        let header = (size_of::<HcclCommConfig>() as u64).to_le_bytes().into_iter();
        let header = header.chain(0xf0f0_f0f0_u32.to_le_bytes()).chain(1_u32.to_le_bytes());
        for (into, from) in config.reserved.iter_mut().zip(header) {
            *into = from.cast_signed() as c_char;
        }
        (config.hcclBufferSize, config.hcclDeterministic) = (u32::MAX, u32::MAX);
        let (mut comm, count, list) = (null_mut(), ranks.len() as u32, ranks.as_mut_ptr());
        let member = member as u32;
        let (parent, config, place) = (&raw mut parent, &raw mut config, &raw mut comm);
        call!(self, HcclCreateSubCommConfig(parent, count, list, number, member, config, place))?;
        Ok(comm)
    }

    /// Every process that has the key may import the memory.
    pub(crate) fn export(&self, at: *mut c_void, bytes: u64) -> StormResult<String> {
        let mut key = [0 as c_char; 65];
        // Flag 1: any process may import.
        young!(self, aclrtIpcMemGetExportKey(at, bytes as usize, key.as_mut_ptr(), key.len(), 1))?;
        Ok(key
            .iter()
            .take_while(|byte| **byte != 0)
            .flat_map(|byte| byte.to_ne_bytes())
            .map(char::from)
            .collect())
    }

    pub(crate) fn import(&self, key: &str) -> StormResult<*mut c_void> {
        let (key, mut address) = (CString::new(key).unwrap_or_default(), null_mut());
        // Flag 1: the card may differ.
        young!(self, aclrtIpcMemImportByKey(&raw mut address, key.as_ptr(), 1)).map(|()| address)
    }

    pub(crate) fn close(&self, key: &str) -> StormResult {
        let key = CString::new(key).unwrap_or_default();
        young!(self, aclrtIpcMemClose(key.as_ptr()))
    }
}
