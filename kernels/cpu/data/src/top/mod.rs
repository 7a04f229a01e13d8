//! Top-k: the greatest or least elements along an axis, in order, with their indices.
//!
//! Short rows are parts of a run of the team, and a long row is cut into parts. Few elements of many rows are found by
//! exchanges (`lines`), and few elements of a row by the least of each block (`tournament`). More elements are found by
//! the digits of their keys (`digits`), and most of a row by sorting it.
//! The index makes every pair of key and index different, so every algorithm gives the same order.

mod digits;
mod lines;
mod tournament;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::sorted::{Ranked, sort};
use anabranch_cpu_base::team::{Grid, with_workspace};
use anabranch_cpu_base::{Call, CpuKernel, Team, order};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, TopK};
use bytemuck::Pod;

/// Elements of a part: a millisecond or two. Few in tests, so that short rows have parts.
const PART: usize = if cfg!(test) { 1 << 5 } else { 1 << 16 };

/// Elements of rows that a thread selects from at a time, if there are several rows.
const ROWS: usize = PART / 8;

/// Elements whose pairs are made at a time, on the stack.
const BLOCK: usize = if cfg!(test) { 4 } else { 64 };

/// Algorithm for a row.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    Sort,
    Tournament,
    Digits,
}

/// Kernel that selects the first `kept` of `count` elements along one axis, in order.
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

    /// Returns the fastest algorithm: most of a row is sorted with the rest; few elements are in few blocks.
    fn method(&self) -> Method {
        let few = self.kept.saturating_mul(4);
        match few > self.count {
            true => Method::Sort,
            false if few <= self.blocks() => Method::Tournament,
            false => Method::Digits,
        }
    }

    /// Returns the number of pairs in the scratch memory.
    fn scratch_pairs(&self) -> usize {
        match self.method() {
            _ if !self.is_long() => 0,
            Method::Sort => 2 * self.count,
            Method::Tournament => self.tournament_pairs(),
            Method::Digits => self.digits_pairs(),
        }
    }

    /// Returns the key that is less the earlier an element comes.
    #[inline(always)]
    fn ordered<R: Ranked>(&self, key: u64) -> u64 {
        if self.largest { !key & R::LAST.key() } else { key }
    }

    /// Writes the pairs of a row from `start` on. Row `group` begins at element
    /// `group / inner · count · inner + group % inner`.
    #[inline(always)]
    fn pairs<R: Ranked>(&self, source: &[u8], group: usize, start: usize, to: &mut [R]) {
        let size = self.dtype.size();
        if self.inner == 1 {
            let row = &source[(group * self.count + start) * size..][..to.len() * size];
            return order::keys(self.dtype, row, to, |at, key| R::new(self.ordered::<R>(key), start + at));
        }
        let first = group / self.inner * self.count * self.inner + group % self.inner;
        for (index, to) in (start..).zip(to) {
            let element = &source[(first + index * self.inner) * size..][..size];
            *to = R::new(self.ordered::<R>(order::key(self.dtype, element)), index);
        }
    }

    fn select<R: Ranked>(&self, call: Call<'_>) {
        let (source, team) = (call.inputs[0], call.team);
        let [values, indices] = call.outputs else { unreachable!("two outputs, as was checked") };
        let indices = elements_mut::<i64>(indices);
        if indices.is_empty() {
            return;
        }
        if self.count == 1 {
            indices.fill(0);
            values.copy_from_slice(source);
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
        } else if self.has_few() {
            self.select_few::<R>(team, source, indices);
        } else if self.has_lines() {
            self.select_lines::<R>(team, source, indices);
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
        let together = (ROWS / self.count).max(1);
        let matrix = Grid { batch: 1, rows: groups, columns: kept, tile_rows: together, tile_columns: kept };
        let stack = Grid { batch: groups / inner, rows: kept, columns: inner, tile_rows: kept, tile_columns: together };
        let floats = self.count * size_of::<R>() / size_of::<f32>();
        team.run_tiles(indices, if inner == 1 { matrix } else { stack }, &|mut tile| {
            with_workspace(floats, |workspace| {
                let pairs: &mut [R] = bytemuck::cast_slice_mut(workspace);
                if inner == 1 {
                    for (row, group) in tile.rows.clone().enumerate() {
                        let first = self.first_of_short(team, source, group, pairs);
                        let places = tile.row(row).iter_mut().zip(first);
                        places.for_each(|(place, pair)| *place = pair.position() as i64);
                    }
                    return;
                }
                for (at, column) in tile.columns.clone().enumerate() {
                    let first = self.first_of_short(team, source, tile.matrix * inner + column, pairs);
                    for (row, pair) in first.iter().enumerate() {
                        tile.row(row)[at] = pair.position() as i64;
                    }
                }
            });
        });
    }

    /// Returns the first pairs of a row that is not cut, in order.
    fn first_of_short<'p, R: Ranked>(&self, team: &Team, source: &[u8], group: usize, pairs: &'p mut [R]) -> &'p [R] {
        if self.method() == Method::Tournament {
            return self.by_tournament(team, source, group, pairs);
        }
        self.pairs(source, group, 0, pairs);
        self.sorted_first(team, pairs, &mut [])
    }

    /// Returns the first pairs of a row that is cut into parts, in order.
    fn first_of_long<'p, R: Ranked>(&self, team: &Team, source: &[u8], group: usize, scratch: &'p mut [R]) -> &'p [R] {
        match self.method() {
            Method::Tournament => self.by_tournament(team, source, group, scratch),
            Method::Digits => self.by_digits(team, source, group, scratch),
            Method::Sort => {
                let (pairs, spare) = scratch.split_at_mut(self.count);
                team.run_pieces(pairs, PART, &|index, piece| self.pairs(source, group, index * PART, piece));
                self.sorted_first(team, pairs, spare)
            }
        }
    }

    /// Returns the first of these pairs, in order. `spare` has the same length if there is more than a part. After an
    /// interruption there may be too few.
    fn sorted_first<'p, R: Ranked>(&self, team: &Team, pairs: &'p mut [R], spare: &mut [R]) -> &'p [R] {
        let kept = self.kept.min(pairs.len());
        if pairs.len() > PART {
            let spare = &mut spare[..pairs.len()];
            sort(team, pairs, spare, PART, R::cmp);
        } else {
            if kept < pairs.len() {
                pairs.select_nth_unstable(kept - 1);
            }
            pairs[..kept].sort_unstable();
        }
        &pairs[..kept]
    }

    /// Copies the selected elements.
    fn pick<T: Pod + Send + Sync>(&self, team: &Team, source: &[u8], indices: &[i64], values: &mut [u8]) {
        let (source, values) = (elements::<T>(source), elements_mut::<T>(values));
        if self.inner == 1 {
            let rows = (PART / self.kept).max(1);
            team.run_pieces(values, rows * self.kept, &|piece, values| {
                let first = piece * rows;
                let indices = indices[first * self.kept..].chunks_exact(self.kept);
                let sources = source[first * self.count..].chunks_exact(self.count).zip(indices);
                for (values, (source, indices)) in values.chunks_exact_mut(self.kept).zip(sources) {
                    for (value, index) in values.iter_mut().zip(indices) {
                        // After an interruption an index may be invalid.
                        source.get(*index as usize).into_iter().for_each(|element| *value = *element);
                    }
                }
            });
            return;
        }
        team.run_pieces(values, PART, &|piece, mut values| {
            let mut start = piece * PART;
            // The rest of a row of slices at a time: a division for each element would take long.
            while !values.is_empty() {
                let (slice, at) = (start / self.inner, start % self.inner);
                let (part, rest) = values.split_at_mut((self.inner - at).min(values.len()));
                let first = slice / self.kept * self.count * self.inner + at;
                for (column, (value, index)) in part.iter_mut().zip(&indices[start..]).enumerate() {
                    // After an interruption an index may be invalid.
                    let from = (*index as usize).wrapping_mul(self.inner).wrapping_add(first + column);
                    source.get(from).into_iter().for_each(|element| *value = *element);
                }
                (start, values) = (start + part.len(), rest);
            }
        });
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
    use crate::testing::{run_all_ways, shape, tensor};
    use anabranch_op::op::{NodeSpec, Op, TopK};
    use anabranch_op::{DType, Tensor, TensorSpec};

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
        let shapes = [[1, 7, 5], [3, 1, 4], [2, 13, 1], [4, 5, 17], [1, 2, 300], [3, 99, 2], [3, 400, 2], [5, 2, 400]];
        for (seed, dims) in shapes.into_iter().enumerate() {
            let value = |i: usize| ((i * 7919 + seed * 31) % 23) as f64 - 11.0;
            let input = tensor(DType::F32, &dims, value);
            let strides = [dims[1] * dims[2], dims[2], 1];
            let cases = (0..3).flat_map(|axis| [1, 2, 3, 9, 40].map(|part| (axis, part)));
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

    /// Returns the indices of the first `kept` elements in order: NaN is the greatest, and equal elements keep their
    /// order.
    fn first(values: &[f64], largest: bool, kept: usize) -> Vec<i64> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        let compared = |a: &usize, b: &usize| {
            let (a, b) = (values[*a], values[*b]);
            let order = a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
            if largest { order.reverse() } else { order }
        };
        order.sort_by(compared);
        order[..kept].iter().map(|index| *index as i64).collect()
    }

    #[test]
    fn any_share_of_a_row_of_any_order_agrees_with_a_stable_sort() {
        // With parts of 32 and blocks of 4 elements: one part, several parts, and blocks that are larger.
        for count in [13usize, 32, 33, 100, 300, 1000] {
            let orders: [(&str, &dyn Fn(usize) -> f64); 6] = [
                ("mixed", &|i| ((i * 7919) % 1009) as f64 - 500.0),
                ("rising", &|i| i as f64),
                ("falling", &|i| -(i as f64)),
                ("equal", &|_| 1.0),
                ("few", &|i| [0.0, -0.0, 1.0, -1.0][i * 7 % 4]),
                ("special", &|i| [f64::NAN, f64::INFINITY, 0.5, f64::NEG_INFINITY, -0.0][(i * i) % 5]),
            ];
            for ((about, value), dtype) in orders.iter().flat_map(|order| {
                [DType::F32, DType::F64, DType::F16, DType::I64, DType::U8].map(|dtype| (order, dtype))
            }) {
                if dtype == DType::U8 && *about != "equal" || dtype == DType::I64 && *about == "special" {
                    continue;
                }
                let input = tensor(dtype, &[count], value);
                let values: Vec<f64> = crate::testing::numbers(&input);
                for kept in
                    [1, 2, 5, count / 16, count / 9, count / 5, count / 3, count].map(|kept| kept.clamp(1, count))
                {
                    for largest in [true, false] {
                        let made = top(&input, 0, largest, &[kept]);
                        let want = first(&values, largest, kept);
                        let about = format!("{kept} of {count} {dtype} {about}, largest {largest}");
                        assert_eq!(made[1].elements::<i64>(), Some(&want[..]), "{about}");
                        let picked = want.iter().map(|index| values[*index as usize].to_bits());
                        assert!(picked.eq(crate::testing::numbers(&made[0]).into_iter().map(f64::to_bits)), "{about}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_a_few_elements_agree_with_a_stable_sort() {
        for count in 1..=9 {
            for (rows, inner) in [(1, 1), (7, 1), (200, 1), (20, 3), (11, 7), (3, 8), (2, 13), (2, 65)] {
                for dtype in [DType::F32, DType::F64, DType::I8, DType::U64] {
                    let special = |i: usize| [f64::NAN, 2.0, -0.0, 0.0, f64::INFINITY, -1.0][i * i * 7 % 6];
                    let whole = |i: usize| (i * i * 7 % 6) as f64;
                    let value = |i: usize| if dtype.is_float() { special(i) } else { whole(i) };
                    let input = tensor(dtype, &[rows, count, inner], value);
                    let values = crate::testing::numbers(&input);
                    for kept in 1..=count {
                        for largest in [true, false] {
                            let made = top(&input, 1, largest, &[rows, kept, inner]);
                            let indices = made[1].elements::<i64>().expect("indices");
                            for line in 0..rows * inner {
                                let (row, column) = (line / inner, line % inner);
                                let of = |at: usize| values[(row * count + at) * inner + column];
                                let line: Vec<f64> = (0..count).map(of).collect();
                                let got = (0..kept).map(|at| indices[(row * kept + at) * inner + column]);
                                let about = format!("{kept} of {rows} × {count} × {inner} {dtype}, largest {largest}");
                                assert!(got.eq(first(&line, largest, kept)), "{about}");
                            }
                            let picked = crate::testing::numbers(&made[0]);
                            for (at, picked) in picked.iter().enumerate() {
                                let row = at / inner / kept * count + indices[at] as usize;
                                assert_eq!(picked.to_bits(), values[row * inner + at % inner].to_bits());
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_interruption_at_any_look_ends_the_selection() {
        use anabranch_cpu_base::{Call, Team};
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        let input = tensor(DType::F32, &[1000], |i| ((i * 7919) % 1009) as f64);
        for kept in [1, 7, 100, 200, 600] {
            let outputs = [DType::F32, DType::I64].map(|dtype| TensorSpec::new(dtype, shape(&[kept]))).to_vec();
            let op = Op::TopK(TopK { axis: 0, largest: true });
            let node = NodeSpec { op, inputs: vec![input.spec().clone()], outputs };
            let Op::TopK(op) = &node.op else { unreachable!("made above") };
            let kernel = super::prepare(&node, op);
            let mut scratch = anabranch_op::Buffer::zeroed(kernel.scratch_bytes());
            for most in 0..200 {
                let looks = Arc::new(AtomicUsize::new(0));
                let asked = Arc::clone(&looks);
                let team = Team::solo();
                let _watched = team.watch(Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) >= most));
                let mut made: Vec<_> =
                    node.outputs.iter().map(|spec| anabranch_op::Buffer::zeroed(spec.bytes())).collect();
                let mut outputs: Vec<_> = made.iter_mut().map(anabranch_op::Buffer::bytes_mut).collect();
                let inputs = [input.bytes()];
                let call = Call {
                    inputs: &inputs,
                    outputs: &mut outputs,
                    rows: 0..1,
                    scratch: scratch.bytes_mut(),
                    team: &team,
                };
                kernel.run(call).expect("no panic and no error");
                assert!(looks.load(Ordering::Relaxed) > 20, "few looks");
            }
        }
    }
}
