//! Opens files below a model's directory: no pipes, no devices, and nothing outside.
//!
//! Checks of the path's text alone have failed three times in the reference implementation (CVE-2022-25882,
//! CVE-2024-27318, CVE-2026-27489: `..`, then symbolic links in the directories). Here the kernel resolves the path
//! under the restriction (`openat2`). If it cannot, each component is opened by itself without following links. Then
//! the *opened* file is checked.
//!
//! Caches and volumes consist of links. A path with links is therefore followed once, by ONNX Runtime's rule: the file
//! at its end must lie below the model's directory or, if the model itself is a link, below the directory of the link's
//! target. That file is then opened again, below that directory and without a link. A file with several names (hard
//! links) does not show which name came first, so that all are read like any file.

use super::error::{ImportError, ImportErrorKind, Name, Result};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// A directory below which files are opened.
pub(super) struct Directory {
    /// Path without links, if the directory exists.
    path: PathBuf,
    /// Path of the model's file without links, which may be in another directory.
    model: Option<PathBuf>,
}

impl Directory {
    /// Creates the directory at `path`.
    pub(super) fn new(path: &Path) -> Self {
        // The directory of the bare file name `model.onnx` is the current one.
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_path_buf() };
        Self { path: path.canonicalize().unwrap_or(path), model: None }
    }

    /// Creates the directory of the model in the file `model`: its links are followed now, and not again.
    pub(super) fn of_model(model: &Path) -> Self {
        Self { model: model.canonicalize().ok(), ..Self::new(model.parent().unwrap_or(Path::new(""))) }
    }

    /// Rejects the opened file if it is not the target of the model's links, which were then replaced in between.
    pub(super) fn verify(&self, opened: &Metadata) -> Result<()> {
        let Some(model) = &self.model else { return Ok(()) };
        let found = fs::symlink_metadata(model).map_err(ImportError::io)?;
        match file_id(&found) == file_id(opened) {
            true => Ok(()),
            false => Err(ImportError::new(ImportErrorKind::Io, "was replaced while it was opened; try again")),
        }
    }

    /// Opens a regular file. `path` consists of ordinary names.
    pub(super) fn open(&self, path: &Path) -> Result<File> {
        self.open_by(path, resolve)
    }

    fn open_by(&self, path: &Path, resolve: Resolve) -> Result<File> {
        match resolve(&self.path, path) {
            Ok(file) => regular(path, file),
            Err(error) if is_barred(&error) => self.followed(path, resolve),
            Err(error) => Err(refusal(path, &error)),
        }
    }

    /// Opens the file at the end of a path with links, if it lies below one of the model's directories.
    fn followed(&self, path: &Path, resolve: Resolve) -> Result<File> {
        let refused = |error| refusal(path, &error);
        let end = self.path.join(path).canonicalize().map_err(refused)?;
        let linked = self.model.as_deref().and_then(Path::parent);
        for directory in [Some(self.path.as_path()), linked].into_iter().flatten() {
            if let Ok(below) = end.strip_prefix(directory) {
                return regular(path, resolve(directory, below).map_err(refused)?);
            }
        }
        Err(not_a_file(path, &format!("a link to {}, outside the model's directory", Name(&end.display().to_string()))))
    }
}

/// Identity of a file: its device and its number there.
pub(super) type FileId = (u64, u64);

/// Identity of a file, if the system has one.
pub(super) fn file_id(metadata: &Metadata) -> Option<FileId> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}

type Resolve = fn(&Path, &Path) -> io::Result<File>;

/// Returns the opened file, if it is a regular file.
fn regular(path: &Path, file: File) -> Result<File> {
    let metadata = file.metadata().map_err(|error| refusal(path, &error))?;
    match () {
        () if metadata.is_dir() => Err(not_a_file(path, "a directory")),
        () if !metadata.is_file() => Err(not_a_file(path, "a pipe or a device")),
        () => Ok(file),
    }
}

/// Whether an error is caused by a link in the path.
fn is_barred(error: &io::Error) -> bool {
    #[cfg(unix)]
    return matches!(
        rustix::io::Errno::from_io_error(error),
        Some(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV | rustix::io::Errno::NOTDIR)
    );
    #[cfg(not(unix))]
    return error.kind() == io::ErrorKind::PermissionDenied;
}

