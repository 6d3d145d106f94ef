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
ACLNN_OPERATOR(aclnnMm, const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnGroupedMatmulAdd, const aclTensor *x, const aclTensor *weight, const aclTensor *group_list,
    aclTensor *y_ref, bool transpose_x, bool transpose_weight, int64_t group_type)
ACLNN_OPERATOR(aclnnAddmv, const aclTensor *self, const aclTensor *mat, const aclTensor *vec, const aclScalar *alpha,
    const aclScalar *beta, aclTensor *out, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnAddr, const aclTensor *self, const aclTensor *vec1, const aclTensor *vec2,
    const aclScalar *beta_optional, const aclScalar *alpha_optional, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceAddr, aclTensor *self_ref, const aclTensor *vec1, const aclTensor *vec2,
    const aclScalar *beta_optional, const aclScalar *alpha_optional)
ACLNN_OPERATOR(aclnnEqual, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnGemm, const aclTensor *a, const aclTensor *b, const aclTensor *c, float alpha, float beta,
    int64_t trans_a, int64_t trans_b, aclTensor *out, int8_t cube_math_type)
/** @since 9.x */
ACLNN_OPERATOR(aclnnTransposeBatchMatMul, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias,
    const aclTensor *scale, const aclIntArray *perm_x1, const aclIntArray *perm_x2, const aclIntArray *perm_y,
    int8_t cube_math_type, const int32_t batch_split_factor, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnTransposeBatchMatMulWeightNz, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias,
    const aclTensor *scale, const aclIntArray *perm_x1, const aclIntArray *perm_x2, const aclIntArray *perm_y,
    int8_t cube_math_type, const int32_t batch_split_factor, aclTensor *out)

/* Complex numbers */
ACLNN_OPERATOR(aclnnComplex, const aclTensor *real, const aclTensor *imag, aclTensor *out)
ACLNN_OPERATOR(aclnnPolar, const aclTensor *input, const aclTensor *angle, aclTensor *out)
ACLNN_OPERATOR(aclnnReal, const aclTensor *self, aclTensor *out)

/* Distances */
/** @since 9.x */
ACLNN_OPERATOR(aclnnCdist, const aclTensor *x1, const aclTensor *x2, float p, int64_t compute_mode, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnCdistBackward, const aclTensor *grad, const aclTensor *x1, const aclTensor *x2,
    const aclTensor *cdist, float p, const aclTensor *out)

/* Matrices in blocks */
aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *tensor_shape, uint64_t *weight_tensor_size);
aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *tensor_shape, aclDataType data_type,
    uint64_t *weight_tensor_size);
ACLNN_OPERATOR(aclnnTransMatmulWeight, aclTensor *mm_weight_ref)
/** @since 9.x */
aclnnStatus aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor *src_tensor, const int dst_format,
    int additional_dtype, int64_t **dst_shape, uint64_t *dst_shape_size, int *actual_format);
/** @since 9.x */
ACLNN_OPERATOR(aclnnNpuFormatCast, const aclTensor *src_tensor, aclTensor *dst_tensor)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMatmulWeightNz, const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type)
/** @since 9.x */
ACLNN_OPERATOR(aclnnBatchMatMulWeightNz, const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cube_math_type)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAddmmWeightNz, const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2,
    const aclScalar *beta, const aclScalar *alpha, aclTensor *out, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnQuantMatmulWeightNz, const aclTensor *x1, const aclTensor *x2, const aclTensor *x1_scale,
    const aclTensor *x2_scale, const aclTensor *y_scale, const aclTensor *x1_offset, const aclTensor *x2_offset,
    const aclTensor *y_offset, const aclTensor *bias, bool transpose_x1, bool transpose_x2, int64_t group_size,
    aclTensor *out)

/* Arithmetic */
ACLNN_OPERATOR(aclnnSubs, const aclTensor *self, const aclScalar *other, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnDivs, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnAddcmul, const aclTensor *self, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value, aclTensor *out)
ACLNN_OPERATOR(aclnnAddcdiv, const aclTensor *self, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value, const aclTensor *out)
ACLNN_OPERATOR(aclnnLerps, const aclTensor *self, const aclTensor *end, const aclScalar *weight, aclTensor *out)
ACLNN_OPERATOR(aclnnScale, const aclTensor *x, const aclTensor *scale, const aclTensor *bias, int64_t axis,
    int64_t num_axes, bool scale_from_blob, aclTensor *y)
ACLNN_OPERATOR(aclnnSum, const aclTensorList *tensors, aclTensor *out)
ACLNN_OPERATOR(aclnnPowTensorScalar, const aclTensor *self, const aclScalar *exponent, const aclTensor *out)
ACLNN_OPERATOR(aclnnClampMin, const aclTensor *self, const aclScalar *clip_value_min, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceAdds, const aclTensor *self_ref, const aclScalar *other, const aclScalar *alpha)
ACLNN_OPERATOR(aclnnInplaceSub, aclTensor *self_ref, const aclTensor *other, const aclScalar *alpha)
ACLNN_OPERATOR(aclnnInplaceSubs, aclTensor *self_ref, const aclScalar *other, const aclScalar *alpha)
ACLNN_OPERATOR(aclnnInplaceMul, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceMuls, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceDiv, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceDivs, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceAddcmul, const aclTensor *self_ref, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value)
ACLNN_OPERATOR(aclnnInplaceAddcdiv, const aclTensor *self_ref, const aclTensor *tensor1, const aclTensor *tensor2,
    const aclScalar *value)
ACLNN_OPERATOR(aclnnInplaceLerp, aclTensor *self_ref, const aclTensor *end, const aclTensor *weight)
ACLNN_OPERATOR(aclnnInplaceLerps, aclTensor *self_ref, const aclTensor *end, const aclScalar *weight)

/* Activations and norms */
ACLNN_OPERATOR(aclnnLayerNorm, const aclTensor *input, const aclIntArray *normalized_shape,
    const aclTensor *weight_optional, const aclTensor *bias_optional, double eps, aclTensor *out,
    aclTensor *mean_out_optional, aclTensor *rstd_out_optional)
ACLNN_OPERATOR(aclnnLogSoftmax, const aclTensor *self, int64_t dim, aclTensor *out)

/* Position and attention */
ACLNN_OPERATOR(aclnnFusedInferAttentionScoreV3, const aclTensor *query, const aclTensorList *key,
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
    const aclIntArray *actual_shared_prefix_len_optional, const aclTensor *query_rope_optional,
    const aclTensor *key_rope_optional, const aclTensor *key_rope_antiquant_scale_optional,
    int64_t num_heads, double scale_value, int64_t pre_tokens, int64_t next_tokens, char *input_layout,
    int64_t num_key_value_heads, int64_t sparse_mode, int64_t inner_precise, int64_t block_size,
    int64_t antiquant_mode, bool softmax_lse_flag, int64_t key_antiquant_mode,
    int64_t value_antiquant_mode, const aclTensor *attention_out, const aclTensor *softmax_lse)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFusedInferAttentionScoreV4, const aclTensor *query, const aclTensorList *key,
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
    const aclIntArray *actual_shared_prefix_len_optional, const aclTensor *query_rope_optional,
    const aclTensor *key_rope_optional, const aclTensor *key_rope_antiquant_scale_optional,
    const aclTensor *dequant_scale_query_optional, const aclTensor *learnable_sink_optional,
    int64_t num_heads, double scale_value, int64_t pre_tokens, int64_t next_tokens, char *input_layout,
    int64_t num_key_value_heads, int64_t sparse_mode, int64_t inner_precise, int64_t block_size,
    int64_t antiquant_mode, bool softmax_lse_flag, int64_t key_antiquant_mode,
    int64_t value_antiquant_mode, int64_t query_quant_mode,
    const aclTensor *attention_out, const aclTensor *softmax_lse)
ACLNN_OPERATOR(aclnnPromptFlashAttentionV3, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *pse_shift, const aclTensor *atten_mask, const aclIntArray *actual_seq_lengths,
    const aclIntArray *actual_seq_lengths_kv, const aclTensor *deq_scale1, const aclTensor *quant_scale1,
    const aclTensor *deq_scale2, const aclTensor *quant_scale2, const aclTensor *quant_offset2, int64_t num_heads,
    double scale_value, int64_t pre_tokens, int64_t next_tokens, char *input_layout, int64_t num_key_value_heads,
    int64_t sparse_mode, int64_t inner_precise, const aclTensor *attention_out)
ACLNN_OPERATOR(aclnnIncreFlashAttentionV4, const aclTensor *query, const aclTensorList *key,
    const aclTensorList *value, const aclTensor *pse_shift, const aclTensor *atten_mask,
    const aclIntArray *actual_seq_lengths, const aclTensor *dequant_scale1, const aclTensor *quant_scale1,
    const aclTensor *dequant_scale2, const aclTensor *quant_scale2, const aclTensor *quant_offset2,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset, const aclTensor *blocktable,
    const aclTensor *kv_padding_size, int64_t num_heads, double scale_value, char *input_layout,
    int64_t num_key_value_heads, int64_t block_size, int64_t inner_precise, const aclTensor *attention_out)

/* Losses, gradients and optimizers */
ACLNN_OPERATOR(aclnnSwiGluGrad, const aclTensor *y_grad, const aclTensor *x, int64_t dim, const aclTensor *out)
ACLNN_OPERATOR(aclnnSoftmaxBackward, const aclTensor *grad_output, const aclTensor *output, int64_t dim,
    aclTensor *out)
ACLNN_OPERATOR(aclnnEmbeddingDenseBackward, const aclTensor *grad, const aclTensor *indices, uint64_t num_weights,
    uint64_t padding_idx, bool scale_grad_by_freq, const aclTensor *out)
ACLNN_OPERATOR(aclnnCrossEntropyLoss, const aclTensor *input, const aclTensor *target,
    const aclTensor *weight_optional, char *reduction_optional, int64_t ignore_index, double label_smoothing,
    double lse_square_scale_for_zloss, bool return_zloss, const aclTensor *loss_out, const aclTensor *log_prob_out,
    const aclTensor *zloss_out, const aclTensor *lse_for_zloss_out)
ACLNN_OPERATOR(aclnnCrossEntropyLossGrad, const aclTensor *grad_loss, const aclTensor *log_prob,
    const aclTensor *target, const aclTensor *weight_optional, const aclTensor *grad_zloss_optional,
    const aclTensor *lse_for_zloss_optional, char *reduction_optional, int64_t ignore_index, double label_smoothing,
    double lse_square_scale_for_zloss, const aclTensor *out)

/* Lookups and scatters */
ACLNN_OPERATOR(aclnnGatherV2, const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out)
ACLNN_OPERATOR(aclnnOneHot, const aclTensor *self, int num_classes, const aclTensor *on_value,
    const aclTensor *off_value, int64_t axis, aclTensor *out)
/* key_cache_ref[slot_mapping[i]] = key[i], and the same for values: the slots of a cache in blocks are counted through all
 * blocks. */
/** @since 8.3 */
ACLNN_OPERATOR(aclnnScatterPaKvCache, const aclTensor *key, aclTensor *key_cache_ref, const aclTensor *slot_mapping,
    const aclTensor *value, aclTensor *value_cache_ref, const aclTensor *compress_lens_optional,
    const aclTensor *compress_seq_offset_optional, const aclTensor *seq_lens_optional, char *cache_mode_optional,
    char *scatter_mode_optional, const aclIntArray *strides_optional, const aclIntArray *offsets_optional)

/* Copies, conversions and fills */
ACLNN_OPERATOR(aclnnInplaceOne, const aclTensor *self_ref)

/* Comparisons and selection */
ACLNN_OPERATOR(aclnnLtTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnEqScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnNeScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnGeScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLeScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLogicalOr, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnIsFinite, const aclTensor *self, aclTensor *out)

/* Reductions and order */
ACLNN_OPERATOR(aclnnMax, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAmax, const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclTensor *out)
ACLNN_OPERATOR(aclnnSort, const aclTensor *self, bool stable, int64_t dim, bool descending, aclTensor *values_out,
    aclTensor *indices_out)

/* Shape */
ACLNN_OPERATOR(aclnnSlice, const aclTensor *self, int64_t dim, int64_t start, int64_t end, int64_t step,
    aclTensor *out)
ACLNN_OPERATOR(aclnnRepeat, const aclTensor *self, const aclIntArray *repeats, aclTensor *out)
ACLNN_OPERATOR(aclnnExpand, const aclTensor *self, const aclIntArray *size, aclTensor *out)
ACLNN_OPERATOR(aclnnConstantPadNd, const aclTensor *self, const aclIntArray *pad, const aclScalar *value,
    aclTensor *out)
ACLNN_OPERATOR(aclnnTriu, const aclTensor *self, int64_t diagonal, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceTriu, aclTensor *self_ref, int64_t diagonal)

/* Functions of each element */
ACLNN_OPERATOR(aclnnAcos, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAcosh, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAsin, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAsinh, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAtan, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAtan2, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnAtanh, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseAndScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseAndTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseNot, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseOrScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseOrTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseXorScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnBitwiseXorTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnCeil, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnClampMax, const aclTensor *self, const aclScalar *clip_value_max, aclTensor *out)
ACLNN_OPERATOR(aclnnClampMaxTensor, const aclTensor *self, const aclTensor *max, aclTensor *out)
ACLNN_OPERATOR(aclnnClampMinTensor, const aclTensor *self, const aclTensor *clip_value_min, aclTensor *out)
ACLNN_OPERATOR(aclnnClampTensor, const aclTensor *self, const aclTensor *clip_value_min,
    const aclTensor *clip_value_max, aclTensor *out)
ACLNN_OPERATOR(aclnnCos, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnCosh, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnElu, const aclTensor *self, const aclScalar *alpha, const aclScalar *scale,
    const aclScalar *input_scale, aclTensor *out)
ACLNN_OPERATOR(aclnnErf, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnErfc, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnExp2, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnExpm1, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnFloor, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnFloorDivide, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnFmodScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnFmodTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnFrac, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnGeluBackwardV2, const aclTensor *grad_output, const aclTensor *self, char *approximate,
    aclTensor *grad_input)
