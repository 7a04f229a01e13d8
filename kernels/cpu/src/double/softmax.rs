//! Softmax of 64-bit floats: exponentials divided by their sum, both relative to the greatest element so that nothing
//! overflows.

use super::{sum, with_numbers};
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::number::Number;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, ReduceKind, Softmax};

/// Elements that are worth a hand-over to another thread.
const PIECE: usize = 4096;

/// Kernel of a softmax along an axis of `count` elements that are `inner` apart.
struct Kernel {
    count: usize,
    inner: usize,
    log: bool,
}

/// Prepares a softmax.
pub(super) fn prepare(node: &NodeSpec, op: &Softmax) -> Box<dyn CpuKernel> {
    let dims = node.inputs[0].shape.dims();
    Box::new(Kernel { count: dims[op.axis], inner: dims[op.axis + 1..].iter().product(), log: op.log })
}

impl Kernel {
    /// Computes one distribution whose elements lie side by side. A NaN makes all results NaN.
    fn row(&self, data: &[f64], out: &mut [f64]) {
        let most = f64::fold(ReduceKind::Max, data);
        out.iter_mut().zip(data).for_each(|(out, x)| *out = (x - most).exp());
        let total = sum(out, |x| x);
        if self.log {
            // This order loses no precision if all elements are far from 0.
            let log = total.ln();
            out.iter_mut().zip(data).for_each(|(out, x)| *out = (x - most) - log);
        } else {
            out.iter_mut().for_each(|out| *out /= total);
        }
    }

    /// Computes the distributions of one stack, which are interleaved.
    fn across(&self, source: &[f64], target: &mut [f64]) {
        with_numbers(2 * self.count, |space| {
            let (gathered, made) = space.split_at_mut(self.count);
            for start in 0..self.inner {
                let column = source[start..].iter().step_by(self.inner);
                gathered.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
                self.row(gathered, made);
                let column = target[start..].iter_mut().step_by(self.inner);
                column.zip(&*made).for_each(|(to, from)| *to = *from);
            }
        });
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f64] = elements(call.inputs[0]);
        let target: &mut [f64] = elements_mut(call.outputs[0]);
        let stack = self.count * self.inner;
        if target.is_empty() {
            return Ok(());
        }
        let length = (PIECE / stack).max(1) * stack;
        call.team.run_pieces(target, length, &|piece, target| {
            let source = &source[piece * length..][..target.len()];
            for (source, target) in source.chunks_exact(stack).zip(target.chunks_exact_mut(stack)) {
                match self.inner {
                    1 => self.row(source, target),
                    _ => self.across(source, target),
                }
            }
        });
        Ok(())
    }
}
