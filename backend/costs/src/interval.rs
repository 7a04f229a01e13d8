//! Prediction interval of a run's time, from the uncertainties of its nodes' costs.

use std::collections::BTreeMap;

/// Factor of a 90 % interval for all costs together that were not measured on a program's own nodes.
///
/// It covers the state of the machine now and during the measurements of the other nodes. Chosen on thirteen small
/// networks, each predicted by several calibrations.
const TOGETHER: f64 = 1.25;

/// Returns the 90 % prediction interval, in seconds, of a run with the predicted time `makespan`.
///
/// Each entry of `costs` has three parts: a group that shares its errors, such as the device and a node's family
/// ([`NodeSpec::family`](anabranch_kernels::op::NodeSpec::family)); seconds; and the uncertainty of these seconds
/// ([`NodeCost::uncertainty`](super::NodeCost::uncertainty)). `foreign` is the number of seconds that were not measured
/// on the program's own nodes.
///
/// Costs of one group err together, so that their deviations add up. Groups err independently, so that the squares of
/// their deviations add up. Returns `None` if an uncertainty is unknown. O(n log n).
pub fn interval<G: Ord>(
    makespan: f64,
    costs: impl IntoIterator<Item = (G, f64, Option<f64>)>,
    foreign: f64,
) -> Option<(f64, f64)> {
    let mut groups: BTreeMap<G, [f64; 2]> = BTreeMap::new();
    let mut all = 0.0;
    let deviations = |seconds: f64, factor: f64| [seconds - seconds / factor, seconds * factor - seconds];
    for (group, seconds, uncertainty) in costs {
        let own = deviations(seconds, uncertainty?);
        groups.entry(group).or_default().iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        all += seconds;
    }
    let together = deviations(foreign, TOGETHER);
    let joined = |side: usize| {
        let each = groups.values().chain([&together]).map(|sums| sums[side] * sums[side]);
        each.sum::<f64>().sqrt() / f64::max(all, 1e-12)
    };
    // Subtracting the sum of deviations could leave no time at all.
    let least = (1.0 - joined(0)).max(1.0 / (1.0 + joined(1)));
    Some((makespan * least, makespan * (1.0 + joined(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn errors_add_up_within_a_group_and_by_squares_between_groups() {
        // Two nodes of one group, each predicted 0.5 s too long or 1 s too short; then two nodes of different groups.
        let together = interval(4.0, [("conv", 1.0, Some(2.0)), ("conv", 1.0, Some(2.0))], 0.0);
        assert_eq!(together, Some((2.0, 8.0)));
        let (low, high) = interval(2.0, [("conv", 1.0, Some(2.0)), ("map", 1.0, Some(2.0))], 0.0).expect("known");
        assert!((low - (2.0 - 0.5f64.sqrt())).abs() < 1e-12 && (high - (2.0 + 2f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn what_follows_from_other_nodes_errs_together() {
        // Half of 4 s is predicted 0.4 s too long, or 0.5 s too short.
        let (low, high) = interval(4.0, [("conv", 2.0, Some(1.0)), ("map", 2.0, Some(1.0))], 2.0).expect("known");
        assert!((low - 3.6).abs() < 1e-12 && (high - 4.5).abs() < 1e-12, "{low} to {high}");
    }

    #[test]
    fn what_nobody_knows_has_no_interval() {
        assert_eq!(interval(2.0, [("conv", 1.0, None), ("conv", 1.0, Some(2.0))], 0.0), None);
        assert_eq!(interval(2.0, std::iter::empty::<(u8, f64, Option<f64>)>(), 0.0), Some((2.0, 2.0)));
    }
}