ACLNN_OPERATOR(aclnnGeluV2, const aclTensor *x, int64_t approximate, aclTensor *y)
ACLNN_OPERATOR(aclnnHardshrink, const aclTensor *self, const aclScalar *lambd, aclTensor *out)
ACLNN_OPERATOR(aclnnHardsigmoid, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnHardsigmoidBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnHardswish, const aclTensor *self, const aclTensor *out)
ACLNN_OPERATOR(aclnnHardswishBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnHardtanh, const aclTensor *self, const aclScalar *clip_value_min, const aclScalar *clip_value_max,
    aclTensor *out)
ACLNN_OPERATOR(aclnnHardtanhBackward, const aclTensor *grad_output, const aclTensor *self, const aclScalar *min,
    const aclScalar *max, aclTensor *out)
ACLNN_OPERATOR(aclnnIsInf, const aclTensor *x, const aclTensor *out)
ACLNN_OPERATOR(aclnnIsNegInf, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnIsPosInf, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLeakyRelu, const aclTensor *self, const aclScalar *negative_slope, aclTensor *out)
ACLNN_OPERATOR(aclnnLog10, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLog1p, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLog2, const aclTensor *self, const aclTensor *out)
ACLNN_OPERATOR(aclnnLogAddExp, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLogSigmoid, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLogicalXor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnMish, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnPowScalarTensor, const aclScalar *self, const aclTensor *exponent, const aclTensor *out)
ACLNN_OPERATOR(aclnnPowTensorTensor, const aclTensor *self, const aclTensor *exponent, aclTensor *out)
ACLNN_OPERATOR(aclnnRelu, const aclTensor *self, const aclTensor *out)
ACLNN_OPERATOR(aclnnRemainderScalarTensor, const aclScalar *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnRemainderTensorScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnRemainderTensorTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnRound, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnRsub, const aclTensor *self, const aclTensor *other, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnRsubs, const aclTensor *self, const aclScalar *other, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnSelu, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSigmoidBackward, const aclTensor *grad_output, const aclTensor *output, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnSign, const aclTensor *self, aclTensor *result)
ACLNN_OPERATOR(aclnnSignbit, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSin, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSinc, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSinh, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnSoftplusBackward, const aclTensor *grad_output, const aclTensor *self, const aclScalar *beta,
    const aclScalar *threshold, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnSoftshrink, const aclTensor *self, const aclScalar *lambd, aclTensor *out)
ACLNN_OPERATOR(aclnnSoftshrinkBackward, const aclTensor *grad_output, const aclTensor *self, const aclScalar *lambda,
    aclTensor *grad_input)
ACLNN_OPERATOR(aclnnTan, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnTanhBackward, const aclTensor *grad_output, const aclTensor *output, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnThreshold, const aclTensor *self, const aclScalar *threshold, const aclScalar *value,
    aclTensor *out)
ACLNN_OPERATOR(aclnnThresholdBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclScalar *threshold, aclTensor *out)
ACLNN_OPERATOR(aclnnTrunc, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnXLogYScalarOther, const aclTensor *self, const aclScalar *other, aclTensor *out)
ACLNN_OPERATOR(aclnnXLogYTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnAddRelu, const aclTensor *self, const aclTensor *other, aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnCelu, const aclTensor *self, const aclScalar *alpha, aclTensor *out)
ACLNN_OPERATOR(aclnnDivMod, const aclTensor *self, const aclTensor *other, int32_t mode, aclTensor *out)
ACLNN_OPERATOR(aclnnDivMods, const aclTensor *self, const aclScalar *other, int32_t mode, aclTensor *out)
ACLNN_OPERATOR(aclnnEluBackward, const aclTensor *grad_output, const aclScalar *alpha, const aclScalar *scale,
    const aclScalar *input_scale, bool is_result, const aclTensor *self_or_result, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnErfinv, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnGcd, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnGeGluV3, const aclTensor *self, int64_t dim, int64_t approximate, bool activate_left,
    aclTensor *out, aclTensor *out_gelu)
ACLNN_OPERATOR(aclnnGlu, const aclTensor *self, int64_t dim, const aclTensor *out)
ACLNN_OPERATOR(aclnnGluBackward, const aclTensor *grad_out, const aclTensor *self, int64_t dim, const aclTensor *out)
ACLNN_OPERATOR(aclnnHardshrinkBackward, const aclTensor *grad_output, const aclTensor *self, const aclScalar *lambd,
    aclTensor *grad_input)
ACLNN_OPERATOR(aclnnInplaceFillTensor, aclTensor *self_ref, const aclTensor *value)
ACLNN_OPERATOR(aclnnLeakyReluBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclScalar *negative_slope, bool self_is_result, aclTensor *out)
ACLNN_OPERATOR(aclnnLogAddExp2, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLogSigmoidBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *buffer,
    aclTensor *grad_input)
ACLNN_OPERATOR(aclnnLogSigmoidForward, const aclTensor *self, aclTensor *out, aclTensor *buffer)
ACLNN_OPERATOR(aclnnLogit, const aclTensor *input, double eps, const aclTensor *out)
ACLNN_OPERATOR(aclnnLogitGrad, const aclTensor *x, const aclTensor *dy, double eps, const aclTensor *out)
ACLNN_OPERATOR(aclnnMishBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnNanToNum, const aclTensor *self, float nan, float posinf, float neginf, aclTensor *out)
ACLNN_OPERATOR(aclnnPrelu, const aclTensor *self, const aclTensor *weight, aclTensor *out)
ACLNN_OPERATOR(aclnnPreluBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *weight,
    aclTensor *grad_input, aclTensor *grad_weight)
ACLNN_OPERATOR(aclnnRoundDecimals, const aclTensor *self, int64_t decimals, aclTensor *out)
ACLNN_OPERATOR(aclnnSeluBackward, const aclTensor *grad_output, const aclTensor *result, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnShrink, const aclTensor *self, const aclScalar *lambd, const aclScalar *bias, aclTensor *out)
ACLNN_OPERATOR(aclnnSwish, const aclTensor *self, const aclScalar *beta_optional, aclTensor *out)
ACLNN_OPERATOR(aclnnSwishBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclScalar *beta_optional, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnXLogYScalarSelf, const aclScalar *self, const aclTensor *other, aclTensor *out)

/* Comparisons */
ACLNN_OPERATOR(aclnnGeTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnGtTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)
ACLNN_OPERATOR(aclnnLeTensor, const aclTensor *self, const aclTensor *other, aclTensor *out)

/* In place */
ACLNN_OPERATOR(aclnnInplaceAcos, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceAcosh, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceAsin, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceAsinh, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceAtan, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceAtan2, aclTensor *self_ref, aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceAtanh, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceBitwiseAndScalar, const aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceBitwiseAndTensor, const aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceBitwiseOrScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceBitwiseOrTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceBitwiseXorScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceBitwiseXorTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceCeil, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceClampMax, const aclTensor *self_ref, const aclScalar *clip_value_max)
ACLNN_OPERATOR(aclnnInplaceClampMaxTensor, aclTensor *self_ref, const aclTensor *max)
ACLNN_OPERATOR(aclnnInplaceClampMinTensor, aclTensor *self_ref, const aclTensor *clip_value_min)
ACLNN_OPERATOR(aclnnInplaceCos, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceCosh, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceElu, aclTensor *self_ref, const aclScalar *alpha, const aclScalar *scale,
    const aclScalar *input_scale)
ACLNN_OPERATOR(aclnnInplaceEqScalar, const aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceEqTensor, const aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceErf, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceErfc, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceExp, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceExp2, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceExpm1, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceFloor, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceFloorDivide, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceFloorDivides, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceFmodScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceFmodTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceFrac, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceGeScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceGeTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceGtScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceGtTensor, const aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceHardsigmoid, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceHardswish, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceHardtanh, aclTensor *self_ref, const aclScalar *clip_value_min,
    const aclScalar *clip_value_max)
ACLNN_OPERATOR(aclnnInplaceLeScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceLeTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceLeakyRelu, aclTensor *self_ref, const aclScalar *negative_slope)
ACLNN_OPERATOR(aclnnInplaceLog, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceLog10, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceLog1p, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceLog2, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceLogicalAnd, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceLogicalNot, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceLogicalOr, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceLtScalar, const aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceLtTensor, const aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceMish, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceNeScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceNeTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceNeg, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplacePowTensorScalar, const aclTensor *self_ref, const aclScalar *exponent)
ACLNN_OPERATOR(aclnnInplacePowTensorTensor, const aclTensor *self_ref, const aclTensor *exponent)
ACLNN_OPERATOR(aclnnInplaceReciprocal, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceRelu, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceRemainderTensorScalar, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceRemainderTensorTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceRound, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceRsqrt, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceSelu, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceSigmoid, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceSin, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceSinc, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceSinh, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceSqrt, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceTan, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceTanh, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceThreshold, aclTensor *self_ref, const aclScalar *threshold, const aclScalar *value)
ACLNN_OPERATOR(aclnnInplaceTril, const aclTensor *self_ref, int64_t diagonal)
ACLNN_OPERATOR(aclnnInplaceTrunc, aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceXLogYScalarOther, aclTensor *self_ref, const aclScalar *other)
ACLNN_OPERATOR(aclnnInplaceXLogYTensor, aclTensor *self_ref, const aclTensor *other)
ACLNN_OPERATOR(aclnnInplaceAddRelu, aclTensor *self_ref, const aclTensor *other, aclScalar *alpha)
ACLNN_OPERATOR(aclnnInplaceCelu, aclTensor *self_ref, const aclScalar *alpha)
ACLNN_OPERATOR(aclnnInplaceDivMod, aclTensor *self_ref, const aclTensor *other, int32_t mode)
ACLNN_OPERATOR(aclnnInplaceDivMods, aclTensor *self_ref, const aclScalar *other, int32_t mode)
ACLNN_OPERATOR(aclnnInplaceErfinv, const aclTensor *self_ref)
ACLNN_OPERATOR(aclnnInplaceNanToNum, aclTensor *self_ref, float nan, float posinf, float neginf)
ACLNN_OPERATOR(aclnnInplaceRoundDecimals, aclTensor *self_ref, int64_t decimals)
ACLNN_OPERATOR(aclnnInplaceIndexFillTensor, aclTensor *self_ref, int64_t dim, const aclIntArray *index,
    const aclScalar *value)
ACLNN_OPERATOR(aclnnInplaceScatter, aclTensor *self_ref, int64_t dim, const aclTensor *index, const aclTensor *src,
    int64_t reduce)
ACLNN_OPERATOR(aclnnInplaceScatterValue, aclTensor *self_ref, int64_t dim, const aclTensor *index,
    const aclScalar *value, int64_t reduce)

/* Reductions */
ACLNN_OPERATOR(aclnnAll, const aclTensor *self, const aclIntArray *dim, bool keepdim, aclTensor *out)
ACLNN_OPERATOR(aclnnAmin, const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclTensor *out)
ACLNN_OPERATOR(aclnnAny, const aclTensor *self, const aclIntArray *dim, bool keepdim, aclTensor *out)
ACLNN_OPERATOR(aclnnLinalgVectorNorm, const aclTensor *self, const aclScalar *ord, const aclIntArray *dims,
    bool keep_dims, aclDataType dtype, aclTensor *out)
ACLNN_OPERATOR(aclnnLogSumExp, const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclTensor *out)
ACLNN_OPERATOR(aclnnMin, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnNorm, const aclTensor *self, const aclScalar *p_scalar, const aclIntArray *dim, bool keepdim,
    aclTensor *out)
ACLNN_OPERATOR(aclnnProd, const aclTensor *self, aclDataType dtype, aclTensor *out)
ACLNN_OPERATOR(aclnnProdDim, const aclTensor *self, int64_t dim, bool keep_dim, aclDataType dtype, aclTensor *out)
ACLNN_OPERATOR(aclnnStd, const aclTensor *self, const aclIntArray *dim, int64_t correction, bool keepdim,
    aclTensor *out)
ACLNN_OPERATOR(aclnnVar, const aclTensor *self, const aclIntArray *dim, bool unbiased, bool keepdim, aclTensor *out)
ACLNN_OPERATOR(aclnnVarCorrection, const aclTensor *self, const aclIntArray *dim, int64_t correction, bool keepdim,
    aclTensor *out)

/* Selections */
ACLNN_OPERATOR(aclnnIndex, const aclTensor *self, const aclTensorList *indices, aclTensor *out)
ACLNN_OPERATOR(aclnnIndexPutImpl, aclTensor *self_ref, const aclTensorList *indices, const aclTensor *values,
    bool accumulate, bool unsafe)
ACLNN_OPERATOR(aclnnStack, const aclTensorList *tensors, int64_t dim, aclTensor *out)

/* Gradient */
ACLNN_OPERATOR(aclnnLayerNormBackward, const aclTensor *grad_out, const aclTensor *input,
    const aclIntArray *normalized_shape, const aclTensor *mean, const aclTensor *rstd,
    const aclTensor *weight_optional, const aclTensor *bias_optional, const aclBoolArray *output_mask,
    aclTensor *grad_input_out, aclTensor *grad_weight_out, aclTensor *grad_bias_out)
ACLNN_OPERATOR(aclnnLogSoftmaxBackward, const aclTensor *grad_output, const aclTensor *output, int64_t dim,
    aclTensor *out)

/* Loss */
ACLNN_OPERATOR(aclnnNLLLoss, const aclTensor *self, const aclTensor *target, const aclTensor *weight,
    int64_t reduction, int64_t ignore_index, aclTensor *out, aclTensor *total_weight_out)
ACLNN_OPERATOR(aclnnNLLLossBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *target,
    const aclTensor *weight, int64_t reduction, int64_t ignore_index, const aclTensor *total_weight, aclTensor *out)
ACLNN_OPERATOR(aclnnNLLLoss2d, const aclTensor *self, const aclTensor *target, const aclTensor *weight,
    int64_t reduction, int64_t ignore_index, aclTensor *out, aclTensor *total_weight_out)
ACLNN_OPERATOR(aclnnNLLLoss2dBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *target,
    const aclTensor *weight, int64_t reduction, int64_t ignore_index, aclTensor *total_weight, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnSoftmaxCrossEntropyWithLogits, const aclTensor *features, aclTensor *labels, aclTensor *loss,
    aclTensor *backprop)
