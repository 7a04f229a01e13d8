//! Operations and bytes moved by a node, from its op, types and shapes, never from values. Also returns the op's class
//! as a canonical task.

use super::{Class, Map, NodeSpec, Op};
use crate::tensor::TensorSpec;
use serde::{Deserialize, Serialize};

/// Work of one execution of a node, independent of the device: a roofline model divides it by peak rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Arithmetic operations; a multiply-add counts two, a transcendental function one.
    pub flops: f64,
    /// Bytes read: each input's part that the kernel touches, once; recurrent weights whole, at every time step.
    pub bytes_read: f64,
    /// Bytes written, each output once.
    pub bytes_written: f64,
}

impl Work {
    /// Returns the bytes read and written.
    pub fn bytes(&self) -> f64 {
        self.bytes_read + self.bytes_written
    }
}

impl NodeSpec {
    /// Returns the node's work. O(number of tensors).
    pub fn work(&self) -> Work {
        let bytes = |specs: &[TensorSpec]| specs.iter().map(|s| s.bytes() as f64).sum::<f64>();
        let mut others = bytes(self.inputs.get(1..).unwrap_or_default());
        if matches!(self.op, Op::Trees(_)) {
            // Few rows pass only some of the nodes.
            others = others.min(16.0 * self.tree_steps());
        }
        if matches!(self.op, Op::Attention(_)) {
            others = self.attention_bytes() + bytes(self.inputs.get(3..).unwrap_or_default());
        }
        Work {
            flops: self.flops(),
            bytes_read: self.touched_bytes() + self.repeated_bytes() + others,
            bytes_written: bytes(&self.outputs),
        }
    }

    /// Returns the bytes of the first input that are read: the chosen slices of a table, the pixels of an image that
    /// windows cover.
    fn touched_bytes(&self) -> f64 {
        self.inputs.first().map_or(0.0, |input| (input.bytes() as f64).min(self.covered() * input.dtype.size() as f64))
    }

    /// Returns the maximum elements of the first input that are read, each counted as often as it is read.
    fn covered(&self) -> f64 {
        let written = self.outputs.first().map_or(0.0, |output| output.shape.elements() as f64);
        match &self.op {
            Op::Gather(_) | Op::Slice(_) | Op::Pad(_) => written,
            Op::Resize(op) => written * op.interpolation.neighbours(),
            Op::Pool(op) => written * (op.window[0] * op.window[1]) as f64,
            // At each pixel of the output, a window of every channel.
            Op::Conv(_) | Op::IntegerConv(_) => {
                let window = self.size(0, 1) * self.size(1, 2) * self.size(1, 3);
                written / self.size(1, 0).max(1.0) * window
            }
            _ => f64::INFINITY,
        }
    }

    /// Returns the bytes that are read again: a recurrent layer's weights, after the first time step.
    fn repeated_bytes(&self) -> f64 {
        match (&self.op, self.recurrent_sizes(), self.inputs.get(1)) {
            (Op::Recurrent(_), Some(([steps, ..], _)), Some(weights)) => {
                steps.saturating_sub(1) as f64 * weights.bytes() as f64
            }
            _ => 0.0,
        }
    }

