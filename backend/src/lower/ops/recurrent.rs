//! Recurrent layers: the product of all inputs with the weights at once, then one pass over time for each direction.

use super::peephole::Peephole;
use super::{Builder, Entry, Epilogue, Fault, Operator, View, integers};
use anabranch_kernels::op::{Binary, Expression, MatMul, Op, Recurrent, RecurrentKind};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("GRU", gru), ("LSTM", lstm)];

/// A layer that is being lowered, and its sizes.
struct Layer<'a> {
    operator: &'a Operator<'a>,
    builder: &'a mut Builder,
    kind: RecurrentKind,
    /// Whether each direction runs backwards.
    reversed: Vec<bool>,
    /// Time steps, batch, input features, units.
    time: usize,
    batch: usize,
    features: usize,
    units: usize,
    /// Whether the batch comes before time in the inputs and outputs.
    batch_first: bool,
}

fn gru(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let linear_before_reset = operator.flag("linear_before_reset", false)?;
    lowered(operator, builder, RecurrentKind::Gru { linear_before_reset }, &["Sigmoid", "Tanh"])
}

fn lstm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.flag("input_forget", false)? {
        return Err(Fault::unsupported("coupled input and forget gates"));
    }
    lowered(operator, builder, RecurrentKind::Lstm, &["Sigmoid", "Tanh", "Tanh"])
}

fn lowered(
    operator: &Operator<'_>,
    builder: &mut Builder,
    kind: RecurrentKind,
    activations: &[&str],
) -> Result<Vec<View>, Fault> {
    if operator.opset < 7 {
        return Err(Fault::unsupported("its version of before 7"));
    }
    let mut layer = Layer::read(operator, builder, kind)?;
    layer.check_options(activations)?;
    layer.lower()
}

/// Whether each direction runs backwards.
pub(super) fn directions(operator: &Operator<'_>) -> Result<Vec<bool>, Fault> {
    match operator.string("direction", "forward")? {
        "forward" => Ok(vec![false]),
        "reverse" => Ok(vec![true]),
        "bidirectional" => Ok(vec![false, true]),
        other => Err(Fault::attribute("direction", other, "forward, reverse or bidirectional")),
    }
}

impl<'a> Layer<'a> {
    fn read(operator: &'a Operator<'a>, builder: &'a mut Builder, kind: RecurrentKind) -> Result<Self, Fault> {
        operator.float_input(0)?;
        let batch_first = operator.flag("layout", false)?;
        let &[outer, inner, features] = operator.input(0)?.dims() else {
            return Err(Fault::invalid(format!(
                "an input of shape {}, not three dimensions",
                operator.input(0)?.shape()
            )));
        };
        let (time, batch) = if batch_first { (inner, outer) } else { (outer, inner) };
        let reversed = directions(operator)?;
        let units = operator.input(2)?.dims().last().copied().unwrap_or(0);
        let hidden = operator.size("hidden_size", 1, units)?;
        if hidden != units || units == 0 {
            return Err(Fault::attribute("hidden_size", hidden, format!("the recurrent weights' {units}")));
        }
        Ok(Self { operator, builder, kind, reversed, time, batch, features, units, batch_first })
    }

    /// Refuses what the op does not compute.
    fn check_options(&self, activations: &[&str]) -> Result<(), Fault> {
        let operator = self.operator;
        if let Some(names) = operator.node.strings("activations")? {
            let usual = activations.iter().cycle();
            let same = names.iter().zip(usual).all(|(name, usual)| name.eq_ignore_ascii_case(usual));
            if !same {
                return Err(Fault::unsupported(format!("the activations {names:?}")));
            }
        }
        if operator.node.float("clip")?.is_some_and(|clip| clip > 0.0) {
            return Err(Fault::unsupported("clipped gates"));
        }
        if let Some(lengths) = operator.optional(4).and_then(|lengths| self.builder.tensor(lengths)) {
            let lengths = integers(&lengths).unwrap_or_default();
            if lengths.len() == self.batch && lengths.iter().all(|length| usize::try_from(*length) == Ok(self.time)) {
                return Ok(());
            }
            return Err(Fault::unsupported("sequences of different lengths"));
        }
        match operator.optional(4) {
            Some(_) => Err(Fault::unsupported("sequence lengths that are computed from the model's inputs")),
            None => Ok(()),
        }
    }

    fn lower(&mut self) -> Result<Vec<View>, Fault> {
        let input = self.operator.input(0)?;
        let x = self.builder.as_f32(input)?;
        let x = if self.batch_first { self.builder.transposed(&x, &[1, 0, 2])? } else { x };
        let mut outputs: Vec<Vec<View>> = Vec::new();
        for direction in 0..self.reversed.len() {
            outputs.push(self.direction(&x, direction)?);
        }
        self.joined(&outputs)?.iter().map(|view| self.builder.cast(view, input.dtype())).collect()
    }

