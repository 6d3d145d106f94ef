//! Every C function the project calls, declared once.
//!
//! Input: nothing. Output: [`for_each_symbol!`], a macro that hands the whole list to a macro of the caller; the
//! [`Table`](crate::Table), the loader and the emulator are made from it.
//!
//! Invariants: a C function appears exactly once, and `table.rs` checks each line against the prototype bindgen read.
//! What it does not do: describe the functions; that is in `include/*.h`.

/// Calls `$callback!` with the list of all C functions.
///
/// The list has three parts:
/// * `required { [library] fn name(arguments) -> result; … }`: every supported CANN (8.1 and newer) has the function.
/// * `optional { [library, "since"] fn name(arguments) -> result; … }`: younger than 8.1; `since` names the CANN with it.
/// * `operators { run, plan(arguments); … }`: an aclnn operator of `libopapi.so`, required. `plan` takes the arguments
///   and then `workspace_size: *mut u64, executor: *mut *mut aclOpExecutor`; `run` takes `workspace: *mut c_void,
///   workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream`. Both return `aclnnStatus`.
///
/// `library` is `acl`, `hccl` or `nnopbase`. Types are named as in the root of this crate (`c_void` and `c_char` are those
/// of [`core::ffi`]), so the caller needs them in scope.
#[macro_export]
macro_rules! for_each_symbol {
    ($callback:ident) => { $callback! {
    required {
        // Life of the runtime, versions and messages
        [acl] fn aclInit(config_path: *const c_char) -> aclError;
        [acl] fn aclFinalize() -> aclError;
        [acl] fn aclGetRecentErrMsg() -> *const c_char;
        [acl] fn aclrtGetVersion(major_version: *mut i32, minor_version: *mut i32, patch_version: *mut i32) -> aclError;
        [acl] fn aclrtGetSocName() -> *const c_char;
        [acl] fn aclrtGetRunMode(run_mode: *mut aclrtRunMode) -> aclError;
        [acl] fn aclGetCannAttribute(cann_attr: aclCannAttr, value: *mut i32) -> aclError;
        [acl] fn aclGetCannAttributeList(cann_attr_list: *mut *const aclCannAttr, num: *mut usize) -> aclError;
        [acl] fn aclGetDeviceCapability(device_id: u32, device_info: aclDeviceInfo, value: *mut i64) -> aclError;
        [acl] fn aclsysGetCANNVersion(name: aclCANNPackageName, version: *mut aclCANNPackageVersion) -> aclError;
        // Devices
        [acl] fn aclrtSetDevice(device_id: i32) -> aclError;
        [acl] fn aclrtResetDevice(device_id: i32) -> aclError;
        [acl] fn aclrtResetDeviceForce(device_id: i32) -> aclError;
        [acl] fn aclrtGetDevice(device_id: *mut i32) -> aclError;
        [acl] fn aclrtGetDeviceCount(count: *mut u32) -> aclError;
        [acl] fn aclrtSynchronizeDevice() -> aclError;
        [acl] fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError;
        [acl] fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
        [acl] fn aclrtSetDeviceSatMode(mode: aclrtFloatOverflowMode) -> aclError;
        [acl] fn aclrtGetDeviceSatMode(mode: *mut aclrtFloatOverflowMode) -> aclError;
        [acl] fn aclrtDeviceCanAccessPeer(can_access_peer: *mut i32, device_id: i32, peer_device_id: i32) -> aclError;
        [acl] fn aclrtDeviceEnablePeerAccess(peer_device_id: i32, flags: u32) -> aclError;
        [acl] fn aclrtDeviceDisablePeerAccess(peer_device_id: i32) -> aclError;
        [acl] fn aclrtDeviceGetBareTgid(pid: *mut i32) -> aclError;
        [acl] fn aclrtQueryDeviceStatus(device_id: i32, device_status: *mut aclrtDeviceStatus) -> aclError;
        [acl] fn aclrtGetDeviceUtilizationRate(device_id: i32, utilization_info: *mut aclrtUtilizationInfo) -> aclError;
        [acl] fn aclrtDeviceTaskAbort(device_id: i32, timeout: u32) -> aclError;
        // Contexts
        [acl] fn aclrtCreateContext(context: *mut aclrtContext, device_id: i32) -> aclError;
        [acl] fn aclrtDestroyContext(context: aclrtContext) -> aclError;
        [acl] fn aclrtSetCurrentContext(context: aclrtContext) -> aclError;
        [acl] fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError;
        // Streams
        [acl] fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError;
        [acl] fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, priority: u32, flag: u32) -> aclError;
        [acl] fn aclrtDestroyStream(stream: aclrtStream) -> aclError;
        [acl] fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError;
        [acl] fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
        [acl] fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) -> aclError;
        [acl] fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
        [acl] fn aclrtStreamGetId(stream: aclrtStream, stream_id: *mut i32) -> aclError;
        [acl] fn aclrtStreamAbort(stream: aclrtStream) -> aclError;
        [acl] fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> aclError;
        // Events
        [acl] fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError;
        [acl] fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
        [acl] fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
        [acl] fn aclrtDestroyEvent(event: aclrtEvent) -> aclError;
        [acl] fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
        [acl] fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
        [acl] fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError;
        [acl] fn aclrtQueryEventWaitStatus(event: aclrtEvent, status: *mut aclrtEventWaitStatus) -> aclError;
        [acl] fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;
        [acl] fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
        [acl] fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) -> aclError;
        [acl] fn aclrtEventElapsedTime(ms: *mut f32, start_event: aclrtEvent, end_event: aclrtEvent) -> aclError;
        [acl] fn aclrtEventGetTimestamp(event: aclrtEvent, timestamp: *mut u64) -> aclError;
        // Memory and copies
        [acl] fn aclrtMalloc(dev_ptr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
        [acl] fn aclrtMallocAlign32(dev_ptr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
        [acl] fn aclrtMallocCached(dev_ptr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
        [acl] fn aclrtMallocWithCfg(dev_ptr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy,
            cfg: *mut aclrtMallocConfig) -> aclError;
        [acl] fn aclrtFree(dev_ptr: *mut c_void) -> aclError;
        [acl] fn aclrtMallocHost(host_ptr: *mut *mut c_void, size: usize) -> aclError;
        [acl] fn aclrtFreeHost(host_ptr: *mut c_void) -> aclError;
        [acl] fn aclrtMemcpy(dst: *mut c_void, dest_max: usize, src: *const c_void, count: usize,
            kind: aclrtMemcpyKind) -> aclError;
        [acl] fn aclrtMemcpyAsync(dst: *mut c_void, dest_max: usize, src: *const c_void, count: usize,
            kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
        [acl] fn aclrtMemcpy2d(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize,
            height: usize, kind: aclrtMemcpyKind) -> aclError;
        [acl] fn aclrtMemcpy2dAsync(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize,
            height: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
        [acl] fn aclrtMemset(dev_ptr: *mut c_void, max_count: usize, value: i32, count: usize) -> aclError;
        [acl] fn aclrtMemsetAsync(dev_ptr: *mut c_void, max_count: usize, value: i32, count: usize,
            stream: aclrtStream) -> aclError;
        [acl] fn aclrtPointerGetAttributes(ptr: *const c_void, attributes: *mut aclrtPtrAttributes) -> aclError;
        [acl] fn aclrtHostRegister(ptr: *mut c_void, size: u64, type_: aclrtHostRegisterType,
            dev_ptr: *mut *mut c_void) -> aclError;
        [acl] fn aclrtHostUnregister(ptr: *mut c_void) -> aclError;
        // Virtual addresses, shared and imported memory
        [acl] fn aclrtReserveMemAddress(virtual_ptr: *mut *mut c_void, size: usize, alignment: usize,
            expect_ptr: *mut c_void, flags: u64) -> aclError;
        [acl] fn aclrtReleaseMemAddress(virtual_ptr: *mut c_void) -> aclError;
        [acl] fn aclrtMallocPhysical(handle: *mut aclrtDrvMemHandle, size: usize, prop: *const aclrtPhysicalMemProp,
            flags: u64) -> aclError;
        [acl] fn aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError;
        [acl] fn aclrtMapMem(virtual_ptr: *mut c_void, size: usize, offset: usize, handle: aclrtDrvMemHandle,
            flags: u64) -> aclError;
        [acl] fn aclrtUnmapMem(virtual_ptr: *mut c_void) -> aclError;
        [acl] fn aclrtMemGetAllocationGranularity(prop: *mut aclrtPhysicalMemProp, option: aclrtMemGranularityOptions,
            granularity: *mut usize) -> aclError;
        [acl] fn aclrtMemExportToShareableHandle(handle: aclrtDrvMemHandle, handle_type: aclrtMemHandleType, flags: u64,
            shareable_handle: *mut u64) -> aclError;
        [acl] fn aclrtMemImportFromShareableHandle(shareable_handle: u64, device_id: i32,
            handle: *mut aclrtDrvMemHandle) -> aclError;
        [acl] fn aclrtMemSetPidToShareableHandle(shareable_handle: u64, pid: *mut i32, pid_num: usize) -> aclError;
        // Host callbacks
        [acl] fn aclrtLaunchCallback(callback: aclrtCallback, user_data: *mut c_void,
            block_type: aclrtCallbackBlockType, stream: aclrtStream) -> aclError;
        [acl] fn aclrtSubscribeReport(thread_id: u64, stream: aclrtStream) -> aclError;
        [acl] fn aclrtUnSubscribeReport(thread_id: u64, stream: aclrtStream) -> aclError;
        [acl] fn aclrtProcessReport(timeout: i32) -> aclError;
        [acl] fn aclrtSubscribeHostFunc(host_func_thread_id: u64, exe_stream: aclrtStream) -> aclError;
        [acl] fn aclrtUnSubscribeHostFunc(host_func_thread_id: u64, exe_stream: aclrtStream) -> aclError;
        [acl] fn aclrtProcessHostFunc(timeout: i32) -> aclError;
        // Capture and replay
        [acl] fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
        [acl] fn aclmdlRICaptureEnd(stream: aclrtStream, model_ri: *mut aclmdlRI) -> aclError;
        [acl] fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus,
            model_ri: *mut aclmdlRI) -> aclError;
        [acl] fn aclmdlRICaptureThreadExchangeMode(mode: *mut aclmdlRICaptureMode) -> aclError;
        [acl] fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError;
        [acl] fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, handle: *mut aclrtTaskGrp) -> aclError;
        [acl] fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, handle: aclrtTaskGrp) -> aclError;
        [acl] fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError;
        [acl] fn aclmdlRIExecuteAsync(model_ri: aclmdlRI, stream: aclrtStream) -> aclError;
        [acl] fn aclmdlRIDestroy(model_ri: aclmdlRI) -> aclError;
        [acl] fn aclmdlRIDebugPrint(model_ri: aclmdlRI) -> aclError;
        // Kernels
        [acl] fn aclrtBinaryLoadFromFile(bin_path: *const c_char, options: *mut aclrtBinaryLoadOptions,
            bin_handle: *mut aclrtBinHandle) -> aclError;
        [acl] fn aclrtBinaryUnLoad(bin_handle: aclrtBinHandle) -> aclError;
        [acl] fn aclrtBinaryGetFunction(bin_handle: aclrtBinHandle, kernel_name: *const c_char,
            func_handle: *mut aclrtFuncHandle) -> aclError;
        [acl] fn aclrtKernelArgsInit(func_handle: aclrtFuncHandle, args_handle: *mut aclrtArgsHandle) -> aclError;
        [acl] fn aclrtKernelArgsAppend(args_handle: aclrtArgsHandle, param: *mut c_void, param_size: usize,
            param_handle: *mut aclrtParamHandle) -> aclError;
        [acl] fn aclrtKernelArgsAppendPlaceHolder(args_handle: aclrtArgsHandle,
            param_handle: *mut aclrtParamHandle) -> aclError;
        [acl] fn aclrtKernelArgsGetPlaceHolderBuffer(args_handle: aclrtArgsHandle, param_handle: aclrtParamHandle,
            data_size: usize, buffer_addr: *mut *mut c_void) -> aclError;
        [acl] fn aclrtKernelArgsFinalize(args_handle: aclrtArgsHandle) -> aclError;
        [acl] fn aclrtLaunchKernel(func_handle: aclrtFuncHandle, num_blocks: u32, args_data: *const c_void,
            args_size: usize, stream: aclrtStream) -> aclError;
        [acl] fn aclrtLaunchKernelWithConfig(func_handle: aclrtFuncHandle, num_blocks: u32, stream: aclrtStream,
            cfg: *mut aclrtLaunchKernelCfg, args_handle: aclrtArgsHandle, reserve: *mut c_void) -> aclError;
        // Errors and exceptions
        [acl] fn aclrtGetLastError(level: aclrtLastErrLevel) -> aclError;
        [acl] fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> aclError;
        [acl] fn aclrtSetExceptionInfoCallback(callback: aclrtExceptionInfoCallback) -> aclError;
        [acl] fn aclrtGetTaskIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
        [acl] fn aclrtGetStreamIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
        [acl] fn aclrtGetThreadIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
        [acl] fn aclrtGetDeviceIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
        [acl] fn aclrtGetErrorCodeFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
        [acl] fn aclrtGetThreadLastTaskId(task_id: *mut u32) -> aclError;
        // Values of data types, data buffers, profiling
        [acl] fn aclDataTypeSize(data_type: aclDataType) -> usize;
        [acl] fn aclFloat16ToFloat(value: aclFloat16) -> f32;
        [acl] fn aclFloatToFloat16(value: f32) -> aclFloat16;
        [acl] fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut aclDataBuffer;
        [acl] fn aclDestroyDataBuffer(data_buffer: *const aclDataBuffer) -> aclError;
        [acl] fn aclGetDataBufferAddr(data_buffer: *const aclDataBuffer) -> *mut c_void;
        [acl] fn aclGetDataBufferSizeV2(data_buffer: *const aclDataBuffer) -> usize;
        [acl] fn aclUpdateDataBuffer(data_buffer: *mut aclDataBuffer, data: *mut c_void, size: usize) -> aclError;
        [acl] fn aclprofInit(profiler_result_path: *const c_char, length: usize) -> aclError;
        [acl] fn aclprofFinalize() -> aclError;
        [acl] fn aclprofCreateConfig(device_id_list: *mut u32, device_nums: u32, aicore_metrics: aclprofAicoreMetrics,
            aicore_events: *const aclprofAicoreEvents, data_type_config: u64) -> *mut aclprofConfig;
        [acl] fn aclprofDestroyConfig(profiler_config: *const aclprofConfig) -> aclError;
        [acl] fn aclprofStart(profiler_config: *const aclprofConfig) -> aclError;
        [acl] fn aclprofStop(profiler_config: *const aclprofConfig) -> aclError;
        [acl] fn aclprofMarkEx(msg: *const c_char, msg_len: usize, stream: aclrtStream) -> aclError;
        // Communicators
        [hccl] fn HcclGetRootInfo(root_info: *mut HcclRootInfo) -> HcclResult;
        [hccl] fn HcclCommInitRootInfo(n_ranks: u32, root_info: *const HcclRootInfo, rank: u32,
            comm: *mut HcclComm) -> HcclResult;
        [hccl] fn HcclCommInitRootInfoConfig(n_ranks: u32, root_info: *const HcclRootInfo, rank: u32,
            config: *const HcclCommConfig, comm: *mut HcclComm) -> HcclResult;
        [hccl] fn HcclCommInitAll(ndev: u32, devices: *mut i32, comms: *mut HcclComm) -> HcclResult;
        [hccl] fn HcclCommInitClusterInfo(cluster_info: *const c_char, rank: u32, comm: *mut HcclComm) -> HcclResult;
        [hccl] fn HcclCommInitClusterInfoConfig(cluster_info: *const c_char, rank: u32, config: *mut HcclCommConfig,
            comm: *mut HcclComm) -> HcclResult;
        [hccl] fn HcclCreateSubCommConfig(comm: *mut HcclComm, rank_num: u32, rank_ids: *mut u32, sub_comm_id: u64,
            sub_comm_rank_id: u32, config: *mut HcclCommConfig, sub_comm: *mut HcclComm) -> HcclResult;
        [hccl] fn HcclCommDestroy(comm: HcclComm) -> HcclResult;
        [hccl] fn HcclGetRankSize(comm: HcclComm, rank_size: *mut u32) -> HcclResult;
        [hccl] fn HcclGetRankId(comm: HcclComm, rank: *mut u32) -> HcclResult;
        [hccl] fn HcclGetCommName(comm: HcclComm, comm_name: *mut c_char) -> HcclResult;
        [hccl] fn HcclGetCommAsyncError(comm: HcclComm, async_error: *mut HcclResult) -> HcclResult;
        [hccl] fn HcclGetErrorString(code: HcclResult) -> *const c_char;
        [hccl] fn HcclGetCommConfigCapability() -> u32;
        [hccl] fn HcclSetConfig(config: HcclConfig, config_value: HcclConfigValue) -> HcclResult;
        [hccl] fn HcclGetConfig(config: HcclConfig, config_value: *mut HcclConfigValue) -> HcclResult;
        [hccl] fn HcclCommSuspend(comm: HcclComm) -> HcclResult;
        [hccl] fn HcclCommResume(comm: HcclComm) -> HcclResult;
        [hccl] fn HcclCommSetMemoryRange(comm: HcclComm, base_vir_ptr: *mut c_void, size: usize, alignment: usize,
            flags: u64) -> HcclResult;
        [hccl] fn HcclCommUnsetMemoryRange(comm: HcclComm, base_vir_ptr: *mut c_void) -> HcclResult;
        [hccl] fn HcclCommActivateCommMemory(comm: HcclComm, virtual_ptr: *mut c_void, size: usize, offset: usize,
            handle: aclrtDrvMemHandle, flags: u64) -> HcclResult;
        [hccl] fn HcclCommDeactivateCommMemory(comm: HcclComm, virtual_ptr: *mut c_void) -> HcclResult;
        // Collectives
        [hccl] fn HcclAllReduce(send_buf: *mut c_void, recv_buf: *mut c_void, count: u64, data_type: HcclDataType,
            op: HcclReduceOp, comm: HcclComm, stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclReduce(send_buf: *mut c_void, recv_buf: *mut c_void, count: u64, data_type: HcclDataType,
            op: HcclReduceOp, root: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclReduceScatter(send_buf: *mut c_void, recv_buf: *mut c_void, recv_count: u64,
            data_type: HcclDataType, op: HcclReduceOp, comm: HcclComm, stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclReduceScatterV(send_buf: *mut c_void, send_counts: *const c_void, send_displs: *const c_void,
            recv_buf: *mut c_void, recv_count: u64, data_type: HcclDataType, op: HcclReduceOp, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclBroadcast(buf: *mut c_void, count: u64, data_type: HcclDataType, root: u32, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclScatter(send_buf: *mut c_void, recv_buf: *mut c_void, recv_count: u64, data_type: HcclDataType,
            root: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclAllGather(send_buf: *mut c_void, recv_buf: *mut c_void, send_count: u64, data_type: HcclDataType,
            comm: HcclComm, stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclAllGatherV(send_buf: *mut c_void, send_count: u64, recv_buf: *mut c_void,
            recv_counts: *const c_void, recv_displs: *const c_void, data_type: HcclDataType, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclAlltoAll(send_buf: *const c_void, send_count: u64, send_type: HcclDataType,
            recv_buf: *const c_void, recv_count: u64, recv_type: HcclDataType, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclAlltoAllV(send_buf: *const c_void, send_counts: *const c_void, sdispls: *const c_void,
            send_type: HcclDataType, recv_buf: *const c_void, recv_counts: *const c_void, rdispls: *const c_void,
            recv_type: HcclDataType, comm: HcclComm, stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclSend(send_buf: *mut c_void, count: u64, data_type: HcclDataType, dest_rank: u32, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclRecv(recv_buf: *mut c_void, count: u64, data_type: HcclDataType, src_rank: u32, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclBatchSendRecv(send_recv_info: *mut HcclSendRecvItem, item_num: u32, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
        [hccl] fn HcclBarrier(comm: HcclComm, stream: aclrtStream) -> HcclResult;
        // Tensors, scalars, arrays
        [nnopbase] fn aclnnInit(config_path: *const c_char) -> aclnnStatus;
        [nnopbase] fn aclnnFinalize() -> aclnnStatus;
        [nnopbase] fn aclCreateTensor(view_dims: *const i64, view_dims_num: u64, data_type: aclDataType,
            stride: *const i64, offset: i64, format: aclFormat, storage_dims: *const i64, storage_dims_num: u64,
            tensor_data: *mut c_void) -> *mut aclTensor;
        [nnopbase] fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus;
        [nnopbase] fn aclInitTensor(tensor: *mut aclTensor, view_dims: *const i64, view_dims_num: u64,
            data_type: aclDataType, stride: *const i64, offset: i64, format: aclFormat, storage_dims: *const i64,
            storage_dims_num: u64, tensor_data_addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList;
        [nnopbase] fn aclDestroyTensorList(array: *const aclTensorList) -> aclnnStatus;
        [nnopbase] fn aclCreateScalar(value: *mut c_void, data_type: aclDataType) -> *mut aclScalar;
        [nnopbase] fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus;
        [nnopbase] fn aclCreateScalarList(value: *const *const aclScalar, size: u64) -> *mut aclScalarList;
        [nnopbase] fn aclDestroyScalarList(array: *const aclScalarList) -> aclnnStatus;
        [nnopbase] fn aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray;
        [nnopbase] fn aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus;
        [nnopbase] fn aclCreateFloatArray(value: *const f32, size: u64) -> *mut aclFloatArray;
        [nnopbase] fn aclDestroyFloatArray(array: *const aclFloatArray) -> aclnnStatus;
        [nnopbase] fn aclCreateBoolArray(value: *const bool, size: u64) -> *mut aclBoolArray;
        [nnopbase] fn aclDestroyBoolArray(array: *const aclBoolArray) -> aclnnStatus;
        [nnopbase] fn aclGetViewShape(tensor: *const aclTensor, view_dims: *mut *mut i64,
            view_dims_num: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetStorageShape(tensor: *const aclTensor, storage_dims: *mut *mut i64,
            storage_dims_num: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetViewStrides(tensor: *const aclTensor, strides_value: *mut *mut i64,
            strides_num: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetViewOffset(tensor: *const aclTensor, offset: *mut i64) -> aclnnStatus;
        [nnopbase] fn aclGetFormat(tensor: *const aclTensor, format: *mut aclFormat) -> aclnnStatus;
        [nnopbase] fn aclGetDataType(tensor: *const aclTensor, data_type: *mut aclDataType) -> aclnnStatus;
        [nnopbase] fn aclGetRawTensorAddr(tensor: *const aclTensor, addr: *mut *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclSetRawTensorAddr(tensor: *mut aclTensor, addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclGetTensorListSize(tensor_list: *const aclTensorList, size: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetScalarListSize(scalar_list: *const aclScalarList, size: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetIntArraySize(array: *const aclIntArray, size: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetFloatArraySize(array: *const aclFloatArray, size: *mut u64) -> aclnnStatus;
        [nnopbase] fn aclGetBoolArraySize(array: *const aclBoolArray, size: *mut u64) -> aclnnStatus;
        // Executors
        [nnopbase] fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus;
        [nnopbase] fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus;
        [nnopbase] fn aclSetTensorAddr(executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor,
            addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclSetInputTensorAddr(executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor,
            addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclSetOutputTensorAddr(executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor,
            addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclSetDynamicTensorAddr(executor: *mut aclOpExecutor, ir_index: usize, relative_index: usize,
            tensors: *mut aclTensorList, addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclSetDynamicInputTensorAddr(executor: *mut aclOpExecutor, ir_index: usize, relative_index: usize,
            tensors: *mut aclTensorList, addr: *mut c_void) -> aclnnStatus;
        [nnopbase] fn aclSetDynamicOutputTensorAddr(executor: *mut aclOpExecutor, ir_index: usize,
            relative_index: usize, tensors: *mut aclTensorList, addr: *mut c_void) -> aclnnStatus;
    }
    optional {
        // Life of the runtime, versions and messages
        [acl, "9.x"] fn aclFinalizeReference(ref_count: *mut u64) -> aclError;
        [acl, "9.x"] fn aclrtCheckArchCompatibility(soc_version: *const c_char, can_compatible: *mut i32) -> aclError;
        [acl, "9.x"] fn aclsysGetVersionStr(pkg_name: *mut c_char, version_str: *mut c_char) -> aclError;
        [acl, "9.x"] fn aclsysGetVersionNum(pkg_name: *mut c_char, version_num: *mut i32) -> aclError;
        // Devices
        [acl, "9.x"] fn aclrtDeviceGetStreamPriorityRange(least_priority: *mut i32,
            greatest_priority: *mut i32) -> aclError;
        [acl, "9.x"] fn aclrtGetDeviceCapability(device_id: i32, dev_feature_type: aclrtDevFeatureType,
            value: *mut i32) -> aclError;
        [acl, "9.x"] fn aclrtGetDeviceInfo(device_id: u32, attr: aclrtDevAttr, value: *mut i64) -> aclError;
        [acl, "9.x"] fn aclrtGetDeviceResLimit(device_id: i32, type_: aclrtDevResLimitType,
            value: *mut u32) -> aclError;
        [acl, "9.x"] fn aclrtSetDeviceResLimit(device_id: i32, type_: aclrtDevResLimitType, value: u32) -> aclError;
        [acl, "9.x"] fn aclrtResetDeviceResLimit(device_id: i32) -> aclError;
        [acl, "9.x"] fn aclrtGetResInCurrentThread(type_: aclrtDevResLimitType, value: *mut u32) -> aclError;
        // Contexts
        [acl, "9.x"] fn aclrtCtxGetCurrentDefaultStream(stream: *mut aclrtStream) -> aclError;
        // Streams
        [acl, "9.x"] fn aclrtStreamGetPriority(stream: aclrtStream, priority: *mut u32) -> aclError;
        [acl, "9.x"] fn aclrtStreamGetFlags(stream: aclrtStream, flags: *mut u32) -> aclError;
        [acl, "9.x"] fn aclrtStreamStop(stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtActiveStream(active_stream: aclrtStream, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtSwitchStream(left_value: *mut c_void, cond: aclrtCondition, right_value: *mut c_void,
            data_type: aclrtCompareDataType, true_stream: aclrtStream, false_stream: aclrtStream,
            stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtRegStreamStateCallback(reg_name: *const c_char, callback: aclrtStreamStateCallback,
            args: *mut c_void) -> aclError;
        // Events
        [acl, "9.x"] fn aclrtRecordEventWithFlag(event: aclrtEvent, stream: aclrtStream, flag: u32) -> aclError;
        [acl, "9.x"] fn aclrtStreamWaitEventWithFlag(stream: aclrtStream, event: aclrtEvent, timeout: u32,
            flag: u32) -> aclError;
        [acl, "9.x"] fn aclrtIpcGetEventHandle(event: aclrtEvent, handle: *mut aclrtIpcEventHandle) -> aclError;
        [acl, "9.x"] fn aclrtIpcOpenEventHandle(handle: aclrtIpcEventHandle, event: *mut aclrtEvent) -> aclError;
        // Notifies, labels and values in device memory
        [acl, "9.x"] fn aclrtCreateNotify(notify: *mut aclrtNotify, flag: u64) -> aclError;
        [acl, "9.x"] fn aclrtDestroyNotify(notify: aclrtNotify) -> aclError;
        [acl, "9.x"] fn aclrtRecordNotify(notify: aclrtNotify, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtWaitAndResetNotify(notify: aclrtNotify, stream: aclrtStream, timeout: u32) -> aclError;
        [acl, "9.x"] fn aclrtNotifyGetExportKey(notify: aclrtNotify, key: *mut c_char, len: usize,
            flags: u64) -> aclError;
        [acl, "9.x"] fn aclrtNotifyImportByKey(notify: *mut aclrtNotify, key: *const c_char, flags: u64) -> aclError;
        [acl, "9.x"] fn aclrtNotifySetImportPid(notify: aclrtNotify, pid: *mut i32, num: usize) -> aclError;
        [acl, "9.x"] fn aclrtCreateLabel(label: *mut aclrtLabel) -> aclError;
        [acl, "9.x"] fn aclrtCreateLabelList(labels: *mut aclrtLabel, num: usize,
            label_list: *mut aclrtLabelList) -> aclError;
        [acl, "9.x"] fn aclrtDestroyLabel(label: aclrtLabel) -> aclError;
        [acl, "9.x"] fn aclrtDestroyLabelList(label_list: aclrtLabelList) -> aclError;
        [acl, "9.x"] fn aclrtSetLabel(label: aclrtLabel, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtSwitchLabelByIndex(ptr: *mut c_void, max_value: u32, label_list: aclrtLabelList,
            stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtValueWrite(dev_addr: *mut c_void, value: u64, flag: u32, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtValueWait(dev_addr: *mut c_void, value: u64, flag: u32, stream: aclrtStream) -> aclError;
        // Memory and copies
        [acl, "9.x"] fn aclrtReduceAsync(dst: *mut c_void, src: *const c_void, count: u64, kind: aclrtReduceKind,
            type_: aclDataType, stream: aclrtStream, reserve: *mut c_void) -> aclError;
        [acl, "9.x"] fn aclrtRandomNumAsync(task_info: *const aclrtRandomNumTaskInfo, stream: aclrtStream,
            reserve: *mut c_void) -> aclError;
        // Virtual addresses, shared and imported memory
        [acl, "9.x"] fn aclrtMemSetAccess(virtual_ptr: *mut c_void, size: usize, desc: *mut aclrtMemAccessDesc,
            count: usize) -> aclError;
        [acl, "9.x"] fn aclrtMemExportToShareableHandleV2(handle: aclrtDrvMemHandle, flags: u64,
            share_type: aclrtMemSharedHandleType, shareable_handle: *mut c_void) -> aclError;
        [acl, "9.x"] fn aclrtMemImportFromShareableHandleV2(shareable_handle: *mut c_void,
            share_type: aclrtMemSharedHandleType, flags: u64, handle: *mut aclrtDrvMemHandle) -> aclError;
        [acl, "9.x"] fn aclrtIpcMemGetExportKey(dev_ptr: *mut c_void, size: usize, key: *mut c_char, len: usize,
            flags: u64) -> aclError;
        [acl, "9.x"] fn aclrtIpcMemImportByKey(dev_ptr: *mut *mut c_void, key: *const c_char, flags: u64) -> aclError;
        [acl, "9.x"] fn aclrtIpcMemSetImportPid(key: *const c_char, pid: *mut i32, num: usize) -> aclError;
        [acl, "9.x"] fn aclrtIpcMemClose(key: *const c_char) -> aclError;
        // Host callbacks
        [acl, "9.x"] fn aclrtLaunchHostFunc(stream: aclrtStream, callback: aclrtHostFunc,
            args: *mut c_void) -> aclError;
        // Capture and replay
        [acl, "9.x"] fn aclmdlRICaptureToModelRIBegin(stream: aclrtStream, model_ri: aclmdlRI,
            mode: aclmdlRICaptureMode) -> aclError;
        [acl, "9.x"] fn aclmdlRIExecute(model_ri: aclmdlRI, timeout: i32) -> aclError;
        [acl, "9.x"] fn aclmdlRIDebugJsonPrint(model_ri: aclmdlRI, path: *const c_char, flags: u32) -> aclError;
        [acl, "9.x"] fn aclmdlRIBuildBegin(model_ri: *mut aclmdlRI, flag: u32) -> aclError;
        [acl, "9.x"] fn aclmdlRIBuildEnd(model_ri: aclmdlRI, reserve: *mut c_void) -> aclError;
        [acl, "9.x"] fn aclmdlRIBindStream(model_ri: aclmdlRI, stream: aclrtStream, flag: u32) -> aclError;
        [acl, "9.x"] fn aclmdlRIUnbindStream(model_ri: aclmdlRI, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclmdlRIEndTask(model_ri: aclmdlRI, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclmdlRICondHandleCreate(model_ri: aclmdlRI, default_launch_value: u32,
            flag: aclmdlRICondHandleFlag, handle: *mut aclmdlRICondHandle) -> aclError;
        [acl, "9.x"] fn aclmdlRICondHandleGetCondPtr(handle: aclmdlRICondHandle, ptr: *mut *mut u64) -> aclError;
        [acl, "9.x"] fn aclmdlRIAddCondTask(params: aclmdlRICondTaskParams, stream: aclrtStream,
            flags: u32) -> aclError;
        // Kernels
        [acl, "9.x"] fn aclrtBinaryLoadFromData(data: *const c_void, length: usize,
            options: *const aclrtBinaryLoadOptions, bin_handle: *mut aclrtBinHandle) -> aclError;
        [acl, "9.x"] fn aclrtLaunchKernelV2(func_handle: aclrtFuncHandle, num_blocks: u32, args_data: *const c_void,
            args_size: usize, cfg: *mut aclrtLaunchKernelCfg, stream: aclrtStream) -> aclError;
        [acl, "9.x"] fn aclrtLaunchKernelWithHostArgs(func_handle: aclrtFuncHandle, num_blocks: u32,
            stream: aclrtStream, cfg: *mut aclrtLaunchKernelCfg, host_args: *mut c_void, args_size: usize,
            place_holder_array: *mut aclrtPlaceHolderInfo, place_holder_num: usize) -> aclError;
        // Errors and exceptions
        [acl, "9.x"] fn aclrtGetErrorVerbose(device_id: i32, error_info: *mut aclrtErrorInfo) -> aclError;
        [acl, "9.x"] fn aclrtGetArgsFromExceptionInfo(info: *const aclrtExceptionInfo, dev_args_ptr: *mut *mut c_void,
            dev_args_len: *mut u32) -> aclError;
        [acl, "9.x"] fn aclrtGetFuncHandleFromExceptionInfo(info: *const aclrtExceptionInfo,
            func: *mut aclrtFuncHandle) -> aclError;
        // Collectives
        [hccl, "9.x"] fn HcclAlltoAllVC(send_buf: *const c_void, send_count_matrix: *const c_void,
            send_type: HcclDataType, recv_buf: *const c_void, recv_type: HcclDataType, comm: HcclComm,
            stream: aclrtStream) -> HcclResult;
    }
    operators {
        // Products
        aclnnMatmul, aclnnMatmulGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor,
            cube_math_type: i8);
        aclnnMm, aclnnMmGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor,
            cube_math_type: i8);
        aclnnBatchMatMul, aclnnBatchMatMulGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor,
            out: *mut aclTensor, cube_math_type: i8);
        aclnnAddmm, aclnnAddmmGetWorkspaceSize(self_: *const aclTensor, mat1: *const aclTensor, mat2: *const aclTensor,
            beta: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor, cube_math_type: i8);
        aclnnGroupedMatmulAdd, aclnnGroupedMatmulAddGetWorkspaceSize(x: *const aclTensor, weight: *const aclTensor,
            group_list: *const aclTensor, y_ref: *mut aclTensor, transpose_x: bool, transpose_weight: bool,
            group_type: i64);
        aclnnQuantMatmulV4, aclnnQuantMatmulV4GetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor,
            scale: *const aclTensor, offset: *const aclTensor, pertoken_scale_optional: *const aclTensor,
            bias: *const aclTensor, transpose_x1: bool, transpose_x2: bool, out: *const aclTensor);
        aclnnDynamicQuant, aclnnDynamicQuantGetWorkspaceSize(x: *const aclTensor,
            smooth_scales_optional: *const aclTensor, y_out: *const aclTensor, scale_out: *const aclTensor);
        // Arithmetic
        aclnnAdd, aclnnAddGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar,
            out: *mut aclTensor);
        aclnnAdds, aclnnAddsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar,
            out: *mut aclTensor);
        aclnnSub, aclnnSubGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar,
            out: *mut aclTensor);
        aclnnSubs, aclnnSubsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar,
            out: *mut aclTensor);
        aclnnMul, aclnnMulGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
        aclnnMuls, aclnnMulsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor);
        aclnnDiv, aclnnDivGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
        aclnnDivs, aclnnDivsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor);
        aclnnAddcmul, aclnnAddcmulGetWorkspaceSize(self_: *const aclTensor, tensor1: *const aclTensor,
            tensor2: *const aclTensor, value: *const aclScalar, out: *mut aclTensor);
        aclnnAddcdiv, aclnnAddcdivGetWorkspaceSize(self_: *const aclTensor, tensor1: *const aclTensor,
            tensor2: *const aclTensor, value: *const aclScalar, out: *const aclTensor);
        aclnnLerp, aclnnLerpGetWorkspaceSize(self_: *const aclTensor, end: *const aclTensor, weight: *const aclTensor,
            out: *mut aclTensor);
        aclnnLerps, aclnnLerpsGetWorkspaceSize(self_: *const aclTensor, end: *const aclTensor, weight: *const aclScalar,
            out: *mut aclTensor);
        aclnnNeg, aclnnNegGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnExp, aclnnExpGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnLog, aclnnLogGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnSqrt, aclnnSqrtGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnRsqrt, aclnnRsqrtGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnReciprocal, aclnnReciprocalGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnPowTensorScalar, aclnnPowTensorScalarGetWorkspaceSize(self_: *const aclTensor, exponent: *const aclScalar,
            out: *const aclTensor);
        aclnnMaximum, aclnnMaximumGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnMinimum, aclnnMinimumGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnClamp, aclnnClampGetWorkspaceSize(self_: *const aclTensor, clip_value_min: *const aclScalar,
            clip_value_max: *const aclScalar, out: *mut aclTensor);
        aclnnClampMin, aclnnClampMinGetWorkspaceSize(self_: *const aclTensor, clip_value_min: *const aclScalar,
            out: *mut aclTensor);
        aclnnInplaceAdd, aclnnInplaceAddGetWorkspaceSize(self_ref: *const aclTensor, other: *const aclTensor,
            alpha: *const aclScalar);
        aclnnInplaceAdds, aclnnInplaceAddsGetWorkspaceSize(self_ref: *const aclTensor, other: *const aclScalar,
            alpha: *const aclScalar);
        aclnnInplaceSub, aclnnInplaceSubGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor,
            alpha: *const aclScalar);
        aclnnInplaceSubs, aclnnInplaceSubsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar,
            alpha: *const aclScalar);
        aclnnInplaceMul, aclnnInplaceMulGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor);
        aclnnInplaceMuls, aclnnInplaceMulsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar);
        aclnnInplaceDiv, aclnnInplaceDivGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor);
        aclnnInplaceDivs, aclnnInplaceDivsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar);
        aclnnInplaceAddcmul, aclnnInplaceAddcmulGetWorkspaceSize(self_ref: *const aclTensor, tensor1: *const aclTensor,
            tensor2: *const aclTensor, value: *const aclScalar);
        aclnnInplaceAddcdiv, aclnnInplaceAddcdivGetWorkspaceSize(self_ref: *const aclTensor, tensor1: *const aclTensor,
            tensor2: *const aclTensor, value: *const aclScalar);
        aclnnInplaceLerp, aclnnInplaceLerpGetWorkspaceSize(self_ref: *mut aclTensor, end: *const aclTensor,
            weight: *const aclTensor);
        aclnnInplaceLerps, aclnnInplaceLerpsGetWorkspaceSize(self_ref: *mut aclTensor, end: *const aclTensor,
            weight: *const aclScalar);
        // Activations and norms
        aclnnTanh, aclnnTanhGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnSigmoid, aclnnSigmoidGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnSilu, aclnnSiluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnGelu, aclnnGeluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnSwiGlu, aclnnSwiGluGetWorkspaceSize(x: *const aclTensor, dim: i64, out: *const aclTensor);
        aclnnRmsNorm, aclnnRmsNormGetWorkspaceSize(x: *const aclTensor, gamma: *const aclTensor, epsilon: f64,
            y_out: *const aclTensor, rstd_out: *const aclTensor);
        aclnnAddRmsNorm, aclnnAddRmsNormGetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor,
            gamma: *const aclTensor, epsilon: f64, y_out: *const aclTensor, rstd_out: *const aclTensor,
            x_out: *const aclTensor);
        aclnnLayerNorm, aclnnLayerNormGetWorkspaceSize(input: *const aclTensor, normalized_shape: *const aclIntArray,
            weight_optional: *const aclTensor, bias_optional: *const aclTensor, eps: f64, out: *mut aclTensor,
            mean_out_optional: *mut aclTensor, rstd_out_optional: *mut aclTensor);
        aclnnSoftmax, aclnnSoftmaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, out: *mut aclTensor);
        aclnnLogSoftmax, aclnnLogSoftmaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, out: *mut aclTensor);
        // Position and attention
        aclnnRotaryPositionEmbedding, aclnnRotaryPositionEmbeddingGetWorkspaceSize(x: *const aclTensor,
            cos: *const aclTensor, sin: *const aclTensor, mode: i64, out: *mut aclTensor);
        aclnnFusedInferAttentionScoreV2, aclnnFusedInferAttentionScoreV2GetWorkspaceSize(query: *const aclTensor,
            key: *const aclTensorList, value: *const aclTensorList, pse_shift_optional: *const aclTensor,
            atten_mask_optional: *const aclTensor, actual_seq_lengths_optional: *const aclIntArray,
            actual_seq_lengths_kv_optional: *const aclIntArray, deq_scale1_optional: *const aclTensor,
            quant_scale1_optional: *const aclTensor, deq_scale2_optional: *const aclTensor,
            quant_scale2_optional: *const aclTensor, quant_offset2_optional: *const aclTensor,
            antiquant_scale_optional: *const aclTensor, antiquant_offset_optional: *const aclTensor,
            block_table_optional: *const aclTensor, query_padding_size_optional: *const aclTensor,
            kv_padding_size_optional: *const aclTensor, key_antiquant_scale_optional: *const aclTensor,
            key_antiquant_offset_optional: *const aclTensor, value_antiquant_scale_optional: *const aclTensor,
            value_antiquant_offset_optional: *const aclTensor, key_shared_prefix_optional: *const aclTensor,
            value_shared_prefix_optional: *const aclTensor, actual_shared_prefix_len_optional: *const aclIntArray,
            num_heads: i64, scale_value: f64, pre_tokens: i64, next_tokens: i64, input_layout: *mut c_char,
            num_key_value_heads: i64, sparse_mode: i64, inner_precise: i64, block_size: i64, antiquant_mode: i64,
            softmax_lse_flag: bool, key_antiquant_mode: i64, value_antiquant_mode: i64, attention_out: *const aclTensor,
            softmax_lse: *const aclTensor);
        aclnnPromptFlashAttentionV3, aclnnPromptFlashAttentionV3GetWorkspaceSize(query: *const aclTensor,
            key: *const aclTensor, value: *const aclTensor, pse_shift: *const aclTensor, atten_mask: *const aclTensor,
            actual_seq_lengths: *const aclIntArray, actual_seq_lengths_kv: *const aclIntArray,
            deq_scale1: *const aclTensor, quant_scale1: *const aclTensor, deq_scale2: *const aclTensor,
            quant_scale2: *const aclTensor, quant_offset2: *const aclTensor, num_heads: i64, scale_value: f64,
            pre_tokens: i64, next_tokens: i64, input_layout: *mut c_char, num_key_value_heads: i64, sparse_mode: i64,
            inner_precise: i64, attention_out: *const aclTensor);
        aclnnIncreFlashAttentionV4, aclnnIncreFlashAttentionV4GetWorkspaceSize(query: *const aclTensor,
            key: *const aclTensorList, value: *const aclTensorList, pse_shift: *const aclTensor,
            atten_mask: *const aclTensor, actual_seq_lengths: *const aclIntArray, dequant_scale1: *const aclTensor,
            quant_scale1: *const aclTensor, dequant_scale2: *const aclTensor, quant_scale2: *const aclTensor,
            quant_offset2: *const aclTensor, antiquant_scale: *const aclTensor, antiquant_offset: *const aclTensor,
            blocktable: *const aclTensor, kv_padding_size: *const aclTensor, num_heads: i64, scale_value: f64,
            input_layout: *mut c_char, num_key_value_heads: i64, block_size: i64, inner_precise: i64,
            attention_out: *const aclTensor);
        // Losses, gradients and optimizers
        aclnnSiluBackward, aclnnSiluBackwardGetWorkspaceSize(grad_output: *const aclTensor, self_: *const aclTensor,
            grad_input: *mut aclTensor);
        aclnnSwiGluGrad, aclnnSwiGluGradGetWorkspaceSize(y_grad: *const aclTensor, x: *const aclTensor, dim: i64,
            out: *const aclTensor);
        aclnnRmsNormGrad, aclnnRmsNormGradGetWorkspaceSize(dy: *const aclTensor, x: *const aclTensor,
            rstd: *const aclTensor, gamma: *const aclTensor, dx_out: *const aclTensor, dgamma_out: *const aclTensor);
        aclnnSoftmaxBackward, aclnnSoftmaxBackwardGetWorkspaceSize(grad_output: *const aclTensor,
            output: *const aclTensor, dim: i64, out: *mut aclTensor);
        aclnnEmbeddingDenseBackward, aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad: *const aclTensor,
            indices: *const aclTensor, num_weights: u64, padding_idx: u64, scale_grad_by_freq: bool,
            out: *const aclTensor);
        aclnnCrossEntropyLoss, aclnnCrossEntropyLossGetWorkspaceSize(input: *const aclTensor, target: *const aclTensor,
            weight_optional: *const aclTensor, reduction_optional: *mut c_char, ignore_index: i64, label_smoothing: f64,
            lse_square_scale_for_zloss: f64, return_zloss: bool, loss_out: *const aclTensor,
            log_prob_out: *const aclTensor, zloss_out: *const aclTensor, lse_for_zloss_out: *const aclTensor);
        aclnnCrossEntropyLossGrad, aclnnCrossEntropyLossGradGetWorkspaceSize(grad_loss: *const aclTensor,
            log_prob: *const aclTensor, target: *const aclTensor, weight_optional: *const aclTensor,
            grad_zloss_optional: *const aclTensor, lse_for_zloss_optional: *const aclTensor,
            reduction_optional: *mut c_char, ignore_index: i64, label_smoothing: f64, lse_square_scale_for_zloss: f64,
            out: *const aclTensor);
        aclnnFlashAttentionScore, aclnnFlashAttentionScoreGetWorkspaceSize(query: *const aclTensor,
            key: *const aclTensor, value: *const aclTensor, real_shift_optional: *const aclTensor,
            drop_mask_optional: *const aclTensor, padding_mask_optional: *const aclTensor,
            atten_mask_optional: *const aclTensor, prefix_optional: *const aclIntArray, scale_value: f64,
            keep_prob: f64, pre_tokens: i64, next_tokens: i64, head_num: i64, input_layout: *mut c_char,
            inner_precise: i64, sparse_mode: i64, softmax_max_out: *const aclTensor, softmax_sum_out: *const aclTensor,
            softmax_out_out: *const aclTensor, attention_out_out: *const aclTensor);
        aclnnFlashAttentionScoreGrad, aclnnFlashAttentionScoreGradGetWorkspaceSize(query: *const aclTensor,
            key_in: *const aclTensor, value: *const aclTensor, dy: *const aclTensor,
            pse_shift_optional: *const aclTensor, drop_mask_optional: *const aclTensor,
            padding_mask_optional: *const aclTensor, atten_mask_optional: *const aclTensor,
            softmax_max_optional: *const aclTensor, softmax_sum_optional: *const aclTensor,
            softmax_in_optional: *const aclTensor, attention_in_optional: *const aclTensor,
            prefix_optional: *const aclIntArray, scale_value: f64, keep_prob: f64, pre_tokens: i64, next_tokens: i64,
            head_num: i64, input_layout: *mut c_char, inner_precise: i64, sparse_mode: i64, dq_out: *const aclTensor,
            dk_out: *const aclTensor, dv_out: *const aclTensor, dpse_out: *const aclTensor);
        aclnnApplyAdamWV2, aclnnApplyAdamWV2GetWorkspaceSize(var_ref: *mut aclTensor, m_ref: *mut aclTensor,
            v_ref: *mut aclTensor, max_grad_norm_optional_ref: *mut aclTensor, grad: *const aclTensor,
            step: *const aclTensor, lr: f32, beta1: f32, beta2: f32, weight_decay: f32, eps: f32, amsgrad: bool,
            maximize: bool);
        // Lookups and scatters
        aclnnEmbedding, aclnnEmbeddingGetWorkspaceSize(weight: *const aclTensor, indices: *const aclTensor,
            out: *const aclTensor);
        aclnnIndexSelect, aclnnIndexSelectGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor,
            out: *mut aclTensor);
        aclnnGather, aclnnGatherGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor,
            out: *mut aclTensor);
        aclnnGatherV2, aclnnGatherV2GetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor,
            out: *mut aclTensor);
        aclnnInplaceIndexCopy, aclnnInplaceIndexCopyGetWorkspaceSize(self_ref: *mut aclTensor, dim: i64,
            index: *const aclTensor, source: *const aclTensor);
        aclnnScatterAdd, aclnnScatterAddGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor,
            src: *const aclTensor, out: *mut aclTensor);
        aclnnInplaceScatterUpdate, aclnnInplaceScatterUpdateGetWorkspaceSize(data: *mut aclTensor,
            indices: *const aclTensor, updates: *const aclTensor, axis: i64);
        aclnnIndexAdd, aclnnIndexAddGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor,
            source: *const aclTensor, alpha: *const aclScalar, out: *mut aclTensor);
        aclnnOneHot, aclnnOneHotGetWorkspaceSize(self_: *const aclTensor, num_classes: i32, on_value: *const aclTensor,
            off_value: *const aclTensor, axis: i64, out: *mut aclTensor);
        // Copies, conversions and fills
        aclnnCast, aclnnCastGetWorkspaceSize(self_: *const aclTensor, dtype: aclDataType, out: *mut aclTensor);
        aclnnInplaceCopy, aclnnInplaceCopyGetWorkspaceSize(self_ref: *mut aclTensor, src: *const aclTensor);
        aclnnInplaceZero, aclnnInplaceZeroGetWorkspaceSize(self_ref: *mut aclTensor);
        aclnnInplaceOne, aclnnInplaceOneGetWorkspaceSize(self_ref: *const aclTensor);
        aclnnInplaceFillScalar, aclnnInplaceFillScalarGetWorkspaceSize(self_ref: *mut aclTensor,
            value: *const aclScalar);
        aclnnInplaceMaskedFillScalar, aclnnInplaceMaskedFillScalarGetWorkspaceSize(self_ref: *mut aclTensor,
            mask: *const aclTensor, value: *const aclScalar);
        aclnnArange, aclnnArangeGetWorkspaceSize(start: *const aclScalar, end: *const aclScalar, step: *const aclScalar,
            out: *mut aclTensor);
        // Comparisons and selection
        aclnnEqTensor, aclnnEqTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnNeTensor, aclnnNeTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnLtTensor, aclnnLtTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnEqScalar, aclnnEqScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar,
            out: *mut aclTensor);
        aclnnNeScalar, aclnnNeScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar,
            out: *mut aclTensor);
        aclnnGtScalar, aclnnGtScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar,
            out: *mut aclTensor);
        aclnnLtScalar, aclnnLtScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar,
            out: *mut aclTensor);
        aclnnGeScalar, aclnnGeScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar,
            out: *mut aclTensor);
        aclnnLeScalar, aclnnLeScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar,
            out: *mut aclTensor);
        aclnnLogicalNot, aclnnLogicalNotGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnLogicalAnd, aclnnLogicalAndGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnLogicalOr, aclnnLogicalOrGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor,
            out: *mut aclTensor);
        aclnnIsFinite, aclnnIsFiniteGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnSWhere, aclnnSWhereGetWorkspaceSize(condition: *const aclTensor, self_: *const aclTensor,
            other: *const aclTensor, out: *mut aclTensor);
        // Reductions and order
        aclnnArgMax, aclnnArgMaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, keepdim: bool, out: *mut aclTensor);
        aclnnMaxDim, aclnnMaxDimGetWorkspaceSize(self_: *const aclTensor, dim: i64, keepdim: bool, out: *mut aclTensor,
            indices: *mut aclTensor);
        aclnnMax, aclnnMaxGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
        aclnnAmax, aclnnAmaxGetWorkspaceSize(self_: *const aclTensor, dim: *const aclIntArray, keep_dim: bool,
            out: *mut aclTensor);
        aclnnReduceSum, aclnnReduceSumGetWorkspaceSize(self_: *const aclTensor, dims: *const aclIntArray,
            keep_dims: bool, dtype: aclDataType, out: *mut aclTensor);
        aclnnMean, aclnnMeanGetWorkspaceSize(self_: *const aclTensor, dim: *const aclIntArray, keep_dim: bool,
            dtype: aclDataType, out: *mut aclTensor);
        aclnnCumsum, aclnnCumsumGetWorkspaceSize(self_: *const aclTensor, dim: i64, dtype: aclDataType,
            out: *mut aclTensor);
        aclnnTopk, aclnnTopkGetWorkspaceSize(self_: *const aclTensor, k: i64, dim: i64, largest: bool, sorted: bool,
            values_out: *mut aclTensor, indices_out: *mut aclTensor);
        aclnnSort, aclnnSortGetWorkspaceSize(self_: *const aclTensor, stable: bool, dim: i64, descending: bool,
            values_out: *mut aclTensor, indices_out: *mut aclTensor);
        // Shape
        aclnnCat, aclnnCatGetWorkspaceSize(tensors: *const aclTensorList, dim: i64, out: *mut aclTensor);
        aclnnPermute, aclnnPermuteGetWorkspaceSize(self_: *const aclTensor, dims: *const aclIntArray,
            out: *mut aclTensor);
        aclnnSlice, aclnnSliceGetWorkspaceSize(self_: *const aclTensor, dim: i64, start: i64, end: i64, step: i64,
            out: *mut aclTensor);
        aclnnRepeat, aclnnRepeatGetWorkspaceSize(self_: *const aclTensor, repeats: *const aclIntArray,
            out: *mut aclTensor);
        aclnnExpand, aclnnExpandGetWorkspaceSize(self_: *const aclTensor, size: *const aclIntArray,
            out: *mut aclTensor);
        aclnnConstantPadNd, aclnnConstantPadNdGetWorkspaceSize(self_: *const aclTensor, pad: *const aclIntArray,
            value: *const aclScalar, out: *mut aclTensor);
        aclnnTriu, aclnnTriuGetWorkspaceSize(self_: *const aclTensor, diagonal: i64, out: *mut aclTensor);
        aclnnTril, aclnnTrilGetWorkspaceSize(self_: *const aclTensor, diagonal: i64, out: *mut aclTensor);
        aclnnInplaceTriu, aclnnInplaceTriuGetWorkspaceSize(self_ref: *mut aclTensor, diagonal: i64);
    }
    } };
}
