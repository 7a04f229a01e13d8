//! Slowness of a device for a set of units, under any cost model.

use crate::graph::UnitId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Returns all devices, the fastest for `units` first, with ties by id. `O(members × devices)`.
///
/// A device's slowness is the time of all units that can run on it over their [work](Problem::work). If time is
/// operations over speed, this is the inverse of its speed, times a constant. With other costs it depends on the units
/// that the device would run. A device that is feasible for none of the units comes last.
pub(crate) fn fastest_first(problem: &Problem<'_>, units: &[UnitId]) -> Vec<DeviceId> {
    let graph = problem.graph();
    let mut sums: Vec<Option<Sum>> = vec![None; problem.platform().device_count()];
    for &unit in units {
        let work: f64 = graph.members(unit).iter().map(|&task| problem.work(task)).sum();
        for device in problem.feasible(unit) {
            let sum = sums[device.index()].get_or_insert_default();
            sum.time += problem.unit_time(unit, device);
            sum.work += work;
        }
    }
    let mut devices: Vec<DeviceId> = problem.platform().device_ids().collect();
    let slowness = |device: &DeviceId| sums[device.index()].map_or(f64::INFINITY, Sum::slowness);
    devices.sort_by(|one, other| slowness(one).total_cmp(&slowness(other)));
    devices
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    time: f64,
    work: f64,
}

impl Sum {
    /// Ratio of time to work; 1 if nothing takes any time, so that all devices are equal.
    fn slowness(self) -> f64 {
        if self.work == 0.0 { 1.0 } else { self.time / self.work }
    }
}
