//! Operators that make tensors from shapes and a few numbers: constants, ranges, shapes, one-hot rows, triangles.

use super::cast::{element_type, floats};
use super::expand::sizes;
use super::gather::from_start;
use super::{Builder, Entry, Fault, Operator, View, axis_of, domain_of, numbers};
use anabranch_kernels::op::{Binary, Domain, Literal};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

/// Most numbers of a range: no tensor can hold more.
const LONGEST_RANGE: usize = isize::MAX as usize / 64;

pub(super) const TABLE: &[Entry] = &[
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("Shape", shape),
    ("Size", size),
    ("Range", range),
    ("OneHot", one_hot),
    ("Trilu", triangle),
    ("EyeLike", eye_like),
];

fn constant(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let scalar = |tensor: Tensor| Ok::<_, Fault>(tensor.reshaped(Shape::scalar()).expect("one element"));
    let tensor = if let Some(tensor) = operator.node.tensor("value")? {
        tensor.clone()
    } else if let Some(tensor) = operator.node.tensor("sparse_value")? {
        tensor.clone()
    } else if let Some(value) = operator.node.float("value_float")? {
        scalar(floats(&[value]))?
    } else if let Some(value) = operator.node.int("value_int")? {
        scalar(Tensor::from_i64s(&[value]))?
    } else if let Some(values) = operator.node.floats("value_floats")? {
        floats(values)
    } else if let Some(values) = operator.node.ints("value_ints")? {
        Tensor::from_i64s(values)
    } else {
        return Err(Fault::unsupported("its value is a string or missing"));
    };
    Ok(vec![builder.constant("constant", tensor)])
}

fn constant_of_shape(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let dims = sizes(&operator.known_ints(builder, 0, "shape")?, "the shape")?;
    let shape = Shape::new(dims)?;
    let one = Shape::scalar();
    let value = match operator.node.tensor("value")? {
        None => builder.scalar(DType::F32, 0.0)?,
        Some(value) if value.shape().elements() == 1 => {
            let value = value.reshaped(one).expect("one element is a scalar");
            builder.made(value)?
        }
        Some(value) => return Err(Fault::attribute("value", value.spec(), "a tensor of one element")),
    };
    Ok(vec![builder.expanded(&value, shape)?])
}

/// Returns the shape; from version 15 on, a part of it may be requested.
fn shape(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let rank = x.rank() as i64;
    let bound = |value: i64| (if value < 0 { value.saturating_add(rank) } else { value }).clamp(0, rank) as usize;
    let start = bound(operator.int("start", 0)?);
    let end = bound(operator.int("end", rank)?).max(start);
    let dims: Vec<_> = x.dims()[start..end].iter().map(|dim| *dim as i64).collect();
    Ok(vec![builder.made(Tensor::from_i64s(&dims))?])
}

fn size(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let elements = operator.input(0)?.elements() as i64;
    let tensor = Tensor::from_i64s(&[elements]).reshaped(Shape::scalar()).expect("one element is a scalar");
    Ok(vec![builder.made(tensor)?])
}

/// Returns `start, start + delta, …` before `limit`; the bounds decide the length, so that they must be known.
fn range(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let dtype = operator.input(0)?.dtype();
    operator.typed(1, dtype)?;
    operator.typed(2, dtype)?;
    let count = if domain_of(dtype).is_integer() { whole_steps(operator, builder)? } else { steps(operator, builder)? };
    let index = builder.indices(dtype, count, 0, 1)?;
    let (start, delta) = (operator.input(0)?.reshaped(vec![])?, operator.input(2)?.reshaped(vec![])?);
    let inputs = [&index, &start, &delta];
    Ok(vec![builder.map(domain_of(dtype), inputs, dtype, |[index, start, delta]| start + index * delta)?])
}

/// Returns the number of elements of a range of floats.
fn steps(operator: &Operator<'_>, builder: &Builder) -> Result<usize, Fault> {
    let bound = |index: usize, what: &'static str| operator.known_number(builder, index, what);
    let (start, limit, delta) = (bound(0, "start")?, bound(1, "limit")?, bound(2, "delta")?);
    let count = ((limit - start) / delta).ceil().max(0.0);
    if delta == 0.0 || !count.is_finite() {
        return Err(Fault::invalid(format!("a range from {start} to {limit} in steps of {delta}")));
    }
    if count > LONGEST_RANGE as f64 {
        return Err(Fault::invalid(format!("a range of {count} elements")));
    }
    Ok(count as usize)
}

/// Returns the number of elements of a range of integers, which may span the whole type.
fn whole_steps(operator: &Operator<'_>, builder: &Builder) -> Result<usize, Fault> {
    let bound = |index: usize, what: &'static str| operator.known_integer(builder, index, what);
    let (start, limit, delta) = (bound(0, "start")?, bound(1, "limit")?, bound(2, "delta")?);
    if delta == 0 {
        return Err(Fault::invalid(format!("a range from {start} to {limit} in steps of 0")));
    }
    let (span, step) = if delta > 0 { (limit - start, delta) } else { (start - limit, -delta) };
    let count = (span.max(0) + step - 1) / step;
    match usize::try_from(count) {
        Ok(count) if count <= LONGEST_RANGE => Ok(count),
        _ => Err(Fault::invalid(format!("a range of {count} elements"))),
    }
}

