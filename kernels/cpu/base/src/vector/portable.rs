//! Instruction sets that only the compiler knows: a vector is an array.

use super::{Isa, LANES};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Defines an instruction set of arrays from its functions for multiply-add.
macro_rules! portable_isa {
    ($(#[$attribute:meta])* $name:ident, $fused:expr, $fused_f64:expr) => {
        $(#[$attribute])*
        pub(super) struct $name;

        $(#[$attribute])*
        // SAFETY: all processors have the instructions; the registers are not wide.
        unsafe impl Isa for $name {
            type Vector = [f32; LANES];
            type Quads = [[u8; 4]; LANES];
            type Sums = [[i16; 2]; LANES];

            const WIDE: bool = false;
            // A sum of 16 bits grows by two products of at most 15 · 128.
            const QUADS: usize = 8;

            #[inline(always)]
            fn fused(a: f32, b: f32, c: f32) -> f32 {
                $fused(a, b, c)
            }

            #[inline(always)]
            fn fused_f64(a: f64, b: f64, c: f64) -> f64 {
                $fused_f64(a, b, c)
            }

            #[inline(always)]
            fn splat(value: f32) -> Self::Vector {
                [value; LANES]
            }

            #[inline(always)]
            fn load(from: &[f32; LANES]) -> Self::Vector {
                *from
            }

            #[inline(always)]
            fn load_part(from: &[f32], mut beyond: Self::Vector) -> Self::Vector {
                beyond.iter_mut().zip(from).for_each(|(to, x)| *to = *x);
                beyond
            }

            #[inline(always)]
            fn store(vector: Self::Vector, to: &mut [f32; LANES]) {
                *to = vector;
            }

            #[inline(always)]
            fn store_part(vector: Self::Vector, to: &mut [f32]) {
                to.iter_mut().zip(vector).for_each(|(to, x)| *to = x);
            }

            #[inline(always)]
            fn fused_lanes(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| Self::fused(a[i], b[i], c[i]))
            }

            #[inline(always)]
            fn sum(a: Self::Vector, b: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| a[i] + b[i])
            }

            #[inline(always)]
            fn quotient(a: Self::Vector, b: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| a[i] / b[i])
            }

            #[inline(always)]
            fn greater(a: Self::Vector, b: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
            }

            #[inline(always)]
            fn lesser(a: Self::Vector, b: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
            }

            #[inline(always)]
            fn even(low: Self::Vector, high: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| if i < LANES / 2 { low[2 * i] } else { high[2 * i - LANES] })
            }

            #[inline(always)]
            fn odd(low: Self::Vector, high: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| if i < LANES / 2 { low[2 * i + 1] } else { high[2 * i + 1 - LANES] })
            }

            #[inline(always)]
            fn shifted(vector: Self::Vector, last: f32) -> Self::Vector {
                std::array::from_fn(|i| if i + 1 < LANES { vector[i + 1] } else { last })
            }

            #[inline(always)]
            fn bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES], shift: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| f32::from(from[i] >> SHIFT & (u8::MAX >> (8 - BITS))) + shift[i])
            }

            #[inline(always)]
            fn centred_bits<const SHIFT: u32, const BITS: u32>(from: &[u8; LANES]) -> Self::Vector {
                Self::bits::<SHIFT, BITS>(from, Self::splat(-((1u32 << (BITS - 1)) as f32)))
            }

            #[inline(always)]
            fn halves(from: &[u8; 2 * LANES]) -> Self::Vector {
                let (halves, mut to): ([f16; LANES], _) = (bytemuck::pod_read_unaligned(from), [0.0; LANES]);
                halves.convert_to_f32_slice(&mut to);
                to
            }

            #[inline(always)]
            fn to_halves(vector: Self::Vector, to: &mut [u8; 2 * LANES]) {
                let mut halves = [f16::ZERO; LANES];
                halves.convert_from_f32_slice(&vector);
                to.copy_from_slice(bytemuck::cast_slice(&halves));
            }

            #[inline(always)]
            fn upper_halves(from: &[u8; 2 * LANES]) -> Self::Vector {
                std::array::from_fn(|i| bf16::from_ne_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
            }

            #[inline(always)]
            fn nibbles(from: &[u8; 4 * LANES]) -> [Self::Quads; 2] {
                [0, 4].map(|shift| std::array::from_fn(|i| std::array::from_fn(|j| from[4 * i + j] >> shift & 15)))
            }

            #[inline(always)]
            fn add_quads(sums: Self::Sums, bytes: Self::Quads, by: [i8; 4]) -> Self::Sums {
                let product = |i: usize, j: usize| i16::from(bytes[i][j]) * i16::from(by[j]);
                let pair = |i: usize, j: usize| product(i, j).wrapping_add(product(i, j + 1));
                std::array::from_fn(|i| [0, 1].map(|half| sums[i][half].wrapping_add(pair(i, 2 * half))))
            }

            #[inline(always)]
            fn no_sums() -> Self::Sums {
                [[0; 2]; LANES]
            }

            #[inline(always)]
            fn joined_sums(sums: Self::Sums) -> Self::Vector {
                sums.map(|[first, second]| f32::from(first) + f32::from(second))
            }

            #[inline(always)]
            fn prefetch(_: *const f32) {}
        }
    };
}

portable_isa!(
    /// Instruction set for hardware that multiplies and adds in one instruction.
    #[cfg(target_arch = "aarch64")]
    Fused,
    f32::mul_add,
    f64::mul_add
);

portable_isa!(
    /// Instruction set for other hardware, for which `mul_add` would be a library call.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "all such processors have fused instructions"))]
    Separate,
    |a: f32, b: f32, c: f32| a * b + c,
    |a: f64, b: f64, c: f64| a * b + c
);