ACLNN_OPERATOR(aclnnCtcLoss, const aclTensor *log_probs, const aclTensor *targets, const aclIntArray *input_lengths,
    const aclIntArray *target_lengths, int64_t blank, bool zero_infinity, aclTensor *neg_log_likelihood_out,
    aclTensor *log_alpha_out)
ACLNN_OPERATOR(aclnnCtcLossBackward, const aclTensor *grad_out, const aclTensor *log_probs, const aclTensor *targets,
    const aclIntArray *input_lengths, const aclIntArray *target_lengths, const aclTensor *neg_log_likelihood,
    const aclTensor *log_alpha, int64_t blank, bool zero_infinity, aclTensor *out)

/* Batch norm over several cards */
ACLNN_OPERATOR(aclnnBatchNormStats, const aclTensor *input, double eps, aclTensor *mean, aclTensor *invstd)
/** @since 9.x */
ACLNN_OPERATOR(aclnnBatchNormReduce, const aclTensor *x, aclTensor *sum, aclTensor *square_sum)
ACLNN_OPERATOR(aclnnBatchNormGatherStatsWithCounts, const aclTensor *input, const aclTensor *mean,
    const aclTensor *invstd, aclTensor *running_mean, aclTensor *running_var, double momentum, double eps,
    const aclTensor *counts, aclTensor *mean_all, aclTensor *invstd_all)
/** @since 9.x */
ACLNN_OPERATOR(aclnnSyncBatchNormGatherStats, const aclTensor *total_sum, const aclTensor *total_square_sum,
    const aclTensor *sample_count, aclTensor *mean, aclTensor *variance, float momentum, float eps,
    aclTensor *batch_mean, aclTensor *batch_invstd)
ACLNN_OPERATOR(aclnnBatchNormElemt, const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
    aclTensor *mean, aclTensor *invstd, double eps, aclTensor *output)
ACLNN_OPERATOR(aclnnBatchNormReduceBackward, const aclTensor *grad_out, const aclTensor *input, const aclTensor *mean,
    const aclTensor *invstd, const aclTensor *weight, const bool input_g, const bool weight_g, const bool bias_g,
    aclTensor *sum_dy, aclTensor *sum_dy_xmu, aclTensor *grad_weight, aclTensor *grad_bias)
ACLNN_OPERATOR(aclnnBatchNormElemtBackward, const aclTensor *grad_out, const aclTensor *input, const aclTensor *mean,
    const aclTensor *invstd, const aclTensor *weight, const aclTensor *sum_dy, const aclTensor *sum_dy_xmu,
    aclTensor *counter, aclTensor *grad_input)

/* Lists of tensors */
ACLNN_OPERATOR(aclnnForeachAbs, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAcos, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddListV2, const aclTensorList *x1, const aclTensorList *x2, const aclScalar *alpha,
    aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcdivList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *x3,
    const aclTensor *scalars, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcdivScalarList, const aclTensorList *x1, const aclTensorList *x2,
    const aclTensorList *x3, const aclTensor *scalars, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcdivScalarV2, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *x3,
    const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcmulList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *x3,
    const aclTensor *scalars, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcmulScalarList, const aclTensorList *x1, const aclTensorList *x2,
    const aclTensorList *x3, const aclTensor *scalars, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcmulScalarV2, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *x3,
    const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAsin, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAtan, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachCopy, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachCos, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachCosh, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachDivList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachDivScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachDivScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachErf, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachErfc, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachExp, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachExpm1, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachLerpList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *weight,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachLerpScalar, const aclTensorList *x1, const aclTensorList *x2, const aclScalar *weight,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachLog, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachLog10, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachLog1p, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachLog2, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMaximumList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMaximumScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMaximumScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMinimumList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMinimumScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMinimumScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMulList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMulScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMulScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachNeg, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachNorm, const aclTensorList *x, const aclScalar *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachPowList, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachPowScalarAndTensor, const aclScalar *scalar, const aclTensorList *x,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachPowScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachPowScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachReciprocal, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSigmoid, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSign, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSin, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSinh, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSqrt, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSubListV2, const aclTensorList *x1, const aclTensorList *x2, const aclScalar *alpha,
    aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSubScalarList, const aclTensorList *x, const aclScalarList *scalars,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSubScalarV2, const aclTensorList *x, const aclScalar *scalar, aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachTan, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachTanh, const aclTensorList *x, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachZeroInplace, const aclTensorList *x)
ACLNN_OPERATOR(aclnnForeachAddList, const aclTensorList *x1, const aclTensorList *x2, const aclTensor *alpha,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcdivScalar, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *x3,
    const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachAddcmulScalar, const aclTensorList *x1, const aclTensorList *x2, const aclTensorList *x3,
    const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachDivScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMaximumScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMinimumScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachMulScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachPowScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSubList, const aclTensorList *x1, const aclTensorList *x2, const aclTensor *alpha,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachSubScalar, const aclTensorList *x, const aclTensor *scalar, const aclTensorList *out)

/* Random numbers */
ACLNN_OPERATOR(aclnnBernoulli, const aclTensor *self, const aclScalar *prob, int64_t seed, int64_t offset,
    aclTensor *out)
ACLNN_OPERATOR(aclnnDropoutDoMask, const aclTensor *self, const aclTensor *mask, double prob, aclTensor *out)
ACLNN_OPERATOR(aclnnDropoutGenMask, const aclIntArray *shape, double prob, int64_t seed, int64_t offset,
    aclTensor *out)
ACLNN_OPERATOR(aclnnDropoutGenMaskV2, const aclIntArray *shape, double prob, int64_t seed, int64_t offset,
    aclDataType prob_data_type, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceBernoulli, const aclTensor *self_ref, const aclScalar *prob, int64_t seed, int64_t offset)
ACLNN_OPERATOR(aclnnInplaceNormal, const aclTensor *self_ref, float mean, float std, int64_t seed, int64_t offset)
ACLNN_OPERATOR(aclnnInplaceRandom, const aclTensor *self_ref, int64_t from, int64_t to, int64_t seed, int64_t offset)
ACLNN_OPERATOR(aclnnInplaceUniform, const aclTensor *self_ref, double from, double to, uint64_t seed, uint64_t offset)
ACLNN_OPERATOR(aclnnMultinomial, const aclTensor *self, int64_t numsamples, bool replacement, int64_t seed,
    int64_t offset, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnSimThreadExponential, aclTensor *self_ref, int64_t count, double lambda, int64_t seed,
    int64_t offset)

/* Pools */
ACLNN_OPERATOR(aclnnMaxPool, const aclTensor *self, const aclIntArray *kernel_shape, const aclIntArray *strides, const
    int64_t auto_pad, const aclIntArray *pads, const aclIntArray *dilations, const int64_t ceil_mode, aclTensor *out)
ACLNN_OPERATOR(aclnnAdaptiveMaxPool2d, const aclTensor *self, const aclIntArray *output_size, aclTensor *output_out,
    aclTensor *indices_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAdaptiveMaxPool2dBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor
    *indices, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnAdaptiveMaxPool3d, const aclTensor *self, const aclIntArray *output_size, aclTensor *output_out,
    aclTensor *indices_out)
ACLNN_OPERATOR(aclnnAdaptiveMaxPool3dBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor
    *indices, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnMaxPool3dWithArgmax, const aclTensor *self, const aclIntArray *kernel_size, const aclIntArray
    *stride, const aclIntArray *padding, const aclIntArray *dilation, bool ceil_mode, aclTensor *out, aclTensor
    *indices)
ACLNN_OPERATOR(aclnnMaxPool3dWithArgmaxBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor
    *indices, const aclIntArray *kernel_size, const aclIntArray *stride, const aclIntArray *padding, const aclIntArray
    *dilation, bool ceil_mode, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnAvgPool3d, const aclTensor *self, const aclIntArray *kernel_size, const aclIntArray *stride, const
    aclIntArray *padding, bool ceil_mode, bool count_include_pad, int64_t divisor_override, aclTensor *out)
ACLNN_OPERATOR(aclnnAvgPool3dBackward, const aclTensor *grad_output, const aclTensor *self, const aclIntArray
    *kernel_size, const aclIntArray *stride, const aclIntArray *padding, bool ceil_mode, bool count_include_pad,
    int64_t divisor_override, aclTensor *output)
ACLNN_OPERATOR(aclnnAdaptiveAvgPool3d, const aclTensor *self, const aclIntArray *output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnAdaptiveAvgPool3dBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAdaptiveAvgPool2d, const aclTensor *self, const aclIntArray *output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnAdaptiveAvgPool2dBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnAvgPool2d, const aclTensor *self, const aclIntArray *kernel_size, const aclIntArray *strides,
    const aclIntArray *paddings, bool ceil_mode, bool count_include_pad, int64_t divisor_override,
    int8_t cube_math_type, aclTensor *out)
ACLNN_OPERATOR(aclnnAvgPool2dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *kernel_size, const aclIntArray *stride, const aclIntArray *padding, bool ceil_mode,
    bool count_include_pad, int64_t divisor_override, int8_t cube_math_type, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnMaxPool2dWithIndices, const aclTensor *self, const aclIntArray *kernel_size,
    const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation, bool ceil_mode,
    aclTensor *out, aclTensor *indices)
ACLNN_OPERATOR(aclnnMaxPool2dWithIndicesBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *indices, const aclIntArray *kernel_size, const aclIntArray *stride, const aclIntArray *padding,
    const aclIntArray *dilation, bool ceil_mode, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnMaxPool2dWithMask, const aclTensor *self, const aclIntArray *kernel_size,
    const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation, bool ceil_mode,
    aclTensor *out, aclTensor *indices)
ACLNN_OPERATOR(aclnnMaxPool2dWithMaskBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *indices, const aclIntArray *kernel_size, const aclIntArray *stride, const aclIntArray *padding,
    const aclIntArray *dilation, bool ceil_mode, aclTensor *grad_input)

/* Product */
ACLNN_OPERATOR(aclnnAddbmm, const aclTensor *self, const aclTensor *batch1, const aclTensor *batch2,
    const aclScalar *beta, const aclScalar *alpha, aclTensor *out, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnBaddbmm, const aclTensor *self, const aclTensor *batch1, const aclTensor *batch2,
    const aclScalar *beta, const aclScalar *alpha, aclTensor *out, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnInplaceAddbmm, aclTensor *self_ref, const aclTensor *batch1, const aclTensor *batch2,
    const aclScalar *beta, const aclScalar *alpha, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnInplaceAddmm, const aclTensor *self_ref, const aclTensor *mat1, const aclTensor *mat2,
    const aclScalar *beta, const aclScalar *alpha, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnMv, const aclTensor *self, const aclTensor *vec, aclTensor *out, int8_t cube_math_type)

/* Values by their order */
ACLNN_OPERATOR(aclnnAminmax, const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclTensor *min_out,
    aclTensor *max_out)
ACLNN_OPERATOR(aclnnAminmaxAll, const aclTensor *self, aclTensor *min_out, aclTensor *max_out)
ACLNN_OPERATOR(aclnnAminmaxDim, const aclTensor *self, int64_t dim, bool keep_dim, aclTensor *min_out,
    aclTensor *max_out)
ACLNN_OPERATOR(aclnnArgMin, const aclTensor *self, int64_t dim, bool keepdim, aclTensor *out)
ACLNN_OPERATOR(aclnnArgsort, const aclTensor *self, int64_t dim, bool descending, aclTensor *out)
ACLNN_OPERATOR(aclnnCummax, const aclTensor *self, int64_t dim, aclTensor *values_out, aclTensor *indices_out)
ACLNN_OPERATOR(aclnnCummin, const aclTensor *self, int64_t dim, aclTensor *values_out, aclTensor *indices_out)
ACLNN_OPERATOR(aclnnCumprod, const aclTensor *input, const aclScalar *dim, aclDataType dtype, aclTensor *out)
ACLNN_OPERATOR(aclnnHistc, const aclTensor *self, int64_t bins, const aclScalar *min, const aclScalar *max,
    aclTensor *out)
ACLNN_OPERATOR(aclnnKthvalue, const aclTensor *self, int64_t k, int64_t dim, bool keepdim, aclTensor *values_out,
    aclTensor *indices_out)
ACLNN_OPERATOR(aclnnMedian, const aclTensor *self, aclTensor *values_out)
ACLNN_OPERATOR(aclnnMedianDim, const aclTensor *self, int64_t dim, bool keep_dim, aclTensor *values_out,
    aclTensor *indices_out)
ACLNN_OPERATOR(aclnnMinDim, const aclTensor *self, int64_t dim, bool keepdim, aclTensor *out, aclTensor *indices)
ACLNN_OPERATOR(aclnnStdMeanCorrection, const aclTensor *self, const aclIntArray *dim, int64_t correction,
    bool keepdim, aclTensor *std_out, aclTensor *mean_out)
ACLNN_OPERATOR(aclnnVarMean, const aclTensor *self, const aclIntArray *dim, int64_t correction, bool keepdim,
    aclTensor *var_out, aclTensor *mean_out)

/* Norms of channels */
ACLNN_OPERATOR(aclnnBatchNorm, const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
    aclTensor *running_mean, aclTensor *running_var, bool training, double momentum, double eps, aclTensor *output,
    aclTensor *save_mean, aclTensor *save_invstd)
ACLNN_OPERATOR(aclnnBatchNormBackward, const aclTensor *grad_out, const aclTensor *input, const aclTensor *weight,
    const aclTensor *running_mean, const aclTensor *running_var, const aclTensor *save_mean,
    const aclTensor *save_invstd, bool training, double eps, const aclBoolArray *output_mask, aclTensor *grad_input,
    aclTensor *grad_weight, aclTensor *grad_bias)
ACLNN_OPERATOR(aclnnGroupNorm, const aclTensor *self, const aclTensor *gamma, const aclTensor *beta, int64_t n,
    int64_t c, int64_t hx_w, int64_t group, double eps, aclTensor *out, aclTensor *mean_out, aclTensor *rstd_out)
ACLNN_OPERATOR(aclnnGroupNormBackward, const aclTensor *grad_out, const aclTensor *input, const aclTensor *mean,
    const aclTensor *rstd, const aclTensor *gamma, int64_t n, int64_t c, int64_t hx_w, int64_t group,
    const aclBoolArray *output_mask, aclTensor *grad_input, aclTensor *grad_gamma_out, aclTensor *grad_beta_out)

