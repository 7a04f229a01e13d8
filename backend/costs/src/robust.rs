//! Statistics that are robust to a few outliers.

use anabranch_base::quantile::{ascending, median_by_difference};

/// Median; the mean of the two middle values if their number is even. `None` if there are no values. O(n log n).
pub fn median(values: &[f64]) -> Option<f64> {
    median_by_difference(&ascending(values))
}

/// Median absolute deviation from the median.
pub(crate) fn mad(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Two-sided 90 % quantiles of Student's distribution, for 1 to 7 degrees of freedom.
const STUDENT: [f64; 7] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895];

/// Half-width of a 90 % prediction interval around the centre, from the deviations `off` of past samples.
///
/// With 9 or more samples, this is the order statistic of rank ⌈0.9 (n + 1)⌉, which assumes no distribution. With 2 to
/// 8, even the largest deviation would hold less than 90 %. The result is then the quantile of Student's distribution
/// times the root mean square deviation, or the largest deviation if that is greater. Returns `None` if `off` is empty.
/// O(n log n).
pub(crate) fn nine_of_ten(off: &[f64]) -> Option<f64> {
    let sorted = ascending(&off.iter().map(|off| off.abs()).collect::<Vec<_>>());
    let farthest = *sorted.last()?;
    let count = sorted.len();
    let Some(quantile) = count.checked_sub(2).and_then(|at| STUDENT.get(at)) else {
        return Some(sorted[((count + 1) * 9).div_ceil(10).min(count) - 1]);
    };
    let square = sorted.iter().map(|off| off * off).sum::<f64>() / count as f64;
    Some(farthest.max(quantile * square.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_are_held_however_few_tell() {
        let mut state = 12_345u64;
        // Nearly normally distributed: the sum of twelve uniform numbers.
        let mut normal = || {
            let mut uniform = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        };
        for count in [3, 5, 6, 8, 9, 20, 48] {
            let mut draw = |_: usize| {
                let known: Vec<f64> = (0..count).map(|_| normal()).collect();
                nine_of_ten(&known).is_some_and(|width| normal().abs() <= width)
            };
            let held = (0..4000).filter(|at| draw(*at)).count();
            assert!((3500..=3880).contains(&held), "{held} of 4000 by {count}");
        }
        assert_eq!(nine_of_ten(&[]), None);
    }

    #[test]
    fn medians_ignore_a_wild_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 1e9]), Some(4.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0]), Some(2.5));
        assert_eq!(mad(&[1.0, 2.0, 3.0, 1e9]), Some(1.0));
    }
}
