//! Determinants, by elimination with the greatest element of each column as its pivot, unrolled into nodes.

use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Binary, ReduceKind, Unary};
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("Det", determinant)];

/// Most rows: each becomes nodes of its own.
const LARGEST: usize = 64;

fn determinant(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let (&[rows, columns], outer) = match x.dims().split_last_chunk() {
        Some((outer, matrix)) if matrix[0] == matrix[1] => (matrix, outer),
        _ => return Err(Fault::invalid(format!("{} is not a square matrix", x.shape()))),
    };
    if rows == 0 || rows > LARGEST {
        return Err(Fault::unsupported(format!("matrices of {rows} rows; 1 to {LARGEST} are supported")));
    }
    let count = x.elements() / rows / columns;
    let mut matrix = builder.as_working(x)?.reshaped(vec![count, rows, rows])?;
    let mut result = builder.filled(TensorSpec::new(matrix.dtype(), Shape::new(vec![count, 1, 1])?), 1.0)?;
    for left in (1..=rows).rev() {
        (matrix, result) = eliminated(builder, &matrix, &result, [count, left])?;
    }
    Ok(vec![builder.cast(&result.reshaped(outer)?, x.dtype())?])
}

/// Eliminates the first column of the matrices.
///
/// Returns the matrices without that column and the pivot's row, and the product of `result` and the pivots.
fn eliminated(
    builder: &mut Builder,
    matrix: &View,
    result: &View,
    [count, size]: [usize; 2],
) -> Result<(View, View), Fault> {
    let (domain, work) = (domain_of(matrix.dtype()), matrix.dtype());
    let column = builder.part(matrix, 2, 0, 1)?;
    let heights = builder.map(domain, [&column], work, |[x]| x.apply(Unary::Abs))?;
    let greatest = builder.reduced(&heights, ReduceKind::Max, &[1])?;
    // The first row with the greatest height. If an element is NaN, no row may have it: the sum of all is then NaN,
    // too.
    let all = builder.reduced(&heights, ReduceKind::Sum, &[1])?;
    let rows = builder.indices(work, size, 1, 3)?;
    let found = builder.map(domain, [&heights, &greatest, &rows], work, |[height, greatest, row]| {
        height.with(Binary::Equal, greatest).select(row, size as f64)
    })?;
    let found = builder.reduced(&found, ReduceKind::Min, &[1])?;
    let chosen = builder
        .map(domain, [&rows, &found, matrix], work, |[row, found, x]| row.with(Binary::Equal, found).select(x, 0.0))?;
    let pivots = builder.reduced(&chosen, ReduceKind::Sum, &[1])?;
    let pivot = builder.part(&pivots, 2, 0, 1)?;
    let result = builder.map(domain, [result, &pivot, &found, &all], work, |[result, pivot, found, all]| {
        let signed = found.with(Binary::Equal, 0.0).select(pivot, pivot * -1.0);
        let none = found.with(Binary::Equal, size as f64);
        result * none.select(all, signed)
    })?;
    if size == 1 {
        return Ok((matrix.clone(), result));
    }
    // The first row moves to the pivot's row, and the first row and column are left out.
    let (first, rest) = (builder.part(matrix, 1, 0, 1)?, builder.part(matrix, 1, 1, size - 1)?);
    let rows = builder.part(&rows, 1, 1, size - 1)?;
    let swapped = builder.map(domain, [&rows, &found, &first, &rest], work, |[row, found, first, x]| {
        row.with(Binary::Equal, found).select(first, x)
    })?;
    let (lead, rest) = (builder.part(&swapped, 2, 0, 1)?, builder.part(&swapped, 2, 1, size - 1)?);
    let pivots = builder.part(&pivots, 2, 1, size - 1)?;
    let rest = builder.map(domain, [&rest, &lead, &pivot, &pivots], work, |[x, lead, pivot, own]| {
        // Below a pivot of zero are zeros.
        let divisor = pivot.with(Binary::Equal, 0.0).select(1.0, pivot);
        let share = lead / divisor;
        x - share * own
    })?;
    Ok((rest.reshaped(vec![count, size - 1, size - 1])?, result))
}
