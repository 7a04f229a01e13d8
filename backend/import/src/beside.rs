//! Lists the files that hold a model's tensors, for callers that must know all files of a model.

use super::error::{ImportError, Result};
use super::external::Region;
use super::proto::{self, AttributeProto, GraphProto, Reader, SparseTensorProto, TensorProto};
use super::{Limits, open};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the files in the directory of the model in `path` that hold its tensors, relative to that directory, without
/// repeats.
///
/// # Errors
/// If the file cannot be read, exceeds these limits, is not an ONNX model, or names files that a model must not name.
pub fn data_files(path: &Path, limits: &Limits) -> Result<BTreeSet<PathBuf>> {
    let found = open(path, limits).and_then(|file| {
        let model = proto::read(Reader::of_file(&file), limits)?;
        let mut found = BTreeSet::new();
        model.graph.iter().try_for_each(|graph| add(graph, &mut found))?;
        for function in &model.functions {
            add_attributes(&function.attribute_proto, &mut found)?;
            function.node.iter().try_for_each(|node| add_attributes(&node.attribute, &mut found))?;
        }
        Ok(found)
    });
    found.map_err(|error: ImportError| error.in_file(path))
}

/// Adds the files of a graph. Recursion is as deep as the limits allow subgraphs.
fn add(graph: &GraphProto, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    graph.initializer.iter().try_for_each(|tensor| add_file(tensor, found))?;
    graph.sparse_initializer.iter().try_for_each(|sparse| add_sparse(sparse, found))?;
    graph.node.iter().try_for_each(|node| add_attributes(&node.attribute, found))
}

fn add_attributes(attributes: &[AttributeProto], found: &mut BTreeSet<PathBuf>) -> Result<()> {
    for attribute in attributes {
        attribute.t.iter().try_for_each(|tensor| add_file(tensor, found))?;
        attribute.sparse_tensor.iter().try_for_each(|sparse| add_sparse(sparse, found))?;
        attribute.g.as_deref().into_iter().chain(&attribute.graphs).try_for_each(|graph| add(graph, found))?;
    }
    Ok(())
}

fn add_sparse(sparse: &SparseTensorProto, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    sparse.values.iter().chain(&sparse.indices).try_for_each(|tensor| add_file(tensor, found))
}

fn add_file(tensor: &TensorProto, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    found.extend(file_of(tensor)?);
    Ok(())
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
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
        let data_files = |path: &Path| super::data_files(path, &Limits::default());
        let found = data_files(&data.join("mlp_external.onnx")).expect("sound");
        assert!(found.into_iter().eq([PathBuf::from("mlp_external.data")]));
        assert!(data_files(&data.join("mlp.onnx")).expect("sound").is_empty());
        assert!(data_files(&data.join("mlp_external.data")).is_err());
        let narrow = Limits { nodes: 1, ..Limits::default() };
        let refused = super::data_files(&data.join("mlp.onnx"), &narrow).expect_err("more nodes");
        assert_eq!(refused.limit_name(), Some("nodes"));
    }
}
