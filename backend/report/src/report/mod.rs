//! Reports that people look at: one HTML file with the graph, the schedule, the memory and every node's figures, predicted beside
//! measured. It needs no network and nothing beside it.
//!
//! [`data()`] is all that the page shows; [`page()`] puts it, with the page's code and style, into one file. [`trace()`] gives a run
//! to viewers of traces instead.

mod collect;
mod critical;
mod date;
mod lanes;
mod memory;
mod page;
mod part;
mod scopes;
mod spans;
mod trace;
mod typed;
mod why;

pub use collect::data;
pub use date::utc;
pub use lanes::{RunLane, key, lanes};
pub use page::page;
pub use part::About;
pub use trace::trace;
pub use typed::typed;
