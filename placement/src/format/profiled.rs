//! Profiled networks on CPUs and accelerators, as JSON: the input files published with Tarnawski 2020.
//!
//! Each node has a time on a CPU and a time on an accelerator, a size, and a colour; nodes of one colour share a
//! device. The machine has a number of accelerators with equal memory, and a number of CPUs, which share the host's
//! memory without a limit. An edge has a size and a *cost*: the time of its transfer between an accelerator and the
//! host. A transfer between two accelerators takes twice that time, through the host; between CPUs it takes none.
//!
//! Accelerators become GPU devices. A node's value is one datum for all edges of equal size and cost, so that it is
//! sent once to each device. If all costs are one multiple of the sizes, as in all published files, data have the
//! sizes; otherwise they have the costs instead. Backward passes are not treated specially.

use super::amount::{bytes, bytes_a_unit};
use super::detect::without_byte_order_mark;
use super::{Costs, Facts, LoadedProblem, Refusal, TimeTable, loaded};
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use crate::problem::MemoryRule;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most devices in a file: the platform's links need the square of this number.
pub const MAX_DEVICES: u64 = 4096;

/// Relative tolerance for costs to count as one multiple of the sizes.
const SAME: f64 = 1e-6;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "maxSizePerFPGA")]
    memory: f64,
    #[serde(rename = "maxFPGAs")]
    accelerators: u64,
    #[serde(rename = "maxCPUs")]
    cpus: u64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: u64,
    name: Option<String>,
    supported_on_fpga: Flag,
    cpu_latency: f64,
    fpga_latency: f64,
    color_class: Option<u64>,
    size: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edge {
    source_id: u64,
    dest_id: u64,
    cost: f64,
    size: Option<f64>,
}

/// A Boolean, or 1 or 0.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
enum Flag {
    Truth(bool),
    Number(u8),
}

impl Flag {
    fn holds(self) -> bool {
        matches!(self, Flag::Truth(true) | Flag::Number(1..))
    }
}

/// Reads a profiled network.
///
/// # Errors
/// Returns an error for JSON of another structure, ids that are undefined or repeated, numbers out of range, or more
/// than [`MAX_DEVICES`] devices.
pub fn parse(name: &str, bytes: &[u8]) -> Result<LoadedProblem, Refusal> {
    let profile: Profile = serde_json::from_slice(without_byte_order_mark(bytes))?;
    let devices = profile.cpus.saturating_add(profile.accelerators);
    if devices > MAX_DEVICES {
        return Err(Refusal::TooMany { what: "devices", count: devices, limit: MAX_DEVICES });
    }
    loaded::check_cells([(profile.nodes.len(), devices as usize)].into_iter())?;
    let amounts = Amounts::of(&profile)?;
    let graph = read_graph(&profile, &amounts)?;
    let platform = read_platform(&profile, &amounts)?;
    let times = TimeTable::from_fn(graph.task_count(), platform.device_count(), |task, device| {
        let node = &profile.nodes[task.index()];
        match platform.device(device).kind {
            DeviceKind::Cpu => Some(node.cpu_latency),
            _ => node.supported_on_fpga.holds().then_some(node.fpga_latency),
        }
    })?;
    let facts = Facts {
        time_unit: Some("ms".into()),
        bytes_a_unit: amounts.scale,
        task_ids: profile.nodes.iter().map(|node| node.id).collect(),
        ..Facts::default()
    };
    let problem = LoadedProblem::new(name, graph, platform, MemoryRule::Resident);
    Ok(LoadedProblem { costs: Costs::Times(times), facts, ..problem })
}

/// Measure of an edge's data, with the rate between host and accelerator.
struct Amounts {
    by_size: bool,
    scale: f64,
    rate: f64,
}

