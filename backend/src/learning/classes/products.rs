//! Products of matrices and recurrent layers as networks have them.

use super::Finish::{self, Nothing, Relu, Silu};
use super::Probe;
use crate::program::floats;
use anabranch_kernels::op::{MatMul, NodeSpec, Op, Recurrent, RecurrentKind};

/// A product with weights: rows, depth and columns, whether the weights are transposed, and what is done to the result.
type Weighed = ([usize; 3], bool, Finish);

/// With weights: of many rows, and of one with weights that no cache keeps from run to run.
pub(super) fn shared() -> Vec<Probe> {
    let sizes: [Weighed; 14] = [
        ([4, 32, 16], false, Nothing),
        ([16, 64, 64], false, Relu),
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

fn weighed(&([rows, depth, columns], transpose_b, finish): &Weighed) -> Probe {
    let epilogue = finish.expression();
    let right: [usize; 2] = if transpose_b { [columns, depth] } else { [depth, columns] };
    let inputs: [&[usize]; 3] = [&[rows, depth], &right, &[columns]];
    let given = if epilogue.is_some() { 3 } else { 2 };
    let op = Op::MatMul(MatMul { transpose_a: false, transpose_b, epilogue });
    Probe::new(op, 1, &inputs[..given], &[rows, columns])
}

/// Of batches, as in attention, and with vectors; of one row with weights that stay in a cache: small ones belong to small networks.
pub(super) fn batched() -> Vec<Probe> {
    let sizes: [([usize; 4], bool); 14] = [
        ([2, 16, 16, 16], false),
        ([4, 50, 32, 50], true),
        ([12, 8, 64, 8], true),
        ([12, 8, 8, 64], false),
        ([8, 128, 64, 128], true),
        ([8, 128, 128, 64], false),
        ([3, 197, 64, 197], true),
        ([12, 256, 64, 256], false),
        ([4, 1, 32, 16], false),
        ([12, 1, 64, 128], true),
        ([12, 1, 128, 64], false),
        ([8, 1, 64, 1000], false),
        ([1, 512, 512, 1], false),
        ([1, 100, 300, 1], false),
    ];
    let probe = |([batch, rows, depth, columns], transpose_b): ([usize; 4], bool)| {
        let right: [usize; 3] = if transpose_b { [batch, columns, depth] } else { [batch, depth, columns] };
        let op = Op::MatMul(MatMul { transpose_a: false, transpose_b, epilogue: None });
        Probe::new(op, 2, &[&[batch, rows, depth], &right], &[batch, rows, columns])
    };
    let rows: [Weighed; 7] = [
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

/// Both cells, of few and many units, over few and many steps.
pub(super) fn recurrent() -> Vec<Probe> {
    let sizes = [[3, 1, 16], [20, 1, 32], [12, 8, 32], [10, 4, 64], [40, 1, 128], [8, 1, 512], [30, 1, 256]];
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
    Probe { spec: NodeSpec { op: Op::Recurrent(Recurrent { kind, reverse: false }), inputs, outputs }, made: 1 }
}
