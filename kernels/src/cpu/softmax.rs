//! Softmax: exponentials over their sum, both relative to the greatest element so that nothing overflows.

use super::elements::{elements, elements_mut};
use super::lanes::{Greatest, Sum, fold};
use super::math::exp;
use super::team::with_workspace;
use super::vector::{Isa, Loop, vectorised};
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

/// `out = e^(x − most)`.
struct Exponentials<'a> {
    data: &'a [f32],
    most: f32,
    out: &'a mut [f32],
}

impl Loop for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (out, x) in self.out.iter_mut().zip(self.data) {
            *out = exp::<I>(*x - self.most);
        }
    }
}

/// One distribution whose elements lie side by side.
fn row(data: &[f32], log: bool, out: &mut [f32]) {
    let most = fold(Greatest, data);
    vectorised(Exponentials { data, most, out });
    let sum = fold(Sum, out);
    if log {
        let shift = most + sum.ln();
        out.iter_mut().zip(data).for_each(|(out, x)| *out = *x - shift);
    } else {
        let scale = 1.0 / sum;
        out.iter_mut().for_each(|out| *out *= scale);
    }
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
                    row(source, self.log, target);
                    continue;
                }
                with_workspace(2 * self.count, |space| {
                    let (gathered, made) = space.split_at_mut(self.count);
                    for start in 0..self.inner {
                        let column = source[start..].iter().step_by(self.inner);
                        gathered.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
                        row(gathered, self.log, made);
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
    fn great_elements_do_not_overflow() {
        let input = tensor(DType::F32, &[1, 3], |i| [1e30, 1e30, -1e30][i]);
        let op = Op::Softmax(Softmax { axis: 1, log: false });
        assert_eq!(computed::<f32>(op, &[input], &[1, 3]), [0.5, 0.5, 0.0]);
    }
}
