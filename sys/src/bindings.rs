// Made by `cargo xtask bindings`; do not edit.

/// Status of an AscendCL call: 0, or one of ACL_ERROR_*.
pub type aclError = ::std::os::raw::c_int;
/// Bits of an IEEE binary16.
pub type aclFloat16 = u16;
/// Context of a device for a thread; threads may share a context.
pub type aclrtContext = *mut ::std::os::raw::c_void;
/// A FIFO queue of work on one device.
pub type aclrtStream = *mut ::std::os::raw::c_void;
/// An event that streams record and wait for.
pub type aclrtEvent = *mut ::std::os::raw::c_void;
/// A notify between streams, cards and processes.
pub type aclrtNotify = *mut ::std::os::raw::c_void;
/// A jump target within a stream.
pub type aclrtLabel = *mut ::std::os::raw::c_void;
/// Jump targets by index.
pub type aclrtLabelList = *mut ::std::os::raw::c_void;
/// Physical device memory without an address.
pub type aclrtDrvMemHandle = *mut ::std::os::raw::c_void;
/// A captured graph that can be replayed.
pub type aclmdlRI = *mut ::std::os::raw::c_void;
/// A group of captured tasks that can be updated.
pub type aclrtTaskGrp = *mut ::std::os::raw::c_void;
/// Condition of a conditional task.
pub type aclmdlRICondHandle = *mut ::std::os::raw::c_void;
/// A loaded kernel binary.
pub type aclrtBinHandle = *mut ::std::os::raw::c_void;
/// A kernel of a binary.
pub type aclrtFuncHandle = *mut ::std::os::raw::c_void;
/// Arguments of a launch.
pub type aclrtArgsHandle = *mut ::std::os::raw::c_void;
/// One argument of a launch.
pub type aclrtParamHandle = *mut ::std::os::raw::c_void;
/// Runs on the thread that serves reports of the stream.
pub type aclrtCallback = ::std::option::Option<
    unsafe extern "C" fn(user_data: *mut ::std::os::raw::c_void),
>;
/// Runs on a thread of the runtime; its stream waits.
pub type aclrtHostFunc = ::std::option::Option<
    unsafe extern "C" fn(args: *mut ::std::os::raw::c_void),
>;
/// Callback for a failed task.
pub type aclrtExceptionInfoCallback = ::std::option::Option<
    unsafe extern "C" fn(info: *mut aclrtExceptionInfo),
>;
/// Callback for created and destroyed streams.
pub type aclrtStreamStateCallback = ::std::option::Option<
    unsafe extern "C" fn(
        stream: aclrtStream,
        state: aclrtStreamState,
        args: *mut ::std::os::raw::c_void,
    ),
>;
/// One conditional task of a captured model.
pub type aclmdlRICondTaskParams = tagAclmdlRICondTaskParams;
/// One rank's end of a communicator.
pub type HcclComm = *mut ::std::os::raw::c_void;
/// Rendezvous of a communicator: opaque bytes that the root creates and sends unchanged to all ranks.
pub type HcclRootInfo = HcclRootInfoDef;
/** Settings of a communicator, layout of version 11. `reserved` holds {u64 size, u32 magic, u32 version, u64 0}; the library
 copies the smaller of that size and its own, and takes a field only if the version has it.*/
