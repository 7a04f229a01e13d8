//! One round of some units of a recurrent layer: the product of their recurrent weights with the state, then the gates.
//!
//! Each product is a sum in the order of the state's elements. If an entry of the batch is computed alone, every second
//! or fourth element is summed separately; otherwise each multiply-add would wait for the last one.

use anabranch_cpu_base::gemm::Panels;
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::math::{sigmoid, tanh};
use anabranch_cpu_base::team::Tile;
use anabranch_cpu_base::vector::{Isa, Loop};
use std::marker::PhantomData;

/// Numbers of neighbouring units.
type Vector = [f32; LANES];

/// Options of a layer that its gates read.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// Greatest magnitude of the arguments of sigmoid and tanh, or infinity.
    pub(super) limit: f32,
    /// Whether an LSTM's forget gate is one minus its input gate.
    pub(super) coupled: bool,
}

impl Options {
    /// Returns the sigmoid of a bounded argument.
    #[inline(always)]
    fn sigmoid<I: Isa>(self, x: f32) -> f32 {
        sigmoid::<I>(self.bounded(x))
    }

    /// Returns tanh of a bounded argument.
    #[inline(always)]
    fn tanh<I: Isa>(self, x: f32) -> f32 {
        tanh::<I>(self.bounded(x))
    }

    /// Returns `x` within the limit; NaN stays NaN.
    #[inline(always)]
    fn bounded(self, x: f32) -> f32 {
        let x = if x > self.limit { self.limit } else { x };
        if x < -self.limit { -self.limit } else { x }
    }
}

/// Function that a round applies to the products, in vectors of units. Functions are inlined always.
pub(super) trait Cell<const GATES: usize> {
    /// Number of its first gate.
    const FIRST: usize;
    /// Vectors that it keeps for the next round.
    const KEPT: usize;

    /// Returns the vector that the round writes. Its arguments are the gates' inputs, the products with the state that
    /// the round reads, and the part of that state for the round's own units.
    fn next<I: Isa>(
        options: Options,
        input: [Vector; GATES],
        hidden: [Vector; GATES],
        before: Vector,
        kept: &mut [Vector],
    ) -> Vector;
}

/// LSTM cell with the gates i, o, f, c. Keeps the cell state.
pub(super) struct Lstm;

impl Cell<4> for Lstm {
    const FIRST: usize = 0;
    const KEPT: usize = 1;

    #[inline(always)]
    fn next<I: Isa>(
        options: Options,
        input: [Vector; 4],
        hidden: [Vector; 4],
        _: Vector,
        kept: &mut [Vector],
    ) -> Vector {
        let (cell, mut forget, mut out) = (&mut kept[0], [0.0; LANES], [0.0; LANES]);
        if !options.coupled {
            for u in 0..LANES {
                forget[u] = options.sigmoid::<I>(input[2][u] + hidden[2][u]);
            }
        }
        for u in 0..LANES {
            let i = options.sigmoid::<I>(input[0][u] + hidden[0][u]);
            let f = if options.coupled { 1.0 - i } else { forget[u] };
            cell[u] = f * cell[u] + i * options.tanh::<I>(input[3][u] + hidden[3][u]);
        }
        for u in 0..LANES {
            out[u] = options.sigmoid::<I>(input[1][u] + hidden[1][u]) * options.tanh::<I>(cell[u]);
        }
        out
    }
}

/// GRU cell with the gates z, r, h, whose reset gate is applied after the product.
pub(super) struct Gru;

impl Cell<3> for Gru {
    const FIRST: usize = 0;
    const KEPT: usize = 0;

    #[inline(always)]
    fn next<I: Isa>(
        options: Options,
        input: [Vector; 3],
        hidden: [Vector; 3],
        before: Vector,
        _: &mut [Vector],
    ) -> Vector {
        let mut out = [0.0; LANES];
        for u in 0..LANES {
            let z = options.sigmoid::<I>(input[0][u] + hidden[0][u]);
            let r = options.sigmoid::<I>(input[1][u] + hidden[1][u]);
            let h = options.tanh::<I>(input[2][u] + r * hidden[2][u]);
            out[u] = (1.0 - z) * h + z * before[u];
        }
        out
    }
}

