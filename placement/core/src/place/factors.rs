//! Factors that MITE and DFS multiply: traffic, execution time, memory, importance and speed (Laich 2017, section 4.7).
//!
//! The factors of a unit `a` on each feasible device `d` with enough free memory are:
//!
//! * **traffic** (4.7 to 4.11): time of the transfers that `a` on `d` adds to those of placed tasks, over the most that
//!   any device would add. It is 10⁻⁶ if `d` adds none but another device would, and 1 if no device would add any. A
//!   datum that another consumer on `d` receives anyway costs nothing; a datum for several consumers on one device
//!   costs once. Neighbours without a device cost nothing.
//! * **execution time** (4.12, 4.13): time of everything on `d` including `a`, over the greatest such time; 1 if that
//!   is 0.
//! * **memory** (4.14): share of `d`'s memory in use. If nothing is in use or memory has no limit, it is a tenth of the
//!   smallest share above 0 of any device (or of 1 if there is none).
//! * **importance and speed** (4.15, 4.16): 1 − importance × speed of `d` over speed of the fastest feasible device.
//!
//! The equations are generalised to costs with a time for each task and device. Operations are [work](Problem::work),
//! speed is the inverse of the unit's time, and a transfer includes its latency. For the thesis' model the results are
//! identical.
//!
//! On equal products (several factors can be 0) the smaller traffic wins, then execution time, then memory, then device
//! id. A unit with one feasible device needs no factors.

use super::assignment::Assignment;
use super::reason::Best;
use super::{MiteFactors, PlaceError, Placement, Reason};
use crate::device_sets::DeviceSets;
use crate::graph::{DatumId, TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::cmp::Ordering;

/// Traffic factor of a device that adds none, if another would add some.
const NO_TRAFFIC: f64 = 1e-6;

/// Load and receivers of everything that has been placed, from which the factors of the next unit are computed.
pub(crate) struct Factors<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    /// Time of everything that is on each device.
    load: Vec<f64>,
    /// Devices of the placed consumers of each datum.
    wanted_on: DeviceSets,
}

