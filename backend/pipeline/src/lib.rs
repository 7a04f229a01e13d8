//! Streams of data sets: a model as a pipeline of stages that work at the same time on different devices.
//!
//! The lowered, fused program is cut into intervals of its order; each is a program of its own, planned and run on its device as any
//! other, with channels of stated capacity between. A stage may have several devices, of which each works at another data set
//! (*replicated*), or several cores of one CPU device, which work at each data set together (*data-parallel*). Which nodes are a stage, and
//! where, is chosen for the least time between results, or the least time of each, within bounds on the other; the theory is in
//! [`anabranch_placement::pipeline`]. [`Pipeline`] is the way in.

#![forbid(unsafe_code)]

mod choice;
mod costs;
mod error;
mod face;
mod handover;
mod interval;
mod line;
mod mapping;
mod measured;
mod open;
mod options;
mod packet;
mod plan;
mod processors;
mod ring;
mod room;
mod teams;
#[cfg(test)]
mod tests;
mod times;
mod wiring;

pub use anabranch_placement::pipeline::Goal;
pub use costs::StageCosts;
pub use error::PipelineError;
pub use face::{Finished, Pipeline};
pub use mapping::{StageDevices, StageMapping};
pub use measured::{LatencyShares, Measured, MeasuredReplica, MeasuredStage};
pub use options::{Among, PipelineOptions};
pub use plan::{PipelinePlan, StagePlan, Tried};
pub use times::StageSpan;
