//! Costs of running a task and moving a datum: one trait, and two models that work without measurements of a runtime.
//!
//! Times are `f64` in any one unit. The runtime uses seconds, the thesis uses its execution units.

use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceId, Platform};

/// Time of every task on every device and of every transfer over every link.
///
/// An implementation promises that times are finite and not negative, and that equal questions have equal answers. A
/// transfer from a device to itself takes no time. [`Problem`](crate::problem::Problem) verifies the tasks' times and
/// samples the transfers' times.
pub trait CostModel: Sync {
    /// Time of `task` on `device`; `None` if it cannot run there.
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64>;

    /// Time from the start of a transfer of `bytes` until all of them can be used.
    fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64;

    /// Time of `task` on `device`, or the time that it would take if it were allowed there; `None` if unknown (default:
    /// [`task_time`](Self::task_time)).
    ///
    /// It serves only quantities over all devices, such as [`Problem::work`](crate::problem::Problem::work).
    fn nominal_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        self.task_time(task, device)
    }
}

/// Model of Laich 2017, section 2.2: operations over speed, size over rate. Every device can run every task.
#[derive(Debug, Clone, Copy)]
pub struct OperationsOverSpeed<'a> {
    graph: &'a TaskGraph,
    platform: &'a Platform,
}

impl<'a> OperationsOverSpeed<'a> {
    /// Creates the costs of `graph` on `platform`.
    pub fn new(graph: &'a TaskGraph, platform: &'a Platform) -> Self {
        OperationsOverSpeed { graph, platform }
    }
}

impl CostModel for OperationsOverSpeed<'_> {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        Some(self.graph.task(task).operations / self.platform.device(device).speed)
    }

    fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        self.platform.transfer_time(bytes, from, to)
    }
}

/// Error for a time that a table cannot hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "{task} has the time {time} on {device}; a time is finite and not negative (leave it out if the task cannot \
     run there)"
)]
pub struct CostError {
    /// The task.
    pub task: TaskId,
    /// The device.
    pub device: DeviceId,
    /// The time that was given.
    pub time: f64,
}

/// Time of a transfer as a function of its size. It is a non-decreasing line through measured points, and affine beyond
/// them.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferCurve {
    /// Points (bytes, time), ascending in bytes; times never decrease.
    points: Vec<(u64, f64)>,
    latency: f64,
    rate: f64,
}

impl TransferCurve {
    /// Creates the affine curve `latency + bytes / rate`.
    pub fn affine(latency: f64, rate: f64) -> Self {
        TransferCurve { points: Vec::new(), latency, rate }
    }

    /// Creates the line through `points` (bytes, time); beyond the points it is parallel to `latency + bytes / rate`.
    ///
    /// If larger transfers were faster than smaller ones, all of them get their median time. This is isotonic
    /// regression for least absolute deviations by pooling of neighbours; a single outlier does not move it. `O(p² log
    /// p)`.
    pub fn through(points: impl IntoIterator<Item = (u64, f64)>, latency: f64, rate: f64) -> Self {
        let mut points: Vec<(u64, f64)> = points.into_iter().collect();
        points.sort_by_key(|&(bytes, _)| bytes);
        points.dedup_by_key(|&mut (bytes, _)| bytes);
        // Blocks of sorted times, with ascending medians.
        let mut blocks: Vec<Vec<f64>> = Vec::with_capacity(points.len());
        for &(_, time) in &points {
            let mut block = vec![time];
            while let Some(before) = blocks.pop_if(|before| middle(before) > middle(&block)) {
                block.extend(before);
                block.sort_by(f64::total_cmp);
            }
            blocks.push(block);
        }
        let pooled = blocks.iter().flat_map(|block| std::iter::repeat_n(middle(block), block.len()));
        points.iter_mut().zip(pooled).for_each(|(point, time)| point.1 = time);
        TransferCurve { points, latency, rate }
    }

    /// Adds `time` to each transfer; it must be finite and not negative.
    pub fn delayed(mut self, time: f64) -> Self {
        self.points.iter_mut().for_each(|point| point.1 += time);
        TransferCurve { latency: self.latency + time, ..self }
    }

