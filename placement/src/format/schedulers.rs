//! Instances that libraries of list schedulers exchange, as JSON.
//!
//! *Related* instances have costs of tasks, speeds of nodes, sizes of dependencies and speeds of links. A task takes
//! cost over speed, a transfer size over speed, and links do not contend:
//!
//! ```json
//! {"tasks": [{"name": "T0", "cost": 9.5}, {"name": "T1", "cost": 5}],
//!  "deps": [{"src": "T0", "dst": "T1", "size": 2}],
//!  "nodes": [{"name": "N0", "speed": 1.9}, {"name": "N1", "speed": 3.8}],
//!  "links": [{"a": "N0", "b": "N1", "speed": 5.1}]}
//! ```
//!
//! An instance may be the whole file, or the member `instance` next to the makespans of schedulers; a file may also
//! hold many such entries by name. If an entry has `constrained_heft`, with the nodes on which some tasks are
//! `allowed`, it also gives a second problem.
//!
//! *Unrelated* instances have a table `W` of times by task and processor (`null`: cannot run there), `edges` of tasks
//! with a size, and a matrix `BW` of rates. A file may hold several in a list `instances`.
//!
//! All nodes become CPU devices without memory limits. Fractional sizes are scaled to whole bytes, see
//! [`Facts::bytes_a_unit`]. Makespans become [`Facts::figures`].

use super::amount::{bytes, bytes_a_unit};
use super::detect::without_byte_order_mark;
use super::loaded::check_cells;
use super::{Costs, Facts, LoadedProblem, Refusal, TimeTable};
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::platform::{Device, DeviceId, DeviceKind, Platform};
use crate::problem::MemoryRule;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
pub(super) struct Related {
    pub(super) tasks: Vec<RelatedTask>,
    pub(super) deps: Vec<Dependency>,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
}

#[derive(Deserialize)]
pub(super) struct RelatedTask {
    name: String,
    cost: f64,
}

#[derive(Deserialize)]
pub(super) struct Dependency {
    pub(super) src: String,
    pub(super) dst: String,
    pub(super) size: f64,
}

#[derive(Deserialize)]
pub(super) struct Node {
    name: String,
    speed: f64,
}

#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) a: String,
    pub(super) b: String,
    pub(super) speed: f64,
}

#[derive(Deserialize)]
struct Entry {
    instance: Related,
    #[serde(default)]
    textbook: BTreeMap<String, f64>,
    #[serde(default)]
    reference_convention: BTreeMap<String, f64>,
    #[serde(default)]
    makespan: BTreeMap<String, f64>,
    constrained_heft: Option<Constrained>,
}

#[derive(Deserialize)]
struct Constrained {
    allowed: BTreeMap<String, Vec<String>>,
    makespan: Option<f64>,
}

/// Distinguishes an entry from an instance without makespans.
#[derive(Deserialize)]
struct Probe {
    instance: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[allow(non_snake_case)]
struct Unrelated {
    name: Option<String>,
    W: Vec<Vec<Option<f64>>>,
    BW: Vec<Vec<f64>>,
    edges: Vec<(u32, u32, f64)>,
    heft_makespan: Option<f64>,
}

#[derive(Deserialize)]
struct UnrelatedSet {
    instances: Vec<Unrelated>,
}

/// Parses one related instance, with or without makespans.
///
/// # Errors
/// Returns an error for JSON of another structure, names that are undefined or repeated, missing links, or numbers out
/// of range.
pub fn parse_related(name: &str, bytes: &[u8]) -> Result<Vec<LoadedProblem>, Refusal> {
    let bytes = without_byte_order_mark(bytes);
    match serde_json::from_slice(bytes)? {
        Probe { instance: Some(_) } => related_problems(name, serde_json::from_slice(bytes)?),
        Probe { instance: None } => Ok(vec![related_problem(name, &serde_json::from_slice(bytes)?, MEMBERS)?]),
    }
}

/// Parses related instances by name.
///
/// # Errors
/// Returns the errors of [`parse_related`].
pub fn parse_related_set(bytes: &[u8]) -> Result<Vec<LoadedProblem>, Refusal> {
    let entries: BTreeMap<String, Entry> = serde_json::from_slice(without_byte_order_mark(bytes))?;
    let mut problems = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        problems.extend(related_problems(&name, entry)?);
    }
    Ok(problems)
}

