//! The graph to be placed: tasks, the data that they produce and consume, and the constraints on where they may run.
//!
//! A [`TaskGraph`] comes out of a [`GraphBuilder`], which validates it once; after that it never changes. Adjacency is in
//! compressed rows in both directions, so that a graph of `V` tasks and `E` uses of data takes `O(V + E)` memory and every
//! neighbourhood is a slice.

mod build;
mod colocation;
mod rows;

pub use build::{GraphBuilder, GraphError};
pub(crate) use rows::Rows;

use crate::ids::id;
use crate::platform::{DeviceId, DeviceKinds};
use colocation::Units;
use serde::{Deserialize, Serialize};

/// A task, by its position in the [`TaskGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId(pub u32);

/// A datum, by its position in the [`TaskGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DatumId(pub u32);

/// An assignment unit: a colocation group, or a task that is in none. Units are numbered by their smallest member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId(pub u32);

id!(TaskId, "task");
id!(DatumId, "datum");
id!(UnitId, "unit");

/// One task: what is to run, and where it may.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What people call it; need not be unique.
    pub name: String,
    /// Kinds of devices that may run it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allowed: DeviceKinds,
    /// The one device that must run it, if any.
    #[serde(skip_serializing_if = "is_default")]
    pub pinned: Option<DeviceId>,
    /// Bytes that stay on its device all the time, whatever it reads and writes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory: u64,
    /// Operations that it performs; read only by models that count operations.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operations: f64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Task {
    /// A task that may run anywhere, with no memory and no operations.
    pub fn new(name: impl Into<String>) -> Self {
        Task { name: name.into(), allowed: DeviceKinds::ALL, pinned: None, memory: 0, operations: 0.0 }
    }

    /// The same task, only on devices of `kinds`.
    pub fn with_allowed(self, kinds: DeviceKinds) -> Self {
        Task { allowed: kinds, ..self }
    }

    /// The same task, only on `device`.
    pub fn with_pin(self, device: DeviceId) -> Self {
        Task { pinned: Some(device), ..self }
    }

    /// The same task with `bytes` of resident memory.
    pub fn with_memory(self, bytes: u64) -> Self {
        Task { memory: bytes, ..self }
    }

    /// The same task with another number of operations.
    pub fn with_operations(self, operations: f64) -> Self {
        Task { operations, ..self }
    }
}

/// A validated, immutable, acyclic graph of tasks and data.
///
/// A *datum* is one value: produced by one task, of so many bytes, consumed by any number of tasks, and sent at most once to
/// each other device. A task may produce several. Rows are sorted by id and without repetitions.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskGraph {
    tasks: Vec<Task>,
    producers: Vec<TaskId>,
    bytes: Vec<u64>,
    outputs: Rows<DatumId>,
    consumers: Rows<TaskId>,
    inputs: Rows<DatumId>,
    successors: Rows<TaskId>,
    predecessors: Rows<TaskId>,
    topological: Vec<TaskId>,
    units: Units,
}

impl TaskGraph {
    /// Number of tasks.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Number of data.
    pub fn datum_count(&self) -> usize {
        self.producers.len()
    }

    /// Number of edges: pairs of a datum and a task that consumes it.
    pub fn edge_count(&self) -> usize {
        self.consumers.item_count()
    }

    /// Every task's id, ascending.
    pub fn task_ids(&self) -> impl ExactSizeIterator<Item = TaskId> + Clone + use<> {
        (0..self.tasks.len() as u32).map(TaskId)
    }

    /// Every datum's id, ascending.
    pub fn datum_ids(&self) -> impl ExactSizeIterator<Item = DatumId> + Clone + use<> {
        (0..self.producers.len() as u32).map(DatumId)
    }

    /// All tasks, in id order.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The task `id`, which must belong to this graph (as all ids below).
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    /// Size of a datum.
    pub fn bytes(&self, datum: DatumId) -> u64 {
        self.bytes[datum.index()]
    }

    /// The task that produces a datum.
    pub fn producer(&self, datum: DatumId) -> TaskId {
        self.producers[datum.index()]
    }

    /// The tasks that consume a datum.
    pub fn consumers(&self, datum: DatumId) -> &[TaskId] {
        self.consumers.row(datum.index())
    }

    /// The data that a task produces.
    pub fn outputs(&self, task: TaskId) -> &[DatumId] {
        self.outputs.row(task.index())
    }

    /// The data that a task consumes.
    pub fn inputs(&self, task: TaskId) -> &[DatumId] {
        self.inputs.row(task.index())
    }

    /// The tasks that consume something that `task` produces, each once.
    pub fn successors(&self, task: TaskId) -> &[TaskId] {
        self.successors.row(task.index())
    }

    /// The tasks that produce something that `task` consumes, each once.
    pub fn predecessors(&self, task: TaskId) -> &[TaskId] {
        self.predecessors.row(task.index())
    }

    /// All tasks, each after its predecessors; among those that could come next, the smallest id first.
    pub fn topological(&self) -> &[TaskId] {
        &self.topological
    }

    /// Number of assignment units.
    pub fn unit_count(&self) -> usize {
        self.units.count()
    }

    /// Every unit's id, ascending.
    pub fn unit_ids(&self) -> impl ExactSizeIterator<Item = UnitId> + Clone + use<> {
        (0..self.units.count() as u32).map(UnitId)
    }

    /// The unit that a task belongs to.
    pub fn unit(&self, task: TaskId) -> UnitId {
        self.units.of(task)
    }

    /// The tasks of a unit, ascending; never empty.
    pub fn members(&self, unit: UnitId) -> &[TaskId] {
        self.units.members(unit)
    }

    /// The kinds that every member of a unit may run on; never empty.
    pub fn unit_allowed(&self, unit: UnitId) -> DeviceKinds {
        self.units.allowed(unit)
    }

    /// The device that a member of the unit is pinned to, if any is.
    pub fn unit_pinned(&self, unit: UnitId) -> Option<DeviceId> {
        self.units.pinned(unit)
    }
}
