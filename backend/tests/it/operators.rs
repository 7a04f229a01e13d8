//! Operators with indices, sizes or elements at or beyond the ordinary: all inputs are constants, so that lowering
//! computes the result.

use anabranch::Tensor;
use anabranch::import::from_bytes;
use anabranch::import::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::lower::{LowerOptions, lower};

mod images;

const INF: f32 = f32::INFINITY;

/// Returns the output `y` of a node over these tensors, or the error.
fn answer(node: NodeProto, inputs: Vec<TensorProto>) -> Result<Tensor, String> {
    let graph = GraphProto {
        node: vec![node],
        initializer: inputs,
        output: vec![ValueInfoProto { name: "y".into(), r#type: None }],
        ..GraphProto::default()
    };
    let mut model = ModelProto::of(graph, 24);
    let contributed = OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 };
    model.opset_import.push(contributed);
    let model = from_bytes(&model.to_bytes(), None).expect("a sound model");
    let program = lower(&model, &LowerOptions::default()).map_err(|error| error.to_string())?;
    let constant = program.constant(program.outputs[0].value).expect("folded");
    constant
        .load()
        .expect("in memory")
        .reshaped(program.outputs[0].spec.shape.clone())
        .map_err(|error| error.to_string())
}

fn floats(node: NodeProto, inputs: Vec<TensorProto>) -> Vec<f32> {
    let y = answer(node, inputs).unwrap_or_else(|error| panic!("{error}"));
    y.elements::<f32>().expect("f32").to_vec()
}

fn refused(node: NodeProto, inputs: Vec<TensorProto>) {
    assert!(answer(node.clone(), inputs).is_err(), "{} is computed", node.op_type);
}

fn node(operator: &str, inputs: &[&str]) -> NodeProto {
    NodeProto::of(operator, inputs, &["y"])
}

fn f(name: &str, dims: &[i64], elements: &[f32]) -> TensorProto {
    TensorProto::f32s(name, dims, elements)
}

fn i(name: &str, dims: &[i64], elements: &[i64]) -> TensorProto {
    TensorProto::i64s(name, dims, elements)
}

fn i32s(name: &str, dims: &[i64], elements: &[i32]) -> TensorProto {
    let data = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    TensorProto::raw(name, data_type::INT32, dims, data)
}

/// The numbers 0, 1, 2, … under a shape.
fn counted(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>();
    f(name, dims, &(0..count).map(|at| at as f32).collect::<Vec<_>>())
}

#[test]
fn an_index_outside_its_axis_reaches_no_other_row() {
    for reduction in ["none", "add"] {
        let scatter = |index: i64| {
            let node = node("ScatterElements", &["x", "i", "u"])
                .with(AttributeProto::int("axis", 1))
                .with(AttributeProto::string("reduction", reduction));
            answer(node, vec![f("x", &[2, 2], &[0.0; 4]), i("i", &[2, 1], &[0, index]), f("u", &[2, 1], &[1.0, 2.0])])
        };
        let y = scatter(-2).expect("the first");
        assert_eq!(y.elements::<f32>().expect("f32"), [1.0, 0.0, 2.0, 0.0]);
        assert!([-3, -4, 2].iter().all(|index| scatter(*index).is_err()), "{reduction}");
        let many = |tuple: [i64; 2]| {
            let node = node("ScatterND", &["x", "i", "u"]).with(AttributeProto::string("reduction", reduction));
            answer(node, vec![f("x", &[2, 2], &[0.0; 4]), i("i", &[1, 2], &tuple), f("u", &[1], &[1.0])])
        };
        assert!(many([-1, -2]).is_ok() && many([1, 1]).is_ok());
        assert!([[0, 2], [1, -3], [-3, 1], [2, -1]].iter().all(|tuple| many(*tuple).is_err()), "{reduction}");
    }
    let gather =
        |tuple: [i64; 2]| answer(node("GatherND", &["x", "i"]), vec![counted("x", &[2, 2]), i("i", &[1, 2], &tuple)]);
    assert_eq!(gather([-1, -2]).expect("within").elements::<f32>().expect("f32"), [2.0]);
    assert!([[0, 2], [1, -3], [-3, 1], [2, -1], [-3, -3]].iter().all(|tuple| gather(*tuple).is_err()));
}

#[test]
fn an_infinite_element_that_is_not_chosen_changes_nothing() {
    let resize = node("Resize", &["x", "roi", "", "sizes"])
        .with(AttributeProto::string("mode", "nearest"))
        .with(AttributeProto::string("coordinate_transformation_mode", "tf_crop_and_resize"));
    let inputs =
        vec![f("x", &[1, 3], &[1.0, INF, 3.0]), f("roi", &[4], &[0.0, 0.0, 1.0, 1.0]), i("sizes", &[2], &[1, 2])];
    assert_eq!(floats(resize, inputs), [1.0, 3.0]);
    // A point beyond the corner at an infinite element, and a point a quarter outside the first element.
    for mode in ["nearest", "linear", "cubic"] {
        let sample = node("GridSample", &["x", "grid"])
            .with(AttributeProto::string("mode", mode))
            .with(AttributeProto::int("align_corners", 1));
        let inputs = vec![f("x", &[1, 1, 1, 2], &[1.0, INF]), f("grid", &[1, 1, 2, 2], &[9.0, 0.0, -9.0, f32::NAN])];
        assert_eq!(floats(sample, inputs), [0.0, 0.0], "{mode}");
    }
}

#[test]
fn a_size_of_a_rounded_scale_is_whole() {
    // Only neighbours are read, so that an infinite element stays where it is.
    let resize = node("Resize", &["x", "", "", "sizes"])
        .with(AttributeProto::string("mode", "linear"))
        .with(AttributeProto::string("coordinate_transformation_mode", "align_corners"));
    let x = f("x", &[7], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, INF]);
    let y = floats(resize, vec![x, i("sizes", &[1], &[29])]);
    let close = y[..20].iter().enumerate().all(|(at, y)| (y - at as f32 * 6.0 / 28.0).abs() < 1e-5);
    assert!(y.len() == 29 && close, "{y:?}");
}

