//! Reductions over axes.
//!
//! Outputs whose elements lie side by side in the input are computed together, row by row of the input; all other
//! outputs one by one, each along its own elements. If the elements of an output are rows in several planes, the planes
//! are first folded into one, and then its rows. If there are few outputs, the elements of each are cut into parts
//! that threads share. If these parts are consecutive in the input, it can be taken window by window (see `stream`).
//! The shapes determine all cuts, and partial results are joined in a fixed tree.

mod stream;

pub use stream::{Piece, Streamed, close, cut, scratch_bytes};

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::number::{Number, SHORT};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Reduce, ReduceKind};
use anabranch_op::shape::merged;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements read that are worth a hand-over to another thread.
const PIECE: usize = 16_384;
/// Number of outputs, or of blocks of [`COLUMNS`] outputs, below which threads could be idle. The elements of each
/// output are then cut into parts.
const FEW: usize = 16;
/// Maximum number of parts: enough to keep a large machine busy.
const MOST_PARTS: usize = 64;
/// Elements of a part of an input that is taken window by window, if there are few outputs.
const PART: usize = 4096;
/// Minimum elements of such a part for each output, so that folds are few compared with elements.
const PART_PER_OUTPUT: usize = 64;
/// Maximum pieces of several parts into which such an input is cut between threads.
const MOST_PIECES: usize = 256;
/// Elements that are gathered before they are folded.
const GATHERED: usize = 1024;
/// Number of outputs that are computed together.
const COLUMNS: usize = 256;
/// Number of short rows that are computed together.
const TOGETHER: usize = 64;
/// Maximum outputs side by side of which several rows are folded at a time.
const NARROW: usize = 16;
/// Rows that are accumulated one after the other, before results are joined in a tree.
const ROWS: usize = 64;

/// Kernel of a reduction of numbers of one type.
struct ReduceKernel<T> {
    kind: ReduceKind,
    /// For each kept axis, then for each reduced axis: size and stride in elements.
    kept: Vec<(usize, usize)>,
    reduced: Vec<(usize, usize)>,
    /// Elements of each output.
    count: usize,
    /// Elements of each part of an output, except the last.
    part: usize,
    outputs: usize,
    /// Whether parts are consecutive in the input.
    streamed: bool,
    number: PhantomData<T>,
}

/// Prepares a reduction. Reductions with [`NodeSpec::accumulated_rows`] can take their input window by window.
pub fn prepare(node: &NodeSpec, op: &Reduce) -> Result<Box<dyn Streamed>, KernelError> {
    Ok(match node.inputs[0].dtype {
        DType::F64 => Box::new(ReduceKernel::<f64>::new(node, op)?),
        DType::I32 => Box::new(ReduceKernel::<i32>::new(node, op)?),
        DType::I64 => Box::new(ReduceKernel::<i64>::new(node, op)?),
        DType::U64 => Box::new(ReduceKernel::<u64>::new(node, op)?),
        _ => Box::new(ReduceKernel::<f32>::new(node, op)?),
    })
}

/// Returns a key of the order of all folds, see `summation` of the crate.
pub(crate) fn summation(node: &NodeSpec, op: &Reduce) -> Option<Vec<usize>> {
    Some(match node.inputs[0].dtype {
        DType::F64 => ReduceKernel::<f64>::new(node, op).ok()?.summation(),
        DType::F32 => ReduceKernel::<f32>::new(node, op).ok()?.summation(),
        _ => Vec::new(),
    })
}

fn size(axes: &[(usize, usize)]) -> usize {
    axes.iter().map(|(size, _)| size).product()
}

/// Returns the element offset of an index over these axes.
fn offset(axes: &[(usize, usize)], mut index: usize) -> usize {
    let mut offset = 0;
    for (size, stride) in axes.iter().rev() {
        offset += index % size * stride;
        index /= size;
    }
    offset
}

