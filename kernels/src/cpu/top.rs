//! Top-k: the greatest or least elements along an axis, in order, with their indices.
//!
//! Short rows are parts of a run of the team. A long row is cut into parts, each of which finds its own first elements; the first of
//! all are among these. An index makes every pair of key and index another, so the order is one whatever the algorithm does.

use super::elements::{elements, elements_mut};
use super::sorted::{Ranked, sort};
use super::team::{Grid, with_workspace};
use super::vector::{Isa, Loop, vectorised};
use super::{Call, CpuKernel, Team, order};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::{NodeSpec, TopK};
use bytemuck::Pod;
use std::ops::Range;

/// Elements of a part, at least. Few in tests, so that short rows have parts.
const PART: usize = if cfg!(test) { 1 << 5 } else { 1 << 16 };

/// Elements that are compared with a bound before any is looked at by itself.
const BLOCK: usize = if cfg!(test) { 4 } else { 64 };

/// Candidates of a part beyond those that are kept, at least: they are thinned out when there are so many.
const BEYOND: usize = 4 * BLOCK;

/// Selects along one axis of `count` elements the first `kept` in order.
struct TopKernel {
    largest: bool,
    count: usize,
    kept: usize,
    inner: usize,
    dtype: DType,
}

/// Prepares a selection.
pub(crate) fn prepare(node: &NodeSpec, op: &TopK) -> Box<dyn CpuKernel> {
    let (dims, dtype) = (node.inputs[0].shape.dims(), node.inputs[0].dtype);
    let inner = dims[op.axis + 1..].iter().product();
    let kept = node.outputs[0].shape.dims()[op.axis];
    Box::new(TopKernel { largest: op.largest, count: dims[op.axis], kept, inner, dtype })
}

impl TopKernel {
    /// Whether a key and an index fit into one word.
    fn is_narrow(&self) -> bool {
        self.dtype.size() <= 4 && u32::try_from(self.count).is_ok()
    }

    /// Whether rows are cut into parts.
    fn is_long(&self) -> bool {
        self.count > PART
    }

    /// Whether so many elements are kept that all are sorted.
    fn sorts_all(&self) -> bool {
        self.kept.saturating_mul(4) > self.count
    }

    /// Elements of a part of a long row, and the number of its candidates.
    fn part(&self) -> (usize, usize) {
        (PART.max(self.kept.saturating_mul(64)), self.kept + self.kept.max(BEYOND))
    }

    /// Pairs in the scratch memory.
    fn scratch_pairs(&self) -> usize {
        let (part, candidates) = self.part();
        match (self.is_long(), self.sorts_all()) {
            (false, _) => 0,
            (true, true) => 2 * self.count,
            (true, false) => self.count.div_ceil(part) * candidates,
        }
    }

    /// Writes the pairs of a row from `start` on. Row `group` begins at element `group / inner · count · inner + group % inner`.
    #[inline(always)]
    fn pairs<R: Ranked>(&self, source: &[u8], group: usize, start: usize, to: &mut [R]) {
        let size = self.dtype.size();
        let ordered = |key: u64| if self.largest { !key & R::LAST.key() } else { key };
        if self.inner == 1 {
            let row = &source[(group * self.count + start) * size..][..to.len() * size];
            return order::keys(self.dtype, row, to, |at, key| R::new(ordered(key), start + at));
        }
        let first = group / self.inner * self.count * self.inner + group % self.inner;
        for (index, to) in (start..).zip(to) {
            let element = &source[(first + index * self.inner) * size..][..size];
            *to = R::new(ordered(order::key(self.dtype, element)), index);
        }
    }

    fn select<R: Ranked>(&self, call: Call<'_>) {
        let (source, team) = (call.inputs[0], call.team);
        let [values, indices] = call.outputs else { unreachable!("two outputs, as was checked") };
        let indices = elements_mut::<i64>(indices);
        if indices.is_empty() {
            return;
        }
        if self.is_long() {
            let scratch = elements_mut::<R>(&mut call.scratch[..self.scratch_pairs() * size_of::<R>()]);
            for group in 0..indices.len() / self.kept {
                let first = self.first_of_long::<R>(team, source, group, scratch);
                let start = group / self.inner * self.kept * self.inner + group % self.inner;
                let places = indices[start..].iter_mut().step_by(self.inner);
                places.zip(first).for_each(|(place, pair)| *place = pair.position() as i64);
            }
        } else {
            self.select_short::<R>(team, source, indices);
        }
        match self.dtype.size() {
            1 => self.pick::<u8>(team, source, indices, values),
            2 => self.pick::<u16>(team, source, indices, values),
            4 => self.pick::<u32>(team, source, indices, values),
            _ => self.pick::<u64>(team, source, indices, values),
        }
    }

