//! One direction of a recurrent layer.

use super::kernel::Recorder;
use super::limits::{MOST_PASSES, THREADS};
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Recurrent, RecurrentKind};
use std::ops::Range;

/// Maximum units: workgroup memory holds three vectors of this many.
const MOST_UNITS: usize = 1024;

/// Functions of a cell that keeps nothing besides the hidden state.
const NO_CELL_STATE: &str = "
fn first_kept(index: u32) -> f32 {
    return 0.0;
}

fn last_kept(index: u32) -> f32 {
    return 0.0;
}

fn keep_last(index: u32, value: f32) {}
";

struct Layer<'n> {
    op: &'n Recurrent,
    steps: usize,
    batches: usize,
    units: usize,
    gates: usize,
    /// Whether the recurrent weights are constant, and kept transposed, so that neighbouring threads read neighbouring
    /// weights.
    packed: bool,
}

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n Recurrent, constants: &[bool]) -> Result<Recipe<'n>, KernelError> {
    let ([steps, batches, units], gates) = node.recurrent_sizes().expect("a layer that was checked");
    if units > MOST_UNITS {
        return Err(node.unsupported(format!("it has {units} units, but the GPU kernel holds at most {MOST_UNITS}")));
    }
    let layer = Layer { op, steps, batches, units, gates, packed: constants.get(1) == Some(&true) };
    let own = units.div_ceil(THREADS as usize);
    let steps_at_once = layer.steps_at_once();
    // Passes of the steps, and of the loops that read and write the state.
    let passes = steps_at_once * layer.passes_of_a_step() + 2 * own;
    let (resident_bytes, unbound) =
        if layer.packed { ((gates * units * units * 4) as u64, vec![1]) } else { (0, vec![]) };
    let recipe = Recipe::new(node, move |recorder| {
        let packed = match layer.packed {
            true => recorder.constant(1)?.elements::<f32>().map(|w| recorder.resident(&layer.transposed(w))),
            false => None,
        };
        for first in (0..steps.max(1)).step_by(steps_at_once) {
            let range = first..(first + steps_at_once).min(steps);
            match &packed {
                Some(weights) => layer.dispatch(recorder, weights, range)?,
                None => layer.dispatch(recorder, recorder.input(1)?, range)?,
            }
        }
        Ok(())
    });
    Ok(Recipe { passes, resident_bytes, unbound, ..recipe })
}

impl Layer<'_> {
    /// Returns the passes of a thread through the loops of one step.
    fn passes_of_a_step(&self) -> usize {
        let own = self.units.div_ceil(THREADS as usize);
        // At most two loops over the state for each unit, at most three loops over the own units in the cell, and one
        // loop outside.
        2 * own * (self.units / 4 + self.units % 4) + 4 * own + 1
    }

    /// Returns the steps of one dispatch: a long sequence takes several dispatches, so that none runs for too long.
    fn steps_at_once(&self) -> usize {
        let for_state = 2 * self.units.div_ceil(THREADS as usize);
        ((MOST_PASSES - for_state) / self.passes_of_a_step()).clamp(1, self.steps.max(1))
    }

    /// Returns the weights `[g·u, u]` as `[u, g·u]`.
    fn transposed(&self, weights: &[f32]) -> Vec<u32> {
        let rows = self.gates * self.units;
        let element = |index: usize| weights[index % rows * self.units + index / rows].to_bits();
        (0..weights.len()).map(element).collect()
    }

    /// Records the dispatch of some steps. All dispatches except the first continue from the states that the one before
    /// left in the outputs.
    fn dispatch(
        &self,
        recorder: &mut Recorder<'_>,
        weights: &wgpu::Buffer,
        steps: Range<usize>,
    ) -> Result<(), KernelError> {
        let mut shader = Shader::new("recurrent", include_str!("recurrent.wgsl"));
        shader.constant("UNITS", self.units).constant("GATES", self.gates);
        shader.constant("REVERSE", usize::from(self.op.reverse));
        let rows = self.gates * self.units;
        let [row, depth] = if self.packed { [1, rows] } else { [self.units, 1] };
        shader.constant("R_ROW", row).constant("R_DEPTH", depth);
        shader.parameter("steps", self.steps).parameter("batches", self.batches);
        shader.parameter("first_step", steps.start).parameter("end_step", steps.end);
        shader.read("p", "f32", recorder.input(0)?).read("r", "f32", weights);
        shader.read("bias", "f32", recorder.input(2)?).read("h0", "f32", recorder.input(3)?);
        shader.write("y", "f32", recorder.output(0)?).write("last_h", "f32", recorder.output(1)?);
        shader.constant("COUPLED", usize::from(self.op.coupled)).code(&bound(self.op.clip));
        match self.op.kind {
            RecurrentKind::Rnn => {
                shader.code(&sums("gates", "hidden", 0..1));
                shader.code(NO_CELL_STATE).code(include_str!("recurrent_rnn.wgsl"));
            }
            RecurrentKind::Gru { linear_before_reset: true } => {
                shader.code(&sums("gates", "hidden", 0..3));
                shader.code(NO_CELL_STATE).code(include_str!("recurrent_gru_reset_after.wgsl"));
            }
            RecurrentKind::Gru { linear_before_reset: false } => {
                shader.code(&sums("gates", "hidden", 0..2)).code(&sums("proposal", "next", 2..3));
                shader.code(NO_CELL_STATE).code(include_str!("recurrent_gru.wgsl"));
            }
            RecurrentKind::Lstm => {
                shader.read("c0", "f32", recorder.input(4)?).write("last_c", "f32", recorder.output(2)?);
                shader.code(&sums("gates", "hidden", 0..4));
                shader.code(include_str!("recurrent_lstm.wgsl"));
            }
        }
        recorder.dispatch(&shader, self.batches)
    }
}

