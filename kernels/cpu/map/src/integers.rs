//! Tests of expressions of integers: results are those of the type of the domain, in every narrower type and by tables.

use super::kernel::{computed, in_domain, prepare};
use super::narrowest::narrowest;
use crate::testing::{shape, tensor};
use anabranch_cpu_base::{CpuKernel, Team};
use anabranch_kernel_testing::run_kernel;
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Binary, Domain, Expression, Literal, Map, NodeSpec, Op, Register, Step, Unary};
use anabranch_op::tensor::{Tensor, TensorSpec};
use arbtest::arbitrary::{Result as Arbitrary, Unstructured};

const INTEGERS: [DType; 14] = [
    DType::Bool,
    DType::I2,
    DType::U4,
    DType::I8,
    DType::U8,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I32,
    DType::I64,
    DType::U64,
];

/// Numbers around the bounds of all types, to which they saturate.
const NUMBERS: [f64; 19] = [
    0.0,
    1.0,
    -1.0,
    2.0,
    -3.0,
    7.0,
    -8.0,
    100.0,
    -128.0,
    127.0,
    255.0,
    256.0,
    -32768.0,
    65535.0,
    -2147483648.0,
    4294967295.0,
    1e15,
    -1e30,
    1e30,
];

const UNARY: [Unary; 9] = [
    Unary::Negate,
    Unary::Abs,
    Unary::Sign,
    Unary::Relu,
    Unary::Not,
    Unary::IsNan,
    Unary::IsInfinite,
    Unary::Reciprocal,
    Unary::Floor,
];

const BINARY: [Binary; 16] = [
    Binary::Add,
    Binary::Subtract,
    Binary::Multiply,
    Binary::Divide,
    Binary::Min,
    Binary::Max,
    Binary::FloorModulo,
    Binary::TruncatedModulo,
    Binary::Equal,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::Greater,
    Binary::GreaterOrEqual,
    Binary::And,
    Binary::Or,
    Binary::Xor,
];

const BITWISE: [Binary; 5] = [Binary::BitAnd, Binary::BitOr, Binary::BitXor, Binary::ShiftLeft, Binary::ShiftRight];

fn step(u: &mut Unstructured<'_>, domain: Domain, registers: u16) -> Arbitrary<Step> {
    let mut register = || Ok(Register(u.int_in_range(0..=registers - 1)?));
    let (a, b, c) = (register()?, register()?, register()?);
    Ok(match u.int_in_range(0..=9)? {
        0 => Step::Constant(match domain.is_integer() {
            true => Literal::Int(*u.choose(&NUMBERS)? as i64),
            false => Literal::Float(*u.choose(&NUMBERS)?),
        }),
        1..=3 => Step::Unary(*u.choose(&UNARY)?, a),
        4 => Step::Select(a, b, c),
        5 if domain.is_integer() => Step::Binary(*u.choose(&BITWISE)?, a, b),
        _ => Step::Binary(*u.choose(&BINARY)?, a, b),
    })
}

fn made(
    kernel: Result<Box<dyn CpuKernel>, KernelError>,
    node: &NodeSpec,
    inputs: &[Tensor],
) -> Result<Tensor, KernelError> {
    let rows = node.row_plan().map_or(1, |plan| plan.rows);
    let kernel = kernel.expect("the domain has the functions");
    Ok(run_kernel(&*kernel, node, inputs, &Team::solo(), &[0, rows])?.remove(0))
}

#[test]
fn narrow_integers_have_the_results_of_their_domain() {
    let mut seen = Vec::new();
    arbtest::arbtest(|u| {
        let domain = *u.choose(&[Domain::I64, Domain::I64, Domain::U64, Domain::F32, Domain::F64])?;
        let length = *u.choose(&[1usize, 15, 17, 63, 65, 300, 1024, 5000])?;
        let inputs: Vec<Tensor> = (0..u.int_in_range(1..=3)?)
            .map(|_| {
                let dims = if u.ratio(1, 5)? { vec![1] } else { vec![length] };
                let (first, stride) = (u.int_in_range(0..=18)?, u.int_in_range(1..=18)?);
                Ok(tensor(*u.choose(&INTEGERS)?, &dims, |i| NUMBERS[(first + i * stride) % NUMBERS.len()]))
            })
            .collect::<Arbitrary<_>>()?;
        let mut steps = Vec::new();
        for _ in 0..u.int_in_range(0..=if inputs.len() == 1 { 5 } else { 2 })? {
            steps.push(step(u, domain, (inputs.len() + steps.len()) as u16)?);
        }
        let Ok(expression) = Expression::new(inputs.len(), steps) else { return Ok(()) };
        let output = *u.choose(&[&INTEGERS[..], &[DType::F32, DType::F16]].concat())?;
        let map = Map { domain, expression };
        let outputs = vec![TensorSpec::new(output, shape(&[length]))];
        let specs: Vec<TensorSpec> = inputs.iter().map(|input| input.spec().clone()).collect();
        let node = NodeSpec { op: Op::Map(map.clone()), inputs: specs, outputs };
        let want = made(in_domain(&node, &map), &node, &inputs);
        for kernel in [computed(&node, &map), prepare(&node, &map)] {
            match (made(kernel, &node, &inputs), &want) {
                (Ok(found), Ok(want)) => assert!(found.same_bits(want), "{found:?} rather than {want:?}: {node:?}"),
                (found, want) => assert!(found.is_err() && want.is_err(), "{found:?} rather than {want:?}: {node:?}"),
            }
        }
        let dtypes: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
        seen.extend(narrowest(&map, &dtypes, output).filter(|dtype| !seen.contains(dtype)));
        Ok(())
    })
    .budget_ms(800);
    assert_eq!(seen.len(), 6, "only {seen:?} were computed in");
}
