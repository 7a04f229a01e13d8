//! Input tensors from the command line.

use super::args::ModelArgs;
use super::{CliError, images};
use anabranch::import::Dim;
use anabranch::session::{Inputs, Session, ValueInfo};
use anabranch::{Kind, Part, did_you_mean};
use anabranch_kernels::{Tensor, TensorSpec};
use anabranch_placement::quoted::Name;
use anabranch_report::tensors::picture::{Prepared, Preprocessing, Target, is_image};
use anabranch_report::tensors::{self, Form, Label, Role};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Reads all `--input` arguments, otherwise the `folder` of a test.
///
/// Names are the model's. In archives a prefix `in__` is ignored, and members `out__…` (reference outputs stored with
/// the inputs) are skipped. No element is read before type, shape and size are checked.
pub(crate) fn read_inputs(args: &ModelArgs, folder: Option<&Path>, session: &Session) -> Result<Inputs, CliError> {
    let mut given = Given::default();
    if let Some(folder) = folder.filter(|_| args.input.is_empty()) {
        return read_file(None, folder, session, given).map(|given| given.inputs);
    }
    for argument in &args.input {
        let (name, file) = named(argument);
        if !is_image(file) {
            given = read_file(name, file, session, given)?;
        }
    }
    args.images.check(args.has_images())?;
    for (name, files) in image_files(args, session)? {
        given.claim(&name, place(&files[0], Label::Only)).map_err(|reason| CliError::in_file(&files[0], reason))?;
        let (tensor, images) = read_images(args, &name, &files, session, &given.inputs)?;
        images::tell(&name, &images);
        given.inputs = given.inputs.tensor(&name, tensor);
    }
    Ok(given.inputs)
}

/// Inputs from some files, with the source of each.
#[derive(Default)]
pub(super) struct Given {
    pub(super) inputs: Inputs,
    from: BTreeMap<String, String>,
}

impl Given {
    /// Notes the source of an input.
    ///
    /// # Errors
    /// If another source has given it, because it is unclear which was meant.
    fn claim(&mut self, name: &str, place: String) -> Result<(), String> {
        match self.from.get(name) {
            Some(first) => {
                Err(format!("input `{name}` is given twice, by {first} and by {place}; leave out one of them"))
            }
            None => {
                self.from.insert(name.to_owned(), place);
                Ok(())
            }
        }
    }
}

/// Splits `NAME=FILE`. If the whole argument is the path of an existing file, which may contain `=`, it is the file.
pub(super) fn named(argument: &OsStr) -> (Option<&str>, &Path) {
    match split(argument) {
        Some((name, file)) if !Path::new(argument).exists() => (Some(name), Path::new(file)),
        _ => (None, Path::new(argument)),
    }
}

/// Splits an argument at the first `=`. The second part need not be UTF-8.
#[cfg(unix)]
fn split(argument: &OsStr) -> Option<(&str, &OsStr)> {
    use std::os::unix::ffi::OsStrExt;
    let at = argument.as_bytes().iter().position(|byte| *byte == b'=')?;
    Some((str::from_utf8(&argument.as_bytes()[..at]).ok()?, OsStr::from_bytes(&argument.as_bytes()[at + 1..])))
}

#[cfg(not(unix))]
fn split(argument: &OsStr) -> Option<(&str, &OsStr)> {
    argument.to_str()?.split_once('=').map(|(name, file)| (name, OsStr::new(file)))
}

/// Adds the inputs of a file of tensors.
pub(super) fn read_file(
    name: Option<&str>,
    file: &Path,
    session: &Session,
    mut given: Given,
) -> Result<Given, CliError> {
    if let Some(name) = name.filter(|_| Form::of(file).is_some_and(Form::has_labels)) {
        let file = file.display();
        return Err(CliError::input(format!(
            "--input {name}={file}: the file names its inputs itself; leave out NAME="
        )));
    }
    let mut held: u64 = given.inputs.specs().map(|(_, spec)| taken(spec)).fold(0, u64::saturating_add);
    let input = |label: Label<'_>| input_of(name, file, session, label);
    let kinds = |label: Label<'_>| match input(label) {
        Ok(Some(name)) => session.input_info(&name).map_or_else(Kind::default, ValueInfo::kind),
        _ => Kind::default(),
    };
    let mut wanted = |label: Label<'_>, spec: &TensorSpec| {
        let Some(name) = input(label)? else { return Ok(None) };
        given.claim(&name, place(file, label))?;
        fits(session, &name, spec)?;
        // Earlier tensors of this file count, too.
        held = held.saturating_add(taken(spec));
        session.check_bytes(&name, held).map_err(|error| error.to_string())?;
        Ok(Some(name))
    };
    for (name, tensor) in tensors::read(file, Role::Input, &kinds, &mut wanted)? {
        given.inputs = given.inputs.tensor(&name, tensor);
    }
    Ok(given)
}

