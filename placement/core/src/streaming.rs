//! Streaming schedules of canonical task graphs (De Matteis et al. 2023).
//!
//! A [`CanonicalGraph`] says how many elements each task reads and writes. Tasks that are on different processing elements at the
//! same time pass elements on as they come, so that a chain takes about as long as its longest task. From the graph follow how
//! often elements pass each edge ([`SteadyState`]), and the time on elements without number ([`StreamingDepth`]). For a number of
//! processing elements, [`spatial_blocks`] says which tasks are on them together, [`StreamingSchedule`] when, and [`BufferSizes`]
//! what the channels between them must hold; [`simulate_streaming`] proves that this ends, or names the tasks that wait for each
//! other. [`ListSchedule`] is what all this is compared with: the same tasks without streaming.
//!
//! ```
//! use anabranch_placement::generate::{RandomVolumes, Shape};
//! use anabranch_placement::streaming::*;
//!
//! let graph = RandomVolumes { shape: Shape::Cholesky { tiles: 4 }, volume: 64 }.generate(7)?;
//! let schedule = StreamingSchedule::new(&graph, spatial_blocks(&graph, 8, BlockVariant::Rlx));
//! assert!(schedule.makespan() <= ListSchedule::new(&graph, 8).makespan);
//!
//! let (_, simulated) = BufferSizes::proven(&graph, &schedule, 1 << 30)?;
//! assert!(simulated.makespan <= schedule.makespan());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where the paper's text and its published code differ
//!
//! * Input volumes count in theorem 4.1, as in the code: a task reads at most one element in a unit of time, also where no task of
//!   its component produces as much as it reads.
//! * Memory takes no time and no processing element, as in the code: the text gives buffers a time of their own.
//! * A task ends when its volume has passed at the steady-state interval since its start, as in the code; equation 3 starts from
//!   the ends of its predecessors. Both give the text's figures 8 and 9. The code looks at a task's first outgoing edge alone, so
//!   that a task may seem to end before what holds it back has ended; here all its edges count.
//! * The first output of a downsampler needs `⌈1/R⌉` whole inputs, and at a block's start these come from memory at full speed, as
//!   in the code.
//! * All tasks of a block start no sooner than the block before has ended, as in the code and in one of the text's two statements:
//!   before, no processing element is free. Simulated tasks start as soon as their own is, so a simulation may end earlier.
//! * Channels hold no more than what passes them, as in the text. Equation 5 counts with mean intervals: simulation of random
//!   graphs finds deadlocks where rates are no whole numbers, and [`BufferSizes::proven`] gives these the room that they lack.
//! * Blocks keep the text's rules, but the order of tasks, on which it says little, is searched.
//! * Levels count `max(R, 1)` also for tasks without predecessors, as in the code.

mod blocks;
mod buffers;
mod components;
mod depth;
mod document;
mod error;
mod graph;
mod list;
mod node;
mod partition;
mod schedule;
mod simulation;
mod steady_state;

pub use blocks::{Blocks, BlocksError};
pub use buffers::{BufferSizes, undirected_cycles};
pub use components::Components;
pub use depth::{DepthError, StreamingDepth, levels};
pub use document::parse_canonical;
pub use error::CanonicalError;
pub use graph::{CanonicalGraph, CanonicalGraphBuilder, EdgeId};
pub use list::{ListSchedule, path_lengths};
pub use node::{Node, NodeId, NodeKind};
pub use partition::{BlockVariant, spatial_blocks};
pub use schedule::{StreamingSchedule, TaskTimes};
pub use simulation::{Simulation, SimulationError, Wait, WaitReason, simulate_streaming};
pub use steady_state::{Ratio, SteadyState};

/// Most elements that a node may read or write: times are sums of so many over [`MAX_NODES`] nodes and fit 64 bits.
pub const MAX_VOLUME: u64 = 1 << 40;
/// Most nodes of a graph.
pub const MAX_NODES: usize = 1 << 22;
/// Most edges of a graph.
pub const MAX_EDGES: usize = 1 << 25;
