//! Recurrent layers: the product of all inputs with the weights at once, then one pass over time for each direction.

use super::quantize::on_own_grid;
use super::recurrent_cell::{Activation, Kind};
use super::unrolled::Unrolled;
use super::{Builder, Entry, Epilogue, Fault, Operator, View, integers, working};
use anabranch_kernels::op::{Binary, Expression, MatMul, Op, Recurrent};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("GRU", gru), ("LSTM", lstm), ("RNN", rnn)];

/// A layer that is being lowered, and its sizes.
struct Layer<'a> {
    operator: &'a Operator<'a>,
    builder: &'a mut Builder,
    kind: Kind,
    /// Whether each direction runs backwards.
    reversed: Vec<bool>,
    /// Functions of each direction.
    activations: Vec<Activation>,
    clip: Option<f32>,
    coupled: bool,
    /// Whether inputs and states are put on grids of their own ranges before they are multiplied.
    on_grid: bool,
    /// Lengths `[b, 1]`, if some sequences are shorter than the input.
    lengths: Option<View>,
    /// Numbers of time steps, batch entries, input features and units.
    time: usize,
    batch: usize,
    features: usize,
    units: usize,
    /// Whether the batch comes before time in the inputs and outputs.
    batch_first: bool,
}

fn rnn(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Layer::read(operator, builder, Kind::Rnn)?.lower()
}

fn gru(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let linear_before_reset = operator.flag("linear_before_reset", false)?;
    Layer::read(operator, builder, Kind::Gru { linear_before_reset })?.lower()
}

fn lstm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Layer::read(operator, builder, Kind::Lstm)?.lower()
}

/// Lowers an LSTM that puts its inputs, and each step its states, on grids of their own ranges before it multiplies
/// them.
pub(super) fn lstm_on_grids(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let mut layer = Layer::read(operator, builder, Kind::Lstm)?;
    layer.on_grid = true;
    layer.lower()
}

/// Whether each direction runs backwards.
fn directions(operator: &Operator<'_>) -> Result<Vec<bool>, Fault> {
    match operator.string("direction", "forward")? {
        "forward" => Ok(vec![false]),
        "reverse" => Ok(vec![true]),
        "bidirectional" => Ok(vec![false, true]),
        other => Err(Fault::attribute("direction", other, "forward, reverse or bidirectional")),
    }
}

