//! Random programs: divided programs give the bits of the whole batch.
//!
//! The programs know nothing of the batch: it is any axis of an input, and their operators work along any axes. Values
//! are computed node by node with the kernels of the CPU.

use super::bits::paddings;
use super::divided::{Part, divided};
use super::layout::Layout;
use super::rows::Rows;
use anabranch_base::random::SplitMix64;
use anabranch_ir::program::{Node, NodeId, Origin, Program, ValueId, floats, map};
use anabranch_kernels::cpu::{Call, Team, prepare_with};
use anabranch_kernels::op::*;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use anabranch_placement_core::platform::DeviceKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Programs of one operator or a few, most of which cannot be divided.
const PROGRAMS: u64 = 4000;

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        (self.0.bits() % end.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn tensor(&mut self, dims: &[usize]) -> Tensor {
        let elements: Vec<f32> = (0..dims.iter().product()).map(|_| self.0.unit() as f32 - 0.5).collect();
        Tensor::from_elements(Shape::new(dims).expect("small"), &elements).expect("one for each")
    }
}

/// A program, and the tensors of its inputs and constants by name.
#[derive(Default)]
struct Made {
    program: Program,
    tensors: BTreeMap<String, Tensor>,
    /// Whether floats have 64 bits.
    is_double: bool,
}

impl Made {
    fn given(&mut self, tensor: Tensor, constant: bool) -> ValueId {
        let name = format!("v{}", self.program.values.len());
        self.tensors.insert(name.clone(), tensor.clone());
        match constant {
            true => self.program.add_value(name, tensor.spec().clone(), Origin::Constant(tensor.into())),
            false => self.program.add_input(name, tensor.spec().clone()),
        }
    }

    fn random(&mut self, random: &mut Random, dims: &[usize], constant: bool) -> ValueId {
        let tensor = random.tensor(dims);
        let widened = |x: &f32| f64::from(*x) / 3.0;
        let tensor = match self.is_double {
            true => {
                let elements: Vec<f64> = tensor.elements::<f32>().expect("floats").iter().map(widened).collect();
                Tensor::from_elements(tensor.shape().clone(), &elements).expect("one for each")
            }
            false => tensor,
        };
        self.given(tensor, constant)
    }

    fn constant(&mut self, random: &mut Random, dims: &[usize]) -> ValueId {
        self.random(random, dims, true)
    }

    /// Returns a bias and a residual of a result: constants of some of its dimensions.
    fn summands(&mut self, random: &mut Random, bias: &[usize], made: &[usize]) -> [ValueId; 2] {
        let residual: Vec<_> = made.iter().map(|size| if random.below(4) == 0 { 1 } else { *size }).collect();
        [self.constant(random, bias), self.constant(random, &residual)]
    }

    fn dims(&self, value: ValueId) -> Vec<usize> {
        self.program.value(value).spec.shape.dims().to_vec()
    }

    /// Adds a node that reads its inputs under these shapes, if it is sound.
    fn node(&mut self, op: Op, inputs: &[ValueId], read: &[&[usize]], outputs: &[TensorSpec]) -> Option<ValueId> {
        let specs = inputs.iter().zip(read);
        let specs = specs.map(|(value, dims)| {
            let dtype = self.program.value(*value).spec.dtype;
            TensorSpec::new(dtype, Shape::new(*dims).expect("small"))
        });
        let spec = NodeSpec { op, inputs: specs.collect(), outputs: outputs.to_vec() };
        if anabranch_kernels::cpu::prepare(&spec, &vec![false; inputs.len()]).is_err() {
            return None;
        }
        let id = NodeId(self.program.nodes.len() as u32);
        let made = outputs.iter().map(|spec| {
            let name = format!("v{}", self.program.values.len());
            self.program.add_value(name, spec.clone(), Origin::Node(id))
        });
        let outputs: Vec<_> = made.collect();
        let name = format!("n{}", id.0);
        self.program.nodes.push(Node { name, operators: Vec::new(), spec, inputs: inputs.to_vec(), outputs });
        Some(self.program.nodes[id.index()].outputs[0])
    }

