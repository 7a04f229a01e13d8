//! How near do element-wise kernels come to the memory's speed?
//!
//! Tensors of 64 MiB, rates in bytes read and written; `copy` is the standard library's copy of the same run. The small
//! tensors of `fixed` show what a call costs beside its elements.

use anabranch_bench::cpu::{CpuRun, copies};
use anabranch_bench::nodes::map;
use anabranch_kernels::cpu::Team;
use anabranch_kernels::op::{Binary, Expression, Literal, Register, Step, Unary};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const ROWS: usize = 16 * 1024;
const COLUMNS: usize = 1024;

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

fn large(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("elementwise");
    let dims = [ROWS, COLUMNS];
    copies(&mut group, ROWS * COLUMNS * size_of::<f32>());
    let cases = [
        ("add", Expression::binary(Binary::Add)),
        ("relu", Expression::unary(Unary::Relu)),
        ("exp", Expression::unary(Unary::Exp)),
        ("sigmoid", Expression::unary(Unary::Sigmoid)),
        ("tanh", Expression::unary(Unary::Tanh)),
        ("erf", Expression::unary(Unary::Erf)),
        ("log", Expression::unary(Unary::Log)),
        ("sin", Expression::unary(Unary::Sin)),
        ("power", Expression::binary(Binary::Power)),
        ("gelu", gelu()),
    ];
    for (name, expression) in cases {
        let mut run = CpuRun::new(&map(expression, &dims), &[]);
        group.throughput(Throughput::Bytes(run.bytes()));
        run.by_threads(&mut group, name);
    }
    group.finish();
}

fn fixed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fixed");
    let team = Team::solo();
    for elements in [1, 16, 256] {
        let cases =
            [("relu", Expression::unary(Unary::Relu)), ("add", Expression::binary(Binary::Add)), ("gelu", gelu())];
        for (name, expression) in cases {
            let mut run = CpuRun::new(&map(expression, &[elements]), &[]);
            group.bench_function(BenchmarkId::new(name, elements), |bencher| bencher.iter(|| run.call(&team)));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = large, fixed
}
criterion_main!(benches);