    /// Returns the op's class as a canonical task.
    pub fn class(&self) -> Class {
        let read = self.inputs.iter().map(|s| s.shape.elements()).max().unwrap_or(0);
        let written = self.outputs.first().map_or(0, |s| s.shape.elements());
        match &self.op {
            Op::Block(_) if written < read => Class::Downsampler,
            Op::Block(_) => Class::ElementWise,
            Op::Map(_) if written > read => Class::Upsampler,
            Op::Map(_) => Class::ElementWise,
            Op::MatMul(_)
            | Op::NarrowMatMul(_)
            | Op::IntegerMatMul(_)
            | Op::IntegerConv(_)
            | Op::Conv(_)
            | Op::ConvTranspose(_) => Class::MatMul,
            Op::Reduce(_) | Op::ArgReduce(_) | Op::Pool(_) | Op::TopK(_) => Class::Downsampler,
            Op::Resize(_) if written > read => Class::Upsampler,
            Op::Softmax(_)
            | Op::Normalize(_)
            | Op::Resize(_)
            | Op::Recurrent(_)
            | Op::Transpose(_)
            | Op::Concat(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Gather(_)
            | Op::Running(_)
            | Op::Fourier(_)
            | Op::Scatter(_)
            | Op::Attention(_)
            | Op::Append(_)
            | Op::Rotary(_)
            | Op::Length(_)
            | Op::Trees(_) => Class::Buffer,
        }
    }

    fn flops(&self) -> f64 {
        let elements = |specs: &[TensorSpec], i: usize| specs.get(i).map_or(0.0, |s| s.shape.elements() as f64);
        let read = elements(&self.inputs, 0);
        let written = elements(&self.outputs, 0);
        let dim = |i: usize, back: usize| {
            let dims = self.inputs.get(i).map_or(&[][..], |s| s.shape.dims());
            dims.len().checked_sub(back).and_then(|axis| dims.get(axis)).map_or(0.0, |d| *d as f64)
        };
        let own = match &self.op {
            Op::Map(Map { expression, .. }) => written * expression.steps().len() as f64,
            Op::MatMul(op) => 2.0 * written * if op.transpose_a { dim(0, 2) } else { dim(0, 1) },
            Op::NarrowMatMul(_) | Op::IntegerMatMul(_) => 2.0 * written * dim(0, 1),
            Op::Conv(_) | Op::IntegerConv(_) => 2.0 * written * dim(1, 3) * dim(1, 2) * dim(1, 1),
            Op::ConvTranspose(_) => 2.0 * read * dim(1, 3) * dim(1, 2) * dim(1, 1),
            Op::Pool(op) => written * (op.window[0] * op.window[1]) as f64,
            Op::Reduce(_) | Op::ArgReduce(_) => read,
            // A selection, and then each group's kept elements are sorted.
            Op::TopK(op) => {
                let kept = self.outputs.first().and_then(|to| to.shape.dims().get(op.axis)).copied().unwrap_or(0);
                4.0 * read + written * (kept as f64).max(2.0).log2()
            }
            Op::Running(_) | Op::Length(_) => read,
            Op::Fourier(op) => 5.0 * dim(0, 3) * op.steps(),
            Op::Scatter(_) => elements(&self.inputs, 2),
            Op::Trees(_) => 2.0 * self.tree_steps(),
            Op::Attention(_) => self.attention_flops(),
            Op::Rotary(_) => 3.0 * read,
            Op::Softmax(_) => 5.0 * read,
            Op::Normalize(_) => 7.0 * read,
            Op::Resize(op) => 2.0 * written * op.interpolation.neighbours(),
            Op::Recurrent(op) => written * op.kind.gates() as f64 * (2.0 * dim(1, 1) + 4.0),
            Op::Transpose(_) | Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::Gather(_) | Op::Append(_) => 0.0,
            Op::Block(block) => block.members.iter().map(|member| member.spec.flops()).sum(),
        };
        own + self.op.epilogue().map_or(0.0, |e| written * e.steps().len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Block, Domain, Expression, Member, Operand, Unary};
    use crate::op::{
        Conv, ConvTranspose, Coordinates, Gather, Interpolation, NearestRounding, Pad, PadMode, Pool, PoolKind,
        Recurrent, RecurrentKind, Resize, Slice,
    };
    use crate::shape::Shape;
    use crate::{DType, TensorSpec};

    fn spec(dtype: DType, dims: &[usize]) -> TensorSpec {
        TensorSpec::new(dtype, Shape::new(dims).expect("small"))
    }

    /// Returns the work of an op on floats.
    fn work(op: Op, inputs: &[&[usize]], output: &[usize]) -> Work {
        let inputs = inputs.iter().map(|dims| spec(DType::F32, dims)).collect();
        NodeSpec { op, inputs, outputs: vec![spec(DType::F32, output)] }.work()
    }

    #[test]
    fn only_what_is_touched_is_read() {
        let gather = Op::Gather(Gather { axis: 0, elementwise: false });
        let inputs = vec![spec(DType::F32, &[50_000, 64]), spec(DType::I64, &[3])];
        let node = NodeSpec { op: gather, inputs, outputs: vec![spec(DType::F32, &[3, 64])] };
        assert_eq!(node.work(), Work { flops: 0.0, bytes_read: 3.0 * 64.0 * 4.0 + 3.0 * 8.0, bytes_written: 768.0 });

        let slice = Op::Slice(Slice { starts: vec![5, 0], steps: vec![2, 1] });
        assert_eq!(work(slice, &[&[100, 10]], &[4, 10]).bytes_read, 160.0);
        let pad = |before| Op::Pad(Pad { mode: PadMode::Edge, before });
        assert_eq!(work(pad(vec![1, 1]), &[&[2, 2]], &[4, 4]).bytes_read, 16.0);
        assert_eq!(work(pad(vec![0, -2]), &[&[2, 8]], &[2, 3]).bytes_read, 24.0);

        let resize = |interpolation| {
            Op::Resize(Resize { interpolation, coordinates: Coordinates::Asymmetric, scales: [0.25; 2] })
        };
        let nearest = resize(Interpolation::Nearest(NearestRounding::Floor));
        assert_eq!(
            work(nearest, &[&[1, 1, 16, 16]], &[1, 1, 4, 4]),
            Work { flops: 32.0, bytes_read: 64.0, bytes_written: 64.0 }
        );
        let linear = resize(Interpolation::Linear);
        assert_eq!(work(linear, &[&[1, 1, 16, 16]], &[1, 1, 4, 4]).bytes_read, 256.0);
    }

    #[test]
    fn windows_apart_from_each_other_leave_pixels_unread() {
        let pool =
            |strides| Op::Pool(Pool { kind: PoolKind::Max, window: [2, 2], strides, pads: [0; 4], dilations: [1, 1] });
        assert_eq!(work(pool([4, 4]), &[&[1, 3, 16, 16]], &[1, 3, 4, 4]).bytes_read, 4.0 * 4.0 * 48.0);
        assert_eq!(work(pool([1, 1]), &[&[1, 3, 16, 16]], &[1, 3, 15, 15]).bytes_read, 4.0 * 768.0);
        let conv = Op::Conv(Conv { strides: [2, 2], pads: [0; 4], dilations: [1, 1], group: 1, epilogue: None });
        // 4 × 4 of the 8 × 8 pixels of 6 channels, and 10 × 6 weights.
        let pointwise = work(conv.clone(), &[&[1, 6, 8, 8], &[10, 6, 1, 1]], &[1, 10, 4, 4]);
        assert_eq!((pointwise.flops, pointwise.bytes_read), (2.0 * 160.0 * 6.0, 4.0 * (96.0 + 60.0)));
        // Windows of 3 × 3 every 2 pixels cover all.
        assert_eq!(work(conv, &[&[1, 6, 9, 9], &[10, 6, 3, 3]], &[1, 10, 4, 4]).bytes_read, 4.0 * (486.0 + 540.0));
    }

    #[test]
    fn transposed_convolutions_spread_every_element() {
        let op = ConvTranspose { strides: [2, 2], pads: [0; 4], dilations: [1, 1], group: 2, epilogue: None };
        let got = work(Op::ConvTranspose(op), &[&[1, 4, 5, 5], &[4, 3, 2, 2]], &[1, 6, 10, 10]);
        // Each of 100 elements to 3 output channels through 4 taps.
        assert_eq!(got, Work { flops: 2.0 * 100.0 * 12.0, bytes_read: 4.0 * (100.0 + 48.0), bytes_written: 2400.0 });
    }

    #[test]
    fn recurrent_weights_are_read_at_every_step() {
        let (steps, batch, units) = (5, 2, 8);
        let op = Op::Recurrent(Recurrent::new(RecurrentKind::Gru { linear_before_reset: true }));
        let inputs: [&[usize]; 4] = [&[steps, batch, 3 * units], &[3 * units, units], &[3 * units], &[batch, units]];
        let got = work(op, &inputs, &[steps, batch, units]);
        // 80 states of three gates, each a product of 8 multiply-adds and four operations of the cell.
        assert_eq!(got.flops, 80.0 * 3.0 * (16.0 + 4.0));
        assert_eq!(got.bytes_read, 4.0 * (240.0 + 5.0 * 192.0 + 24.0 + 16.0));
    }

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
