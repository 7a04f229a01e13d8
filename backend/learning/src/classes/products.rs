//! Probes for calibration: matrix products, integer convolutions and recurrent layers in the sizes that networks have.

use super::Finish::{self, Gelu, Masked, Nothing, Relu, Silu};
use super::{Probe, tensor};
use anabranch_ir::program::floats;
use anabranch_kernels::DType;
use anabranch_kernels::op::{
    IntegerConv, IntegerMatMul, MatMul, NarrowFormat, NarrowMatMul, NodeSpec, Op, Recurrent, RecurrentKind,
};

/// A product with weights: rows, depth and columns; whether the weights are transposed; the operation on the result.
type Weighed = ([usize; 3], bool, Finish);

/// Products with weights: of many rows, and of one row with weights too large for a cache to keep from run to run.
pub(super) fn shared() -> Vec<Probe> {
    let sizes: [Weighed; 18] = [
        ([4, 32, 16], false, Nothing),
        ([16, 64, 64], false, Relu),
        ([20, 24, 96], false, Gelu),
        ([10, 80, 160], false, Gelu),
        ([28, 40, 120], false, Silu),
        ([64, 128, 512], true, Gelu),
        ([512, 64, 64], false, Nothing),
        ([32, 128, 512], true, Relu),
        ([100, 80, 768], true, Relu),
        ([8, 1024, 1024], false, Nothing),
        ([128, 256, 1024], false, Silu),
        ([196, 192, 576], false, Relu),
        ([64, 2048, 256], true, Relu),
        ([128, 512, 512], false, Nothing),
        ([2, 256, 256], false, Relu),
        ([1, 1280, 1000], false, Nothing),
        ([1, 768, 3072], false, Silu),
        ([1, 2048, 1536], false, Relu),
    ];
    sizes.iter().map(weighed).collect()
}

/// Products with weights of 4, 8 and 16 bits, of one row and of many rows, also with quantised rows; and products of
/// integers.
pub(super) fn narrow() -> Vec<Probe> {
    let sizes: [([usize; 3], usize); 13] = [
        ([1, 768, 768], 4),
        ([1, 2048, 2048], 4),
        ([1, 4096, 4096], 4),
        ([1, 1024, 3000], 8),
        ([1, 1024, 4096], 16),
        ([4, 512, 2048], 4),
        ([8, 1024, 1024], 16),
        ([16, 768, 768], 4),
        ([12, 128, 128], 4),
        ([64, 512, 1024], 8),
        ([128, 768, 768], 16),
        ([200, 300, 512], 4),
        ([32, 1024, 2048], 4),
    ];
    let integers = [[1, 768, 768], [16, 256, 256], [128, 768, 512], [3136, 64, 64], [300, 576, 64], [12, 64, 100]];
    let convolved = [
        ([3, 112, 112], 16, 3, 2, 1),
        ([32, 56, 56], 32, 3, 1, 32),
        ([96, 14, 14], 96, 3, 1, 96),
        ([8, 8, 8], 8, 3, 1, 8),
        ([240, 14, 14], 240, 5, 1, 240),
        ([64, 56, 56], 64, 3, 2, 64),
        ([480, 7, 7], 480, 5, 1, 480),
        ([64, 28, 28], 64, 3, 1, 1),
        ([24, 56, 56], 96, 1, 1, 1),
        ([160, 7, 7], 320, 1, 1, 1),
        ([256, 14, 14], 64, 1, 1, 1),
        ([8, 16, 16], 8, 3, 1, 2),
    ];
    let integers = integers.into_iter().map(integer).chain(convolved.into_iter().map(convolved_integers));
    let quantized: [[usize; 3]; 10] = [
        [1, 256, 768],
        [1, 768, 768],
        [1, 2048, 2048],
        [1, 4096, 4096],
        [4, 512, 2048],
        [12, 128, 128],
        [16, 256, 768],
        [64, 256, 512],
        [128, 512, 256],
        [32, 768, 1024],
    ];
    let quantized = quantized.into_iter().map(|sizes| narrowed((sizes, 4), true));
    sizes.into_iter().map(|sizes| narrowed(sizes, false)).chain(quantized).chain(integers).collect()
}

/// Channels, height and width; output channels; window; stride; groups. Padding keeps the size at stride 1.
fn convolved_integers(layer: ([usize; 3], usize, usize, usize, usize)) -> Probe {
    let ([channels, height, width], maps, window, stride, group) = layer;
    let pad = window / 2;
    let out = |size: usize| (size + 2 * pad - window) / stride + 1;
    let (strides, pads) = ([stride; 2], [pad; 4]);
    let op = IntegerConv { strides, pads, dilations: [1; 2], group, border: 0, zero_points: false, rounding: None };
    let inputs = vec![
        tensor(DType::U8, &[1, channels, height, width]),
        tensor(DType::I8, &[maps, channels / group, window, window]),
        tensor(DType::I32, &[maps]),
    ];
    let outputs = vec![tensor(DType::I32, &[1, maps, out(height), out(width)])];
    Probe { spec: NodeSpec { op: Op::IntegerConv(op), inputs, outputs }, made: 1 }
}

fn integer([rows, depth, columns]: [usize; 3]) -> Probe {
    let op = Op::IntegerMatMul(IntegerMatMul { zero_points: false, rounding: None });
    let b = tensor(DType::I8, &[depth, columns]);
    let inputs = vec![tensor(DType::U8, &[rows, depth]), b, tensor(DType::I32, &[columns])];
    Probe { spec: NodeSpec { op, inputs, outputs: vec![tensor(DType::I32, &[rows, columns])] }, made: 1 }
}

