//! Copies of 16-bit floats, which keep their bits and take no conversions: maps of integers of 16 bits.

use anabranch_op::dtype::DType;
use anabranch_op::op::{Domain, Map, NodeSpec, Op};
use anabranch_op::tensor::TensorSpec;

/// Returns the node and its map with integers instead of 16-bit floats, if it only copies elements.
pub(crate) fn copied_halves(node: &NodeSpec, map: &Map) -> Option<(NodeSpec, Map)> {
    let (inputs, output) = (&node.inputs[..], &node.outputs[0]);
    let copies = map.expression.steps().is_empty() && inputs.len() == 1 && inputs[0].dtype == output.dtype;
    // A domain of integers cuts off fractions.
    if !copies || map.domain.is_integer() || !matches!(output.dtype, DType::F16 | DType::BF16) {
        return None;
    }
    let bits = |spec: &TensorSpec| TensorSpec::new(DType::U16, spec.shape.clone());
    let map = Map { domain: Domain::I64, ..map.clone() };
    let op = Op::Map(map.clone());
    Some((NodeSpec { op, inputs: vec![bits(&inputs[0])], outputs: vec![bits(output)] }, map))
}

#[cfg(test)]
mod tests {
    use crate::testing::{run_all_ways, shape};
    use anabranch_op::Buffer;
    use anabranch_op::dtype::DType;
    use anabranch_op::op::{Domain, Expression, Map, NodeSpec, Op};
    use anabranch_op::tensor::{Tensor, TensorSpec};
    use std::sync::Arc;

    #[test]
    fn rows_of_every_length_are_copied_with_their_bits() {
        for (dtype, width) in [DType::F16, DType::BF16, DType::F32, DType::U8, DType::I64]
            .into_iter()
            .flat_map(|dtype| (1..70).chain([511, 512, 513]).map(move |width| (dtype, width)))
        {
            let (dims, out) = ([3, 1, width], [2, 3, 5, width]);
            let spec = TensorSpec::new(dtype, shape(&dims));
            let mut buffer = Buffer::zeroed(spec.bytes());
            // All kinds of numbers, NaN with any bits among them.
            buffer.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 5) as u8 | 0x70);
            let input = Tensor::new(spec, Arc::new(buffer)).expect("as many bytes");
            let domain = if dtype.is_float() { Domain::F32 } else { Domain::I64 };
            let node = NodeSpec {
                op: Op::Map(Map { domain, expression: Expression::identity() }),
                inputs: vec![input.spec().clone()],
                outputs: vec![TensorSpec::new(dtype, shape(&out))],
            };
            let made = run_all_ways(&node, std::slice::from_ref(&input)).remove(0);
            let row = width * dtype.size();
            for (at, made) in made.bytes().chunks_exact(row).enumerate() {
                assert_eq!(made, &input.bytes()[at / 5 % 3 * row..][..row], "{dtype} {width} at {at}");
            }
        }
    }
}