    /// Adds the time of another curve to each transfer. Beyond all points the sum is parallel to this curve's affine
    /// part. `O(p log p)` for the points of both.
    pub fn plus(&self, other: &TransferCurve) -> Self {
        let mut points: Vec<(u64, f64)> = self.points.iter().chain(&other.points).copied().collect();
        points.iter_mut().for_each(|(bytes, time)| *time = self.time(*bytes) + other.time(*bytes));
        TransferCurve::through(points, self.latency, self.rate)
    }

    /// Returns the time of a transfer of `bytes`. `O(log p)`.
    pub fn time(&self, bytes: u64) -> f64 {
        let slope = |from: u64, to: u64| (to - from) as f64 / self.rate;
        let after = self.points.partition_point(|&(size, _)| size < bytes);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, None) => self.latency + bytes as f64 / self.rate,
            (None, Some(&(size, time))) => (time - slope(bytes, size)).max(self.latency.min(time)),
            (Some((size, time)), None) => time + slope(size, bytes),
            (Some((below, least)), Some(&(above, most))) => {
                least + (most - least) * ((bytes - below) as f64 / (above - below) as f64)
            }
        }
    }
}

/// Median of sorted times, which must not be empty.
fn middle(sorted: &[f64]) -> f64 {
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// Table with a time for each task and device; tasks have no time on devices that cannot run them.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeTable {
    devices: usize,
    /// Times by task, then device; infinite if the task cannot run there.
    times: Vec<f64>,
}

impl TimeTable {
    /// Calls `time` for every task and device, task by task. `O(tasks × devices)` time and memory.
    ///
    /// # Errors
    /// Returns the first time that is negative, infinite or not a number.
    pub fn from_fn(
        tasks: usize,
        devices: usize,
        mut time: impl FnMut(TaskId, DeviceId) -> Option<f64>,
    ) -> Result<Self, CostError> {
        let mut times = Vec::with_capacity(tasks.saturating_mul(devices));
        for task in (0..tasks as u32).map(TaskId) {
            for device in (0..devices as u32).map(DeviceId) {
                times.push(match time(task, device) {
                    Some(time) if time >= 0.0 && time.is_finite() => time,
                    Some(time) => return Err(CostError { task, device, time }),
                    None => f64::INFINITY,
                });
            }
        }
        Ok(TimeTable { devices, times })
    }

    /// Returns the times of `task` by device; infinite if it cannot run there.
    pub(crate) fn row(&self, task: TaskId) -> &[f64] {
        &self.times[task.index() * self.devices..][..self.devices]
    }

    /// Returns the time of `task` on `device`; `None` if it cannot run there, or if the table does not have the pair.
    pub fn time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        let known = device.index() < self.devices;
        let time = known.then(|| self.times.get(task.index() * self.devices + device.index())).flatten();
        time.copied().filter(|time| time.is_finite())
    }
}

/// Costs from a table of times for each task and device, and from the links of a platform.
#[derive(Debug, Clone)]
pub struct CostTable<'a> {
    platform: &'a Platform,
    times: TimeTable,
    /// Curves by sender and receiver; empty if the platform's latencies and rates apply.
    links: Vec<TransferCurve>,
}

impl<'a> CostTable<'a> {
    /// Calls `time` for every task and device, task by task. `O(tasks × devices)` time and memory.
    ///
    /// # Errors
    /// Returns the first time that is negative, infinite or not a number.
    pub fn from_fn(
        graph: &TaskGraph,
        platform: &'a Platform,
        time: impl FnMut(TaskId, DeviceId) -> Option<f64>,
    ) -> Result<Self, CostError> {
        let times = TimeTable::from_fn(graph.task_count(), platform.device_count(), time)?;
        Ok(CostTable { platform, times, links: Vec::new() })
    }

    /// Sets a curve for each pair of devices (default: the platform's latencies and rates). The times of the curves
    /// must be finite and not negative.
    pub fn with_links(mut self, mut curve: impl FnMut(DeviceId, DeviceId) -> TransferCurve) -> Self {
        let pairs = self.platform.device_ids().flat_map(|from| self.platform.device_ids().map(move |to| (from, to)));
        self.links = pairs.map(|(from, to)| curve(from, to)).collect();
        self
    }
}

