//! Destination of results: one archive for each data set, written atomically, so that an archive that exists is
//! complete.

use super::marker::Marker;
use super::source::Source;
use crate::command::CliError;
use crate::command::outputs::with_arrays;
use anabranch::session::{Outputs, ValueInfo};
use anabranch_report::tensors::{self, Form};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Directory of results, if they are kept.
pub(super) struct Sink<'a> {
    directory: Option<PathBuf>,
    /// Results from before this time are of other data sets.
    since: Option<SystemTime>,
    source: &'a Source<'a>,
    /// Outputs of the model.
    declared: &'a [ValueInfo],
}

impl<'a> Sink<'a> {
    /// Opens a directory, and makes it if it does not exist. No two data sets may have one name. If a run is resumed,
    /// earlier results must be of the same data sets.
    pub(super) fn open(
        directory: Option<&Path>,
        source: &'a Source<'a>,
        declared: &'a [ValueInfo],
        marker: &Marker,
        resume: bool,
    ) -> Result<Self, CliError> {
        let mut sink = Self { directory: directory.map(Path::to_owned), since: None, source, declared };
        if let Some(directory) = directory {
            if let Some(twice) = source.name_of_two() {
                let text = format!("two samples are called {twice}, and would be one file; name the files apart");
                return Err(CliError::in_file(directory, text));
            }
            fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
            // The first of several equal commands may have --resume, too.
            let begun = Marker::is_in(directory) || (0..source.count()).any(|at| sink.is_there(at));
            match resume && begun {
                true => marker.verify(directory)?,
                false => marker.write(directory)?,
            }
            sink.since = Marker::written(directory);
        }
        Ok(sink)
    }

    /// Whether a data set's results are there, and no older than its file.
    pub(super) fn has(&self, data_set: u64) -> bool {
        let made = self.path(data_set).and_then(|path| path.metadata().ok()).and_then(|file| file.modified().ok());
        made.zip(self.since.max(self.source.written(data_set))).is_some_and(|(made, since)| made >= since)
    }

    /// Whether there is a file at the path of its results.
    fn is_there(&self, data_set: u64) -> bool {
        self.path(data_set).is_some_and(|path| path.is_file())
    }

    /// Writes the results of a data set.
    pub(super) fn put(&self, data_set: u64, outputs: &Outputs) -> Result<(), CliError> {
        match self.path(data_set) {
            Some(path) => {
                Ok(with_arrays(outputs, self.declared, true, |arrays| tensors::write(&path, Form::Npz, arrays))?)
            }
            None => Ok(()),
        }
    }

    fn path(&self, data_set: u64) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{}.npz", self.source.name(data_set))))
    }
}
