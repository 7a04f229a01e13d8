//! Placement and scheduling of dataflow graphs on heterogeneous devices.
//!
//! Everything here is a pure function of a graph, a platform and costs: no threads, no devices, no clock. The same
//! input gives the same result. Strategies and the simulator end early with an error once their caller wants no result
//! any more (`anabranch_base::interruption`).
//!
//! The way through the crate: build a [`graph::TaskGraph`] and a [`platform::Platform`], and state costs with a
//! [`cost::CostModel`]. Verify all three together as a [`problem::Problem`] under its [`rules::Rules`]. A
//! [`place::Placer`] chooses devices, and [`simulate::simulate`] computes the schedule under an [`order::Order`].
//! [`check`] judges placements and schedules independently of the strategies, and [`bound`] gives lower bounds of every
//! schedule's length.
//!
//! [`exact`] finds the optimum of small problems, and [`evaluate`] measures schedules.
//!
//! This is the core. It uses none of the modules around it: [`mod@format`] reads and writes the files of other
//! programs, and [`generate`] makes graphs, platforms and whole problems from seeds. [`adversarial`] searches for
//! problems on which one strategy is much worse than another.
//!
//! The remaining modules treat other models. [`streaming`] schedules tasks that pass elements on while they run: it
//! groups them on processing elements and times them. [`pipeline`] maps stages to devices for many successive inputs,
//! for a short period or a short latency. [`parts`] makes a placement into parts with messages between them, of which
//! several run at a time for one input. [`footprint`] finds the least number of cores, devices and bytes for a graph.
//! [`logical`] unrolls DALiuGE's logical graphs.
//!
//! ```
//! use anabranch_placement::check::{check_placement, check_schedule};
//! use anabranch_placement::cost::CostTable;
//! use anabranch_placement::graph::{GraphBuilder, Task};
//! use anabranch_placement::order::Pct;
//! use anabranch_placement::place::{ListScheduler, Placer};
//! use anabranch_placement::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
//! use anabranch_placement::problem::{MemoryRule, Problem};
//! use anabranch_placement::simulate::simulate;
//!
//! // A source for the model's input and a sink for its output, both on the host, and two kernels between them.
//! let host = DeviceId(0);
//! let mut builder = GraphBuilder::new();
//! let input = builder.task(Task::new("input").with_pin(host));
//! let matmul = builder.task(Task::new("matmul").with_memory(4 << 20));
//! let top_k = builder.task(Task::new("top_k").with_allowed(DeviceKinds::CPU));
//! let output = builder.task(Task::new("output").with_pin(host));
//! builder.edge(input, matmul, 1 << 20);
//! builder.edge(matmul, top_k, 1 << 20);
//! builder.edge(top_k, output, 4 << 10);
//! let graph = builder.build()?;
//!
//! // Two devices; the link has 10 µs of latency and 10 GB/s.
//! let devices = vec![
//!     Device::new("cpu0", DeviceKind::Cpu),
//!     Device::new("gpu0", DeviceKind::Gpu).with_memory(8 << 30),
//! ];
//! let platform = Platform::uniform(devices, 10e-6, 10e9)?;
//!
//! // Seconds of each task on each device; `None` where there is no kernel for it.
//! let seconds = [[Some(0.0), None], [Some(5e-3), Some(2e-4)], [Some(1e-4), None], [Some(0.0), None]];
//! let costs = CostTable::from_fn(&graph, &platform, |task, device| seconds[task.index()][device.index()])?;
//!
//! let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Resident)?;
//! let placement = ListScheduler::HEFT.place(&problem)?;
//! assert_eq!(placement.device_of[matmul.index()], DeviceId(1));
//! println!("{}", placement.reasons[matmul.index()].explained(&graph, &platform));
//!
//! let schedule = simulate(&problem, &placement.device_of, &Pct)?;
//! assert!(check_placement(&problem, &placement.device_of).is_empty());
//! assert!(check_schedule(&problem, &placement.device_of, &schedule).is_empty());
//!
//! // What to run: one order over all tasks, and one for each device.
//! assert_eq!(schedule.order, [input, matmul, top_k, output]);
//! assert_eq!(schedule.device_orders(2), [vec![input, top_k, output], vec![matmul]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod adversarial;
pub mod footprint;
pub mod format;
pub mod generate;
pub mod logical;
pub mod parts;
pub mod pipeline;
pub mod stochastic;

#[cfg(test)]
use anabranch_placement_core::sample;
pub use anabranch_placement_core::{
    bound, check, cost, count, evaluate, exact, graph, network, order, place, platform, problem, quoted, rank, rules,
    schedule, simulate, streaming, transfer,
};
use anabranch_placement_core::{loaded, random, total, union_find};