pub type HcclCommConfig = HcclCommConfigDef;
/// One send or receive of a batch.
pub type HcclSendRecvItem = HcclSendRecvItemDef;
/// Status of an aclnn call: 0, 161001 null pointer, 161002 invalid, 361001 runtime, 561xxx inner.
pub type aclnnStatus = i32;
/// A host address and its length.
#[repr(C)]
#[derive(Debug)]
pub struct aclDataBuffer {
    _unused: [u8; 0],
}
/// Information about an exception; read through accessors.
#[repr(C)]
#[derive(Debug)]
pub struct aclrtExceptionInfo {
    _unused: [u8; 0],
}
/// Further percentages of use.
#[repr(C)]
#[derive(Debug)]
pub struct aclrtUtilizationExtendInfo {
    _unused: [u8; 0],
}
/// Hardware counters of a profile.
#[repr(C)]
#[derive(Debug)]
pub struct aclprofAicoreEvents {
    _unused: [u8; 0],
}
/// Configuration of a profiling session.
#[repr(C)]
#[derive(Debug)]
pub struct aclprofConfig {
    _unused: [u8; 0],
}
#[repr(transparent)]
/// Element types of AscendCL and aclnn. HCCL numbers its types differently.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclDataType(pub ::std::os::raw::c_int);
#[repr(transparent)]
/// Location of the calling program: host or device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtRunMode(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Attributes of the installed CANN.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclCannAttr(pub ::std::os::raw::c_int);
#[repr(transparent)]
/// Core counts of a device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclDeviceInfo(pub ::std::os::raw::c_int);
#[repr(transparent)]
/// Packages with a version.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclCANNPackageName(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kinds of device memory.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemAttr(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Result of a floating-point overflow.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtFloatOverflowMode(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Health of a device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtDeviceStatus(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Features a device may have.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtDevFeatureType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Integer attributes of a device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtDevAttr(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kinds of cores with a usage limit.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtDevResLimitType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// State of a stream.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtStreamStatus(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Comparisons of a conditional stream.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtCondition(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Integers a conditional stream compares.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtCompareDataType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// State of an event. Note: complete is 1 here, but 0 for a stream.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtEventRecordedStatus(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// State of the waits on an event.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtEventWaitStatus(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Page size and neighbourhood of an allocation.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemMallocPolicy(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Selects the member of aclrtMallocAttrValue.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMallocAttrType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Direction of a copy.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemcpyKind(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Location of memory: host or device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemLocationType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Mapping of registered host memory to a device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtHostRegisterType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Reductions of aclrtReduceAsync.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtReduceKind(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Distributions of aclrtRandomNumAsync.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtRandomNumFuncType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kinds of physical memory handles.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemHandleType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kinds of physical allocations.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemAllocationType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kind of allocation granularity.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemGranularityOptions(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Access rights to mapped memory.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemAccessFlags(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kinds of handles for shared memory.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemSharedHandleType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Blocking behaviour of a callback.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtCallbackBlockType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Calls that a capture forbids.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclmdlRICaptureMode(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Capture status of a stream.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclmdlRICaptureStatus(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Flags of a condition handle.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclmdlRICondHandleFlag(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Control flow of a conditional task.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclmdlRICondTaskType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Selects the member of aclrtBinaryLoadOptionValue.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtBinaryLoadOptionType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Selects the member of aclrtLaunchKernelAttrValue.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtLaunchKernelAttrId(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Engines a kernel runs on.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtEngineType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Scope of the last error.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtLastErrLevel(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kind of error of a device.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtErrorType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Kind of error of an AI core.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtAicoreErrorType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Groups of hardware counters.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclprofAicoreMetrics(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// State of a stream in a state callback.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtStreamState(pub ::std::os::raw::c_uint);
/// Version of a package as text.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclCANNPackageVersion {
    pub version: [::std::os::raw::c_char; 128usize],
    pub majorVersion: [::std::os::raw::c_char; 64usize],
    pub minorVersion: [::std::os::raw::c_char; 64usize],
    pub releaseVersion: [::std::os::raw::c_char; 64usize],
    pub patchVersion: [::std::os::raw::c_char; 64usize],
    pub reserved: [::std::os::raw::c_char; 128usize],
}
/// Percentages of use of a device.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtUtilizationInfo {
    pub cubeUtilization: i32,
    pub vectorUtilization: i32,
    pub aicpuUtilization: i32,
    pub memoryUtilization: i32,
    pub utilizationExtend: *mut aclrtUtilizationExtendInfo,
}
/// Handle of an event for other processes of the host; passed by value.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtIpcEventHandle {
    pub reserved: [::std::os::raw::c_char; 64usize],
}
/// One allocation attribute.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtMallocAttribute {
    pub attr: aclrtMallocAttrType,
    pub value: aclrtMallocAttrValue,
}
/// Attributes of one allocation.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMallocConfig {
    pub attrs: *mut aclrtMallocAttribute,
    pub numAttrs: usize,
}
/// Place of memory: kind and device.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMemLocation {
    pub id: u32,
    pub type_: aclrtMemLocationType,
}
/// Attributes of a pointer.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtPtrAttributes {
    pub location: aclrtMemLocation,
    pub pageSize: u32,
    pub rsv: [u32; 4usize],
}
/// A number, or the device address of one.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtRandomParaInfo {
    pub isAddr: u8,
    pub valueOrAddr: [u8; 8usize],
    pub size: u8,
    pub rsv: [u8; 6usize],
}
/// Keep-probability of a dropout mask.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtDropoutBitmaskInfo {
    pub dropoutRation: aclrtRandomParaInfo,
}
/// Bounds of a uniform distribution.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtUniformDisInfo {
    pub min: aclrtRandomParaInfo,
    pub max: aclrtRandomParaInfo,
}
/// Mean and deviation of a normal distribution.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtNormalDisInfo {
    pub mean: aclrtRandomParaInfo,
    pub stddev: aclrtRandomParaInfo,
}
/// A distribution and its parameters.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtRandomNumFuncParaInfo {
    pub funcType: aclrtRandomNumFuncType,
    pub paramInfo: aclrtRandomNumFuncParaInfo__bindgen_ty_1,
}
/// One task of random numbers.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtRandomNumTaskInfo {
    pub dataType: aclDataType,
    pub randomNumFuncParaInfo: aclrtRandomNumFuncParaInfo,
    pub randomParaAddr: *mut ::std::os::raw::c_void,
    pub randomResultAddr: *mut ::std::os::raw::c_void,
    pub randomCounterAddr: *mut ::std::os::raw::c_void,
    pub randomSeed: aclrtRandomParaInfo,
    pub randomNum: aclrtRandomParaInfo,
    pub rsv: [u8; 8usize],
}
/// Properties of a physical allocation.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtPhysicalMemProp {
    pub handleType: aclrtMemHandleType,
    pub allocationType: aclrtMemAllocationType,
    pub memAttr: aclrtMemAttr,
    pub location: aclrtMemLocation,
    pub reserve: u64,
}
/// Access rights of one place.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMemAccessDesc {
    pub flags: aclrtMemAccessFlags,
    pub location: aclrtMemLocation,
    pub rsv: [u8; 12usize],
}
/// One conditional task of a captured model.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct tagAclmdlRICondTaskParams {
    pub handle: aclmdlRICondHandle,
    pub type_: aclmdlRICondTaskType,
    pub size: u32,
    pub modelRIArray: *mut aclmdlRI,
}
/// One option of loading a kernel binary.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtBinaryLoadOption {
    pub type_: aclrtBinaryLoadOptionType,
    pub value: aclrtBinaryLoadOptionValue,
}
/// Options of loading a kernel binary.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtBinaryLoadOptions {
    pub options: *mut aclrtBinaryLoadOption,
    pub numOpt: usize,
}
/// Microseconds in two halves.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtTimeoutUs {
    pub timeoutLow: u32,
    pub timeoutHigh: u32,
}
/// One launch attribute.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtLaunchKernelAttr {
    pub id: aclrtLaunchKernelAttrId,
    pub value: aclrtLaunchKernelAttrValue,
}
/// Attributes of one launch.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtLaunchKernelCfg {
    pub attrs: *mut aclrtLaunchKernelAttr,
    pub numAttrs: usize,
}
/// Position of an address in the arguments, and the data it points to.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtPlaceHolderInfo {
    pub addrOffset: u32,
    pub dataOffset: u32,
}
/// One range of memory with an uncorrectable error.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMemUceInfo {
    pub addr: *mut ::std::os::raw::c_void,
    pub len: usize,
    pub reserved: [usize; 14usize],
}
/// Ranges of memory with uncorrectable errors.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMemUceInfoArray {
    pub arraySize: usize,
    pub memUceInfoArray: [aclrtMemUceInfo; 20usize],
}
/// A device error.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtErrorInfo {
    pub tryRepair: u8,
    pub hasDetail: u8,
    pub reserved: [u8; 2usize],
    pub errorType: aclrtErrorType,
    pub detail: aclrtErrorInfoDetail,
}
#[repr(transparent)]
/// Status of an HCCL call.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct HcclResult(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Process-wide settings.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct HcclConfig(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Element types of HCCL. AscendCL numbers its types differently.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct HcclDataType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Reductions.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct HcclReduceOp(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Direction of one item of a batch.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct HcclSendRecvType(pub ::std::os::raw::c_uint);
/// Rendezvous of a communicator: opaque bytes that the root creates and sends unchanged to all ranks.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct HcclRootInfoDef {
    pub internal: [::std::os::raw::c_char; 4108usize],
}
/** Settings of a communicator, layout of version 11. `reserved` holds {u64 size, u32 magic, u32 version, u64 0}; the library
 copies the smaller of that size and its own, and takes a field only if the version has it.*/
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct HcclCommConfigDef {
    pub reserved: [::std::os::raw::c_char; 24usize],
    pub hcclBufferSize: u32,
    pub hcclDeterministic: u32,
    pub hcclCommName: [::std::os::raw::c_char; 128usize],
    pub hcclUdi: [::std::os::raw::c_char; 128usize],
    pub hcclOpExpansionMode: u32,
    pub hcclRdmaTrafficClass: u32,
    pub hcclRdmaServiceLevel: u32,
    pub hcclWorldRankID: u32,
    pub hcclJobID: u64,
    pub aclGraphZeroCopyEnable: u8,
    pub hcclExecTimeOut: i32,
    pub hcclAlgo: [::std::os::raw::c_char; 1600usize],
    pub hcclRetryEnable: [::std::os::raw::c_char; 50usize],
    pub hcclRetryParams: [::std::os::raw::c_char; 128usize],
    pub hcclBufferName: [::std::os::raw::c_char; 128usize],
    pub hcclQos: u32,
    pub hcclSymWinMaxMemSizePerRank: u64,
    pub hcclChannelSqDepth: u32,
}
/// One send or receive of a batch.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct HcclSendRecvItemDef {
    pub sendRecvType: HcclSendRecvType,
    pub buf: *mut ::std::os::raw::c_void,
    pub count: u64,
    pub dataType: HcclDataType,
    pub remoteRank: u32,
}
/// A tensor: dims, strides and offset in elements over device memory it does not own.
#[repr(C)]
#[derive(Debug)]
pub struct aclTensor {
    _unused: [u8; 0],
}
/// Tensors; owns them.
#[repr(C)]
#[derive(Debug)]
pub struct aclTensorList {
    _unused: [u8; 0],
}
/// A number and its type.
#[repr(C)]
#[derive(Debug)]
pub struct aclScalar {
    _unused: [u8; 0],
}
/// Numbers and their types; owns them.
#[repr(C)]
#[derive(Debug)]
pub struct aclScalarList {
    _unused: [u8; 0],
}
/// Copied int64 values.
#[repr(C)]
#[derive(Debug)]
pub struct aclIntArray {
    _unused: [u8; 0],
}
/// Copied float values.
#[repr(C)]
#[derive(Debug)]
pub struct aclFloatArray {
    _unused: [u8; 0],
}
/// Copied bool values.
#[repr(C)]
#[derive(Debug)]
pub struct aclBoolArray {
    _unused: [u8; 0],
}
/// A checked call, ready to be enqueued.
#[repr(C)]
#[derive(Debug)]
pub struct aclOpExecutor {
    _unused: [u8; 0],
}
#[repr(transparent)]
/// Memory format of a tensor.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclFormat(pub ::std::os::raw::c_int);
#[repr(transparent)]
/// Options of the operator compiler; each value is a text.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclCompileOpt(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Parameters of a process or of a context.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclSysParamOpt(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Operations on a card's cache.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtCmoType(pub ::std::os::raw::c_uint);
#[repr(transparent)]
/// Selects the member of aclrtStreamAttrValue.
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtStreamAttr(pub ::std::os::raw::c_uint);
/// Locations of the memory of some copies of a batch.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMemcpyBatchAttr {
    pub dstLoc: aclrtMemLocation,
    pub srcLoc: aclrtMemLocation,
    pub rsv: [u8; 16usize],
}
/// Identifier of a device.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtUuid {
    pub bytes: [::std::os::raw::c_char; 16usize],
}
pub const ACL_STREAM_FAST_LAUNCH: u32 = 1;
pub const ACL_STREAM_FAST_SYNC: u32 = 2;
pub const ACL_STREAM_PERSISTENT: u32 = 4;
pub const ACL_EVENT_SYNC: u32 = 1;
pub const ACL_EVENT_CAPTURE_STREAM_PROGRESS: u32 = 2;
pub const ACL_EVENT_TIME_LINE: u32 = 8;
pub const ACL_EVENT_EXTERNAL: u32 = 32;
pub const ACL_EVENT_IPC: u32 = 64;
pub const ACL_CONTINUE_ON_FAILURE: u32 = 0;
pub const ACL_STOP_ON_FAILURE: u32 = 1;
pub const HCCL_ROOT_INFO_BYTES: u32 = 4108;
pub const COMM_NAME_MAX_LENGTH: u32 = 128;
pub const HCCL_COMM_CONFIG_MAGIC_WORD: u32 = 4042322160;
pub const HCCL_COMM_CONFIG_VERSION: u32 = 11;
const _: () = {
    [
        "Size of aclCANNPackageVersion",
    ][::std::mem::size_of::<aclCANNPackageVersion>() - 512usize];
    [
        "Alignment of aclCANNPackageVersion",
    ][::std::mem::align_of::<aclCANNPackageVersion>() - 1usize];
    [
        "Offset of field: aclCANNPackageVersion::version",
    ][::std::mem::offset_of!(aclCANNPackageVersion, version) - 0usize];
    [
        "Offset of field: aclCANNPackageVersion::majorVersion",
    ][::std::mem::offset_of!(aclCANNPackageVersion, majorVersion) - 128usize];
    [
        "Offset of field: aclCANNPackageVersion::minorVersion",
    ][::std::mem::offset_of!(aclCANNPackageVersion, minorVersion) - 192usize];
    [
        "Offset of field: aclCANNPackageVersion::releaseVersion",
    ][::std::mem::offset_of!(aclCANNPackageVersion, releaseVersion) - 256usize];
    [
        "Offset of field: aclCANNPackageVersion::patchVersion",
    ][::std::mem::offset_of!(aclCANNPackageVersion, patchVersion) - 320usize];
    [
        "Offset of field: aclCANNPackageVersion::reserved",
    ][::std::mem::offset_of!(aclCANNPackageVersion, reserved) - 384usize];
};
const _: () = {
    [
        "Size of aclrtUtilizationInfo",
    ][::std::mem::size_of::<aclrtUtilizationInfo>() - 24usize];
    [
        "Alignment of aclrtUtilizationInfo",
    ][::std::mem::align_of::<aclrtUtilizationInfo>() - 8usize];
    [
        "Offset of field: aclrtUtilizationInfo::cubeUtilization",
    ][::std::mem::offset_of!(aclrtUtilizationInfo, cubeUtilization) - 0usize];
    [
        "Offset of field: aclrtUtilizationInfo::vectorUtilization",
    ][::std::mem::offset_of!(aclrtUtilizationInfo, vectorUtilization) - 4usize];
    [
        "Offset of field: aclrtUtilizationInfo::aicpuUtilization",
    ][::std::mem::offset_of!(aclrtUtilizationInfo, aicpuUtilization) - 8usize];
    [
        "Offset of field: aclrtUtilizationInfo::memoryUtilization",
    ][::std::mem::offset_of!(aclrtUtilizationInfo, memoryUtilization) - 12usize];
    [
        "Offset of field: aclrtUtilizationInfo::utilizationExtend",
    ][::std::mem::offset_of!(aclrtUtilizationInfo, utilizationExtend) - 16usize];
};
const _: () = {
    [
        "Size of aclrtIpcEventHandle",
    ][::std::mem::size_of::<aclrtIpcEventHandle>() - 64usize];
    [
        "Alignment of aclrtIpcEventHandle",
    ][::std::mem::align_of::<aclrtIpcEventHandle>() - 1usize];
    [
        "Offset of field: aclrtIpcEventHandle::reserved",
    ][::std::mem::offset_of!(aclrtIpcEventHandle, reserved) - 0usize];
};
const _: () = {
    [
        "Size of aclrtMallocAttrValue",
    ][::std::mem::size_of::<aclrtMallocAttrValue>() - 8usize];
    [
        "Alignment of aclrtMallocAttrValue",
    ][::std::mem::align_of::<aclrtMallocAttrValue>() - 4usize];
    [
        "Offset of field: aclrtMallocAttrValue::moduleId",
    ][::std::mem::offset_of!(aclrtMallocAttrValue, moduleId) - 0usize];
    [
        "Offset of field: aclrtMallocAttrValue::deviceId",
    ][::std::mem::offset_of!(aclrtMallocAttrValue, deviceId) - 0usize];
    [
        "Offset of field: aclrtMallocAttrValue::vaFlag",
    ][::std::mem::offset_of!(aclrtMallocAttrValue, vaFlag) - 0usize];
    [
        "Offset of field: aclrtMallocAttrValue::rsv",
    ][::std::mem::offset_of!(aclrtMallocAttrValue, rsv) - 0usize];
};
const _: () = {
    [
        "Size of aclrtMallocAttribute",
    ][::std::mem::size_of::<aclrtMallocAttribute>() - 12usize];
    [
        "Alignment of aclrtMallocAttribute",
    ][::std::mem::align_of::<aclrtMallocAttribute>() - 4usize];
    [
        "Offset of field: aclrtMallocAttribute::attr",
    ][::std::mem::offset_of!(aclrtMallocAttribute, attr) - 0usize];
    [
        "Offset of field: aclrtMallocAttribute::value",
    ][::std::mem::offset_of!(aclrtMallocAttribute, value) - 4usize];
};
const _: () = {
    ["Size of aclrtMallocConfig"][::std::mem::size_of::<aclrtMallocConfig>() - 16usize];
    [
        "Alignment of aclrtMallocConfig",
    ][::std::mem::align_of::<aclrtMallocConfig>() - 8usize];
    [
        "Offset of field: aclrtMallocConfig::attrs",
    ][::std::mem::offset_of!(aclrtMallocConfig, attrs) - 0usize];
    [
        "Offset of field: aclrtMallocConfig::numAttrs",
    ][::std::mem::offset_of!(aclrtMallocConfig, numAttrs) - 8usize];
};
const _: () = {
    ["Size of aclrtMemLocation"][::std::mem::size_of::<aclrtMemLocation>() - 8usize];
    [
        "Alignment of aclrtMemLocation",
    ][::std::mem::align_of::<aclrtMemLocation>() - 4usize];
    [
        "Offset of field: aclrtMemLocation::id",
    ][::std::mem::offset_of!(aclrtMemLocation, id) - 0usize];
    [
        "Offset of field: aclrtMemLocation::type_",
    ][::std::mem::offset_of!(aclrtMemLocation, type_) - 4usize];
};
const _: () = {
    [
        "Size of aclrtPtrAttributes",
    ][::std::mem::size_of::<aclrtPtrAttributes>() - 28usize];
    [
        "Alignment of aclrtPtrAttributes",
    ][::std::mem::align_of::<aclrtPtrAttributes>() - 4usize];
    [
        "Offset of field: aclrtPtrAttributes::location",
    ][::std::mem::offset_of!(aclrtPtrAttributes, location) - 0usize];
    [
        "Offset of field: aclrtPtrAttributes::pageSize",
    ][::std::mem::offset_of!(aclrtPtrAttributes, pageSize) - 8usize];
    [
        "Offset of field: aclrtPtrAttributes::rsv",
    ][::std::mem::offset_of!(aclrtPtrAttributes, rsv) - 12usize];
};
const _: () = {
    [
        "Size of aclrtRandomParaInfo",
    ][::std::mem::size_of::<aclrtRandomParaInfo>() - 16usize];
    [
        "Alignment of aclrtRandomParaInfo",
    ][::std::mem::align_of::<aclrtRandomParaInfo>() - 1usize];
    [
        "Offset of field: aclrtRandomParaInfo::isAddr",
    ][::std::mem::offset_of!(aclrtRandomParaInfo, isAddr) - 0usize];
    [
        "Offset of field: aclrtRandomParaInfo::valueOrAddr",
    ][::std::mem::offset_of!(aclrtRandomParaInfo, valueOrAddr) - 1usize];
    [
        "Offset of field: aclrtRandomParaInfo::size",
    ][::std::mem::offset_of!(aclrtRandomParaInfo, size) - 9usize];
    [
        "Offset of field: aclrtRandomParaInfo::rsv",
    ][::std::mem::offset_of!(aclrtRandomParaInfo, rsv) - 10usize];
};
const _: () = {
    [
        "Size of aclrtDropoutBitmaskInfo",
    ][::std::mem::size_of::<aclrtDropoutBitmaskInfo>() - 16usize];
    [
        "Alignment of aclrtDropoutBitmaskInfo",
    ][::std::mem::align_of::<aclrtDropoutBitmaskInfo>() - 1usize];
    [
        "Offset of field: aclrtDropoutBitmaskInfo::dropoutRation",
    ][::std::mem::offset_of!(aclrtDropoutBitmaskInfo, dropoutRation) - 0usize];
};
const _: () = {
    [
        "Size of aclrtUniformDisInfo",
    ][::std::mem::size_of::<aclrtUniformDisInfo>() - 32usize];
    [
        "Alignment of aclrtUniformDisInfo",
    ][::std::mem::align_of::<aclrtUniformDisInfo>() - 1usize];
    [
        "Offset of field: aclrtUniformDisInfo::min",
    ][::std::mem::offset_of!(aclrtUniformDisInfo, min) - 0usize];
    [
        "Offset of field: aclrtUniformDisInfo::max",
    ][::std::mem::offset_of!(aclrtUniformDisInfo, max) - 16usize];
};
const _: () = {
    [
        "Size of aclrtNormalDisInfo",
    ][::std::mem::size_of::<aclrtNormalDisInfo>() - 32usize];
    [
        "Alignment of aclrtNormalDisInfo",
    ][::std::mem::align_of::<aclrtNormalDisInfo>() - 1usize];
    [
        "Offset of field: aclrtNormalDisInfo::mean",
    ][::std::mem::offset_of!(aclrtNormalDisInfo, mean) - 0usize];
    [
        "Offset of field: aclrtNormalDisInfo::stddev",
    ][::std::mem::offset_of!(aclrtNormalDisInfo, stddev) - 16usize];
};
const _: () = {
    [
        "Size of aclrtRandomNumFuncParaInfo__bindgen_ty_1",
    ][::std::mem::size_of::<aclrtRandomNumFuncParaInfo__bindgen_ty_1>() - 32usize];
    [
        "Alignment of aclrtRandomNumFuncParaInfo__bindgen_ty_1",
    ][::std::mem::align_of::<aclrtRandomNumFuncParaInfo__bindgen_ty_1>() - 1usize];
    [
        "Offset of field: aclrtRandomNumFuncParaInfo__bindgen_ty_1::dropoutBitmaskInfo",
    ][::std::mem::offset_of!(
        aclrtRandomNumFuncParaInfo__bindgen_ty_1, dropoutBitmaskInfo
    ) - 0usize];
    [
        "Offset of field: aclrtRandomNumFuncParaInfo__bindgen_ty_1::uniformDisInfo",
    ][::std::mem::offset_of!(aclrtRandomNumFuncParaInfo__bindgen_ty_1, uniformDisInfo)
        - 0usize];
    [
        "Offset of field: aclrtRandomNumFuncParaInfo__bindgen_ty_1::normalDisInfo",
    ][::std::mem::offset_of!(aclrtRandomNumFuncParaInfo__bindgen_ty_1, normalDisInfo)
        - 0usize];
};
const _: () = {
    [
        "Size of aclrtRandomNumFuncParaInfo",
    ][::std::mem::size_of::<aclrtRandomNumFuncParaInfo>() - 36usize];
    [
        "Alignment of aclrtRandomNumFuncParaInfo",
    ][::std::mem::align_of::<aclrtRandomNumFuncParaInfo>() - 4usize];
    [
        "Offset of field: aclrtRandomNumFuncParaInfo::funcType",
    ][::std::mem::offset_of!(aclrtRandomNumFuncParaInfo, funcType) - 0usize];
    [
        "Offset of field: aclrtRandomNumFuncParaInfo::paramInfo",
    ][::std::mem::offset_of!(aclrtRandomNumFuncParaInfo, paramInfo) - 4usize];
};
const _: () = {
    [
        "Size of aclrtRandomNumTaskInfo",
    ][::std::mem::size_of::<aclrtRandomNumTaskInfo>() - 104usize];
    [
        "Alignment of aclrtRandomNumTaskInfo",
    ][::std::mem::align_of::<aclrtRandomNumTaskInfo>() - 8usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::dataType",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, dataType) - 0usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::randomNumFuncParaInfo",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, randomNumFuncParaInfo) - 4usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::randomParaAddr",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, randomParaAddr) - 40usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::randomResultAddr",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, randomResultAddr) - 48usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::randomCounterAddr",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, randomCounterAddr) - 56usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::randomSeed",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, randomSeed) - 64usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::randomNum",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, randomNum) - 80usize];
    [
        "Offset of field: aclrtRandomNumTaskInfo::rsv",
    ][::std::mem::offset_of!(aclrtRandomNumTaskInfo, rsv) - 96usize];
};
const _: () = {
    [
        "Size of aclrtPhysicalMemProp",
    ][::std::mem::size_of::<aclrtPhysicalMemProp>() - 32usize];
    [
        "Alignment of aclrtPhysicalMemProp",
    ][::std::mem::align_of::<aclrtPhysicalMemProp>() - 8usize];
    [
        "Offset of field: aclrtPhysicalMemProp::handleType",
    ][::std::mem::offset_of!(aclrtPhysicalMemProp, handleType) - 0usize];
    [
        "Offset of field: aclrtPhysicalMemProp::allocationType",
    ][::std::mem::offset_of!(aclrtPhysicalMemProp, allocationType) - 4usize];
    [
        "Offset of field: aclrtPhysicalMemProp::memAttr",
    ][::std::mem::offset_of!(aclrtPhysicalMemProp, memAttr) - 8usize];
    [
        "Offset of field: aclrtPhysicalMemProp::location",
    ][::std::mem::offset_of!(aclrtPhysicalMemProp, location) - 12usize];
    [
        "Offset of field: aclrtPhysicalMemProp::reserve",
    ][::std::mem::offset_of!(aclrtPhysicalMemProp, reserve) - 24usize];
};
const _: () = {
    [
        "Size of aclrtMemAccessDesc",
    ][::std::mem::size_of::<aclrtMemAccessDesc>() - 24usize];
    [
        "Alignment of aclrtMemAccessDesc",
    ][::std::mem::align_of::<aclrtMemAccessDesc>() - 4usize];
    [
        "Offset of field: aclrtMemAccessDesc::flags",
    ][::std::mem::offset_of!(aclrtMemAccessDesc, flags) - 0usize];
    [
        "Offset of field: aclrtMemAccessDesc::location",
    ][::std::mem::offset_of!(aclrtMemAccessDesc, location) - 4usize];
    [
        "Offset of field: aclrtMemAccessDesc::rsv",
    ][::std::mem::offset_of!(aclrtMemAccessDesc, rsv) - 12usize];
};
const _: () = {
    [
        "Size of tagAclmdlRICondTaskParams",
    ][::std::mem::size_of::<tagAclmdlRICondTaskParams>() - 24usize];
    [
        "Alignment of tagAclmdlRICondTaskParams",
    ][::std::mem::align_of::<tagAclmdlRICondTaskParams>() - 8usize];
    [
        "Offset of field: tagAclmdlRICondTaskParams::handle",
    ][::std::mem::offset_of!(tagAclmdlRICondTaskParams, handle) - 0usize];
    [
        "Offset of field: tagAclmdlRICondTaskParams::type_",
    ][::std::mem::offset_of!(tagAclmdlRICondTaskParams, type_) - 8usize];
    [
        "Offset of field: tagAclmdlRICondTaskParams::size",
    ][::std::mem::offset_of!(tagAclmdlRICondTaskParams, size) - 12usize];
    [
        "Offset of field: tagAclmdlRICondTaskParams::modelRIArray",
    ][::std::mem::offset_of!(tagAclmdlRICondTaskParams, modelRIArray) - 16usize];
};
const _: () = {
    [
        "Size of aclrtBinaryLoadOptionValue",
    ][::std::mem::size_of::<aclrtBinaryLoadOptionValue>() - 16usize];
    [
        "Alignment of aclrtBinaryLoadOptionValue",
    ][::std::mem::align_of::<aclrtBinaryLoadOptionValue>() - 4usize];
    [
        "Offset of field: aclrtBinaryLoadOptionValue::isLazyLoad",
    ][::std::mem::offset_of!(aclrtBinaryLoadOptionValue, isLazyLoad) - 0usize];
    [
        "Offset of field: aclrtBinaryLoadOptionValue::magic",
    ][::std::mem::offset_of!(aclrtBinaryLoadOptionValue, magic) - 0usize];
    [
        "Offset of field: aclrtBinaryLoadOptionValue::cpuKernelMode",
    ][::std::mem::offset_of!(aclrtBinaryLoadOptionValue, cpuKernelMode) - 0usize];
    [
        "Offset of field: aclrtBinaryLoadOptionValue::rsv",
    ][::std::mem::offset_of!(aclrtBinaryLoadOptionValue, rsv) - 0usize];
};
const _: () = {
    [
        "Size of aclrtBinaryLoadOption",
    ][::std::mem::size_of::<aclrtBinaryLoadOption>() - 20usize];
    [
        "Alignment of aclrtBinaryLoadOption",
    ][::std::mem::align_of::<aclrtBinaryLoadOption>() - 4usize];
    [
        "Offset of field: aclrtBinaryLoadOption::type_",
    ][::std::mem::offset_of!(aclrtBinaryLoadOption, type_) - 0usize];
    [
        "Offset of field: aclrtBinaryLoadOption::value",
    ][::std::mem::offset_of!(aclrtBinaryLoadOption, value) - 4usize];
};
const _: () = {
    [
        "Size of aclrtBinaryLoadOptions",
    ][::std::mem::size_of::<aclrtBinaryLoadOptions>() - 16usize];
    [
        "Alignment of aclrtBinaryLoadOptions",
    ][::std::mem::align_of::<aclrtBinaryLoadOptions>() - 8usize];
    [
        "Offset of field: aclrtBinaryLoadOptions::options",
    ][::std::mem::offset_of!(aclrtBinaryLoadOptions, options) - 0usize];
    [
        "Offset of field: aclrtBinaryLoadOptions::numOpt",
    ][::std::mem::offset_of!(aclrtBinaryLoadOptions, numOpt) - 8usize];
};
const _: () = {
    ["Size of aclrtTimeoutUs"][::std::mem::size_of::<aclrtTimeoutUs>() - 8usize];
    ["Alignment of aclrtTimeoutUs"][::std::mem::align_of::<aclrtTimeoutUs>() - 4usize];
    [
        "Offset of field: aclrtTimeoutUs::timeoutLow",
    ][::std::mem::offset_of!(aclrtTimeoutUs, timeoutLow) - 0usize];
    [
        "Offset of field: aclrtTimeoutUs::timeoutHigh",
    ][::std::mem::offset_of!(aclrtTimeoutUs, timeoutHigh) - 4usize];
};
const _: () = {
    [
        "Size of aclrtLaunchKernelAttrValue",
    ][::std::mem::size_of::<aclrtLaunchKernelAttrValue>() - 16usize];
    [
        "Alignment of aclrtLaunchKernelAttrValue",
    ][::std::mem::align_of::<aclrtLaunchKernelAttrValue>() - 4usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::schemMode",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, schemMode) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::localMemorySize",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, localMemorySize) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::dynUBufSize",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, dynUBufSize) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::engineType",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, engineType) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::blockDimOffset",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, blockDimOffset) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::isBlockTaskPrefetch",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, isBlockTaskPrefetch) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::isDataDump",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, isDataDump) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::timeout",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, timeout) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::timeoutUs",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, timeoutUs) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::enableProfiling",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, enableProfiling) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttrValue::rsv",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttrValue, rsv) - 0usize];
};
const _: () = {
    [
        "Size of aclrtLaunchKernelAttr",
    ][::std::mem::size_of::<aclrtLaunchKernelAttr>() - 20usize];
    [
        "Alignment of aclrtLaunchKernelAttr",
    ][::std::mem::align_of::<aclrtLaunchKernelAttr>() - 4usize];
    [
        "Offset of field: aclrtLaunchKernelAttr::id",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttr, id) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelAttr::value",
    ][::std::mem::offset_of!(aclrtLaunchKernelAttr, value) - 4usize];
};
const _: () = {
    [
        "Size of aclrtLaunchKernelCfg",
    ][::std::mem::size_of::<aclrtLaunchKernelCfg>() - 16usize];
    [
        "Alignment of aclrtLaunchKernelCfg",
    ][::std::mem::align_of::<aclrtLaunchKernelCfg>() - 8usize];
    [
        "Offset of field: aclrtLaunchKernelCfg::attrs",
    ][::std::mem::offset_of!(aclrtLaunchKernelCfg, attrs) - 0usize];
    [
        "Offset of field: aclrtLaunchKernelCfg::numAttrs",
    ][::std::mem::offset_of!(aclrtLaunchKernelCfg, numAttrs) - 8usize];
};
const _: () = {
    [
        "Size of aclrtPlaceHolderInfo",
    ][::std::mem::size_of::<aclrtPlaceHolderInfo>() - 8usize];
    [
        "Alignment of aclrtPlaceHolderInfo",
    ][::std::mem::align_of::<aclrtPlaceHolderInfo>() - 4usize];
    [
        "Offset of field: aclrtPlaceHolderInfo::addrOffset",
    ][::std::mem::offset_of!(aclrtPlaceHolderInfo, addrOffset) - 0usize];
    [
        "Offset of field: aclrtPlaceHolderInfo::dataOffset",
    ][::std::mem::offset_of!(aclrtPlaceHolderInfo, dataOffset) - 4usize];
};
const _: () = {
    ["Size of aclrtMemUceInfo"][::std::mem::size_of::<aclrtMemUceInfo>() - 128usize];
    ["Alignment of aclrtMemUceInfo"][::std::mem::align_of::<aclrtMemUceInfo>() - 8usize];
    [
        "Offset of field: aclrtMemUceInfo::addr",
    ][::std::mem::offset_of!(aclrtMemUceInfo, addr) - 0usize];
    [
        "Offset of field: aclrtMemUceInfo::len",
    ][::std::mem::offset_of!(aclrtMemUceInfo, len) - 8usize];
    [
        "Offset of field: aclrtMemUceInfo::reserved",
    ][::std::mem::offset_of!(aclrtMemUceInfo, reserved) - 16usize];
};
const _: () = {
    [
        "Size of aclrtMemUceInfoArray",
    ][::std::mem::size_of::<aclrtMemUceInfoArray>() - 2568usize];
    [
        "Alignment of aclrtMemUceInfoArray",
    ][::std::mem::align_of::<aclrtMemUceInfoArray>() - 8usize];
    [
        "Offset of field: aclrtMemUceInfoArray::arraySize",
    ][::std::mem::offset_of!(aclrtMemUceInfoArray, arraySize) - 0usize];
    [
        "Offset of field: aclrtMemUceInfoArray::memUceInfoArray",
    ][::std::mem::offset_of!(aclrtMemUceInfoArray, memUceInfoArray) - 8usize];
};
const _: () = {
    [
        "Size of aclrtErrorInfoDetail",
    ][::std::mem::size_of::<aclrtErrorInfoDetail>() - 2568usize];
    [
        "Alignment of aclrtErrorInfoDetail",
    ][::std::mem::align_of::<aclrtErrorInfoDetail>() - 8usize];
    [
        "Offset of field: aclrtErrorInfoDetail::uceInfo",
    ][::std::mem::offset_of!(aclrtErrorInfoDetail, uceInfo) - 0usize];
    [
        "Offset of field: aclrtErrorInfoDetail::aicoreErrType",
    ][::std::mem::offset_of!(aclrtErrorInfoDetail, aicoreErrType) - 0usize];
};
const _: () = {
    ["Size of aclrtErrorInfo"][::std::mem::size_of::<aclrtErrorInfo>() - 2576usize];
    ["Alignment of aclrtErrorInfo"][::std::mem::align_of::<aclrtErrorInfo>() - 8usize];
    [
        "Offset of field: aclrtErrorInfo::tryRepair",
    ][::std::mem::offset_of!(aclrtErrorInfo, tryRepair) - 0usize];
    [
        "Offset of field: aclrtErrorInfo::hasDetail",
    ][::std::mem::offset_of!(aclrtErrorInfo, hasDetail) - 1usize];
    [
        "Offset of field: aclrtErrorInfo::reserved",
    ][::std::mem::offset_of!(aclrtErrorInfo, reserved) - 2usize];
    [
        "Offset of field: aclrtErrorInfo::errorType",
    ][::std::mem::offset_of!(aclrtErrorInfo, errorType) - 4usize];
    [
        "Offset of field: aclrtErrorInfo::detail",
    ][::std::mem::offset_of!(aclrtErrorInfo, detail) - 8usize];
};
pub const ACL_SUCCESS: ::std::os::raw::c_int = 0;
pub const ACL_ERROR_INVALID_PARAM: ::std::os::raw::c_int = 100000;
pub const ACL_ERROR_UNINITIALIZE: ::std::os::raw::c_int = 100001;
pub const ACL_ERROR_REPEAT_INITIALIZE: ::std::os::raw::c_int = 100002;
pub const ACL_ERROR_INVALID_FILE: ::std::os::raw::c_int = 100003;
pub const ACL_ERROR_WRITE_FILE: ::std::os::raw::c_int = 100004;
pub const ACL_ERROR_INVALID_FILE_SIZE: ::std::os::raw::c_int = 100005;
pub const ACL_ERROR_PARSE_FILE: ::std::os::raw::c_int = 100006;
pub const ACL_ERROR_OP_NOT_FOUND: ::std::os::raw::c_int = 100024;
pub const ACL_ERROR_OP_LOAD_FAILED: ::std::os::raw::c_int = 100025;
pub const ACL_ERROR_UNSUPPORTED_DATA_TYPE: ::std::os::raw::c_int = 100026;
pub const ACL_ERROR_FORMAT_NOT_MATCH: ::std::os::raw::c_int = 100027;
pub const ACL_ERROR_KERNEL_NOT_FOUND: ::std::os::raw::c_int = 100029;
pub const ACL_ERROR_INVALID_QUEUE_ID: ::std::os::raw::c_int = 100032;
pub const ACL_ERROR_REPEAT_SUBSCRIBE: ::std::os::raw::c_int = 100033;
pub const ACL_ERROR_STREAM_NOT_SUBSCRIBE: ::std::os::raw::c_int = 100034;
pub const ACL_ERROR_THREAD_NOT_SUBSCRIBE: ::std::os::raw::c_int = 100035;
pub const ACL_ERROR_WAIT_CALLBACK_TIMEOUT: ::std::os::raw::c_int = 100036;
pub const ACL_ERROR_REPEAT_FINALIZE: ::std::os::raw::c_int = 100037;
pub const ACL_ERROR_COMPILING_STUB_MODE: ::std::os::raw::c_int = 100039;
pub const ACL_ERROR_PROF_ALREADY_RUN: ::std::os::raw::c_int = 100042;
pub const ACL_ERROR_PROF_NOT_RUN: ::std::os::raw::c_int = 100043;
pub const ACL_ERROR_INVALID_OPP_PATH: ::std::os::raw::c_int = 148049;
pub const ACL_ERROR_BAD_ALLOC: ::std::os::raw::c_int = 200000;
pub const ACL_ERROR_API_NOT_SUPPORT: ::std::os::raw::c_int = 200001;
pub const ACL_ERROR_INVALID_DEVICE: ::std::os::raw::c_int = 200002;
pub const ACL_ERROR_MEMORY_ADDRESS_UNALIGNED: ::std::os::raw::c_int = 200003;
pub const ACL_ERROR_RESOURCE_NOT_MATCH: ::std::os::raw::c_int = 200004;
pub const ACL_ERROR_INVALID_RESOURCE_HANDLE: ::std::os::raw::c_int = 200005;
pub const ACL_ERROR_FEATURE_UNSUPPORTED: ::std::os::raw::c_int = 200006;
pub const ACL_ERROR_STORAGE_OVER_LIMIT: ::std::os::raw::c_int = 300000;
pub const ACL_ERROR_INTERNAL_ERROR: ::std::os::raw::c_int = 500000;
pub const ACL_ERROR_FAILURE: ::std::os::raw::c_int = 500001;
pub const ACL_ERROR_GE_FAILURE: ::std::os::raw::c_int = 500002;
pub const ACL_ERROR_RT_FAILURE: ::std::os::raw::c_int = 500003;
pub const ACL_ERROR_DRV_FAILURE: ::std::os::raw::c_int = 500004;
pub const ACL_ERROR_PROFILING_FAILURE: ::std::os::raw::c_int = 500005;
pub const ACL_ERROR_RT_PARAM_INVALID: ::std::os::raw::c_int = 107000;
pub const ACL_ERROR_RT_INVALID_DEVICEID: ::std::os::raw::c_int = 107001;
pub const ACL_ERROR_RT_CONTEXT_NULL: ::std::os::raw::c_int = 107002;
pub const ACL_ERROR_RT_STREAM_CONTEXT: ::std::os::raw::c_int = 107003;
pub const ACL_ERROR_RT_MODEL_CONTEXT: ::std::os::raw::c_int = 107004;
pub const ACL_ERROR_RT_STREAM_MODEL: ::std::os::raw::c_int = 107005;
pub const ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID: ::std::os::raw::c_int = 107006;
pub const ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL: ::std::os::raw::c_int = 107007;
pub const ACL_ERROR_RT_ADDR_UNALIGNED: ::std::os::raw::c_int = 107008;
pub const ACL_ERROR_RT_FILE_OPEN: ::std::os::raw::c_int = 107009;
pub const ACL_ERROR_RT_FILE_WRITE: ::std::os::raw::c_int = 107010;
pub const ACL_ERROR_RT_STREAM_SUBSCRIBE: ::std::os::raw::c_int = 107011;
pub const ACL_ERROR_RT_THREAD_SUBSCRIBE: ::std::os::raw::c_int = 107012;
pub const ACL_ERROR_RT_GROUP_NOT_SET: ::std::os::raw::c_int = 107013;
pub const ACL_ERROR_RT_GROUP_NOT_CREATE: ::std::os::raw::c_int = 107014;
pub const ACL_ERROR_RT_STREAM_NO_CB_REG: ::std::os::raw::c_int = 107015;
pub const ACL_ERROR_RT_INVALID_MEMORY_TYPE: ::std::os::raw::c_int = 107016;
pub const ACL_ERROR_RT_INVALID_HANDLE: ::std::os::raw::c_int = 107017;
pub const ACL_ERROR_RT_INVALID_MALLOC_TYPE: ::std::os::raw::c_int = 107018;
pub const ACL_ERROR_RT_WAIT_TIMEOUT: ::std::os::raw::c_int = 107019;
pub const ACL_ERROR_RT_TASK_TIMEOUT: ::std::os::raw::c_int = 107020;
pub const ACL_ERROR_RT_SYSPARAMOPT_NOT_SET: ::std::os::raw::c_int = 107021;
pub const ACL_ERROR_RT_DEVICE_TASK_ABORT: ::std::os::raw::c_int = 107022;
pub const ACL_ERROR_RT_STREAM_ABORT: ::std::os::raw::c_int = 107023;
pub const ACL_ERROR_RT_SUSPECT_REMOTE_ERROR: ::std::os::raw::c_int = 507057;
pub const ACL_ERROR_RT_CAPTURE_DEPENDENCY: ::std::os::raw::c_int = 107024;
pub const ACL_ERROR_RT_STREAM_UNJOINED: ::std::os::raw::c_int = 107025;
pub const ACL_ERROR_RT_MODEL_CAPTURED: ::std::os::raw::c_int = 107026;
pub const ACL_ERROR_RT_STREAM_CAPTURED: ::std::os::raw::c_int = 107027;
pub const ACL_ERROR_RT_EVENT_CAPTURED: ::std::os::raw::c_int = 107028;
pub const ACL_ERROR_RT_STREAM_NOT_CAPTURED: ::std::os::raw::c_int = 107029;
pub const ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT: ::std::os::raw::c_int = 107030;
pub const ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT: ::std::os::raw::c_int = 107031;
pub const ACL_ERROR_STREAM_CAPTURE_CONFLICT: ::std::os::raw::c_int = 107032;
pub const ACL_ERROR_STREAM_TASK_GROUP_STATUS: ::std::os::raw::c_int = 107033;
pub const ACL_ERROR_STREAM_TASK_GROUP_INTR: ::std::os::raw::c_int = 107034;
pub const ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED: ::std::os::raw::c_int = 107036;
pub const ACL_ERROR_RT_MODEL_RUNNING: ::std::os::raw::c_int = 107037;
pub const ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD: ::std::os::raw::c_int = 107038;
pub const ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC: ::std::os::raw::c_int = 107041;
pub const ACL_ERROR_RT_FEATURE_NOT_SUPPORT: ::std::os::raw::c_int = 207000;
pub const ACL_ERROR_RT_MEMORY_ALLOCATION: ::std::os::raw::c_int = 207001;
pub const ACL_ERROR_RT_MEMORY_FREE: ::std::os::raw::c_int = 207002;
pub const ACL_ERROR_RT_AICORE_OVER_FLOW: ::std::os::raw::c_int = 207003;
pub const ACL_ERROR_RT_NO_DEVICE: ::std::os::raw::c_int = 207004;
pub const ACL_ERROR_RT_RESOURCE_ALLOC_FAIL: ::std::os::raw::c_int = 207005;
pub const ACL_ERROR_RT_NO_PERMISSION: ::std::os::raw::c_int = 207006;
pub const ACL_ERROR_RT_NO_EVENT_RESOURCE: ::std::os::raw::c_int = 207007;
pub const ACL_ERROR_RT_NO_STREAM_RESOURCE: ::std::os::raw::c_int = 207008;
pub const ACL_ERROR_RT_NO_NOTIFY_RESOURCE: ::std::os::raw::c_int = 207009;
pub const ACL_ERROR_RT_NO_MODEL_RESOURCE: ::std::os::raw::c_int = 207010;
pub const ACL_ERROR_RT_OVER_LIMIT: ::std::os::raw::c_int = 207012;
pub const ACL_ERROR_RT_QUEUE_EMPTY: ::std::os::raw::c_int = 207013;
pub const ACL_ERROR_RT_QUEUE_FULL: ::std::os::raw::c_int = 207014;
pub const ACL_ERROR_RT_REPEATED_INIT: ::std::os::raw::c_int = 207015;
pub const ACL_ERROR_RT_INTERNAL_ERROR: ::std::os::raw::c_int = 507000;
pub const ACL_ERROR_RT_TS_ERROR: ::std::os::raw::c_int = 507001;
pub const ACL_ERROR_RT_STREAM_TASK_FULL: ::std::os::raw::c_int = 507002;
pub const ACL_ERROR_RT_STREAM_TASK_EMPTY: ::std::os::raw::c_int = 507003;
pub const ACL_ERROR_RT_STREAM_NOT_COMPLETE: ::std::os::raw::c_int = 507004;
pub const ACL_ERROR_RT_END_OF_SEQUENCE: ::std::os::raw::c_int = 507005;
pub const ACL_ERROR_RT_EVENT_NOT_COMPLETE: ::std::os::raw::c_int = 507006;
pub const ACL_ERROR_RT_CONTEXT_RELEASE_ERROR: ::std::os::raw::c_int = 507007;
pub const ACL_ERROR_RT_SOC_VERSION: ::std::os::raw::c_int = 507008;
pub const ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT: ::std::os::raw::c_int = 507009;
pub const ACL_ERROR_RT_LOST_HEARTBEAT: ::std::os::raw::c_int = 507010;
pub const ACL_ERROR_RT_MODEL_EXECUTE: ::std::os::raw::c_int = 507011;
pub const ACL_ERROR_RT_REPORT_TIMEOUT: ::std::os::raw::c_int = 507012;
pub const ACL_ERROR_RT_SYS_DMA: ::std::os::raw::c_int = 507013;
pub const ACL_ERROR_RT_AICORE_TIMEOUT: ::std::os::raw::c_int = 507014;
pub const ACL_ERROR_RT_AICORE_EXCEPTION: ::std::os::raw::c_int = 507015;
pub const ACL_ERROR_RT_AICORE_TRAP_EXCEPTION: ::std::os::raw::c_int = 507016;
pub const ACL_ERROR_RT_AICPU_TIMEOUT: ::std::os::raw::c_int = 507017;
pub const ACL_ERROR_RT_AICPU_EXCEPTION: ::std::os::raw::c_int = 507018;
pub const ACL_ERROR_RT_IPC_ERROR: ::std::os::raw::c_int = 507022;
pub const ACL_ERROR_RT_MODEL_ABORT_NORMAL: ::std::os::raw::c_int = 507023;
pub const ACL_ERROR_RT_KERNEL_LOOKUP: ::std::os::raw::c_int = 507027;
pub const ACL_ERROR_RT_LABEL_CONTEXT: ::std::os::raw::c_int = 507031;
pub const ACL_ERROR_RT_DEV_SETUP_ERROR: ::std::os::raw::c_int = 507033;
pub const ACL_ERROR_RT_VECTOR_CORE_TIMEOUT: ::std::os::raw::c_int = 507034;
pub const ACL_ERROR_RT_VECTOR_CORE_EXCEPTION: ::std::os::raw::c_int = 507035;
pub const ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION: ::std::os::raw::c_int = 507036;
pub const ACL_ERROR_RT_STREAM_SYNC_TIMEOUT: ::std::os::raw::c_int = 507046;
pub const ACL_ERROR_RT_EVENT_SYNC_TIMEOUT: ::std::os::raw::c_int = 507047;
pub const ACL_ERROR_RT_DRV_INTERNAL_ERROR: ::std::os::raw::c_int = 507899;
pub const ACL_ERROR_RT_AICPU_INTERNAL_ERROR: ::std::os::raw::c_int = 507900;
pub const ACL_ERROR_RT_SOCKET_CLOSE: ::std::os::raw::c_int = 507901;
pub const ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED: ::std::os::raw::c_int = 507903;
const _: () = {
    ["Size of HcclRootInfoDef"][::std::mem::size_of::<HcclRootInfoDef>() - 4108usize];
    ["Alignment of HcclRootInfoDef"][::std::mem::align_of::<HcclRootInfoDef>() - 1usize];
    [
        "Offset of field: HcclRootInfoDef::internal",
    ][::std::mem::offset_of!(HcclRootInfoDef, internal) - 0usize];
};
const _: () = {
    [
        "Size of HcclCommConfigDef",
    ][::std::mem::size_of::<HcclCommConfigDef>() - 2248usize];
    [
        "Alignment of HcclCommConfigDef",
    ][::std::mem::align_of::<HcclCommConfigDef>() - 8usize];
    [
        "Offset of field: HcclCommConfigDef::reserved",
    ][::std::mem::offset_of!(HcclCommConfigDef, reserved) - 0usize];
    [
        "Offset of field: HcclCommConfigDef::hcclBufferSize",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclBufferSize) - 24usize];
    [
        "Offset of field: HcclCommConfigDef::hcclDeterministic",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclDeterministic) - 28usize];
    [
        "Offset of field: HcclCommConfigDef::hcclCommName",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclCommName) - 32usize];
    [
        "Offset of field: HcclCommConfigDef::hcclUdi",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclUdi) - 160usize];
    [
        "Offset of field: HcclCommConfigDef::hcclOpExpansionMode",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclOpExpansionMode) - 288usize];
    [
        "Offset of field: HcclCommConfigDef::hcclRdmaTrafficClass",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclRdmaTrafficClass) - 292usize];
    [
        "Offset of field: HcclCommConfigDef::hcclRdmaServiceLevel",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclRdmaServiceLevel) - 296usize];
    [
        "Offset of field: HcclCommConfigDef::hcclWorldRankID",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclWorldRankID) - 300usize];
    [
        "Offset of field: HcclCommConfigDef::hcclJobID",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclJobID) - 304usize];
    [
        "Offset of field: HcclCommConfigDef::aclGraphZeroCopyEnable",
    ][::std::mem::offset_of!(HcclCommConfigDef, aclGraphZeroCopyEnable) - 312usize];
    [
        "Offset of field: HcclCommConfigDef::hcclExecTimeOut",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclExecTimeOut) - 316usize];
    [
        "Offset of field: HcclCommConfigDef::hcclAlgo",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclAlgo) - 320usize];
    [
        "Offset of field: HcclCommConfigDef::hcclRetryEnable",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclRetryEnable) - 1920usize];
    [
        "Offset of field: HcclCommConfigDef::hcclRetryParams",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclRetryParams) - 1970usize];
    [
        "Offset of field: HcclCommConfigDef::hcclBufferName",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclBufferName) - 2098usize];
    [
        "Offset of field: HcclCommConfigDef::hcclQos",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclQos) - 2228usize];
    [
        "Offset of field: HcclCommConfigDef::hcclSymWinMaxMemSizePerRank",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclSymWinMaxMemSizePerRank)
        - 2232usize];
    [
        "Offset of field: HcclCommConfigDef::hcclChannelSqDepth",
    ][::std::mem::offset_of!(HcclCommConfigDef, hcclChannelSqDepth) - 2240usize];
};
const _: () = {
    ["Size of HcclConfigValue"][::std::mem::size_of::<HcclConfigValue>() - 4usize];
    ["Alignment of HcclConfigValue"][::std::mem::align_of::<HcclConfigValue>() - 4usize];
    [
        "Offset of field: HcclConfigValue::value",
    ][::std::mem::offset_of!(HcclConfigValue, value) - 0usize];
};
const _: () = {
    [
        "Size of HcclSendRecvItemDef",
    ][::std::mem::size_of::<HcclSendRecvItemDef>() - 32usize];
    [
        "Alignment of HcclSendRecvItemDef",
    ][::std::mem::align_of::<HcclSendRecvItemDef>() - 8usize];
    [
        "Offset of field: HcclSendRecvItemDef::sendRecvType",
    ][::std::mem::offset_of!(HcclSendRecvItemDef, sendRecvType) - 0usize];
    [
        "Offset of field: HcclSendRecvItemDef::buf",
    ][::std::mem::offset_of!(HcclSendRecvItemDef, buf) - 8usize];
    [
        "Offset of field: HcclSendRecvItemDef::count",
    ][::std::mem::offset_of!(HcclSendRecvItemDef, count) - 16usize];
    [
        "Offset of field: HcclSendRecvItemDef::dataType",
    ][::std::mem::offset_of!(HcclSendRecvItemDef, dataType) - 24usize];
    [
        "Offset of field: HcclSendRecvItemDef::remoteRank",
    ][::std::mem::offset_of!(HcclSendRecvItemDef, remoteRank) - 28usize];
};
const _: () = {
    [
        "Size of aclrtStreamAttrValue",
    ][::std::mem::size_of::<aclrtStreamAttrValue>() - 16usize];
    [
        "Alignment of aclrtStreamAttrValue",
    ][::std::mem::align_of::<aclrtStreamAttrValue>() - 8usize];
    [
        "Offset of field: aclrtStreamAttrValue::failureMode",
    ][::std::mem::offset_of!(aclrtStreamAttrValue, failureMode) - 0usize];
    [
        "Offset of field: aclrtStreamAttrValue::overflowSwitch",
    ][::std::mem::offset_of!(aclrtStreamAttrValue, overflowSwitch) - 0usize];
    [
        "Offset of field: aclrtStreamAttrValue::userCustomTag",
    ][::std::mem::offset_of!(aclrtStreamAttrValue, userCustomTag) - 0usize];
    [
        "Offset of field: aclrtStreamAttrValue::cacheOpInfoSwitch",
    ][::std::mem::offset_of!(aclrtStreamAttrValue, cacheOpInfoSwitch) - 0usize];
    [
        "Offset of field: aclrtStreamAttrValue::streamPriority",
    ][::std::mem::offset_of!(aclrtStreamAttrValue, streamPriority) - 0usize];
    [
        "Offset of field: aclrtStreamAttrValue::reserve",
    ][::std::mem::offset_of!(aclrtStreamAttrValue, reserve) - 0usize];
};
const _: () = {
    [
        "Size of aclrtMemcpyBatchAttr",
    ][::std::mem::size_of::<aclrtMemcpyBatchAttr>() - 32usize];
    [
        "Alignment of aclrtMemcpyBatchAttr",
    ][::std::mem::align_of::<aclrtMemcpyBatchAttr>() - 4usize];
    [
        "Offset of field: aclrtMemcpyBatchAttr::dstLoc",
    ][::std::mem::offset_of!(aclrtMemcpyBatchAttr, dstLoc) - 0usize];
    [
        "Offset of field: aclrtMemcpyBatchAttr::srcLoc",
    ][::std::mem::offset_of!(aclrtMemcpyBatchAttr, srcLoc) - 8usize];
    [
        "Offset of field: aclrtMemcpyBatchAttr::rsv",
    ][::std::mem::offset_of!(aclrtMemcpyBatchAttr, rsv) - 16usize];
};
const _: () = {
    ["Size of aclrtUuid"][::std::mem::size_of::<aclrtUuid>() - 16usize];
    ["Alignment of aclrtUuid"][::std::mem::align_of::<aclrtUuid>() - 1usize];
    [
        "Offset of field: aclrtUuid::bytes",
    ][::std::mem::offset_of!(aclrtUuid, bytes) - 0usize];
};
/// Value of one allocation attribute.
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtMallocAttrValue {
    pub moduleId: u16,
    pub deviceId: u32,
    pub vaFlag: u32,
    pub rsv: [u8; 8usize],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtRandomNumFuncParaInfo__bindgen_ty_1 {
    pub dropoutBitmaskInfo: aclrtDropoutBitmaskInfo,
    pub uniformDisInfo: aclrtUniformDisInfo,
    pub normalDisInfo: aclrtNormalDisInfo,
}
/// Value of one load option.
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtBinaryLoadOptionValue {
    pub isLazyLoad: u32,
    pub magic: u32,
    pub cpuKernelMode: i32,
    pub rsv: [u32; 4usize],
}
/// Value of one launch attribute.
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtLaunchKernelAttrValue {
    pub schemMode: u8,
    pub localMemorySize: u32,
    pub dynUBufSize: u32,
    pub engineType: aclrtEngineType,
    pub blockDimOffset: u32,
    pub isBlockTaskPrefetch: u8,
    pub isDataDump: u8,
    pub timeout: u16,
    pub timeoutUs: aclrtTimeoutUs,
    pub enableProfiling: u8,
    pub rsv: [u32; 4usize],
}
/// Detail of a device error, by its type.
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtErrorInfoDetail {
    pub uceInfo: aclrtMemUceInfoArray,
    pub aicoreErrType: aclrtAicoreErrorType,
}
/// Value of a process-wide setting; passed by value.
#[repr(C)]
#[derive(Copy, Clone)]
pub union HcclConfigValue {
    pub value: i32,
}
/// Value of one attribute of a stream.
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtStreamAttrValue {
    pub failureMode: u64,
    pub overflowSwitch: u32,
    pub userCustomTag: u32,
    pub cacheOpInfoSwitch: u32,
    pub streamPriority: u32,
    pub reserve: [u32; 4usize],
}
impl aclDataType {
    pub const ACL_DT_UNDEFINED: aclDataType = aclDataType(-1);
    pub const ACL_FLOAT: aclDataType = aclDataType(0);
    pub const ACL_FLOAT16: aclDataType = aclDataType(1);
    pub const ACL_INT8: aclDataType = aclDataType(2);
    pub const ACL_INT32: aclDataType = aclDataType(3);
    pub const ACL_UINT8: aclDataType = aclDataType(4);
    pub const ACL_INT16: aclDataType = aclDataType(6);
    pub const ACL_UINT16: aclDataType = aclDataType(7);
    pub const ACL_UINT32: aclDataType = aclDataType(8);
    pub const ACL_INT64: aclDataType = aclDataType(9);
    pub const ACL_UINT64: aclDataType = aclDataType(10);
    pub const ACL_DOUBLE: aclDataType = aclDataType(11);
    pub const ACL_BOOL: aclDataType = aclDataType(12);
    pub const ACL_STRING: aclDataType = aclDataType(13);
    pub const ACL_COMPLEX64: aclDataType = aclDataType(16);
    pub const ACL_COMPLEX128: aclDataType = aclDataType(17);
    pub const ACL_BF16: aclDataType = aclDataType(27);
    pub const ACL_INT4: aclDataType = aclDataType(29);
    pub const ACL_UINT1: aclDataType = aclDataType(30);
    pub const ACL_COMPLEX32: aclDataType = aclDataType(33);
    pub const ACL_HIFLOAT8: aclDataType = aclDataType(34);
    pub const ACL_FLOAT8_E5M2: aclDataType = aclDataType(35);
    pub const ACL_FLOAT8_E4M3FN: aclDataType = aclDataType(36);
    pub const ACL_FLOAT8_E8M0: aclDataType = aclDataType(37);
    pub const ACL_FLOAT6_E3M2: aclDataType = aclDataType(38);
    pub const ACL_FLOAT6_E2M3: aclDataType = aclDataType(39);
    pub const ACL_FLOAT4_E2M1: aclDataType = aclDataType(40);
    pub const ACL_FLOAT4_E1M2: aclDataType = aclDataType(41);
}
impl aclrtRunMode {
    pub const ACL_DEVICE: aclrtRunMode = aclrtRunMode(0);
    pub const ACL_HOST: aclrtRunMode = aclrtRunMode(1);
}
impl aclCannAttr {
    pub const ACL_CANN_ATTR_UNDEFINED: aclCannAttr = aclCannAttr(-1);
    pub const ACL_CANN_ATTR_INF_NAN: aclCannAttr = aclCannAttr(0);
    pub const ACL_CANN_ATTR_BF16: aclCannAttr = aclCannAttr(1);
    pub const ACL_CANN_ATTR_JIT_COMPILE: aclCannAttr = aclCannAttr(2);
}
impl aclDeviceInfo {
    pub const ACL_DEVICE_INFO_UNDEFINED: aclDeviceInfo = aclDeviceInfo(-1);
    pub const ACL_DEVICE_INFO_AI_CORE_NUM: aclDeviceInfo = aclDeviceInfo(0);
    pub const ACL_DEVICE_INFO_VECTOR_CORE_NUM: aclDeviceInfo = aclDeviceInfo(1);
    pub const ACL_DEVICE_INFO_L2_SIZE: aclDeviceInfo = aclDeviceInfo(2);
}
impl aclCANNPackageName {
    pub const ACL_PKG_NAME_CANN: aclCANNPackageName = aclCANNPackageName(0);
    pub const ACL_PKG_NAME_RUNTIME: aclCANNPackageName = aclCANNPackageName(1);
    pub const ACL_PKG_NAME_COMPILER: aclCANNPackageName = aclCANNPackageName(2);
    pub const ACL_PKG_NAME_HCCL: aclCANNPackageName = aclCANNPackageName(3);
    pub const ACL_PKG_NAME_TOOLKIT: aclCANNPackageName = aclCANNPackageName(4);
    pub const ACL_PKG_NAME_OPP: aclCANNPackageName = aclCANNPackageName(5);
    pub const ACL_PKG_NAME_OPP_KERNEL: aclCANNPackageName = aclCANNPackageName(6);
    pub const ACL_PKG_NAME_DRIVER: aclCANNPackageName = aclCANNPackageName(7);
}
impl aclrtMemAttr {
    pub const ACL_DDR_MEM: aclrtMemAttr = aclrtMemAttr(0);
    pub const ACL_HBM_MEM: aclrtMemAttr = aclrtMemAttr(1);
    pub const ACL_DDR_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(2);
    pub const ACL_DDR_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(3);
    pub const ACL_HBM_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(4);
    pub const ACL_HBM_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(5);
    pub const ACL_DDR_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(6);
    pub const ACL_DDR_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(7);
    pub const ACL_HBM_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(8);
    pub const ACL_HBM_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(9);
    pub const ACL_HBM_MEM_HUGE1G: aclrtMemAttr = aclrtMemAttr(10);
    pub const ACL_HBM_MEM_P2P_HUGE1G: aclrtMemAttr = aclrtMemAttr(11);
    pub const ACL_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(12);
    pub const ACL_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(13);
    pub const ACL_MEM_HUGE1G: aclrtMemAttr = aclrtMemAttr(14);
    pub const ACL_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(15);
    pub const ACL_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(16);
    pub const ACL_MEM_P2P_HUGE1G: aclrtMemAttr = aclrtMemAttr(17);
}
impl aclrtFloatOverflowMode {
    pub const ACL_RT_OVERFLOW_MODE_SATURATION: aclrtFloatOverflowMode = aclrtFloatOverflowMode(
        0,
    );
    pub const ACL_RT_OVERFLOW_MODE_INFNAN: aclrtFloatOverflowMode = aclrtFloatOverflowMode(
        1,
    );
    pub const ACL_RT_OVERFLOW_MODE_UNDEF: aclrtFloatOverflowMode = aclrtFloatOverflowMode(
        2,
    );
}
impl aclrtDeviceStatus {
    pub const ACL_RT_DEVICE_STATUS_NORMAL: aclrtDeviceStatus = aclrtDeviceStatus(0);
    pub const ACL_RT_DEVICE_STATUS_ABNORMAL: aclrtDeviceStatus = aclrtDeviceStatus(1);
    pub const ACL_RT_DEVICE_STATUS_END: aclrtDeviceStatus = aclrtDeviceStatus(65535);
}
impl aclrtDevFeatureType {
    pub const ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV: aclrtDevFeatureType = aclrtDevFeatureType(
        1,
    );
    pub const ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV: aclrtDevFeatureType = aclrtDevFeatureType(
        21,
    );
}
impl aclrtDevAttr {
    pub const ACL_DEV_ATTR_AICPU_CORE_NUM: aclrtDevAttr = aclrtDevAttr(1);
    pub const ACL_DEV_ATTR_AICORE_CORE_NUM: aclrtDevAttr = aclrtDevAttr(101);
    pub const ACL_DEV_ATTR_CUBE_CORE_NUM: aclrtDevAttr = aclrtDevAttr(102);
    pub const ACL_DEV_ATTR_VECTOR_CORE_NUM: aclrtDevAttr = aclrtDevAttr(201);
    pub const ACL_DEV_ATTR_WARP_SIZE: aclrtDevAttr = aclrtDevAttr(202);
    pub const ACL_DEV_ATTR_MAX_THREAD_PER_VECTOR_CORE: aclrtDevAttr = aclrtDevAttr(203);
    pub const ACL_DEV_ATTR_LOCAL_MEM_PER_VECTOR_CORE: aclrtDevAttr = aclrtDevAttr(204);
    pub const ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE: aclrtDevAttr = aclrtDevAttr(204);
    pub const ACL_DEV_ATTR_MAX_GRID_DIM_X: aclrtDevAttr = aclrtDevAttr(205);
    pub const ACL_DEV_ATTR_MAX_GRID_DIM_Y: aclrtDevAttr = aclrtDevAttr(206);
    pub const ACL_DEV_ATTR_MAX_GRID_DIM_Z: aclrtDevAttr = aclrtDevAttr(207);
    pub const ACL_DEV_ATTR_MAX_BLOCK_PER_GRID: aclrtDevAttr = aclrtDevAttr(208);
    pub const ACL_DEV_ATTR_MAX_THREADS_PER_BLOCK: aclrtDevAttr = aclrtDevAttr(209);
    pub const ACL_DEV_ATTR_MAX_BLOCK_DIM_X: aclrtDevAttr = aclrtDevAttr(210);
    pub const ACL_DEV_ATTR_MAX_BLOCK_DIM_Y: aclrtDevAttr = aclrtDevAttr(211);
    pub const ACL_DEV_ATTR_MAX_BLOCK_DIM_Z: aclrtDevAttr = aclrtDevAttr(212);
    pub const ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: aclrtDevAttr = aclrtDevAttr(301);
    pub const ACL_DEV_ATTR_L2_CACHE_SIZE: aclrtDevAttr = aclrtDevAttr(302);
    pub const ACL_DEV_ATTR_SMP_ID: aclrtDevAttr = aclrtDevAttr(401);
    pub const ACL_DEV_ATTR_PHY_CHIP_ID: aclrtDevAttr = aclrtDevAttr(402);
    pub const ACL_DEV_ATTR_SUPER_POD_DEVIDE_ID: aclrtDevAttr = aclrtDevAttr(403);
    pub const ACL_DEV_ATTR_SUPER_POD_DEVICE_ID: aclrtDevAttr = aclrtDevAttr(403);
    pub const ACL_DEV_ATTR_SUPER_POD_SERVER_ID: aclrtDevAttr = aclrtDevAttr(404);
    pub const ACL_DEV_ATTR_SUPER_POD_ID: aclrtDevAttr = aclrtDevAttr(405);
    pub const ACL_DEV_ATTR_CUST_OP_PRIVILEGE: aclrtDevAttr = aclrtDevAttr(406);
    pub const ACL_DEV_ATTR_MAINBOARD_ID: aclrtDevAttr = aclrtDevAttr(407);
    pub const ACL_DEV_ATTR_HD_CONNECT_TYPE: aclrtDevAttr = aclrtDevAttr(408);
    pub const ACL_DEV_ATTR_DEVICE_FORM_FACTOR: aclrtDevAttr = aclrtDevAttr(409);
    pub const ACL_DEV_ATTR_IS_VIRTUAL: aclrtDevAttr = aclrtDevAttr(501);
    pub const ACL_DEV_ATTR_NPU_ARCH: aclrtDevAttr = aclrtDevAttr(601);
}
impl aclrtDevResLimitType {
    pub const ACL_RT_DEV_RES_CUBE_CORE: aclrtDevResLimitType = aclrtDevResLimitType(0);
    pub const ACL_RT_DEV_RES_VECTOR_CORE: aclrtDevResLimitType = aclrtDevResLimitType(1);
}
impl aclrtStreamStatus {
    pub const ACL_STREAM_STATUS_COMPLETE: aclrtStreamStatus = aclrtStreamStatus(0);
    pub const ACL_STREAM_STATUS_NOT_READY: aclrtStreamStatus = aclrtStreamStatus(1);
    pub const ACL_STREAM_STATUS_RESERVED: aclrtStreamStatus = aclrtStreamStatus(65535);
}
impl aclrtCondition {
    pub const ACL_RT_EQUAL: aclrtCondition = aclrtCondition(0);
    pub const ACL_RT_NOT_EQUAL: aclrtCondition = aclrtCondition(1);
    pub const ACL_RT_GREATER: aclrtCondition = aclrtCondition(2);
    pub const ACL_RT_GREATER_OR_EQUAL: aclrtCondition = aclrtCondition(3);
    pub const ACL_RT_LESS: aclrtCondition = aclrtCondition(4);
    pub const ACL_RT_LESS_OR_EQUAL: aclrtCondition = aclrtCondition(5);
}
impl aclrtCompareDataType {
    pub const ACL_RT_SWITCH_INT32: aclrtCompareDataType = aclrtCompareDataType(0);
    pub const ACL_RT_SWITCH_INT64: aclrtCompareDataType = aclrtCompareDataType(1);
}
impl aclrtEventRecordedStatus {
    pub const ACL_EVENT_RECORDED_STATUS_NOT_READY: aclrtEventRecordedStatus = aclrtEventRecordedStatus(
        0,
    );
    pub const ACL_EVENT_RECORDED_STATUS_COMPLETE: aclrtEventRecordedStatus = aclrtEventRecordedStatus(
        1,
    );
}
impl aclrtEventWaitStatus {
    pub const ACL_EVENT_WAIT_STATUS_COMPLETE: aclrtEventWaitStatus = aclrtEventWaitStatus(
        0,
    );
    pub const ACL_EVENT_WAIT_STATUS_NOT_READY: aclrtEventWaitStatus = aclrtEventWaitStatus(
        1,
    );
    pub const ACL_EVENT_WAIT_STATUS_RESERVED: aclrtEventWaitStatus = aclrtEventWaitStatus(
        65535,
    );
}
impl aclrtMemMallocPolicy {
    pub const ACL_MEM_MALLOC_HUGE_FIRST: aclrtMemMallocPolicy = aclrtMemMallocPolicy(0);
    pub const ACL_MEM_MALLOC_HUGE_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(1);
    pub const ACL_MEM_MALLOC_NORMAL_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(2);
    pub const ACL_MEM_MALLOC_HUGE_FIRST_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        3,
    );
    pub const ACL_MEM_MALLOC_HUGE_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        4,
    );
    pub const ACL_MEM_MALLOC_NORMAL_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        5,
    );
    pub const ACL_MEM_MALLOC_HUGE1G_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(6);
    pub const ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        7,
    );
    pub const ACL_MEM_TYPE_LOW_BAND_WIDTH: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        256,
    );
    pub const ACL_MEM_TYPE_HIGH_BAND_WIDTH: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        4096,
    );
    pub const ACL_MEM_ACCESS_USER_SPACE_READONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(
        1048576,
    );
}
impl aclrtMallocAttrType {
    pub const ACL_RT_MEM_ATTR_RSV: aclrtMallocAttrType = aclrtMallocAttrType(0);
    pub const ACL_RT_MEM_ATTR_MODULE_ID: aclrtMallocAttrType = aclrtMallocAttrType(1);
    pub const ACL_RT_MEM_ATTR_DEVICE_ID: aclrtMallocAttrType = aclrtMallocAttrType(2);
    pub const ACL_RT_MEM_ATTR_VA_FLAG: aclrtMallocAttrType = aclrtMallocAttrType(3);
}
impl aclrtMemcpyKind {
    pub const ACL_MEMCPY_HOST_TO_HOST: aclrtMemcpyKind = aclrtMemcpyKind(0);
    pub const ACL_MEMCPY_HOST_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(1);
    pub const ACL_MEMCPY_DEVICE_TO_HOST: aclrtMemcpyKind = aclrtMemcpyKind(2);
    pub const ACL_MEMCPY_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(3);
    pub const ACL_MEMCPY_DEFAULT: aclrtMemcpyKind = aclrtMemcpyKind(4);
    pub const ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(5);
    pub const ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(6);
    pub const ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(7);
}
impl aclrtMemLocationType {
    pub const ACL_MEM_LOCATION_TYPE_HOST: aclrtMemLocationType = aclrtMemLocationType(0);
    pub const ACL_MEM_LOCATION_TYPE_DEVICE: aclrtMemLocationType = aclrtMemLocationType(
        1,
    );
    pub const ACL_MEM_LOCATION_TYPE_UNREGISTERED: aclrtMemLocationType = aclrtMemLocationType(
        2,
    );
    pub const ACL_MEM_LOCATION_TYPE_MANAGED: aclrtMemLocationType = aclrtMemLocationType(
        3,
    );
    pub const ACL_MEM_LOCATION_TYPE_HOST_NUMA: aclrtMemLocationType = aclrtMemLocationType(
        4,
    );
}
impl aclrtHostRegisterType {
    pub const ACL_HOST_REGISTER_MAPPED: aclrtHostRegisterType = aclrtHostRegisterType(0);
    pub const ACL_HOST_REGISTER_IOMEMORY: aclrtHostRegisterType = aclrtHostRegisterType(
        4,
    );
    pub const ACL_HOST_REGISTER_READONLY: aclrtHostRegisterType = aclrtHostRegisterType(
        8,
    );
}
impl aclrtReduceKind {
    pub const ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM: aclrtReduceKind = aclrtReduceKind(10);
    pub const ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX: aclrtReduceKind = aclrtReduceKind(11);
    pub const ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN: aclrtReduceKind = aclrtReduceKind(12);
    pub const ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL: aclrtReduceKind = aclrtReduceKind(13);
}
impl aclrtRandomNumFuncType {
    pub const ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK: aclrtRandomNumFuncType = aclrtRandomNumFuncType(
        0,
    );
    pub const ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS: aclrtRandomNumFuncType = aclrtRandomNumFuncType(
        1,
    );
    pub const ACL_RT_RANDOM_NUM_FUNC_TYPE_NORMAL_DIS: aclrtRandomNumFuncType = aclrtRandomNumFuncType(
        2,
    );
    pub const ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS: aclrtRandomNumFuncType = aclrtRandomNumFuncType(
        3,
    );
}
impl aclrtMemHandleType {
    pub const ACL_MEM_HANDLE_TYPE_NONE: aclrtMemHandleType = aclrtMemHandleType(0);
    pub const ACL_MEM_HANDLE_TYPE_POSIX: aclrtMemHandleType = aclrtMemHandleType(2);
}
impl aclrtMemAllocationType {
    pub const ACL_MEM_ALLOCATION_TYPE_PINNED: aclrtMemAllocationType = aclrtMemAllocationType(
        0,
    );
}
impl aclrtMemGranularityOptions {
    pub const ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM: aclrtMemGranularityOptions = aclrtMemGranularityOptions(
        0,
    );
    pub const ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED: aclrtMemGranularityOptions = aclrtMemGranularityOptions(
        1,
    );
    pub const ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF: aclrtMemGranularityOptions = aclrtMemGranularityOptions(
        65535,
    );
}
impl aclrtMemAccessFlags {
    pub const ACL_RT_MEM_ACCESS_FLAGS_NONE: aclrtMemAccessFlags = aclrtMemAccessFlags(0);
    pub const ACL_RT_MEM_ACCESS_FLAGS_READ: aclrtMemAccessFlags = aclrtMemAccessFlags(1);
    pub const ACL_RT_MEM_ACCESS_FLAGS_READWRITE: aclrtMemAccessFlags = aclrtMemAccessFlags(
        3,
    );
}
impl aclrtMemSharedHandleType {
    pub const ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT: aclrtMemSharedHandleType = aclrtMemSharedHandleType(
        1,
    );
    pub const ACL_MEM_SHARE_HANDLE_TYPE_FABRIC: aclrtMemSharedHandleType = aclrtMemSharedHandleType(
        2,
    );
}
impl aclrtCallbackBlockType {
    pub const ACL_CALLBACK_NO_BLOCK: aclrtCallbackBlockType = aclrtCallbackBlockType(0);
    pub const ACL_CALLBACK_BLOCK: aclrtCallbackBlockType = aclrtCallbackBlockType(1);
}
impl aclmdlRICaptureMode {
    pub const ACL_MODEL_RI_CAPTURE_MODE_GLOBAL: aclmdlRICaptureMode = aclmdlRICaptureMode(
        0,
    );
    pub const ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL: aclmdlRICaptureMode = aclmdlRICaptureMode(
        1,
    );
    pub const ACL_MODEL_RI_CAPTURE_MODE_RELAXED: aclmdlRICaptureMode = aclmdlRICaptureMode(
        2,
    );
}
impl aclmdlRICaptureStatus {
    pub const ACL_MODEL_RI_CAPTURE_STATUS_NONE: aclmdlRICaptureStatus = aclmdlRICaptureStatus(
        0,
    );
    pub const ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE: aclmdlRICaptureStatus = aclmdlRICaptureStatus(
        1,
    );
    pub const ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED: aclmdlRICaptureStatus = aclmdlRICaptureStatus(
        2,
    );
}
impl aclmdlRICondHandleFlag {
    pub const ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT: aclmdlRICondHandleFlag = aclmdlRICondHandleFlag(
        1,
    );
}
impl aclmdlRICondTaskType {
    pub const ACL_MODEL_RI_COND_TYPE_IF: aclmdlRICondTaskType = aclmdlRICondTaskType(0);
    pub const ACL_MODEL_RI_COND_TYPE_WHILE: aclmdlRICondTaskType = aclmdlRICondTaskType(
        1,
    );
    pub const ACL_MODEL_RI_COND_TYPE_SWITCH: aclmdlRICondTaskType = aclmdlRICondTaskType(
        2,
    );
}
impl aclrtBinaryLoadOptionType {
    pub const ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(
        1,
    );
    pub const ACL_RT_BINARY_LOAD_OPT_LAZY_MAGIC: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(
        2,
    );
    pub const ACL_RT_BINARY_LOAD_OPT_MAGIC: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(
        2,
    );
    pub const ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(
        3,
    );
}
impl aclrtLaunchKernelAttrId {
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        1,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_LOCAL_MEMORY_SIZE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        2,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        2,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        3,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        4,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        5,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        6,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        7,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        8,
    );
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(
        9,
    );
}
impl aclrtEngineType {
    pub const ACL_RT_ENGINE_TYPE_AIC: aclrtEngineType = aclrtEngineType(0);
    pub const ACL_RT_ENGINE_TYPE_AIV: aclrtEngineType = aclrtEngineType(1);
}
impl aclrtLastErrLevel {
    pub const ACL_RT_THREAD_LEVEL: aclrtLastErrLevel = aclrtLastErrLevel(0);
}
impl aclrtErrorType {
    pub const ACL_RT_NO_ERROR: aclrtErrorType = aclrtErrorType(0);
    pub const ACL_RT_ERROR_MEMORY: aclrtErrorType = aclrtErrorType(1);
    pub const ACL_RT_ERROR_L2: aclrtErrorType = aclrtErrorType(2);
    pub const ACL_RT_ERROR_AICORE: aclrtErrorType = aclrtErrorType(3);
    pub const ACL_RT_ERROR_LINK: aclrtErrorType = aclrtErrorType(4);
    pub const ACL_RT_ERROR_L3_PORT: aclrtErrorType = aclrtErrorType(5);
    pub const ACL_RT_ERROR_OTHERS: aclrtErrorType = aclrtErrorType(65535);
}
impl aclrtAicoreErrorType {
    pub const ACL_RT_AICORE_ERROR_UNKNOWN: aclrtAicoreErrorType = aclrtAicoreErrorType(
        0,
    );
    pub const ACL_RT_AICORE_ERROR_SW: aclrtAicoreErrorType = aclrtAicoreErrorType(1);
    pub const ACL_RT_AICORE_ERROR_HW_LOCAL: aclrtAicoreErrorType = aclrtAicoreErrorType(
        2,
    );
}
impl aclprofAicoreMetrics {
    pub const ACL_AICORE_ARITHMETIC_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(
        0,
    );
    pub const ACL_AICORE_PIPE_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(
        1,
    );
    pub const ACL_AICORE_MEMORY_BANDWIDTH: aclprofAicoreMetrics = aclprofAicoreMetrics(
        2,
    );
    pub const ACL_AICORE_L0B_AND_WIDTH: aclprofAicoreMetrics = aclprofAicoreMetrics(3);
    pub const ACL_AICORE_RESOURCE_CONFLICT_RATIO: aclprofAicoreMetrics = aclprofAicoreMetrics(
        4,
    );
    pub const ACL_AICORE_MEMORY_UB: aclprofAicoreMetrics = aclprofAicoreMetrics(5);
    pub const ACL_AICORE_L2_CACHE: aclprofAicoreMetrics = aclprofAicoreMetrics(6);
    pub const ACL_AICORE_PIPE_EXECUTE_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(
        7,
    );
    pub const ACL_AICORE_MEMORY_ACCESS: aclprofAicoreMetrics = aclprofAicoreMetrics(8);
    pub const ACL_AICORE_NONE: aclprofAicoreMetrics = aclprofAicoreMetrics(255);
}
impl aclrtStreamState {
    pub const ACL_RT_STREAM_STATE_CREATE_POST: aclrtStreamState = aclrtStreamState(1);
    pub const ACL_RT_STREAM_STATE_DESTROY_PRE: aclrtStreamState = aclrtStreamState(2);
}
impl HcclResult {
    pub const HCCL_SUCCESS: HcclResult = HcclResult(0);
    pub const HCCL_E_PARA: HcclResult = HcclResult(1);
    pub const HCCL_E_PTR: HcclResult = HcclResult(2);
    pub const HCCL_E_MEMORY: HcclResult = HcclResult(3);
    pub const HCCL_E_INTERNAL: HcclResult = HcclResult(4);
    pub const HCCL_E_NOT_SUPPORT: HcclResult = HcclResult(5);
    pub const HCCL_E_NOT_FOUND: HcclResult = HcclResult(6);
    pub const HCCL_E_UNAVAIL: HcclResult = HcclResult(7);
    pub const HCCL_E_SYSCALL: HcclResult = HcclResult(8);
    pub const HCCL_E_TIMEOUT: HcclResult = HcclResult(9);
    pub const HCCL_E_OPEN_FILE_FAILURE: HcclResult = HcclResult(10);
    pub const HCCL_E_TCP_CONNECT: HcclResult = HcclResult(11);
    pub const HCCL_E_ROCE_CONNECT: HcclResult = HcclResult(12);
    pub const HCCL_E_TCP_TRANSFER: HcclResult = HcclResult(13);
    pub const HCCL_E_ROCE_TRANSFER: HcclResult = HcclResult(14);
    pub const HCCL_E_RUNTIME: HcclResult = HcclResult(15);
    pub const HCCL_E_DRV: HcclResult = HcclResult(16);
    pub const HCCL_E_PROFILING: HcclResult = HcclResult(17);
    pub const HCCL_E_CCE: HcclResult = HcclResult(18);
    pub const HCCL_E_NETWORK: HcclResult = HcclResult(19);
    pub const HCCL_E_AGAIN: HcclResult = HcclResult(20);
    pub const HCCL_E_REMOTE: HcclResult = HcclResult(21);
    pub const HCCL_E_SUSPENDING: HcclResult = HcclResult(22);
    pub const HCCL_E_RESERVED: HcclResult = HcclResult(1042);
    pub const HCCL_E_OPRETRY_FAIL: HcclResult = HcclResult(23);
    pub const HCCL_E_OOM: HcclResult = HcclResult(24);
    pub const HCCL_E_IN_STATUS: HcclResult = HcclResult(1041);
}
impl HcclConfig {
    pub const HCCL_DETERMINISTIC: HcclConfig = HcclConfig(0);
    pub const HCCL_CONFIG_RESERVED: HcclConfig = HcclConfig(1);
}
impl HcclDataType {
    pub const HCCL_DATA_TYPE_INT8: HcclDataType = HcclDataType(0);
    pub const HCCL_DATA_TYPE_INT16: HcclDataType = HcclDataType(1);
    pub const HCCL_DATA_TYPE_INT32: HcclDataType = HcclDataType(2);
    pub const HCCL_DATA_TYPE_FP16: HcclDataType = HcclDataType(3);
    pub const HCCL_DATA_TYPE_FP32: HcclDataType = HcclDataType(4);
    pub const HCCL_DATA_TYPE_INT64: HcclDataType = HcclDataType(5);
    pub const HCCL_DATA_TYPE_UINT64: HcclDataType = HcclDataType(6);
    pub const HCCL_DATA_TYPE_UINT8: HcclDataType = HcclDataType(7);
    pub const HCCL_DATA_TYPE_UINT16: HcclDataType = HcclDataType(8);
    pub const HCCL_DATA_TYPE_UINT32: HcclDataType = HcclDataType(9);
    pub const HCCL_DATA_TYPE_FP64: HcclDataType = HcclDataType(10);
    pub const HCCL_DATA_TYPE_BFP16: HcclDataType = HcclDataType(11);
    pub const HCCL_DATA_TYPE_INT128: HcclDataType = HcclDataType(12);
    pub const HCCL_DATA_TYPE_RESERVED: HcclDataType = HcclDataType(255);
    pub const HCCL_DATA_TYPE_HIF8: HcclDataType = HcclDataType(14);
    pub const HCCL_DATA_TYPE_FP8E4M3: HcclDataType = HcclDataType(15);
    pub const HCCL_DATA_TYPE_FP8E5M2: HcclDataType = HcclDataType(16);
    pub const HCCL_DATA_TYPE_FP8E8M0: HcclDataType = HcclDataType(17);
}
impl HcclReduceOp {
    pub const HCCL_REDUCE_SUM: HcclReduceOp = HcclReduceOp(0);
    pub const HCCL_REDUCE_PROD: HcclReduceOp = HcclReduceOp(1);
    pub const HCCL_REDUCE_MAX: HcclReduceOp = HcclReduceOp(2);
    pub const HCCL_REDUCE_MIN: HcclReduceOp = HcclReduceOp(3);
    pub const HCCL_REDUCE_RESERVED: HcclReduceOp = HcclReduceOp(255);
}
impl HcclSendRecvType {
    pub const HCCL_SEND: HcclSendRecvType = HcclSendRecvType(0);
    pub const HCCL_RECV: HcclSendRecvType = HcclSendRecvType(1);
    pub const HCCL_SEND_RECV_RESERVED: HcclSendRecvType = HcclSendRecvType(2);
}
impl aclFormat {
    pub const ACL_FORMAT_UNDEFINED: aclFormat = aclFormat(-1);
    pub const ACL_FORMAT_NCHW: aclFormat = aclFormat(0);
    pub const ACL_FORMAT_NHWC: aclFormat = aclFormat(1);
    pub const ACL_FORMAT_ND: aclFormat = aclFormat(2);
    pub const ACL_FORMAT_NC1HWC0: aclFormat = aclFormat(3);
    pub const ACL_FORMAT_FRACTAL_Z: aclFormat = aclFormat(4);
    pub const ACL_FORMAT_NC1HWC0_C04: aclFormat = aclFormat(12);
    pub const ACL_FORMAT_HWCN: aclFormat = aclFormat(16);
    pub const ACL_FORMAT_NDHWC: aclFormat = aclFormat(27);
    pub const ACL_FORMAT_FRACTAL_NZ: aclFormat = aclFormat(29);
    pub const ACL_FORMAT_NCDHW: aclFormat = aclFormat(30);
    pub const ACL_FORMAT_NDC1HWC0: aclFormat = aclFormat(32);
    pub const ACL_FRACTAL_Z_3D: aclFormat = aclFormat(33);
    pub const ACL_FORMAT_NC: aclFormat = aclFormat(35);
    pub const ACL_FORMAT_NCL: aclFormat = aclFormat(47);
    pub const ACL_FORMAT_FRACTAL_NZ_C0_16: aclFormat = aclFormat(50);
    pub const ACL_FORMAT_FRACTAL_NZ_C0_32: aclFormat = aclFormat(51);
    pub const ACL_FORMAT_FRACTAL_NZ_C0_2: aclFormat = aclFormat(52);
    pub const ACL_FORMAT_FRACTAL_NZ_C0_4: aclFormat = aclFormat(53);
    pub const ACL_FORMAT_FRACTAL_NZ_C0_8: aclFormat = aclFormat(54);
}
impl aclCompileOpt {
    pub const ACL_PRECISION_MODE: aclCompileOpt = aclCompileOpt(0);
    pub const ACL_AICORE_NUM: aclCompileOpt = aclCompileOpt(1);
    pub const ACL_AUTO_TUNE_MODE: aclCompileOpt = aclCompileOpt(2);
    pub const ACL_OP_SELECT_IMPL_MODE: aclCompileOpt = aclCompileOpt(3);
    pub const ACL_OPTYPELIST_FOR_IMPLMODE: aclCompileOpt = aclCompileOpt(4);
    pub const ACL_OP_DEBUG_LEVEL: aclCompileOpt = aclCompileOpt(5);
    pub const ACL_DEBUG_DIR: aclCompileOpt = aclCompileOpt(6);
    pub const ACL_OP_COMPILER_CACHE_MODE: aclCompileOpt = aclCompileOpt(7);
    pub const ACL_OP_COMPILER_CACHE_DIR: aclCompileOpt = aclCompileOpt(8);
    pub const ACL_OP_PERFORMANCE_MODE: aclCompileOpt = aclCompileOpt(9);
    pub const ACL_OP_JIT_COMPILE: aclCompileOpt = aclCompileOpt(10);
    pub const ACL_OP_DETERMINISTIC: aclCompileOpt = aclCompileOpt(11);
    pub const ACL_CUSTOMIZE_DTYPES: aclCompileOpt = aclCompileOpt(12);
    pub const ACL_OP_PRECISION_MODE: aclCompileOpt = aclCompileOpt(13);
    pub const ACL_ALLOW_HF32: aclCompileOpt = aclCompileOpt(14);
    pub const ACL_PRECISION_MODE_V2: aclCompileOpt = aclCompileOpt(15);
    pub const ACL_OP_DEBUG_OPTION: aclCompileOpt = aclCompileOpt(16);
}
impl aclSysParamOpt {
    pub const ACL_OPT_DETERMINISTIC: aclSysParamOpt = aclSysParamOpt(0);
    pub const ACL_OPT_ENABLE_DEBUG_KERNEL: aclSysParamOpt = aclSysParamOpt(1);
    pub const ACL_OPT_STRONG_CONSISTENCY: aclSysParamOpt = aclSysParamOpt(2);
}
impl aclrtCmoType {
    pub const ACL_RT_CMO_TYPE_PREFETCH: aclrtCmoType = aclrtCmoType(0);
    pub const ACL_RT_CMO_TYPE_WRITEBACK: aclrtCmoType = aclrtCmoType(1);
    pub const ACL_RT_CMO_TYPE_INVALID: aclrtCmoType = aclrtCmoType(2);
    pub const ACL_RT_CMO_TYPE_FLUSH: aclrtCmoType = aclrtCmoType(3);
}
impl aclrtStreamAttr {
    pub const ACL_STREAM_ATTR_FAILURE_MODE: aclrtStreamAttr = aclrtStreamAttr(1);
    pub const ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: aclrtStreamAttr = aclrtStreamAttr(2);
    pub const ACL_STREAM_ATTR_USER_CUSTOM_TAG: aclrtStreamAttr = aclrtStreamAttr(3);
    pub const ACL_STREAM_ATTR_CACHE_OP_INFO: aclrtStreamAttr = aclrtStreamAttr(4);
    pub const ACL_STREAM_ATTR_PRIORITY: aclrtStreamAttr = aclrtStreamAttr(5);
}
