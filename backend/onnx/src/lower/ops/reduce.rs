//! Reductions over axes.

use super::{Builder, Entry, Fault, Operator, View, axes_of, domain_of};
use anabranch_kernels::DType;
use anabranch_kernels::op::{ReduceKind, Unary};

pub(super) const TABLE: &[Entry] = &[
    ("ReduceSum", |o, b| reduce(o, b, ReduceKind::Sum, None)),
    ("ReduceMean", |o, b| reduce(o, b, ReduceKind::Mean, None)),
    ("ReduceMax", |o, b| reduce(o, b, ReduceKind::Max, None)),
    ("ReduceMin", |o, b| reduce(o, b, ReduceKind::Min, None)),
    ("ReduceProd", |o, b| reduce(o, b, ReduceKind::Product, None)),
    ("ReduceSumSquare", |o, b| reduce(o, b, ReduceKind::SumOfSquares, None)),
    ("ReduceL1", |o, b| reduce(o, b, ReduceKind::SumOfMagnitudes, None)),
    ("ReduceL2", |o, b| reduce(o, b, ReduceKind::SumOfSquares, Some(Unary::Sqrt))),
    ("ReduceLogSum", |o, b| reduce(o, b, ReduceKind::Sum, Some(Unary::Log))),
    ("ReduceLogSumExp", |o, b| reduce(o, b, ReduceKind::LogSumExp, None)),
];

/// Version from which the axes are an input.
fn axes_input_since(kind: ReduceKind, after: Option<Unary>) -> i64 {
    if kind == ReduceKind::Sum && after.is_none() { 13 } else { 18 }
}

fn reduce(
    operator: &Operator<'_>,
    builder: &mut Builder,
    kind: ReduceKind,
    after: Option<Unary>,
) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let axes = operator.ints_by_version(builder, "axes", axes_input_since(kind, after), 1)?.unwrap_or_default();
    let kept = operator.flag("keepdims", true)?;
    let nothing = axes.is_empty() && operator.flag("noop_with_empty_axes", false)?;
    let axes = if axes.is_empty() { (0..x.rank()).collect() } else { axes_of(&axes, x.rank())? };

    // Without an axis to reduce, each element is a group of its own, along an added axis.
    let (input, reduced) = if nothing || axes.is_empty() {
        (x.reshaped([x.dims(), &[1]].concat())?, vec![x.rank()])
    } else {
        (x.clone(), axes.clone())
    };
    let mut result = match after {
        // Roots and logarithms of integers are computed as real numbers, and then converted to integers.
        Some(_) if domain_of(x.dtype()).is_integer() => {
            let real = builder.cast(&input, DType::F64)?;
            builder.reduced(&real, kind, &reduced)?
        }
        // Sums of narrow floats overflow them before their root or logarithm does.
        Some(_) => {
            let wide = builder.as_working(&input)?;
            builder.reduced(&wide, kind, &reduced)?
        }
        _ => builder.reduced(&input, kind, &reduced)?,
    };
    if let Some(function) = after {
        result = builder.map(domain_of(result.dtype()), [&result], x.dtype(), |[x]| x.apply(function))?;
    }
    let dims = x.dims().iter().enumerate().filter_map(|(axis, dim)| match axes.contains(&axis) {
        _ if nothing => Some(*dim),
        true => kept.then_some(1),
        false => Some(*dim),
    });
    Ok(vec![result.reshaped(dims.collect::<Vec<_>>())?])
}
