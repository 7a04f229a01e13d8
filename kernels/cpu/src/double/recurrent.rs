//! Recurrent layers of 64-bit floats, one time step after the other; threads divide the batch.

use super::dot;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::math::sigmoid_f64 as sigmoid;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Recurrent, RecurrentKind};

/// Returns `x` within ±`limit`; NaN stays NaN.
fn bounded(x: f64, limit: f64) -> f64 {
    if x.abs() > limit { limit.copysign(x) } else { x }
}

/// Kernel of a recurrent layer of one size.
struct Kernel {
    op: Recurrent,
    steps: usize,
    batch: usize,
    units: usize,
    gates: usize,
}

/// Prepares a recurrent layer.
pub(super) fn prepare(node: &NodeSpec, op: &Recurrent) -> Box<dyn CpuKernel> {
    let ([steps, batch, units], gates) = node.recurrent_sizes().expect("a layer that was checked");
    Box::new(Kernel { op: op.clone(), steps, batch, units, gates })
}

/// Operands of a time step of one entry: projected input, weights and bias of all gates.
struct Step<'a> {
    input: &'a [f64],
    weights: &'a [f64],
    bias: &'a [f64],
}

impl Step<'_> {
    /// Returns the input's contribution to a gate of a unit.
    fn input(&self, gate: usize, unit: usize, units: usize) -> f64 {
        self.input[gate * units + unit]
    }

    /// Returns the product of a gate's unit with a state, plus its bias.
    fn hidden(&self, gate: usize, unit: usize, state: &[f64]) -> f64 {
        let row = gate * state.len() + unit;
        self.bias[row] + dot(&self.weights[row * state.len()..][..state.len()], state)
    }
}

impl Kernel {
    /// Returns the size of an entry's memory: the state, the next state, and a third vector. The third is the part of a
    /// GRU's state that passed the reset gate, or an LSTM's cell.
    const fn entry(&self) -> usize {
        3 * self.units
    }

    /// Computes one time step of one entry.
    fn step(&self, step: &Step<'_>, memory: &mut [f64]) {
        let units = self.units;
        let (state, rest) = memory.split_at_mut(units);
        let (next, third) = rest.split_at_mut(units);
        let limit = self.op.clip.map_or(f64::INFINITY, f64::from);
        let (squash, tanh) = (|x: f64| sigmoid(bounded(x, limit)), |x: f64| bounded(x, limit).tanh());
        match self.op.kind {
            RecurrentKind::Rnn => {
                for (unit, next) in next.iter_mut().enumerate() {
                    *next = tanh(step.input(0, unit, units) + step.hidden(0, unit, state));
                }
            }
            RecurrentKind::Lstm => {
                for (unit, (next, cell)) in next.iter_mut().zip(third).enumerate() {
                    let gate = |gate: usize| step.input(gate, unit, units) + step.hidden(gate, unit, state);
                    let taken = squash(gate(0));
                    let forget = if self.op.coupled { 1.0 - taken } else { squash(gate(2)) };
                    *cell = forget * *cell + taken * tanh(gate(3));
                    *next = squash(gate(1)) * tanh(*cell);
                }
            }
            RecurrentKind::Gru { linear_before_reset } => {
                let gate =
                    |gate: usize, unit: usize| squash(step.input(gate, unit, units) + step.hidden(gate, unit, state));
                for (unit, passed) in third.iter_mut().enumerate() {
                    *passed =
                        gate(1, unit) * if linear_before_reset { step.hidden(2, unit, state) } else { state[unit] };
                }
                for (unit, next) in next.iter_mut().enumerate() {
                    let candidate = if linear_before_reset { third[unit] } else { step.hidden(2, unit, third) };
                    let (kept, new) = (gate(0, unit), tanh(step.input(2, unit, units) + candidate));
                    *next = (1.0 - kept) * new + kept * state[unit];
                }
            }
        }
        state.copy_from_slice(next);
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.batch * self.entry() * size_of::<f64>()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let [input, weights, bias, initial]: [&[f64]; 4] = std::array::from_fn(|at| elements(call.inputs[at]));
        let (units, wide) = (self.units, self.gates * self.units);
        let memory = elements_mut::<f64>(&mut call.scratch[..self.scratch_bytes()]);
        if memory.is_empty() {
            return Ok(());
        }
        let cell = call.inputs.get(4).map(|cell| elements::<f64>(cell));
        for (entry, memory) in memory.chunks_exact_mut(self.entry()).enumerate() {
            memory[..units].copy_from_slice(&initial[entry * units..][..units]);
            if let Some(cell) = cell {
                memory[2 * units..].copy_from_slice(&cell[entry * units..][..units]);
            }
        }
        let (all, last) = call.outputs.split_first_mut().expect("two outputs at least");
        let all: &mut [f64] = elements_mut(all);
        for step in 0..self.steps {
            let time = if self.op.reverse { self.steps - 1 - step } else { step };
            call.team.run_pieces(memory, self.entry(), &|entry, memory| {
                let input = &input[(time * self.batch + entry) * wide..][..wide];
                self.step(&Step { input, weights, bias }, memory);
            });
            let made = all[time * self.batch * units..].chunks_exact_mut(units);
            made.zip(memory.chunks_exact(self.entry()))
                .for_each(|(made, memory)| made.copy_from_slice(&memory[..units]));
        }
        for (output, first) in last.iter_mut().zip([0, 2 * units]) {
            let entries = elements_mut::<f64>(output).chunks_exact_mut(units);
            entries
                .zip(memory.chunks_exact(self.entry()))
                .for_each(|(to, from)| to.copy_from_slice(&from[first..][..units]));
        }
        Ok(())
    }
}
