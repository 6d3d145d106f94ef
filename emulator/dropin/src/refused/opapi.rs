//! Functions `libopapi.so` exports and the table does not have: both phases of each operator.

crate::export::refuse_all! {
    OpApi:
    status {
        aclRfft1D aclRfft1DGetWorkspaceSize aclStft aclStftGetWorkspaceSize aclnnAbs aclnnAbsGetWorkspaceSize aclnnAcos
        aclnnAcosGetWorkspaceSize aclnnAcosh aclnnAcoshGetWorkspaceSize aclnnAdaptiveAvgPool2d
        aclnnAdaptiveAvgPool2dBackward aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize
        aclnnAdaptiveAvgPool2dGetWorkspaceSize aclnnAdaptiveAvgPool3d aclnnAdaptiveAvgPool3dBackward
        aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize aclnnAdaptiveAvgPool3dGetWorkspaceSize aclnnAdaptiveMaxPool2d
        aclnnAdaptiveMaxPool2dGetWorkspaceSize aclnnAdaptiveMaxPool3d aclnnAdaptiveMaxPool3dBackward
        aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize aclnnAdaptiveMaxPool3dGetWorkspaceSize aclnnAddLayerNorm
        aclnnAddLayerNormGetWorkspaceSize aclnnAddLayerNormGrad aclnnAddLayerNormGradGetWorkspaceSize aclnnAddLora
        aclnnAddLoraGetWorkspaceSize aclnnAddRelu aclnnAddReluGetWorkspaceSize aclnnAddRmsNormCast
        aclnnAddRmsNormCastGetWorkspaceSize aclnnAddRmsNormDynamicQuant aclnnAddRmsNormDynamicQuantGetWorkspaceSize
        aclnnAddRmsNormQuant aclnnAddRmsNormQuantGetWorkspaceSize aclnnAddbmm aclnnAddbmmGetWorkspaceSize aclnnAddmv
        aclnnAddmvGetWorkspaceSize aclnnAddr aclnnAddrGetWorkspaceSize aclnnAdvanceStep
        aclnnAdvanceStepGetWorkspaceSize aclnnAffineGrid aclnnAffineGridGetWorkspaceSize aclnnAll aclnnAllGatherMatmul
        aclnnAllGatherMatmulGetWorkspaceSize aclnnAllGetWorkspaceSize aclnnAlltoAllAllGatherBatchMatMul
        aclnnAlltoAllAllGatherBatchMatMulGetWorkspaceSize aclnnAmin aclnnAminGetWorkspaceSize aclnnAminmax
        aclnnAminmaxAll aclnnAminmaxAllGetWorkspaceSize aclnnAminmaxDim aclnnAminmaxDimGetWorkspaceSize
        aclnnAminmaxGetWorkspaceSize aclnnAny aclnnAnyGetWorkspaceSize aclnnApplyAdamW aclnnApplyAdamWGetWorkspaceSize
        aclnnApplyFusedEmaAdam aclnnApplyFusedEmaAdamGetWorkspaceSize aclnnApplyRotaryPosEmb
        aclnnApplyRotaryPosEmbGetWorkspaceSize aclnnApplyRotaryPosEmbV2 aclnnApplyRotaryPosEmbV2GetWorkspaceSize
        aclnnArgMin aclnnArgMinGetWorkspaceSize aclnnArgsort aclnnArgsortGetWorkspaceSize aclnnAscendAntiQuant
        aclnnAscendAntiQuantGetWorkspaceSize aclnnAscendQuant aclnnAscendQuantGetWorkspaceSize aclnnAscendQuantV3
        aclnnAscendQuantV3GetWorkspaceSize aclnnAsin aclnnAsinGetWorkspaceSize aclnnAsinh aclnnAsinhGetWorkspaceSize
        aclnnAtan aclnnAtan2 aclnnAtan2GetWorkspaceSize aclnnAtanGetWorkspaceSize aclnnAtanh aclnnAtanhGetWorkspaceSize
        aclnnAvgPool2d aclnnAvgPool2dBackward aclnnAvgPool2dBackwardGetWorkspaceSize aclnnAvgPool2dGetWorkspaceSize
        aclnnAvgPool3d aclnnAvgPool3dBackward aclnnAvgPool3dBackwardGetWorkspaceSize aclnnAvgPool3dGetWorkspaceSize
        aclnnBackgroundReplace aclnnBackgroundReplaceGetWorkspaceSize aclnnBaddbmm aclnnBaddbmmGetWorkspaceSize
        aclnnBatchMatMulReduceScatterAlltoAll aclnnBatchMatMulReduceScatterAlltoAllGetWorkspaceSize
        aclnnBatchMatmulQuant aclnnBatchMatmulQuantGetWorkspaceSize aclnnBatchNorm aclnnBatchNormBackward
        aclnnBatchNormBackwardGetWorkspaceSize aclnnBatchNormElemt aclnnBatchNormElemtBackward
        aclnnBatchNormElemtBackwardGetWorkspaceSize aclnnBatchNormElemtGetWorkspaceSize
        aclnnBatchNormGatherStatsWithCounts aclnnBatchNormGatherStatsWithCountsGetWorkspaceSize
        aclnnBatchNormGetWorkspaceSize aclnnBatchNormReduceBackward aclnnBatchNormReduceBackwardGetWorkspaceSize
        aclnnBatchNormStats aclnnBatchNormStatsGetWorkspaceSize aclnnBernoulli aclnnBernoulliGetWorkspaceSize
        aclnnBernoulliTensor aclnnBernoulliTensorGetWorkspaceSize aclnnBidirectionLSTM
        aclnnBidirectionLSTMGetWorkspaceSize aclnnBidirectionLSTMV2 aclnnBidirectionLSTMV2GetWorkspaceSize
        aclnnBinaryCrossEntropy aclnnBinaryCrossEntropyBackward aclnnBinaryCrossEntropyBackwardGetWorkspaceSize
        aclnnBinaryCrossEntropyGetWorkspaceSize aclnnBinaryCrossEntropyWithLogits
        aclnnBinaryCrossEntropyWithLogitsBackward aclnnBinaryCrossEntropyWithLogitsBackwardGetWorkspaceSize
        aclnnBinaryCrossEntropyWithLogitsGetWorkspaceSize aclnnBinaryCrossEntropyWithLogitsTargetBackward
        aclnnBinaryCrossEntropyWithLogitsTargetBackwardGetWorkspaceSize aclnnBincount aclnnBincountGetWorkspaceSize
        aclnnBitwiseAndScalar aclnnBitwiseAndScalarGetWorkspaceSize aclnnBitwiseAndTensor
        aclnnBitwiseAndTensorGetWorkspaceSize aclnnBitwiseNot aclnnBitwiseNotGetWorkspaceSize aclnnBitwiseOrScalar
        aclnnBitwiseOrScalarGetWorkspaceSize aclnnBitwiseOrTensor aclnnBitwiseOrTensorGetWorkspaceSize
        aclnnBitwiseXorScalar aclnnBitwiseXorScalarGetWorkspaceSize aclnnBitwiseXorTensor
        aclnnBitwiseXorTensorGetWorkspaceSize aclnnBlendImagesCustom aclnnBlendImagesCustomGetWorkspaceSize
        aclnnCalculateConvolutionWeightSize aclnnCalculateMatmulWeightSize aclnnCalculateMatmulWeightSizeV2 aclnnCeil
        aclnnCeilGetWorkspaceSize aclnnCelu aclnnCeluGetWorkspaceSize aclnnChamferDistanceBackward
        aclnnChamferDistanceBackwardGetWorkspaceSize aclnnChannelShuffle aclnnChannelShuffleGetWorkspaceSize
        aclnnCircularPad2d aclnnCircularPad2dBackward aclnnCircularPad2dBackwardGetWorkspaceSize
        aclnnCircularPad2dGetWorkspaceSize aclnnCircularPad3d aclnnCircularPad3dBackward
        aclnnCircularPad3dBackwardGetWorkspaceSize aclnnCircularPad3dGetWorkspaceSize aclnnClampMax
        aclnnClampMaxGetWorkspaceSize aclnnClampMaxTensor aclnnClampMaxTensorGetWorkspaceSize aclnnClampMinTensor
        aclnnClampMinTensorGetWorkspaceSize aclnnClampTensor aclnnClampTensorGetWorkspaceSize aclnnComplex
        aclnnComplexGetWorkspaceSize aclnnConvDepthwise2d aclnnConvDepthwise2dGetWorkspaceSize aclnnConvTbc
        aclnnConvTbcBackward aclnnConvTbcBackwardGetWorkspaceSize aclnnConvTbcGetWorkspaceSize
        aclnnConvertWeightToINT4Pack aclnnConvertWeightToINT4PackGetWorkspaceSize aclnnConvolution
        aclnnConvolutionBackward aclnnConvolutionBackwardGetWorkspaceSize aclnnConvolutionGetWorkspaceSize aclnnCos
        aclnnCosGetWorkspaceSize aclnnCosh aclnnCoshGetWorkspaceSize aclnnCtcLoss aclnnCtcLossBackward
        aclnnCtcLossBackwardGetWorkspaceSize aclnnCtcLossGetWorkspaceSize aclnnCummax aclnnCummaxGetWorkspaceSize
        aclnnCummin aclnnCumminGetWorkspaceSize aclnnCumprod aclnnCumprodGetWorkspaceSize aclnnCumsumV2
        aclnnCumsumV2GetWorkspaceSize aclnnDeepNorm aclnnDeepNormGetWorkspaceSize aclnnDeepNormGrad
        aclnnDeepNormGradGetWorkspaceSize aclnnDequantBias aclnnDequantBiasGetWorkspaceSize
        aclnnDequantRopeQuantKvcache aclnnDequantRopeQuantKvcacheGetWorkspaceSize aclnnDequantSwigluQuant
        aclnnDequantSwigluQuantGetWorkspaceSize aclnnDiag aclnnDiagFlat aclnnDiagFlatGetWorkspaceSize
        aclnnDiagGetWorkspaceSize aclnnDigamma aclnnDigammaGetWorkspaceSize aclnnDivMod aclnnDivModGetWorkspaceSize
        aclnnDivMods aclnnDivModsGetWorkspaceSize aclnnDot aclnnDotGetWorkspaceSize aclnnDropout aclnnDropoutBackward
        aclnnDropoutBackwardGetWorkspaceSize aclnnDropoutDoMask aclnnDropoutDoMaskGetWorkspaceSize aclnnDropoutGenMask
        aclnnDropoutGenMaskGetWorkspaceSize aclnnDropoutGenMaskV2 aclnnDropoutGenMaskV2GetWorkspaceSize
        aclnnDropoutGetWorkspaceSize aclnnDynamicQuantV2 aclnnDynamicQuantV2GetWorkspaceSize aclnnEinsum
        aclnnEinsumGetWorkspaceSize aclnnElu aclnnEluBackward aclnnEluBackwardGetWorkspaceSize aclnnEluGetWorkspaceSize
        aclnnEmbeddingBag aclnnEmbeddingBagGetWorkspaceSize aclnnEmbeddingRenorm aclnnEmbeddingRenormGetWorkspaceSize
        aclnnEqual aclnnEqualGetWorkspaceSize aclnnErf aclnnErfGetWorkspaceSize aclnnErfc aclnnErfcGetWorkspaceSize
        aclnnErfinv aclnnErfinvGetWorkspaceSize aclnnExp2 aclnnExp2GetWorkspaceSize aclnnExpm1
        aclnnExpm1GetWorkspaceSize aclnnEye aclnnEyeGetWorkspaceSize aclnnFFN aclnnFFNGetWorkspaceSize aclnnFFNV2
        aclnnFFNV2GetWorkspaceSize aclnnFFNV3 aclnnFFNV3GetWorkspaceSize aclnnFakeQuantPerChannelAffineCachemask
        aclnnFakeQuantPerChannelAffineCachemaskGetWorkspaceSize aclnnFakeQuantPerTensorAffineCachemask
        aclnnFakeQuantPerTensorAffineCachemaskGetWorkspaceSize aclnnFatreluMul aclnnFatreluMulGetWorkspaceSize
        aclnnFlashAttentionScoreGradV2 aclnnFlashAttentionScoreGradV2GetWorkspaceSize aclnnFlashAttentionScoreV2
        aclnnFlashAttentionScoreV2GetWorkspaceSize aclnnFlashAttentionUnpaddingScoreGrad
        aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize aclnnFlashAttentionUnpaddingScoreGradV2
        aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize aclnnFlashAttentionVarLenScore
        aclnnFlashAttentionVarLenScoreGetWorkspaceSize aclnnFlashAttentionVarLenScoreV2
        aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize aclnnFlatQuant aclnnFlatQuantGetWorkspaceSize aclnnFlatten
        aclnnFlattenGetWorkspaceSize aclnnFlip aclnnFlipGetWorkspaceSize aclnnFloor aclnnFloorDivide
        aclnnFloorDivideGetWorkspaceSize aclnnFloorDivides aclnnFloorDividesGetWorkspaceSize aclnnFloorGetWorkspaceSize
        aclnnFmodScalar aclnnFmodScalarGetWorkspaceSize aclnnFmodTensor aclnnFmodTensorGetWorkspaceSize aclnnForeachAbs
        aclnnForeachAbsGetWorkspaceSize aclnnForeachAcos aclnnForeachAcosGetWorkspaceSize aclnnForeachAddList
        aclnnForeachAddListGetWorkspaceSize aclnnForeachAddListV2 aclnnForeachAddListV2GetWorkspaceSize
        aclnnForeachAddScalar aclnnForeachAddScalarGetWorkspaceSize aclnnForeachAddScalarList
        aclnnForeachAddScalarListGetWorkspaceSize aclnnForeachAddScalarV2 aclnnForeachAddScalarV2GetWorkspaceSize
        aclnnForeachAddcdivList aclnnForeachAddcdivListGetWorkspaceSize aclnnForeachAddcdivScalar
        aclnnForeachAddcdivScalarGetWorkspaceSize aclnnForeachAddcdivScalarList
        aclnnForeachAddcdivScalarListGetWorkspaceSize aclnnForeachAddcdivScalarV2
        aclnnForeachAddcdivScalarV2GetWorkspaceSize aclnnForeachAddcmulList aclnnForeachAddcmulListGetWorkspaceSize
        aclnnForeachAddcmulScalar aclnnForeachAddcmulScalarGetWorkspaceSize aclnnForeachAddcmulScalarList
        aclnnForeachAddcmulScalarListGetWorkspaceSize aclnnForeachAddcmulScalarV2
        aclnnForeachAddcmulScalarV2GetWorkspaceSize aclnnForeachAsin aclnnForeachAsinGetWorkspaceSize aclnnForeachAtan
        aclnnForeachAtanGetWorkspaceSize aclnnForeachCopy aclnnForeachCopyGetWorkspaceSize aclnnForeachCos
        aclnnForeachCosGetWorkspaceSize aclnnForeachCosh aclnnForeachCoshGetWorkspaceSize aclnnForeachDivList
        aclnnForeachDivListGetWorkspaceSize aclnnForeachDivScalar aclnnForeachDivScalarGetWorkspaceSize
        aclnnForeachDivScalarList aclnnForeachDivScalarListGetWorkspaceSize aclnnForeachDivScalarV2
        aclnnForeachDivScalarV2GetWorkspaceSize aclnnForeachErf aclnnForeachErfGetWorkspaceSize aclnnForeachErfc
        aclnnForeachErfcGetWorkspaceSize aclnnForeachExp aclnnForeachExpGetWorkspaceSize aclnnForeachExpm1
        aclnnForeachExpm1GetWorkspaceSize aclnnForeachLerpList aclnnForeachLerpListGetWorkspaceSize
        aclnnForeachLerpScalar aclnnForeachLerpScalarGetWorkspaceSize aclnnForeachLog aclnnForeachLog10
        aclnnForeachLog10GetWorkspaceSize aclnnForeachLog1p aclnnForeachLog1pGetWorkspaceSize aclnnForeachLog2
        aclnnForeachLog2GetWorkspaceSize aclnnForeachLogGetWorkspaceSize aclnnForeachMaximumList
        aclnnForeachMaximumListGetWorkspaceSize aclnnForeachMaximumScalar aclnnForeachMaximumScalarGetWorkspaceSize
        aclnnForeachMaximumScalarList aclnnForeachMaximumScalarListGetWorkspaceSize aclnnForeachMaximumScalarV2
        aclnnForeachMaximumScalarV2GetWorkspaceSize aclnnForeachMinimumList aclnnForeachMinimumListGetWorkspaceSize
        aclnnForeachMinimumScalar aclnnForeachMinimumScalarGetWorkspaceSize aclnnForeachMinimumScalarList
        aclnnForeachMinimumScalarListGetWorkspaceSize aclnnForeachMinimumScalarV2
        aclnnForeachMinimumScalarV2GetWorkspaceSize aclnnForeachMulList aclnnForeachMulListGetWorkspaceSize
        aclnnForeachMulScalar aclnnForeachMulScalarGetWorkspaceSize aclnnForeachMulScalarList
        aclnnForeachMulScalarListGetWorkspaceSize aclnnForeachMulScalarV2 aclnnForeachMulScalarV2GetWorkspaceSize
        aclnnForeachNeg aclnnForeachNegGetWorkspaceSize aclnnForeachNorm aclnnForeachNormGetWorkspaceSize
        aclnnForeachPowList aclnnForeachPowListGetWorkspaceSize aclnnForeachPowScalar aclnnForeachPowScalarAndTensor
        aclnnForeachPowScalarAndTensorGetWorkspaceSize aclnnForeachPowScalarGetWorkspaceSize aclnnForeachPowScalarList
        aclnnForeachPowScalarListGetWorkspaceSize aclnnForeachPowScalarV2 aclnnForeachPowScalarV2GetWorkspaceSize
        aclnnForeachReciprocal aclnnForeachReciprocalGetWorkspaceSize aclnnForeachRoundOffNumber
        aclnnForeachRoundOffNumberGetWorkspaceSize aclnnForeachRoundOffNumberV2
        aclnnForeachRoundOffNumberV2GetWorkspaceSize aclnnForeachSigmoid aclnnForeachSigmoidGetWorkspaceSize
        aclnnForeachSign aclnnForeachSignGetWorkspaceSize aclnnForeachSin aclnnForeachSinGetWorkspaceSize
        aclnnForeachSinh aclnnForeachSinhGetWorkspaceSize aclnnForeachSqrt aclnnForeachSqrtGetWorkspaceSize
        aclnnForeachSubList aclnnForeachSubListGetWorkspaceSize aclnnForeachSubListV2
        aclnnForeachSubListV2GetWorkspaceSize aclnnForeachSubScalar aclnnForeachSubScalarGetWorkspaceSize
        aclnnForeachSubScalarList aclnnForeachSubScalarListGetWorkspaceSize aclnnForeachSubScalarV2
        aclnnForeachSubScalarV2GetWorkspaceSize aclnnForeachTan aclnnForeachTanGetWorkspaceSize aclnnForeachTanh
        aclnnForeachTanhGetWorkspaceSize aclnnForeachZeroInplace aclnnForeachZeroInplaceGetWorkspaceSize aclnnFrac
        aclnnFracGetWorkspaceSize aclnnFusedInferAttentionScore aclnnFusedInferAttentionScoreGetWorkspaceSize
        aclnnFusedInferAttentionScoreV3 aclnnFusedInferAttentionScoreV3GetWorkspaceSize aclnnFusedInferAttentionScoreV4
        aclnnFusedInferAttentionScoreV4GetWorkspaceSize aclnnGatherNd aclnnGatherNdGetWorkspaceSize aclnnGatherV3
        aclnnGatherV3GetWorkspaceSize aclnnGcd aclnnGcdGetWorkspaceSize aclnnGeGlu aclnnGeGluBackward
        aclnnGeGluBackwardGetWorkspaceSize aclnnGeGluGetWorkspaceSize aclnnGeGluV3 aclnnGeGluV3Backward
        aclnnGeGluV3BackwardGetWorkspaceSize aclnnGeGluV3GetWorkspaceSize aclnnGeTensor aclnnGeTensorGetWorkspaceSize
        aclnnGeluBackward aclnnGeluBackwardGetWorkspaceSize aclnnGeluBackwardV2 aclnnGeluBackwardV2GetWorkspaceSize
        aclnnGeluMul aclnnGeluMulGetWorkspaceSize aclnnGeluV2 aclnnGeluV2GetWorkspaceSize aclnnGemm
        aclnnGemmGetWorkspaceSize aclnnGemmaRmsNorm aclnnGemmaRmsNormGetWorkspaceSize aclnnGer aclnnGerGetWorkspaceSize
        aclnnGlobalAveragePool aclnnGlobalAveragePoolGetWorkspaceSize aclnnGlobalMaxPool
        aclnnGlobalMaxPoolGetWorkspaceSize aclnnGlu aclnnGluBackward aclnnGluBackwardGetWorkspaceSize
        aclnnGluGetWorkspaceSize aclnnGridSampler2D aclnnGridSampler2DBackward
        aclnnGridSampler2DBackwardGetWorkspaceSize aclnnGridSampler2DGetWorkspaceSize aclnnGridSampler3D
        aclnnGridSampler3DBackward aclnnGridSampler3DBackwardGetWorkspaceSize aclnnGridSampler3DGetWorkspaceSize
        aclnnGroupNorm aclnnGroupNormBackward aclnnGroupNormBackwardGetWorkspaceSize aclnnGroupNormGetWorkspaceSize
        aclnnGroupNormSilu aclnnGroupNormSiluGetWorkspaceSize aclnnGroupNormSiluV2 aclnnGroupNormSiluV2GetWorkspaceSize
        aclnnGroupNormSwish aclnnGroupNormSwishGetWorkspaceSize aclnnGroupNormSwishGrad
        aclnnGroupNormSwishGradGetWorkspaceSize aclnnGroupQuant aclnnGroupQuantGetWorkspaceSize aclnnGroupedBiasAddGrad
        aclnnGroupedBiasAddGradGetWorkspaceSize aclnnGroupedBiasAddGradV2 aclnnGroupedBiasAddGradV2GetWorkspaceSize
        aclnnGroupedMatMulAllReduce aclnnGroupedMatMulAllReduceGetWorkspaceSize aclnnGroupedMatmul
        aclnnGroupedMatmulFinalizeRoutingWeightNz aclnnGroupedMatmulFinalizeRoutingWeightNzGetWorkspaceSize
        aclnnGroupedMatmulGetWorkspaceSize aclnnGroupedMatmulSwigluQuant aclnnGroupedMatmulSwigluQuantGetWorkspaceSize
        aclnnGroupedMatmulV2 aclnnGroupedMatmulV2GetWorkspaceSize aclnnGroupedMatmulV3
        aclnnGroupedMatmulV3GetWorkspaceSize aclnnGroupedMatmulV4 aclnnGroupedMatmulV4GetWorkspaceSize aclnnGtTensor
        aclnnGtTensorGetWorkspaceSize aclnnHardshrink aclnnHardshrinkBackward aclnnHardshrinkBackwardGetWorkspaceSize
        aclnnHardshrinkGetWorkspaceSize aclnnHardsigmoid aclnnHardsigmoidBackward
        aclnnHardsigmoidBackwardGetWorkspaceSize aclnnHardsigmoidGetWorkspaceSize aclnnHardswish aclnnHardswishBackward
        aclnnHardswishBackwardGetWorkspaceSize aclnnHardswishGetWorkspaceSize aclnnHardtanh aclnnHardtanhBackward
        aclnnHardtanhBackwardGetWorkspaceSize aclnnHardtanhGetWorkspaceSize aclnnHistc aclnnHistcGetWorkspaceSize
        aclnnIm2col aclnnIm2colBackward aclnnIm2colBackwardGetWorkspaceSize aclnnIm2colGetWorkspaceSize
        aclnnIncreFlashAttention aclnnIncreFlashAttentionGetWorkspaceSize aclnnIncreFlashAttentionV2
        aclnnIncreFlashAttentionV2GetWorkspaceSize aclnnIncreFlashAttentionV3
        aclnnIncreFlashAttentionV3GetWorkspaceSize aclnnIndex aclnnIndexCopy aclnnIndexCopyGetWorkspaceSize
        aclnnIndexFillTensor aclnnIndexFillTensorGetWorkspaceSize aclnnIndexGetWorkspaceSize aclnnIndexPutImpl
        aclnnIndexPutImplGetWorkspaceSize aclnnInplaceAcos aclnnInplaceAcosGetWorkspaceSize aclnnInplaceAcosh
        aclnnInplaceAcoshGetWorkspaceSize aclnnInplaceAddRelu aclnnInplaceAddReluGetWorkspaceSize aclnnInplaceAddbmm
        aclnnInplaceAddbmmGetWorkspaceSize aclnnInplaceAddmm aclnnInplaceAddmmGetWorkspaceSize aclnnInplaceAddr
        aclnnInplaceAddrGetWorkspaceSize aclnnInplaceAsin aclnnInplaceAsinGetWorkspaceSize aclnnInplaceAsinh
        aclnnInplaceAsinhGetWorkspaceSize aclnnInplaceAtan aclnnInplaceAtan2 aclnnInplaceAtan2GetWorkspaceSize
        aclnnInplaceAtanGetWorkspaceSize aclnnInplaceAtanh aclnnInplaceAtanhGetWorkspaceSize aclnnInplaceBaddbmm
        aclnnInplaceBaddbmmGetWorkspaceSize aclnnInplaceBernoulli aclnnInplaceBernoulliGetWorkspaceSize
        aclnnInplaceBernoulliTensor aclnnInplaceBernoulliTensorGetWorkspaceSize aclnnInplaceBitwiseAndScalar
        aclnnInplaceBitwiseAndScalarGetWorkspaceSize aclnnInplaceBitwiseAndTensor
        aclnnInplaceBitwiseAndTensorGetWorkspaceSize aclnnInplaceBitwiseOrScalar
        aclnnInplaceBitwiseOrScalarGetWorkspaceSize aclnnInplaceBitwiseOrTensor
        aclnnInplaceBitwiseOrTensorGetWorkspaceSize aclnnInplaceBitwiseXorScalar
        aclnnInplaceBitwiseXorScalarGetWorkspaceSize aclnnInplaceBitwiseXorTensor
        aclnnInplaceBitwiseXorTensorGetWorkspaceSize aclnnInplaceCeil aclnnInplaceCeilGetWorkspaceSize aclnnInplaceCelu
        aclnnInplaceCeluGetWorkspaceSize aclnnInplaceClampMax aclnnInplaceClampMaxGetWorkspaceSize
        aclnnInplaceClampMaxTensor aclnnInplaceClampMaxTensorGetWorkspaceSize aclnnInplaceClampMinTensor
        aclnnInplaceClampMinTensorGetWorkspaceSize aclnnInplaceCos aclnnInplaceCosGetWorkspaceSize aclnnInplaceCosh
        aclnnInplaceCoshGetWorkspaceSize aclnnInplaceCumprod aclnnInplaceCumprodGetWorkspaceSize aclnnInplaceDivMod
        aclnnInplaceDivModGetWorkspaceSize aclnnInplaceDivMods aclnnInplaceDivModsGetWorkspaceSize aclnnInplaceElu
        aclnnInplaceEluGetWorkspaceSize aclnnInplaceEqScalar aclnnInplaceEqScalarGetWorkspaceSize aclnnInplaceEqTensor
        aclnnInplaceEqTensorGetWorkspaceSize aclnnInplaceErf aclnnInplaceErfGetWorkspaceSize aclnnInplaceErfc
        aclnnInplaceErfcGetWorkspaceSize aclnnInplaceErfinv aclnnInplaceErfinvGetWorkspaceSize aclnnInplaceExp
        aclnnInplaceExp2 aclnnInplaceExp2GetWorkspaceSize aclnnInplaceExpGetWorkspaceSize aclnnInplaceExpm1
        aclnnInplaceExpm1GetWorkspaceSize aclnnInplaceFillDiagonal aclnnInplaceFillDiagonalGetWorkspaceSize
        aclnnInplaceFillTensor aclnnInplaceFillTensorGetWorkspaceSize aclnnInplaceFloor aclnnInplaceFloorDivide
        aclnnInplaceFloorDivideGetWorkspaceSize aclnnInplaceFloorDivides aclnnInplaceFloorDividesGetWorkspaceSize
        aclnnInplaceFloorGetWorkspaceSize aclnnInplaceFmodScalar aclnnInplaceFmodScalarGetWorkspaceSize
        aclnnInplaceFmodTensor aclnnInplaceFmodTensorGetWorkspaceSize aclnnInplaceFrac aclnnInplaceFracGetWorkspaceSize
        aclnnInplaceGeScalar aclnnInplaceGeScalarGetWorkspaceSize aclnnInplaceGeTensor
        aclnnInplaceGeTensorGetWorkspaceSize aclnnInplaceGtScalar aclnnInplaceGtScalarGetWorkspaceSize
        aclnnInplaceGtTensor aclnnInplaceGtTensorGetWorkspaceSize aclnnInplaceHardsigmoid
        aclnnInplaceHardsigmoidGetWorkspaceSize aclnnInplaceHardswish aclnnInplaceHardswishGetWorkspaceSize
        aclnnInplaceHardtanh aclnnInplaceHardtanhGetWorkspaceSize aclnnInplaceIndexFillTensor
        aclnnInplaceIndexFillTensorGetWorkspaceSize aclnnInplaceLeScalar aclnnInplaceLeScalarGetWorkspaceSize
        aclnnInplaceLeTensor aclnnInplaceLeTensorGetWorkspaceSize aclnnInplaceLeakyRelu
        aclnnInplaceLeakyReluGetWorkspaceSize aclnnInplaceLog aclnnInplaceLog10 aclnnInplaceLog10GetWorkspaceSize
        aclnnInplaceLog1p aclnnInplaceLog1pGetWorkspaceSize aclnnInplaceLog2 aclnnInplaceLog2GetWorkspaceSize
        aclnnInplaceLogGetWorkspaceSize aclnnInplaceLogicalAnd aclnnInplaceLogicalAndGetWorkspaceSize
        aclnnInplaceLogicalNot aclnnInplaceLogicalNotGetWorkspaceSize aclnnInplaceLogicalOr
        aclnnInplaceLogicalOrGetWorkspaceSize aclnnInplaceLtScalar aclnnInplaceLtScalarGetWorkspaceSize
        aclnnInplaceLtTensor aclnnInplaceLtTensorGetWorkspaceSize aclnnInplaceMaskedFillTensor
        aclnnInplaceMaskedFillTensorGetWorkspaceSize aclnnInplaceMaskedScatter
        aclnnInplaceMaskedScatterGetWorkspaceSize aclnnInplaceMatmulAllReduceAddRmsNorm
        aclnnInplaceMatmulAllReduceAddRmsNormGetWorkspaceSize aclnnInplaceMish aclnnInplaceMishGetWorkspaceSize
        aclnnInplaceNanToNum aclnnInplaceNanToNumGetWorkspaceSize aclnnInplaceNeScalar
        aclnnInplaceNeScalarGetWorkspaceSize aclnnInplaceNeTensor aclnnInplaceNeTensorGetWorkspaceSize aclnnInplaceNeg
        aclnnInplaceNegGetWorkspaceSize aclnnInplaceNormal aclnnInplaceNormalGetWorkspaceSize
        aclnnInplacePowTensorScalar aclnnInplacePowTensorScalarGetWorkspaceSize aclnnInplacePowTensorTensor
        aclnnInplacePowTensorTensorGetWorkspaceSize aclnnInplacePut aclnnInplacePutGetWorkspaceSize
        aclnnInplaceQuantMatmulAllReduceAddRmsNorm aclnnInplaceQuantMatmulAllReduceAddRmsNormGetWorkspaceSize
        aclnnInplaceQuantScatter aclnnInplaceQuantScatterGetWorkspaceSize aclnnInplaceRReluWithNoise
        aclnnInplaceRReluWithNoiseGetWorkspaceSize aclnnInplaceRandom aclnnInplaceRandomGetWorkspaceSize
        aclnnInplaceReciprocal aclnnInplaceReciprocalGetWorkspaceSize aclnnInplaceRelu aclnnInplaceReluGetWorkspaceSize
        aclnnInplaceRemainderTensorScalar aclnnInplaceRemainderTensorScalarGetWorkspaceSize
        aclnnInplaceRemainderTensorTensor aclnnInplaceRemainderTensorTensorGetWorkspaceSize aclnnInplaceRenorm
        aclnnInplaceRenormGetWorkspaceSize aclnnInplaceRound aclnnInplaceRoundDecimals
        aclnnInplaceRoundDecimalsGetWorkspaceSize aclnnInplaceRoundGetWorkspaceSize aclnnInplaceRsqrt
        aclnnInplaceRsqrtGetWorkspaceSize aclnnInplaceScatter aclnnInplaceScatterGetWorkspaceSize
        aclnnInplaceScatterValue aclnnInplaceScatterValueGetWorkspaceSize aclnnInplaceSelu
        aclnnInplaceSeluGetWorkspaceSize aclnnInplaceSigmoid aclnnInplaceSigmoidGetWorkspaceSize aclnnInplaceSin
        aclnnInplaceSinGetWorkspaceSize aclnnInplaceSinc aclnnInplaceSincGetWorkspaceSize aclnnInplaceSinh
        aclnnInplaceSinhGetWorkspaceSize aclnnInplaceSqrt aclnnInplaceSqrtGetWorkspaceSize aclnnInplaceTan
        aclnnInplaceTanGetWorkspaceSize aclnnInplaceTanh aclnnInplaceTanhGetWorkspaceSize aclnnInplaceThreshold
        aclnnInplaceThresholdGetWorkspaceSize aclnnInplaceTril aclnnInplaceTrilGetWorkspaceSize aclnnInplaceTrunc
        aclnnInplaceTruncGetWorkspaceSize aclnnInplaceUniform aclnnInplaceUniformGetWorkspaceSize
        aclnnInplaceWeightQuantMatmulAllReduceAddRmsNorm
        aclnnInplaceWeightQuantMatmulAllReduceAddRmsNormGetWorkspaceSize aclnnInplaceXLogYScalarOther
        aclnnInplaceXLogYScalarOtherGetWorkspaceSize aclnnInplaceXLogYTensor aclnnInplaceXLogYTensorGetWorkspaceSize
        aclnnInstanceNorm aclnnInstanceNormGetWorkspaceSize aclnnInverse aclnnInverseGetWorkspaceSize aclnnIsClose
        aclnnIsCloseGetWorkspaceSize aclnnIsInScalarTensor aclnnIsInScalarTensorGetWorkspaceSize aclnnIsInTensorScalar
        aclnnIsInTensorScalarGetWorkspaceSize aclnnIsInf aclnnIsInfGetWorkspaceSize aclnnIsNegInf
        aclnnIsNegInfGetWorkspaceSize aclnnIsPosInf aclnnIsPosInfGetWorkspaceSize aclnnKlDiv aclnnKlDivBackward
        aclnnKlDivBackwardGetWorkspaceSize aclnnKlDivGetWorkspaceSize aclnnKthvalue aclnnKthvalueGetWorkspaceSize
        aclnnL1Loss aclnnL1LossBackward aclnnL1LossBackwardGetWorkspaceSize aclnnL1LossGetWorkspaceSize
        aclnnLayerNormBackward aclnnLayerNormBackwardGetWorkspaceSize aclnnLayerNormWithImplMode
        aclnnLayerNormWithImplModeGetWorkspaceSize aclnnLeTensor aclnnLeTensorGetWorkspaceSize aclnnLeakyRelu
        aclnnLeakyReluBackward aclnnLeakyReluBackwardGetWorkspaceSize aclnnLeakyReluGetWorkspaceSize aclnnLgamma
        aclnnLgammaGetWorkspaceSize aclnnLinalgCross aclnnLinalgCrossGetWorkspaceSize aclnnLinalgQr
        aclnnLinalgQrGetWorkspaceSize aclnnLinalgVectorNorm aclnnLinalgVectorNormGetWorkspaceSize aclnnLinspace
        aclnnLinspaceGetWorkspaceSize aclnnLog10 aclnnLog10GetWorkspaceSize aclnnLog1p aclnnLog1pGetWorkspaceSize
        aclnnLog2 aclnnLog2GetWorkspaceSize aclnnLogAddExp aclnnLogAddExp2 aclnnLogAddExp2GetWorkspaceSize
        aclnnLogAddExpGetWorkspaceSize aclnnLogSigmoid aclnnLogSigmoidBackward aclnnLogSigmoidBackwardGetWorkspaceSize
        aclnnLogSigmoidForward aclnnLogSigmoidForwardGetWorkspaceSize aclnnLogSigmoidGetWorkspaceSize
        aclnnLogSoftmaxBackward aclnnLogSoftmaxBackwardGetWorkspaceSize aclnnLogSumExp aclnnLogSumExpGetWorkspaceSize
        aclnnLogdet aclnnLogdetGetWorkspaceSize aclnnLogicalXor aclnnLogicalXorGetWorkspaceSize aclnnLogit
        aclnnLogitGetWorkspaceSize aclnnLogitGrad aclnnLogitGradGetWorkspaceSize aclnnMaskedSelect
        aclnnMaskedSelectGetWorkspaceSize aclnnMaskedSoftmaxWithRelPosBias
        aclnnMaskedSoftmaxWithRelPosBiasGetWorkspaceSize aclnnMatmulAllReduce aclnnMatmulAllReduceAddRmsNorm
        aclnnMatmulAllReduceAddRmsNormGetWorkspaceSize aclnnMatmulAllReduceGetWorkspaceSize aclnnMatmulAllReduceV2
        aclnnMatmulAllReduceV2GetWorkspaceSize aclnnMatmulCompressDequant aclnnMatmulCompressDequantGetWorkspaceSize
        aclnnMatmulReduceScatter aclnnMatmulReduceScatterGetWorkspaceSize aclnnMaxN aclnnMaxNGetWorkspaceSize
        aclnnMaxPool aclnnMaxPool2dWithIndices aclnnMaxPool2dWithIndicesBackward
        aclnnMaxPool2dWithIndicesBackwardGetWorkspaceSize aclnnMaxPool2dWithIndicesGetWorkspaceSize
        aclnnMaxPool2dWithMask aclnnMaxPool2dWithMaskBackward aclnnMaxPool2dWithMaskBackwardGetWorkspaceSize
        aclnnMaxPool2dWithMaskGetWorkspaceSize aclnnMaxPool3dWithArgmax aclnnMaxPool3dWithArgmaxBackward
        aclnnMaxPool3dWithArgmaxBackwardGetWorkspaceSize aclnnMaxPool3dWithArgmaxGetWorkspaceSize
        aclnnMaxPoolGetWorkspaceSize aclnnMaxUnpool2d aclnnMaxUnpool2dBackward aclnnMaxUnpool2dBackwardGetWorkspaceSize
        aclnnMaxUnpool2dGetWorkspaceSize aclnnMaxUnpool3d aclnnMaxUnpool3dBackward
        aclnnMaxUnpool3dBackwardGetWorkspaceSize aclnnMaxUnpool3dGetWorkspaceSize aclnnMaxV2 aclnnMaxV2GetWorkspaceSize
        aclnnMeanV2 aclnnMeanV2GetWorkspaceSize aclnnMedian aclnnMedianDim aclnnMedianDimGetWorkspaceSize
        aclnnMedianGetWorkspaceSize aclnnMin aclnnMinDim aclnnMinDimGetWorkspaceSize aclnnMinGetWorkspaceSize aclnnMinN
        aclnnMinNGetWorkspaceSize aclnnMish aclnnMishBackward aclnnMishBackwardGetWorkspaceSize
        aclnnMishGetWorkspaceSize aclnnMlaProlog aclnnMlaPrologGetWorkspaceSize aclnnMoeComputeExpertTokens
        aclnnMoeComputeExpertTokensGetWorkspaceSize aclnnMoeDistributeCombine aclnnMoeDistributeCombineGetWorkspaceSize
        aclnnMoeDistributeDispatch aclnnMoeDistributeDispatchGetWorkspaceSize aclnnMoeFinalizeRouting
        aclnnMoeFinalizeRoutingGetWorkspaceSize aclnnMoeFinalizeRoutingV2 aclnnMoeFinalizeRoutingV2GetWorkspaceSize
        aclnnMoeFinalizeRoutingV2Grad aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize aclnnMoeGatingTopKSoftmax
        aclnnMoeGatingTopKSoftmaxGetWorkspaceSize aclnnMoeGatingTopKSoftmaxV2
        aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize aclnnMoeInitRouting aclnnMoeInitRoutingGetWorkspaceSize
        aclnnMoeInitRoutingQuant aclnnMoeInitRoutingQuantGetWorkspaceSize aclnnMoeInitRoutingQuantV2
        aclnnMoeInitRoutingQuantV2GetWorkspaceSize aclnnMoeInitRoutingV2 aclnnMoeInitRoutingV2GetWorkspaceSize
        aclnnMoeInitRoutingV2Grad aclnnMoeInitRoutingV2GradGetWorkspaceSize aclnnMoeTokenPermute
        aclnnMoeTokenPermuteGetWorkspaceSize aclnnMoeTokenPermuteGrad aclnnMoeTokenPermuteGradGetWorkspaceSize
        aclnnMoeTokenUnpermute aclnnMoeTokenUnpermuteGetWorkspaceSize aclnnMoeTokenUnpermuteGrad
        aclnnMoeTokenUnpermuteGradGetWorkspaceSize aclnnMrgbaCustom aclnnMrgbaCustomGetWorkspaceSize aclnnMseLoss
        aclnnMseLossBackward aclnnMseLossBackwardGetWorkspaceSize aclnnMseLossGetWorkspaceSize aclnnMseLossOut
        aclnnMseLossOutGetWorkspaceSize aclnnMultiScaleDeformableAttentionGrad
        aclnnMultiScaleDeformableAttentionGradGetWorkspaceSize aclnnMultiScaleDeformableAttnFunction
        aclnnMultiScaleDeformableAttnFunctionGetWorkspaceSize aclnnMultilabelMarginLoss
        aclnnMultilabelMarginLossGetWorkspaceSize aclnnMultinomial aclnnMultinomialGetWorkspaceSize aclnnMv
        aclnnMvGetWorkspaceSize aclnnNLLLoss aclnnNLLLoss2d aclnnNLLLoss2dBackward
        aclnnNLLLoss2dBackwardGetWorkspaceSize aclnnNLLLoss2dGetWorkspaceSize aclnnNLLLossBackward
        aclnnNLLLossBackwardGetWorkspaceSize aclnnNLLLossGetWorkspaceSize aclnnNanMedian aclnnNanMedianDim
        aclnnNanMedianDimGetWorkspaceSize aclnnNanMedianGetWorkspaceSize aclnnNanToNum aclnnNanToNumGetWorkspaceSize
        aclnnNonMaxSuppression aclnnNonMaxSuppressionGetWorkspaceSize aclnnNonzero aclnnNonzeroGetWorkspaceSize
        aclnnNonzeroV2 aclnnNonzeroV2GetWorkspaceSize aclnnNorm aclnnNormGetWorkspaceSize aclnnNormalFloatFloat
        aclnnNormalFloatFloatGetWorkspaceSize aclnnNormalFloatTensor aclnnNormalFloatTensorGetWorkspaceSize
        aclnnNormalTensorFloat aclnnNormalTensorFloatGetWorkspaceSize aclnnNormalTensorTensor
        aclnnNormalTensorTensorGetWorkspaceSize aclnnNpuFormatCast aclnnNpuFormatCastCalculateSizeAndFormat
        aclnnNpuFormatCastGetWorkspaceSize aclnnPdist aclnnPdistGetWorkspaceSize aclnnPolar aclnnPolarGetWorkspaceSize
        aclnnPowScalarTensor aclnnPowScalarTensorGetWorkspaceSize aclnnPowTensorTensor
        aclnnPowTensorTensorGetWorkspaceSize aclnnPrecisionCompare aclnnPrecisionCompareGetWorkspaceSize aclnnPrelu
        aclnnPreluBackward aclnnPreluBackwardGetWorkspaceSize aclnnPreluGetWorkspaceSize aclnnProd aclnnProdDim
        aclnnProdDimGetWorkspaceSize aclnnProdGetWorkspaceSize aclnnPromptFlashAttention
        aclnnPromptFlashAttentionGetWorkspaceSize aclnnPromptFlashAttentionV2
        aclnnPromptFlashAttentionV2GetWorkspaceSize aclnnQr aclnnQrGetWorkspaceSize aclnnQuantGroupedMatmulDequant
        aclnnQuantGroupedMatmulDequantGetWorkspaceSize aclnnQuantMatmul aclnnQuantMatmulAllReduce
        aclnnQuantMatmulAllReduceAddRmsNorm aclnnQuantMatmulAllReduceAddRmsNormGetWorkspaceSize
        aclnnQuantMatmulAllReduceGetWorkspaceSize aclnnQuantMatmulAllReduceV2
        aclnnQuantMatmulAllReduceV2GetWorkspaceSize aclnnQuantMatmulAllReduceV3
        aclnnQuantMatmulAllReduceV3GetWorkspaceSize aclnnQuantMatmulDequant aclnnQuantMatmulDequantGetWorkspaceSize
        aclnnQuantMatmulGetWorkspaceSize aclnnQuantMatmulV2 aclnnQuantMatmulV2GetWorkspaceSize aclnnQuantMatmulV3
        aclnnQuantMatmulV3GetWorkspaceSize aclnnQuantMatmulV5 aclnnQuantMatmulV5GetWorkspaceSize
        aclnnQuantMatmulWeightNz aclnnQuantMatmulWeightNzGetWorkspaceSize aclnnQuantize aclnnQuantizeGetWorkspaceSize
        aclnnRReluWithNoise aclnnRReluWithNoiseGetWorkspaceSize aclnnRandperm aclnnRandpermGetWorkspaceSize aclnnRange
        aclnnRangeGetWorkspaceSize aclnnReal aclnnRealGetWorkspaceSize aclnnReduceLogSum
        aclnnReduceLogSumGetWorkspaceSize aclnnReduceNansum aclnnReduceNansumGetWorkspaceSize aclnnReflectionPad1d
        aclnnReflectionPad1dBackward aclnnReflectionPad1dBackwardGetWorkspaceSize aclnnReflectionPad1dGetWorkspaceSize
        aclnnReflectionPad2d aclnnReflectionPad2dBackward aclnnReflectionPad2dBackwardGetWorkspaceSize
        aclnnReflectionPad2dGetWorkspaceSize aclnnReflectionPad3d aclnnReflectionPad3dBackward
        aclnnReflectionPad3dBackwardGetWorkspaceSize aclnnReflectionPad3dGetWorkspaceSize aclnnRelu
        aclnnReluGetWorkspaceSize aclnnRemainderScalarTensor aclnnRemainderScalarTensorGetWorkspaceSize
        aclnnRemainderTensorScalar aclnnRemainderTensorScalarGetWorkspaceSize aclnnRemainderTensorTensor
        aclnnRemainderTensorTensorGetWorkspaceSize aclnnRenorm aclnnRenormGetWorkspaceSize aclnnRepeatInterleave
        aclnnRepeatInterleaveGetWorkspaceSize aclnnRepeatInterleaveInt aclnnRepeatInterleaveIntGetWorkspaceSize
        aclnnRepeatInterleaveIntWithDim aclnnRepeatInterleaveIntWithDimGetWorkspaceSize aclnnRepeatInterleaveTensor
        aclnnRepeatInterleaveTensorGetWorkspaceSize aclnnRepeatInterleaveWithDim
        aclnnRepeatInterleaveWithDimGetWorkspaceSize aclnnReplicationPad1d aclnnReplicationPad1dBackward
        aclnnReplicationPad1dBackwardGetWorkspaceSize aclnnReplicationPad1dGetWorkspaceSize aclnnReplicationPad2d
        aclnnReplicationPad2dBackward aclnnReplicationPad2dBackwardGetWorkspaceSize
        aclnnReplicationPad2dGetWorkspaceSize aclnnReplicationPad3d aclnnReplicationPad3dBackward
        aclnnReplicationPad3dBackwardGetWorkspaceSize aclnnReplicationPad3dGetWorkspaceSize aclnnResize
        aclnnResizeGetWorkspaceSize aclnnRingAttentionUpdate aclnnRingAttentionUpdateGetWorkspaceSize aclnnRoiAlign
        aclnnRoiAlignGetWorkspaceSize aclnnRoiAlignV2 aclnnRoiAlignV2Backward aclnnRoiAlignV2BackwardGetWorkspaceSize
        aclnnRoiAlignV2GetWorkspaceSize aclnnRoll aclnnRollGetWorkspaceSize aclnnRopeWithSinCosCache
        aclnnRopeWithSinCosCacheGetWorkspaceSize aclnnRotaryPositionEmbeddingGrad
        aclnnRotaryPositionEmbeddingGradGetWorkspaceSize aclnnRound aclnnRoundDecimals
        aclnnRoundDecimalsGetWorkspaceSize aclnnRoundGetWorkspaceSize aclnnRsub aclnnRsubGetWorkspaceSize aclnnRsubs
        aclnnRsubsGetWorkspaceSize aclnnScale aclnnScaleGetWorkspaceSize aclnnScaledMaskedSoftmax
        aclnnScaledMaskedSoftmaxBackward aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize
        aclnnScaledMaskedSoftmaxGetWorkspaceSize aclnnScatter aclnnScatterGetWorkspaceSize aclnnScatterNd
        aclnnScatterNdGetWorkspaceSize aclnnScatterNdUpdate aclnnScatterNdUpdateGetWorkspaceSize aclnnScatterValue
        aclnnScatterValueGetWorkspaceSize aclnnSearchSorted aclnnSearchSortedGetWorkspaceSize aclnnSearchSorteds
        aclnnSearchSortedsGetWorkspaceSize aclnnSelu aclnnSeluBackward aclnnSeluBackwardGetWorkspaceSize
        aclnnSeluGetWorkspaceSize aclnnShrink aclnnShrinkGetWorkspaceSize aclnnSigmoidBackward
        aclnnSigmoidBackwardGetWorkspaceSize aclnnSign aclnnSignBitsPack aclnnSignBitsPackGetWorkspaceSize
        aclnnSignBitsUnpack aclnnSignBitsUnpackGetWorkspaceSize aclnnSignGetWorkspaceSize aclnnSignbit
        aclnnSignbitGetWorkspaceSize aclnnSilentCheck aclnnSilentCheckGetWorkspaceSize aclnnSilentCheckV2
        aclnnSilentCheckV2GetWorkspaceSize aclnnSin aclnnSinGetWorkspaceSize aclnnSinc aclnnSincGetWorkspaceSize
        aclnnSinh aclnnSinhGetWorkspaceSize aclnnSinkhorn aclnnSinkhornGetWorkspaceSize aclnnSliceV2
        aclnnSliceV2GetWorkspaceSize aclnnSlogdet aclnnSlogdetGetWorkspaceSize aclnnSmoothL1Loss
        aclnnSmoothL1LossBackward aclnnSmoothL1LossBackwardGetWorkspaceSize aclnnSmoothL1LossGetWorkspaceSize
        aclnnSoftMarginLoss aclnnSoftMarginLossBackward aclnnSoftMarginLossBackwardGetWorkspaceSize
        aclnnSoftMarginLossGetWorkspaceSize aclnnSoftmaxCrossEntropyWithLogits
        aclnnSoftmaxCrossEntropyWithLogitsGetWorkspaceSize aclnnSoftplus aclnnSoftplusBackward
        aclnnSoftplusBackwardGetWorkspaceSize aclnnSoftplusGetWorkspaceSize aclnnSoftshrink aclnnSoftshrinkBackward
        aclnnSoftshrinkBackwardGetWorkspaceSize aclnnSoftshrinkGetWorkspaceSize aclnnSplitTensor
        aclnnSplitTensorGetWorkspaceSize aclnnSplitWithSize aclnnSplitWithSizeGetWorkspaceSize aclnnStack
        aclnnStackGetWorkspaceSize aclnnStd aclnnStdGetWorkspaceSize aclnnStdMeanCorrection
        aclnnStdMeanCorrectionGetWorkspaceSize aclnnStridedSliceAssignV2 aclnnStridedSliceAssignV2GetWorkspaceSize
        aclnnSum aclnnSumGetWorkspaceSize aclnnSwiGluQuant aclnnSwiGluQuantGetWorkspaceSize
        aclnnSwinAttentionScoreQuant aclnnSwinAttentionScoreQuantGetWorkspaceSize aclnnSwinTransformerLnQkvQuant
        aclnnSwinTransformerLnQkvQuantGetWorkspaceSize aclnnSwish aclnnSwishBackward aclnnSwishBackwardGetWorkspaceSize
        aclnnSwishGetWorkspaceSize aclnnTake aclnnTakeGetWorkspaceSize aclnnTan aclnnTanGetWorkspaceSize
        aclnnTanhBackward aclnnTanhBackwardGetWorkspaceSize aclnnThreshold aclnnThresholdBackward
        aclnnThresholdBackwardGetWorkspaceSize aclnnThresholdGetWorkspaceSize aclnnTrace aclnnTraceGetWorkspaceSize
        aclnnTransConvolutionWeight aclnnTransConvolutionWeightGetWorkspaceSize aclnnTransMatmulWeight
        aclnnTransMatmulWeightGetWorkspaceSize aclnnTransQuantParam aclnnTransQuantParamV2
        aclnnTransQuantParamV2GetWorkspaceSize aclnnTriangularSolve aclnnTriangularSolveGetWorkspaceSize aclnnTrunc
        aclnnTruncGetWorkspaceSize aclnnUnique aclnnUnique2 aclnnUnique2GetWorkspaceSize aclnnUniqueConsecutive
        aclnnUniqueConsecutiveGetWorkspaceSize aclnnUniqueDim aclnnUniqueDimGetWorkspaceSize
        aclnnUniqueGetWorkspaceSize aclnnUpsampleBicubic2d aclnnUpsampleBicubic2dAA
        aclnnUpsampleBicubic2dAAGetWorkspaceSize aclnnUpsampleBicubic2dAAGrad
        aclnnUpsampleBicubic2dAAGradGetWorkspaceSize aclnnUpsampleBicubic2dBackward
        aclnnUpsampleBicubic2dBackwardGetWorkspaceSize aclnnUpsampleBicubic2dGetWorkspaceSize aclnnUpsampleBilinear2d
        aclnnUpsampleBilinear2dAA aclnnUpsampleBilinear2dAABackward aclnnUpsampleBilinear2dAABackwardGetWorkspaceSize
        aclnnUpsampleBilinear2dAAGetWorkspaceSize aclnnUpsampleBilinear2dBackward
        aclnnUpsampleBilinear2dBackwardGetWorkspaceSize aclnnUpsampleBilinear2dBackwardV2
        aclnnUpsampleBilinear2dBackwardV2GetWorkspaceSize aclnnUpsampleBilinear2dGetWorkspaceSize aclnnUpsampleLinear1d
        aclnnUpsampleLinear1dBackward aclnnUpsampleLinear1dBackwardGetWorkspaceSize
        aclnnUpsampleLinear1dGetWorkspaceSize aclnnUpsampleNearest1d aclnnUpsampleNearest1dBackward
        aclnnUpsampleNearest1dBackwardGetWorkspaceSize aclnnUpsampleNearest1dGetWorkspaceSize aclnnUpsampleNearest1dV2
        aclnnUpsampleNearest1dV2GetWorkspaceSize aclnnUpsampleNearest2d aclnnUpsampleNearest2dBackward
        aclnnUpsampleNearest2dBackwardGetWorkspaceSize aclnnUpsampleNearest2dGetWorkspaceSize aclnnUpsampleNearest2dV2
        aclnnUpsampleNearest2dV2GetWorkspaceSize aclnnUpsampleNearest3d aclnnUpsampleNearest3dBackward
        aclnnUpsampleNearest3dBackwardGetWorkspaceSize aclnnUpsampleNearest3dGetWorkspaceSize
        aclnnUpsampleNearestExact1d aclnnUpsampleNearestExact1dBackward
        aclnnUpsampleNearestExact1dBackwardGetWorkspaceSize aclnnUpsampleNearestExact1dGetWorkspaceSize
        aclnnUpsampleNearestExact2dBackward aclnnUpsampleNearestExact2dBackwardGetWorkspaceSize
        aclnnUpsampleNearestExact3d aclnnUpsampleNearestExact3dBackward
        aclnnUpsampleNearestExact3dBackwardGetWorkspaceSize aclnnUpsampleNearestExact3dGetWorkspaceSize
        aclnnUpsampleTrilinear3d aclnnUpsampleTrilinear3dBackward aclnnUpsampleTrilinear3dBackwardGetWorkspaceSize
        aclnnUpsampleTrilinear3dGetWorkspaceSize aclnnVar aclnnVarCorrection aclnnVarCorrectionGetWorkspaceSize
        aclnnVarGetWorkspaceSize aclnnVarMean aclnnVarMeanGetWorkspaceSize aclnnWeightQuantBatchMatmul
        aclnnWeightQuantBatchMatmulGetWorkspaceSize aclnnWeightQuantBatchMatmulV2
        aclnnWeightQuantBatchMatmulV2GetWorkspaceSize aclnnWeightQuantBatchMatmulV3
        aclnnWeightQuantBatchMatmulV3GetWorkspaceSize aclnnWeightQuantMatmulAllReduce
        aclnnWeightQuantMatmulAllReduceAddRmsNorm aclnnWeightQuantMatmulAllReduceAddRmsNormGetWorkspaceSize
        aclnnWeightQuantMatmulAllReduceGetWorkspaceSize aclnnXLogYScalarOther aclnnXLogYScalarOtherGetWorkspaceSize
        aclnnXLogYScalarSelf aclnnXLogYScalarSelfGetWorkspaceSize aclnnXLogYTensor aclnnXLogYTensorGetWorkspaceSize
    }
}