/// The columns give the scale of both axes: no `f64`, and some coordinates are integers or halves.
#[test]
fn a_shared_scale_gives_exact_neighbours() {
    let resize = |round: &str| {
        node("Resize", &["x", "", "", "sizes"])
            .with(AttributeProto::string("mode", "nearest"))
            .with(AttributeProto::string("keep_aspect_ratio_policy", "not_larger"))
            .with(AttributeProto::string("nearest_mode", round))
    };
    for (rows, [read, made]) in (3..40_i64).flat_map(|rows| [[5, 7], [14, 17], [7, 3]].map(|scale| (rows, scale))) {
        for (round, added) in [("floor", 0), ("ceil", 2 * made - 1), ("round_prefer_floor", made - 1)] {
            let above = |x: i64| (2 * x + 1) * read - made + added;
            let near = |x: i64, size: i64| above(x).div_euclid(2 * made).clamp(0, size - 1);
            let height = (2 * rows * made + read) / (2 * read);
            let cells = (0..height).flat_map(|row| (0..made).map(move |column| (row, column)));
            let want: Vec<f32> = cells.map(|(r, c)| (near(r, rows) * read + near(c, read)) as f32).collect();
            let inputs = vec![counted("x", &[rows, read]), i("sizes", &[2], &[4 * rows, made])];
            assert_eq!(floats(resize(round), inputs), want, "{round} of {rows} × {read}");
        }
    }
}

#[test]
fn an_axis_without_elements_has_an_index_if_no_index_is_asked_for() {
    for operator in ["ArgMax", "ArgMin"] {
        let search = |dims: &[i64], axis, keep| {
            let node = node(operator, &["x"]).with(AttributeProto::int("axis", axis));
            answer(node.with(AttributeProto::int("keepdims", keep)), vec![f("x", dims, &[])])
        };
        for (dims, axis, kept, removed) in [
            (vec![2, 0, 0], 1, vec![2, 1, 0], vec![2, 0]),
            (vec![0, 3], 1, vec![0, 1], vec![0]),
            (vec![0, 0], 0, vec![1, 0], vec![0]),
        ] {
            for (keep, want) in [(1, kept), (0, removed)] {
                let index = search(&dims, axis, keep).expect("an empty index");
                assert_eq!(index.spec().shape.dims(), want, "{operator} of {dims:?}");
                assert!(index.elements::<i64>().is_some(), "{operator} of {dims:?}");
            }
        }
        assert!(search(&[2, 0], 1, 1).is_err() && search(&[0], 0, 0).is_err(), "{operator}");
    }
}

