//! Lower bounds of the makespan: what no placement and no order can beat, so that gaps can be told from below.
//!
//! Throughout, a device runs one task at a time, a task runs on one feasible device once all its data are there, and data take
//! the transfer's time between devices. Whatever adds to that, such as contention of links or work for sends, only
//! lengthens a schedule, so that the bounds hold for it as well. They are proven where they are computed:
//!
//! * [`BoundKind::Path`]: some way through the graph, on the best devices, with the transfers that it cannot avoid and the
//!   work that must be beside it to avoid others;
//! * [`BoundKind::Work`]: all work, shared out over the devices as if tasks could be cut in pieces;
//! * [`BoundKind::Window`]: the work that lies between what must come before it and what must come after it;
//! * [`BoundKind::Separation`]: where things that hang together fit on no one device, some datum must be sent.
//!
//! Values are sums of rounded numbers: they are below the optimum up to a relative error of about 1e-12.
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

/// How a bound came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundKind {
    /// The longest way.
    Path,
    /// All work over all devices.
    Work,
    /// Work between a head and a tail.
    Window,
    /// A transfer that cannot be avoided.
    Separation,
}

impl fmt::Display for BoundKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BoundKind::Path => "longest path",
            BoundKind::Work => "work shared by the devices",
            BoundKind::Window => "work between head and tail",
            BoundKind::Separation => "a transfer that memory or constraints force",
        })
    }
}

/// A time that no schedule of a problem can beat.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LowerBound {
    /// The time.
    pub value: f64,
    /// Why.
    pub kind: BoundKind,
}

/// The best of all bounds: the greatest, and of equals the first in the order of [`BoundKind`]. Time as [`lower_bounds`].
pub fn lower_bound(problem: &Problem<'_>) -> LowerBound {
    let start = LowerBound { value: 0.0, kind: BoundKind::Path };
    lower_bounds(problem).into_iter().fold(start, |best, bound| if bound.value > best.value { bound } else { best })
}

/// Every kind of bound, in the order of [`BoundKind`].
///
/// Takes `O(edges × devices²)` in the worst case for the ways, but `O(edges × devices × log devices)` where ends differ more than
/// transfers take, and at most the time of some hundred million steps for the work.
pub fn lower_bounds(problem: &Problem<'_>) -> Vec<LowerBound> {
    let paths = Paths::new(problem);
    let weights = Weights::of(problem);
    vec![
        LowerBound { value: paths.bound(problem), kind: BoundKind::Path },
        LowerBound { value: weights.bound(), kind: BoundKind::Work },
        LowerBound { value: window::bound(problem, &paths, &weights), kind: BoundKind::Window },
        LowerBound { value: separation::bound(problem, &paths), kind: BoundKind::Separation },
    ]
}
