//! Destination of results: one archive for each data set, or for each file of a batch, written atomically, so that an
//! archive that exists is complete.

use super::marker::Marker;
use super::source::Source;
use crate::command::CliError;
use crate::command::outputs::with_arrays;
use anabranch::session::{Outputs, ValueInfo};
use anabranch_kernels::{Buffer, Shape, Tensor, TensorSpec};
use anabranch_report::npy::Array;
use anabranch_report::tensors::{self, Form};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Directory of results, if they are kept.
pub(super) struct Sink<'a> {
    directory: Option<PathBuf>,
    /// Results from before this time are of other data sets.
    since: Option<SystemTime>,
    /// Written with the first results, unless the directory has it.
    marker: Option<Marker>,
    source: &'a Source<'a>,
    /// Outputs of the model.
    declared: &'a [ValueInfo],
}

impl<'a> Sink<'a> {
    /// Opens a directory without changing it: a refused run leaves nothing behind. No two data sets may have one name.
    /// If a run is resumed, earlier results must be of the same data sets.
    pub(super) fn open(
        directory: Option<&Path>,
        source: &'a Source<'a>,
        declared: &'a [ValueInfo],
        marker: Marker,
        resume: bool,
    ) -> Result<Self, CliError> {
        let mut sink = Self { directory: directory.map(Path::to_owned), since: None, marker: None, source, declared };
        let Some(directory) = directory else { return Ok(sink) };
        if let Some(twice) = source.name_of_two() {
            let text = format!("two samples are called {twice}, and would be one file; name the files apart");
            return Err(CliError::in_file(directory, text));
        }
        // The first of several equal commands may have --resume, too.
        let begun = Marker::is_in(directory) || (0..source.count()).any(|at| sink.paths(at).any(|path| path.is_file()));
        match resume && begun {
            true => marker.verify(directory)?,
            false => sink.marker = Some(marker),
        }
        sink.since = Marker::written(directory);
        Ok(sink)
    }

    /// Makes the directory if it does not exist, and says in it of which data sets its results are.
    pub(super) fn begin(&self) -> Result<(), CliError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
        self.marker.as_ref().map_or(Ok(()), |marker| marker.write(directory))
    }

    /// Whether a data set's results are there, and no older than its files.
    pub(super) fn has(&self, data_set: u64) -> bool {
        let since = self.since.max(self.source.written(data_set));
        let made = |path: PathBuf| path.metadata().and_then(|file| file.modified()).ok();
        let mut times = self.paths(data_set).map(made).peekable();
        times.peek().is_some() && times.all(|made| made.zip(since).is_some_and(|(made, since)| made >= since))
    }

    /// Writes the results of a data set.
    ///
    /// # Errors
    /// If an output cannot be divided among the files of a batch, or a file cannot be written.
    pub(super) fn put(&self, data_set: u64, outputs: &Outputs) -> Result<(), CliError> {
        let paths: Vec<PathBuf> = self.paths(data_set).collect();
        if paths.is_empty() {
            return Ok(());
        }
        with_arrays(outputs, self.declared, true, |arrays| {
            if let [path] = &paths[..] {
                return Ok(tensors::write(path, Form::Npz, arrays)?);
            }
            for (at, path) in paths.iter().enumerate() {
                let row = |(name, array): &(&'_ str, Array<'_>)| match row_of(array, at, paths.len()) {
                    Some(row) => Ok(((*name).to_owned(), row)),
                    None => {
                        let rows = paths.len();
                        let text = format!(
                            "output `{name}` does not have {rows} rows, one for each file; leave out --batch or -o"
                        );
                        Err(CliError::in_file(path, text))
                    }
                };
                let rows = arrays.iter().map(row).collect::<Result<Vec<_>, _>>()?;
                let named: Vec<_> = rows.iter().map(|(name, row)| (name.as_str(), Array::Tensor(row))).collect();
                tensors::write(path, Form::Npz, &named)?;
            }
            Ok(())
        })
    }

    /// Returns the paths of a data set's results: one for each file of a batch.
    fn paths(&self, data_set: u64) -> impl Iterator<Item = PathBuf> {
        let names = self.directory.iter().flat_map(move |_| self.source.names(data_set));
        names.filter_map(|name| Some(self.directory.as_ref()?.join(format!("{name}.npz"))))
    }
}

/// Returns a row of an array that has so many rows, with the leading axis.
fn row_of(array: &Array<'_>, at: usize, rows: usize) -> Option<Tensor> {
    let Array::Tensor(tensor) = array else { return None };
    let dims = tensor.shape().dims();
    if dims.first() != Some(&rows) {
        return None;
    }
    let bytes = tensor.bytes().len() / rows;
    let spec = TensorSpec::new(tensor.dtype(), Shape::new([&[1], &dims[1..]].concat()).ok()?);
    Tensor::new(spec, Arc::new(Buffer::copied(&tensor.bytes()[at * bytes..][..bytes]))).ok()
}
