//! Placements that memory or constraints exclude, by refuting makespans (a destructive bound, Klein and Scholl 1999).
//!
//! Suppose that some schedule has a makespan of at most `T`. Then much is known about its placement:
//!
//! 1. A unit is on a device only if its start, time and tail there are together at most `T`.
//! 2. Let a datum of `p` be read by `c`, with `p` on `d` and `c` on another device `e`. Then the makespan is at least
//!    the sum of five times: start and time of `p` on `d`, the transfer, time and tail of `c` on `e`. Suppose that this
//!    exceeds `T` for all pairs of devices that are left. Then both are on one device: their units form a *group*.
//! 3. The demand of a group fits on its device next to the groups that can be nowhere else. They all run there one
//!    after the other, between the least start and the least tail of their members, within `T`.
//! 4. A task on a device starts no sooner than its data can arrive from the devices that are left for their producers.
//!    Tails are the same with edges reversed.
//!
//! These rules are applied until nothing changes. If a group has no device left, no schedule is as short as `T`.
//! Otherwise all groups have to share the devices' time and memory ([`shares`]). That refutes `T`, or closes devices to
//! groups, and then the rules are applied again.
//!
//! If this refutes nothing, each group is tried on each device: a device where the rules find a contradiction is
//! closed. What is left is searched depth first: if each device of some group leads to a contradiction, there is no
//! schedule. A number of steps limits the search.
//!
//! Bisection finds the greatest `T` that is refuted. It is a bound whether or not greater values are refuted too.

mod search;
mod shares;
mod trial;

use super::Paths;
use crate::problem::Problem;
use trial::{Scene, Trial};

/// Most pairs of devices over all edges, also over all data, and most units times devices. Beyond this there is no
/// bound.
const MOST_PAIRS: usize = 1_000_000;
const MOST_CELLS: usize = 20_000;
/// Most bisections; each halves the interval between a refuted value and one that is not.
const BISECTIONS: usize = 20;
/// Relative width of the interval at which bisection ends: by the rules alone, and with a search.
const WIDTH: f64 = 1e-4;
const SEARCH_WIDTH: f64 = 1e-3;
/// Multiple of the known bound beyond which no makespan is tried.
const FARTHEST: f64 = 1e9;

/// Returns the greatest makespan found to be refuted, at least `known`; 0 if the problem is too large. Takes
/// `O(V × devices + E × devices²)` at worst for each of some dozen values, and some million steps for each of some
/// dozen more.
pub(super) fn bound(problem: &Problem<'_>, paths: &Paths, known: f64) -> f64 {
    let (graph, devices) = (problem.graph(), problem.platform().device_count());
    let (pairs, cells) =
        (graph.edge_count().max(graph.datum_count()) * devices * devices, graph.unit_count() * devices);
    if pairs > MOST_PAIRS || cells > MOST_CELLS || known <= 0.0 || !known.is_finite() {
        return 0.0;
    }
    let scene = Scene::new(problem, paths);
    let by_rules = |makespan: f64| Trial::new(&scene, makespan).is_refuted();
    let Some(low) = greatest(by_rules, known, WIDTH) else { return 0.0 };
    let by_search = |makespan: f64| search::refutes(Trial::new(&scene, makespan));
    let Some(found) = greatest(by_search, low, SEARCH_WIDTH) else { return 0.0 };
    if found > known { found } else { 0.0 }
}

/// Returns the greatest value from `known` on that `refutes` was found to refute, or `known` if it refutes nothing;
/// `None` if everything is refuted.
fn greatest(refutes: impl Fn(f64) -> bool, known: f64, width: f64) -> Option<f64> {
    let mut low = known;
    let mut high = known * (1.0 + width);
    while refutes(high) {
        low = high;
        high *= if high < known * 1.01 { 1.05 } else { 2.0 };
        if high > known * FARTHEST {
            // If every makespan is refuted, nothing has a placement, and there is nothing to bound.
            return if refutes(f64::MAX) { None } else { Some(low) };
        }
    }
    for _ in 0..if low > known { BISECTIONS } else { 0 } {
        if high - low <= width * low {
            break;
        }
        let middle = low + (high - low) / 2.0;
        if refutes(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task, TaskGraph};
    use crate::platform::{Device, DeviceId, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// A chain of four tasks of 6 bytes with time 1 and transfers of 30, 20 and 40; and an isolated task.
    fn chain() -> TaskGraph {
        let mut builder = GraphBuilder::new();
        let tasks = [(); 5].map(|()| builder.task(Task::new("t").with_memory(6).with_operations(1.0)));
        for (pair, bytes) in tasks[..4].windows(2).zip([300, 200, 400]) {
            builder.edge(pair[0], pair[1], bytes);
        }
        builder.build().unwrap()
    }

    fn bound_with(memory: [u64; 2]) -> f64 {
        let devices = memory.map(|memory| Device::new("d", DeviceKind::Cpu).with_memory(memory));
        let loaded = sample::on(chain(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        let paths = Paths::new(&problem);
        paths.bound(&problem).max(bound(&problem, &paths, 1.0))
    }

    #[test]
    fn a_chain_that_does_not_fit_is_cut_where_it_costs_least() {
        let near = |found: f64, expected: f64| found <= expected * (1.0 + 1e-9) && found >= expected * 0.999;
        assert!(near(bound_with([24, 6]), 4.0), "all four fit on the first: {}", bound_with([24, 6]));
        assert!(
            near(bound_with([23, 12]), 24.0),
            "one does not: a transfer of 20, four tasks: {}",
            bound_with([23, 12])
        );
    }

    fn bound_apart(bytes: u64) -> f64 {
        let mut builder = GraphBuilder::new();
        let [a, b] = [0, 1].map(|device| builder.task(Task::new("t").with_operations(1.0).with_pin(DeviceId(device))));
        builder.edge(a, b, bytes);
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        bound(&problem, &Paths::new(&problem), 1.0)
    }

    #[test]
    fn what_must_be_apart_sends() {
        let found = bound_apart(55);
        assert!(found <= 7.5 && found > 7.49, "{found}");
    }

    #[test]
    fn a_refutation_far_beyond_the_known_bound_counts() {
        let found = bound_apart(100_000_000_000_000);
        assert!(found > 1e8 && found <= 1e13 + 2.0, "{found}");
    }

    #[test]
    fn what_fits_nowhere_has_no_bound() {
        let devices = [6; 2].map(|memory| Device::new("d", DeviceKind::Cpu).with_memory(memory));
        let loaded = sample::on(chain(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        assert_eq!(bound(&problem, &Paths::new(&problem), 1.0), 0.0);
    }
}
