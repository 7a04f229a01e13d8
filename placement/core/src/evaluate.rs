//! Metrics of a schedule: its makespan against references and bounds, its traffic, and the load of its devices.
//!
//! A [`Baseline`] holds the figures that depend on the problem alone; it is computed once. [`Metrics`] compare a
//! schedule with it. A schedule contains its placement, so simulated, planned and optimal schedules are measured in the
//! same way.
//!
//! ```
//! use anabranch_placement::evaluate::{Baseline, Metrics};
//! use anabranch_placement::generate::{Grain, Shape, Sweep};
//! use anabranch_placement::place::{ListScheduler, Placer};
//!
//! let graph = Shape::Chain { length: 5 }.generate(&Grain::default())?;
//! let loaded = Sweep { range: 0.0, mean_time: 2.0, ..Sweep::default() }.problem("chain", graph, 1)?;
//! let problem = loaded.problem()?;
//! let schedule = ListScheduler::HEFT.place(&problem)?.planned.expect("HEFT plans a schedule");
//! let metrics = Metrics::of(&problem, &Baseline::of(&problem), &schedule);
//! assert_eq!((metrics.makespan, metrics.gap, metrics.slr, metrics.speedup), (10.0, Some(0.0), Some(1.0), Some(1.0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod baseline;
mod executable;
mod memory;

pub use baseline::Baseline;
pub use executable::{Decision, decisions};
pub use memory::{MemoryLevel, memory_over_time};

use crate::bound::LowerBound;
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use serde::Serialize;

/// Metrics of a schedule. Times are in the problem's unit, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    /// End of the last task.
    pub makespan: f64,
    /// Lower bound of the makespan.
    pub bound: LowerBound,
    /// Relative excess of the makespan over the bound: 0 is optimal. `None` if the bound is 0 but the makespan is not.
    pub gap: Option<f64>,
    /// Schedule length ratio: the makespan over [`Baseline::critical_path`] (Topcuoglu 2002, section 5.1). `None` if
    /// the path is 0.
    pub slr: Option<f64>,
    /// [`Baseline::single_device`] over the makespan (Topcuoglu 2002, section 5.1). `None` if no single device can run
    /// everything, or if the makespan is 0.
    pub speedup: Option<f64>,
    /// Number of transfers: one for each datum and target device.
    pub sends: usize,
    /// Number of uses of a datum on another device than its producer's.
    pub cut_edges: usize,
    /// Bytes of all transfers.
    pub traffic: u64,
    /// Bytes of all cut edges (Laich 2017, equation 2.2).
    pub traffic_per_edge: u64,
    /// Mean utilisation of the devices.
    pub utilisation: f64,
    /// Metrics of each device, indexed by [`DeviceId`].
    pub devices: Vec<DeviceMetrics>,
}

/// Metrics of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceMetrics {
    /// The device.
    pub device: DeviceId,
    /// Number of tasks on the device.
    pub tasks: usize,
    /// Time that the device spends on tasks and sends.
    pub busy: f64,
    /// Busy time over the makespan; 0 if the makespan is 0.
    pub utilisation: f64,
    /// Most bytes that the device holds at a time, see [`memory_over_time`].
    pub peak_memory: u64,
    /// Mean number of executable tasks over the device's [`decisions`]; 0 if it makes none.
    pub executable: f64,
}

impl Metrics {
    /// Computes the metrics of `schedule`; `baseline` must belong to the same problem. Complexity as
    /// [`memory_over_time`].
    pub fn of(problem: &Problem<'_>, baseline: &Baseline, schedule: &Schedule) -> Self {
        let makespan = schedule.makespan;
        let devices = device_metrics(problem, schedule);
        let utilisations: f64 = devices.iter().map(|device| device.utilisation).sum();
        let (cut_edges, traffic_per_edge) = cut(problem, schedule);
        Metrics {
            makespan,
            bound: baseline.bound,
            gap: if makespan == baseline.bound.value {
                Some(0.0)
            } else {
                ratio(makespan - baseline.bound.value, baseline.bound.value)
            },
            slr: ratio(makespan, baseline.critical_path),
            speedup: baseline.single_device.and_then(|single| ratio(single, makespan)),
            sends: schedule.transfers.len(),
            cut_edges,
            traffic: schedule.traffic,
            traffic_per_edge,
            utilisation: ratio(utilisations, devices.len() as f64).unwrap_or(0.0),
            devices,
        }
    }

