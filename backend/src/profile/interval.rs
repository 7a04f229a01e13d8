//! Between which times a run lies, from how far each of its nodes' costs is to be trusted.

use super::cost::NodeCost;
use std::collections::BTreeMap;

/// Between which times, in seconds, a run that is predicted to take `makespan` lies in nine of ten cases. `costs` are those of the
/// plan's nodes, each on the device that it is placed on, with what it shares its errors with: the device and the node's
/// family ([`NodeSpec::family`](anabranch_kernels::op::NodeSpec::family)).
///
/// Nodes of one group are taken to be too slow or too fast together, groups independently of each other: the deviations of a group add
/// up, those of groups by their squares. `None` if of a node nobody knows how far to trust its cost. O(n log n).
pub fn interval<G: Ord>(makespan: f64, costs: impl IntoIterator<Item = (G, NodeCost)>) -> Option<(f64, f64)> {
    let mut groups: BTreeMap<G, [f64; 2]> = BTreeMap::new();
    let mut all = 0.0;
    for (group, NodeCost { seconds, spread, .. }) in costs {
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
    use crate::profile::CostSource;

    fn cost(seconds: f64, spread: Option<f64>) -> NodeCost {
        NodeCost { seconds, spread, source: CostSource::Roofline }
    }

    #[test]
    fn errors_add_up_within_a_group_and_by_squares_between_groups() {
        // Two of a group, each 1 s too many or 0.5 too few; two alone.
        let together = interval(4.0, [("conv", cost(1.0, Some(2.0))), ("conv", cost(1.0, Some(2.0)))]);
        assert_eq!(together, Some((2.0, 8.0)));
        let (low, high) =
            interval(2.0, [("conv", cost(1.0, Some(2.0))), ("map", cost(1.0, Some(2.0)))]).expect("known");
        assert!((low - (2.0 - 0.5f64.sqrt())).abs() < 1e-12 && (high - (2.0 + 2f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn what_nobody_knows_has_no_interval() {
        assert_eq!(interval(2.0, [("conv", cost(1.0, None)), ("conv", cost(1.0, Some(2.0)))]), None);
        assert_eq!(interval(2.0, std::iter::empty::<(u8, NodeCost)>()), Some((2.0, 2.0)));
    }
}