impl Amounts {
    fn of(profile: &Profile) -> Result<Self, Refusal> {
        for (number, edge) in profile.edges.iter().enumerate() {
            for (member, value) in [("cost", edge.cost), ("size", edge.size.unwrap_or(0.0))] {
                if !(value >= 0.0 && value.is_finite()) {
                    let place = format!("edges[{number}].{member}");
                    return Err(Refusal::Number { place, value, expected: "finite and not negative" });
                }
            }
        }
        let by_size = common_rate(&profile.edges);
        let amount = |edge: &Edge| if by_size.is_some() { edge.size.unwrap_or(0.0) } else { edge.cost };
        let scale = bytes_a_unit(profile.edges.iter().map(amount));
        Ok(Amounts { by_size: by_size.is_some(), scale, rate: by_size.unwrap_or(1.0) * scale })
    }

    fn of_edge(&self, edge: &Edge, number: usize) -> Result<u64, Refusal> {
        let amount = if self.by_size { edge.size.unwrap_or(0.0) } else { edge.cost };
        bytes(amount, self.scale, || format!("edges[{number}]"))
    }
}

/// Returns the size that is transferred in one unit of time, if it is equal for all edges.
fn common_rate(edges: &[Edge]) -> Option<f64> {
    let largest = edges.iter().max_by(|one, other| one.cost.total_cmp(&other.cost))?;
    let rate = largest.size? / largest.cost;
    let fits = |edge: &Edge| edge.size.is_some_and(|size| (size / rate - edge.cost).abs() <= SAME * edge.cost);
    (rate.is_finite() && rate > 0.0 && edges.iter().all(fits)).then_some(rate)
}

fn read_graph(profile: &Profile, amounts: &Amounts) -> Result<TaskGraph, Refusal> {
    let mut builder = GraphBuilder::new();
    let (mut ids, mut colours) = (BTreeMap::new(), BTreeMap::new());
    for (number, node) in profile.nodes.iter().enumerate() {
        let task = builder.task(read_task(node, number)?);
        if ids.insert(node.id, task).is_some() {
            let name = node.id.to_string();
            return Err(Refusal::Twice { place: format!("nodes[{number}]"), what: "id", name });
        }
        if let Some(colour) = node.color_class {
            builder.colocate(*colours.entry(colour).or_insert(task), task);
        }
    }
    let mut data = BTreeMap::new();
    for (number, edge) in profile.edges.iter().enumerate() {
        let end = |id: u64| {
            let unknown = || Refusal::Unknown { place: format!("edges[{number}]"), what: "node", name: id.to_string() };
            ids.get(&id).copied().ok_or_else(unknown)
        };
        let (from, to): (TaskId, TaskId) = (end(edge.source_id)?, end(edge.dest_id)?);
        let amount = amounts.of_edge(edge, number)?;
        let datum = *data.entry((from, amount)).or_insert_with(|| builder.datum(from, amount));
        builder.consume(datum, to);
    }
    Ok(builder.build()?)
}

fn read_task(node: &Node, number: usize) -> Result<Task, Refusal> {
    let allowed = if node.supported_on_fpga.holds() { DeviceKinds::ALL } else { DeviceKinds::CPU };
    let memory = bytes(node.size.ceil(), 1.0, || format!("nodes[{number}].size"))?;
    let name = node.name.clone().unwrap_or_else(|| node.id.to_string());
    Ok(Task::new(name).with_allowed(allowed).with_memory(memory))
}