/* Losses of each element */
ACLNN_OPERATOR(aclnnBinaryCrossEntropy, const aclTensor *self, const aclTensor *target, const aclTensor *weight,
    int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnBinaryCrossEntropyBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *target, const aclTensor *weight_optional, int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnBinaryCrossEntropyWithLogits, const aclTensor *self, const aclTensor *target,
    const aclTensor *weight_optional, const aclTensor *pos_weight_optional, int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnBinaryCrossEntropyWithLogitsBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *target, const aclTensor *weight_optional, const aclTensor *pos_weight_optional,
    int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnKlDiv, const aclTensor *self, const aclTensor *target, int64_t reduction, bool log_target,
    aclTensor *out)
ACLNN_OPERATOR(aclnnKlDivBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *target,
    int64_t reduction, bool log_target, aclTensor *out)
ACLNN_OPERATOR(aclnnL1Loss, const aclTensor *self, const aclTensor *target, int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnL1LossBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *target,
    int64_t reduction, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnMseLoss, const aclTensor *self, const aclTensor *target, int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnMseLossBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *target,
    int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnSmoothL1Loss, const aclTensor *self, const aclTensor *target, int64_t reduction, float beta,
    aclTensor *result)
ACLNN_OPERATOR(aclnnSmoothL1LossBackward, const aclTensor *grad_out, const aclTensor *self, const aclTensor *target,
    int64_t reduction, float beta, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnSoftMarginLoss, const aclTensor *self, const aclTensor *target, int64_t reduction, aclTensor *out)
ACLNN_OPERATOR(aclnnSoftMarginLossBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *target, int64_t reduction, aclTensor *out)

/* Convolutions */
ACLNN_OPERATOR(aclnnConvolution, const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
    const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation, bool transposed,
    const aclIntArray *output_padding, int64_t groups, aclTensor *output, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnConvolutionBackward, const aclTensor *grad_output, const aclTensor *input,
    const aclTensor *weight, const aclIntArray *bias_sizes, const aclIntArray *stride, const aclIntArray *padding,
    const aclIntArray *dilation, bool transposed, const aclIntArray *output_padding, int32_t groups,
    const aclBoolArray *output_mask, int8_t cube_math_type, aclTensor *grad_input, aclTensor *grad_weight,
    aclTensor *grad_bias)
/** @since 9.x */
ACLNN_OPERATOR(aclnnDeformableConv2d, const aclTensor *x, const aclTensor *weight, const aclTensor *offset,
    const aclTensor *bias_optional, const aclIntArray *kernel_size, const aclIntArray *stride,
    const aclIntArray *padding, const aclIntArray *dilation, int64_t groups, int64_t deformable_groups, bool modulated,
    aclTensor *out, aclTensor *deform_out_optional)
/** @since 9.x */
ACLNN_OPERATOR(aclnnQuantConvolution, const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
    const aclTensor *scale, const aclTensor *offset, const aclIntArray *stride, const aclIntArray *padding,
    const aclIntArray *dilation, bool transposed, const aclIntArray *output_padding, int64_t groups, int32_t offsetx,
    const char *round_mode, aclTensor *output)
ACLNN_OPERATOR(aclnnIm2col, const aclTensor *self, const aclIntArray *kernel_size, const aclIntArray *dilation,
    const aclIntArray *padding, const aclIntArray *stride, const aclTensor *out)
ACLNN_OPERATOR(aclnnIm2colBackward, const aclTensor *grad_output, const aclIntArray *input_size,
    const aclIntArray *kernel_size, const aclIntArray *dilation, const aclIntArray *padding,
    const aclIntArray *stride, aclTensor *out)

/* Elements by their place */
ACLNN_OPERATOR(aclnnEye, int64_t n, int64_t m, aclTensor *out)
ACLNN_OPERATOR(aclnnFlip, const aclTensor *self, const aclIntArray *dims, aclTensor *out)
ACLNN_OPERATOR(aclnnLinspace, const aclScalar *start, const aclScalar *end, int64_t steps, aclTensor *out)
ACLNN_OPERATOR(aclnnRange, const aclScalar *start, const aclScalar *end, const aclScalar *step, aclTensor *out)
ACLNN_OPERATOR(aclnnReflectionPad1d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnReflectionPad1dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnReflectionPad2d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnReflectionPad2dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnReflectionPad3d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnReflectionPad3dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnRepeatInterleaveIntWithDim, const aclTensor *self, int64_t repeats, int64_t dim,
    int64_t output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnReplicationPad1d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnReplicationPad1dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnReplicationPad2d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnReplicationPad2dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnReplicationPad3d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnReplicationPad3dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnRoll, const aclTensor *x, const aclIntArray *shifts, const aclIntArray *dims, aclTensor *out)
ACLNN_OPERATOR(aclnnSplitTensor, const aclTensor *self, uint64_t split_sections, int64_t dim, aclTensorList *out)
ACLNN_OPERATOR(aclnnSplitWithSize, const aclTensor *self, const aclIntArray *split_size, int64_t dim,
    aclTensorList *out)
ACLNN_OPERATOR(aclnnTrace, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearest2d, const aclTensor *self, const aclIntArray *output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearest2dBackward, const aclTensor *grad_out, const aclIntArray *output_size,
    const aclIntArray *input_size, double scales_h, double scales_w, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnUpsampleNearest2dV2, const aclTensor *self, const aclIntArray *output_size, float scales_h,
    float scales_w, aclTensor *out)

/* Values at named places */
ACLNN_OPERATOR(aclnnBincount, const aclTensor *self, const aclTensor *weights, int64_t minlength, aclTensor *out)
ACLNN_OPERATOR(aclnnIndexFillTensor, const aclTensor *self, int64_t dim, const aclIntArray *index,
    const aclScalar *value, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceMaskedFillTensor, aclTensor *self_ref, const aclTensor *mask, const aclTensor *value)
ACLNN_OPERATOR(aclnnInplaceMaskedScatter, aclTensor *self_ref, const aclTensor *mask, const aclTensor *source)
ACLNN_OPERATOR(aclnnInplacePut, aclTensor *self_ref, const aclTensor *index, const aclTensor *source, bool accumulate)
ACLNN_OPERATOR(aclnnLinalgCross, const aclTensor *self, const aclTensor *other, int64_t dim, aclTensor *out)
ACLNN_OPERATOR(aclnnScatter, const aclTensor *self, int64_t dim, const aclTensor *index, const aclTensor *src,
    int64_t reduce, aclTensor *out)
ACLNN_OPERATOR(aclnnScatterValue, const aclTensor *self, int64_t dim, const aclTensor *index, const aclScalar *value,
    int64_t reduce, aclTensor *out)
ACLNN_OPERATOR(aclnnTake, const aclTensor *self, const aclTensor *index, aclTensor *out)
ACLNN_OPERATOR(aclnnScatterNd, const aclTensor *data, const aclTensor *indices, const aclTensor *updates,
    aclTensor *out)

/* Results whose shape their values decide */
ACLNN_OPERATOR(aclnnNonzero, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnNonzeroV2, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnMaskedSelect, const aclTensor *self, const aclTensor *mask, aclTensor *out)
ACLNN_OPERATOR(aclnnUnique, const aclTensor *self, bool sorted, bool return_inverse, aclTensor *value_out,
    aclTensor *inverse_out)
ACLNN_OPERATOR(aclnnUnique2, const aclTensor *self, bool sorted, bool return_inverse, bool return_counts,
    aclTensor *value_out, aclTensor *inverse_out, aclTensor *counts_out)
ACLNN_OPERATOR(aclnnUniqueDim, const aclTensor *self, bool sorted, bool return_inverse, int64_t dim,
    aclTensor *value_out, aclTensor *inverse_out, aclTensor *counts_out)
ACLNN_OPERATOR(aclnnUniqueConsecutive, const aclTensor *self, bool return_inverse, bool return_counts, int64_t dim,
    aclTensor *value_out, aclTensor *inverse_out, aclTensor *counts_out)

/* Mixtures of experts */
ACLNN_OPERATOR(aclnnMoeGatingTopKSoftmax, const aclTensor *x, const aclTensor *finished_optional, int64_t k,
    const aclTensor *y_out, const aclTensor *expert_idx_out, const aclTensor *row_idx_out)
ACLNN_OPERATOR(aclnnMoeInitRouting, const aclTensor *x, const aclTensor *row_idx, const aclTensor *expert_idx,
    int64_t active_num, const aclTensor *expanded_x_out, const aclTensor *expanded_row_idx_out,
    const aclTensor *expanded_expert_idx_out)
ACLNN_OPERATOR(aclnnMoeFinalizeRouting, const aclTensor *expanded_x, const aclTensor *x1,
    const aclTensor *x2_optional, const aclTensor *bias, const aclTensor *scales, const aclTensor *expanded_row_idx,
    const aclTensor *expanded_expert_idx, const aclTensor *out)
ACLNN_OPERATOR(aclnnMoeTokenPermute, const aclTensor *tokens, const aclTensor *indices, int64_t num_out_tokens,
    bool padded_mode, const aclTensor *permute_tokens_out, const aclTensor *sorted_indices_out)
ACLNN_OPERATOR(aclnnMoeTokenUnpermute, const aclTensor *permuted_tokens, const aclTensor *sorted_indices,
    const aclTensor *probs_optional, bool padded_mode, const aclIntArray *restore_shape_optional,
    const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnGroupedMatmulV5, const aclTensorList *x, const aclTensorList *weight,
    const aclTensorList *bias_optional, const aclTensorList *scale_optional, const aclTensorList *offset_optional,
    const aclTensorList *antiquant_scale_optional, const aclTensorList *antiquant_offset_optional,
    const aclTensorList *per_token_scale_optional, const aclTensor *group_list_optional,
    const aclTensorList *activation_input_optional, const aclTensorList *activation_quant_scale_optional,
    const aclTensorList *activation_quant_offset_optional, int64_t split_item, int64_t group_type,
    int64_t group_list_type, int64_t act_type, const aclIntArray *tuning_config_optional, aclTensorList *out,
    aclTensorList *activation_feature_out_optional, aclTensorList *dyn_quant_scale_out_optional)

/* Tokens on their way to experts of other cards and back */
ACLNN_OPERATOR(aclnnMoeDistributeDispatch, const aclTensor *x, const aclTensor *expert_ids, const aclTensor *scales,
    const aclTensor *x_active_mask, const aclTensor *expert_scales, const char *group_ep,
    int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, const char *group_tp, int64_t tp_world_size,
    int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num, int64_t shared_expert_rank_num,
    int64_t quant_mode, int64_t global_bs, int64_t expert_token_nums_type, aclTensor *expand_x,
    aclTensor *dynamic_scales, aclTensor *expand_idx, aclTensor *expert_token_nums, aclTensor *ep_recv_counts,
    aclTensor *tp_recv_counts, aclTensor *expand_scales)
ACLNN_OPERATOR(aclnnMoeDistributeCombine, const aclTensor *expand_x, const aclTensor *expert_ids,
    const aclTensor *expand_idx, const aclTensor *ep_send_counts, const aclTensor *expert_scales,
    const aclTensor *tp_send_counts, const aclTensor *x_active_mask, const aclTensor *activation_scale,
    const aclTensor *weight_scale, const aclTensor *group_list, const aclTensor *expand_scales,
    const char *group_ep,
    int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, const char *group_tp, int64_t tp_world_size,
    int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num, int64_t shared_expert_rank_num,
    int64_t global_bs, int64_t out_dtype, int64_t comm_quant_mode, int64_t group_list_type, aclTensor *x)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeDistributeDispatchV2, const aclTensor *x, const aclTensor *expert_ids,
    const aclTensor *scales_optional, const aclTensor *x_active_mask_optional,
    const aclTensor *expert_scales_optional, const char *group_ep,
    int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, const char *group_tp, int64_t tp_world_size,
    int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num, int64_t shared_expert_rank_num,
    int64_t quant_mode, int64_t global_bs, int64_t expert_token_nums_type, const char *comm_alg,
    aclTensor *expand_x_out, aclTensor *dynamic_scales_out, aclTensor *assist_info_for_combine_out,
    aclTensor *expert_token_nums_out, aclTensor *ep_recv_counts_out, aclTensor *tp_recv_counts_out,
    aclTensor *expand_scales_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeDistributeCombineV2, const aclTensor *expand_x, const aclTensor *expert_ids,
    const aclTensor *assist_info_for_combine, const aclTensor *ep_send_counts, const aclTensor *expert_scales,
    const aclTensor *tp_send_counts_optional, const aclTensor *x_active_mask_optional,
    const aclTensor *activation_scale_optional, const aclTensor *weight_scale_optional,
    const aclTensor *group_list_optional, const aclTensor *expand_scales_optional,
    const aclTensor *shared_expert_x_optional, const char *group_ep,
    int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, const char *group_tp, int64_t tp_world_size,
    int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num, int64_t shared_expert_rank_num,
    int64_t global_bs, int64_t out_dtype, int64_t comm_quant_mode, int64_t group_list_type, const char *comm_alg,
    aclTensor *x_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeDistributeCombineAddRmsNorm, const aclTensor *expand_x, const aclTensor *expert_ids,
    const aclTensor *assist_info_for_combine, const aclTensor *ep_send_counts, const aclTensor *expert_scales,
    const aclTensor *residual_x, const aclTensor *gamma, const aclTensor *tp_send_counts_optional,
    const aclTensor *x_active_mask_optional, const aclTensor *activation_scale_optional,
    const aclTensor *weight_scale_optional, const aclTensor *group_list_optional,
    const aclTensor *expand_scales_optional, const aclTensor *shared_expert_x_optional, const char *group_ep,
    int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, const char *group_tp, int64_t tp_world_size,
    int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num, int64_t shared_expert_rank_num,
    int64_t global_bs, int64_t out_dtype, int64_t comm_quant_mode, int64_t group_list_type, const char *comm_alg,
    float norm_eps, aclTensor *y_out, aclTensor *rstd_out, aclTensor *x_out)

