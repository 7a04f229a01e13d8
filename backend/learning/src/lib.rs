//! What runs teach: calibration by probes, the times of profiled runs into the cost store, and how well runs were predicted.

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
