//! Numbers of inputs of the standard's operators: an additional input is an error, because it would be ignored.

use crate::host_operators::Fault;
use crate::import::Node;

/// Most inputs in any version up to operator set 28, by the schemas of the package `onnx` 1.23.2; operators with any
/// number of inputs are left out.
const MOST_INPUTS: [(usize, &str); 10] = [
    (0, "Constant RandomNormal RandomUniform SequenceEmpty"),
    (
        1,
        "Abs Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh AveragePool Bernoulli BitCast BitwiseNot BlackmanWindow \
        Cast Ceil Celu ConcatFromSequence ConstantOfShape Cos Cosh DepthToSpace Det DynamicQuantizeLinear Elu Erf \
        Exp EyeLike Flatten Floor Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool HammingWindow HannWindow \
        HardSigmoid HardSwish Hardmax Identity If ImageDecoder IsInf IsNaN LRN LeakyRelu Log LogSoftmax \
        LpNormalization LpPool MaxPool MeanVarianceNormalization Mish Multinomial Neg NonZero Not Optional \
        OptionalGetElement OptionalHasElement RandomNormalLike RandomUniformLike Reciprocal RegexFullMatch Relu \
        Round Selu SequenceLength Shape Shrink Sigmoid Sign Sin Sinh Size Softmax Softplus Softsign SpaceToDepth \
        Sqrt StringNormalizer StringSplit Swish Tan Tanh TfIdfVectorizer ThresholdedRelu Transpose Unique",
    ),
    (
        2,
        "Add AffineGrid And BitShift BitwiseAnd BitwiseOr BitwiseXor CastLike CenterCropPad Compress CumProd CumSum \
        Div Equal Expand Gather GatherElements GatherND Greater GreaterOrEqual GridSample Less LessOrEqual MatMul \
        MaxRoiPool Mod Mul Or PRelu Pow RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax \
        ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape ReverseSequence SequenceAt SequenceErase \
        Split SplitToSequence Squeeze StringConcat Sub SwiGLU TopK Trilu Unsqueeze Upsample Xor",
    ),
    (
        3,
        "Clip Col2Im Conv ConvTranspose DFT DequantizeLinear Dropout Gemm GroupNormalization InstanceNormalization \
        LayerNormalization MaxUnpool NegativeLogLikelihoodLoss OneHot QuantizeLinear Range RoiAlign Scatter \
        ScatterElements ScatterND SequenceInsert SoftmaxCrossEntropyLoss TensorScatter Tile Where",
    ),
    (4, "CausalConvWithState ConvInteger MatMulInteger Pad Resize RotaryEmbedding STFT"),
    (5, "BatchNormalization DeformConv MelWeightMatrix NonMaxSuppression Slice"),
    (6, "GRU LinearAttention RNN"),
    (7, "Attention"),
    (8, "LSTM QLinearMatMul"),
    (9, "QLinearConv"),
];

/// Rejects a node with more inputs than its operator has.
pub(super) fn no_more_inputs(node: &Node) -> Result<(), Fault> {
    let given = node.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    match most_inputs(&node.domain, &node.op_type) {
        Some(most) if given > most => {
            Err(Fault::invalid(format!("it has {given} inputs, but at most {most} are defined")))
        }
        _ => Ok(()),
    }
}

/// Returns the most inputs of a standard operator, if there is a limit.
fn most_inputs(domain: &str, operator: &str) -> Option<usize> {
    if domain == "ai.onnx.ml" {
        return match operator {
            "FeatureVectorizer" => None,
            "ArrayFeatureExtractor" => Some(2),
            _ => Some(1),
        };
    }
    let is_own = matches!(domain, "" | "ai.onnx");
    let has = |(_, names): &&(usize, &str)| is_own && names.split(' ').any(|name| name == operator);
    MOST_INPUTS.iter().find(has).map(|(most, _)| *most)
}

#[cfg(test)]
mod tests {
    use super::most_inputs;

    #[test]
    fn operators_have_the_inputs_of_the_standard() {
        for (operator, most) in [("Relu", 1), ("Add", 2), ("Conv", 3), ("Slice", 5), ("LSTM", 8), ("Constant", 0)] {
            assert_eq!(most_inputs("", operator), Some(most), "{operator}");
        }
        assert_eq!([most_inputs("", "Concat"), most_inputs("com.microsoft", "Gelu")], [None; 2]);
        assert_eq!(most_inputs("ai.onnx.ml", "Scaler"), Some(1));
    }
}
