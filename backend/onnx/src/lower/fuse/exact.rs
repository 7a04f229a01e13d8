//! Checks rewrites that promise exact bits: random chains of casts between all types and of cheap functions, over
//! numbers at the ends of the types, give equal bits fused and node by node.

use super::tests::evaluate;
use super::{Rewrite, Rewrites, fuse};
use crate::lower::expression::domain_of;
use crate::lower::fold::Folding;
use anabranch_ir::program::{Node, Origin, Program, ValueId};
use anabranch_kernels::op::{Append, Binary, Domain, Expression, Literal, Map, Op, Register, Step, Transpose, Unary};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use arbtest::arbitrary::{Result, Unstructured};

/// Rewrites that promise exact bits, of expressions and of copies.
const EXACT: [Rewrite; 8] = [
    Rewrite::Common,
    Rewrite::Tidy,
    Rewrite::Hoists,
    Rewrite::Slices,
    Rewrite::Transposes,
    Rewrite::Appends,
    Rewrite::Maps,
    Rewrite::Epilogues,
];

/// Special numbers: zeros, halves, the least and the greatest of each type, and their neighbours.
const NUMBERS: [f32; 52] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    3.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.5,
    0.1,
    -0.3,
    5.25,
    6.0,
    7.0,
    127.5,
    128.0,
    255.5,
    -129.0,
    240.0,
    248.0,
    448.0,
    464.0,
    464.1,
    57344.0,
    61440.0,
    65504.0,
    65519.0,
    65520.0,
    70000.0,
    -70000.0,
    2.1e9,
    -3e9,
    1e19,
    16_777_216.0,
    9.2e18,
    1e-3,
    1e-5,
    6.1e-5,
    3e-8,
    2.9802322e-8,
    2.9802326e-8,
    1e-8,
    1e-30,
    -1e30,
    f32::MIN_POSITIVE,
    1e-45,
    -3e-40,
    f32::MAX,
    f32::INFINITY,
    f32::NAN,
];

const COUNT: usize = 2 * NUMBERS.len();

const DIMS: [usize; 2] = [NUMBERS.len(), 2];

const TYPES: [DType; 19] = [
    DType::F32,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3Fn,
    DType::F8E4M3Fnuz,
    DType::F8E5M2,
    DType::F8E5M2Fnuz,
    DType::F4E2M1,
    DType::F64,
    DType::Bool,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
];

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("small")
}

/// A random program of expressions and transpositions; the last value is most likely to be read.
struct Random<'a, 'u> {
    u: &'a mut Unstructured<'u>,
    program: Program,
    pool: Vec<ValueId>,
}

