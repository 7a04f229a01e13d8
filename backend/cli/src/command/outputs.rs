//! Files and formats of outputs.

use super::{CliError, wrote};
use anabranch::import::Labels;
use anabranch::session::{Outputs, ValueInfo};
use anabranch_kernels::Tensor;
use anabranch_report::npy::Array;
use anabranch_report::tensors::{self, ENDINGS, Form};
use anabranch_report::text::count;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the format of the outputs at a path: a file by its extension, otherwise a folder of arrays. Called before
/// anything is run.
pub(super) fn form(path: &Path, outputs: &[ValueInfo]) -> Result<Form, CliError> {
    let form = match Form::of(path) {
        Some(form) => form,
        // A name without an extension is a folder.
        None if path.extension().is_none() => Form::Folder,
        None => {
            return Err(CliError::in_file(
                path,
                format!("outputs are written to {ENDINGS} files, or to a folder; name one of these"),
            ));
        }
    };
    match refusal(&form, outputs) {
        Some(reason) => Err(CliError::in_file(path, reason)),
        None => Ok(form),
    }
}

/// Returns the reason why a format cannot hold these outputs, if it cannot.
fn refusal(form: &Form, outputs: &[ValueInfo]) -> Option<String> {
    let has_keys = |output: &&ValueInfo| matches!(output.labels(), Some(Labels::TextKeys(_) | Labels::IntegerKeys(_)));
    let has_texts = |output: &&ValueInfo| matches!(output.labels(), Some(Labels::Texts(_) | Labels::TextKeys(_)));
    if let Some(output) =
        outputs.iter().find(|output| !output.kind().is_tensor()).filter(|_| matches!(form, Form::Npy | Form::Message))
    {
        return Some(format!("holds one tensor, but `{output}` has several parts; name an .npz file or a folder"));
    }
    let (number, keys) = (outputs.len(), outputs.iter().filter(has_keys).count());
    if matches!(form, Form::Npy | Form::Message) && number + keys != 1 {
        let beside = if keys == 0 { "" } else { " with keys beside them" };
        return Some(format!(
            "holds one tensor, but the model has {}{beside}; name an .npz file or a folder",
            count(number, "output")
        ));
    }
    let texts = outputs.iter().find(has_texts).filter(|_| matches!(form, Form::Safetensors | Form::Message))?;
    Some(format!("holds numbers, but {} holds strings; name an .npz file", texts.name()))
}

/// Writes the outputs to a path in this format.
pub(super) fn write(path: &Path, form: Form, outputs: &Outputs, declared: &[ValueInfo]) -> Result<(), CliError> {
    with_arrays(outputs, declared, form != Form::Folder, |named| {
        if form != Form::Folder {
            tensors::write(path, form, named)?;
            wrote(path);
            return Ok(());
        }
        fs::create_dir_all(path).map_err(|error| CliError::in_file(path, error))?;
        for output in named {
            let file = path.join(format!("{}.npy", output.0));
            tensors::write(&file, Form::Npy, std::slice::from_ref(output))?;
            wrote(&file);
        }
        Ok(())
    })
}

/// Calls a function with the outputs as arrays under names for files, or for members of an archive. Labels are strings.
/// The keys of a map's columns are a further array `NAME.keys`.
pub(super) fn with_arrays<T>(
    outputs: &Outputs,
    declared: &[ValueInfo],
    archive: bool,
    write: impl FnOnce(&[(&str, Array<'_>)]) -> T,
) -> T {
    let mut arrays = Vec::new();
    for (name, tensor) in outputs.iter() {
        let labels = declared.iter().find(|output| output.name() == name).and_then(ValueInfo::labels);
        arrays.push((name.to_owned(), array(tensor, labels)));
        if let Some(Labels::TextKeys(keys)) = labels {
            let keys = keys.iter().map(String::as_str).collect::<Vec<_>>();
            arrays.push((format!("{name}.keys"), Array::Texts(vec![keys.len()], keys)));
        }
    }
    let keys: Vec<(String, Tensor)> = declared.iter().filter_map(integer_keys).collect();
    arrays.extend(keys.iter().map(|(name, keys)| (name.clone(), Array::Tensor(keys))));
    let names = file_names(arrays.iter().map(|(name, _)| name.as_str()), archive);
    let named: Vec<(&str, Array<'_>)> =
        names.iter().map(String::as_str).zip(arrays.into_iter().map(|(_, array)| array)).collect();
    write(&named)
}

/// Returns an output as it is written.
fn array<'a>(tensor: &'a Tensor, labels: Option<&'a Labels>) -> Array<'a> {
    match labels.and_then(|labels| labels.texts(tensor)) {
        Some(texts) => Array::Texts(tensor.shape().dims().to_vec(), texts),
        None => Array::Tensor(tensor),
    }
}

/// Returns the keys of an output's columns, if they are integers.
fn integer_keys(output: &ValueInfo) -> Option<(String, Tensor)> {
    match output.labels() {
        Some(Labels::IntegerKeys(keys)) => Some((format!("{}.keys", output.name()), Tensor::from_i64s(keys))),
        _ => None,
    }
}

/// Most characters of a file's name, so that any system accepts it with an extension.
const LONGEST_NAME: usize = 60;

/// Returns a file name for each output, all different.
///
/// A name is the model's text: characters that could leave the directory or act on a terminal become underscores. If
/// names would be equal, the later ones get a number. Members of an archive keep names that lead downwards.
fn file_names<'a>(outputs: impl Iterator<Item = &'a str>, archive: bool) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let unique = |output: &str| {
        let name = if archive && leads_down(output) { output.to_owned() } else { plain_name(output) };
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut free = std::iter::once(name.clone()).chain(numbered);
        // Some file systems ignore case.
        let key = |name: &String| if archive { name.clone() } else { name.to_lowercase() };
        free.find(|name| taken.insert(key(name))).unwrap_or(name)
    };
    outputs.map(unique).collect()
}

fn plain_name(output: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "._-[]".contains(c) { c } else { '_' };
    let name: String = output.chars().map(safe).take(LONGEST_NAME).collect();
    if name.trim_matches('.').is_empty() { name.replace('.', "_") + "_" } else { name }
}

fn leads_down(output: &str) -> bool {
    let acts = |c: char| c.is_control() || c == '\\';
    output.len() <= 4 * LONGEST_NAME
        && !output.contains(acts)
        && output.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_output_has_a_file_of_its_own_in_the_directory() {
        let long = "x".repeat(300);
        let names = ["y", "a/b", "a:b", "../../x", "/x", "..", "", "y", "Y", "y-2", &long, "\u{1b}[2J", "ä"];
        let files = file_names(names.into_iter(), false);
        let short = &long[..LONGEST_NAME];
        let want = ["y", "a_b", "a_b-2", ".._.._x", "_x", "___", "_", "y-2", "Y-3", "y-2-2", short, "_[2J", "ä"];
        assert_eq!(files, want);
        let members = ["a/b", "a:b", "../../x", "/x", "a//b", "y", "y", "Y"];
        let want = ["a/b", "a:b", ".._.._x", "_x", "a__b", "y", "y-2", "Y"];
        assert_eq!(file_names(members.into_iter(), true), want);
    }
}
