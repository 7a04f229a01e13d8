//! Recurrent layers: a product of the recurrent weights with the state at each time step, then the cell's gates.
//!
//! The weights are packed so that the rows of [`LANES`] units lie side by side. The products of a step are then whole
//! vectors of units, which pass through the gates as vectors (`cell`). The team divides the units into parts that stay
//! with their threads from step to step, and so do the weights. If the reset gate of a GRU comes before the product,
//! each step has two rounds. The first computes the part of the state that passes the gate, which each unit's product
//! needs completely; the second computes the state.

mod cell;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::MicroKernel;
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::team::{Grid, Memory, Part, Round};
use anabranch_cpu_base::vector::vectorised;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Recurrent, RecurrentKind};
use anabranch_op::tensor::Buffer;
use cell::{Candidate, Cell, Gru, Lstm, Options, Reset, Rnn, Units};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Approximate multiply-adds of a part of a step: half a microsecond, which is long compared with starting the part.
const PART: usize = 32 << 10;

/// Multiply-adds of a step that are worth waiting for another thread.
const SHARED: usize = 32 << 10;

/// Kernel of a recurrent layer of one size.
struct RecurrentKernel {
    op: Recurrent,
    steps: usize,
    batch: usize,
    units: usize,
    gates: usize,
    /// Units of a part, except the last: whole vectors.
    part: usize,
    /// Entries of the batch whose sums the registers hold at once.
    together: usize,
    /// Recurrent weights, one matrix per gate.
    weights: PackedInput,
}

/// Prepares a recurrent layer.
pub(crate) fn prepare(node: &NodeSpec, op: &Recurrent, constants: &[bool]) -> Box<dyn CpuKernel> {
    let ([steps, batch, units], gates) = node.recurrent_sizes().expect("a layer that was checked");
    let (work, all) = (batch.saturating_mul(gates * units), units.next_multiple_of(LANES));
    let part =
        if work.saturating_mul(units) < SHARED { all } else { (PART / work.saturating_mul(LANES)).max(1) * LANES };
    Box::new(RecurrentKernel {
        op: op.clone(),
        steps,
        batch,
        units,
        gates,
        part: part.min(all),
        together: if MicroKernel::best().lanes < LANES { 2 } else { 4 },
        weights: PackedInput::new(1, Layout::right(gates, [units, units], true, LANES), constants),
    })
}

impl RecurrentKernel {
    /// Returns the vectors that a vector of units keeps from round to round.
    fn kept(&self) -> usize {
        match self.op.kind {
            RecurrentKind::Rnn => <Rnn as Cell<_>>::KEPT,
            RecurrentKind::Lstm => <Lstm as Cell<_>>::KEPT,
            RecurrentKind::Gru { linear_before_reset: true } => <Gru as Cell<_>>::KEPT,
            RecurrentKind::Gru { linear_before_reset: false } => <Reset as Cell<_>>::KEPT,
        }
    }

    /// Returns the rounds of each step.
    fn phases(&self) -> usize {
        if matches!(self.op.kind, RecurrentKind::Gru { linear_before_reset: false }) { 2 } else { 1 }
    }

    /// Returns the parts into which the units are divided.
    fn grid(&self) -> Grid {
        Grid { batch: 1, rows: self.batch, columns: self.units, tile_rows: self.batch, tile_columns: self.part }
    }

    /// Returns the sizes of the scratch memory, in numbers: vectors that parts keep, the state that passed the reset
    /// gates in a round, and the weights if a call must pack them.
    fn scratch(&self) -> [usize; 3] {
        let kept = (self.grid().tiles() * self.part).saturating_mul(self.batch).saturating_mul(self.kept());
        [kept, (self.phases() - 1) * self.batch * self.units, self.weights.scratch_floats()]
    }

    /// Returns the time index of a round's step.
    fn time(&self, round: usize) -> usize {
        let step = round / self.phases();
        if self.op.reverse { self.steps - 1 - step } else { step }
    }

    /// Returns a round, over the states after each step and the matrix of the state that passed the reset gates.
    fn round(&self, round: usize) -> Round {
        let writes =
            |round: usize| if (round + 1).is_multiple_of(self.phases()) { self.time(round) } else { self.steps };
        Round { reads: round.checked_sub(1).map(writes), writes: writes(round) }
    }

