//! One direction of a GRU or an LSTM.

use super::kernel::Recorder;
use super::limits::{MOST_PASSES, THREADS};
use super::shader::Shader;
use super::{Recipe, invalid, unsupported};
use crate::error::KernelError;
use crate::op::{NodeSpec, Recurrent, RecurrentKind};
use std::ops::Range;

/// Three vectors of so many units fit into workgroup memory.
const MOST_UNITS: usize = 1024;

pub(crate) struct RecurrentRecipe {
    op: Recurrent,
    steps: usize,
    batches: usize,
    units: usize,
    /// The recurrent weights are constant, and kept transposed, so that neighbouring threads read neighbouring weights.
    packed: bool,
}

impl RecurrentRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Recurrent, constants: &[bool]) -> Result<Self, KernelError> {
        let dims = |specs: &[crate::TensorSpec]| specs.iter().map(|s| s.shape.dims().to_vec()).collect::<Vec<_>>();
        let (inputs, outputs) = (dims(&node.inputs), dims(&node.outputs));
        let Some(&[steps, batches, units]) = outputs.first().map(Vec::as_slice) else {
            return Err(invalid(node, "an output of [t, b, u] is expected"));
        };
        let gates = gates(op.kind).saturating_mul(units);
        let state = vec![batches, units];
        let mut expected = vec![vec![steps, batches, gates], vec![gates, units], vec![gates], state.clone()];
        let mut results = vec![vec![steps, batches, units], state.clone()];
        if op.kind == RecurrentKind::Lstm {
            expected.push(state.clone());
            results.push(state);
        }
        if inputs != expected || outputs != results {
            return Err(invalid(node, format!("inputs {expected:?} and outputs {results:?} are expected")));
        }
        if units > MOST_UNITS {
            return Err(unsupported(node, format!("{units} units; the GPU kernel holds {MOST_UNITS} at most")));
        }
        Ok(Self { op: op.clone(), steps, batches, units, packed: constants.get(1) == Some(&true) })
    }

    /// Passes of a thread through the loops of one step.
    fn passes_of_a_step(&self) -> usize {
        let own = self.units.div_ceil(THREADS as usize);
        // A gate's sum for each unit; three loops over the own units at most in the cell, and one outside.
        gates(self.op.kind) * own * self.units + 4 * own + 1
    }

    /// Steps of one dispatch: a long sequence takes several, so that none runs for too long.
    fn steps_at_once(&self) -> usize {
        let for_state = 2 * self.units.div_ceil(THREADS as usize);
        ((MOST_PASSES - for_state) / self.passes_of_a_step()).clamp(1, self.steps.max(1))
    }

    /// The weights `[g·u, u]` as `[u, g·u]`.
    fn transposed(&self, weights: &[f32]) -> Vec<u32> {
        let rows = gates(self.op.kind) * self.units;
        let element = |index: usize| weights[index % rows * self.units + index / rows].to_bits();
        (0..weights.len()).map(element).collect()
    }
}

const fn gates(kind: RecurrentKind) -> usize {
    match kind {
        RecurrentKind::Gru { .. } => 3,
        RecurrentKind::Lstm => 4,
    }
}

impl Recipe for RecurrentRecipe {
    fn bindings(&self) -> usize {
        if self.op.kind == RecurrentKind::Lstm { 8 } else { 6 }
    }

    fn resident_bytes(&self) -> u64 {
        if self.packed { (gates(self.op.kind) * self.units * self.units * 4) as u64 } else { 0 }
    }

    fn passes(&self) -> usize {
        // The steps, and the loops that read and write the state.
        self.steps_at_once() * self.passes_of_a_step() + 2 * self.units.div_ceil(THREADS as usize)
    }

    fn binds(&self, input: usize) -> bool {
        input != 1 || !self.packed
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let packed = match self.packed {
            true => recorder.constant(1)?.elements::<f32>().map(|weights| recorder.resident(&self.transposed(weights))),
            false => None,
        };
        let weights = match &packed {
            Some(buffer) => buffer,
            None => recorder.input(1)?,
        };
        let steps = self.steps_at_once();
        for first in (0..self.steps.max(1)).step_by(steps) {
            let range = first..(first + steps).min(self.steps);
            self.dispatch(recorder, weights, range)?;
        }
        Ok(())
    }
}

