//! How near do element-wise and row kernels come to the memory's speed?
//!
//! Tensors of 64 MiB, rates in bytes read and written; `copy` is the standard library's copy of the same run. The small
//! tensors of `fixed` show what a call costs beside its elements.

use anabranch_kernels::cpu::{Call, CpuKernel, Team, prepare};
use anabranch_kernels::op::{Binary, Domain, Expression, Literal, Map, NodeSpec, Op, Register, Step, Unary};
use anabranch_kernels::{Buffer, DType, Shape, TensorSpec};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

const ROWS: usize = 16 * 1024;
const COLUMNS: usize = 1024;

fn map(expression: Expression) -> Op {
    Op::Map(Map { domain: Domain::F32, expression })
}

/// `x / 2 · (1 + erf(x / √2))`, as exporters write it.
fn gelu() -> Expression {
    let steps = vec![
        Step::Constant(Literal::Float(std::f64::consts::SQRT_2)),
        Step::Binary(Binary::Divide, Register(0), Register(1)),
        Step::Unary(Unary::Erf, Register(2)),
        Step::Constant(Literal::Float(1.0)),
        Step::Binary(Binary::Add, Register(3), Register(4)),
        Step::Binary(Binary::Multiply, Register(0), Register(5)),
        Step::Constant(Literal::Float(0.5)),
        Step::Binary(Binary::Multiply, Register(6), Register(7)),
    ];
    Expression::new(1, steps).expect("each step reads earlier ones")
}

/// A kernel with its tensors.
struct Run {
    kernel: Box<dyn CpuKernel>,
    inputs: Vec<Buffer>,
    output: Buffer,
    scratch: Buffer,
    rows: usize,
}

impl Run {
    fn new(op: Op, inputs: usize, dims: &[usize]) -> Self {
        let spec = TensorSpec::new(DType::F32, Shape::new(dims).expect("fits"));
        let node = NodeSpec { op, inputs: vec![spec.clone(); inputs], outputs: vec![spec.clone()] };
        let kernel = prepare(&node, &vec![None; inputs]).expect("a sound node");
        let input = || {
            let mut buffer = Buffer::zeroed(spec.bytes());
            let values: &mut [f32] = bytemuck::cast_slice_mut(buffer.bytes_mut());
            values.iter_mut().enumerate().for_each(|(i, x)| *x = (i * 7919 % 1601) as f32 / 200.0 - 4.0);
            buffer
        };
        let mut output = Buffer::zeroed(spec.bytes());
        output.bytes_mut().fill(1);
        let scratch = Buffer::zeroed(kernel.scratch_bytes());
        let rows = node.row_plan().map_or(1, |plan| plan.rows);
        Self { kernel, inputs: (0..inputs).map(|_| input()).collect(), output, scratch, rows }
    }

    fn bytes(&self) -> u64 {
        ((self.inputs.len() + 1) * self.output.len()) as u64
    }

    fn call(&mut self, team: &Team) {
        let [a, b] = [0, 1].map(|i| self.inputs.get(i).map_or(&[][..], Buffer::bytes));
        let inputs = [a, b];
        let mut outputs = [self.output.bytes_mut()];
        let call = Call {
            inputs: &inputs[..self.inputs.len()],
            outputs: &mut outputs,
            rows: 0..self.rows,
            scratch: self.scratch.bytes_mut(),
            team,
        };
        black_box(self.kernel.run(call)).expect("no value makes it undefined");
    }
}

fn large(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("elementwise");
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(700));
    let dims = [ROWS, COLUMNS];
    group.throughput(Throughput::Bytes((2 * ROWS * COLUMNS * 4) as u64));
    let (from, mut to) = (vec![1u8; ROWS * COLUMNS * 4], vec![2u8; ROWS * COLUMNS * 4]);
    group.bench_function("copy", |bencher| bencher.iter(|| black_box(&mut to).copy_from_slice(black_box(&from))));
    drop((from, to));
    let cases = [
        ("add", map(Expression::binary(Binary::Add)), 2),
        ("relu", map(Expression::unary(Unary::Relu)), 1),
        ("exp", map(Expression::unary(Unary::Exp)), 1),
        ("sigmoid", map(Expression::unary(Unary::Sigmoid)), 1),
        ("tanh", map(Expression::unary(Unary::Tanh)), 1),
        ("erf", map(Expression::unary(Unary::Erf)), 1),
        ("log", map(Expression::unary(Unary::Log)), 1),
        ("sin", map(Expression::unary(Unary::Sin)), 1),
        ("power", map(Expression::binary(Binary::Power)), 2),
        ("gelu", map(gelu()), 1),
    ];
    for (name, op, inputs) in cases {
        let mut run = Run::new(op, inputs, &dims);
        group.throughput(Throughput::Bytes(run.bytes()));
        for threads in [1, 2] {
            let team = Team::new(threads, |_| {});
            group.bench_function(BenchmarkId::new(name, threads), |bencher| bencher.iter(|| run.call(&team)));
        }
    }
    group.finish();
}

fn fixed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fixed");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(300));
    let team = Team::solo();
    for elements in [1, 16, 256] {
        let cases = [
            ("relu", map(Expression::unary(Unary::Relu)), 1),
            ("add", map(Expression::binary(Binary::Add)), 2),
            ("gelu", map(gelu()), 1),
        ];
        for (name, op, inputs) in cases {
            let mut run = Run::new(op, inputs, &[elements]);
            group.bench_function(BenchmarkId::new(name, elements), |bencher| bencher.iter(|| run.call(&team)));
        }
    }
    group.finish();
}

criterion_group!(benches, large, fixed);
criterion_main!(benches);
