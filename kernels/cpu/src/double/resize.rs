//! Resizing of images of 64-bit floats: each output element is a weighted sum of at most 4 × 4 neighbours.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Resize, Taps};

/// Elements of the output that are worth a hand-over to another thread.
const PIECE: usize = 4096;

/// Kernel that resamples planes of one size.
struct Kernel {
    rows: Vec<Taps<f64>>,
    columns: Vec<Taps<f64>>,
    input: [usize; 2],
}

/// Prepares a resampling.
pub(super) fn prepare(node: &NodeSpec, op: &Resize) -> Result<Box<dyn CpuKernel>, KernelError> {
    let sizes = |dims: &[usize]| [dims[dims.len() - 2], dims[dims.len() - 1]];
    let (input, output) = (sizes(node.inputs[0].shape.dims()), sizes(node.outputs[0].shape.dims()));
    let axis = |axis: usize| node.table((0..output[axis]).map(|i| op.taps(axis, i, input[axis], output[axis])));
    Ok(Box::new(Kernel { rows: axis(0)?, columns: axis(1)?, input }))
}

/// Returns `Σ weight · value(index)`; a single neighbour is returned unchanged.
fn weighted(taps: &Taps<f64>, value: impl Fn(usize) -> f64) -> f64 {
    if taps.count == 1 {
        return value(taps.indices[0]);
    }
    let neighbours = taps.indices.iter().zip(taps.weights).take(taps.count);
    neighbours.fold(0.0, |sum, (index, weight)| sum + weight * value(*index))
}

impl CpuKernel for Kernel {
    fn resident_bytes(&self) -> usize {
        (self.rows.len() + self.columns.len()) * size_of::<Taps<f64>>()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f64] = elements(call.inputs[0]);
        let target: &mut [f64] = elements_mut(call.outputs[0]);
        let ([height, width], high, wide) = (self.input, self.rows.len(), self.columns.len());
        call.team.run_pieces(target, PIECE, &|piece, target| {
            for (at, target) in (piece * PIECE..).zip(target) {
                let (line, column) = (at / wide, &self.columns[at % wide]);
                let plane = &source[line / high * height * width..][..height * width];
                let row = |row: usize| weighted(column, |index| plane[row * width + index]);
                *target = weighted(&self.rows[line % high], row);
            }
        });
        Ok(())
    }
}