impl<T: Number> ReduceKernel<T> {
    fn new(node: &NodeSpec, op: &Reduce) -> Result<Self, KernelError> {
        let input = &node.inputs[0];
        if input.dtype != T::DTYPE {
            return Err(node.unsupported(format!("there is no reduction of {}", input.dtype)));
        }
        let dims = input.shape.dims();
        let strides = input.shape.strides();
        let axes = |reduced: bool| {
            let chosen = (0..dims.len()).filter(|axis| op.axes.contains(axis) == reduced);
            merged(chosen.map(|axis| (dims[axis], strides[axis])), |outer, inner, size| *outer == inner * size)
        };
        let (kept, reduced) = (axes(false), axes(true));
        let (count, outputs) = (size(&reduced), size(&kept));
        let streamed = node.accumulated_rows().is_some();
        let mut kernel =
            Self { kind: op.kind, kept, reduced, count, part: count, outputs, streamed, number: PhantomData };
        kernel.part = kernel.part_length();
        Ok(kernel)
    }

    /// Returns the parts of each output, the method that folds them, and the axes along which elements are taken.
    fn summation(&self) -> Vec<usize> {
        let width = self.width();
        let method = match width {
            _ if self.has_short_rows() => [0, 0],
            _ if self.part == self.count && self.row_of_planes().is_some() => [4, 0],
            1 => [1, 0],
            _ if self.is_narrow() => [2, width],
            _ => [3, 0],
        };
        let run = self.reduced.last().is_some_and(|(_, stride)| *stride == 1);
        let sizes = self.reduced.iter().map(|(size, _)| *size);
        [self.part, usize::from(self.streamed), usize::from(run)].into_iter().chain(method).chain(sizes).collect()
    }

    /// Returns the elements of each output in a part, a function of the shapes alone.
    fn part_length(&self) -> usize {
        let Self { count, outputs, .. } = *self;
        if count == 0 || outputs == 0 {
            return count;
        }
        if self.streamed {
            let row = self.row();
            return (PART.max(PART_PER_OUTPUT * outputs).div_ceil(row * outputs) * row).min(count);
        }
        let blocks = outputs.div_ceil(self.width().min(COLUMNS)).max(1);
        if blocks >= FEW || !T::joins(self.kind) {
            return count;
        }
        let parts = (count.saturating_mul(outputs) / PIECE).min(MOST_PARTS / blocks).clamp(1, count.max(1));
        count.div_ceil(parts)
    }

    /// Returns the elements of each output at one index of the outermost reduced axis.
    fn row(&self) -> usize {
        self.reduced.first().map_or(1, |(size, _)| self.count / size)
    }

    fn parts(&self) -> usize {
        self.count.div_ceil(self.part.max(1)).max(1)
    }

    /// Returns the number of outputs that lie side by side in the input as they do in the output; 1 if none do.
    fn width(&self) -> usize {
        match self.kept.last() {
            Some((size, 1)) if T::folds_rows(self.kind) => *size,
            _ => 1,
        }
    }

    /// Returns the elements of part `part` of each output.
    fn part(&self, part: usize) -> Range<usize> {
        part * self.part..self.count.min((part + 1) * self.part)
    }

    /// Whether outputs are few neighbours, and their rows are consecutive in the input.
    fn is_narrow(&self) -> bool {
        let width = self.width();
        T::joins(self.kind) && width <= NARROW && self.reduced == [(self.count, width)]
    }

    /// Whether each output is of a row, and the rows are consecutive in the input.
    fn has_rows(&self) -> bool {
        self.reduced == [(self.count, 1)] && self.kept == [(self.outputs, self.count)]
    }

    /// Whether these rows are of few elements.
    fn has_short_rows(&self) -> bool {
        T::folds_rows(self.kind) && self.count <= T::short(self.kind) && self.has_rows()
    }

    /// Returns the elements of a row, if each output is of one row in each of several planes, and rows of neighbouring
    /// outputs are neighbours. `None` if rows are longer than the memory for a folded plane.
    fn row_of_planes(&self) -> Option<usize> {
        match (&self.kept[..], &self.reduced[..]) {
            ([.., (_, stride)], [_, .., (row, 1)]) if T::joins(self.kind) && stride == row && *row <= COLUMNS => {
                Some(*row)
            }
            _ => None,
        }
    }