impl Random<'_, '_> {
    fn spec(&self, value: ValueId) -> TensorSpec {
        self.program.value(value).spec.clone()
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], dtype: DType, dims: &[usize]) {
        let name = format!("node{}", self.program.nodes.len());
        let made = self.program.add_node(name, op, inputs, TensorSpec::new(dtype, shape(dims)));
        self.pool.push(made);
    }

    fn map(&mut self, domain: Domain, expression: Expression, inputs: &[ValueId], dtype: DType) {
        let dims = self.spec(inputs[0]).shape.dims().to_vec();
        self.node(Op::Map(Map { domain, expression }), inputs, dtype, &dims);
    }

    /// Appends the last value to a cache of 16-bit floats, or to itself.
    fn append(&mut self) -> Result<()> {
        let dtype = if self.u.arbitrary()? { DType::F16 } else { DType::BF16 };
        let last = self.pool[self.pool.len() - 1];
        if self.spec(last).dtype != dtype {
            self.map(Domain::F32, Expression::identity(), &[last], dtype);
        }
        let new = self.pool[self.pool.len() - 1];
        let cache = TensorSpec::new(dtype, shape(&[1, 1, COUNT + 1, 1]));
        let is_own = self.u.ratio(1, 4)?;
        let past = if is_own { new } else { self.constant_of(Tensor::zeroed(cache.clone())) };
        let start = self.constant_of(Tensor::from_i64s(&[1]));
        let made = self.program.add_node("append", Op::Append(Append { circular: false }), &[past, new, start], cache);
        if let Some(node) = self.program.nodes.last_mut() {
            let read = if is_own { 0..2 } else { 1..2 };
            node.spec.inputs[read].iter_mut().for_each(|spec| spec.shape = shape(&[1, 1, COUNT, 1]));
        }
        self.program.add_output("appended", made);
        Ok(())
    }

    fn value(&mut self) -> Result<ValueId> {
        let at = if self.u.ratio(1, 4)? { self.u.choose_index(self.pool.len())? } else { self.pool.len() - 1 };
        Ok(self.pool[at])
    }

    /// A constant of this type: one number, or one per column.
    fn constant(&mut self, dtype: DType) -> Result<ValueId> {
        let dims: &[usize] = if self.u.arbitrary()? { &[] } else { &DIMS[1..] };
        let single: Vec<f32> =
            (0..shape(dims).elements()).map(|_| self.u.choose(&NUMBERS).copied()).collect::<Result<_>>()?;
        let single = Tensor::from_elements(shape(dims), &single).expect("as many");
        let single = self.constant_of(single);
        let dims = dims.to_vec();
        // Folded as the lowering of a cast folds it.
        let op = Op::Map(Map { domain: cast_domain(DType::F32, dtype), expression: Expression::identity() });
        let spec = TensorSpec::new(dtype, shape(&dims));
        let node = anabranch_kernels::op::NodeSpec { op, inputs: vec![self.spec(single)], outputs: vec![spec] };
        let held = self.program.constant(single).and_then(|constant| constant.load().ok()).expect("in memory");
        let made = crate::lower::fold::compute(&node, &[held], &[None]).expect("a cast").remove(0);
        Ok(self.constant_of(made))
    }

    fn constant_of(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("value{}", self.program.values.len());
        self.program.add_value(name, tensor.spec().clone(), Origin::Constant(tensor.into()))
    }

    /// Adds a cast as lowering writes it.
    fn cast(&mut self) -> Result<()> {
        let (x, to) = (self.value()?, *self.u.choose(&TYPES)?);
        let from = self.spec(x).dtype;
        let domain = cast_domain(from, to);
        let not = Expression::unary(Unary::Not);
        let expression = match to {
            DType::Bool => not.then(&not, 0).expect("two steps"),
            _ => Expression::identity(),
        };
        self.map(domain, expression, &[x], to);
        Ok(())
    }

    fn unary(&mut self) -> Result<()> {
        let x = self.value()?;
        let dtype = self.spec(x).dtype;
        let floats =
            [Unary::Negate, Unary::Abs, Unary::Relu, Unary::Sqrt, Unary::Reciprocal, Unary::Round, Unary::Tanh];
        let domain = domain_of(dtype);
        let function = if domain.is_integer() { Unary::Negate } else { *self.u.choose(&floats)? };
        self.map(domain, Expression::unary(function), &[x], dtype);
        Ok(())
    }

    fn binary(&mut self) -> Result<()> {
        let x = self.value()?;
        let spec = self.spec(x);
        let other = self.value()?;
        let other = if self.spec(other) == spec { other } else { self.constant(spec.dtype)? };
        let functions = [Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Min, Binary::Max, Binary::Less];
        let function = *self.u.choose(&functions)?;
        let dtype = if function == Binary::Less { DType::Bool } else { spec.dtype };
        let fits = self.spec(other).shape.broadcast(&spec.shape).is_ok_and(|shape| shape == spec.shape);
        if fits {
            self.map(domain_of(spec.dtype), Expression::binary(function), &[x, other], dtype);
        }
        Ok(())
    }

    /// Adds a function of a value and a literal.
    fn literal(&mut self) -> Result<()> {
        let x = self.value()?;
        let (dtype, number) = (self.spec(x).dtype, f64::from(*self.u.choose(&NUMBERS)?));
        let domain = domain_of(dtype);
        let literal = if domain.is_integer() { Literal::Int(number as i64) } else { Literal::Float(number) };
        let functions = [Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Max, Binary::Power];
        let function = *self.u.choose(&functions[..if domain.is_integer() { 4 } else { 5 }])?;
        let (a, b) = if self.u.arbitrary()? { (0, 1) } else { (1, 0) };
        let steps = vec![Step::Constant(literal), Step::Binary(function, Register(a), Register(b))];
        self.map(domain, Expression::new(1, steps).expect("two steps"), &[x], dtype);
        Ok(())
    }

    fn transpose(&mut self) -> Result<()> {
        let x = self.value()?;
        let TensorSpec { dtype, shape } = self.spec(x);
        let dims: Vec<usize> = shape.dims().iter().rev().copied().collect();
        self.node(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[x], dtype, &dims);
        Ok(())
    }
}

