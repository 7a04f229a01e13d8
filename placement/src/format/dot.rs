//! Graphs as DOT, for Graphviz.

use super::WriteError;
use crate::graph::TaskGraph;
use std::io::Write;

/// Writes `graph`: a node for each task, an edge for each use of a datum with its bytes.
///
/// # Errors
/// Returns an error if the target fails.
pub fn write_graph(graph: &TaskGraph, mut target: impl Write) -> Result<(), WriteError> {
    writeln!(target, "digraph tasks {{\n  node [shape=box, style=filled, fillcolor=white];")?;
    for id in graph.task_ids() {
        writeln!(target, "  t{} [label=\"{}\"];", id.0, escaped(&graph.task(id).name))?;
    }
    for datum in graph.datum_ids() {
        let (producer, bytes) = (graph.producer(datum).0, graph.bytes(datum));
        for consumer in graph.consumers(datum) {
            writeln!(target, "  t{producer} -> t{} [label=\"{bytes}\"];", consumer.0)?;
        }
    }
    writeln!(target, "}}")?;
    Ok(target.flush()?)
}

/// Escapes `text` for a quoted DOT string.
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

    #[test]
    fn graphs_are_written_with_their_names_escaped() {
        let mut builder = GraphBuilder::new();
        let [a, b, c] = ["say \"hi\"\\\n", "b", "c"].map(|name| builder.task(Task::new(name)));
        builder.edge(a, b, 5);
        builder.edge(a, c, 7);
        let mut plain = Vec::new();
        write_graph(&builder.build().unwrap(), &mut plain).unwrap();
        let plain = String::from_utf8(plain).unwrap();
        assert!(plain.contains("  t0 [label=\"say \\\"hi\\\"\\\\\\n\"];\n"), "{plain}");
        assert!(plain.contains("  t0 -> t2 [label=\"7\"];\n"), "{plain}");
    }
}
