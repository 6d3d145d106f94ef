/*
 * The operators of aclnn as ascend-tp calls them: functions of libopapi.so.
 *
 * An operator is two calls. The first checks its arguments on the host and makes an executor, the second enqueues that
 * executor on a stream; it frees the executor unless aclSetAclOpExecutorRepeatable was called on it.
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_OPAPI_H
#define ASCEND_TP_OPAPI_H

#include "nnopbase.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products */
aclnnStatus aclnnMatmulGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMatmul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnBatchMatMulGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnBatchMatMul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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
aclnnStatus aclnnMulGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMulsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMuls(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnDivGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnDiv(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLerpGetWorkspaceSize(const aclTensor *self, const aclTensor *end, const aclTensor *weight,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLerp(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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
aclnnStatus aclnnMaximumGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMaximum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMinimumGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMinimum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnClampGetWorkspaceSize(const aclTensor *self, const aclScalar *clip_value_min,
    const aclScalar *clip_value_max, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnClamp(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceAddGetWorkspaceSize(const aclTensor *self_ref, const aclTensor *other, const aclScalar *alpha,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Activations and norms */
aclnnStatus aclnnGeluGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnGelu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnTanhGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnTanh(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSigmoidGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSigmoid(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSiluGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSilu(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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
aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor *self, int64_t dim, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnSoftmax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

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

/* Losses, gradients and optimizers */
aclnnStatus aclnnSiluBackwardGetWorkspaceSize(const aclTensor *grad_output, const aclTensor *self,
    aclTensor *grad_input, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSiluBackward(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnRmsNormGradGetWorkspaceSize(const aclTensor *dy, const aclTensor *x, const aclTensor *rstd,
    const aclTensor *gamma, const aclTensor *dx_out, const aclTensor *dgamma_out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnRmsNormGrad(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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
aclnnStatus aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor *self_ref, int64_t dim, const aclTensor *index,
    const aclTensor *source, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceIndexCopy(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnInplaceScatterUpdateGetWorkspaceSize(aclTensor *data, const aclTensor *indices,
    const aclTensor *updates, int64_t axis, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceScatterUpdate(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnScatterAddGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index,
    const aclTensor *src, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnScatterAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnIndexAddGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index,
    const aclTensor *source, const aclScalar *alpha, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnIndexAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Copies, conversions and fills */
aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor *self, aclDataType dtype, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCast(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceCopyGetWorkspaceSize(aclTensor *self_ref, const aclTensor *src, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceCopy(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceZeroGetWorkspaceSize(aclTensor *self_ref, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceZero(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnInplaceFillScalarGetWorkspaceSize(aclTensor *self_ref, const aclScalar *value,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceFillScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor *self_ref, const aclTensor *mask,
    const aclScalar *value, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnInplaceMaskedFillScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);

/* Comparisons and selection */
aclnnStatus aclnnEqTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnEqTensor(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnNeTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnNeTensor(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGtScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGtScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLtScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLtScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogicalNotGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnLogicalNot(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogicalAndGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLogicalAnd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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
aclnnStatus aclnnReduceSumGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, bool keep_dims,
    aclDataType dtype, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnReduceSum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMeanGetWorkspaceSize(const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclDataType dtype,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMean(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnTopkGetWorkspaceSize(const aclTensor *self, int64_t k, int64_t dim, bool largest, bool sorted,
    aclTensor *values_out, aclTensor *indices_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnTopk(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Shape */
aclnnStatus aclnnCatGetWorkspaceSize(const aclTensorList *tensors, int64_t dim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCat(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnPermuteGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnPermute(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
