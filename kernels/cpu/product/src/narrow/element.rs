//! Numbers of few bits in packed panels, and their conversion to vectors of `f32`.

use anabranch_cpu_base::vector::{Isa, LANES};
use bytemuck::Pod;

/// Kind of numbers. One byte holds the numbers of consecutive steps, from its lowest bits on, or consecutive bytes hold
/// one number.
pub(super) trait Element: Copy + Send + Sync + 'static {
    /// Bytes of [`LANES`] columns.
    type Bytes: Pod;
    /// Factors of the steps whose numbers share bytes.
    type Factors: Pod + AsRef<[f32]> + AsMut<[f32]>;

    /// Zero point if none is given. Numbers without zero points have 0.
    const MIDDLE: f32;
    /// Number of steps whose numbers share bytes.
    const STEPS: usize = size_of::<Self::Factors>() / size_of::<f32>();

    /// Returns the numbers of [`LANES`] columns at step `step` of the [`Self::STEPS`], plus `shift` unless
    /// [`Self::MIDDLE`] is 0. Inlined always.
    fn widened<I: Isa>(bytes: &Self::Bytes, step: usize, shift: I::Vector) -> I::Vector;

    /// Returns [`Self::widened`] less [`Self::MIDDLE`]. Inlined always.
    fn centred<I: Isa>(bytes: &Self::Bytes, step: usize) -> I::Vector;
}

/// Unsigned integers.
#[derive(Clone, Copy)]
pub(super) struct Bits<const BITS: u32>;

/// Implements [`Element`] for integers of `$bits` bits.
macro_rules! bits {
    ($bits:literal) => {
        impl Element for Bits<$bits> {
            type Bytes = [u8; LANES];
            type Factors = [f32; 8 / $bits];

            const MIDDLE: f32 = (1u32 << ($bits - 1)) as f32;

            #[inline(always)]
            fn widened<I: Isa>(bytes: &Self::Bytes, step: usize, shift: I::Vector) -> I::Vector {
                match step * $bits {
                    0 => I::bits::<0, $bits>(bytes, shift),
                    2 => I::bits::<2, $bits>(bytes, shift),
                    4 => I::bits::<4, $bits>(bytes, shift),
                    _ => I::bits::<6, $bits>(bytes, shift),
                }
            }

            #[inline(always)]
            fn centred<I: Isa>(bytes: &Self::Bytes, step: usize) -> I::Vector {
                match step * $bits {
                    0 => I::centred_bits::<0, $bits>(bytes),
                    2 => I::centred_bits::<2, $bits>(bytes),
                    4 => I::centred_bits::<4, $bits>(bytes),
                    _ => I::centred_bits::<6, $bits>(bytes),
                }
            }
        }
    };
}

bits!(2);
bits!(4);

impl Element for Bits<8> {
    type Bytes = [u8; LANES];
    type Factors = [f32; 1];

    const MIDDLE: f32 = 128.0;

    #[inline(always)]
    fn widened<I: Isa>(bytes: &Self::Bytes, _: usize, shift: I::Vector) -> I::Vector {
        I::bits::<0, 8>(bytes, shift)
    }

    #[inline(always)]
    fn centred<I: Isa>(bytes: &Self::Bytes, _: usize) -> I::Vector {
        I::centred_bits::<0, 8>(bytes)
    }
}

/// IEEE 754 binary16 numbers.
#[derive(Clone, Copy)]
pub(super) struct Half;

impl Element for Half {
    type Bytes = [u8; 2 * LANES];
    type Factors = [f32; 1];

    const MIDDLE: f32 = 0.0;

    #[inline(always)]
    fn widened<I: Isa>(bytes: &Self::Bytes, step: usize, _: I::Vector) -> I::Vector {
        Self::centred::<I>(bytes, step)
    }

    #[inline(always)]
    fn centred<I: Isa>(bytes: &Self::Bytes, _: usize) -> I::Vector {
        I::halves(bytes)
    }
}

/// Upper halves of binary32 numbers.
#[derive(Clone, Copy)]
pub(super) struct UpperHalf;

impl Element for UpperHalf {
    type Bytes = [u8; 2 * LANES];
    type Factors = [f32; 1];

    const MIDDLE: f32 = 0.0;

    #[inline(always)]
    fn widened<I: Isa>(bytes: &Self::Bytes, step: usize, _: I::Vector) -> I::Vector {
        Self::centred::<I>(bytes, step)
    }

    #[inline(always)]
    fn centred<I: Isa>(bytes: &Self::Bytes, _: usize) -> I::Vector {
        I::upper_halves(bytes)
    }
}
