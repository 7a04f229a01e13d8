//! The path to a file that is to be written, with the links in it.
//!
//! Every user who may write to a directory can put a link there, under the name that another user writes next. An
//! archive from a stranger may hold such a link, too. Links are therefore followed by these rules:
//!
//! 1. If the named file is itself a link, it must belong to this user or to root. Any other link is rejected.
//! 2. The target of such a link must not exist, or must have our mark: an extended attribute of each file that this
//!    module writes. A caller that has read the file and knows its content needs no mark.
//! 3. Links to directories along the path are followed. If another user made one of them, rule 2 holds for the file at
//!    the end.
//! 4. `/dev/stdout`, `/dev/stderr`, `/dev/fd/N` and `/proc/PID/fd/N` are open files. They are appended to, and their
//!    targets are not checked. A link may lead only to this process's standard streams. Rules 1 to 3 hold for all else
//!    in `/proc`.
//! 5. Another user's pipe is rejected.

use crate::quoted::Name;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Most links along one path, as in Linux.
const MOST_LINKS: u32 = 40;

/// Numbers of the standard streams are below this.
const STANDARD: u32 = 3;

/// Name of the attribute that marks files that this module wrote.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
const MARK: &str = "user.anabranch";

/// A path to a file, with its links resolved.
pub(super) struct ResolvedPath {
    /// Path of the file without links.
    pub(super) end: PathBuf,
    /// Metadata of the end; `None` if nothing is there.
    facts: Option<Metadata>,
    /// All directories and links along the path, and its end.
    pub(super) passed: Vec<(PathBuf, Metadata)>,
    /// Whether the path names an open file.
    is_open_file: bool,
    /// Whether the file at the end needs a mark.
    is_linked: bool,
    links: u32,
}

impl ResolvedPath {
    /// Follows the links of a path.
    ///
    /// # Errors
    /// If the path ends in another user's link or pipe, or links lead in a circle.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let (end, passed) = (PathBuf::new(), Vec::new());
        let mut resolved = Self { end, facts: None, passed, is_open_file: false, is_linked: false, links: 0 };
        let mut rest = reversed(path);
        while let Some(part) = rest.pop() {
            let next = joined(&resolved.end, &part);
            let whole: PathBuf =
                [next.as_os_str()].into_iter().chain(rest.iter().rev().map(OsString::as_os_str)).collect();
            if resolved.leads_to_open_file(&whole) {
                return Ok(Self { end: whole, is_open_file: true, is_linked: false, ..resolved });
            }
            match fs::symlink_metadata(&next) {
                Ok(facts) if facts.is_symlink() => resolved.follow(next, facts, &mut rest)?,
                facts => {
                    resolved.facts = facts.ok();
                    resolved.passed.extend(resolved.facts.clone().map(|facts| (next.clone(), facts)));
                    resolved.end = next;
                }
            }
        }
        match resolved.facts.as_ref().filter(|facts| is_pipe(facts)).and_then(stranger) {
            Some(owner) => Err(denied(format!("is a pipe of another user (uid {owner}); name another file"))),
            None => Ok(resolved),
        }
    }

    fn leads_to_open_file(&self, path: &Path) -> bool {
        open_file(path).is_some_and(|(is_own, number)| !self.is_linked || (is_own && number < STANDARD))
    }

    fn follow(&mut self, link: PathBuf, facts: Metadata, rest: &mut Vec<OsString>) -> io::Result<()> {
        let is_last = rest.is_empty();
        let stranger = stranger(&facts);
        if let (true, Some(owner)) = (is_last, stranger) {
            let link = link.to_string_lossy();
            let text = format!("{} is a link of another user (uid {owner}); name another file", Name(&link));
            return Err(denied(text));
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(io::Error::other(format!("is behind more than {MOST_LINKS} links")));
        }
        self.is_linked |= is_last || stranger.is_some();
        rest.extend(reversed(&fs::read_link(&link)?));
        self.passed.push((link, facts));
        Ok(())
    }

    /// Whether the file is a pipe, a device or an open file, which is written to directly.
    pub(super) fn is_stream(&self) -> bool {
        self.is_open_file || self.facts.as_ref().is_some_and(|facts| !facts.is_file())
    }

    /// Opens the file at the end for appending, without waiting for a reader, or creates it.
    ///
    /// # Errors
    /// If the file cannot be opened, or is another file by now.
    pub(super) fn open(&self) -> io::Result<File> {
        let file = self.open_end()?;
        match &self.facts {
            Some(facts) if !is_same(facts, &file.metadata()?) => {
                Err(denied("was replaced while it was opened; name another file".into()))
            }
            _ => Ok(file),
        }
    }

    #[cfg(unix)]
    fn open_end(&self) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, fcntl_setfl};
        let further = match (self.is_open_file, &self.facts) {
            (true, _) => OFlags::empty(),
            (false, Some(_)) => OFlags::NOFOLLOW,
            (false, None) => OFlags::CREATE | OFlags::EXCL,
        };
        // Append mode, because a shell may have written to the same file.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(&self.end, flags | further, Mode::from_raw_mode(0o666))?);
        fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(file)
    }

    #[cfg(not(unix))]
    fn open_end(&self) -> io::Result<File> {
        File::options().create(true).append(true).open(&self.end)
    }

    /// Rejects a file without our mark if a link leads to it.
    pub(super) fn accept(&self) -> io::Result<()> {
        if !self.is_linked || self.facts.is_none() || is_marked(&self.end) {
            return Ok(());
        }
        let end = self.end.to_string_lossy();
        let text = format!("a link leads to {}, which Anabranch did not write; name that file itself", Name(&end));
        Err(denied(text))
    }
}

