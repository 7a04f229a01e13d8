//! Sources of data sets: files of arrays, the leading axis of an archive, or random elements.

use super::PipeCommand;
use crate::command::CliError;
use crate::command::args::ModelArgs;
use crate::command::images::ImageArgs;
use crate::command::inputs::{check_host_memory, fits, own_name, prepared, read_images, read_inputs};
use anabranch::import::Dim;
use anabranch::planning::name_matches;
use anabranch::session::{Inputs, Session, StatePair, ValueInfo};
use anabranch_kernels::{Buffer, Shape, Tensor, TensorSpec};
use anabranch_report::npy::{npy_spec, read_npy_if, read_npz_if};
use anabranch_report::tensors::picture::is_image;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
#[cfg(unix)]
use std::time::{Duration, UNIX_EPOCH};

/// Most different random data sets: if more are needed, these take turns.
const MOST_RANDOM: u64 = 16;

/// All data sets.
pub(super) struct Source<'a> {
    session: &'a Session,
    /// The model with its options, also those of images.
    model: ModelArgs,
    /// Inputs that are equal in all data sets.
    common: Inputs,
    sets: Sets,
}

enum Sets {
    /// `batch` files make a data set. Each is one row of it, unless it is alone.
    Files {
        files: Vec<PathBuf>,
        batch: usize,
    },
    /// Arrays of all rows; `batch` rows make a data set.
    Rows {
        arrays: BTreeMap<String, Tensor>,
        rows: usize,
        batch: usize,
    },
    Random {
        count: u64,
        sets: Vec<Inputs>,
    },
}

impl<'a> Source<'a> {
    /// Finds the data sets that the command names.
    pub(super) fn find(command: &PipeCommand, session: &'a Session, state: &[StatePair]) -> Result<Self, CliError> {
        let model = command.model();
        // Samples may be images, too, for which the same options count.
        let images = if model.has_images() { model.images.clone() } else { ImageArgs::default() };
        let common = read_inputs(&ModelArgs { images, ..model.clone() }, None, session)?;
        let common = session.with_first_state(state, common)?;
        let batch = command.batch.get();
        let sets = match (command.random, &command.inputs[..]) {
            (Some(count), _) => {
                let sizes = batch_sizes(session, &common, batch);
                let set = |at| {
                    let seed = command.seed.wrapping_add(at);
                    session.fill_sized(common.clone(), seed, &sizes).map_err(CliError::from)
                };
                Sets::Random { count, sets: (0..count.min(MOST_RANDOM)).map(set).collect::<Result<_, _>>()? }
            }
            (None, [one]) if one.ends_with(".npz") && !one.contains(['*', '?']) => {
                rows(Path::new(one), session, batch)?
            }
            (None, patterns) => {
                let files = files(patterns)?;
                if !files.len().is_multiple_of(batch) {
                    let text = format!(
                        "{} files cannot be divided into samples of {batch}; choose another --batch, or add files",
                        files.len()
                    );
                    return Err(CliError::input(text));
                }
                Sets::Files { files, batch }
            }
        };
        let source = Self { session, model, common, sets };
        let has_images = matches!(&source.sets, Sets::Files { files, .. } if files.iter().any(|file| is_image(file)));
        source.model.images.check(has_images || source.model.has_images())?;
        if let Sets::Files { files, batch } = &source.sets {
            files.chunks(*batch).try_for_each(|files| source.check(files))?;
        }
        Ok(source)
    }

    /// Sees that the files of a data set are there and have arrays that suit the model, as far as their headers say: a
    /// run of hours must not end with the last file.
    fn check(&self, paths: &[PathBuf]) -> Result<(), CliError> {
        if let Some(input) = self.input_of_images(paths)? {
            return prepared(&self.model, input.name(), paths, self.session).map(drop);
        }
        for path in paths {
            if is_archive(path) {
                read_npz_if(path, |name, spec| self.wants(name, spec, paths.len()).map(|_| false))?;
            } else {
                let input = self.only_input(path)?;
                let stacked = stacked(input, &npy_spec(path)?, paths.len());
                let fits = stacked.and_then(|spec| fits(self.session, input.name(), &spec));
                fits.map_err(|problem| CliError::in_file(path, problem))?;
            }
        }
        Ok(())
    }

    pub(super) fn count(&self) -> u64 {
        match &self.sets {
            Sets::Files { files, batch } => (files.len() / batch) as u64,
            Sets::Rows { rows, batch, .. } => (rows / batch) as u64,
            Sets::Random { count, .. } => *count,
        }
    }

