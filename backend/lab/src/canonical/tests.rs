//! Volumes of every op are exact, graphs are canonical and have a streaming depth, and sizes are the paper's.

use super::product::{ProductKind, product_kind};
use super::*;
use anabranch_ir::testing::{Maker, add, map, relu};
use anabranch_kernels::op::{
    Concat, Conv, ConvTranspose, Coordinates, Expression, Gather, Interpolation, MatMul, Normalize, Pool, PoolKind,
    Recurrent, RecurrentKind, Reduce, ReduceKind, Resize, Slice, Softmax, Transpose, Unary,
};
use anabranch_onnx::import::{self, Dim};
use anabranch_onnx::lower::{LowerOptions, Rewrites, lower};
use anabranch_placement_core::streaming::{self, NodeKind, StreamingDepth};
use std::collections::BTreeMap;

fn converted(program: &Program, tasks: usize) -> CanonicalProgram {
    let converted = CanonicalProgram::of(program, Granularity { product_tasks: tasks }).expect("canonical");
    StreamingDepth::of(&converted.graph).expect("no component waits for itself");
    converted
}

/// Returns the role of a node: its name without the number and name of the program's node.
fn role(node: &streaming::Node) -> &str {
    node.name().split_once(": ").expect("a role").1
}

/// Returns the nodes as `role in>out`, memory in brackets.
fn nodes(converted: &CanonicalProgram) -> Vec<String> {
    let text = |node: &streaming::Node| {
        let text = format!("{} {}>{}", role(node), node.input(), node.output());
        if node.is_memory() { format!("[{text}]") } else { text }
    };
    converted.graph.nodes().iter().map(text).collect()
}

/// Returns the edges by the roles of their ends.
fn edges(converted: &CanonicalProgram) -> Vec<String> {
    let graph = &converted.graph;
    let text = |&(from, to): &_| format!("{} > {}", role(graph.node(from)), role(graph.node(to)));
    let mut edges: Vec<String> = graph.edges().iter().map(text).collect();
    edges.sort();
    edges
}

/// Returns a program of one op on inputs of these sizes.
fn one(op: Op, inputs: &[&[usize]], output: &[usize]) -> Program {
    let mut maker = Maker::new();
    let inputs: Vec<_> = inputs.iter().map(|dims| maker.input(dims)).collect();
    let made = maker.node(op, &inputs, output);
    maker.finish(&[made])
}

fn conv(group: usize) -> Op {
    Op::Conv(Conv { strides: [1; 2], pads: [1; 4], dilations: [1; 2], group, epilogue: None })
}

/// Returns the elements that the tasks of products read from each side: one multiplication each.
fn multiplications(converted: &CanonicalProgram) -> u64 {
    let roles = ["columns", "rows", "outer", "channels"];
    let product = |node: &&streaming::Node| roles.iter().any(|known| role(node).starts_with(known));
    converted.graph.nodes().iter().filter(product).map(streaming::Node::input).sum()
}

#[test]
fn products_do_half_the_floating_point_operations_whatever_their_granularity() {
    let transposed = || MatMul { transpose_a: true, transpose_b: true, epilogue: None, ..MatMul::default() };
    let transpose = ConvTranspose { strides: [2; 2], pads: [0; 4], dilations: [1; 2], group: 2, epilogue: None };
    type Case<'a> = (Op, &'a [usize], &'a [usize], &'a [usize]);
    let cases: [Case<'_>; 8] = [
        (Op::MatMul(MatMul::default()), &[6, 20], &[20, 10], &[6, 10]),
        (Op::MatMul(MatMul::default()), &[2, 3, 16, 5], &[2, 3, 5, 7], &[2, 3, 16, 7]),
        (Op::MatMul(transposed()), &[3, 5, 4], &[9, 5], &[3, 4, 9]),
        (Op::MatMul(MatMul::default()), &[1, 200], &[200, 3], &[1, 3]),
        (conv(1), &[2, 3, 8, 8], &[10, 3, 3, 3], &[2, 10, 8, 8]),
        (conv(1), &[1, 16, 4, 4], &[1, 16, 3, 3], &[1, 1, 4, 4]),
        (conv(6), &[1, 6, 8, 8], &[6, 1, 3, 3], &[1, 6, 8, 8]),
        (Op::ConvTranspose(transpose), &[1, 4, 5, 5], &[4, 3, 2, 2], &[1, 6, 10, 10]),
    ];
    for (op, a, b, output) in cases {
        let program = one(op, &[a, b], output);
        let flops = program.nodes[0].spec.work().flops;
        for tasks in [usize::MAX, 7, 4, 1] {
            let converted = converted(&program, tasks);
            assert_eq!(2.0 * multiplications(&converted) as f64, flops, "{a:?} {b:?} in {tasks} tasks");
        }
    }
}

