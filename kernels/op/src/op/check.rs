//! Checks that a node's tensors fit its op's definition, on which the kernels of all devices rely.
//!
//! Some nodes are sound, but a device's kernels cannot compute them, or only their arithmetic limits a size. The
//! device's own checks reject such nodes. Sizes of matrix products are checked when they are computed.

use super::{
    Expression, Fourier, Gather, NarrowFormat, NarrowMatMul, NodeSpec, Op, RecurrentKind, Rounding, Slice, Step, TopK,
};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::shape::Shape;
use std::ops::RangeInclusive;

/// Maximum bytes of one table of a kernel. Kernels make tables even while a planner only asks whether a plan fits.
const LONGEST_TABLE: usize = 256 << 20;

/// Returns the numbers of a type of 8-bit integers.
fn range(dtype: DType) -> RangeInclusive<i16> {
    if dtype == DType::I8 { -128..=127 } else { 0..=255 }
}

/// Returns the number of inputs of a product of integers.
fn integer_inputs(zero_points: bool, rounding: Option<Rounding>) -> usize {
    3 + usize::from(zero_points) + rounding.map_or(0, |_| Rounding::INPUTS)
}

impl NodeSpec {
    /// Returns the error for a node that does not fit its op's definition.
    #[doc(hidden)]
    pub fn invalid(&self, reason: impl Into<String>) -> KernelError {
        KernelError::Invalid {
            op: self.op.name(),
            reason: reason.into(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
        }
    }

    /// Returns the error for a sound node for which the device has no kernel.
    #[doc(hidden)]
    pub fn unsupported(&self, reason: impl Into<String>) -> KernelError {
        KernelError::Unsupported { op: self.op.name(), reason: reason.into() }
    }

    /// Makes a table that a kernel keeps. It is as long as an axis of a tensor, whose size a file may have chosen.
    ///
    /// # Errors
    /// If the table takes more than [`LONGEST_TABLE`] bytes, or more than the available memory.
    #[doc(hidden)]
    pub fn table<T>(&self, entries: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, KernelError> {
        let (what, bytes) = ("a table of indices", entries.len().saturating_mul(size_of::<T>()));
        self.require_table(what, bytes)?;
        let mut table = Vec::new();
        let short = |_| KernelError::Memory { op: self.op.name(), what, bytes };
        table.try_reserve_exact(entries.len()).map_err(short)?;
        table.extend(entries);
        Ok(table)
    }

    /// Rejects tables of more than [`LONGEST_TABLE`] bytes.
    #[doc(hidden)]
    pub fn require_table(&self, what: &'static str, bytes: usize) -> Result<(), KernelError> {
        let fits = bytes <= LONGEST_TABLE;
        if fits { Ok(()) } else { Err(KernelError::Memory { op: self.op.name(), what, bytes }) }
    }

    /// Rejects the node as invalid unless `holds`.
    #[doc(hidden)]
    pub fn require(&self, holds: bool, reason: &str) -> Result<(), KernelError> {
        if holds { Ok(()) } else { Err(self.invalid(format!("required: {reason}"))) }
    }

    /// Whether all tensors of the node are `f32`.
    #[doc(hidden)]
    pub fn is_f32(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).all(|spec| spec.dtype == DType::F32)
    }

    /// Whether all tensors of the node are `f64`.
    #[doc(hidden)]
    pub fn is_f64(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).all(|spec| spec.dtype == DType::F64)
    }

