//! Source of a compiled model: its location, and whether it is unchanged.

use anabranch_base::files;
use anabranch_onnx::import::{self, Limits};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// A model's file, and the files with its tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// Files, the model's file first.
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SourceFile {
    path: PathBuf,
    bytes: u64,
    /// BLAKE3 hash of the content.
    hash: [u8; 32],
}

impl Source {
    /// Collects the present files of a model within these limits. Reads all of them.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn of(model: &Path, limits: &Limits) -> Result<Self, String> {
        let beside = import::data_files(model, limits).map_err(|error| error.to_string())?;
        let file = |path: PathBuf| SourceFile::of(&path).map_err(|error| format!("{}: {error}", path.display()));
        let (model, folder) = placed(model).map_err(|error| format!("{}: {error}", model.display()))?;
        let all = std::iter::once(model).chain(beside.into_iter().map(|path| folder.join(path)));
        Ok(Self { files: all.map(file).collect::<Result<_, _>>()? })
    }

    /// Returns the model's file.
    pub(super) fn model(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |file| &file.path)
    }

    /// Whether all paths are UTF-8.
    pub(super) fn is_text(&self) -> bool {
        self.files.iter().all(|file| file.path.to_str().is_some())
    }

    /// Whether all files exist with the same content. Reads those that have the same size.
    pub(crate) fn is_unchanged(&self) -> bool {
        let same = |file: &SourceFile| {
            let size = std::fs::metadata(&file.path).is_ok_and(|found| found.is_file() && found.len() == file.bytes);
            size && SourceFile::of(&file.path).is_ok_and(|found| found == *file)
        };
        !self.files.is_empty() && self.files.iter().all(same)
    }
}

/// Absolute paths of a model and its folder. Only links to the folder are followed: for a link to a model, the files
/// next to the link count.
///
/// # Errors
/// If the folder does not exist.
pub(super) fn placed(model: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::canonicalize(folder)?;
    let name = model.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((folder.join(name), folder))
}

/// Metadata that changes with a file: its identity, size and times. Does not read the file.
pub(crate) fn stamp(path: &Path) -> String {
    let facts = std::fs::metadata(path).ok();
    #[cfg(unix)]
    let further = facts.as_ref().map(|facts| {
        use std::os::unix::fs::MetadataExt;
        (facts.dev(), facts.ino(), facts.ctime(), facts.ctime_nsec())
    });
    #[cfg(not(unix))]
    let further = ();
    let changed = facts.as_ref().and_then(|facts| facts.modified().ok());
    format!("{:?} {changed:?} {further:?}", facts.map(|facts| facts.len()))
}

impl SourceFile {
    fn of(path: &Path) -> io::Result<Self> {
        let (mut file, mut hasher) = (files::open(path)?, blake3::Hasher::new());
        let bytes = io::copy(&mut file, &mut hasher)?;
        Ok(Self { path: path.to_owned(), bytes, hash: *hasher.finalize().as_bytes() })
    }
}
