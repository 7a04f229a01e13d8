//! JSON format of this crate: a graph, a platform, or a whole problem, complete and without loss.
//!
//! ```json
//! {
//! "format": "anabranch-problem",
//! "version": 1,
//! "name": "example",
//! "time_unit": "s",
//! "graph": {
//!   "tasks": [
//!     {"name": "input", "pinned": 0},
//!     {"name": "matmul", "allowed": ["cpu", "gpu"], "memory": 4194304, "operations": 2e9}
//!   ],
//!   "data": [
//!     {"producer": 0, "bytes": 1048576, "consumers": [1]}
//!   ],
//!   "colocated": [[0, 1]]
//! },
//! "platform": {
//!   "devices": [
//!     {"name": "cpu0", "kind": "cpu", "memory": null, "speed": 1.0},
//!     {"name": "gpu0", "kind": "gpu", "memory": 8589934592}
//!   ],
//!   "latency": [[0.0, 1e-5], [1e-5, 0.0]],
//!   "rate": [[null, 1e10], [1e10, null]]
//! },
//! "times": [[0.0, null], [5e-3, 2e-4]],
//! "memory_rule": "resident",
//! "bytes_a_unit": 1.0,
//! "figures": {"measured makespan": 0.0061}
//! }
//! ```
//!
//! Tasks, data and devices are named by their positions in their lists, from 0.
//!
//! | member | meaning | default |
//! |---|---|---|
//! | `format`, `version` | `anabranch-problem`, 1 | required |
//! | `name` | name of the problem | name of the file |
//! | `time_unit` | unit of all times | unknown |
//! | `graph` | graph to place | the file is a platform |
//! | `tasks[].name` | name, need not be unique | required |
//! | `tasks[].allowed` | kinds of devices that may run it: `cpu`, `gpu`, `tpu`, `other` | all |
//! | `tasks[].pinned` | the one device that must run it | none |
//! | `tasks[].memory` | bytes that stay on the task's device | 0 |
//! | `tasks[].operations` | number of operations, for times that are operations over speed | 0 |
//! | `data[]` | `producer`, `bytes` and `consumers` of each datum | no data |
//! | `colocated[]` | tasks that must share a device | none |
//! | `platform` | platform to place it on | the file is a graph |
//! | `devices[].kind` | kind, as in `allowed` | required |
//! | `devices[].memory` | capacity in bytes | no limit |
//! | `devices[].speed` | operations per time unit | 1 |
//! | `latency[from][to]` | time before the first byte moves; the diagonal is ignored | 0 |
//! | `rate[from][to]` | bytes per time unit; `null` means no limit; the diagonal is ignored | no limit |
//! | `network` | `links`, each with `name`, `latency` and `rate`, and `routes[from][to]`, lists of names of links: see [`network`](crate::network) | `latency` and `rate` |
//! | `times[task][device]` | time of a task on a device; `null` if it cannot run there | operations over speed |
//! | `uncertainties[task][device]` | factor `u ≥ 1`: the time lies from `time / u` to `time · u` in nine cases of ten | unknown |
//! | `only_on` | object: for a task's position, the devices that may run it | all that `allowed` and `times` admit |
//! | `memory_rule` | `resident`, `size_estimate` or `ignore`: see [`MemoryRule`](crate::problem::MemoryRule) | `resident` |
//! | `bytes_a_unit` | bytes per unit of size in the file that this was converted from | 1 |
//! | `figures` | further numbers, by name | none |
//! | `task_ids` | number of each task in the original file, which assignments use | its position |
//!
//! Members that are not in this table are rejected, so that typing errors are found. A later version will only be
//! written if this version cannot express the content.

mod document;
mod network;
mod write;

pub use write::{write_graph, write_platform, write_problem};

use super::detect::without_byte_order_mark;
use super::loaded::check_cells;
use super::{Costs, Facts, Loaded, LoadedGraph, LoadedProblem, Refusal, TimeTable};
use crate::graph::{GraphBuilder, TaskGraph};
use crate::platform::{DeviceId, Platform};
use document::{DatumPart, Document, GraphPart, Matrix, PlatformPart};

/// Value of the member `format`.
const FORMAT: &str = "anabranch-problem";
/// Version that is written, and the only one that exists.
const VERSION: u64 = 1;