#[test]
fn no_elements_are_marked_as_the_greatest() {
    for (dims, axis) in [([2, 0], 1), ([0, 3], 0), ([0, 3], 1), ([0, 0], -1)] {
        let hardmax = node("Hardmax", &["x"]).with(AttributeProto::int("axis", axis));
        let hot = answer(hardmax, vec![f("x", &dims, &[])]).expect("an empty result");
        assert_eq!(hot.spec().shape.dims(), dims.map(|dim| dim as usize));
    }
}

#[test]
fn keys_and_values_by_head_get_no_bias() {
    let attend = |bias: &[f32]| {
        let mut node = node("MultiHeadAttention", &["q", "k", "v", "b"]).with(AttributeProto::int("num_heads", 2));
        node.domain = "com.microsoft".into();
        let by_head = |name| counted(name, &[1, 2, 3, 2]);
        floats(node, vec![counted("q", &[1, 1, 4]), by_head("k"), by_head("v"), f("b", &[12], bias)])
    };
    let mut bias = [0.0; 12];
    let plain = attend(&bias);
    bias[4..].fill(5.0);
    assert_eq!(attend(&bias), plain);
    bias[..4].fill(-5.0);
    assert_ne!(attend(&bias), plain);
}

#[test]
fn lengths_of_caches_that_lie_are_refused_by_node_name_and_value() {
    let heads = |node: NodeProto| node.with(AttributeProto::int("num_heads", 1)).named("own");
    let contributed =
        |operator: &str, inputs: &[&str]| NodeProto { domain: "com.microsoft".into(), ..node(operator, inputs) };
    let new = || ["q", "k", "v"].map(|name| counted(name, &[1, 2, 2])).to_vec();
    let past = || ["pk", "pv"].map(|name| counted(name, &[1, 1, 8, 2])).to_vec();
    let grouped = |last: i32, total: i32, is_first: bool| {
        let names = if is_first { ["q", "k", "v", "", "", "n", "t"] } else { ["q", "k", "v", "pk", "pv", "n", "t"] };
        let node = heads(contributed("GroupQueryAttention", &names)).with(AttributeProto::int("kv_num_heads", 1));
        let lengths = vec![i32s("n", &[1], &[last]), i32s("t", &[], &[total])];
        answer(node, [new(), if is_first { Vec::new() } else { past() }, lengths].concat())
    };
    let multi_head = |before: i32| {
        let node = heads(contributed("MultiHeadAttention", &["q", "k", "v", "", "", "", "pk", "pv", "n"]));
        answer(node, [new(), past(), vec![i32s("n", &[1], &[before])]].concat())
    };
    let attention = |filled: i64, causal: i64| {
        let node = node("Attention", &["q", "k", "v", "", "", "", "n"]).with(AttributeProto::int("is_causal", causal));
        let queries = counted("q", &[1, 1, 2, 2]);
        let keys = ["k", "v"].map(|name| counted(name, &[1, 1, 8, 2]));
        answer(node.named("own"), [vec![queries], keys.to_vec(), vec![i("n", &[1], &[filled])]].concat())
    };
    let stated = |name: &str, value: i64| format!("{name} is {value} ");
    for (name, value, made, is_right) in [
        ("seqlens_k", 1, grouped(1, 8, false), true),
        ("seqlens_k", 7, grouped(7, 8, false), true),
        ("seqlens_k", 8, grouped(8, 8, false), false),
        ("seqlens_k", 0, grouped(0, 8, false), false),
        ("seqlens_k", -1, grouped(-1, 8, false), false),
        ("seqlens_k", i32::MIN.into(), grouped(i32::MIN, 8, false), false),
        // The second position is padding.
        ("seqlens_k", 0, grouped(0, 2, true), true),
        ("seqlens_k", -1, grouped(-1, 2, true), false),
        ("past_sequence_length", 6, multi_head(6), true),
        ("past_sequence_length", 7, multi_head(7), false),
        ("past_sequence_length", -1, multi_head(-1), false),
        ("nonpad_kv_seqlen", 8, attention(8, 1), true),
        ("nonpad_kv_seqlen", 2, attention(2, 1), true),
        // The first query stands before all keys.
        ("nonpad_kv_seqlen", 1, attention(1, 1), true),
        ("nonpad_kv_seqlen", 0, attention(0, 1), true),
        ("nonpad_kv_seqlen", 1, attention(1, 0), true),
        ("nonpad_kv_seqlen", 9, attention(9, 0), false),
        ("nonpad_kv_seqlen", -1, attention(-1, 0), false),
        ("nonpad_kv_seqlen", i64::MAX, attention(i64::MAX, 1), false),
    ] {
        match made {
            Ok(_) => assert!(is_right, "{name} of {value} is taken"),
            Err(error) => {
                assert!(!is_right && error.contains(&stated(name, value)) && error.contains("own"), "{error}")
            }
        }
    }
}

