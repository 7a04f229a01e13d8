//! Rows of a batch, computed together and in parts: nodes that differ only in their number of rows give each row the
//! same bits if their keys of the order of sums are equal.
//!
//! The batches are about as large as the tiles, blocks and parts of kernels, so that their methods change in between.
//! A method that depends on the number of rows must be a part of the key, or a batch here gives other bits.

use crate::products::tensor;
use crate::spec;
use anabranch_op::dtype::DType;
use anabranch_op::op::*;
use anabranch_op::shape::Shape;
use anabranch_op::tensor::{Buffer, Tensor, TensorSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of the dimension that has the rows.
pub const ROWS: usize = usize::MAX;

/// Function that returns a key of the order of a node's sums; some inputs are constant.
pub type Key = fn(&NodeSpec, &[bool]) -> Option<Vec<usize>>;

/// Function that computes a node; `None` if there is no kernel.
pub type Compute = fn(&NodeSpec, &[Tensor], &[bool]) -> Option<Tensor>;

/// Node for any number of rows.
pub struct Batch {
    op: Op,
    /// Types and dimensions of the inputs. Inputs without rows are constant.
    inputs: Vec<(DType, Vec<usize>)>,
    output: Vec<usize>,
    /// Numbers of rows, ascending.
    counts: &'static [usize],
}

impl Batch {
    fn new(op: Op, inputs: &[&[usize]], output: &[usize], counts: &'static [usize]) -> Self {
        let inputs = inputs.iter().map(|dims| (DType::F32, dims.to_vec())).collect();
        Self { op, inputs, output: output.to_vec(), counts }
    }

    fn most(&self) -> usize {
        *self.counts.last().expect("some numbers of rows")
    }

    fn node(&self, rows: usize) -> NodeSpec {
        let inputs = self.inputs.iter().map(|(dtype, dims)| TensorSpec::new(*dtype, sized(dims, rows)));
        let outputs = vec![spec(sized(&self.output, rows).dims())];
        NodeSpec { op: self.op.clone(), inputs: inputs.collect(), outputs }
    }

    /// Returns inputs of the most rows.
    fn inputs(&self) -> Vec<Tensor> {
        let input = |(seed, (dtype, dims)): (usize, &(DType, Vec<usize>))| {
            let shape = sized(dims, self.most());
            match dtype {
                DType::U8 => {
                    let bytes: Vec<u8> = (0..shape.elements()).map(|at| (at * 37 + at / 7) as u8).collect();
                    Tensor::from_elements(shape, &bytes).expect("as many")
                }
                _ => tensor(shape.dims(), seed + 1),
            }
        };
        self.inputs.iter().enumerate().map(input).collect()
    }

    fn constants(&self) -> Vec<bool> {
        self.inputs.iter().map(|(_, dims)| !dims.contains(&ROWS)).collect()
    }

    /// Computes some of the rows of `inputs`.
    fn compute(&self, inputs: &[Tensor], [start, rows]: [usize; 2], run: &Run<'_>) -> Option<Tensor> {
        let node = self.node(rows);
        let cut = |((_, dims), (whole, spec)): (&(DType, Vec<usize>), (&Tensor, &TensorSpec))| {
            let mut buffer = Buffer::zeroed(spec.bytes());
            buffer.bytes_mut().copy_from_slice(&part(dims, whole, self.most(), [start, rows]));
            Tensor::new(spec.clone(), Arc::new(buffer)).expect("as many")
        };
        let given: Vec<_> = self.inputs.iter().zip(inputs.iter().zip(&node.inputs)).map(cut).collect();
        (run.compute)(&node, &given, run.constants)
    }

    /// Compares all pairs of numbers of rows with the same key. Returns the number of the pairs; `None` if there is no
    /// kernel.
    fn check(&self, run: &Run<'_>) -> Option<usize> {
        let inputs = self.inputs();
        let mut compared = 0;
        for (at, &batch) in self.counts.iter().enumerate() {
            let node = self.node(batch);
            let whole = self.compute(&inputs, [0, batch], run)?;
            let Some(key) = (run.key)(&node, run.constants) else { continue };
            let is_same = |rows: &&usize| (run.key)(&self.node(**rows), run.constants).as_ref() == Some(&key);
            for &rows in self.counts[..at].iter().filter(is_same) {
                compared += 1;
                for start in [0, batch - rows] {
                    let made = self.compute(&inputs, [start, rows], run)?;
                    let same = part(&self.output, &whole, batch, [start, rows]) == made.bytes();
                    assert!(same, "rows {start}..{} of {batch} have other bits: {node:?}", start + rows);
                }
            }
        }
        Some(compared)
    }
}

/// Side whose kernels are checked, and the inputs that are constant.
struct Run<'a> {
    key: Key,
    compute: Compute,
    constants: &'a [bool],
}

