//! A directory of compiled models, which sessions find again by their sources and settings.
//!
//! A file's name starts with a key. The key covers the model's files (path, identity, size, times of change), the
//! options, the inputs' names, types and shapes, the machine, the kernels and the format. The rest of the name
//! identifies the elements of inputs that decide shapes. Costs are not part of the key: a plan stays as long as its
//! file. If all files together exceed the limit, the longest unused files are removed.
//!
//! A file is trusted if only this user can have written it: the directory is private, the file belongs to this user and
//! is not a link. A stored model is used only if its source has the content that was compiled.

use super::container::FORMAT;
use super::source::{Source, placed, stamp};
use super::{CompiledFile, is_compiled};
use crate::{Inputs, Session, SessionConfig, SessionError};
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

/// Default limit of the bytes of all files together.
const MOST: u64 = 8 << 30;

/// Extension of its files.
const ENDING: &str = "anabranch";

/// Characters of a key, and of the rest of a name.
const DIGITS: usize = 32;

/// A directory of compiled models.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    most: u64,
}

/// Result of opening a model through a cache.
#[non_exhaustive]
pub struct CachedSession {
    /// Session of the compiled model, or of the model itself.
    pub session: Session,
    /// Inputs to run the session with.
    pub inputs: Inputs,
    /// Origin of the session.
    pub outcome: CacheOutcome,
}

/// Origin of a session from a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheOutcome {
    /// The compiled model was found in this file.
    Found(PathBuf),
    /// The model was compiled now.
    Made {
        /// File of the compiled model.
        file: PathBuf,
        /// Fault of the former file, which was removed.
        damaged: Option<String>,
    },
    /// The model is not stored, for this reason.
    Passed(String),
    /// It is not kept because the directory cannot be used, for this reason.
    Refused(String),
}

impl Cache {
    /// Uses the directory `folder`, with at most 8 GiB; the directory is created at the first write.
    ///
    /// Only this user may enter it. An existing directory is not used if other users may enter it, if it belongs to
    /// another user, or if it is a link.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), most: MOST }
    }

    /// Sets the limit of all files together in bytes (default: 8 GiB). The last written file stays, regardless of its
    /// size.
    pub fn with_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// Opens a session of the model in a file, with the inputs that `inputs` makes for it.
    ///
    /// If there is a sound compiled model of this model, these options and inputs of these shapes, opens that;
    /// otherwise compiles the model now. `build` is stored for information. A model that cannot be compiled or stored
    /// is opened as it is. Reads the model's files, to check that they are those that were compiled, and all weights of
    /// a stored model that was modified.
    ///
    /// # Errors
    /// As [`Session::open`], and errors of `inputs`.
    pub fn open<E: From<SessionError>>(
        &self,
        model: &Path,
        config: &SessionConfig,
        build: &str,
        inputs: impl FnOnce(&Session) -> Result<Inputs, E>,
    ) -> Result<CachedSession, E> {
        let passed =
            |session, inputs, why: String| Ok(CachedSession { session, inputs, outcome: CacheOutcome::Passed(why) });
        if let Some(outcome) = self.never(model, config) {
            let session = Session::open(model, config.clone())?;
            let inputs = inputs(&session)?;
            return Ok(CachedSession { session, inputs, outcome });
        }
        let inputs = inputs(&Session::open_on_cpus(model, config.clone().resolve())?)?;
        let key = |inputs| key(model, config, inputs).map_err(SessionError::from);
        let before = key(&inputs)?;
        let mut damaged = None;
        let source = LazyCell::new(|| Source::of(model, &config.limits.unwrap_or_default()));
        for file in self.known(&before) {
            match found(&file, &source, config, &inputs) {
                Ok(Some(session)) => {
                    touch(&file);
                    return Ok(CachedSession { session, inputs, outcome: CacheOutcome::Found(file) });
                }
                // The file is for another machine, or for other elements: it is removed when it has been unused for
                // long.
                Ok(None) => {}
                Err(error) => {
                    damaged = Some(error);
                    let _ = fs::remove_file(&file);
                }
            }
        }
        let session = Session::open(model, config.clone())?;
        let prepared = session.prepare(&inputs);
        if let Err(error) = prepared {
            return passed(session, inputs, error.to_string());
        }
        if key(&inputs)? != before {
            return passed(session, inputs, "the model changed while it was opened".into());
        }
        let file = self.place(&before, &session, &inputs);
        if let Err(error) = private::make(&self.folder) {
            return Ok(CachedSession { session, inputs, outcome: self.refused(&error) });
        }
        remove_strange(&file);
        if let Err(error) = session.compile(&inputs, &file, build) {
            return passed(session, inputs, error.to_string());
        }
        // The costs include measurements that were made meanwhile.
        match Session::open(&file, config.clone().with_costs(session.costs())) {
            Ok(session) => {
                self.trim(&file);
                Ok(CachedSession { session, inputs, outcome: CacheOutcome::Made { file, damaged } })
            }
            Err(error) => passed(session, inputs, error.to_string()),
        }
    }

    /// Returns the reason that a model is never kept, for any inputs.
    fn never(&self, model: &Path, config: &SessionConfig) -> Option<CacheOutcome> {
        let passed = |why: &str| Some(CacheOutcome::Passed(why.into()));
        match &config.place {
            _ if is_compiled(model) => passed("the model is compiled already"),
            Some(Strategy::PlanFile(_)) => passed("its plan file may differ next time"),
            _ if placed(model).is_ok_and(|(path, _)| path.to_str().is_none()) => passed("its path is not UTF-8"),
            _ => private::check(&self.folder).err().map(|error| self.refused(&error)),
        }
    }

    fn refused(&self, error: &io::Error) -> CacheOutcome {
        CacheOutcome::Refused(format!("the directory {} {error}", self.folder.display()))
    }

    /// Returns the files of a key, the last used first.
    fn known(&self, key: &str) -> Vec<PathBuf> {
        let mut known = self.files();
        known.retain(|(path, ..)| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(key)));
        known.into_iter().rev().map(|(path, ..)| path).collect()
    }

    /// Returns the path of a compiled model for inputs like these; other elements of the inputs that decide shapes give
    /// another path.
    fn place(&self, key: &str, session: &Session, inputs: &Inputs) -> PathBuf {
        let deciding: BTreeSet<String> = session.deciding_inputs().into_iter().collect();
        let mut hasher = blake3::Hasher::new();
        for (name, tensor) in inputs.iter().filter(|(name, _)| deciding.contains(*name)) {
            hasher.update(format!("{name:?} {}\n", tensor.bytes().len()).as_bytes()).update(tensor.bytes());
        }
        let elements = &hasher.finalize().to_hex()[..DIGITS];
        self.folder.join(format!("{key}-{elements}.{ENDING}"))
    }

    /// Returns path, time and bytes of all files of this user that this cache may have written, the last used last.
    /// Other files are never touched.
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

    /// Removes the longest unused files until all fit, except the file that was just written.
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

