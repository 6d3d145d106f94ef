//! Names of parameters: one constant for each, typed by what the plan of an operator gets for it.
//!
//! A row declares its parameters with these constants and its plan asks for them with the same, so a name that is misspelled, or
//! asked for as something else, does not compile. Two parameters of one spelling and different types have a constant each.

use std::fmt;
use std::marker::PhantomData;

use super::argument::{Scalar, Tensor};
use crate::nn::dtype::DType;

/// The name of a parameter of which a plan gets a `K`.
pub(crate) struct Name<K: ?Sized> {
    text: &'static str,
    kind: PhantomData<fn(&K)>,
}

impl<K: ?Sized> Name<K> {
    const fn new(text: &'static str) -> Self {
        Self { text, kind: PhantomData }
    }

    /// The spelling of the documentation.
    pub(super) const fn text(self) -> &'static str {
        self.text
    }
}

impl<K: ?Sized> Clone for Name<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for Name<K> {}

impl<K: ?Sized> fmt::Debug for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl<K: ?Sized> fmt::Display for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

macro_rules! names {
    ($( $kind:ty { $($constant:ident $text:literal),* $(,)? } )*) => {
        $( $( pub(super) const $constant: Name<$kind> = Name::new($text); )* )*
    };
}

names! {
    Tensor {
        ACTUAL_SHARED_PREFIX_LEN_OPTIONAL "actualSharedPrefixLenOptional",
        ANTIQUANT_OFFSET "antiquantOffset",
        ANTIQUANT_OFFSET_OPTIONAL "antiquantOffsetOptional",
        ANTIQUANT_SCALE "antiquantScale",
        ANTIQUANT_SCALE_OPTIONAL "antiquantScaleOptional",
        ATTENTION_IN_OPTIONAL "attentionInOptional",
        ATTENTION_OUT "attentionOut",
        ATTENTION_OUT_OUT "attentionOutOut",
        ATTEN_MASK "attenMask",
        ATTEN_MASK_OPTIONAL "attenMaskOptional",
        BIAS "bias",
        BIAS_OPTIONAL "biasOptional",
        BLOCKTABLE "blocktable",
        BLOCK_TABLE_OPTIONAL "blockTableOptional",
        CLIP_VALUE_MAX_TENSOR "clipValueMax",
        CLIP_VALUE_MIN_TENSOR "clipValueMin",
        CONDITION "condition",
        COS "cos",
        DATA "data",
        DEQUANT_SCALE1 "dequantScale1",
        DEQUANT_SCALE2 "dequantScale2",
        DEQ_SCALE1 "deqScale1",
        DEQ_SCALE1_OPTIONAL "deqScale1Optional",
        DEQ_SCALE2 "deqScale2",
        DEQ_SCALE2_OPTIONAL "deqScale2Optional",
        DGAMMA_OUT "dgammaOut",
        DK_OUT "dkOut",
        DPSE_OUT "dpseOut",
        DQ_OUT "dqOut",
        DROP_MASK_OPTIONAL "dropMaskOptional",
        DV_OUT "dvOut",
        DX_OUT "dxOut",
        DY "dy",
        END "end",
        EXPONENT "exponent",
        GAMMA "gamma",
        GRAD "grad",
        GRAD_BIAS_OUT "gradBiasOut",
        GRAD_INPUT "gradInput",
        GRAD_INPUT_OUT "gradInputOut",
        GRAD_LOSS "gradLoss",
        GRAD_OUT "gradOut",
        GRAD_OUTPUT "gradOutput",
        GRAD_WEIGHT_OUT "gradWeightOut",
        GRAD_ZLOSS_OPTIONAL "gradZlossOptional",
        GROUP_LIST "groupList",
        INDEX "index",
        INDICES "indices",
        INDICES_OUT "indicesOut",
        INPUT "input",
        KEY "key",
        KEY_ANTIQUANT_OFFSET_OPTIONAL "keyAntiquantOffsetOptional",
        KEY_REF "keyRef",
        KEY_ANTIQUANT_SCALE_OPTIONAL "keyAntiquantScaleOptional",
        KEY_IN "keyIn",
        KEY_SHARED_PREFIX_OPTIONAL "keySharedPrefixOptional",
        KV_PADDING_SIZE "kvPaddingSize",
        KV_PADDING_SIZE_OPTIONAL "kvPaddingSizeOptional",
        LOG_PROB "logProb",
        LOG_PROB_OUT "logProbOut",
        LOSS_OUT "lossOut",
        LSE_FOR_ZLOSS_OPTIONAL "lseForZlossOptional",
        LSE_FOR_ZLOSS_OUT "lseForZlossOut",
        MASK "mask",
        MAT1 "mat1",
        MAT2 "mat2",
        MAX "max",
        MAX_GRAD_NORM_OPTIONAL_REF "maxGradNormOptionalRef",
        MEAN "mean",
        MEAN_OUT_OPTIONAL "meanOutOptional",
        M_REF "mRef",
        OFFSET "offset",
        OFF_VALUE "offValue",
        ON_VALUE "onValue",
        OTHER "other",
        OUT "out",
        OUTPUT "output",
        PADDING_MASK_OPTIONAL "paddingMaskOptional",
        PERTOKEN_SCALE_OPTIONAL "pertokenScaleOptional",
        PREFIX_OPTIONAL "prefixOptional",
        PSE_SHIFT "pseShift",
        PSE_SHIFT_OPTIONAL "pseShiftOptional",
        QUANT_OFFSET2 "quantOffset2",
        QUANT_OFFSET2_OPTIONAL "quantOffset2Optional",
        QUANT_SCALE1 "quantScale1",
        QUANT_SCALE1_OPTIONAL "quantScale1Optional",
        QUANT_SCALE2 "quantScale2",
        QUANT_SCALE2_OPTIONAL "quantScale2Optional",
        QUERY "query",
        QUERY_REF "queryRef",
        QUERY_PADDING_SIZE_OPTIONAL "queryPaddingSizeOptional",
        REAL_SHIFT_OPTIONAL "realShiftOptional",
        RESULT "result",
        RSTD "rstd",
        RSTD_OUT "rstdOut",
        RSTD_OUT_OPTIONAL "rstdOutOptional",
        SCALARS "scalars",
        SCALE "scale",
        SCALE_OUT "scaleOut",
        SELF "self",
        SELF_REF "selfRef",
        SIN "sin",
        SMOOTH_SCALES_OPTIONAL "smoothScalesOptional",
        SOFTMAX_IN_OPTIONAL "softmaxInOptional",
        SOFTMAX_LSE "softmaxLse",
        SOFTMAX_MAX_OPTIONAL "softmaxMaxOptional",
        SOFTMAX_MAX_OUT "softmaxMaxOut",
        SOFTMAX_OUT_OUT "softmaxOutOut",
        SOFTMAX_SUM_OPTIONAL "softmaxSumOptional",
        SOFTMAX_SUM_OUT "softmaxSumOut",
        SOURCE "source",
        SRC "src",
        STEP "step",
        TARGET "target",
        TENSOR1 "tensor1",
        TENSOR2 "tensor2",
        TOTAL_WEIGHT "totalWeight",
        TOTAL_WEIGHT_OUT "totalWeightOut",
        UPDATES "updates",
        VALUE "value",
        VALUES "values",
        VALUES_OUT "valuesOut",
        VALUE_ANTIQUANT_OFFSET_OPTIONAL "valueAntiquantOffsetOptional",
        VALUE_ANTIQUANT_SCALE_OPTIONAL "valueAntiquantScaleOptional",
        VALUE_SHARED_PREFIX_OPTIONAL "valueSharedPrefixOptional",
        VAR_REF "varRef",
        V_REF "vRef",
        WEIGHT "weight",
        WEIGHT_OPTIONAL "weightOptional",
        X "x",
        X1 "x1",
        X2 "x2",
        X_OUT "xOut",
        Y "y",
        Y_GRAD "yGrad",
        Y_OUT "yOut",
        Y_REF "yRef",
        ZLOSS_OUT "zlossOut",
    }
    [Tensor] {
        INDICES_LIST "indices",
        KEY_LIST "key",
        OUT_LIST "out",
        TENSORS "tensors",
        VALUE_LIST "value",
        WEIGHT_LIST "weight",
        X1_LIST "x1",
        X2_LIST "x2",
        X3_LIST "x3",
        X_LIST "x",
    }
    Scalar {
        ALPHA "alpha",
        BETA "beta",
        CLIP_VALUE_MAX "clipValueMax",
        CLIP_VALUE_MIN "clipValueMin",
        END_SCALAR "end",
        EXPONENT_SCALAR "exponent",
        INPUT_SCALE "inputScale",
        LAMBD "lambd",
        LAMBDA "lambda",
        MAX_SCALAR "max",
        MIN_SCALAR "min",
        NEGATIVE_SLOPE "negativeSlope",
        ORD "ord",
        OTHER_SCALAR "other",
        PROB_SCALAR "prob",
        P_SCALAR "pScalar",
        SCALAR "scalar",
        SCALE_SCALAR "scale",
        SELF_SCALAR "self",
        START_SCALAR "start",
        STEP_SCALAR "step",
        THRESHOLD "threshold",
        VALUE_SCALAR "value",
        WEIGHT_SCALAR "weight",
    }
    [i64] {
        ACTUAL_SEQ_LENGTHS "actualSeqLengths",
        ACTUAL_SEQ_LENGTHS_KV "actualSeqLengthsKv",
        ACTUAL_SEQ_LENGTHS_KV_OPTIONAL "actualSeqLengthsKvOptional",
        ACTUAL_SEQ_LENGTHS_OPTIONAL "actualSeqLengthsOptional",
        DIMS "dims",
        DIM_ARRAY "dim",
        NORMALIZED_SHAPE "normalizedShape",
        PAD "pad",
        REPEATS "repeats",
        SHAPE "shape",
        SIZE "size",
    }
    i64 {
        ANTIQUANT_MODE "antiquantMode",
        APPROXIMATE_INT "approximate",
        AXIS "axis",
        BLOCK_SIZE "blockSize",
        CORRECTION "correction",
        CUBE_MATH_TYPE "cubeMathType",
        DIAGONAL "diagonal",
        DIM "dim",
        END_INT "end",
        FROM "from",
        GROUP_TYPE "groupType",
        HEAD_NUM "headNum",
        IGNORE_INDEX "ignoreIndex",
        INNER_PRECISE "innerPrecise",
        K "k",
        KEY_ANTIQUANT_MODE "keyAntiquantMode",
        LAYOUT "layout",
        MODE "mode",
        NEXT_TOKENS "nextTokens",
        NUM_CLASSES "numClasses",
        NUM_HEADS "numHeads",
        NUM_KEY_VALUE_HEADS "numKeyValueHeads",
        NUM_WEIGHTS "numWeights",
        OFFSET_INT "offset",
        PADDING_IDX "paddingIdx",
        PRE_TOKENS "preTokens",
        REDUCTION "reduction",
        SEED "seed",
        SPARSE_MODE "sparseMode",
        START "start",
        STEP_INT "step",
        TO "to",
        VALUE_ANTIQUANT_MODE "valueAntiquantMode",
    }
    f64 {
        BETA1 "beta1",
        BETA2 "beta2",
        EPS "eps",
        EPSILON "epsilon",
        FROM_FLOAT "from",
        KEEP_PROB "keepProb",
        LABEL_SMOOTHING "labelSmoothing",
        LR "lr",
        LSE_SQUARE_SCALE_FOR_ZLOSS "lseSquareScaleForZloss",
        MEAN_FLOAT "mean",
        PROB "prob",
        SCALE_VALUE "scaleValue",
        STD "std",
        TO_FLOAT "to",
        WEIGHT_DECAY "weightDecay",
    }
    bool {
        ACCUMULATE "accumulate",
        AMSGRAD "amsgrad",
        DESCENDING "descending",
        KEEPDIM "keepdim",
        KEEP_DIM "keepDim",
        KEEP_DIMS "keepDims",
        LARGEST "largest",
        MAXIMIZE "maximize",
        RETURN_ZLOSS "returnZloss",
        SCALE_GRAD_BY_FREQ "scaleGradByFreq",
        SOFTMAX_LSE_FLAG "softmaxLseFlag",
        SORTED "sorted",
        STABLE "stable",
        TRANSPOSE_WEIGHT "transposeWeight",
        TRANSPOSE_X "transposeX",
        TRANSPOSE_X1 "transposeX1",
        TRANSPOSE_X2 "transposeX2",
        UNBIASED "unbiased",
        UNSAFE "unsafe",
    }
    str {
        APPROXIMATE "approximate",
        INPUT_LAYOUT "inputLayout",
        REDUCTION_OPTIONAL "reductionOptional",
    }
    DType {
        DTYPE "dtype",
        PROB_DATA_TYPE "probDataType",
    }
    [bool] {
        OUTPUT_MASK "outputMask",
    }
    [Scalar] {
        SCALARS_LIST "scalars",
    }
}