    /// Returns the cell state's runs of elements, and the positions at which parts keep them.
    fn cells(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let Self { batch, units, .. } = *self;
        (0..units).step_by(LANES).flat_map(move |unit| {
            let run = move |start: usize| start..start + LANES.min(units - unit);
            (0..batch).map(move |entry| (run(entry * units + unit), run((unit / LANES * batch + entry) * LANES)))
        })
    }

    /// Computes a part of a round with the gates' packed weights.
    fn compute(&self, call: &Call<'_>, weights: PackedMatrices<'_>, part: Part<'_, f32>) {
        match self.op.kind {
            RecurrentKind::Rnn => self.units::<Rnn, 1>(call, weights, part),
            RecurrentKind::Lstm => self.units::<Lstm, 4>(call, weights, part),
            RecurrentKind::Gru { linear_before_reset: true } => self.units::<Gru, 3>(call, weights, part),
            _ if part.round.is_multiple_of(2) => self.units::<Reset, 2>(call, weights, part),
            _ => self.units::<Candidate, 1>(call, weights, part),
        }
    }

    fn units<C: Cell<GATES>, const GATES: usize>(
        &self,
        call: &Call<'_>,
        weights: PackedMatrices<'_>,
        mut part: Part<'_, f32>,
    ) {
        let wide = self.batch * self.gates * self.units;
        vectorised(Units::<C, GATES> {
            weights: std::array::from_fn(|gate| weights.panels(C::FIRST + gate)),
            bias: elements(call.inputs[2]),
            input: &elements(call.inputs[0])[self.time(part.round) * wide..][..wide],
            state: part.before.unwrap_or(elements(call.inputs[3])),
            tile: &mut part.tile,
            kept: part.kept,
            units: self.units,
            together: self.together,
            options: Options { limit: self.op.clip.unwrap_or(f32::INFINITY), coupled: self.op.coupled },
            cell: PhantomData,
        });
    }
}

impl CpuKernel for RecurrentKernel {
    fn scratch_bytes(&self) -> usize {
        self.scratch().into_iter().fold(0, usize::saturating_add).saturating_mul(size_of::<f32>())
    }

    fn packings(&self) -> Vec<Packing> {
        self.weights.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.weights.keep(packed);
    }