    /// Returns the number of devices that have at least one task.
    pub fn used_devices(&self) -> usize {
        self.devices.iter().filter(|device| device.tasks > 0).count()
    }

    /// Returns the greatest peak memory of a device, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.devices.iter().map(|device| device.peak_memory).max().unwrap_or(0)
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Returns the number of cut edges, and their bytes; saturates.
fn cut(problem: &Problem<'_>, schedule: &Schedule) -> (usize, u64) {
    let graph = problem.graph();
    let device = |task: TaskId| schedule.tasks[task.index()].device;
    let of_datum = |datum| {
        let from = device(graph.producer(datum));
        graph.consumers(datum).iter().filter(|&&consumer| device(consumer) != from).count()
    };
    graph.datum_ids().fold((0, 0), |(edges, bytes): (usize, u64), datum| {
        let cut = of_datum(datum);
        (edges + cut, bytes.saturating_add(graph.bytes(datum).saturating_mul(cut as u64)))
    })
}

fn device_metrics(problem: &Problem<'_>, schedule: &Schedule) -> Vec<DeviceMetrics> {
    let count = problem.platform().device_count();
    let busy = schedule.busy(count);
    let memory = memory_over_time(problem, schedule);
    let mut tasks = vec![0; count];
    schedule.tasks.iter().for_each(|span| tasks[span.device.index()] += 1);
    let mut executable = vec![0; count];
    decisions(problem, schedule).iter().for_each(|decision| executable[decision.device.index()] += decision.executable);
    let of_device = |device: DeviceId| {
        let place = device.index();
        DeviceMetrics {
            device,
            tasks: tasks[place],
            busy: busy[place],
            utilisation: ratio(busy[place], schedule.makespan).unwrap_or(0.0),
            peak_memory: memory[place].iter().map(|held| held.bytes).max().unwrap_or(0),
            executable: ratio(executable[place] as f64, tasks[place] as f64).unwrap_or(0.0),
        }
    };
    problem.platform().device_ids().map(of_device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Pct;
    use crate::sample;
    use crate::simulate::simulate;

    /// Task 0 sends one datum of 40 bytes to device 1, which runs its readers 1 and 2; task 3 stays on device 0.
    #[test]
    fn metrics_of_a_small_schedule() {
        let mut builder = sample::tasks(&[2.0, 4.0, 4.0, 6.0]);
        let datum = builder.datum(TaskId(0), 40);
        (1..4).for_each(|consumer| builder.consume(datum, TaskId(consumer)));
        let loaded = sample::problem(builder.build().unwrap(), &[1.0, 2.0]);
        let problem = loaded.problem().unwrap();
        let device_of = [0, 1, 1, 0].map(DeviceId);
        let schedule = simulate(&problem, &device_of, &Pct).unwrap();
        let metrics = Metrics::of(&problem, &Baseline::of(&problem), &schedule);
        // Device 0 works from 0 to 8; the datum arrives at 6, and device 1 works from 6 to 10. Alone, device 1 takes 8;
        // the longest path takes 1 + 3 there.
        assert_eq!((metrics.makespan, metrics.slr, metrics.speedup), (10.0, Some(2.5), Some(0.8)));
        assert_eq!(metrics.gap, Some(10.0 / metrics.bound.value - 1.0));
        assert_eq!((metrics.sends, metrics.cut_edges, metrics.traffic, metrics.traffic_per_edge), (1, 2, 40, 80));
        let devices: Vec<_> =
            metrics.devices.iter().map(|device| (device.tasks, device.busy, device.executable)).collect();
        assert_eq!(devices, [(2, 8.0, 1.0), (2, 4.0, 1.5)]);
        assert!((metrics.utilisation - 0.6).abs() < 1e-12);
        assert_eq!((metrics.used_devices(), metrics.peak_memory()), (2, 40));
    }

    #[test]
    fn an_empty_schedule_has_no_ratios() {
        let loaded = sample::problem(sample::graph(&[], &[]), &[1.0]);
        let problem = loaded.problem().unwrap();
        let schedule = simulate(&problem, &[], &Pct).unwrap();
        let metrics = Metrics::of(&problem, &Baseline::of(&problem), &schedule);
        assert_eq!((metrics.gap, metrics.slr, metrics.speedup), (Some(0.0), None, None));
        assert_eq!(metrics.devices[0].utilisation, 0.0);
    }
}
