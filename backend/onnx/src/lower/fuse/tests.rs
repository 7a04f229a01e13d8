//! Checks all rewrites: random programs of usual, great and small magnitudes give equal results fused and node by node,
//! within rounding, unless a value overflows on the way. `exact.rs` checks the rewrites that promise exact bits.

use super::{Rewrite, Rewrites, fuse};
use crate::lower::fold::{Folding, compute};
use anabranch_ir::program::{Program, ValueId};
use anabranch_ir::testing::{Maker, map, spec};
use anabranch_kernels::op::{
    Binary, Conv, ConvTranspose, Expression, Literal, MatMul, Op, Pad, PadMode, Reduce, ReduceKind, Register, Slice,
    Softmax, Step, Transpose, Unary,
};
use anabranch_kernels::{Tensor, TensorSpec};
use arbtest::arbitrary::{Result, Unstructured};

/// Largest difference of two results, relative to the largest element that either program computes on the way.
pub(super) const TOLERANCE: f32 = 2e-4;

/// Most elements of a value.
const MOST_ELEMENTS: usize = 1 << 13;

/// Returns the program's outputs, computed node after node, and the greatest magnitude of all computed values.
pub(super) fn evaluate(program: &Program, inputs: &[Tensor]) -> (Vec<Tensor>, f32) {
    let mut values: Vec<Option<Tensor>> = vec![None; program.values.len()];
    for (index, value) in values.iter_mut().enumerate() {
        *value = program.constant(ValueId(index as u32)).map(|constant| constant.load().expect("in memory"));
    }
    program.inputs.iter().zip(inputs).for_each(|(id, tensor)| values[id.index()] = Some(tensor.clone()));
    let mut greatest = 1.0f32;
    for node in &program.nodes {
        let read = |(id, spec): (&ValueId, &TensorSpec)| {
            let tensor = values[id.index()].as_ref().expect("made before it is read");
            tensor.reshaped(spec.shape.clone()).expect("as many elements")
        };
        let inputs: Vec<_> = node.inputs.iter().zip(&node.spec.inputs).map(read).collect();
        let constants = node.inputs.iter().zip(&inputs);
        let constants: Vec<_> = constants.map(|(id, tensor)| program.constant(*id).map(|_| tensor.clone())).collect();
        let made = compute(&node.spec, &inputs, &constants).unwrap_or_else(|error| panic!("{}: {error}", node.name));
        for (output, tensor) in node.outputs.iter().zip(made) {
            let elements = tensor.elements::<f32>().unwrap_or(&[]);
            greatest = elements.iter().fold(greatest, |most, element| most.max(element.abs()));
            values[output.index()] = Some(tensor);
        }
    }
    let output = |output: &anabranch_ir::program::Output| {
        let value = values[output.value.index()].as_ref();
        value.expect("made").reshaped(output.spec.shape.clone()).expect("as many elements")
    };
    (program.outputs.iter().map(output).collect(), greatest)
}

/// A value under a shape.
type Under = (ValueId, Vec<usize>);

/// A random program under construction: values with their shapes; the last value is most likely to be read.
struct Random<'a, 'u> {
    u: &'a mut Unstructured<'u>,
    maker: Maker,
    pool: Vec<Under>,
}

/// A new value; `None` if it would be too large.
type Made = Result<Option<Under>>;

impl Random<'_, '_> {
    fn size(&mut self, most: usize) -> Result<usize> {
        self.u.int_in_range(1..=most)
    }

    fn chance(&mut self) -> Result<bool> {
        self.u.arbitrary()
    }

    /// Chooses a value: in one of four cases any, else the last; in one of eight cases under another shape.
    fn value(&mut self) -> Result<Under> {
        let at = if self.u.ratio(1, 4)? { self.u.choose_index(self.pool.len())? } else { self.pool.len() - 1 };
        let (value, mut dims) = self.pool[at].clone();
        if self.u.ratio(1, 8)? {
            match dims.iter().position(|dim| dim % 2 == 0).filter(|_| dims.len() < 4) {
                Some(axis) if self.chance()? => {
                    dims[axis] /= 2;
                    dims.insert(axis, 2);
                }
                _ if dims.len() > 2 => {
                    let last = dims.pop().unwrap_or(1);
                    dims.last_mut().into_iter().for_each(|dim| *dim *= last);
                }
                _ => dims.insert(0, 1),
            }
        }
        Ok((value, dims))
    }

