//! What runs cost: statistics, the store that keeps them, and the model that predicts from them.

mod cost;
mod statistics;
mod store;
mod trace;

pub use cost::{CostSource, NodeCost};
pub use statistics::Statistics;
pub use store::{CostStore, DeviceCosts, FORMAT_VERSION, LinkCosts, Loaded, Rates, StoreError};
pub use trace::{Group, Slice, Trace, Track};
