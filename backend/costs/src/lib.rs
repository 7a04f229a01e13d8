//! Costs of runs: histories of measured times, the store that keeps them, and the model that predicts from them.

mod cost;
mod history;
mod import_export;
mod interval;
mod law;
mod link;
mod machine;
mod node_time;
mod residuals;
mod robust;
mod since;
mod store;

pub use cost::Laws;
pub use cost::{CostSource, NodeCost, Predictor};
pub use history::{Cold, Estimate, History, RECENT, Sample};
pub use import_export::{CostFormat, ImportExportError};
pub use interval::interval;
pub use link::LinkCosts;
pub use machine::{DeviceCosts, MachineCosts, NodeCosts, Rates, RunCosts, Slowdown};
pub use machine::{MOST_SECONDS, is_rate};
pub use node_time::NodeTime;
pub use robust::median;
pub use store::{CostStore, FORMAT_VERSION, Loaded, StoreError};