    fn constant(&mut self, dims: &[usize]) -> Result<Under> {
        let seed = self.u.int_in_range(1..=97usize)?;
        let element = |at: usize| ((at * 37 + seed * 11) % 41) as f32 / 20.5 - 1.02;
        let uniform = self.u.ratio(1, 4)?;
        Ok((self.maker.constant(dims, |at| element(if uniform { 0 } else { at })), dims.to_vec()))
    }

    fn node(&mut self, op: Op, inputs: &[&Under], dims: &[usize]) -> Option<Under> {
        if dims.iter().product::<usize>() > MOST_ELEMENTS {
            return None;
        }
        let (values, specs): (Vec<_>, Vec<_>) = inputs.iter().map(|(value, dims)| (*value, spec(dims))).unzip();
        let made = (self.maker.node_reading(op, &values, specs, dims), dims.to_vec());
        self.pool.push(made.clone());
        Some(made)
    }

    fn binary(&mut self, function: Binary, a: &Under, b: &Under, dims: &[usize]) -> Option<Under> {
        self.node(map(Expression::binary(function)), &[a, b], dims)
    }

    /// An expression of a value and, half the time, of a broadcast operand.
    fn expression(&mut self) -> Made {
        let x = self.value()?;
        if self.chance()? {
            let function = *self.u.choose(&[Unary::Relu, Unary::Tanh, Unary::Sigmoid, Unary::Abs, Unary::Negate])?;
            return Ok(self.node(map(Expression::unary(function)), &[&x], &x.1));
        }
        let function = *self.u.choose(&[Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Max])?;
        let mut other = self.value()?;
        if other.1 != x.1 {
            let own = x.1.iter().map(|dim| Ok(if self.chance()? { *dim } else { 1 })).collect::<Result<Vec<_>>>()?;
            let skip = self.u.choose_index(x.1.len())?;
            other = self.constant(&own[skip..])?;
        }
        let (a, b) = if self.chance()? { (&x, &other) } else { (&other, &x) };
        Ok(self.binary(function, a, b, &x.1))
    }

    /// A product with constant weights or with another value; an operand may be scaled as in attention. A wide product
    /// is separated like queries and keys.
    fn product(&mut self) -> Made {
        let mut a = self.value()?;
        let dims = a.1.clone();
        let [lead @ .., m, k] = &dims[..] else { return Ok(None) };
        if self.chance()? {
            let literal = Step::Constant(Literal::Float(*self.u.choose(&[0.37, 0.37, 1e-30, 1e30, 0.0, -0.0])?));
            let scale = Expression::new(1, vec![literal, Step::Binary(Binary::Multiply, Register(0), Register(1))]);
            let Some(scaled) = self.node(map(scale.expect("two steps")), &[&a], &dims) else { return Ok(None) };
            a = scaled;
        }
        let other = self.value()?;
        let (b, n) = match &other.1[..] {
            [batch @ .., rows, n] if rows == k && batch == lead => (other.clone(), *n),
            _ => {
                let n = if self.chance()? { 128 } else { self.size(9)? };
                (self.constant(&[*k, n])?, n)
            }
        };
        let made = self.node(Op::MatMul(MatMul::default()), &[&a, &b], &[lead, &[*m, n]].concat());
        if n == 128
            && let Some(whole) = &made
        {
            for start in [0, 64] {
                let starts = [vec![0; lead.len() + 1], vec![start]].concat();
                let op = Op::Slice(Slice { starts, steps: vec![1; dims.len()] });
                self.node(op, &[whole], &[lead, &[*m, 64]].concat());
            }
        }
        Ok(made)
    }

