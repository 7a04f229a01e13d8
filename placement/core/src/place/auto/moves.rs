//! Moves: some assignment units go to one other device.
//!
//! Moves start from the critical path, because nothing else can shorten the schedule. One of its tasks moves, alone or
//! with its neighbours on the path that share its device. Or the two sides of one of its transfers are put on one
//! device.

use super::assigned::Assigned;
use crate::graph::{TaskId, UnitId};
use crate::place::evaluator::Evaluator;
use crate::platform::DeviceId;
use crate::random::Random;

/// Longest part of the path that moves together.
const LONGEST: u64 = 12;

/// Units that move together.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) units: Vec<UnitId>,
    /// All members of the units, by start.
    pub(super) tasks: Vec<TaskId>,
    /// Devices that all of them can go to, ascending.
    pub(super) to: Vec<DeviceId>,
}

/// Draws a block from the critical `path`, which goes from its end to its start. Returns `None` if the drawn units
/// cannot move.
pub(super) fn draw(
    evaluator: &Evaluator<'_>,
    assigned: &Assigned<'_>,
    path: &[usize],
    random: &mut Random,
) -> Option<Block> {
    let placed = evaluator.placed();
    let at = random.below(path.len() as u64) as usize;
    let item = *path.get(at)?;
    if placed.task(item).is_some() {
        return close(evaluator, assigned, &neighbours(evaluator, path, at, random), None);
    }
    let send = placed.sends().all()[item];
    if random.chance(0.5) {
        close(evaluator, assigned, placed.sends().receivers(item), Some(send.from))
    } else {
        close(evaluator, assigned, &[placed.problem().graph().producer(send.datum)], Some(send.to))
    }
}

/// Returns the task at `at` of the path and, half of the time, some tasks before or after it without a transfer
/// between.
fn neighbours(evaluator: &Evaluator<'_>, path: &[usize], at: usize, random: &mut Random) -> Vec<TaskId> {
    let placed = evaluator.placed();
    let device = placed.device(path[at]);
    let length = if random.chance(0.5) { 1 } else { 1 + random.below(LONGEST) as usize };
    let task = |&item: &usize| placed.task(item);
    let here = |item: &&usize| placed.device(**item) == device;
    if random.chance(0.5) {
        path[at..].iter().take_while(here).filter_map(task).take(length).collect()
    } else {
        path[..=at].iter().rev().take_while(here).filter_map(task).take(length).collect()
    }
}

/// Returns the units of `tasks` with all their members, and their possible targets: `only`, or any device.
fn close(
    evaluator: &Evaluator<'_>,
    assigned: &Assigned<'_>,
    tasks: &[TaskId],
    only: Option<DeviceId>,
) -> Option<Block> {
    let placed = evaluator.placed();
    let graph = placed.problem().graph();
    let mut units: Vec<UnitId> = tasks.iter().map(|&task| graph.unit(task)).collect();
    units.sort_unstable();
    units.dedup();
    let here = assigned.device(*units.first()?);
    let is_target = |&to: &DeviceId| to != here && only.is_none_or(|only| only == to) && assigned.admits(&units, to);
    let to: Vec<DeviceId> = placed.problem().platform().device_ids().filter(is_target).collect();
    if to.is_empty() {
        return None;
    }
    let mut tasks: Vec<TaskId> = units.iter().flat_map(|&unit| graph.members(unit)).copied().collect();
    let start = |task: &TaskId| evaluator.starts()[placed.item(*task)];
    tasks.sort_by(|one, other| start(one).total_cmp(&start(other)));
    Some(Block { units, tasks, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Task;
    use crate::place::auto::current::Current;
    use crate::rules::Rules;
    use crate::sample;

    #[test]
    fn blocks_are_whole_units_with_somewhere_to_go() {
        let mut builder = sample::tasks(&[3.0; 6]);
        for task in 0..5 {
            builder.edge(TaskId(task), TaskId(task + 1), 10);
        }
        builder.colocate(TaskId(1), TaskId(4));
        let pinned = builder.task(Task::new("pinned").with_operations(1.0).with_pin(DeviceId(0)));
        builder.edge(pinned, TaskId(5), 0);
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 3]);
        let problem = loaded.problem().unwrap().under(Rules::THESIS).unwrap();
        let assigned = Assigned::new(&problem, [0, 1, 2, 2, 1, 2, 0].map(DeviceId).to_vec());
        let mut evaluator = Evaluator::new(&problem);
        evaluator.evaluate(assigned.device_of(), f64::INFINITY);
        let mut current = Current::default();
        current.read(&evaluator);
        let mut random = Random::new(1);
        let mut sizes = [0; 6];
        for _ in 0..500 {
            let path = current.critical_path(&evaluator, &mut random);
            let Some(block) = draw(&evaluator, &assigned, &path, &mut random) else { continue };
            let members: usize = block.units.iter().map(|&unit| problem.graph().members(unit).len()).sum();
            assert_eq!(members, block.tasks.len());
            assert!(!block.tasks.contains(&pinned));
            assert!(!block.to.is_empty() && !block.to.contains(&assigned.device(block.units[0])));
            sizes[block.units.len()] += 1;
        }
        assert!(sizes[0] == 0 && sizes[1] > 0 && sizes[2] > 0, "{sizes:?}");
    }
}
