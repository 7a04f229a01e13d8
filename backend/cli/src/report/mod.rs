//! Reports that people look at: one HTML file with the graph, the schedule, the memory and every node's figures, predicted beside
//! measured. It needs no network and nothing beside it.
//!
//! [`ReportData`] is all that the page shows; [`page()`] puts it, with the page's code and style, into one file. [`trace()`] gives
//! a run to viewers of traces instead.

#![forbid(unsafe_code)]

mod collect;
mod critical;
mod data;
mod date;
mod lanes;
mod layout;
mod memory;
mod page;
mod spans;
mod trace;
mod why;

pub use collect::About;
pub use data::{
    BlockData, CostData, DeviceData, EdgeData, FactsData, NodeData, PortData, ReportData, Role, Steps, Times,
    TotalData, TransferData, WhyData,
};
pub use date::utc;
pub use lanes::{Bar, RunLane, lanes};
pub use layout::{Layout, NODE_HEIGHT, NODE_WIDTH, layout};
pub use page::page;
pub use trace::trace;
