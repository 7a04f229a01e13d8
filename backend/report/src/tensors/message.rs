//! ONNX's messages, each with a tensor, a sequence or an optional. Also folders such as `test_data_set_0` of the ONNX
//! tests, which hold `input_0.pb`, `output_0.pb` and so on.

use super::{Kinds, Label, Named, Role, TensorFileError, Wanted};
use anabranch::constant::Constant;
use anabranch::{Item, Kind, Part, files, import};
use anabranch_kernels::Tensor;
use std::path::Path;

/// Most tensors of a folder.
const MOST: usize = 10_000;

/// Reads the wanted part of a file: a tensor, or the parts of a sequence or an optional.
pub(super) fn read(path: &Path, label: Label<'_>, kind: Kind, wanted: &mut Wanted<'_>) -> Result<Named, String> {
    let mut named = Named::new();
    let mut take = |label: Label<'_>, constant: &Constant| -> Result<(), String> {
        let Some(name) = wanted(label, constant.spec())? else { return Ok(()) };
        named.push((name, constant.load().map_err(|error| error.to_string())?));
        Ok(())
    };
    let mark = || Constant::from(Tensor::from_i64s(&[]));
    match import::item_in_file(path, kind).map_err(|error| error.reason().to_owned())? {
        Item::Tensor(constant) => take(label, &constant)?,
        Item::Absent => take(Label::Part(&label, Part::Absent), &mark())?,
        Item::Sequence(elements) if elements.is_empty() => take(Label::Part(&label, Part::Empty), &mark())?,
        Item::Sequence(elements) => {
            let mut numbered = elements.iter().enumerate();
            numbered.try_for_each(|(at, element)| take(Label::Part(&label, Part::Element(at)), element))?;
        }
    }
    Ok(named)
}

/// Reads the wanted tensors of a folder, which must hold a tensor of this role.
pub(super) fn read_folder(
    folder: &Path,
    role: Role,
    kinds: &Kinds<'_>,
    wanted: &mut Wanted<'_>,
) -> Result<Named, TensorFileError> {
    let prefix = if role == Role::Input { "input" } else { "output" };
    let files = (0..MOST).map(|at| (at, folder.join(format!("{prefix}_{at}.pb"))));
    let mut named = Vec::new();
    let mut any = false;
    for (at, file) in files.take_while(|(_, file)| file.exists()) {
        any = true;
        let own = read(&file, Label::Numbered(at), kinds(Label::Numbered(at)), wanted);
        named.extend(own.map_err(|reason| TensorFileError { file, reason })?);
    }
    match any || (role == Role::Input && folder.join("output_0.pb").exists()) {
        true => Ok(named),
        false => {
            let reason =
                format!("is a folder without {prefix}_0.pb; name one like test_data_set_0 of the ONNX node tests");
            Err(TensorFileError { file: folder.to_owned(), reason })
        }
    }
}

/// Writes a tensor, atomically.
pub(super) fn write(path: &Path, name: &str, tensor: &Tensor) -> Result<(), String> {
    let bytes = import::tensor_to_bytes(name, tensor).map_err(|error| error.reason().to_owned())?;
    files::write(path, |file| file.write_all(&bytes)).map_err(|error| error.to_string())
}