/* Few-bit integers */
ACLNN_OPERATOR(aclnnTransQuantParamV2, const aclTensor *scale, const aclTensor *offset, const aclTensor *out)
ACLNN_OPERATOR(aclnnQuantMatmulV3, const aclTensor *x1, const aclTensor *x2, const aclTensor *scale,
    const aclTensor *offset, const aclTensor *bias, bool transpose_x1, bool transpose_x2, const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnQuantMatmulV5, const aclTensor *x1, const aclTensor *x2, const aclTensor *x1_scale,
    const aclTensor *x2_scale, const aclTensor *y_scale, const aclTensor *x1_offset, const aclTensor *x2_offset,
    const aclTensor *y_offset, const aclTensor *bias, bool transpose_x1, bool transpose_x2, int64_t group_size,
    aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnQuantMatmulReduceSumWeightNz, const aclTensor *x1, const aclTensor *x2, const aclTensor *x1_scale,
    const aclTensor *x2_scale, const aclTensor *y_scale, const aclTensor *x1_offset, const aclTensor *x2_offset,
    const aclTensor *y_offset, const aclTensor *bias, bool transpose_x1, bool transpose_x2, int64_t group_size,
    const aclIntArray *dims, bool keep_dims, aclTensor *out)
ACLNN_OPERATOR(aclnnWeightQuantBatchMatmulV3, const aclTensor *x, const aclTensor *weight,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset_optional,
    const aclTensor *quant_scale_optional, const aclTensor *quant_offset_optional, const aclTensor *bias_optional,
    int32_t antiquant_group_size, int32_t inner_precise, const aclTensor *y)
ACLNN_OPERATOR(aclnnConvertWeightToINT4Pack, const aclTensor *weight, aclTensor *weight_int4_pack)
ACLNN_OPERATOR(aclnnAscendQuant, const aclTensor *x, const aclTensor *scale, const aclTensor *offset, bool sqrt_mode,
    const char *round_mode, int32_t dst_type, const aclTensor *y)
ACLNN_OPERATOR(aclnnAscendQuantV3, const aclTensor *x, const aclTensor *scale, const aclTensor *offset,
    bool sqrt_mode, const char *round_mode, int32_t dst_type, int32_t axis, const aclTensor *y)
ACLNN_OPERATOR(aclnnAscendAntiQuant, const aclTensor *x, const aclTensor *scale, const aclTensor *offset,
    int64_t dst_type, bool sqrt_mode, const aclTensor *y)

/* The rest */
ACLNN_OPERATOR(aclnnTriangularSolve, const aclTensor *self, const aclTensor *a, bool upper, bool transpose,
    bool unitriangular, aclTensor *x_out, aclTensor *m_out)
ACLNN_OPERATOR(aclnnSlogdet, const aclTensor *self, aclTensor *sign_out, aclTensor *log_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnRightShift, const aclTensor *input, const aclTensor *shift_bits, aclTensor *out)
ACLNN_OPERATOR(aclnnIsClose, const aclTensor *self, const aclTensor *other, double rtol, double atol, bool equal_nan,
    aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnIndexFill, const aclTensor *self, int64_t dim, const aclTensor *index, const aclScalar *value,
    aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnInplaceIndexFill, aclTensor *self_ref, int64_t dim, const aclTensor *index,
    const aclScalar *value)
ACLNN_OPERATOR(aclnnForeachNonFiniteCheckAndUnscale, const aclTensorList *scaled_grads, aclTensor *found_inf,
    const aclTensor *inv_scale)

/* Grids */
ACLNN_OPERATOR(aclnnUpsampleNearest1d, const aclTensor *self, const aclIntArray *output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearest1dV2, const aclTensor *self, const aclIntArray *output_size, float scale_l,
    aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearest1dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, double scales, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearest3d, const aclTensor *self, const aclIntArray *output_size, double scales_d, double
    scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearest3dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, double scales_d, double scales_h, double scales_w, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnUpsampleNearestExact1d, const aclTensor *self, const aclIntArray *output_size, double scales,
    aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearestExact1dBackward, const aclTensor *grad_output, const aclIntArray *output_size,
    const aclIntArray *input_size, double scales, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnUpsampleNearestExact2d, const aclTensor *self, const aclIntArray *output_size, double scales_h,
    double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearestExact2dBackward, const aclTensor *grad_output, const aclIntArray *output_size,
    const aclIntArray *input_size, double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearestExact3d, const aclTensor *self, const aclIntArray *output_size, double scales_d,
    double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleNearestExact3dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, double scales_d, double scales_h, double scales_w, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnUpsampleLinear1d, const aclTensor *self, const aclIntArray *output_size, const bool align_corners,
    const double scales, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleLinear1dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, bool align_corners, double scales, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBilinear2d, const aclTensor *self, const aclIntArray *output_size, const bool
    align_corners, const double scales_h, const double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBilinear2dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, bool align_corners, double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBilinear2dBackwardV2, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, bool align_corners, double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleTrilinear3d, const aclTensor *self, const aclIntArray *output_size, bool align_corners,
    double scales_d, double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleTrilinear3dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, bool align_corners, double scales_d, double scales_h, double scales_w, aclTensor
    *grad_input)
ACLNN_OPERATOR(aclnnUpsampleBicubic2d, const aclTensor *self, const aclIntArray *output_size, const bool
    align_corners, const double scales_h, const double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBicubic2dBackward, const aclTensor *grad_out, const aclIntArray *output_size, const
    aclIntArray *input_size, const bool align_corners, double scales_h, double scales_w, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnUpsampleBilinear2dAA, const aclTensor *input, const aclIntArray *output_size, bool align_corners,
    double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBilinear2dAABackward, const aclTensor *grad_output, const aclIntArray *output_size, const
    aclIntArray *input_size, bool align_corners, double scales_h, double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBicubic2dAA, const aclTensor *x, const aclIntArray *output_size, const bool align_corners,
    const double scales_h, const double scales_w, aclTensor *out)
ACLNN_OPERATOR(aclnnUpsampleBicubic2dAAGrad, const aclTensor *grad_output, const aclIntArray *output_size, const
    aclIntArray *input_size, bool align_corners, double scales_h, double scales_w, aclTensor *out)

/* What models ask for besides */
/** @since 9.x */
ACLNN_OPERATOR(aclnnFastGelu, const aclTensor *self, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFastGeluBackward, const aclTensor *grad_output, const aclTensor *self, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnGeluMul, const aclTensor *input, char *approximate_optional, const aclTensor *out)
ACLNN_OPERATOR(aclnnGemmaRmsNorm, const aclTensor *x, const aclTensor *gamma, double epsilon, const aclTensor *y_out,
    const aclTensor *rstd_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnApplyAdamW, aclTensor *var_ref, aclTensor *m_ref, aclTensor *v_ref, const aclTensor *beta1_power,
    const aclTensor *beta2_power, const aclTensor *lr, const aclTensor *weight_decay, const aclTensor *beta1, const
    aclTensor *beta2, const aclTensor *eps, const aclTensor *grad, const aclTensor *max_grad_norm_optional, bool
    amsgrad, bool maximize)
ACLNN_OPERATOR(aclnnMoeTokenPermuteGrad, const aclTensor *permuted_output_grad, const aclTensor *sorted_indices,
    int64_t num_topk, bool padded_mode, const aclTensor *out)
ACLNN_OPERATOR(aclnnMoeTokenUnpermuteGrad, const aclTensor *permuted_tokens, const aclTensor *unpermuted_tokens_grad,
    const aclTensor *sorted_indices, const aclTensor *probs_optional, bool padded_mode, const aclIntArray
    *restore_shape_optional, const aclTensor *permuted_tokens_grad_out, const aclTensor *probs_grad_out)
ACLNN_OPERATOR(aclnnRepeatInterleave, const aclTensor *self, const aclTensor *repeats, int64_t output_size, aclTensor
    *out)
ACLNN_OPERATOR(aclnnRepeatInterleaveInt, const aclTensor *self, int64_t repeats, int64_t output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnRepeatInterleaveWithDim, const aclTensor *self, const aclTensor *repeats, int64_t dim, int64_t
    output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnRepeatInterleaveTensor, const aclTensor *repeats, int64_t output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnIsInTensorScalar, const aclTensor *element, const aclScalar *test_element, bool assume_unique,
    bool invert, aclTensor *out)
ACLNN_OPERATOR(aclnnIsInScalarTensor, const aclScalar *element, const aclTensor *test_elements, bool assume_unique,
    bool invert, aclTensor *out)
ACLNN_OPERATOR(aclnnGer, const aclTensor *self, const aclTensor *vec2, aclTensor *out)
ACLNN_OPERATOR(aclnnInverse, const aclTensor *self, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnHansEncode, const aclTensor *input_tensor, aclTensor *pdf_ref, bool statistic, bool reshuff, const
    aclTensor *mantissa_out, const aclTensor *fixed_out, const aclTensor *var_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnHansDecode, const aclTensor *mantissa, const aclTensor *fixed, const aclTensor *var, const
    aclTensor *pdf, bool reshuff, const aclTensor *out)

/* Built by who wants them from the sources of CANN's repositories, into libcust_opapi.so */
/** @since 9.x */
ACLNN_OPERATOR(aclnnAddExample, const aclTensor *x1, const aclTensor *x2, const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFloorDiv, const aclTensor *x1, const aclTensor *x2, const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMaxPool3D, const aclTensor *x, const aclIntArray *ksize, const aclIntArray *strides, const char
    *padding, const aclIntArray *pads_optional, const aclIntArray *dilation_optional, int64_t ceil_mode, const char
    *data_format_optional, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnSoftsign, const aclTensor *self, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnSwigluClamp, const aclTensor *x, double limit, aclTensor *y)

/* Random numbers of other programs */
/** @since 9.x */
ACLNN_OPERATOR(aclnnInplaceUniformTensor, const aclTensor *self_ref, double from, double to,
    const aclTensor *seed_tensor, const aclTensor *offset_tensor, uint64_t offset)
/** @since 9.x */
ACLNN_OPERATOR(aclnnInplaceNormalTensor, const aclTensor *self_ref, float mean, float std,
    const aclTensor *seed_tensor, const aclTensor *offset_tensor, int64_t offset)
/** @since 9.x */
ACLNN_OPERATOR(aclnnInplaceRandomTensor, const aclTensor *self_ref, int64_t from, int64_t to,
    const aclTensor *seed_tensor, const aclTensor *offset_tensor, int64_t offset)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMultinomialTensor, const aclTensor *self, int64_t numsamples, bool replacement,
    const aclTensor *seed_tensor, const aclTensor *offset_tensor, int64_t offset, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnDropoutGenMaskV2Tensor, const aclIntArray *shape, double prob, const aclTensor *seed_tensor,
    const aclTensor *offset_tensor, int64_t offset, aclDataType prob_data_type, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceBernoulliTensor, const aclTensor *self_ref, const aclTensor *prob, int64_t seed,
    int64_t offset)
ACLNN_OPERATOR(aclnnNormalTensorTensor, const aclTensor *mean, const aclTensor *std, int64_t seed, int64_t offset,
    aclTensor *out)
ACLNN_OPERATOR(aclnnNormalTensorFloat, const aclTensor *mean, float std, int64_t seed, int64_t offset,
    aclTensor *out)
ACLNN_OPERATOR(aclnnNormalFloatTensor, float mean, const aclTensor *std, int64_t seed, int64_t offset,
    aclTensor *out)
ACLNN_OPERATOR(aclnnNormalFloatFloat, float mean, float std, int64_t seed, int64_t offset, aclTensor *out)
ACLNN_OPERATOR(aclnnRandperm, int64_t n, int64_t seed, int64_t offset, aclTensor *out)
ACLNN_OPERATOR(aclnnRReluWithNoise, const aclTensor *self, const aclTensor *noise, const aclScalar *lower,
    const aclScalar *upper, bool training, int64_t seed, int64_t offset, aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceRReluWithNoise, aclTensor *self_ref, aclTensor *noise, const aclScalar *lower,
    const aclScalar *upper, bool training, int64_t seed, int64_t offset)

/* Searches, bags and positions */
ACLNN_OPERATOR(aclnnSearchSorted, const aclTensor *sorted_sequence, const aclTensor *self, bool out_int32,
    bool right, const aclTensor *sorter, aclTensor *out)
ACLNN_OPERATOR(aclnnSearchSorteds, const aclTensor *sorted_sequence, const aclScalar *self, bool out_int32,
    bool right, const aclTensor *sorter, aclTensor *out)
ACLNN_OPERATOR(aclnnEmbeddingBag, const aclTensor *weight, const aclTensor *indices, const aclTensor *offsets,
    bool scale_grad_by_freq, int64_t mode, bool sparse, const aclTensor *per_sample_weights,
    bool include_last_offset, int64_t padding_idx, aclTensor *output, aclTensor *offset2bag, aclTensor *bag_size,
    aclTensor *max_indices)
ACLNN_OPERATOR(aclnnEmbeddingRenorm, aclTensor *self_ref, const aclTensor *indices, double max_norm,
    double norm_type)
ACLNN_OPERATOR(aclnnRenorm, const aclTensor *self, const aclScalar *p, int64_t dim, const aclScalar *max_norm,
    aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceRenorm, aclTensor *self_ref, const aclScalar *p, int64_t dim, const aclScalar *max_norm)
ACLNN_OPERATOR(aclnnIndexCopy, aclTensor *self_ref, int64_t dim, const aclTensor *index, const aclTensor *source,
    aclTensor *out_ref)
ACLNN_OPERATOR(aclnnScatterNdUpdate, aclTensor *var_ref, const aclTensor *indices, const aclTensor *updates)
ACLNN_OPERATOR(aclnnNanMedian, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnNanMedianDim, const aclTensor *self, int64_t dim, bool keep_dim, aclTensor *values_out,
    aclTensor *indices_out)
ACLNN_OPERATOR(aclnnReduceNansum, const aclTensor *self, const aclIntArray *dim, bool keep_dim, aclDataType dtype,
    aclTensor *out)
ACLNN_OPERATOR(aclnnMaxUnpool2d, const aclTensor *self, const aclTensor *indices, const aclIntArray *output_size,
    aclTensor *out)
ACLNN_OPERATOR(aclnnMaxUnpool3d, const aclTensor *self, const aclTensor *indices, const aclIntArray *output_size,
    const aclIntArray *stride, const aclIntArray *padding, aclTensor *out_ref)
ACLNN_OPERATOR(aclnnAffineGrid, const aclTensor *theta, const aclIntArray *size, bool align_corners,
    aclTensor *out)
ACLNN_OPERATOR(aclnnGridSampler2D, const aclTensor *input, const aclTensor *grid, int64_t interpolation_mode,
    int64_t padding_mode, bool align_corners, aclTensor *out)