/// Figure 3 ➁ and ➀.
#[test]
fn products_by_columns_stream_one_matrix_and_store_the_other() {
    let program = one(Op::MatMul(MatMul::default()), &[&[4, 8], &[8, 3]], &[4, 3]);
    let found = nodes(&converted(&program, usize::MAX));
    assert_eq!(found[2..], ["rows 0 24>3", "rows 1 24>3", "rows 2 24>3", "rows 3 24>3"]);
    let program = one(Op::MatMul(MatMul::default()), &[&[3, 8], &[8, 4]], &[3, 4]);
    let found = nodes(&converted(&program, usize::MAX));
    let expected = [
        "[v0 as 24 0>24]",
        "[v1 as 24 0>24]",
        "columns 0 24>3",
        "columns 1 24>3",
        "columns 2 24>3",
        "columns 3 24>3",
        "interleave 3>12",
    ];
    assert_eq!(found, expected);
    let found = nodes(&converted(&program, 1));
    assert_eq!(found, ["[v0 as 96 0>96]", "[v1 as 96 0>96]", "columns 0 96>12"]);
    // Three columns and one column are different volumes, which are copied into the whole separately.
    let mut maker = Maker::new();
    let (a, b) = (maker.input(&[3, 2]), maker.input(&[2, 4]));
    let product = maker.node(Op::MatMul(MatMul::default()), &[a, b], &[3, 4]);
    let made = maker.node(relu(), &[product], &[3, 4]);
    let found = nodes(&converted(&maker.finish(&[made]), 2));
    assert_eq!(found[2..], ["columns 0 12>6", "columns 1 12>6", "[v2 as 12 6>12]", "elements 12>12"]);
}

/// Figure 3 ➂: a product whose depth is much greater than its result.
#[test]
fn products_by_depth_add_up_outer_products() {
    assert_eq!(product_kind(1, 9, 2), ProductKind::Columns);
    assert_eq!(product_kind(1, 12, 2), ProductKind::Depth);
    let program = one(Op::MatMul(MatMul::default()), &[&[1, 12], &[12, 2]], &[1, 2]);
    let found = converted(&program, usize::MAX);
    let tasks: Vec<_> = found.graph.nodes().iter().filter(|node| !node.is_memory()).collect();
    assert_eq!(tasks.len(), 2 * 12 - 1);
    assert!(tasks.iter().all(|task| task.kind() == NodeKind::Elementwise && task.output() == 2));
    assert_eq!(converted(&program, 5).graph.task_ids().count(), 4 + 3);
}

/// Figure 5, with memory as the paper requires: the input is read again, and the exponentials wait for their sum.
#[test]
fn softmax_is_that_of_figure_5() {
    let mut maker = Maker::new();
    let input = maker.input(&[4, 8]);
    let before = maker.node(relu(), &[input], &[4, 8]);
    let made = maker.node(Op::Softmax(Softmax { axis: 1, log: false }), &[before], &[4, 8]);
    let found = converted(&maker.finish(&[made]), usize::MAX);
    assert_eq!(
        nodes(&found),
        [
            "[v0 as 32 0>32]",
            "elements 32>32",
            "greatest 32>4",
            "[greatest, repeated 4>32]",
            "difference 32>32",
            "exponential 32>32",
            "sum 32>4",
            "[sum, repeated 4>32]",
            "quotient 32>32",
            "[elements, kept 32>32]",
            "[exponential, kept 32>32]",
        ]
    );
    assert_eq!(
        edges(&found),
        [
            "difference > exponential",
            "elements > elements, kept",
            "elements > greatest",
            "elements, kept > difference",
            "exponential > exponential, kept",
            "exponential > sum",
            "exponential, kept > quotient",
            "greatest > greatest, repeated",
            "greatest, repeated > difference",
            "sum > sum, repeated",
            "sum, repeated > quotient",
            "v0 as 32 > elements",
        ]
    );
}

