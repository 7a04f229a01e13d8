//! Matrix products. The op set multiplies in `f32` and `f64`; narrower floating-point types are converted. Integers are
//! multiplied as integers, modulo 2ⁿ.

use super::grid::grid_product;
use super::{Builder, Entry, Epilogue, Fault, Operator, Term, View, domain_of, expression};
use anabranch_kernels::op::{Domain, Literal, MatMul};
use anabranch_kernels::{DType, Shape};

pub(super) const TABLE: &[Entry] = &[("MatMul", matmul), ("Gemm", gemm)];

/// Multiplies by NumPy's rule: a vector on the left is a row, on the right a column, and loses that dimension in the
/// result.
fn matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    operator.number(0)?;
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

/// Returns the product of matrices `[…, m, k]` and `[…, k, n]` of one type, which the result has, too.
pub(in crate::lower) fn multiplied(builder: &mut Builder, a: &View, b: &View) -> Result<View, Fault> {
    let dtype = a.dtype();
    if let Some(work) = modular(dtype) {
        let (a, b) = (builder.cast(a, work)?, builder.cast(b, work)?);
        let product = batched(builder, &a, &b)?;
        return builder.cast(&product, dtype);
    }
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
    let product = batched(builder, &a, &b)?;
    builder.cast(&product, dtype)
}

/// Returns the type in which products of integers are computed: their own, or a 32-bit type, whose sums have the right
/// low bits.
fn modular(dtype: DType) -> Option<DType> {
    match dtype {
        DType::I64 | DType::U64 | DType::U32 => Some(dtype),
        _ => domain_of(dtype).is_integer().then_some(DType::I32),
    }
}

/// Returns the product of matrices of a type in which products are computed.
///
/// If the right side is one matrix, the left side's batches become rows of one matrix; equal batches become one batch
/// dimension.
fn batched(builder: &mut Builder, a: &View, b: &View) -> Result<View, Fault> {
    let (a_batch, &[m, k]) = split_matrix(a)?;
    let (b_batch, &[rows, n]) = split_matrix(b)?;
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
    builder.product(MatMul::default(), &left, &right, product, Epilogue::default())?.reshaped(dims)
}

/// Returns batch dimensions, rows and columns.
fn split_matrix(view: &View) -> Result<(&[usize], &[usize; 2]), Fault> {
    view.dims().split_last_chunk().ok_or_else(|| Fault::invalid(format!("{} is not a matrix", view.shape())))
}

/// Returns `α A B + β C`, with C broadcast to the product.
fn gemm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    let dtype = operator.number(0)?.dtype();
    let (transpose_a, transpose_b) = (operator.flag("transA", false)?, operator.flag("transB", false)?);
    let sides = |view: &View, transposed: bool| match *view.dims() {
        [rows, columns] if transposed => Ok((columns, rows)),
        [rows, columns] => Ok((rows, columns)),
        _ => Err(Fault::invalid(format!("an input of shape {} is not a matrix", view.shape()))),
    };
    let ((m, k), (rows, n)) = (sides(a, transpose_a)?, sides(b, transpose_b)?);
    if rows != k {
        return Err(Fault::invalid(format!("a matrix of {m}×{k} times one of {rows}×{n}")));
    }
    let (alpha, beta) = (operator.float("alpha", 1.0)?, operator.float("beta", 1.0)?);
    if let Some(work) = modular(dtype) {
        let (a, b) = (builder.cast(a, work)?, builder.cast(b, work)?);
        let op = MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() };
        let product = builder.product(op, &a, &b, vec![m, n], Epilogue::default())?;
        let product = builder.cast(&product, dtype)?;
        return Ok(vec![integer_sum(operator, builder, &product, [alpha, beta])?]);
    }
    let addend = match operator.optional(2) {
        Some(c) if beta != 0.0 => {
            operator.typed(2, dtype)?.shape().broadcast_strides(&Shape::new(vec![m, n])?)?;
            Some(builder.as_working(c)?)
        }
        _ => None,
    };
    let epilogue = scaled_sum(alpha, beta, addend);
    if !transpose_a && let Some(product) = grid_product(builder, a, (b, transpose_b))? {
        let addend = epilogue.operands.first().filter(|_| [alpha, beta] == [1.0; 2]).cloned();
        let result = builder.finished(&product, epilogue)?;
        if let Some(addend) = addend {
            builder.remember_offset(&product, &addend, &result);
        }
        return Ok(vec![result]);
    }
    if !transpose_a && let Some(product) = builder.narrow_product(a, (b, transpose_b), &epilogue)? {
        return Ok(vec![builder.cast(&product, dtype)?]);
    }
    let (a, b) = (builder.as_working(a)?, builder.as_working(b)?);
    let op = MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() };
    let product = builder.product(op, &a, &b, vec![m, n], epilogue)?;
    Ok(vec![builder.cast(&product, dtype)?])
}

/// Returns `α x + β c` of integers.
fn integer_sum(operator: &Operator<'_>, builder: &mut Builder, x: &View, factors: [f32; 2]) -> Result<View, Fault> {
    let whole = |(factor, name): (f32, &'static str)| match factor.fract() == 0.0 && factor.abs() < 1e9 {
        true => Ok(Literal::Int(factor as i64)),
        false => Err(Fault::attribute(name, factor, "a whole number below 10⁹ for integers")),
    };
    let (alpha, beta) = (whole((factors[0], "alpha"))?, whole((factors[1], "beta"))?);
    let (domain, dtype) = (domain_of(x.dtype()), x.dtype());
    match operator.optional(2) {
        Some(c) if beta != Literal::Int(0) => {
            operator.typed(2, dtype)?.shape().broadcast_strides(x.shape())?;
            builder.map_to(domain, [x, c], x.spec.clone(), |[x, c]| x * alpha + c * beta)
        }
        _ if alpha == Literal::Int(1) => Ok(x.clone()),
        _ => builder.map(domain, [x], dtype, |[x]| x * alpha),
    }
}

/// Returns `α x + β c`, without neutral parts.
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
