//! Flows: dataflow graphs whose nodes are the user's functions, run by workers as in Sucuri (Silva et al. 2016, "Task
//! Scheduling in Sucuri Dataflow Library").
//!
//! A [`Flow`] is declared node by node. Its sources feed a stream of iterations through it, several of which are in
//! flight at a time. A node runs once in each iteration, when its operands are there.
//!
//! [`FlowOptions`] hold the workers and their machines ([`WorkerConfig`]), the [`Scheduler`], the [`Allocation`] of
//! nodes to workers, and the number of iterations in flight. Any placement strategy can make an allocation
//! ([`Flow::place`]). Results do not depend on these options: a node is a function of its operands, and nodes with a
//! state are called in the order of iterations.
//!
//! ```
//! # mod anabranch { pub use anabranch_flow as flow; }
//! use anabranch::flow::{Flow, FlowOptions, Scheduler, WorkerConfig};
//!
//! let (text, mut total) = ("one fish two fish", 0);
//! let mut flow = Flow::new();
//! let words = flow.source("words", text.split(' '));
//! let lengths = flow.node("lengths", &words, str::len);
//! let upper = flow.node("upper", &words, |word: &str| word.to_uppercase()).weight(2.0);
//! let lines = flow.node("lines", (&upper, &lengths), |(word, length)| format!("{word} {length}"));
//! flow.serializer("total", &lengths, |length| total += length);
//! let lines = flow.collect("sorted", &lines);
//!
//! let options = FlowOptions::default().with_workers(WorkerConfig::machines(2, 1)?).with_scheduler(Scheduler::Local);
//! let report = flow.run(&options)?;
//! assert_eq!(lines.take(), ["ONE 3", "FISH 4", "TWO 3", "FISH 4"]);
//! assert_eq!((total, report.iterations, report.tasks()), (14, 4, 6 * 4));
//! # Ok::<(), anabranch::flow::FlowError>(())
//! ```
//!
//! **It ends.** A node reads only nodes declared before it, so some task can always run: the oldest iteration in flight
//! has its turn at every node. Declarations that would wait forever are rejected: a node that reads nothing, a pin to a
//! worker that does not exist, sources of different lengths.
//!
//! **Its memory is bounded.** The number of operands is at most edges times iterations in flight.

#![forbid(unsafe_code)]

mod allocation;
mod body;
mod costs;
pub mod drops;
mod engine;
mod error;
mod graph;
mod hand;
mod inputs;
mod log;
mod matching;
mod options;
mod placing;
mod ports;
pub mod programs;
mod queues;
mod report;
#[cfg(test)]
mod tests;
mod traffic;

pub use allocation::{Allocation, AllocationError};
pub use engine::current_worker;
pub use error::FlowError;
pub use graph::{Collected, Flow};
pub use inputs::Inputs;
pub use options::{FlowOptions, Links, Scheduler, WorkerConfig};
pub use ports::Output;
pub use report::{FlowEvent, FlowReport, NodeReport, Traffic, WorkerReport};
