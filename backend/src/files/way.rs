//! The way to a file that is to be written, with the links in it.
//!
//! Whoever may write to a directory can put a link there, under the name that another user writes next. An archive of a stranger
//! may hold such a link, too. So a link is followed by this rule:
//!
//! 1. A link that is the named file itself belongs to this user or to root. Any other is refused.
//! 2. What such a link leads to is free, or has our mark: an extended attribute that each file gets that is written here. A
//!    caller that has read the file and knows its content needs no mark.
//! 3. Links to directories in the way are followed. If another user made one, rule 2 holds for the file at the end.
//! 4. `/dev/stdout`, `/dev/fd` and `/proc` are the process's own streams, wherever they lead.

use crate::quoted::Name;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Links in one way at most, as in Linux.
const MOST_LINKS: u32 = 40;

/// Paths of the process's own streams.
const STREAMS: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];

/// Name of the attribute of files that were written here.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
const MARK: &str = "user.anabranch";

/// The way to a file.
pub(super) struct Way {
    /// Path of the file without links.
    pub(super) end: PathBuf,
    /// Whether the file is a pipe, a device or an own stream, which is written to as it comes.
    pub(super) is_stream: bool,
    /// Whether the file at the end needs a mark.
    is_linked: bool,
    links: u32,
}

impl Way {
    /// Follows the links of a path.
    ///
    /// # Errors
    /// If the path ends in another user's link, or links lead in a circle.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut way = Self { end: PathBuf::new(), is_stream: false, is_linked: false, links: 0 };
        let mut rest = reversed(path);
        while let Some(part) = rest.pop() {
            let next = joined(&way.end, &part);
            if STREAMS.iter().any(|own| next.starts_with(own)) {
                return Ok(Self { end: path.to_owned(), is_stream: true, is_linked: false, ..way });
            }
            match fs::symlink_metadata(&next) {
                Ok(facts) if facts.is_symlink() => way.follow(&next, &facts, &mut rest)?,
                _ => way.end = next,
            }
        }
        way.is_stream = fs::symlink_metadata(&way.end).is_ok_and(|facts| !facts.is_file());
        Ok(way)
    }

    fn follow(&mut self, link: &Path, facts: &Metadata, rest: &mut Vec<OsString>) -> io::Result<()> {
        let is_last = rest.is_empty();
        let stranger = stranger(facts);
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
        let target = fs::read_link(link)?;
        rest.extend(reversed(&target));
        Ok(())
    }

    /// Refuses a file behind a link without our mark.
    pub(super) fn accept(&self) -> io::Result<()> {
        if !self.is_linked || fs::symlink_metadata(&self.end).is_err() || is_marked(&self.end) {
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

/// The components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// The path of a component below a directory without links.
fn joined(here: &Path, part: &OsStr) -> PathBuf {
    match part == ".." && here.file_name().is_some() {
        true => here.parent().map(Path::to_owned).unwrap_or_default(),
        false if part == "." => here.to_owned(),
        false => here.join(part),
    }
}

/// The owner of a link or a file, if neither this user nor root.
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

/// Marks a file as written here, if its file system keeps such marks.
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
            let way = Way::of(&root.join(path)).expect("no other user");
            assert_eq!(way.end, fs::canonicalize(root.join(path)).expect("there"), "{path}");
            assert!(!way.is_stream);
        }
        assert_eq!(Way::of(Path::new("../x/./y")).expect("a path").end, Path::new("../x/y"));
        assert!(Way::of(&root.join("loop")).is_err_and(|error| error.to_string().contains("40 links")));
        symlink("/dev/stdout", root.join("out")).expect("a link");
        assert!(["out", "whole/out"].iter().all(|path| Way::of(&root.join(path)).is_ok_and(|way| way.is_stream)));
        assert!(Way::of(&root.join("out")).is_ok_and(|way| way.accept().is_ok()));
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
        // Who knows the content needs no mark, and the file has one from then on.
        ready(&path("chain")).expect("whoever writes it has read it");
        write_known(&path("chain"), |out| out.write_all(b"a store")).expect("known");
        assert_eq!(fs::read_to_string(path("model.onnx")).expect("there"), "a store");
        symlink("/dev/null", path("null")).expect("a link");
        assert!(write_text(&path("null"), "gone").is_err());
        write_text(&path("model.onnx"), "named itself").expect("no link");
    }
}