/// Returns a WGSL function `bounded` of an argument of sigmoid or tanh.
fn bound(clip: Option<f32>) -> String {
    let value = match clip {
        // A comparison with NaN is false, and leaves it.
        Some(clip) => format!("select(select(x, f32({clip:e}), x > {clip:e}), f32(-{clip:e}), x < -{clip:e})"),
        None => "x".into(),
    };
    format!("fn bounded(x: f32) -> f32 {{\n    return {value};\n}}\n")
}

/// Returns a WGSL function `name(unit)` of the sums of `gates` over the array `state`, with the biases: a number or a
/// vector.
fn sums(name: &str, state: &str, gates: Range<usize>) -> String {
    let vector = ["f32", "vec2<f32>", "vec3<f32>", "vec4<f32>"][gates.len() - 1];
    let of_gates = |element: &dyn Fn(usize) -> String| {
        format!("{vector}({})", (0..gates.len()).map(element).collect::<Vec<_>>().join(", "))
    };
    let weights = of_gates(&|gate| format!("r[at + {gate}u * UNITS * R_ROW]"));
    let biases = of_gates(&|gate| format!("bias[row + {gate}u * UNITS]"));
    let text = include_str!("recurrent_sums.wgsl").replace("NAME", name).replace("STATE", state);
    let text = text.replace("VECTOR", vector).replace("FIRST", &format!("{}u", gates.start));
    text.replace("WEIGHTS", &weights).replace("BIASES", &biases)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check_run, inputs, node, noise, tensor};
    use super::*;
    use anabranch_op::op::Op;

    #[test]
    fn cells_of_all_kinds_and_sizes() {
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
            (RecurrentKind::Rnn, [3, 2, 5]),
            (RecurrentKind::Rnn, [2, 1, 259]),
        ] {
            for (reverse, constant, clip) in [(false, true, None), (true, false, Some(0.3))] {
                let op = Recurrent { kind, reverse, clip, coupled: reverse && kind == RecurrentKind::Lstm };
                let [t, b, u] = sizes;
                let g = kind.gates() * u;
                let (projected, weights, state) = ([t, b, g], [g, u], [b, u]);
                let mut ins: Vec<&[usize]> = vec![&projected, &weights, &weights[..1], &state];
                let sequence = [t, b, u];
                let mut outs: Vec<&[usize]> = vec![&sequence, &state];
                if kind == RecurrentKind::Lstm {
                    ins.push(&state);
                    outs.push(&state);
                }
                let node = node(Op::Recurrent(op.clone()), &ins, &outs);
                let mut x = inputs(&node, 111);
                // Weights that let a long sequence forget; otherwise rounding errors would grow from step to step.
                let damped: Vec<f32> = noise(112, g * u).iter().map(|weight| weight * 3.0 / u as f32).collect();
                x[1] = tensor(&[g, u], &damped);
                check_run(
                    Run { constants: (0..ins.len()).map(|i| i == 1 && constant).collect(), ..Run::new(&node) },
                    &x,
                );
            }
        }
    }

    #[test]
    fn too_many_units_are_left_to_other_devices() {
        let op = Recurrent::new(RecurrentKind::Gru { linear_before_reset: false });
        let u = MOST_UNITS + 1;
        let ins: &[&[usize]] = &[&[1, 1, 3 * u], &[3 * u, u], &[3 * u], &[1, u]];
        let node = node(Op::Recurrent(op.clone()), ins, &[&[1, 1, u], &[1, u]]);
        assert!(matches!(recipe(&node, &op, &[]), Err(KernelError::Unsupported { .. })));
    }
}
