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

/* The two calls of the operator `name` with these arguments. */
#define ACLNN_OPERATOR(name, ...)                                                                                       \
    aclnnStatus name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspace_size, aclOpExecutor **executor);                \
    aclnnStatus name(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

/* Products */
ACLNN_OPERATOR(aclnnMatmul, const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cube_math_type)
/* out = beta self + alpha mat1 @ mat2; self broadcasts. */
ACLNN_OPERATOR(aclnnAddmm, const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2, const aclScalar *beta,
    const aclScalar *alpha, aclTensor *out, int8_t cube_math_type)
/* self_ref = beta self_ref + alpha batch1 @ batch2, of batches of matrices. */
ACLNN_OPERATOR(aclnnInplaceBaddbmm, const aclTensor *self_ref, const aclTensor *batch1, const aclTensor *batch2,
    const aclScalar *beta, const aclScalar *alpha, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnBatchMatMul, const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cube_math_type)
/* Dot product of two vectors on the vector cores; out has no dims. */
ACLNN_OPERATOR(aclnnDot, const aclTensor *self, const aclTensor *tensor, aclTensor *out)
/* scale: one per column of the product or one for all; pertoken_scale_optional: one per row. transpose_x1, transpose_x2:
 * the matrix is stored with its two dims swapped. */
ACLNN_OPERATOR(aclnnQuantMatmulV4, const aclTensor *x1, const aclTensor *x2, const aclTensor *scale,
    const aclTensor *offset, const aclTensor *pertoken_scale_optional, const aclTensor *bias, bool transpose_x1,
    bool transpose_x2, const aclTensor *out)
/* y = x @ ((weight + antiquant_offset) antiquant_scale). weight [k, n] of int8, or of eight 4-bit integers in an int32;
 * scales [groups, n] for groups of antiquant_group_size along k, or [1, n] with 0. */
ACLNN_OPERATOR(aclnnWeightQuantBatchMatmulV2, const aclTensor *x, const aclTensor *weight,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset_optional,
    const aclTensor *quant_scale_optional, const aclTensor *quant_offset_optional, const aclTensor *bias_optional,
    int32_t antiquant_group_size, const aclTensor *y)
/* One scale per row of the last dim: its largest magnitude is the largest number of y's type. */
ACLNN_OPERATOR(aclnnDynamicQuant, const aclTensor *x, const aclTensor *smooth_scales_optional, const aclTensor *y_out,
    const aclTensor *scale_out)
/* scales, zero_points: one in all, or one for each place along axis. out = round(x / scales + zero_points), of type dtype */
ACLNN_OPERATOR(aclnnQuantize, const aclTensor *x, const aclTensor *scales, const aclTensor *zero_points,
    aclDataType dtype, int32_t axis, aclTensor *out)

/* Products fused with communication. group: the name of a communicator from HcclGetCommName; reduce_op: "sum";
 * comm_turn: 0; stream_mode: 1. out = all_reduce(x1 @ x2 + bias) */
ACLNN_OPERATOR(aclnnMatmulAllReduce, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias, const char *group,
    const char *reduce_op, int64_t comm_turn, int64_t stream_mode, const aclTensor *output)
/* gather_out = all_gather(x1), output = gather_out @ x2 + bias; gather_index: 0 */
ACLNN_OPERATOR(aclnnAllGatherMatmul, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias, const char *group,
    int64_t gather_index, int64_t comm_turn, int64_t stream_mode, const aclTensor *output, const aclTensor *gather_out)
/* out = reduce_scatter(x1 @ x2 + bias), by rows */
ACLNN_OPERATOR(aclnnMatmulReduceScatter, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias,
    const char *group, const char *reduce_op, int64_t comm_turn, int64_t stream_mode, const aclTensor *output)

/* Arithmetic */
ACLNN_OPERATOR(aclnnAdd, const aclTensor *self, const aclTensor *other, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnAdds, const aclTensor *self, const aclScalar *other, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnSub, const aclTensor *self, const aclTensor *other, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnMul, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnMuls, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnDiv, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnFloorDivides, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLerp, const aclTensor *self, const aclTensor *end, const aclTensor *weight, aclTensor *out)
ACLNN_OPERATOR(aclnnAbs, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnNeg, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnExp, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLog, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSqrt, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnRsqrt, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnReciprocal, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnMaximum, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnMinimum, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnClamp, const aclTensor *self, const aclScalar *clip_value_min, const aclScalar *clip_value_max,
    aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceAdd, const aclTensor *self_ref, const aclTensor *other, const aclScalar *alpha)

/* Activations and norms */
ACLNN_OPERATOR(aclnnGelu, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnTanh, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSigmoid, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSilu, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSwiGlu, const aclTensor *x, int64_t dim, const aclTensor *out)
ACLNN_OPERATOR(aclnnRmsNorm, const aclTensor *x, const aclTensor *gamma, double epsilon, const aclTensor *y_out,
    const aclTensor *rstd_out)
ACLNN_OPERATOR(aclnnAddRmsNorm, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma, double epsilon,
    const aclTensor *y_out, const aclTensor *rstd_out, const aclTensor *x_out)
ACLNN_OPERATOR(aclnnSoftmax, const aclTensor *self, int64_t dim, aclTensor *out)

/* Position and attention */
ACLNN_OPERATOR(aclnnRotaryPositionEmbedding, const aclTensor *x, const aclTensor *cos, const aclTensor *sin,
    int64_t mode, aclTensor *out)
/* Queries and keys in place. layout 1: [B, S, N, D] */
ACLNN_OPERATOR(aclnnApplyRotaryPosEmb, aclTensor *query_ref, aclTensor *key_ref, const aclTensor *cos,
    const aclTensor *sin, int64_t layout)
ACLNN_OPERATOR(aclnnFusedInferAttentionScoreV2, const aclTensor *query, const aclTensorList *key,
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
    int64_t value_antiquant_mode, const aclTensor *attention_out, const aclTensor *softmax_lse)

/* Losses, gradients and optimizers */
ACLNN_OPERATOR(aclnnSiluBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnGeluBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *grad_input)
ACLNN_OPERATOR(aclnnRmsNormGrad, const aclTensor *dy, const aclTensor *x, const aclTensor *rstd,
    const aclTensor *gamma, const aclTensor *dx_out, const aclTensor *dgamma_out)
ACLNN_OPERATOR(aclnnFlashAttentionScore, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclIntArray *prefix_optional, double scale_value, double keep_prob,
    int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise,
    int64_t sparse_mode, const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out,
    const aclTensor *softmax_out_out, const aclTensor *attention_out_out)
ACLNN_OPERATOR(aclnnFlashAttentionScoreGrad, const aclTensor *query, const aclTensor *key_in, const aclTensor *value,
    const aclTensor *dy, const aclTensor *pse_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclTensor *softmax_max_optional, const aclTensor *softmax_sum_optional,
    const aclTensor *softmax_in_optional, const aclTensor *attention_in_optional, const aclIntArray *prefix_optional,
    double scale_value, double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num,
    char *input_layout, int64_t inner_precise, int64_t sparse_mode, const aclTensor *dq_out, const aclTensor *dk_out,
    const aclTensor *dv_out, const aclTensor *dpse_out)
ACLNN_OPERATOR(aclnnRingAttentionUpdate, const aclTensor *prev_attn_out, const aclTensor *prev_softmax_max,
    const aclTensor *prev_softmax_sum, const aclTensor *cur_attn_out, const aclTensor *cur_softmax_max,
    const aclTensor *cur_softmax_sum, const aclTensor *actual_seq_qlen_optional, char *input_layout_optional,
    const aclTensor *attn_out_out, const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out)
ACLNN_OPERATOR(aclnnApplyAdamWV2, aclTensor *var_ref, aclTensor *m_ref, aclTensor *v_ref,
    aclTensor *max_grad_norm_optional_ref, const aclTensor *grad, const aclTensor *step, float lr, float beta1,
    float beta2, float weight_decay, float eps, bool amsgrad, bool maximize)

/* Lookups and scatters */
ACLNN_OPERATOR(aclnnEmbedding, const aclTensor *weight, const aclTensor *indices, const aclTensor *out)
ACLNN_OPERATOR(aclnnIndexSelect, const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out)
ACLNN_OPERATOR(aclnnGather, const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceIndexCopy, aclTensor *self_ref, int64_t dim, const aclTensor *index,
    const aclTensor *source)
ACLNN_OPERATOR(aclnnInplaceScatterUpdate, aclTensor *data, const aclTensor *indices, const aclTensor *updates,
    int64_t axis)
ACLNN_OPERATOR(aclnnScatterAdd, const aclTensor *self, int64_t dim, const aclTensor *index, const aclTensor *src,
    aclTensor *out)
ACLNN_OPERATOR(aclnnIndexAdd, const aclTensor *self, int64_t dim, const aclTensor *index, const aclTensor *source,
    const aclScalar *alpha, aclTensor *out)

/* Copies, conversions and fills */
ACLNN_OPERATOR(aclnnCast, const aclTensor *self, aclDataType dtype, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceCopy, aclTensor *self_ref, const aclTensor *src)
ACLNN_OPERATOR(aclnnInplaceZero, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceFillScalar, aclTensor *self_ref, const aclScalar *value)
ACLNN_OPERATOR(aclnnArange, const aclScalar *start, const aclScalar *end, const aclScalar *step, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceMaskedFillScalar, aclTensor *self_ref, const aclTensor *mask, const aclScalar *value)

/* Comparisons and selection */
ACLNN_OPERATOR(aclnnEqTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnNeTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnGtScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLtScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLogicalNot, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLogicalAnd, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnSWhere, const aclTensor *condition, const aclTensor *self, const aclTensor *other, aclTensor *out)

/* Reductions and order */
ACLNN_OPERATOR(aclnnArgMax, const aclTensor *self, int64_t dim, bool keepdim, aclTensor *out)
ACLNN_OPERATOR(aclnnMaxDim, const aclTensor *self, int64_t dim, bool keepdim, aclTensor *out, aclTensor *indices)
ACLNN_OPERATOR(aclnnReduceSum, const aclTensor *self, const aclIntArray *dims, bool keep_dims, aclDataType dtype,
    aclTensor *out)
ACLNN_OPERATOR(aclnnMean, const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclDataType dtype,
    aclTensor *out)
ACLNN_OPERATOR(aclnnTopk, const aclTensor *self, int64_t k, int64_t dim, bool largest, bool sorted,
    aclTensor *values_out, aclTensor *indices_out)
ACLNN_OPERATOR(aclnnCumsum, const aclTensor *self, int64_t dim, aclDataType dtype, aclTensor *out)
ACLNN_OPERATOR(aclnnTril, const aclTensor *self, int64_t diagonal, aclTensor *out)
ACLNN_OPERATOR(aclnnSoftplus, const aclTensor *self, const aclScalar *beta, const aclScalar *threshold,
    aclTensor *out)

/* Mixtures of experts */
ACLNN_OPERATOR(aclnnMoeInitRoutingV2, const aclTensor *x, const aclTensor *expert_idx, int64_t active_num,
    int64_t expert_capacity, int64_t expert_num, int64_t drop_pad_mode, int64_t expert_tokens_count_or_cumsum_flag,
    bool expert_tokens_before_capacity_flag, const aclTensor *expanded_x_out, const aclTensor *expanded_row_idx_out,
    const aclTensor *expert_tokens_count_or_cumsum_out_optional,
    const aclTensor *expert_tokens_before_capacity_out_optional)
ACLNN_OPERATOR(aclnnMoeFinalizeRoutingV2, const aclTensor *expanded_x, const aclTensor *expanded_row_idx,
    const aclTensor *x1_optional, const aclTensor *x2_optional, const aclTensor *bias_optional,
    const aclTensor *scales_optional, const aclTensor *expert_idx_optional, int64_t drop_pad_mode,
    const aclTensor *out)
ACLNN_OPERATOR(aclnnGroupedMatmulV4, const aclTensorList *x, const aclTensorList *weight,
    const aclTensorList *bias_optional, const aclTensorList *scale_optional, const aclTensorList *offset_optional,
    const aclTensorList *antiquant_scale_optional, const aclTensorList *antiquant_offset_optional,
    const aclTensorList *per_token_scale_optional, const aclTensor *group_list_optional,
    const aclTensorList *activation_input_optional, const aclTensorList *activation_quant_scale_optional,
    const aclTensorList *activation_quant_offset_optional, int64_t split_item, int64_t group_type,
    int64_t group_list_type, int64_t act_type, aclTensorList *out, aclTensorList *activation_feature_out_optional,
    aclTensorList *dyn_quant_scale_out_optional)

/* Signs as bits, the first of eight lowest */
ACLNN_OPERATOR(aclnnSignBitsPack, const aclTensor *self, int64_t size, aclTensor *out)
ACLNN_OPERATOR(aclnnSignBitsUnpack, const aclTensor *self, int64_t size, aclDataType dtype, aclTensor *out)

/* Shape */
ACLNN_OPERATOR(aclnnCat, const aclTensorList *tensors, int64_t dim, aclTensor *out)
ACLNN_OPERATOR(aclnnPermute, const aclTensor *self, const aclIntArray *dims, aclTensor *out)

#ifdef __cplusplus
}
#endif

#endif