/// A query before all keys has no weights, in one pass over the keys and in products with an output of scores.
#[test]
fn a_causal_query_before_all_keys_is_zeros() {
    for outputs in [&["y"][..], &["y", "", "", "scores"]] {
        let inputs = ["q", "k", "v", "", "", "", "n"];
        let node = NodeProto::of("Attention", &inputs, outputs).with(AttributeProto::int("is_causal", 1));
        let [keys, values] = ["k", "v"].map(|name| counted(name, &[1, 1, 2, 2]));
        let y = floats(node, vec![counted("q", &[1, 1, 3, 2]), keys, values, i("n", &[1], &[1])]);
        assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], "{outputs:?}");
    }
}

#[test]
fn a_target_that_is_no_class_is_refused_unless_it_is_ignored() {
    for name in ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"] {
        let loss = |target: i64, ignored: i64| {
            let node = node(name, &["x", "t"]).with(AttributeProto::int("ignore_index", ignored));
            answer(node, vec![f("x", &[2, 3], &[0.5; 6]), i("t", &[2], &[0, target])])
        };
        assert!(loss(2, 9).is_ok() && loss(9, 9).is_ok() && loss(-1, -1).is_ok(), "{name}");
        for outside in [3, -1, i64::MIN, i64::MAX] {
            assert!(loss(outside, 9).is_err(), "{name} of {outside}");
        }
    }
}