impl CostModel for CostTable<'_> {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        self.times.time(task, device)
    }

    fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        match self.links.get(from.index() * self.platform.device_count() + to.index()) {
            Some(_) if from == to => 0.0,
            Some(curve) => curve.time(bytes),
            None => self.platform.transfer_time(bytes, from, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};

    fn pair() -> (TaskGraph, Platform) {
        let mut builder = GraphBuilder::new();
        builder.task(Task::new("a").with_operations(30.0));
        builder.task(Task::new("b").with_operations(60.0));
        let devices = vec![
            Device::new("slow", DeviceKind::Cpu).with_speed(10.0),
            Device::new("fast", DeviceKind::Gpu).with_speed(40.0),
        ];
        (builder.build().unwrap(), Platform::uniform(devices, 0.5, 25.0).unwrap())
    }

    #[test]
    fn operations_over_speed_divides() {
        let (graph, platform) = pair();
        let costs = OperationsOverSpeed::new(&graph, &platform);
        assert_eq!(costs.task_time(TaskId(1), DeviceId(1)), Some(1.5));
        assert_eq!(costs.transfer_time(50, DeviceId(0), DeviceId(1)), 2.5);
    }

    #[test]
    fn a_table_answers_what_it_was_told() {
        let (graph, platform) = pair();
        let costs = CostTable::from_fn(&graph, &platform, |task, device| (task.0 != device.0).then_some(7.0)).unwrap();
        assert_eq!(costs.task_time(TaskId(0), DeviceId(0)), None);
        assert_eq!(costs.task_time(TaskId(0), DeviceId(1)), Some(7.0));
        assert_eq!(costs.task_time(TaskId(9), DeviceId(1)), None);
        assert_eq!(costs.task_time(TaskId(0), DeviceId(9)), None);
    }

    #[test]
    fn a_curve_goes_through_its_points_and_never_falls() {
        let curve = TransferCurve::through([(1000, 4.0), (100, 2.0), (10_000, 3.0)], 1.0, 1000.0);
        assert_eq!([100, 1000, 10_000].map(|bytes| curve.time(bytes)), [2.0, 3.5, 3.5]);
        assert_eq!(curve.time(550), 2.75);
        assert_eq!((curve.time(11_000), curve.time(0)), (4.5, 1.9));
        assert_eq!(TransferCurve::affine(1.0, 10.0).time(20), 3.0);
        let delayed = curve.clone().delayed(0.5);
        assert_eq!([100, 550, 11_000].map(|bytes| delayed.time(bytes)), [2.5, 3.25, 5.0]);
        let more = TransferCurve::through([(0, 0.0), (550, 1.0)], 0.0, f64::INFINITY);
        assert_eq!([0, 550, 11_000].map(|bytes| curve.plus(&more).time(bytes)), [1.9, 3.75, 5.5]);
        let between = curve.time(275) + more.time(275);
        assert!((curve.plus(&more).time(275) - between).abs() < 1e-12, "{between}");
        let wild = TransferCurve::through([(1, 1.0), (2, 90.0), (3, 1.5), (4, 2.0), (5, 3.0)], 0.0, 1.0);
        assert_eq!([1, 2, 3, 4, 5].map(|bytes| wild.time(bytes)), [1.0, 2.0, 2.0, 2.0, 3.0]);
        let (graph, platform) = pair();
        let costs = CostTable::from_fn(&graph, &platform, |_, _| Some(1.0)).unwrap().with_links(|_, _| curve.clone());
        assert_eq!(costs.transfer_time(100, DeviceId(0), DeviceId(1)), 2.0);
        assert_eq!(costs.transfer_time(100, DeviceId(1), DeviceId(1)), 0.0);
    }

    #[test]
    fn impossible_times_are_refused() {
        let (graph, platform) = pair();
        for time in [f64::NAN, f64::INFINITY, -1.0] {
            let error = CostTable::from_fn(&graph, &platform, |task, _| Some(if task.0 == 1 { time } else { 0.0 }));
            assert!(matches!(error, Err(CostError { task: TaskId(1), device: DeviceId(0), .. })));
        }
    }
}
