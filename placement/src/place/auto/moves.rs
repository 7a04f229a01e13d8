//! Moves: some assignment units to one other device.
//!
//! They start from the critical path, because nothing else can shorten the schedule: one of its tasks moves, alone or with its
//! neighbours on the path that share its device, or the two sides of one of its transfers come together.

use super::evaluate::Evaluator;
use crate::generate::Random;
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Longest part of the path that moves together.
const LONGEST: u64 = 12;

/// Units that could move together.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    pub(super) units: Vec<UnitId>,
    /// All members of the units, by start.
    pub(super) tasks: Vec<TaskId>,
    /// The one device to look at; all devices if `None`.
    pub(super) to: Option<DeviceId>,
}

/// Draws a block from the critical `path`, which goes from its end to its start; `None` where what was drawn cannot move.
pub(super) fn draw(evaluator: &Evaluator<'_>, path: &[u32], random: &mut Random) -> Option<Block> {
    let network = evaluator.network();
    let at = random.below(path.len() as u64) as usize;
    let item = *path.get(at)? as usize;
    let mut tasks = Vec::new();
    let mut to = None;
    match network.task(item) {
        None => {
            let send = network.sends()[item];
            if random.chance(0.5) {
                tasks.extend(network.receivers(item));
                to = Some(send.from);
            } else {
                tasks.push(send.producer);
                to = Some(send.to);
            }
        }
        Some(task) => {
            let length = if random.chance(0.5) { 1 } else { 1 + random.below(LONGEST) as usize };
            let device = network.device_of(task);
            let same = |item: &u32| network.device(*item as usize) == device;
            let task_of = |item: &u32| network.task(*item as usize);
            if random.chance(0.5) {
                tasks.extend(path[at..].iter().take_while(|item| same(item)).filter_map(task_of).take(length));
            } else {
                let before = path[..=at].iter().rev();
                tasks.extend(before.take_while(|item| same(item)).filter_map(task_of).take(length));
            }
        }
    }
    close(evaluator, &tasks, to)
}

/// The units of `tasks` with all their members; `None` if one of them has no second device.
fn close(evaluator: &Evaluator<'_>, tasks: &[TaskId], to: Option<DeviceId>) -> Option<Block> {
    let network = evaluator.network();
    let problem = network.problem();
    let graph = problem.graph();
    let mut units: Vec<UnitId> = tasks.iter().map(|&task| graph.unit(task)).collect();
    units.sort_unstable();
    units.dedup();
    if units.iter().any(|&unit| problem.only_feasible(unit).is_some()) {
        return None;
    }
    let mut tasks: Vec<TaskId> = units.iter().flat_map(|&unit| graph.members(unit)).copied().collect();
    let start = |task: &TaskId| evaluator.starts()[network.item(*task)];
    tasks.sort_by(|one, other| start(one).total_cmp(&start(other)));
    Some(Block { units, tasks, to })
}

/// What each device has left under a full placement.
#[derive(Debug, Clone)]
pub(super) struct Left {
    left: Vec<Option<u64>>,
}

impl Left {
    /// What `device_of` leaves, which must fit.
    pub(super) fn of(problem: &Problem<'_>, device_of: &[DeviceId]) -> Self {
        let left = problem.platform().devices().iter().map(|device| device.memory).collect();
        let mut room = Left { left };
        for unit in problem.graph().unit_ids() {
            room.take(problem, unit, device_of[problem.graph().members(unit)[0].index()]);
        }
        room
    }

    fn take(&mut self, problem: &Problem<'_>, unit: UnitId, device: DeviceId) {
        if let Some(left) = &mut self.left[device.index()] {
            *left = left.saturating_sub(problem.demand(unit));
        }
    }

    fn give(&mut self, problem: &Problem<'_>, unit: UnitId, device: DeviceId) {
        if let Some(left) = &mut self.left[device.index()] {
            *left = left.saturating_add(problem.demand(unit));
        }
    }

    /// Whether all of `units` may be on `to`, where those that `device_of` has there are already.
    pub(super) fn admits(
        &self,
        problem: &Problem<'_>,
        units: &[UnitId],
        device_of: &[DeviceId],
        to: DeviceId,
    ) -> bool {
        let graph = problem.graph();
        let mut needed: u64 = 0;
        for &unit in units {
            if !problem.is_feasible(unit, to) {
                return false;
            }
            if device_of[graph.members(unit)[0].index()] != to {
                needed = needed.saturating_add(problem.demand(unit));
            }
        }
        self.left[to.index()].is_none_or(|left| needed <= left)
    }

    /// Moves `unit` to `to`, in `device_of` too.
    pub(super) fn move_unit(
        &mut self,
        problem: &Problem<'_>,
        unit: UnitId,
        device_of: &mut [DeviceId],
        to: DeviceId,
    ) {
        let members = problem.graph().members(unit);
        self.give(problem, unit, device_of[members[0].index()]);
        self.take(problem, unit, to);
        for &member in members {
            device_of[member.index()] = to;
        }
    }
}