    fn floats(&mut self, op: Op, inputs: &[ValueId], made: &[usize]) -> Option<ValueId> {
        let read: Vec<_> = inputs.iter().map(|input| self.dims(*input)).collect();
        let read: Vec<&[usize]> = read.iter().map(Vec::as_slice).collect();
        let dtype = if self.is_double { DType::F64 } else { DType::F32 };
        self.node(op, inputs, &read, &[TensorSpec::new(dtype, Shape::new(made).expect("small"))])
    }

    /// Adds an operator of a random kind to a value; `None` if the kind does not fit it.
    fn grown(&mut self, random: &mut Random, x: ValueId) -> Option<ValueId> {
        let dims = self.dims(x);
        let rank = dims.len();
        if rank == 0 {
            return None;
        }
        let axis = random.below(rank);
        let without = |axis: usize| [&dims[..axis], &dims[axis + 1..]].concat();
        let with = |axis: usize, size: usize| {
            let mut dims = dims.clone();
            dims[axis] = size;
            dims
        };
        match random.below(32) {
            0 => self.floats(map(Expression::unary(Unary::Exp)), &[x], &dims),
            1 => {
                // An operand that is broadcast along some axes.
                let first = random.below(rank + 1);
                let operand: Vec<_> = dims[first..].iter().map(|size| random.pick(&[*size, 1])).collect();
                let operand = self.constant(random, &operand);
                self.floats(map(Expression::binary(Binary::Add)), &[x, operand], &dims)
            }
            2 => self.floats(map(Expression::binary(Binary::Multiply)), &[x, x], &dims),
            3 if rank >= 2 => {
                let columns = random.pick(&[1, 3, 40]);
                let transpose_a = random.below(4) == 0;
                let (m, k) =
                    if transpose_a { (dims[rank - 1], dims[rank - 2]) } else { (dims[rank - 2], dims[rank - 1]) };
                let weights = self.constant(random, &[k, columns]);
                let made = [&dims[..rank - 2], &[m, columns]].concat();
                self.floats(Op::MatMul(MatMul { transpose_a, ..MatMul::default() }), &[x, weights], &made)
            }
            4 if rank >= 3 => {
                // Products of the value with itself, transposed, as in attention.
                let made = [&dims[..rank - 1], &[dims[rank - 2]]].concat();
                self.floats(Op::MatMul(MatMul { transpose_b: true, ..MatMul::default() }), &[x, x], &made)
            }
            5 if rank == 4 => {
                let maps = random.pick(&[2, 16, 48]);
                let side = random.pick(&[1, 3]);
                let weights = self.constant(random, &[maps, dims[1], side, side]);
                let pad = side / 2;
                let op = Conv { strides: [1; 2], pads: [pad; 4], dilations: [1; 2], group: 1, epilogue: None };
                self.floats(Op::Conv(op), &[x, weights], &[dims[0], maps, dims[2], dims[3]])
            }
            6 if rank == 4 => {
                let weights = self.constant(random, &[dims[1], 1, 3, 3]);
                let op = Conv { strides: [1; 2], pads: [1; 4], dilations: [1; 2], group: dims[1], epilogue: None };
                self.floats(Op::Conv(op), &[x, weights], &dims)
            }
            7 if rank == 4 => {
                let kind = random.pick(&[PoolKind::Max, PoolKind::Average { count_padding: true }]);
                let op = Pool { kind, window: [3; 2], strides: [1; 2], pads: [1; 4], dilations: [1; 2] };
                self.floats(Op::Pool(op), &[x], &dims)
            }
            8 => {
                let axes: Vec<_> = (0..rank).filter(|_| random.below(2) == 0).collect();
                let kind = random.pick(&[ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max, ReduceKind::LogSumExp]);
                let kept: Vec<_> = (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
                self.floats(Op::Reduce(Reduce { kind, axes }), &[x], &kept)
            }
            9 => self.floats(Op::Softmax(Softmax { axis, log: random.below(2) == 0 }), &[x], &dims),
            10 => {
                let op = Normalize { axis, epsilon: 1e-5, center: true, epilogue: None };
                self.floats(Op::Normalize(op), &[x], &dims)
            }
            11 => {
                let mut permutation: Vec<_> = (0..rank).collect();
                (1..rank).for_each(|at| permutation.swap(at, random.below(at + 1)));
                let made: Vec<_> = permutation.iter().map(|axis| dims[*axis]).collect();
                self.floats(Op::Transpose(Transpose { permutation }), &[x], &made)
            }
            12 => {
                let other = self.constant(random, &with(axis, 2));
                self.floats(Op::Concat(Concat { axis }), &[x, other], &with(axis, dims[axis] + 2))
            }
            13 => {
                let (mut starts, steps) = (vec![0; rank], vec![1; rank]);
                starts[axis] = random.below(dims[axis]);
                let size = dims[axis] - starts[axis];
                self.floats(Op::Slice(Slice { starts, steps }), &[x], &with(axis, size))
            }
            14 => {
                let mut before = vec![0; rank];
                before[axis] = random.below(3) as isize;
                let size = dims[axis] + before[axis] as usize + random.below(2);
                self.floats(Op::Pad(Pad { mode: PadMode::ZERO, before }), &[x], &with(axis, size))
            }
            15 => {
                let count = random.pick(&[1, dims[axis], 5]);
                let indices: Vec<i64> = (0..count).map(|_| random.below(dims[axis]) as i64).collect();
                let indices = self.given(Tensor::from_i64s(&indices), true);
                self.floats(Op::Gather(Gather { axis, elementwise: false }), &[x, indices], &with(axis, count))
            }
            16 => {
                let op = Running { axis, multiply: false, reverse: random.below(2) == 0, exclusive: false };
                self.floats(Op::Running(op), &[x], &dims)
            }
            17 if rank == 3 => {
                let units = 4;
                let weights = self.constant(random, &[dims[2], 4 * units]);
                let product =
                    self.floats(Op::MatMul(MatMul::default()), &[x, weights], &[dims[0], dims[1], 4 * units])?;
                let recurrent = self.constant(random, &[4 * units, units]);
                let bias = self.constant(random, &[4 * units]);
                let states = [(); 2].map(|()| self.constant(random, &[dims[1], units]));
                let op = Op::Recurrent(Recurrent::new(RecurrentKind::Lstm));
                let read: [&[usize]; 5] = [
                    &[dims[0], dims[1], 4 * units],
                    &[4 * units, units],
                    &[4 * units],
                    &[dims[1], units],
                    &[dims[1], units],
                ];
                let state = floats(&[dims[1], units]);
                let made = [floats(&[dims[0], dims[1], units]), state.clone(), state];
                self.node(op, &[product, recurrent, bias, states[0], states[1]], &read, &made)
            }
            18 if axis + 1 < rank => {
                // A reshape that joins two axes.
                let joined = [&dims[..axis], &[dims[axis] * dims[axis + 1]], &dims[axis + 2..]].concat();
                self.node(map(Expression::unary(Unary::Relu)), &[x], &[&joined], &[floats(&joined)])
            }
            19 => {
                // A reshape that divides an axis, and a transposition as of heads.
                let parts = (2..=dims[axis]).find(|parts| dims[axis].is_multiple_of(*parts))?;
                let cut = [&dims[..axis], &[parts, dims[axis] / parts], &dims[axis + 1..]].concat();
                let mut permutation: Vec<_> = (0..cut.len()).collect();
                permutation.swap(axis, random.below(cut.len()));
                let made: Vec<_> = permutation.iter().map(|axis| cut[*axis]).collect();
                self.node(Op::Transpose(Transpose { permutation }), &[x], &[&cut], &[floats(&made)])
            }
            20 => {
                let kept = 1 + random.below(dims[axis]);
                let spec = |dtype| TensorSpec::new(dtype, Shape::new(with(axis, kept)).expect("small"));
                let made = [spec(DType::F32), spec(DType::I64)];
                self.node(Op::TopK(TopK { axis, largest: true }), &[x], &[&dims], &made)
            }
            21 if rank >= 3 => {
                let made = [&dims[..rank - 2], &[2 * dims[rank - 2], 3 * dims[rank - 1]]].concat();
                let op = Resize {
                    interpolation: random.pick(&[Interpolation::Linear, Interpolation::Cubic { coefficient: -0.75 }]),
                    coordinates: Coordinates::HalfPixel,
                    scales: [2.0, 3.0],
                };
                self.floats(Op::Resize(op), &[x], &made)
            }
            22 if rank == 4 => {
                let weights = self.constant(random, &[dims[1], 5, 3, 3]);
                let op = ConvTranspose { strides: [1; 2], pads: [1; 4], dilations: [1; 2], group: 1, epilogue: None };
                self.floats(Op::ConvTranspose(op), &[x, weights], &[dims[0], 5, dims[2], dims[3]])
            }
            23 if rank >= 3 => {
                // A right matrix for each matrix of the left operand, or for some.
                let stack: Vec<_> = dims[..rank - 2].iter().map(|size| random.pick(&[*size, 1])).collect();
                let weights = self.constant(random, &[&stack[..], &[dims[rank - 1], 5]].concat());
                let made = [&dims[..rank - 1], &[5]].concat();
                self.floats(Op::MatMul(MatMul::default()), &[x, weights], &made)
            }
            25 | 26 if rank >= 2 => {
                let (depth, columns) = (dims[rank - 1], random.pick(&[1, 40]));
                let made = [&dims[..rank - 1], &[columns]].concat();
                let weights = self.constant(random, &[depth, columns]);
                let [bias, residual] = self.summands(random, &[columns], &made);
                let op = Op::MatMul(MatMul { epilogue: Some(summed(false)), ..MatMul::default() });
                self.floats(op, &[x, weights, bias, residual], &made)
            }
            27 if rank >= 2 => {
                // The value is the right operand, and the batch may be its columns.
                let made = [&dims[..rank - 2], &[7, dims[rank - 1]]].concat();
                let left = self.constant(random, &[7, dims[rank - 2]]);
                self.floats(Op::MatMul(MatMul::default()), &[left, x], &made)
            }
            28 | 29 if rank == 4 => {
                let maps = random.pick(&[dims[1], 2, 48]);
                let group = if maps == dims[1] { maps } else { 1 };
                let made = [dims[0], maps, dims[2], dims[3]];
                let weights = self.constant(random, &[maps, dims[1] / group, 3, 3]);
                let scaled = random.below(2) == 0;
                let images = random.pick(&[1, dims[0]]);
                let [bias, residual] = self.summands(random, &[images, maps, 1, 1], &made);
                let epilogue = Some(summed(scaled));
                let op = Op::Conv(Conv { strides: [1; 2], pads: [1; 4], dilations: [1; 2], group, epilogue });
                self.floats(op, &[x, weights, bias, residual], &made)
            }
            30 if rank == 2 => {
                let (depth, columns) = (dims[1], 40);
                let integers: Vec<u8> = (0..depth * columns).map(|_| random.below(256) as u8).collect();
                let weights = Tensor::from_elements(Shape::new([columns, depth]).ok()?, &integers).ok()?;
                let (weights, scales) = (self.given(weights, true), self.constant(random, &[columns, 1]));
                let made = [dims[0], columns];
                let [bias, residual] = self.summands(random, &[columns], &made);
                let format = NarrowFormat::Grid { bits: 8, block: depth, zero_points: false };
                let epilogue = Some(summed(false));
                let op = Op::NarrowMatMul(NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue });
                self.floats(op, &[x, weights, scales, bias, residual], &made)
            }
            31 => {
                let picked = with(axis, random.pick(&[1, dims[axis], 3]));
                let count = picked.iter().product();
                let indices: Vec<i64> = (0..count).map(|_| random.below(dims[axis]) as i64).collect();
                let indices = Tensor::from_elements(Shape::new(&picked[..]).ok()?, &indices).ok()?;
                let indices = self.given(indices, true);
                self.floats(Op::Gather(Gather { axis, elementwise: true }), &[x, indices], &picked)
            }
            _ => {
                let made = without(axis);
                let best = ArgReduce { axis, greatest: true, last: false };
                let spec = TensorSpec::new(DType::I64, Shape::new(made).ok()?);
                let value = self.node(Op::ArgReduce(best), &[x], &[&dims], &[spec])?;
                self.program.add_output(format!("o{}", self.program.outputs.len()), value);
                Some(x)
            }
        }
    }
}

