//! The total order over all steps of a run.
//!
//! Tasks stand in the order of the simulated schedule. A transfer stands right behind the producer of its value, so
//! that links start as early as possible; a streamed transfer stands right before its reader. Members of a gang stand
//! together, and the other transfers of their values behind the last member. Transfers that go just in time stand
//! before their first reader. [`staged`](super::staged) decides the positions of staged constants.

use super::arrival::Ahead;
use super::stream::Gang;
use super::transfer::{Route, Transfer, TransferId};
use super::{PlanDevice, PlanError, Step};
use crate::HOST;
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::collections::BTreeSet;
use std::ops::Range;

/// Step of a task id; see [`ProgramTasks`](crate::tasks::ProgramTasks).
fn step_of(program: &Program, task: TaskId) -> Option<Step> {
    let (nodes, inputs) = (program.nodes.len(), program.inputs.len());
    let index = task.index();
    if index < nodes {
        Some(Step::Node(NodeId(task.0)))
    } else if index < nodes + inputs {
        Some(Step::Input(index - nodes))
    } else {
        Some(index - nodes - inputs).filter(|output| *output < program.outputs.len()).map(Step::Output)
    }
}

fn name_of(program: &Program, task: TaskId) -> String {
    match step_of(program, task) {
        Some(Step::Node(node)) => format!("node {:?}", program.node(node).name),
        Some(Step::Input(index)) => format!("input {:?}", program.value(program.inputs[index]).name),
        Some(Step::Output(index)) => format!("output {:?}", program.outputs[index].name),
        Some(Step::Transfer(_)) | None => format!("task {}", task.0),
    }
}

/// Returns the device of each task, if the program can run with this placement and order.
pub(super) fn verified(
    program: &Program,
    devices: &[PlanDevice],
    device_of: &[DeviceId],
    order: &[TaskId],
) -> Result<Vec<DeviceId>, PlanError> {
    let nodes = program.nodes.len();
    let tasks = nodes + program.inputs.len() + program.outputs.len();
    match devices.first() {
        Some(host) if host.kind == DeviceKind::Cpu => {}
        other => {
            let found = other.map_or("missing".to_owned(), |device| format!("{:?}", device.name));
            return unfit(format!(
                "the first device must be a CPU device, which holds inputs and outputs; it is {found}"
            ));
        }
    }
    if device_of.len() != tasks {
        let given = device_of.len();
        return unfit(format!("the placement has {given} entries for {tasks} tasks; place the program again"));
    }
    for (index, device) in device_of.iter().enumerate() {
        let task = || name_of(program, TaskId(index as u32));
        match devices.get(device.index()) {
            None => {
                let (task, at, count) = (task(), device.0, devices.len());
                return unfit(format!("{task} is placed on device {at}, but there are only {count} devices"));
            }
            Some(found) if index >= nodes && *device != HOST && found.kind == DeviceKind::Cpu => {
                let (task, host, device) = (task(), &devices[HOST.index()].name, &found.name);
                return unfit(format!("{task} must be on the host {host:?} or on a GPU, not on {device:?}"));
            }
            Some(_) => {}
        }
    }
    verify_order(program, order, tasks)?;
    Ok(device_of.to_vec())
}

fn unfit<T>(text: String) -> Result<T, PlanError> {
    Err(PlanError::Unfit(text))
}

fn verify_order(program: &Program, order: &[TaskId], tasks: usize) -> Result<(), PlanError> {
    let mut done = vec![false; tasks];
    for task in order {
        let wrong = |problem| disordered(program, *task, problem);
        if step_of(program, *task).is_none() {
            return wrong("does not exist");
        }
        if std::mem::replace(&mut done[task.index()], true) {
            return wrong("occurs twice");
        }
        let ready = needs(program, *task).iter().all(|task| done[task.index()]);
        if !ready {
            return wrong("comes before one of its inputs");
        }
    }
    match done.iter().position(|done| !done) {
        Some(missing) => disordered(program, TaskId(missing as u32), "is missing"),
        None => Ok(()),
    }
}

fn disordered(program: &Program, task: TaskId, problem: &str) -> Result<(), PlanError> {
    let task = name_of(program, task);
    unfit(format!("the program cannot run in this order: {task} {problem}"))
}