#[test]
fn nothing_is_written_before_or_beyond_a_slice() {
    let write = |first: i64, mode: &str| {
        let node = node("TensorScatter", &["c", "u", "at"]).with(AttributeProto::string("mode", mode));
        answer(node, vec![f("c", &[2, 3, 1], &[0.0; 6]), f("u", &[2, 1, 1], &[1.0, 2.0]), i("at", &[2], &[0, first])])
    };
    assert!(write(2, "linear").is_ok() && write(-1, "linear").is_err() && write(3, "linear").is_err());
    let y = write(-1, "circular").expect("the last");
    assert_eq!(y.elements::<f32>().expect("f32"), [1.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
    for (time, batch) in [(0, 1), (1, 0)] {
        let reverse = |length: i64| {
            let node = node("ReverseSequence", &["x", "n"])
                .with(AttributeProto::int("time_axis", time))
                .with(AttributeProto::int("batch_axis", batch));
            answer(node, vec![counted("x", &[2, 2]), i("n", &[2], &[length, 1])])
        };
        assert!(reverse(2).is_ok() && reverse(3).is_err() && reverse(4).is_err());
    }
}

#[test]
fn only_queries_without_keys_become_zero() {
    let attend = |value: f32, mask: TensorProto| {
        let inputs =
            vec![f("q", &[1, 1, 2, 1], &[1.0, value]), counted("k", &[1, 1, 2, 1]), f("v", &[1, 1, 2, 1], &[4.0, 4.0])];
        floats(node("Attention", &["q", "k", "v", "m"]), [inputs, vec![mask]].concat())
    };
    let floats = f("m", &[2, 2], &[-INF, -INF, 0.0, 0.0]);
    let bools = TensorProto::raw("m", data_type::BOOL, &[2, 2], vec![0, 0, 1, 1]);
    for mask in [floats, bools] {
        assert_eq!(attend(1.0, mask.clone()), [0.0, 4.0]);
        let y = attend(f32::NAN, mask);
        assert!(y[0] == 0.0 && y[1].is_nan(), "{y:?}");
    }
}

#[test]
fn frames_are_as_long_as_the_window_or_the_signal() {
    let step = || i("step", &[], &[1]);
    let y = answer(node("STFT", &["x", "step"]), vec![counted("x", &[1, 4, 1]), step()]).expect("one frame");
    assert_eq!(y.spec().shape.dims(), [1, 1, 3, 2]);
    assert!((y.elements::<f32>().expect("f32")[0] - 6.0).abs() < 1e-5);
    let inputs = vec![counted("x", &[1, 4, 1]), step(), f("w", &[2], &[1.0; 2]), i("n", &[], &[3])];
    refused(node("STFT", &["x", "step", "w", "n"]), inputs);
}

#[test]
fn attributes_of_another_length_are_refused() {
    let unpool = |name: &str, values: &[i64]| {
        let node = node("MaxUnpool", &["x", "i"]).with(AttributeProto::ints("kernel_shape", &[2, 2]));
        let node = node.with(AttributeProto::ints(name, values));
        answer(node, vec![f("x", &[1, 1, 1, 1], &[3.0]), i("i", &[1, 1, 1, 1], &[1])])
    };
    assert!(unpool("strides", &[2, 2]).is_ok() && unpool("strides", &[2]).is_err());
    assert!(unpool("pads", &[0; 4]).is_ok() && unpool("pads", &[0; 2]).is_err());
}

#[test]
fn bits_shifted_by_all_there_are_leave_none() {
    let raw = |name: &str, values: &[u64]| {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TensorProto::raw(name, data_type::UINT64, &[values.len() as i64], data)
    };
    let shift = node("BitShift", &["x", "n"]).with(AttributeProto::string("direction", "RIGHT"));
    let y = answer(shift, vec![raw("x", &[u64::MAX; 5]), raw("n", &[0, 63, 64, 65, u64::MAX])]).expect("shifted");
    assert_eq!(y.elements::<u64>().expect("u64"), [u64::MAX, 1, 0, 0, 0]);
}

#[test]
fn positions_of_one_row_hold_for_all() {
    let embed = |positions: TensorProto| {
        let mut node = node("EmbedLayerNormalization", &["w", "", "words", "places", "", "g", "b", "", "p"]);
        node.output = vec!["y".into(), "counts".into()];
        node.domain = "com.microsoft".into();
        let tables = vec![f("words", &[2, 2], &[1.0, 2.0, 3.0, 5.0]), f("places", &[2, 2], &[0.0, 9.0, 4.0, 0.0])];
        let scale = vec![f("g", &[2], &[1.0; 2]), f("b", &[2], &[0.0; 2]), positions];
        answer(node, [vec![i32s("w", &[2, 2], &[0, 1, 1, 0])], tables, scale].concat())
    };
    let one = embed(i32s("p", &[1, 2], &[1, 0])).expect("one row");
    let each = embed(i32s("p", &[2, 2], &[1, 0, 1, 0])).expect("a row each");
    assert!(one.same_bits(&each));
    assert!(embed(i32s("p", &[2, 1], &[1, 0])).is_err());
}

#[test]
fn slices_begin_within_their_axis_whatever_their_bounds() {
    let sliced = |bounds: [i64; 3]| {
        let names = ["starts", "ends", "axes", "steps"];
        let bounds = [bounds[0], bounds[1], 0, bounds[2]];
        let inputs = names.iter().zip(bounds).map(|(name, bound)| i(name, &[1], &[bound]));
        let inputs = [counted("x", &[5])].into_iter().chain(inputs).collect();
        floats(node("Slice", &["x", "starts", "ends", "axes", "steps"]), inputs)
    };
    // Results of ONNX Runtime.
    for (bounds, want) in [
        ([-100, -200, -1], &[0.0][..]),
        ([i64::MIN, i64::MIN, -1], &[0.0]),
        ([-6, i64::MIN, -2], &[0.0]),
        ([-6, 0, -1], &[]),
        ([i64::MAX, i64::MIN, i64::MIN], &[4.0]),
        ([i64::MIN, i64::MAX, 1], &[0.0, 1.0, 2.0, 3.0, 4.0]),
        ([i64::MIN, i64::MAX, i64::MAX], &[0.0]),
        ([9, 99, 1], &[]),
        ([4, -6, -1], &[4.0, 3.0, 2.0, 1.0, 0.0]),
    ] {
        assert_eq!(sliced(bounds), want, "{bounds:?}");
    }
}

#[test]
fn ranges_reach_from_the_least_number_to_the_greatest() {
    let range = |bounds: [i64; 3]| {
        let inputs = ["start", "limit", "delta"].iter().zip(bounds).map(|(name, bound)| i(name, &[], &[bound]));
        answer(node("Range", &["start", "limit", "delta"]), inputs.collect())
    };
    let (least, greatest) = (i64::MIN, i64::MAX);
    for (bounds, want) in [
        ([least, greatest, greatest], &[least, -1, greatest - 1][..]),
        ([least, greatest, 1 << 62], &[least, -1 << 62, 0, 1 << 62]),
        ([greatest, least, least], &[greatest, -1]),
        ([greatest, least, 1], &[]),
    ] {
        let found = range(bounds).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.elements::<i64>(), Some(want), "{bounds:?}");
    }
    assert!(range([least, greatest, 1]).is_err_and(|error| error.contains("18446744073709551615")));
}

#[test]
fn only_lengths_of_sequences_that_are_there_are_reversed() {
    let reversed = |length: i64| {
        let node = node("ReverseSequence", &["x", "lengths"])
            .with(AttributeProto::int("time_axis", 0))
            .with(AttributeProto::int("batch_axis", 1));
        (node, vec![counted("x", &[3, 2]), i("lengths", &[2], &[1, length])])
    };
    for length in [i64::MIN, -1, 4, i64::MAX] {
        let (node, inputs) = reversed(length);
        refused(node, inputs);
    }
    for (length, want) in [(0, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), (3, [0.0, 5.0, 2.0, 3.0, 4.0, 1.0])] {
        let (node, inputs) = reversed(length);
        assert_eq!(floats(node, inputs), want);
    }
}

#[test]
fn windows_that_miss_a_step_make_nothing() {
    let pool = |operator: &str, rows: i64, window: i64, stride: i64| {
        let node = node(operator, &["x"])
            .with(AttributeProto::ints("kernel_shape", &[window, 1]))
            .with(AttributeProto::ints("strides", &[stride, 1]));
        answer(node, vec![counted("x", &[1, 1, rows, 5])])
    };
    // As in ONNX Runtime: for fewer rows, the definition gives a negative number of outputs.
    for operator in ["MaxPool", "AveragePool", "LpPool"] {
        for (rows, window, stride) in [(2, 3, 1), (1, 3, 2), (1, 4, 3)] {
            let made = pool(operator, rows, window, stride).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(made.shape().dims(), [1, 1, 0, 5], "{operator} {rows} {window} {stride}");
        }
        assert!(pool(operator, 2, 5, 1).is_err(), "{operator}");
    }
}

#[test]
fn infinities_of_one_sign_are_told_from_others() {
    let x = || f("x", &[6], &[INF, -INF, f32::NAN, f32::MAX, -0.0, f32::MIN]);
    for (negative, positive, want) in [(1, 1, [1, 1]), (1, 0, [0, 1]), (0, 1, [1, 0]), (0, 0, [0, 0])] {
        let node = node("IsInf", &["x"])
            .with(AttributeProto::int("detect_negative", negative))
            .with(AttributeProto::int("detect_positive", positive));
        let made = answer(node, vec![x()]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(made.bytes(), [&want[..], &[0; 4]].concat(), "{negative} {positive}");
    }
}

#[test]
fn an_index_is_one_hot_along_any_axis() {
    let given = || vec![i("x", &[2, 2], &[2, -3, 3, -4]), i("depth", &[], &[3]), f("values", &[2], &[0.5, -INF])];
    let hot = |row: usize| match row {
        0 => [0.5, 0.5, -INF],
        1 => [-INF, 0.5, 0.5],
        _ => [0.5; 3],
    };
    for axis in [-1, 0, 1] {
        let node = node("OneHot", &["x", "depth", "values"]).with(AttributeProto::int("axis", axis));
        let made = floats(node, given());
        for index in 0..4 {
            for place in 0..3 {
                let at = match axis {
                    0 => place * 4 + index,
                    1 => index / 2 * 6 + place * 2 + index % 2,
                    _ => index * 3 + place,
                };
                assert_eq!(made[at], hot(index)[place], "index {index}, position {place} along {axis}");
            }
        }
    }
}

/// A border around elements of a row that count from 1.
fn padded(mode: &str, count: usize, pads: [i64; 2]) -> Result<Vec<f32>, String> {
    let elements: Vec<f32> = (1..=count).map(|at| at as f32).collect();
    let node = node("Pad", &["x", "pads"]).with(AttributeProto::string("mode", mode));
    let made = answer(node, vec![f("x", &[count as i64], &elements), i("pads", &[2], &pads)])?;
    Ok(made.elements().expect("f32").to_vec())
}

/// Results of ONNX Runtime 1.31.
#[test]
fn a_border_may_cut_more_than_there_is_if_it_puts_back_one_value() {
    for (pads, want) in [
        ([-4, 2], &[0.0][..]),
        ([-4, 4], &[0.0; 3]),
        ([4, -4], &[0.0; 3]),
        ([5, -4], &[0.0; 4]),
        ([-3, 0], &[]),
        ([2, -3], &[0.0; 2]),
        ([-5, 7], &[0.0; 5]),
        ([i64::MIN, i64::MAX], &[0.0; 2]),
        ([-1, 2], &[2.0, 3.0, 0.0, 0.0]),
        ([2, -2], &[0.0, 0.0, 1.0]),
    ] {
        assert_eq!(padded("constant", 3, pads).as_deref(), Ok(want), "{pads:?}");
        if pads.iter().min() < Some(&-3) {
            for mode in ["edge", "reflect", "wrap"] {
                assert!(
                    padded(mode, 3, pads).is_err_and(|error| error.contains("cuts off more than the 3")),
                    "{mode} {pads:?}"
                );
            }
        }
    }
    for mode in ["constant", "edge", "reflect", "wrap"] {
        for pads in [[-2, -2], [-4, 0], [i64::MIN, 0], [i64::MIN, i64::MIN], [i64::MAX, i64::MAX]] {
            assert!(padded(mode, 3, pads).is_err(), "{mode} {pads:?}");
        }
    }
}

/// Results of ONNX Runtime 1.31.
#[test]
fn what_is_mirrored_or_repeated_is_what_was_not_cut() {
    for (mode, pads, want) in [
        ("edge", [-1, 2], &[2.0, 3.0, 3.0, 3.0][..]),
        ("edge", [2, -2], &[1.0; 3]),
        ("reflect", [1, -1], &[2.0, 1.0, 2.0]),
        ("wrap", [-1, 2], &[2.0, 3.0, 2.0, 3.0]),
        ("wrap", [1, -1], &[2.0, 1.0, 2.0]),
        ("wrap", [-2, 7], &[3.0; 8]),
        ("wrap", [4, 5], &[3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0]),
        ("wrap", [0, 7], &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]),
    ] {
        assert_eq!(padded(mode, 3, pads).as_deref(), Ok(want), "{mode} {pads:?}");
    }
    for (mode, count, pads) in [
        ("reflect", 3, [-1, 2]),
        ("reflect", 3, [2, -2]),
        ("reflect", 3, [-3, 3]),
        ("edge", 3, [-3, 3]),
        ("wrap", 3, [2, -3]),
        ("wrap", 0, [1, 1]),
    ] {
        assert!(padded(mode, count, pads).is_err(), "{mode} {pads:?}");
    }
    assert_eq!(padded("wrap", 1, [0, 100_000]), Ok(vec![1.0; 100_001]));
}

#[test]
fn a_region_of_an_image_that_is_not_there_is_refused() {
    let aligned = |image: i64| {
        let node = node("RoiAlign", &["x", "regions", "images"]).with(AttributeProto::int("sampling_ratio", 1));
        let inputs = vec![
            counted("x", &[2, 1, 2, 2]),
            f("regions", &[1, 4], &[0.0, 0.0, 2.0, 2.0]),
            i("images", &[1], &[image]),
        ];
        answer(node, inputs)
    };
    for (image, want) in [(0, 1.5), (1, 5.5)] {
        let made = aligned(image).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(made.elements::<f32>(), Some(&[want][..]));
    }
    // Four elements per image: a product with 2⁶² would wrap to 0.
    for image in [-1, -2, 2, 1 << 62, i64::MIN, i64::MAX] {
        assert!(aligned(image).is_err(), "image {image} of 2");
    }
}