/// Returns an epilogue that adds two operands, one after the other, or that multiplies by the first.
fn summed(scaled: bool) -> Expression {
    let first = if scaled { Binary::Multiply } else { Binary::Add };
    let steps =
        vec![Step::Binary(first, Register(0), Register(1)), Step::Binary(Binary::Add, Register(3), Register(2))];
    Expression::new(3, steps).expect("each step reads earlier ones")
}

/// Computes the outputs of a program.
fn computed(program: &Program, tensors: &BTreeMap<String, Tensor>) -> Vec<Tensor> {
    let known = program.values.iter().map(|value| match value.origin {
        Origin::Node(_) => None,
        Origin::Input | Origin::Constant(_) => tensors.get(&value.name).cloned(),
    });
    let mut values: Vec<Option<Tensor>> = known.collect();
    let team = Team::solo();
    for node in &program.nodes {
        let read = node.inputs.iter().zip(&node.spec.inputs).map(|(value, spec)| {
            let (_, buffer) = values[value.index()].clone().expect("made before").into_parts();
            Tensor::new(spec.clone(), buffer).expect("as many elements")
        });
        let read: Vec<Tensor> = read.collect();
        let constant = |(value, tensor): (&ValueId, &Tensor)| program.constant(*value).map(|_| tensor.clone());
        let constants: Vec<_> = node.inputs.iter().zip(&read).map(constant).collect();
        let kernel = prepare_with(&node.spec, &constants).unwrap_or_else(|error| panic!("{}: {error}", node.name));
        let mut buffers: Vec<_> = node.spec.outputs.iter().map(|spec| Buffer::zeroed(spec.bytes())).collect();
        let mut outputs: Vec<_> = buffers.iter_mut().map(Buffer::bytes_mut).collect();
        let inputs: Vec<_> = read.iter().map(Tensor::bytes).collect();
        let mut scratch = Buffer::zeroed(kernel.scratch_bytes());
        let rows = 0..node.spec.row_plan().map_or(1, |plan| plan.rows);
        let call = Call { inputs: &inputs, outputs: &mut outputs, rows, scratch: scratch.bytes_mut(), team: &team };
        kernel.run(call).unwrap_or_else(|error| panic!("{}: {error}", node.name));
        for ((value, spec), buffer) in node.outputs.iter().zip(&node.spec.outputs).zip(buffers) {
            values[value.index()] = Some(Tensor::new(spec.clone(), Arc::new(buffer)).expect("as many elements"));
        }
    }
    let output = |output: &anabranch_ir::program::Output| values[output.value.index()].clone().expect("it was made");
    program.outputs.iter().map(output).collect()
}

