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

/** Operations on a card's cache. */
typedef enum aclrtCmoType {
    ACL_RT_CMO_TYPE_PREFETCH = 0,
    ACL_RT_CMO_TYPE_WRITEBACK = 1,
    ACL_RT_CMO_TYPE_INVALID = 2,
    ACL_RT_CMO_TYPE_FLUSH = 3,
} aclrtCmoType;

/** Selects the member of aclrtStreamAttrValue. */
typedef enum aclrtStreamAttr {
    ACL_STREAM_ATTR_FAILURE_MODE = 1,
    ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK = 2,
    ACL_STREAM_ATTR_USER_CUSTOM_TAG = 3,
    ACL_STREAM_ATTR_CACHE_OP_INFO = 4,
    ACL_STREAM_ATTR_PRIORITY = 5,
} aclrtStreamAttr;

/** Value of one attribute of a stream. */
typedef union aclrtStreamAttrValue {
    uint64_t failureMode;
    uint32_t overflowSwitch;
    uint32_t userCustomTag;
    uint32_t cacheOpInfoSwitch;
    uint32_t streamPriority;
    uint32_t reserve[4];
} aclrtStreamAttrValue;

/** Locations of the memory of some copies of a batch. */
typedef struct aclrtMemcpyBatchAttr {
    aclrtMemLocation dstLoc;
    aclrtMemLocation srcLoc;
    uint8_t rsv[16];
} aclrtMemcpyBatchAttr;

/** Identifier of a device. */
typedef struct aclrtUuid {
    char bytes[16];
} aclrtUuid;

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
/** @since 9.x */
aclError aclrtDeviceGetUuid(int32_t device_id, aclrtUuid *uuid);
aclError aclrtGetMemUceInfo(int32_t device_id, aclrtMemUceInfo *mem_uce_info_array, size_t array_size,
    size_t *ret_size);
aclError aclrtMemUceRepair(int32_t device_id, aclrtMemUceInfo *mem_uce_info_array, size_t array_size);
/** @since 9.x */
aclError aclrtRepairError(int32_t device_id, const aclrtErrorInfo *error_info);

/* Contexts */
/** @since 9.x */
aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream);
/** @since 9.x */
aclError aclrtGetPrimaryCtxState(int32_t device_id, uint32_t *flags, int32_t *active);

/* Streams */
aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag);
aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag);
/** @since 9.x */
aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stm_attr_type, aclrtStreamAttrValue *value);
/** @since 9.x */
aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stm_attr_type, aclrtStreamAttrValue *value);
/** @since 9.x */
aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value);
/** @since 9.x */
aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value);
/** @since 9.x */
aclError aclrtResetStreamResLimit(aclrtStream stream);
/** @since 9.x */
aclError aclrtUseStreamResInCurrentThread(aclrtStream stream);
/** @since 9.x */
aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream);

/* Memory and copies */
aclError aclrtMallocAlign32(void **dev_ptr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocCached(void **dev_ptr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocWithCfg(void **dev_ptr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg);
aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg);
/** @since 9.x */
aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag);
/** @since 9.x */
aclError aclrtHostGetDevicePointer(void *p_host, void **p_device, uint32_t flag);
aclError aclrtMemcpyAsyncWithCondition(void *dst, size_t dest_max, const void *src, size_t count,
    aclrtMemcpyKind kind, aclrtStream stream);
/** @since 9.x */
aclError aclrtMemcpyBatch(void **dsts, size_t *dest_maxs, void **srcs, size_t *sizes, size_t num_batches,
    aclrtMemcpyBatchAttr *attrs, size_t *attrs_indexes, size_t num_attrs, size_t *fail_index);
/** @since 9.x */
aclError aclrtMemcpyBatchAsync(void **dsts, size_t *dest_maxs, void **srcs, size_t *sizes, size_t num_batches,
    aclrtMemcpyBatchAttr *attrs, size_t *attrs_indexes, size_t num_attrs, size_t *fail_index, aclrtStream stream);
/** @since 9.x */
aclError aclrtMemcpyBatchV2(void **dsts, size_t *dest_maxs, void **srcs, size_t *sizes, size_t num_batches,
    aclrtMemcpyBatchAttr *attrs, size_t *attrs_indexes, size_t num_attrs);
/** @since 9.x */
aclError aclrtMemcpyBatchAsyncV2(void **dsts, size_t *dest_maxs, void **srcs, size_t *sizes, size_t num_batches,
    aclrtMemcpyBatchAttr *attrs, size_t *attrs_indexes, size_t num_attrs, aclrtStream stream);
aclError aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmo_type, aclrtStream stream);
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
