/*
 * Functions of libascendcl.so that the emulator answers and ascend-tp never calls: the table has no field for
 * them. A function that ascend-tp begins to call moves to ../.
 *
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_DROPIN_ACL_H
#define ASCEND_TP_DROPIN_ACL_H

#include "../acl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of the operator compiler; each value is a text. */
typedef enum aclCompileOpt {
    ACL_PRECISION_MODE = 0,
    ACL_AICORE_NUM = 1,
    ACL_AUTO_TUNE_MODE = 2,
    ACL_OP_SELECT_IMPL_MODE = 3,
    ACL_OPTYPELIST_FOR_IMPLMODE = 4,
    ACL_OP_DEBUG_LEVEL = 5,
    ACL_DEBUG_DIR = 6,
    ACL_OP_COMPILER_CACHE_MODE = 7,
    ACL_OP_COMPILER_CACHE_DIR = 8,
    ACL_OP_PERFORMANCE_MODE = 9,
    ACL_OP_JIT_COMPILE = 10,
    ACL_OP_DETERMINISTIC = 11,
    ACL_CUSTOMIZE_DTYPES = 12,
    ACL_OP_PRECISION_MODE = 13,
    ACL_ALLOW_HF32 = 14,
    ACL_PRECISION_MODE_V2 = 15,
    ACL_OP_DEBUG_OPTION = 16,
} aclCompileOpt;

/** Parameters of a process or of a context. */
typedef enum aclSysParamOpt {
    ACL_OPT_DETERMINISTIC = 0,
    ACL_OPT_ENABLE_DEBUG_KERNEL = 1,
    ACL_OPT_STRONG_CONSISTENCY = 2,
} aclSysParamOpt;

/* Options and limits of a process or a context */
aclError aclSetCompileopt(aclCompileOpt opt, const char *value);
aclError aclGetCompileopt(aclCompileOpt opt, char *value, size_t length);
size_t aclGetCompileoptSize(aclCompileOpt opt);
aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value);
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);
aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value);
aclError aclrtSetOpWaitTimeout(uint32_t timeout);
aclError aclrtSetOpExecuteTimeOut(uint32_t timeout);
aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout);
/** @since 9.x */
aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actual_timeout);

/* Devices */
aclError aclrtQueryDeviceStatus(int32_t device_id, aclrtDeviceStatus *device_status);
/** @since 9.x */
aclError aclrtDeviceGetStreamPriorityRange(int32_t *least_priority, int32_t *greatest_priority);
/** @since 9.x */
aclError aclrtGetDeviceCapability(int32_t device_id, aclrtDevFeatureType dev_feature_type, int32_t *value);
aclError aclrtDeviceTaskAbort(int32_t device_id, uint32_t timeout);

/* Contexts */
/** @since 9.x */
aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream);

/* Memory and copies */
aclError aclrtMallocAlign32(void **dev_ptr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocCached(void **dev_ptr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocWithCfg(void **dev_ptr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg);
/** @since 9.x */
aclError aclrtRandomNumAsync(const aclrtRandomNumTaskInfo *task_info, aclrtStream stream, void *reserve);

/* Virtual addresses, shared and imported memory */
/** @since 9.x */
aclError aclrtMemSetAccess(void *virtual_ptr, size_t size, aclrtMemAccessDesc *desc, size_t count);
/** @since 9.x */
aclError aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags,
    aclrtMemSharedHandleType share_type, void *shareable_handle);
/** @since 9.x */
aclError aclrtMemImportFromShareableHandleV2(void *shareable_handle, aclrtMemSharedHandleType share_type,
    uint64_t flags, aclrtDrvMemHandle *handle);

/* Capture and replay */
/** @since 9.x */
aclError aclmdlRIGetId(aclmdlRI model_ri, uint32_t *model_ri_id);
/** @since 9.x */
aclError aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI model_ri, aclmdlRICaptureMode mode);
/** @since 9.x */
aclError aclmdlRICondHandleCreate(aclmdlRI model_ri, uint32_t default_launch_value, aclmdlRICondHandleFlag flag,
    aclmdlRICondHandle *handle);
/** @since 9.x */
aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t **ptr);
/** @since 9.x */
aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags);

/* Kernels */
/** @since 9.x */
aclError aclrtBinaryLoadFromData(const void *data, size_t length, const aclrtBinaryLoadOptions *options,
    aclrtBinHandle *bin_handle);
/** @since 9.x */
aclError aclrtLaunchKernelV2(aclrtFuncHandle func_handle, uint32_t num_blocks, const void *args_data,
    size_t args_size, aclrtLaunchKernelCfg *cfg, aclrtStream stream);
/** @since 9.x */
aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle func_handle, uint32_t num_blocks, aclrtStream stream,
    aclrtLaunchKernelCfg *cfg, void *host_args, size_t args_size, aclrtPlaceHolderInfo *place_holder_array,
    size_t place_holder_num);

/* Errors and exceptions */
/** @since 9.x */
aclError aclrtGetArgsFromExceptionInfo(const aclrtExceptionInfo *info, void **dev_args_ptr, uint32_t *dev_args_len);
/** @since 9.x */
aclError aclrtGetFuncHandleFromExceptionInfo(const aclrtExceptionInfo *info, aclrtFuncHandle *func);

/* Values of data types, data buffers, profiling */
size_t aclDataTypeSize(aclDataType data_type);
float aclFloat16ToFloat(aclFloat16 value);
aclFloat16 aclFloatToFloat16(float value);

#ifdef __cplusplus
}
#endif

#endif
