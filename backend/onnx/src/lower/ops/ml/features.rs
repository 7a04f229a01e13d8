//! Preparation of features: scaled, imputed, normalised, compared, encoded, selected and joined.

use super::super::{Builder, Entry, Fault, Operator, View, domain_of};
use super::labels::{exact, found};
use super::{constant, floats, ints, rows, work_type};
use anabranch_kernels::dtype::Element;
use anabranch_kernels::op::{Binary, Domain, Gather, Op, PadMode, ReduceKind, Unary};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::collections::HashSet;

pub(super) const TABLE: &[Entry] = &[
    ("Scaler", scaled),
    ("Imputer", imputed),
    ("Normalizer", normalized),
    ("Binarizer", binarized),
    ("OneHotEncoder", one_hot),
    ("ArrayFeatureExtractor", extracted),
    ("FeatureVectorizer", joined),
];

/// Returns a constant of one number, or of one for each feature.
fn per_feature<T: Element>(builder: &mut Builder, x: &View, name: &str, numbers: &[T]) -> Result<View, Fault> {
    let features = x.dims().last().copied().unwrap_or(1);
    if x.rank() > 2 || numbers.len() != 1 && numbers.len() != features {
        let (count, shape) = (numbers.len(), x.shape());
        return Err(Fault::invalid(format!("attribute `{name}` has {count} entries for features of shape {shape}")));
    }
    constant(builder, &[numbers.len()], numbers)
}

/// Returns `(x − offset) · scale`, as `f32`.
fn scaled(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let (mut offset, mut scale) = (floats(operator, "offset")?.to_vec(), floats(operator, "scale")?.to_vec());
    match (offset.is_empty(), scale.is_empty()) {
        (true, true) => return Err(Fault::invalid("it has neither `offset` nor `scale`")),
        (true, false) => offset = vec![0.0; scale.len()],
        (false, true) => scale = vec![1.0; offset.len()],
        (false, false) => super::require_length("offset", offset.len(), scale.len())?,
    }
    let offset = per_feature(builder, x, "offset", &offset)?;
    let scale = per_feature(builder, x, "scale", &scale)?;
    let domain = domain_of(work_type(x.dtype()));
    Ok(vec![builder.map(domain, [x, &offset, &scale], DType::F32, |[x, offset, scale]| (x - offset) * scale)?])
}

/// Replaces one value, which may be NaN, by others.
fn imputed(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let (listed, integers) = (floats(operator, "imputed_value_floats")?, ints(operator, "imputed_value_int64s")?);
    if x.dtype().is_float() {
        let values = per_feature(builder, x, "imputed_value_floats", listed)?;
        let replaced = f64::from(operator.float("replaced_value_float", 0.0)?);
        let domain = domain_of(x.dtype());
        return Ok(vec![builder.map(domain, [x, &values], x.dtype(), |[x, value]| {
            let is = if replaced.is_nan() { x.apply(Unary::IsNan) } else { x.with(Binary::Equal, replaced) };
            is.select(value, x)
        })?]);
    }
    let values = per_feature(builder, x, "imputed_value_int64s", integers)?;
    let replaced = constant(builder, &[1], &[operator.int("replaced_value_int64", 0)?])?;
    let filled = builder.map(Domain::I64, [x, &values, &replaced], x.dtype(), |[x, value, replaced]| {
        x.with(Binary::Equal, replaced).select(value, x)
    })?;
    Ok(vec![filled.reshaped(x.dims())?])
}

/// Divides rows by their greatest element, or by their norm, unless that is 0.
fn normalized(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let dims = operator.number(0)?.dims().to_vec();
    let x = builder.cast(&rows(operator)?, DType::F64)?;
    let (domain, dtype) = (Domain::F64, DType::F64);
    let norm = match operator.string("norm", "MAX")? {
        "MAX" => builder.reduced(&x, ReduceKind::Max, &[1])?,
        "L1" => {
            let sizes = builder.map(domain, [&x], dtype, |[x]| x.apply(Unary::Abs))?;
            builder.reduced(&sizes, ReduceKind::Sum, &[1])?
        }
        "L2" => {
            // Divided by the greatest first, so that no square overflows.
            let sizes = builder.map(domain, [&x], dtype, |[x]| x.apply(Unary::Abs))?;
            let most = builder.reduced(&sizes, ReduceKind::Max, &[1])?;
            let squares = builder.map(domain, [&sizes, &most], dtype, |[x, most]| {
                let part = x / most;
                most.with(Binary::Equal, 0.0).select(0.0, part * part)
            })?;
            let sum = builder.reduced(&squares, ReduceKind::Sum, &[1])?;
            builder.map(domain, [&sum, &most], dtype, |[sum, most]| {
                most.apply(Unary::IsInfinite).select(most, sum.apply(Unary::Sqrt) * most)
            })?
        }
        other => return Err(Fault::attribute("norm", other, "MAX, L1 or L2")),
    };
    let y =
        builder.map(domain, [&x, &norm], DType::F32, |[x, norm]| norm.with(Binary::Equal, 0.0).select(x, x / norm))?;
    Ok(vec![y.reshaped(dims)?])
}

