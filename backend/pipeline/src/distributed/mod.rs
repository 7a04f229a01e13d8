//! A model's stages on the devices of several machines. An engine outside of this crate joins the machines: it asks
//! each for its times ([`MachineTimes`]), divides the model ([`divide`]), and opens each stage on its machine
//! ([`DistributedStage`]).
//!
//! The machines exchange names and numbers only. Each lowers the model itself, with the same result: the names of all
//! nodes are compared before anything is divided or opened.

mod branches;
mod division;
mod stage;
mod times;

pub use division::{Division, DivisionMessage, DivisionOptions, DivisionStage, MachineLink, Machines, divide};
pub use stage::{DistributedStage, DividedState, StageOutput};
pub use times::{DeviceTimes, MachineTimes};
