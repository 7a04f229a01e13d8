//! Runs a model as a pipeline of stages that work at the same time on different devices.
//!
//! The lowered, fused program is cut into intervals of its order. Each interval is a program of its own, planned and
//! run on its device like any other, with channels of a given capacity between them. A stage may have several devices,
//! each of which works at another data set (*replicated*). Or it may have several cores of one CPU device, which work
//! at each data set together (*data-parallel*).
//!
//! The nodes and devices of each stage are chosen for the least time between results, or for the least time of each
//! data set, within bounds on the other. [`anabranch_placement::pipeline`] holds the theory. Start with [`Pipeline`].

#![forbid(unsafe_code)]

mod chain;
mod channel_capacities;
mod choice;
mod costs;
mod distributed;
mod error;
mod face;
mod feedback;
mod handover;
mod interval;
mod kept;
mod line;
mod mapping;
mod measured;
mod open;
mod options;
mod packet;
mod part_planner;
mod plan;
mod processors;
mod ring;
mod teams;
#[cfg(test)]
mod tests;
mod times;
mod wiring;

pub use anabranch_placement::pipeline::Goal;
pub use costs::StageCosts;
pub use distributed::{
    DeviceTimes, DistributedStage, DividedState, Division, DivisionMessage, DivisionOptions, DivisionStage,
    MachineLink, MachineTimes, Machines, StageOutput, divide,
};
pub use error::PipelineError;
pub use face::{Finished, Pipeline};
pub use mapping::{StageDevices, StageMapping};
pub use measured::{LatencyShares, Measured, MeasuredReplica, MeasuredStage};
pub use options::{Among, PipelineOptions};
pub use plan::{PipelinePlan, StagePlan, Tried};
pub use times::StageSpan;