    /// A convolution, sometimes with a border before it and a scale per channel behind it.
    fn convolution(&mut self) -> Made {
        let mut x = self.value()?;
        x.1.resize(4, 1);
        if self.chance()? {
            let before = [0, 0, self.u.int_in_range(0..=2)?, self.u.int_in_range(0..=2)?];
            let dims = [x.1[0], x.1[1], x.1[2] + before[2] as usize + 1, x.1[3] + before[3] as usize];
            let op = Op::Pad(Pad { mode: PadMode::ZERO, before: before.to_vec() });
            let Some(padded) = self.node(op, &[&x], &dims) else { return Ok(None) };
            x = padded;
        }
        let [n, c, h, w] = x.1[..] else { return Ok(None) };
        let (m, high, wide) = (self.size(5)?, self.size(h.min(3))?, self.size(w.min(3))?);
        let (strides, pads, dilations, group) = ([1, 1], [0; 4], [1, 1], 1);
        let made = if self.u.ratio(1, 4)? {
            let op = Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue: None });
            let weights = self.constant(&[c, m, high, wide])?;
            self.node(op, &[&x, &weights], &[n, m, h + high - 1, w + wide - 1])
        } else {
            let op = Op::Conv(Conv { strides, pads, dilations, group, epilogue: None });
            let weights = self.constant(&[m, c, high, wide])?;
            self.node(op, &[&x, &weights], &[n, m, h + 1 - high, w + 1 - wide])
        };
        let Some(conv) = made.filter(|_| m > 1) else { return Ok(None) };
        let (factor, offset) = (self.constant(&[m, 1, 1])?, self.constant(&[m, 1, 1])?);
        let scaled = self.binary(Binary::Multiply, &conv, &factor, &conv.1);
        Ok(scaled.and_then(|scaled| self.binary(Binary::Add, &scaled, &offset, &conv.1)))
    }

    /// A layer norm, or a root-mean-square norm, in elementary operators.
    fn norm(&mut self) -> Made {
        let mut x = self.value()?;
        let (dims, axis) = (x.1.clone(), x.1.len() - 1);
        let mean = Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![axis] });
        let one = [&dims[..axis], &[1]].concat();
        let epsilon = (self.maker.constant(&[], |_| 0.5), Vec::new());
        let centered = self.chance()?;
        Ok((|| {
            if centered {
                let center = self.node(mean.clone(), &[&x], &one)?;
                x = self.binary(Binary::Subtract, &x, &center, &dims)?;
            }
            let square = self.binary(Binary::Multiply, &x, &x, &dims)?;
            let variance = self.node(mean, &[&square], &one)?;
            let shifted = self.binary(Binary::Add, &variance, &epsilon, &one)?;
            let root = self.node(map(Expression::unary(Unary::Sqrt)), &[&shifted], &one)?;
            self.binary(Binary::Divide, &x, &root, &dims)
        })())
    }

    /// A slice, a repetition, a transposition, a reduction or a softmax along some axis.
    fn along_axis(&mut self) -> Made {
        let x = self.value()?;
        let (axis, mut dims) = (self.u.choose_index(x.1.len())?, x.1.clone());
        let op = match self.u.int_in_range(0..=5)? {
            0 if dims[axis] == 1 => {
                dims[axis] = self.size(4)?;
                map(Expression::identity())
            }
            0 | 1 => {
                let (mut starts, steps) = (vec![0; dims.len()], vec![1; dims.len()]);
                starts[axis] = self.u.choose_index(dims[axis])?;
                dims[axis] = self.size(dims[axis] - starts[axis])?;
                Op::Slice(Slice { starts, steps })
            }
            2 => {
                dims[axis] = 1;
                Op::Reduce(Reduce { kind: ReduceKind::Max, axes: vec![axis] })
            }
            3 | 4 => {
                let mut permutation: Vec<usize> = (0..dims.len()).collect();
                permutation.swap(axis, self.u.choose_index(dims.len())?);
                permutation.rotate_left(self.u.choose_index(dims.len())?);
                dims = permutation.iter().map(|axis| x.1[*axis]).collect();
                Op::Transpose(Transpose { permutation })
            }
            _ => Op::Softmax(Softmax { axis, log: false }),
        };
        Ok(self.node(op, &[&x], &dims))
    }

    fn step(&mut self) -> Made {
        match self.u.int_in_range(0..=8)? {
            0..=3 => self.expression(),
            4 => self.product(),
            5 => self.convolution(),
            6 => self.norm(),
            _ => self.along_axis(),
        }
    }
}

