//! The total order over everything that a run does.
//!
//! Tasks stand in the order of the simulated schedule. A transfer stands right behind the producer of its value, so that
//! links start as early as they can; a streamed transfer stands right before its reader, which it feeds.

use super::transfer::{Route, Transfer, TransferId};
use super::{PlanDevice, PlanError, Step};
use crate::program::{NodeId, Origin, Program, ValueId};
use crate::tasks::HOST;
use anabranch_placement::graph::TaskId;
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// What a task id stands for; see [`ProgramTasks`](crate::tasks::ProgramTasks).
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

/// The device of each node, if placement and order are such that the program can run.
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
        other => return Err(PlanError::Host(other.map_or("missing".into(), |device| format!("{:?}", device.name)))),
    }
    if device_of.len() != tasks {
        return Err(PlanError::Length { tasks, given: device_of.len() });
    }
    for (index, device) in device_of.iter().enumerate() {
        let task = || name_of(program, TaskId(index as u32));
        match devices.get(device.index()) {
            None => return Err(PlanError::UnknownDevice { task: task(), device: device.0, count: devices.len() }),
            Some(found) if index >= nodes && *device != HOST => {
                let (host, device) = (devices[HOST.index()].name.clone(), found.name.clone());
                return Err(PlanError::NotOnHost { task: task(), host, device });
            }
            Some(_) => {}
        }
    }
    verify_order(program, order, tasks)?;
    Ok(device_of[..nodes].to_vec())
}

fn verify_order(program: &Program, order: &[TaskId], tasks: usize) -> Result<(), PlanError> {
    let mut done = vec![false; tasks];
    for task in order {
        let wrong = |problem| Err(PlanError::Order { task: name_of(program, *task), problem });
        let Some(step) = step_of(program, *task) else { return wrong("does not exist") };
        if std::mem::replace(&mut done[task.index()], true) {
            return wrong("stands there twice");
        }
        let made = |value: &ValueId| match program.value(*value).origin {
            Origin::Constant(_) => true,
            Origin::Node(node) => done[node.index()],
            Origin::Input => {
                let position = program.inputs.iter().position(|input| input == value);
                position.is_some_and(|position| done[program.nodes.len() + position])
            }
        };
        let ready = match step {
            Step::Node(node) => program.node(node).inputs.iter().all(made),
            Step::Output(index) => made(&program.outputs[index].value),
            Step::Input(_) | Step::Transfer(_) => true,
        };
        if !ready {
            return wrong("comes before something that it reads");
        }
    }
    match done.iter().position(|done| !done) {
        Some(missing) => {
            Err(PlanError::Order { task: name_of(program, TaskId(missing as u32)), problem: "is missing" })
        }
        None => Ok(()),
    }
}

/// Puts tasks and transfers into one order, and numbers the transfers by it.
pub(super) fn total(program: &Program, order: &[TaskId], transfers: Vec<Transfer>) -> (Vec<Step>, Vec<Transfer>) {
    let mut behind: Vec<Vec<Transfer>> = vec![Vec::new(); program.values.len()];
    let mut before: Vec<Option<Transfer>> = vec![None; program.nodes.len()];
    for transfer in transfers {
        match &transfer.route {
            Route::Streamed(stream) => {
                let node = stream.node.index();
                before[node] = Some(transfer);
            }
            Route::Shared | Route::Copied => behind[transfer.value.index()].push(transfer),
        }
    }
    let mut steps = Vec::new();
    let mut ordered: Vec<Transfer> = Vec::new();
    let send = |steps: &mut Vec<Step>, ordered: &mut Vec<Transfer>, transfer| {
        steps.push(Step::Transfer(TransferId(ordered.len() as u32)));
        ordered.push(transfer);
    };
    for step in order.iter().filter_map(|task| step_of(program, *task)) {
        if let Step::Node(node) = step
            && let Some(stream) = before[node.index()].take()
        {
            send(&mut steps, &mut ordered, stream);
        }
        steps.push(step);
        let made: &[ValueId] = match step {
            Step::Input(index) => &program.inputs[index..=index],
            Step::Node(node) => &program.node(node).outputs,
            Step::Output(_) | Step::Transfer(_) => &[],
        };
        for value in made {
            for transfer in std::mem::take(&mut behind[value.index()]) {
                send(&mut steps, &mut ordered, transfer);
            }
        }
    }
    (steps, ordered)
}