ACLNN_OPERATOR(aclnnGridSampler3D, const aclTensor *input, const aclTensor *grid, int64_t interpolation_mode,
    int64_t padding_mode, bool align_corners, aclTensor *out)
ACLNN_OPERATOR(aclnnGridSampler2DBackward, const aclTensor *grad_output, const aclTensor *input,
    const aclTensor *grid, int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
    const aclBoolArray *output_mask, aclTensor *input_grad, aclTensor *grid_grad)
ACLNN_OPERATOR(aclnnGridSampler3DBackward, const aclTensor *grad_output, const aclTensor *input,
    const aclTensor *grid, int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
    const aclBoolArray *output_mask, aclTensor *input_grad, aclTensor *grid_grad)
ACLNN_OPERATOR(aclnnChannelShuffle, const aclTensor *self, int64_t groups, aclTensor *out)
ACLNN_OPERATOR(aclnnPdist, const aclTensor *self, float p, aclTensor *out)
ACLNN_OPERATOR(aclnnLinalgQr, const aclTensor *self, int64_t mode, aclTensor *q, aclTensor *r)
ACLNN_OPERATOR(aclnnMultilabelMarginLoss, const aclTensor *self, const aclTensor *target, int64_t reduction,
    aclTensor *out, aclTensor *is_target)
ACLNN_OPERATOR(aclnnForeachRoundOffNumber, const aclTensorList *x, const aclTensor *round_mode,
    const aclTensorList *out)
ACLNN_OPERATOR(aclnnForeachRoundOffNumberV2, const aclTensorList *x, const aclScalar *round_mode,
    aclTensorList *out)
ACLNN_OPERATOR(aclnnFakeQuantPerTensorAffineCachemask, const aclTensor *self, const aclTensor *scale,
    const aclTensor *zero_point, float fake_quant_enbled, int64_t quant_min, int64_t quant_max, aclTensor *out,
    aclTensor *mask)
ACLNN_OPERATOR(aclnnFakeQuantPerChannelAffineCachemask, const aclTensor *self, const aclTensor *scale,
    const aclTensor *zero_point, int64_t axis, int64_t quant_min, int64_t quant_max, aclTensor *out,
    aclTensor *mask)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAmpUpdateScale, const aclTensor *current_scale, const aclTensor *growth_tracker,
    const aclTensor *found_inf, double growth_factor, double backoff_factor, int64_t growth_interval,
    const aclTensor *updated_scale_out, const aclTensor *updated_growth_tracker_out)

/* Norms and quantisation of other programs */
ACLNN_OPERATOR(aclnnAddLayerNorm, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    const aclTensor *beta, const aclTensor *bias_optional, double epsilon, bool additional_output,
    const aclTensor *y_out, const aclTensor *mean_out, const aclTensor *rstd_out, const aclTensor *x_out)
ACLNN_OPERATOR(aclnnAddLayerNormGrad, const aclTensor *dy, const aclTensor *x1, const aclTensor *x2,
    const aclTensor *rstd, const aclTensor *mean, const aclTensor *gamma, const aclTensor *dsum_optional,
    const aclTensor *dx_out, const aclTensor *dgamma_out, const aclTensor *dbeta_out)
ACLNN_OPERATOR(aclnnDeepNorm, const aclTensor *x, const aclTensor *gx, const aclTensor *beta,
    const aclTensor *gamma, double alpha, double epsilon, const aclTensor *mean_out, const aclTensor *rstd_out,
    const aclTensor *y_out)
ACLNN_OPERATOR(aclnnDeepNormGrad, const aclTensor *dy, const aclTensor *x, const aclTensor *gx,
    const aclTensor *gamma, const aclTensor *mean, const aclTensor *rstd, double alpha, const aclTensor *dx_out,
    const aclTensor *dgx_out, const aclTensor *dbeta_out, const aclTensor *dgamma_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnInplaceAddRmsNorm, aclTensor *x1_ref, aclTensor *x2_ref, const aclTensor *gamma,
    double epsilon, const aclTensor *rstd_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAddRmsNormCast, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    double epsilon, const aclTensor *y1_out, const aclTensor *y2_out, const aclTensor *rstd_out,
    const aclTensor *x_out)
ACLNN_OPERATOR(aclnnAddRmsNormQuant, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    const aclTensor *scales1, const aclTensor *scales2_optional, const aclTensor *zero_points1_optional,
    const aclTensor *zero_points2_optional, int64_t axis, double epsilon, bool div_mode, const aclTensor *y1_out,
    const aclTensor *y2_out, const aclTensor *x_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAddRmsNormQuantV2, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    const aclTensor *scales1, const aclTensor *scales2_optional, const aclTensor *zero_points1_optional,
    const aclTensor *zero_points2_optional, const aclTensor *beta_optional, int64_t axis, double epsilon,
    bool div_mode, aclTensor *y1_out, aclTensor *y2_out, aclTensor *x_out, aclTensor *rms_norm_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnRmsNormQuant, const aclTensor *x, const aclTensor *gamma, const aclTensor *beta,
    const aclTensor *scale, const aclTensor *offset, double epsilon, aclTensor *y)
ACLNN_OPERATOR(aclnnAddRmsNormDynamicQuant, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    const aclTensor *smooth_scale1_optional, const aclTensor *smooth_scale2_optional, double epsilon,
    const aclTensor *y1_out, const aclTensor *y2_out, const aclTensor *x_out, const aclTensor *scale1_out,
    const aclTensor *scale2_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAddRmsNormDynamicQuantV2, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
    const aclTensor *smooth_scale1_optional, const aclTensor *smooth_scale2_optional,
    const aclTensor *beta_optional, double epsilon, const aclBoolArray *output_mask_optional, aclTensor *y1_out,
    aclTensor *y2_out, aclTensor *x_out, aclTensor *scale1_out, aclTensor *scale2_out)
ACLNN_OPERATOR(aclnnGroupNormSilu, const aclTensor *self, const aclTensor *gamma, const aclTensor *beta,
    int64_t group, double eps, aclTensor *out, aclTensor *mean_out, aclTensor *rstd_out)
ACLNN_OPERATOR(aclnnGroupNormSwish, const aclTensor *x, const aclTensor *gamma, const aclTensor *beta,
    int64_t num_groups, char *data_format_optional, double eps, bool activate_swish, double swish_scale,
    const aclTensor *y_out, const aclTensor *mean_out, const aclTensor *rstd_out)
ACLNN_OPERATOR(aclnnGroupNormSwishGrad, const aclTensor *dy, const aclTensor *mean, const aclTensor *rstd,
    const aclTensor *x, const aclTensor *gamma, const aclTensor *beta, int64_t num_groups,
    char *data_format_optional, double swish_scale, bool dgamma_is_require, bool dbeta_is_require,
    const aclTensor *dx_out, const aclTensor *dgamma_out, const aclTensor *dbeta_out)
ACLNN_OPERATOR(aclnnScaledMaskedSoftmax, const aclTensor *x, const aclTensor *mask, double scale,
    bool fixed_triu_mask, aclTensor *y)
ACLNN_OPERATOR(aclnnScaledMaskedSoftmaxBackward, const aclTensor *grad_output, const aclTensor *y,
    const aclTensor *mask, double scale, bool fix_triu_mask, aclTensor *out)
ACLNN_OPERATOR(aclnnMaskedSoftmaxWithRelPosBias, const aclTensor *x, const aclTensor *atten_mask_optional,
    const aclTensor *relative_pos_bias, double scale_value, int64_t inner_precision_mode, const aclTensor *out)
ACLNN_OPERATOR(aclnnGeGluV3Backward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *gelu,
    int64_t dim, int64_t approximate, bool activate_left, aclTensor *grad_input)
/** @since 9.x */
ACLNN_OPERATOR(aclnnClippedSwiglu, const aclTensor *x, const aclTensor *group_index_optional, int64_t dim,
    double alpha, double limit, double bias, bool interleaved, const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnRotaryPositionEmbeddingGrad, const aclTensor *dy, const aclTensor *cos, const aclTensor *sin,
    const aclTensor *x_optional, int64_t mode, const aclTensor *dx_out, const aclTensor *dcos_out,
    const aclTensor *dsin_out)
ACLNN_OPERATOR(aclnnDynamicQuantV2, const aclTensor *x, const aclTensor *smooth_scales_optional,
    const aclTensor *group_index_optional, int64_t dst_type, const aclTensor *y_out, const aclTensor *scale_out,
    const aclTensor *offset_out)
ACLNN_OPERATOR(aclnnGroupQuant, const aclTensor *x, const aclTensor *scale, const aclTensor *group_index,
    const aclTensor *offset_optional, int32_t dst_type, aclTensor *y)
ACLNN_OPERATOR(aclnnDequantBias, const aclTensor *x, const aclTensor *weight_scale,
    const aclTensor *activate_scale_optional, const aclTensor *bias_optional, int64_t output_dtype,
    const aclTensor *out)
ACLNN_OPERATOR(aclnnDequantSwigluQuant, const aclTensor *x, const aclTensor *weight_scale_optional,
    const aclTensor *activation_scale_optional, const aclTensor *bias_optional,
    const aclTensor *quant_scale_optional, const aclTensor *quant_offset_optional,
    const aclTensor *group_index_optional, bool activate_left, char *quant_mode_optional, const aclTensor *y_out,
    const aclTensor *scale_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnDequantSwigluQuantV2, const aclTensor *x, const aclTensor *weight_scale_optional,
    const aclTensor *activation_scale_optional, const aclTensor *bias_optional,
    const aclTensor *quant_scale_optional, const aclTensor *quant_offset_optional,
    const aclTensor *group_index_optional, bool activate_left, char *quant_mode_optional, int64_t dst_type,
    char *round_mode_optional, int64_t activate_dim, int64_t swiglu_mode, double clamp_limit, double glu_alpha,
    double glu_bias, const aclTensor *y_out, const aclTensor *scale_out)

/* Packed attention, routers and steps of other programs */
ACLNN_OPERATOR(aclnnFlashAttentionScoreV2, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclIntArray *prefix_optional, const aclIntArray *q_start_idx_optional,
    const aclIntArray *kv_start_idx_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    int64_t pse_type, const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out,
    const aclTensor *softmax_out_out, const aclTensor *attention_out_out)
ACLNN_OPERATOR(aclnnFlashAttentionScoreGradV2, const aclTensor *query, const aclTensor *key_in,
    const aclTensor *value, const aclTensor *dy, const aclTensor *pse_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclTensor *softmax_max_optional,
    const aclTensor *softmax_sum_optional, const aclTensor *softmax_in_optional,
    const aclTensor *attention_in_optional, const aclIntArray *prefix_optional,
    const aclIntArray *q_start_idx_optional, const aclIntArray *kv_start_idx_optional, double scale_value,
    double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout,
    int64_t inner_precise, int64_t sparse_mode, int64_t pse_type, const aclTensor *dq_out, const aclTensor *dk_out,
    const aclTensor *dv_out, const aclTensor *dpse_out)
ACLNN_OPERATOR(aclnnFlashAttentionVarLenScore, const aclTensor *query, const aclTensor *key,
    const aclTensor *value, const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclIntArray *prefix_optional, const aclIntArray *actual_seq_q_len_optional,
    const aclIntArray *actual_seq_kv_len_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out, const aclTensor *softmax_out_out,
    const aclTensor *attention_out_out)
ACLNN_OPERATOR(aclnnFlashAttentionVarLenScoreV2, const aclTensor *query, const aclTensor *key,
    const aclTensor *value, const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclIntArray *prefix_optional, const aclIntArray *actual_seq_q_len_optional,
    const aclIntArray *actual_seq_kv_len_optional, const aclIntArray *q_start_idx_optional,
    const aclIntArray *kv_start_idx_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    int64_t pse_type, const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out,
    const aclTensor *softmax_out_out, const aclTensor *attention_out_out)
ACLNN_OPERATOR(aclnnFlashAttentionUnpaddingScoreGrad, const aclTensor *query, const aclTensor *key_in,
    const aclTensor *value, const aclTensor *dy, const aclTensor *pse_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclTensor *softmax_max_optional,
    const aclTensor *softmax_sum_optional, const aclTensor *softmax_in_optional,
    const aclTensor *attention_in_optional, const aclIntArray *prefix_optional,
    const aclIntArray *actual_seq_q_len_optional, const aclIntArray *actual_seq_kv_len_optional,
    double scale_value, double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num,
    char *input_layout, int64_t inner_precise, int64_t sparse_mode, const aclTensor *dq_out,
    const aclTensor *dk_out, const aclTensor *dv_out, const aclTensor *dpse_out)
ACLNN_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV2, const aclTensor *query, const aclTensor *key_in,
    const aclTensor *value, const aclTensor *dy, const aclTensor *pse_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclTensor *softmax_max_optional,
    const aclTensor *softmax_sum_optional, const aclTensor *softmax_in_optional,
    const aclTensor *attention_in_optional, const aclIntArray *prefix_optional,
    const aclIntArray *actual_seq_q_len_optional, const aclIntArray *actual_seq_kv_len_optional,
    const aclIntArray *q_start_idx_optional, const aclIntArray *kv_start_idx_optional, double scale_value,
    double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout,
    int64_t inner_precise, int64_t sparse_mode, int64_t pse_type, const aclTensor *dq_out, const aclTensor *dk_out,
    const aclTensor *dv_out, const aclTensor *dpse_out)
ACLNN_OPERATOR(aclnnMoeGatingTopKSoftmaxV2, const aclTensor *x, const aclTensor *finished_optional, int64_t k,
    int64_t renorm, bool output_softmax_result_flag, const aclTensor *y_out, const aclTensor *expert_idx_out,
    const aclTensor *softmax_result_out_optional)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeGatingTopK, const aclTensor *x, const aclTensor *bias_optional, int64_t k, int64_t k_group,
    int64_t group_count, int64_t group_select_mode, int64_t renorm, int64_t norm_type, bool out_flag,
    double routed_scaling_factor, double eps, const aclTensor *y_out, const aclTensor *expert_idx_out,
    const aclTensor *out_out)
ACLNN_OPERATOR(aclnnMoeComputeExpertTokens, const aclTensor *sorted_experts, int64_t num_experts,
    const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnApplyTopKTopP, const aclTensor *logits, const aclTensor *p, const aclTensor *k, aclTensor *out)
