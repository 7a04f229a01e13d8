//! Check of a placement: allowed devices, colocation and memory.

use super::Violation;
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::{MemoryRule, Problem};

/// Returns all faults of the placement with task `t` on `device_of[t]`. `O(V + E)`.
pub fn check_placement(problem: &Problem<'_>, device_of: &[DeviceId]) -> Vec<Violation> {
    let (graph, platform) = (problem.graph(), problem.platform());
    if device_of.len() != graph.task_count() {
        return vec![Violation::Length { tasks: graph.task_count(), given: device_of.len() }];
    }
    let unknown = |task: &TaskId| !platform.contains(device_of[task.index()]);
    let mut violations: Vec<Violation> = graph
        .task_ids()
        .filter(unknown)
        .map(|task| Violation::UnknownDevice { task, device: device_of[task.index()] })
        .collect();
    if violations.is_empty() {
        check_tasks(problem, device_of, &mut violations);
        check_colocation(problem, device_of, &mut violations);
        check_memory(problem, device_of, &mut violations);
    }
    violations
}

fn check_tasks(problem: &Problem<'_>, device_of: &[DeviceId], violations: &mut Vec<Violation>) {
    for (number, task) in problem.graph().tasks().iter().enumerate() {
        let (id, device) = (TaskId(number as u32), device_of[number]);
        let kind = problem.platform().device(device).kind;
        if !task.allowed.contains(kind) {
            violations.push(Violation::Kind { task: id, device, kind, allowed: task.allowed });
        }
        if let Some(pin) = task.pinned
            && pin != device
        {
            violations.push(Violation::Pin { task: id, device, pin });
        }
        if problem.costs().task_time(id, device).is_none() {
            violations.push(Violation::CannotRun { task: id, device });
        }
    }
}

fn check_colocation(problem: &Problem<'_>, device_of: &[DeviceId], violations: &mut Vec<Violation>) {
    let graph = problem.graph();
    for unit in graph.unit_ids() {
        let members = graph.members(unit);
        for pair in members.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            let (first_device, second_device) = (device_of[first.index()], device_of[second.index()]);
            if first_device != second_device {
                violations.push(Violation::Colocation { first, first_device, second, second_device });
            }
        }
    }
}

fn check_memory(problem: &Problem<'_>, device_of: &[DeviceId], violations: &mut Vec<Violation>) {
    let mut needed = vec![0u128; problem.platform().device_count()];
    for (number, device) in device_of.iter().enumerate() {
        needed[device.index()] += bytes_of(problem, TaskId(number as u32));
    }
    for (device, needed) in problem.platform().device_ids().zip(needed) {
        if let Some(available) = problem.platform().device(device).memory
            && needed > u128::from(available)
        {
            violations.push(Violation::Memory { device, needed, available });
        }
    }
}

fn bytes_of(problem: &Problem<'_>, task: TaskId) -> u128 {
    let graph = problem.graph();
    let data = |data: &[crate::graph::DatumId]| data.iter().map(|&datum| u128::from(graph.bytes(datum))).sum::<u128>();
    let resident = u128::from(graph.task(task).memory);
    match problem.memory_rule() {
        MemoryRule::Ignore => 0,
        MemoryRule::Resident => resident,
        MemoryRule::SizeEstimate => resident + data(graph.inputs(task)) + data(graph.outputs(task)),
    }
}