    /// Folds the planes of the outputs from `first` on into one, and then its rows of `row` elements.
    fn fold_planes(&self, source: &[T], first: usize, row: usize, target: &mut [T]) {
        let (planes, _) = self.reduced.split_at(self.reduced.len() - 1);
        let neighbours = self.kept.last().map_or(1, |(size, _)| *size);
        // Rows of folds are folded by the function that joins folds.
        let kind = match self.kind {
            ReduceKind::Mean | ReduceKind::SumOfSquares | ReduceKind::SumOfMagnitudes => ReduceKind::Sum,
            kind => kind,
        };
        let mut plane = [T::zeroed(); COLUMNS];
        let mut at = 0;
        while at < target.len() {
            let output = first + at;
            let count = (neighbours - output % neighbours).min(target.len() - at).min(COLUMNS / row);
            let (plane, target) = (&mut plane[..count * row], &mut target[at..at + count]);
            self.across(&source[offset(&self.kept, output)..], planes, 0..size(planes), plane);
            match row <= T::short(kind) {
                true => fold_short(kind, row, plane, target),
                false => T::fold_each(kind, plane, target),
            }
            at += count;
        }
    }

    /// Folds the elements `range` of the outputs from `first` on into `target`.
    fn fold_outputs(&self, source: &[T], first: usize, range: Range<usize>, target: &mut [T]) {
        if self.has_short_rows() && range == (0..self.count) {
            let rows = &source[first * self.count..][..target.len() * self.count];
            return fold_short(self.kind, self.count, rows, target);
        }
        if self.has_rows() && range == (0..self.count) {
            return T::fold_each(self.kind, &source[first * self.count..][..target.len() * self.count], target);
        }
        if let Some(row) = self.row_of_planes().filter(|_| range == (0..self.count)) {
            return self.fold_planes(source, first, row, target);
        }
        let (width, mut at) = (self.width(), 0);
        while at < target.len() {
            let output = first + at;
            let start = offset(&self.kept, output);
            let run = (width - output % width).min(target.len() - at).min(COLUMNS);
            if width == 1 {
                target[at] = self.along(&source[start..], range.clone());
            } else if run == width && self.is_narrow() {
                let rows = &source[start..][range.start * width..range.end * width];
                self.narrow(rows, &mut target[at..at + run]);
            } else {
                self.across(&source[start..], &self.reduced, range.clone(), &mut target[at..at + run]);
            }
            at += run;
        }
    }

    /// Folds consecutive rows of a few neighbouring outputs: several rows at a time, as one wide row, and then the
    /// parts of its result.
    fn narrow(&self, rows: &[T], target: &mut [T]) {
        let width = target.len();
        let (many, count) = (TOGETHER / width, rows.len() / width);
        if count > ROWS * many {
            let middle = count / 2 / many * many * width;
            let mut upper = [T::zeroed(); NARROW];
            self.narrow(&rows[..middle], target);
            self.narrow(&rows[middle..], &mut upper[..width]);
            return self.join_all(target, &upper[..width]);
        }
        let (wide, rest) = rows.split_at(count / many * many * width);
        T::fold_rows(self.kind, rest, (0..rest.len()).step_by(width), target);
        let mut parts = [T::zeroed(); TOGETHER];
        let parts = &mut parts[..many * width];
        if !wide.is_empty() {
            T::fold_rows(self.kind, wide, (0..wide.len()).step_by(many * width), parts);
            parts.chunks_exact(width).for_each(|part| self.join_all(target, part));
        }
    }

    /// Joins results with others of the same outputs.
    fn join_all(&self, results: &mut [T], others: &[T]) {
        results.iter_mut().zip(others).for_each(|(result, other)| *result = T::join(self.kind, *result, *other));
    }

    /// Folds one output's elements `range`; the first is at the start of `source`.
    fn along(&self, source: &[T], range: Range<usize>) -> T {
        let run = self.reduced.last().map_or(1, |(size, stride)| if *stride == 1 { *size } else { 1 });
        let [first, last] = [range.start / run, range.end.saturating_sub(1) / run];
        if first == last {
            let start = offset(&self.reduced, range.start);
            return T::fold(self.kind, &source[start..start + range.len()]);
        }
        if !T::joins(self.kind) {
            let elements: Vec<T> = range.map(|index| source[offset(&self.reduced, index)]).collect();
            return T::fold(self.kind, &elements);
        }
        if range.len() <= GATHERED {
            let mut gathered = [T::zeroed(); GATHERED];
            let elements = &mut gathered[..range.len()];
            self.gather(source, range, elements);
            return T::fold(self.kind, elements);
        }
        let middle = first.midpoint(last + 1) * run;
        T::join(self.kind, self.along(source, range.start..middle), self.along(source, middle..range.end))
    }

