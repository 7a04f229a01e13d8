//! The types in which keys and values are stored, and how they become `f32`.

use anabranch_cpu_base::vector::{Isa, LANES};
use bytemuck::Pod;
use half::{bf16, f16};

/// A type of stored numbers.
pub(super) trait Stored: Pod + Send + Sync {
    /// Whether [`Self::widened`] needs space for the numbers.
    const NARROW: bool;

    /// The numbers as `f32`, if need be in `space`, which is as long. Inlined always.
    fn widened<'a, I: Isa>(stored: &'a [Self], space: &'a mut [f32]) -> &'a [f32];
}

impl Stored for f32 {
    const NARROW: bool = false;

    #[inline(always)]
    fn widened<'a, I: Isa>(stored: &'a [Self], _: &'a mut [f32]) -> &'a [f32] {
        stored
    }
}

/// [`Stored`] of a type of 16 bits.
macro_rules! narrow {
    ($type:ty, $widen:ident) => {
        impl Stored for $type {
            const NARROW: bool = true;

            #[inline(always)]
            fn widened<'a, I: Isa>(stored: &'a [Self], space: &'a mut [f32]) -> &'a [f32] {
                let (blocks, rest) = bytemuck::cast_slice::<_, u8>(stored).as_chunks::<{ 2 * LANES }>();
                let (made, last) = space.as_chunks_mut::<LANES>();
                for (made, block) in made.iter_mut().zip(blocks) {
                    I::store(I::$widen(block), made);
                }
                let mut block = [0; 2 * LANES];
                block[..rest.len()].copy_from_slice(rest);
                I::store_part(I::$widen(&block), last);
                space
            }
        }
    };
}

narrow!(f16, halves);
narrow!(bf16, upper_halves);
