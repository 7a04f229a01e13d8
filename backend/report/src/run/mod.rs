//! A measured run beside its prediction: as text, as JSON, and over time.

mod blocks;
mod divided;
mod gantt;
mod latency;
mod lines;
mod phases;
mod report;
mod staged;

pub use blocks::BlockLine;
pub use divided::{PartLine, displaced_line};
pub use gantt::Gantt;
pub use lines::{busy, busy_calibration, one_device, planned_peak, summed};
pub use phases::first_phase_note;
pub use report::{Report, traffic_text};
pub use staged::Staged;
