//! Pooling of 64-bit floats: each output separately, from the elements of its window that lie in the image.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::number::greater;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_data::pool::PoolKernel;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Pool, PoolKind};

/// Elements read that are worth a hand-over to another thread.
const PIECE: usize = 16 * 1024;

/// Kernel that pools images of one size.
struct Kernel(PoolKernel);

/// Prepares a pooling.
pub(super) fn prepare(node: &NodeSpec, op: &Pool) -> Result<Box<dyn CpuKernel>, KernelError> {
    Ok(Box::new(Kernel(PoolKernel::new(node, op)?)))
}

impl Kernel {
    /// Returns the element at a row and column of the output.
    fn pooled(&self, image: &[f64], [y, x]: [usize; 2]) -> f64 {
        let PoolKernel { op, input, .. } = &self.0;
        let ((rows, top), (columns, left)) = (self.0.window(0, y), self.0.window(1, x));
        let place =
            |start: isize, axis: usize, element: usize| (start + (element * op.dilations[axis]) as isize) as usize;
        let line = |row: usize| &image[place(top, 0, row) * input[1]..][..input[1]];
        let inside = rows.flat_map(|row| columns.clone().map(move |column| line(row)[place(left, 1, column)]));
        match op.kind {
            PoolKind::Max => inside.fold(f64::NEG_INFINITY, greater),
            PoolKind::Average { .. } => {
                inside.fold(-0.0, |sum, x| sum + x) / (self.0.count(0, y) * self.0.count(1, x)) as f64
            }
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f64] = elements(call.inputs[0]);
        let target: &mut [f64] = elements_mut(call.outputs[0]);
        let PoolKernel { op, input, output } = &self.0;
        let (from, to) = (input[0] * input[1], output[0] * output[1]);
        let piece = (PIECE / op.window[0].saturating_mul(op.window[1])).max(1);
        call.team.run_pieces(target, piece, &|number, target| {
            for (at, target) in (number * piece..).zip(target) {
                let image = &source[at / to * from..][..from];
                *target = self.pooled(image, [at % to / output[1], at % output[1]]);
            }
        });
        Ok(())
    }
}
