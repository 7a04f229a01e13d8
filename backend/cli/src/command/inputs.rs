//! The input tensors that the command line names.

use super::CliError;
use super::args::ModelArgs;
use crate::npy::{read_npy_if, read_npz_if};
use anabranch::import::Dim;
use anabranch::session::{Inputs, Session, ValueInfo};
use anabranch_kernels::TensorSpec;
use std::path::Path;

/// Reads all `--input` arguments. Names are the model's; in archives a prefix `in__` is ignored, and members `out__…`
/// (reference outputs kept beside the inputs) are passed over. No element is read before type, shape and size are known to fit.
pub(crate) fn read_inputs(args: &ModelArgs, session: &Session) -> Result<Inputs, CliError> {
    let mut inputs = Inputs::new();
    for argument in &args.input {
        match argument.split_once('=') {
            Some((name, file)) => {
                let tensor = read_npy_if(Path::new(file), |spec| {
                    fits(session, name, spec)?;
                    room(session, inputs.specs().chain([(name, spec)]))
                })?;
                inputs = inputs.tensor(name, tensor);
            }
            None if argument.ends_with(".npz") => {
                let mut given = Vec::new();
                let wanted = |name: &str, spec: &TensorSpec| {
                    if is_reference(session, name) {
                        return Ok(false);
                    }
                    fits(session, own_name(name), spec)?;
                    given.push((own_name(name).to_owned(), spec.clone()));
                    // What was read of this archive counts, too.
                    room(session, inputs.specs().chain(given.iter().map(|(name, spec)| (name.as_str(), spec))))?;
                    Ok(true)
                };
                for (name, tensor) in read_npz_if(Path::new(argument), wanted)? {
                    inputs = inputs.tensor(own_name(&name), tensor);
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

/// The name of the input that a member of an archive is for.
fn own_name(member: &str) -> &str {
    member.strip_prefix("in__").unwrap_or(member)
}

/// Whether a member of an archive is an output that was kept to compare with.
fn is_reference(session: &Session, member: &str) -> bool {
    member.starts_with("out__") && find(session, member).is_none()
}

fn find<'a>(session: &'a Session, name: &str) -> Option<&'a ValueInfo> {
    session.inputs().iter().find(|input| input.name() == name)
}

/// Whether a tensor can be the input of this name.
fn fits(session: &Session, name: &str, spec: &TensorSpec) -> Result<(), String> {
    let Some(input) = find(session, name) else {
        let known: Vec<_> = session.inputs().iter().map(ValueInfo::name).collect();
        let known = known.join(", ");
        return Err(format!("it gives `{name}`, which is no input of the model; its inputs are: {known}"));
    };
    let same = |(dim, size): (&Dim, &usize)| !matches!(dim, Dim::Known(known) if known != size);
    let dims = spec.shape.dims();
    let shape = input.dims().is_none_or(|known| known.len() == dims.len() && known.iter().zip(dims).all(same));
    if !shape || input.dtype().is_some_and(|dtype| dtype != spec.dtype) {
        return Err(format!("it gives {spec} for `{name}`, but the model wants {input}"));
    }
    Ok(())
}

/// Whether the host may hold all of these at once.
fn room<'a>(session: &Session, tensors: impl Iterator<Item = (&'a str, &'a TensorSpec)>) -> Result<(), String> {
    session.check_room(tensors).map_err(|error| error.to_string())
}
