//! Sucuri's list scheduling: a task follows its heaviest incident node (Silva et al. 2016, "Task Scheduling in Sucuri
//! Dataflow Library", section III).
//!
//! A worker is a device and belongs to a machine. Tasks go in topological order. Tasks without incident nodes
//! (predecessors) take workers in turn, machine by machine. Any other task goes
//!
//! 1. to the worker of its incident node with the greatest weight,
//! 2. or else to another worker of that node's machine,
//! 3. if all incident nodes have equal weights, to their workers in turn,
//! 4. or else to another machine.
//!
//! A task's weight is its [work](Problem::work). A *pin* is the pin of the task, a *manual rank* is the machine that a
//! task must run on.
//!
//! Choices that the text leaves open: a worker is open to a task if it is feasible, has enough free memory, and runs no
//! successor of the incident node yet. So one successor continues the incident node's line and the others run in
//! parallel. With several incident nodes, rule 3 comes before rules 1 and 2. If every worker runs such a successor, all
//! of them take turns. Within rules 2 and 4 workers take turns as well. By default all CPU devices form one machine,
//! because they share memory, and every other device is a machine of its own.
//!
//! By these rules a wavefront with one source never leaves the source's machine if that has two workers or more: a
//! worker of the machine is always open.
//!
//! Time: `O(V × devices + E)`.

use super::assignment::Assignment;
use super::{PlaceError, Placement, Placer, Reason};
use crate::device_sets::DeviceSets;
use crate::graph::TaskId;
use crate::platform::{DeviceId, DeviceKind, Platform};
use crate::problem::Problem;

/// The Sucuri strategy.
#[derive(Debug, Clone, Default)]
pub struct Sucuri {
    machine_of: Option<Vec<u32>>,
    manual_ranks: Vec<(TaskId, u32)>,
}

impl Sucuri {
    /// Sets the machine `machine_of[d]` of each device `d` (default: one for all CPU devices, one for each other
    /// device). There must be one entry for each device.
    pub fn with_machines(self, machine_of: Vec<u32>) -> Self {
        Sucuri { machine_of: Some(machine_of), ..self }
    }

    /// Binds each of these tasks, with its colocation group, to a machine (default: none).
    pub fn with_manual_ranks(self, manual_ranks: Vec<(TaskId, u32)>) -> Self {
        Sucuri { manual_ranks, ..self }
    }

    /// Returns the machine of every unit that is bound to one.
    fn machines_wanted(&self, problem: &Problem<'_>) -> Vec<Option<u32>> {
        let graph = problem.graph();
        let mut wanted = vec![None; graph.unit_count()];
        for &(task, machine) in self.manual_ranks.iter().filter(|(task, _)| task.index() < graph.task_count()) {
            wanted[graph.unit(task).index()] = Some(machine);
        }
        wanted
    }
}

impl Placer for Sucuri {
    fn name(&self) -> &'static str {
        "sucuri"
    }

    /// # Errors
    /// Also returns an error if machines are given for another number of devices, or if no worker of a manual rank can
    /// take the task.
    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let devices = problem.platform().device_count();
        let machine_of = self.machine_of.clone().unwrap_or_else(|| shared_memory(problem.platform()));
        if machine_of.len() != devices {
            return Err(PlaceError::Machines { given: machine_of.len(), devices });
        }
        let mut state = State::new(problem, machine_of)?;
        let wanted = self.machines_wanted(problem);
        for &task in problem.graph().topological() {
            let unit = problem.graph().unit(task);
            if state.assignment.device(unit).is_none() {
                state.place(task, wanted[unit.index()])?;
            }
        }
        Ok(state.assignment.finish(self.name(), None))
    }
}

/// Returns one machine for all CPU devices, and one for each other device.
fn shared_memory(platform: &Platform) -> Vec<u32> {
    let machine = |device| if platform.device(device).kind == DeviceKind::Cpu { 0 } else { device.0 + 1 };
    platform.device_ids().map(machine).collect()
}

struct State<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    machine_of: Vec<u32>,
    /// All devices, machine by machine: the order of turns.
    round: Vec<DeviceId>,
    /// Position in `round` of the next device in turn.
    turn: usize,
    /// Devices of the successors of each task.
    followed_on: DeviceSets,
}

impl<'p> State<'p> {
    fn new(problem: &'p Problem<'p>, machine_of: Vec<u32>) -> Result<Self, PlaceError> {
        let mut round: Vec<DeviceId> = problem.platform().device_ids().collect();
        round.sort_by_key(|device| machine_of[device.index()]);
        Ok(State {
            problem,
            assignment: Assignment::new(problem)?,
            followed_on: DeviceSets::empty(problem.graph().task_count(), machine_of.len()),
            machine_of,
            round,
            turn: 0,
        })
    }

    fn place(&mut self, task: TaskId, machine: Option<u32>) -> Result<(), PlaceError> {
        let graph = self.problem.graph();
        let unit = graph.unit(task);
        let on_machine = |device: DeviceId| machine.is_none_or(|machine| machine == self.machine_of[device.index()]);
        let refusal = |machine| PlaceError::Machine { task: graph.task(task).name.clone(), machine };
        let (device, reason) = match self.assignment.forced(unit) {
            Some((device, _)) if !on_machine(device) => return Err(refusal(self.machine_of[device.index()])),
            Some(forced) => forced,
            None => {
                let mut workers: Vec<DeviceId> = self.assignment.candidates(unit).collect();
                if workers.is_empty() {
                    return Err(self.assignment.free_memory().refusal(unit));
                }
                workers.retain(|&device| on_machine(device));
                if let (true, Some(machine)) = (workers.is_empty(), machine) {
                    return Err(refusal(machine));
                }
                self.choose(task, &workers)
            }
        };
        self.assignment.assign(unit, task, device, reason)?;
        for &member in graph.members(unit) {
            for before in graph.predecessors(member) {
                self.followed_on.insert(before.index(), device);
            }
        }
        Ok(())
    }

