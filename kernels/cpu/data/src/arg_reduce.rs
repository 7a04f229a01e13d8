//! Arg-reduce: the index of the greatest or least element along an axis.
//!
//! Elements are compared by their [keys](anabranch_cpu_base::order::with_keys). A line of consecutive elements is
//! searched in blocks: the greatest key of a block is found by vectors, and only the best block is looked at again.
//! Short lines, and lines side by side, are searched together, one index of the axis after the other. If they are not
//! side by side in the input, they are first copied so.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::order::{self, Key, Keyed, with_keys};
use anabranch_cpu_base::team::Grid;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{ArgReduce, NodeSpec};
use bytemuck::Pod;
use std::marker::PhantomData;

/// Elements of a line, or lines, that are searched at a time.
const BLOCK: usize = 64;

/// Longest line that is searched together with others.
const SHORT: usize = 32;

/// Least number of lines side by side that are searched one index after the other; fewer are searched several indices
/// at a time.
const TOGETHER: usize = 8;

/// Elements that are worth a part.
const PIECE: usize = 16 << 10;

/// Kernel that searches along one axis of `count` elements, which are `inner` elements apart.
struct ArgReduceKernel {
    op: ArgReduce,
    count: usize,
    inner: usize,
    dtype: DType,
}

/// Prepares a search.
pub(crate) fn prepare(node: &NodeSpec, op: &ArgReduce) -> Box<dyn CpuKernel> {
    let (dims, dtype) = (node.inputs[0].shape.dims(), node.inputs[0].dtype);
    let inner = dims[op.axis + 1..].iter().product();
    Box::new(ArgReduceKernel { op: op.clone(), count: dims[op.axis], inner, dtype })
}

impl CpuKernel for ArgReduceKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (source, target) = (call.inputs[0], elements_mut::<i64>(call.outputs[0]));
        if target.is_empty() {
            return Ok(());
        }
        let slice = self.count * self.inner;
        let bytes = slice * self.dtype.size();
        // A slice of many lines is cut between them, and short slices are joined.
        let tile_columns = (PIECE / self.count).next_multiple_of(BLOCK).max(BLOCK);
        if self.inner > tile_columns {
            let batch = target.len() / self.inner;
            let grid = Grid { batch, rows: 1, columns: self.inner, tile_rows: 1, tile_columns };
            call.team.run_tiles(target, grid, &|mut tile| {
                let (matrix, first) = (tile.matrix, tile.columns.start);
                let slices = &source[matrix * bytes..][..bytes];
                self.search(Lines { kernel: self, slices, first, width: tile.columns.len(), target: tile.row(0) });
            });
        } else {
            let slices = (PIECE / slice).max(1);
            call.team.run_pieces(target, slices * self.inner, &|at, target| {
                let slices = &source[at * slices * bytes..][..target.len() / self.inner * bytes];
                self.search(Lines { kernel: self, slices, first: 0, width: self.inner, target });
            });
        }
        Ok(())
    }
}

impl ArgReduceKernel {
    fn search(&self, lines: Lines<'_>) {
        with_keys(self.dtype, lines);
    }
}

/// Lines `first..first + width` of each of a few slices, and where their results go.
struct Lines<'a> {
    kernel: &'a ArgReduceKernel,
    slices: &'a [u8],
    first: usize,
    width: usize,
    target: &'a mut [i64],
}

impl Keyed for Lines<'_> {
    #[inline(always)]
    fn run<T: Pod, K: Key>(self, key: impl Fn(T) -> K + Copy) {
        let op = &self.kernel.op;
        // The search is for the greatest of these keys: the complements, if it is for the least element. NaN has the
        // greatest key in both searches. For a type without NaN, `nan` is 0, and is treated like other keys.
        let none = K::default();
        let flip = if op.greatest { none } else { !none };
        let (nan, of_nan) = order::of_nan(self.kernel.dtype).map_or((none, flip), |nan| (K::of(nan), !none));
        let ranked = move |element| {
            let key = key(element);
            if key == nan { of_nan } else { key ^ flip }
        };
        vectorised(Search(self, ranked, PhantomData));
    }
}

/// Search for the greatest key, the last one or the first.
struct Search<'a, T, K, F>(Lines<'a>, F, PhantomData<(T, K)>);

