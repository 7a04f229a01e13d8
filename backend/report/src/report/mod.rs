//! Reports for people: one HTML file with the graph, the schedule, the memory and every node's figures, predicted
//! beside measured. It needs no network and no other files.
//!
//! [`data()`] returns everything that the page shows. [`page()`] puts it, with the page's code and style, into one
//! file. [`trace()`] returns a run for trace viewers instead.

mod attributes;
mod collect;
mod critical;
mod date;
mod formula;
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