fn narrowed(([rows, depth, columns], bits): ([usize; 3], usize), quantize_a: bool) -> Probe {
    let block = 32;
    let format = match bits {
        16 => NarrowFormat::Float,
        _ => NarrowFormat::Grid { bits, block, zero_points: false },
    };
    let op = Op::NarrowMatMul(NarrowMatMul { format, transpose_b: true, quantize_a, epilogue: None });
    let mut inputs = vec![floats(&[rows, depth])];
    match format {
        NarrowFormat::Float => inputs.push(tensor(DType::F16, &[columns, depth])),
        NarrowFormat::Grid { .. } => {
            inputs.push(tensor(DType::U8, &[columns, depth.next_multiple_of(block) * bits / 8]));
            inputs.push(floats(&[columns, depth.div_ceil(block)]));
        }
    }
    Probe { spec: NodeSpec { op, inputs, outputs: vec![floats(&[rows, columns])] }, made: 1 }
}

fn weighed(&([rows, depth, columns], transpose_b, finish): &Weighed) -> Probe {
    let epilogue = finish.expression();
    let right: [usize; 2] = if transpose_b { [columns, depth] } else { [depth, columns] };
    let inputs: [&[usize]; 3] = [&[rows, depth], &right, &[columns]];
    let given = if epilogue.is_some() { 3 } else { 2 };
    let op = Op::MatMul(MatMul { transpose_a: false, transpose_b, epilogue, ..MatMul::default() });
    Probe::new(op, 1, &inputs[..given], &[rows, columns])
}

/// Batched products, as in attention, and products with vectors. Products of one row have weights that stay in a cache:
/// small products belong to small networks.
pub(super) fn batched() -> Vec<Probe> {
    let sizes: [([usize; 4], bool, Finish); 20] = [
        ([2, 16, 16, 16], false, Nothing),
        ([3, 10, 12, 10], true, Masked),
        ([3, 10, 10, 12], false, Nothing),
        ([6, 20, 8, 20], true, Masked),
        ([6, 20, 20, 8], false, Nothing),
        ([4, 50, 32, 50], true, Masked),
        ([12, 8, 64, 8], true, Nothing),
        ([12, 8, 8, 64], false, Nothing),
        ([8, 128, 64, 128], true, Nothing),
        ([8, 128, 128, 64], false, Nothing),
        ([8, 100, 32, 100], true, Masked),
        ([3, 197, 64, 197], true, Nothing),
        ([12, 256, 64, 256], false, Nothing),
        ([384, 8, 16, 8], false, Nothing),
        ([4, 1, 32, 16], false, Nothing),
        ([12, 1, 64, 128], true, Nothing),
        ([12, 1, 128, 64], false, Nothing),
        ([8, 1, 64, 1000], false, Nothing),
        ([1, 512, 512, 1], false, Nothing),
        ([1, 100, 300, 1], false, Nothing),
    ];
    let probe = |([batch, rows, depth, columns], transpose_b, finish): ([usize; 4], bool, Finish)| {
        let right: [usize; 3] = if transpose_b { [batch, columns, depth] } else { [batch, depth, columns] };
        let epilogue = finish.expression();
        let inputs: [&[usize]; 3] = [&[batch, rows, depth], &right, &[rows, columns]];
        let given = if epilogue.is_some() { 3 } else { 2 };
        let op = Op::MatMul(MatMul { transpose_a: false, transpose_b, epilogue, ..MatMul::default() });
        Probe::new(op, 2, &inputs[..given], &[batch, rows, columns])
    };
    let rows: [Weighed; 12] = [
        ([1, 40, 100], false, Gelu),
        ([1, 32, 6], true, Nothing),
        ([1, 24, 64], false, Gelu),
        ([1, 128, 48], true, Silu),
        ([1, 16, 200], false, Nothing),
        ([1, 300, 900], false, Relu),
        ([1, 1000, 400], true, Relu),
        ([1, 64, 64], false, Nothing),
        ([1, 256, 10], true, Relu),
        ([1, 200, 300], true, Relu),
        ([1, 768, 256], false, Silu),
        ([1, 512, 400], true, Relu),
    ];
    sizes.into_iter().map(probe).chain(rows.iter().map(weighed)).collect()
}

/// Both kinds of cells, of few and many units, over few and many steps.
pub(super) fn recurrent() -> Vec<Probe> {
    let sizes =
        [[3, 1, 16], [20, 1, 32], [12, 8, 32], [10, 4, 64], [40, 1, 128], [8, 1, 512], [30, 1, 256], [10, 1, 400]];
    let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
    let cells = sizes.iter().enumerate().flat_map(|(at, size)| [(RecurrentKind::Lstm, *size), (gru(at != 2), *size)]);
    cells.map(|(kind, size)| layer(kind, size)).collect()
}

fn layer(kind: RecurrentKind, [steps, batch, units]: [usize; 3]) -> Probe {
    let wide = kind.gates() * units;
    let states = vec![floats(&[batch, units]); kind.states()];
    let given = [floats(&[steps, batch, wide]), floats(&[wide, units]), floats(&[wide])];
    let inputs = given.into_iter().chain(states.clone()).collect();
    let outputs = std::iter::once(floats(&[steps, batch, units])).chain(states).collect();
    Probe { spec: NodeSpec { op: Op::Recurrent(Recurrent::new(kind)), inputs, outputs }, made: 1 }
}