/// Parses one unrelated instance.
///
/// # Errors
/// Returns an error for JSON of another structure, matrices of wrong sizes, or numbers out of range.
pub fn parse_unrelated(name: &str, bytes: &[u8]) -> Result<Vec<LoadedProblem>, Refusal> {
    Ok(vec![unrelated_problem(name, serde_json::from_slice(without_byte_order_mark(bytes))?)?])
}

/// Parses a list of unrelated instances.
///
/// # Errors
/// Returns the errors of [`parse_unrelated`], and an error for an empty list.
pub fn parse_unrelated_set(bytes: &[u8]) -> Result<Vec<LoadedProblem>, Refusal> {
    let set: UnrelatedSet = serde_json::from_slice(without_byte_order_mark(bytes))?;
    if set.instances.is_empty() {
        return Err(Refusal::Missing { place: "instances".into(), what: "instance" });
    }
    let numbered = set.instances.into_iter().enumerate();
    numbered.map(|(number, instance)| unrelated_problem(&format!("instances[{number}]"), instance)).collect()
}

/// Returns the problem of an entry, and the problem of its constrained variant if there is one.
fn related_problems(name: &str, entry: Entry) -> Result<Vec<LoadedProblem>, Refusal> {
    let mut problem = related_problem(name, &entry.instance, MEMBERS)?;
    let constrained =
        entry.constrained_heft.as_ref().map(|constrained| constrain(&problem, &entry.instance, constrained));
    let sets = [
        ("textbook", entry.textbook),
        ("reference_convention", entry.reference_convention),
        ("makespan", entry.makespan),
    ];
    for (set, makespans) in sets {
        let figures = makespans.into_iter().map(|(scheduler, makespan)| (format!("{set}.{scheduler}"), makespan));
        problem.facts.figures.extend(figures);
    }
    Ok([problem].into_iter().chain(constrained.transpose()?).collect())
}

/// Paths of the two lists of pairs in an instance, for errors.
#[derive(Clone, Copy)]
pub(super) struct Members {
    pub(super) deps: &'static str,
    pub(super) links: &'static str,
}

const MEMBERS: Members = Members { deps: "deps", links: "links" };

pub(super) fn related_problem(name: &str, instance: &Related, members: Members) -> Result<LoadedProblem, Refusal> {
    let scale = bytes_a_unit(instance.deps.iter().map(|dependency| dependency.size));
    let graph = related_graph(name, instance, scale, members)?;
    let platform = related_platform(name, instance, scale, members)?;
    let problem = LoadedProblem::new(name, graph, platform, MemoryRule::Ignore);
    Ok(LoadedProblem { facts: Facts { bytes_a_unit: scale, ..Facts::default() }, ..problem })
}

fn related_graph(name: &str, instance: &Related, scale: f64, members: Members) -> Result<TaskGraph, Refusal> {
    let ids = by_name(name, "task", instance.tasks.iter().map(|task| task.name.as_str()))?;
    let mut builder = GraphBuilder::new();
    for task in &instance.tasks {
        builder.task(Task::new(&task.name).with_operations(task.cost));
    }
    for (number, dependency) in instance.deps.iter().enumerate() {
        let place = || format!("{name}.{}[{number}]", members.deps);
        let [from, to] = [&dependency.src, &dependency.dst].map(|end| look_up(&ids, place, "task", end));
        builder.edge(TaskId(from?), TaskId(to?), bytes(dependency.size, scale, || format!("{}.size", place()))?);
    }
    Ok(builder.build()?)
}

