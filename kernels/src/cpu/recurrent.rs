//! Recurrent layers: a product of the recurrent weights with the state at each time step, then the cell's gates.
//!
//! Steps follow each other; within a step, batch entries and blocks of units are shared out among the team. Each product of a
//! row of weights with the state is summed in 16 lanes, which are then added pairwise: the same tree everywhere.

use super::elements::{elements, elements_mut};
use super::lanes::{LANES, joined};
use super::math::{sigmoid, tanh};
use super::vector::{Isa, Loop, vectorised};
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{NodeSpec, Recurrent, RecurrentKind};

/// Multiply-adds that are worth a hand-over to another thread.
const PART: usize = 32 << 10;

/// A recurrent layer of one size.
struct RecurrentKernel {
    op: Recurrent,
    steps: usize,
    batch: usize,
    units: usize,
    gates: usize,
}

/// Prepares a recurrent layer.
pub(crate) fn prepare(node: &NodeSpec, op: &Recurrent) -> Box<dyn CpuKernel> {
    let ([steps, batch, units], gates) = node.recurrent_sizes().expect("a layer that was checked");
    Box::new(RecurrentKernel { op: op.clone(), steps, batch, units, gates })
}

/// `out[i] = Σ weights[i, k] · state[k] + bias[i]`.
struct Product<'a> {
    weights: &'a [f32],
    state: &'a [f32],
    bias: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let width = self.state.len();
        for (index, out) in self.out.iter_mut().enumerate() {
            *out = dot::<I>(&self.weights[index * width..][..width], self.state) + self.bias[index];
        }
    }
}

#[inline(always)]
fn dot<I: Isa>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            lanes[lane] = I::fused(a[lane], b[lane], lanes[lane]);
        }
    }
    let whole = joined(lanes, |a, b| a + b);
    a_rest.iter().zip(b_rest).fold(whole, |sum, (a, b)| I::fused(*a, *b, sum))
}

/// What passes the reset gate of a GRU: of the state before the product, or of the product itself. `input` and `hidden` hold
/// the gates z, r, h.
struct Reset<'a> {
    input: &'a [f32],
    hidden: &'a [f32],
    of: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Reset<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let units = self.out.len();
        for u in 0..units {
            self.out[u] = sigmoid::<I>(self.input[units + u] + self.hidden[units + u]) * self.of[u];
        }
    }
}

/// One step of a GRU for one batch entry: `candidate` is what the product of the recurrent weights adds to the gate h.
struct Gru<'a> {
    input: &'a [f32],
    hidden: &'a [f32],
    candidate: &'a [f32],
    before: &'a [f32],
    after: &'a mut [f32],
}

impl Loop for Gru<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let units = self.after.len();
        for u in 0..units {
            let z = sigmoid::<I>(self.input[u] + self.hidden[u]);
            let h = tanh::<I>(self.input[2 * units + u] + self.candidate[u]);
            self.after[u] = (1.0 - z) * h + z * self.before[u];
        }
    }
}

/// One step of an LSTM for one batch entry. `input` and `hidden` hold the gates i, o, f, c.
struct Lstm<'a> {
    input: &'a [f32],
    hidden: &'a [f32],
    cell: &'a mut [f32],
    after: &'a mut [f32],
}

impl Loop for Lstm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let units = self.after.len();
        let gate = |gate: usize, u: usize| self.input[gate * units + u] + self.hidden[gate * units + u];
        for u in 0..units {
            let (i, o, f) = (sigmoid::<I>(gate(0, u)), sigmoid::<I>(gate(1, u)), sigmoid::<I>(gate(2, u)));
            self.cell[u] = f * self.cell[u] + i * tanh::<I>(gate(3, u));
            self.after[u] = o * tanh::<I>(self.cell[u]);
        }
    }
}

impl RecurrentKernel {
    /// `out = state · weightsᵀ + bias` for every batch entry, `out` having `bias.len()` columns.
    fn product(&self, call: &Call<'_>, weights: &[f32], bias: &[f32], state: &[f32], out: &mut [f32]) {
        let (units, rows) = (self.units, bias.len());
        // Pieces never span batch entries: a piece's length divides the gates' if it is shorter.
        let block = (PART / units.max(1)).clamp(1, rows.max(1));
        let blocks = rows.div_ceil(block);
        let piece = if blocks * block == rows { block } else { rows };
        call.team.run_pieces(out, piece, &|index, out| {
            let (entry, row) = (index * piece / rows, index * piece % rows);
            let state = &state[entry * units..][..units];
            let weights = &weights[row * units..][..out.len() * units];
            vectorised(Product { weights, state, bias: &bias[row..][..out.len()], out });
        });
    }

