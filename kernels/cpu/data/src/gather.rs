//! Gather: whole slices, or single elements, chosen by indices.
//!
//! All indices are checked first, so that the copies, which threads share, cannot fail.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel, runs};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Gather, NodeSpec};
use bytemuck::Pod;

/// Minimum bytes of a result in one part.
const PIECE: usize = 64 << 10;

/// Kernel that gathers slices of one axis, chosen by a list of indices.
struct SliceGather {
    /// Number of slices along the axis.
    count: usize,
    /// Bytes of one slice for one index of the axes before.
    run: usize,
    indices: DType,
}

/// Kernel that gathers single elements along one axis.
///
/// Element `j` of a row of the result comes from `base + j · step + index · stride`, where the row gives the base.
struct ElementGather {
    /// Sizes of the result's dimensions before the last, outermost first, and the distances in the input (0 along the
    /// axis). Neighbours that are one dimension in both are one here.
    outer: Vec<(usize, usize)>,
    /// Elements of a row of the result.
    row: usize,
    step: usize,
    /// Number of elements along the axis, and how far apart they are.
    count: usize,
    stride: usize,
    size: usize,
    indices: DType,
}

/// Prepares a gather.
pub(crate) fn prepare(node: &NodeSpec, op: &Gather) -> Box<dyn CpuKernel> {
    let (input, indices) = (&node.inputs[0], &node.inputs[1]);
    let (dims, size) = (input.shape.dims(), input.dtype.size());
    if !op.elementwise {
        let inner: usize = dims[op.axis + 1..].iter().product();
        return Box::new(SliceGather { count: dims[op.axis], run: inner * size, indices: indices.dtype });
    }
    let strides = input.shape.strides();
    let mut outer: Vec<(usize, usize)> = Vec::new();
    for (axis, dim) in indices.shape.dims().iter().enumerate().filter(|(_, dim)| **dim != 1) {
        let stride = if axis == op.axis { 0 } else { strides[axis] };
        match outer.last_mut() {
            Some(last) if stride > 0 && last.1 == dim * stride => *last = (last.0 * dim, stride),
            _ => outer.push((*dim, stride)),
        }
    }
    let (row, step) = outer.pop().unwrap_or((1, 0));
    let (count, stride) = (dims[op.axis], strides[op.axis]);
    Box::new(ElementGather { outer, row, step, count, stride, size, indices: indices.dtype })
}

/// Integer that is an index; a negative one counts from the end.
trait Index: Pod + Into<i64> + Sync {
    /// Returns the index of an axis of `count` elements, counted from the front.
    #[inline(always)]
    fn counted(self, count: usize) -> usize {
        let index: i64 = self.into();
        (if index < 0 { index.wrapping_add(count as i64) } else { index }) as usize
    }
}

impl Index for i32 {}
impl Index for i64 {}

/// Loop that returns whether an index is outside an axis of `count` elements. It looks at every index, as a loop that
/// may end early takes longer.
struct AnyOutside<'a, I> {
    indices: &'a [I],
    count: usize,
}

impl<N: Index> Loop for AnyOutside<'_, N> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let count = self.count as i64;
        let outside = |index: &N| {
            let index: i64 = (*index).into();
            (index >= count) | (index < -count)
        };
        self.indices.iter().fold(false, |any, index| any | outside(index))
    }
}

/// Checks that all indices are within an axis of `count` elements.
fn check<I: Index>(indices: &[I], count: usize) -> Result<(), KernelError> {
    if !vectorised(AnyOutside { indices, count }) {
        return Ok(());
    }
    let at = indices.iter().position(|index| index.counted(count) >= count).unwrap_or(0);
    let given: i64 = indices[at].into();
    let reason = format!("index {given} at position {at} is outside an axis of {count}");
    Err(KernelError::Value { op: "gather", reason })
}

impl CpuKernel for SliceGather {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        match self.indices {
            DType::I32 => self.gather(call, elements::<i32>),
            _ => self.gather(call, elements::<i64>),
        }
    }
}

impl SliceGather {
    fn gather<I: Index>(&self, call: Call<'_>, indices: fn(&[u8]) -> &[I]) -> Result<(), KernelError> {
        let (source, indices, target) = (call.inputs[0], indices(call.inputs[1]), &mut *call.outputs[0]);
        if self.run == 0 || target.is_empty() {
            return Ok(());
        }
        check(indices, self.count)?;
        let (rows, columns) = (target.len() / self.run, self.run);
        let grid = Grid { batch: 1, rows, columns, tile_rows: PIECE.div_ceil(self.run), tile_columns: 4 * PIECE };
        call.team.run_tiles(target, grid, &|mut tile| match self.run {
            1 => self.short::<u8, I>(source, indices, &mut tile),
            2 => self.short::<u16, I>(source, indices, &mut tile),
            4 => self.short::<u32, I>(source, indices, &mut tile),
            8 => self.short::<u64, I>(source, indices, &mut tile),
            12 => self.short::<[u32; 3], I>(source, indices, &mut tile),
            16 => self.short::<[u64; 2], I>(source, indices, &mut tile),
            32 => self.short::<[u64; 4], I>(source, indices, &mut tile),
            64 => self.short::<[u64; 8], I>(source, indices, &mut tile),
            _ => {
                let columns = tile.columns.clone();
                let rows = tile.rows.clone();
                for (row, chosen) in self.chosen(indices, rows.start).take(rows.len()).enumerate() {
                    runs::copy(&source[chosen * self.run..][columns.clone()], tile.row(row));
                }
            }
        });
        Ok(())
    }

