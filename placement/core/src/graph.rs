//! Graph to be placed: tasks, the data that they produce and consume, and constraints on their devices.
//!
//! A [`GraphBuilder`] validates a [`TaskGraph`] once; after that the graph never changes. Adjacency is stored as
//! compressed rows in both directions. A graph of `V` tasks and `E` uses of data takes `O(V + E)` memory, and every
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

/// Position of a task in its graph, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskId(pub u32);

/// Position of a datum in its [`TaskGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DatumId(pub u32);

/// Assignment unit: a colocation group, or a task outside all groups. Units are numbered by their smallest member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId(pub u32);

id!(TaskId, "task");
id!(DatumId, "datum");
id!(UnitId, "unit");

/// One task, with the constraints on its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Name of the task; need not be unique.
    pub name: String,
    /// Kinds of devices that may run it (default: all).
    #[serde(default, skip_serializing_if = "is_default")]
    pub allowed: DeviceKinds,
    /// The one device that must run it, if any.
    #[serde(skip_serializing_if = "is_default")]
    pub pinned: Option<DeviceId>,
    /// Bytes that always stay on the task's device, in addition to its data (default: 0).
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory: u64,
    /// Number of operations, for times that are operations over speed (default: 0).
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub operations: f64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Task {
    /// Creates a task that may run anywhere, with no memory and no operations.
    pub fn new(name: impl Into<String>) -> Self {
        Task { name: name.into(), allowed: DeviceKinds::ALL, pinned: None, memory: 0, operations: 0.0 }
    }

    /// Restricts the task to devices of `kinds` (default: all kinds).
    pub fn with_allowed(self, kinds: DeviceKinds) -> Self {
        Task { allowed: kinds, ..self }
    }

    /// Pins the task to `device` (default: no pin).
    pub fn with_pin(self, device: DeviceId) -> Self {
        Task { pinned: Some(device), ..self }
    }

    /// Sets the resident memory in bytes (default: 0).
    pub fn with_memory(self, bytes: u64) -> Self {
        Task { memory: bytes, ..self }
    }

    /// Sets the number of operations (default: 0).
    pub fn with_operations(self, operations: f64) -> Self {
        Task { operations, ..self }
    }
}

/// Validated, immutable, acyclic graph of tasks and data.
///
/// A *datum* is one value of a given size. One task produces it, any number of tasks consume it, and it is sent at most
/// once to each other device. A task may produce several data. Rows are sorted by id and have no repetitions.
/// [`GraphBuilder`] makes it:
///
/// ```
/// use anabranch_placement::graph::{GraphBuilder, Task};
///
/// let mut builder = GraphBuilder::new();
/// let [a, b, c] = ["a", "b", "c"].map(|name| builder.task(Task::new(name)));
/// let value = builder.datum(a, 4096);
/// builder.consume(value, b);
/// builder.consume(value, c);
/// let graph = builder.build()?;
/// assert_eq!(graph.topological()[0], a);
/// assert_eq!((graph.edge_count(), graph.consumers(value)), (2, &[b, c][..]));
/// # Ok::<(), anabranch_placement::graph::GraphError>(())
/// ```
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
    /// Returns the number of tasks.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of data.
    pub fn datum_count(&self) -> usize {
        self.producers.len()
    }

    /// Returns the number of edges: pairs of a datum and a task that consumes it.
    pub fn edge_count(&self) -> usize {
        self.consumers.item_count()
    }

    /// Returns the ids of all tasks, ascending.
    pub fn task_ids(&self) -> impl ExactSizeIterator<Item = TaskId> + Clone + use<> {
        (0..self.tasks.len() as u32).map(TaskId)
    }

    /// Returns the ids of all data, ascending.
    pub fn datum_ids(&self) -> impl ExactSizeIterator<Item = DatumId> + Clone + use<> {
        (0..self.producers.len() as u32).map(DatumId)
    }

    /// Returns all tasks, in id order.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Returns the task `id`, which must belong to this graph (as all ids below).
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    /// Returns the size of a datum in bytes.
    pub fn bytes(&self, datum: DatumId) -> u64 {
        self.bytes[datum.index()]
    }

    /// Returns the task that produces a datum.
    pub fn producer(&self, datum: DatumId) -> TaskId {
        self.producers[datum.index()]
    }

    /// Returns the tasks that consume a datum.
    pub fn consumers(&self, datum: DatumId) -> &[TaskId] {
        self.consumers.row(datum.index())
    }

    /// Returns the data that a task produces.
    pub fn outputs(&self, task: TaskId) -> &[DatumId] {
        self.outputs.row(task.index())
    }

    /// Returns the data that a task consumes.
    pub fn inputs(&self, task: TaskId) -> &[DatumId] {
        self.inputs.row(task.index())
    }

    /// Returns the tasks that consume a datum of `task`, each once.
    pub fn successors(&self, task: TaskId) -> &[TaskId] {
        self.successors.row(task.index())
    }

    /// Returns the tasks that produce a datum for `task`, each once.
    pub fn predecessors(&self, task: TaskId) -> &[TaskId] {
        self.predecessors.row(task.index())
    }

    /// Returns all tasks, each after its predecessors; of the possible next tasks, the smallest id comes first.
    pub fn topological(&self) -> &[TaskId] {
        &self.topological
    }

    /// Returns the number of assignment units.
    pub fn unit_count(&self) -> usize {
        self.units.count()
    }

    /// Returns the ids of all units, ascending.
    pub fn unit_ids(&self) -> impl ExactSizeIterator<Item = UnitId> + Clone + use<> {
        (0..self.units.count() as u32).map(UnitId)
    }

    /// Returns the unit of a task.
    pub fn unit(&self, task: TaskId) -> UnitId {
        self.units.of(task)
    }

    /// Returns the tasks of a unit, ascending; never empty.
    pub fn members(&self, unit: UnitId) -> &[TaskId] {
        self.units.members(unit)
    }

    /// Returns the kinds of devices that every member of a unit allows; never empty.
    pub fn unit_allowed(&self, unit: UnitId) -> DeviceKinds {
        self.units.allowed(unit)
    }

    /// Returns the device that a member of the unit is pinned to, if any.
    pub fn unit_pinned(&self, unit: UnitId) -> Option<DeviceId> {
        self.units.pinned(unit)
    }
}