/// Figure 4 ➀.
#[test]
fn normalisation_is_that_of_figure_4() {
    let norm = |center| Op::Normalize(Normalize { axis: 1, epsilon: 1e-5, center, epilogue: None });
    let found = nodes(&converted(&one(norm(false), &[&[2, 16]], &[2, 16]), 1));
    assert_eq!(found, ["[v0 as 32 0>32]", "norm 32>2", "[norm, repeated 2>32]", "quotient 32>32"]);
    let found = nodes(&converted(&one(norm(true), &[&[2, 16]], &[2, 16]), 1));
    assert_eq!(found.len(), 4 + 3 + 1, "{found:?}");
}

#[test]
fn operands_are_repeated_by_upsamplers_or_memory() {
    let mut maker = Maker::new();
    let (a, b, c) = (maker.input(&[4, 1]), maker.input(&[6]), maker.input(&[4, 6]));
    let (a, b) = (maker.node(relu(), &[a], &[4, 1]), maker.node(relu(), &[b], &[6]));
    let made = maker.node(add(), &[a, c], &[4, 6]);
    let made = maker.node(add(), &[made, b], &[4, 6]);
    let found = nodes(&converted(&maker.finish(&[made]), 1));
    assert!(found.contains(&"repeat 0 4>24".into()) && found.contains(&"[v4 as 24 6>24]".into()), "{found:?}");
}

/// A residual edge: without memory it would meet a task that waits for memory which the edge's stream fills.
#[test]
fn residual_edges_are_stored() {
    let mut maker = Maker::new();
    let (x, w) = (maker.input(&[1, 3, 4, 4]), maker.input(&[3, 3, 3, 3]));
    let first = maker.node(relu(), &[x], &[1, 3, 4, 4]);
    let deep = maker.node(conv(1), &[first, w], &[1, 3, 4, 4]);
    let made = maker.node(add(), &[first, deep], &[1, 3, 4, 4]);
    let found = converted(&maker.finish(&[made]), usize::MAX);
    assert!(edges(&found).contains(&"elements, kept > elements".into()), "{:?}", edges(&found));
    let sum = found.graph.node_ids().last().expect("some");
    assert_eq!(found.origins[sum.index()], NodeId(0));
}

#[test]
fn views_are_memory_and_lines_that_do_not_follow_each_other_are_reordered() {
    let mut maker = Maker::new();
    let (x, table) = (maker.input(&[4, 6]), maker.input(&[9, 6]));
    let x = maker.node(relu(), &[x], &[4, 6]);
    let turned = maker.node(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[x], &[6, 4]);
    let cut = maker.node(Op::Slice(Slice { starts: vec![0, 1], steps: vec![1, 1] }), &[turned], &[6, 3]);
    let chosen = maker.node(Op::Gather(Gather { axis: 0, elementwise: false }), &[table, table], &[3, 6]);
    let both = maker.node(Op::Concat(Concat { axis: 0 }), &[cut, x, chosen], &[1, 60]);
    let sum = maker.node(Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: vec![0] }), &[x], &[6]);
    let last = maker.node(map(Expression::unary(Unary::Abs)), &[both], &[1, 60]);
    let found = nodes(&converted(&maker.finish(&[last, sum]), 1));
    let expected = [
        "[v0 as 24 0>24]",
        "elements 24>24",
        "[v2 as 24 24>24]",
        "reduction 24>6",
        "[v6 as 60 24>60]",
        "elements 60>60",
    ];
    assert_eq!(found, expected);
}

#[test]
fn other_ops_keep_their_volumes() {
    let pool = Pool { kind: PoolKind::Max, window: [3; 2], strides: [2; 2], pads: [1; 4], dilations: [1; 2] };
    let found = nodes(&converted(&one(Op::Pool(pool), &[&[1, 2, 8, 8]], &[1, 2, 4, 4]), 1));
    assert_eq!(found, ["[v0 as 128 0>128]", "windows 128>32"]);
    let resize =
        |interpolation| Op::Resize(Resize { interpolation, coordinates: Coordinates::HalfPixel, scales: [2.0; 2] });
    let found = nodes(&converted(&one(resize(Interpolation::Linear), &[&[1, 2, 4, 4]], &[1, 2, 8, 8]), 1));
    assert_eq!(found, ["[v0 as 512 0>512]", "interpolation 512>128"]);
}

