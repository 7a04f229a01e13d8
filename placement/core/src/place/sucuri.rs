//! Sucuri's list scheduling: a task follows its heaviest incident node (Silva et al. 2016, "Task Scheduling in Sucuri Dataflow
//! Library", section III).
//!
//! A worker is a device and belongs to a machine. Tasks go in topological order. Those without incident nodes (predecessors)
//! take workers in turn, machine by machine; any other goes
//!
//! 1. to the worker of its incident node of the greatest weight,
//! 2. or else to another worker of that node's machine,
//! 3. where all incident nodes weigh the same, to their workers in turn,
//! 4. or else to another machine.
//!
//! A task's weight is its [work](Problem::work). A *pin* is the pin of the task, a *manual rank* is the machine that a task must
//! be on.
//!
//! Where the text leaves a choice: a worker is open to a task where it is feasible, has room and has no successor yet of the
//! incident node in question, so that one successor carries its line on and the others run beside it; rule 3 comes before rules 1
//! and 2 where there are several incident nodes; where every worker has such a successor, all of them take turns. Within rules 2 and
//! 4 workers take turns as well. Unless they are given, all CPU devices are one machine and every other device is one of its
//! own, because that is where memory is shared.
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
    /// The same strategy with device `d` in machine `machine_of[d]`; there must be one entry for each device.
    pub fn with_machines(self, machine_of: Vec<u32>) -> Self {
        Sucuri { machine_of: Some(machine_of), ..self }
    }

    /// The same strategy with each of these tasks, and what is colocated with it, on a worker of the given machine.
    pub fn with_manual_ranks(self, manual_ranks: Vec<(TaskId, u32)>) -> Self {
        Sucuri { manual_ranks, ..self }
    }

    /// The machine of every unit that must be on one.
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
    /// Also where machines are given for another number of devices, or a manual rank leads to no worker that can take the task.
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

/// One machine for all CPU devices, and one for each other device.
fn shared_memory(platform: &Platform) -> Vec<u32> {
    let machine = |device| if platform.device(device).kind == DeviceKind::Cpu { 0 } else { device.0 + 1 };
    platform.device_ids().map(machine).collect()
}

struct State<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    machine_of: Vec<u32>,
    /// All devices, machine by machine; turns go along it.
    round: Vec<DeviceId>,
    /// Place in `round` of the device that is next.
    turn: usize,
    /// For each task, the devices that its successors are on.
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
                    return Err(self.assignment.room().refusal(unit));
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

    /// One of `workers`, of which there is at least one.
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

    /// The incident nodes that have a device, with it: the heaviest of them, or all from the next in turn on where several weigh
    /// the same and none less.
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

    /// The first of `devices` in the round from the next in turn on, of which there must be one; moves the turn behind it.
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
        // Sources in turn; 2 follows 1, the heavier one; 3 finds that worker followed, and 4 the machine.
        let edges = [(0, 2, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)];
        assert_eq!(place(&two_machines, &[1.0, 5.0, 1.0, 1.0, 1.0], &edges), Ok(vec![0, 1, 1, 0, 2]));
        // With the same weights, the workers of both incident nodes take turns.
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
