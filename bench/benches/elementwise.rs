//! Cost of a call of an element-wise node, without its elements.

use anabranch_bench::cpu::CpuRun;
use anabranch_bench::nodes::{gelu, map};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::op::{Binary, Expression, Unary};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

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
    targets = fixed
}
criterion_main!(benches);