/// Returns the element's value as an index: floats are truncated; values beyond `i64` become an index beyond any depth.
fn as_index(builder: &mut Builder, x: &View) -> Result<View, Fault> {
    match x.dtype() {
        DType::U64 => builder.map(Domain::U64, [x], DType::I64, |[x]| x.with(Binary::Min, Literal::Int(i64::MAX))),
        dtype if dtype.is_float() => builder.cast(x, DType::I64),
        _ => Ok(x.clone()),
    }
}

/// Returns `on` where the new axis' index equals the element's value, else `off`; an index beyond the depth has no
/// position.
fn one_hot(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let indices = operator.number(0)?;
    let depth_view = operator.input(1)?;
    let depth = builder.tensor(depth_view).ok_or_else(|| Fault::run_time(depth_view.value, 1, "depth"))?;
    let depth = match numbers(&depth).as_deref() {
        Some(&[depth]) if (1.0..9.0e15).contains(&depth) => depth as usize,
        other => return Err(Fault::invalid(format!("a depth of {:?}", other.unwrap_or_default()))),
    };
    let values = operator.input(2)?;
    if values.elements() != 2 {
        return Err(Fault::invalid(format!("the values have shape {}, but two elements are needed", values.shape())));
    }
    let axis = axis_of(operator.int("axis", -1)?, indices.rank() + 1)?;
    let mut dims = indices.dims().to_vec();
    dims.insert(axis, 1);
    let indices = as_index(builder, indices)?;
    let (row, flat) = (Shape::new(dims)?, values.reshaped(vec![2])?);
    let dtype = values.dtype();
    // Positions are compared in the domain of the values, if it counts them exactly, so that each element takes a
    // single pass. Indices are converted before they are broadcast.
    let (domain, counted) = match domain_of(dtype) {
        Domain::F32 if depth < 1 << 24 => (Domain::F32, DType::F32),
        Domain::F32 | Domain::F64 => (Domain::F64, DType::F64),
        Domain::I64 => (Domain::I64, DType::I64),
        Domain::U64 => (Domain::U64, DType::U64),
    };
    let places = builder.map(Domain::I64, [&indices.reshaped(row)?], counted, |[index]| {
        from_start(index, depth as f64, depth as f64)
    })?;
    let positions = builder.indices(counted, depth, axis, places.rank())?;
    let off = builder.part(&flat, 0, 0, 1)?;
    let on = builder.part(&flat, 0, 1, 1)?;
    let inputs = [&places, &positions, &on, &off];
    Ok(vec![builder.map(domain, inputs, dtype, |[place, position, on, off]| {
        place.with(Binary::Equal, position).select(on, off)
    })?])
}

/// Returns the elements on and above the `k`-th diagonal, or on and below it; zero elsewhere.
fn triangle(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 2)?;
    let upper = operator.flag("upper", true)?;
    let diagonal = match operator.optional(1) {
        Some(_) => operator.known_int(builder, 1, "k")?,
        None => 0,
    };
    let compare = if upper { Binary::GreaterOrEqual } else { Binary::LessOrEqual };
    Ok(vec![by_diagonal(builder, x, x, compare, diagonal)?])
}

fn eye_like(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    if x.rank() != 2 {
        return Err(Fault::invalid(format!("the input has shape {}, but needs two dimensions", x.shape())));
    }
    let dtype = match operator.node.int("dtype")? {
        Some(number) => element_type(number)?,
        None => x.dtype(),
    };
    let one = builder.scalar(dtype, 1.0)?;
    Ok(vec![by_diagonal(builder, x, &one, Binary::Equal, operator.int("k", 0)?)?])
}

/// Returns `kept`, in the shape of `x`, at elements whose column compares so with their row plus `diagonal`; zero
/// elsewhere.
///
/// Rows and columns are those of the two innermost axes. They are counted in the domain of the type of `x`: as signed
/// integers for integers.
fn by_diagonal(builder: &mut Builder, x: &View, kept: &View, compare: Binary, diagonal: i64) -> Result<View, Fault> {
    let (rank, dims) = (x.rank(), x.dims());
    if domain_of(x.dtype()) == Domain::F32 && dims[rank - 2].max(dims[rank - 1]) >= 1 << 24 {
        return Err(Fault::unsupported(format!("a triangle of shape {}", x.shape())));
    }
    let counted = if x.dtype() == DType::U64 { DType::I64 } else { x.dtype() };
    let rows = builder.indices(counted, dims[rank - 2], rank - 2, rank)?;
    let columns = builder.indices(counted, dims[rank - 1], rank - 1, rank)?;
    let output = TensorSpec::new(kept.dtype(), x.shape().clone());
    builder.map_to(domain_of(counted), [kept, &rows, &columns], output, |[kept, row, column]| {
        column.with(compare, row + bounded(diagonal)).select(kept, 0.0)
    })
}

/// Converts a diagonal's number; numbers beyond any matrix are clamped to where `f32` still counts exactly.
fn bounded(diagonal: i64) -> f64 {
    const FAR: i64 = 1 << 25;
    diagonal.clamp(-FAR, FAR) as f64
}
