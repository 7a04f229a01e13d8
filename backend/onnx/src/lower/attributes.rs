//! Names of the attributes that operators have: another attribute is refused, because it would be ignored.

use crate::host_operators::Fault;
use crate::import::Node;
use crate::import::error::Name;

/// Operators, and the attributes that they have in any version; those of the standard by the schemas of the package
/// `onnx` 1.23.2, those of `com.microsoft` by ONNX Runtime 1.31.1. Operators without attributes are left out.
type Table = &'static [(&'static str, &'static str)];

/// An attribute of the oldest versions that never had a meaning.
const LEGACY: &str = "consumed_inputs";

/// The standard's operators.
const STANDARD: Table = &[
    ("Add And Div Equal Greater Less Mul Or Pow Sub Xor", "axis broadcast"),
    ("AffineGrid", "align_corners"),
    ("ArgMax ArgMin", "axis keepdims select_last_index"),
    (
        "Attention",
        "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size \
         scale softcap softmax_precision",
    ),
    ("AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"),
    ("BatchNormalization", "epsilon is_test momentum spatial training_mode"),
    ("BitCast", "to"),
    ("BitShift", "direction"),
    ("BlackmanWindow HammingWindow HannWindow", "output_datatype periodic"),
    ("Cast", "round_mode saturate to"),
    ("CastLike", "round_mode saturate"),
    ("CausalConvWithState", "activation"),
    ("Celu Elu LeakyRelu SwiGLU Swish ThresholdedRelu", "alpha"),
    ("CenterCropPad MeanVarianceNormalization Squeeze Unsqueeze", "axes"),
    ("Clip", "max min"),
    ("Col2Im", "dilations pads strides"),
    ("Compress Concat Flatten Gather GatherElements Hardmax LogSoftmax OneHot Scatter Softmax", "axis"),
    ("ConcatFromSequence", "axis new_axis"),
    ("Constant", "sparse_value value value_float value_floats value_int value_ints value_string value_strings"),
    ("ConstantOfShape", "value"),
    ("Conv ConvInteger QLinearConv", "auto_pad dilations group kernel_shape pads strides"),
    ("ConvTranspose", "auto_pad dilations group kernel_shape output_padding output_shape pads strides"),
    ("CumProd CumSum", "exclusive reverse"),
    ("DFT", "axis inverse onesided"),
    ("DeformConv", "dilations group kernel_shape offset_group pads strides"),
    ("DepthToSpace SpaceToDepth", "blocksize mode"),
    ("DequantizeLinear", "axis block_size output_dtype"),
    ("Dropout", "is_test ratio seed"),
    ("Einsum", "equation"),
    ("EyeLike", "dtype k"),
    (
        "GRU",
        "activation_alpha activation_beta activations clip direction hidden_size layout \
         linear_before_reset output_sequence",
    ),
    ("GatherND", "batch_dims"),
    ("Gelu", "approximate"),
    ("Gemm", "alpha beta broadcast transA transB"),
    ("GlobalLpPool", "p"),
    ("GridSample", "align_corners mode padding_mode"),
    ("GroupNormalization", "epsilon num_groups stash_type"),
    ("HardSigmoid", "alpha beta"),
    ("InstanceNormalization", "epsilon"),
    ("IsInf", "detect_negative detect_positive"),
    ("LRN", "alpha beta bias size"),
    (
        "LSTM",
        "activation_alpha activation_beta activations clip direction hidden_size input_forget layout \
         output_sequence",
    ),
    ("LayerNormalization RMSNormalization SimplifiedLayerNormalization", "axis epsilon stash_type"),
    ("LinearAttention", "chunk_size kv_num_heads q_num_heads scale update_rule"),
    ("LpNormalization", "axis p"),
    ("LpPool", "auto_pad ceil_mode dilations kernel_shape p pads strides"),
    ("MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"),
    ("MaxUnpool", "kernel_shape pads strides"),
    ("MelWeightMatrix", "output_datatype"),
    ("Mod", "fmod"),
    ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "ignore_index reduction"),
    ("NonMaxSuppression", "center_point_box"),
    ("Optional", "type"),
    ("Pad", "mode paddings pads value"),
    ("QuantizeLinear", "axis block_size output_dtype precision saturate"),
    ("RNN", "activation_alpha activation_beta activations clip direction hidden_size layout output_sequence"),
    ("Range", "stash_type"),
    (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd \
         ReduceSum ReduceSumSquare",
        "axes keepdims noop_with_empty_axes",
    ),
    ("Reshape", "allowzero shape"),
    (
        "Resize",
        "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside \
         extrapolation_value keep_aspect_ratio_policy mode nearest_mode",
    ),
    ("ReverseSequence", "batch_axis time_axis"),
    ("RoiAlign", "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale"),
    ("RotaryEmbedding", "interleaved num_heads rotary_embedding_dim"),
    ("STFT", "onesided"),
    ("ScatterElements", "axis reduction"),
    ("ScatterND", "reduction"),
    ("Selu", "alpha gamma"),
    ("SequenceEmpty", "dtype"),
    ("Shape", "end start"),
    ("Shrink", "bias lambd"),
    ("Slice", "axes ends starts"),
    ("Split", "axis num_outputs split"),
    ("SplitToSequence", "axis keepdims"),
    ("TensorScatter", "axis mode"),
    ("TopK", "axis k largest sorted"),
    ("Transpose", "perm"),
    ("Trilu", "upper"),
    ("Unique", "axis sorted"),
    ("Upsample", "height_scale mode scales width_scale"),
];

