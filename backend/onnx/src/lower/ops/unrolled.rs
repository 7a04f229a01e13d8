//! Recurrent layers unrolled into nodes for each time step, for options that the recurrent op lacks.
//!
//! These are other activations, gates that see the cell, states on a grid, and sequences of different lengths.

use super::quantize::on_own_grid;
use super::recurrent_cell::{Activation, Kind};
use super::{Builder, Epilogue, Fault, Term, View, domain_of};
use anabranch_kernels::op::{Binary, Domain, Expression, MatMul};
use anabranch_kernels::{DType, Shape, TensorSpec};

/// A direction of a layer. Gates are in the standard's order: input, output, forget and cell for an LSTM; update, reset
/// and hidden for a GRU.
pub(super) struct Unrolled {
    pub(super) kind: Kind,
    /// Functions f, g and h.
    pub(super) activations: [Activation; 3],
    /// Largest magnitude of a function's argument.
    pub(super) clip: Option<f64>,
    /// Whether an LSTM's forget gate is one minus its input gate.
    pub(super) coupled: bool,
    /// Whether a state is put on a grid of its own range before it is multiplied.
    pub(super) on_grid: bool,
    /// Recurrent weights `[gates · u, u]`.
    pub(super) recurrent: View,
    /// Bias of the recurrent weights, `[gates · u]`.
    pub(super) recurrent_bias: View,
    /// Weights of the cell for the input, output and forget gate (Gers and Schmidhuber 2000), `[3 u]`.
    pub(super) peepholes: Option<View>,
    /// Length of each entry's sequence, `[b, 1]`, if some are shorter than the layer's input.
    pub(super) lengths: Option<View>,
    /// Numbers of time steps, batch entries and units.
    pub(super) sizes: [usize; 3],
    pub(super) reverse: bool,
}

/// Parts that all steps read.
struct Parts {
    /// Recurrent weights and bias of the gates that share one product.
    products: Vec<[View; 2]>,
    /// Weights of the cell for each gate that sees it.
    peepholes: Vec<View>,
}

impl Unrolled {
    /// Lowers the direction. Returns Y `[t, b, u]`, the last h and, for an LSTM, the last c `[b, u]`.
    ///
    /// The arguments are the product of all inputs with the weights, `[t · b, gates · u]`, and the first states.
    pub(super) fn lower(
        &self,
        builder: &mut Builder,
        projected: &View,
        mut states: Vec<View>,
    ) -> Result<Vec<View>, Fault> {
        let [time, batch, units] = self.sizes;
        let what = "time steps of a layer of other than the usual functions, of gates that see the cell, of states on grids, or of sequences of different lengths";
        Builder::require_few(time, what)?;
        let parts = self.parts(builder)?;
        let mut sequence = vec![None; time];
        for step in 0..time {
            let at = if self.reverse { time - 1 - step } else { step };
            let input = builder.part(projected, 0, at * batch, batch)?;
            let next = match self.kind {
                Kind::Rnn => self.simple(builder, &parts, &input, &states)?,
                Kind::Gru { linear_before_reset } => self.gru(builder, &parts, &input, &states, linear_before_reset)?,
                Kind::Lstm => self.lstm(builder, &parts, &input, &states)?,
            };
            let made = match &self.lengths {
                None => {
                    states = next;
                    states[0].clone()
                }
                Some(lengths) => {
                    let made = builder.map(self.domain(), [lengths, &next[0]], self.work(), |[length, next]| {
                        length.with(Binary::Greater, at as f64).select(next, 0.0)
                    })?;
                    for (state, next) in states.iter_mut().zip(&next) {
                        let both = [lengths, next, &*state];
                        *state = builder.map(self.domain(), both, self.work(), |[length, next, before]| {
                            length.with(Binary::Greater, at as f64).select(next, before)
                        })?;
                    }
                    made
                }
            };
            sequence[at] = Some(made.reshaped(vec![1, batch, units])?);
        }
        let sequence: Vec<View> = sequence.into_iter().flatten().collect();
        let whole = match sequence.is_empty() {
            true => builder.filled(TensorSpec::new(self.work(), Shape::new(vec![0, batch, units])?), 0.0)?,
            false => builder.concatenated(&sequence, 0)?,
        };
        Ok([vec![whole], states].concat())
    }

    /// Returns the type in which the layer is computed.
    fn work(&self) -> DType {
        self.recurrent.dtype()
    }

    /// Returns the domain of the layer's expressions.
    fn domain(&self) -> Domain {
        domain_of(self.work())
    }

    /// Computes a step of a simple layer: `h = f(W x + R h + b)`.
    fn simple(&self, builder: &mut Builder, parts: &Parts, input: &View, states: &[View]) -> Result<Vec<View>, Fault> {
        let sum = self.product(builder, &states[0], &parts.products[0], Some(input))?;
        Ok(vec![builder.map(self.domain(), [&sum], self.work(), |[sum]| self.bent(0, sum))?])
    }