/// First round of a GRU: the part of the state that passes the reset gate. Keeps z and the state.
pub(super) struct Reset;

impl Cell<2> for Reset {
    const FIRST: usize = 0;
    const KEPT: usize = 2;

    #[inline(always)]
    fn next<I: Isa>(
        options: Options,
        input: [Vector; 2],
        hidden: [Vector; 2],
        before: Vector,
        kept: &mut [Vector],
    ) -> Vector {
        let mut out = [0.0; LANES];
        for u in 0..LANES {
            kept[0][u] = options.sigmoid::<I>(input[0][u] + hidden[0][u]);
            out[u] = options.sigmoid::<I>(input[1][u] + hidden[1][u]) * before[u];
        }
        kept[1] = before;
        out
    }
}

/// Second round of a GRU: the state after a step, from the products with the part that passed the reset gate, and the
/// vectors that [`Reset`] kept.
pub(super) struct Candidate;

impl Cell<1> for Candidate {
    const FIRST: usize = 2;
    const KEPT: usize = 2;

    #[inline(always)]
    fn next<I: Isa>(
        options: Options,
        input: [Vector; 1],
        hidden: [Vector; 1],
        _: Vector,
        kept: &mut [Vector],
    ) -> Vector {
        let mut out = [0.0; LANES];
        for u in 0..LANES {
            let h = options.tanh::<I>(input[0][u] + hidden[0][u]);
            out[u] = (1.0 - kept[0][u]) * h + kept[0][u] * kept[1][u];
        }
        out
    }
}

/// Cell without gates.
pub(super) struct Rnn;

impl Cell<1> for Rnn {
    const FIRST: usize = 0;
    const KEPT: usize = 0;

    #[inline(always)]
    fn next<I: Isa>(options: Options, input: [Vector; 1], hidden: [Vector; 1], _: Vector, _: &mut [Vector]) -> Vector {
        let mut out = [0.0; LANES];
        for u in 0..LANES {
            out[u] = options.tanh::<I>(input[0][u] + hidden[0][u]);
        }
        out
    }
}

/// Round of the units of a tile.
pub(super) struct Units<'a, 't, C, const GATES: usize> {
    /// Recurrent weights of the cell's gates.
    pub(super) weights: [Panels<'a>; GATES],
    /// Recurrent bias, `[g, u]`.
    pub(super) bias: &'a [f32],
    /// Inputs of the step, `[b, g, u]`.
    pub(super) input: &'a [f32],
    /// State that the round reads, `[b, u]`.
    pub(super) state: &'a [f32],
    pub(super) tile: &'a mut Tile<'t, f32>,
    /// Vectors that the cell keeps, for each block of units and each entry of the batch.
    pub(super) kept: &'a mut [f32],
    /// Units of the layer.
    pub(super) units: usize,
    /// Entries of the batch whose sums the registers hold at once.
    pub(super) together: usize,
    pub(super) options: Options,
    pub(super) cell: PhantomData<C>,
}

impl<C: Cell<GATES>, const GATES: usize> Loop for Units<'_, '_, C, GATES> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let batch = self.tile.rows.len();
        for unit in self.tile.columns.clone().step_by(LANES) {
            let mut entry = 0;
            while entry < batch {
                entry += match self.together.min(batch - entry) {
                    4.. => self.entries::<I, 4, 1>(unit, entry),
                    2.. => self.entries::<I, 2, 1>(unit, entry),
                    _ if GATES < 3 => self.entries::<I, 1, 4>(unit, entry),
                    _ => self.entries::<I, 1, 2>(unit, entry),
                };
            }
        }
    }
}

