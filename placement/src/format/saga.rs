//! Problem instances of SAGA and DAGBench: JSON of a task graph and a network.
//!
//! ```json
//! {"name": "two",
//!  "task_graph": {"tasks": [{"name": "A", "cost": 10}, {"name": "B", "cost": 20}],
//!                 "dependencies": [{"source": "A", "target": "B", "size": 5}]},
//!  "network": {"nodes": [{"name": "0", "speed": 1}, {"name": "1", "speed": 2}],
//!              "edges": [{"source": "0", "target": "1", "speed": 100}, {"source": "0", "target": "0", "speed": null}]}}
//! ```
//!
//! A task takes cost over speed, a dependency size over the speed of the edge between two nodes, in either direction.
//! `null` is an edge without limit. Edges from a node to itself are not used. Each two different nodes need an edge of
//! a speed above 0: SAGA gives 0 to those without one. Nodes become CPU devices without memory limits, and fractional
//! sizes are scaled to whole bytes, see [`Facts::bytes_a_unit`](super::Facts).

use super::detect::without_byte_order_mark;
use super::schedulers::{Dependency, Link, Members, Node, Related, RelatedTask, related_problem};
use super::{LoadedProblem, Refusal};
use serde::Deserialize;

#[derive(Deserialize)]
struct Instance {
    name: Option<String>,
    task_graph: TaskGraphPart,
    network: NetworkPart,
}

#[derive(Deserialize)]
struct TaskGraphPart {
    tasks: Vec<RelatedTask>,
    dependencies: Vec<DependencyPart>,
}

#[derive(Deserialize)]
struct DependencyPart {
    source: String,
    target: String,
    size: f64,
}

#[derive(Deserialize)]
struct NetworkPart {
    nodes: Vec<Node>,
    edges: Vec<EdgePart>,
}

#[derive(Deserialize)]
struct EdgePart {
    source: String,
    target: String,
    speed: Option<f64>,
}

/// Parses an instance; `name` is used if it has no name.
///
/// # Errors
/// Returns an error for JSON of another structure, names that are undefined or repeated, missing edges, or numbers out
/// of range.
pub fn parse(name: &str, bytes: &[u8]) -> Result<LoadedProblem, Refusal> {
    let Instance { name: own, task_graph, network } = serde_json::from_slice(without_byte_order_mark(bytes))?;
    let dependency = |DependencyPart { source, target, size }| Dependency { src: source, dst: target, size };
    let link =
        |EdgePart { source, target, speed }| Link { a: source, b: target, speed: speed.unwrap_or(f64::INFINITY) };
    let related = Related {
        tasks: task_graph.tasks,
        deps: task_graph.dependencies.into_iter().map(dependency).collect(),
        nodes: network.nodes,
        links: network.edges.into_iter().map(link).collect(),
    };
    let members = Members { deps: "task_graph.dependencies", links: "network.edges" };
    related_problem(own.as_deref().unwrap_or(name), &related, members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Loaded, parse as parse_any};
    use crate::graph::TaskId;
    use crate::platform::DeviceId;

    const DIAMOND: &str = include_str!("../../tests/data/formats/saga.json");

    /// The times of the file: cost over speed, size over speed of an edge in both directions.
    #[test]
    fn an_instance_is_a_problem() {
        let Loaded::Problems(problems) = parse_any("file", DIAMOND.as_bytes()).unwrap() else { panic!() };
        let problem = problems[0].problem().unwrap();
        assert_eq!((problems[0].name.as_str(), problem.graph().edge_count()), ("diamond", 4));
        assert_eq!([0, 1].map(|device| problem.time(TaskId(2), DeviceId(device))), [12.0, 6.0]);
        let bytes = problem.graph().bytes(problem.graph().outputs(TaskId(0))[0]);
        let transfer = |from, to| problem.transfer_time(bytes, DeviceId(from), DeviceId(to));
        assert_eq!([transfer(0, 1), transfer(1, 0), transfer(0, 2)], [1.25, 1.25, 0.0]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            (
                "\"target\": \"join\", \"size\": 1.5",
                "\"target\": \"end\", \"size\": 1.5",
                "diamond.task_graph.dependencies[2] names the task \"end\"",
            ),
            (
                "{\"source\": \"0\", \"target\": \"1\", \"speed\": 2}, ",
                "",
                "network.edges has 2 entries, but should have 3",
            ),
            ("\"target\": \"1\", \"speed\": 2", "\"target\": \"1\", \"speed\": 0", "rate 0"),
            ("\"target\": \"1\", \"speed\": 2", "\"target\": \"1\", \"speed\": 1e308", "network.edges[0].speed is 1"),
            ("\"cost\": 12", "\"cost\": -12", "-12 operations"),
            ("\"speed\": 1}", "\"speed\": 0}", "speed 0"),
            ("\"name\": \"left\"", "\"name\": \"split\"", "the task \"split\" occurs twice"),
            ("\"size\": 2.5", "\"size\": -2.5", "-2.5"),
            ("\"dependencies\"", "\"edges\"", "missing field `dependencies`"),
            ("\"source\": \"left\"", "\"source\": \"join\"", "cycle"),
        ];
        for (from, to, expected) in cases {
            assert!(DIAMOND.contains(from), "{from}");
            let error = parse("file", DIAMOND.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
