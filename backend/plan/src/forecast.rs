//! Predicted times for the scheduler at run time.

use anabranch_placement_core::cost::TransferCurve;

/// Predicted times of nodes and transfers. The scheduler uses nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of each node on each device; `None` where it must not or cannot run.
    pub nodes: Vec<Vec<Option<f64>>>,
    /// From each device to each: seconds of a transfer by its size.
    pub links: Vec<Vec<TransferCurve>>,
}
