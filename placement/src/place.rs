//! Placement strategies: which device runs which task.

mod assignment;
mod critical_path;
mod fixed;
mod heft;
mod mite;
mod reason;
mod room;
mod single;
mod slowness;
mod timeline;

pub use critical_path::CriticalPath;
pub use fixed::Fixed;
pub use heft::Heft;
pub use mite::Mite;
pub use reason::{Explained, FinishOn, LoadOn, MiteFactors, Reason};
pub use single::Single;

use crate::platform::{DeviceId, DeviceKind};
use crate::problem::Problem;
use crate::schedule::Schedule;

/// A placement strategy. The same problem always gives the same placement.
pub trait Placer: Sync {
    /// Its short name, as typed on a command line.
    fn name(&self) -> &'static str;

    /// Places every task.
    ///
    /// # Errors
    /// Where the strategy finds no device with room for some unit, although each unit alone would fit.
    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError>;
}

/// A device for every task, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// By task id.
    pub device_of: Vec<DeviceId>,
    /// Why the task is there; by task id.
    pub reasons: Vec<Reason>,
    /// The schedule that the strategy planned while it placed, if it plans one. [`Schedule::order`] of it is an order to run in.
    pub planned: Option<Schedule>,
}

/// Why a strategy could not place a problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Every feasible device is too full.
    #[error(
        "no feasible device has room for task {task:?} and what is colocated with it: they need {needed} bytes, and {device:?}, \
         which has most room, has {available} of its {memory} left; give a device more memory or allow more devices"
    )]
    NoRoom {
        /// The unit's first task.
        task: String,
        /// The feasible device with most room.
        device: String,
        /// Bytes that the unit takes.
        needed: u64,
        /// Bytes that the device has left.
        available: u64,
        /// Bytes of the device in all.
        memory: u64,
    },
    /// A given assignment breaks a constraint.
    #[error("the given placement does not fit the problem: {0}")]
    Violation(crate::check::Violation),
}

/// Every strategy that [`strategy_by_name`] knows, with a line on what it does.
pub const STRATEGIES: &[(&str, &str)] = &[
    ("heft", "each task where it would finish first, the most urgent task first"),
    ("mite", "each task where memory, importance, traffic and load together are best"),
    ("cp", "the critical path on the fastest device, the rest where least is to do"),
    ("cpu", "everything on the fastest CPU device, as far as it can run there"),
    ("gpu", "everything on the fastest GPU device, as far as it can run there"),
];

/// The strategy called `name`, if there is one.
pub fn strategy_by_name(name: &str) -> Option<Box<dyn Placer>> {
    match name {
        "heft" => Some(Box::new(Heft)),
        "mite" => Some(Box::new(Mite)),
        "cp" => Some(Box::new(CriticalPath)),
        "cpu" => Some(Box::new(Single { kind: DeviceKind::Cpu })),
        "gpu" => Some(Box::new(Single { kind: DeviceKind::Gpu })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_strategy_is_known_by_its_own_name() {
        for &(name, _) in STRATEGIES {
            assert_eq!(strategy_by_name(name).map(|strategy| strategy.name()), Some(name));
        }
        assert!(strategy_by_name("none").is_none());
    }
}