    /// Y `[t, b, u]`, the last h `[b, u]`, and for an LSTM the last c, of one direction.
    fn direction(&mut self, x: &View, direction: usize) -> Result<Vec<View>, Fault> {
        let wide =
            self.kind.gates().checked_mul(self.units).ok_or_else(|| Fault::invalid(format!("{} units", self.units)))?;
        let weights = self.part((1, 0), direction, &[wide, self.features])?;
        let recurrent = self.part((2, 0), direction, &[wide, self.units])?;
        let (bias, recurrent_bias) = match self.operator.optional(3) {
            Some(_) => {
                let both = self.part((3, 0), direction, &[2 * wide])?;
                (Some(self.builder.part(&both, 0, 0, wide)?), self.builder.part(&both, 0, wide, wide)?)
            }
            None => (None, self.zeros(&[wide])?),
        };
        let rows = self.time.checked_mul(self.batch).ok_or_else(|| Fault::invalid("too many steps"))?;
        let epilogue = Epilogue {
            expression: bias.is_some().then(|| Expression::binary(Binary::Add)),
            operands: bias.into_iter().collect(),
        };
        let flat = x.reshaped(vec![rows, self.features])?;
        let op = MatMul { transpose_b: true, ..MatMul::default() };
        let projected = self.builder.product(op, &flat, &weights, vec![rows, wide], epilogue)?;

        let states = self.kind.states();
        let initial = (0..states).map(|state| self.initial(5 + state, direction)).collect::<Result<Vec<_>, _>>()?;
        if self.kind == RecurrentKind::Lstm && self.operator.optional(7).is_some() {
            let weights = self.part((7, 0), direction, &[3 * self.units])?;
            let sizes = [self.time, self.batch, self.units];
            let cell = Peephole { weights, recurrent, recurrent_bias, sizes, reverse: self.reversed[direction] };
            return cell.unrolled(self.builder, &projected, initial);
        }
        let mut inputs = vec![projected.reshaped(vec![self.time, self.batch, wide])?, recurrent, recurrent_bias];
        inputs.extend(initial);
        let state = TensorSpec::new(DType::F32, Shape::new(vec![self.batch, self.units])?);
        let sequence = TensorSpec::new(DType::F32, Shape::new(vec![self.time, self.batch, self.units])?);
        let mut specs = vec![sequence];
        specs.extend(std::iter::repeat_n(state, states));
        let op = Recurrent { kind: self.kind, reverse: self.reversed[direction] };
        self.builder.emit(Op::Recurrent(op), &inputs, specs)
    }

    /// One direction's part, of shape `dims`, of input `index`, whose directions are along `axis`.
    fn part(&mut self, (index, axis): (usize, usize), direction: usize, dims: &[usize]) -> Result<View, Fault> {
        let whole = self.operator.float_input(index)?;
        let mut expected = dims.to_vec();
        expected.insert(axis, self.reversed.len());
        if *whole.dims() != expected[..] {
            return Err(Fault::invalid(format!("input {index} has shape {}, not {expected:?}", whole.shape())));
        }
        let part = self.builder.part(whole, axis, direction, 1)?.reshaped(dims)?;
        self.builder.as_f32(&part)
    }

    /// A direction's first state: input `index`, or zeros.
    fn initial(&mut self, index: usize, direction: usize) -> Result<View, Fault> {
        let dims = [self.batch, self.units];
        match self.operator.optional(index) {
            None => self.zeros(&dims),
            Some(_) => self.part((index, usize::from(self.batch_first)), direction, &dims),
        }
    }

    fn zeros(&mut self, dims: &[usize]) -> Result<View, Fault> {
        self.builder.filled(TensorSpec::new(DType::F32, Shape::new(dims)?), 0.0)
    }

    /// The directions' outputs side by side: Y `[t, d, b, u]`, states `[d, b, u]`, or with the batch first.
    fn joined(&mut self, outputs: &[Vec<View>]) -> Result<Vec<View>, Fault> {
        let (time, batch, units) = (self.time, self.batch, self.units);
        let mut joined = Vec::new();
        for index in 0..self.operator.output_count().min(outputs[0].len()) {
            let sequence = index == 0;
            let dims = if sequence { vec![time, 1, batch, units] } else { vec![1, batch, units] };
            let parts =
                outputs.iter().map(|views| views[index].reshaped(dims.clone())).collect::<Result<Vec<_>, _>>()?;
            let whole = self.builder.concatenated(&parts, if sequence { 1 } else { 0 })?;
            joined.push(match (self.batch_first, sequence) {
                (false, _) => whole,
                (true, true) => self.builder.transposed(&whole, &[2, 0, 1, 3])?,
                (true, false) => self.builder.transposed(&whole, &[1, 0, 2])?,
            });
        }
        Ok(joined)
    }
}
