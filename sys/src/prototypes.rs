// Made by `cargo xtask bindings`; do not edit.
use super::bindings::*;

unsafe extern "C" {
    pub fn aclInit(config_path: *const ::std::os::raw::c_char) -> aclError;
    pub fn aclFinalize() -> aclError;
    pub fn aclFinalizeReference(ref_count: *mut u64) -> aclError;
    pub fn aclGetRecentErrMsg() -> *const ::std::os::raw::c_char;
    pub fn aclrtGetVersion(major_version: *mut i32, minor_version: *mut i32, patch_version: *mut i32) -> aclError;
    pub fn aclrtGetSocName() -> *const ::std::os::raw::c_char;
    pub fn aclrtGetRunMode(run_mode: *mut aclrtRunMode) -> aclError;
    pub fn aclrtCheckArchCompatibility(
        soc_version: *const ::std::os::raw::c_char,
        can_compatible: *mut i32,
    ) -> aclError;
    pub fn aclGetCannAttribute(cann_attr: aclCannAttr, value: *mut i32) -> aclError;
    pub fn aclGetCannAttributeList(cann_attr_list: *mut *const aclCannAttr, num: *mut usize) -> aclError;
    pub fn aclGetDeviceCapability(device_id: u32, device_info: aclDeviceInfo, value: *mut i64) -> aclError;
    pub fn aclsysGetCANNVersion(name: aclCANNPackageName, version: *mut aclCANNPackageVersion) -> aclError;
    pub fn aclsysGetVersionStr(
        pkg_name: *mut ::std::os::raw::c_char,
        version_str: *mut ::std::os::raw::c_char,
    ) -> aclError;
    pub fn aclsysGetVersionNum(pkg_name: *mut ::std::os::raw::c_char, version_num: *mut i32) -> aclError;
    pub fn aclrtSetDevice(device_id: i32) -> aclError;
    pub fn aclrtResetDevice(device_id: i32) -> aclError;
    pub fn aclrtResetDeviceForce(device_id: i32) -> aclError;
    pub fn aclrtGetDevice(device_id: *mut i32) -> aclError;
    pub fn aclrtGetDeviceCount(count: *mut u32) -> aclError;
    pub fn aclrtSynchronizeDevice() -> aclError;
    pub fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError;
    pub fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
    pub fn aclrtSetDeviceSatMode(mode: aclrtFloatOverflowMode) -> aclError;
    pub fn aclrtGetDeviceSatMode(mode: *mut aclrtFloatOverflowMode) -> aclError;
    pub fn aclrtDeviceCanAccessPeer(can_access_peer: *mut i32, device_id: i32, peer_device_id: i32) -> aclError;
    pub fn aclrtDeviceEnablePeerAccess(peer_device_id: i32, flags: u32) -> aclError;
    pub fn aclrtDeviceDisablePeerAccess(peer_device_id: i32) -> aclError;
    pub fn aclrtDeviceGetBareTgid(pid: *mut i32) -> aclError;
    pub fn aclrtQueryDeviceStatus(device_id: i32, device_status: *mut aclrtDeviceStatus) -> aclError;
    pub fn aclrtGetDeviceUtilizationRate(device_id: i32, utilization_info: *mut aclrtUtilizationInfo) -> aclError;
    pub fn aclrtDeviceGetStreamPriorityRange(least_priority: *mut i32, greatest_priority: *mut i32) -> aclError;
    pub fn aclrtGetDeviceCapability(device_id: i32, dev_feature_type: aclrtDevFeatureType, value: *mut i32)
    -> aclError;
    pub fn aclrtGetDeviceInfo(device_id: u32, attr: aclrtDevAttr, value: *mut i64) -> aclError;
    pub fn aclrtGetDeviceResLimit(device_id: i32, type_: aclrtDevResLimitType, value: *mut u32) -> aclError;
    pub fn aclrtSetDeviceResLimit(device_id: i32, type_: aclrtDevResLimitType, value: u32) -> aclError;
    pub fn aclrtResetDeviceResLimit(device_id: i32) -> aclError;
    pub fn aclrtGetResInCurrentThread(type_: aclrtDevResLimitType, value: *mut u32) -> aclError;
    pub fn aclrtDeviceTaskAbort(device_id: i32, timeout: u32) -> aclError;
    pub fn aclrtCreateContext(context: *mut aclrtContext, device_id: i32) -> aclError;
    pub fn aclrtDestroyContext(context: aclrtContext) -> aclError;
    pub fn aclrtSetCurrentContext(context: aclrtContext) -> aclError;
    pub fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError;
    pub fn aclrtCtxGetCurrentDefaultStream(stream: *mut aclrtStream) -> aclError;
    pub fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError;
    pub fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, priority: u32, flag: u32) -> aclError;
    pub fn aclrtDestroyStream(stream: aclrtStream) -> aclError;
    pub fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError;
    pub fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
    pub fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) -> aclError;
    pub fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
    pub fn aclrtStreamGetId(stream: aclrtStream, stream_id: *mut i32) -> aclError;
    pub fn aclrtStreamGetPriority(stream: aclrtStream, priority: *mut u32) -> aclError;
    pub fn aclrtStreamGetFlags(stream: aclrtStream, flags: *mut u32) -> aclError;
    pub fn aclrtStreamAbort(stream: aclrtStream) -> aclError;
    pub fn aclrtStreamStop(stream: aclrtStream) -> aclError;
    pub fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> aclError;
    pub fn aclrtActiveStream(active_stream: aclrtStream, stream: aclrtStream) -> aclError;
    pub fn aclrtSwitchStream(
        left_value: *mut ::std::os::raw::c_void,
        cond: aclrtCondition,
        right_value: *mut ::std::os::raw::c_void,
        data_type: aclrtCompareDataType,
        true_stream: aclrtStream,
        false_stream: aclrtStream,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtRegStreamStateCallback(
        reg_name: *const ::std::os::raw::c_char,
        callback: aclrtStreamStateCallback,
        args: *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError;
    pub fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
    pub fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
    pub fn aclrtDestroyEvent(event: aclrtEvent) -> aclError;
    pub fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
    pub fn aclrtRecordEventWithFlag(event: aclrtEvent, stream: aclrtStream, flag: u32) -> aclError;
    pub fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
    pub fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError;
    pub fn aclrtQueryEventWaitStatus(event: aclrtEvent, status: *mut aclrtEventWaitStatus) -> aclError;
    pub fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;
    pub fn aclrtStreamWaitEventWithFlag(stream: aclrtStream, event: aclrtEvent, timeout: u32, flag: u32) -> aclError;
    pub fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
    pub fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) -> aclError;
    pub fn aclrtEventElapsedTime(ms: *mut f32, start_event: aclrtEvent, end_event: aclrtEvent) -> aclError;
    pub fn aclrtEventGetTimestamp(event: aclrtEvent, timestamp: *mut u64) -> aclError;
    pub fn aclrtIpcGetEventHandle(event: aclrtEvent, handle: *mut aclrtIpcEventHandle) -> aclError;
    pub fn aclrtIpcOpenEventHandle(handle: aclrtIpcEventHandle, event: *mut aclrtEvent) -> aclError;
    pub fn aclrtCreateNotify(notify: *mut aclrtNotify, flag: u64) -> aclError;
    pub fn aclrtDestroyNotify(notify: aclrtNotify) -> aclError;
    pub fn aclrtRecordNotify(notify: aclrtNotify, stream: aclrtStream) -> aclError;
    pub fn aclrtWaitAndResetNotify(notify: aclrtNotify, stream: aclrtStream, timeout: u32) -> aclError;
    pub fn aclrtNotifyGetExportKey(
        notify: aclrtNotify,
        key: *mut ::std::os::raw::c_char,
        len: usize,
        flags: u64,
    ) -> aclError;
    pub fn aclrtNotifyImportByKey(notify: *mut aclrtNotify, key: *const ::std::os::raw::c_char, flags: u64)
    -> aclError;
    pub fn aclrtNotifySetImportPid(notify: aclrtNotify, pid: *mut i32, num: usize) -> aclError;
    pub fn aclrtCreateLabel(label: *mut aclrtLabel) -> aclError;
    pub fn aclrtCreateLabelList(labels: *mut aclrtLabel, num: usize, label_list: *mut aclrtLabelList) -> aclError;
    pub fn aclrtDestroyLabel(label: aclrtLabel) -> aclError;
    pub fn aclrtDestroyLabelList(label_list: aclrtLabelList) -> aclError;
    pub fn aclrtSetLabel(label: aclrtLabel, stream: aclrtStream) -> aclError;
    pub fn aclrtSwitchLabelByIndex(
        ptr: *mut ::std::os::raw::c_void,
        max_value: u32,
        label_list: aclrtLabelList,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtValueWrite(
        dev_addr: *mut ::std::os::raw::c_void,
        value: u64,
        flag: u32,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtValueWait(
        dev_addr: *mut ::std::os::raw::c_void,
        value: u64,
        flag: u32,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtMalloc(
        dev_ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> aclError;
    pub fn aclrtMallocAlign32(
        dev_ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> aclError;
    pub fn aclrtMallocCached(
        dev_ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> aclError;
    pub fn aclrtMallocWithCfg(
        dev_ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
        cfg: *mut aclrtMallocConfig,
    ) -> aclError;
    pub fn aclrtFree(dev_ptr: *mut ::std::os::raw::c_void) -> aclError;
    pub fn aclrtMallocHost(host_ptr: *mut *mut ::std::os::raw::c_void, size: usize) -> aclError;
    pub fn aclrtFreeHost(host_ptr: *mut ::std::os::raw::c_void) -> aclError;
    pub fn aclrtMemcpy(
        dst: *mut ::std::os::raw::c_void,
        dest_max: usize,
        src: *const ::std::os::raw::c_void,
        count: usize,
        kind: aclrtMemcpyKind,
    ) -> aclError;
    pub fn aclrtMemcpyAsync(
        dst: *mut ::std::os::raw::c_void,
        dest_max: usize,
        src: *const ::std::os::raw::c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtMemcpy2d(
        dst: *mut ::std::os::raw::c_void,
        dpitch: usize,
        src: *const ::std::os::raw::c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: aclrtMemcpyKind,
    ) -> aclError;
    pub fn aclrtMemcpy2dAsync(
        dst: *mut ::std::os::raw::c_void,
        dpitch: usize,
        src: *const ::std::os::raw::c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtMemset(dev_ptr: *mut ::std::os::raw::c_void, max_count: usize, value: i32, count: usize) -> aclError;
    pub fn aclrtMemsetAsync(
        dev_ptr: *mut ::std::os::raw::c_void,
        max_count: usize,
        value: i32,
        count: usize,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtPointerGetAttributes(
        ptr: *const ::std::os::raw::c_void,
        attributes: *mut aclrtPtrAttributes,
    ) -> aclError;
    pub fn aclrtHostRegister(
        ptr: *mut ::std::os::raw::c_void,
        size: u64,
        type_: aclrtHostRegisterType,
        dev_ptr: *mut *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtHostUnregister(ptr: *mut ::std::os::raw::c_void) -> aclError;
    pub fn aclrtReduceAsync(
        dst: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        count: u64,
        kind: aclrtReduceKind,
        type_: aclDataType,
        stream: aclrtStream,
        reserve: *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtRandomNumAsync(
        task_info: *const aclrtRandomNumTaskInfo,
        stream: aclrtStream,
        reserve: *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtReserveMemAddress(
        virtual_ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        alignment: usize,
        expect_ptr: *mut ::std::os::raw::c_void,
        flags: u64,
    ) -> aclError;
    pub fn aclrtReleaseMemAddress(virtual_ptr: *mut ::std::os::raw::c_void) -> aclError;
    pub fn aclrtMallocPhysical(
        handle: *mut aclrtDrvMemHandle,
        size: usize,
        prop: *const aclrtPhysicalMemProp,
        flags: u64,
    ) -> aclError;
    pub fn aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError;
    pub fn aclrtMapMem(
        virtual_ptr: *mut ::std::os::raw::c_void,
        size: usize,
        offset: usize,
        handle: aclrtDrvMemHandle,
        flags: u64,
    ) -> aclError;
    pub fn aclrtUnmapMem(virtual_ptr: *mut ::std::os::raw::c_void) -> aclError;
    pub fn aclrtMemGetAllocationGranularity(
        prop: *mut aclrtPhysicalMemProp,
        option: aclrtMemGranularityOptions,
        granularity: *mut usize,
    ) -> aclError;
    pub fn aclrtMemSetAccess(
        virtual_ptr: *mut ::std::os::raw::c_void,
        size: usize,
        desc: *mut aclrtMemAccessDesc,
        count: usize,
    ) -> aclError;
    pub fn aclrtMemExportToShareableHandle(
        handle: aclrtDrvMemHandle,
        handle_type: aclrtMemHandleType,
        flags: u64,
        shareable_handle: *mut u64,
    ) -> aclError;
    pub fn aclrtMemExportToShareableHandleV2(
        handle: aclrtDrvMemHandle,
        flags: u64,
        share_type: aclrtMemSharedHandleType,
        shareable_handle: *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtMemImportFromShareableHandle(
        shareable_handle: u64,
        device_id: i32,
        handle: *mut aclrtDrvMemHandle,
    ) -> aclError;
    pub fn aclrtMemImportFromShareableHandleV2(
        shareable_handle: *mut ::std::os::raw::c_void,
        share_type: aclrtMemSharedHandleType,
        flags: u64,
        handle: *mut aclrtDrvMemHandle,
    ) -> aclError;
    pub fn aclrtMemSetPidToShareableHandle(shareable_handle: u64, pid: *mut i32, pid_num: usize) -> aclError;
    pub fn aclrtIpcMemGetExportKey(
        dev_ptr: *mut ::std::os::raw::c_void,
        size: usize,
        key: *mut ::std::os::raw::c_char,
        len: usize,
        flags: u64,
    ) -> aclError;
    pub fn aclrtIpcMemImportByKey(
        dev_ptr: *mut *mut ::std::os::raw::c_void,
        key: *const ::std::os::raw::c_char,
        flags: u64,
    ) -> aclError;
    pub fn aclrtIpcMemSetImportPid(key: *const ::std::os::raw::c_char, pid: *mut i32, num: usize) -> aclError;
    pub fn aclrtIpcMemClose(key: *const ::std::os::raw::c_char) -> aclError;
    pub fn aclrtLaunchCallback(
        callback: aclrtCallback,
        user_data: *mut ::std::os::raw::c_void,
        block_type: aclrtCallbackBlockType,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtSubscribeReport(thread_id: u64, stream: aclrtStream) -> aclError;
    pub fn aclrtUnSubscribeReport(thread_id: u64, stream: aclrtStream) -> aclError;
    pub fn aclrtProcessReport(timeout: i32) -> aclError;
    pub fn aclrtLaunchHostFunc(
        stream: aclrtStream,
        callback: aclrtHostFunc,
        args: *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtSubscribeHostFunc(host_func_thread_id: u64, exe_stream: aclrtStream) -> aclError;
    pub fn aclrtUnSubscribeHostFunc(host_func_thread_id: u64, exe_stream: aclrtStream) -> aclError;
    pub fn aclrtProcessHostFunc(timeout: i32) -> aclError;
    pub fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
    pub fn aclmdlRICaptureEnd(stream: aclrtStream, model_ri: *mut aclmdlRI) -> aclError;
    pub fn aclmdlRICaptureGetInfo(
        stream: aclrtStream,
        status: *mut aclmdlRICaptureStatus,
        model_ri: *mut aclmdlRI,
    ) -> aclError;
    pub fn aclmdlRICaptureThreadExchangeMode(mode: *mut aclmdlRICaptureMode) -> aclError;
    pub fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError;
    pub fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, handle: *mut aclrtTaskGrp) -> aclError;
    pub fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, handle: aclrtTaskGrp) -> aclError;
    pub fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError;
    pub fn aclmdlRICaptureToModelRIBegin(
        stream: aclrtStream,
        model_ri: aclmdlRI,
        mode: aclmdlRICaptureMode,
    ) -> aclError;
    pub fn aclmdlRIExecute(model_ri: aclmdlRI, timeout: i32) -> aclError;
    pub fn aclmdlRIExecuteAsync(model_ri: aclmdlRI, stream: aclrtStream) -> aclError;
    pub fn aclmdlRIDestroy(model_ri: aclmdlRI) -> aclError;
    pub fn aclmdlRIDebugPrint(model_ri: aclmdlRI) -> aclError;
    pub fn aclmdlRIDebugJsonPrint(model_ri: aclmdlRI, path: *const ::std::os::raw::c_char, flags: u32) -> aclError;
    pub fn aclmdlRIBuildBegin(model_ri: *mut aclmdlRI, flag: u32) -> aclError;
    pub fn aclmdlRIBuildEnd(model_ri: aclmdlRI, reserve: *mut ::std::os::raw::c_void) -> aclError;
    pub fn aclmdlRIBindStream(model_ri: aclmdlRI, stream: aclrtStream, flag: u32) -> aclError;
    pub fn aclmdlRIUnbindStream(model_ri: aclmdlRI, stream: aclrtStream) -> aclError;
    pub fn aclmdlRIEndTask(model_ri: aclmdlRI, stream: aclrtStream) -> aclError;
    pub fn aclmdlRICondHandleCreate(
        model_ri: aclmdlRI,
        default_launch_value: u32,
        flag: aclmdlRICondHandleFlag,
        handle: *mut aclmdlRICondHandle,
    ) -> aclError;
    pub fn aclmdlRICondHandleGetCondPtr(handle: aclmdlRICondHandle, ptr: *mut *mut u64) -> aclError;
    pub fn aclmdlRIAddCondTask(params: aclmdlRICondTaskParams, stream: aclrtStream, flags: u32) -> aclError;
    pub fn aclrtBinaryLoadFromFile(
        bin_path: *const ::std::os::raw::c_char,
        options: *mut aclrtBinaryLoadOptions,
        bin_handle: *mut aclrtBinHandle,
    ) -> aclError;
    pub fn aclrtBinaryLoadFromData(
        data: *const ::std::os::raw::c_void,
        length: usize,
        options: *const aclrtBinaryLoadOptions,
        bin_handle: *mut aclrtBinHandle,
    ) -> aclError;
    pub fn aclrtBinaryUnLoad(bin_handle: aclrtBinHandle) -> aclError;
    pub fn aclrtBinaryGetFunction(
        bin_handle: aclrtBinHandle,
        kernel_name: *const ::std::os::raw::c_char,
        func_handle: *mut aclrtFuncHandle,
    ) -> aclError;
    pub fn aclrtKernelArgsInit(func_handle: aclrtFuncHandle, args_handle: *mut aclrtArgsHandle) -> aclError;
    pub fn aclrtKernelArgsAppend(
        args_handle: aclrtArgsHandle,
        param: *mut ::std::os::raw::c_void,
        param_size: usize,
        param_handle: *mut aclrtParamHandle,
    ) -> aclError;
    pub fn aclrtKernelArgsAppendPlaceHolder(
        args_handle: aclrtArgsHandle,
        param_handle: *mut aclrtParamHandle,
    ) -> aclError;
    pub fn aclrtKernelArgsGetPlaceHolderBuffer(
        args_handle: aclrtArgsHandle,
        param_handle: aclrtParamHandle,
        data_size: usize,
        buffer_addr: *mut *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtKernelArgsFinalize(args_handle: aclrtArgsHandle) -> aclError;
    pub fn aclrtLaunchKernel(
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        args_data: *const ::std::os::raw::c_void,
        args_size: usize,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtLaunchKernelV2(
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        args_data: *const ::std::os::raw::c_void,
        args_size: usize,
        cfg: *mut aclrtLaunchKernelCfg,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtLaunchKernelWithConfig(
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        stream: aclrtStream,
        cfg: *mut aclrtLaunchKernelCfg,
        args_handle: aclrtArgsHandle,
        reserve: *mut ::std::os::raw::c_void,
    ) -> aclError;
    pub fn aclrtLaunchKernelWithHostArgs(
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        stream: aclrtStream,
        cfg: *mut aclrtLaunchKernelCfg,
        host_args: *mut ::std::os::raw::c_void,
        args_size: usize,
        place_holder_array: *mut aclrtPlaceHolderInfo,
        place_holder_num: usize,
    ) -> aclError;
    pub fn aclrtGetLastError(level: aclrtLastErrLevel) -> aclError;
    pub fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> aclError;
    pub fn aclrtGetErrorVerbose(device_id: i32, error_info: *mut aclrtErrorInfo) -> aclError;
    pub fn aclrtSetExceptionInfoCallback(callback: aclrtExceptionInfoCallback) -> aclError;
    pub fn aclrtGetTaskIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
    pub fn aclrtGetStreamIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
    pub fn aclrtGetThreadIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
    pub fn aclrtGetDeviceIdFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
    pub fn aclrtGetErrorCodeFromExceptionInfo(info: *const aclrtExceptionInfo) -> u32;
    pub fn aclrtGetArgsFromExceptionInfo(
        info: *const aclrtExceptionInfo,
        dev_args_ptr: *mut *mut ::std::os::raw::c_void,
        dev_args_len: *mut u32,
    ) -> aclError;
    pub fn aclrtGetFuncHandleFromExceptionInfo(info: *const aclrtExceptionInfo, func: *mut aclrtFuncHandle)
    -> aclError;
    pub fn aclrtGetThreadLastTaskId(task_id: *mut u32) -> aclError;
    pub fn aclDataTypeSize(data_type: aclDataType) -> usize;
    pub fn aclFloat16ToFloat(value: aclFloat16) -> f32;
    pub fn aclFloatToFloat16(value: f32) -> aclFloat16;
    pub fn aclCreateDataBuffer(data: *mut ::std::os::raw::c_void, size: usize) -> *mut aclDataBuffer;
    pub fn aclDestroyDataBuffer(data_buffer: *const aclDataBuffer) -> aclError;
    pub fn aclGetDataBufferAddr(data_buffer: *const aclDataBuffer) -> *mut ::std::os::raw::c_void;
    pub fn aclGetDataBufferSizeV2(data_buffer: *const aclDataBuffer) -> usize;
    pub fn aclUpdateDataBuffer(
        data_buffer: *mut aclDataBuffer,
        data: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> aclError;
    pub fn aclprofInit(profiler_result_path: *const ::std::os::raw::c_char, length: usize) -> aclError;
    pub fn aclprofFinalize() -> aclError;
    pub fn aclprofCreateConfig(
        device_id_list: *mut u32,
        device_nums: u32,
        aicore_metrics: aclprofAicoreMetrics,
        aicore_events: *const aclprofAicoreEvents,
        data_type_config: u64,
    ) -> *mut aclprofConfig;
    pub fn aclprofDestroyConfig(profiler_config: *const aclprofConfig) -> aclError;
    pub fn aclprofStart(profiler_config: *const aclprofConfig) -> aclError;
    pub fn aclprofStop(profiler_config: *const aclprofConfig) -> aclError;
    pub fn aclprofMarkEx(msg: *const ::std::os::raw::c_char, msg_len: usize, stream: aclrtStream) -> aclError;
    pub fn HcclGetRootInfo(root_info: *mut HcclRootInfo) -> HcclResult;
    pub fn HcclCommInitRootInfo(
        n_ranks: u32,
        root_info: *const HcclRootInfo,
        rank: u32,
        comm: *mut HcclComm,
    ) -> HcclResult;
    pub fn HcclCommInitRootInfoConfig(
        n_ranks: u32,
        root_info: *const HcclRootInfo,
        rank: u32,
        config: *const HcclCommConfig,
        comm: *mut HcclComm,
    ) -> HcclResult;
    pub fn HcclCommInitAll(ndev: u32, devices: *mut i32, comms: *mut HcclComm) -> HcclResult;
    pub fn HcclCommInitClusterInfo(
        cluster_info: *const ::std::os::raw::c_char,
        rank: u32,
        comm: *mut HcclComm,
    ) -> HcclResult;
    pub fn HcclCommInitClusterInfoConfig(
        cluster_info: *const ::std::os::raw::c_char,
        rank: u32,
        config: *mut HcclCommConfig,
        comm: *mut HcclComm,
    ) -> HcclResult;
    pub fn HcclCreateSubCommConfig(
        comm: *mut HcclComm,
        rank_num: u32,
        rank_ids: *mut u32,
        sub_comm_id: u64,
        sub_comm_rank_id: u32,
        config: *mut HcclCommConfig,
        sub_comm: *mut HcclComm,
    ) -> HcclResult;
    pub fn HcclCommDestroy(comm: HcclComm) -> HcclResult;
    pub fn HcclGetRankSize(comm: HcclComm, rank_size: *mut u32) -> HcclResult;
    pub fn HcclGetRankId(comm: HcclComm, rank: *mut u32) -> HcclResult;
    pub fn HcclGetCommName(comm: HcclComm, comm_name: *mut ::std::os::raw::c_char) -> HcclResult;
    pub fn HcclGetCommAsyncError(comm: HcclComm, async_error: *mut HcclResult) -> HcclResult;
    pub fn HcclGetErrorString(code: HcclResult) -> *const ::std::os::raw::c_char;
    pub fn HcclGetCommConfigCapability() -> u32;
    pub fn HcclSetConfig(config: HcclConfig, config_value: HcclConfigValue) -> HcclResult;
    pub fn HcclGetConfig(config: HcclConfig, config_value: *mut HcclConfigValue) -> HcclResult;
    pub fn HcclCommSuspend(comm: HcclComm) -> HcclResult;
    pub fn HcclCommResume(comm: HcclComm) -> HcclResult;
    pub fn HcclCommSetMemoryRange(
        comm: HcclComm,
        base_vir_ptr: *mut ::std::os::raw::c_void,
        size: usize,
        alignment: usize,
        flags: u64,
    ) -> HcclResult;
    pub fn HcclCommUnsetMemoryRange(comm: HcclComm, base_vir_ptr: *mut ::std::os::raw::c_void) -> HcclResult;
    pub fn HcclCommActivateCommMemory(
        comm: HcclComm,
        virtual_ptr: *mut ::std::os::raw::c_void,
        size: usize,
        offset: usize,
        handle: aclrtDrvMemHandle,
        flags: u64,
    ) -> HcclResult;
    pub fn HcclCommDeactivateCommMemory(comm: HcclComm, virtual_ptr: *mut ::std::os::raw::c_void) -> HcclResult;
    pub fn HcclAllReduce(
        send_buf: *mut ::std::os::raw::c_void,
        recv_buf: *mut ::std::os::raw::c_void,
        count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclReduce(
        send_buf: *mut ::std::os::raw::c_void,
        recv_buf: *mut ::std::os::raw::c_void,
        count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        root: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclReduceScatter(
        send_buf: *mut ::std::os::raw::c_void,
        recv_buf: *mut ::std::os::raw::c_void,
        recv_count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclReduceScatterV(
        send_buf: *mut ::std::os::raw::c_void,
        send_counts: *const ::std::os::raw::c_void,
        send_displs: *const ::std::os::raw::c_void,
        recv_buf: *mut ::std::os::raw::c_void,
        recv_count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclBroadcast(
        buf: *mut ::std::os::raw::c_void,
        count: u64,
        data_type: HcclDataType,
        root: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclScatter(
        send_buf: *mut ::std::os::raw::c_void,
        recv_buf: *mut ::std::os::raw::c_void,
        recv_count: u64,
        data_type: HcclDataType,
        root: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclAllGather(
        send_buf: *mut ::std::os::raw::c_void,
        recv_buf: *mut ::std::os::raw::c_void,
        send_count: u64,
        data_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclAllGatherV(
        send_buf: *mut ::std::os::raw::c_void,
        send_count: u64,
        recv_buf: *mut ::std::os::raw::c_void,
        recv_counts: *const ::std::os::raw::c_void,
        recv_displs: *const ::std::os::raw::c_void,
        data_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclAlltoAll(
        send_buf: *const ::std::os::raw::c_void,
        send_count: u64,
        send_type: HcclDataType,
        recv_buf: *const ::std::os::raw::c_void,
        recv_count: u64,
        recv_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclAlltoAllV(
        send_buf: *const ::std::os::raw::c_void,
        send_counts: *const ::std::os::raw::c_void,
        sdispls: *const ::std::os::raw::c_void,
        send_type: HcclDataType,
        recv_buf: *const ::std::os::raw::c_void,
        recv_counts: *const ::std::os::raw::c_void,
        rdispls: *const ::std::os::raw::c_void,
        recv_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclAlltoAllVC(
        send_buf: *const ::std::os::raw::c_void,
        send_count_matrix: *const ::std::os::raw::c_void,
        send_type: HcclDataType,
        recv_buf: *const ::std::os::raw::c_void,
        recv_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclSend(
        send_buf: *mut ::std::os::raw::c_void,
        count: u64,
        data_type: HcclDataType,
        dest_rank: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclRecv(
        recv_buf: *mut ::std::os::raw::c_void,
        count: u64,
        data_type: HcclDataType,
        src_rank: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclBatchSendRecv(
        send_recv_info: *mut HcclSendRecvItem,
        item_num: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> HcclResult;
    pub fn HcclBarrier(comm: HcclComm, stream: aclrtStream) -> HcclResult;
    pub fn aclnnInit(config_path: *const ::std::os::raw::c_char) -> aclnnStatus;
    pub fn aclnnFinalize() -> aclnnStatus;
    pub fn aclCreateTensor(
        view_dims: *const i64,
        view_dims_num: u64,
        data_type: aclDataType,
        stride: *const i64,
        offset: i64,
        format: aclFormat,
        storage_dims: *const i64,
        storage_dims_num: u64,
        tensor_data: *mut ::std::os::raw::c_void,
    ) -> *mut aclTensor;
    pub fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus;
    pub fn aclInitTensor(
        tensor: *mut aclTensor,
        view_dims: *const i64,
        view_dims_num: u64,
        data_type: aclDataType,
        stride: *const i64,
        offset: i64,
        format: aclFormat,
        storage_dims: *const i64,
        storage_dims_num: u64,
        tensor_data_addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList;
    pub fn aclDestroyTensorList(array: *const aclTensorList) -> aclnnStatus;
    pub fn aclCreateScalar(value: *mut ::std::os::raw::c_void, data_type: aclDataType) -> *mut aclScalar;
    pub fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus;
    pub fn aclCreateScalarList(value: *const *const aclScalar, size: u64) -> *mut aclScalarList;
    pub fn aclDestroyScalarList(array: *const aclScalarList) -> aclnnStatus;
    pub fn aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray;
    pub fn aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus;
    pub fn aclCreateFloatArray(value: *const f32, size: u64) -> *mut aclFloatArray;
    pub fn aclDestroyFloatArray(array: *const aclFloatArray) -> aclnnStatus;
    pub fn aclCreateBoolArray(value: *const bool, size: u64) -> *mut aclBoolArray;
    pub fn aclDestroyBoolArray(array: *const aclBoolArray) -> aclnnStatus;
    pub fn aclGetViewShape(tensor: *const aclTensor, view_dims: *mut *mut i64, view_dims_num: *mut u64) -> aclnnStatus;
    pub fn aclGetStorageShape(
        tensor: *const aclTensor,
        storage_dims: *mut *mut i64,
        storage_dims_num: *mut u64,
    ) -> aclnnStatus;
    pub fn aclGetViewStrides(
        tensor: *const aclTensor,
        strides_value: *mut *mut i64,
        strides_num: *mut u64,
    ) -> aclnnStatus;
    pub fn aclGetViewOffset(tensor: *const aclTensor, offset: *mut i64) -> aclnnStatus;
    pub fn aclGetFormat(tensor: *const aclTensor, format: *mut aclFormat) -> aclnnStatus;
    pub fn aclGetDataType(tensor: *const aclTensor, data_type: *mut aclDataType) -> aclnnStatus;
    pub fn aclGetRawTensorAddr(tensor: *const aclTensor, addr: *mut *mut ::std::os::raw::c_void) -> aclnnStatus;
    pub fn aclSetRawTensorAddr(tensor: *mut aclTensor, addr: *mut ::std::os::raw::c_void) -> aclnnStatus;
    pub fn aclGetTensorListSize(tensor_list: *const aclTensorList, size: *mut u64) -> aclnnStatus;
    pub fn aclGetScalarListSize(scalar_list: *const aclScalarList, size: *mut u64) -> aclnnStatus;
    pub fn aclGetIntArraySize(array: *const aclIntArray, size: *mut u64) -> aclnnStatus;
    pub fn aclGetFloatArraySize(array: *const aclFloatArray, size: *mut u64) -> aclnnStatus;
    pub fn aclGetBoolArraySize(array: *const aclBoolArray, size: *mut u64) -> aclnnStatus;
    pub fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus;
    pub fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus;
    pub fn aclSetTensorAddr(
        executor: *mut aclOpExecutor,
        index: usize,
        tensor: *mut aclTensor,
        addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclSetInputTensorAddr(
        executor: *mut aclOpExecutor,
        index: usize,
        tensor: *mut aclTensor,
        addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclSetOutputTensorAddr(
        executor: *mut aclOpExecutor,
        index: usize,
        tensor: *mut aclTensor,
        addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclSetDynamicTensorAddr(
        executor: *mut aclOpExecutor,
        ir_index: usize,
        relative_index: usize,
        tensors: *mut aclTensorList,
        addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclSetDynamicInputTensorAddr(
        executor: *mut aclOpExecutor,
        ir_index: usize,
        relative_index: usize,
        tensors: *mut aclTensorList,
        addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclSetDynamicOutputTensorAddr(
        executor: *mut aclOpExecutor,
        ir_index: usize,
        relative_index: usize,
        tensors: *mut aclTensorList,
        addr: *mut ::std::os::raw::c_void,
    ) -> aclnnStatus;
    pub fn aclnnMatmulGetWorkspaceSize(
        self_: *const aclTensor,
        mat2: *const aclTensor,
        out: *mut aclTensor,
        cube_math_type: i8,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMatmul(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMmGetWorkspaceSize(
        self_: *const aclTensor,
        mat2: *const aclTensor,
        out: *mut aclTensor,
        cube_math_type: i8,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMm(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnBatchMatMulGetWorkspaceSize(
        self_: *const aclTensor,
        mat2: *const aclTensor,
        out: *mut aclTensor,
        cube_math_type: i8,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnBatchMatMul(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAddmmGetWorkspaceSize(
        self_: *const aclTensor,
        mat1: *const aclTensor,
        mat2: *const aclTensor,
        beta: *const aclScalar,
        alpha: *const aclScalar,
        out: *mut aclTensor,
        cube_math_type: i8,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAddmm(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnGroupedMatmulAddGetWorkspaceSize(
        x: *const aclTensor,
        weight: *const aclTensor,
        group_list: *const aclTensor,
        y_ref: *mut aclTensor,
        transpose_x: bool,
        transpose_weight: bool,
        group_type: i64,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnGroupedMatmulAdd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnQuantMatmulV4GetWorkspaceSize(
        x1: *const aclTensor,
        x2: *const aclTensor,
        scale: *const aclTensor,
        offset: *const aclTensor,
        pertoken_scale_optional: *const aclTensor,
        bias: *const aclTensor,
        transpose_x1: bool,
        transpose_x2: bool,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnQuantMatmulV4(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnDynamicQuantGetWorkspaceSize(
        x: *const aclTensor,
        smooth_scales_optional: *const aclTensor,
        y_out: *const aclTensor,
        scale_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnDynamicQuant(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAddGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        alpha: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAdd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAddsGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        alpha: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAdds(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSubGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        alpha: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSub(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSubsGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        alpha: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSubs(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMulGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMul(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMulsGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMuls(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnDivGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnDiv(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnDivsGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnDivs(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAddcmulGetWorkspaceSize(
        self_: *const aclTensor,
        tensor1: *const aclTensor,
        tensor2: *const aclTensor,
        value: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAddcmul(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAddcdivGetWorkspaceSize(
        self_: *const aclTensor,
        tensor1: *const aclTensor,
        tensor2: *const aclTensor,
        value: *const aclScalar,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAddcdiv(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLerpGetWorkspaceSize(
        self_: *const aclTensor,
        end: *const aclTensor,
        weight: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLerp(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLerpsGetWorkspaceSize(
        self_: *const aclTensor,
        end: *const aclTensor,
        weight: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLerps(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnNegGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnNeg(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnExpGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnExp(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLogGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLog(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSqrtGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSqrt(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnRsqrtGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnRsqrt(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnReciprocalGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnReciprocal(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnPowTensorScalarGetWorkspaceSize(
        self_: *const aclTensor,
        exponent: *const aclScalar,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnPowTensorScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMaximumGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMaximum(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMinimumGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMinimum(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnClampGetWorkspaceSize(
        self_: *const aclTensor,
        clip_value_min: *const aclScalar,
        clip_value_max: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnClamp(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnClampMinGetWorkspaceSize(
        self_: *const aclTensor,
        clip_value_min: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnClampMin(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAddGetWorkspaceSize(
        self_ref: *const aclTensor,
        other: *const aclTensor,
        alpha: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAdd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAddsGetWorkspaceSize(
        self_ref: *const aclTensor,
        other: *const aclScalar,
        alpha: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAdds(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceSubGetWorkspaceSize(
        self_ref: *mut aclTensor,
        other: *const aclTensor,
        alpha: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceSub(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceSubsGetWorkspaceSize(
        self_ref: *mut aclTensor,
        other: *const aclScalar,
        alpha: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceSubs(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceMulGetWorkspaceSize(
        self_ref: *mut aclTensor,
        other: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceMul(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceMulsGetWorkspaceSize(
        self_ref: *mut aclTensor,
        other: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceMuls(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceDivGetWorkspaceSize(
        self_ref: *mut aclTensor,
        other: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceDiv(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceDivsGetWorkspaceSize(
        self_ref: *mut aclTensor,
        other: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceDivs(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAddcmulGetWorkspaceSize(
        self_ref: *const aclTensor,
        tensor1: *const aclTensor,
        tensor2: *const aclTensor,
        value: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAddcmul(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAddcdivGetWorkspaceSize(
        self_ref: *const aclTensor,
        tensor1: *const aclTensor,
        tensor2: *const aclTensor,
        value: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceAddcdiv(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceLerpGetWorkspaceSize(
        self_ref: *mut aclTensor,
        end: *const aclTensor,
        weight: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceLerp(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceLerpsGetWorkspaceSize(
        self_ref: *mut aclTensor,
        end: *const aclTensor,
        weight: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceLerps(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnTanhGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnTanh(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSigmoidGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSigmoid(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSiluGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSilu(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnGeluGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnGelu(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSwiGluGetWorkspaceSize(
        x: *const aclTensor,
        dim: i64,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSwiGlu(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnRmsNormGetWorkspaceSize(
        x: *const aclTensor,
        gamma: *const aclTensor,
        epsilon: f64,
        y_out: *const aclTensor,
        rstd_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnRmsNorm(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAddRmsNormGetWorkspaceSize(
        x1: *const aclTensor,
        x2: *const aclTensor,
        gamma: *const aclTensor,
        epsilon: f64,
        y_out: *const aclTensor,
        rstd_out: *const aclTensor,
        x_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAddRmsNorm(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLayerNormGetWorkspaceSize(
        input: *const aclTensor,
        normalized_shape: *const aclIntArray,
        weight_optional: *const aclTensor,
        bias_optional: *const aclTensor,
        eps: f64,
        out: *mut aclTensor,
        mean_out_optional: *mut aclTensor,
        rstd_out_optional: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLayerNorm(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSoftmaxGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSoftmax(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLogSoftmaxGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLogSoftmax(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnRotaryPositionEmbeddingGetWorkspaceSize(
        x: *const aclTensor,
        cos: *const aclTensor,
        sin: *const aclTensor,
        mode: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnRotaryPositionEmbedding(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnFusedInferAttentionScoreV2GetWorkspaceSize(
        query: *const aclTensor,
        key: *const aclTensorList,
        value: *const aclTensorList,
        pse_shift_optional: *const aclTensor,
        atten_mask_optional: *const aclTensor,
        actual_seq_lengths_optional: *const aclIntArray,
        actual_seq_lengths_kv_optional: *const aclIntArray,
        deq_scale1_optional: *const aclTensor,
        quant_scale1_optional: *const aclTensor,
        deq_scale2_optional: *const aclTensor,
        quant_scale2_optional: *const aclTensor,
        quant_offset2_optional: *const aclTensor,
        antiquant_scale_optional: *const aclTensor,
        antiquant_offset_optional: *const aclTensor,
        block_table_optional: *const aclTensor,
        query_padding_size_optional: *const aclTensor,
        kv_padding_size_optional: *const aclTensor,
        key_antiquant_scale_optional: *const aclTensor,
        key_antiquant_offset_optional: *const aclTensor,
        value_antiquant_scale_optional: *const aclTensor,
        value_antiquant_offset_optional: *const aclTensor,
        key_shared_prefix_optional: *const aclTensor,
        value_shared_prefix_optional: *const aclTensor,
        actual_shared_prefix_len_optional: *const aclIntArray,
        num_heads: i64,
        scale_value: f64,
        pre_tokens: i64,
        next_tokens: i64,
        input_layout: *mut ::std::os::raw::c_char,
        num_key_value_heads: i64,
        sparse_mode: i64,
        inner_precise: i64,
        block_size: i64,
        antiquant_mode: i64,
        softmax_lse_flag: bool,
        key_antiquant_mode: i64,
        value_antiquant_mode: i64,
        attention_out: *const aclTensor,
        softmax_lse: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnFusedInferAttentionScoreV2(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnPromptFlashAttentionV3GetWorkspaceSize(
        query: *const aclTensor,
        key: *const aclTensor,
        value: *const aclTensor,
        pse_shift: *const aclTensor,
        atten_mask: *const aclTensor,
        actual_seq_lengths: *const aclIntArray,
        actual_seq_lengths_kv: *const aclIntArray,
        deq_scale1: *const aclTensor,
        quant_scale1: *const aclTensor,
        deq_scale2: *const aclTensor,
        quant_scale2: *const aclTensor,
        quant_offset2: *const aclTensor,
        num_heads: i64,
        scale_value: f64,
        pre_tokens: i64,
        next_tokens: i64,
        input_layout: *mut ::std::os::raw::c_char,
        num_key_value_heads: i64,
        sparse_mode: i64,
        inner_precise: i64,
        attention_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnPromptFlashAttentionV3(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnIncreFlashAttentionV4GetWorkspaceSize(
        query: *const aclTensor,
        key: *const aclTensorList,
        value: *const aclTensorList,
        pse_shift: *const aclTensor,
        atten_mask: *const aclTensor,
        actual_seq_lengths: *const aclIntArray,
        dequant_scale1: *const aclTensor,
        quant_scale1: *const aclTensor,
        dequant_scale2: *const aclTensor,
        quant_scale2: *const aclTensor,
        quant_offset2: *const aclTensor,
        antiquant_scale: *const aclTensor,
        antiquant_offset: *const aclTensor,
        blocktable: *const aclTensor,
        kv_padding_size: *const aclTensor,
        num_heads: i64,
        scale_value: f64,
        input_layout: *mut ::std::os::raw::c_char,
        num_key_value_heads: i64,
        block_size: i64,
        inner_precise: i64,
        attention_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnIncreFlashAttentionV4(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSiluBackwardGetWorkspaceSize(
        grad_output: *const aclTensor,
        self_: *const aclTensor,
        grad_input: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSiluBackward(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSwiGluGradGetWorkspaceSize(
        y_grad: *const aclTensor,
        x: *const aclTensor,
        dim: i64,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSwiGluGrad(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnRmsNormGradGetWorkspaceSize(
        dy: *const aclTensor,
        x: *const aclTensor,
        rstd: *const aclTensor,
        gamma: *const aclTensor,
        dx_out: *const aclTensor,
        dgamma_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnRmsNormGrad(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSoftmaxBackwardGetWorkspaceSize(
        grad_output: *const aclTensor,
        output: *const aclTensor,
        dim: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSoftmaxBackward(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnEmbeddingDenseBackwardGetWorkspaceSize(
        grad: *const aclTensor,
        indices: *const aclTensor,
        num_weights: u64,
        padding_idx: u64,
        scale_grad_by_freq: bool,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnEmbeddingDenseBackward(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnCrossEntropyLossGetWorkspaceSize(
        input: *const aclTensor,
        target: *const aclTensor,
        weight_optional: *const aclTensor,
        reduction_optional: *mut ::std::os::raw::c_char,
        ignore_index: i64,
        label_smoothing: f64,
        lse_square_scale_for_zloss: f64,
        return_zloss: bool,
        loss_out: *const aclTensor,
        log_prob_out: *const aclTensor,
        zloss_out: *const aclTensor,
        lse_for_zloss_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnCrossEntropyLoss(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnCrossEntropyLossGradGetWorkspaceSize(
        grad_loss: *const aclTensor,
        log_prob: *const aclTensor,
        target: *const aclTensor,
        weight_optional: *const aclTensor,
        grad_zloss_optional: *const aclTensor,
        lse_for_zloss_optional: *const aclTensor,
        reduction_optional: *mut ::std::os::raw::c_char,
        ignore_index: i64,
        label_smoothing: f64,
        lse_square_scale_for_zloss: f64,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnCrossEntropyLossGrad(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnFlashAttentionScoreGetWorkspaceSize(
        query: *const aclTensor,
        key: *const aclTensor,
        value: *const aclTensor,
        real_shift_optional: *const aclTensor,
        drop_mask_optional: *const aclTensor,
        padding_mask_optional: *const aclTensor,
        atten_mask_optional: *const aclTensor,
        prefix_optional: *const aclIntArray,
        scale_value: f64,
        keep_prob: f64,
        pre_tokens: i64,
        next_tokens: i64,
        head_num: i64,
        input_layout: *mut ::std::os::raw::c_char,
        inner_precise: i64,
        sparse_mode: i64,
        softmax_max_out: *const aclTensor,
        softmax_sum_out: *const aclTensor,
        softmax_out_out: *const aclTensor,
        attention_out_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnFlashAttentionScore(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnFlashAttentionScoreGradGetWorkspaceSize(
        query: *const aclTensor,
        key_in: *const aclTensor,
        value: *const aclTensor,
        dy: *const aclTensor,
        pse_shift_optional: *const aclTensor,
        drop_mask_optional: *const aclTensor,
        padding_mask_optional: *const aclTensor,
        atten_mask_optional: *const aclTensor,
        softmax_max_optional: *const aclTensor,
        softmax_sum_optional: *const aclTensor,
        softmax_in_optional: *const aclTensor,
        attention_in_optional: *const aclTensor,
        prefix_optional: *const aclIntArray,
        scale_value: f64,
        keep_prob: f64,
        pre_tokens: i64,
        next_tokens: i64,
        head_num: i64,
        input_layout: *mut ::std::os::raw::c_char,
        inner_precise: i64,
        sparse_mode: i64,
        dq_out: *const aclTensor,
        dk_out: *const aclTensor,
        dv_out: *const aclTensor,
        dpse_out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnFlashAttentionScoreGrad(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnApplyAdamWV2GetWorkspaceSize(
        var_ref: *mut aclTensor,
        m_ref: *mut aclTensor,
        v_ref: *mut aclTensor,
        max_grad_norm_optional_ref: *mut aclTensor,
        grad: *const aclTensor,
        step: *const aclTensor,
        lr: f32,
        beta1: f32,
        beta2: f32,
        weight_decay: f32,
        eps: f32,
        amsgrad: bool,
        maximize: bool,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnApplyAdamWV2(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnEmbeddingGetWorkspaceSize(
        weight: *const aclTensor,
        indices: *const aclTensor,
        out: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnEmbedding(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnIndexSelectGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        index: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnIndexSelect(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnGatherGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        index: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnGather(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnGatherV2GetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        index: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnGatherV2(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceIndexCopyGetWorkspaceSize(
        self_ref: *mut aclTensor,
        dim: i64,
        index: *const aclTensor,
        source: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceIndexCopy(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnScatterAddGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        index: *const aclTensor,
        src: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnScatterAdd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceScatterUpdateGetWorkspaceSize(
        data: *mut aclTensor,
        indices: *const aclTensor,
        updates: *const aclTensor,
        axis: i64,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceScatterUpdate(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnIndexAddGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        index: *const aclTensor,
        source: *const aclTensor,
        alpha: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnIndexAdd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnOneHotGetWorkspaceSize(
        self_: *const aclTensor,
        num_classes: ::std::os::raw::c_int,
        on_value: *const aclTensor,
        off_value: *const aclTensor,
        axis: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnOneHot(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnCastGetWorkspaceSize(
        self_: *const aclTensor,
        dtype: aclDataType,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnCast(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceCopyGetWorkspaceSize(
        self_ref: *mut aclTensor,
        src: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceCopy(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceZeroGetWorkspaceSize(
        self_ref: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceZero(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceOneGetWorkspaceSize(
        self_ref: *const aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceOne(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceFillScalarGetWorkspaceSize(
        self_ref: *mut aclTensor,
        value: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceFillScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceMaskedFillScalarGetWorkspaceSize(
        self_ref: *mut aclTensor,
        mask: *const aclTensor,
        value: *const aclScalar,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceMaskedFillScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnArangeGetWorkspaceSize(
        start: *const aclScalar,
        end: *const aclScalar,
        step: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnArange(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnEqTensorGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnEqTensor(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnNeTensorGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnNeTensor(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLtTensorGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLtTensor(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnEqScalarGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnEqScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnNeScalarGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnNeScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnGtScalarGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnGtScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLtScalarGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLtScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnGeScalarGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnGeScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLeScalarGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLeScalar(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLogicalNotGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLogicalNot(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLogicalAndGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLogicalAnd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnLogicalOrGetWorkspaceSize(
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnLogicalOr(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnIsFiniteGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnIsFinite(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSWhereGetWorkspaceSize(
        condition: *const aclTensor,
        self_: *const aclTensor,
        other: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSWhere(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnArgMaxGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        keepdim: bool,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnArgMax(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMaxDimGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        keepdim: bool,
        out: *mut aclTensor,
        indices: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMaxDim(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMaxGetWorkspaceSize(
        self_: *const aclTensor,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMax(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnAmaxGetWorkspaceSize(
        self_: *const aclTensor,
        dim: *const aclIntArray,
        keep_dim: bool,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnAmax(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnReduceSumGetWorkspaceSize(
        self_: *const aclTensor,
        dims: *const aclIntArray,
        keep_dims: bool,
        dtype: aclDataType,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnReduceSum(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnMeanGetWorkspaceSize(
        self_: *const aclTensor,
        dim: *const aclIntArray,
        keep_dim: bool,
        dtype: aclDataType,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnMean(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnCumsumGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        dtype: aclDataType,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnCumsum(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnTopkGetWorkspaceSize(
        self_: *const aclTensor,
        k: i64,
        dim: i64,
        largest: bool,
        sorted: bool,
        values_out: *mut aclTensor,
        indices_out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnTopk(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSortGetWorkspaceSize(
        self_: *const aclTensor,
        stable: bool,
        dim: i64,
        descending: bool,
        values_out: *mut aclTensor,
        indices_out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSort(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnCatGetWorkspaceSize(
        tensors: *const aclTensorList,
        dim: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnCat(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnPermuteGetWorkspaceSize(
        self_: *const aclTensor,
        dims: *const aclIntArray,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnPermute(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnSliceGetWorkspaceSize(
        self_: *const aclTensor,
        dim: i64,
        start: i64,
        end: i64,
        step: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnSlice(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnRepeatGetWorkspaceSize(
        self_: *const aclTensor,
        repeats: *const aclIntArray,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnRepeat(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnExpandGetWorkspaceSize(
        self_: *const aclTensor,
        size: *const aclIntArray,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnExpand(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnConstantPadNdGetWorkspaceSize(
        self_: *const aclTensor,
        pad: *const aclIntArray,
        value: *const aclScalar,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnConstantPadNd(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnTriuGetWorkspaceSize(
        self_: *const aclTensor,
        diagonal: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnTriu(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnTrilGetWorkspaceSize(
        self_: *const aclTensor,
        diagonal: i64,
        out: *mut aclTensor,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnTril(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
    pub fn aclnnInplaceTriuGetWorkspaceSize(
        self_ref: *mut aclTensor,
        diagonal: i64,
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus;
    pub fn aclnnInplaceTriu(
        workspace: *mut ::std::os::raw::c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus;
}