fn random_program(u: &mut Unstructured<'_>) -> Result<Program> {
    let mut random = Random { u, maker: Maker::new(), pool: Vec::new() };
    let rank = random.u.int_in_range(2..=4)?;
    let dims = (0..rank).map(|_| random.size(6)).collect::<Result<Vec<_>>>()?;
    random.pool.push((random.maker.input(&dims), dims));
    for _ in 0..random.size(10)? {
        random.step()?;
    }
    let mut outputs = vec![random.pool[random.pool.len() - 1].0];
    if random.chance()? {
        outputs.push(random.u.choose(&random.pool)?.0);
    }
    Ok(random.maker.finish(&outputs))
}

#[test]
fn fused_programs_compute_what_they_did_before() {
    let mut fewer = 0;
    arbtest::arbtest(|u| {
        let program = random_program(u)?;
        let magnitude = *u.choose(&[1.0f32, 1.0, 7e19, 1e-19])?;
        let input = |id: &ValueId| {
            let shape = program.value(*id).spec.shape.clone();
            let element = |at: usize| magnitude * ((at * 29 % 31) as f32 / 15.5 - 1.0);
            let elements: Vec<f32> = (0..shape.elements()).map(element).collect();
            Tensor::from_elements(shape, &elements).expect("one for each")
        };
        let inputs: Vec<Tensor> = program.inputs.iter().map(input).collect();
        // All rewrites, or any subset: a rewrite must not need another to be right.
        let any = Rewrite::ALL.into_iter().map(|rewrite| Ok(if u.arbitrary()? { Some(rewrite) } else { None }));
        let any = any.collect::<Result<Vec<_>>>()?.into_iter().flatten().fold(Rewrites::NONE, Rewrites::with);
        let rewrites = if u.arbitrary()? { Rewrites::ALL } else { any };
        let fused = fuse(program.clone(), rewrites, &mut Folding::new(1 << 24));
        fewer += usize::from(fused.nodes.len() < program.nodes.len());
        let ((before, greatest), (after, _)) = (evaluate(&program, &inputs), evaluate(&fused, &inputs));
        let is_defined = greatest.is_finite();
        for (before, after) in before.iter().zip(&after).filter(|_| is_defined) {
            let (a, b) = (before.elements::<f32>().expect("f32"), after.elements::<f32>().expect("f32"));
            let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= TOLERANCE * greatest;
            assert!(
                a.len() == b.len() && a.iter().zip(b).all(near),
                "{rewrites:?}\n{a:?}\n{b:?}\n{program:#?}\n{fused:#?}"
            );
        }
        Ok(())
    })
    .budget_ms(800);
    assert!(fewer > 0, "no program was fused");
}

#[test]
fn factors_of_usual_size_go_into_weights_and_others_stay() {
    for (divisor, stays) in
        [(7.0f32, false), (-1e-3, false), (0.0, true), (2f32.powi(-126), true), (f32::INFINITY, false)]
    {
        let mut maker = Maker::new();
        let (x, weights) = (maker.input(&[1, 1, 2, 3]), maker.constant(&[1, 1, 1, 1], |_| 6.0));
        let op = Conv { strides: [1; 2], pads: [0; 4], dilations: [1; 2], group: 1, epilogue: None };
        let conv = maker.node(Op::Conv(op), &[x, weights], &[1, 1, 2, 3]);
        let divisor = maker.constant(&[], |_| divisor);
        let quotient = maker.node(map(Expression::binary(Binary::Divide)), &[conv, divisor], &[1, 1, 2, 3]);
        let program = maker.finish(&[quotient]);
        let fused = fuse(program, Rewrites::NONE.with(Rewrite::Scales), &mut Folding::new(1 << 24));
        assert_eq!(fused.nodes.len(), if stays { 2 } else { 1 });
    }
}