    /// Verifies that the results of files that are stacked to a batch are those of each file alone.
    ///
    /// # Errors
    /// The first node or output for which that is not so.
    pub(super) fn verify_rows(&self, first: &Inputs) -> Result<(), CliError> {
        let Sets::Files { batch: 2.., .. } = &self.sets else { return Ok(()) };
        let of_files = first.specs().map(|(name, _)| name).filter(|name| self.common.find(name).is_none());
        Ok(self.session.verify_rows(first, &of_files.collect::<Vec<_>>())?)
    }

    /// Whether data sets are named by numbers, not by files.
    pub(super) fn is_numbered(&self) -> bool {
        !matches!(self.sets, Sets::Files { .. })
    }

    /// Returns the names of a data set's results: one for each of its files.
    pub(super) fn names(&self, at: u64) -> Vec<String> {
        match self.files(at) {
            // Fixed width: a data set keeps its name if more are added.
            [] => vec![format!("{at:08}")],
            files => files.iter().map(|file| stem(file)).collect(),
        }
    }

    /// Returns the files of a data set; none if it has no files of its own.
    fn files(&self, at: u64) -> &[PathBuf] {
        match &self.sets {
            Sets::Files { files, batch } => &files[at as usize * batch..][..*batch],
            Sets::Rows { .. } | Sets::Random { .. } => &[],
        }
    }

    /// Returns when a data set's files were last written or put into their places; `None` if it has no files of its
    /// own.
    pub(super) fn written(&self, at: u64) -> Option<SystemTime> {
        self.files(at).iter().filter_map(|file| changed(file)).max()
    }

    /// Returns a name that two data sets share, if there is one.
    pub(super) fn name_of_two(&self) -> Option<String> {
        let Sets::Files { files, .. } = &self.sets else { return None };
        let mut taken = BTreeSet::new();
        files.iter().map(|file| stem(file)).find(|name| !taken.insert(name.clone()))
    }

    /// Returns a data set.
    pub(super) fn set(&self, at: u64) -> Result<Inputs, CliError> {
        match &self.sets {
            Sets::Random { sets, .. } => Ok(sets[at as usize % sets.len()].clone()),
            Sets::Files { .. } => self.read(self.files(at)),
            Sets::Rows { arrays, batch, .. } => {
                let with = |inputs: Inputs, (name, array): (&String, &Tensor)| {
                    Ok(inputs.tensor(name, self.rows(name, array, at as usize, *batch)?))
                };
                arrays.iter().try_fold(self.common.clone(), with)
            }
        }
    }

    fn read(&self, paths: &[PathBuf]) -> Result<Inputs, CliError> {
        if let Some(input) = self.input_of_images(paths)? {
            let (tensor, _) = read_images(&self.model, input.name(), paths, self.session, &self.common)?;
            return Ok(self.common.clone().tensor(input.name(), tensor));
        }
        let mut rows: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
        for path in paths {
            for (name, tensor) in self.arrays(path, paths.len())? {
                rows.entry(name).or_default().push(tensor);
            }
        }
        rows.into_iter().try_fold(self.common.clone(), |inputs, (name, rows)| {
            let stacked = stack(&rows, paths.len());
            let stacked = stacked.map_err(|problem| {
                CliError::input(format!("input `{name}` of {} and its batch {problem}", paths[0].display()))
            })?;
            Ok(inputs.tensor(&name, stacked))
        })
    }

    /// Reads the arrays of a file by their inputs; each is one of so many rows of its input.
    fn arrays(&self, path: &Path, batch: usize) -> Result<Vec<(String, Tensor)>, CliError> {
        let (session, common) = (self.session, &self.common);
        if !is_archive(path) {
            let input = self.only_input(path)?;
            let tensor = read_npy_if(path, |spec| {
                let spec = stacked(input, spec, batch)?;
                fits(session, input.name(), &spec)?;
                check_host_memory(session, common.specs().chain([(input.name(), &spec)]))
            })?;
            return Ok(vec![(
                input.name().to_owned(),
                tensor.reshaped(Shape::new(row_dims(input, tensor.shape(), batch))?)?,
            )]);
        }
        let mut arrays: Vec<(String, Tensor)> = Vec::new();
        for (member, tensor) in read_npz_if(path, |name, spec| self.wants(name, spec, batch))? {
            let name = own_name(session, &member);
            if common.find(name).is_some() || arrays.iter().any(|(known, _)| known == name) {
                let text = format!("gives input `{name}` a second time, as `{member}`; leave out one of them");
                return Err(CliError::in_file(path, text));
            }
            let input = session.inputs().iter().find(|input| input.name() == name);
            let row = match input {
                Some(input) => tensor.reshaped(Shape::new(row_dims(input, tensor.shape(), batch))?)?,
                None => tensor,
            };
            arrays.push((name.to_owned(), row));
        }
        Ok(arrays)
    }

