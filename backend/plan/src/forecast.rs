//! Predicted times for the scheduler at run time.

use anabranch_placement_core::cost::TransferCurve;

/// Predicted times of nodes and transfers. The scheduler uses nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of each node on each device; `None` if the node cannot or must not run there.
    pub nodes: Vec<Vec<Option<f64>>>,
    /// Seconds of a transfer by its size, from each device to each device.
    pub links: Vec<Vec<TransferCurve>>,
}
