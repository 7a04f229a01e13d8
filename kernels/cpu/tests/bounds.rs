//! Preparing a kernel takes no more memory than a bound, even if a model asks for huge sizes: plans prepare kernels
//! before they know that anything fits.

use anabranch_cpu::prepare;
use anabranch_op::op::{Conv, Coordinates, Fourier, Interpolation, NodeSpec, Op, Pad, PadMode, Resize};
use anabranch_op::{DType, KernelError, Shape, TensorSpec};

fn spec(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(DType::F32, Shape::new(dims).expect("within the address space"))
}

#[test]
fn tables_of_kernels_are_bounded() {
    for columns in [1 << 23, 1 << 38] {
        let (coordinates, scales) = (Coordinates::HalfPixel, [1.0, columns as f64 / 4.0]);
        let resize = Op::Resize(Resize { interpolation: Interpolation::Linear, coordinates, scales });
        let node = NodeSpec { op: resize, inputs: vec![spec(&[1, 1, 1, 4])], outputs: vec![spec(&[1, 1, 1, columns])] };
        assert!(matches!(prepare(&node, &[false]), Err(KernelError::Memory { .. })), "{columns} columns");
    }
    for border in [1usize << 25, 1 << 38] {
        let pad = Op::Pad(Pad { mode: PadMode::ZERO, before: vec![border as isize] });
        let node = NodeSpec { op: pad, inputs: vec![spec(&[4])], outputs: vec![spec(&[4 + border])] };
        assert!(matches!(prepare(&node, &[false]), Err(KernelError::Memory { .. })), "{border} elements");
    }
    let transform = |length: usize| {
        let op = Op::Fourier(Fourier { length, inverse: false });
        NodeSpec { op, inputs: vec![spec(&[1, 4, 1])], outputs: vec![spec(&[1, 4, 2])] }
    };
    // A prime number, for which a transform is a longer convolution; powers of two; and the greatest number.
    for length in [1_299_709, 1 << 23, 1 << 40, usize::MAX] {
        let prepared = prepare(&transform(length), &[false]);
        assert!(matches!(prepared, Err(KernelError::Memory { .. })), "a transform of {length}");
    }
    assert!(prepare(&transform(200_000), &[false]).is_ok_and(|kernel| kernel.resident_bytes() < 1 << 24));
    let (strides, dilations, pads) = ([1, 1], [1, 1], [0; 4]);
    let conv = Op::Conv(Conv { strides, pads, dilations, group: 1, epilogue: None });
    let window = [4, 4, 1, 1 << 36];
    let node = NodeSpec { op: conv, inputs: vec![spec(&window); 2], outputs: vec![spec(&[4, 4, 1, 1])] };
    assert!(matches!(prepare(&node, &[false; 2]), Err(KernelError::Memory { .. })), "a window of 2^36 columns");
    // A depthwise convolution needs no table: a kernel without tables takes this many columns.
    let border = 1 << 36;
    let (strides, dilations, pads) = ([1, 1], [1, 1], [1, border, 1, border]);
    let conv = Op::Conv(Conv { strides, pads, dilations, group: 2, epilogue: None });
    let inputs = vec![spec(&[1, 2, 8, 8]), spec(&[2, 1, 3, 3])];
    let node = NodeSpec { op: conv, inputs, outputs: vec![spec(&[1, 2, 8, 6 + 2 * border])] };
    assert!(prepare(&node, &[false, true]).is_ok_and(|kernel| kernel.resident_bytes() < 1 << 28));
}