/// Creates a program whose input has the batch along some axis.
fn program(random: &mut Random) -> (Made, usize, BTreeMap<ValueId, Layout>) {
    let mut made = Made { is_double: random.below(6) == 0, ..Made::default() };
    let rank = 2 + random.below(3);
    let mut dims: Vec<_> = (0..rank).map(|_| random.pick(&[1, 2, 3, 6, 16])).collect();
    let (any, batch) = (random.below(rank), 2 + random.below(9));
    let axis = random.pick(&[0, 0, any]);
    dims[axis] = batch;
    let x = made.random(random, &dims, false);
    let mut last = x;
    for _ in 0..random.pick(&[1, 1, 2, 5]) {
        last = made.grown(random, last).unwrap_or(last);
    }
    made.program.add_output("last", last);
    (made, batch, BTreeMap::from([(x, Layout::of_axis(&dims, axis))]))
}

/// Whether the outputs have the same bits if the batch is divided into parts of these numbers of rows.
fn is_same(made: &Made, rows: &Rows, counts: &[usize]) -> bool {
    let runs = vec![true; made.program.nodes.len()];
    let part = |(at, count): (usize, &usize)| Part {
        name: ["a", "b", "c"][at],
        rows: *count,
        paddings: paddings(&made.program, rows, *count, DeviceKind::Cpu, &runs),
    };
    let parts: Vec<_> = counts.iter().enumerate().map(part).collect();
    let division = divided(&made.program, rows, &parts).expect("each value has an axis for its rows");
    assert_eq!(division.roles.len(), division.program.nodes.len());
    let (whole, apart) = (computed(&made.program, &made.tensors), computed(&division.program, &made.tensors));
    whole.len() == apart.len() && whole.iter().zip(&apart).all(|(one, other)| one.bytes() == other.bytes())
}