/// Checks all batches, with constants and without. For each operator, some numbers of rows must have the same key.
pub fn check_all(batches: &[Batch], key: Key, compute: Compute) {
    let mut compared = BTreeMap::new();
    for batch in batches {
        let mut constants = vec![batch.constants(), vec![false; batch.inputs.len()]];
        constants.dedup();
        let run = |constants: &Vec<bool>| batch.check(&Run { key, compute, constants });
        *compared.entry(batch.op.name()).or_insert(0) += constants.iter().filter_map(run).sum::<usize>();
    }
    assert!(compared.values().all(|pairs| *pairs > 0), "{compared:?}");
}

fn sized(dims: &[usize], rows: usize) -> Shape {
    let dims: Vec<_> = dims.iter().map(|size| if *size == ROWS { rows } else { *size }).collect();
    Shape::new(dims).expect("a test's shape is small")
}

/// Returns the bytes of some rows of a tensor with `batch` rows; all if it has no rows.
fn part(dims: &[usize], whole: &Tensor, batch: usize, [start, rows]: [usize; 2]) -> Vec<u8> {
    let Some(axis) = dims.iter().position(|size| *size == ROWS) else { return whole.bytes().to_vec() };
    let row = dims[axis + 1..].iter().product::<usize>() * whole.dtype().size();
    let blocks = whole.bytes().chunks_exact(batch * row);
    blocks.flat_map(|block| &block[start * row..(start + rows) * row]).copied().collect()
}

fn expression(steps: &[Binary]) -> Option<Expression> {
    let inputs = steps.len() + 1;
    let step = |(at, function): (usize, &Binary)| {
        let before = if at == 0 { 0 } else { inputs + at - 1 };
        Step::Binary(*function, Register(before as u16), Register(at as u16 + 1))
    };
    let steps = steps.iter().enumerate().map(step).collect();
    Some(Expression::new(inputs, steps).expect("each step reads earlier values"))
}

/// Returns epilogues of an output, with the dimensions of their operands: sums and scales that rows share or not.
fn epilogues(output: &[usize]) -> Vec<(Option<Expression>, Vec<Vec<usize>>)> {
    let kept = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> {
        output.iter().enumerate().map(|(axis, size)| if keep(axis) { *size } else { 1 }).collect()
    };
    let is_rows = |axis: usize| output[axis] == ROWS;
    let channel = if output.len() == 4 { 1 } else { output.len() - 1 };
    let channels = kept(&|axis| axis == channel);
    let rows = kept(&is_rows);
    let both = kept(&|axis| axis == channel || is_rows(axis));
    let (add, scale) = (Binary::Add, Binary::Multiply);
    vec![
        (None, vec![]),
        (expression(&[add]), vec![channels.clone()]),
        (expression(&[add, add]), vec![channels.clone(), output.to_vec()]),
        (expression(&[add, add]), vec![rows.clone(), both.clone()]),
        (expression(&[scale, add]), vec![channels.clone(), channels.clone()]),
        (expression(&[scale, add]), vec![both.clone(), channels.clone()]),
        (expression(&[scale, add]), vec![channels.clone(), both]),
        (expression(&[scale, add]), vec![rows.clone(), rows.clone()]),
        (expression(&[scale, add]), vec![rows, output.to_vec()]),
        (expression(&[scale, add, add]), vec![channels.clone(), channels, output.to_vec()]),
    ]
}

/// Adds a batch for each epilogue.
fn with_epilogues(
    batches: &mut Vec<Batch>,
    inputs: &[(DType, &[usize])],
    output: &[usize],
    counts: &'static [usize],
    op: impl Fn(Option<Expression>) -> Op,
) {
    for (epilogue, extras) in epilogues(output) {
        let mut read: Vec<_> = inputs.iter().map(|(dtype, dims)| (*dtype, dims.to_vec())).collect();
        read.extend(extras.into_iter().map(|dims| (DType::F32, dims)));
        batches.push(Batch { op: op(epilogue), inputs: read, output: output.to_vec(), counts });
    }
}

fn matmul([transpose_a, transpose_b]: [bool; 2], epilogue: Option<Expression>) -> Op {
    Op::MatMul(MatMul { transpose_a, transpose_b, epilogue, ..MatMul::default() })
}

