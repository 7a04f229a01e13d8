//! Conversions of floats to integers like `as`. Unlike with `as`, loops over them are vectorised.

macro_rules! truncated {
    ($($name:ident: $float:ident to $integer:ident;)*) => {$(
        #[allow(clippy::manual_range_contains, reason = "a range compares in turn, which keeps a loop from vectors")]
        #[inline(always)]
        pub(super) fn $name(x: $float) -> $integer {
            // The least integer, and the integer after the greatest: floats have both.
            const LEAST: $float = $integer::MIN as $float;
            const BEYOND: $float = ($integer::MAX / 2 + 1) as $float * 2.0;
            let inside = if (x >= LEAST) & (x < BEYOND) { x } else { 0.0 };
            // SAFETY: the number is not NaN, and without its fraction it lies between the least integer and the
            // greatest.
            let integer = unsafe { inside.to_int_unchecked::<$integer>() };
            let integer = if x >= BEYOND { $integer::MAX } else { integer };
            if x < LEAST { $integer::MIN } else { integer }
        }
    )*};
}

truncated! {
    f32_to_i32: f32 to i32;
    f32_to_u32: f32 to u32;
    f32_to_i64: f32 to i64;
    f32_to_u64: f32 to u64;
    f64_to_i64: f64 to i64;
    f64_to_u64: f64 to u64;
}

#[cfg(test)]
mod tests {
    use super::super::Each;
    use super::*;
    use crate::vector::{levels, vectorised_at};

    #[test]
    fn floats_become_integers_alike_by_every_instruction_set() {
        let all = (0..20_000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B1)));
        let narrow: Vec<f32> = all.chain([f32::NAN, f32::INFINITY, -0.0]).collect();
        let wide: Vec<f64> = narrow.iter().flat_map(|x| [f64::from(*x), f64::from(*x) * 1.000_000_1]).collect();
        macro_rules! check {
            ($($function:ident: $values:ident to $integer:ty;)*) => {$({
                let want: Vec<$integer> = $values.iter().map(|x| *x as $integer).collect();
                for level in levels() {
                    let mut found = vec![0; want.len()];
                    vectorised_at(level, Each { values: &$values, out: &mut found, function: $function });
                    assert!(found == want, "{} at level {level}", stringify!($function));
                }
            })*};
        }
        check! {
            f32_to_i32: narrow to i32;
            f32_to_u32: narrow to u32;
            f32_to_i64: narrow to i64;
            f32_to_u64: narrow to u64;
            f64_to_i64: wide to i64;
            f64_to_u64: wide to u64;
        }
    }
}
