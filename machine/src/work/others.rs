//! Classes of operators that only other people's programs call.
//!
//! The figures are those of similar operators of `work.rs`.

use super::OperatorClass;

const CLASSES: &[(OperatorClass, &[&str])] = &[
    (
        OperatorClass::Attention,
        &[
            "aclnnFlashAttentionScoreV2",
            "aclnnFlashAttentionScoreV3",
            "aclnnFlashAttentionVarLenScore",
            "aclnnFlashAttentionVarLenScoreV2",
            "aclnnFlashAttentionVarLenScoreV3",
            "aclnnFlashAttentionVarLenScoreV4",
            "aclnnFlashAttentionVarLenScoreV5",
        ],
    ),
    (
        OperatorClass::AttentionGrad,
        &[
            "aclnnFlashAttentionScoreGradV2",
            "aclnnFlashAttentionScoreGradV3",
            "aclnnFlashAttentionUnpaddingScoreGrad",
            "aclnnFlashAttentionUnpaddingScoreGradV2",
            "aclnnFlashAttentionUnpaddingScoreGradV3",
            "aclnnFlashAttentionUnpaddingScoreGradV4",
            "aclnnFlashAttentionUnpaddingScoreGradV5",
        ],
    ),
    (
        OperatorClass::Product(0),
        &[
            "aclnnMatmulAllReduceV2",
            "aclnnQuantMatmulAllReduce",
            "aclnnQuantMatmulAllReduceV2",
            "aclnnQuantMatmulAllReduceV3",
            "aclnnWeightQuantMatmulAllReduce",
        ],
    ),
    (OperatorClass::Grouped, &["aclnnGroupedMatmulSwigluQuant", "aclnnGroupedMatmulSwigluQuantWeightNZ"]),
    (OperatorClass::Convolution, &["aclnnConvDepthwise2d"]),
    (OperatorClass::ReadRows, &["aclnnEmbeddingBag", "aclnnGatherPaKvCache"]),
    (OperatorClass::WriteRows, &["aclnnIndexCopy", "aclnnIndexAddV2", "aclnnScatterNdUpdate"]),
    (
        OperatorClass::Quantisation(7.0, 18_000.0),
        &["aclnnDynamicQuantV2", "aclnnMoeInitRoutingQuant", "aclnnMoeInitRoutingQuantV2"],
    ),
    (OperatorClass::Passes(8.0, 20.0), &["aclnnApplyTopKTopP", "aclnnNanMedian", "aclnnNanMedianDim"]),
    (
        OperatorClass::Rows(8.0),
        &[
            "aclnnAddLayerNorm",
            "aclnnDeepNorm",
            "aclnnScaledMaskedSoftmax",
            "aclnnMaskedSoftmaxWithRelPosBias",
        ],
    ),
    (
        OperatorClass::Rows(12.0),
        &[
            "aclnnAddLayerNormGrad",
            "aclnnDeepNormGrad",
            "aclnnMoeGatingTopK",
            "aclnnMoeGatingTopKBackward",
            "aclnnMoeGatingTopKSoftmaxV2",
        ],
    ),
    (
        OperatorClass::Rows(25.0),
        &[
            "aclnnKvRmsNormRopeCache",
            "aclnnQkvRmsNormRopeCache",
            "aclnnInplaceAddRmsNorm",
            "aclnnAddRmsNormCast",
            "aclnnAddRmsNormQuant",
            "aclnnAddRmsNormQuantV2",
        ],
    ),
    (
        OperatorClass::Rows(30.0),
        &["aclnnAddRmsNormDynamicQuantV2", "aclnnDequantSwigluQuant", "aclnnDequantSwigluQuantV2"],
    ),
];

pub(super) fn class(operator: &str) -> Option<OperatorClass> {
    CLASSES.iter().find(|(_, names)| names.contains(&operator)).map(|(class, _)| *class)
}