    /// Selects in rows that are not cut.
    fn select_short<R: Ranked>(&self, team: &Team, source: &[u8], indices: &mut [i64]) {
        let (kept, inner, groups) = (self.kept, self.inner, indices.len() / self.kept);
        let together = PART / self.count;
        let matrix = Grid { batch: 1, rows: groups, columns: kept, tile_rows: together, tile_columns: kept };
        let stack = Grid { batch: groups / inner, rows: kept, columns: inner, tile_rows: kept, tile_columns: together };
        let floats = self.count * size_of::<R>() / size_of::<f32>();
        team.run_tiles(indices, if inner == 1 { matrix } else { stack }, &|mut tile| {
            with_workspace(floats, |workspace| {
                let pairs: &mut [R] = bytemuck::cast_slice_mut(workspace);
                if inner == 1 {
                    for (row, group) in tile.rows.clone().enumerate() {
                        let first = self.first_of_short(source, group, pairs);
                        let places = tile.row(row).iter_mut().zip(first);
                        places.for_each(|(place, pair)| *place = pair.position() as i64);
                    }
                    return;
                }
                for (at, column) in tile.columns.clone().enumerate() {
                    let first = self.first_of_short(source, tile.matrix * inner + column, pairs);
                    for (row, pair) in first.iter().enumerate() {
                        tile.row(row)[at] = pair.position() as i64;
                    }
                }
            });
        });
    }

    /// The first pairs of a row, in order.
    fn first_of_short<'p, R: Ranked>(&self, source: &[u8], group: usize, pairs: &'p mut [R]) -> &'p [R] {
        self.pairs(source, group, 0, pairs);
        if self.kept < self.count {
            pairs.select_nth_unstable(self.kept - 1);
        }
        pairs[..self.kept].sort_unstable();
        &pairs[..self.kept]
    }

    /// The first pairs of a row that is cut into parts, in order.
    fn first_of_long<'p, R: Ranked>(&self, team: &Team, source: &[u8], group: usize, scratch: &'p mut [R]) -> &'p [R] {
        let (part, candidates) = self.part();
        if self.sorts_all() {
            let (pairs, spare) = scratch.split_at_mut(self.count);
            team.run_pieces(pairs, PART, &|index, piece| self.pairs(source, group, index * PART, piece));
            sort(team, pairs, spare, PART, R::cmp);
            return &pairs[..self.kept];
        }
        team.run_pieces(scratch, candidates, &|index, piece| {
            let range = index * part..self.count.min((index + 1) * part);
            self.first_of_part(source, group, range, piece);
        });
        let parts = scratch.len() / candidates;
        (1..parts).for_each(|index| {
            scratch.copy_within(index * candidates..index * candidates + self.kept, index * self.kept)
        });
        let (pairs, spare) = scratch.split_at_mut(parts * self.kept);
        pairs.select_nth_unstable(self.kept - 1);
        sort(team, &mut pairs[..self.kept], &mut spare[..self.kept], PART, R::cmp);
        &pairs[..self.kept]
    }

    /// Leaves the first pairs of a part at the front of `piece`, in any order; if there are fewer, the greatest follow.
    fn first_of_part<R: Ranked>(&self, source: &[u8], group: usize, range: Range<usize>, piece: &mut [R]) {
        let (last, mut filled, mut bound) = (self.kept - 1, 0, R::LAST);
        let mut block = [R::LAST; BLOCK];
        for start in range.clone().step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(range.end - start)];
            if !vectorised(Look { kernel: self, source, group, start, count: block.len(), bound }) {
                continue;
            }
            self.pairs(source, group, start, block);
            for pair in block.iter().filter(|pair| **pair < bound) {
                piece[filled] = *pair;
                filled += 1;
            }
            // A block always finds room.
            if filled + BLOCK > piece.len() {
                bound = *piece[..filled].select_nth_unstable(last).1;
                filled = self.kept;
            }
        }
        match piece[..filled].get(self.kept) {
            Some(_) => _ = piece[..filled].select_nth_unstable(last),
            None => piece[filled..self.kept].fill(R::LAST),
        }
    }

    /// Copies the selected elements.
    fn pick<T: Pod + Send + Sync>(&self, team: &Team, source: &[u8], indices: &[i64], values: &mut [u8]) {
        let (source, row) = (elements::<T>(source), self.kept * self.inner);
        team.run_pieces(elements_mut::<T>(values), PART, &|piece, values| {
            for (at, value) in (piece * PART..).zip(values) {
                // After an interruption an index may be of no element.
                let index = (at / row * self.count).wrapping_add(indices[at] as usize);
                let from = index.wrapping_mul(self.inner).wrapping_add(at % self.inner);
                source.get(from).into_iter().for_each(|element| *value = *element);
            }
        });
    }
}

/// Whether a block of a row may have a pair below a bound. Keys of one row that stand side by side and have 32 bits are compared.
struct Look<'a, R> {
    kernel: &'a TopKernel,
    source: &'a [u8],
    group: usize,
    start: usize,
    count: usize,
    bound: R,
}

