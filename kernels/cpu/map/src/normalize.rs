//! Normalises rows to unit variance, or to unit mean square if the mean is not subtracted, and applies the epilogue.
//! Makes two passes over a row that is in cache.

use crate::affine::Beside;
use crate::epilogue::{Epilogue, Uniform, Uniforms};
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::lanes::{DistancesFrom, SquaresAround, fold_inside, next_row};
use anabranch_cpu_base::row_folds::{LONGEST, fold_rows};
use anabranch_cpu_base::team::Tile;
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Normalize};

/// Elements that are worth a hand-over to another thread.
const PIECE: usize = 16_384;

/// Elements that are normalised before an epilogue is applied to them.
const NEAR: usize = 2048;

/// Maximum columns of rows that are normalised [together](TOGETHER): fewer than a vector has lanes.
const SHORT: usize = LANES - 1;

/// Rows that are normalised side by side. How many there are changes no result.
const TOGETHER: usize = 16;

/// Kernel that normalises rows of `columns` elements.
struct NormalizeKernel {
    columns: usize,
    epsilon: f32,
    center: bool,
    epilogue: Option<Epilogue>,
    /// Last dimension of the output, by which the epilogue counts rows.
    width: usize,
}

/// Prepares a normalisation.
pub(crate) fn prepare(node: &NodeSpec, op: &Normalize) -> Result<Box<dyn CpuKernel>, KernelError> {
    let columns = node.inputs[0].shape.dims()[op.axis..].iter().product();
    let width = node.outputs[0].shape.dims().last().copied().unwrap_or(1).max(1);
    let epilogue = Epilogue::of(node)?;
    Ok(Box::new(NormalizeKernel { columns, epsilon: op.epsilon, center: op.center, epilogue, width }))
}

/// Epilogue that is applied to each row after it is normalised.
enum Form<'a> {
    Nothing,
    /// Form that is the same for all rows.
    Alike(Beside<'a>),
    /// Constants of each row.
    Uniform(Uniforms<'a>),
}

impl<'a> Form<'a> {
    /// Returns the form of the next row, if it changes the row.
    #[inline(always)]
    fn next(&mut self) -> Option<Beside<'a>> {
        match self {
            Self::Nothing => None,
            Self::Alike(form) => Some(*form),
            Self::Uniform(uniforms) => {
                let mut uniform = Uniform::IDENTITY;
                uniforms.next(&mut uniform);
                Some(Beside::of(&uniform))
            }
        }
    }
}

/// Loop over whole rows.
struct Rows<'a> {
    kernel: &'a NormalizeKernel,
    source: &'a [f32],
    form: Form<'a>,
    target: &'a mut [f32],
}

impl Loop for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel: &NormalizeKernel { columns, epsilon, center, .. }, source, mut form, target } = self;
        if columns <= SHORT {
            short_rows(columns, epsilon, center, source, target);
            let rows = target.chunks_exact_mut(columns);
            match form {
                Form::Nothing => {}
                // Without a choice for each row, whose elements may be one.
                Form::Alike(form) => rows.for_each(|row| form.change(row)),
                Form::Uniform(_) => {
                    for row in rows {
                        if let Some(form) = form.next() {
                            form.change(row);
                        }
                    }
                }
            }
            return;
        }
        let (count, next) = (columns as f32, next_row(columns));
        for (source, target) in source.chunks(LANES * columns).zip(target.chunks_mut(LANES * columns)) {
            let (means, variances) = moments::<I>(source, columns, center);
            let mut scales = [0.0; LANES];
            (0..LANES).for_each(|row| scales[row] = 1.0 / (variances[row] / count + epsilon).sqrt());
            let rows = source.chunks_exact(columns).zip(target.chunks_exact_mut(columns));
            for (row, (source, target)) in rows.enumerate() {
                let form = form.next();
                match ((variances[row] / count + epsilon).is_normal(), form) {
                    (true, None) => scale_row::<I>(source, means[row], scales[row], target, next),
                    (true, Some(form)) => finish_row::<I>(source, means[row], scales[row], form, target, next),
                    (false, form) => {
                        wide_row(source, epsilon, center, target);
                        if let Some(form) = form {
                            form.change(target);
                        }
                    }
                }
            }
        }
    }
}

