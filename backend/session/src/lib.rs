//! The library's interface: open a model, describe it, run arrays through it.

#![deny(unsafe_code)]

mod array;
mod batch;
pub mod borrowed;
mod budget;
mod cache;
pub mod compiled;
mod config;
mod dynamic;
mod error;
mod host_operators;
mod inputs;
mod loss;
mod open;
mod outputs;
mod pairing;
mod parts;
mod phases;
mod plausible;
mod precompiled;
mod prepare;
#[cfg(test)]
mod read_faults;
mod run;
mod run_events;
mod state;
mod value_info;
mod whole;

pub use budget::Charge;
pub use run::ordered;

pub use anabranch_base::error_kind::ErrorKind;
pub use anabranch_ir::random::random_tensor;
pub use array::{ArrayError, tensor, view};
pub use config::{ResolvedConfig, SETTINGS, SessionConfig, SettingError};
pub use dynamic::Dynamic;
pub use error::SessionError;
pub use inputs::Inputs;
pub use loss::OnDeviceLoss;
pub use open::Session;
pub use outputs::{OutputError, OutputKey, Outputs};
pub use pairing::StatePair;
pub use phases::{HostOperator, Later, LaterRun};
pub use prepare::Prepared;
pub use run::Run;
pub use run_events::{EventKind, RunEvent, RunEvents};
pub use state::{State, Stateful};
pub use value_info::ValueInfo;
pub use whole::{Part, RunPrediction};