/// Parses a document; `name` is used if the document has no name.
///
/// # Errors
/// Returns the first deviation from the table above.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Loaded, Refusal> {
    let mut document: Document = serde_json::from_slice(without_byte_order_mark(bytes))?;
    if document.format != FORMAT {
        return Err(Refusal::Version { found: document.format, known: "format anabranch-problem" });
    }
    if document.version != VERSION {
        return Err(Refusal::Version { found: document.version.to_string(), known: "version 1" });
    }
    let name = document.name.take().unwrap_or_else(|| name.into());
    let graph = document.graph.take().map(read_graph).transpose()?;
    let platform = document.platform.take().map(read_platform).transpose()?;
    if platform.is_none() && (document.times.is_some() || document.uncertainties.is_some()) {
        return Err(Refusal::Missing { place: "the document with times".into(), what: "platform that they are for" });
    }
    if let Some(graph) = &graph {
        let (found, expected) = (document.task_ids.len(), graph.task_count());
        if found != 0 && found != expected {
            return Err(Refusal::Length { place: "task_ids".into(), found, expected });
        }
    }
    match (graph, platform) {
        (Some(graph), Some(platform)) => Ok(Loaded::Problems(vec![read_problem(name, graph, platform, document)?])),
        (Some(graph), None) => {
            let Document { memory_rule, time_unit, task_ids, .. } = document;
            Ok(Loaded::Graph(Box::new(LoadedGraph { name, graph, memory_rule, time_unit, task_ids })))
        }
        (None, Some(platform)) => Ok(Loaded::Platform(platform)),
        (None, None) => Err(Refusal::Missing { place: "the document".into(), what: "graph and no platform" }),
    }
}

/// Returns the JSON Schema of a document.
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

fn read_problem(
    name: String,
    graph: TaskGraph,
    platform: Platform,
    document: Document,
) -> Result<LoadedProblem, Refusal> {
    check_cells([(graph.task_count(), platform.device_count())].into_iter())?;
    let Document { times, uncertainties, only_on, memory_rule, bytes_a_unit, time_unit, figures, task_ids, .. } =
        document;
    let costs = match &times {
        Some(rows) => Costs::Times(read_table("times", rows, &graph, &platform)?),
        None => Costs::OperationsOverSpeed,
    };
    let tasks = only_on.keys().map(|task| (task.0, graph.task_count(), "a task of the graph"));
    let devices =
        only_on.values().flatten().map(|device| (device.0, platform.device_count(), "a device of the platform"));
    if let Some((id, _, expected)) = tasks.chain(devices).find(|&(id, count, _)| id as usize >= count) {
        return Err(Refusal::Number { place: "only_on".into(), value: id.into(), expected });
    }
    let bytes_a_unit = bytes_a_unit.unwrap_or(1.0);
    if !(bytes_a_unit.is_finite() && bytes_a_unit > 0.0) {
        let expected = "finite and greater than 0";
        return Err(Refusal::Number { place: "bytes_a_unit".into(), value: bytes_a_unit, expected });
    }
    let uncertainties = uncertainties.map(|rows| read_uncertainties(&rows, &graph, &platform)).transpose()?;
    let facts = Facts { time_unit, bytes_a_unit, figures, task_ids, uncertainties };
    Ok(LoadedProblem { name, graph, platform, costs, only_on, memory_rule, facts })
}

fn read_table(place: &str, rows: &Matrix, graph: &TaskGraph, platform: &Platform) -> Result<TimeTable, Refusal> {
    let (tasks, devices) = (graph.task_count(), platform.device_count());
    check_rows(place, rows, tasks, devices)?;
    Ok(TimeTable::from_fn(tasks, devices, |task, device| rows[task.index()][device.index()])?)
}

fn read_uncertainties(rows: &Matrix, graph: &TaskGraph, platform: &Platform) -> Result<TimeTable, Refusal> {
    if let Some(&value) = rows.iter().flatten().flatten().find(|factor| !(1.0..=f64::MAX).contains(*factor)) {
        let (place, expected) = ("uncertainties".into(), "finite and at least 1");
        return Err(Refusal::Number { place, value, expected });
    }
    read_table("uncertainties", rows, graph, platform)
}

/// Rejects a matrix that does not have `rows` × `columns` entries.
fn check_rows<T>(place: &str, matrix: &[Vec<T>], rows: usize, columns: usize) -> Result<(), Refusal> {
    if matrix.len() != rows {
        return Err(Refusal::Length { place: place.into(), found: matrix.len(), expected: rows });
    }
    match matrix.iter().enumerate().find(|(_, row)| row.len() != columns) {
        Some((number, row)) => {
            Err(Refusal::Length { place: format!("{place}[{number}]"), found: row.len(), expected: columns })
        }
        None => Ok(()),
    }
}

fn read_graph(part: GraphPart) -> Result<TaskGraph, Refusal> {
    let mut builder = GraphBuilder::new();
    for task in part.tasks {
        builder.task(task);
    }
    // The builder rejects ids that are out of range.
    for DatumPart { producer, bytes, consumers } in part.data {
        let datum = builder.datum(producer, bytes);
        consumers.into_iter().for_each(|consumer| builder.consume(datum, consumer));
    }
    for group in &part.colocated {
        group.windows(2).for_each(|pair| builder.colocate(pair[0], pair[1]));
    }
    Ok(builder.build()?)
}

