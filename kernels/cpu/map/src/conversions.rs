//! Tests of maps that only convert: results are those of a conversion to the domain and of one from it.

use super::number::Number;
use crate::testing::{run_all_ways, shape};
use anabranch_op::Buffer;
use anabranch_op::dtype::DType;
use anabranch_op::op::{Domain, Expression, Map, NodeSpec, Op};
use anabranch_op::tensor::{Tensor, TensorSpec};
use std::sync::Arc;

const DTYPES: [DType; 13] = [
    DType::Bool,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Returns numbers around the bounds of all types, and around the greatest integers that floats have. Floats have
/// fractions, infinities and NaN, too.
fn numbers(dtype: DType) -> Tensor {
    let powers = [0, 7, 8, 15, 16, 24, 31, 32, 53, 62].map(|power| 1i64 << power);
    let near = powers.into_iter().flat_map(|power| [-power - 1, -power, power - 1, power, power + 1]);
    let integers: Vec<i64> = near.chain([0, 200, -56, i64::MIN, i64::MAX]).collect();
    let floats = [0.5, -1.5, 3e9, 1e20, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let floats = if dtype.is_float() { &floats[..] } else { &[] };
    let count = integers.len() + floats.len();
    let mut buffer = Buffer::zeroed(count * dtype.size());
    let (whole, rest) = buffer.bytes_mut().split_at_mut(integers.len() * dtype.size());
    i64::store(&integers, dtype, whole);
    f64::store(floats, dtype, rest);
    Tensor::new(TensorSpec::new(dtype, shape(&[count])), Arc::new(buffer)).expect("as many bytes")
}

/// Returns the elements as those of another type, by way of a domain.
fn converted<T: Number>(from: &Tensor, to: DType) -> Vec<u8> {
    let count = from.shape().elements();
    let (mut values, mut bytes) = (vec![T::zeroed(); count], vec![0u64; count]);
    T::load(from.dtype(), from.bytes(), &mut values);
    let bytes = &mut bytemuck::cast_slice_mut(&mut bytes)[..count * to.size()];
    T::store(&values, to, bytes);
    bytes.to_vec()
}

#[test]
fn conversions_go_by_way_of_the_domain() {
    for from in DTYPES {
        let input = numbers(from);
        for to in DTYPES {
            for domain in [Domain::F32, Domain::F64, Domain::I64, Domain::U64] {
                let output = TensorSpec::new(to, input.shape().clone());
                let op = Op::Map(Map { domain, expression: Expression::identity() });
                let node = NodeSpec { op, inputs: vec![input.spec().clone()], outputs: vec![output] };
                let got = run_all_ways(&node, std::slice::from_ref(&input)).remove(0);
                let want = match domain {
                    Domain::F32 => converted::<f32>(&input, to),
                    Domain::F64 => converted::<f64>(&input, to),
                    Domain::I64 => converted::<i64>(&input, to),
                    Domain::U64 => converted::<u64>(&input, to),
                };
                assert_eq!(got.bytes(), want, "{from} to {to} in {domain:?}");
            }
        }
    }
}