impl<C: Cell<GATES>, const GATES: usize> Units<'_, '_, C, GATES> {
    /// Computes the units from `unit` on for `ENTRIES` entries of the batch, and returns how many these are.
    #[inline(always)]
    fn entries<I: Isa, const ENTRIES: usize, const CHAINS: usize>(&mut self, unit: usize, entry: usize) -> usize {
        let panels = self.weights.map(|weights| weights.from(0, unit));
        let states = std::array::from_fn(|at| &self.state[(entry + at) * self.units..][..self.units]);
        let sums = products::<I, GATES, ENTRIES, CHAINS>(panels, states);
        for (at, sums) in sums.into_iter().enumerate() {
            self.finish::<I>(unit, entry + at, sums);
        }
        ENTRIES
    }

    /// Applies the cell to the products of one entry of the batch.
    #[inline(always)]
    fn finish<I: Isa>(&mut self, unit: usize, entry: usize, mut hidden: [Vector; GATES]) {
        let (units, batch, columns) = (self.units, self.tile.rows.len(), self.tile.columns.clone());
        let (wide, width) = (self.input.len() / batch, LANES.min(columns.end - unit));
        let mut input = [[0.0; LANES]; GATES];
        for gate in 0..GATES {
            let at = (C::FIRST + gate) * units + unit;
            let bias = padded(&self.bias[at..][..width]);
            input[gate] = padded(&self.input[entry * wide + at..][..width]);
            for u in 0..LANES {
                hidden[gate][u] += bias[u];
            }
        }
        let before = padded(&self.state[entry * units + unit..][..width]);
        let block = (unit - columns.start) / LANES * batch + entry;
        let kept = &mut self.kept.as_chunks_mut().0[block * C::KEPT..][..C::KEPT];
        let after = C::next::<I>(self.options, input, hidden, before, kept);
        let out = &mut self.tile.row(entry)[unit - columns.start..][..width];
        match out.first_chunk_mut() {
            Some(out) => *out = after,
            None => out.copy_from_slice(&after[..width]),
        }
    }
}

/// Returns the products of vectors of units with the states of some entries, for each panel and each state. A panel
/// holds a vector for each of a state's elements.
#[inline(always)]
fn products<I: Isa, const GATES: usize, const ENTRIES: usize, const CHAINS: usize>(
    panels: [&[f32]; GATES],
    states: [&[f32]; ENTRIES],
) -> [[Vector; GATES]; ENTRIES] {
    let depth = states[0].len();
    let panels = panels.map(|panel| &panel.as_chunks::<LANES>().0[..depth]);
    let states = states.map(|state| &state[..depth]);
    let mut sums = [[[[0f32; LANES]; GATES]; ENTRIES]; CHAINS];
    let even = depth / CHAINS * CHAINS;
    for step in (0..even).step_by(CHAINS) {
        for chain in 0..CHAINS {
            add::<I, GATES, ENTRIES>(&mut sums[chain], panels, states, step + chain);
        }
    }
    for step in even..depth {
        add::<I, GATES, ENTRIES>(&mut sums[0], panels, states, step);
    }
    let mut all = sums[0];
    for chain in &sums[1..] {
        for entry in 0..ENTRIES {
            for gate in 0..GATES {
                for u in 0..LANES {
                    all[entry][gate][u] += chain[entry][gate][u];
                }
            }
        }
    }
    all
}

/// Adds the contribution of one element of the states.
#[inline(always)]
fn add<I: Isa, const GATES: usize, const ENTRIES: usize>(
    sums: &mut [[Vector; GATES]; ENTRIES],
    panels: [&[Vector]; GATES],
    states: [&[f32]; ENTRIES],
    step: usize,
) {
    let factors = states.map(|state| state[step]);
    let weights = panels.map(|panel| &panel[step]);
    // The loop over lanes is outermost: the compiler then keeps the sums in registers.
    for u in 0..LANES {
        for entry in 0..ENTRIES {
            for gate in 0..GATES {
                sums[entry][gate][u] = I::fused(weights[gate][u], factors[entry], sums[entry][gate][u]);
            }
        }
    }
}

/// Returns at most a vector's numbers, padded with zeros.
#[inline(always)]
fn padded(numbers: &[f32]) -> Vector {
    numbers.first_chunk().copied().unwrap_or_else(|| {
        let mut vector = [0.0; LANES];
        vector[..numbers.len()].copy_from_slice(numbers);
        vector
    })
}