    /// Whether an array of an archive is a part of an input, which so many of them must suit.
    fn wants(&self, name: &str, spec: &TensorSpec, batch: usize) -> Result<bool, String> {
        let name = own_name(self.session, name);
        match self.session.inputs().iter().find(|input| input.name() == name) {
            Some(input) => fits(self.session, name, &stacked(input, spec, batch)?).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns the input of a data set's images; `None` if its files are arrays.
    fn input_of_images(&self, paths: &[PathBuf]) -> Result<Option<&ValueInfo>, CliError> {
        let Some(image) = paths.iter().find(|path| is_image(path)) else { return Ok(None) };
        if let Some(array) = paths.iter().find(|path| !is_image(path)) {
            let text = format!("is an image, but {} of the same batch is not; give files of one kind", array.display());
            return Err(CliError::in_file(image, text));
        }
        self.only_input(image).map(Some)
    }

    /// The input that a file with one array is for.
    fn only_input(&self, path: &Path) -> Result<&ValueInfo, CliError> {
        let missing = |input: &&ValueInfo| !input.is_optional() && self.common.find(input.name()).is_none();
        let missing: Vec<&ValueInfo> = self.session.inputs().iter().filter(missing).collect();
        let [input] = missing[..] else {
            let names = missing.iter().map(|input| input.name()).collect::<Vec<_>>().join(", ");
            let text =
                format!("an array or image is one input, but the model expects {names}; use .npz files, or --input");
            return Err(CliError::in_file(path, text));
        };
        Ok(input)
    }

    /// The rows of a data set, with the leading axis if the model has it.
    fn rows(&self, name: &str, array: &Tensor, at: usize, batch: usize) -> Result<Tensor, CliError> {
        let dims = array.shape().dims();
        let input = self.session.inputs().iter().find(|input| input.name() == name);
        let rank = input.and_then(|input| input.dims()).map_or(dims.len(), <[Dim]>::len);
        let mut own = dims.to_vec();
        match rank == dims.len() {
            true => own[0] = batch,
            false => drop(own.remove(0)),
        }
        let bytes = array.bytes().len() / dims[0] * batch;
        let part = Buffer::copied(&array.bytes()[at * bytes..][..bytes]);
        let spec = TensorSpec::new(array.dtype(), Shape::new(own)?);
        Ok(Tensor::new(spec, Arc::new(part))?)
    }
}

/// Returns the spec of an input that so many arrays of this spec make: the array itself, or one row for each.
fn stacked(input: &ValueInfo, spec: &TensorSpec, batch: usize) -> Result<TensorSpec, String> {
    let mut dims = row_dims(input, &spec.shape, batch);
    if batch > 1 {
        match dims.first_mut() {
            Some(rows) if *rows == 1 => *rows = batch,
            _ => return Err(format!("it is {spec}, but --batch stacks arrays of one row; leave --batch out")),
        }
    }
    Ok(TensorSpec::new(spec.dtype, Shape::new(dims).map_err(|error| error.to_string())?))
}

/// Returns the dimensions of an array, with an axis for rows if its batch needs one.
fn row_dims(input: &ValueInfo, shape: &Shape, batch: usize) -> Vec<usize> {
    let dims = shape.dims();
    let lacks_rows = batch > 1 && input.dims().is_some_and(|known| known.len() == dims.len() + 1);
    if lacks_rows { [&[1], dims].concat() } else { dims.to_vec() }
}

/// Joins arrays of one row along the first axis; an array alone stays as it is.
fn stack(rows: &[Tensor], batch: usize) -> Result<Tensor, String> {
    let first = &rows[0];
    if rows.len() != batch {
        return Err(format!("is in {} of {batch} files; each file of a batch has the same arrays", rows.len()));
    }
    if let Some(other) = rows.iter().find(|row| row.spec() != first.spec()) {
        return Err(format!(
            "has arrays of {} and of {}; arrays of a batch have one shape",
            first.spec(),
            other.spec()
        ));
    }
    if batch == 1 {
        return Ok(first.clone());
    }
    let bytes: Vec<u8> = rows.iter().flat_map(Tensor::bytes).copied().collect();
    let dims = [&[batch], &first.shape().dims()[1..]].concat();
    let spec = TensorSpec::new(first.dtype(), Shape::new(dims).map_err(|error| error.to_string())?);
    Tensor::new(spec, Arc::new(Buffer::copied(&bytes))).map_err(|error| error.to_string())
}

/// Returns when a file, or a link to it, was last written, renamed or linked. If an older file takes its place, the
/// modification time alone would be too early.
fn changed(path: &Path) -> Option<SystemTime> {
    let facts = [path.metadata().ok(), path.symlink_metadata().ok()];
    #[cfg(unix)]
    let moved = |facts: &Metadata| {
        use std::os::unix::fs::MetadataExt;
        let seconds = u64::try_from(facts.ctime()).ok()?;
        UNIX_EPOCH.checked_add(Duration::new(seconds, facts.ctime_nsec() as u32))
    };
    #[cfg(not(unix))]
    let moved = |_: &Metadata| None;
    facts.iter().flatten().flat_map(|facts| [facts.modified().ok(), moved(facts)]).max().flatten()
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

/// A file's name without its ending.
fn stem(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the batch size for the leading axis of the first input that is open there, and for all others without a
/// name.
fn batch_sizes(session: &Session, common: &Inputs, batch: usize) -> BTreeMap<String, usize> {
    let missing = session.inputs().iter().filter(|input| !input.is_optional() && common.find(input.name()).is_none());
    let leading = missing.filter_map(|input| {
        let dim = input.dims()?.first()?;
        Some((dim.open_name(input.name(), 0)?, *dim == Dim::Unknown))
    });
    let named = leading.enumerate().filter(|(at, (_, is_unknown))| batch > 1 && (*at == 0 || *is_unknown));
    named.map(|(_, (name, _))| (name, batch)).collect()
}

/// Reads all arrays of an archive, which must have equal numbers of rows.
fn rows(path: &Path, session: &Session, batch: usize) -> Result<Sets, CliError> {
    let mut given: Vec<(String, TensorSpec)> = Vec::new();
    let arrays = read_npz_if(path, |name, spec| {
        let input = session.inputs().iter().find(|input| input.name() == own_name(session, name));
        if input.is_some_and(|input| input.dtype().is_some_and(|dtype| dtype != spec.dtype)) {
            return Err(format!(
                "it holds {spec}, but the model expects {}",
                input.map_or(String::new(), ToString::to_string)
            ));
        }
        if input.is_some() {
            given.push((name.to_owned(), spec.clone()));
            check_host_memory(session, given.iter().map(|(name, spec)| (name.as_str(), spec)))?;
        }
        Ok(input.is_some())
    })?;
    let count = arrays.len();
    let arrays: BTreeMap<String, Tensor> =
        arrays.into_iter().map(|(name, tensor)| (own_name(session, &name).to_owned(), tensor)).collect();
    if arrays.len() < count {
        let text = "gives one input twice, with and without the prefix `in__`; leave out one of them";
        return Err(CliError::in_file(path, text));
    }
    let leading = |tensor: &Tensor| tensor.shape().dims().first().copied().unwrap_or(0);
    let rows = arrays.values().map(leading).max().unwrap_or(0);
    if rows == 0 {
        let names = session.inputs().iter().map(ValueInfo::name).collect::<Vec<_>>().join(", ");
        return Err(CliError::in_file(path, format!("has no row for any input of the model; its inputs are {names}")));
    }
    if let Some((name, other)) = arrays.iter().find(|(_, tensor)| leading(tensor) != rows) {
        let text = format!("array {name} has {} rows, but the other arrays have {rows}", leading(other));
        return Err(CliError::in_file(path, text));
    }
    if rows % batch != 0 {
        let text =
            format!("its {rows} rows cannot be cut into samples of {batch}; choose another --batch, or add rows");
        return Err(CliError::in_file(path, text));
    }
    Ok(Sets::Rows { arrays, rows, batch })
}

/// Returns the files that patterns name, in the order of their names.
fn files(patterns: &[String]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for pattern in patterns {
        let path = Path::new(pattern);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.contains(['*', '?']) {
            files.push(path.to_owned());
            continue;
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = directory.read_dir().map_err(|error| CliError::in_file(directory, error))?;
        let before = files.len();
        for entry in entries {
            let entry = entry.map_err(|error| CliError::in_file(directory, error))?;
            if name_matches(&name, &entry.file_name().to_string_lossy()) {
                files.push(entry.path());
            }
        }
        if files.len() == before {
            return Err(CliError::in_file(directory, format!("it contains no file {name}")));
        }
        files[before..].sort();
    }
    Ok(files)
}
