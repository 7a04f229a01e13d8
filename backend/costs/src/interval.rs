//! Between which times a run lies, from how far each of its nodes' costs is to be trusted.

use std::collections::BTreeMap;

/// The factor within which lie, in nine of ten cases, all costs of a program together that were not measured of its own nodes: what the machine does meanwhile, and what
/// it did while the others were measured. Chosen on thirteen small networks, each predicted by several calibrations.
const TOGETHER: f64 = 1.25;

/// Between which times, in seconds, a run that is predicted to take `makespan` lies in nine of ten cases. `costs` are those of all that
/// takes time: what it shares its errors with, such as the device and a node's family
/// ([`NodeSpec::family`](anabranch_kernels::op::NodeSpec::family)); seconds; and the factor within which these lie
/// ([`NodeCost::spread`](super::NodeCost::spread)). `foreign` of the seconds were not measured of such nodes themselves.
///
/// What is of one group are taken to be too slow or too fast together, groups independently of each other: the deviations of a group add
/// up, those of groups by their squares. `None` if of something nobody knows how far to trust its cost. O(n log n).
pub fn interval<G: Ord>(
    makespan: f64,
    costs: impl IntoIterator<Item = (G, f64, Option<f64>)>,
    foreign: f64,
) -> Option<(f64, f64)> {
    let mut groups: BTreeMap<G, [f64; 2]> = BTreeMap::new();
    let mut all = 0.0;
    let deviations = |seconds: f64, spread: f64| [seconds - seconds / spread, seconds * spread - seconds];
    for (group, seconds, spread) in costs {
        let own = deviations(seconds, spread?);
        groups.entry(group).or_default().iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        all += seconds;
    }
    let together = deviations(foreign, TOGETHER);
    let joined = |side: usize| {
        let each = groups.values().chain([&together]).map(|sums| sums[side] * sums[side]);
        each.sum::<f64>().sqrt() / f64::max(all, 1e-12)
    };
    // As a sum of deviations the least time might be none.
    let least = (1.0 - joined(0)).max(1.0 / (1.0 + joined(1)));
    Some((makespan * least, makespan * (1.0 + joined(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn errors_add_up_within_a_group_and_by_squares_between_groups() {
        // Two of a group, each 1 s too many or 0.5 too few; two alone.
        let together = interval(4.0, [("conv", 1.0, Some(2.0)), ("conv", 1.0, Some(2.0))], 0.0);
        assert_eq!(together, Some((2.0, 8.0)));
        let (low, high) = interval(2.0, [("conv", 1.0, Some(2.0)), ("map", 1.0, Some(2.0))], 0.0).expect("known");
        assert!((low - (2.0 - 0.5f64.sqrt())).abs() < 1e-12 && (high - (2.0 + 2f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn what_follows_from_other_nodes_errs_together() {
        // Half of 4 s is 0.4 s too many, or 0.5 s too few.
        let (low, high) = interval(4.0, [("conv", 2.0, Some(1.0)), ("map", 2.0, Some(1.0))], 2.0).expect("known");
        assert!((low - 3.6).abs() < 1e-12 && (high - 4.5).abs() < 1e-12, "{low} to {high}");
    }

    #[test]
    fn what_nobody_knows_has_no_interval() {
        assert_eq!(interval(2.0, [("conv", 1.0, None), ("conv", 1.0, Some(2.0))], 0.0), None);
        assert_eq!(interval(2.0, std::iter::empty::<(u8, f64, Option<f64>)>(), 0.0), Some((2.0, 2.0)));
    }
}