impl<'p> Factors<'p> {
    pub(crate) fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let devices = problem.platform().device_count();
        Ok(Factors {
            problem,
            assignment: Assignment::new(problem)?,
            load: vec![0.0; devices],
            wanted_on: DeviceSets::empty(problem.graph().datum_count(), devices),
        })
    }

    /// Puts the unit of `task` on the device with the smallest product of factors. All four factors count if its
    /// importance is given, otherwise only traffic and execution time. `O((devices + edges of the unit) × devices)` at
    /// most.
    pub(crate) fn place(&mut self, task: TaskId, importance: Option<f64>) -> Result<(), PlaceError> {
        let unit = self.problem.graph().unit(task);
        let (device, reason) = match self.assignment.forced(unit) {
            Some(forced) => forced,
            None => self.choose(unit, importance)?,
        };
        let graph = self.problem.graph();
        self.load[device.index()] += self.problem.unit_time(unit, device);
        for &member in graph.members(unit) {
            for &datum in graph.inputs(member) {
                self.wanted_on.insert(datum.index(), device);
            }
        }
        self.assignment.assign(unit, task, device, reason)
    }

    /// Whether the unit of `task` has a device.
    pub(crate) fn has_placed(&self, task: TaskId) -> bool {
        self.assignment.device_of_task(task).is_some()
    }

    /// Returns the placement. Every unit must have been placed.
    pub(crate) fn finish(self, strategy: &'static str) -> Placement {
        self.assignment.finish(strategy, None)
    }

    fn choose(&self, unit: UnitId, importance: Option<f64>) -> Result<(DeviceId, Reason), PlaceError> {
        let devices: Vec<DeviceId> = self.assignment.candidates(unit).collect();
        let times: Vec<f64> = devices.iter().map(|&device| self.problem.unit_time(unit, device)).collect();
        let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
        let traffic = self.traffic(unit, &devices);
        let most_traffic = traffic.iter().copied().fold(0.0, f64::max);
        let load = |place: usize| self.load[devices[place].index()] + times[place];
        let most_load = (0..devices.len()).map(load).fold(0.0, f64::max);
        let unused = self.smallest_share() / 10.0;
        let mut best = Best::new();
        for (place, &device) in devices.iter().enumerate() {
            let speed = if times[place] == 0.0 { 1.0 } else { fastest / times[place] };
            let factors = MiteFactors {
                device,
                memory: importance.map_or(1.0, |_| self.share(device).unwrap_or(unused)),
                importance_speed_boost: importance.map_or(1.0, |importance| 1.0 - importance * speed),
                traffic: normalised_traffic(traffic[place], most_traffic),
                execution_time: if most_load == 0.0 { 1.0 } else { load(place) / most_load },
            };
            best.offer(factors, |one, other| compare(one, other).is_lt());
        }
        match best.first() {
            Some(&MiteFactors { device, .. }) => Ok((device, Reason::Mite(best.into_list(|factors| factors)))),
            None => Err(self.assignment.free_memory().refusal(unit)),
        }
    }

    /// Returns the time of the transfers that `unit` adds on each of `devices` (equations 4.7 to 4.10).
    fn traffic(&self, unit: UnitId, devices: &[DeviceId]) -> Vec<f64> {
        let mut traffic = vec![0.0; devices.len()];
        for datum in self.inputs(unit) {
            self.add_receives(datum, devices, &mut traffic);
        }
        let graph = self.problem.graph();
        for &task in graph.members(unit) {
            for &datum in graph.outputs(task) {
                self.add_sends(datum, devices, &mut traffic);
            }
        }
        traffic
    }

    /// Returns the data that the members of `unit` consume, each once.
    fn inputs(&self, unit: UnitId) -> Vec<DatumId> {
        let graph = self.problem.graph();
        let members = graph.members(unit);
        let mut inputs: Vec<DatumId> = members.iter().flat_map(|&task| graph.inputs(task)).copied().collect();
        if members.len() > 1 {
            inputs.sort_unstable();
            inputs.dedup();
        }
        inputs
    }

    fn add_receives(&self, datum: DatumId, devices: &[DeviceId], traffic: &mut [f64]) {
        let graph = self.problem.graph();
        let Some(from) = self.assignment.device_of_task(graph.producer(datum)) else {
            return;
        };
        let bytes = graph.bytes(datum);
        for (sum, &to) in traffic.iter_mut().zip(devices) {
            if !self.wanted_on.contains(datum.index(), to) {
                *sum += self.problem.transfer_time(bytes, from, to);
            }
        }
    }

    fn add_sends(&self, datum: DatumId, devices: &[DeviceId], traffic: &mut [f64]) {
        let bytes = self.problem.graph().bytes(datum);
        for to in self.wanted_on.iter(datum.index()) {
            for (sum, &from) in traffic.iter_mut().zip(devices) {
                *sum += self.problem.transfer_time(bytes, from, to);
            }
        }
    }

    /// Share of a device's memory in use; `None` if nothing is in use or memory has no limit.
    fn share(&self, device: DeviceId) -> Option<f64> {
        let (used, memory) = self.assignment.free_memory().used(device)?;
        (used > 0).then(|| used as f64 / memory as f64)
    }

    /// Smallest share above 0 of any device; 1 if there is none.
    fn smallest_share(&self) -> f64 {
        self.problem.platform().device_ids().filter_map(|device| self.share(device)).fold(1.0, f64::min)
    }
}

fn normalised_traffic(traffic: f64, most: f64) -> f64 {
    match most {
        0.0 => 1.0,
        _ if traffic == 0.0 => NO_TRAFFIC,
        _ => traffic / most,
    }
}

