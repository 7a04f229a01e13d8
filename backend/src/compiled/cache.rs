//! A directory of compiled models that sessions find again by what they are made from, and for.
//!
//! A file's name begins with a key: of the model's files (path, which file it is, size, times of change), the options, the machine, the kernels and the format. What follows
//! tells inputs of other shapes apart. Costs are no part of the key: a plan stays until its file goes. When all files together are larger than
//! the bound, those that have gone unused longest are removed.

use super::container::FORMAT;
use super::source::{placed, stamp};
use super::{CompiledFile, is_compiled};
use crate::device::{DetectOptions, detect};
use crate::files;
use crate::import::{self, ImportError};
use crate::planning::Strategy;
use crate::profile::CostStore;
use crate::session::{Inputs, Session, SessionError, SessionOptions};
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes that all files together take at most, unless it is said otherwise.
const MOST: u64 = 8 << 30;

/// What names of its files end in.
const ENDING: &str = "anabranch";

/// Characters of a key, and of what tells inputs apart.
const DIGITS: usize = 32;

/// A directory of compiled models.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    most: u64,
}

impl Cache {
    /// The directory `folder`, which is made when something is written, with at most 8 GiB.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), most: MOST }
    }

    /// The same with at most so many bytes. What was written last stays, whatever its size.
    pub fn with_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// A session of the model in a file, and the inputs that `inputs` gives it: a compiled one of this model, these options and inputs like these, if
    /// there is one; else one that is compiled now. `asked` is whatever else the inputs depend on, `build` is kept to be shown. What cannot be
    /// compiled, or kept, is opened as it is.
    ///
    /// # Errors
    /// As [`Session::open`], and what `inputs` fails with for the model itself.
    pub fn open<E: From<SessionError>>(
        &self,
        model: &Path,
        options: &SessionOptions,
        (asked, build): (&str, &str),
        mut inputs: impl FnMut(&Session) -> Result<Inputs, E>,
    ) -> Result<(Session, Inputs), E> {
        // A plan file may say something else next time.
        let key = match is_compiled(model) || matches!(options.strategy, Strategy::PlanFile(_)) {
            true => None,
            false => Some(key(model, options, asked).map_err(SessionError::from)?),
        };
        for file in key.iter().flat_map(|key| self.known(key)) {
            let known = Session::open(&file, options.clone()).ok().filter(|session| session.compiled().is_some());
            let Some(session) = known else {
                if CompiledFile::open(&file).is_err() {
                    // Damaged: what is of use elsewhere goes when it has been unused for long.
                    let _ = fs::remove_file(&file);
                }
                continue;
            };
            if let Ok(inputs) = inputs(&session)
                && session.prepare(&inputs).is_ok()
            {
                touch(&file);
                return Ok((session, inputs));
            }
        }
        let session = Session::open(model, options.clone())?;
        let given = inputs(&session)?;
        // A model that has changed since is not kept as what it was.
        let key = key.filter(|known| self::key(model, options, asked).is_ok_and(|now| now == *known));
        let Some(file) = key.map(|key| self.place(&key, &given)) else { return Ok((session, given)) };
        let is_written = files::make_directory(&file).is_ok() && session.compile(&given, &file, build).is_ok();
        // With what was measured on the way.
        let options = SessionOptions { costs: session.costs(), ..options.clone() };
        if is_written && let Ok(compiled) = Session::open(&file, options) {
            self.trim(&file);
            return Ok((compiled, given));
        }
        Ok((session, given))
    }

    /// The files of a key, the last used first.
    fn known(&self, key: &str) -> Vec<PathBuf> {
        let mut known = self.files();
        known.retain(|(path, ..)| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(key)));
        known.into_iter().rev().map(|(path, ..)| path).collect()
    }

    /// Where a compiled model for inputs like these goes.
    fn place(&self, key: &str, inputs: &Inputs) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        for (name, spec) in inputs.specs() {
            hasher.update(format!("{name:?} {spec}\n").as_bytes());
        }
        let shapes = &hasher.finalize().to_hex()[..DIGITS];
        self.folder.join(format!("{key}-{shapes}.{ENDING}"))
    }

    /// All files that this cache may have written, the last used last: path, time and bytes. No other file is ever touched.
    fn files(&self) -> Vec<(PathBuf, SystemTime, u64)> {
        let is_own = |path: &Path| {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let digits = |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let named = stem.split_once('-').is_some_and(|(key, shapes)| digits(key) && digits(shapes));
            named && path.extension().is_some_and(|ending| ending == ENDING)
        };
        let found = |entry: fs::DirEntry| {
            let facts = entry.metadata().ok().filter(fs::Metadata::is_file)?;
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

/// What a compiled model is made of and for, as digits.
fn key(model: &Path, options: &SessionOptions, asked: &str) -> Result<String, ImportError> {
    let mut hasher = blake3::Hasher::new();
    let (model, folder) = placed(model).unwrap_or_else(|_| (model.to_owned(), PathBuf::new()));
    let beside = import::data_files(&model)?.into_iter().map(|path| folder.join(path));
    for path in std::iter::once(model.clone()).chain(beside) {
        hasher.update(format!("{path:?} {}\n", stamp(&path)).as_bytes());
    }
    let options = SessionOptions { costs: CostStore::default(), ..options.clone() };
    let versions = (env!("CARGO_PKG_VERSION"), anabranch_kernels::VERSION, FORMAT);
    let machine = detect(&DetectOptions::default().without_gpu()).map(|inventory| inventory.fingerprint());
    hasher.update(format!("{versions:?} {:?} {options:?} {asked}", machine.ok()).as_bytes());
    Ok(hasher.finalize().to_hex()[..DIGITS].to_owned())
}

/// Notes that a file was used. Its time of change stays: other processes may read weights of it.
fn touch(path: &Path) {
    let times = FileTimes::new().set_accessed(SystemTime::now());
    let _ = File::options().append(true).open(path).and_then(|file| file.set_times(times));
}