/// Returns the means, or zeros, and the sums of squared distances from them, of up to [`LANES`] rows.
#[inline(always)]
fn moments<I: Isa>(source: &[f32], columns: usize, center: bool) -> ([f32; LANES], [f32; LANES]) {
    let (mut means, mut squares, count) = ([0.0; LANES], [0.0; LANES], columns as f32);
    // Distances are measured from the row's first element. Otherwise the rounding of the mean could equal the
    // differences between nearly equal elements.
    let from = |row: usize| source[row * columns];
    if columns <= LONGEST && source.len() == LANES * columns {
        if center {
            I::store(fold_rows::<I, _>(source, |row| DistancesFrom(from(row))), &mut means);
            (0..LANES).for_each(|row| means[row] = from(row) + means[row] / count);
        }
        I::store(fold_rows::<I, _>(source, |row| SquaresAround(means[row])), &mut squares);
        return (means, squares);
    }
    for (row, source) in source.chunks_exact(columns).enumerate() {
        if center {
            means[row] = from(row) + fold_inside::<I, _>(DistancesFrom(from(row)), source) / count;
        }
        squares[row] = fold_inside::<I, _>(SquaresAround(means[row]), source);
    }
    (means, squares)
}

/// Writes `(x − mean) · scale`. Data `next` elements ahead, in the next row, is prefetched from both.
#[inline(always)]
fn scale_row<I: Isa>(source: &[f32], mean: f32, scale: f32, target: &mut [f32], next: usize) {
    let (blocks, rest) = source.as_chunks::<LANES>();
    let (made, last) = target.as_chunks_mut::<LANES>();
    // Vectors by name: the compiler would compute an array between two prefetches element by element.
    let (back, factor, nothing) = (I::splat(-mean), I::splat(scale), I::splat(-0.0));
    for (to, from) in made.iter_mut().zip(blocks) {
        I::prefetch(from.as_ptr().wrapping_add(next));
        I::prefetch(to.as_ptr().wrapping_add(next));
        I::store(I::fused_lanes(I::sum(I::load(from), back), factor, nothing), to);
    }
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = (*from - mean) * scale);
}

/// Elements between two loops of prefetches.
const AHEAD: usize = 16 * LANES;

/// Writes the form of [`scale_row`]'s numbers in one pass over the row.
#[inline(always)]
fn finish_row<I: Isa>(source: &[f32], mean: f32, scale: f32, form: Beside<'_>, target: &mut [f32], next: usize) {
    let normal = |x: f32| (x - mean) * scale;
    if source.len() <= AHEAD {
        prefetch_next::<I>(source, target, next);
        return form.write(source, normal, target);
    }
    for (part, (from, to)) in source.chunks(AHEAD).zip(target.chunks_mut(AHEAD)).enumerate() {
        prefetch_next::<I>(from, to, next);
        let start = part * AHEAD;
        form.part(start..start + from.len()).write(from, normal, to);
    }
}

/// Prefetches data `next` elements ahead of both.
#[inline(always)]
fn prefetch_next<I: Isa>(from: &[f32], to: &[f32], next: usize) {
    for line in (0..from.len()).step_by(LANES) {
        I::prefetch(from.as_ptr().wrapping_add(line + next));
        I::prefetch(to.as_ptr().wrapping_add(line + next));
    }
}

