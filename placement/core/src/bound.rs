//! Lower bounds of the makespan, which hold for every placement and every order. They limit how far a schedule can be
//! from the optimum.
//!
//! In all bounds a device runs one task at a time. A task runs on one feasible device once all its data are there, and
//! data take the transfer's time between devices. Contention of links and work for sends only lengthen a schedule, so
//! the bounds hold for them too. Each bound is proven where it is computed:
//!
//! * [`BoundKind::Path`]: the longest path through the graph, on the best devices. It includes unavoidable transfers,
//!   and the work that has to share a device to avoid other transfers;
//! * [`BoundKind::Work`]: all work, divided among the devices as if tasks could be cut in pieces;
//! * [`BoundKind::Window`]: the work that lies between a head, which must come before it, and a tail, which must come
//!   after it;
//! * [`BoundKind::Separation`]: makespans that are refuted, because memory and constraints exclude all placements that
//!   are so short; it is 0 where it refutes nothing beyond the other bounds.
//!
//! Values are sums of rounded numbers: they exceed the optimum by a relative error of at most about 1e-12.
//!
//! ```
//! use anabranch_placement::bound::{BoundKind, lower_bound};
//! use anabranch_placement::generate::{Grain, Shape, Sweep};
//!
//! let graph = Shape::Chain { length: 5 }.generate(&Grain::default())?;
//! let loaded = Sweep { range: 0.0, mean_time: 2.0, ..Sweep::default() }.problem("chain", graph, 1)?;
//! let bound = lower_bound(&loaded.problem()?);
//! assert_eq!((bound.kind, bound.value), (BoundKind::Path, 10.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cut;
mod join;
mod paths;
mod separation;
mod window;
mod work;

pub(crate) use join::{Feeder, earliest};
pub(crate) use paths::Paths;
pub(crate) use work::Weights;

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Method that gave a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundKind {
    /// Longest path.
    Path,
    /// All work, divided among all devices.
    Work,
    /// Work between a head and a tail.
    Window,
    /// Placements that memory or constraints exclude.
    Separation,
}

impl fmt::Display for BoundKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BoundKind::Path => "longest path",
            BoundKind::Work => "work shared by the devices",
            BoundKind::Window => "work between head and tail",
            BoundKind::Separation => "placements that memory or constraints exclude",
        })
    }
}

/// Lower bound of the makespan of all schedules of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LowerBound {
    /// Time, in the unit of the costs.
    pub value: f64,
    /// Method that gave the bound.
    pub kind: BoundKind,
}

/// Returns the greatest bound; on a tie, the first in the order of [`BoundKind`]. Complexity as [`lower_bounds`].
pub fn lower_bound(problem: &Problem<'_>) -> LowerBound {
    let start = LowerBound { value: 0.0, kind: BoundKind::Path };
    lower_bounds(problem).into_iter().fold(start, |best, bound| if bound.value > best.value { bound } else { best })
}

/// Returns one bound of each kind, in the order of [`BoundKind`].
///
/// The path takes `O(edges × devices²)` in the worst case, but `O(edges × devices × log devices)` if end times differ
/// by more than transfers take. If memory is limited, it is also proportional to the steps of a function of memory, at
/// most 32. The work and the refutations each take the time of some hundred million steps at most.
pub fn lower_bounds(problem: &Problem<'_>) -> Vec<LowerBound> {
    let paths = Paths::new(problem);
    let weights = Weights::of(problem);
    let path = paths.bound(problem);
    let (work, window) = (weights.bound(), window::bound(problem, &paths, &weights));
    // If some task fits nowhere next to the others, there is no schedule, and its start is infinite.
    let window = if window.is_finite() { window } else { 0.0 };
    let separation = separation::bound(problem, &paths, path.max(work).max(window));
    vec![
        LowerBound { value: path, kind: BoundKind::Path },
        LowerBound { value: work, kind: BoundKind::Work },
        LowerBound { value: window, kind: BoundKind::Window },
        LowerBound { value: separation, kind: BoundKind::Separation },
    ]
}
