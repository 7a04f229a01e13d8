//! ONNX's tensor messages, one a file, and the folders `test_data_set_0` of the standard's tests: `input_0.pb`, `output_0.pb` and so on.

use super::{Label, Named, Role, TensorFileError, Wanted};
use anabranch::{files, import};
use anabranch_kernels::Tensor;
use std::path::Path;

/// Tensors of a folder that are read at most.
const MOST: usize = 10_000;

/// The tensor in a file, if it is wanted.
pub(super) fn read(path: &Path, label: Label<'_>, wanted: &mut Wanted<'_>) -> Result<Option<(String, Tensor)>, String> {
    let constant = import::tensor_in_file(path).map_err(|error| error.reason().to_owned())?;
    let Some(name) = wanted(label, constant.spec())? else { return Ok(None) };
    Ok(Some((name, constant.load().map_err(|error| error.to_string())?)))
}

/// The wanted tensors of a folder, which must hold one of this role.
pub(super) fn read_folder(folder: &Path, role: Role, wanted: &mut Wanted<'_>) -> Result<Named, TensorFileError> {
    let prefix = if role == Role::Input { "input" } else { "output" };
    let files = (0..MOST).map(|at| (at, folder.join(format!("{prefix}_{at}.pb"))));
    let mut named = Vec::new();
    let mut any = false;
    for (at, file) in files.take_while(|(_, file)| file.exists()) {
        any = true;
        let tensor = read(&file, Label::Numbered(at), wanted);
        named.extend(tensor.map_err(|reason| TensorFileError { file, reason })?);
    }
    match any || (role == Role::Input && folder.join("output_0.pb").exists()) {
        true => Ok(named),
        false => {
            let reason = format!("is a folder without {prefix}_0.pb; name one like the standard's test_data_set_0");
            Err(TensorFileError { file: folder.to_owned(), reason })
        }
    }
}

/// Writes a tensor, whole or not at all.
pub(super) fn write(path: &Path, name: &str, tensor: &Tensor) -> Result<(), String> {
    let bytes = import::tensor_to_bytes(name, tensor).map_err(|error| error.reason().to_owned())?;
    files::write(path, |file| file.write_all(&bytes)).map_err(|error| error.to_string())
}
