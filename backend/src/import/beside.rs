//! Which files beside a model hold its tensors: for whoever must know all that a model consists of.

use super::error::{ImportError, Result};
use super::external::Region;
use super::proto::{self, GraphProto, Reader, TensorProto};
use super::{Limits, open};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files in the directory of the model in `path` that hold tensors of it, relative to that, without repeats.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, or names files that a model may not.
pub fn data_files(path: &Path) -> Result<BTreeSet<PathBuf>> {
    let limits = Limits::default();
    let found = open(path, &limits).and_then(|file| {
        let model = proto::read(Reader::of_file(&file), &limits)?;
        let mut found = BTreeSet::new();
        model.graph.iter().try_for_each(|graph| add(graph, &mut found))?;
        Ok(found)
    });
    found.map_err(|error: ImportError| error.in_file(path))
}

/// Subgraphs are as deep as the limits admit.
fn add(graph: &GraphProto, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    let sparse = graph.sparse_initializer.iter().flat_map(|sparse| sparse.values.iter().chain(&sparse.indices));
    let attributes = || graph.node.iter().flat_map(|node| &node.attribute);
    let tensors = attributes().filter_map(|attribute| attribute.t.as_deref());
    for tensor in graph.initializer.iter().chain(sparse).chain(tensors) {
        found.extend(file_of(tensor)?);
    }
    let graphs = attributes().flat_map(|attribute| attribute.g.as_deref().into_iter().chain(&attribute.graphs));
    graphs.into_iter().try_for_each(|graph| add(graph, found))
}

fn file_of(tensor: &TensorProto) -> Result<Option<PathBuf>> {
    match tensor.data_location {
        1 => Ok(Some(Region::parse(&tensor.external_data, 0)?.0.into_path())),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_a_model_are_found() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
        let found = data_files(&data.join("mlp_external.onnx")).expect("sound");
        assert!(found.into_iter().eq([PathBuf::from("mlp_external.data")]));
        assert!(data_files(&data.join("mlp.onnx")).expect("sound").is_empty());
        assert!(data_files(&data.join("mlp_external.data")).is_err());
    }
}
