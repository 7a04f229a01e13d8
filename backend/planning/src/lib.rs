//! Plans a lowered program: the machine and its costs, constraints, placement, streaming blocks, prediction, and memory
//! limits.
//!
//! [`Planner`] is the entry point. A [`Machine`] holds the devices for the placement: those of this machine, or those
//! that a [`PlatformFile`] describes.

#![forbid(unsafe_code)]

mod blocks;
mod blocks_first;
mod choosing;
mod constants;
mod constraints;
mod described_machine;
mod error;
mod fitting;
mod forecast;
mod kept;
mod machine;
mod name_pattern;
mod node_times;
mod placing;
mod planned;
mod platform_file;
mod platform_problem;
mod reads;
mod repair;
mod request;
mod split;
mod strategy;

pub use anabranch_plan::MachineDevice;
pub use constraints::{Constraints, Pin, Resident};
pub use error::PlanningError;
pub use fitting::Planner;
pub use forecast::{batches, forecast, threads};
pub use machine::{Machine, compute_devices, link, machine_devices};
pub use name_pattern::matches as name_matches;
pub use node_times::NodeTimes;
pub use placing::{Placed, Placing};
pub use planned::{Lowered, Planned};
pub use platform_file::{DeviceEntry, LinkEntry, PlatformFile};
pub use request::{BlockSource, PlacementRequest, PlanChoice};
pub use split::{DividedBatch, Parts, Split, verify_rows};
pub use strategy::{Algorithm, Order, Strategy};