/// Nine wide rows are two blocks, and fewer rows one: without more rows, the trees were summed in other spans.
#[test]
fn forests_sum_their_trees_in_the_order_of_the_whole_batch() {
    const ROWS: usize = 9;
    let (random, mut made) = (&mut Random(SplitMix64::new(1)), Made::default());
    let trees = 0..256u32;
    let x = made.random(random, &[ROWS, 8192], false);
    let leaf = |tree: u32| TreeNode::Leaf { entry: tree }.words(DType::F32, tree);
    let words = |dims: [usize; 2], words: Vec<u32>| {
        Tensor::from_elements(Shape::new(dims).expect("small"), &words).expect("one for each")
    };
    let nodes = made.given(words([trees.len(), 4], trees.clone().flat_map(leaf).collect()), true);
    let roots = made.given(words([trees.len(), 2], trees.clone().flat_map(|tree| [tree, 0]).collect()), true);
    let targets = made.given(words([trees.len(), 1], vec![TreeNode::LAST; trees.len()]), true);
    made.is_double = true;
    let (weights, base) = (made.constant(random, &[trees.len()]), made.constant(random, &[1]));
    let inputs = [x, nodes, roots, targets, weights, base];
    let shapes: Vec<_> = inputs.iter().map(|input| made.dims(*input)).collect();
    let read: Vec<_> = shapes.iter().map(Vec::as_slice).collect();
    let scores = TensorSpec::new(DType::F64, Shape::new([ROWS, 1]).expect("small"));
    let op = Op::Trees(Trees { aggregate: TreeAggregate::Sum });
    let score = made.node(op, &inputs, &read, &[scores]).expect("a sound forest");
    made.program.add_output("score", score);
    let batch = BTreeMap::from([(x, Layout::of_axis(&[ROWS, 8192], 0))]);
    let rows = Rows::of(&made.program, ROWS, &batch).expect("rows do not depend on each other");
    for counts in [[1, 8], [4, 5], [8, 1]] {
        assert!(is_same(&made, &rows, &counts), "{counts:?}");
    }
}

