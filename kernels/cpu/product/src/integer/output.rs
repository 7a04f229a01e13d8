//! Outputs of products of 8-bit integers: exact sums, or sums rounded to a grid of 8 bits.

use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::vector::Isa;
use anabranch_op::dtype::DType;
use anabranch_op::op::{NodeSpec, Rounding};

/// 1.5 · 2⁵²: a number of small magnitude added to it is rounded to an integer, which is in the low bits of the sum.
const INTEGERS: f64 = 6_755_399_441_055_744.0;

/// 1.5 · 2²³, as [`INTEGERS`].
const INTEGERS_F32: f32 = 12_582_912.0;

/// Inputs of a product that follow its operands.
#[derive(Clone, Copy)]
pub(super) struct Form {
    zero_points: bool,
    rounding: Option<Rounding>,
    signed: bool,
}

impl Form {
    pub(super) fn new(node: &NodeSpec, zero_points: bool, rounding: Option<Rounding>) -> Self {
        Self { zero_points, rounding, signed: node.outputs[0].dtype == DType::I8 }
    }

    /// Whether the output is rounded to 8 bits.
    pub(super) fn is_rounded(&self) -> bool {
        self.rounding.is_some()
    }

    /// Returns the parameters of a call with these inputs.
    pub(super) fn parameters<'a>(&self, inputs: &[&'a [u8]]) -> Parameters<'a> {
        let own = &inputs[2..];
        let at = 1 + usize::from(self.zero_points);
        let zero_points = self.zero_points.then(|| elements(own[1]));
        let Some(Rounding { least, greatest }) = self.rounding else {
            return Parameters { summands: elements(own[0]), zero_points, ..Parameters::EXACT };
        };
        let byte = own[at + 2][0];
        let zero = if self.signed { i32::from(byte as i8) } else { i32::from(byte) };
        let [least, greatest] = [least, greatest].map(|bound| f64::from(i32::from(bound) - zero));
        let (scales, offsets) = (elements(own[at]), elements(own[at + 1]));
        Parameters { summands: elements(own[0]), zero_points, scales, offsets, zero, least, greatest }
    }
}

/// Parameters of each output channel, or of each column of B.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a> {
    pub(super) summands: &'a [i32],
    /// Zero points of the weights.
    pub(super) zero_points: Option<&'a [i32]>,
    scales: &'a [f64],
    offsets: &'a [f64],
    /// Zero point of the output.
    zero: i32,
    /// Bounds of the output, less its zero point.
    least: f64,
    greatest: f64,
}

impl<'a> Parameters<'a> {
    const EXACT: Self =
        Self { summands: &[], zero_points: None, scales: &[], offsets: &[], zero: 0, least: 0.0, greatest: 0.0 };

    /// Returns the parameters of `count` channels or columns from `first` on.
    pub(super) fn part(self, first: usize, count: usize) -> Self {
        let of_grid = |all: &'a [f64]| all.get(first..first + count).unwrap_or(&[]);
        Self {
            summands: &self.summands[first..][..count],
            zero_points: self.zero_points.map(|zeros| &zeros[first..][..count]),
            scales: of_grid(self.scales),
            offsets: of_grid(self.offsets),
            ..self
        }
    }

    /// Returns the weights' zero point of a channel or column.
    #[inline(always)]
    pub(super) fn zero_point(&self, at: usize) -> i32 {
        self.zero_points.map_or(0, |zeros| zeros[at])
    }

    #[inline(always)]
    fn rounded<I: Isa>(&self, sum: i32, scale: f64, offset: f64) -> u8 {
        let x = I::fused_f64(f64::from(sum), scale, offset);
        let undefined = x.is_nan();
        let x = if x > self.least { x } else { self.least };
        let x = if x < self.greatest { x } else { self.greatest };
        let integer = (x + INTEGERS).to_bits() as i32;
        if undefined { 0 } else { integer.wrapping_add(self.zero) as u8 }
    }