fn related_platform(name: &str, instance: &Related, scale: f64, members: Members) -> Result<Platform, Refusal> {
    let ids = by_name(name, "node", instance.nodes.iter().map(|node| node.name.as_str()))?;
    let mut rates = BTreeMap::new();
    for (number, link) in instance.links.iter().enumerate() {
        let place = || format!("{name}.{}[{number}]", members.links);
        let (a, b) = (look_up(&ids, place, "node", &link.a)?, look_up(&ids, place, "node", &link.b)?);
        let rate = link.speed * scale;
        if link.speed.is_finite() && rate.is_infinite() {
            let expected = "a speed that does not overflow in bytes";
            return Err(Refusal::Number { place: format!("{}.speed", place()), value: link.speed, expected });
        }
        if a != b && rates.insert((a.min(b), a.max(b)), rate).is_some() {
            return Err(Refusal::Twice { place: place(), what: "link", name: format!("{}-{}", link.a, link.b) });
        }
    }
    // The number of links is checked before the platform allocates the square of its devices: it must be the number of
    // pairs.
    let pairs = instance.nodes.len() * instance.nodes.len().saturating_sub(1) / 2;
    if rates.len() != pairs {
        let place = format!("{name}.{}", members.links);
        return Err(Refusal::Length { place, found: rates.len(), expected: pairs });
    }
    let device = |node: &Node| Device::new(&node.name, DeviceKind::Cpu).with_speed(node.speed);
    let devices: Vec<Device> = instance.nodes.iter().map(device).collect();
    Ok(Platform::new(devices, |a, b| (0.0, rates[&(a.0.min(b.0), a.0.max(b.0))]))?)
}

/// Returns the problem with some tasks allowed only on some nodes.
fn constrain(problem: &LoadedProblem, instance: &Related, constrained: &Constrained) -> Result<LoadedProblem, Refusal> {
    let name = format!("{}, constrained", problem.name);
    let tasks = by_name(&name, "task", instance.tasks.iter().map(|task| task.name.as_str()))?;
    let nodes = by_name(&name, "node", instance.nodes.iter().map(|node| node.name.as_str()))?;
    let place = || format!("{name}: allowed");
    let mut only_on: BTreeMap<TaskId, BTreeSet<DeviceId>> = BTreeMap::new();
    for (task, names) in &constrained.allowed {
        let ids = names.iter().map(|node| look_up(&nodes, place, "node", node).map(DeviceId));
        let ids = ids.collect::<Result<_, _>>()?;
        only_on.insert(TaskId(look_up(&tasks, place, "task", task)?), ids);
    }
    let (tasks, devices) = (problem.graph.task_count(), problem.platform.device_count());
    check_cells([(tasks, devices)].into_iter())?;
    let figures = constrained.makespan.map(|makespan| ("constrained_heft.makespan".to_owned(), makespan));
    let facts = Facts { figures: figures.into_iter().collect(), ..problem.facts.clone() };
    Ok(LoadedProblem { name, only_on, facts, ..problem.clone() })
}

fn unrelated_problem(name: &str, instance: Unrelated) -> Result<LoadedProblem, Refusal> {
    let name = instance.name.as_deref().unwrap_or(name);
    let (tasks, devices) = (instance.W.len(), instance.BW.len());
    let rows = instance.W.iter().map(Vec::len).map(|length| ("W", length));
    for (number, (matrix, found)) in rows.enumerate().chain(instance.BW.iter().map(|row| ("BW", row.len())).enumerate())
    {
        if found != devices {
            return Err(Refusal::Length { place: format!("{name}.{matrix}[{number}]"), found, expected: devices });
        }
    }
    let scale = bytes_a_unit(instance.edges.iter().map(|&(_, _, size)| size));
    let mut builder = GraphBuilder::new();
    for number in 0..tasks {
        builder.task(Task::new(number.to_string()));
    }
    for (number, &(from, to, size)) in instance.edges.iter().enumerate() {
        builder.edge(TaskId(from), TaskId(to), bytes(size, scale, || format!("{name}.edges[{number}]"))?);
    }
    let names = (0..devices).map(|number| Device::new(format!("P{number}"), DeviceKind::Cpu)).collect();
    let rate = |from: DeviceId, to: DeviceId| instance.BW[from.index()][to.index()] * scale;
    let platform = Platform::new(names, |from, to| (0.0, rate(from, to)))?;
    let times = TimeTable::from_fn(tasks, devices, |task, device| instance.W[task.index()][device.index()])?;
    let figures = instance.heft_makespan.map(|makespan| ("heft_makespan".to_owned(), makespan));
    let facts = Facts { bytes_a_unit: scale, figures: figures.into_iter().collect(), ..Facts::default() };
    let problem = LoadedProblem::new(name, builder.build()?, platform, MemoryRule::Ignore);
    Ok(LoadedProblem { costs: Costs::Times(times), facts, ..problem })
}

