//! Outputs of products of 8-bit integers: exact sums, or sums rounded to a grid of 8 bits.

use super::block::Row;
use super::columns::Columns;
use super::panels::copy;
#[cfg(target_arch = "x86_64")]
use super::x86_rounding::{self, Grid};
use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::vector::{Isa, LANES};
use anabranch_op::dtype::DType;
use anabranch_op::op::{NodeSpec, Rounding};

/// Maximum sums that are rounded at once.
pub(super) const ROUNDED: usize = 4 * LANES;

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
        Parameters {
            summands: elements(own[0]),
            zero_points,
            scales,
            offsets,
            zero,
            least,
            greatest,
            #[cfg(target_arch = "x86_64")]
            grid: Grid::new([least, greatest], zero, self.signed),
        }
    }
}

/// Parameters of all output channels, or of all columns of B.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a> {
    pub(super) summands: &'a [i32],
    /// Zero points of the weights.
    pub(super) zero_points: Option<&'a [i32]>,
    pub(super) scales: &'a [f64],
    pub(super) offsets: &'a [f64],
    /// Zero point of the output.
    zero: i32,
    /// Bounds of the output, less its zero point.
    least: f64,
    greatest: f64,
    #[cfg(target_arch = "x86_64")]
    grid: Grid,
}

impl<'a> Parameters<'a> {
    const EXACT: Self = Self {
        summands: &[],
        zero_points: None,
        scales: &[],
        offsets: &[],
        zero: 0,
        least: 0.0,
        greatest: 0.0,
        #[cfg(target_arch = "x86_64")]
        grid: Grid::NONE,
    };

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

    /// Returns the parameters of one channel, whose weights were shifted by `−moved`. `excess` is subtracted from its
    /// sums.
    pub(super) fn channel(&self, at: usize, moved: i32, excess: i32) -> Channel {
        let of_grid = |all: &[f64]| all.get(at).copied().unwrap_or(0.0);
        let (scale, offset) = (of_grid(self.scales), of_grid(self.offsets));
        Channel {
            summand: self.summands[at].wrapping_sub(excess),
            zero: self.zero_point(at).wrapping_sub(moved),
            scale,
            offset,
            certain: certain(scale, offset).unwrap_or(-1),
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
        let made = ((x + INTEGERS).to_bits() as i32).wrapping_add(self.zero) as u8;
        if undefined { 0 } else { made }
    }

    /// Rounds sums of a channel, at most [`ROUNDED`].
    #[inline(always)]
    fn round<I: Isa>(&self, channel: &Channel, sums: &[i32], to: &mut [u8]) {
        let certain = match I::WIDE {
            #[cfg(target_arch = "x86_64")]
            true => self.round_wide(channel, sums, to),
            _ => self.round_in_f32::<I>(channel, sums, to),
        };
        if certain {
            return;
        }
        for (to, sum) in to.iter_mut().zip(sums) {
            *to = self.rounded::<I>(sum.wrapping_add(channel.summand), channel.scale, channel.offset);
        }
    }

    /// Rounds sums of columns in `f32`. Returns whether all are certain to be right.
    #[inline(always)]
    fn round_columns<I: Isa>(&self, columns: &Columns, sums: &Row, to: &mut [u8]) -> bool {
        let Columns { scales, offsets, certain, .. } = columns;
        #[cfg(target_arch = "x86_64")]
        if I::WIDE {
            // SAFETY: on this architecture, wide registers are those of AVX-512 with these features (see `Isa`).
            return unsafe { x86_rounding::round_columns(&sums.0, scales, offsets, *certain, &self.grid, to) };
        }
        let (least, greatest) = (self.least as f32, self.greatest as f32);
        let mut margin = 0;
        for (j, to) in to.iter_mut().enumerate() {
            let (made, distance) = self.round_one::<I>([scales[j], offsets[j], least, greatest], sums.0[j]);
            margin |= certain - distance;
            *to = made;
        }
        margin >= 0
    }

    /// Returns a sum rounded in `f32`, and the bits of its distance from the number before.
    #[inline(always)]
    fn round_one<I: Isa>(&self, [scale, offset, least, greatest]: [f32; 4], sum: i32) -> (u8, i32) {
        let x = I::fused(sum as f32, scale, offset);
        let x = if x > least { x } else { least };
        let x = if x < greatest { x } else { greatest };
        let moved = x + INTEGERS_F32;
        let distance = (x - (moved - INTEGERS_F32)).abs().to_bits() as i32;
        ((moved.to_bits() as i32).wrapping_add(self.zero) as u8, distance)
    }

    /// As [`Self::round_in_f32`], with instructions of AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn round_wide(&self, channel: &Channel, sums: &[i32], to: &mut [u8]) -> bool {
        let certain = if channel.certain < 0 { -1.0 } else { f32::from_bits(channel.certain as u32) };
        let scale = [channel.scale as f32, channel.offset as f32, certain];
        assert!(sums.len() == to.len() && to.len() <= ROUNDED, "as many results as sums");
        // SAFETY: on this architecture, wide registers are those of AVX-512 with these features (see `Isa`).
        unsafe { x86_rounding::round(sums, channel.summand, scale, &self.grid, to) }
    }

