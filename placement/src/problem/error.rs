//! Why a problem has no solution, said about the unit that has none.

use super::Problem;
use crate::graph::{TaskGraph, TaskId, UnitId};
use crate::platform::{DeviceId, DeviceKind, DeviceKinds, Platform};

/// Why a problem was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum ProblemError {
    /// The cost model gave an impossible time for a task.
    #[error("task {task:?} takes {time} on device {device:?}; a time is finite and not negative")]
    Time { task: String, device: String, time: f64 },
    /// The cost model gave an impossible time for a transfer.
    #[error("moving {bytes} bytes from {from:?} to {to:?} takes {time}; a time is finite and not negative")]
    Transfer { from: String, to: String, bytes: u64, time: f64 },
    /// Times that are finite one by one, but not when they are added up.
    #[error("the times of all tasks and transfers together are more than a number can hold; use a larger unit of time")]
    Overflow,
    /// There is nothing to place on.
    #[error("task {task:?} cannot be placed: the platform has no device")]
    NoDevice { task: String },
    /// A pin to a device that is not there.
    #[error("task {task:?} is pinned to {device}, but the platform has only {count} devices")]
    UnknownPin { task: String, device: DeviceId, count: usize },
    /// A pin to a device of a kind that the task, or one colocated with it, does not allow.
    #[error(
        "task {task:?} is pinned to {device:?}, a {kind}, but it (or its colocation group) may run only on {allowed}"
    )]
    PinnedKind { task: String, device: String, kind: DeviceKind, allowed: DeviceKinds },
    /// No device of an allowed kind.
    #[error("task {task:?} (or its colocation group) may run only on {allowed}, and the platform has no such device")]
    NoDeviceOfKind { task: String, allowed: DeviceKinds },
    /// Devices of the right kind, but none of them can run the task or all members of its group.
    #[error(
        "no device of the allowed kinds ({allowed}) can run task {task:?} and all that is colocated with it; device {device:?} \
             cannot run it"
    )]
    CannotRun {
        /// A task that the named device cannot run.
        task: String,
        device: String,
        allowed: DeviceKinds,
    },
    /// The unit alone is larger than every device that could run it.
    #[error(
        "task {task:?} and what is colocated with it need {needed} bytes; the largest device that can run them is {device:?} with \
         {available} bytes"
    )]
    TooLarge { task: String, device: String, needed: u64, available: u64 },
}

impl ProblemError {
    pub(super) fn time(graph: &TaskGraph, platform: &Platform, task: TaskId, device: DeviceId, time: f64) -> Self {
        let (task, device) = (graph.task(task).name.clone(), platform.device(device).name.clone());
        ProblemError::Time { task, device, time }
    }

    pub(super) fn transfer(platform: &Platform, from: DeviceId, to: DeviceId, bytes: u64, time: f64) -> Self {
        let name = |device| platform.device(device).name.clone();
        ProblemError::Transfer { from: name(from), to: name(to), bytes, time }
    }

    /// Says what leaves `unit` without a feasible device: the first of the conditions that no device meets.
    pub(super) fn of_unit(problem: &Problem<'_>, unit: UnitId) -> Self {
        let (graph, platform) = (problem.graph, problem.platform);
        let name = |task: TaskId| graph.task(task).name.clone();
        let first = graph.members(unit)[0];
        let allowed = graph.unit_allowed(unit);
        if platform.device_count() == 0 {
            return ProblemError::NoDevice { task: name(first) };
        }
        if let Some(pin) = graph.unit_pinned(unit)
            && !(platform.contains(pin) && problem.admits(unit, pin))
        {
            let pinned = graph.members(unit).iter().find(|&&task| graph.task(task).pinned.is_some());
            return Self::of_pin(platform, name(*pinned.unwrap_or(&first)), pin, allowed);
        }
        let admitted = platform.device_ids().filter(|&device| problem.admits(unit, device));
        let runs = admitted.clone().filter(|&device| problem.can_run(unit, device));
        let memory = |device: DeviceId| platform.device(device).memory.unwrap_or(u64::MAX);
        match (admitted.clone().next(), runs.max_by_key(|&device| memory(device))) {
            (None, _) => ProblemError::NoDeviceOfKind { task: name(first), allowed },
            (Some(device), None) => {
                let lame = graph.members(unit).iter().find(|&&task| problem.time(task, device).is_infinite());
                let task = name(*lame.unwrap_or(&first));
                ProblemError::CannotRun { task, device: platform.device(device).name.clone(), allowed }
            }
            (_, Some(device)) => ProblemError::TooLarge {
                task: name(first),
                device: platform.device(device).name.clone(),
                needed: problem.demand(unit),
                available: memory(device),
            },
        }
    }

    fn of_pin(platform: &Platform, task: String, pin: DeviceId, allowed: DeviceKinds) -> Self {
        if !platform.contains(pin) {
            return ProblemError::UnknownPin { task, device: pin, count: platform.device_count() };
        }
        let device = platform.device(pin);
        ProblemError::PinnedKind { task, device: device.name.clone(), kind: device.kind, allowed }
    }
}
