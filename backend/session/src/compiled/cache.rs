//! A directory of compiled models that sessions find again by what they are made from, and for.
//!
//! A file's name begins with a key: of the model's files (path, which file it is, size, times of change), the options, the inputs' names, types and
//! shapes, the machine, the kernels and the format. What follows tells the elements of inputs that decide shapes apart. Costs are no part of the
//! key: a plan stays until its file goes. When all files together are larger than the bound, those that have gone unused longest are removed.
//!
//! A file is believed if nobody else can have written it: the directory is private, the file belongs to this user and is no link. A kept model is used
//! only if its source has the content that was compiled.

use super::container::FORMAT;
use super::source::{Source, placed, stamp};
use super::{CompiledFile, is_compiled};
use crate::{Inputs, Session, SessionError, SessionOptions};
use anabranch_base::files::private;
use anabranch_costs::CostStore;
use anabranch_device::{DetectOptions, detect};
use anabranch_ir::constant::ConstantError;
use anabranch_onnx::import::{self, ImportError};
use anabranch_planning::Strategy;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes that all files together take at most, unless it is said otherwise.
const MOST: u64 = 8 << 30;

/// What names of its files end in.
const ENDING: &str = "anabranch";

/// Characters of a key, and of what follows it.
const DIGITS: usize = 32;

/// A directory of compiled models.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    most: u64,
}

/// What a cache opened.
#[non_exhaustive]
pub struct Kept {
    /// Of the compiled model, or of the model itself.
    pub session: Session,
    /// What it is to be run with.
    pub inputs: Inputs,
    /// How the cache came to it.
    pub course: Course,
}

/// How a cache came to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Course {
    /// It was kept in this file.
    Found(PathBuf),
    /// It was compiled now.
    Made {
        /// Where it is kept.
        file: PathBuf,
        /// What was wrong with the file that was there before, and is removed.
        damaged: Option<String>,
    },
    /// It is not kept, for this reason.
    Passed(String),
    /// It is not kept because the directory cannot be used, for this reason.
    Refused(String),
}