/// Operators of the domain `com.microsoft`.
const CONTRIBUTED: Table = &[
    (
        "Attention",
        "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes \
         rotary_embedding_dim scale unidirectional",
    ),
    ("DequantizeLinear QLinearConcat QuantizeLinear", "axis"),
    ("DynamicQuantizeLSTM", "activation_alpha activation_beta activations clip direction hidden_size input_forget"),
    ("EmbedLayerNormalization", "epsilon mask_index_type"),
    ("FusedConv", "activation activation_params auto_pad dilations group kernel_shape pads strides"),
    ("FusedGemm", "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"),
    ("FusedMatMul", "alpha transA transB transBatchA transBatchB"),
    (
        "GroupQueryAttention",
        "causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads \
         qk_norm_epsilon qk_output rotary_interleaved scale sliding_window_cache smooth_softmax \
         softcap v_quant_type",
    ),
    ("MatMulNBits", "K N accuracy_level bits block_size weight_prepacked"),
    ("MultiHeadAttention", "mask_filter_value num_heads scale unidirectional"),
    ("QAttention", "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"),
    ("QGemm TransposeMatMul", "alpha transA transB"),
    ("QLinearAveragePool", "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides"),
    ("QLinearGlobalAveragePool", "channels_last"),
    ("QLinearLeakyRelu QuickGelu", "alpha"),
    ("QLinearSoftmax", "axis opset"),
    ("RotaryEmbedding", "interleaved is_packed_batching num_heads rotary_embedding_dim scale"),
    ("SkipLayerNormalization SkipSimplifiedLayerNormalization", "epsilon"),
];

/// Operators of the domain `ai.onnx.ml`.
const CLASSIC: Table = &[
    ("Binarizer", "threshold"),
    ("FeatureVectorizer", "inputdimensions"),
    ("Imputer", "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64"),
    (
        "LabelEncoder",
        "classes_strings default_float default_int64 default_string default_tensor keys_floats \
         keys_int64s keys_strings keys_tensor values_floats values_int64s values_strings \
         values_tensor",
    ),
    ("LinearClassifier", "classlabels_ints classlabels_strings coefficients intercepts multi_class post_transform"),
    ("LinearRegressor", "coefficients intercepts post_transform targets"),
    ("Normalizer", "norm"),
    ("OneHotEncoder", "cats_int64s cats_strings zeros"),
    (
        "SVMClassifier",
        "classlabels_ints classlabels_strings coefficients kernel_params kernel_type post_transform \
         prob_a prob_b rho support_vectors vectors_per_class",
    ),
    ("SVMRegressor", "coefficients kernel_params kernel_type n_supports one_class post_transform rho support_vectors"),
    ("Scaler", "offset scale"),
    (
        "TreeEnsemble",
        "aggregate_function leaf_targetids leaf_weights membership_values n_targets nodes_falseleafs \
         nodes_falsenodeids nodes_featureids nodes_hitrates nodes_missing_value_tracks_true \
         nodes_modes nodes_splits nodes_trueleafs nodes_truenodeids post_transform tree_roots",
    ),
    (
        "TreeEnsembleClassifier",
        "base_values base_values_as_tensor class_ids class_nodeids class_treeids class_weights \
         class_weights_as_tensor classlabels_int64s classlabels_strings nodes_falsenodeids \
         nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true \
         nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values \
         nodes_values_as_tensor post_transform",
    ),
    (
        "TreeEnsembleRegressor",
        "aggregate_function base_values base_values_as_tensor n_targets nodes_falsenodeids \
         nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true \
         nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values \
         nodes_values_as_tensor post_transform target_ids target_nodeids target_treeids \
         target_weights target_weights_as_tensor",
    ),
];

