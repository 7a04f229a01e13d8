//! Medians, quartiles and ranks of samples, one function for each definition in use.
//!
//! Both definitions of a median are kept: their last bits differ, and the sum may overflow. A caller that changes from
//! one to the other changes its results.

/// Returns the values in ascending order, NaN last. O(n log n).
pub fn ascending(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the median of ascending values, `(a + b) / 2` of the two middle values; `None` if there are none.
pub fn median_by_sum(ascending: &[f64]) -> Option<f64> {
    middles(ascending).map(|(lower, upper)| (lower + upper) / 2.0)
}

/// Returns the median of ascending values, `a + (b − a) / 2` of the two middle values; `None` if there are none.
pub fn median_by_difference(ascending: &[f64]) -> Option<f64> {
    middles(ascending).map(|(lower, upper)| lower + (upper - lower) / 2.0)
}

/// Returns the lower quartile of ascending values: the value at position ⌊(n − 1) / 4⌋, counted from 0; `None` if there
/// are none.
pub fn lower_quartile(ascending: &[f64]) -> Option<f64> {
    ascending.get(ascending.len().checked_sub(1)? / 4).copied()
}

/// Returns the nearest rank of a quantile: the least rank, counted from 1, of a sample that at least this share of all
/// `count` samples does not exceed.
pub fn nearest_rank(count: u64, share: f64) -> u64 {
    ((count as f64 * share).ceil() as u64).max(1)
}

/// Returns the two middle values, which are the same for an odd number of values.
fn middles(ascending: &[f64]) -> Option<(f64, f64)> {
    let (lower, upper) = (ascending.len().checked_sub(1)? / 2, ascending.len() / 2);
    Some((*ascending.get(lower)?, *ascending.get(upper)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_between_the_middle_values() {
        for (values, median) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[1e9, 1.0, 4.0], Some(4.0)),
            (&[4.0, 2.0, 1.0, 3.0], Some(2.5)),
            (&[f64::NAN, 2.0, 1.0], Some(2.0)),
        ] {
            let sorted = ascending(values);
            assert_eq!((median_by_sum(&sorted), median_by_difference(&sorted)), (median, median), "{values:?}");
        }
    }

    #[test]
    fn both_definitions_of_a_median_are_kept_apart() {
        assert_eq!(median_by_difference(&[f64::MAX, f64::MAX]), Some(f64::MAX));
        assert_eq!(median_by_sum(&[f64::MAX, f64::MAX]), Some(f64::INFINITY));
    }

    #[test]
    fn ranks_are_nearest_and_within_the_samples() {
        for (count, share, rank) in
            [(0, 0.5, 1), (1, 0.99, 1), (200, 0.5, 100), (200, 0.99, 198), (3, 0.5, 2), (7, 0.0, 1), (7, 1.0, 7)]
        {
            assert_eq!(nearest_rank(count, share), rank, "{count} {share}");
        }
        assert_eq!((lower_quartile(&[]), lower_quartile(&[1.0, 2.0, 3.0, 4.0])), (None, Some(1.0)));
        assert_eq!(lower_quartile(&[1.0, 2.0, 3.0, 4.0, 5.0]), Some(2.0));
    }
}
