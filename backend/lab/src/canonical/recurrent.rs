//! Converts recurrent layers to canonical tasks, unrolled over time: each step waits for the state of the step before.

use super::writer::{GraphWriter, Id, ValueSource};
use anabranch_kernels::op::{Recurrent, RecurrentKind};

/// Inputs that all steps read.
struct Layer {
    /// Elements of a state: batch × units.
    state: u64,
    /// Elements that a product reads: each unit of a state for each unit of the next.
    depth: u64,
    inputs: Id,
    weights: Id,
    bias: Id,
}

/// Writes a [`Recurrent`]. Each step has a downsampler for each gate (the stored state with the gate's weights, figure
/// 3 ➀), the gate's activation, and the new state. The outputs of the steps are stored together.
pub(super) fn recurrent(writer: &mut GraphWriter<'_>, op: &Recurrent) -> Option<()> {
    let [steps, batch, units] = writer.node().spec.outputs.first()?.shape.dims()[..] else { return None };
    let state = (batch * units) as u64;
    let depth = state * units as u64;
    let layer = Layer {
        state,
        depth,
        inputs: writer.memory(writer.input(0)?, state),
        weights: writer.memory(writer.input(1)?, depth),
        bias: writer.memory(writer.input(2)?, state),
    };
    let mut hidden = writer.memory(writer.input(3)?, state);
    let mut cell = match op.kind {
        RecurrentKind::Rnn | RecurrentKind::Gru { .. } => None,
        RecurrentKind::Lstm => Some(writer.memory(writer.input(4)?, state)),
    };
    let mut made: Vec<Id> = Vec::with_capacity(steps);
    for step in 0..steps {
        let read = writer.store(&format!("state {step}, repeated"), &[hidden], state, depth);
        hidden = match (op.kind, &mut cell) {
            (RecurrentKind::Lstm, Some(cell)) => lstm_step(writer, &layer, step, read, cell),
            (RecurrentKind::Gru { linear_before_reset }, _) => {
                gru_step(writer, &layer, step, hidden, read, linear_before_reset)
            }
            (RecurrentKind::Rnn, _) => gate(writer, &layer, step, 0, read),
            (RecurrentKind::Lstm, None) => return None,
        };
        made.push(hidden);
    }
    writer.hold(0, ValueSource::Parts(made));
    writer.hold(1, ValueSource::Stream(hidden));
    if let Some(cell) = cell {
        writer.hold(2, ValueSource::Stream(cell));
    }
    Some(())
}

fn gate(writer: &mut GraphWriter<'_>, layer: &Layer, step: usize, gate: usize, read: Id) -> Id {
    let product =
        writer.task(&format!("step {step}, product {gate}"), &[read, layer.weights], layer.depth, layer.state);
    let operands = [product, layer.inputs, layer.bias];
    writer.task(&format!("step {step}, gate {gate}"), &operands, layer.state, layer.state)
}

/// Writes an LSTM step with the gates i, o, f, c.
fn lstm_step(writer: &mut GraphWriter<'_>, layer: &Layer, step: usize, read: Id, cell: &mut Id) -> Id {
    let [input, output, forget, new] = [0, 1, 2, 3].map(|number| gate(writer, layer, step, number, read));
    *cell = writer.task(&format!("step {step}, cell"), &[input, forget, new, *cell], layer.state, layer.state);
    writer.task(&format!("step {step}, state"), &[*cell, output], layer.state, layer.state)
}

/// Writes a GRU step with the gates z, r, h. Unless the reset comes after the product, the state is reset and stored
/// before it.
fn gru_step(writer: &mut GraphWriter<'_>, layer: &Layer, step: usize, hidden: Id, read: Id, after_product: bool) -> Id {
    let [update, reset] = [0, 1].map(|number| gate(writer, layer, step, number, read));
    let mut operands = vec![update, hidden];
    let reads = if after_product {
        operands.push(reset);
        read
    } else {
        let state = writer.task(&format!("step {step}, reset"), &[reset, hidden], layer.state, layer.state);
        writer.store(&format!("reset {step}, repeated"), &[state], layer.state, layer.depth)
    };
    operands.push(gate(writer, layer, step, 2, reads));
    writer.task(&format!("step {step}, state"), &operands, layer.state, layer.state)
}
