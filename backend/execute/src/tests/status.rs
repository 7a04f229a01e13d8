//! Indices on a GPU: they choose and are found there. A run with an index that a kernel refuses fails as it does on a
//! CPU, and the next run is right.

use super::{gpu, pool};
use crate::{DevicePool, DynamicExecutor, ExecError, Executor, Forecast, Kernels, RunOptions, RunOutput};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::{NodeId, Origin, Program, floats};
use anabranch_kernels::op::{ArgReduce, Gather, Op, TopK};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_placement_core::cost::TransferCurve;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::tasks::Residence;
use anabranch_plan::test_programs::{Maker, PlacedProgram, relu};
use anabranch_plan::{HOST, PlanOptions};
use std::sync::Arc;

const GPU: DeviceId = DeviceId(1);

/// Two choices by data, with nodes before, between and after them, all on one device. The host reads the last node;
/// the rows that the first choice makes stay on `home`.
fn choices(device: u32, home: DeviceId) -> PlacedProgram {
    let mut maker = Maker::new();
    let (table, rows, columns) = (maker.input(&[7, 5]), maker.integers(&[3]), maker.integers(&[2]));
    let gather = |axis| Op::Gather(Gather { axis, elementwise: false });
    let table = maker.node(relu(), &[table], &[7, 5]);
    let chosen = maker.node(gather(0), &[table, rows], &[3, 5]);
    let between = maker.node(relu(), &[chosen], &[3, 5]);
    let narrow = maker.node(gather(1), &[between, columns], &[3, 2]);
    let last = maker.node(relu(), &[narrow], &[3, 2]);
    let residence = Residence { inputs: vec![HOST; 3], outputs: vec![HOST, home] };
    PlacedProgram::with_residence(maker.finish(&[last, between]), &["cpu", "gpu"], &[device; 5], &residence)
}

fn kernels(placed: &PlacedProgram) -> Arc<Kernels> {
    Arc::new(Kernels::new(Arc::new(placed.program.clone())))
}

fn executor(pool: &Arc<DevicePool>, placed: &PlacedProgram) -> Executor {
    super::executor_on(pool, placed, kernels(placed), &PlanOptions::default())
}

/// Inputs with these rows and columns chosen.
fn inputs(rows: [i64; 3], columns: [i64; 2]) -> Vec<Tensor> {
    let elements: Vec<f32> = (0..35).map(|at| at as f32 * 0.5 - 4.0).collect();
    let table = Tensor::from_elements(Shape::new([7, 5]).expect("small"), &elements).expect("35");
    vec![table, Tensor::from_i64s(&rows), Tensor::from_i64s(&columns)]
}

/// Runs with values outside of their axes, and how the error reads: node, position and axis.
const BAD: [([i64; 3], [i64; 2], &str, &str); 5] = [
    ([0, 7, 3], [0, 1], "node1", "the index at position 1 is outside an axis of 7"),
    ([0, 1, -8], [0, 1], "node1", "the index at position 2 is outside an axis of 7"),
    ([i64::MIN, 1 << 32, 2], [0, 1], "node1", "the index at position 0 is outside an axis of 7"),
    ([0, 1, 2], [0, 5], "node3", "the index at position 1 is outside an axis of 5"),
    // The first node is named, although the second one refuses a value, too.
    ([0, 1, 9], [6, -6], "node1", "the index at position 2 is outside an axis of 7"),
];