/// Refuses a node with an attribute that its operator does not have, and that would be ignored.
///
/// Names that begin with two underscores are notes of tools, by the standard's checker.
pub(super) fn only_known(node: &Node) -> Result<(), Fault> {
    let known = known(&node.domain, &node.op_type);
    let is_known = |name: &str| name.starts_with("__") || name == LEGACY || known.split(' ').any(|own| own == name);
    match node.attributes.keys().find(|name| !is_known(name)) {
        Some(name) => {
            let text =
                format!("its attribute {} is unknown and would be ignored; export the node without it", Name(name));
            Err(Fault::unsupported(text))
        }
        None => Ok(()),
    }
}

/// Returns the names of an operator's attributes.
fn known(domain: &str, operator: &str) -> &'static str {
    let table = match domain {
        "" | "ai.onnx" => STANDARD,
        "com.microsoft" => CONTRIBUTED,
        _ => CLASSIC,
    };
    let has = |(names, _): &&(&str, &str)| names.split(' ').any(|name| name == operator);
    table.iter().find(has).map_or("", |(_, attributes)| attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Attribute;
    use crate::lower::ops;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn node(domain: &str, operator: &str, attribute: &str) -> Node {
        Node {
            name: "n".into(),
            op_type: operator.into(),
            domain: domain.into(),
            version: 1,
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: BTreeMap::from([(attribute.to_owned(), Attribute::Int(1))]),
        }
    }

    #[test]
    fn every_operator_refuses_an_attribute_that_it_does_not_have() {
        for domain in ["", "com.microsoft", "ai.onnx.ml"] {
            let mut count = 0;
            for operator in ops::names(domain) {
                let error = only_known(&node(domain, operator, "unheard_of")).expect_err(operator).to_string();
                assert!(error.contains("`unheard_of`"), "{error}");
                let known = known(domain, operator).split(' ').filter(|name| !name.is_empty());
                known.for_each(|name| only_known(&node(domain, operator, name)).expect("known"));
                only_known(&node(domain, operator, "__note")).expect("a note");
                count += 1;
            }
            assert!(count > 10, "{domain}");
        }
        let names = [STANDARD, CONTRIBUTED, CLASSIC].into_iter().zip(["", "com.microsoft", "ai.onnx.ml"]);
        for (operator, domain) in names.flat_map(|(table, domain)| table.iter().map(move |(of, _)| (of, domain))) {
            operator.split(' ').for_each(|operator| assert!(ops::lowering(domain, operator).is_ok(), "{operator}"));
        }
    }

    /// Attributes that no lowering reads, because they cannot change a result here: hints of speed and of training, and
    /// options of outputs, types and inputs that are refused, or texts.
    const UNREAD: &str = "activation_gamma chunk_size kv_cache_bit_width mask_index_type output_sequence \
                          qk_norm_epsilon qk_output ratio round_mode seed value_string value_strings";

    #[test]
    fn every_attribute_is_read_or_known_to_change_nothing() {
        let mut sources = String::new();
        for part in ["src", "../host/src", "../import/src"] {
            append(&Path::new(env!("CARGO_MANIFEST_DIR")).join(part), &mut sources);
        }
        for (operators, attributes) in [STANDARD, CONTRIBUTED].into_iter().flatten() {
            for name in attributes.split(' ') {
                let (read, unread) =
                    (sources.contains(&format!("\"{name}\"")), UNREAD.split(' ').any(|own| own == name));
                assert!(read != unread, "{operators}: {name} is read: {read}");
            }
        }
    }

    /// Appends all source text of a folder but this file's.
    fn append(folder: &Path, sources: &mut String) {
        for entry in std::fs::read_dir(folder).expect("bundled") {
            let path = entry.expect("readable").path();
            match path.is_dir() {
                true => append(&path, sources),
                false if path.ends_with("lower/attributes.rs") => {}
                false => sources.push_str(&std::fs::read_to_string(&path).expect("text")),
            }
        }
    }
}
