//! Synthetic graphs and platforms, reproducible on every machine from a seed.
//!
//! * [`Layered`]: random graphs of levels with colocation and device constraints, and [`Devices`], random platforms for
//!   them (Laich 2017, chapter 6), with the parameters of its six graphs.
//! * [`Random dags`](RandomDag): the random graphs of Topcuoglu 2002, section 5.
//! * [`Shape`]: chains, trees, forks and joins, wavefronts, FFT, Gaussian elimination and Cholesky factorisation.
//! * [`RandomVolumes`]: canonical task graphs of these shapes with random volumes (De Matteis et al. 2023, section 7).
//! * [`Sweep`]: times on heterogeneous devices and links of a given weight for any graph, after Topcuoglu 2002, section
//!   5.
//!
//! ```
//! use anabranch_placement::generate::{Grain, Shape, Sweep};
//!
//! let graph = Shape::Cholesky { tiles: 4 }.generate(&Grain::default())?;
//! let problem = Sweep { devices: 3, communication: 1.0, ..Sweep::default() }.problem("cholesky", graph, 42)?;
//! assert_eq!(problem.graph.task_count(), 20);
//! # Ok::<(), anabranch_placement::generate::GenerateError>(())
//! ```
//!
//! All drawing uses integer arithmetic and the five IEEE 754 operations that are exactly rounded, so equal seeds give
//! equal bits everywhere.

mod canonical;
mod dag;
mod devices;
mod family;
mod layered;
mod numerical;
mod parameters;
mod shape;
mod sweep;

pub use crate::random::Random;
pub use canonical::RandomVolumes;
pub use dag::RandomDag;
pub use devices::Devices;
pub use family::{FAMILIES, Family, shape_by_name};
pub use layered::{EdgeReach, Layered};
pub use parameters::SpellingError;
pub use shape::{Grain, Shape};
pub use sweep::{Heterogeneity, Sweep};

use crate::cost::CostError;
use crate::graph::GraphError;
use crate::platform::PlatformError;
use crate::streaming::CanonicalError;

/// Most tasks that a generated graph may have.
pub const MAX_TASKS: u64 = 1 << 22;
/// Most edges that a generated graph may have.
pub const MAX_EDGES: u64 = 1 << 25;
/// Most pairs of tasks that a random graph may draw for, which bounds its time.
pub const MAX_PAIRS: u64 = 1 << 31;
/// Most devices of a generated platform: its links need the square of this number.
pub const MAX_DEVICES: u64 = 1 << 12;

/// Reason why nothing was generated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum GenerateError {
    /// A parameter outside its range.
    #[error("{parameter} is {value}, but should be {expected}")]
    Parameter { parameter: &'static str, value: f64, expected: &'static str },
    /// A result that exceeds a limit.
    #[error("this makes {count} {what}, but the limit is {limit}")]
    TooLarge {
        /// Tasks, edges, devices, or pairs to draw for.
        what: &'static str,
        count: u64,
        limit: u64,
    },
    /// Parts that do not form a graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Parts that do not form a platform.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// A time that is negative or not finite.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// Parts that do not form a canonical task graph.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
}

/// Rejects counts beyond the limits.
fn check_size(tasks: u128, edges: u128) -> Result<(), GenerateError> {
    for (what, count, limit) in [("tasks", tasks, MAX_TASKS), ("edges", edges, MAX_EDGES)] {
        check_count(what, count, limit)?;
    }
    Ok(())
}

fn check_count(what: &'static str, count: u128, limit: u64) -> Result<(), GenerateError> {
    if count > u128::from(limit) {
        return Err(GenerateError::TooLarge { what, count: u64::try_from(count).unwrap_or(u64::MAX), limit });
    }
    Ok(())
}

/// Rejects a parameter that is not in `range`.
fn check_parameter(
    parameter: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), GenerateError> {
    if range.contains(&value) { Ok(()) } else { Err(GenerateError::Parameter { parameter, value, expected }) }
}