impl<R: Ranked> Loop for Look<'_, R> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let Self { kernel, source, group, start, count, bound } = self;
        if kernel.inner > 1 || size_of::<R>() > size_of::<u64>() {
            return true;
        }
        let (size, mut keys) = (kernel.dtype.size(), [0u32; BLOCK]);
        let (row, keys) = (&source[(group * kernel.count + start) * size..][..count * size], &mut keys[..count]);
        let flipped = if kernel.largest { u32::MAX } else { 0 };
        order::keys(kernel.dtype, row, keys, |_, key| key as u32 ^ flipped);
        let bound = bound.key() as u32;
        keys.iter().fold(0, |any, key| any | u32::from(*key <= bound)) != 0
    }
}

impl CpuKernel for TopKernel {
    fn scratch_bytes(&self) -> usize {
        self.scratch_pairs() * if self.is_narrow() { size_of::<u64>() } else { size_of::<u128>() }
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        if self.is_narrow() {
            self.select::<u64>(call)
        } else {
            self.select::<u128>(call)
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::testing::{run_all_ways, shape, tensor};
    use crate::op::{NodeSpec, Op, TopK};
    use crate::{DType, Tensor, TensorSpec};

    fn top(input: &Tensor, axis: usize, largest: bool, dims: &[usize]) -> Vec<Tensor> {
        let outputs = [input.dtype(), DType::I64].map(|dtype| TensorSpec::new(dtype, shape(dims))).to_vec();
        let op = Op::TopK(TopK { axis, largest });
        run_all_ways(&NodeSpec { op, inputs: vec![input.spec().clone()], outputs }, std::slice::from_ref(input))
    }

    #[test]
    fn the_extremes_come_in_order_and_the_first_of_equals_first() {
        let values = [3.0, 7.0, -1.0, 7.0, 0.0, 2.0];
        for dtype in [DType::F32, DType::F64, DType::F16, DType::I8, DType::I64] {
            let made = top(&tensor(dtype, &[6], |i| values[i]), 0, true, &[4]);
            assert!(made[0].same_bits(&tensor(dtype, &[4], |i| [7.0, 7.0, 3.0, 2.0][i])), "{dtype}");
            assert_eq!(made[1].elements::<i64>(), Some(&[1, 3, 0, 5][..]), "{dtype}");
        }
        let made = top(&tensor(DType::F32, &[6], |i| values[i]), 0, false, &[6]);
        assert_eq!(made[1].elements::<i64>(), Some(&[2, 4, 5, 0, 1, 3][..]));
    }

    #[test]
    fn every_axis_of_random_shapes_agrees_with_a_stable_sort() {
        for (seed, dims) in
            [[1, 7, 5], [3, 1, 4], [2, 13, 1], [4, 5, 17], [1, 2, 300], [3, 99, 2]].into_iter().enumerate()
        {
            let value = |i: usize| ((i * 7919 + seed * 31) % 23) as f64 - 11.0;
            let input = tensor(DType::F32, &dims, value);
            let strides = [dims[1] * dims[2], dims[2], 1];
            let cases = (0..3).flat_map(|axis| [1, 2, 3, 9].map(|part| (axis, part)));
            for ((axis, part), largest) in cases.flat_map(|case| [(case, true), (case, false)]) {
                let kept = dims[axis].div_ceil(part);
                let mut made = dims;
                made[axis] = kept;
                let outputs = top(&input, axis, largest, &made);
                let indices = outputs[1].elements::<i64>().expect("indices");
                let own = [made[1] * made[2], made[2], 1];
                for at in 0..indices.len() {
                    let coordinate = |axis: usize| at / own[axis] % made[axis];
                    let place = |index| {
                        let other = |other: usize| if other == axis { index } else { coordinate(other) };
                        (0..3).map(|axis| other(axis) * strides[axis]).sum::<usize>()
                    };
                    let mut order: Vec<usize> = (0..dims[axis]).collect();
                    let number = |index: &usize| value(place(*index)) * if largest { -1.0 } else { 1.0 };
                    order.sort_by(|a, b| number(a).total_cmp(&number(b)));
                    assert_eq!(indices[at] as usize, order[coordinate(axis)], "{dims:?} along {axis}");
                }
            }
        }
    }

    #[test]
    fn nan_is_the_greatest_and_large_integers_are_told_apart() {
        let made = top(&tensor(DType::F32, &[3], |i| [1.0, f64::NAN, f64::INFINITY][i]), 0, true, &[3]);
        assert_eq!(made[1].elements::<i64>(), Some(&[1, 2, 0][..]));
        let made = top(&Tensor::from_i64s(&[1 << 60, (1 << 60) + 1, i64::MIN]), 0, true, &[2]);
        assert_eq!(made[1].elements::<i64>(), Some(&[1, 0][..]));
        let unsigned = Tensor::from_elements(shape(&[2]), &[1u64, u64::MAX]).expect("two");
        assert_eq!(top(&unsigned, 0, true, &[1])[1].elements::<i64>(), Some(&[1][..]));
    }
}