fn compare(one: &MiteFactors, other: &MiteFactors) -> Ordering {
    one.product()
        .total_cmp(&other.product())
        .then(one.traffic.total_cmp(&other.traffic))
        .then(one.execution_time.total_cmp(&other.execution_time))
        .then(one.memory.total_cmp(&other.memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Task;
    use crate::place::{Mite, Placer};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// The edge a → b is the critical path, c is isolated; 10 bytes each, devices of speed 1 and 2 with 100 bytes.
    #[test]
    fn factors_are_those_of_the_equations() {
        let mut builder = sample::tasks(&[]);
        let [a, b, c] = [4.0, 2.0, 1.0].map(|work| builder.task(Task::new("t").with_operations(work).with_memory(10)));
        builder.edge(a, b, 20);
        let device = |speed| Device::new("d", DeviceKind::Cpu).with_speed(speed).with_memory(100);
        let loaded = sample::on(builder.build().unwrap(), [device(1.0), device(2.0)], MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        let placement = Mite.place(&problem).unwrap();
        assert_eq!(placement.device_of, [1, 1, 0].map(DeviceId));
        // Factors (memory, importance and speed, traffic, execution time) on the slow and on the fast device.
        let expected = [
            (a, [(0.1, 0.5, 1.0, 1.0), (0.1, 0.0, 1.0, 0.5)]),
            (b, [(0.01, 0.5, 1.0, 2.0 / 3.0), (0.1, 0.0, NO_TRAFFIC, 1.0)]),
            (c, [(0.02, 11.0 / 12.0, 1.0, 2.0 / 7.0), (0.2, 5.0 / 6.0, 1.0, 1.0)]),
        ];
        for (task, factors) in expected {
            let Reason::Mite(candidates) = &placement.reasons[task.index()] else { panic!("{task} has no factors") };
            for found in candidates {
                let (memory, boost, traffic, execution) = factors[found.device.index()];
                let pairs = [
                    (found.memory, memory),
                    (found.importance_speed_boost, boost),
                    (found.traffic, traffic),
                    (found.execution_time, execution),
                ];
                assert!(pairs.iter().all(|(found, expected)| (found - expected).abs() < 1e-12), "{task}: {found:?}");
            }
        }
    }

    /// A datum costs once on each device, both if a consumer is there already and if several of one group are placed
    /// together.
    #[test]
    fn a_datum_that_is_sent_anyway_adds_no_traffic() {
        let mut builder = sample::tasks(&[1.0; 5]);
        let datum = builder.datum(TaskId(0), 50);
        (1..5).for_each(|consumer| builder.consume(datum, TaskId(consumer)));
        builder.colocate(TaskId(3), TaskId(4));
        let loaded = sample::problem(builder.build().unwrap(), &[1.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let mut state = Factors::new(&problem).unwrap();
        let devices = [DeviceId(0), DeviceId(1)];
        let graph = problem.graph();
        let (producer, first, group) = (graph.unit(TaskId(0)), graph.unit(TaskId(1)), graph.unit(TaskId(3)));
        assert_eq!(state.traffic(group, &devices), [0.0, 0.0], "neighbours without a device cost nothing");
        state.assignment.assign(producer, TaskId(0), DeviceId(0), Reason::Given).unwrap();
        assert_eq!(state.traffic(group, &devices), [0.0, 5.0]);
        state.wanted_on.insert(datum.index(), DeviceId(1));
        assert_eq!(state.traffic(first, &devices), [0.0, 0.0]);
    }

    /// A producer that is placed after its consumers pays once for each of their devices.
    #[test]
    fn sends_to_placed_consumers_count_once_a_device() {
        let mut builder = sample::tasks(&[1.0; 4]);
        let datum = builder.datum(TaskId(0), 50);
        (1..4).for_each(|consumer| builder.consume(datum, TaskId(consumer)));
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 3]);
        let problem = loaded.problem().unwrap();
        let mut state = Factors::new(&problem).unwrap();
        [1, 2, 2].iter().for_each(|&device| state.wanted_on.insert(datum.index(), DeviceId(device)));
        let traffic = state.traffic(problem.graph().unit(TaskId(0)), &[0, 1, 2].map(DeviceId));
        assert_eq!(traffic, [10.0, 5.0, 5.0]);
    }
}