ACLNN_OPERATOR(aclnnAdvanceStep, const aclTensor *input_tokens, const aclTensor *sampled_token_ids,
    const aclTensor *input_positions, const aclTensor *seq_lens, const aclTensor *slot_mapping,
    const aclTensor *block_tables, int64_t num_seqs, int64_t num_queries, int64_t block_size)
ACLNN_OPERATOR(aclnnRopeWithSinCosCache, const aclTensor *positions, const aclTensor *query_in,
    const aclTensor *key_in, const aclTensor *cos_sin_cache, const aclIntArray *mrope_section, int64_t head_size,
    bool is_neox_style, aclTensor *query_out, aclTensor *key_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnTransQuantParamV3, const aclTensor *scale, const aclTensor *offset, int64_t round_mode,
    const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAttentionUpdate, const aclTensorList *lse, const aclTensorList *local_out, int64_t update_type,
    aclTensor *out, aclTensor *lse_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnInterleaveRope, const aclTensor *x, const aclTensor *cos, const aclTensor *sin, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnApplyRotaryPosEmbV2, aclTensor *query_ref, aclTensor *key_ref, const aclTensor *cos,
    const aclTensor *sin, int64_t layout, char *rotary_mode)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFastLayerNorm, const aclTensor *input, const aclIntArray *normalized_shape,
    const aclTensor *weight_optional, const aclTensor *bias_optional, double eps, aclTensor *out,
    aclTensor *mean_out_optional, aclTensor *rstd_out_optional)
/** @since 9.x */
ACLNN_OPERATOR(aclnnKlDivTargetBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *target, int64_t reduction, bool log_target, aclTensor *grad_target)

/* Shifts, series and gradients of other programs */
/** @since 9.x */
ACLNN_OPERATOR(aclnnLeftShift, const aclTensor *self, const aclTensor *shift_bits, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnLeftShifts, const aclTensor *self, const aclScalar *shift_bits, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnHardswishBackwardV2, const aclTensor *grad_output, const aclTensor *self, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMaskedScale, const aclTensor *self, const aclTensor *mask, float scale, aclTensor *y)
/** @since 9.x */
ACLNN_OPERATOR(aclnnAngleV2, const aclTensor *x, const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnLogSpace, const aclScalar *start, const aclScalar *end, int64_t steps, double base,
    const aclTensor *result)
/** @since 9.x */
ACLNN_OPERATOR(aclnnInplaceFillDiagonal, aclTensor *self_ref, const aclScalar *fill_value, bool wrap)
/** @since 9.x */
ACLNN_OPERATOR(aclnnUnfoldGrad, const aclTensor *grad_out, const aclIntArray *input_sizes, int64_t dim,
    int64_t size, int64_t step, const aclTensor *grad_in)
/** @since 9.x */
ACLNN_OPERATOR(aclnnRepeatInterleaveGrad, const aclTensor *y_grad, const aclTensor *repeats, int64_t axis,
    const aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnIndexAddV2, const aclTensor *self, int64_t dim, const aclTensor *index,
    const aclTensor *source, const aclScalar *alpha, int64_t mode, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnLinalgCholesky, const aclTensor *self, bool upper, aclTensor *out)

/* Delta rules, and routing with quantisation, maps and gradients */
/** @since 9.x */
ACLNN_OPERATOR(aclnnRecurrentGatedDeltaRule, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *beta, aclTensor *state_ref, const aclTensor *actual_seq_lengths,
    const aclTensor *ssm_state_indices, const aclTensor *g, const aclTensor *gk,
    const aclTensor *num_accepted_tokens, float scale_value, aclTensor *out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnChunkGatedDeltaRule, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *beta, const aclTensor *initial_state, const aclTensor *actual_seq_lengths,
    const aclTensor *g_optional, float scale_value, const aclTensor *out, const aclTensor *final_state)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeInitRoutingV3, const aclTensor *x, const aclTensor *expert_idx,
    const aclTensor *scale_optional, const aclTensor *offset_optional, int64_t active_num, int64_t expert_capacity,
    int64_t expert_num, int64_t drop_pad_mode, int64_t expert_tokens_num_type, bool expert_tokens_num_flag,
    int64_t quant_mode, const aclIntArray *active_expert_range_optional, int64_t row_idx_type,
    const aclTensor *expanded_x_out, const aclTensor *expanded_row_idx_out,
    const aclTensor *expert_tokens_count_or_cumsum_out, const aclTensor *expanded_scale_out)
ACLNN_OPERATOR(aclnnMoeInitRoutingQuant, const aclTensor *x, const aclTensor *row_idx, const aclTensor *expert_idx,
    int64_t active_num, double scale, double offset, const aclTensor *expanded_x_out,
    const aclTensor *expanded_row_idx_out, const aclTensor *expanded_expert_idx_out)
ACLNN_OPERATOR(aclnnMoeInitRoutingQuantV2, const aclTensor *x, const aclTensor *expert_idx,
    const aclTensor *scale_optional, const aclTensor *offset_optional, int64_t active_num, int64_t expert_capacity,
    int64_t expert_num, int64_t drop_pad_mode, int64_t expert_tokens_count_or_cumsum_flag,
    bool expert_tokens_before_capacity_flag, int64_t quant_mode, const aclTensor *expanded_x_out,
    const aclTensor *expanded_row_idx_out, const aclTensor *expert_tokens_count_or_cumsum_out_optional,
    const aclTensor *expert_tokens_before_capacity_out_optional, const aclTensor *dynamic_quant_scale_out_optional)
ACLNN_OPERATOR(aclnnMoeInitRoutingV2Grad, const aclTensor *grad_expanded_x, const aclTensor *expanded_row_idx,
    int64_t top_k, int64_t drop_pad_mode, int64_t active_num, const aclTensor *out)
ACLNN_OPERATOR(aclnnMoeFinalizeRoutingV2Grad, const aclTensor *grad_y, const aclTensor *expanded_row_idx,
    const aclTensor *expanded_x_optional, const aclTensor *scales_optional, const aclTensor *expert_idx_optional,
    const aclTensor *bias_optional, int64_t drop_pad_mode, int64_t active_num, int64_t expert_num,
    int64_t expert_capacity, const aclTensor *grad_expanded_x_out, const aclTensor *grad_scales_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeGatingTopKBackward, const aclTensor *x_norm, const aclTensor *grad_y,
    const aclTensor *expert_idx, int64_t renorm, int64_t norm_type, double routed_scaling_factor, double eps,
    const aclTensor *grad_x)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeReRouting, const aclTensor *tokens, const aclTensor *expert_token_num_per_rank,
    const aclTensor *per_token_scales_optional, int64_t expert_token_num_type, int64_t idx_type,
    const aclTensor *permute_tokens_out, const aclTensor *permute_per_token_scales_out,
    const aclTensor *permute_token_idx_out, const aclTensor *expert_token_num_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeTokenPermuteWithRoutingMap, const aclTensor *tokens, const aclTensor *routing_map,
    const aclTensor *probs_optional, int64_t num_out_tokens, bool drop_and_pad, aclTensor *permute_tokens_out,
    aclTensor *permute_probs_out_optional, aclTensor *sorted_indices_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeTokenPermuteWithRoutingMapGrad, const aclTensor *permuted_token_output_grad,
    const aclTensor *permuted_probs_output_grad_optional, const aclTensor *sorted_indices,
    const aclTensor *routing_map_optional, int64_t num_experts, int64_t tokens_num, bool drop_and_pad,
    aclTensor *tokens_grad_out, aclTensor *probs_grad_out_optional)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMap, const aclTensor *permuted_tokens,
    const aclTensor *sorted_indices, const aclTensor *routing_map_optional, const aclTensor *probs_optional,
    bool padded_mode, const aclIntArray *restore_shape_optional, aclTensor *unpermuted_tokens, aclTensor *out_index,
    aclTensor *permute_token_id, aclTensor *permute_probs)
/** @since 9.x */
ACLNN_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMapGrad, const aclTensor *unpermuted_tokens_grad,
    const aclTensor *out_index, const aclTensor *permute_token_id, const aclTensor *routing_map_optional,
    const aclTensor *permuted_tokens_optional, const aclTensor *probs_optional, bool drop_and_pad,
    const aclIntArray *restore_shape_optional, const aclTensor *permuted_tokens_grad_out,
    const aclTensor *probs_grad_out_optional)

/* Delta rules, and routing with quantisation, maps and gradients */

/* Latent and sparse attention, and its caches */
/** @since 9.x */
ACLNN_OPERATOR(aclnnKvRmsNormRopeCache, const aclTensor *kv, const aclTensor *gamma, const aclTensor *cos,
    const aclTensor *sin, const aclTensor *index, aclTensor *k_cache_ref, aclTensor *ckv_cache_ref,
    const aclTensor *k_rope_scale_optional, const aclTensor *c_kv_scale_optional,
    const aclTensor *k_rope_offset_optional, const aclTensor *c_kv_offset_optional, double epsilon,
    char *cache_mode_optional, bool is_output_kv, const aclTensor *k_rope_out, const aclTensor *c_kv_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnQkvRmsNormRopeCache, const aclTensor *qkv, const aclTensor *q_gamma, const aclTensor *k_gamma,
    const aclTensor *cos, const aclTensor *sin, const aclTensor *index, aclTensor *q_out, aclTensor *k_cache,
    aclTensor *v_cache, const aclTensor *k_scale_optional, const aclTensor *v_scale_optional,
    const aclTensor *k_offset_optional, const aclTensor *v_offset_optional, const aclIntArray *qkv_size,
    const aclIntArray *head_nums, double epsilon, char *cache_mode_optional, const aclTensor *q_out_before_quant,
    const aclTensor *k_out_before_quant, const aclTensor *v_out_before_quant)
/** @since 9.x */
ACLNN_OPERATOR(aclnnGatherPaKvCache, const aclTensor *key_cache, const aclTensor *value_cache,
    const aclTensor *block_tables, const aclTensor *seq_lens, aclTensor *key_ref, aclTensor *value_ref,
    const aclTensor *seq_offset_optional, char *cache_mode, bool is_seq_lens_cumsum)
/** @since 9.x */
ACLNN_OPERATOR(aclnnLightningIndexer, const aclTensor *query, const aclTensor *key, const aclTensor *weights,
    const aclTensor *actual_seq_lengths_query_optional, const aclTensor *actual_seq_lengths_key_optional,
    const aclTensor *block_table_optional, char *layout_query_optional, char *layout_key_optional,
    int64_t sparse_count, int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens, bool return_values,
    const aclTensor *sparse_indices_out, const aclTensor *sparse_values_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnSparseFlashAttention, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *sparse_indices, const aclTensor *block_table_optional,
    const aclTensor *actual_seq_lengths_query_optional, const aclTensor *actual_seq_lengths_kv_optional,
    const aclTensor *query_rope_optional, const aclTensor *key_rope_optional, double scale_value,
    int64_t sparse_block_size, char *layout_query_optional, char *layout_kv_optional, int64_t sparse_mode,
    int64_t pre_tokens, int64_t next_tokens, int64_t attention_mode, bool return_softmax_lse,
    const aclTensor *attention_out, const aclTensor *softmax_max, const aclTensor *softmax_sum)

/* Delta rules, and routing with quantisation, maps and gradients */

/* Later forms of training attention */
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionScoreV3, const aclTensor *query, const aclTensor *key, const aclTensor *value,
    const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional, const aclTensor *sink_optional,
    const aclIntArray *prefix_optional, const aclIntArray *q_start_idx_optional,
    const aclIntArray *kv_start_idx_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    int64_t pse_type, const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out,
    const aclTensor *softmax_out_out, const aclTensor *attention_out_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionScoreGradV3, const aclTensor *query, const aclTensor *key_in,
    const aclTensor *value, const aclTensor *dy, const aclTensor *pse_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclTensor *softmax_max_optional,
    const aclTensor *softmax_sum_optional, const aclTensor *softmax_in_optional,
    const aclTensor *attention_in_optional, const aclTensor *sink_in_optional, const aclIntArray *prefix_optional,
    const aclIntArray *q_start_idx_optional, const aclIntArray *kv_start_idx_optional, double scale_value,
    double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout,
    int64_t inner_precise, int64_t sparse_mode, int64_t pse_type, const aclTensor *dq_out, const aclTensor *dk_out,
    const aclTensor *dv_out, const aclTensor *dpse_out, const aclTensor *dsink_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionVarLenScoreV3, const aclTensor *query, const aclTensor *query_rope,
    const aclTensor *key, const aclTensor *key_rope, const aclTensor *value, const aclTensor *real_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclIntArray *prefix_optional,
    const aclIntArray *actual_seq_q_len_optional, const aclIntArray *actual_seq_kv_len_optional,
    const aclIntArray *q_start_idx_optional, const aclIntArray *kv_start_idx_optional, double scale_value,
    double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout,
    int64_t inner_precise, int64_t sparse_mode, int64_t pse_type, const aclTensor *softmax_max_out,
    const aclTensor *softmax_sum_out, const aclTensor *softmax_out_out, const aclTensor *attention_out_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionVarLenScoreV4, const aclTensor *query, const aclTensor *key,
    const aclTensor *value, const aclTensor *real_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclIntArray *prefix_optional, const aclIntArray *actual_seq_q_len_optional,
    const aclIntArray *actual_seq_kv_len_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    char *softmax_out_layout, const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out,
    const aclTensor *softmax_out_out, const aclTensor *attention_out_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionVarLenScoreV5, const aclTensor *query, const aclTensor *query_rope,
    const aclTensor *key, const aclTensor *key_rope, const aclTensor *value, const aclTensor *real_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclTensor *sink_optional, const aclIntArray *prefix_optional,
    const aclIntArray *actual_seq_q_len_optional, const aclIntArray *actual_seq_kv_len_optional,
    const aclIntArray *q_start_idx_optional, const aclIntArray *kv_start_idx_optional, double scale_value,
    double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout,
    int64_t inner_precise, int64_t sparse_mode, int64_t pse_type, char *softmax_out_layout,
    const aclTensor *softmax_max_out, const aclTensor *softmax_sum_out, const aclTensor *softmax_out_out,
    const aclTensor *attention_out_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV3, const aclTensor *query, const aclTensor *query_rope,
    const aclTensor *key_in, const aclTensor *key_in_rope, const aclTensor *value, const aclTensor *dy,
    const aclTensor *pse_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclTensor *softmax_max_optional, const aclTensor *softmax_sum_optional,
    const aclTensor *softmax_in_optional, const aclTensor *attention_in_optional,
    const aclIntArray *prefix_optional, const aclIntArray *actual_seq_q_len_optional,
    const aclIntArray *actual_seq_kv_len_optional, const aclIntArray *q_start_idx_optional,
    const aclIntArray *kv_start_idx_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    int64_t pse_type, const aclTensor *dq_out, const aclTensor *dq_rope_out, const aclTensor *dk_out,
    const aclTensor *dk_rope_out, const aclTensor *dv_out, const aclTensor *dpse_out)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV4, const aclTensor *query, const aclTensor *key_in,
    const aclTensor *value, const aclTensor *dy, const aclTensor *pse_shift_optional,
    const aclTensor *drop_mask_optional, const aclTensor *padding_mask_optional,
    const aclTensor *atten_mask_optional, const aclTensor *softmax_max_optional,
    const aclTensor *softmax_sum_optional, const aclTensor *softmax_in_optional,
    const aclTensor *attention_in_optional, const aclIntArray *prefix_optional,
    const aclIntArray *actual_seq_q_len_optional, const aclIntArray *actual_seq_kv_len_optional, double scale_value,
    double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char *input_layout,
    int64_t inner_precise, int64_t sparse_mode, const aclTensor *dq_out, const aclTensor *dk_out,
    const aclTensor *dv_out, const aclTensor *dpse_out, char *softmax_in_layout)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV5, const aclTensor *query, const aclTensor *query_rope,
    const aclTensor *key_in, const aclTensor *key_in_rope, const aclTensor *value, const aclTensor *dy,
    const aclTensor *pse_shift_optional, const aclTensor *drop_mask_optional,
    const aclTensor *padding_mask_optional, const aclTensor *atten_mask_optional,
    const aclTensor *softmax_max_optional, const aclTensor *softmax_sum_optional,
    const aclTensor *softmax_in_optional, const aclTensor *attention_in_optional, const aclTensor *sink_in_optional,
    const aclIntArray *prefix_optional, const aclIntArray *actual_seq_q_len_optional,
    const aclIntArray *actual_seq_kv_len_optional, const aclIntArray *q_start_idx_optional,
    const aclIntArray *kv_start_idx_optional, double scale_value, double keep_prob, int64_t pre_tokens,
    int64_t next_tokens, int64_t head_num, char *input_layout, int64_t inner_precise, int64_t sparse_mode,
    int64_t pse_type, char *softmax_in_layout, const aclTensor *dq_out, const aclTensor *dq_rope_out,
    const aclTensor *dk_out, const aclTensor *dk_rope_out, const aclTensor *dv_out, const aclTensor *dpse_out,
    const aclTensor *dsink_out)