/// Opens a session of a stored model, if it is for such inputs and usable on this machine.
///
/// # Errors
/// If the stored model is damaged, or its source has changed since. If the file or its source is only unreadable now,
/// returns `None`.
fn found(
    file: &Path,
    source: &Result<Source, String>,
    config: &SessionConfig,
    inputs: &Inputs,
) -> Result<Option<Session>, String> {
    match (CompiledFile::open(file), source) {
        (Err(error), _) if error.is_damage() => return Err(error.to_string()),
        (Err(_), _) | (_, Err(_)) => return Ok(None),
        (Ok(kept), Ok(source)) if !kept.is_of(source) => {
            return Err(format!("{}: was compiled from another model; compiling it again", file.display()));
        }
        _ => {}
    }
    let known = Session::open(file, config.clone()).ok().filter(|session| session.compiled().is_some());
    let Some(session) = known else { return Ok(None) };
    match session.verify_doubtful_weights() {
        Err(error @ ConstantError::Damaged { .. }) => return Err(error.to_string()),
        Err(_) => return Ok(None),
        Ok(()) => {}
    }
    Ok(session.prepare(inputs).is_ok().then_some(session))
}

/// Returns a hash, in digits, of a compiled model's sources and settings.
fn key(model: &Path, config: &SessionConfig, inputs: &Inputs) -> Result<String, ImportError> {
    let mut hasher = blake3::Hasher::new();
    let (model, folder) = placed(model).unwrap_or_else(|_| (model.to_owned(), PathBuf::new()));
    // A default that is stated gives the same plan as one that is left out.
    let options = config.clone().with_costs(CostStore::default()).resolve();
    let beside = import::data_files(&model, &options.limits)?.into_iter().map(|path| folder.join(path));
    for path in std::iter::once(model.clone()).chain(beside) {
        hasher.update(format!("{path:?} {}\n", stamp(&path)).as_bytes());
    }
    for (name, spec) in inputs.specs() {
        hasher.update(format!("{name:?} {spec}\n").as_bytes());
    }
    let versions = (env!("CARGO_PKG_VERSION"), anabranch_kernels::VERSION, FORMAT);
    let machine = detect(&DetectOptions::default().without_gpu()).map(|inventory| inventory.fingerprint());
    hasher.update(format!("{versions:?} {:?} {options:?}", machine.ok()).as_bytes());
    Ok(hasher.finalize().to_hex()[..DIGITS].to_owned())
}

/// Removes a link or another user's file at the path of a stored model: neither is followed or trusted.
fn remove_strange(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink() || !private::is_own(&facts)) {
        let _ = fs::remove_file(path);
    }
}

/// Records the use of a file. Its modification time stays: other processes may read weights of it.
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
        let config = SessionConfig::default().without_gpu();
        let session = Session::open(&path, config.clone()).expect("sound");
        let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
        session.compile(&inputs, &file, "").expect("one phase");
        let source = || Source::of(&path, &Default::default());
        let found = |source| found(&file, &source, &config, &inputs).map(|session| session.is_some());
        assert_eq!(found(source()), Ok(true));
        fs::rename(&path, folder.path().join("away")).expect("its own");
        assert_eq!(found(source()), Ok(false));
        fs::write(&path, model("Tanh")).expect("writable");
        assert!(found(source()).is_err_and(|why| why.contains("another model")));
    }
}