fn read_platform(profile: &Profile, amounts: &Amounts) -> Result<Platform, Refusal> {
    let memory = bytes(profile.memory.floor(), 1.0, || "maxSizePerFPGA".into())?;
    let cpus = (0..profile.cpus).map(|number| Device::new(format!("cpu{number}"), DeviceKind::Cpu));
    let accelerators = (0..profile.accelerators)
        .map(|number| Device::new(format!("accelerator{number}"), DeviceKind::Gpu).with_memory(memory));
    let is_cpu = |device: DeviceId| u64::from(device.0) < profile.cpus;
    Ok(Platform::new(cpus.chain(accelerators).collect(), |from, to| match (is_cpu(from), is_cpu(to)) {
        (true, true) => (0.0, f64::INFINITY),
        (false, false) => (0.0, amounts.rate / 2.0),
        _ => (0.0, amounts.rate),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "{\"maxSizePerFPGA\": 100.0, \"maxFPGAs\": 2, \"maxCPUs\": 1, \"nodes\": [{\"id\": 7, \"name\": \"a\", \
                         \"supportedOnFpga\": 1, \"cpuLatency\": 10, \"fpgaLatency\": 1.5, \"isBackwardNode\": false, \
                         \"colorClass\": 3, \"size\": 60.0}, {\"id\": 9, \"supportedOnFpga\": false, \"cpuLatency\": 2.0, \
                         \"fpgaLatency\": 0, \"colorClass\": 4, \"size\": 0}, {\"id\": 8, \"supportedOnFpga\": true, \
                         \"cpuLatency\": 3, \"fpgaLatency\": 1, \"colorClass\": 3, \"size\": 40.0}], \"edges\": [{\"sourceId\": \
                         7, \"destId\": 9, \"cost\": 0.25, \"size\": 8.0}, {\"sourceId\": 7, \"destId\": 8, \"cost\": 0.25, \
                         \"size\": 8.0}]}";

    #[test]
    fn times_transfers_colours_and_memory() {
        let loaded = parse("small", SMALL.as_bytes()).unwrap();
        let graph = &loaded.graph;
        let problem = loaded.problem().unwrap();
        assert_eq!((graph.task(TaskId(0)).name.as_str(), graph.task(TaskId(1)).name.as_str()), ("a", "9"));
        assert_eq!((graph.datum_count(), graph.members(graph.unit(TaskId(0)))), (1, &[TaskId(0), TaskId(2)][..]));
        let times = |device| graph.task_ids().map(|task| problem.time(task, DeviceId(device))).collect::<Vec<_>>();
        assert_eq!(times(0), [10.0, 2.0, 3.0]);
        assert_eq!(times(2), [1.5, f64::INFINITY, 1.0]);
        assert_eq!(problem.transfer_time(8, DeviceId(0), DeviceId(1)), 0.25);
        assert_eq!(problem.transfer_time(8, DeviceId(2), DeviceId(1)), 0.5);
        assert_eq!(problem.demand(graph.unit(TaskId(0))), 100);
        assert!(problem.is_feasible(graph.unit(TaskId(0)), DeviceId(1)));
    }

    #[test]
    fn costs_that_do_not_follow_sizes_are_kept() {
        let loaded = parse("small", SMALL.replacen("0.25", "0.75", 1).as_bytes()).unwrap();
        let mut transfers: Vec<f64> = loaded
            .graph
            .outputs(TaskId(0))
            .iter()
            .map(|&datum| loaded.platform.transfer_time(loaded.graph.bytes(datum), DeviceId(1), DeviceId(0)))
            .collect();
        transfers.sort_by(f64::total_cmp);
        assert_eq!(transfers, [0.25, 0.75]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("\"maxFPGAs\": 2", "\"maxFPGAs\": 4096", "has 4097 devices"),
            ("\"maxFPGAs\": 2", "\"maxFPGAs\": 18446744073709551615", "devices"),
            ("\"id\": 9", "\"id\": 7", "nodes[1]: the id \"7\" occurs twice"),
            ("\"destId\": 8", "\"destId\": 6", "edges[1] names the node \"6\""),
            ("\"cost\": 0.25", "\"cost\": -1", "edges[0].cost is -1"),
            ("\"size\": 60.0", "\"size\": -60.0", "nodes[0].size is -60"),
            ("\"cpuLatency\": 10", "\"cpuLatency\": -10", "task 0 has the time -10"),
            ("\"maxSizePerFPGA\": 100.0", "\"maxSizePerFPGA\": -100.0", "maxSizePerFPGA is -100"),
        ];
        for (from, to, expected) in cases {
            let error = parse("small", SMALL.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