impl Cache {
    /// The directory `folder`, which is made when something is written, with at most 8 GiB. Only this user may enter it: what is there already and may
    /// be entered by others, belongs to another user, or is a link, is not used.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), most: MOST }
    }

    /// The same with at most so many bytes. What was written last stays, whatever its size.
    pub fn with_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// A session of the model in a file, and the inputs that `inputs` gives it: a compiled one of this model, these options and inputs of these shapes,
    /// if there is one that is sound; else one that is compiled now. `build` is kept to be shown. What cannot be compiled, or kept, is opened as it is.
    /// Reads the model's files, to see that they are those that were compiled, and all weights of a kept model that was written to.
    ///
    /// # Errors
    /// As [`Session::open`], and what `inputs` fails with.
    pub fn open<E: From<SessionError>>(
        &self,
        model: &Path,
        options: &SessionOptions,
        build: &str,
        inputs: impl FnOnce(&Session) -> Result<Inputs, E>,
    ) -> Result<Kept, E> {
        let passed = |session, inputs, why: String| Ok(Kept { session, inputs, course: Course::Passed(why) });
        if let Some(course) = self.never(model, options) {
            let session = Session::open(model, options.clone())?;
            let inputs = inputs(&session)?;
            return Ok(Kept { session, inputs, course });
        }
        let inputs = inputs(&Session::open_on_cpus(model, options.clone())?)?;
        let key = |inputs| key(model, options, inputs).map_err(SessionError::from);
        let before = key(&inputs)?;
        let mut damaged = None;
        let source = LazyCell::new(|| Source::of(model, &options.limits));
        for file in self.known(&before) {
            match found(&file, &source, options, &inputs) {
                Ok(Some(session)) => {
                    touch(&file);
                    return Ok(Kept { session, inputs, course: Course::Found(file) });
                }
                // Of use elsewhere, or for other elements: it goes when it has been unused for long.
                Ok(None) => {}
                Err(error) => {
                    damaged = Some(error);
                    let _ = fs::remove_file(&file);
                }
            }
        }
        let session = Session::open(model, options.clone())?;
        let prepared = session.prepare(&inputs);
        if let Err(error) = prepared {
            return passed(session, inputs, error.to_string());
        }
        if key(&inputs)? != before {
            return passed(session, inputs, "it was changed while it was opened".into());
        }
        let file = self.place(&before, &session, &inputs);
        if let Err(error) = private::make(&self.folder) {
            return Ok(Kept { session, inputs, course: self.refused(&error) });
        }
        remove_strange(&file);
        if let Err(error) = session.compile(&inputs, &file, build) {
            return passed(session, inputs, error.to_string());
        }
        // With what was measured on the way.
        let options = SessionOptions { costs: session.costs(), ..options.clone() };
        match Session::open(&file, options) {
            Ok(session) => {
                self.trim(&file);
                Ok(Kept { session, inputs, course: Course::Made { file, damaged } })
            }
            Err(error) => passed(session, inputs, error.to_string()),
        }
    }

    /// Why a model is not kept, whatever its inputs.
    fn never(&self, model: &Path, options: &SessionOptions) -> Option<Course> {
        let passed = |why: &str| Some(Course::Passed(why.into()));
        match &options.strategy {
            _ if is_compiled(model) => passed("it is a compiled model already"),
            Strategy::PlanFile(_) => passed("its plan file may say something else next time"),
            _ if placed(model).is_ok_and(|(path, _)| path.to_str().is_none()) => passed("its path is not UTF-8"),
            _ => private::check(&self.folder).err().map(|error| self.refused(&error)),
        }
    }

    fn refused(&self, error: &io::Error) -> Course {
        Course::Refused(format!("the directory {} {error}", self.folder.display()))
    }

    /// The files of a key, the last used first.
    fn known(&self, key: &str) -> Vec<PathBuf> {
        let mut known = self.files();
        known.retain(|(path, ..)| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(key)));
        known.into_iter().rev().map(|(path, ..)| path).collect()
    }

    /// Where a compiled model for inputs like these goes: apart from those for other elements of the inputs that decide shapes.
    fn place(&self, key: &str, session: &Session, inputs: &Inputs) -> PathBuf {
        let deciding: BTreeSet<String> = session.deciding_inputs().into_iter().collect();
        let mut hasher = blake3::Hasher::new();
        for (name, tensor) in inputs.iter().filter(|(name, _)| deciding.contains(*name)) {
            hasher.update(format!("{name:?} {}\n", tensor.bytes().len()).as_bytes()).update(tensor.bytes());
        }
        let elements = &hasher.finalize().to_hex()[..DIGITS];
        self.folder.join(format!("{key}-{elements}.{ENDING}"))
    }

    /// All files of this user that this cache may have written, the last used last: path, time and bytes. No other file is ever touched.
    fn files(&self) -> Vec<(PathBuf, SystemTime, u64)> {
        let is_own = |path: &Path| {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let digits = |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let named = stem.split_once('-').is_some_and(|(key, elements)| digits(key) && digits(elements));
            named && path.extension().is_some_and(|ending| ending == ENDING)
        };
        let found = |entry: fs::DirEntry| {
            let facts = entry.metadata().ok().filter(|facts| facts.is_file() && private::is_own(facts))?;
            Some((entry.path(), facts.accessed().or_else(|_| facts.modified()).ok()?, facts.len()))
        };
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.filter(|entry| is_own(&entry.path())).filter_map(found).collect();
        files.sort_by_key(|(path, used, _)| (*used, path.clone()));
        files
    }

    /// Removes what has gone unused longest until all fits, but for the file that was just written.
    fn trim(&self, newest: &Path) {
        let files = self.files();
        let mut bytes = files.iter().map(|(.., bytes)| bytes).fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        for (path, _, size) in files.iter().filter(|(path, ..)| path != newest) {
            if bytes <= self.most {
                break;
            }
            if fs::remove_file(path).is_ok() {
                bytes -= size;
            }
        }
    }
}

