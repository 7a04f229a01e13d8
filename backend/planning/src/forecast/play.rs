//! Simulates a plan's operations on their lanes.
//!
//! Lanes are the simulator's devices, and a delay between operations on different lanes is a transfer. Each lane does
//! its operations in the order in which they are listed.

use crate::PlanningError;
use anabranch_placement_core::cost::CostModel;
use anabranch_placement_core::graph::{GraphBuilder, Task, TaskId};
use anabranch_placement_core::order::InOrder;
use anabranch_placement_core::platform::{Device, DeviceId, DeviceKind, Platform};
use anabranch_placement_core::problem::{MemoryRule, Problem};
use anabranch_placement_core::rules::{Rules, Slowdowns};
use anabranch_placement_core::simulate::{SimulateError, simulate};

/// An operation of a lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operation {
    /// Index of the lane.
    pub(super) lane: usize,
    /// Seconds that the operation takes alone.
    pub(super) seconds: f64,
    /// Preceding operations, all listed before this one, and the seconds from the end of each until this operation can
    /// start. Within a lane there is no delay.
    pub(super) after: Vec<(usize, f64)>,
}

/// Times of operations and their delays: a datum's size is its delay, as bits.
struct Delays<'a>(&'a [Operation]);

impl CostModel for Delays<'_> {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        let operation = self.0.get(task.index())?;
        (operation.lane == device.index()).then_some(operation.seconds)
    }

    fn transfer_time(&self, bytes: u64, _from: DeviceId, _to: DeviceId) -> f64 {
        f64::from_bits(bytes)
    }
}

/// Returns start and end of each operation on `lanes` lanes that slow each other down. Takes as long as [`simulate`]
/// for as many tasks.
///
/// # Errors
/// If a time is invalid, which is a bug of Anabranch.
pub(super) fn play(
    operations: &[Operation],
    lanes: usize,
    slowdowns: Slowdowns,
) -> Result<Vec<(f64, f64)>, PlanningError> {
    let mut builder = GraphBuilder::new();
    let tasks: Vec<TaskId> = operations.iter().map(|_| builder.task(Task::new(""))).collect();
    for (operation, task) in operations.iter().zip(&tasks) {
        for (before, delay) in &operation.after {
            let datum = builder.datum(tasks[*before], delay.max(0.0).to_bits());
            builder.consume(datum, *task);
        }
    }
    let graph = builder.build().map_err(PlanningError::invalid)?;
    let lane = |number| Device::new(format!("lane {number}"), DeviceKind::Cpu);
    let platform = Platform::uniform((0..lanes).map(lane).collect(), 0.0, 1.0).map_err(PlanningError::invalid)?;
    let delays = Delays(operations);
    let problem = Problem::new(&graph, &platform, &delays, MemoryRule::Ignore).map_err(PlanningError::invalid)?;
    let problem = problem.under(Rules::default().with_slowdowns(slowdowns)).map_err(PlanningError::invalid)?;
    let lane_of: Vec<DeviceId> = operations.iter().map(|operation| DeviceId(operation.lane as u32)).collect();
    let schedule = simulate(&problem, &lane_of, &InOrder::new(&tasks)).map_err(|error| match error {
        SimulateError::Interrupted => error.into(),
        violation => PlanningError::invalid(violation),
    })?;
    Ok(schedule.tasks.iter().map(|span| (span.start, span.end)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(lane: usize, seconds: f64, after: &[(usize, f64)]) -> Operation {
        Operation { lane, seconds, after: after.to_vec() }
    }

    fn played(operations: &[Operation], lanes: usize, slowdown: f64) -> Vec<(f64, f64)> {
        play(operations, lanes, Slowdowns::from_fn(lanes, |_, _| slowdown)).expect("times")
    }

    #[test]
    fn lanes_run_side_by_side_and_wait_for_each_other() {
        let operations = [
            operation(0, 2.0, &[]),
            operation(1, 1.0, &[]),
            operation(1, 1.0, &[(0, 0.5)]),
            operation(0, 0.0, &[(2, 0.0)]),
        ];
        assert_eq!(played(&operations, 2, 1.0), [(0.0, 2.0), (0.0, 1.0), (2.5, 3.5), (3.5, 3.5)]);
    }

    #[test]
    fn work_is_never_lost() {
        arbtest::arbtest(|random| {
            let count = random.int_in_range(1..=30usize)?;
            let mut operations: Vec<Operation> = Vec::new();
            for number in 0..count {
                let (lane, seconds) = (random.int_in_range(0..=2)?, f64::from(random.int_in_range(0..=9u8)?));
                let mut after = Vec::new();
                for _ in 0..random.int_in_range(0..=2u8)? {
                    if number > 0 {
                        let before = random.int_in_range(0..=number - 1)?;
                        let delay = f64::from(random.int_in_range(0..=2u8)?);
                        after.push((before, if operations[before].lane == lane { 0.0 } else { delay }));
                    }
                }
                operations.push(Operation { lane, seconds, after });
            }
            let spans = played(&operations, 3, 1.5);
            for (operation, (start, end)) in operations.iter().zip(&spans) {
                assert!(end - start >= operation.seconds - 1e-9 && end - start <= operation.seconds * 2.25 + 1e-9);
                assert!(operation.after.iter().all(|(before, delay)| *start >= spans[*before].1 + delay - 1e-9));
            }
            for (a, b) in operations.iter().enumerate().flat_map(|(b, _)| (0..b).map(move |a| (a, b))) {
                assert!(operations[a].lane != operations[b].lane || spans[a].1 <= spans[b].0 + 1e-9);
            }
            Ok(())
        })
        .budget_ms(200);
    }
}
