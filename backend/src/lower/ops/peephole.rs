//! Long short-term memory whose gates also see the cell (Gers and Schmidhuber 2000): one time step after the other, each nodes of its own.

use super::{Builder, Epilogue, Fault, View};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Expression, MatMul, Unary};

/// Time steps at most.
const LONGEST: usize = 1024;

/// A direction of such a layer. Gates stand in the standard's order: input, output, forget, cell.
pub(super) struct Peephole {
    /// What the cell is weighted with for input, output and forget gate, `[3 u]`.
    pub(super) weights: View,
    /// `[4 u, u]`
    pub(super) recurrent: View,
    /// `[4 u]`
    pub(super) recurrent_bias: View,
    /// Time steps, batch, units.
    pub(super) sizes: [usize; 3],
    pub(super) reverse: bool,
}

impl Peephole {
    /// Y `[t, b, u]`, the last h and the last c `[b, u]`, from the product of all inputs with the weights `[t · b, 4 u]` and the first
    /// states.
    pub(super) fn unrolled(
        &self,
        builder: &mut Builder,
        projected: &View,
        initial: Vec<View>,
    ) -> Result<Vec<View>, Fault> {
        let [time, batch, units] = self.sizes;
        if time == 0 || time > LONGEST {
            return Err(Fault::unsupported(format!("peephole connections over {time} time steps")));
        }
        let [mut hidden, mut cell] = <[View; 2]>::try_from(initial).map_err(|_| Fault::missing(6))?;
        let projected =
            builder.map(Domain::F32, [projected, &self.recurrent_bias], DType::F32, |[sum, bias]| sum + bias)?;
        let mut states = vec![hidden.clone(); time];
        for step in 0..time {
            let at = if self.reverse { time - 1 - step } else { step };
            let read = builder.part(&projected, 0, at * batch, batch)?;
            let sum = Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![read] };
            let op = MatMul { transpose_b: true, ..MatMul::default() };
            let gates = builder.product(op, &hidden, &self.recurrent, vec![batch, 4 * units], sum)?;
            let input = self.gate(builder, &gates, 0, &cell)?;
            let forget = self.gate(builder, &gates, 2, &cell)?;
            let new = builder.part(&gates, 1, 3 * units, units)?;
            cell = builder.map(
                Domain::F32,
                [&forget, &cell, &input, &new],
                DType::F32,
                |[forget, cell, input, new]| {
                    let kept = forget * cell;
                    let added = input * new.apply(Unary::Tanh);
                    kept + added
                },
            )?;
            let output = self.gate(builder, &gates, 1, &cell)?;
            hidden = builder.map(Domain::F32, [&output, &cell], DType::F32, |[output, cell]| {
                let bent = cell.apply(Unary::Tanh);
                output * bent
            })?;
            states[at] = hidden.clone();
        }
        let states = states.iter().map(|state| state.reshaped(vec![1, batch, units])).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![builder.concatenated(&states, 0)?, hidden, cell])
    }

    /// `σ(z + p ∘ c)` of a gate; those that see the cell are the first three, in the order of their weights.
    fn gate(&self, builder: &mut Builder, gates: &View, gate: usize, cell: &View) -> Result<View, Fault> {
        let units = self.sizes[2];
        let (sum, weight) =
            (builder.part(gates, 1, gate * units, units)?, builder.part(&self.weights, 0, gate * units, units)?);
        builder.map(Domain::F32, [&sum, &weight, cell], DType::F32, |[sum, weight, cell]| {
            let seen = weight * cell;
            let total = sum + seen;
            total.apply(Unary::Sigmoid)
        })
    }
}
