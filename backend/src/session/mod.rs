//! The library's face: open a model, run arrays through it.

mod accuracy;
mod array;
mod calibration;
mod choices;
mod error;
mod events;
mod forecast;
mod inputs;
mod learning;
mod machine;
mod observed;
mod opened;
mod options;
mod pattern;
mod placing;
mod platform_file;
mod prepared;
mod probe;
mod random;
mod streaming;

pub use accuracy::{Accuracy, Compared, LinkAccuracy, NodeAccuracy};
pub use array::{ArrayError, array, tensor};
pub use calibration::{CalibrationStep, Calibrator};
pub use choices::Dynamic;
pub use error::SessionError;
pub use events::events_json;
pub use inputs::{Inputs, OutputError, Outputs};
pub use learning::Learned;
pub use opened::{Run, Session};
pub use options::{Place, PlanChoice, SessionOptions};
pub use placing::{GivenFile, Placed, Placing, PlacingError, Target, Wish, WishedBlocks, Wishes};
pub use platform_file::{DeviceEntry, LinkEntry, PlatformError, PlatformFile};
pub use prepared::{Planned, Prepared};
pub use random::random_tensor;