/// Position of each task in an order.
pub(super) fn places(order: &[TaskId]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    for (place, task) in order.iter().enumerate() {
        if let Some(known) = places.get_mut(task.index()) {
            *known = place;
        }
    }
    places
}

/// Reorders a part of an order so that the nodes of each group, all of them in the part, stand together in their listed
/// order.
///
/// All else stays as near to its position as possible: among ready items the first comes next, a group by its first
/// member. `places` gives each task's position in the order; the part holds the positions from `first` on. Returns
/// `None` if groups wait for each other, or for themselves. O(edges · log) of the part's edges.
pub(super) fn contracted(
    program: &Program,
    part: &[TaskId],
    first: usize,
    places: &[usize],
    groups: &[&[NodeId]],
) -> Option<Vec<TaskId>> {
    let count = part.len();
    let local = |task: TaskId| places[task.index()].checked_sub(first).filter(|at| *at < count);
    let mut unit: Vec<usize> = (0..count).collect();
    let mut members: Vec<Vec<TaskId>> = part.iter().map(|task| vec![*task]).collect();
    for (number, group) in groups.iter().enumerate() {
        members.push(group.iter().map(|member| TaskId(member.0)).collect());
        for member in *group {
            let at = local(TaskId(member.0))?;
            unit[at] = count + number;
            members[at].clear();
        }
    }
    let mut key = vec![usize::MAX; members.len()];
    for (place, unit) in unit.iter().enumerate() {
        key[*unit] = key[*unit].min(place);
    }
    let mut waits = vec![0usize; members.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
    for (place, task) in part.iter().enumerate() {
        for needed in needs(program, *task).into_iter().filter_map(local) {
            let (before, after) = (unit[needed], unit[place]);
            if before != after {
                waits[after] += 1;
                followers[before].push(after);
            }
        }
    }
    let units = (0..waits.len()).filter(|unit| !members[*unit].is_empty());
    let mut ready: BTreeSet<(usize, usize)> =
        units.filter(|unit| waits[*unit] == 0).map(|unit| (key[unit], unit)).collect();
    let mut contracted = Vec::with_capacity(count);
    while let Some((_, unit)) = ready.pop_first() {
        contracted.append(&mut members[unit]);
        for follower in &followers[unit] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                ready.insert((key[*follower], *follower));
            }
        }
    }
    (contracted.len() == count).then_some(contracted)
}

/// Tasks whose values a task reads.
fn needs(program: &Program, task: TaskId) -> Vec<TaskId> {
    let makes = |value: &ValueId| match program.value(*value).origin {
        Origin::Constant(_) => None,
        Origin::Node(node) => Some(TaskId(node.0)),
        Origin::Input => {
            let position = program.inputs.iter().position(|input| input == value)?;
            Some(TaskId((program.nodes.len() + position) as u32))
        }
    };
    match step_of(program, task) {
        Some(Step::Node(node)) => program.node(node).inputs.iter().filter_map(makes).collect(),
        Some(Step::Output(index)) => makes(&program.outputs[index].value).into_iter().collect(),
        Some(Step::Input(_) | Step::Transfer(_)) | None => Vec::new(),
    }
}

/// All steps in order.
pub(super) struct Total {
    pub(super) steps: Vec<Step>,
    /// Transfers, numbered by their positions.
    pub(super) transfers: Vec<Transfer>,
    /// Positions of each gang, and of each stream with its reader outside gangs.
    pub(super) gangs: Vec<Range<usize>>,
}