    /// Checks the node against its op's definition. O(number and rank of its tensors).
    ///
    /// # Errors
    /// The condition of the op's definition that does not hold.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), KernelError> {
        if let Op::Block(block) = &self.op {
            return block.check(self);
        }
        let (inputs, outputs) = self.counts();
        if (self.inputs.len(), self.outputs.len()) != (inputs, outputs) {
            return Err(self.invalid(format!("the op takes {inputs} inputs and makes {outputs} outputs")));
        }
        let applied = self.op.epilogue().is_none_or(|epilogue| epilogue.inputs() > 0);
        self.require(applied, "its epilogue reads the result")?;
        let expression = if let Op::Map(map) = &self.op { Some(&map.expression) } else { self.op.epilogue() };
        let narrowed = expression.is_none_or(Expression::narrows_to_floats);
        self.require(narrowed, "it narrows to float types of at most 32 bits")?;
        let output = &self.outputs[0];
        let Some(input) = self.inputs.first() else { return Ok(()) };
        let (from, to) = (&input.shape, &output.shape);
        if let Op::Reduce(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::TopK(_)
        | Op::Running(_)
        | Op::Fourier(_)
        | Op::Scatter(_) = &self.op
        {
            self.require(input.dtype == output.dtype, "its output has its input's type")?;
        }
        if let Op::ArgReduce(super::ArgReduce { axis, .. })
        | Op::TopK(TopK { axis, .. })
        | Op::Running(super::Running { axis, .. })
        | Op::Softmax(super::Softmax { axis, .. })
        | Op::Normalize(super::Normalize { axis, .. })
        | Op::Gather(Gather { axis, .. }) = &self.op
            && *axis >= from.rank()
        {
            return Err(self.invalid(format!("axis {axis} is not among the {} of its input", from.rank())));
        }
        match &self.op {
            Op::Map(map) => {
                let bitwise = |step: &Step| matches!(step, Step::Binary(function, ..) if function.is_bitwise());
                let sound = map.domain.is_integer() || !map.expression.steps().iter().any(bitwise);
                self.require(sound, "a bit operation reads integers")?;
                let fits = |input: &crate::TensorSpec| input.shape.broadcast_strides(to).map(|_| ());
                self.inputs.iter().try_for_each(fits).map_err(|error| self.invalid(error.to_string()))
            }
            Op::Softmax(_) | Op::Normalize(_) | Op::Running(_) => {
                self.require(from.elements() == to.elements(), "its output has its input's elements")
            }
            Op::Reduce(op) => {
                let ascend = op.axes.windows(2).all(|pair| pair[0] < pair[1]);
                let within = op.axes.iter().all(|axis| *axis < from.rank());
                self.require(ascend && within, "its axes ascend within its input")?;
                let kept = (0..from.rank()).filter(|axis| !op.axes.contains(axis)).map(|axis| from.dims()[axis]);
                self.require(kept.product::<usize>() == to.elements(), "its output has the kept axes' elements")
            }
            Op::ArgReduce(op) => {
                let count = from.dims()[op.axis];
                let sound = output.dtype == DType::I64 && count > 0;
                self.require(sound, "it makes i64 indices along an axis that is not empty")?;
                self.require(to.elements() == from.elements() / count, "its output does not have the axis")
            }
            Op::TopK(op) => self.check_selection(op),
            Op::Fourier(op) => self.check_lines(op),
            Op::Scatter(_) => self.check_updates(),
            Op::Resize(op) => {
                let planes = [from, to].map(|shape| shape.dims().split_last_chunk::<2>());
                let [Some((outer, input)), Some((same, output))] = planes else {
                    return Err(self.invalid("required: it maps planes to planes"));
                };
                self.require(outer == same, "it maps planes to planes")?;
                let has_source = output.contains(&0) || !input.contains(&0);
                let scales = op.scales.iter().all(|scale| scale.is_finite() && *scale > 0.0);
                self.require(has_source && scales, "its scales are positive")
            }
            Op::Pool(op) => {
                let images = from.rank() == 4 && to.rank() == 4 && from.dims()[..2] == to.dims()[..2];
                self.require(images, "it maps images to images")?;
                self.check_window([op.window, op.strides, op.dilations])
            }
            Op::Conv(op) => self.check_channels([from, to], op.group, op.strides, op.dilations),
            Op::ConvTranspose(op) => self.check_channels([to, from], op.group, op.strides, op.dilations),
            Op::Transpose(op) => {
                let mut sorted = op.permutation.clone();
                sorted.sort_unstable();
                self.require(sorted.into_iter().eq(0..from.rank()), "its permutation names each axis once")?;
                let dims = op.permutation.iter().map(|axis| from.dims()[*axis]);
                self.require(dims.eq(to.dims().iter().copied()), "its output has the permuted dimensions")
            }
            Op::Concat(op) => self.check_parts(op.axis),
            Op::Slice(op) => {
                let ranks = [op.starts.len(), op.steps.len(), to.rank()];
                self.require(ranks == [from.rank(); 3], "one start and one step per axis")?;
                self.require(op.is_within(from, to), "every index read is within the input")
            }
            Op::Pad(op) => self.require([op.before.len(), to.rank()] == [from.rank(); 2], "one width per axis"),
            Op::Gather(op) => self.check_indices(op),
            Op::Recurrent(_) => self.check_layer(),
            Op::NarrowMatMul(op) => self.check_narrow(op),
            Op::IntegerMatMul(op) => self.check_integers(op.rounding),
            Op::IntegerConv(op) => {
                self.check_channels([from, to], op.group, op.strides, op.dilations)?;
                self.check_integers(op.rounding)?;
                let each = self.inputs[2].shape.elements() == to.dims()[1];
                self.require(each, "each output channel has a summand")?;
                self.require(range(input.dtype).contains(&op.border), "its border is of its input's type")
            }
            Op::Attention(op) => self.check_attention(op),
            Op::Append(_) => self.check_append(),
            Op::Rotary(_) => self.check_rotary(),
            Op::Length(_) => self.check_length(),
            Op::Trees(_) => self.check_trees(),
            Op::MatMul(_) | Op::Block(_) => Ok(()),
        }
    }