    /// Copies an output's elements `range`: consecutive elements along the innermost reduced axis together, as an
    /// offset takes divisions.
    fn gather(&self, source: &[T], range: Range<usize>, to: &mut [T]) {
        let (run, stride) = self.reduced.last().copied().unwrap_or((1, 1));
        let (mut index, mut rest) = (range.start, to);
        while index < range.end {
            let count = (run - index % run).min(range.end - index);
            let (here, later) = rest.split_at_mut(count);
            let from = source[offset(&self.reduced, index)..].iter().step_by(stride);
            here.iter_mut().zip(from).for_each(|(to, element)| *to = *element);
            (index, rest) = (index + count, later);
        }
    }

    /// Folds the elements `range` over these axes of neighbouring outputs, at most [`COLUMNS`].
    fn across(&self, source: &[T], axes: &[(usize, usize)], range: Range<usize>, target: &mut [T]) {
        if range.len() <= ROWS || !T::joins(self.kind) {
            T::fold_rows(self.kind, source, range.map(|index| offset(axes, index)), target);
            return;
        }
        let middle = range.start.midpoint(range.end);
        self.across(source, axes, range.start..middle, target);
        let mut upper = [T::zeroed(); COLUMNS];
        let upper = &mut upper[..target.len()];
        self.across(source, axes, middle..range.end, upper);
        self.join_all(target, upper);
    }

    /// Joins the parts of these outputs pairwise, into the first part, and writes the results.
    fn close(&self, parts: &mut [T], target: &mut [T]) {
        self.join_parts(parts, target.len());
        let results = target.iter_mut().zip(&*parts);
        results.for_each(|(to, folded)| *to = T::finish(self.kind, *folded, self.count));
    }

    /// Joins parts of `outputs` results each. A call for some of the rows has fewer outputs than the node.
    fn join_parts(&self, parts: &mut [T], outputs: usize) {
        let count = parts.len() / outputs;
        if count > 1 {
            let (low, high) = parts.split_at_mut(count / 2 * outputs);
            self.join_parts(low, outputs);
            self.join_parts(high, outputs);
            self.join_all(&mut low[..outputs], &high[..outputs]);
        }
    }
}

/// Folds short rows of `count` elements: their first elements, then their second ones, ….
fn fold_short<T: Number>(kind: ReduceKind, count: usize, source: &[T], target: &mut [T]) {
    // Less memory is cleared for few rows. How many rows are folded together changes no result.
    if target.len() <= TOGETHER / 8 {
        return fold_columns(kind, count, &mut [T::zeroed(); SHORT * TOGETHER / 8], source, target);
    }
    fold_columns(kind, count, &mut [T::zeroed(); SHORT * TOGETHER], source, target);
}

/// Folds short rows, with memory for the elements of many.
fn fold_columns<T: Number>(kind: ReduceKind, count: usize, columns: &mut [T], source: &[T], target: &mut [T]) {
    let together = columns.len() / SHORT;
    for (rows, target) in source.chunks(together * count).zip(target.chunks_mut(together)) {
        for (at, column) in columns.chunks_exact_mut(together).take(count).enumerate() {
            let elements = rows[at..].iter().step_by(count);
            column.iter_mut().zip(elements).for_each(|(to, element)| *to = *element);
        }
        T::fold_rows(kind, columns, (0..count).map(|at| at * together), target);
    }
}

impl<T: Number> Streamed for ReduceKernel<T> {
    fn part_bytes(&self) -> usize {
        self.part * self.outputs * size_of::<T>()
    }

    fn input_bytes(&self) -> usize {
        self.count * self.outputs * size_of::<T>()
    }

    fn fold_bytes(&self) -> usize {
        self.outputs * size_of::<T>()
    }

    fn fold(&self, parts: &[u8], folds: &mut [u8]) {
        let (source, target): (&[T], &mut [T]) = (elements(parts), elements_mut(folds));
        let folds = target.chunks_exact_mut(self.outputs);
        for (part, fold) in source.chunks(self.part * self.outputs).zip(folds) {
            self.fold_outputs(part, 0, 0..part.len() / self.outputs, fold);
        }
    }

    fn finish(&self, folds: &mut [u8], output: &mut [u8]) {
        self.close(elements_mut(&mut folds[..self.parts() * self.fold_bytes()]), elements_mut(output));
    }
}

