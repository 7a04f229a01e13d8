//! The library's face: open a model, describe it, run arrays through it.

#![forbid(unsafe_code)]

mod array;
mod budget;
mod cache;
mod deciding;
mod dynamic;
mod error;
mod event_json;
mod inputs;
mod open;
mod options;
mod outputs;
mod prepare;
mod random;
mod run;
mod value_info;

pub use crate::error_kind::ErrorKind;
pub use array::{ArrayError, tensor, view};
pub use dynamic::Dynamic;
pub use error::SessionError;
pub use event_json::events_json;
pub use inputs::Inputs;
pub use open::Session;
pub use options::SessionOptions;
pub use outputs::{OutputError, OutputKey, Outputs};
pub use prepare::Prepared;
pub use random::random_tensor;
pub use run::Run;
pub use value_info::ValueInfo;