    /// Returns the number of inputs and of outputs that the op has.
    fn counts(&self) -> (usize, usize) {
        let extras = self.op.epilogue().map_or(0, |epilogue| epilogue.inputs().saturating_sub(1));
        match &self.op {
            Op::Map(op) => (op.expression.inputs(), 1),
            Op::Concat(_) => (self.inputs.len().max(1), 1),
            Op::Gather(_) => (2, 1),
            Op::TopK(_) => (1, 2),
            Op::Scatter(_) | Op::Append(_) => (3, 1),
            Op::Attention(op) => (5 + usize::from(op.bias), 1),
            Op::Rotary(_) => (4, 1),
            Op::Trees(_) => (6, 1),
            Op::IntegerMatMul(op) => (integer_inputs(op.zero_points, op.rounding), 1),
            Op::IntegerConv(op) => (integer_inputs(op.zero_points, op.rounding), 1),
            Op::Recurrent(op) => (3 + op.kind.states(), 1 + op.kind.states()),
            op if op.has_epilogue() => (op.epilogue_inputs_start() + extras, 1),
            _ => (1, 1),
        }
    }

    /// Checks the types of a product of integers, and that it has as many parameters of each kind.
    fn check_integers(&self, rounding: Option<Rounding>) -> Result<(), KernelError> {
        let (made, bytes) = (self.outputs[0].dtype, [DType::U8, DType::I8]);
        let (own, rounded) =
            self.inputs[2..].split_at(self.inputs.len() - 2 - rounding.map_or(0, |_| Rounding::INPUTS));
        let sound = self.inputs[..2].iter().all(|input| bytes.contains(&input.dtype));
        self.require(sound, "its operands are 8-bit integers")?;
        let count = self.inputs[2].shape.elements();
        let each = |of: &crate::TensorSpec, dtype| of.dtype == dtype && of.shape.elements() == count;
        self.require(own.iter().all(|of| each(of, DType::I32)), "there are 32-bit summands and as many zero points")?;
        let [scales, offsets, zero] = rounded else { return self.require(made == DType::I32, "it makes i32") };
        let sound = each(scales, DType::F64) && each(offsets, DType::F64);
        self.require(sound, "there are as many scales and offsets as summands, in f64")?;
        let sound = bytes.contains(&made) && zero.dtype == made && zero.shape.elements() == 1;
        self.require(sound, "it makes 8-bit integers, with one zero point of their type")?;
        let within = rounding.is_none_or(|rounding| {
            let range = range(made);
            let ordered = rounding.least <= rounding.greatest;
            ordered && range.contains(&rounding.least) && range.contains(&rounding.greatest)
        });
        self.require(within, "it rounds to a range of its output's type")
    }

