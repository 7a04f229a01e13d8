//! MITE: each unit on the device with the smallest product of Memory, Importance, Traffic and Execution time (Laich
//! 2017, section 4.7).
//!
//! Colocation groups are placed before single tasks. For each unit and each feasible device with enough free memory,
//! the product of four [factors](super::factors) is computed (equation 4.6). A unit's importance is the mean operations
//! rank of its members over the greatest rank of any task (equation 4.16).
//!
//! Choices that the text leaves open: groups go by decreasing mean upward rank of their members, the most urgent first.
//! Single tasks go in topological order, so that most of a task's producers have been placed. Nine orders of the groups
//! were tried with eight orders of single tasks on the thesis' three graphs, and this one was chosen there. On 21 other
//! problems one of three other orders was better in 13 cases, by at most 3 % (`bench/PLACEMENT.md`). If memory has no
//! limit or does not count, its factor is constant and the other three decide.
//!
//! Time: `O(V log V + V × devices + E × devices)`.

use super::factors::Factors;
use super::{PlaceError, Placement, Placer};
use crate::graph::{TaskGraph, UnitId};
use crate::problem::Problem;
use crate::rank::{operations_ranks, upward_ranks};

/// The MITE strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mite;

impl Placer for Mite {
    fn name(&self) -> &'static str {
        "mite"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let importance = importance(problem);
        let mut factors = Factors::new(problem)?;
        for unit in groups_first(problem) {
            factors.place(problem.graph().members(unit)[0], Some(importance[unit.index()]))?;
        }
        Ok(factors.finish(self.name()))
    }
}

/// Returns the colocation groups by decreasing mean upward rank, then the single tasks in topological order.
fn groups_first(problem: &Problem<'_>) -> Vec<UnitId> {
    let graph = problem.graph();
    let is_single = |unit: &UnitId| graph.members(*unit).len() == 1;
    let ranks = upward_ranks(problem);
    let urgency: Vec<f64> = graph.unit_ids().map(|unit| mean(graph, unit, &ranks)).collect();
    let mut units: Vec<UnitId> = graph.unit_ids().filter(|unit| !is_single(unit)).collect();
    units.sort_by(|one, other| urgency[other.index()].total_cmp(&urgency[one.index()]));
    units.extend(graph.topological().iter().map(|&task| graph.unit(task)).filter(is_single));
    units
}

/// Returns the importance of every unit (equation 4.16), between 0 and 1.
fn importance(problem: &Problem<'_>) -> Vec<f64> {
    let graph = problem.graph();
    let ranks = operations_ranks(problem);
    let greatest = ranks.iter().copied().fold(0.0, f64::max);
    let of_unit = |unit| if greatest == 0.0 { 0.0 } else { mean(graph, unit, &ranks) / greatest };
    graph.unit_ids().map(of_unit).collect()
}

/// Mean rank over the members of `unit`.
fn mean(graph: &TaskGraph, unit: UnitId, ranks: &[f64]) -> f64 {
    let members = graph.members(unit);
    members.iter().map(|task| ranks[task.index()]).sum::<f64>() / members.len() as f64
}
