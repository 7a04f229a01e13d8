//! Physical graph: drops and links, the task graph made of them, and their JSON.

use super::node::{Kind, LogicalNode};
use super::unroll::{MAX_DROPS, refuse_links};
use crate::footprint::Partitioning;
use crate::format::{Refusal, WriteError};
use crate::graph::{GraphBuilder, GraphError, Task, TaskGraph, TaskId};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// Kind of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropKind {
    /// Holds data.
    Data,
    /// Runs.
    Application,
}

/// One drop.
#[derive(Debug, Clone, PartialEq)]
pub struct Drop {
    /// Unique identifier.
    pub id: String,
    /// Name of the drop.
    pub name: String,
    /// Kind of the drop.
    pub kind: DropKind,
    /// Category in the logical graph, such as `File` or `BashShellApp`.
    pub category: String,
    /// Index in each group around it, from the outermost inwards.
    pub context: Vec<u64>,
    /// Duration; 0 for data.
    pub time: f64,
    /// Number of cores while it runs; for data, the number that DALiuGE counts.
    pub cores: u64,
    /// Volume of its data; 0 for applications.
    pub volume: u64,
    /// All fields of the logical node.
    pub fields: Arc<BTreeMap<String, String>>,
}

impl Drop {
    pub(super) fn of(node: &LogicalNode, context: Vec<u64>) -> Self {
        let is_data = node.kind == Kind::Data;
        Drop {
            id: id(&node.key, &context),
            name: node.name.clone(),
            kind: if is_data { DropKind::Data } else { DropKind::Application },
            category: node.category.clone(),
            time: if is_data { 0.0 } else { node.time },
            cores: if is_data { 1 } else { node.cores },
            volume: if is_data { node.volume } else { 0 },
            fields: Arc::clone(&node.fields),
            context,
        }
    }

    /// Creates the drops of a group-by: a barrier that takes a unit of time, and the grouped data.
    pub(super) fn group_by(node: &LogicalNode, context: Vec<u64>, volume: u64) -> [Self; 2] {
        let barrier = Drop {
            id: id(&node.key, &context),
            name: node.name.clone(),
            kind: DropKind::Application,
            category: node.category.clone(),
            time: 1.0,
            cores: 1,
            volume: 0,
            fields: Arc::clone(&node.fields),
            context,
        };
        let grouped = Drop {
            id: format!("{}-grp-data", barrier.id),
            name: "grpdata".into(),
            kind: DropKind::Data,
            category: "Memory".into(),
            time: 0.0,
            volume,
            fields: Arc::default(),
            ..barrier.clone()
        };
        [barrier, grouped]
    }

    /// Whether the drop is the barrier of a group-by.
    fn is_barrier(&self) -> bool {
        self.category == "GroupBy"
    }
}

fn id(key: &str, context: &[u64]) -> String {
    format!("{key}_{}", instance(context))
}

/// Returns the context in DALiuGE's notation; the whole graph is the first group.
fn instance(context: &[u64]) -> String {
    context.iter().fold("0".to_owned(), |text, index| format!("{text}-{index}"))
}

/// Drops and the links between them, without cycles.
#[derive(Debug, Clone, PartialEq)]
pub struct PhysicalGraph {
    drops: Vec<Drop>,
    /// Links as (from, to).
    links: Vec<(usize, usize)>,
}

/// Physical graph as tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Graph with a task for each drop, in the same order. Operations are the drop's time; links carry the volume of
    /// the data at their end.
    pub graph: TaskGraph,
    /// Cores of each task.
    pub cores: Vec<u64>,
    /// Time of each task.
    pub times: Vec<f64>,
}

/// Name of data that are not drawn in the logical graph, as in DALiuGE.
const STREAM: &str = "StreamNull";

/// Removes the inserted data from the names of a cycle.
fn without_streams(refusal: Refusal) -> Refusal {
    let Refusal::Graph(GraphError::Cycle { mut tasks }) = refusal else { return refusal };
    tasks.pop();
    tasks.retain(|name| name != STREAM);
    tasks.extend(tasks.first().cloned());
    Refusal::Graph(GraphError::Cycle { tasks })
}