    fn check_narrow(&self, op: &NarrowMatMul) -> Result<(), KernelError> {
        let dims = |tensor: &crate::TensorSpec| <[usize; 2]>::try_from(tensor.shape.dims());
        let (Ok([m, k]), Ok([first, second]), Ok(made)) =
            (dims(&self.inputs[0]), dims(&self.inputs[1]), dims(&self.outputs[0]))
        else {
            return Err(self.invalid("required: its tensors have two dimensions"));
        };
        let (n, line) = if op.transpose_b { (first, second) } else { (second, first) };
        self.require(made == [m, n], "its output is of A's rows and B's columns")?;
        let dtype = self.inputs[1].dtype;
        let others = self.inputs.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, input)| input);
        let floats = others.chain(&self.outputs).all(|tensor| tensor.dtype == DType::F32);
        self.require(floats, "all but its weights are f32")?;
        let NarrowFormat::Grid { bits, block, .. } = op.format else {
            let sound = matches!(dtype, DType::F16 | DType::BF16) && line == k && !op.quantize_a;
            return self.require(sound, "its weights are 16-bit floats, as deep as A");
        };
        let sound = dtype == DType::U8 && block > 0 && (bits == 8 || op.transpose_b && matches!(bits, 2 | 4));
        self.require(sound, "its weights are integers of 2, 4 or 8 bits in u8")?;
        let deep = k.checked_mul(bits).is_some_and(|bits| bits.div_ceil(8) <= line) && (op.transpose_b || line == k);
        self.require(deep && block.is_multiple_of(8 / bits), "its weights are as deep as A")?;
        let sound = bits == 4 && block.is_multiple_of(8) && block <= NarrowMatMul::GREATEST_BLOCK && line % 4 == 0;
        self.require(!op.quantize_a || sound, "A is quantised only for 4-bit weights in whole blocks")?;
        let grid = [n, k.div_ceil(block)];
        let fits = self.inputs[2..op.operands()].iter().all(|of| of.shape.dims() == grid);
        self.require(fits, "each column has a scale for each block")
    }

    fn check_window(&self, sizes: [[usize; 2]; 3]) -> Result<(), KernelError> {
        let positive = !sizes.as_flattened().contains(&0);
        self.require(positive, "its strides, dilations and window are at least 1")
    }

    /// Checks the weights of a convolution from the first images to the second. A transposed convolution passes its
    /// images swapped.
    fn check_channels(
        &self,
        images: [&Shape; 2],
        group: usize,
        strides: [usize; 2],
        dilations: [usize; 2],
    ) -> Result<(), KernelError> {
        let [from, to, weights] =
            [images[0], images[1], &self.inputs[1].shape].map(|shape| <[usize; 4]>::try_from(shape.dims()));
        let (Ok([n, channels, ..]), Ok([made, maps, ..]), Ok([rows, depth, height, width])) = (from, to, weights)
        else {
            return Err(self.invalid("required: its tensors have four dimensions"));
        };
        self.require(n == made && rows == maps, "its channels match its weights")?;
        let divides = group > 0 && maps % group == 0 && depth.checked_mul(group) == Some(channels);
        self.require(divides, "the groups divide the channels evenly")?;
        self.check_window([[height, width], strides, dilations])
    }

    /// Checks the inputs of a concatenation.
    fn check_parts(&self, axis: usize) -> Result<(), KernelError> {
        let output = &self.outputs[0];
        let dims = output.shape.dims();
        self.require(axis < dims.len(), "its axis is one of the output's")?;
        let mut sum = 0usize;
        for input in &self.inputs {
            let own = input.shape.dims();
            let fits = input.dtype == output.dtype && own.len() == dims.len();
            let same = || (0..dims.len()).all(|other| other == axis || own[other] == dims[other]);
            self.require(fits && same(), "its inputs differ only along the axis")?;
            sum = sum.saturating_add(own[axis]);
        }
        self.require(sum == dims[axis], "its inputs add up to the output")
    }

    fn check_indices(&self, op: &Gather) -> Result<(), KernelError> {
        let (dims, indices, output) = (self.inputs[0].shape.dims(), &self.inputs[1], &self.outputs[0].shape);
        self.require(matches!(indices.dtype, DType::I32 | DType::I64), "its indices are i32 or i64")?;
        let chosen = indices.shape.dims();
        if op.elementwise {
            let within = |axis: usize| axis == op.axis || chosen[axis] <= dims[axis];
            let fits = chosen.len() == dims.len() && (0..dims.len()).all(within);
            return self.require(fits && output.elements() == indices.shape.elements(), "its indices fit its input");
        }
        // The product of two shapes' elements.
        let others: usize = (0..dims.len()).filter(|axis| *axis != op.axis).map(|axis| dims[axis]).product();
        let fits = others as u128 * indices.shape.elements() as u128 == output.elements() as u128;
        self.require(fits, "its output is the input with the axis replaced by the indices")
    }

    fn check_selection(&self, op: &TopK) -> Result<(), KernelError> {
        let (from, [values, indices]) = (&self.inputs[0].shape, [&self.outputs[0], &self.outputs[1]]);
        let dims = values.shape.dims();
        let same = dims.len() == from.rank() && (0..dims.len()).all(|a| a == op.axis || dims[a] == from.dims()[a]);
        self.require(
            same && dims[op.axis] <= from.dims()[op.axis],
            "its output differs from its input only along the axis, and is not longer there",
        )?;
        self.require(indices.dtype == DType::I64 && indices.shape == values.shape, "it makes an i64 index for each")
    }

    fn check_lines(&self, op: &Fourier) -> Result<(), KernelError> {
        let lines = [&self.inputs[0], &self.outputs[0]].map(|spec| <[usize; 3]>::try_from(spec.shape.dims()));
        let [Ok([count, read, parts]), Ok([same, made, made_parts])] = lines else {
            return Err(self.invalid("required: its tensors have three dimensions"));
        };
        self.require(matches!(self.inputs[0].dtype, DType::F32 | DType::F64), "its tensors are f32 or f64")?;
        let pairs = matches!(parts, 1 | 2) && (made_parts == 2 || op.inverse && made_parts == 1);
        self.require(pairs && count == same, "it makes lines of pairs, or inverse of real numbers")?;
        let most = if made_parts == 1 { op.length / 2 + 1 } else { op.length };
        self.require(op.length > 0 && read <= most && made <= op.length, "its lines are no longer than a transform")
    }

    fn check_updates(&self) -> Result<(), KernelError> {
        let [data, places, updates] = &self.inputs[..] else {
            return Err(self.invalid("required: it has three inputs"));
        };
        let slices = data.shape.dims().first().copied().filter(|count| *count > 0);
        let run = slices.map(|count| data.shape.elements() / count);
        let wanted = run.and_then(|run| run.checked_mul(places.shape.elements()));
        self.require(places.dtype == DType::I64, "its indices are i64")?;
        self.require(updates.dtype == data.dtype, "its updates have its input's type")?;
        let fits =
            wanted == Some(updates.shape.elements()) && data.shape.elements() == self.outputs[0].shape.elements();
        self.require(fits, "it has a slice for each index")
    }

    fn check_layer(&self) -> Result<(), KernelError> {
        let Some(([steps, batch, units], gates)) = self.recurrent_sizes() else {
            return Err(self
                .invalid("required: its first input has three dimensions, and the last holds the units of its gates"));
        };
        let has = |tensor: &crate::TensorSpec, elements: Option<usize>| Some(tensor.shape.elements()) == elements;
        let wide = gates * units;
        let mut states = self.inputs[3..].iter().chain(&self.outputs[1..]);
        let fits = has(&self.inputs[1], wide.checked_mul(units))
            && has(&self.inputs[2], Some(wide))
            && has(&self.outputs[0], Some(steps * batch * units))
            && states.all(|state| has(state, Some(batch * units)));
        self.require(fits, "its sizes agree")?;
        let Op::Recurrent(op) = &self.op else { return Ok(()) };
        self.require(op.clip.is_none_or(|clip| clip > 0.0 && clip.is_finite()), "its bound is finite and above 0")?;
        self.require(!op.coupled || op.kind == RecurrentKind::Lstm, "only an LSTM has coupled gates")
    }

    /// Returns the time steps, batch size and units of a recurrent layer, and its number of gates.
    #[doc(hidden)]
    pub fn recurrent_sizes(&self) -> Option<([usize; 3], usize)> {
        let Op::Recurrent(op) = &self.op else { return None };
        let gates = op.kind.gates();
        match *self.inputs[0].shape.dims() {
            [steps, batch, wide] if wide % gates == 0 => Some(([steps, batch, wide / gates], gates)),
            _ => None,
        }
    }
}

