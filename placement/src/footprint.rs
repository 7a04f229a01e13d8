//! Smallest machine for a graph: the least number of cores, devices and bytes with which it runs without delay or
//! within a deadline.
//!
//! The source is Wu et al., *Partitioning SKA Dataflows for Optimal Graph Execution*, 2018 (DALiuGE).
//!
//! A [`Problem`] is a graph whose tasks take cores and time, and the capacity of one of many identical devices. The
//! module finds
//!
//! * its degree of parallelism, the most cores that any order uses at a time: [`heaviest_antichain`];
//! * partitions that never exceed a device's capacity and move few bytes: [`zero_edges`], the paper's algorithm 1;
//! * the least number of partitions, of cores of one device, and of devices that keep a deadline, each with a bound:
//!   [`fewest_partitions`], [`fewest_cores`], [`fewest_devices`];
//! * the most bytes that its data take in any order: [`live_bytes`].
//!
//! For a problem with a platform of its own, [`fewest_of_platform`] returns a subset of devices that suffices.
//! [`mod@check`] checks every result independently.
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
//! # Errors and gaps in the paper and its reference implementation
//!
//! * The reference counts the parallelism of a merged partition on a graph without the partition's inner edges. Tasks
//!   that follow each other then count as parallel. So caps reject mergings that they allow, and the result needs more
//!   devices than necessary. Here all paths of the whole graph count, also paths that leave the partition and return,
//!   because tasks on such a path never run at the same time.
//! * The reference reports the cap of a partition, not its parallelism.
//! * In the reference, an edge that comes to lie within a partition through other edges keeps its weight. The
//!   completion and movement of the reference are then too great (in 11 of the 60 random cases of the tests). Here an
//!   edge within a partition costs nothing.
//! * The further step of the reference, which merges partitions down to a number, counts partitions that do not exist.
//! * Theorem 1 says *strictly non-increasing*. Its proof shows, correctly, that merging never lengthens the completion.
//! * Algorithm 2 uses a minimum-cost flow on the transitive closure, with `O(V²)` arcs. For one antichain, a maximum
//!   flow on `O(V + E)` arcs suffices.
//! * Memory as a weight in antichains means that tasks release it when they end. Permanent memory is a sum over a
//!   partition; data have live ranges.

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
