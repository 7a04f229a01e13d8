//! Learning from runs: calibration by probes, times of profiled runs for the cost store, and the accuracy of
//! predictions.

#![forbid(unsafe_code)]

mod accuracy;
mod calibration;
mod classes;
mod observation;
mod probe;
mod record;

pub use accuracy::{Accuracy, Compared, LinkAccuracy, NodeAccuracy};
pub use calibration::{CalibrationError, CalibrationStep, Calibrator, calibrate};
pub use record::{Learned, ProfiledRun, record};