impl Slice {
    fn is_within(&self, input: &Shape, output: &Shape) -> bool {
        let inside = |axis: usize| {
            let size = input.dims()[axis];
            let reach = isize::try_from(output.dims()[axis] - 1).ok().and_then(|n| n.checked_mul(self.steps[axis]));
            let last = reach.and_then(|reach| self.starts[axis].checked_add_signed(reach));
            self.starts[axis] < size && last.is_some_and(|last| last < size)
        };
        output.elements() == 0 || (0..input.rank()).all(inside)
    }

    /// Returns the input element that becomes the output's first element, and the input's stride along each axis of the
    /// output.
    #[doc(hidden)]
    pub fn source(&self, input: &Shape, output: &Shape) -> (usize, Vec<isize>) {
        if output.elements() == 0 {
            return (0, vec![0; input.rank()]);
        }
        let strides = input.strides();
        let start = self.starts.iter().zip(&strides).map(|(start, stride)| start * stride).sum();
        // A single index makes no step. A step that is taken was checked to be small enough.
        let stride = |axis: usize| match output.dims()[axis] {
            1 => 0,
            _ => self.steps[axis] * strides[axis] as isize,
        };
        (start, (0..strides.len()).map(stride).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Recurrent, spec};

    #[test]
    fn recurrent_layers_have_a_bound_above_zero_and_coupled_gates_if_they_are_lstms() {
        let fits = |kind: RecurrentKind, clip, coupled| {
            let (wide, state) = (3 * kind.gates(), spec(&[2, 3]));
            let mut inputs = vec![spec(&[4, 2, wide]), spec(&[wide, 3]), spec(&[wide])];
            let mut outputs = vec![spec(&[4, 2, 3])];
            inputs.extend(vec![state.clone(); kind.states()]);
            outputs.extend(vec![state; kind.states()]);
            let op = Op::Recurrent(Recurrent { clip, coupled, ..Recurrent::new(kind) });
            NodeSpec { op, inputs, outputs }.check().is_ok()
        };
        for kind in [RecurrentKind::Rnn, RecurrentKind::Gru { linear_before_reset: true }, RecurrentKind::Lstm] {
            assert!(fits(kind, None, false) && fits(kind, Some(0.5), false));
            assert_eq!(fits(kind, None, true), kind == RecurrentKind::Lstm);
            for bound in [0.0, -1.0, f32::INFINITY, f32::NAN] {
                assert!(!fits(kind, Some(bound), false), "{bound}");
            }
        }
    }
}
