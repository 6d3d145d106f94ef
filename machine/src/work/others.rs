//! Classes of operators that only other people's programs call.
//!
//! The figures are those of similar operators of `work.rs`.

use super::OperatorClass;

const CLASSES: &[(OperatorClass, &[&str])] = &[
    (
        OperatorClass::Attention,
        &["aclnnFlashAttentionScoreV2", "aclnnFlashAttentionVarLenScore", "aclnnFlashAttentionVarLenScoreV2"],
    ),
    (
        OperatorClass::AttentionGrad,
        &[
            "aclnnFlashAttentionScoreGradV2",
            "aclnnFlashAttentionUnpaddingScoreGrad",
            "aclnnFlashAttentionUnpaddingScoreGradV2",
        ],
    ),
    (OperatorClass::ReadRows, &["aclnnEmbeddingBag"]),
    (OperatorClass::WriteRows, &["aclnnIndexCopy", "aclnnIndexAddV2", "aclnnScatterNdUpdate"]),
    (OperatorClass::Quantisation(7.0, 18_000.0), &["aclnnDynamicQuantV2"]),
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
        &["aclnnAddLayerNormGrad", "aclnnDeepNormGrad", "aclnnMoeGatingTopK", "aclnnMoeGatingTopKSoftmaxV2"],
    ),
    (
        OperatorClass::Rows(25.0),
        &["aclnnInplaceAddRmsNorm", "aclnnAddRmsNormCast", "aclnnAddRmsNormQuant", "aclnnAddRmsNormQuantV2"],
    ),
    (
        OperatorClass::Rows(30.0),
        &["aclnnAddRmsNormDynamicQuantV2", "aclnnDequantSwigluQuant", "aclnnDequantSwigluQuantV2"],
    ),
];

pub(super) fn class(operator: &str) -> Option<OperatorClass> {
    CLASSES.iter().find(|(_, names)| names.contains(&operator)).map(|(class, _)| *class)
}
