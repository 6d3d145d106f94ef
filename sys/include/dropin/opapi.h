/*
 * Functions of libopapi.so that the emulator answers and ascend-tp never calls: the table has no field for
 * them. A function that ascend-tp begins to call moves to ../.
 *
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_DROPIN_OPAPI_H
#define ASCEND_TP_DROPIN_OPAPI_H

#include "../opapi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products */
aclnnStatus aclnnMmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddmmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2,
    const aclScalar *beta, const aclScalar *alpha, aclTensor *out, int8_t cube_math_type, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnAddmm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGroupedMatmulAddGetWorkspaceSize(const aclTensor *x, const aclTensor *weight,
    const aclTensor *group_list, aclTensor *y_ref, bool transpose_x, bool transpose_weight, int64_t group_type,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGroupedMatmulAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);

/* Arithmetic */
aclnnStatus aclnnSubsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, const aclScalar *alpha,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSubs(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnDivsGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnDivs(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddcmulGetWorkspaceSize(const aclTensor *self, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAddcmul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAddcdivGetWorkspaceSize(const aclTensor *self, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value, const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAddcdiv(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLerpsGetWorkspaceSize(const aclTensor *self, const aclTensor *end, const aclScalar *weight,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLerps(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnPowTensorScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *exponent,
    const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnPowTensorScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
    aclrtStream stream);
aclnnStatus aclnnClampMinGetWorkspaceSize(const aclTensor *self, const aclScalar *clip_value_min, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnClampMin(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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
aclnnStatus aclnnLayerNormGetWorkspaceSize(const aclTensor *input, const aclIntArray *normalized_shape,
    const aclTensor *weight_optional, const aclTensor *bias_optional, double eps, aclTensor *out,
    aclTensor *mean_out_optional, aclTensor *rstd_out_optional, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLayerNorm(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogSoftmaxGetWorkspaceSize(const aclTensor *self, int64_t dim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLogSoftmax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Position and attention */
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
aclnnStatus aclnnSwiGluGradGetWorkspaceSize(const aclTensor *y_grad, const aclTensor *x, int64_t dim,
    const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSwiGluGrad(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
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

/* Lookups and scatters */
aclnnStatus aclnnGatherV2GetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGatherV2(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnOneHotGetWorkspaceSize(const aclTensor *self, int num_classes, const aclTensor *on_value,
    const aclTensor *off_value, int64_t axis, aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnOneHot(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Copies, conversions and fills */
aclnnStatus aclnnInplaceOneGetWorkspaceSize(const aclTensor *self_ref, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnInplaceOne(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnArangeGetWorkspaceSize(const aclScalar *start, const aclScalar *end, const aclScalar *step,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnArange(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Comparisons and selection */
aclnnStatus aclnnLtTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLtTensor(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnEqScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnEqScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnNeScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnNeScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnGeScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnGeScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLeScalarGetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLeScalar(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnLogicalOrGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnLogicalOr(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnIsFiniteGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnIsFinite(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Reductions and order */
aclnnStatus aclnnMaxGetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,
    aclOpExecutor **executor);
aclnnStatus aclnnMax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnAmaxGetWorkspaceSize(const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAmax(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnCumsumGetWorkspaceSize(const aclTensor *self, int64_t dim, aclDataType dtype, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnCumsum(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnSortGetWorkspaceSize(const aclTensor *self, bool stable, int64_t dim, bool descending,
    aclTensor *values_out, aclTensor *indices_out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnSort(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Shape */
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