fn read_platform(part: PlatformPart) -> Result<Platform, Refusal> {
    if let Some(network) = part.network {
        if part.latency.is_some() || part.rate.is_some() {
            let (place, name) = ("platform.network".into(), "latency or rate".into());
            return Err(Refusal::Twice { place, what: "definition of", name });
        }
        return network::read(part.devices, network);
    }
    let count = part.devices.len();
    for (place, matrix) in [("platform.latency", &part.latency), ("platform.rate", &part.rate)] {
        if let Some(rows) = matrix {
            check_rows(place, rows, count, count)?;
        }
    }
    let entry = |matrix: &Option<Matrix>, from: DeviceId, to: DeviceId| {
        matrix.as_ref().and_then(|rows| rows[from.index()][to.index()])
    };
    Ok(Platform::new(part.devices, |from, to| {
        (entry(&part.latency, from, to).unwrap_or(0.0), entry(&part.rate, from, to).unwrap_or(f64::INFINITY))
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{DatumId, Task, TaskId};
    use crate::platform::{DeviceKind, DeviceKinds};
    use crate::problem::MemoryRule;

    const EXAMPLE: &str = include_str!("../../tests/data/formats/example.json");

    fn problem(text: &str) -> LoadedProblem {
        match parse("file", text.as_bytes()).unwrap() {
            Loaded::Problems(mut problems) => problems.remove(0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_example_is_read_as_the_table_says() {
        let loaded = problem(EXAMPLE);
        assert_eq!((loaded.name.as_str(), loaded.facts.time_unit.as_deref()), ("example", Some("s")));
        assert_eq!(loaded.facts.figures["measured makespan"], 0.0061);
        let (graph, platform) = (&loaded.graph, &loaded.platform);
        assert_eq!(graph.task(TaskId(0)), &Task::new("input").with_pin(DeviceId(0)));
        let matmul = graph.task(TaskId(1));
        assert_eq!((matmul.memory, matmul.operations), (4_194_304, 2e9));
        assert_eq!(matmul.allowed, DeviceKinds::CPU.union(DeviceKinds::GPU));
        assert_eq!((graph.bytes(DatumId(0)), graph.consumers(DatumId(0))), (1_048_576, &[TaskId(1)][..]));
        assert_eq!((platform.device(DeviceId(1)).kind, platform.device(DeviceId(1)).speed), (DeviceKind::Gpu, 1.0));
        assert_eq!(platform.latency(DeviceId(0), DeviceId(1)), 1e-5);
        let problem = loaded.problem().unwrap();
        assert_eq!((problem.time(TaskId(1), DeviceId(1)), problem.memory_rule()), (2e-4, MemoryRule::Resident));
        assert_eq!(problem.time(TaskId(0), DeviceId(1)), f64::INFINITY);
    }

    #[test]
    fn parts_stand_alone() {
        let graph = "{\"format\": \"anabranch-problem\", \"version\": 1, \"graph\": {\"tasks\": [{\"name\": \"a\"}]}}";
        assert!(
            matches!(parse("file", graph.as_bytes()), Ok(Loaded::Graph(graph)) if graph.name == "file" && graph.graph.task_count() == 1)
        );
        let platform = "{\"format\": \"anabranch-problem\", \"version\": 1, \"platform\": {\"devices\": [{\"name\": \"d\", \
                        \"kind\": \"cpu\"}, {\"name\": \"e\", \"kind\": \"other\"}]}}";
        let Ok(Loaded::Platform(platform)) = parse("file", platform.as_bytes()) else { panic!() };
        assert_eq!(platform.rate(DeviceId(0), DeviceId(1)), f64::INFINITY);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("\"version\": 1", "\"version\": 2", "version 2"),
            ("\"format\": \"anabranch-problem\"", "\"format\": \"other\"", "other"),
            ("\"time_unit\"", "\"timeunit\"", "unknown field `timeunit`"),
            ("\"pinned\": 0", "\"pinned\": -1", "line 7"),
            ("\"consumers\": [1]", "\"consumers\": [2]", "task 2 is used"),
            ("\"consumers\": [1]", "\"consumers\": [0]", "cycle"),
            ("[[0.0, 1e-5], [1e-5, 0.0]]", "[[0.0, 1e-5], [1e-5]]", "platform.latency[1] has 1 entries"),
            ("[[null, 1e10], [1e10, null]]", "[[null, 0], [1e10, null]]", "rate 0"),
            ("[[0.0, null], [5e-3, 2e-4]]", "[[0.0, null]]", "times has 1 entries"),
            ("[5e-3, 2e-4]]", "[5e-3, -1]]", "task 1 has the time -1"),
            ("\"memory_rule\"", "\"uncertainties\": [[1, 0.5], [null, 2]], \"memory_rule\"", "uncertainties is 0.5"),
            ("\"memory_rule\"", "\"uncertainties\": [[1, 1]], \"memory_rule\"", "uncertainties has 1 entries"),
            ("\"resident\"", "\"none\"", "unknown variant `none`"),
            ("\"bytes_a_unit\": 1.0", "\"bytes_a_unit\": 0", "bytes_a_unit is 0"),
            ("[\"cpu\", \"gpu\"]", "[]", "allows no kind"),
            (EXAMPLE, "{\"format\": \"anabranch-problem\", \"version\": 1, \"times\": []}", "no platform"),
        ];
        for (from, to, expected) in cases {
            assert!(EXAMPLE.contains(from), "{from}");
            let error = parse("file", EXAMPLE.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
