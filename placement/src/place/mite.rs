//! MITE: each unit where the product of Memory, Importance, Traffic and Execution time is smallest (Laich 2017, section 4.7).
//!
//! Colocation groups are placed before single tasks; for each unit and each feasible device with room, the product of four
//! [factors](super::factors) is computed (equation 4.6). A unit's importance is the mean operations rank of its members over
//! the greatest of any task (equation 4.16).
//!
//! Where the text leaves a choice: units go in topological order within each of the two rounds, so that what a unit reads has
//! mostly been placed (of five orders tried on the thesis' graphs, those by work, importance and rank are better on some and
//! up to three quarters worse on others). Where memory has no limit or counts nothing, its factor is one constant and the
//! other three decide.
//!
//! Time: `O(V × devices + E × devices)`.

use super::factors::Factors;
use super::{PlaceError, Placement, Placer};
use crate::graph::UnitId;
use crate::problem::Problem;
use crate::rank::operations_ranks;

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

/// Colocation groups before single tasks, and within each in topological order of the first member.
fn groups_first(problem: &Problem<'_>) -> Vec<UnitId> {
    let graph = problem.graph();
    let mut seen = vec![false; graph.unit_count()];
    let units = graph.topological().iter().map(|&task| graph.unit(task));
    let mut units: Vec<UnitId> = units.filter(|unit| !std::mem::replace(&mut seen[unit.index()], true)).collect();
    units.sort_by_key(|&unit| graph.members(unit).len() == 1);
    units
}

/// The importance of every unit (equation 4.16), between 0 and 1.
fn importance(problem: &Problem<'_>) -> Vec<f64> {
    let graph = problem.graph();
    let ranks = operations_ranks(problem);
    let greatest = ranks.iter().copied().fold(0.0, f64::max);
    let of_unit = |unit| {
        let members = graph.members(unit);
        let sum: f64 = members.iter().map(|task| ranks[task.index()]).sum();
        if greatest == 0.0 { 0.0 } else { sum / (greatest * members.len() as f64) }
    };
    graph.unit_ids().map(of_unit).collect()
}
