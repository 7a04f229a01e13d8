//! Streaming schedules of canonical task graphs (De Matteis et al. 2023).
//!
//! In a [`CanonicalGraph`] each task reads and writes a known number of elements. Tasks on different processing
//! elements pass elements on as they come, so a chain takes about as long as its longest task. [`SteadyState`] computes
//! how often elements pass each edge. [`StreamingDepth`] is the time on unlimited processing elements. For a number of
//! processing elements, [`spatial_blocks`] groups the tasks that run together. [`StreamingSchedule`] computes their
//! times, and [`BufferSizes`] the capacities of the channels between them. [`simulate_streaming`] proves that the
//! blocks end, or names the tasks in a deadlock. [`ListSchedule`] is the reference for comparison: the tasks without
//! streaming.
//!
//! ```
//! use anabranch_placement::generate::{RandomVolumes, Shape};
//! use anabranch_placement::streaming::*;
//!
//! let graph = RandomVolumes { shape: Shape::Cholesky { tiles: 4 }, volume: 64 }.generate(7)?;
//! let schedule = StreamingSchedule::new(&graph, spatial_blocks(&graph, 8, BlockVariant::Best));
//! assert!(schedule.makespan() <= ListSchedule::new(&graph, 8).makespan);
//!
//! let (_, simulated) = BufferSizes::proven(&graph, &schedule, 1 << 30)?;
//! assert!(simulated.makespan <= schedule.makespan());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences between the paper's text and its published code
//!
//! * Input volumes count in theorem 4.1, as in the code: a task reads at most one element per unit of time. This holds
//!   even if no task of its component produces as much as it reads.
//! * Memory takes no time and no processing element, as in the code; in the text buffers have a time of their own.
//! * A task ends when its volume has passed at the steady-state interval since its start, as in the code; equation 3
//!   starts from the ends of its predecessors. Both give the text's figures 8 and 9. The code considers only a task's
//!   first outgoing edge, so a task may seem to end before the task that delays it. Here all its edges count.
//! * The first output of a downsampler needs `⌈1/R⌉` whole inputs. At a block's start these come from memory at full
//!   speed, as in the code.
//! * All tasks of a block start when the block before has ended or later, as in the code and in one of the text's two
//!   statements: earlier, no processing element is free. Simulated tasks start as soon as their own processing element
//!   is free, so a simulation may end earlier.
//! * The times of a schedule are estimates from mean intervals. If all rates, or their inverses, are whole numbers, no
//!   simulation with proven channels ended later (0 of 150,000 schedules of small random graphs). With any other rates
//!   3,735 of 150,000 ended later, by at most 14 % (8 instead of 7), because outputs come in whole elements.
//! * Channels hold no more elements than pass them, as in the text. Equation 5 uses mean intervals. Simulation of
//!   random graphs finds deadlocks if rates are not whole numbers; [`BufferSizes::proven`] enlarges the channels of
//!   these graphs.
//! * [`BlockVariant`] has Algorithm 1 as printed: it compares produced volumes with "less". The code compares the work
//!   `max(I, O)` with "at most", takes sources first, and never breaks ties by level.
//! * Levels count `max(R, 1)` for tasks without predecessors too, as in the code.

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

/// Most elements that a node may read or write. Times are sums of this many over [`MAX_NODES`] nodes and fit 64 bits.
pub const MAX_VOLUME: u64 = 1 << 40;
/// Most nodes of a graph.
pub const MAX_NODES: usize = 1 << 22;
/// Most edges of a graph.
pub const MAX_EDGES: usize = 1 << 25;
