//! Products of matrices. The op set multiplies in `f32` and `f64`; narrower floating-point types are converted on the way.

use super::integer::grid_product;
use super::{Builder, Entry, Epilogue, Fault, Operator, Term, View, expression};
use anabranch_kernels::Shape;
use anabranch_kernels::op::{Domain, MatMul};

pub(super) const TABLE: &[Entry] = &[("MatMul", matmul), ("Gemm", gemm)];

/// NumPy's rule: a vector on the left is a row, on the right a column, and loses that dimension in the result.
fn matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    operator.float_input(0)?;
    operator.ranked(0, 1)?;
    operator.ranked(1, 1)?;
    let row = if a.rank() == 1 { a.reshaped(vec![1, a.dims()[0]])? } else { a.clone() };
    let column = if b.rank() == 1 { b.reshaped(vec![b.dims()[0], 1])? } else { b.clone() };
    let product = multiplied(builder, &row, &column)?;
    let mut dims = product.dims().to_vec();
    if b.rank() == 1 {
        dims.pop();
    }
    if a.rank() == 1 {
        dims.remove(dims.len() - if b.rank() == 1 { 1 } else { 2 });
    }
    Ok(vec![product.reshaped(dims)?])
}

/// The product of matrices `[…, m, k]` and `[…, k, n]` of one floating-point type; the result has it too.
///
/// Where the right side is one matrix, the left side's batches become rows of one matrix; equal batches become one
/// batch dimension.
pub(in crate::lower) fn multiplied(builder: &mut Builder, a: &View, b: &View) -> Result<View, Fault> {
    let dtype = a.dtype();
    if let Some(product) = grid_product(builder, a, (b, false))? {
        return Ok(product);
    }
    if let (Some(depth), [_, columns]) = (a.dims().last(), b.dims()) {
        let flat = a.reshaped(vec![a.elements().checked_div(*depth).unwrap_or(0), *depth])?;
        if b.dims()[0] == *depth
            && let Some(product) = builder.narrow_product(&flat, (b, false), &Epilogue::default())?
        {
            let dims = [&a.dims()[..a.rank() - 1], &[*columns]].concat();
            return builder.cast(&product.reshaped(dims)?, dtype);
        }
    }
    let (a, b) = (builder.as_working(a)?, builder.as_working(b)?);
    let (a_batch, &[m, k]) = split_matrix(&a)?;
    let (b_batch, &[rows, n]) = split_matrix(&b)?;
    if rows != k {
        return Err(Fault::invalid(format!("a matrix of shape {} times one of shape {}", a.shape(), b.shape())));
    }
    let batch = Shape::new(a_batch)?.broadcast(&Shape::new(b_batch)?)?;
    let dims = [batch.dims(), &[m, n]].concat();
    let count = |dims: &[usize]| dims.iter().product::<usize>();
    let (left, right, product) = if count(b_batch) == 1 {
        (vec![count(a_batch) * m, k], vec![k, n], vec![count(a_batch) * m, n])
    } else if a_batch == b_batch {
        let batches = count(a_batch);
        (vec![batches, m, k], vec![batches, k, n], vec![batches, m, n])
    } else {
        (a.dims().to_vec(), b.dims().to_vec(), dims.clone())
    };
    let (left, right) = (a.reshaped(left)?, b.reshaped(right)?);
    let product = builder.product(MatMul::default(), &left, &right, product, Epilogue::default())?;
    builder.cast(&product.reshaped(dims)?, dtype)
}

/// Batch dimensions, rows and columns.
fn split_matrix(view: &View) -> Result<(&[usize], &[usize; 2]), Fault> {
    view.dims().split_last_chunk().ok_or_else(|| Fault::invalid(format!("{} is no matrix", view.shape())))
}

/// `α A B + β C`, with C broadcast to the product.
fn gemm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    let dtype = operator.float_input(0)?.dtype();
    let (transpose_a, transpose_b) = (operator.flag("transA", false)?, operator.flag("transB", false)?);
    let sides = |view: &View, transposed: bool| match *view.dims() {
        [rows, columns] if transposed => Ok((columns, rows)),
        [rows, columns] => Ok((rows, columns)),
        _ => Err(Fault::invalid(format!("an input of shape {} is no matrix", view.shape()))),
    };
    let ((m, k), (rows, n)) = (sides(a, transpose_a)?, sides(b, transpose_b)?);
    if rows != k {
        return Err(Fault::invalid(format!("a matrix of {m}×{k} times one of {rows}×{n}")));
    }
    let (alpha, beta) = (operator.float("alpha", 1.0)?, operator.float("beta", 1.0)?);
    let addend = match operator.optional(2) {
        Some(c) if beta != 0.0 => {
            operator.typed(2, dtype)?.shape().broadcast_strides(&Shape::new(vec![m, n])?)?;
            Some(builder.as_working(c)?)
        }
        _ => None,
    };
    let epilogue = scaled_sum(alpha, beta, addend);
    if !transpose_a && let Some(product) = grid_product(builder, a, (b, transpose_b))? {
        return Ok(vec![builder.finished(&product, epilogue)?]);
    }
    if !transpose_a && let Some(product) = builder.narrow_product(a, (b, transpose_b), &epilogue)? {
        return Ok(vec![builder.cast(&product, dtype)?]);
    }
    let (a, b) = (builder.as_working(a)?, builder.as_working(b)?);
    let op = MatMul { transpose_a, transpose_b, epilogue: None };
    let product = builder.product(op, &a, &b, vec![m, n], epilogue)?;
    Ok(vec![builder.cast(&product, dtype)?])
}

/// `α x + β c`, without the parts that change nothing.
fn scaled_sum(alpha: f32, beta: f32, addend: Option<View>) -> Epilogue {
    let expression = match &addend {
        Some(_) => Some(expression(Domain::F32, |[x, c]| times(x, alpha) + times(c, beta))),
        None => (alpha != 1.0).then(|| expression(Domain::F32, |[x]| times(x, alpha))),
    };
    Epilogue { expression, operands: addend.into_iter().collect() }
}

fn times(x: Term<'_>, factor: f32) -> Term<'_> {
    if factor == 1.0 { x } else { x * f64::from(factor) }
}
