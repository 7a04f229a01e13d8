//! Normalises rows of `f64` to unit variance, or to unit mean square if the mean is not subtracted. Rows whose squares
//! leave the range of `f64` are scaled by a power of two first, which changes no digit.

use super::sum;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Normalize};

/// Elements that are worth a hand-over to another thread.
const PIECE: usize = 8192;

/// Kernel that normalises rows of `columns` elements.
struct Kernel {
    columns: usize,
    epsilon: f64,
    center: bool,
}

/// Prepares a normalisation.
pub(super) fn prepare(node: &NodeSpec, op: &Normalize) -> Box<dyn CpuKernel> {
    let columns = node.inputs[0].shape.dims()[op.axis..].iter().product();
    Box::new(Kernel { columns, epsilon: op.epsilon.into(), center: op.center })
}

impl Kernel {
    fn row(&self, source: &[f64], target: &mut [f64]) {
        let (mean, variance) = self.moments(source, |x| x);
        let largest = source.iter().fold(0f64, |most, x| most.max(x.abs()));
        let plain = (variance + self.epsilon).is_normal() || largest == 0.0 || !source.iter().all(|x| x.is_finite());
        if plain {
            let deviation = (variance + self.epsilon).sqrt();
            target.iter_mut().zip(source).for_each(|(to, x)| *to = (x - mean) / deviation);
            return;
        }
        let scale = (-largest.log2().clamp(-1000.0, 1000.0).floor()).exp2();
        let (mean, variance) = self.moments(source, |x| x * scale);
        let deviation = (variance + self.epsilon * scale * scale).sqrt();
        target.iter_mut().zip(source).for_each(|(to, x)| *to = (x * scale - mean) / deviation);
    }

    /// Returns the mean, if it is subtracted, and the mean of the squares around it, of the row's elements after
    /// `scaled`.
    fn moments(&self, source: &[f64], scaled: impl Fn(f64) -> f64 + Copy) -> (f64, f64) {
        let (count, from) = (source.len() as f64, scaled(source[0]));
        // Distances are measured from the row's first element. Otherwise the rounding of the mean could equal the
        // differences between nearly equal elements.
        let mean = if self.center { from + sum(source, |x| scaled(x) - from) / count } else { 0.0 };
        let square = |x: f64| (scaled(x) - mean) * (scaled(x) - mean);
        (mean, sum(source, square) / count)
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f64] = elements(call.inputs[0]);
        let target: &mut [f64] = elements_mut(call.outputs[0]);
        if target.is_empty() {
            return Ok(());
        }
        let length = (PIECE / self.columns).max(1) * self.columns;
        call.team.run_pieces(target, length, &|piece, target| {
            let source = &source[piece * length..][..target.len()];
            let rows = source.chunks_exact(self.columns).zip(target.chunks_exact_mut(self.columns));
            rows.for_each(|(source, target)| self.row(source, target));
        });
        Ok(())
    }
}