    fn run(&self, mut call: Call<'_>) -> Result<(), KernelError> {
        let state = self.batch * self.units;
        if state == 0 {
            return Ok(());
        }
        let mut outputs = std::mem::take(&mut call.outputs).iter_mut();
        let mut next = || outputs.next().map_or(&mut [][..], |bytes| elements_mut::<f32>(bytes));
        let (all, last, last_cell) = (next(), next(), next());
        let [kept, passed, _] = self.scratch();
        let scratch: &mut [f32] = elements_mut(std::mem::take(&mut call.scratch));
        let (kept, scratch) = scratch.split_at_mut(kept);
        let (passed, scratch) = scratch.split_at_mut(passed);
        let weights = self.weights.matrices(call.inputs, scratch)?;
        if let Some(initial) = call.inputs.get(4) {
            let initial: &[f32] = elements(initial);
            self.cells().for_each(|(from, to)| kept[to].copy_from_slice(&initial[from]));
        }
        let memory = Memory { matrices: [&mut *all, passed], kept: &mut *kept };
        let rounds = self.steps * self.phases();
        let round = |round: usize| self.round(round);
        call.team.run_rounds(self.grid(), (rounds, &round), memory, &|part| self.compute(&call, weights, part));
        match self.steps.checked_sub(1) {
            Some(end) => last.copy_from_slice(&all[self.time(end * self.phases()) * state..][..state]),
            None => last.copy_from_slice(elements(call.inputs[3])),
        }
        if !last_cell.is_empty() {
            self.cells().for_each(|(to, from)| last_cell[to].copy_from_slice(&kept[from]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{run_all_ways, tensor};
    use anabranch_op::op::{NodeSpec, Op, Recurrent, RecurrentKind};
    use anabranch_op::{DType, Tensor};

    fn squash(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// Computes the definition in `f64`, for batch entry `b`: the states after each step.
    fn naive(op: &Recurrent, tensors: &[Tensor], b: usize) -> Vec<Vec<f64>> {
        let clip = op.clip.map_or(f64::INFINITY, f64::from);
        let (squash, tanh) = (|x: f64| squash(x.clamp(-clip, clip)), |x: f64| x.clamp(-clip, clip).tanh());
        let at = |tensor: usize, i: usize| f64::from(tensors[tensor].elements::<f32>().expect("f32")[i]);
        let [steps, batch, wide] = *tensors[0].shape().dims() else { panic!("three dimensions") };
        let units = tensors[3].shape().dims()[1];
        let mut h: Vec<f64> = (0..units).map(|u| at(3, b * units + u)).collect();
        let mut c: Vec<f64> = (0..units).map(|u| if tensors.len() > 4 { at(4, b * units + u) } else { 0.0 }).collect();
        let mut states = vec![Vec::new(); steps];
        for step in 0..steps {
            let time = if op.reverse { steps - 1 - step } else { step };
            let input = |g: usize, u: usize| at(0, (time * batch + b) * wide + g * units + u);
            let hidden = |g: usize, u: usize, h: &[f64]| {
                at(2, g * units + u) + (0..units).map(|k| at(1, (g * units + u) * units + k) * h[k]).sum::<f64>()
            };
            let next: Vec<f64> = (0..units)
                .map(|u| match op.kind {
                    RecurrentKind::Rnn => tanh(input(0, u) + hidden(0, u, &h)),
                    RecurrentKind::Gru { linear_before_reset } => {
                        let z = squash(input(0, u) + hidden(0, u, &h));
                        let candidate = if linear_before_reset {
                            squash(input(1, u) + hidden(1, u, &h)) * hidden(2, u, &h)
                        } else {
                            let reset: Vec<f64> =
                                (0..units).map(|k| squash(input(1, k) + hidden(1, k, &h)) * h[k]).collect();
                            hidden(2, u, &reset)
                        };
                        (1.0 - z) * tanh(input(2, u) + candidate) + z * h[u]
                    }
                    RecurrentKind::Lstm => {
                        let gate = |g: usize| input(g, u) + hidden(g, u, &h);
                        let forget = if op.coupled { 1.0 - squash(gate(0)) } else { squash(gate(2)) };
                        c[u] = forget * c[u] + squash(gate(0)) * tanh(gate(3));
                        squash(gate(1)) * tanh(c[u])
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
            (gru(false), false, [3, 1, 131]),
            (gru(false), true, [2, 5, 67]),
            (gru(true), false, [2, 7, 97]),
            (gru(true), false, [3, 6, 1]),
            (RecurrentKind::Lstm, false, [2, 7, 83]),
            (RecurrentKind::Lstm, false, [0, 2, 5]),
            (RecurrentKind::Rnn, false, [6, 1, 16]),
            (RecurrentKind::Rnn, true, [3, 5, 35]),
            (RecurrentKind::Rnn, true, [2, 1, 300]),
        ] {
            for (clip, coupled) in [(None, false), (Some(0.4), false), (None, true), (Some(0.4), true)] {
                if !coupled || kind == RecurrentKind::Lstm {
                    follows_its_definition(&Recurrent { kind, reverse, clip, coupled }, [steps, batch, units]);
                }
            }
        }
    }

    fn follows_its_definition(op: &Recurrent, [steps, batch, units]: [usize; 3]) {
        let gates = op.kind.gates();
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
        let node = NodeSpec {
            op: Op::Recurrent(op.clone()),
            inputs: inputs.iter().map(|t| t.spec().clone()).collect(),
            outputs,
        };
        let got = run_all_ways(&node, &inputs);
        let (all, last) = (got[0].elements::<f32>().expect("f32"), got[1].elements::<f32>().expect("f32"));
        for b in 0..batch {
            let want = naive(op, &inputs, b);
            for (time, want) in want.iter().enumerate() {
                let got = &all[(time * batch + b) * units..][..units];
                assert!(got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-4), "{op:?} at {time}");
            }
            let initial = inputs[3].elements::<f32>().expect("f32");
            let end = match steps {
                0 => &initial[b * units..],
                _ => &all[(if op.reverse { 0 } else { steps - 1 } * batch + b) * units..],
            };
            assert_eq!(last[b * units..][..units], end[..units]);
        }
    }
}
