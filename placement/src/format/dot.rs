//! Graphs as DOT, for Graphviz, coloured by device where there is a placement.

use super::WriteError;
use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceId, Platform};
use std::io::Write;

/// Fill colours of devices, light enough for black text; used again from the start where there are more devices.
const COLOURS: [&str; 12] = [
    "#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffff99", "#8dd3c7", "#fccde5", "#d9d9d9", "#80b1d3",
    "#ccebc5", "#bebada",
];

/// Writes `graph`: a node for each task, an edge for each use of a datum with its bytes.
///
/// # Errors
/// A target that fails.
pub fn write_graph(graph: &TaskGraph, target: impl Write) -> Result<(), WriteError> {
    write(graph, target, &|_| None)
}

/// Writes `graph` with task `t` in the colour of device `device_of[t]` and with its name. Edges that cross devices are bold.
///
/// # Errors
/// A target that fails, or a placement that does not have one device of `platform` for each task.
pub fn write_placement(
    graph: &TaskGraph,
    platform: &Platform,
    device_of: &[DeviceId],
    target: impl Write,
) -> Result<(), WriteError> {
    let known = device_of.iter().filter(|&&device| platform.contains(device)).count();
    if device_of.len() != graph.task_count() || known != device_of.len() {
        return Err(WriteError::Placement { tasks: graph.task_count(), given: known });
    }
    write(graph, target, &|task| {
        let device = device_of[task.index()];
        Some((device, platform.device(device).name.as_str()))
    })
}

fn write<'a>(
    graph: &TaskGraph,
    mut target: impl Write,
    device: &dyn Fn(TaskId) -> Option<(DeviceId, &'a str)>,
) -> Result<(), WriteError> {
    writeln!(target, "digraph tasks {{\n  node [shape=box, style=filled, fillcolor=white];")?;
    for (task, id) in graph.tasks().iter().zip(graph.task_ids()) {
        let name = escaped(&task.name);
        match device(id) {
            None => writeln!(target, "  t{} [label=\"{name}\"];", id.0)?,
            Some((device, device_name)) => {
                let (label, colour) = (escaped(device_name), COLOURS[device.index() % COLOURS.len()]);
                writeln!(target, "  t{} [label=\"{name}\\n{label}\", fillcolor=\"{colour}\"];", id.0)?;
            }
        }
    }
    for datum in graph.datum_ids() {
        let producer = graph.producer(datum);
        for &consumer in graph.consumers(datum) {
            let crosses = device(producer).map(|(from, _)| from) != device(consumer).map(|(to, _)| to);
            let style = if crosses { ", style=bold" } else { "" };
            writeln!(target, "  t{} -> t{} [label=\"{}\"{style}];", producer.0, consumer.0, graph.bytes(datum))?;
        }
    }
    writeln!(target, "}}")?;
    Ok(target.flush()?)
}

/// `text` inside a quoted DOT string.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            '\n' => escaped.push_str("\\n"),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};

    fn graph() -> TaskGraph {
        let mut builder = GraphBuilder::new();
        let [a, b, c] = ["say \"hi\"\\\n", "b", "c"].map(|name| builder.task(Task::new(name)));
        builder.edge(a, b, 5);
        builder.edge(a, c, 7);
        builder.build().unwrap()
    }

    #[test]
    fn graphs_and_placements_are_written_with_their_names_escaped() {
        let mut plain = Vec::new();
        write_graph(&graph(), &mut plain).unwrap();
        let plain = String::from_utf8(plain).unwrap();
        assert!(plain.contains("  t0 [label=\"say \\\"hi\\\"\\\\\\n\"];\n"), "{plain}");
        assert!(plain.contains("  t0 -> t2 [label=\"7\"];\n"), "{plain}");

        let platform = Platform::uniform(vec![Device::new("d\"", DeviceKind::Cpu); 2], 0.0, 1.0).unwrap();
        let mut placed = Vec::new();
        write_placement(&graph(), &platform, &[0, 0, 1].map(DeviceId), &mut placed).unwrap();
        let placed = String::from_utf8(placed).unwrap();
        assert!(placed.contains("t2 [label=\"c\\nd\\\"\", fillcolor=\"#fdbf6f\"]"), "{placed}");
        assert!(placed.contains("t0 -> t1 [label=\"5\"];") && placed.contains("t0 -> t2 [label=\"7\", style=bold];"));
    }

    #[test]
    fn placements_that_do_not_fit_are_refused() {
        let platform = Platform::uniform(vec![Device::new("d", DeviceKind::Cpu)], 0.0, 1.0).unwrap();
        for devices in [&[0, 0][..], &[0, 0, 1]] {
            let devices: Vec<DeviceId> = devices.iter().copied().map(DeviceId).collect();
            assert!(write_placement(&graph(), &platform, &devices, Vec::new()).is_err());
        }
    }
}
