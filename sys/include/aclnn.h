/*
 * aclnn as ascend-tp calls it: tensors and executors of libnnopbase.so, operators of libopapi.so.
 *
 * An operator is two calls. The first checks its arguments on the host and makes an executor, the second enqueues that
 * executor on a stream; it frees the executor unless aclSetAclOpExecutorRepeatable was called on it.
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_ACLNN_H
#define ASCEND_TP_ACLNN_H

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
aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *view_dims, uint64_t view_dims_num, aclDataType data_type,
    const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storage_dims, uint64_t storage_dims_num,
    void *tensor_data_addr);
aclTensorList *aclCreateTensorList(const aclTensor * const *value, uint64_t size);
aclnnStatus aclDestroyTensorList(const aclTensorList *array);
aclScalar *aclCreateScalar(void *value, aclDataType data_type);
aclnnStatus aclDestroyScalar(const aclScalar *scalar);
aclScalarList *aclCreateScalarList(const aclScalar * const *value, uint64_t size);
aclnnStatus aclDestroyScalarList(const aclScalarList *array);
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
aclnnStatus aclGetScalarListSize(const aclScalarList *scalar_list, uint64_t *size);
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

/* Products */
aclnnStatus aclnnMatmulGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMatmul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnBatchMatMulGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnBatchMatMul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddmmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2,
    const aclScalar *beta, const aclScalar *alpha, aclTensor *out, int8_t cube_math_type, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnAddmm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGroupedMatmulAddGetWorkspaceSize(const aclTensor *x, const aclTensor *weight,
    const aclTensor *group_list, aclTensor *y_ref, bool transpose_x, bool transpose_weight, int64_t group_type,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGroupedMatmulAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
/* scale: one per column of the product or one for all; pertoken_scale_optional: one per row. transpose_x1, transpose_x2:
 * the matrix is stored with its two dims swapped. */
aclnnStatus aclnnQuantMatmulV4GetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const aclTensor *scale,
    const aclTensor *offset, const aclTensor *pertoken_scale_optional, const aclTensor *bias, bool transpose_x1,
    bool transpose_x2, const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnQuantMatmulV4(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
/* One scale per row of the last dim: its largest magnitude is the largest number of y's type. */
aclnnStatus aclnnDynamicQuantGetWorkspaceSize(const aclTensor *x, const aclTensor *smooth_scales_optional,
    const aclTensor *y_out, const aclTensor *scale_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnDynamicQuant(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Arithmetic */
aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, const aclScalar *alpha,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAdds(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSubGetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSub(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSubsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, const aclScalar *alpha,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSubs(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMulGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMulsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMuls(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnDivGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnDiv(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnDivsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnDivs(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddcmulGetWorkspaceSize(const aclTensor *self, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAddcmul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddcdivGetWorkspaceSize(const aclTensor *self, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value, const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAddcdiv(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLerpGetWorkspaceSize(const aclTensor *self, const aclTensor *end, const aclTensor *weight,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLerp(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLerpsGetWorkspaceSize(const aclTensor *self, const aclTensor *end, const aclScalar *weight,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLerps(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnNegGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnNeg(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnExpGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnExp(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnLog(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSqrtGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSqrt(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnRsqrtGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnRsqrt(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnReciprocalGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnReciprocal(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnPowTensorScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *exponent,
    const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnPowTensorScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnMaximumGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMaximum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMinimumGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMinimum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnClampGetWorkspaceSize(const aclTensor *self, const aclScalar *clip_value_min,
    const aclScalar *clip_value_max, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnClamp(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnClampMinGetWorkspaceSize(const aclTensor *self, const aclScalar *clip_value_min, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnClampMin(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceAddGetWorkspaceSize(const aclTensor *self_ref, const aclTensor *other, const aclScalar *alpha,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceAddsGetWorkspaceSize(const aclTensor *self_ref, const aclScalar *other,
    const aclScalar *alpha, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceAdds(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceSubGetWorkspaceSize(aclTensor *self_ref, const aclTensor *other, const aclScalar *alpha,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceSub(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceSubsGetWorkspaceSize(aclTensor *self_ref, const aclScalar *other, const aclScalar *alpha,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceSubs(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceMulGetWorkspaceSize(aclTensor *self_ref, const aclTensor *other, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceMul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceMulsGetWorkspaceSize(aclTensor *self_ref, const aclScalar *other, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceMuls(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceDivGetWorkspaceSize(aclTensor *self_ref, const aclTensor *other, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceDiv(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceDivsGetWorkspaceSize(aclTensor *self_ref, const aclScalar *other, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceDivs(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceAddcmulGetWorkspaceSize(const aclTensor *self_ref, const aclTensor *tensor1,
    const aclTensor *tensor2, const aclScalar *value, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceAddcmul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnInplaceAddcdivGetWorkspaceSize(const aclTensor *self_ref, const aclTensor *tensor1,
    const aclTensor *tensor2, const aclScalar *value, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceAddcdiv(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnInplaceLerpGetWorkspaceSize(aclTensor *self_ref, const aclTensor *end, const aclTensor *weight,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceLerp(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceLerpsGetWorkspaceSize(aclTensor *self_ref, const aclTensor *end, const aclScalar *weight,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceLerps(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Activations and norms */
aclnnStatus aclnnTanhGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnTanh(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSigmoidGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSigmoid(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSiluGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSilu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGeluGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnGelu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSwiGluGetWorkspaceSize(const aclTensor *x, int64_t dim, const aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSwiGlu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnRmsNormGetWorkspaceSize(const aclTensor *x, const aclTensor *gamma, double epsilon,
    const aclTensor *y_out, const aclTensor *rstd_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnRmsNorm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddRmsNormGetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    double epsilon, const aclTensor *y_out, const aclTensor *rstd_out, const aclTensor *x_out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAddRmsNorm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLayerNormGetWorkspaceSize(const aclTensor *input, const aclIntArray *normalized_shape,
    const aclTensor *weight_optional, const aclTensor *bias_optional, double eps, aclTensor *out,
    aclTensor *mean_out_optional, aclTensor *rstd_out_optional, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLayerNorm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor *self, int64_t dim, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSoftmax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogSoftmaxGetWorkspaceSize(const aclTensor *self, int64_t dim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLogSoftmax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Position and attention */
aclnnStatus aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor *x, const aclTensor *cos,
    const aclTensor *sin, int64_t mode, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnRotaryPositionEmbedding(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnFusedInferAttentionScoreV2GetWorkspaceSize(const aclTensor *query, const aclTensorList *key,
    const aclTensorList *value, const aclTensor *pse_shift_optional, const aclTensor *atten_mask_optional,
    const aclIntArray *actual_seq_lengths_optional, const aclIntArray *actual_seq_lengths_kv_optional,
    const aclTensor *deq_scale1_optional, const aclTensor *quant_scale1_optional,
    const aclTensor *deq_scale2_optional, const aclTensor *quant_scale2_optional,
    const aclTensor *quant_offset2_optional, const aclTensor *antiquant_scale_optional,
    const aclTensor *antiquant_offset_optional, const aclTensor *block_table_optional,
    const aclTensor *query_padding_size_optional, const aclTensor *kv_padding_size_optional,
    const aclTensor *key_antiquant_scale_optional, const aclTensor *key_antiquant_offset_optional,
    const aclTensor *value_antiquant_scale_optional, const aclTensor *value_antiquant_offset_optional,
    const aclTensor *key_shared_prefix_optional, const aclTensor *value_shared_prefix_optional,
    const aclIntArray *actual_shared_prefix_len_optional, int64_t num_heads, double scale_value, int64_t pre_tokens,
    int64_t next_tokens, char *input_layout, int64_t num_key_value_heads, int64_t sparse_mode, int64_t inner_precise,
    int64_t block_size, int64_t antiquant_mode, bool softmax_lse_flag, int64_t key_antiquant_mode,
    int64_t value_antiquant_mode, const aclTensor *attention_out, const aclTensor *softmax_lse,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnFusedInferAttentionScoreV2(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnPromptFlashAttentionV3GetWorkspaceSize(const aclTensor *query, const aclTensor *key,
    const aclTensor *value, const aclTensor *pse_shift, const aclTensor *atten_mask,
    const aclIntArray *actual_seq_lengths, const aclIntArray *actual_seq_lengths_kv, const aclTensor *deq_scale1,
    const aclTensor *quant_scale1, const aclTensor *deq_scale2, const aclTensor *quant_scale2,
    const aclTensor *quant_offset2, int64_t num_heads, double scale_value, int64_t pre_tokens, int64_t next_tokens,
    char *input_layout, int64_t num_key_value_heads, int64_t sparse_mode, int64_t inner_precise,
    const aclTensor *attention_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnPromptFlashAttentionV3(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnIncreFlashAttentionV4GetWorkspaceSize(const aclTensor *query, const aclTensorList *key,
    const aclTensorList *value, const aclTensor *pse_shift, const aclTensor *atten_mask,
    const aclIntArray *actual_seq_lengths, const aclTensor *dequant_scale1, const aclTensor *quant_scale1,
    const aclTensor *dequant_scale2, const aclTensor *quant_scale2, const aclTensor *quant_offset2,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset, const aclTensor *blocktable,
    const aclTensor *kv_padding_size, int64_t num_heads, double scale_value, char *input_layout,
    int64_t num_key_value_heads, int64_t block_size, int64_t inner_precise, const aclTensor *attention_out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnIncreFlashAttentionV4(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);

/* Losses, gradients and optimizers */
aclnnStatus aclnnSiluBackwardGetWorkspaceSize(const aclTensor *grad_output, const aclTensor *self,
    aclTensor *grad_input, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSiluBackward(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSwiGluGradGetWorkspaceSize(const aclTensor *y_grad, const aclTensor *x, int64_t dim,
    const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSwiGluGrad(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnRmsNormGradGetWorkspaceSize(const aclTensor *dy, const aclTensor *x, const aclTensor *rstd,
    const aclTensor *gamma, const aclTensor *dx_out, const aclTensor *dgamma_out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnRmsNormGrad(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor *grad_output, const aclTensor *output, int64_t dim,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSoftmaxBackward(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnEmbeddingDenseBackwardGetWorkspaceSize(const aclTensor *grad, const aclTensor *indices,
    uint64_t num_weights, uint64_t padding_idx, bool scale_grad_by_freq, const aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnEmbeddingDenseBackward(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnCrossEntropyLossGetWorkspaceSize(const aclTensor *input, const aclTensor *target,
    const aclTensor *weight_optional, char *reduction_optional, int64_t ignore_index, double label_smoothing,
    double lse_square_scale_for_zloss, bool return_zloss, const aclTensor *loss_out, const aclTensor *log_prob_out,
    const aclTensor *zloss_out, const aclTensor *lse_for_zloss_out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnCrossEntropyLoss(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnCrossEntropyLossGradGetWorkspaceSize(const aclTensor *grad_loss, const aclTensor *log_prob,
    const aclTensor *target, const aclTensor *weight_optional, const aclTensor *grad_zloss_optional,
    const aclTensor *lse_for_zloss_optional, char *reduction_optional, int64_t ignore_index, double label_smoothing,
    double lse_square_scale_for_zloss, const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCrossEntropyLossGrad(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnFlashAttentionScoreGetWorkspaceSize(const aclTensor *query, const aclTensor *key,
    const aclTensor *value, const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional, const aclIntArray *prefix_optional,
    double scale_value, double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num,
    char *input_layout, int64_t inner_precise, int64_t sparse_mode, const aclTensor *softmax_max_out,
    const aclTensor *softmax_sum_out, const aclTensor *softmax_out_out, const aclTensor *attention_out_out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnFlashAttentionScore(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnFlashAttentionScoreGradGetWorkspaceSize(const aclTensor *query, const aclTensor *key_in,
    const aclTensor *value, const aclTensor *dy, const aclTensor *pse_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclTensor *softmax_max_optional, const aclTensor *softmax_sum_optional,
    const aclTensor *softmax_in_optional, const aclTensor *attention_in_optional, const aclIntArray *prefix_optional,
    double scale_value, double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num,
    char *input_layout, int64_t inner_precise, int64_t sparse_mode, const aclTensor *dq_out, const aclTensor *dk_out,
    const aclTensor *dv_out, const aclTensor *dpse_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnFlashAttentionScoreGrad(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnApplyAdamWV2GetWorkspaceSize(aclTensor *var_ref, aclTensor *m_ref, aclTensor *v_ref,
    aclTensor *max_grad_norm_optional_ref, const aclTensor *grad, const aclTensor *step, float lr, float beta1,
    float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnApplyAdamWV2(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Lookups and scatters */
aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor *weight, const aclTensor *indices, const aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnEmbedding(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnIndexSelectGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnIndexSelect(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGatherGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGather(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGatherV2GetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGatherV2(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor *self_ref, int64_t dim, const aclTensor *index,
    const aclTensor *source, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceIndexCopy(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnScatterAddGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index,
    const aclTensor *src, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnScatterAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceScatterUpdateGetWorkspaceSize(aclTensor *data, const aclTensor *indices,
    const aclTensor *updates, int64_t axis, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceScatterUpdate(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnIndexAddGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index,
    const aclTensor *source, const aclScalar *alpha, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnIndexAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnOneHotGetWorkspaceSize(const aclTensor *self, int num_classes, const aclTensor *on_value,
    const aclTensor *off_value, int64_t axis, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnOneHot(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Copies, conversions and fills */
aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor *self, aclDataType dtype, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCast(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceCopyGetWorkspaceSize(aclTensor *self_ref, const aclTensor *src, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceCopy(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceZeroGetWorkspaceSize(aclTensor *self_ref, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceZero(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceOneGetWorkspaceSize(const aclTensor *self_ref, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceOne(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceFillScalarGetWorkspaceSize(aclTensor *self_ref, const aclScalar *value,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceFillScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor *self_ref, const aclTensor *mask,
    const aclScalar *value, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceMaskedFillScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnArangeGetWorkspaceSize(const aclScalar *start, const aclScalar *end, const aclScalar *step,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnArange(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Comparisons and selection */
aclnnStatus aclnnEqTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnEqTensor(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnNeTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnNeTensor(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLtTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLtTensor(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnEqScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnEqScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnNeScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnNeScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGtScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGtScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLtScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLtScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGeScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGeScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLeScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLeScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogicalNotGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnLogicalNot(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogicalAndGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLogicalAnd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogicalOrGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLogicalOr(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnIsFiniteGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnIsFinite(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSWhereGetWorkspaceSize(const aclTensor *condition, const aclTensor *self, const aclTensor *other,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSWhere(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Reductions and order */
aclnnStatus aclnnArgMaxGetWorkspaceSize(const aclTensor *self, int64_t dim, bool keepdim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnArgMax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMaxDimGetWorkspaceSize(const aclTensor *self, int64_t dim, bool keepdim, aclTensor *out,
    aclTensor *indices, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMaxDim(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMaxGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnMax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAmaxGetWorkspaceSize(const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAmax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnReduceSumGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, bool keep_dims,
    aclDataType dtype, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnReduceSum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMeanGetWorkspaceSize(const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclDataType dtype,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMean(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnCumsumGetWorkspaceSize(const aclTensor *self, int64_t dim, aclDataType dtype, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCumsum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnTopkGetWorkspaceSize(const aclTensor *self, int64_t k, int64_t dim, bool largest, bool sorted,
    aclTensor *values_out, aclTensor *indices_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnTopk(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSortGetWorkspaceSize(const aclTensor *self, bool stable, int64_t dim, bool descending,
    aclTensor *values_out, aclTensor *indices_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSort(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Shape */
aclnnStatus aclnnCatGetWorkspaceSize(const aclTensorList *tensors, int64_t dim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCat(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnPermuteGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnPermute(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSliceGetWorkspaceSize(const aclTensor *self, int64_t dim, int64_t start, int64_t end, int64_t step,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSlice(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnRepeatGetWorkspaceSize(const aclTensor *self, const aclIntArray *repeats, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnRepeat(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnExpandGetWorkspaceSize(const aclTensor *self, const aclIntArray *size, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnExpand(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnConstantPadNdGetWorkspaceSize(const aclTensor *self, const aclIntArray *pad, const aclScalar *value,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnConstantPadNd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnTriuGetWorkspaceSize(const aclTensor *self, int64_t diagonal, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnTriu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnTrilGetWorkspaceSize(const aclTensor *self, int64_t diagonal, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnTril(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceTriuGetWorkspaceSize(aclTensor *self_ref, int64_t diagonal, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceTriu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
