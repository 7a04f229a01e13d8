//! Reasons why a problem is rejected, with the affected unit.

use super::Problem;
use crate::cost::CostError;
use crate::graph::{TaskGraph, TaskId, UnitId};
use crate::platform::{Device, DeviceId, DeviceKinds, Platform};
use crate::rules::Rules;

/// Reason why a problem is rejected. The text names task and device, the fault, and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ProblemError {
    text: String,
}

impl ProblemError {
    /// Times that are finite, but whose sum is not.
    pub(super) fn overflow() -> Self {
        Self::new("the sum of all task and transfer times exceeds the range of a number; use a larger unit of time")
    }

    /// The cost model gave an impossible time for a task.
    pub(super) fn time(graph: &TaskGraph, platform: &Platform, error: &CostError) -> Self {
        let (task, device) = (&graph.task(error.task).name, &platform.device(error.device).name);
        let time = error.time;
        Self::new(format!("task {task:?} takes {time} on device {device:?}; a time is finite and not negative"))
    }

    /// The cost model gave an impossible time for a transfer.
    pub(super) fn transfer(platform: &Platform, from: DeviceId, to: DeviceId, bytes: u64, time: f64) -> Self {
        let (from, to) = (&platform.device(from).name, &platform.device(to).name);
        Self::new(format!(
            "moving {bytes} bytes from {from:?} to {to:?} takes {time}; a time is finite and not negative"
        ))
    }

    /// Rules with impossible numbers.
    pub(super) fn rules(rules: &Rules) -> Self {
        let Rules { send_costs, delays, slowdowns, .. } = rules;
        Self::new(format!(
            "send costs {send_costs:?}, delays {delays:?} or slowdowns {slowdowns:?} are invalid; costs and \
             delays must be finite and not negative, slowdowns at least 1, with one delay and slowdown per pair \
             of devices"
        ))
    }

    /// Describes why `unit` has no feasible device: the first of the conditions that no device meets.
    pub(super) fn of_unit(problem: &Problem<'_>, unit: UnitId) -> Self {
        let (graph, platform) = (problem.graph, problem.platform);
        let (members, allowed) = (graph.members(unit), graph.unit_allowed(unit));
        let name = |task: Option<&TaskId>| &graph.task(*task.unwrap_or(&members[0])).name;
        let task = name(None);
        if platform.device_count() == 0 {
            return Self::new(format!("task {task:?} cannot be placed: the platform has no device"));
        }
        if let Some(pin) = graph.unit_pinned(unit)
            && !(platform.contains(pin) && problem.admits(unit, pin))
        {
            let pinned = members.iter().find(|&&task| graph.task(task).pinned.is_some());
            return Self::of_pin(platform, name(pinned), pin, allowed);
        }
        let admitted = platform.device_ids().filter(|&device| problem.admits(unit, device));
        let runs = admitted.clone().filter(|&device| problem.can_run(unit, device));
        let memory = |device: DeviceId| platform.device(device).memory.unwrap_or(u64::MAX);
        let text = match (admitted.clone().next(), runs.max_by_key(|&device| memory(device))) {
            (None, _) => format!(
                "task {task:?} (or its colocation group) may run only on {allowed}, but the platform has no such \
                 device"
            ),
            (Some(device), None) => {
                let lame = name(members.iter().find(|&&task| problem.time(task, device).is_infinite()));
                let device = &platform.device(device).name;
                format!(
                    "no device of the allowed kinds ({allowed}) can run task {lame:?} and all its colocated \
                     tasks; device {device:?} cannot run it"
                )
            }
            (_, Some(device)) => format!(
                "task {task:?} and its colocated tasks need {} bytes, but the largest device that can run them \
                 is {:?} with {} bytes",
                problem.demand(unit),
                platform.device(device).name,
                memory(device)
            ),
        };
        Self::new(text)
    }

    fn of_pin(platform: &Platform, task: &str, pin: DeviceId, allowed: DeviceKinds) -> Self {
        if !platform.contains(pin) {
            let count = platform.device_count();
            return Self::new(format!("task {task:?} is pinned to {pin}, but the platform has only {count} devices"));
        }
        let Device { name, kind, .. } = platform.device(pin);
        Self::new(format!(
            "task {task:?} is pinned to {name:?}, a {kind}, but it (or its colocation group) may run only on {allowed}"
        ))
    }

    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}
