//! Softmax: exponentials divided by their sum, both relative to the greatest element so that nothing overflows.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::lanes::{extreme_inside, next_row};
use anabranch_cpu_base::math::{self, exp_below_one};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, joined, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Softmax};

/// Elements that are worth a hand-over to another thread.
const PIECE: usize = 8192;

/// Kernel of a softmax along an axis of `count` elements that are `inner` apart.
struct SoftmaxKernel {
    count: usize,
    inner: usize,
    log: bool,
}

/// Prepares a softmax.
pub(crate) fn prepare(node: &NodeSpec, op: &Softmax) -> Box<dyn CpuKernel> {
    let dims = node.inputs[0].shape.dims();
    Box::new(SoftmaxKernel { count: dims[op.axis], inner: dims[op.axis + 1..].iter().product(), log: op.log })
}

/// Numbers that are computed together: two vectors, because with one vector each step would wait for the last.
const BLOCK: usize = 2 * LANES;

/// Elements after which a partial sum is set aside, so that long sums stay accurate.
const PART: usize = 4096;

/// Loop over distributions of `count` elements that lie side by side.
struct Rows<'a> {
    data: &'a [f32],
    count: usize,
    log: bool,
    out: &'a mut [f32],
}

impl Loop for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { data, count, log, out } = self;
        for (out, data) in out.chunks_exact_mut(count).zip(data.chunks_exact(count)) {
            // The maximum may ignore NaN, because a NaN makes the sum NaN.
            let (most, _) = extreme_inside::<I, true>(data);
            let mut sum = 0.0;
            let next = next_row(count);
            for (out, data) in out.chunks_mut(PART).zip(data.chunks(PART)) {
                sum += exponentials::<I>(data, most, out, next);
            }
            if log {
                // This order loses no precision if all elements are far from 0.
                let log = sum.ln();
                out.iter_mut().zip(data).for_each(|(out, x)| *out = (*x - most) - log);
            } else {
                let scale = 1.0 / sum;
                out.iter_mut().for_each(|out| *out *= scale);
            }
        }
    }
}

/// Columns from which they are computed side by side. Fewer make no vector, and are gathered one by one.
const FEW: usize = 8;

/// Returns a key of the order of all sums, see `summation` of the crate.
pub(crate) fn summation(node: &NodeSpec, op: &Softmax) -> Vec<usize> {
    match node.inputs[0].shape.dims()[op.axis + 1..].iter().product() {
        1 => vec![0],
        ..FEW => vec![1],
        _ => vec![2],
    }
}

/// Columns that are computed side by side.
const WIDTH: usize = 64;

/// Maximum elements of a distribution that is computed beside others: fewer do not fill the vectors of its row.
const SHORT: usize = 12;

/// Rows whose sums are added in `f32`. The sums of these are added in `f64`, so that long sums stay accurate.
const ROWS: usize = 16;

/// Loop over the distributions of a tile's columns, whose elements are `inner` apart.
struct Columns<'a> {
    data: &'a [f32],
    inner: usize,
    log: bool,
    out: Tile<'a, f32>,
}

impl Loop for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { data, inner, log, mut out } = self;
        for start in out.columns.clone().step_by(WIDTH) {
            let (width, within) = (WIDTH.min(out.columns.end - start), start - out.columns.start);
            let rows = || data.chunks_exact(inner).map(|row| &row[start..start + width]).enumerate();
            // The maximum may ignore NaN, because a NaN makes the sum NaN.
            let mut most = [f32::NEG_INFINITY; WIDTH];
            let most = &mut most[..width];
            for (_, row) in rows() {
                most.iter_mut().zip(row).for_each(|(most, x)| *most = if *x > *most { *x } else { *most });
            }
            let (mut totals, mut sums) = ([0.0f64; WIDTH], [0.0; WIDTH]);
            let (totals, sums) = (&mut totals[..width], &mut sums[..width]);
            for (at, row) in rows() {
                let made = out.row(at)[within..within + width].iter_mut();
                for (((out, x), most), sum) in made.zip(row).zip(&*most).zip(&mut *sums) {
                    *out = exp_below_one::<I>(*x - *most);
                    *sum += *out;
                }
                if at % ROWS == ROWS - 1 {
                    totals.iter_mut().zip(&mut *sums).for_each(|(total, sum)| *total += f64::from(std::mem::take(sum)));
                }
            }
            for (sum, total) in sums.iter_mut().zip(&*totals) {
                let total = (*total + f64::from(*sum)) as f32;
                *sum = if log { math::log::<I>(total) } else { 1.0 / total };
            }
            for (at, row) in rows() {
                let out = &mut out.row(at)[within..within + width];
                if log {
                    // This order loses no precision if all elements are far from 0.
                    let distances = row.iter().zip(&*most).zip(&*sums);
                    out.iter_mut().zip(distances).for_each(|(out, ((x, most), log))| *out = (*x - *most) - *log);
                } else {
                    out.iter_mut().zip(&*sums).for_each(|(out, scale)| *out *= *scale);
                }
            }
        }
    }
}