    /// Rounds sums in `f32`, which is faster. Returns the greatest distance of a number from its integer, as bits.
    #[inline(always)]
    fn rounded_f32<I: Isa>(&self, sums: &[i32; PANEL], [scale, offset]: [f32; 2], to: &mut [u8; PANEL]) -> u32 {
        let (least, greatest, zero) = (self.least as f32, self.greatest as f32, self.zero);
        let mut most = 0;
        for (to, sum) in to.iter_mut().zip(sums) {
            let x = I::fused(*sum as f32, scale, offset);
            let x = if x > least { x } else { least };
            let x = if x < greatest { x } else { greatest };
            let moved = x + INTEGERS_F32;
            let distance = (x - (moved - INTEGERS_F32)).abs().to_bits();
            most = if distance > most { distance } else { most };
            *to = (moved.to_bits() as i32).wrapping_add(zero) as u8;
        }
        most
    }
}

/// Returns the distance from an integer, as bits of an `f32`, up to which a number of this scale and offset is rounded
/// alike in `f32` and in `f64`. `None` if there is none.
///
/// In `f32` the sum, the scale, the offset and the result are each rounded by at most 2⁻²⁴ of their value. A result
/// that is not cut has a magnitude of at most 383.
fn certain(scale: f64, offset: f64) -> Option<u32> {
    let error = (384.0 + offset.abs()) / f64::from(1 << 22);
    (scale.abs() < 1e30 && error < 0.25).then(|| ((0.5 - error) as f32).to_bits())
}

/// Element of an output.
pub(super) trait Output: Copy + Default + Send + Sync {
    /// Writes sums of one output channel.
    fn write_channel<I: Isa>(parameters: &Parameters<'_>, channel: usize, sums: &[i32; PANEL], to: &mut [Self]);

    /// Writes sums of columns from the first on, one of each.
    fn write_columns<I: Isa>(parameters: &Parameters<'_>, sums: &[i32], to: &mut [Self]);
}

impl Output for i32 {
    #[inline(always)]
    fn write_channel<I: Isa>(_: &Parameters<'_>, _: usize, sums: &[i32; PANEL], to: &mut [Self]) {
        match <&mut [i32; PANEL]>::try_from(&mut *to) {
            Ok(to) => *to = *sums,
            Err(_) => to.copy_from_slice(&sums[..to.len()]),
        }
    }

    #[inline(always)]
    fn write_columns<I: Isa>(_: &Parameters<'_>, sums: &[i32], to: &mut [Self]) {
        to.copy_from_slice(sums);
    }
}

/// Bits of a number of the output's type.
impl Output for u8 {
    #[inline(always)]
    fn write_channel<I: Isa>(parameters: &Parameters<'_>, channel: usize, sums: &[i32; PANEL], to: &mut [Self]) {
        let (scale, offset) = (parameters.scales[channel], parameters.offsets[channel]);
        let mut made = [0; PANEL];
        let sure = certain(scale, offset).is_some_and(|certain| {
            parameters.rounded_f32::<I>(sums, [scale as f32, offset as f32], &mut made) <= certain
        });
        if !sure {
            for (made, sum) in made.iter_mut().zip(sums) {
                *made = parameters.rounded::<I>(*sum, scale, offset);
            }
        }
        match <&mut [u8; PANEL]>::try_from(&mut *to) {
            Ok(to) => *to = made,
            Err(_) => to.copy_from_slice(&made[..to.len()]),
        }
    }

    #[inline(always)]
    fn write_columns<I: Isa>(parameters: &Parameters<'_>, sums: &[i32], to: &mut [Self]) {
        let grid = parameters.scales.iter().zip(parameters.offsets);
        for ((to, sum), (scale, offset)) in to.iter_mut().zip(sums).zip(grid) {
            *to = parameters.rounded::<I>(*sum, *scale, *offset);
        }
    }
}
