//! Means of integers, rounded towards zero.
//!
//! A sum of 64-bit integers may need more bits than they have. The sums of their upper and of their lower 32 bits are
//! exact in 64 bits for [`EXACT`] elements, and the compiler makes vectors of both.

use super::vector::{Isa, Loop, vectorised};
use bytemuck::Pod;

/// Elements whose halves are summed in 64 bits.
const EXACT: usize = 1 << 30;

/// Sums side by side.
const LANES: usize = 16;

/// Columns that are summed together.
const COLUMNS: usize = 64;

/// Integer that is `upper · 2³² + lower`.
pub(super) trait Halves: Pod {
    /// Returns the upper and the lower half. Inlined always.
    fn halves(self) -> [i64; 2];

    /// Converts a mean of such integers.
    fn of_mean(mean: i128) -> Self;
}

macro_rules! halves {
    ($integer:ident, $of:expr) => {
        impl Halves for $integer {
            #[inline(always)]
            fn halves(self) -> [i64; 2] {
                $of(self)
            }

            #[inline]
            fn of_mean(mean: i128) -> Self {
                mean as Self
            }
        }
    };
}

halves!(i32, |x: i32| [0, i64::from(x)]);
halves!(i64, |x: i64| [x >> 32, x & 0xFFFF_FFFF]);
halves!(u64, |x: u64| [(x >> 32) as i64, (x & 0xFFFF_FFFF) as i64]);

/// Writes the mean of each row; 0 of no elements. O(n).
pub(super) fn of_rows<T: Halves>(source: &[T], target: &mut [T]) {
    let count = source.len().checked_div(target.len()).unwrap_or(0);
    for (at, to) in target.iter_mut().enumerate() {
        let parts = source[at * count..][..count].chunks(EXACT);
        let sum = parts.fold(0, |sum, part| sum + joined(vectorised(Row(part))));
        *to = T::of_mean(quotient(sum, count));
    }
}

/// Writes the means of neighbouring columns, whose rows begin at `starts`; 0 of no rows. O(n).
pub(super) fn of_columns<T: Halves>(source: &[T], starts: impl Iterator<Item = usize> + Clone, target: &mut [T]) {
    for (block, target) in target.chunks_mut(COLUMNS).enumerate() {
        let (mut starts, mut sums, mut count) = (starts.clone(), [0; COLUMNS], 0);
        loop {
            let (halves, rows) = vectorised(Columns {
                source: source.get(block * COLUMNS..).unwrap_or_default(),
                starts: starts.by_ref().take(EXACT),
                width: target.len(),
            });
            sums.iter_mut().zip(halves[0].into_iter().zip(halves[1])).for_each(|(sum, (upper, lower))| {
                *sum += joined([upper, lower]);
            });
            count += rows;
            if rows < EXACT {
                break;
            }
        }
        target.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::of_mean(quotient(sum, count)));
    }
}

/// Returns a sum from the sums of both halves.
fn joined([upper, lower]: [i64; 2]) -> i128 {
    (i128::from(upper) << 32) + i128::from(lower)
}

/// Returns `sum / count`, rounded towards zero; 0 if both are.
fn quotient(sum: i128, count: usize) -> i128 {
    match i64::try_from(sum) {
        // A quotient of floats takes less time. Both are exact, and their quotient is too far below the next whole
        // number to be rounded to it.
        Ok(sum) if sum.unsigned_abs() < 1 << 53 && (1..1 << 50).contains(&count) => {
            ((sum as f64 / count as f64) as i64).into()
        }
        Ok(sum) => sum.checked_div(count as i64).unwrap_or(0).into(),
        Err(_) => sum / count as i128,
    }
}

/// Sum of at most [`EXACT`] elements.
struct Row<'a, T>(&'a [T]);

impl<T: Halves> Loop for Row<'_, T> {
    type Output = [i64; 2];

    #[inline(always)]
    fn run<I: Isa>(self) -> [i64; 2] {
        let mut sums = [[0; LANES]; 2];
        let (blocks, rest) = self.0.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                let [upper, lower] = block[lane].halves();
                sums[0][lane] += upper;
                sums[1][lane] += lower;
            }
        }
        for (lane, element) in rest.iter().enumerate() {
            let [upper, lower] = element.halves();
            sums[0][lane] += upper;
            sums[1][lane] += lower;
        }
        sums.map(|lanes| lanes.into_iter().sum())
    }
}

/// Sums of at most [`EXACT`] rows of `width` columns.
struct Columns<'a, T, S> {
    source: &'a [T],
    starts: S,
    width: usize,
}

impl<T: Halves, S: Iterator<Item = usize>> Loop for Columns<'_, T, S> {
    type Output = ([[i64; COLUMNS]; 2], usize);

    #[inline(always)]
    fn run<I: Isa>(self) -> Self::Output {
        let Self { source, starts, width } = self;
        let ([mut uppers, mut lowers], mut rows) = ([[0; COLUMNS]; 2], 0);
        for start in starts {
            let row = &source[start..start + width];
            for ((upper, lower), element) in uppers.iter_mut().zip(&mut lowers).zip(row) {
                let halves = element.halves();
                *upper += halves[0];
                *lower += halves[1];
            }
            rows += 1;
        }
        ([uppers, lowers], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the means of rows, and of the same elements in columns, with the definition.
    fn check<T: Halves + Into<i128> + std::fmt::Debug + PartialEq>(element: impl Fn(usize) -> T) {
        for count in [1, 2, 3, 15, 16, 17, 33, 100] {
            for outputs in [1, 2, 63, 64, 65, 130] {
                let rows: Vec<T> = (0..outputs * count).map(&element).collect();
                let at = |place: usize| rows[place % outputs * count + place / outputs];
                let columns: Vec<T> = (0..outputs * count).map(at).collect();
                let want: Vec<T> = rows
                    .chunks_exact(count)
                    .map(|row| row.iter().map(|x| (*x).into()).sum::<i128>() / count as i128)
                    .map(T::of_mean)
                    .collect();
                let mut found = vec![T::zeroed(); outputs];
                of_rows(&rows, &mut found);
                assert_eq!(found, want, "{outputs} rows of {count}");
                found.fill(T::zeroed());
                of_columns(&columns, (0..count).map(|row| row * outputs), &mut found);
                assert_eq!(found, want, "{outputs} columns of {count}");
            }
        }
        let mut found = [element(1)];
        of_rows(&[], &mut found);
        assert_eq!(found, [T::zeroed()]);
        found = [element(1)];
        of_columns(&[], std::iter::empty(), &mut found);
        assert_eq!(found, [T::zeroed()]);
    }

    #[test]
    fn means_are_exact_and_rounded_towards_zero() {
        let bits = |i: usize| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        check(|i| bits(i) as i64);
        check(bits);
        check(|i| (bits(i) >> 32) as i32);
        check(|_| i64::MIN);
        check(|_| i64::MAX);
        check(|_| u64::MAX);
        check(|_| i32::MIN);
        check(|i| -1 - (i % 3) as i64);
        for count in [1, 3, 7, 10, 1000, (1 << 26) - 1, 1 << 49] {
            for whole in [1, 2, 1 << 10, (1 << 27) + 1, (1i64 << 53) / count - 1] {
                let Some(sum) = i64::checked_mul(whole, count).filter(|sum| *sum < i64::MAX) else { continue };
                for sum in [sum - 1, sum, sum + 1].into_iter().flat_map(|sum| [sum, -sum]) {
                    assert_eq!(quotient(sum.into(), count as usize), i128::from(sum / count), "{sum} / {count}");
                }
            }
        }
    }
}