/// Numbers the items by name.
fn by_name<'a>(
    place: &str,
    what: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<&'a str, u32>, Refusal> {
    let mut ids = BTreeMap::new();
    for (id, name) in (0..).zip(names) {
        if ids.insert(name, id).is_some() {
            return Err(Refusal::Twice { place: place.into(), what, name: name.into() });
        }
    }
    Ok(ids)
}

fn look_up(
    ids: &BTreeMap<&str, u32>,
    place: impl Fn() -> String,
    what: &'static str,
    name: &str,
) -> Result<u32, Refusal> {
    ids.get(name).copied().ok_or_else(|| Refusal::Unknown { place: place(), what, name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: &str = "{\"tasks\": [{\"name\": \"a\", \"cost\": 6}, {\"name\": \"b\", \"cost\": 3}], \"deps\": [{\"src\": \"a\", \
                         \"dst\": \"b\", \"size\": 2.5}], \"nodes\": [{\"name\": \"x\", \"speed\": 2}, {\"name\": \"y\", \
                         \"speed\": 3}], \"links\": [{\"a\": \"y\", \"b\": \"x\", \"speed\": 5}]}";

    #[test]
    fn a_related_instance_is_costs_and_speeds() {
        let loaded = parse_related("alone", ALONE.as_bytes()).unwrap().remove(0);
        let problem = loaded.problem().unwrap();
        assert_eq!((problem.time(TaskId(0), DeviceId(0)), problem.time(TaskId(0), DeviceId(1))), (3.0, 2.0));
        assert_eq!((loaded.facts.bytes_a_unit, loaded.graph.bytes(loaded.graph.outputs(TaskId(0))[0])), (10.0, 25));
        assert_eq!(problem.transfer_time(25, DeviceId(0), DeviceId(1)), 0.5);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("\"src\": \"a\"", "\"src\": \"c\"", "alone.deps[0] names the task \"c\""),
            ("\"size\": 2.5", "\"size\": -2.5", "alone.deps[0].size is -2.5"),
            ("\"name\": \"b\"", "\"name\": \"a\"", "the task \"a\" occurs twice"),
            ("\"a\": \"y\"", "\"a\": \"z\"", "alone.links[0] names the node \"z\""),
            ("\"a\": \"y\"", "\"a\": \"x\"", "alone.links has 0 entries, but should have 1"),
            ("\"speed\": 3", "\"speed\": 0", "speed 0"),
            ("\"cost\": 6", "\"cost\": -6", "-6 operations"),
        ];
        for (from, to, expected) in cases {
            let error = parse_related("alone", ALONE.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let cases = [
            ("{\"W\": [[1, 2]], \"BW\": [[0, 1], [1]], \"edges\": []}", "BW[1] has 1 entries, but should have 2"),
            ("{\"W\": [[1]], \"BW\": [[0, 1], [1, 0]], \"edges\": []}", "W[0] has 1 entries, but should have 2"),
            ("{\"W\": [[1]], \"BW\": [[0]], \"edges\": [[0, 1, 2]]}", "task 1 is used"),
            ("{\"W\": [[-1]], \"BW\": [[0]], \"edges\": []}", "task 0 has the time -1"),
        ];
        for (text, expected) in cases {
            let error = parse_unrelated("table", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(parse_unrelated_set(b"{\"instances\": []}").is_err());
    }
}