    /// Copies slices of the size of `T`.
    fn short<T: Pod, I: Index>(&self, source: &[u8], indices: &[I], tile: &mut Tile<'_, u8>) {
        let source = elements::<T>(source);
        let chosen = self.chosen(indices, tile.rows.start);
        let target = elements_mut::<T>(tile.whole_rows());
        target.iter_mut().zip(chosen).for_each(|(target, chosen)| *target = source[chosen]);
    }

    /// Returns the slices of the input that are slices `first`, `first + 1`, … of the result.
    fn chosen<I: Index>(&self, indices: &[I], first: usize) -> impl Iterator<Item = usize> {
        let (block, within) = (first / indices.len(), first % indices.len());
        let (mut base, mut rest) = (block * self.count, indices[within..].iter());
        std::iter::from_fn(move || {
            let index = rest.next().or_else(|| {
                base += self.count;
                rest = indices.iter();
                rest.next()
            })?;
            Some(base + index.counted(self.count))
        })
    }
}

impl CpuKernel for ElementGather {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        match self.size {
            1 => self.gather::<u8>(call),
            2 => self.gather::<u16>(call),
            4 => self.gather::<u32>(call),
            _ => self.gather::<u64>(call),
        }
    }
}

impl ElementGather {
    fn gather<T: Pod + Send + Sync>(&self, call: Call<'_>) -> Result<(), KernelError> {
        match self.indices {
            DType::I32 => self.gather_by::<T, i32>(call),
            _ => self.gather_by::<T, i64>(call),
        }
    }

    fn gather_by<T: Pod + Send + Sync, I: Index>(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (source, indices) = (elements::<T>(call.inputs[0]), elements::<I>(call.inputs[1]));
        check(indices, self.count)?;
        let (rows, columns, tile_columns) = (indices.len() / self.row.max(1), self.row, PIECE / size_of::<T>());
        let grid = Grid { batch: 1, rows, columns, tile_rows: tile_columns / columns.max(1), tile_columns };
        call.team.run_tiles(elements_mut::<T>(call.outputs[0]), grid, &|mut tile| {
            let (first, columns) = (tile.rows.start, tile.columns.clone());
            for (row, base) in (0..tile.rows.len()).zip(self.bases(first)) {
                let indices = &indices[(first + row) * self.row..][columns.clone()];
                let (target, base) = (tile.row(row), base + columns.start * self.step);
                if (self.step, self.stride) == (0, 1) {
                    let line = &source[base..][..self.count];
                    target.iter_mut().zip(indices).for_each(|(to, index)| *to = line[index.counted(self.count)]);
                    continue;
                }
                for (at, (target, index)) in target.iter_mut().zip(indices).enumerate() {
                    *target = source[base + at * self.step + index.counted(self.count) * self.stride];
                }
            }
        });
        Ok(())
    }

