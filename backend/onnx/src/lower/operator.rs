//! One node of the model with its input views: checked access to its inputs and attributes.

use super::builder::Builder;
use super::view::View;
use crate::host_operators::{Fault, axis_of, integers, numbers};
use crate::import::Node;
use anabranch_kernels::op::Literal;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// A node of the model whose inputs are already lowered.
pub(crate) struct Operator<'a> {
    /// Node, for its optional attributes.
    pub(super) node: &'a Node,
    /// Version of the operators' definitions.
    pub(super) opset: i64,
    inputs: Vec<Option<View>>,
}

impl<'a> Operator<'a> {
    /// Creates the operator under the given version of its domain's operators.
    pub(crate) fn new(node: &'a Node, opset: i64, inputs: Vec<Option<View>>) -> Self {
        Self { node, opset, inputs }
    }

    /// Returns the same operator on another first input.
    pub(crate) fn with_first(&self, view: View) -> Self {
        let mut inputs = self.inputs.clone();
        inputs[0] = Some(view);
        Self { inputs, ..*self }
    }

    /// Returns the number of inputs, including those left out.
    pub(crate) fn count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs, up to the last that is used.
    pub(crate) fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether output `index` is used.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.node.output(index).is_some()
    }

    /// Rejects the node if an output from `count` on is used, because these have no lowering.
    pub(crate) fn only_outputs(&self, count: usize, what: &str) -> Result<(), Fault> {
        if (count..self.output_count()).any(|index| self.wants(index)) {
            return Err(Fault::unsupported(format!("its output {what} is read")));
        }
        Ok(())
    }

    pub(crate) fn input(&self, index: usize) -> Result<&View, Fault> {
        self.optional(index).ok_or_else(|| Fault::missing(index))
    }

    /// Returns all inputs; `None` for those left out.
    pub(crate) fn optionals(&self) -> &[Option<View>] {
        &self.inputs
    }

    /// Returns an optional input.
    pub(crate) fn optional(&self, index: usize) -> Option<&View> {
        self.inputs.get(index)?.as_ref()
    }

    pub(crate) fn all_inputs(&self) -> Result<Vec<View>, Fault> {
        (0..self.count()).map(|index| self.input(index).cloned()).collect()
    }

    pub(crate) fn typed(&self, index: usize, dtype: DType) -> Result<&View, Fault> {
        self.of_types(index, |own| own == dtype, dtype.name())
    }

    /// Returns a required input of any type except bool.
    pub(crate) fn number(&self, index: usize) -> Result<&View, Fault> {
        self.of_types(index, |own| own != DType::Bool, "a number type")
    }

    pub(crate) fn float_input(&self, index: usize) -> Result<&View, Fault> {
        self.of_types(index, DType::is_float, "a floating-point type")
    }

    fn of_types(&self, index: usize, sound: impl Fn(DType) -> bool, expected: &str) -> Result<&View, Fault> {
        let view = self.input(index)?;
        if sound(view.dtype()) { Ok(view) } else { Err(Fault::of_type(index, view.dtype(), expected)) }
    }

    /// Returns a required input of at least `rank` dimensions.
    pub(crate) fn ranked(&self, index: usize, rank: usize) -> Result<&View, Fault> {
        let view = self.input(index)?;
        if view.rank() < rank {
            let reason = format!("input {index} has shape {}, but needs at least {rank} dimensions", view.shape());
            return Err(Fault::invalid(reason));
        }
        Ok(view)
    }

    pub(crate) fn pair(&self) -> Result<(&View, &View), Fault> {
        let first = self.input(0)?;
        Ok((first, self.typed(1, first.dtype())?))
    }

    /// Returns input `index` as it is broadcast over input 0. Before version 7, an attribute requests that, and it may
    /// start at any axis.
    pub(crate) fn broadcast(&self, index: usize) -> Result<View, Fault> {
        let (first, view) = (self.input(0)?, self.input(index)?);
        if self.opset >= 7 {
            return Ok(view.clone());
        }
        if !self.flag("broadcast", false)? && view.dims() != first.dims() {
            let (own, other) = (view.shape(), first.shape());
            return Err(Fault::invalid(format!("input {index} of shape {own} cannot be broadcast to {other}")));
        }
        let Some(axis) = self.node.int("axis")? else { return Ok(view.clone()) };
        let behind = first.rank().saturating_sub(axis_of(axis, first.rank())? + view.rank());
        view.reshaped([view.dims(), &vec![1; behind]].concat())
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64, Fault> {
        Ok(self.node.int(name)?.unwrap_or(default))
    }

    /// Returns a size: an integer attribute ≥ `least`.
    pub(crate) fn size(&self, name: &'static str, least: i64, default: usize) -> Result<usize, Fault> {
        let Some(value) = self.node.int(name)? else { return Ok(default) };
        match usize::try_from(value) {
            Ok(size) if value >= least => Ok(size),
            _ => Err(Fault::attribute(name, value, format!("at least {least}"))),
        }
    }

    /// Returns an integer attribute that stands for a bool: any number except 0 is true.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Fault> {
        Ok(self.node.int(name)?.map_or(default, |value| value != 0))
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> Result<f32, Fault> {
        Ok(self.node.float(name)?.unwrap_or(default))
    }

    pub(crate) fn string(&self, name: &str, default: &'static str) -> Result<&str, Fault> {
        Ok(self.node.string(name)?.unwrap_or(default))
    }

    /// Returns the integers in an input that decides shapes, and must be known ahead of the run.
    pub(crate) fn known_ints(&self, builder: &Builder, index: usize, what: &'static str) -> Result<Vec<i64>, Fault> {
        let view = self.input(index)?;
        let tensor = builder.tensor(view).ok_or_else(|| Fault::run_time(view.value, index, what))?;
        integers(&tensor).ok_or_else(|| Fault::of_type(index, view.dtype(), "an integer type"))
    }

    /// Returns integers as [`Self::known_ints`] does, or `None` if the input is left out.
    pub(crate) fn optional_known_ints(
        &self,
        builder: &Builder,
        index: usize,
        what: &'static str,
    ) -> Result<Option<Vec<i64>>, Fault> {
        self.optional(index).map(|_| self.known_ints(builder, index, what)).transpose()
    }

    /// Returns the only integer in an input that decides shapes.
    pub(crate) fn known_int(&self, builder: &Builder, index: usize, what: &'static str) -> Result<i64, Fault> {
        match self.known_ints(builder, index, what)?[..] {
            [value] => Ok(value),
            ref values => Err(Fault::invalid(format!("input {index} ({what}) has {} elements, not 1", values.len()))),
        }
    }

    /// Returns the only number in an input that must be known ahead of the run.
    pub(crate) fn known_number(&self, builder: &Builder, index: usize, what: &'static str) -> Result<f64, Fault> {
        let view = self.number(index)?;
        let tensor = builder.tensor(view).ok_or_else(|| Fault::run_time(view.value, index, what))?;
        match numbers(&tensor).as_deref() {
            Some(&[number]) => Ok(number),
            _ => Err(Fault::invalid(format!("input {index} ({what}) has shape {}, not one element", view.shape()))),
        }
    }

    /// Returns the only integer in an input that must be known ahead of the run, which may be any value of `i64` and
    /// `u64`.
    pub(crate) fn known_integer(&self, builder: &Builder, index: usize, what: &'static str) -> Result<i128, Fault> {
        let view = self.number(index)?;
        let tensor = builder.tensor(view).ok_or_else(|| Fault::run_time(view.value, index, what))?;
        match literal_of(&tensor).filter(|_| tensor.shape().elements() == 1) {
            Some(literal) if view.dtype() == DType::U64 => Ok(literal.as_u64().into()),
            Some(literal) => Ok(literal.as_i64().into()),
            None => Err(Fault::invalid(format!("input {index} ({what}) has shape {}, not one element", view.shape()))),
        }
    }

    /// Returns a list of integers that is an attribute before version `since`, and input `index` from there on.
    pub(crate) fn ints_by_version(
        &self,
        builder: &Builder,
        name: &'static str,
        since: i64,
        index: usize,
    ) -> Result<Option<Vec<i64>>, Fault> {
        if self.opset < since {
            return Ok(self.node.ints(name)?.map(<[i64]>::to_vec));
        }
        self.optional_known_ints(builder, index, name)
    }

    /// Returns the axis attribute, counted from the end if negative, of a tensor of `rank` dimensions.
    pub(crate) fn axis(&self, default: i64, rank: usize) -> Result<usize, Fault> {
        axis_of(self.int("axis", default)?, rank)
    }
}