fn refusal(path: &Path, error: &io::Error) -> ImportError {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => {
                return not_a_file(path, "behind links that do not lead to a file");
            }
            Some(Errno::NXIO) => return not_a_file(path, "a pipe or a device"),
            _ => {}
        }
    }
    match error.kind() {
        io::ErrorKind::NotFound => unusable(path, "does not exist; put it next to the model"),
        io::ErrorKind::PermissionDenied if cfg!(not(unix)) => not_a_file(path, "not beneath the directory"),
        _ => unusable(path, &format!("cannot be read: {error}")),
    }
}

fn not_a_file(path: &Path, found: &str) -> ImportError {
    unusable(path, &format!("is {found}; put a regular file there"))
}

fn unusable(path: &Path, problem: &str) -> ImportError {
    let location = path.display().to_string();
    ImportError::new(ImportErrorKind::Io, format!("its data's file {} {problem}", Name(&location)))
}

#[cfg(unix)]
mod unix {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    const FILE: OFlags =
        OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

    fn directory(path: &Path) -> io::Result<OwnedFd> {
        Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens a path that the kernel resolves as a whole; it rejects every link and every path outside.
    #[cfg(target_os = "linux")]
    pub(super) fn whole(root: &Path, path: &Path) -> io::Result<File> {
        use rustix::fs::{ResolveFlags, openat2};
        let restriction = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(File::from(openat2(directory(root)?, path, FILE, Mode::empty(), restriction)?))
    }

    /// Opens each component in the directory before it, without following links.
    pub(super) fn stepwise(root: &Path, path: &Path) -> io::Result<File> {
        let mut here = directory(root)?;
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            if components.peek().is_none() {
                return Ok(File::from(openat(&here, component.as_os_str(), FILE, Mode::empty())?));
            }
            let step = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            here = openat(&here, component.as_os_str(), step, Mode::empty())?;
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

#[cfg(target_os = "linux")]
fn resolve(root: &Path, path: &Path) -> io::Result<File> {
    use rustix::io::Errno;
    match unix::whole(root, path) {
        // Kernels before 5.6 do not know the call; some container policies forbid it.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOSYS | Errno::PERM)) => {
            unix::stepwise(root, path)
        }
        result => result,
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
use unix::stepwise as resolve;

/// Opens a path on systems without such a call: the path with all links resolved must still start with the directory.
#[cfg(not(unix))]
fn resolve(root: &Path, path: &Path) -> io::Result<File> {
    let root = root.canonicalize()?;
    let file = root.join(path).canonicalize()?;
    match file == root.join(path) {
        true => File::open(file),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    /// A model's directory with an example of everything that must not be opened, and a secret outside.
    fn directory() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("model");
        let make = || {
            fs::create_dir_all(root.join("sub"))?;
            fs::write(folder.path().join("secret"), "secret")?;
            fs::create_dir(folder.path().join("outside"))?;
            fs::write(folder.path().join("outside/secret"), "secret")?;
            fs::write(root.join("w.bin"), "data")?;
            fs::write(root.join("sub/w.bin"), "data")?;
            symlink("../secret", root.join("link"))?;
            symlink("w.bin", root.join("inner_link"))?;
            symlink("../outside", root.join("link_dir"))?;
            symlink("sub", root.join("inner_link_dir"))?;
            symlink("inner_link_dir/../inner_link", root.join("inner_chain"))?;
            symlink("loop", root.join("loop"))?;
            symlink("nowhere", root.join("dangling"))?;
            symlink("pipe", root.join("link_to_pipe"))?;
            symlink("sub", root.join("link_to_sub"))?;
            symlink("/dev/zero", root.join("zero"))?;
            symlink("/proc/self/environ", root.join("environ"))?;
            symlink("/proc/self/cwd", root.join("cwd"))?;
            fs::hard_link(root.join("w.bin"), root.join("hard"))?;
            mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            io::Result::Ok(())
        };
        make().expect("a temporary directory takes files, links and pipes");
        folder
    }

    const WAYS: [(&str, Resolve); 2] = [("as the system does", resolve), ("step by step", unix::stepwise)];

    fn read(file: Result<File>) -> std::result::Result<String, String> {
        let mut text = String::new();
        file.map_err(|error| error.to_string())?.read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    #[test]
    fn nothing_but_regular_files_beneath_the_directory_is_opened() {
        let folder = directory();
        let directory = Directory::new(&folder.path().join("model"));
        for (way, resolve) in WAYS {
            for path in ["w.bin", "sub/w.bin", "hard", "inner_link", "inner_link_dir/w.bin", "inner_chain"] {
                let text = read(directory.open_by(Path::new(path), resolve));
                assert_eq!(text.as_deref(), Ok("data"), "{way}: {path}");
            }
            for path in
                ["link", "link_dir/secret", "w.bin/x", "pipe", "sub", "loop", "link_to_pipe", "link_to_sub", "zero"]
            {
                let refused = read(directory.open_by(Path::new(path), resolve));
                assert!(
                    refused.as_ref().is_err_and(|error| error.contains("put a regular file")),
                    "{way}: {refused:?}"
                );
            }
            for path in ["environ", "cwd/Cargo.toml"] {
                let refused = read(directory.open_by(Path::new(path), resolve));
                assert!(
                    refused.as_ref().is_err_and(|error| error.contains("outside the model's")),
                    "{way}: {refused:?}"
                );
            }
            for path in ["none", "dangling"] {
                let missing = read(directory.open_by(Path::new(path), resolve));
                assert!(missing.as_ref().is_err_and(|error| error.contains("does not exist")), "{way}: {missing:?}");
            }
        }
    }

    #[test]
    fn a_link_to_a_model_admits_what_is_beside_that_model_alone() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path();
        let make = || {
            for name in ["blobs/deep", "cache/snapshot", "other"] {
                fs::create_dir_all(root.join(name))?;
            }
            for name in ["blobs/model", "blobs/data", "blobs/deep/data", "other/data", "cache/data"] {
                fs::write(root.join(name), name)?;
            }
            for (target, name) in [
                ("../../blobs/model", "model.onnx"),
                ("../../blobs/data", "data"),
                ("../../blobs/deep/data", "deep"),
                ("../../blobs", "all"),
                ("../../other/data", "other"),
                ("../data", "above"),
            ] {
                symlink(target, root.join("cache/snapshot").join(name))?;
            }
            io::Result::Ok(())
        };
        make().expect("a temporary directory takes files and links");
        let directory = Directory::of_model(&root.join("cache/snapshot/model.onnx"));
        for (way, resolve) in WAYS {
            for (path, text) in [("data", "blobs/data"), ("deep", "blobs/deep/data"), ("all/data", "blobs/data")] {
                assert_eq!(read(directory.open_by(Path::new(path), resolve)).as_deref(), Ok(text), "{way}: {path}");
            }
            for path in ["other", "above"] {
                let refused = read(directory.open_by(Path::new(path), resolve));
                assert!(
                    refused.as_ref().is_err_and(|error| error.contains("outside the model's")),
                    "{way}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn a_model_whose_links_are_exchanged_is_refused_and_its_directories_stay() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path();
        for name in ["one", "other"] {
            fs::create_dir(root.join(name)).expect("a folder");
            fs::write(root.join(name).join("model"), name).expect("a small file");
        }
        let link = root.join("model.onnx");
        symlink("one/model", &link).expect("a link");
        let directory = Directory::of_model(&link);
        let opened = || fs::metadata(&link).expect("a file");
        assert!(directory.verify(&opened()).is_ok());
        fs::remove_file(&link).and_then(|()| symlink("other/model", &link)).expect("a link");
        assert!(directory.verify(&opened()).is_err_and(|error| error.to_string().contains("replaced")));
        assert!(directory.model.as_ref().is_some_and(|model| model.ends_with("one/model")));
    }

    #[test]
    fn the_empty_directory_is_the_current_one() {
        assert!(Directory::new(Path::new("")).open(Path::new("Cargo.toml")).is_ok());
    }
}
