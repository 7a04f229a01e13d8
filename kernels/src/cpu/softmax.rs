//! Softmax: exponentials over their sum, both relative to the greatest element so that nothing overflows.

use super::elements::{elements, elements_mut};
use super::math::exp_below_one;
use super::team::with_workspace;
use super::vector::{Isa, LANES, Loop, vectorised};
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{NodeSpec, Softmax};

/// Elements that are worth a hand-over to another thread.
const PIECE: usize = 8192;

/// Softmax along an axis of `count` elements that are `inner` apart.
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

/// Numbers that are worked on together: two vectors, or each step would wait for the one before.
const BLOCK: usize = 2 * LANES;

/// Elements after which a partial sum is set aside, so that long sums keep their accuracy.
const PART: usize = 4096;

/// One distribution whose elements lie side by side.
struct Row<'a> {
    data: &'a [f32],
    log: bool,
    out: &'a mut [f32],
}

impl Loop for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { data, log, out } = self;
        let most = greatest::<I>(data);
        let mut sum = 0.0;
        for (out, data) in out.chunks_mut(PART).zip(data.chunks(PART)) {
            sum += exponentials::<I>(data, most, out);
        }
        if log {
            // In this order nothing is lost to a great distance of all elements from 0.
            let log = sum.ln();
            out.iter_mut().zip(data).for_each(|(out, x)| *out = (*x - most) - log);
        } else {
            let scale = 1.0 / sum;
            out.iter_mut().for_each(|out| *out *= scale);
        }
    }
}

/// The greatest number. What is NaN does not count: it makes the sum NaN.
#[inline(always)]
fn greatest<I: Isa>(data: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; BLOCK];
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    for block in blocks {
        for lane in 0..BLOCK {
            lanes[lane] = if block[lane] > lanes[lane] { block[lane] } else { lanes[lane] };
        }
    }
    if !rest.is_empty() {
        let rest = padded::<I>(rest);
        for lane in 0..BLOCK {
            lanes[lane] = if rest[lane] > lanes[lane] { rest[lane] } else { lanes[lane] };
        }
    }
    let mut width = BLOCK;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = if lanes[lane + width] > lanes[lane] { lanes[lane + width] } else { lanes[lane] };
        }
    }
    lanes[0]
}

/// `out = e^(x − most)`, and their sum.
#[inline(always)]
fn exponentials<I: Isa>(data: &[f32], most: f32, out: &mut [f32]) -> f32 {
    let mut sums = [0.0; BLOCK];
    let ((blocks, rest), (made, last)) = (data.as_chunks::<BLOCK>(), out.as_chunks_mut::<BLOCK>());
    for (made, block) in made.iter_mut().zip(blocks) {
        for lane in 0..BLOCK {
            made[lane] = exp_below_one::<I>(block[lane] - most);
            sums[lane] += made[lane];
        }
    }
    if !rest.is_empty() {
        let (rest, mut made) = (padded::<I>(rest), [0.0; BLOCK]);
        for lane in 0..BLOCK {
            made[lane] = exp_below_one::<I>(rest[lane] - most);
            // What stands for no element adds nothing.
            sums[lane] += made[lane];
        }
        let (made, count) = (made.as_chunks().0, last.len().min(LANES));
        let (low, high) = last.split_at_mut(count);
        I::store_part(I::load(&made[0]), low);
        I::store_part(I::load(&made[1]), high);
    }
    let mut width = BLOCK;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    sums[0]
}

/// A block whose elements beyond `rest` are less than any number.
#[inline(always)]
fn padded<I: Isa>(rest: &[f32]) -> [f32; BLOCK] {
    let mut block = [f32::NEG_INFINITY; BLOCK];
    let (low, high) = rest.split_at(rest.len().min(LANES));
    for (part, to) in [low, high].into_iter().zip(block.as_chunks_mut().0) {
        I::store(I::load_part(part, I::splat(f32::NEG_INFINITY)), to);
    }
    block
}

impl CpuKernel for SoftmaxKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let stack = self.count * self.inner;
        if target.is_empty() {
            return Ok(());
        }
        let stacks = (PIECE / stack).max(1);
        call.team.run_pieces(target, stacks * stack, &|piece, target| {
            for (index, target) in target.chunks_exact_mut(stack).enumerate() {
                let source = &source[(piece * stacks + index) * stack..][..stack];
                if self.inner == 1 {
                    vectorised(Row { data: source, log: self.log, out: target });
                    continue;
                }
                with_workspace(2 * self.count, |space| {
                    let (gathered, made) = space.split_at_mut(self.count);
                    for start in 0..self.inner {
                        let column = source[start..].iter().step_by(self.inner);
                        gathered.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
                        vectorised(Row { data: gathered, log: self.log, out: made });
                        let column = target[start..].iter_mut().step_by(self.inner);
                        column.zip(&*made).for_each(|(to, from)| *to = *from);
                    }
                });
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::cpu::testing::{computed, tensor};
    use crate::op::{Op, Softmax};

    #[test]
    fn distributions_sum_to_one_along_any_axis() {
        for (dims, axis) in [(vec![3, 5], 1), (vec![3, 5], 0), (vec![2, 7, 3], 1), (vec![1, 5000], 1), (vec![4, 1], 1)]
        {
            let input = tensor(DType::F32, &dims, |i| ((i * 37) % 19) as f64 * 0.7 - 60.0);
            let x: &[f32] = input.elements().expect("f32");
            let inner: usize = dims[axis + 1..].iter().product();
            for log in [false, true] {
                let op = Op::Softmax(Softmax { axis, log });
                let got: Vec<f32> = computed(op, std::slice::from_ref(&input), &dims);
                for (flat, got) in got.iter().enumerate() {
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