impl<T: Pod, K: Key, F: Fn(T) -> K + Copy> Loop for Search<'_, T, K, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self(Lines { kernel: &ArgReduceKernel { ref op, count, inner, .. }, slices, first, width, target }, key, _) =
            self;
        let last = op.last;
        if inner < TOGETHER && count <= SHORT {
            // Elements that are apart do not become vectors.
            let mut rows = [T::zeroed(); SHORT * BLOCK];
            let lines = BLOCK / inner * inner;
            let slices = elements::<T>(slices).chunks(lines * count);
            for (slices, target) in slices.zip(target.chunks_mut(lines)) {
                side_by_side([count, inner], slices, &mut rows);
                together(last, count, |at| &rows[at * BLOCK..], target, key);
            }
            return;
        }
        let slices = elements::<T>(slices).chunks_exact(count * inner);
        for (slice, target) in slices.zip(target.chunks_exact_mut(width)) {
            if inner == 1 {
                target[0] = along(last, slice, key) as i64;
            } else if inner < TOGETHER {
                narrow(last, slice, target, key);
            } else {
                for (block, target) in target.chunks_mut(BLOCK).enumerate() {
                    let lines = &slice[first + block * BLOCK..];
                    together(last, count, |at| &lines[at * inner..], target, key);
                }
            }
        }
    }
}

/// Copies the lines of a few slices so that each row has an index of all lines.
fn side_by_side<T: Pod>([count, inner]: [usize; 2], slices: &[T], rows: &mut [T; SHORT * BLOCK]) {
    match inner {
        1 => spread::<T, 1>(count, slices, rows),
        2 => spread::<T, 2>(count, slices, rows),
        3 => spread::<T, 3>(count, slices, rows),
        4 => spread::<T, 4>(count, slices, rows),
        5 => spread::<T, 5>(count, slices, rows),
        6 => spread::<T, 6>(count, slices, rows),
        _ => spread::<T, { TOGETHER - 1 }>(count, slices, rows),
    }
}

fn spread<T: Pod, const INNER: usize>(count: usize, slices: &[T], rows: &mut [T; SHORT * BLOCK]) {
    let slices = slices.as_chunks::<INNER>().0;
    for (at, row) in rows.chunks_exact_mut(BLOCK).take(count).enumerate() {
        let elements = slices[at..].iter().step_by(count);
        row.as_chunks_mut().0.iter_mut().zip(elements).for_each(|(to, elements)| *to = *elements);
    }
}

/// Returns whether a later key replaces the best one so far: also one that equals it, if the last one is searched for.
#[inline(always)]
fn better<K: Key>(last: bool, key: K, best: K) -> bool {
    (key > best) | (last & (key == best))
}

/// Searches consecutive elements.
#[inline(always)]
fn along<T: Pod, K: Key>(last: bool, line: &[T], key: impl Fn(T) -> K + Copy) -> usize {
    let (blocks, rest) = line.as_chunks::<BLOCK>();
    let (mut best, mut found) = (K::default(), 0);
    for (at, block) in blocks.iter().enumerate() {
        let greatest = greatest(&keys(block, key));
        if better(last, greatest, best) {
            (best, found) = (greatest, at * BLOCK);
        }
    }
    let mut block = blocks.get(found / BLOCK).map_or([K::default(); BLOCK], |block| keys(block, key));
    if !rest.is_empty() {
        // The least key fills the block: an element with this key comes before its copies.
        let mut end = [K::default(); BLOCK];
        end.iter_mut().zip(rest).for_each(|(to, element)| *to = key(*element));
        let greatest = greatest(&end);
        if better(last, greatest, best) {
            (best, found, block) = (greatest, line.len() - rest.len(), end);
        }
    }
    let fits = |at: usize| block[at] == best && found + at < line.len();
    let places = 0..BLOCK as u32;
    let place = match last {
        false => places.fold(u32::MAX, |first, at| first.min(if fits(at as usize) { at } else { u32::MAX })),
        true => places.fold(0, |last, at| last.max(if fits(at as usize) { at } else { 0 })),
    };
    found + place as usize
}