fn denied(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Number of the open file that a path names, and whether the file is this process's.
fn open_file(path: &Path) -> Option<(bool, u32)> {
    match path.to_str()?.split('/').collect::<Vec<_>>()[..] {
        ["", "dev", "stdout"] => Some((true, 1)),
        ["", "dev", "stderr"] => Some((true, 2)),
        ["", "dev", "fd", number] | ["", "proc", "self" | "thread-self", "fd", number] => {
            Some((true, number.parse().ok()?))
        }
        ["", "proc", id, "fd", number] => Some((id.parse::<u32>().ok()? == std::process::id(), number.parse().ok()?)),
        _ => None,
    }
}

/// Components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Path of a component below a directory without links.
fn joined(here: &Path, part: &OsStr) -> PathBuf {
    match part == ".." && here.file_name().is_some() {
        true => here.parent().map(Path::to_owned).unwrap_or_default(),
        false if part == "." => here.to_owned(),
        false => here.join(part),
    }
}

/// Owner of a link or a file, if it is neither this user nor root.
#[cfg(unix)]
pub(super) fn stranger(facts: &Metadata) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    Some(facts.uid()).filter(|owner| *owner != own && *owner != 0)
}

#[cfg(not(unix))]
pub(super) fn stranger(_: &Metadata) -> Option<u32> {
    None
}

fn is_pipe(facts: &Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::FileTypeExt::is_fifo(&facts.file_type());
    #[cfg(not(unix))]
    {
        let _ = facts;
        false
    }
}

/// Whether both belong to the same file, as far as the system says.
pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }
    #[cfg(not(unix))]
    {
        let _ = (one, other);
        true
    }
}

/// Marks a file as written by this module, if its file system supports such marks.
pub(super) fn mark(file: &File) {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    let _ = rustix::fs::fsetxattr(file, MARK, b"1", rustix::fs::XattrFlags::empty());
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    let _ = file;
}

