//! Origin of the results in a directory: a small file next to them, so that results of other data sets are not taken
//! for these.

use super::PipeCommand;
use super::source::Source;
use crate::command::inputs::named;
use crate::command::{CliError, read_file, write_file};
use anabranch::compiled::is_compiled;
use anabranch::import::{Limits, data_files};
use anabranch::lower::Rewrites;
use anabranch_report::tensors::picture::Preprocessing;
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::path::{Path, absolute};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file.
const FILE: &str = "anabranch-pipe.json";

const NEXT: &str = "name another directory with -o, or leave out --resume to make all results again";

/// Everything that results depend on, as far as the command line gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    model: String,
    /// Patterns of the data sets; empty for random elements.
    source: Vec<String>,
    batch: usize,
    /// Seed of random elements.
    seed: Option<u64>,
    /// Number of data sets, if they are named by numbers. Files have names of their own, so that more of them may be
    /// added.
    count: Option<u64>,
    /// Inputs that are equal in all data sets.
    common: Vec<String>,
}

impl Marker {
    /// Returns the marker of a command.
    pub(super) fn new(command: &PipeCommand, source: &Source<'_>) -> Result<Self, CliError> {
        let limits = command.limits.limits()?;
        let model = match &command.model {
            Some(model) => model_state(model, &limits)?,
            None => "the built-in model".to_owned(),
        };
        let patterns = command.inputs.iter().map(|pattern| state(Path::new(pattern)));
        let dims = command.dim.iter().map(|(name, size)| Ok(format!("{name}={size}")));
        let fuse = command.fuse.rewrites().filter(|fuse| *fuse != Rewrites::ALL);
        let names = |fuse: Rewrites| fuse.iter().map(|rewrite| rewrite.to_string()).collect::<Vec<_>>().join(",");
        let fuse = fuse.map(|fuse| Ok(format!("fused: {}", names(fuse))));
        let images = command.images.preprocessing()?;
        let images = (images != Preprocessing::default()).then(|| Ok(images.to_string()));
        let given = command.input.iter().map(|input| match named(input) {
            (Some(name), path) => Ok(format!("{name}={}", state(path)?)),
            (None, path) => state(path),
        });
        Ok(Self {
            model,
            source: patterns.collect::<Result<_, _>>()?,
            batch: command.batch.get(),
            seed: command.random.map(|_| command.seed),
            count: source.is_numbered().then(|| source.count()),
            common: given.chain(dims).chain(fuse).chain(images).collect::<Result<_, CliError>>()?,
        })
    }

    /// Writes it into a directory, before any results.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CliError> {
        write_file(&directory.join(FILE), crate::command::pretty(self)?)
    }

    /// Checks that a directory's results are of the same data sets.
    ///
    /// # Errors
    /// If they are not, or the directory has no marker.
    pub(super) fn verify(&self, directory: &Path) -> Result<(), CliError> {
        let path = directory.join(FILE);
        if !path.is_file() {
            let text = format!("has results, but no {FILE} that says of which samples; {NEXT}");
            return Err(CliError::in_file(directory, text));
        }
        let known: Self = serde_json::from_slice(&read_file(&path)?)
            .map_err(|error| CliError::in_file(&path, format!("{error}; {NEXT}")))?;
        match self.difference(&known) {
            Some(text) => Err(CliError::in_file(directory, format!("its results are of {text}; {NEXT}"))),
            None => Ok(()),
        }
    }

    /// Returns when a directory's marker was written: earlier results are of other data sets.
    pub(super) fn written(directory: &Path) -> Option<SystemTime> {
        directory.join(FILE).metadata().and_then(|file| file.modified()).ok()
    }

    /// Whether a directory has a marker.
    pub(super) fn is_in(directory: &Path) -> bool {
        directory.join(FILE).is_file()
    }

    /// Describes the difference from another marker.
    fn difference(&self, other: &Self) -> Option<String> {
        let number = |number: Option<u64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let of = |marker: &Self| {
            [
                ("model", marker.model.clone()),
                ("--inputs", marker.source.join(" ")),
                ("--batch", marker.batch.to_string()),
                ("--seed", number(marker.seed)),
                ("number of samples", number(marker.count)),
                ("--input, --dim, --image-… or --no-fuse", marker.common.join(" ")),
            ]
        };
        let mut both = of(other).into_iter().zip(of(self));
        let ((what, theirs), (_, ours)) = both.find(|(theirs, ours)| theirs != ours)?;
        Some(format!("another {what}: {theirs:?}, not {ours:?}"))
    }
}

/// Returns the [`state`] of a model and of the files next to it that hold its tensors.
fn model_state(path: &Path, limits: &Limits) -> Result<String, CliError> {
    if !path.is_file() || is_compiled(path) {
        return state(path);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let beside = data_files(path, limits).map_err(|error| CliError::input(error.to_string()))?;
    let all = std::iter::once(path.to_owned()).chain(beside.into_iter().map(|file| folder.join(file)));
    Ok(all.map(|file| state(&file)).collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// Returns a file's absolute path, with its size and time of modification, so that another file of that name is
/// distinguished. For a pattern or another text, returns the path alone.
fn state(path: &Path) -> Result<String, CliError> {
    let whole = absolute(path).map_err(|error| CliError::in_file(path, error))?;
    let file = path.metadata().ok().filter(Metadata::is_file);
    let written = file.as_ref().and_then(|file| file.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    Ok(match file.zip(written) {
        Some((file, written)) => format!("{} ({} bytes, of {written:?})", whole.display(), file.len()),
        None => whole.to_string_lossy().into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_again_is_another() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.onnx");
        std::fs::write(&path, "one").expect("writable");
        let first = state(&path).expect("a path");
        assert_eq!(state(&path).expect("a path"), first);
        let file = std::fs::File::options().write(true).open(&path).expect("there");
        file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(7)).expect("it is ours");
        assert_ne!(state(&path).expect("a path"), first);
        let pattern = directory.path().join("*.npy");
        assert_eq!(state(&pattern).expect("a path"), pattern.to_string_lossy());
    }

    #[test]
    fn results_of_other_data_sets_are_refused_with_the_next_step() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let directory = directory.path();
        let marker = Marker {
            model: "/a.onnx".into(),
            source: vec!["/rows.npz".into()],
            batch: 2,
            seed: None,
            count: Some(3),
            common: Vec::new(),
        };
        let refused = |marker: &Marker| marker.verify(directory).map_err(|error| format!("{error:?}"));
        assert!(refused(&marker).is_err_and(|text| text.contains(FILE) && text.contains("--resume")));
        marker.write(directory).expect("writable");
        assert_eq!(refused(&marker), Ok(()));
        let others = [
            ("--batch", Marker { batch: 1, ..marker.clone() }),
            ("--seed", Marker { seed: Some(1), ..marker.clone() }),
            ("rows.npz", Marker { source: vec!["/other.npz".into()], ..marker.clone() }),
            ("a.onnx", Marker { model: "/b.onnx".into(), ..marker.clone() }),
            ("number of samples", Marker { count: Some(4), ..marker.clone() }),
        ];
        for (what, other) in others {
            assert!(refused(&other).is_err_and(|text| text.contains(what) && text.contains("-o")), "{what}");
        }
    }
}
