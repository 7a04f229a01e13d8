//! Discrete-event simulation of a placed graph: it predicts the activity of the devices over time, under a given order.
//!
//! A device does one item at a time and is never interrupted. It is never idle while one of its items is ready, unless
//! the order must be kept ([`InOrder`](crate::order::InOrder)). All events of one instant are processed before any
//! device decides, and items without duration run before all others. A task is ready as soon as all its inputs are on
//! its device. A transfer starts as soon as its datum is ready, or, if sends cost something, when the work on its send
//! is done. It proceeds in parallel with computation.

mod engine;
mod links;
mod ready;
mod routes;
mod running;
mod successors;

pub(crate) use engine::{Engine, Scene};

use crate::order::{Order, PlacedGraph};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Schedule;
use anabranch_base::interruption;

/// Reason why a placement cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum SimulateError {
    /// The number of devices differs from the number of tasks.
    #[error("the placement names {given} devices for {tasks} tasks; name one device per task")]
    Length { tasks: usize, given: usize },
    /// A device that does not exist.
    #[error("task {task:?} is placed on {device}, but the platform has only {count} devices")]
    UnknownDevice { task: String, device: DeviceId, count: usize },
    /// A device that cannot run its task.
    #[error("task {task:?} is placed on device {device:?}, which cannot run it")]
    CannotRun { task: String, device: String },
    /// An order in which some task never becomes the next one on its device.
    #[error("task {task:?} never runs on device {device:?}; give an order in which every task follows its inputs")]
    Stuck { task: String, device: String },
    /// The caller wants no schedule any more.
    #[error("the simulation was interrupted")]
    Interrupted,
}

/// Simulates `problem` with task `t` on `device_of[t]`.
///
/// `O((V + E) log (V + E))`; under [`Msr`](crate::order::Msr) each decision also examines every set of devices that a
/// ready item would wake.
///
/// Only the conditions of execution are verified: every task has a device that can run it.
/// [`check_placement`](crate::check::check_placement) verifies kinds, pins, colocation and memory.
///
/// # Errors
/// A missing, unknown or unable device, or an order that cannot be followed to the end. An interruption
/// ([`interruption`]).
pub fn simulate(problem: &Problem<'_>, device_of: &[DeviceId], order: &dyn Order) -> Result<Schedule, SimulateError> {
    if interruption::is_due() {
        return Err(SimulateError::Interrupted);
    }
    validate(problem, device_of)?;
    let placed = PlacedGraph::new(problem, device_of);
    let rule = order.rule(&placed);
    let mut engine = Engine::default();
    engine.run(&Scene::new(&placed, &rule));
    match engine.stuck(&placed) {
        None => Ok(engine.schedule(&placed)),
        Some(task) => {
            let (task, device) = (problem.graph().task(task), problem.platform().device(placed.device_of(task)));
            Err(SimulateError::Stuck { task: task.name.clone(), device: device.name.clone() })
        }
    }
}