/* Operators of public samples */
ACLNN_OPERATOR(aclnnMaxUnpool2dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *indices, const aclIntArray *output_size, aclTensor *out)
ACLNN_OPERATOR(aclnnMaxUnpool3dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclTensor *indices, const aclIntArray *output_size, const aclIntArray *stride, const aclIntArray *padding,
    aclTensor *out)
ACLNN_OPERATOR(aclnnCircularPad2d, const aclTensor *self, const aclIntArray *padding, aclTensor *out)
ACLNN_OPERATOR(aclnnCircularPad2dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnCircularPad3dBackward, const aclTensor *grad_output, const aclTensor *self,
    const aclIntArray *padding, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnDiag, const aclTensor *self, int64_t diagonal, aclTensor *out)
ACLNN_OPERATOR(aclnnDiagFlat, const aclTensor *self, int64_t diagonal, aclTensor *out)
ACLNN_OPERATOR(aclnnDigamma, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnLgamma, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnFlatten, const aclTensor *self, int64_t axis, aclTensor *out)
ACLNN_OPERATOR(aclnnGlobalAveragePool, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnGlobalMaxPool, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnMaxN, const aclTensorList *tensors, aclTensor *out)
ACLNN_OPERATOR(aclnnMinN, const aclTensorList *tensors, aclTensor *out)
ACLNN_OPERATOR(aclnnMaxV2, const aclTensor *self, const aclIntArray *dims, bool keep_dims,
    bool noop_with_empty_dims, aclTensor *out)
ACLNN_OPERATOR(aclnnMeanV2, const aclTensor *self, const aclIntArray *dim, bool keep_dim, bool noop_with_empty_axes,
    aclTensor *out)
ACLNN_OPERATOR(aclnnCumsumV2, const aclTensor *self, int64_t dim, bool exclusive, bool reverse, aclTensor *out)
ACLNN_OPERATOR(aclnnLogdet, const aclTensor *self, aclTensor *out)
ACLNN_OPERATOR(aclnnReduceLogSum, const aclTensor *data, const aclIntArray *axes, bool keep_dims,
    bool noop_with_empty_axes, aclTensor *reduce)
ACLNN_OPERATOR(aclnnSliceV2, const aclTensor *self, const aclIntArray *starts, const aclIntArray *ends,
    const aclIntArray *axes, const aclIntArray *steps, aclTensor *out)
ACLNN_OPERATOR(aclnnInstanceNorm, const aclTensor *x, const aclTensor *gamma, const aclTensor *beta,
    const char *data_format, double eps, aclTensor *y, aclTensor *mean, aclTensor *variance)
ACLNN_OPERATOR(aclnnFatreluMul, const aclTensor *input, const aclTensor *threshold, const aclTensor *out)
ACLNN_OPERATOR(aclnnGeGlu, const aclTensor *self, int64_t dim, int64_t approximate, aclTensor *out,
    aclTensor *out_gelu)
ACLNN_OPERATOR(aclnnGeGluBackward, const aclTensor *grad_output, const aclTensor *self, const aclTensor *gelu,
    int64_t dim, int64_t approximate, aclTensor *grad_input)
ACLNN_OPERATOR(aclnnGroupNormSiluV2, const aclTensor *self, const aclTensor *gamma, const aclTensor *beta,
    int64_t group, double eps, bool activate_silu, aclTensor *out, aclTensor *mean_out, aclTensor *rstd_out)
ACLNN_OPERATOR(aclnnDropoutBackward, const aclTensor *grad_output, const aclTensor *mask, double scale,
    aclTensor *out)
ACLNN_OPERATOR(aclnnQr, const aclTensor *self, bool some, aclTensor *q, aclTensor *r)
ACLNN_OPERATOR(aclnnStridedSliceAssignV2, aclTensor *var_ref, const aclTensor *input_value,
    const aclIntArray *begin, const aclIntArray *end, const aclIntArray *strides, const aclIntArray *axes_optional)
ACLNN_OPERATOR(aclnnLayerNormWithImplMode, const aclTensor *input, const aclIntArray *normalized_shape,
    const aclTensor *weight_optional, const aclTensor *bias_optional, double eps, aclTensor *out,
    aclTensor *mean_out_optional, aclTensor *rstd_out_optional, int32_t impl_mode)
ACLNN_OPERATOR(aclnnChamferDistanceBackward, const aclTensor *xyz1, const aclTensor *xyz2, const aclTensor *idx1,
    const aclTensor *idx2, const aclTensor *grad_dist1, const aclTensor *grad_dist2, aclTensor *grad_xyz1,
    aclTensor *grad_xyz2)
ACLNN_OPERATOR(aclnnGroupedBiasAddGrad, const aclTensor *grad_y, const aclTensor *group_idx_optional,
    aclTensor *out)
ACLNN_OPERATOR(aclnnInplaceCumprod, aclTensor *input, const aclScalar *dim)
ACLNN_OPERATOR(aclnnConvDepthwise2d, const aclTensor *self, const aclTensor *weight, const aclIntArray *kernel_size,
    const aclTensor *bias, const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
    aclTensor *out, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnConvTbc, const aclTensor *self, const aclTensor *weight, const aclTensor *bias, int64_t pad,
    aclTensor *output, int8_t cube_math_type)
ACLNN_OPERATOR(aclnnConvTbcBackward, const aclTensor *self, const aclTensor *input, const aclTensor *weight,
    const aclTensor *bias, int64_t pad, int8_t cube_math_type, aclTensor *grad_input, aclTensor *grad_weight,
    aclTensor *grad_bias)
ACLNN_OPERATOR(aclnnGroupedMatmul, const aclTensorList *x, const aclTensorList *weight,
    const aclTensorList *bias_optional, const aclTensorList *scale_optional, const aclTensorList *offset_optional,
    const aclTensorList *antiquant_scale_optional, const aclTensorList *antiquant_offset_optional,
    const aclIntArray *group_list_optional, int64_t split_item, const aclTensorList *out)
ACLNN_OPERATOR(aclnnMatmulAllReduceV2, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias,
    const aclTensor *x3, const char *group, const char *reduce_op, int64_t comm_turn, int64_t stream_mode,
    const aclTensor *output)
ACLNN_OPERATOR(aclnnEinsum, const aclTensorList *tensors, const char *equation, aclTensor *output)
ACLNN_OPERATOR(aclnnGroupedMatmulSwigluQuant, const aclTensor *x, const aclTensor *weight, const aclTensor *bias,
    const aclTensor *offset, const aclTensor *weight_scale, const aclTensor *x_scale, const aclTensor *group_list,
    aclTensor *output, aclTensor *output_scale, aclTensor *output_offset)
/** @since 9.x */
ACLNN_OPERATOR(aclnnGroupedMatmulSwigluQuantWeightNZ, const aclTensor *x, const aclTensor *weight,
    const aclTensor *bias, const aclTensor *offset, const aclTensor *weight_scale, const aclTensor *x_scale,
    const aclTensor *group_list, aclTensor *output, aclTensor *output_scale, aclTensor *output_offset)
ACLNN_OPERATOR(aclnnQuantMatmulAllReduce, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias,
    const aclTensor *x3, const aclTensor *dequant_scale, const char *group, const char *reduce_op,
    int64_t comm_turn, int64_t stream_mode, const aclTensor *output)
ACLNN_OPERATOR(aclnnQuantMatmulAllReduceV2, const aclTensor *x1, const aclTensor *x2,
    const aclTensor *bias_optional, const aclTensor *x3_optional, const aclTensor *dequant_scale,
    const aclTensor *pertoken_scale_optional, const char *group, const char *reduce_op, int64_t comm_turn,
    int64_t stream_mode, const aclTensor *output)
ACLNN_OPERATOR(aclnnQuantMatmulAllReduceV3, const aclTensor *x1, const aclTensor *x2,
    const aclTensor *bias_optional, const aclTensor *x3_optional, const aclTensor *dequant_scale,
    const aclTensor *pertoken_scale_optional, const aclTensor *comm_quant_scale1_optional,
    const aclTensor *comm_quant_scale2_optional, const char *group, const char *reduce_op, int64_t comm_turn,
    int64_t stream_mode, const aclTensor *output)
ACLNN_OPERATOR(aclnnWeightQuantMatmulAllReduce, const aclTensor *x1, const aclTensor *x2, const aclTensor *bias,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset, const aclTensor *x3, const char *group,
    const char *reduce_op, int64_t comm_turn, int64_t stream_mode, int64_t antiquant_group_size,
    const aclTensor *output)

/* Operators of public samples */

/* Losses of vocabularies that are sharded over the cards */
/** @since 9.x */
ACLNN_OPERATOR(aclnnFusedLinearOnlineMaxSum, const aclTensor *input, const aclTensor *weight,
    const aclTensor *target, int64_t vocab_start_index, int64_t vocab_end_index, aclTensor *logits_max_local_out,
    aclTensor *sum_exp_logits_local_out, aclTensor *predicted_logits_local_out, aclTensor *target_mask_out,
    aclTensor *masked_target_out, aclTensor *vocab_parallel_logits_out_optional)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFusedCrossEntropyLossWithMaxSum, const aclTensor *logits_max, const aclTensor *sum_exp_logits,
    const aclTensor *predicted_logits, float label_smoothing, const aclTensor *input_optional,
    const aclTensor *weight_optional, const aclTensor *vocab_parallel_logits_optional, aclTensor *loss_out,
    aclTensor *soft_max_out_optional)
/** @since 9.x */
ACLNN_OPERATOR(aclnnFusedLinearCrossEntropyLossGrad, const aclTensor *grad, const aclTensor *input,
    const aclTensor *weight, const aclTensor *target_mask, const aclTensor *masked_target, float label_smoothing,
    const aclTensor *logits_max_optional, const aclTensor *sum_exp_logits_optional,
    const aclTensor *softmax_optional, aclTensor *input_grad_out, aclTensor *weight_grad_out)

/* Feed-forward networks, adapters and rotated quantisation */
ACLNN_OPERATOR(aclnnAddLora, const aclTensor *y, const aclTensor *x, const aclTensor *weight_b,
    const aclTensor *indices, const aclTensor *weight_a_optional, int64_t layer_idx, double scale, int64_t y_offset,
    int64_t y_slice_size, const aclTensor *out)
ACLNN_OPERATOR(aclnnFFNV2, const aclTensor *x, const aclTensor *weight1, const aclTensor *weight2,
    const aclIntArray *expert_tokens, const aclTensor *bias1, const aclTensor *bias2, const aclTensor *scale,
    const aclTensor *offset, const aclTensor *deq_scale1, const aclTensor *deq_scale2,
    const aclTensor *antiquant_scale1, const aclTensor *antiquant_scale2, const aclTensor *antiquant_offset1,
    const aclTensor *antiquant_offset2, const char *activation, int64_t inner_precise, bool tokens_index_flag,
    const aclTensor *y)
ACLNN_OPERATOR(aclnnFFNV3, const aclTensor *x, const aclTensor *weight1, const aclTensor *weight2,
    const aclTensor *expert_tokens_optional, const aclTensor *bias1_optional, const aclTensor *bias2_optional,
    const aclTensor *scale_optional, const aclTensor *offset_optional, const aclTensor *deq_scale1_optional,
    const aclTensor *deq_scale2_optional, const aclTensor *antiquant_scale1_optional,
    const aclTensor *antiquant_scale2_optional, const aclTensor *antiquant_offset1_optional,
    const aclTensor *antiquant_offset2_optional, const char *activation, int64_t inner_precise,
    bool tokens_index_flag, const aclTensor *y)
ACLNN_OPERATOR(aclnnFlatQuant, const aclTensor *x, const aclTensor *kronecker_p1, const aclTensor *kronecker_p2,
    double clip_ratio, aclTensor *out, aclTensor *quant_scale)

#ifdef __cplusplus
}
#endif

#endif