/// Returns the sizes of all axes before, and from, the axis attribute on; the axis may be one past the last.
pub(crate) fn two_sides(operator: &Operator<'_>, view: &View) -> Result<[usize; 2], Fault> {
    let axis = match operator.int("axis", 1)? {
        axis if axis == view.rank() as i64 => view.rank(),
        axis => axis_of(axis, view.rank())?,
    };
    Ok([&view.dims()[..axis], &view.dims()[axis..]].map(|dims| dims.iter().product()))
}

/// Returns axes as [`axis_of`] reads them, ascending; repeated axes are rejected.
pub(crate) fn axes_of(axes: &[i64], rank: usize) -> Result<Vec<usize>, Fault> {
    let mut axes = axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    match axes.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Fault::invalid(format!("axis {} occurs twice", pair[0]))),
        None => Ok(axes),
    }
}

/// Returns axes as [`axis_of`] reads them, in their order, or all if none are given; repeated axes are rejected.
pub(crate) fn axes_in_order(axes: Option<&[i64]>, rank: usize) -> Result<Vec<usize>, Fault> {
    let Some(axes) = axes else { return Ok((0..rank).collect()) };
    axes_of(axes, rank)?;
    axes.iter().map(|axis| axis_of(*axis, rank)).collect()
}

/// Returns the first element of a tensor as a constant: a float with its bits, an integer as an integer (a `u64` by its
/// bits).
pub(crate) fn literal_of(tensor: &Tensor) -> Option<Literal> {
    match tensor.dtype() {
        DType::F32 => tensor.elements::<f32>()?.first().copied().map(Literal::of_f32),
        DType::U64 => tensor.elements::<u64>()?.first().map(|element| Literal::Int(*element as i64)),
        dtype => {
            let bytes = tensor.bytes().get(..dtype.size())?;
            let spec = TensorSpec::new(dtype, Shape::scalar());
            let first = Tensor::new(spec, Arc::new(Buffer::copied(bytes))).ok()?;
            match dtype.is_float() {
                true => numbers(&first)?.first().copied().map(Literal::Float),
                false => integers(&first)?.first().copied().map(Literal::Int),
            }
        }
    }
}