impl<'a> Layer<'a> {
    fn read(operator: &'a Operator<'a>, builder: &'a mut Builder, kind: Kind) -> Result<Self, Fault> {
        operator.float_input(0)?;
        let batch_first = operator.flag("layout", false)?;
        let &[outer, inner, features] = operator.input(0)?.dims() else {
            return Err(Fault::invalid(format!(
                "an input of shape {}, but three dimensions are needed",
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
        let activations = Activation::read(operator, kind, reversed.len())?;
        let clip = operator.node.float("clip")?.filter(|clip| *clip > 0.0 && clip.is_finite());
        let coupled = kind == Kind::Lstm && operator.flag("input_forget", false)?;
        let lengths = lengths(operator, builder, [time, batch])?;
        Ok(Self {
            operator,
            builder,
            kind,
            reversed,
            activations,
            clip,
            coupled,
            on_grid: false,
            lengths,
            time,
            batch,
            features,
            units,
            batch_first,
        })
    }

    fn lower(&mut self) -> Result<Vec<View>, Fault> {
        let input = self.operator.input(0)?;
        let x = self.builder.as_working(input)?;
        let x = if self.on_grid { on_own_grid(self.builder, &x)? } else { x };
        let x = if self.batch_first { self.builder.transposed(&x, &[1, 0, 2])? } else { x };
        let mut outputs: Vec<Vec<View>> = Vec::new();
        for direction in 0..self.reversed.len() {
            outputs.push(self.direction(&x, direction)?);
        }
        self.joined(&outputs)?.iter().map(|view| self.builder.cast(view, input.dtype())).collect()
    }

    /// Lowers one direction: returns Y `[t, b, u]`, the last h `[b, u]`, and for an LSTM the last c.
    fn direction(&mut self, x: &View, direction: usize) -> Result<Vec<View>, Fault> {
        let [gates, states] = self.kind.sizes();
        let wide = gates.checked_mul(self.units).ok_or_else(|| Fault::invalid(format!("{} units", self.units)))?;
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
        let initial = (0..states).map(|state| self.initial(5 + state, direction)).collect::<Result<Vec<_>, _>>()?;
        if self.is_usual(direction) {
            return self.scanned(direction, [projected, recurrent, recurrent_bias], initial);
        }
        self.unrolled(direction, [recurrent, recurrent_bias])?.lower(self.builder, &projected, initial)
    }

    /// Returns the functions of a direction.
    fn functions(&self, direction: usize) -> &[Activation] {
        let count = self.kind.usual().len();
        &self.activations[direction * count..][..count]
    }

    /// Whether gates see the cell.
    fn has_peepholes(&self) -> bool {
        self.kind == Kind::Lstm && self.operator.optional(7).is_some()
    }

    /// Whether a direction has none of the options that the recurrent op lacks.
    fn is_usual(&self, direction: usize) -> bool {
        let options = self.on_grid || self.lengths.is_some() || self.has_peepholes();
        !options && self.functions(direction) == self.kind.usual()
    }

    /// Returns a direction as nodes for each time step, with its recurrent weights and their bias.
    fn unrolled(&mut self, direction: usize, [recurrent, recurrent_bias]: [View; 2]) -> Result<Unrolled, Fault> {
        let mut activations = [Activation::Tanh; 3];
        let functions = self.functions(direction);
        activations[..functions.len()].copy_from_slice(functions);
        let peepholes = match self.has_peepholes() {
            true => Some(self.part((7, 0), direction, &[3 * self.units])?),
            false => None,
        };
        Ok(Unrolled {
            kind: self.kind,
            activations,
            clip: self.clip.map(f64::from),
            coupled: self.coupled,
            on_grid: self.on_grid,
            recurrent,
            recurrent_bias,
            peepholes,
            lengths: self.lengths.clone(),
            sizes: [self.time, self.batch, self.units],
            reverse: self.reversed[direction],
        })
    }

    /// Emits a direction as one op, from the projected input, the recurrent weights and their bias.
    fn scanned(
        &mut self,
        direction: usize,
        [projected, recurrent, bias]: [View; 3],
        initial: Vec<View>,
    ) -> Result<Vec<View>, Fault> {
        let wide = projected.dims()[1];
        let mut inputs = vec![projected.reshaped(vec![self.time, self.batch, wide])?, recurrent, bias];
        let states = initial.len();
        inputs.extend(initial);
        let state = TensorSpec::new(self.work(), Shape::new(vec![self.batch, self.units])?);
        let sequence = TensorSpec::new(self.work(), Shape::new(vec![self.time, self.batch, self.units])?);
        let mut specs = vec![sequence];
        specs.extend(std::iter::repeat_n(state, states));
        let (kind, reverse) = (self.kind.op(), self.reversed[direction]);
        let op = Recurrent { kind, reverse, clip: self.clip, coupled: self.coupled };
        self.builder.emit(Op::Recurrent(op), &inputs, specs)
    }

    /// Returns one direction's part, of shape `dims`, of input `index`, whose directions are along `axis`.
    fn part(&mut self, (index, axis): (usize, usize), direction: usize, dims: &[usize]) -> Result<View, Fault> {
        let whole = self.operator.float_input(index)?;
        let mut expected = dims.to_vec();
        expected.insert(axis, self.reversed.len());
        if *whole.dims() != expected[..] {
            return Err(Fault::invalid(format!("input {index} has shape {}, but needs {expected:?}", whole.shape())));
        }
        let part = self.builder.part(whole, axis, direction, 1)?.reshaped(dims)?;
        let work = self.work();
        self.builder.cast(&part, work)
    }

    /// Returns the type in which the layer is computed.
    fn work(&self) -> DType {
        self.operator.input(0).map_or(DType::F32, |input| working(input.dtype()))
    }

    /// Returns a direction's first state: input `index`, or zeros.
    fn initial(&mut self, index: usize, direction: usize) -> Result<View, Fault> {
        let dims = [self.batch, self.units];
        match self.operator.optional(index) {
            None => self.zeros(&dims),
            Some(_) => self.part((index, usize::from(self.batch_first)), direction, &dims),
        }
    }

    fn zeros(&mut self, dims: &[usize]) -> Result<View, Fault> {
        let work = self.work();
        self.builder.filled(TensorSpec::new(work, Shape::new(dims)?), 0.0)
    }

    /// Joins the directions' outputs: Y `[t, d, b, u]`, states `[d, b, u]`, or with the batch first.
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

/// Returns the lengths of a batch's sequences, `[b, 1]`; `None` if all are known to be as long as the input. Lengths
/// that only a run knows are assumed to be at most that.
fn lengths(operator: &Operator<'_>, builder: &mut Builder, [time, batch]: [usize; 2]) -> Result<Option<View>, Fault> {
    if operator.optional(4).is_none() {
        return Ok(None);
    }
    let lengths = operator.typed(4, DType::I32)?;
    if *lengths.dims() != [batch] {
        return Err(Fault::invalid(format!("sequence lengths of shape {}, but [{batch}] is needed", lengths.shape())));
    }
    if let Some(known) = builder.tensor(lengths).and_then(|lengths| integers(&lengths)) {
        let fits = |length: &i64| usize::try_from(*length).is_ok_and(|length| length <= time);
        if let Some(wrong) = known.iter().find(|length| !fits(length)) {
            return Err(Fault::invalid(format!("a sequence of length {wrong} in an input of {time} time steps")));
        }
        if known.iter().all(|length| usize::try_from(*length) == Ok(time)) {
            return Ok(None);
        }
    }
    Ok(Some(builder.as_f32(lengths)?.reshaped(vec![batch, 1])?))
}