/// Returns the bytes of a tensor with its own overhead: a sequence may have many tensors without elements.
pub(super) fn taken(spec: &TensorSpec) -> u64 {
    (spec.bytes() + size_of::<Tensor>()) as u64
}

/// Returns the name of the input, or part of an input, that a tensor of a file belongs to; `None` for an output that is
/// stored with the inputs.
fn input_of(name: Option<&str>, file: &Path, session: &Session, label: Label<'_>) -> Result<Option<String>, String> {
    Ok(match (label, name) {
        (Label::Part(whole, part), _) => input_of(name, file, session, *whole)?.map(|name| format!("{name}{part}")),
        (Label::Named(member), _) if is_reference(session, member) => None,
        (Label::Named(member), _) => Some(own_name(session, member).to_owned()),
        (Label::Numbered(at), _) => Some(
            required(session).nth(at).ok_or("the model has fewer inputs than the folder has files")?.name().to_owned(),
        ),
        (Label::Only, Some(name)) => Some(name.to_owned()),
        (Label::Only, None) => Some(only(session, file)?),
    })
}

/// Returns the inputs that image files are for, each with its files in order.
fn image_files(args: &ModelArgs, session: &Session) -> Result<Vec<(String, Vec<PathBuf>)>, CliError> {
    let mut images: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for (name, file) in args.input.iter().map(|argument| named(argument)).filter(|(_, file)| is_image(file)) {
        let name = name.map_or_else(|| only(session, file), |name| Ok(name.to_owned()));
        let name = name.map_err(|reason| CliError::in_file(file, reason))?;
        match images.iter_mut().find(|(known, _)| *known == name) {
            Some((_, files)) => files.push(file.to_owned()),
            None => images.push((name, vec![file.to_owned()])),
        }
    }
    Ok(images)
}

/// Returns how the images of the only input of images are prepared; none if several inputs have images.
pub(super) fn images_of(args: &ModelArgs, session: &Session) -> Result<Vec<Prepared>, CliError> {
    match &image_files(args, session)?[..] {
        [(name, files)] => prepared(args, name, files, session),
        _ => Ok(Vec::new()),
    }
}

/// Returns how images of an input are prepared. Reads their sizes alone.
pub(super) fn prepared(
    args: &ModelArgs,
    name: &str,
    files: &[PathBuf],
    session: &Session,
) -> Result<Vec<Prepared>, CliError> {
    let preprocessing = args.images.preprocessing()?;
    target(args, name, &files[0], session, &preprocessing)?.prepared(files).map_err(CliError::input)
}

/// Returns the images that an input takes. `file` is the first of them.
fn target<'p>(
    args: &ModelArgs,
    name: &str,
    file: &Path,
    session: &Session,
    preprocessing: &'p Preprocessing,
) -> Result<Target<'p>, CliError> {
    let target = || {
        let info = known(session, name)?;
        let dims = info.dims().ok_or("the model does not state its number of dimensions")?;
        let dtype = info.dtype().ok_or("the model does not state its type")?;
        Target::of(dtype, &sizes_of(&args.dim, name, dims), preprocessing)
    };
    target().map_err(|reason: String| CliError::in_file(file, reason))
}

/// Reads images, the rows of one input, beside the inputs that are `held`.
pub(super) fn read_images(
    args: &ModelArgs,
    name: &str,
    files: &[PathBuf],
    session: &Session,
    held: &Inputs,
) -> Result<(Tensor, Vec<Prepared>), CliError> {
    let preprocessing = args.images.preprocessing()?;
    let target = target(args, name, &files[0], session, &preprocessing)?;
    let read = target.read(files, |spec| {
        fits(session, name, spec)?;
        check_host_memory(session, held.specs().chain([(name, spec)]))
    });
    read.map_err(CliError::input)
}

/// Returns a tensor of a file, in words.
fn place(file: &Path, label: Label<'_>) -> String {
    match label {
        Label::Named(member) => format!("{} of {}", Name(member), file.display()),
        Label::Numbered(at) => format!("number {at} of {}", file.display()),
        Label::Only => file.display().to_string(),
        Label::Part(whole, part) => format!("{part} of {}", place(file, *whole)),
    }
}

/// Returns the sizes of an input's dimensions, as far as the model or the command line gives them.
pub(super) fn sizes_of(given: &[(String, usize)], input: &str, dims: &[Dim]) -> Vec<Option<usize>> {
    let named = |name: &str| given.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let size = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Known(size) => Some(*size),
        dim => named(&format!("{input}[{axis}]")).or_else(|| named(&dim.open_name(input, axis)?)),
    };
    dims.iter().enumerate().map(size).collect()
}

