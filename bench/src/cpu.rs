//! A node with its tensors, ready to run on the CPU.

use crate::nodes::values;
use anabranch_kernels::cpu::{Call, CpuKernel, Team, prepare_with};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{Buffer, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId};
use std::hint::black_box;

/// Returns a buffer of `bytes` bytes, and a function that copies another buffer into it, in parts by the threads of a
/// team: the upper limit for memory-bound work.
pub fn copy(bytes: usize, team: &Team) -> (Buffer, impl Fn(&mut Buffer)) {
    let [from, to] = [touched(bytes), touched(bytes)];
    let copy = move |to: &mut Buffer| {
        team.run_pieces(to.bytes_mut(), COPIED, &|index, to| {
            to.copy_from_slice(&from.bytes()[index * COPIED..][..to.len()]);
        });
        black_box(to.bytes());
    };
    (to, copy)
}

/// Bytes of a part that one thread copies.
const COPIED: usize = 1 << 18;

/// Returns a buffer whose pages exist.
pub fn touched(bytes: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    buffer.bytes_mut().fill(1);
    buffer
}

/// Prepared kernel and its scratch memory.
pub struct PreparedKernel {
    kernel: Box<dyn CpuKernel>,
    scratch: Buffer,
    rows: usize,
}

impl PreparedKernel {
    /// Prepares `node` with these constant inputs; missing inputs are not constant.
    pub fn new(node: &NodeSpec, constants: &[Option<Tensor>]) -> Self {
        let constants: Vec<_> = (0..node.inputs.len()).map(|at| constants.get(at).cloned().flatten()).collect();
        let kernel = prepare_with(node, &constants).expect("a sound node");
        let mut scratch = Buffer::zeroed(kernel.scratch_bytes());
        scratch.bytes_mut().fill(1);
        Self { kernel, scratch, rows: node.row_plan().map_or(1, |plan| plan.rows) }
    }

    /// Runs the whole node, of one output, once.
    pub fn run(&mut self, inputs: &[&[u8]], output: &mut [u8], team: &Team) {
        self.run_all(inputs, &mut [output], team);
    }

    /// Runs the whole node once.
    pub fn run_all<'a>(&'a mut self, inputs: &'a [&'a [u8]], outputs: &'a mut [&'a mut [u8]], team: &'a Team) {
        let scratch = self.scratch.bytes_mut();
        black_box(self.kernel.run(Call { inputs, outputs, rows: 0..self.rows, scratch, team }))
            .expect("no value makes it undefined");
    }
}

/// Prepared kernel with its inputs and outputs, all touched before.
pub struct CpuRun {
    prepared: PreparedKernel,
    inputs: Vec<Tensor>,
    outputs: Vec<Buffer>,
}

impl CpuRun {
    /// Measures it on one thread and on two threads.
    pub fn by_threads(&mut self, group: &mut BenchmarkGroup<'_, WallTime>, name: &str) {
        for threads in [1, 2] {
            let team = Team::new(threads, |_| {});
            group.bench_function(BenchmarkId::new(name, threads), |bencher| bencher.iter(|| self.call(&team)));
        }
    }

    /// Prepares `node`; `constant[i]` says whether input `i` is constant.
    pub fn new(node: &NodeSpec, constant: &[bool]) -> Self {
        let inputs: Vec<Tensor> = node.inputs.iter().map(values).collect();
        let constants: Vec<_> =
            inputs.iter().zip(constant).map(|(input, constant)| constant.then(|| input.clone())).collect();
        let outputs = node.outputs.iter().map(|output| touched(output.bytes())).collect();
        Self { prepared: PreparedKernel::new(node, &constants), inputs, outputs }
    }

    /// Returns the bytes read and written once.
    pub fn bytes(&self) -> u64 {
        let read: usize = self.inputs.iter().map(|input| input.bytes().len()).sum();
        (read + self.outputs.iter().map(Buffer::len).sum::<usize>()) as u64
    }

    /// Runs the whole node once.
    pub fn call(&mut self, team: &Team) {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Tensor::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Buffer::bytes_mut).collect();
        self.prepared.run_all(&inputs, &mut outputs, team);
    }
}