/// Returns 1 for elements greater than the threshold, else 0.
fn binarized(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let threshold = f64::from(operator.float("threshold", 0.0)?);
    if x.dtype() == DType::U64 {
        return Err(Fault::unsupported("elements of type u64"));
    }
    if !x.dtype().is_float() && (threshold.is_nan() || threshold < i64::MIN as f64) {
        return Err(Fault::attribute("threshold", threshold, "a number that 64-bit integers have"));
    }
    // An integer is greater than a number if it is greater than the integer below.
    let threshold = if x.dtype().is_float() { threshold } else { threshold.floor() };
    Ok(vec![builder.map(domain_of(x.dtype()), [x], x.dtype(), |[x]| x.with(Binary::Greater, threshold))?])
}

/// Returns for each element a row that is 1 at its category's position. An element without a category gets a row of
/// zeros, or an error in the run.
fn one_hot(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let categories = ints(operator, "cats_int64s")?;
    if categories.is_empty() {
        return Err(Fault::invalid("attribute `cats_int64s` is empty, but the input holds numbers"));
    }
    let mut seen = HashSet::with_capacity(categories.len());
    if !categories.iter().all(|category| seen.insert(*category)) {
        return Err(Fault::unsupported("a category listed twice"));
    }
    let single = x.reshaped([x.dims(), &[1]].concat())?;
    let float = x.dtype().is_float();
    let list = match float {
        true => constant(builder, &[categories.len()], &exact("cats_int64s", categories)?)?,
        false => constant(builder, &[categories.len()], categories)?,
    };
    let domain = if float { Domain::F64 } else { Domain::I64 };
    let hot = builder.map(domain, [&single, &list], DType::F32, |[x, category]| {
        let whole = if float { x.apply(Unary::Truncate) } else { x };
        whole.with(Binary::Equal, category)
    })?;
    if operator.flag("zeros", true)? {
        return Ok(vec![hot]);
    }
    // Without a category there is no zero to choose.
    let whole =
        if float { builder.map(Domain::F64, [x], DType::F64, |[x]| x.apply(Unary::Truncate))? } else { x.clone() };
    let index = found(builder, &whole, &exact("cats_int64s", categories)?, false)?;
    let zeros = constant(builder, &[categories.len()], &vec![0f32; categories.len()])?;
    let output = TensorSpec::new(DType::F32, index.shape().clone());
    let gather = Op::Gather(Gather { axis: 0, elementwise: false });
    let zero = builder.emit_one(gather, &[zeros, index], output)?.reshaped(single.dims())?;
    Ok(vec![builder.map(Domain::F32, [&hot, &zero], DType::F32, |[hot, zero]| hot + zero)?])
}

/// Selects elements along the last axis; a vector counts as one row.
fn extracted(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 1)?;
    let places = operator.typed(1, DType::I64)?;
    let (last, count) = (x.rank() - 1, places.elements());
    if count == 0 || x.dims()[last] == 0 {
        return Err(Fault::invalid(format!("{count} indices for an axis of {}", x.dims()[last])));
    }
    let outer = if last == 0 { &[1][..] } else { &x.dims()[..last] };
    let output = TensorSpec::new(x.dtype(), Shape::new([outer, &[count]].concat())?);
    let op = Op::Gather(Gather { axis: last, elementwise: false });
    Ok(vec![builder.emit_one(op, &[x.clone(), places.reshaped(vec![count])?], output)?])
}

/// Joins the features of all inputs, as `f32`; each input is cut, or filled with zeros, to its stated length.
fn joined(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let wanted = ints(operator, "inputdimensions")?;
    super::require_length("inputdimensions", wanted.len(), operator.count())?;
    let mut parts = Vec::with_capacity(wanted.len());
    for (index, wide) in wanted.iter().enumerate() {
        let x = operator.number(index)?;
        let x = match *x.dims() {
            [features] => x.reshaped(vec![1, features])?,
            [rows, ..] => x.reshaped(vec![rows, x.dims()[1..].iter().product()])?,
            [] => return Err(Fault::invalid(format!("input {index} is a scalar; rows of features are needed"))),
        };
        let width = usize::try_from(*wide).ok().filter(|width| *width > 0);
        let width = width.ok_or_else(|| Fault::attribute("inputdimensions", wide, "at least 1"))?;
        let x = builder.cast(&x, DType::F32)?;
        let (rows, own) = (x.dims()[0], x.dims()[1]);
        parts.push(match width <= own {
            true => builder.part(&x, 1, 0, width)?,
            false => builder.padded(&x, PadMode::ZERO, vec![0, 0], vec![rows, width])?,
        });
    }
    if parts.windows(2).any(|pair| pair[0].dims()[0] != pair[1].dims()[0]) {
        return Err(Fault::invalid("its inputs have different numbers of rows"));
    }
    Ok(vec![builder.concatenated(&parts, 1)?])
}
