//! Products with constant weights of 4 to 32 bits: how close are few rows to the speed at which memory delivers the
//! weights, and many rows to the speed of products in `f32`?
//!
//! `--bench weights -- 1x4096x11008` measures these rows, columns and depth. There are so many copies of the weights
//! that they come from memory, as in a model whose weights are all read in each step. All candidates and the plain
//! reading of a buffer take turns. Printed figures are of the shortest times: longer times were disturbed.

use anabranch_bench::cpu::{PreparedKernel, touched};
use anabranch_bench::nodes::{matmul, narrow, values};
use anabranch_bench::turns::{Call, Failure, in_turn};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::op::{NarrowFormat, NodeSpec};
use anabranch_kernels::{Buffer, DType, Tensor};
use std::hint::black_box;

/// Rows × columns × depth: of a product larger than caches, of language models of 0.1 and 0.45 billion parameters, and
/// of their prompts.
const SIZES: [[usize; 3]; 22] = [
    [1, 8192, 8192],
    [2, 8192, 8192],
    [4, 8192, 8192],
    [8, 8192, 8192],
    [1, 768, 768],
    [1, 2048, 768],
    [1, 768, 2048],
    [1, 32000, 768],
    [2, 2048, 768],
    [4, 2048, 768],
    [8, 2048, 768],
    [1, 1280, 1280],
    [1, 3840, 1280],
    [1, 1280, 3840],
    [16, 2048, 768],
    [128, 768, 768],
    [128, 2048, 768],
    [128, 768, 2048],
    [512, 2048, 768],
    [512, 768, 2048],
    [128, 3840, 1280],
    [512, 1280, 3840],
];

/// Rows up to which a product is compared with reading its weights.
const FEW: usize = 8;

/// Bytes of weights that caches do not hold.
const UNCACHED: usize = 160 << 20;

/// Bytes of a part that one thread reads.
const READ: usize = 1 << 18;

const SECONDS: f64 = 1.0;

fn main() -> Result<(), Failure> {
    let given: Vec<[usize; 3]> = std::env::args().skip(1).filter_map(|text| sizes(&text)).collect();
    let sizes = if given.is_empty() { SIZES.to_vec() } else { given };
    let (few, many): (Vec<_>, Vec<_>) = sizes.into_iter().partition(|[rows, ..]| *rows <= FEW);
    let heads = ["4 bits", "4 bits, integer rows", "8 bits", "16 bits", "f32"].join(" | ");
    println!("| GB/s and part of reading, rows × columns × depth | threads | {heads} | reading |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    few.into_iter().try_for_each(|sizes| row(sizes, true))?;
    println!("\n| Gflop/s and part of f32, rows × columns × depth | threads | {heads} |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    many.into_iter().try_for_each(|sizes| row(sizes, false))
}

/// Returns the sizes of an argument, unless it is none.
fn sizes(text: &str) -> Option<[usize; 3]> {
    let sizes: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    sizes.ok()?.try_into().ok()
}

/// Copies of a product, which are called in turns.
struct Product {
    copies: Vec<PreparedKernel>,
    a: Tensor,
    output: Buffer,
    /// Bytes of the weights, with their scales.
    bytes: usize,
    next: usize,
}

impl Product {
    fn new(node: &NodeSpec, few: bool) -> Self {
        let inputs: Vec<Tensor> = node.inputs.iter().map(values).collect();
        let bytes: usize = node.inputs[1..].iter().map(|input| input.bytes()).sum();
        let mut constants: Vec<_> = inputs.iter().cloned().map(Some).collect();
        constants[0] = None;
        let copies = if few { UNCACHED.div_ceil(bytes) } else { 1 };
        let copies = (0..copies).map(|_| PreparedKernel::new(node, &constants)).collect();
        Self { copies, a: inputs[0].clone(), output: touched(node.outputs[0].bytes()), bytes, next: 0 }
    }

    fn call(&mut self, team: &Team) {
        self.next = (self.next + 1) % self.copies.len();
        let inputs = [self.a.bytes(), &[], &[]];
        self.copies[self.next].run(&inputs, self.output.bytes_mut(), team);
    }
}

/// Measures all types of weights, and prints a line for each number of threads.
fn row(sizes @ [rows, columns, depth]: [usize; 3], few: bool) -> Result<(), Failure> {
    let grid = |bits| NarrowFormat::Grid { bits, block: 32, zero_points: false };
    let nodes = [
        narrow(sizes, grid(4), DType::U8, false),
        narrow(sizes, grid(4), DType::U8, true),
        narrow(sizes, grid(8), DType::U8, false),
        narrow(sizes, NarrowFormat::Float, DType::F16, false),
        matmul(sizes),
    ];
    let mut products = nodes.map(|node| Product::new(&node, few));
    let bytes = products.each_ref().map(|product| product.bytes as f64);
    let memory = touched(UNCACHED);
    for threads in [1, 2] {
        let team = Team::new(threads, |_| {});
        let mut calls: Vec<Call<'_>> = Vec::new();
        for product in &mut products {
            let team = &team;
            calls.push(Box::new(move || {
                product.call(team);
                Ok(())
            }));
        }
        if few {
            calls.push(Box::new(|| {
                read(&memory, &team);
                Ok(())
            }));
        }
        let seconds = in_turn(&mut calls, SECONDS)?;
        let least = |samples: &Vec<f64>| samples.iter().copied().fold(f64::INFINITY, f64::min);
        let seconds: Vec<f64> = seconds.iter().map(least).collect();
        let work = 2.0 * (rows * columns * depth) as f64;
        let whole = if few { memory.len() as f64 / seconds[5] } else { work / seconds[4] };
        let rates = (0..5).map(|at| if few { bytes[at] } else { work } / seconds[at]);
        let mut cells: Vec<String> = rates.map(|rate| format!("{:.1}, {:.2}", rate / 1e9, rate / whole)).collect();
        cells.extend(few.then(|| format!("{:.1}", whole / 1e9)));
        println!("| {rows} × {columns} × {depth} | {threads} | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Reads all of a buffer, in parts by the threads of a team: the upper limit for products of few rows.
fn read(memory: &Buffer, team: &Team) {
    team.run(memory.len() / READ, &|part| {
        let words: &[u64] = bytemuck::cast_slice(&memory.bytes()[part * READ..][..READ]);
        black_box(words.iter().fold(0, |all, word| all ^ word));
    });
}
