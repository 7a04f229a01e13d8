//! Transposed convolution: each input element is spread over the output through the window.
//!
//! One part of a run makes one output plane: it adds, for each input channel of its group and each element of the window, the
//! scaled input plane at the window's offset. The order of these additions is fixed, so the bits are.

use super::elements::{elements, elements_mut};
use super::map::Epilogue;
use super::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::{ConvTranspose, NodeSpec};
use std::ops::Range;

/// A transposed convolution of images of one size.
struct ConvTransposeKernel {
    op: ConvTranspose,
    channels: usize,
    planes: usize,
    input: [usize; 2],
    window: [usize; 2],
    output: [usize; 2],
    epilogue: Option<Epilogue>,
}

/// Prepares a transposed convolution.
pub(crate) fn prepare(node: &NodeSpec, op: &ConvTranspose) -> Result<Box<dyn CpuKernel>, KernelError> {
    let dims = |shape: &crate::Shape| <[usize; 4]>::try_from(shape.dims()).expect("images that were checked");
    let [[_, c, h, w], [_, _, kh, kw], [_, m, oh, ow]] =
        [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|spec| dims(&spec.shape));
    let small = |size: &usize| *size <= 1 << 31;
    let sizes = op.strides.iter().chain(&op.dilations).chain(&op.pads).chain([&h, &w, &kh, &kw, &oh, &ow]);
    node.require(sizes.into_iter().all(small), "its sizes are below 2³¹")?;
    let epilogue = Epilogue::of(node)?;
    Ok(Box::new(ConvTransposeKernel {
        op: op.clone(),
        channels: c,
        planes: m,
        input: [h, w],
        window: [kh, kw],
        output: [oh, ow],
        epilogue,
    }))
}

impl ConvTransposeKernel {
    /// Of the element at `tap` of the window along an axis: the input indices that land within the output, and the output
    /// index of input index 0, which may lie outside.
    fn reach(&self, axis: usize, tap: usize) -> (Range<usize>, i64) {
        let (stride, size) = (self.op.strides[axis] as i64, self.output[axis] as i64);
        let start = tap as i64 * self.op.dilations[axis] as i64 - self.op.pads[axis] as i64;
        let first = (-start).max(0).unsigned_abs().div_ceil(stride.unsigned_abs()) as usize;
        let behind = (size - start).max(0).unsigned_abs().div_ceil(stride.unsigned_abs()) as usize;
        let behind = behind.min(self.input[axis]);
        (first.min(behind)..behind, start)
    }

    /// Adds one input plane, scaled by the window's weights, to an output plane.
    fn spread(&self, source: &[f32], weights: &[f32], target: &mut [f32]) {
        let ([_, width], [_, wide]) = (self.input, self.output);
        for (tap, weight) in weights.iter().enumerate() {
            let (rows, top) = self.reach(0, tap / self.window[1]);
            let (columns, left) = self.reach(1, tap % self.window[1]);
            for row in rows {
                let source = &source[row * width..][..width];
                let line = (top + row as i64 * self.op.strides[0] as i64) as usize * wide;
                for column in columns.clone() {
                    let at = (left + column as i64 * self.op.strides[1] as i64) as usize;
                    target[line + at] += weight * source[column];
                }
            }
        }
    }
}

impl CpuKernel for ConvTransposeKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (images, weights): (&[f32], &[f32]) = (elements(call.inputs[0]), elements(call.inputs[1]));
        let target: &mut [f32] = elements_mut(call.outputs[0]);
        let (from, to) = (self.input[0] * self.input[1], self.output[0] * self.output[1]);
        let taps = self.window[0] * self.window[1];
        let (group, per) = (self.channels / self.op.group, self.planes / self.op.group);
        if target.is_empty() {
            return Ok(());
        }
        call.team.run_pieces(target, to, &|plane, target| {
            let (image, m) = (plane / self.planes, plane % self.planes);
            target.fill(0.0);
            for c in m / per * group..(m / per + 1) * group {
                let source = &images[(image * self.channels + c) * from..][..from];
                self.spread(source, &weights[(c * per + m % per) * taps..][..taps], target);
            }
            if let Some(epilogue) = &self.epilogue {
                epilogue.apply(plane * self.output[0], 0, target, &call.inputs[2..]);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::cpu::testing::{computed, tensor};
    use crate::op::{Binary, ConvTranspose, Expression, Op};

    #[test]
    fn inputs_are_spread_through_the_window() {
        for (strides, pads, dilations, group, [n, c, h, w], [per, kh, kw], extra) in [
            ([1, 1], [0; 4], [1, 1], 1, [1, 2, 3, 4], [3, 2, 2], 0),
            ([2, 2], [1, 1, 1, 1], [1, 1], 1, [2, 3, 4, 5], [2, 3, 3], 1),
            ([2, 3], [0, 1, 2, 0], [2, 1], 2, [1, 4, 3, 3], [2, 2, 3], 0),
        ] {
            let full = |axis: usize, size: usize, k: usize| (size - 1) * strides[axis] + (k - 1) * dilations[axis] + 1;
            let [oh, ow] = [full(0, h, kh) - pads[0] - pads[2] + extra, full(1, w, kw) - pads[1] - pads[3] + extra];
            let m = per * group;
            let x = tensor(DType::F32, &[n, c, h, w], |i| ((i * 7) % 13) as f64 - 6.0);
            let weights = tensor(DType::F32, &[c, per, kh, kw], |i| ((i * 5) % 11) as f64 - 5.0);
            let bias = tensor(DType::F32, &[m, 1, 1], |i| i as f64);
            let epilogue = Some(Expression::binary(Binary::Add));
            let op = Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue });
            let got: Vec<f32> = computed(op, &[x.clone(), weights.clone(), bias], &[n, m, oh, ow]);
            let (x, k) = (x.elements::<f32>().expect("f32"), weights.elements::<f32>().expect("f32"));
            let mut want: Vec<f32> = (0..n * m * oh * ow).map(|i| (i / (oh * ow) % m) as f32).collect();
            for i in 0..n * c * h * w {
                let (image, channel, y, z) = (i / (c * h * w), i / (h * w) % c, i / w % h, i % w);
                for t in 0..per * kh * kw {
                    let (o, a, b) = (t / (kh * kw), t / kw % kh, t % kw);
                    let row = (y * strides[0] + a * dilations[0]).wrapping_sub(pads[0]);
                    let column = (z * strides[1] + b * dilations[1]).wrapping_sub(pads[1]);
                    if row < oh && column < ow {
                        let plane = image * m + channel / (c / group) * per + o;
                        want[(plane * oh + row) * ow + column] += x[i] * k[channel * per * kh * kw + t];
                    }
                }
            }
            assert_eq!(got, want, "small integers are exact");
        }
    }
}