impl RecurrentRecipe {
    /// The dispatch of some steps. All but the first go on from the states that the one before has left in the outputs.
    fn dispatch(
        &self,
        recorder: &mut Recorder<'_>,
        weights: &wgpu::Buffer,
        steps: Range<usize>,
    ) -> Result<(), KernelError> {
        let mut shader = Shader::new("recurrent", include_str!("recurrent.wgsl"));
        shader.constant("UNITS", self.units).constant("GATES", gates(self.op.kind));
        shader.constant("REVERSE", usize::from(self.op.reverse));
        let rows = gates(self.op.kind) * self.units;
        let [row, depth] = if self.packed { [1, rows] } else { [self.units, 1] };
        shader.parameter("steps", self.steps).parameter("batches", self.batches);
        shader.parameter("first_step", steps.start).parameter("end_step", steps.end);
        shader.parameter("r_row", row).parameter("r_depth", depth);
        shader.read("p", "f32", recorder.input(0)?).read("r", "f32", weights);
        shader.read("bias", "f32", recorder.input(2)?).read("h0", "f32", recorder.input(3)?);
        shader.write("y", "f32", recorder.output(0)?).write("last_h", "f32", recorder.output(1)?);
        match self.op.kind {
            RecurrentKind::Gru { linear_before_reset } => {
                shader.constant("RESET_AFTER", usize::from(linear_before_reset));
                shader.code(include_str!("recurrent_gru.wgsl"));
            }
            RecurrentKind::Lstm => {
                shader.read("c0", "f32", recorder.input(4)?).write("last_c", "f32", recorder.output(2)?);
                shader.code(include_str!("recurrent_lstm.wgsl"));
            }
        }
        recorder.dispatch(&shader, self.batches)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, inputs, node, noise, tensor};
    use super::*;
    use crate::op::Op;

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// ONNX's definition, one unit at a time.
    fn reference(op: &Recurrent, [steps, batches, units]: [usize; 3], inputs: &[Vec<f64>]) -> Vec<Vec<f32>> {
        let gates = gates(op.kind);
        let mut y = vec![0.0; steps * batches * units];
        let (mut h, mut c) = (inputs[3].clone(), inputs.get(4).cloned().unwrap_or_default());
        for step in 0..steps {
            let time = if op.reverse { steps - 1 - step } else { step };
            for batch in 0..batches {
                let own = batch * units..(batch + 1) * units;
                let state = h[own.clone()].to_vec();
                let given = |gate: usize, u: usize| inputs[0][((time * batches + batch) * gates + gate) * units + u];
                let recur = |state: &[f64], gate: usize, u: usize| {
                    let row = gate * units + u;
                    (0..units).map(|k| inputs[1][row * units + k] * state[k]).sum::<f64>() + inputs[2][row]
                };
                let gate = |gate: usize, u: usize| sigmoid(given(gate, u) + recur(&state, gate, u));
                let reset: Vec<f64> = (0..units).map(|u| gate(1, u) * state[u]).collect();
                for u in 0..units {
                    h[own.start + u] = match op.kind {
                        RecurrentKind::Gru { linear_before_reset } => {
                            let proposed = match linear_before_reset {
                                true => given(2, u) + gate(1, u) * recur(&state, 2, u),
                                false => given(2, u) + recur(&reset, 2, u),
                            };
                            (1.0 - gate(0, u)) * proposed.tanh() + gate(0, u) * state[u]
                        }
                        RecurrentKind::Lstm => {
                            let proposed = (given(3, u) + recur(&state, 3, u)).tanh();
                            let cell = gate(2, u) * c[own.start + u] + gate(0, u) * proposed;
                            c[own.start + u] = cell;
                            gate(1, u) * cell.tanh()
                        }
                    };
                    y[(time * batches + batch) * units + u] = h[own.start + u];
                }
            }
        }
        let mut outputs = vec![y, h];
        outputs.extend((op.kind == RecurrentKind::Lstm).then_some(c));
        outputs.iter().map(|values| values.iter().map(|v| *v as f32).collect()).collect()
    }

    #[test]
    fn cells_follow_their_definition() {
        let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
        for (kind, sizes) in [
            (gru(true), [4, 3, 5]),
            (gru(false), [4, 3, 5]),
            (gru(false), [2, 1, 300]),
            (gru(true), [1, 2, 1]),
            (RecurrentKind::Lstm, [5, 2, 7]),
            (RecurrentKind::Lstm, [2, 3, 257]),
            // Several dispatches.
            (gru(true), [100, 1, 256]),
            (gru(false), [130, 2, 200]),
            (RecurrentKind::Lstm, [40, 1, 320]),
        ] {
            for (reverse, constant) in [(false, true), (true, false)] {
                let op = Recurrent { kind, reverse };
                let [t, b, u] = sizes;
                let g = gates(kind) * u;
                let mut ins: Vec<Vec<usize>> = vec![vec![t, b, g], vec![g, u], vec![g], vec![b, u]];
                let mut outs: Vec<Vec<usize>> = vec![vec![t, b, u], vec![b, u]];
                if kind == RecurrentKind::Lstm {
                    ins.push(vec![b, u]);
                    outs.push(vec![b, u]);
                }
                let ins: Vec<&[usize]> = ins.iter().map(Vec::as_slice).collect();
                let outs: Vec<&[usize]> = outs.iter().map(Vec::as_slice).collect();
                let node = node(Op::Recurrent(op.clone()), &ins, &outs);
                let mut x = inputs(&node, 111);
                // Weights that let a long sequence forget, or rounding errors would grow from step to step.
                let damped: Vec<f32> = noise(112, g * u).iter().map(|weight| weight * 3.0 / u as f32).collect();
                x[1] = tensor(&[g, u], &damped);
                let doubles = |t: &crate::Tensor| {
                    t.elements::<f32>().expect("f32").iter().map(|v| f64::from(*v)).collect::<Vec<_>>()
                };
                let want = reference(&op, sizes, &x.iter().map(doubles).collect::<Vec<_>>());
                let mut run = Run::new(&node);
                run.constants[1] = constant;
                let got = run.outputs(&x).expect("runs");
                for (got, want) in got.iter().zip(&want) {
                    assert_close(got, want, &format!("{op:?} {sizes:?}"));
                }
            }
        }
    }

    #[test]
    fn too_many_units_are_left_to_other_devices() {
        let op = Recurrent { kind: RecurrentKind::Gru { linear_before_reset: false }, reverse: false };
        let u = MOST_UNITS + 1;
        let ins: &[&[usize]] = &[&[1, 1, 3 * u], &[3 * u, u], &[3 * u], &[1, u]];
        let node = node(Op::Recurrent(op.clone()), ins, &[&[1, 1, u], &[1, u]]);
        assert!(matches!(RecurrentRecipe::new(&node, &op, &[]), Err(KernelError::Unsupported { .. })));
    }
}