/// Normalises rows of a few columns, many at a time: first columns side by side, then second ones, ….
#[inline(always)]
fn short_rows(columns: usize, epsilon: f32, center: bool, source: &[f32], target: &mut [f32]) {
    let count = columns as f32;
    for (source, target) in source.chunks(TOGETHER * columns).zip(target.chunks_mut(TOGETHER * columns)) {
        let mut x = [[0.0; TOGETHER]; SHORT];
        let x = &mut x[..columns];
        for (at, x) in x.iter_mut().enumerate() {
            x.iter_mut().zip(source[at..].iter().step_by(columns)).for_each(|(x, from)| *x = *from);
        }
        let mut means = [0.0; TOGETHER];
        if center {
            let first = x[0];
            for x in &*x {
                (0..TOGETHER).for_each(|row| means[row] += x[row] - first[row]);
            }
            (0..TOGETHER).for_each(|row| means[row] = first[row] + means[row] / count);
        }
        let mut variances = [0.0; TOGETHER];
        for x in &*x {
            (0..TOGETHER).for_each(|row| variances[row] += (x[row] - means[row]) * (x[row] - means[row]));
        }
        let mut scales = [0.0; TOGETHER];
        (0..TOGETHER).for_each(|row| scales[row] = 1.0 / (variances[row] / count + epsilon).sqrt());
        for (at, x) in x.iter_mut().enumerate() {
            (0..TOGETHER).for_each(|row| x[row] = (x[row] - means[row]) * scales[row]);
            target[at..].iter_mut().step_by(columns).zip(&*x).for_each(|(to, x)| *to = *x);
        }
        let rows = source.chunks_exact(columns).zip(target.chunks_exact_mut(columns));
        for ((source, target), variance) in rows.zip(variances) {
            if !(variance / count + epsilon).is_normal() {
                wide_row(source, epsilon, center, target);
            }
        }
    }
}

/// Normalises a row whose squares overflow `f32`, or whose elements are not finite.
#[inline(never)]
fn wide_row(source: &[f32], epsilon: f32, center: bool, target: &mut [f32]) {
    let mean =
        |value: &dyn Fn(f64) -> f64| source.iter().map(|x| value(f64::from(*x))).sum::<f64>() / source.len() as f64;
    let middle = if center { mean(&|x| x) } else { 0.0 };
    let deviation = (mean(&|x| (x - middle) * (x - middle)) + f64::from(epsilon)).sqrt();
    target.iter_mut().zip(source).for_each(|(to, from)| *to = ((f64::from(*from) - middle) / deviation) as f32);
}