    /// Rounds sums in `f32`, which is faster. Returns whether all are certain to be right.
    #[inline(always)]
    fn round_in_f32<I: Isa>(&self, channel: &Channel, sums: &[i32], to: &mut [u8]) -> bool {
        let (least, greatest) = (self.least as f32, self.greatest as f32);
        let (scale, offset) = (channel.scale as f32, channel.offset as f32);
        // Negative if a distance exceeds what is certain. Distances are positive, and so are their bits.
        let mut margin = 0;
        for (to, sum) in to.iter_mut().zip(sums) {
            let sum = sum.wrapping_add(channel.summand);
            let (made, distance) = self.round_one::<I>([scale, offset, least, greatest], sum);
            margin |= channel.certain - distance;
            *to = made;
        }
        margin >= 0
    }
}

/// Parameters of one output channel.
pub(super) struct Channel {
    /// Added to each sum of products.
    summand: i32,
    /// Zero point of the weights, less their shift.
    pub(super) zero: i32,
    scale: f64,
    offset: f64,
    /// Result of [`certain`], or −1.
    certain: i32,
}

/// Returns the distance from an integer, as bits of an `f32`, up to which a number of this scale and offset is rounded
/// alike in `f32` and in `f64`. `None` if there is none.
///
/// In `f32` the sum, the scale, the offset and the result are each rounded by at most 2⁻²⁴ of their value. A result
/// that is not cut has a magnitude of at most 383.
pub(super) fn certain(scale: f64, offset: f64) -> Option<i32> {
    let error = (384.0 + offset.abs()) / f64::from(1 << 22);
    (scale.abs() < 1e30 && error < 0.25).then(|| ((0.5 - error) as f32).to_bits() as i32)
}

/// Element of an output.
pub(super) trait Output: Copy + Default + Send + Sync {
    /// Writes the first sums of one output channel, as many as `to` has.
    fn write_channel<I: Isa>(parameters: &Parameters<'_>, channel: &Channel, sums: &[i32], to: &mut [Self]);

    /// Writes sums of a row, one of each column, as many as `to` has.
    fn write_columns<I: Isa>(parameters: &Parameters<'_>, columns: &Columns, sums: &Row, to: &mut [Self]);
}

impl Output for i32 {
    #[inline(always)]
    fn write_channel<I: Isa>(_: &Parameters<'_>, channel: &Channel, sums: &[i32], to: &mut [Self]) {
        for (to, sum) in to.iter_mut().zip(sums) {
            *to = sum.wrapping_add(channel.summand);
        }
    }

    #[inline(always)]
    fn write_columns<I: Isa>(_: &Parameters<'_>, _: &Columns, sums: &Row, to: &mut [Self]) {
        for (to, sums) in to.chunks_mut(LANES).zip(sums.0.as_chunks::<LANES>().0) {
            match to.first_chunk_mut() {
                Some(to) => *to = *sums,
                None => copy(&sums[..to.len()], to),
            }
        }
    }
}

/// Bits of a number of the output's type.
impl Output for u8 {
    #[inline(always)]
    fn write_channel<I: Isa>(parameters: &Parameters<'_>, channel: &Channel, sums: &[i32], to: &mut [Self]) {
        for (sums, to) in sums[..to.len()].chunks(ROUNDED).zip(to.chunks_mut(ROUNDED)) {
            parameters.round::<I>(channel, sums, to);
        }
    }

    #[inline(always)]
    fn write_columns<I: Isa>(parameters: &Parameters<'_>, columns: &Columns, sums: &Row, to: &mut [Self]) {
        if columns.certain >= 0 && parameters.round_columns::<I>(columns, sums, to) {
            return;
        }
        let grid = parameters.scales.iter().zip(parameters.offsets);
        for ((to, sum), (scale, offset)) in to.iter_mut().zip(&sums.0).zip(grid) {
            *to = parameters.rounded::<I>(*sum, *scale, *offset);
        }
    }
}