/// Computes `out = e^(x − most)` and returns the sum. Data `next` elements ahead, in the next row, is prefetched from
/// both.
#[inline(always)]
fn exponentials<I: Isa>(data: &[f32], most: f32, out: &mut [f32], next: usize) -> f32 {
    // Two named vectors stay in registers; an array of sums does not.
    let (mut low, mut high) = (I::splat(0.0), I::splat(0.0));
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    let (made, last) = out.as_chunks_mut::<BLOCK>();
    for (made, block) in made.iter_mut().zip(blocks) {
        for half in [0, LANES] {
            I::prefetch(block.as_ptr().wrapping_add(next + half));
            I::prefetch(made.as_ptr().wrapping_add(next + half));
        }
        let (made, block) = (made.as_chunks_mut().0, block.as_chunks().0);
        let (first, second) = (exponential::<I>(&block[0], most), exponential::<I>(&block[1], most));
        I::store(first, &mut made[0]);
        I::store(second, &mut made[1]);
        low = I::sum(low, first);
        high = I::sum(high, second);
    }
    for (made, part) in last.chunks_mut(LANES).zip(rest.chunks(LANES)) {
        let mut lanes = [0.0; LANES];
        I::store(I::load_part(part, I::splat(most)), &mut lanes);
        let found = exponential::<I>(&lanes, most);
        I::store_part(found, made);
        I::store(found, &mut lanes);
        low = I::sum(low, I::load_part(&lanes[..part.len()], I::splat(0.0)));
    }
    joined::<I>(I::sum(low, high), I::sum)
}

/// Returns `e^(x − most)` in each lane.
#[inline(always)]
fn exponential<I: Isa>(block: &[f32; LANES], most: f32) -> I::Vector {
    let mut made = [0.0; LANES];
    for lane in 0..LANES {
        made[lane] = exp_below_one::<I>(block[lane] - most);
    }
    I::load(&made)
}

/// Computes distributions of a few elements that lie side by side: first elements together, then second ones, ….
fn short_rows(data: &[f32], count: usize, log: bool, out: &mut [f32]) {
    with_workspace(2 * count * WIDTH, |space| {
        let (gathered, made) = space.split_at_mut(count * WIDTH);
        for (data, out) in data.chunks(count * WIDTH).zip(out.chunks_mut(count * WIDTH)) {
            let (gathered, made) = (&mut gathered[..data.len()], &mut made[..data.len()]);
            let rows = data.len() / count;
            for (at, column) in gathered.chunks_exact_mut(rows).enumerate() {
                column.iter_mut().zip(data[at..].iter().step_by(count)).for_each(|(to, from)| *to = *from);
            }
            vectorised(Columns { data: gathered, inner: rows, log, out: Tile::whole(made, rows) });
            for (at, column) in made.chunks_exact(rows).enumerate() {
                out[at..].iter_mut().step_by(count).zip(column).for_each(|(to, from)| *to = *from);
            }
        }
    });
}