impl<T: Number> CpuKernel for ReduceKernel<T> {
    fn scratch_bytes(&self) -> usize {
        match self.parts() {
            1 => 0,
            _ if self.streamed => scratch_bytes(self, 0),
            parts => parts * self.outputs * size_of::<T>(),
        }
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let output = &mut *call.outputs[0];
        if self.streamed && self.parts() > 1 {
            // Pieces of whole parts, as many as a large machine can use.
            let piece = (PIECE / self.part).max(self.parts().div_ceil(MOST_PIECES));
            stream::take_all(self, call.inputs[0], piece, call.scratch, output, call.team);
            return Ok(());
        }
        let source: &[T] = elements(call.inputs[0]);
        let target: &mut [T] = elements_mut(output);
        let outputs = target.len();
        if outputs == 0 {
            return Ok(());
        }
        if self.count == 0 {
            target.fill(T::finish(self.kind, T::fold(self.kind, &[]), 0));
            return Ok(());
        }
        if self.parts() == 1 {
            let piece = (PIECE / self.count).max(1).next_multiple_of(self.width().min(COLUMNS));
            call.team.run_pieces(target, piece, &|index, target| {
                self.fold_outputs(source, index * piece, 0..self.count, target);
                target.iter_mut().for_each(|value| *value = T::finish(self.kind, *value, self.count));
            });
            return Ok(());
        }
        let partial: &mut [T] = elements_mut(&mut call.scratch[..self.parts() * outputs * size_of::<T>()]);
        call.team.run_pieces(partial, outputs, &|part, partial| self.fold_outputs(source, 0, self.part(part), partial));
        self.close(partial, target);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{node, numbers, run_all_ways, shape, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Op, Reduce, ReduceKind};

    fn reduced(dtype: DType, kind: ReduceKind, dims: &[usize], axes: &[usize]) -> Vec<f64> {
        let input = tensor(dtype, dims, |i| ((i * 7) % 5) as f64 - 1.0);
        let kept: Vec<_> = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
        let inputs = [input];
        let node = node(Op::Reduce(Reduce { kind, axes: axes.to_vec() }), &inputs, dtype, &kept);
        numbers(&run_all_ways(&node, &inputs)[0])
    }

    /// Computes the definition.
    fn naive(kind: ReduceKind, dims: &[usize], axes: &[usize]) -> Vec<f64> {
        let strides = shape(dims).strides();
        let kept: Vec<_> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
        let size = |axes: &[usize]| axes.iter().map(|axis| dims[*axis]).product::<usize>();
        let place = |axes: &[usize], mut index: usize| {
            axes.iter().rev().fold(0, |sum, axis| {
                let here = index % dims[*axis] * strides[*axis];
                index /= dims[*axis];
                sum + here
            })
        };
        let value = |flat: usize| ((flat * 7) % 5) as f64 - 1.0;
        (0..size(&kept))
            .map(|k| {
                let values: Vec<f64> = (0..size(axes)).map(|r| value(place(&kept, k) + place(axes, r))).collect();
                let sum = |f: fn(f64) -> f64| values.iter().map(|v| f(*v)).sum::<f64>();
                match kind {
                    ReduceKind::Sum => sum(|v| v),
                    ReduceKind::Mean => sum(|v| v) / values.len() as f64,
                    ReduceKind::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    ReduceKind::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
                    ReduceKind::Product => values.iter().product(),
                    ReduceKind::SumOfSquares => sum(|v| v * v),
                    ReduceKind::SumOfMagnitudes => sum(f64::abs),
                    ReduceKind::LogSumExp => sum(f64::exp).ln(),
                }
            })
            .collect()
    }

    #[test]
    fn every_kind_over_any_axes() {
        use ReduceKind::{LogSumExp, Max, Mean, Min, Product, Sum, SumOfMagnitudes, SumOfSquares};
        for (dims, axes) in [
            (vec![3, 4], vec![1]),
            (vec![3, 4], vec![0]),
            (vec![2, 3, 4, 5], vec![2, 3]),
            (vec![2, 3, 4, 5], vec![1]),
            (vec![2, 3, 4, 5], vec![0, 2]),
            (vec![2, 1, 3], vec![0, 1, 2]),
            (vec![40_000], vec![0]),
            (vec![5_000, 8], vec![0]),
            (vec![3, 300, 70], vec![1]),
            (vec![70, 700], vec![0]),
            (vec![30, 5_000], vec![0]),
            (vec![30, 3, 2_000], vec![0, 2]),
            (vec![2_000, 9, 3], vec![0, 2]),
            (vec![3], vec![]),
            (vec![200, 2], vec![1]),
            (vec![7, 31, 3], vec![2]),
            (vec![129, 16], vec![1]),
            (vec![65, 17], vec![1]),
            (vec![7, 5, 3], vec![1]),
            (vec![40, 49], vec![1]),
            (vec![33, 30], vec![1]),
            (vec![21, 64], vec![1]),
            (vec![4, 9, 3, 5], vec![0, 2, 3]),
            (vec![7, 105, 5, 16], vec![0, 3]),
            (vec![3, 40, 17], vec![0, 2]),
            (vec![90, 20, 31], vec![0, 2]),
            (vec![3, 20, 33], vec![0, 2]),
            (vec![2, 20, 256], vec![0, 2]),
            (vec![2, 20, 257], vec![0, 2]),
            (vec![3, 300], vec![0]),
            (vec![3, 2, 70, 5], vec![0, 1, 3]),
            (vec![2, 3, 4, 5, 6], vec![1, 3, 4]),
            (vec![2, 1000, 4], vec![1]),
            (vec![3, 9000, 2], vec![1]),
            (vec![20, 333, 16], vec![1]),
        ] {
            for kind in [Sum, Mean, Max, Min, SumOfSquares, SumOfMagnitudes, LogSumExp, Product] {
                for dtype in [DType::F32, DType::F64, DType::I32, DType::I64] {
                    let is_float = dtype.is_float();
                    if kind == Product && dims.iter().product::<usize>() > 1000 {
                        continue;
                    }
                    let (got, mut want) = (reduced(dtype, kind, &dims, &axes), naive(kind, &dims, &axes));
                    if !is_float {
                        want.iter_mut().for_each(|want| *want = want.trunc());
                    }
                    assert_eq!(got.len(), want.len());
                    let close = |g: f64, w: f64| (g - w).abs() <= 1e-5 * w.abs().max(1.0);
                    assert!(got.iter().zip(&want).all(|(g, w)| close(*g, *w)), "{kind:?} {dtype} {dims:?} {axes:?}");
                }
            }
        }
    }

    /// The elements are spread around 1, so that their product is neither 0 nor infinite, and its roundings are biased.
    #[test]
    fn long_rows_are_close_to_exact() {
        use ReduceKind::{LogSumExp, Mean, Product, Sum, SumOfMagnitudes, SumOfSquares};
        let count = 960_120;
        let half = 1.0 / f64::from(count as u32).sqrt();
        let factor = |i: usize| 1.0 + half * (((i * 7919) % 10_007) as f64 / 5_003.0 - 1.0);
        for dims in [vec![count], vec![count / 8, 8], vec![count / 100, 100]] {
            let input = [tensor(DType::F32, &dims, factor)];
            let rows = input[0].elements::<f32>().expect("f32");
            let width = if dims.len() == 1 { 1 } else { dims[1] };
            for kind in [Product, Sum, Mean, SumOfSquares, SumOfMagnitudes, LogSumExp] {
                // Columns are multiplied in 32 bits.
                if kind == Product && width > 1 {
                    continue;
                }
                let op = Op::Reduce(Reduce { kind, axes: vec![0] });
                let got = numbers(&run_all_ways(&node(op, &input, DType::F32, &dims[1..]), &input)[0]);
                for (column, got) in got.into_iter().enumerate() {
                    let values = rows[column..].iter().step_by(width).map(|x| f64::from(*x));
                    let want = match kind {
                        Product => values.product(),
                        SumOfSquares => values.map(|x| x * x).sum(),
                        LogSumExp => values.map(f64::exp).sum::<f64>().ln(),
                        Mean => values.sum::<f64>() / (count / width) as f64,
                        _ => values.sum::<f64>(),
                    };
                    let error = (got - want).abs() / want.abs();
                    assert!(error < 1e-6, "{kind:?} of {dims:?}, column {column}: {got}, not {want}");
                }
            }
        }
    }
}