impl CpuKernel for NormalizeKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        if target.is_empty() {
            return Ok(());
        }
        let rows = (PIECE / self.columns).max(1);
        let extras = &call.inputs[1..];
        call.team.run_pieces(target, rows * self.columns, &|piece, target| {
            // Positions count from the first row at hand, as the epilogue's windowed operands do.
            let start = piece * rows * self.columns;
            let source = &source[start..][..target.len()];
            let run = |form: Form<'_>, source: &[f32], target: &mut [f32]| {
                vectorised(Rows { kernel: self, source, form, target });
            };
            let Some(epilogue) = &self.epilogue else { return run(Form::Nothing, source, target) };
            let alike = || epilogue.beside_rows(self.columns, extras).map(Form::Alike);
            let uniform = || epilogue.uniform_rows(start, self.columns, extras).map(Form::Uniform);
            if let Some(form) = alike().or_else(uniform) {
                run(form, source, target);
                epilogue.activate(&mut Tile::of(target));
                return;
            }
            // Rows stay in the L1 cache between the two.
            let length = (NEAR / self.columns).max(1) * self.columns;
            let parts = source.chunks(length).zip(target.chunks_mut(length));
            for (part, (source, target)) in parts.enumerate() {
                let at = start + part * length;
                run(Form::Nothing, source, target);
                epilogue.apply(at / self.width, at % self.width, target, extras);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Binary, Expression, Normalize, Op};

    fn naive(x: &[f32], columns: usize, epsilon: f64, center: bool) -> Vec<f64> {
        let rows = x.chunks_exact(columns).flat_map(|row| {
            let mean = if center { row.iter().map(|v| f64::from(*v)).sum::<f64>() / columns as f64 } else { 0.0 };
            let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / columns as f64;
            row.iter().map(move |v| (f64::from(*v) - mean) / (variance + epsilon).sqrt())
        });
        rows.collect()
    }

    #[test]
    fn rows_have_zero_mean_and_unit_variance() {
        for (dims, axis) in [
            (vec![4, 8], 1),
            (vec![130, 16], 1),
            (vec![65, 17], 1),
            (vec![33, 64], 1),
            (vec![16, 100], 1),
            (vec![17, 257], 1),
            (vec![2, 3, 5, 7], 2),
            (vec![1, 20_000], 1),
            (vec![3, 1], 1),
        ] {
            for center in [true, false] {
                let input = tensor(DType::F32, &dims, |i| ((i * 37) % 101) as f64 * 0.1 + 3.0);
                let op = Op::Normalize(Normalize { axis, epsilon: 1e-5, center, epilogue: None });
                let got: Vec<f32> = computed(op, std::slice::from_ref(&input), &dims);
                let want = naive(input.elements().expect("f32"), dims[axis..].iter().product(), 1e-5, center);
                assert!(got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 2e-4), "{dims:?}");
            }
        }
    }

    #[test]
    fn constant_rows_become_zeros() {
        for (columns, value) in [(1, 3.3), (17, 1.879_264_2), (33, 3.3), (100, 100.7), (1001, 100.7), (5000, -1e30)] {
            let input = tensor(DType::F32, &[2, columns], |_| value);
            let op = Op::Normalize(Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue: None });
            let got: Vec<f32> = computed(op, &[input], &[2, columns]);
            assert!(got.iter().all(|x| *x == 0.0), "{columns} of {value}");
        }
    }

    #[test]
    fn rows_near_the_greatest_numbers_are_finite() {
        let values = [1e38, -2e38, 3e38, 1e38];
        for (columns, center) in [4, 20, 300].into_iter().flat_map(|columns| [(columns, true), (columns, false)]) {
            let input = tensor(DType::F32, &[1, columns], |i| values[i % 4]);
            let scale = tensor(DType::F32, &[columns], |i| (i % 3) as f64);
            let epilogue = Some(Expression::binary(Binary::Multiply));
            let op = Op::Normalize(Normalize { axis: 1, epsilon: 1e-5, center, epilogue });
            let got: Vec<f32> = computed(op, &[input.clone(), scale], &[1, columns]);
            let want = naive(input.elements().expect("f32"), columns, 1e-5, center);
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let want = want * (i % 3) as f64;
                assert!((f64::from(*got) - want).abs() < 1e-5, "{columns}, {center} at {i}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn scale_and_bias_follow_the_outputs_shape() {
        // Instance norms: rows are channels of the image, and the scale is one number per channel. Layer norms: rows
        // are scaled alike. Group norms: rows hold several channels.
        for (dims, axis, scales) in [
            ([1, 2, 3, 4], 2, vec![2, 1, 1]),
            ([3, 40, 5, 8], 2, vec![40, 1, 1]),
            ([2, 5, 4, 4], 2, vec![5, 1, 1]),
            ([40, 2, 3, 8], 3, vec![8]),
            ([3, 4, 5, 6], 1, vec![4, 1, 1]),
            ([5, 1, 1, 600], 3, vec![600]),
            ([20, 1, 1, 33], 3, vec![33]),
            ([2, 3, 20, 20], 2, vec![3, 1, 1]),
        ] {
            let input = tensor(DType::F32, &dims, |i| (i * i % 23) as f64);
            let scale = |i: usize| (i % 7) as f64 - 3.0;
            let operand = tensor(DType::F32, &scales, scale);
            let epilogue = Some(Expression::binary(Binary::Multiply));
            let op = Op::Normalize(Normalize { axis, epsilon: 1e-3, center: true, epilogue });
            let got: Vec<f32> = computed(op, &[input.clone(), operand], &dims);
            let want = naive(input.elements().expect("f32"), dims[axis..].iter().product(), 1e-3, true);
            let inner = if scales.len() == 1 { 1 } else { dims[2] * dims[3] };
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let want = want * scale(i / inner % scales[0]);
                assert!((f64::from(*got) - want).abs() < 2e-4, "{dims:?} at {i}: {got} {want}");
            }
        }
    }
}