/// Products of a transposed matrix are computed otherwise for few columns of B, which are the rows of the batch here.
#[test]
fn columns_of_a_right_operand_give_the_bits_of_the_whole_batch() {
    const ROWS: usize = 9;
    let random = &mut Random(SplitMix64::new(2));
    for transpose_a in [false, true] {
        let mut made = Made::default();
        let x = made.random(random, &[96, ROWS], false);
        let a = made.constant(random, if transpose_a { &[96, 40] } else { &[40, 96] });
        let op = Op::MatMul(MatMul { transpose_a, ..MatMul::default() });
        let product = made.floats(op, &[a, x], &[40, ROWS]).expect("sound");
        made.program.add_output("product", product);
        let inputs = BTreeMap::from([(x, Layout::of_axis(&[96, ROWS], 1))]);
        let rows = Rows::of(&made.program, ROWS, &inputs).expect("rows do not depend on each other");
        for first in 1..ROWS {
            assert!(is_same(&made, &rows, &[first, ROWS - first]), "{transpose_a} {first}");
        }
    }
}

#[test]
fn what_is_divided_gives_the_bits_of_the_whole_batch() {
    let mut divisions = BTreeMap::new();
    for seed in 0..PROGRAMS {
        let random = &mut Random(SplitMix64::new(seed));
        let (made, batch, inputs) = program(random);
        let ops = || made.program.nodes.iter().map(|node| node.spec.op.name());
        let Ok(rows) = Rows::of(&made.program, batch, &inputs) else { continue };
        let first = 1 + random.below(batch - 1);
        let mut counts = vec![first, batch - first];
        if counts[1] > 1 && random.below(2) == 0 {
            counts = vec![first, 1, batch - first - 1];
        }
        assert!(is_same(&made, &rows, &counts), "{seed}: {counts:?}: {:?}", made.program.nodes);
        let doubles = made.is_double.then_some("double");
        ops().chain(doubles).for_each(|op| *divisions.entry(op).or_insert(0) += 1);
    }
    // Each kind of operator was divided many times.
    for op in ["map", "matmul", "conv", "pool", "reduce", "softmax", "normalize", "transpose", "concat", "slice"] {
        assert!(divisions.get(op).is_some_and(|count| *count > 10), "{op}: {divisions:?}");
    }
    for op in ["pad", "gather", "running", "recurrent", "arg_reduce", "top_k", "resize", "conv_transpose", "double"] {
        assert!(divisions.get(op).is_some_and(|count| *count > 3), "{op}: {divisions:?}");
    }
}