    fn gru(
        &self,
        builder: &mut Builder,
        parts: &Parts,
        input: &View,
        states: &[View],
        linear_before_reset: bool,
    ) -> Result<Vec<View>, Fault> {
        let (hidden, units) = (&states[0], self.sizes[2]);
        let gates = builder.part(input, 1, 0, 2 * units)?;
        let gates = self.product(builder, hidden, &parts.products[0], Some(&gates))?;
        let (update, reset) = (builder.part(&gates, 1, 0, units)?, builder.part(&gates, 1, units, units)?);
        let own = builder.part(input, 1, 2 * units, units)?;
        let sum = if linear_before_reset {
            let product = self.product(builder, hidden, &parts.products[1], None)?;
            builder.map(self.domain(), [&own, &reset, &product], self.work(), |[own, reset, product]| {
                let passed = self.bent(0, reset) * product;
                own + passed
            })?
        } else {
            let passed =
                builder.map(self.domain(), [&reset, hidden], self.work(), |[reset, h]| self.bent(0, reset) * h)?;
            self.product(builder, &passed, &parts.products[1], Some(&own))?
        };
        let next = builder.map(self.domain(), [&update, &sum, hidden], self.work(), |[update, sum, hidden]| {
            let (kept, new) = (self.bent(0, update), self.bent(1, sum));
            let taken = (kept * -1.0 + 1.0) * new;
            let before = kept * hidden;
            taken + before
        })?;
        Ok(vec![next])
    }

    fn lstm(&self, builder: &mut Builder, parts: &Parts, input: &View, states: &[View]) -> Result<Vec<View>, Fault> {
        let ([hidden, cell], units) = (states, self.sizes[2]) else { return Err(Fault::missing(6)) };
        let multiplied = if self.on_grid { on_own_grid(builder, hidden)? } else { hidden.clone() };
        let gates = self.product(builder, &multiplied, &parts.products[0], Some(input))?;
        let taken = self.gate(builder, parts, [&gates, cell], 0)?;
        let forget = match self.coupled {
            true => builder.map(self.domain(), [&taken], self.work(), |[taken]| taken * -1.0 + 1.0)?,
            false => self.gate(builder, parts, [&gates, cell], 2)?,
        };
        let new = builder.part(&gates, 1, 3 * units, units)?;
        let cell =
            builder.map(self.domain(), [&forget, cell, &taken, &new], self.work(), |[forget, cell, taken, new]| {
                let kept = forget * cell;
                let added = taken * self.bent(1, new);
                kept + added
            })?;
        let output = self.gate(builder, parts, [&gates, &cell], 1)?;
        let hidden = builder.map(self.domain(), [&output, &cell], self.work(), |[output, cell]| {
            let bent = self.bent(2, cell);
            output * bent
        })?;
        Ok(vec![hidden, cell])
    }

    /// Computes `f(z + p ∘ c)` of an LSTM's gate; the first three gates, in the order of their weights, can see the
    /// cell.
    fn gate(
        &self,
        builder: &mut Builder,
        parts: &Parts,
        [gates, cell]: [&View; 2],
        gate: usize,
    ) -> Result<View, Fault> {
        let units = self.sizes[2];
        let sum = builder.part(gates, 1, gate * units, units)?;
        let Some(weight) = parts.peepholes.get(gate) else {
            return builder.map(self.domain(), [&sum], self.work(), |[sum]| self.bent(0, sum));
        };
        builder.map(self.domain(), [&sum, weight, cell], self.work(), |[sum, weight, cell]| {
            let seen = weight * cell;
            self.bent(0, sum + seen)
        })
    }

    /// Returns the parts that all steps read.
    fn parts(&self, builder: &mut Builder) -> Result<Parts, Fault> {
        let units = self.sizes[2];
        let [gates, _] = self.kind.sizes();
        // First gate and number of gates of each product.
        let products_of = if matches!(self.kind, Kind::Gru { .. }) { vec![[0, 2], [2, 1]] } else { vec![[0, gates]] };
        let mut products = Vec::new();
        for [first, count] in products_of {
            let mut part = |of: &View| builder.part(of, 0, first * units, count * units);
            products.push([part(&self.recurrent)?, part(&self.recurrent_bias)?]);
        }
        let peepholes = match &self.peepholes {
            Some(weights) => {
                (0..3).map(|gate| builder.part(weights, 0, gate * units, units)).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        Ok(Parts { products, peepholes })
    }

    /// Multiplies a state by recurrent weights, and adds their bias and another addend, `[b, gates · u]`.
    fn product(
        &self,
        builder: &mut Builder,
        state: &View,
        [weights, bias]: &[View; 2],
        add: Option<&View>,
    ) -> Result<View, Fault> {
        let (one, wide) = (Expression::binary(Binary::Add), weights.dims()[0]);
        let (expression, operands) = match add {
            None => (one, vec![bias.clone()]),
            Some(add) => (one.then(&one, 0).expect("two steps are few"), vec![bias.clone(), add.clone()]),
        };
        let epilogue = Epilogue { expression: Some(expression), operands };
        let op = MatMul { transpose_b: true, ..MatMul::default() };
        builder.product(op, state, weights, vec![self.sizes[1], wide], epilogue)
    }

    /// Applies one of the functions f, g and h.
    fn bent<'a>(&self, function: usize, x: Term<'a>) -> Term<'a> {
        let x = match self.clip {
            Some(clip) => x.with(Binary::Min, clip).with(Binary::Max, -clip),
            None => x,
        };
        self.activations[function].of(x)
    }
}