    fn step(&self, call: &Call<'_>, input: &[f32], before: &[f32], work: Work<'_>, after: &mut [f32]) {
        let (weights, bias): (&[f32], &[f32]) = (elements(call.inputs[1]), elements(call.inputs[2]));
        let (units, wide) = (self.units, self.units * self.gates);
        let Work { hidden, reset, candidate, cell } = work;
        let ahead = match self.op.kind {
            RecurrentKind::Gru { linear_before_reset: false } => 2 * units,
            _ => wide,
        };
        let hidden = &mut hidden[..self.batch * ahead];
        self.product(call, &weights[..ahead * units], &bias[..ahead], before, hidden);
        let hidden = &*hidden;
        let entry =
            |at: usize| (&input[at * wide..][..wide], &hidden[at * ahead..][..ahead], at * units..(at + 1) * units);
        let RecurrentKind::Gru { linear_before_reset } = self.op.kind else {
            for (at, after) in after.chunks_exact_mut(units).enumerate() {
                let (input, hidden, own) = entry(at);
                vectorised(Lstm { input, hidden, cell: &mut cell[own], after });
            }
            return;
        };
        let passed = if linear_before_reset { &mut *candidate } else { &mut *reset };
        for (at, out) in passed.chunks_exact_mut(units).enumerate() {
            let (input, hidden, own) = entry(at);
            let of = if linear_before_reset { &hidden[2 * units..] } else { &before[own] };
            vectorised(Reset { input, hidden, of, out });
        }
        if !linear_before_reset {
            self.product(call, &weights[ahead * units..], &bias[ahead..], reset, candidate);
        }
        for (at, after) in after.chunks_exact_mut(units).enumerate() {
            let (input, hidden, own) = entry(at);
            vectorised(Gru { input, hidden, candidate: &candidate[own.clone()], before: &before[own], after });
        }
    }
}

/// Scratch memory of a step.
struct Work<'a> {
    hidden: &'a mut [f32],
    reset: &'a mut [f32],
    candidate: &'a mut [f32],
    cell: &'a mut [f32],
}

impl CpuKernel for RecurrentKernel {
    fn scratch_bytes(&self) -> usize {
        self.batch * self.units * (self.gates + 4) * size_of::<f32>()
    }