/// Adds products of so many columns and such a depth: rows are those of A, matrices, or columns of B.
fn products(batches: &mut Vec<Batch>, [n, k]: [usize; 2], counts: &'static [usize]) {
    let float = DType::F32;
    with_epilogues(batches, &[(float, &[ROWS, k]), (float, &[k, n])], &[ROWS, n], counts, |epilogue| {
        matmul([false, false], epilogue)
    });
    let plain = |ways, inputs: &[&[usize]], output: &[usize]| Batch::new(matmul(ways, None), inputs, output, counts);
    batches.extend([
        plain([false, true], &[&[ROWS, k], &[n, k]], &[ROWS, n]),
        plain([true, false], &[&[k, ROWS], &[k, n]], &[ROWS, n]),
        plain([false, false], &[&[n, k], &[k, ROWS]], &[n, ROWS]),
        plain([false, true], &[&[n, k], &[ROWS, k]], &[n, ROWS]),
        plain([false, false], &[&[ROWS, 5, k], &[k, n]], &[ROWS, 5, n]),
        plain([false, false], &[&[ROWS, 5, k], &[ROWS, k, n]], &[ROWS, 5, n]),
        plain([false, false], &[&[ROWS, k], &[k, 1]], &[ROWS, 1]),
    ]);
}

/// Adds products with weights of so many bits.
fn narrow_products(batches: &mut Vec<Batch>, [bits, n, k]: [usize; 3], quantize_a: bool, counts: &'static [usize]) {
    let block = 32;
    let inputs: [(DType, &[usize]); 3] =
        [(DType::F32, &[ROWS, k]), (DType::U8, &[n, k * bits / 8]), (DType::F32, &[n, k / block])];
    with_epilogues(batches, &inputs, &[ROWS, n], counts, |epilogue| {
        let format = NarrowFormat::Grid { bits, block, zero_points: false };
        Op::NarrowMatMul(NarrowMatMul { format, transpose_b: true, quantize_a, epilogue })
    });
}

/// Adds convolutions of images of so many channels, in groups, with windows of this size. Images and results have the
/// sides `from` and `to`.
fn convolutions(
    batches: &mut Vec<Batch>,
    [channels, made, group, window]: [usize; 4],
    [from, to]: [usize; 2],
    counts: &'static [usize],
) {
    let weights = [made, channels / group, window, window];
    let inputs: [(DType, &[usize]); 2] = [(DType::F32, &[ROWS, channels, from, from]), (DType::F32, &weights)];
    with_epilogues(batches, &inputs, &[ROWS, made, to, to], counts, |epilogue| {
        let pads = [(to + window - 1 - from) / 2; 4];
        Op::Conv(Conv { strides: [1; 2], pads, dilations: [1; 2], group, epilogue })
    });
}

fn softmax(axis: usize, log: bool, dims: &[usize], counts: &'static [usize]) -> Batch {
    Batch::new(Op::Softmax(Softmax { axis, log }), &[dims], dims, counts)
}

fn reduction(kind: ReduceKind, axes: &[usize], dims: &[usize], counts: &'static [usize]) -> Batch {
    let kept = dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, size)| *size);
    Batch::new(Op::Reduce(Reduce { kind, axes: axes.to_vec() }), &[dims], &kept.collect::<Vec<_>>(), counts)
}

fn normalisation(dims: &[usize], axis: usize, counts: &'static [usize]) -> Vec<Batch> {
    let mut batches = Vec::new();
    with_epilogues(&mut batches, &[(DType::F32, dims)], dims, counts, |epilogue| {
        Op::Normalize(Normalize { axis, epsilon: 1e-5, center: true, epilogue })
    });
    batches
}

