//! Discrete-event execution of a placed graph: what the devices will do and when, under a given order.
//!
//! A device does one item at a time and is never interrupted. It is never idle while one of its items is ready. When several
//! things happen at the same time all of them are known before any device decides, and items that take no time are done before
//! those that do. A task is ready as soon as all its inputs are on its device; a transfer starts as soon as its datum is there
//! (and its send has been worked on, where sends cost something) and goes on beside computation.

mod engine;
mod links;
mod ready;

use crate::order::{Flow, Order, SendCosts};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;

/// How transfers over the same link meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkContention {
    /// They do not: each takes as long as it would alone.
    #[default]
    None,
    /// One at a time from one device to another, in the order in which they become ready, then by priority, then by datum.
    Serial,
}

/// What a simulation counts beside tasks and transfers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimulateOptions {
    /// What sends and receives cost; nothing by default.
    pub send_costs: SendCosts,
    /// How transfers meet; not at all by default.
    pub contention: LinkContention,
}

impl SimulateOptions {
    /// The semantics of the thesis' evaluation: 10 operations a send, no contention.
    pub const THESIS: SimulateOptions =
        SimulateOptions { send_costs: SendCosts::THESIS, contention: LinkContention::None };
}

/// Why a placement cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// Not one device for each task.
    #[error("the placement names {given} devices for {tasks} tasks; it needs one for each task")]
    Length {
        /// Tasks of the graph.
        tasks: usize,
        /// Entries of the placement.
        given: usize,
    },
    /// A device that is not there.
    #[error("task {task:?} is placed on {device}, but the platform has only {count} devices")]
    UnknownDevice {
        /// The task's name.
        task: String,
        /// Its device.
        device: DeviceId,
        /// Devices of the platform.
        count: usize,
    },
    /// A device that cannot run its task.
    #[error("task {task:?} is placed on device {device:?}, which cannot run it")]
    CannotRun {
        /// The task's name.
        task: String,
        /// The device's name.
        device: String,
    },
    /// Send costs that are no costs.
    #[error("send costs are finite and not negative, here they are {0:?}")]
    SendCosts(SendCosts),
}

/// Executes `problem` with task `t` on `device_of[t]`. `O((V + E) log (V + E))`, and what the order's scores take.
///
/// Only what running needs is verified here: that every task has a device that can run it. Whether the placement also keeps
/// kinds, pins, colocation and memory is for [`check_placement`](crate::check::check_placement) to say.
///
/// # Errors
/// A missing, unknown or unable device, or impossible send costs.
pub fn simulate(
    problem: &Problem<'_>,
    device_of: &[DeviceId],
    order: &dyn Order,
    options: &SimulateOptions,
) -> Result<Schedule, SimulateError> {
    validate(problem, device_of, options)?;
    let flow = Flow::new(problem, device_of, options.send_costs);
    let rule = order.rule(&flow);
    Ok(engine::Engine::new(&flow, &rule, options.contention).run())
}

fn validate(problem: &Problem<'_>, device_of: &[DeviceId], options: &SimulateOptions) -> Result<(), SimulateError> {
    let (graph, platform) = (problem.graph(), problem.platform());
    if device_of.len() != graph.task_count() {
        return Err(SimulateError::Length { tasks: graph.task_count(), given: device_of.len() });
    }
    for (task, &device) in graph.task_ids().zip(device_of) {
        let name = || graph.task(task).name.clone();
        if !platform.contains(device) {
            return Err(SimulateError::UnknownDevice { task: name(), device, count: platform.device_count() });
        }
        if problem.time(task, device).is_infinite() {
            return Err(SimulateError::CannotRun { task: name(), device: platform.device(device).name.clone() });
        }
    }
    if !options.send_costs.is_valid() {
        return Err(SimulateError::SendCosts(options.send_costs));
    }
    Ok(())
}