    fn run(&self, mut call: Call<'_>) -> Result<(), KernelError> {
        let state = self.batch * self.units;
        if state == 0 {
            return Ok(());
        }
        let mut outputs = std::mem::take(&mut call.outputs).iter_mut();
        let mut next = || outputs.next().map_or(&mut [][..], |bytes| elements_mut::<f32>(bytes));
        let (all, last, last_cell) = (next(), next(), next());
        let scratch: &mut [f32] = elements_mut(std::mem::take(&mut call.scratch));
        let (hidden, scratch) = scratch.split_at_mut(state * self.gates);
        let (reset, scratch) = scratch.split_at_mut(state);
        let (candidate, scratch) = scratch.split_at_mut(state);
        let (cell, scratch) = scratch.split_at_mut(state);
        let before = &mut scratch[..state];
        before.copy_from_slice(elements(call.inputs[3]));
        if let Some(initial) = call.inputs.get(4) {
            cell.copy_from_slice(elements(initial));
        }
        let input: &[f32] = elements(call.inputs[0]);
        for step in 0..self.steps {
            let time = if self.op.reverse { self.steps - 1 - step } else { step };
            let after = &mut all[time * state..][..state];
            let input = &input[time * state * self.gates..][..state * self.gates];
            self.step(&call, input, before, Work { hidden, reset, candidate, cell }, after);
            before.copy_from_slice(after);
        }
        last.copy_from_slice(before);
        last_cell.copy_from_slice(&cell[..last_cell.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::testing::{run_all_ways, tensor};
    use crate::op::{NodeSpec, Op, Recurrent, RecurrentKind};
    use crate::{DType, Tensor};

    fn squash(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// By the definition, in f64, for batch entry `b`: the states after each step.
    fn naive(kind: RecurrentKind, reverse: bool, tensors: &[Tensor], b: usize) -> Vec<Vec<f64>> {
        let at = |tensor: usize, i: usize| f64::from(tensors[tensor].elements::<f32>().expect("f32")[i]);
        let [steps, batch, wide] = *tensors[0].shape().dims() else { panic!("three dimensions") };
        let units = tensors[3].shape().dims()[1];
        let mut h: Vec<f64> = (0..units).map(|u| at(3, b * units + u)).collect();
        let mut c: Vec<f64> = (0..units).map(|u| if tensors.len() > 4 { at(4, b * units + u) } else { 0.0 }).collect();
        let mut states = vec![Vec::new(); steps];
        for step in 0..steps {
            let time = if reverse { steps - 1 - step } else { step };
            let input = |g: usize, u: usize| at(0, (time * batch + b) * wide + g * units + u);
            let hidden = |g: usize, u: usize, h: &[f64]| {
                at(2, g * units + u) + (0..units).map(|k| at(1, (g * units + u) * units + k) * h[k]).sum::<f64>()
            };
            let next: Vec<f64> = (0..units)
                .map(|u| match kind {
                    RecurrentKind::Gru { linear_before_reset } => {
                        let z = squash(input(0, u) + hidden(0, u, &h));
                        let candidate = if linear_before_reset {
                            squash(input(1, u) + hidden(1, u, &h)) * hidden(2, u, &h)
                        } else {
                            let reset: Vec<f64> =
                                (0..units).map(|k| squash(input(1, k) + hidden(1, k, &h)) * h[k]).collect();
                            hidden(2, u, &reset)
                        };
                        (1.0 - z) * (input(2, u) + candidate).tanh() + z * h[u]
                    }
                    RecurrentKind::Lstm => {
                        let gate = |g: usize| input(g, u) + hidden(g, u, &h);
                        c[u] = squash(gate(2)) * c[u] + squash(gate(0)) * gate(3).tanh();
                        squash(gate(1)) * c[u].tanh()
                    }
                })
                .collect();
            h = next;
            states[time].clone_from(&h);
        }
        states
    }

    #[test]
    fn every_cell_follows_its_definition() {
        let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
        for (kind, reverse, [steps, batch, units]) in [
            (gru(true), false, [5, 2, 3]),
            (gru(false), true, [4, 3, 17]),
            (gru(true), true, [2, 1, 300]),
            (RecurrentKind::Lstm, false, [3, 2, 19]),
            (RecurrentKind::Lstm, true, [2, 1, 260]),
        ] {
            let gates = if matches!(kind, RecurrentKind::Lstm) { 4 } else { 3 };
            let random = |seed: usize, dims: &[usize], scale: f64| {
                tensor(DType::F32, dims, |i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.0 * scale - scale)
            };
            let mut inputs = vec![
                random(1, &[steps, batch, gates * units], 1.5),
                random(2, &[gates * units, units], 0.5),
                random(3, &[gates * units], 0.5),
                random(4, &[batch, units], 1.0),
            ];
            let state = inputs[3].spec().clone();
            let mut outputs = vec![random(0, &[steps, batch, units], 0.0).spec().clone(), state.clone()];
            if gates == 4 {
                inputs.push(random(5, &[batch, units], 1.0));
                outputs.push(state);
            }
            let op = Op::Recurrent(Recurrent { kind, reverse });
            let node = NodeSpec { op, inputs: inputs.iter().map(|t| t.spec().clone()).collect(), outputs };
            let got = run_all_ways(&node, &inputs);
            let (all, last) = (got[0].elements::<f32>().expect("f32"), got[1].elements::<f32>().expect("f32"));
            for b in 0..batch {
                let want = naive(kind, reverse, &inputs, b);
                for (time, want) in want.iter().enumerate() {
                    let got = &all[(time * batch + b) * units..][..units];
                    assert!(got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-4), "{kind:?} at {time}");
                }
                let end = if reverse { 0 } else { steps - 1 };
                assert_eq!(last[b * units..][..units], all[(end * batch + b) * units..][..units]);
            }
        }
    }
}
