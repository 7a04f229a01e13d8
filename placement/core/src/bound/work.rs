//! Bound from all work, divided among the devices as if units could be cut in pieces.
//!
//! Give each device `d` a weight `w(d) ≥ 0`, with a sum of 1. In a schedule of makespan `T` each device works for at
//! most `T`, so
//!
//! `T = Σ w(d) T ≥ Σ w(d) load(d) = Σ over units u of w(d(u)) time(u, d(u)) ≥ Σ over units u of min over d of w(d)
//! time(u, d)`,
//!
//! with the minimum over the devices that are feasible for `u`. Every choice of weights gives a bound. These bounds are
//! the dual of the division of units in pieces (the linear relaxation of makespan scheduling on unrelated machines,
//! Lenstra, Shmoys and Tardos 1990). So the best of them equals the value of that relaxation.
//!
//! If only some devices have weights, work that may run elsewhere counts nothing: this is the bound of a class of
//! devices by the work that only the class can do. If times are operations over speed, weights proportional to speed
//! are best. From these the weights ascend: a device with more than its share gets a greater weight. All arithmetic is
//! exactly rounded, so the weights are identical on every machine.

use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Most look-ups of times in all ascents together.
const BUDGET: usize = 100_000_000;
/// Number of steps of one ascent.
const STEPS: std::ops::RangeInclusive<usize> = 4..=300;
/// Most classes of devices, in addition to the class of all devices.
const CLASSES: usize = 16;

/// Vectors of device weights, each with its bound.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    vectors: Vec<(f64, Vec<f64>)>,
}

impl Weights {
    /// Finds good weights for all devices, and for each class of devices that some units are confined to.
    pub(crate) fn of(problem: &Problem<'_>) -> Self {
        let table = Table::of(problem);
        let mut classes = classes(problem);
        classes.truncate((BUDGET / table.times.len().max(1) / STEPS.start()).max(1));
        let cells = table.times.len().max(1) * classes.len();
        let steps = (BUDGET / cells).clamp(*STEPS.start(), *STEPS.end());
        let vectors = classes.iter().filter_map(|class| table.ascend(&table.by_speed(class)?, steps)).collect();
        Weights { vectors }
    }

    /// Returns the greatest bound of all vectors.
    pub(super) fn bound(&self) -> f64 {
        self.vectors.iter().map(|&(value, _)| value).fold(0.0, f64::max)
    }

    /// Returns the vectors.
    pub(crate) fn vectors(&self) -> impl Iterator<Item = &[f64]> {
        self.vectors.iter().map(|(_, weights)| weights.as_slice())
    }

    /// Returns the least weighted time of a task over its feasible devices.
    pub(crate) fn task_share(problem: &Problem<'_>, weights: &[f64], task: TaskId) -> f64 {
        let feasible = problem.feasible(problem.graph().unit(task));
        feasible.map(|device| weights[device.index()] * problem.time(task, device)).fold(f64::INFINITY, f64::min)
    }
}

/// Returns the set of all devices, and then the different sets of devices that units are confined to, in order of
/// appearance.
fn classes(problem: &Problem<'_>) -> Vec<Vec<DeviceId>> {
    let mut classes: Vec<Vec<DeviceId>> = vec![problem.platform().device_ids().collect()];
    let mut last: Option<UnitId> = None;
    for unit in problem.graph().unit_ids() {
        // Most units have the same feasible devices as the unit before.
        if last.is_some_and(|last| problem.feasible(last).eq(problem.feasible(unit))) {
            continue;
        }
        last = Some(unit);
        if classes.len() <= CLASSES && !classes.iter().any(|class| class.iter().copied().eq(problem.feasible(unit))) {
            classes.push(problem.feasible(unit).collect());
        }
    }
    classes
}

/// Times of units by device; infinite if the device is not feasible.
struct Table {
    devices: usize,
    times: Vec<f64>,
}

impl Table {
    fn of(problem: &Problem<'_>) -> Self {
        let (graph, platform) = (problem.graph(), problem.platform());
        let mut times = Vec::with_capacity(graph.unit_count() * platform.device_count());
        for unit in graph.unit_ids() {
            times.extend(platform.device_ids().map(|device| match problem.is_feasible(unit, device) {
                true => problem.unit_time(unit, device),
                false => f64::INFINITY,
            }));
        }
        Table { devices: platform.device_count(), times }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.times.chunks_exact(self.devices.max(1))
    }

    /// Returns weights on the devices of `class` in proportion to their speed; `None` if they have nothing to do. The
    /// speed is relative to the mean time of each unit, averaged over the units that can be on the device.
    fn by_speed(&self, class: &[DeviceId]) -> Option<Vec<f64>> {
        let mut sums = vec![(0.0, 0u32); self.devices];
        for row in self.rows() {
            let finite =
                || class.iter().map(|device| (device.index(), row[device.index()])).filter(|cell| cell.1.is_finite());
            let mean = finite().map(|(_, time)| time).sum::<f64>() / finite().count().max(1) as f64;
            for (device, time) in finite().filter(|_| mean > 0.0) {
                sums[device].0 += time / mean;
                sums[device].1 += 1;
            }
        }
        let weights = sums.iter().map(|&(sum, count)| if sum > 0.0 { f64::from(count) / sum } else { 0.0 }).collect();
        normalised(weights)
    }

