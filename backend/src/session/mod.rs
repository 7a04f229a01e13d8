//! The library's face: open a model, run arrays through it.

mod array;
mod inputs;
mod pattern;
mod placing;
mod random;

pub use array::{ArrayError, array, tensor};
pub use inputs::{Inputs, OutputError, Outputs};
pub use placing::{Placed, Placing, PlacingError, Target, Wishes};
pub use random::random_tensor;