#[track_caller]
fn assert_refused(error: &ExecError, node: &str, text: &str) {
    assert_eq!(
        (error.kind, error.node.as_deref(), error.device.as_deref()),
        (ErrorKind::Kernel, Some(node), Some("gpu1"))
    );
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn values_that_are_refused_end_a_run_and_the_next_run_is_right() {
    let Some(_) = gpu() else { return };
    let (on_cpu, on_gpu) = (choices(0, HOST), choices(1, GPU));
    let pool = pool(&on_gpu, 1);
    let (expected, executor) = (executor(&pool, &on_cpu), executor(&pool, &on_gpu));
    let mut output = RunOutput::default();
    for (profile, (rows, columns, node, text)) in [false, true].into_iter().flat_map(|p| BAD.map(|bad| (p, bad))) {
        let options = RunOptions::default().with_profile(profile);
        let bad = inputs(rows, columns);
        let error = executor.run_resident(&bad.iter().collect::<Vec<_>>(), &[], &options, &mut output);
        assert_refused(&error.expect_err("a value is outside"), node, text);
        let kind = expected.run(&bad, &options).expect_err("a value is outside").kind;
        assert_eq!(kind, ErrorKind::Kernel, "as on a CPU");
        let good = inputs([6, -7, 3], [-1, 0]);
        executor.run_resident(&good.iter().collect::<Vec<_>>(), &[], &options, &mut output).expect("all are within");
        let host = expected.run(&good, &options).expect("all are within");
        assert!(output.outputs[0].same_bits(&host.outputs[0]));
        assert!(output.resident[0].read().expect("it is open").same_bits(&host.outputs[1]));
        for (taken, memory) in output.peaks.iter().zip(executor.plan().memory().devices()) {
            assert!(*taken <= memory.peak());
        }
    }
}

#[test]
fn values_are_refused_when_nodes_are_scheduled_at_run_time() {
    let Some(_) = gpu() else { return };
    let placed = choices(1, HOST);
    let pool = pool(&placed, 1);
    let link = TransferCurve::affine(1e-6, 1e9);
    let forecast = Forecast { nodes: vec![vec![Some(1.0), Some(1e-6)]; 5], links: vec![vec![link; 2]; 2] };
    let executor = DynamicExecutor::new(kernels(&placed), &pool, placed.devices.clone(), forecast);
    let executor = executor.expect("all devices are there");
    let expected = self::executor(&pool, &choices(0, HOST));
    for (rows, columns, node, text) in BAD {
        let error = executor.run(&inputs(rows, columns), &RunOptions::default()).expect_err("a value is outside");
        assert_refused(&error, node, text);
        let good = inputs([6, -7, 3], [-1, 0]);
        let [run, host] = [
            executor.run(&good, &RunOptions::default()).expect("all are within"),
            expected.run(&good, &RunOptions::default()).expect("all are within"),
        ];
        assert!(run.outputs.iter().zip(&host.outputs).all(|(run, host)| run.same_bits(host)));
    }
}

/// Rows that data choose, the greatest elements of these rows, and rows that the indices of these elements choose: the
/// greatest element alone, and three elements in order.
fn searches(device: u32) -> PlacedProgram {
    let integers = |dims: &[usize]| TensorSpec::new(DType::I64, floats(dims).shape);
    let gather = || Op::Gather(Gather { axis: 0, elementwise: false });
    let mut program = Program::default();
    let table = program.add_input("table", floats(&[6, 6]));
    let rows = program.add_input("rows", integers(&[2]));
    let chosen = program.add_node("chosen", gather(), &[table, rows], floats(&[2, 6]));
    let best = ArgReduce { axis: 1, greatest: true, last: false };
    let best = program.add_node("best", Op::ArgReduce(best), &[chosen], integers(&[2]));
    let next = program.add_node("next", gather(), &[table, best], floats(&[2, 6]));
    let top = TopK { axis: 1, largest: true };
    let values = program.add_node("top", Op::TopK(top), &[chosen], floats(&[2, 3]));
    let indices = program.add_value("indices", integers(&[2, 3]), Origin::Node(NodeId(3)));
    program.nodes[3].outputs.push(indices);
    program.nodes[3].spec.outputs.push(integers(&[2, 3]));
    let nexts = program.add_node("nexts", gather(), &[table, indices], floats(&[2, 3, 6]));
    for (name, value) in [("next", next), ("values", values), ("indices", indices), ("nexts", nexts)] {
        program.add_output(name, value);
    }
    PlacedProgram::new(program, &["cpu", "gpu"], &[device; 5])
}

#[test]
fn indices_that_a_gpu_finds_choose_there() {
    let Some(_) = gpu() else { return };
    let (on_cpu, on_gpu) = (searches(0), searches(1));
    let pool = pool(&on_gpu, 1);
    let (expected, executor) = (executor(&pool, &on_cpu), executor(&pool, &on_gpu));
    assert_eq!(executor.plan().transfers().len(), 6, "two inputs and four outputs");
    for (profile, rows) in [(false, [0, 3]), (true, [-1, 5]), (false, [2, 2])] {
        let options = RunOptions::default().with_profile(profile);
        let elements: Vec<f32> = (0..36).map(|at| ((at * 29 + 5) % 17) as f32 - 8.0).collect();
        let table = Tensor::from_elements(Shape::new([6, 6]).expect("small"), &elements).expect("36");
        let given = [table, Tensor::from_i64s(&rows)];
        let [host, gpu] = [&expected, &executor].map(|executor| executor.run(&given, &options).expect("sound"));
        assert_eq!(gpu.outputs.len(), 4);
        assert!(gpu.outputs.iter().zip(&host.outputs).all(|(gpu, host)| gpu.same_bits(host)), "{rows:?}");
    }
}
