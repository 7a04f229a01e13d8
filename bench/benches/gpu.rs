//! Speed of the GPU's kernels: products, convolutions, element-wise nodes and reductions.
//!
//! It uses a real GPU if there is one, else the software adapter, whose speed means nothing; the first line names the
//! adapter. Runs are submitted in batches, so that the kernel is measured and not the submission. An "element" is a
//! multiply-add; rates in bytes count bytes read and written.

use anabranch_bench::gpu::{GpuRun, open};
use anabranch_bench::nodes::{LAYERS, map, matmul, reductions};
use anabranch_kernels::gpu::Gpu;
use anabranch_kernels::op::{Binary, Expression, NodeSpec, Unary};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn kernels(criterion: &mut Criterion) {
    let Some(gpu) = open() else { return println!("no GPU here, not even a software one") };
    for [m, n, k] in [[1024, 1024, 1024], [4096, 4096, 4096], [128, 768, 768], [1, 4096, 4096]] {
        let work = Throughput::Elements((m * n * k) as u64);
        measure(criterion, &gpu, "gpu/matmul", &format!("{m}x{n}x{k}"), &matmul([m, n, k]), Some(work));
    }
    for layer in LAYERS {
        let work = Throughput::Elements(layer.multiply_adds());
        measure(criterion, &gpu, "gpu/conv", layer.name, &layer.node(), Some(work));
    }
    // A real GPU's caches are larger than the data that the software adapter can process in reasonable time.
    let rows = if is_software(&gpu) { 1024 } else { 64 * 1024 };
    let dims = [rows, 1024];
    let cases = [
        ("add", map(Expression::binary(Binary::Add), &dims)),
        ("relu", map(Expression::unary(Unary::Relu), &dims)),
        ("tanh", map(Expression::unary(Unary::Tanh), &dims)),
    ];
    for (name, node) in cases.into_iter().chain(reductions(dims)) {
        measure(criterion, &gpu, "gpu/memory", name, &node, None);
    }
}

/// Measures one node; its throughput is `work`, or the bytes that it moves. Skips nodes that would take minutes in
/// software.
fn measure(criterion: &mut Criterion, gpu: &Gpu, group: &str, name: &str, node: &NodeSpec, work: Option<Throughput>) {
    if is_software(gpu) && matches!(work, Some(Throughput::Elements(2_000_000_000..))) {
        return;
    }
    let run = match GpuRun::new(gpu, node) {
        Ok(run) => run,
        Err(error) => return println!("{group}/{name}: {error}"),
    };
    let mut group = criterion.benchmark_group(group);
    group.throughput(work.unwrap_or(Throughput::Bytes(run.bytes())));
    group.bench_function(name, |bencher| bencher.iter_custom(|runs| run.time(runs)));
    group.finish();
}

fn is_software(gpu: &Gpu) -> bool {
    gpu.device().adapter_info().device_type == wgpu::DeviceType::Cpu
}

criterion_group! {
    name = benches;
    config = anabranch_bench::short();
    targets = kernels
}
criterion_main!(benches);
