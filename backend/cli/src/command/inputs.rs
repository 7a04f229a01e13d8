//! The input tensors that the command line names.

use super::CliError;
use super::args::ModelArgs;
use crate::npy::{read_npy, read_npz};
use anabranch_kernels::Tensor;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads all `--input` arguments. Names are the model's; in archives a prefix `in__` is ignored, and members `out__…`
/// (reference outputs kept beside the inputs) are passed over.
pub(crate) fn read_inputs(args: &ModelArgs, names: &[String]) -> Result<BTreeMap<String, Tensor>, CliError> {
    let mut inputs = BTreeMap::new();
    let mut add = |file: &str, name: &str, tensor: Tensor| {
        if !names.iter().any(|known| known == name) {
            let known = names.join(", ");
            let message = format!("{file} gives `{name}`, which is no input of the model; its inputs are: {known}");
            return Err(CliError::input(message));
        }
        inputs.insert(name.to_owned(), tensor);
        Ok(())
    };
    for argument in &args.input {
        match argument.split_once('=') {
            Some((name, file)) => add(file, name, read_npy(Path::new(file))?)?,
            None if argument.ends_with(".npz") => {
                for (name, tensor) in read_npz(Path::new(argument))? {
                    if !name.starts_with("out__") || names.contains(&name) {
                        add(argument, name.strip_prefix("in__").unwrap_or(&name), tensor)?;
                    }
                }
            }
            None => {
                return Err(CliError::input(format!(
                    "--input {argument}: write NAME={argument} to say which input it is, or give an .npz file"
                )));
            }
        }
    }
    Ok(inputs)
}