/// Returns batches around the sizes at which CPU kernels change their method.
pub fn on_cpus() -> Vec<Batch> {
    const FEW: &[usize] = &[1, 2, 3, 4, 5, 7, 8];
    const TILES: &[usize] = &[1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 28, 29, 63, 64, 65, 72, 130];
    let mut batches = Vec::new();
    products(&mut batches, [40, 96], TILES);
    products(&mut batches, [5, 1], FEW);
    for (bits, quantize_a) in [(8, false), (4, false), (4, true), (2, false)] {
        narrow_products(&mut batches, [bits, 40, 64], quantize_a, TILES);
    }
    for sizes in [[16, 24, 1, 3], [16, 40, 1, 1], [8, 8, 8, 3], [3, 8, 1, 3], [16, 8, 2, 3], [2, 2, 1, 5]] {
        [4, 9].into_iter().for_each(|side| convolutions(&mut batches, sizes, [side; 2], FEW));
    }
    // Images of one element: the operands of an epilogue vary along a line, unless there is one image.
    for sizes in [[1, 1, 1, 3], [2, 1, 1, 5], [3, 1, 1, 3], [16, 1, 1, 3], [16, 1, 1, 1], [1, 2, 1, 3], [2, 2, 2, 3]] {
        [1, sizes[3]].into_iter().for_each(|from| convolutions(&mut batches, sizes, [from, 1], FEW));
    }
    for log in [false, true] {
        batches.push(softmax(1, log, &[ROWS, 40], TILES));
        batches.push(softmax(0, log, &[40, ROWS], TILES));
        batches.push(softmax(1, log, &[2, 70, ROWS, 3], TILES));
        batches.push(softmax(0, log, &[9000, ROWS], FEW));
    }
    for kind in [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::LogSumExp] {
        batches.push(reduction(kind, &[1], &[ROWS, 1000], TILES));
        batches.push(reduction(kind, &[0], &[1000, ROWS], TILES));
        batches.push(reduction(kind, &[0, 2], &[40, ROWS, 30], TILES));
        batches.push(reduction(kind, &[1], &[ROWS, 300, 3], TILES));
        batches.push(reduction(kind, &[1], &[ROWS, 60_000], FEW));
    }
    batches.extend(normalisation(&[ROWS, 70], 1, TILES));
    batches.extend(normalisation(&[5, ROWS, 33], 2, TILES));
    batches
}

/// Returns batches around the sizes at which GPU kernels change their method. They are few and large, because software
/// compiles each shader, and GPUs cut sums only if there are few outputs.
pub fn on_gpus() -> Vec<Batch> {
    const TILES: &[usize] = &[1, 2, 32, 33, 65, 130];
    let mut batches = Vec::new();
    let float = |ways, inputs: &[&[usize]], output: &[usize]| Batch::new(matmul(ways, None), inputs, output, TILES);
    batches.extend([
        float([false, false], &[&[ROWS, 1024], &[1024, 256]], &[ROWS, 256]),
        float([false, true], &[&[256, 1024], &[ROWS, 1024]], &[256, ROWS]),
        float([false, false], &[&[ROWS, 4, 512], &[ROWS, 512, 64]], &[ROWS, 4, 64]),
    ]);
    // Each number of rows takes another tile.
    const SIZES: &[usize] = &[300, 400, 1300, 1600];
    batches.push(Batch::new(matmul([false, false], None), &[&[ROWS, 18], &[18, 1700]], &[ROWS, 1700], SIZES));
    let vectors = |inputs: &[&[usize]], output: &[usize], counts| {
        Batch::new(matmul([false, false], None), inputs, output, counts)
    };
    batches.push(vectors(&[&[ROWS, 16_384], &[16_384, 1]], &[ROWS, 1], &[1, 2, 130, 260]));
    batches.push(vectors(&[&[ROWS, 1, 4096], &[ROWS, 4096, 16]], &[ROWS, 1, 16], &[1, 2, 65, 130]));
    let counts = &[1, 2, 33, 130];
    let inputs = vec![(DType::F32, vec![ROWS, 1024]), (DType::U8, vec![256, 512]), (DType::F32, vec![256, 32])];
    let format = NarrowFormat::Grid { bits: 4, block: 32, zero_points: false };
    let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
    batches.push(Batch { op: Op::NarrowMatMul(op), inputs, output: vec![ROWS, 256], counts });
    convolutions(&mut batches, [64, 64, 1, 3], [8; 2], &[1, 2, 3, 9]);
    convolutions(&mut batches, [8, 8, 8, 3], [8; 2], &[1, 2, 3]);
    batches.push(softmax(1, false, &[ROWS, 300], &[1, 2, 9, 130]));
    batches.push(softmax(0, false, &[300, ROWS], &[1, 2, 9, 130]));
    batches.push(reduction(ReduceKind::Sum, &[1], &[ROWS, 65_536], &[1, 64, 129, 150]));
    batches.push(reduction(ReduceKind::Sum, &[0], &[2048, ROWS], &[1, 32, 33, 4128, 4200]));
    batches.push(reduction(ReduceKind::LogSumExp, &[1], &[ROWS, 2048, 128], &[1, 2, 33, 40]));
    batches.extend(normalisation(&[ROWS, 70], 1, &[1, 2, 9, 70]));
    batches
}