impl CpuKernel for SoftmaxKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let stack = self.count * self.inner;
        if target.is_empty() {
            return Ok(());
        }
        let (count, inner, log) = (self.count, self.inner, self.log);
        if inner > WIDTH && stack > PIECE {
            let tile_columns = (PIECE / count).next_multiple_of(WIDTH).max(WIDTH);
            let grid =
                Grid { batch: target.len() / stack, rows: count, columns: inner, tile_rows: count, tile_columns };
            call.team.run_tiles(target, grid, &|out| {
                let data = &source[out.matrix * stack..][..stack];
                vectorised(Columns { data, inner, log, out });
            });
            return Ok(());
        }
        let stacks = (PIECE / stack).max(1);
        call.team.run_pieces(target, stacks * stack, &|piece, target| {
            let source = &source[piece * stacks * stack..][..target.len()];
            if inner == 1 && count <= SHORT {
                return short_rows(source, count, log, target);
            }
            if inner == 1 {
                return vectorised(Rows { data: source, count, log, out: target });
            }
            let stacks = source.chunks_exact(stack).zip(target.chunks_exact_mut(stack));
            if inner >= FEW {
                return stacks.for_each(|(data, out)| {
                    vectorised(Columns { data, inner, log, out: Tile::whole(out, inner) });
                });
            }
            with_workspace(2 * count, |space| {
                let (gathered, made) = space.split_at_mut(count);
                for (data, out) in stacks {
                    for start in 0..inner {
                        let column = data[start..].iter().step_by(inner);
                        gathered.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
                        vectorised(Rows { data: gathered, count, log, out: made });
                        let column = out[start..].iter_mut().step_by(inner);
                        column.zip(&*made).for_each(|(to, from)| *to = *from);
                    }
                }
            });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run_all_ways, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Op, Softmax};

    #[test]
    fn distributions_sum_to_one_along_any_axis() {
        for (dims, axis) in [
            (vec![3, 5], 1),
            (vec![3, 5], 0),
            (vec![2, 7, 3], 1),
            (vec![1, 5000], 1),
            (vec![4, 1], 1),
            (vec![2, 130, 100], 1),
            (vec![3, 130, 9], 1),
            (vec![2, 3, 70, 100], 1),
        ] {
            let input = tensor(DType::F32, &dims, |i| ((i * 37) % 19) as f64 * 0.7 - 60.0);
            let x: &[f32] = input.elements().expect("f32");
            let inner: usize = dims[axis + 1..].iter().product();
            for log in [false, true] {
                let op = Op::Softmax(Softmax { axis, log });
                let inputs = [input.clone()];
                let got = run_all_ways(&node(op, &inputs, DType::F32, &dims), &inputs).remove(0);
                for (flat, got) in got.elements::<f32>().expect("f32").iter().enumerate() {
                    let start = flat / (inner * dims[axis]) * inner * dims[axis] + flat % inner;
                    let sum: f64 = (0..dims[axis]).map(|k| f64::from(x[start + k * inner]).exp()).sum();
                    let want = f64::from(x[flat]) - sum.ln();
                    let got = if log { f64::from(*got) } else { f64::from(*got).ln() };
                    assert!((got - want).abs() < 1e-4, "{dims:?} axis {axis} log {log} at {flat}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn not_a_number_spoils_its_own_row_only() {
        for columns in [1, 5, 31, 32, 33, 70, 5000] {
            for at in [0, columns / 2, columns - 1] {
                let input =
                    tensor(DType::F32, &[3, columns], |i| if i == columns + at { f64::NAN } else { (i % 7) as f64 });
                let op = Op::Softmax(Softmax { axis: 1, log: false });
                let got = computed::<f32>(op, &[input], &[3, columns]);
                for (i, row) in got.chunks_exact(columns).enumerate() {
                    assert!(row.iter().all(|x| x.is_nan() == (i == 1)), "row {i} of {columns}, NaN at {at}");
                }
            }
        }
    }

    #[test]
    fn long_axes_stay_accurate() {
        let (count, constant) = (1 << 17, -0.0319f32);
        for inner in [1, 8] {
            let value = |at: usize| if at < inner { 0.0 } else { f64::from(constant) };
            let input = tensor(DType::F32, &[count, inner], value);
            let got = computed::<f32>(Op::Softmax(Softmax { axis: 0, log: false }), &[input], &[count, inner]);
            let want = 1.0 / (1.0 + (count - 1) as f64 * f64::from(constant).exp());
            assert!(got[..inner].iter().all(|got| (f64::from(*got) / want - 1.0).abs() < 2e-6), "{inner}: {}", got[0]);
        }
    }

    #[test]
    fn great_elements_do_not_overflow() {
        let input = tensor(DType::F32, &[1, 3], |i| [1e30, 1e30, -1e30][i]);
        let op = Op::Softmax(Softmax { axis: 1, log: false });
        assert_eq!(computed::<f32>(op, &[input], &[1, 3]), [0.5, 0.5, 0.0]);
    }

    #[test]
    fn logarithms_do_not_depend_on_what_all_elements_share() {
        let logs = |offset: f64| {
            let input = tensor(DType::F32, &[1, 4], |i| offset + [0.0, 1.0, 2.5, -10.0][i]);
            computed::<f32>(Op::Softmax(Softmax { axis: 1, log: true }), &[input], &[1, 4])
        };
        assert_eq!(logs(0.0), logs(1e6));
    }
}