    /// Returns the bases of rows `first`, `first + 1`, ….
    fn bases(&self, first: usize) -> impl Iterator<Item = usize> {
        let ((inner, stride), outer) =
            self.outer.split_last().map_or(((1, 0), &[][..]), |(last, outer)| (*last, outer));
        let base_of = move |block: usize| {
            let mut rest = block;
            outer.iter().rev().fold(0, |base, (dim, stride)| {
                let index = rest % dim;
                rest /= dim;
                base + index * stride
            })
        };
        let (mut block, mut at) = (first / inner, first % inner);
        let mut base = base_of(block);
        std::iter::from_fn(move || {
            if at == inner {
                (block, at) = (block + 1, 0);
                base = base_of(block);
            }
            at += 1;
            Some(base + (at - 1) * stride)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run, run_all_ways, shape, tensor};
    use anabranch_op::op::{Gather, Op};
    use anabranch_op::{DType, Tensor};

    fn gathered(axis: usize, indices: &[i64], out: &[usize]) -> Vec<f32> {
        let input = tensor(DType::F32, &[2, 3, 2], |i| i as f64);
        computed(Op::Gather(Gather { axis, elementwise: false }), &[input, Tensor::from_i64s(indices)], out)
    }

    #[test]
    fn slices_are_chosen_along_the_axis() {
        assert_eq!(gathered(0, &[1], &[1, 3, 2]), [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        assert_eq!(gathered(1, &[2, -3], &[2, 2, 2]), [4.0, 5.0, 0.0, 1.0, 10.0, 11.0, 6.0, 7.0]);
        assert_eq!(gathered(2, &[1, 1], &[2, 3, 2])[..4], [1.0, 1.0, 3.0, 3.0]);
        assert!(gathered(1, &[], &[2, 0, 2]).is_empty());
    }

    #[test]
    fn elements_are_chosen_one_by_one() {
        let input = tensor(DType::F32, &[2, 3], |i| i as f64);
        let indices = tensor(DType::I64, &[2, 2], |i| [2.0, 0.0, -1.0, 1.0][i]);
        let op = Op::Gather(Gather { axis: 1, elementwise: true });
        assert_eq!(computed::<f32>(op, &[input, indices], &[2, 2]), [2.0, 0.0, 5.0, 4.0]);
    }

    #[test]
    fn every_axis_size_and_type_is_gathered() {
        let shapes: [(&[usize], &[usize]); 8] = [
            (&[5], &[9]),
            (&[1, 7], &[1, 3]),
            (&[3, 4, 5], &[3, 4, 5]),
            (&[3, 4, 5], &[2, 3, 2]),
            (&[2, 3, 4, 5], &[2, 3, 1, 5]),
            (&[2, 3, 4, 5], &[1, 1, 4, 1]),
            (&[70, 3, 600], &[70, 2, 600]),
            (&[3, 2, 1], &[3, 0, 1]),
        ];
        for (dims, out) in shapes {
            for (axis, dtype) in
                (0..dims.len()).flat_map(|a| [DType::U8, DType::F16, DType::F32, DType::I64].map(|t| (a, t)))
            {
                let count = dims[axis] as i64;
                let fits = (0..dims.len()).all(|other| other == axis || out[other] <= dims[other]);
                let chosen = |at: usize| (at as i64 * 7 + 3) % (2 * count) - count;
                for indices in [DType::I32, DType::I64].into_iter().filter(|_| fits) {
                    let inputs =
                        [tensor(dtype, dims, |i| (i % 127) as f64), tensor(indices, out, |i| chosen(i) as f64)];
                    let op = Op::Gather(Gather { axis, elementwise: true });
                    let got = run_all_ways(&node(op, &inputs, dtype, out), &inputs).remove(0);
                    let (from, to) = (shape(dims).strides(), shape(out).strides());
                    for at in 0..shape(out).elements() {
                        let index = |other: usize| at / to[other] % out[other];
                        let place =
                            |other| if other == axis { chosen(at).rem_euclid(count) as usize } else { index(other) };
                        let source: usize = (0..dims.len()).map(|other| place(other) * from[other]).sum();
                        let bytes =
                            |tensor: &Tensor, at: usize| tensor.bytes()[at * dtype.size()..][..dtype.size()].to_vec();
                        assert_eq!(bytes(&got, at), bytes(&inputs[0], source), "{dims:?} {out:?} along {axis} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn slices_of_every_size_are_gathered() {
        for (outer, inner, number) in
            [1, 2, 3, 300].into_iter().flat_map(|o| [1, 2, 3, 4, 8, 9, 16, 70_000].map(|i| (o, i, 5)))
        {
            if outer * inner > 100_000 {
                continue;
            }
            for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
                let chosen = [2i64, -3, 0, 2, 1];
                let inputs = [tensor(dtype, &[outer, 3, inner], |i| (i % 127) as f64), Tensor::from_i64s(&chosen)];
                let op = Op::Gather(Gather { axis: 1, elementwise: false });
                let got = run_all_ways(&node(op, &inputs, dtype, &[outer, number, inner]), &inputs).remove(0);
                let run = inner * dtype.size();
                for (at, got) in got.bytes().chunks_exact(run).enumerate() {
                    let slice = at / number * 3 + chosen[at % number].rem_euclid(3) as usize;
                    assert!(*got == inputs[0].bytes()[slice * run..][..run], "{outer} {inner} {dtype} at {at}");
                }
            }
        }
    }

    #[test]
    fn an_index_outside_is_an_error_that_names_it() {
        let input = tensor(DType::F32, &[2, 3], |i| i as f64);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            for elementwise in [false, true] {
                let dims: &[usize] = if elementwise { &[2, 1] } else { &[1] };
                let indices = Tensor::from_elements(shape(dims), &vec![bad; dims[0]]).expect("as many");
                let inputs = [input.clone(), indices];
                let op = Op::Gather(Gather { axis: 1, elementwise });
                let error = run(&node(op, &inputs, DType::F32, &[2, 1]), &inputs).expect_err("outside");
                assert!(error.to_string().contains(&bad.to_string()), "{error}");
            }
        }
    }
}
