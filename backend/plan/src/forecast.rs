//! What a scheduler at run time goes by.

use anabranch_placement::cost::TransferCurve;

/// What is predicted: the scheduler goes by nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of each node on each device; `None` where it must not or cannot run.
    pub nodes: Vec<Vec<Option<f64>>>,
    /// From each device to each: seconds of a transfer by its size.
    pub links: Vec<Vec<TransferCurve>>,
}