/// Returns the keys of a block.
#[inline(always)]
fn keys<T: Pod, K: Key>(block: &[T; BLOCK], key: impl Fn(T) -> K) -> [K; BLOCK] {
    let mut keys = [K::default(); BLOCK];
    keys.iter_mut().zip(block).for_each(|(to, element)| *to = key(*element));
    keys
}

/// Returns the greatest key of a block, from quarters of it, which are vectors.
#[inline(always)]
fn greatest<K: Key>(keys: &[K; BLOCK]) -> K {
    let mut lanes = [K::default(); BLOCK / 4];
    for part in keys.as_chunks::<{ BLOCK / 4 }>().0 {
        lanes.iter_mut().zip(part).for_each(|(lane, key)| *lane = (*lane).max(*key));
    }
    lanes.into_iter().fold(K::default(), Ord::max)
}

/// Searches all lines side by side, which are few: several rows at a time, as one wide row, and then its results.
#[inline(always)]
fn narrow<T: Pod, K: Key>(last: bool, slice: &[T], target: &mut [i64], key: impl Fn(T) -> K + Copy) {
    let width = target.len();
    let many = BLOCK / width;
    let (wide, rest) = slice.split_at(slice.len() / (many * width) * many * width);
    let (mut bests, mut places) = ([K::default(); BLOCK], [0; BLOCK]);
    let places = &mut places[..many * width];
    let count = wide.len() / places.len();
    search(last, count, |at| &wide[at * many * width..], &mut bests, places, key);
    for (line, target) in target.iter_mut().enumerate() {
        let (mut best, mut found) = (K::default(), 0);
        let of_wide = (0..many * usize::from(count > 0)).map(|row| {
            let lane = row * width + line;
            (bests[lane], places[lane] * many as i64 + row as i64)
        });
        let of_rest = rest[line.min(rest.len())..].iter().step_by(width).zip(count * many..);
        for (new, place) in of_wide.chain(of_rest.map(|(element, place)| (key(*element), place as i64))) {
            let beyond = if last { place > found } else { place < found };
            if new > best || new == best && beyond {
                (best, found) = (new, place);
            }
        }
        *target = found;
    }
}

/// Searches up to [`BLOCK`] lines of `count` elements; `row` returns one element of each line.
#[inline(always)]
fn together<'a, T: Pod, K: Key>(
    last: bool,
    count: usize,
    row: impl Fn(usize) -> &'a [T],
    target: &mut [i64],
    key: impl Fn(T) -> K,
) {
    target.fill(0);
    search(last, count, row, &mut [K::default(); BLOCK], target, key);
}