fn validate(problem: &Problem<'_>, device_of: &[DeviceId]) -> Result<(), SimulateError> {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_schedule;
    use crate::graph::TaskId;
    use crate::order::{InOrder, Pct};
    use crate::rules::{Delays, LinkContention, Rules, SendCosts, Slowdowns};
    use crate::sample;

    /// A task without duration ends at once, and its successors are ready before a device starts a longer task.
    #[test]
    fn instant_tasks_come_before_decisions() {
        // Tasks 0 and 1 take no time on device 0. Device 1 can start 2 after 0, or the more urgent 3 after 1.
        let graph = sample::graph(&[0.0, 0.0, 1.0, 9.0], &[(0, 2, 0), (1, 3, 0)]);
        let loaded = sample::problem(graph, &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let schedule = simulate(&problem, &[0, 0, 1, 1].map(DeviceId), &Pct).unwrap();
        assert_eq!(schedule.device_orders(2)[1], [TaskId(3), TaskId(2)]);
        assert_eq!((schedule.makespan, schedule.busy(2)), (10.0, vec![0.0, 10.0]));
    }

    /// If two transfers are ready at the same time, the one with the greater path computation time goes first.
    #[test]
    fn serial_links_take_the_most_urgent_of_what_is_ready_together() {
        let graph = sample::graph(&[1.0, 1.0, 5.0], &[(0, 1, 10), (0, 2, 10)]);
        let loaded = sample::problem(graph, &[1.0; 2]);
        let rules = Rules::default().with_contention(LinkContention::Serial);
        let problem = loaded.problem().unwrap().under(rules).unwrap();
        let schedule = simulate(&problem, &[0, 1, 1].map(DeviceId), &Pct).unwrap();
        let arrivals: Vec<f64> = schedule.transfers.iter().map(|transfer| transfer.end).collect();
        assert_eq!(arrivals, [3.0, 2.0]);
        assert_eq!(schedule.makespan, 8.0);
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let loaded = sample::timed(sample::graph(&[1.0], &[]), &[[Some(1.0), None]]);
        let problem = loaded.problem().unwrap();
        let run = |devices: &[u32]| {
            let device_of: Vec<DeviceId> = devices.iter().copied().map(DeviceId).collect();
            simulate(&problem, &device_of, &Pct)
        };
        assert!(run(&[0]).is_ok());
        assert!(matches!(run(&[]), Err(SimulateError::Length { tasks: 1, given: 0 })));
        assert!(matches!(run(&[1]), Err(SimulateError::CannotRun { device, .. }) if device == "d1"));
        assert!(matches!(run(&[2]), Err(SimulateError::UnknownDevice { count: 2, .. })));
        for send_operations in [f64::NAN, -1.0, f64::INFINITY] {
            let send_costs = SendCosts { send_operations, receive_operations: 0.0 };
            let refused = problem.clone().under(Rules::default().with_send_costs(send_costs)).err().unwrap();
            assert!(refused.to_string().contains("send costs"), "{refused}");
        }
        for slowdowns in [Slowdowns::from_fn(2, |_, _| 0.5), Slowdowns::from_fn(3, |_, _| 2.0)] {
            assert!(problem.clone().under(Rules::default().with_slowdowns(slowdowns)).is_err());
        }
        for delays in
            [Delays::from_fn(2, |_, _| f64::NAN), Delays::from_fn(2, |_, _| -1.0), Delays::from_fn(3, |_, _| 1.0)]
        {
            assert!(problem.clone().under(Rules::default().with_delays(delays)).is_err());
        }
    }

    /// A device that must keep an order waits for the next task in it, even if another task is ready.
    #[test]
    fn an_order_that_must_be_kept_is() {
        let graph = sample::graph(&[1.0, 4.0, 2.0, 3.0], &[(1, 2, 0)]);
        let loaded = sample::problem(graph, &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        let run = |order: [u32; 4]| simulate(&problem, &[0, 1, 0, 0].map(DeviceId), &InOrder::new(&order.map(TaskId)));
        let schedule = run([0, 1, 2, 3]).unwrap();
        assert_eq!((schedule.tasks[2].start, schedule.tasks[3].start, schedule.makespan), (4.0, 6.0, 9.0));
        assert_eq!(run([0, 3, 1, 2]).unwrap().makespan, 6.0);
        let graph = sample::graph(&[1.0, 1.0], &[(0, 1, 0)]);
        let loaded = sample::problem(graph, &[1.0; 2]);
        let stuck = simulate(&loaded.problem().unwrap(), &[DeviceId(0); 2], &InOrder::new(&[TaskId(1), TaskId(0)]));
        assert!(matches!(stuck, Err(SimulateError::Stuck { .. })));
    }

    /// Both tasks run at half speed until the shorter one ends at 2; then one second of the longer one is left.
    #[test]
    fn what_runs_beside_another_takes_longer_for_as_long() {
        let loaded = sample::problem(sample::graph(&[2.0, 1.0, 1.0], &[(1, 2, 10)]), &[1.0; 2]);
        let rules = Rules::default().with_slowdowns(Slowdowns::from_fn(2, |_, _| 2.0));
        let problem = loaded.problem().unwrap().under(rules).unwrap();
        let device_of = [0, 1, 1].map(DeviceId);
        let schedule = simulate(&problem, &device_of, &Pct).unwrap();
        let ends: Vec<f64> = schedule.tasks.iter().map(|span| span.end).collect();
        // Task 2 follows task 1 at once; it and the rest of task 0 slow each other down.
        assert_eq!((ends, schedule.makespan), (vec![4.0, 2.0, 4.0], 4.0));
        assert_eq!(check_schedule(&problem, &device_of, &schedule), []);
    }
}