/// Domain in which lowering casts.
fn cast_domain(from: DType, to: DType) -> Domain {
    match to {
        DType::F64 => Domain::F64,
        DType::Bool => domain_of(from),
        _ if from == DType::F64 => Domain::F64,
        _ if domain_of(from).is_integer() && !to.is_float() => Domain::I64,
        DType::BF16 if domain_of(from).is_integer() && from.size() >= 4 => domain_of(from),
        _ => Domain::F32,
    }
}

fn random_program(u: &mut Unstructured<'_>) -> Result<Program> {
    let mut random = Random { u, program: Program::default(), pool: Vec::new() };
    let input = random.program.add_input("x", TensorSpec::new(DType::F32, shape(&DIMS)));
    random.pool.push(input);
    for _ in 0..random.u.int_in_range(2..=9)? {
        match random.u.int_in_range(0..=7)? {
            0..=2 => random.cast()?,
            3 => random.unary()?,
            4 => random.binary()?,
            5 | 6 => random.literal()?,
            _ => random.transpose()?,
        }
    }
    let is_wide = random.spec(random.pool[random.pool.len() - 1]).dtype == DType::F64;
    if !is_wide && random.u.ratio(1, 2)? {
        random.append()?;
    }
    let last = random.pool[random.pool.len() - 1];
    let any = *random.u.choose(&random.pool)?;
    let mut program = random.program;
    if program.outputs.is_empty() || random.u.arbitrary()? {
        program.add_output("last", last);
    }
    program.add_output("any", any);
    Ok(program)
}

/// Bits of each element; all NaNs are equal.
fn bits(tensor: &Tensor) -> Vec<u64> {
    let size = tensor.dtype().size();
    let of = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let numbers = crate::host_operators::numbers(tensor);
    let is_nan = |at: usize| tensor.dtype().is_float() && numbers.as_ref().is_some_and(|numbers| numbers[at].is_nan());
    let elements = tensor.bytes().chunks(size).enumerate();
    elements.map(|(at, bytes)| if is_nan(at) { u64::MAX } else { of(bytes) }).collect()
}

#[test]
fn exact_rewrites_keep_every_bit() {
    let rewrites = EXACT.into_iter().fold(Rewrites::NONE, Rewrites::with);
    let elements: Vec<f32> = (0..COUNT).map(|at| NUMBERS[at * 7 % NUMBERS.len()]).collect();
    let input = Tensor::from_elements(shape(&DIMS), &elements).expect("as many");
    let (mut fewer, mut rounding) = (0, 0);
    arbtest::arbtest(|u| {
        let program = random_program(u)?;
        let fused = fuse(program.clone(), rewrites, &mut Folding::new(1 << 24));
        let rounds = |node: &Node| matches!(node.spec.op, Op::Append(_)) && node.spec.inputs[1].dtype == DType::F32;
        rounding += usize::from(fused.nodes.iter().any(rounds));
        fewer += usize::from(fused.nodes.len() < program.nodes.len());
        let inputs = [input.clone()];
        let ((before, _), (after, _)) = (evaluate(&program, &inputs), evaluate(&fused, &inputs));
        for (before, after) in before.iter().zip(&after) {
            let (a, b) = (bits(before), bits(after));
            let at = a.iter().zip(&b).position(|(a, b)| a != b);
            assert!(
                before.spec() == after.spec() && at.is_none(),
                "{at:?}\n{before:?}\n{after:?}\n{program:#?}\n{fused:#?}"
            );
        }
        Ok(())
    })
    .budget_ms(800);
    assert!(fewer > 0, "no program was fused");
    assert!(rounding > 0, "no append rounds");
}
