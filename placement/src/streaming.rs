//! Streaming schedules of canonical task graphs (De Matteis et al. 2023).
//!
//! A [`CanonicalGraph`] says how many elements each task reads and writes. Tasks that are on different processing elements at the
//! same time pass elements on as they come, so that a chain takes about as long as its longest task. From the graph follow how
//! often elements pass each edge ([`Flow`]), and the time on elements without number ([`StreamingDepth`]).
//!
//! Differences between the paper's text, its published code and this module, each as simulation proves it right:
//!
//! * Input volumes count in Theorem 4.1: a task reads at most one element in a unit of time, also where no task of its component
//!   produces as much as it reads.
//! * Memory takes no time and no processing element: a buffer's last output is the last that came into it, without the paper's
//!   own time for it, and what reads it starts like the source of a block.

mod blocks;
mod buffers;
mod components;
mod depth;
mod document;
mod error;
mod flow;
mod graph;
mod list;
mod node;
mod schedule;
mod simulation;

pub use blocks::{Blocks, BlocksError};
pub use buffers::{BufferSizes, undirected_cycles};
pub use components::Components;
pub use depth::{DepthError, StreamingDepth, levels};
pub use document::parse_canonical;
pub use error::CanonicalError;
pub use flow::{Flow, Ratio};
pub use graph::{CanonicalGraph, CanonicalGraphBuilder, EdgeId};
pub use list::{ListSchedule, path_lengths};
pub use node::{Node, NodeId, NodeKind};
pub use schedule::{StreamingSchedule, TaskTimes};
pub use simulation::{Simulation, SimulationError, Wait, WaitReason, simulate_streaming};

/// Most elements that a node may read or write: times are sums of so many over [`MAX_NODES`] nodes and fit 64 bits.
pub const MAX_VOLUME: u64 = 1 << 40;
/// Most nodes of a graph.
pub const MAX_NODES: usize = 1 << 22;
/// Most edges of a graph.
pub const MAX_EDGES: usize = 1 << 25;