/// Searches like [`together`], from the least key at index 0 on, and returns the greatest keys, too.
#[inline(always)]
fn search<'a, T: Pod, K: Key>(
    last: bool,
    count: usize,
    row: impl Fn(usize) -> &'a [T],
    bests: &mut [K; BLOCK],
    target: &mut [i64],
    key: impl Fn(T) -> K,
) {
    for at in 0..count {
        for ((target, best), element) in target.iter_mut().zip(&mut *bests).zip(row(at)) {
            let key = key(*element);
            let better = better(last, key, *best);
            *best = if better { key } else { *best };
            *target = if better { at as i64 } else { *target };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run_all_ways, shape, tensor};
    use anabranch_op::op::{ArgReduce, Op};
    use anabranch_op::{DType, Tensor};

    fn found(values: &[f64], dims: &[usize], axis: usize, greatest: bool, last: bool, out: &[usize]) -> Vec<i64> {
        let mut all = Vec::new();
        for dtype in [DType::F32, DType::F64] {
            let input = tensor(dtype, dims, |i| values[i]);
            all.push(computed(Op::ArgReduce(ArgReduce { axis, greatest, last }), &[input], out));
        }
        assert_eq!(all[0], all[1]);
        all.remove(0)
    }

    #[test]
    fn the_first_or_last_extreme_is_found() {
        let values = [1.0, 5.0, 5.0, -2.0, 7.0, -2.0];
        assert_eq!(found(&values, &[2, 3], 1, true, false, &[2]), [1, 1]);
        assert_eq!(found(&values, &[2, 3], 1, true, true, &[2]), [2, 1]);
        assert_eq!(found(&values, &[2, 3], 1, false, false, &[2]), [0, 0]);
        assert_eq!(found(&values, &[2, 3], 1, false, true, &[2]), [0, 2]);
        assert_eq!(found(&values, &[2, 3], 0, true, false, &[3]), [0, 1, 0]);
        for greatest in [true, false] {
            assert_eq!(found(&[1.0, f64::NAN, 3.0], &[3], 0, greatest, false, &[1]), [1]);
            assert_eq!(found(&[0.0, -0.0], &[2], 0, greatest, true, &[1]), [1]);
        }
    }

    /// Compares searches along the middle axis with the definition.
    fn check_searches([outer, count, inner]: [usize; 3], dtypes: &[DType]) {
        // Each value is there several times.
        let value = |at: usize| (at * 37 % 61) as f64;
        let dims = [outer, count, inner];
        for dtype in dtypes {
            let inputs = [tensor(*dtype, &dims, value)];
            for (greatest, last) in [(true, false), (true, true), (false, false), (false, true)] {
                let op = Op::ArgReduce(ArgReduce { axis: 1, greatest, last });
                let got = run_all_ways(&node(op, &inputs, DType::I64, &[outer, inner]), &inputs).remove(0);
                for (at, got) in got.elements::<i64>().expect("indices").iter().enumerate() {
                    let line = |index: usize| value((at / inner * count + index) * inner + at % inner);
                    let best = (1..count).fold(0, |best, index| {
                        let (new, old) = (line(index), line(best));
                        let beyond = if greatest { new > old } else { new < old };
                        if beyond || last && new == old { index } else { best }
                    });
                    assert_eq!(*got, best as i64, "{dtype} {dims:?} {greatest} {last} at {at}");
                }
            }
        }
    }

    #[test]
    fn every_axis_length_and_type_is_searched() {
        let dtypes = [DType::F32, DType::F64, DType::F16, DType::I8, DType::U8, DType::I64, DType::U16];
        for outer in [1, 3, 200] {
            for count in [1, 2, 7, 32, 33, 64, 65, 200] {
                for inner in
                    [1, 2, 3, 4, 5, 6, 7, 8, 64, 100].into_iter().filter(|inner| outer * count * inner <= 100_000)
                {
                    check_searches([outer, count, inner], &dtypes);
                }
            }
        }
        // A slice of long lines is cut into blocks of them.
        check_searches([1, 16_500, 65], &dtypes[..1]);
    }

    #[test]
    fn the_first_nan_of_any_float_is_found() {
        let values = [1.0, f64::INFINITY, -0.0, f64::NEG_INFINITY, 0.0, 65504.0, 6e-8, -6e-8];
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for (greatest, last, want) in [(true, false, 1), (true, true, 1), (false, false, 3), (false, true, 3)] {
                let op = || Op::ArgReduce(ArgReduce { axis: 0, greatest, last });
                assert_eq!(computed::<i64>(op(), &[tensor(dtype, &[8], |i| values[i])], &[1]), [want], "{dtype}");
                let with_nan = tensor(dtype, &[100], |i| if i == 70 || i == 90 { f64::NAN } else { values[i % 8] });
                assert_eq!(computed::<i64>(op(), &[with_nan], &[1]), [if last { 90 } else { 70 }], "{dtype}");
            }
            let zeros = tensor(dtype, &[4], |i| if i % 2 == 0 { 0.0 } else { -0.0 });
            let op = Op::ArgReduce(ArgReduce { axis: 0, greatest: true, last: true });
            assert_eq!(computed::<i64>(op, &[zeros], &[1]), [3], "{dtype}");
        }
    }

    #[test]
    fn integers_of_64_bits_are_told_apart() {
        let index = |input: Tensor, greatest| {
            computed::<i64>(Op::ArgReduce(ArgReduce { axis: 0, greatest, last: false }), &[input], &[1])[0]
        };
        let signed = || Tensor::from_i64s(&[1 << 60, i64::MIN + 1, (1 << 60) + 1, i64::MIN]);
        assert_eq!([index(signed(), true), index(signed(), false)], [2, 3]);
        let unsigned = || Tensor::from_elements(shape(&[3]), &[1, u64::MAX, u64::MAX - 1]).expect("three");
        assert_eq!([index(unsigned(), true), index(unsigned(), false)], [1, 0]);
    }
}
