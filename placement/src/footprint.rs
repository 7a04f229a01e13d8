//! The smallest machine that keeps up: how many cores, devices and bytes a graph takes at least, after Wu et al., *Partitioning SKA Dataflows for Optimal
//! Graph Execution*, 2018 (DALiuGE).
//!
//! A [`Problem`] is a graph whose tasks take cores and time, and what one of many alike devices has. Asked of it are
//!
//! * its degree of parallelism, the most cores that any order takes at a time: [`heaviest_antichain`];
//! * partitions that never take more than a device has and move few bytes: [`zero_edges`], the paper's algorithm 1;
//! * the fewest partitions, the fewest cores of one device, and the fewest devices that keep a deadline: [`fewest_partitions`], [`fewest_cores`],
//!   [`fewest_devices`], each with a bound;
//! * the most bytes that its data take in any order: [`live_bytes`].
//!
//! Of a problem with a platform of its own, [`fewest_of_platform`] says which devices do. [`mod@check`] judges every result by itself.
//!
//! ```
//! use anabranch_placement::footprint::{Capacity, Problem, fewest_cores, zero_edges};
//! use anabranch_placement::graph::{GraphBuilder, Task};
//! use anabranch_placement::pipeline::Link;
//!
//! // One task, four beside each other, and one that takes what they made.
//! let mut builder = GraphBuilder::new();
//! let [first, last] = ["split", "join"].map(|name| builder.task(Task::new(name)));
//! for _ in 0..4 {
//!     let middle = builder.task(Task::new("work"));
//!     builder.edge(first, middle, 8);
//!     builder.edge(middle, last, 2);
//! }
//! let graph = builder.build()?;
//! let capacity = Capacity { cores: 2, memory: None };
//! let link = Link { latency: 0.0, bandwidth: 4.0 };
//! let problem = Problem::new(&graph, vec![1; 6], vec![1.0; 6], capacity, link)?;
//! assert_eq!(problem.parallelism(), 4);
//!
//! // Two of the four fit on the first device; two more are apart, and their data are on their way for 2 + 0.5.
//! let partitioning = zero_edges(&problem);
//! assert_eq!((partitioning.parts.len(), partitioning.completion, partitioning.movement), (3, 5.5, 20));
//!
//! // On one device the four take two turns where one third more time is allowed.
//! assert_eq!((fewest_cores(&problem, 3.0)?.cores, fewest_cores(&problem, 4.0)?.cores), (4, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where the paper and its reference are wrong or silent
//!
//! * The reference counts the parallelism of a merged partition on a graph that lacks the partition's inner edges, so that tasks count beside each other
//!   that follow each other: caps refuse mergings that they allow, and more devices are asked for than are needed. Here all paths of the
//!   whole graph count, those that leave the partition and return as well: what they order never runs at the same time either.
//! * What it says of a partition is the cap, not the parallelism.
//! * An edge that comes to lie within a partition through other edges keeps its weight in the reference, so that its completion and movement are too
//!   great (in 11 of the 60 random cases that the tests know). Here what is within a partition costs nothing.
//! * Its further step, which merges partitions down to a number, counts partitions that it does not have.
//! * Theorem 1 says *strictly non-increasing*; what it proves, and what holds, is that merging lengthens nothing.
//! * Algorithm 2 takes a minimum-cost flow on the transitive closure, of `O(V²)` arcs. For one antichain, a maximum flow on `O(V + E)` arcs does.
//! * Memory as a weight in antichains means that tasks give it back when they end. What stays is a sum over a partition; data have live ranges.

mod antichain;
mod assign;
mod chains;
mod fewest;
mod flow;
mod live;
mod partition;
mod problem;
mod schedule;
mod subset;
mod zeroing;

pub mod check;

pub use antichain::{Antichain, Cover, heaviest_antichain};
pub use fewest::{
    FewestCores, FewestDevices, FewestPartitions, fewest_cores, fewest_devices, fewest_partitions, partitions_bound,
};
pub use live::{LiveBytes, live_bytes};
pub use partition::{Part, Partitioning};
pub use problem::{Capacity, FootprintError, Problem};
pub use schedule::{Timetable, timetable};
pub use subset::{Subset, best_schedule, fewest_of_platform};
pub use zeroing::{merge_rest, zero_and_merge, zero_edges};
