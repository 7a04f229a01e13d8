//! How much work a node is: floating-point operations and bytes moved, from its shapes alone.

use super::{Class, Map, NodeSpec, Op};
use serde::{Deserialize, Serialize};

/// The work of one execution of a node, independent of the device: what a roofline model divides by peak rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Arithmetic operations; a multiply-add counts two, a transcendental function one.
    pub flops: f64,
    /// Bytes read, each input once.
    pub bytes_read: f64,
    /// Bytes written, each output once.
    pub bytes_written: f64,
}

impl Work {
    /// Bytes read and written.
    pub fn bytes(&self) -> f64 {
        self.bytes_read + self.bytes_written
    }
}

impl NodeSpec {
    /// The node's work. O(number of tensors).
    pub fn work(&self) -> Work {
        let bytes = |specs: &[crate::TensorSpec]| specs.iter().map(|s| s.bytes() as f64).sum::<f64>();
        Work { flops: self.flops(), bytes_read: bytes(&self.inputs), bytes_written: bytes(&self.outputs) }
    }

    /// The op's class as a canonical task.
    pub fn class(&self) -> Class {
        let read = self.inputs.iter().map(|s| s.shape.elements()).max().unwrap_or(0);
        let written = self.outputs.first().map_or(0, |s| s.shape.elements());
        match &self.op {
            Op::Block(_) if written < read => Class::Downsampler,
            Op::Block(_) => Class::ElementWise,
            Op::Map(_) if written > read => Class::Upsampler,
            Op::Map(_) => Class::ElementWise,
            Op::MatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) => Class::MatMul,
            Op::Reduce(_) | Op::ArgReduce(_) | Op::Pool(_) => Class::Downsampler,
            Op::Resize(_) if written > read => Class::Upsampler,
            Op::Softmax(_)
            | Op::Normalize(_)
            | Op::Resize(_)
            | Op::Recurrent(_)
            | Op::Transpose(_)
            | Op::Concat(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Gather(_) => Class::Buffer,
        }
    }

    fn flops(&self) -> f64 {
        let elements = |specs: &[crate::TensorSpec], i: usize| specs.get(i).map_or(0.0, |s| s.shape.elements() as f64);
        let read = elements(&self.inputs, 0);
        let written = elements(&self.outputs, 0);
        let dim = |i: usize, back: usize| {
            let dims = self.inputs.get(i).map_or(&[][..], |s| s.shape.dims());
            dims.len().checked_sub(back).and_then(|axis| dims.get(axis)).map_or(0.0, |d| *d as f64)
        };
        let own = match &self.op {
            Op::Map(Map { expression, .. }) => written * expression.steps().len() as f64,
            Op::MatMul(op) => 2.0 * written * if op.transpose_a { dim(0, 2) } else { dim(0, 1) },
            Op::Conv(_) => 2.0 * written * dim(1, 3) * dim(1, 2) * dim(1, 1),
            Op::ConvTranspose(_) => 2.0 * read * dim(1, 3) * dim(1, 2) * dim(1, 1),
            Op::Pool(op) => written * (op.window[0] * op.window[1]) as f64,
            Op::Reduce(_) | Op::ArgReduce(_) => read,
            Op::Softmax(_) => 5.0 * read,
            Op::Normalize(_) => 7.0 * read,
            Op::Resize(_) => 8.0 * written,
            Op::Recurrent(op) => written * op.kind.gates() as f64 * (2.0 * dim(1, 1) + 4.0),
            Op::Transpose(_) | Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::Gather(_) => 0.0,
            Op::Block(block) => block.members.iter().map(|member| member.spec.flops()).sum(),
        };
        own + self.op.epilogue().map_or(0.0, |e| written * e.steps().len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Block, Domain, Expression, Member, Operand, Unary};
    use crate::shape::Shape;
    use crate::{DType, TensorSpec};

    #[test]
    fn a_block_moves_only_what_crosses_its_border() {
        let spec = TensorSpec::new(DType::F32, Shape::new([8, 4]).expect("small"));
        let member = |from| {
            let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
            Member {
                spec: NodeSpec { op, inputs: vec![spec.clone()], outputs: vec![spec.clone()] },
                inputs: vec![from],
            }
        };
        let members = vec![member(Operand::Input(0)), member(Operand::Member(0)), member(Operand::Member(1))];
        let op = Op::Block(Block { members, outputs: vec![2], rows: 8, chunk_rows: 2 });
        let node = NodeSpec { op, inputs: vec![spec.clone()], outputs: vec![spec.clone()] };
        assert_eq!(node.work(), Work { flops: 3.0 * 32.0, bytes_read: 128.0, bytes_written: 128.0 });
    }
}