fn is_marked(path: &Path) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    return rustix::fs::lgetxattr(path, MARK, &mut [0; 16][..]).is_ok();
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    {
        let _ = path;
        false
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::files::{ready, write, write_known};
    use std::os::unix::fs::symlink;

    fn write_text(path: &Path, text: &str) -> io::Result<()> {
        write(path, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn ways_are_followed_as_the_system_follows_them() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = fs::canonicalize(folder.path()).expect("there");
        fs::create_dir_all(root.join("a/b")).expect("writable");
        fs::write(root.join("a/file"), "").expect("writable");
        let links =
            [("up", "a/b/../.."), ("file", "up/a/file"), ("whole", root.to_str().expect("UTF-8")), ("loop", "loop")];
        links.iter().for_each(|(name, to)| symlink(to, root.join(name)).expect("a link"));
        for path in ["a/file", "file", "up/up/file", "whole/whole/a/b/../file", "./a/./file", "a/b/../../up/a/file"] {
            let resolved = ResolvedPath::of(&root.join(path)).expect("no other user");
            assert_eq!(resolved.end, fs::canonicalize(root.join(path)).expect("there"), "{path}");
            assert!(!resolved.is_stream());
        }
        assert_eq!(ResolvedPath::of(Path::new("../x/./y")).expect("a path").end, Path::new("../x/y"));
        assert!(ResolvedPath::of(&root.join("loop")).is_err_and(|error| error.to_string().contains("40 links")));
        symlink("/dev/stdout", root.join("out")).expect("a link");
        assert!(
            ["out", "whole/out"]
                .iter()
                .all(|path| ResolvedPath::of(&root.join(path)).is_ok_and(|resolved| resolved.is_stream()))
        );
        assert!(ResolvedPath::of(&root.join("out")).is_ok_and(|resolved| resolved.accept().is_ok()));
    }

    #[test]
    fn no_link_is_followed_onto_what_was_not_written_here() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("model.onnx"), "a model").expect("writable");
        for name in ["report.html", "second"] {
            symlink("model.onnx", path(name)).expect("a link");
        }
        symlink("report.html", path("chain")).expect("a link");
        for name in ["report.html", "second", "chain"] {
            let error = write_text(&path(name), "a report").expect_err("not ours").to_string();
            assert!(error.contains("model.onnx") && error.contains("did not write"), "{error}");
        }
        assert_eq!(fs::read_to_string(path("model.onnx")).expect("there"), "a model");
        // A writer that knows the content needs no mark. It leaves a mark.
        ready(&path("chain")).expect("whoever writes it has read it");
        write_known(&path("chain"), |out| out.write_all(b"a store")).expect("known");
        assert_eq!(fs::read_to_string(path("model.onnx")).expect("there"), "a store");
        symlink("/dev/null", path("null")).expect("a link");
        assert!(write_text(&path("null"), "gone").is_err());
        write_text(&path("model.onnx"), "named itself").expect("no link");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_link_into_proc_leads_to_more_than_the_standard_streams() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = fs::canonicalize(folder.path()).expect("there");
        let (model, link) = (root.join("model.onnx"), root.join("report.html"));
        fs::write(&model, "a model").expect("writable");
        let (opened, directory) = (File::open(&model).expect("there"), File::open(&root).expect("there"));
        let (number, id) = (opened.as_raw_fd(), std::process::id());
        let whole = model.display();
        for target in [
            format!("/proc/self/root{whole}"),
            format!("/dev/fd/../root{whole}"),
            format!("/proc/{id}/task/../root{whole}"),
            format!("/proc/self/fd/{}/model.onnx", directory.as_raw_fd()),
            format!("/dev/fd/{number}"),
            format!("/proc/{id}/fd/{number}"),
        ] {
            symlink(&target, &link).expect("a link");
            let error = write_text(&link, "a report").expect_err("not ours").to_string();
            assert!(error.contains("did not write"), "{target}: {error}");
            fs::remove_file(&link).expect("its own");
        }
        assert_eq!(fs::read_to_string(&model).expect("there"), "a model");
        for (path, is_stream) in [
            (format!("/dev/fd/{number}"), true),
            (format!("/proc/thread-self/fd/{number}"), true),
            (format!("/proc/{id}/fd/{number}"), true),
            (format!("/proc/self/root{whole}"), false),
            ("/proc/self/fd".into(), true),
        ] {
            assert_eq!(ResolvedPath::of(Path::new(&path)).expect("a path").is_stream(), is_stream, "{path}");
        }
        assert!(write_text(Path::new("/proc/self/fd"), "a directory").is_err());
    }

    #[test]
    fn what_is_exchanged_between_the_look_and_the_opening_is_not_written() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str| fs::write(path(name), name).expect("writable");
        ["file", "other", "model"].iter().for_each(|name| write(name));
        let (there, free) =
            (ResolvedPath::of(&path("file")).expect("a path"), ResolvedPath::of(&path("free")).expect("a path"));
        assert!(there.open().is_ok());
        fs::rename(path("other"), path("file")).expect("its own");
        assert!(there.open().is_err_and(|error| error.to_string().contains("replaced")));
        fs::remove_file(path("file")).expect("its own");
        for (resolved, name) in [(there, "file"), (free, "free")] {
            symlink("model", path(name)).expect("a link");
            assert!(resolved.open().is_err(), "{name}");
        }
    }
}