impl PhysicalGraph {
    /// Inserts data between applications that follow each other directly: they stream, and keep no bytes.
    pub(super) fn new(mut drops: Vec<Drop>, mut links: Vec<(usize, usize)>) -> Result<Self, Refusal> {
        let is_app = |drop: &Drop| drop.kind == DropKind::Application && !drop.is_barrier();
        let mut streams = Vec::new();
        for (from, to) in &mut links {
            if is_app(&drops[*from]) && is_app(&drops[*to]) {
                let count = drops.len() as u64 + 1;
                if count > MAX_DROPS {
                    return Err(Refusal::TooMany { what: "drops", count, limit: MAX_DROPS });
                }
                let (source, target) = (&drops[*from], &drops[*to]);
                let stream = Drop {
                    id: format!("{}-{}-stream", source.id, target.id),
                    name: STREAM.into(),
                    kind: DropKind::Data,
                    category: "Null".into(),
                    context: source.context.clone(),
                    time: 0.0,
                    cores: 1,
                    volume: 0,
                    fields: Arc::default(),
                };
                streams.push((drops.len(), *to));
                *to = drops.len();
                drops.push(stream);
            }
        }
        links.extend(streams);
        refuse_links(links.len() as u64)?;
        links.sort_unstable();
        Self::of(drops, links).map_err(without_streams)
    }

    /// Creates the graph of these drops and links; returns an error if there are cycles.
    pub(super) fn of(drops: Vec<Drop>, links: Vec<(usize, usize)>) -> Result<Self, Refusal> {
        let graph = PhysicalGraph { drops, links };
        // Building the tasks finds cycles.
        graph.workload(1)?;
        Ok(graph)
    }

    /// Returns the drops.
    pub fn drops(&self) -> &[Drop] {
        &self.drops
    }

    /// Returns the links, as positions of drops: in ascending order, or in the order of a template.
    pub fn links(&self) -> &[(usize, usize)] {
        &self.links
    }

    /// Builds the tasks of the drops. Data take no time and `cores_of_data` cores. DALiuGE counts one core, so that its
    /// caps count drops instead of applications.
    ///
    /// # Errors
    /// Returns an error if drops wait for each other.
    pub fn workload(&self, cores_of_data: u64) -> Result<Workload, Refusal> {
        let mut builder = GraphBuilder::new();
        for drop in &self.drops {
            builder.task(Task::new(&drop.name).with_operations(drop.time));
        }
        // For each drop of data there is one datum per writer, and one datum for all its readers.
        let mut read: Vec<Option<crate::graph::DatumId>> = vec![None; self.drops.len()];
        for &(from, to) in &self.links {
            let [source, target] = [from, to].map(|place| TaskId(place as u32));
            if self.drops[from].kind == DropKind::Data {
                let datum = *read[from].get_or_insert_with(|| builder.datum(source, self.drops[from].volume));
                builder.consume(datum, target);
            } else {
                builder.edge(source, target, self.drops[to].volume);
            }
        }
        let cores = |drop: &Drop| if drop.kind == DropKind::Data { cores_of_data } else { drop.cores };
        Ok(Workload {
            graph: builder.build()?,
            cores: self.drops.iter().map(cores).collect(),
            times: self.drops.iter().map(|drop| drop.time).collect(),
        })
    }

    /// Writes the graph as DALiuGE's physical graph template. With partitions, each drop has the position of its node
    /// in the form of DALiuGE's resource map (`#0`), and the first island.
    ///
    /// # Errors
    /// Returns an error if `target` cannot be written to.
    pub fn write(&self, partitioning: Option<&Partitioning>, target: impl Write) -> Result<(), WriteError> {
        let (mut sources, mut targets) = (vec![Vec::new(); self.drops.len()], vec![Vec::new(); self.drops.len()]);
        for &(from, to) in &self.links {
            targets[from].push(self.drops[to].id.as_str());
            sources[to].push(self.drops[from].id.as_str());
        }
        let specification = |(place, drop): (usize, &Drop)| {
            let mut object: Map<String, Value> =
                drop.fields.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            let is_data = drop.kind == DropKind::Data;
            let facts = json!({
                "oid": drop.id,
                "name": drop.name,
                "categoryType": if is_data { "Data" } else { "Application" },
                "category": drop.category,
                "iid": instance(&drop.context),
                "rank": std::iter::once(0).chain(drop.context.iter().copied()).collect::<Vec<_>>(),
                "weight": if is_data { json!(drop.volume) } else { json!(drop.time) },
                "num_cpus": drop.cores,
                if is_data { "producers" } else { "inputs" }: sources[place],
                if is_data { "consumers" } else { "outputs" }: targets[place],
            });
            object.extend(facts.as_object().cloned().unwrap_or_default());
            if let Some(part) = partitioning.and_then(|partitioning| partitioning.part_of.get(place)) {
                object.extend([("node".into(), json!(format!("#{part}"))), ("island".into(), json!("#0"))]);
            }
            Value::Object(object)
        };
        let drops: Vec<Value> = self.drops.iter().enumerate().map(specification).collect();
        Ok(serde_json::to_writer_pretty(target, &drops)?)
    }
}