#[test]
fn recurrent_layers_are_steps_that_wait_for_each_other() {
    let (steps, batch, units) = (5, 2, 3);
    for (kind, gates, tasks_a_step) in [
        (RecurrentKind::Gru { linear_before_reset: true }, 3, 7),
        (RecurrentKind::Gru { linear_before_reset: false }, 3, 8),
        (RecurrentKind::Lstm, 4, 10),
        (RecurrentKind::Rnn, 1, 2),
    ] {
        let mut maker = Maker::new();
        let mut inputs = vec![maker.input(&[steps, batch, gates * units]), maker.input(&[gates * units, units])];
        inputs.extend([maker.input(&[gates * units]), maker.input(&[batch, units]), maker.input(&[batch, units])]);
        let made = maker.node(Op::Recurrent(Recurrent::new(kind)), &inputs, &[steps, batch, units]);
        let last = maker.node(relu(), &[made], &[steps, batch, units]);
        let found = converted(&maker.finish(&[last]), 1);
        assert_eq!(found.graph.task_ids().count(), steps * tasks_a_step + 1, "{kind:?}");
        let products = found.graph.nodes().iter().filter(|node| role(node).contains("product"));
        assert_eq!(products.map(streaming::Node::input).sum::<u64>() as usize, steps * batch * gates * units * units);
    }
}

/// The graph has one task for each channel of its convolutions (26,560) and each class. The paper's encoder has the
/// same number of columns. The paper's graph of this network has 54,252 nodes, but its construction is not published.
#[test]
fn a_residual_network_of_50_layers_is_of_the_paper_s_order_of_size() {
    let program = residual_network(50).expect("known");
    let found = converted(&program, usize::MAX);
    let flops: f64 = program
        .nodes
        .iter()
        .filter(|node| matches!(node.spec.op, Op::Conv(_) | Op::MatMul(_)))
        .map(|node| node.spec.work().flops)
        .sum();
    assert_eq!(2.0 * multiplications(&found) as f64, flops);
    let graph = &found.graph;
    let channels = graph.nodes().iter().filter(|node| role(node).starts_with("channels")).count();
    assert_eq!((channels, graph.task_ids().count()), (26_560, 27_681));
    assert!(residual_network(51).is_none());
    let coarse = converted(&program, 16);
    assert!(coarse.graph.task_ids().count() < 1_200);
}

#[test]
fn what_cannot_stream_is_refused_with_the_node_s_name() {
    let program = one(relu(), &[&[0, 4]], &[0, 4]);
    let error = CanonicalProgram::of(&program, Granularity::default()).expect_err("empty").to_string();
    assert!(error.contains("\"node0\"") && error.contains("at least one element"), "{error}");
    let program = one(conv(1), &[&[1, 3], &[3, 3]], &[1, 3]);
    let error = CanonicalProgram::of(&program, Granularity::default()).expect_err("no image").to_string();
    assert!(error.contains("is a conv"), "{error}");
}

#[test]
fn every_bundled_model_is_canonical() {
    for name in ["convnet", "decoder", "encoder", "fire", "gru", "lstm", "mlp", "mobile", "unet", "vit"] {
        let path = format!("{}/../../tests/data/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
        let model = import::load(path.as_ref()).expect("bundled");
        let symbol = |dim: &Dim| match dim {
            Dim::Symbol(name) => Some((name.clone(), 4)),
            Dim::Known(_) | Dim::Unknown => None,
        };
        let dims: BTreeMap<String, usize> =
            model.inputs.iter().flat_map(|input| &input.dims).flatten().filter_map(symbol).collect();
        for fuse in [Rewrites::NONE, Rewrites::ALL] {
            let options = LowerOptions { fuse, dims: dims.clone(), ..LowerOptions::default() };
            let program = lower(&model, &options).expect("lowered");
            for tasks in [usize::MAX, 3] {
                assert!(converted(&program, tasks).graph.work() > 0, "{name}");
            }
        }
    }
}
