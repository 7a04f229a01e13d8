//! Discrete-event execution of a placed graph: what the devices will do and when, under a given order.
//!
//! A device does one item at a time and is never interrupted. It is never idle while one of its items is ready. When several
//! things happen at the same time all of them are known before any device decides, and items that take no time are done before
//! those that do. A task is ready as soon as all its inputs are on its device; a transfer starts as soon as its datum is there
//! (and its send has been worked on, where sends cost something) and goes on beside computation.

mod engine;
mod links;
mod ready;
mod successors;

pub(crate) use engine::{Engine, Scene};

use crate::order::{Order, PlacedGraph, SendCosts};
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
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum SimulateError {
    /// Not one device for each task.
    #[error("the placement names {given} devices for {tasks} tasks; it needs one for each task")]
    Length { tasks: usize, given: usize },
    /// A device that is not there.
    #[error("task {task:?} is placed on {device}, but the platform has only {count} devices")]
    UnknownDevice { task: String, device: DeviceId, count: usize },
    /// A device that cannot run its task.
    #[error("task {task:?} is placed on device {device:?}, which cannot run it")]
    CannotRun { task: String, device: String },
    /// Send costs that are no costs.
    #[error("send costs are finite and not negative, here they are {0:?}")]
    SendCosts(SendCosts),
}

/// Executes `problem` with task `t` on `device_of[t]`. `O((V + E) log (V + E))`; under [`Msr`](crate::order::Msr) each decision also
/// looks at every set of devices that a ready item would wake.
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
    let placed = PlacedGraph::new(problem, device_of, options.send_costs);
    let rule = order.rule(&placed);
    let mut engine = Engine::default();
    engine.run(&Scene::new(&placed, &rule, options.contention));
    Ok(engine.schedule(&placed))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskId;
    use crate::order::Pct;
    use crate::sample;

    /// What takes no time is done at once, and what it sets free is known before a device starts something longer.
    #[test]
    fn instant_tasks_come_before_decisions() {
        // Tasks 0 and 1 take no time on device 0. Device 1 can start 2 after 0, or the more urgent 3 after 1.
        let graph = sample::graph(&[0.0, 0.0, 1.0, 9.0], &[(0, 2, 0), (1, 3, 0)]);
        let loaded = sample::problem(graph, &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let schedule = simulate(&problem, &[0, 0, 1, 1].map(DeviceId), &Pct, &SimulateOptions::default()).unwrap();
        assert_eq!(schedule.device_orders(2)[1], [TaskId(3), TaskId(2)]);
        assert_eq!((schedule.makespan, schedule.busy(2)), (10.0, vec![0.0, 10.0]));
    }

    /// The transfer of greater path computation time goes first where both are ready at the same time.
    #[test]
    fn serial_links_take_the_most_urgent_of_what_is_ready_together() {
        let graph = sample::graph(&[1.0, 1.0, 5.0], &[(0, 1, 10), (0, 2, 10)]);
        let loaded = sample::problem(graph, &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let options = SimulateOptions { contention: LinkContention::Serial, ..SimulateOptions::default() };
        let schedule = simulate(&problem, &[0, 1, 1].map(DeviceId), &Pct, &options).unwrap();
        let arrivals: Vec<f64> = schedule.transfers.iter().map(|transfer| transfer.end).collect();
        assert_eq!(arrivals, [3.0, 2.0]);
        assert_eq!(schedule.makespan, 8.0);
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let loaded = sample::timed(sample::graph(&[1.0], &[]), &[[Some(1.0), None]]);
        let problem = loaded.problem().unwrap();
        let run = |devices: &[u32], send_operations| {
            let send_costs = SendCosts { send_operations, receive_operations: 0.0 };
            let options = SimulateOptions { send_costs, ..SimulateOptions::default() };
            let device_of: Vec<DeviceId> = devices.iter().copied().map(DeviceId).collect();
            simulate(&problem, &device_of, &Pct, &options)
        };
        assert!(run(&[0], 0.0).is_ok());
        assert!(matches!(run(&[], 0.0), Err(SimulateError::Length { tasks: 1, given: 0 })));
        assert!(matches!(run(&[1], 0.0), Err(SimulateError::CannotRun { device, .. }) if device == "d1"));
        assert!(matches!(run(&[2], 0.0), Err(SimulateError::UnknownDevice { count: 2, .. })));
        for send_operations in [f64::NAN, -1.0, f64::INFINITY] {
            assert!(matches!(run(&[0], send_operations), Err(SimulateError::SendCosts(_))));
        }
    }
}
