//! Canonical task graphs as JSON.
//!
//! ```json
//! {
//! "nodes": [
//!   {"id": 0, "in": null, "out": 32, "pseudo": true},
//!   {"id": 1, "in": 32, "out": 4},
//!   {"id": 2, "in": 4, "out": null}
//! ],
//! "edges": [[0, 1, 32], [1, 2, 4]]
//! }
//! ```
//!
//! A node without `in` is a source, a node without `out` is a sink. `"pseudo": true` marks memory that the graph reads
//! from or writes to, `"buffer": true` marks memory inside the graph; both become buffers. Other members are ignored,
//! because files of this form often also hold results.

use super::{CanonicalError, CanonicalGraph, CanonicalGraphBuilder, Node, NodeId};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Document {
    nodes: Vec<NodePart>,
    edges: Vec<(u64, u64, u64)>,
}

#[derive(Deserialize)]
struct NodePart {
    id: u64,
    #[serde(rename = "in")]
    input: Option<u64>,
    #[serde(rename = "out")]
    output: Option<u64>,
    #[serde(default)]
    pseudo: bool,
    #[serde(default)]
    buffer: bool,
}

impl NodePart {
    fn node(&self) -> Node {
        let (name, given) = (self.id.to_string(), |volume: Option<u64>| volume.unwrap_or(0));
        match (self.input, self.output) {
            (input, output) if self.pseudo || self.buffer => Node::buffer(name, given(input), given(output)),
            (None, output) => Node::source(name, given(output)),
            (Some(input), None) => Node::sink(name, input),
            (Some(input), Some(output)) => Node::task(name, input, output),
        }
    }
}

/// Parses a graph. Nodes are named by their ids, and keep the order of the file.
///
/// # Errors
/// Returns an error for content that is not JSON of this form, or not a canonical task graph.
pub fn parse_canonical(bytes: &[u8]) -> Result<CanonicalGraph, CanonicalError> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| CanonicalError::new(format!("it is not a canonical task graph in JSON: {error}")))?;
    let mut builder = CanonicalGraphBuilder::new();
    let places: BTreeMap<u64, NodeId> =
        document.nodes.iter().map(|part| (part.id, builder.node(part.node()))).collect();
    for (edge, &(from, to, volume)) in document.edges.iter().enumerate() {
        let place =
            |id: u64| places.get(&id).copied().ok_or_else(|| CanonicalError::unknown_node(edge, &id.to_string()));
        builder.edge_of(place(from)?, place(to)?, volume);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::NodeKind;

    #[test]
    fn ends_without_volumes_are_sources_sinks_or_memory() {
        let text = r#"{"id": "any", "nodes": [{"id": 7, "in": null, "out": 32, "pseudo": true}, {"id": 3, "out": 32},
            {"id": 1, "in": 32, "out": 4, "pseudo": false}, {"id": 4, "in": 4, "out": 8, "buffer": true}, {"id": 2, "in": 8}],
            "edges": [[7, 1, 32], [3, 1, 32], [1, 4, 4], [4, 2, 8]]}"#;
        let graph = parse_canonical(text.as_bytes()).unwrap();
        use NodeKind::*;
        let kinds: Vec<(&str, NodeKind)> = graph.nodes().iter().map(|node| (node.name(), node.kind())).collect();
        assert_eq!(kinds, [("7", Buffer), ("3", Source), ("1", Downsampler), ("4", Buffer), ("2", Sink)]);
        let refused = |text: &str| parse_canonical(text.as_bytes()).unwrap_err().to_string();
        assert!(refused(r#"{"nodes": []}"#).contains("missing field `edges`"));
        assert!(refused(r#"{"nodes": [], "edges": [[1, 2, 3]]}"#).contains("node \"1\", which does not exist"));
    }
}
