//! Labels of classes, and look-ups of numbers in a list.

use super::super::{Builder, Entry, Fault, Operator, View};
use super::forest::Forest;
use super::{constant, floats, ints, numbers, require_length};
use crate::host_operators::{Work, side_by_side};
use anabranch_kernels::cpu::Team;
use anabranch_kernels::op::{Binary, Domain, Gather, Op, TreeAggregate};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("LabelEncoder", encode)];

/// Labels of a classifier's classes.
pub(super) struct Labels {
    labels: Vec<i64>,
    /// Whether they are strings without numbers.
    texts: bool,
}

impl Labels {
    /// Reads the labels in the attribute of this name, or in `classlabels_strings`.
    pub(super) fn read(operator: &Operator<'_>, name: &str) -> Result<Self, Fault> {
        let texts = operator.node.strings("classlabels_strings")?.map_or(0, |texts| texts.len());
        let labels = if texts > 0 { (0..texts as i64).collect() } else { ints(operator, name)?.to_vec() };
        match labels.is_empty() {
            true => Err(Fault::invalid(format!("neither `{name}` nor `classlabels_strings` gives a label"))),
            false => Ok(Self { labels, texts: texts > 0 }),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.labels.len()
    }

    /// Returns the labels of the classes of these indices. For a single class, 1 stands for it and 0 for none.
    pub(super) fn of(&self, operator: &Operator<'_>, builder: &mut Builder, index: &View) -> Result<View, Fault> {
        if self.texts && operator.wants(0) {
            return Err(Fault::unsupported("its labels are strings"));
        }
        let same = self.labels.iter().copied().eq(0..self.labels.len() as i64);
        if same || self.labels.len() == 1 {
            return Ok(index.clone());
        }
        let labels = constant(builder, &[self.labels.len()], &self.labels)?;
        chosen(builder, &labels, index)
    }
}

/// Returns the elements of a list at indices of any shape.
fn chosen(builder: &mut Builder, list: &View, index: &View) -> Result<View, Fault> {
    let output = TensorSpec::new(list.dtype(), index.shape().clone());
    builder.emit_one(Op::Gather(Gather { axis: 0, elementwise: false }), &[list.clone(), index.clone()], output)
}

/// Returns the index of the first key that equals each element, or `keys.len()`. NaN equals NaN if `nan` is set.
pub(super) fn found(builder: &mut Builder, x: &View, keys: &[f64], nan: bool) -> Result<View, Fault> {
    if let [first, ..] = *keys
        && !x.dtype().is_float()
        && first.fract() == 0.0
        && keys.windows(2).all(|pair| pair[1] - pair[0] == 1.0)
    {
        // Integers that `f64` rounds are far from all keys, which it holds exactly.
        let count = keys.len() as f64;
        return builder.map(Domain::F64, [x], DType::I64, |[x]| {
            let index = x - first;
            index.with(Binary::Less, 0.0).select(count, index.with(Binary::Min, count))
        });
    }
    let mut forest = Forest::new(DType::F64, 1, 0);
    let root = forest.node();
    let default = forest.node();
    forest.leaf(default, [(0, keys.len() as f64)]);
    let (mut leaves, mut missing) = (Vec::with_capacity(keys.len()), default);
    for (index, key) in keys.iter().enumerate() {
        let leaf = forest.node();
        forest.leaf(leaf, [(0, index as f64)]);
        if key.is_nan() && nan && missing == default {
            missing = leaf;
        }
        leaves.push((*key, leaf));
    }
    forest.lookup(root, &mut leaves, default, missing);
    let column = x.reshaped(vec![x.elements(), 1])?;
    let scores = (TreeAggregate::Sum, &[0.0][..], DType::F64);
    let index = forest.emit(builder, &column, &[root], scores, |_| "a key".to_owned())?;
    builder.cast(&index, DType::I64)?.reshaped(x.dims())
}

/// Converts integers to `f64`, each exactly.
pub(super) fn exact(name: &str, integers: &[i64]) -> Result<Vec<f64>, Fault> {
    let number = |integer: &i64| {
        let exact = integer.unsigned_abs() < 1 << 53;
        exact.then_some(*integer as f64).ok_or_else(|| Fault::attribute(name, integer, "of a magnitude below 2⁵³ here"))
    };
    integers.iter().map(number).collect()
}

/// Returns the value of each element's key, or a default.
fn encode(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.opset < 2 {
        return Err(Fault::unsupported("strings in its version 1"));
    }
    let x = operator.number(0)?;
    let keys = keys(operator, x.dtype())?;
    let (values, default) = values(operator)?;
    require_length("values", values.shape().elements(), keys.len())?;
    // The default follows the values.
    let team = Team::solo();
    let list = side_by_side(
        &Work::new(&team, None, u64::MAX),
        &[values.reshaped(Shape::new([keys.len()])?).map_err(mismatch)?, default],
        0,
        false,
    )?;
    let list = builder.made(list)?;
    let index = found(builder, x, &keys, operator.opset >= 4)?;
    Ok(vec![chosen(builder, &list, &index)?])
}

fn mismatch(error: impl std::fmt::Display) -> Fault {
    Fault::invalid(error.to_string())
}

fn keys(operator: &Operator<'_>, dtype: DType) -> Result<Vec<f64>, Fault> {
    if operator.node.attribute("keys_strings").is_some() {
        return Err(Fault::invalid("its keys are strings, but its input holds numbers"));
    }
    if let Some(tensor) = operator.node.tensor("keys_tensor")? {
        return match super::super::integers(tensor) {
            Some(integers) => exact("keys_tensor", &integers),
            None => numbers(tensor).ok_or_else(|| Fault::attribute("keys_tensor", tensor.dtype(), "of numbers")),
        };
    }
    if dtype.is_float() {
        return Ok(floats(operator, "keys_floats")?.iter().map(|key| f64::from(*key)).collect());
    }
    exact("keys_int64s", ints(operator, "keys_int64s")?)
}

/// Returns the values, and a list of the default alone.
fn values(operator: &Operator<'_>) -> Result<(Tensor, Tensor), Fault> {
    let node = operator.node;
    let given = node.tensor("default_tensor")?;
    let default_of = |own: Tensor| match given {
        Some(tensor) if tensor.shape().elements() == 1 && tensor.dtype() == own.dtype() => {
            tensor.reshaped(own.shape().clone()).map_err(mismatch)
        }
        Some(tensor) => {
            Err(Fault::attribute("default_tensor", tensor.spec().to_string(), "one element of the values' type"))
        }
        None => Ok(own),
    };
    let one = || Shape::new([1]);
    if let Some(values) = node.tensor("values_tensor")? {
        let absent = match values.dtype() {
            DType::F32 => Tensor::from_elements(one()?, &[-0.0f32]),
            DType::F64 => Tensor::from_elements(one()?, &[-0.0f64]),
            DType::I64 => Tensor::from_elements(one()?, &[-1i64]),
            DType::I32 => Tensor::from_elements(one()?, &[-1i32]),
            DType::I16 => Tensor::from_elements(one()?, &[-1i16]),
            other => return Err(Fault::unsupported(format!("values of type {other}"))),
        };
        return Ok((values.clone(), default_of(absent.map_err(mismatch)?)?));
    }
    if let Some(values) = node.ints("values_int64s")? {
        let default = Tensor::from_i64s(&[operator.int("default_int64", -1)?]);
        return Ok((Tensor::from_i64s(values), default_of(default)?));
    }
    if let Some(values) = node.floats("values_floats")? {
        let list = |elements: &[f32]| Tensor::from_elements(Shape::new([elements.len()])?, elements).map_err(mismatch);
        return Ok((list(values)?, default_of(list(&[operator.float("default_float", -0.0)?])?)?));
    }
    Err(Fault::unsupported("strings as values"))
}
