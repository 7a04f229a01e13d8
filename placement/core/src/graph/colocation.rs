//! Colocation groups: formed transitively by union-find, rejected if their members contradict each other (Laich 2017,
//! section 3.1.2).

use super::{GraphError, Rows, Task, TaskId, UnitId};
use crate::platform::{DeviceId, DeviceKinds};
use crate::union_find::UnionFind;

/// Assignment units of a graph, with the common constraints of their members.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Units {
    unit_of: Vec<UnitId>,
    members: Rows<TaskId>,
    allowed: Vec<DeviceKinds>,
    pinned: Vec<Option<DeviceId>>,
}

impl Units {
    /// Joins the tasks of every pair. Near-linear in tasks and pairs.
    ///
    /// # Errors
    /// Returns the first pair whose groups have no device kind in common or are pinned to different devices.
    pub(super) fn form(tasks: &[Task], pairs: &[(TaskId, TaskId)]) -> Result<Self, GraphError> {
        let mut forest = Forest::new(tasks);
        for &(first, second) in pairs {
            forest.join(tasks, first, second)?;
        }
        Ok(forest.into_units())
    }

    pub(super) fn count(&self) -> usize {
        self.allowed.len()
    }

    pub(super) fn of(&self, task: TaskId) -> UnitId {
        self.unit_of[task.index()]
    }

    pub(super) fn members(&self, unit: UnitId) -> &[TaskId] {
        self.members.row(unit.index())
    }

    pub(super) fn allowed(&self, unit: UnitId) -> DeviceKinds {
        self.allowed[unit.index()]
    }

    pub(super) fn pinned(&self, unit: UnitId) -> Option<DeviceId> {
        self.pinned[unit.index()]
    }
}

/// Union-find over the tasks; the root of a group is its smallest member and holds the group's kinds and pin.
struct Forest {
    joined: UnionFind,
    allowed: Vec<DeviceKinds>,
    pinned: Vec<Option<DeviceId>>,
}

impl Forest {
    fn new(tasks: &[Task]) -> Self {
        Forest {
            joined: UnionFind::new(tasks.len()),
            allowed: tasks.iter().map(|task| task.allowed).collect(),
            pinned: tasks.iter().map(|task| task.pinned).collect(),
        }
    }

    fn join(&mut self, tasks: &[Task], first: TaskId, second: TaskId) -> Result<(), GraphError> {
        let (one, other) = (self.joined.root(first.index()), self.joined.root(second.index()));
        if one == other {
            return Ok(());
        }
        let names = || (tasks[first.index()].name.clone(), tasks[second.index()].name.clone());
        let allowed = self.allowed[one].intersection(self.allowed[other]);
        if allowed.is_empty() {
            let (first, second) = names();
            let (first_kinds, second_kinds) = (self.allowed[one], self.allowed[other]);
            return Err(GraphError::ColocatedKinds { first, first_kinds, second, second_kinds });
        }
        if let (Some(first_pin), Some(second_pin)) = (self.pinned[one], self.pinned[other])
            && first_pin != second_pin
        {
            let (first, second) = names();
            return Err(GraphError::ColocatedPins { first, first_pin, second, second_pin });
        }
        let (root, child) = self.joined.join(one, other);
        self.allowed[root] = allowed;
        self.pinned[root] = self.pinned[root].or(self.pinned[child]);
        Ok(())
    }

    fn into_units(self) -> Units {
        let (numbers, count) = self.joined.numbered();
        let unit_of: Vec<UnitId> = numbers.into_iter().map(UnitId).collect();
        let pairs = unit_of.iter().enumerate().map(|(task, unit)| (unit.index(), TaskId(task as u32)));
        let members = Rows::group(count, pairs);
        let first = |unit: usize| members.row(unit)[0].index();
        let allowed = (0..count).map(|unit| self.allowed[first(unit)]).collect();
        let pinned = (0..count).map(|unit| self.pinned[first(unit)]).collect();
        Units { allowed, pinned, unit_of, members }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(kinds: &[DeviceKinds]) -> Vec<Task> {
        kinds.iter().enumerate().map(|(id, &kinds)| Task::new(format!("t{id}")).with_allowed(kinds)).collect()
    }

    #[test]
    fn groups_are_transitive_and_numbered_by_smallest_member() {
        let tasks = tasks(&[DeviceKinds::ALL; 6]);
        let pairs = [(5, 3), (4, 1), (3, 1)].map(|(a, b)| (TaskId(a), TaskId(b)));
        let units = Units::form(&tasks, &pairs).unwrap();
        assert_eq!(units.count(), 3);
        assert_eq!(units.members(UnitId(1)), [1, 3, 4, 5].map(TaskId));
        assert_eq!(units.members(UnitId(2)), [TaskId(2)]);
        assert_eq!(units.of(TaskId(5)), UnitId(1));
    }

    #[test]
    fn members_share_kinds_and_pins() {
        let mut tasks = tasks(&[DeviceKinds::ALL, DeviceKinds::CPU.union(DeviceKinds::GPU), DeviceKinds::GPU]);
        tasks[1].pinned = Some(DeviceId(7));
        let units = Units::form(&tasks, &[(TaskId(2), TaskId(1)), (TaskId(0), TaskId(2))]).unwrap();
        assert_eq!(units.allowed(UnitId(0)), DeviceKinds::GPU);
        assert_eq!(units.pinned(UnitId(0)), Some(DeviceId(7)));
    }

    #[test]
    fn a_contradiction_reached_through_a_third_task_names_the_pair_that_closed_it() {
        let tasks = tasks(&[DeviceKinds::CPU, DeviceKinds::ALL, DeviceKinds::GPU]);
        let error = Units::form(&tasks, &[(TaskId(0), TaskId(1)), (TaskId(1), TaskId(2))]).unwrap_err();
        let expected = GraphError::ColocatedKinds {
            first: "t1".into(),
            first_kinds: DeviceKinds::CPU,
            second: "t2".into(),
            second_kinds: DeviceKinds::GPU,
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn different_pins_contradict() {
        let mut tasks = tasks(&[DeviceKinds::ALL; 2]);
        tasks[0].pinned = Some(DeviceId(0));
        tasks[1].pinned = Some(DeviceId(1));
        let error = Units::form(&tasks, &[(TaskId(0), TaskId(1))]).unwrap_err();
        assert!(matches!(error, GraphError::ColocatedPins { first, second, .. } if first == "t0" && second == "t1"));
    }
}