/// Puts tasks and transfers into one order. The members of each gang stand together in `order` already.
pub(super) fn total(
    program: &Program,
    order: &[TaskId],
    transfers: Vec<Transfer>,
    mut ahead: Ahead,
    gangs: &[Gang],
) -> Total {
    let mut waiting = Waiting::of(program, transfers);
    let mut total = Total { steps: Vec::new(), transfers: Vec::new(), gangs: Vec::new() };
    let mut gang_of: Vec<Option<&Gang>> = vec![None; program.nodes.len()];
    for gang in gangs {
        gang.members.iter().for_each(|member| gang_of[member.index()] = Some(gang));
    }
    let mut open = None;
    for step in order.iter().filter_map(|task| step_of(program, *task)) {
        if let Step::Node(node) = step {
            total.send(ahead.remove(&node).unwrap_or_default());
        }
        let begin = total.steps.len();
        let mut streams = 0;
        if let Step::Node(node) = step {
            streams = total.send(std::mem::take(&mut waiting.before[node.index()]));
        }
        total.steps.push(step);
        let gang = if let Step::Node(node) = step { gang_of[node.index()] } else { None };
        match (gang, step) {
            (Some(gang), Step::Node(node)) if gang.members.last() != Some(&node) => {
                open.get_or_insert(begin);
                continue;
            }
            (Some(gang), _) => {
                let begin = open.take().unwrap_or(begin);
                total.gangs.push(begin..total.steps.len());
                for member in &gang.members {
                    total.send(waiting.behind(program, Step::Node(*member)));
                }
            }
            (None, _) => {
                if streams > 0 {
                    total.gangs.push(begin..total.steps.len());
                }
                total.send(waiting.behind(program, step));
            }
        }
    }
    total
}

impl Total {
    /// Appends these transfers; returns their number.
    fn send(&mut self, transfers: Vec<Transfer>) -> usize {
        let count = transfers.len();
        for transfer in transfers {
            self.steps.push(Step::Transfer(TransferId(self.transfers.len() as u32)));
            self.transfers.push(transfer);
        }
        count
    }
}

/// Transfers without a position.
struct Waiting {
    /// Transfers behind the producer, by value.
    behind: Vec<Vec<Transfer>>,
    /// Transfers before the reader, by node.
    before: Vec<Vec<Transfer>>,
}

impl Waiting {
    fn of(program: &Program, transfers: Vec<Transfer>) -> Self {
        let (values, nodes) = (program.values.len(), program.nodes.len());
        let mut waiting = Self { behind: vec![Vec::new(); values], before: vec![Vec::new(); nodes] };
        for transfer in transfers {
            match &transfer.route {
                Route::Streamed(stream) => {
                    let node = stream.node.index();
                    waiting.before[node].push(transfer);
                }
                Route::Shared | Route::Copied => waiting.behind[transfer.value.index()].push(transfer),
            }
        }
        waiting
    }

    /// Transfers of a step's outputs.
    fn behind(&mut self, program: &Program, step: Step) -> Vec<Transfer> {
        let made: &[ValueId] = match step {
            Step::Input(index) => &program.inputs[index..=index],
            Step::Node(node) => &program.node(node).outputs,
            Step::Output(_) | Step::Transfer(_) => &[],
        };
        made.iter().flat_map(|value| std::mem::take(&mut self.behind[value.index()])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{contracted, places};
    use crate::test_programs::{Maker, add, relu};
    use anabranch_ir::program::NodeId;
    use anabranch_placement_core::graph::TaskId;

    #[test]
    fn groups_stand_together_unless_they_wait_for_what_waits_for_them() {
        let mut maker = Maker::new();
        let x = maker.input(&[4]);
        let a = maker.node(relu(), &[x], &[4]);
        let b = maker.node(relu(), &[a], &[4]);
        let other = maker.node(relu(), &[x], &[4]);
        let d = maker.node(add(), &[b, other], &[4]);
        let program = maker.finish(&[d]);
        // Four nodes, the input, the output.
        let order: Vec<TaskId> = [4, 0, 1, 2, 3, 5].map(TaskId).to_vec();
        let grouped = |groups: &[&[u32]]| {
            let groups: Vec<Vec<NodeId>> =
                groups.iter().map(|group| group.iter().copied().map(NodeId).collect()).collect();
            let groups: Vec<&[NodeId]> = groups.iter().map(Vec::as_slice).collect();
            contracted(&program, &order, 0, &places(&order), &groups)
                .map(|order| order.iter().map(|task| task.0).collect::<Vec<_>>())
        };
        assert_eq!(grouped(&[]), Some(vec![4, 0, 1, 2, 3, 5]));
        assert_eq!(grouped(&[&[0, 2]]), Some(vec![4, 0, 2, 1, 3, 5]));
        assert_eq!(grouped(&[&[1, 3]]), Some(vec![4, 0, 2, 1, 3, 5]));
        assert_eq!(grouped(&[&[0, 3]]), None, "node 1 is between them");
    }
}
