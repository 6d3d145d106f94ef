/*
 * The tensors and executors of aclnn as ascend-tp calls them: types and functions of libnnopbase.so.
 *
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_NNOPBASE_H
#define ASCEND_TP_NNOPBASE_H

#include "acl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Status of an aclnn call: 0, 161001 null pointer, 161002 invalid, 361001 runtime, 561xxx inner. */
typedef int32_t aclnnStatus;

/** A tensor: dims, strides and offset in elements over device memory it does not own. */
typedef struct aclTensor aclTensor;
/** Tensors; owns them. */
typedef struct aclTensorList aclTensorList;
/** A number and its type. */
typedef struct aclScalar aclScalar;
/** Numbers and their types; owns them. */
typedef struct aclScalarList aclScalarList;
/** Copied int64 values. */
typedef struct aclIntArray aclIntArray;
/** Copied float values. */
typedef struct aclFloatArray aclFloatArray;
/** Copied bool values. */
typedef struct aclBoolArray aclBoolArray;
/** A checked call, ready to be enqueued. */
typedef struct aclOpExecutor aclOpExecutor;

/** Memory format of a tensor. */
typedef enum aclFormat {
    ACL_FORMAT_UNDEFINED = -1,
    ACL_FORMAT_NCHW = 0,
    ACL_FORMAT_NHWC = 1,
    ACL_FORMAT_ND = 2,
    ACL_FORMAT_NC1HWC0 = 3,
    ACL_FORMAT_FRACTAL_Z = 4,
    ACL_FORMAT_NC1HWC0_C04 = 12,
    ACL_FORMAT_HWCN = 16,
    ACL_FORMAT_NDHWC = 27,
    ACL_FORMAT_FRACTAL_NZ = 29,
    ACL_FORMAT_NCDHW = 30,
    ACL_FORMAT_NDC1HWC0 = 32,
    ACL_FRACTAL_Z_3D = 33,
    ACL_FORMAT_NC = 35,
    ACL_FORMAT_NCL = 47,
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50,
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51,
    ACL_FORMAT_FRACTAL_NZ_C0_2 = 52,
    ACL_FORMAT_FRACTAL_NZ_C0_4 = 53,
    ACL_FORMAT_FRACTAL_NZ_C0_8 = 54,
} aclFormat;

/* Tensors, scalars, arrays */
aclnnStatus aclnnInit(const char *config_path);
aclnnStatus aclnnFinalize(void);
aclTensor *aclCreateTensor(const int64_t *view_dims, uint64_t view_dims_num, aclDataType data_type,
    const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storage_dims, uint64_t storage_dims_num,
    void *tensor_data);
aclnnStatus aclDestroyTensor(const aclTensor *tensor);
aclTensorList *aclCreateTensorList(const aclTensor * const *value, uint64_t size);
aclnnStatus aclDestroyTensorList(const aclTensorList *array);
aclScalar *aclCreateScalar(void *value, aclDataType data_type);
aclnnStatus aclDestroyScalar(const aclScalar *scalar);
aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size);
aclnnStatus aclDestroyIntArray(const aclIntArray *array);
aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size);
aclnnStatus aclDestroyFloatArray(const aclFloatArray *array);
aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size);
aclnnStatus aclDestroyBoolArray(const aclBoolArray *array);
aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **view_dims, uint64_t *view_dims_num);
aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storage_dims, uint64_t *storage_dims_num);
aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **strides_value, uint64_t *strides_num);
aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset);
aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format);
aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *data_type);
aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr);
aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr);
aclnnStatus aclGetTensorListSize(const aclTensorList *tensor_list, uint64_t *size);
aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size);
aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size);
aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size);

/* Executors */
aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);
aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);
aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr);
aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr);
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr);
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t ir_index, size_t relative_index,
    aclTensorList *tensors, void *addr);
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t ir_index, size_t relative_index,
    aclTensorList *tensors, void *addr);
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t ir_index, size_t relative_index,
    aclTensorList *tensors, void *addr);

#ifdef __cplusplus
}
#endif

#endif