    /// Moves the weights along the loads for some steps; returns the best bound with its weights.
    fn ascend(&self, start: &[f64], steps: usize) -> Option<(f64, Vec<f64>)> {
        let mut weights = start.to_vec();
        let mut loads = vec![0.0; self.devices];
        let mut best: Option<(f64, Vec<f64>)> = None;
        for step in 0..steps {
            let value = self.share_out(&weights, &mut loads);
            if best.as_ref().is_none_or(|best| value > best.0) {
                best = Some((value, weights.clone()));
            }
            let farthest = loads.iter().zip(&weights).filter(|&(_, &weight)| weight > 0.0);
            let farthest = farthest.map(|(load, _)| (load - value).abs()).fold(0.0, f64::max);
            if farthest <= 1e-9 * value {
                break;
            }
            let length = 0.5 / (1.0 + step as f64 / 4.0);
            for (weight, load) in weights.iter_mut().zip(&loads) {
                *weight *= 1.0 + length * (load - value) / farthest;
            }
            weights = normalised(weights)?;
        }
        best
    }

    /// Puts every unit on the device of least weighted time; returns the sum of these, and fills `loads`.
    fn share_out(&self, weights: &[f64], loads: &mut [f64]) -> f64 {
        loads.fill(0.0);
        let mut sum = 0.0;
        for row in self.rows() {
            let mut best = (f64::INFINITY, 0);
            for (device, (&time, &weight)) in row.iter().zip(weights).enumerate() {
                // A weight of 0 times an infinite time is NaN, which is not less than any number.
                if time * weight < best.0 {
                    best = (time * weight, device);
                }
            }
            if best.0.is_finite() {
                sum += best.0;
                loads[best.1] += row[best.1];
            }
        }
        sum
    }
}

/// Scales the weights to a sum of 1; `None` if all are 0 or one is not finite.
fn normalised(mut weights: Vec<f64>) -> Option<Vec<f64>> {
    let sum: f64 = weights.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return None;
    }
    // Rounding must not lift the sum of the weights above 1.
    weights.iter_mut().for_each(|weight| *weight /= sum * (1.0 + 1e-15));
    Some(weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind, DeviceKinds, Platform};
    use crate::problem::MemoryRule;

    fn bound_of(kinds: &[DeviceKinds], devices: &[DeviceKind], time: impl Fn(usize, usize) -> f64) -> f64 {
        let mut builder = GraphBuilder::new();
        for &kinds in kinds {
            builder.task(Task::new("t").with_allowed(kinds));
        }
        let graph = builder.build().unwrap();
        let devices = devices.iter().map(|&kind| Device::new("d", kind)).collect();
        let platform = Platform::uniform(devices, 0.0, 1.0).unwrap();
        let time = |task: TaskId, device: DeviceId| Some(time(task.index(), device.index()));
        let costs = CostTable::from_fn(&graph, &platform, time).unwrap();
        Weights::of(&Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap()).bound()
    }

    fn assert_near(found: f64, expected: f64) {
        assert!(found <= expected * (1.0 + 1e-12) && found >= expected * 0.98, "{found} for {expected}");
    }

    #[test]
    fn work_is_shared_by_speed() {
        let cpus = [DeviceKind::Cpu; 3];
        let speeds = [1.0, 2.0, 5.0];
        assert_near(
            bound_of(&[DeviceKinds::ALL; 10], &cpus, |task, device| (task + 1) as f64 / speeds[device]),
            55.0 / 8.0,
        );
    }

    #[test]
    fn work_of_a_class_stays_in_it() {
        let devices = [DeviceKind::Cpu, DeviceKind::Cpu, DeviceKind::Gpu];
        let kinds = [[DeviceKinds::CPU; 6].as_slice(), &[DeviceKinds::ALL; 2]].concat();
        assert_near(bound_of(&kinds, &devices, |_, _| 1.0), 3.0);
    }

    /// Half of the tasks are ten times as fast on the first device, the other half on the second.
    #[test]
    fn every_task_goes_where_it_is_good() {
        let time = |task: usize, device: usize| if task % 2 == device { 1.0 } else { 10.0 };
        assert_near(bound_of(&[DeviceKinds::ALL; 8], &[DeviceKind::Cpu; 2], time), 4.0);
    }

    /// One device is faster for all: the linear relaxation divides 6 tasks of 1 or 3 into 4.5 and 1.5.
    #[test]
    fn the_slower_device_takes_its_share() {
        let time = |_: usize, device: usize| [1.0, 3.0][device];
        assert_near(bound_of(&[DeviceKinds::ALL; 6], &[DeviceKind::Cpu; 2], time), 4.5);
    }

    #[test]
    fn nothing_to_do_takes_no_time() {
        assert_eq!(bound_of(&[], &[DeviceKind::Cpu], |_, _| 1.0), 0.0);
        assert_eq!(bound_of(&[], &[], |_, _| 1.0), 0.0);
        assert_eq!(bound_of(&[DeviceKinds::ALL; 3], &[DeviceKind::Cpu; 2], |_, _| 0.0), 0.0);
    }
}
