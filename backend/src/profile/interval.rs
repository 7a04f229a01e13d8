//! Between which times a run lies, from how far each of its nodes' costs is to be trusted.

use std::collections::BTreeMap;

/// Between which times, in seconds, a run that is predicted to take `makespan` lies in nine of ten cases. `costs` are those of all that
/// takes time: what it shares its errors with, such as the device and a node's family
/// ([`NodeSpec::family`](anabranch_kernels::op::NodeSpec::family)); seconds; and the factor within which these lie
/// ([`NodeCost::spread`](super::NodeCost::spread)).
///
/// What is of one group are taken to be too slow or too fast together, groups independently of each other: the deviations of a group add
/// up, those of groups by their squares. `None` if of something nobody knows how far to trust its cost. O(n log n).
pub fn interval<G: Ord>(makespan: f64, costs: impl IntoIterator<Item = (G, f64, Option<f64>)>) -> Option<(f64, f64)> {
    let mut groups: BTreeMap<G, [f64; 2]> = BTreeMap::new();
    let mut all = 0.0;
    for (group, seconds, spread) in costs {
        let spread = spread?;
        let [below, above] = groups.entry(group).or_default();
        *below += seconds - seconds / spread;
        *above += seconds * spread - seconds;
        all += seconds;
    }
    let joined =
        |side: usize| groups.values().map(|sums| sums[side] * sums[side]).sum::<f64>().sqrt() / f64::max(all, 1e-12);
    Some((makespan * (1.0 - joined(0)), makespan * (1.0 + joined(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn errors_add_up_within_a_group_and_by_squares_between_groups() {
        // Two of a group, each 1 s too many or 0.5 too few; two alone.
        let together = interval(4.0, [("conv", 1.0, Some(2.0)), ("conv", 1.0, Some(2.0))]);
        assert_eq!(together, Some((2.0, 8.0)));
        let (low, high) = interval(2.0, [("conv", 1.0, Some(2.0)), ("map", 1.0, Some(2.0))]).expect("known");
        assert!((low - (2.0 - 0.5f64.sqrt())).abs() < 1e-12 && (high - (2.0 + 2f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn what_nobody_knows_has_no_interval() {
        assert_eq!(interval(2.0, [("conv", 1.0, None), ("conv", 1.0, Some(2.0))]), None);
        assert_eq!(interval(2.0, std::iter::empty::<(u8, f64, Option<f64>)>()), Some((2.0, 2.0)));
    }
}
