//! Resize: each output element a weighted sum of at most 4 × 4 neighbours, the weights of rows and columns being known ahead.

use super::elements::{elements, elements_mut};
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{Interpolation, NodeSpec, Resize, cubic_weights};

/// The neighbours of one output index along an axis, with their weights.
#[derive(Clone, Debug, PartialEq)]
struct Taps {
    indices: [usize; 4],
    weights: [f32; 4],
    count: usize,
}

/// A resampling of planes of one size.
struct ResizeKernel {
    rows: Vec<Taps>,
    columns: Vec<Taps>,
    input: [usize; 2],
}

/// Prepares a resampling.
pub(crate) fn prepare(node: &NodeSpec, op: &Resize) -> Box<dyn CpuKernel> {
    let sizes = |dims: &[usize]| [dims[dims.len() - 2], dims[dims.len() - 1]];
    let (input, output) = (sizes(node.inputs[0].shape.dims()), sizes(node.outputs[0].shape.dims()));
    let axis = |axis: usize| (0..output[axis]).map(|i| taps(op, axis, i, input[axis], output[axis])).collect();
    Box::new(ResizeKernel { rows: axis(0), columns: axis(1), input })
}

fn taps(op: &Resize, axis: usize, index: usize, input: usize, output: usize) -> Taps {
    let x = op.coordinate(axis, index, input, output);
    let last = input.saturating_sub(1);
    let clamped = |at: f64| (at.max(0.0) as usize).min(last);
    match op.interpolation {
        Interpolation::Nearest(rounding) => {
            Taps { indices: [clamped(rounding.rounded(x)), 0, 0, 0], weights: [1.0, 0.0, 0.0, 0.0], count: 1 }
        }
        Interpolation::Linear => {
            let x = x.clamp(0.0, last as f64);
            let fraction = (x - x.floor()) as f32;
            let indices = [clamped(x.floor()), clamped(x.floor() + 1.0), 0, 0];
            Taps { indices, weights: [1.0 - fraction, fraction, 0.0, 0.0], count: 2 }
        }
        Interpolation::Cubic { coefficient } => {
            let fraction = x - x.floor();
            let weights = cubic_weights(f64::from(coefficient), fraction);
            let indices = [-1.0, 0.0, 1.0, 2.0].map(|offset| clamped(x.floor() + offset));
            Taps { indices, weights: weights.map(|weight| weight as f32), count: 4 }
        }
    }
}

impl ResizeKernel {
    fn plane(&self, source: &[f32], target: &mut [f32]) {
        let width = self.input[1];
        for (rows, target) in self.rows.iter().zip(target.chunks_exact_mut(self.columns.len())) {
            for (columns, target) in self.columns.iter().zip(target) {
                let mut sum = 0.0;
                for i in 0..rows.count {
                    let line = &source[rows.indices[i] * width..][..width];
                    let mut across = 0.0;
                    for j in 0..columns.count {
                        across += columns.weights[j] * line[columns.indices[j]];
                    }
                    sum += rows.weights[i] * across;
                }
                *target = sum;
            }
        }
    }
}

impl CpuKernel for ResizeKernel {
    fn resident_bytes(&self) -> usize {
        (self.rows.len() + self.columns.len()) * size_of::<Taps>()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let source: &[f32] = elements(call.inputs[0]);
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let (from, to) = (self.input[0] * self.input[1], self.rows.len() * self.columns.len());
        if target.is_empty() {
            return Ok(());
        }
        let planes = (8192 / to).max(1);
        call.team.run_pieces(target, planes * to, &|piece, target| {
            for (plane, target) in target.chunks_exact_mut(to).enumerate() {
                self.plane(&source[(piece * planes + plane) * from..][..from], target);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::cpu::testing::{computed, tensor};
    use crate::op::{Coordinates, NearestRounding, Op};

    /// One row `1 2 3 4`, resized in width.
    fn resized(interpolation: Interpolation, coordinates: Coordinates, out: usize) -> Vec<f32> {
        let input = tensor(DType::F32, &[1, 1, 1, 4], |i| i as f64 + 1.0);
        let op = Op::Resize(Resize { interpolation, coordinates, scales: [1.0, out as f64 / 4.0] });
        computed(op, &[input], &[1, 1, 1, out])
    }

    #[test]
    fn nearest_takes_the_neighbour_that_the_rounding_says() {
        let nearest = |rounding, coordinates, out| resized(Interpolation::Nearest(rounding), coordinates, out);
        use Coordinates::{Asymmetric, HalfPixel};
        use NearestRounding::{Ceil, Floor, RoundPreferCeil, RoundPreferFloor};
        assert_eq!(nearest(Floor, Asymmetric, 8), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        assert_eq!(nearest(Ceil, Asymmetric, 8), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
        assert_eq!(nearest(RoundPreferFloor, HalfPixel, 2), [1.0, 3.0]);
        assert_eq!(nearest(RoundPreferCeil, HalfPixel, 2), [2.0, 4.0]);
    }

    #[test]
    fn linear_and_cubic_interpolate() {
        let linear = |coordinates, out| resized(Interpolation::Linear, coordinates, out);
        assert_eq!(linear(Coordinates::HalfPixel, 8), [1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]);
        assert_eq!(linear(Coordinates::AlignCorners, 7), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
        let cubic = resized(Interpolation::Cubic { coefficient: -0.75 }, Coordinates::HalfPixel, 4);
        assert_eq!(cubic, [1.0, 2.0, 3.0, 4.0]);
        assert!(cubic_weights(-0.75, 0.3).iter().sum::<f64>() - 1.0 < 1e-6);
    }
}