/// Returns the inputs that must be given, in the model's order, which the ONNX tests use.
fn required(session: &Session) -> impl Iterator<Item = &ValueInfo> {
    session.inputs().iter().filter(|input| !input.is_optional())
}

/// Returns the only input, for a file that does not name its input.
fn only(session: &Session, file: &Path) -> Result<String, String> {
    let names: Vec<_> = required(session).map(ValueInfo::name).collect();
    match names[..] {
        [name] => Ok(name.to_owned()),
        _ => Err(format!("write NAME={} to name the input; the inputs are {}", file.display(), names.join(", "))),
    }
}

/// Returns the name of the input that a member of an archive belongs to.
pub(super) fn own_name<'a>(session: &Session, member: &'a str) -> &'a str {
    member.strip_prefix("in__").filter(|_| session.input_info(member).is_none()).unwrap_or(member)
}

/// Whether a member of an archive is a reference output.
fn is_reference(session: &Session, member: &str) -> bool {
    member.starts_with("out__") && session.input_info(member).is_none()
}

fn known<'a>(session: &'a Session, name: &str) -> Result<&'a ValueInfo, String> {
    session.input_info(name).ok_or_else(|| {
        let known: Vec<_> = session.inputs().iter().map(ValueInfo::name).collect();
        let (meant, known) = (did_you_mean(name, known.iter().copied()), known.join(", "));
        format!("the model has no input {}{meant}; its inputs are {known}", Name(name))
    })
}

/// Checks that a tensor can be the input of this name, or a part of it.
pub(super) fn fits(session: &Session, name: &str, spec: &TensorSpec) -> Result<(), String> {
    let input = known(session, name)?;
    if name == input.name() && input.kind().sequence {
        return Err(format!("input `{name}` is {spec}, but the model expects {input}; {}", input.advice()));
    }
    if name != input.name() && spec.bytes() == 0 && Part::of(name).is_some_and(|(_, part)| part.is_mark()) {
        return Ok(());
    }
    let same = |(dim, size): (&Dim, &usize)| !matches!(dim, Dim::Known(known) if known != size);
    let dims = spec.shape.dims();
    let shape = input.dims().is_none_or(|known| known.len() == dims.len() && known.iter().zip(dims).all(same));
    if !shape || input.dtype().is_some_and(|dtype| dtype != spec.dtype) {
        return Err(format!("input `{name}` is {spec}, but the model expects {input}"));
    }
    Ok(())
}

/// Checks that the host may hold all of these at once.
pub(super) fn check_host_memory<'a>(
    session: &Session,
    tensors: impl Iterator<Item = (&'a str, &'a TensorSpec)>,
) -> Result<(), String> {
    session.check_host_memory(tensors).map_err(|error| error.to_string())
}

/// A model's file, and the folders of tensors next to it, as in ONNX tests.
pub(super) struct Located {
    pub(super) file: PathBuf,
    /// `test_data_set_0` and so on: all of a test's folder, or the one folder of tensors that was named.
    pub(super) sets: Vec<PathBuf>,
}

/// Most data sets of one model.
const MOST_SETS: usize = 1000;

impl Located {
    /// Resolves a path to a model: its file, the folder of an ONNX test, or one of the test's `test_data_set` folders.
    pub(super) fn at(path: &Path) -> Result<Self, CliError> {
        if !path.is_dir() {
            return Ok(Self { file: path.to_owned(), sets: Vec::new() });
        }
        let is_set =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("test_data_set"));
        let own = path.canonicalize().map_err(|error| CliError::in_file(path, error))?;
        if is_set(&own) {
            let folder = path.join("..");
            let file = only_model(&folder)?;
            return Ok(Self { file, sets: vec![path.to_owned()] });
        }
        let sets = (0..MOST_SETS).map(|at| path.join(format!("test_data_set_{at}"))).take_while(|set| set.is_dir());
        Ok(Self { file: only_model(path)?, sets: sets.collect() })
    }
}

/// Returns the only `.onnx` file of a folder.
fn only_model(folder: &Path) -> Result<PathBuf, CliError> {
    let entries = std::fs::read_dir(folder).map_err(|error| CliError::in_file(folder, error))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut models: Vec<_> =
        paths.filter(|path| tensors::ending(path).is_some_and(|ending| ending == "onnx")).collect();
    match (models.pop(), models.is_empty()) {
        (Some(model), true) => Ok(model),
        (None, _) => Err(CliError::in_file(folder, "is a folder without an ONNX file; name an ONNX file")),
        (Some(_), false) => Err(CliError::in_file(folder, "is a folder with several ONNX files; name one of them")),
    }
}
