//! Opening files strictly beneath a directory: no link, no pipe, no device, and no way out of it.
//!
//! A check of the path's text alone was found to be too little three times over in the reference implementation
//! (CVE-2022-25882, CVE-2024-27318, CVE-2026-27489: `..`, then symbolic links in the directories; CVE-2026-34446:
//! hard links). Here the kernel resolves the path under the restriction (`openat2`), or, where it cannot, each
//! component is opened by itself without following links; then the *opened* file is asked what it is.

use super::error::{ImportError, ImportErrorKind, Name, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A directory that files are opened beneath.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        // The directory of the bare file name `model.onnx` is the current one.
        Self(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_path_buf() })
    }

    /// Opens a regular file with a single name. `path` consists of ordinary names.
    pub(super) fn open(&self, path: &Path) -> Result<File> {
        self.open_by(path, resolve)
    }

    fn open_by(&self, path: &Path, resolve: Resolve) -> Result<File> {
        let refused = |error| refusal(path, &error);
        let file = resolve(&self.0, path).map_err(refused)?;
        let metadata = file.metadata().map_err(refused)?;
        let found = match () {
            () if metadata.is_dir() => "a directory",
            () if !metadata.is_file() => "a pipe or a device",
            () if names(&metadata) != 1 => "a hard link",
            () => return Ok(file),
        };
        Err(not_a_file(path, found))
    }
}

type Resolve = fn(&Path, &Path) -> io::Result<File>;

fn refusal(path: &Path, error: &io::Error) -> ImportError {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => {
                return not_a_file(path, "behind a link, or not beneath the directory");
            }
            Some(Errno::NXIO) => return not_a_file(path, "a pipe or a device"),
            _ => {}
        }
    }
    match error.kind() {
        io::ErrorKind::NotFound => unusable(path, "does not exist; put it beside the model"),
        io::ErrorKind::PermissionDenied if cfg!(not(unix)) => not_a_file(path, "not beneath the directory"),
        _ => unusable(path, &format!("cannot be read: {error}")),
    }
}

fn not_a_file(path: &Path, found: &str) -> ImportError {
    unusable(path, &format!("is {found}; put a regular file with a single name there"))
}

fn unusable(path: &Path, problem: &str) -> ImportError {
    let location = path.display().to_string();
    ImportError::new(ImportErrorKind::Io, format!("its data's file {} {problem}", Name(&location)))
}

#[cfg(unix)]
fn names(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

#[cfg(not(unix))]
fn names(_: &std::fs::Metadata) -> u64 {
    1
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

    /// The kernel resolves the whole path and refuses every link and every way out.
    #[cfg(target_os = "linux")]
    pub(super) fn whole(root: &Path, path: &Path) -> io::Result<File> {
        use rustix::fs::{ResolveFlags, openat2};
        let restriction = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(File::from(openat2(directory(root)?, path, FILE, Mode::empty(), restriction)?))
    }

    /// Each component is opened in the directory before it, without following a link.
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

/// Where there is no such call: the path with all links resolved must still begin with the directory.
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

    /// A model's directory with an example of everything that may not be opened, and a secret outside.
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
            fs::hard_link(folder.path().join("secret"), root.join("hard"))?;
            mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            io::Result::Ok(())
        };
        make().expect("a temporary directory takes files, links and pipes");
        folder
    }

    #[test]
    fn nothing_but_regular_files_beneath_the_directory_is_opened() {
        let folder = directory();
        let directory = Directory::new(&folder.path().join("model"));
        let ways: [(&str, Resolve); 2] = [("as the system does", resolve), ("step by step", unix::stepwise)];
        for (way, resolve) in ways {
            for path in ["w.bin", "sub/w.bin"] {
                let mut text = String::new();
                let mut file = directory.open_by(Path::new(path), resolve).expect(path);
                file.read_to_string(&mut text).expect("a small text");
                assert_eq!(text, "data", "{way}: {path}");
            }
            for path in
                ["link", "inner_link", "link_dir/secret", "inner_link_dir/w.bin", "w.bin/x", "hard", "pipe", "sub"]
            {
                let refused = directory.open_by(Path::new(path), resolve);
                assert!(refused.is_err_and(|error| error.to_string().contains("put a regular file")), "{way}: {path}");
            }
            let missing = directory.open_by(Path::new("none"), resolve);
            assert!(missing.is_err_and(|error| error.to_string().contains("does not exist")), "{way}");
        }
    }

    #[test]
    fn the_empty_directory_is_the_current_one() {
        assert!(Directory::new(Path::new("")).open(Path::new("Cargo.toml")).is_ok());
    }
}
