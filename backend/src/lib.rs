//! Runs one dataflow graph over all the devices of a workstation.

pub mod canonical;
pub mod compare;
pub mod device;
pub mod execute;
pub mod import;
pub mod lower;
pub mod plan;
pub mod profile;
pub mod program;
pub mod refine;
pub mod session;
pub mod stream;
pub mod tasks;

pub use session::{Inputs, Outputs, Session, SessionError, SessionOptions};