    /// Chooses one of `workers`, which is not empty.
    fn choose(&mut self, task: TaskId, workers: &[DeviceId]) -> (DeviceId, Reason) {
        let heaviest = self.heaviest(task);
        for &(incident, worker) in &heaviest {
            if workers.contains(&worker) && !self.followed_on.contains(incident.index(), worker) {
                let rule = match heaviest[..] {
                    [_] => "worker of the heaviest incident node",
                    _ => "worker of one of several incident nodes of the same weight",
                };
                return (worker, Reason::Rule(rule));
            }
        }
        let Some(&(incident, worker)) = heaviest.first() else {
            return (self.next_of(workers), Reason::Rule("next worker in turn"));
        };
        let open = workers.iter().copied().filter(|&worker| !self.followed_on.contains(incident.index(), worker));
        let open: Vec<DeviceId> = open.collect();
        let machine = self.machine_of[worker.index()];
        let near: Vec<DeviceId> =
            open.iter().copied().filter(|device| self.machine_of[device.index()] == machine).collect();
        match (near.is_empty(), open.is_empty()) {
            (false, _) => (self.next_of(&near), Reason::Rule("machine of the heaviest incident node")),
            (true, false) => (self.next_of(&open), Reason::Rule("another machine than the heaviest incident node's")),
            (true, true) => (self.next_of(workers), Reason::Rule("next worker in turn")),
        }
    }

    /// Returns the incident nodes that have a device, with the device: the heaviest one only. If all have equal
    /// weights, returns all of them, starting with the next in turn.
    fn heaviest(&mut self, task: TaskId) -> Vec<(TaskId, DeviceId)> {
        let incident = self.problem.graph().predecessors(task).iter();
        let mut placed: Vec<(TaskId, DeviceId)> = incident
            .filter_map(|&before| self.assignment.device_of_task(before).map(|device| (before, device)))
            .collect();
        let weight = |&(task, _): &(TaskId, DeviceId)| self.problem.work(task);
        let weights = || placed.iter().map(weight);
        let (least, most) = (weights().fold(f64::INFINITY, f64::min), weights().fold(0.0, f64::max));
        if least == most {
            let start = self.turn % placed.len().max(1);
            placed.rotate_left(start);
        } else if let Some(&first) = placed.iter().find(|&incident| weight(incident) == most) {
            placed = vec![first];
        }
        placed
    }

    /// Returns the first of `devices` in `round`, from the next in turn on, and moves the turn behind it. `devices`
    /// must not be empty.
    fn next_of(&mut self, devices: &[DeviceId]) -> DeviceId {
        let mut turns = (0..self.round.len()).map(|step| (self.turn + step) % self.round.len());
        let place = turns.find(|&place| devices.contains(&self.round[place])).expect("the round has all devices");
        self.turn = (place + 1) % self.round.len();
        self.round[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn place(strategy: &Sucuri, work: &[f64], edges: &[(u32, u32, u64)]) -> Result<Vec<u32>, PlaceError> {
        let loaded = sample::problem(sample::graph(work, edges), &[1.0; 4]);
        let problem = loaded.problem().unwrap();
        Ok(strategy.place(&problem)?.device_of.iter().map(|device| device.0).collect())
    }

    #[test]
    fn tasks_follow_their_heaviest_incident_node() {
        let two_machines = Sucuri::default().with_machines(vec![0, 0, 1, 1]);
        // Sources go in turn; 2 follows 1, the heavier one. For 3 that worker already has a successor, for 4 the whole
        // machine.
        let edges = [(0, 2, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)];
        assert_eq!(place(&two_machines, &[1.0, 5.0, 1.0, 1.0, 1.0], &edges), Ok(vec![0, 1, 1, 0, 2]));
        // With equal weights, the workers of both incident nodes take turns.
        let edges = [(0, 2, 1), (1, 2, 1), (0, 3, 1), (1, 3, 1)];
        assert_eq!(place(&two_machines, &[1.0; 4], &edges), Ok(vec![0, 1, 0, 1]));
    }

    #[test]
    fn manual_ranks_choose_the_machine_and_impossible_ones_are_refused() {
        let two_machines = Sucuri::default().with_machines(vec![0, 0, 1, 1]);
        let ranked = two_machines.clone().with_manual_ranks(vec![(TaskId(1), 1)]);
        assert_eq!(place(&ranked, &[1.0; 3], &[(0, 1, 1), (1, 2, 1)]), Ok(vec![0, 2, 2]));
        let lost = two_machines.with_manual_ranks(vec![(TaskId(0), 7)]);
        assert!(matches!(place(&lost, &[1.0], &[]), Err(PlaceError::Machine { machine: 7, .. })));
        let short = Sucuri::default().with_machines(vec![0]);
        assert!(matches!(place(&short, &[1.0], &[]), Err(PlaceError::Machines { given: 1, devices: 4 })));
    }
}