/// The session of a kept model, if it is for such inputs and of use here.
///
/// # Errors
/// If it is damaged, or was compiled from something else than the source is now. If it or the source only cannot be read now, it is of no use now.
fn found(
    file: &Path,
    source: &Result<Source, String>,
    options: &SessionOptions,
    inputs: &Inputs,
) -> Result<Option<Session>, String> {
    match (CompiledFile::open(file), source) {
        (Err(error), _) if error.is_damage() => return Err(error.to_string()),
        (Err(_), _) | (_, Err(_)) => return Ok(None),
        (Ok(kept), Ok(source)) if !kept.is_of(source) => {
            return Err(format!("{}: was compiled from another model; it is made again", file.display()));
        }
        _ => {}
    }
    let known = Session::open(file, options.clone()).ok().filter(|session| session.compiled().is_some());
    let Some(session) = known else { return Ok(None) };
    match session.verify_doubtful_weights() {
        Err(error @ ConstantError::Damaged { .. }) => return Err(error.to_string()),
        Err(_) => return Ok(None),
        Ok(()) => {}
    }
    Ok(session.prepare(inputs).is_ok().then_some(session))
}

/// What a compiled model is made of and for, as digits.
fn key(model: &Path, options: &SessionOptions, inputs: &Inputs) -> Result<String, ImportError> {
    let mut hasher = blake3::Hasher::new();
    let (model, folder) = placed(model).unwrap_or_else(|_| (model.to_owned(), PathBuf::new()));
    let beside = import::data_files(&model, &options.limits)?.into_iter().map(|path| folder.join(path));
    for path in std::iter::once(model.clone()).chain(beside) {
        hasher.update(format!("{path:?} {}\n", stamp(&path)).as_bytes());
    }
    for (name, spec) in inputs.specs() {
        hasher.update(format!("{name:?} {spec}\n").as_bytes());
    }
    // Whether someone said what is as by default makes no other plan.
    let options = SessionOptions { costs: CostStore::default(), stated: BTreeSet::new(), ..options.clone() };
    let versions = (env!("CARGO_PKG_VERSION"), anabranch_kernels::VERSION, FORMAT);
    let machine = detect(&DetectOptions::default().without_gpu()).map(|inventory| inventory.fingerprint());
    hasher.update(format!("{versions:?} {:?} {options:?}", machine.ok()).as_bytes());
    Ok(hasher.finalize().to_hex()[..DIGITS].to_owned())
}

/// Removes a link or another user's file from the place of a kept model: neither is followed or believed.
fn remove_strange(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink() || !private::is_own(&facts)) {
        let _ = fs::remove_file(path);
    }
}

/// Notes that a file was used. Its time of modification stays: other processes may read weights of it.
fn touch(path: &Path) {
    let times = FileTimes::new().set_accessed(SystemTime::now());
    let _ = File::options().append(true).open(path).and_then(|file| file.set_times(times));
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_onnx::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

    fn model(operator: &str) -> Vec<u8> {
        let graph = GraphProto {
            node: vec![NodeProto::of(operator, &["x"], &["y"])],
            input: vec![ValueInfoProto::f32s("x", &[4])],
            output: vec![ValueInfoProto::f32s("y", &[4])],
            ..GraphProto::default()
        };
        ModelProto::of(graph, 17).to_bytes()
    }

    #[test]
    fn a_kept_model_goes_if_its_source_differs_and_stays_if_that_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (path, file) = (folder.path().join("m.onnx"), folder.path().join("m.anabranch"));
        fs::write(&path, model("Relu")).expect("writable");
        let options = SessionOptions::default().with_devices(DetectOptions::default().without_gpu());
        let session = Session::open(&path, options.clone()).expect("sound");
        let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
        session.compile(&inputs, &file, "").expect("one phase");
        let source = || Source::of(&path, &options.limits);
        let found = |source| found(&file, &source, &options, &inputs).map(|session| session.is_some());
        assert_eq!(found(source()), Ok(true));
        fs::rename(&path, folder.path().join("away")).expect("its own");
        assert_eq!(found(source()), Ok(false));
        fs::write(&path, model("Tanh")).expect("writable");
        assert!(found(source()).is_err_and(|why| why.contains("another model")));
    }
}
