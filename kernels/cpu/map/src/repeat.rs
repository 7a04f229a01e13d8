//! Values that are written many times each: the operand of an element-wise node that is constant along short rows.

use super::number::Number;
use anabranch_cpu_base::vector::{Isa, Loop};

/// Values that are repeated at a time.
pub(super) const REPEATED: usize = 64;

/// Loop that writes each value `width` times.
pub(super) struct Repeat<'a, T> {
    pub(super) values: &'a [T],
    pub(super) width: usize,
    pub(super) out: &'a mut [T],
}

impl<T: Number> Loop for Repeat<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        // Arrays become vectors; chunks of unknown length do not.
        #[inline(always)]
        fn times<T: Copy, const TIMES: usize>(values: &[T], out: &mut [T]) {
            let (whole, rest) = out.as_chunks_mut::<TIMES>();
            whole.iter_mut().zip(values).for_each(|(out, value)| *out = [*value; TIMES]);
            values[whole.len()..].iter().for_each(|value| rest.fill(*value));
        }
        // The last array of a value overlaps the one before it.
        #[inline(always)]
        fn many<T: Copy, const ARRAY: usize>(values: &[T], width: usize, out: &mut [T]) {
            for (out, value) in out.chunks_mut(width).zip(values) {
                match out.len() < ARRAY {
                    true => out.fill(*value),
                    false => {
                        out.as_chunks_mut::<ARRAY>().0.fill([*value; ARRAY]);
                        out.last_chunk_mut::<ARRAY>().into_iter().for_each(|last| *last = [*value; ARRAY]);
                    }
                }
            }
        }
        let Self { values, width, out } = self;
        match width {
            2 => times::<T, 2>(values, out),
            3 => times::<T, 3>(values, out),
            4 => times::<T, 4>(values, out),
            5 => times::<T, 5>(values, out),
            6 => times::<T, 6>(values, out),
            7 => times::<T, 7>(values, out),
            8 => times::<T, 8>(values, out),
            ..16 => many::<T, 8>(values, width, out),
            _ => many::<T, 16>(values, width, out),
        }
    }
}
