//! Model files and their inputs.

use crate::turns::Failure;
use anabranch::import::Dim;
use anabranch::session::random_tensor;
use anabranch::{Inputs, Session};
use anabranch_kernels::{Shape, TensorSpec};
use anabranch_report::npy::read_npz;
use std::path::{Path, PathBuf};

/// Returns the `.onnx` files of a directory, by name.
///
/// # Errors
/// If the directory cannot be read or has no such file.
pub fn models(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refuse = |why: &str| format!("{}: {why}; name a directory with models", directory.display());
    let entries = std::fs::read_dir(directory).map_err(|error| refuse(&error.to_string()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "onnx"));
    files.sort();
    if files.is_empty() { Err(refuse("no .onnx files").into()) } else { Ok(files) }
}

/// Returns a model's inputs in the `.npz` next to it, members `in__NAME`; `None` if there is no such file.
///
/// # Errors
/// If the file cannot be read.
pub fn inputs_beside(model: &Path) -> Result<Option<Inputs>, Failure> {
    let file = model.with_extension("npz");
    if !file.exists() {
        return Ok(None);
    }
    Ok(Some(read_npz(&file)?.into_iter().fold(Inputs::new(), |inputs, (key, tensor)| match key.strip_prefix("in__") {
        Some(name) => inputs.tensor(name, tensor),
        None => inputs,
    })))
}

/// Adds random tensors to the given inputs; all sizes that the model leaves open are `size`.
///
/// # Errors
/// If the model does not declare the type of an input, or its size overflows.
pub fn with_random(session: &Session, given: Inputs, size: usize, seed: u64) -> Result<Inputs, Failure> {
    let mut inputs = given.clone();
    for input in session.inputs().iter().filter(|input| !input.is_optional() && given.find(input.name()).is_none()) {
        let size = |dim: &Dim| match dim {
            Dim::Known(size) => *size,
            Dim::Symbol(_) | Dim::Unknown => size,
        };
        let dims: Vec<usize> = input.dims().into_iter().flatten().map(size).collect();
        let dtype = input.dtype().ok_or_else(|| format!("the model does not say of which type {input} is"))?;
        let spec = TensorSpec::new(dtype, Shape::new(dims)?);
        let tensor = random_tensor(input.name(), &spec, seed).ok_or_else(|| format!("no memory for {input}"))?;
        inputs = inputs.tensor(input.name(), tensor);
    }
    Ok(inputs)
}
