//! Directories that only their owner may enter, so that this user wrote everything in them.

use super::resolved_path::{ResolvedPath, stranger};
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Creates a private directory, if it does not exist.
///
/// # Errors
/// If it cannot be made, or is not private ([`check`]). Each error says what to do next.
pub fn make(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(elsewhere)?;
    check(path)
}

/// Checks that `path` is a private directory, or does not exist.
///
/// # Errors
/// If it is a link or a file, belongs to another user, others may enter it, or others may put another directory in its
/// place. Each error says what to do next.
pub fn check(path: &Path) -> io::Result<()> {
    // A trailing slash would follow a link.
    let path: PathBuf = path.components().collect();
    let refusal = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        facts => refusal(&facts.map_err(elsewhere)?),
    };
    let whole = std::path::absolute(&path).map_err(elsewhere)?;
    let resolved = ResolvedPath::of(whole.parent().unwrap_or(&whole)).map_err(elsewhere)?;
    match refusal.or_else(|| resolved.passed.iter().find_map(|(path, facts)| exposed(path, facts))) {
        Some(text) => Err(io::Error::new(ErrorKind::PermissionDenied, text)),
        None => Ok(()),
    }
}

/// Adds the next step to an error of the system.
fn elsewhere(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot be used: {error}; name another directory"))
}

/// Why others can put something else beneath a directory, or behind a link, if they can.
fn exposed(path: &Path, facts: &Metadata) -> Option<String> {
    const NEXT: &str = "name one whose parent directories only you or root can write to";
    let path = path.display();
    if let Some(owner) = stranger(facts) {
        return Some(format!("is beneath {path}, which belongs to another user (uid {owner}); {NEXT}"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (mode, group) = (facts.mode() & 0o7777, facts.gid());
        // By custom, a user's private group has the user's number.
        let is_private = group == 0 || group == rustix::process::geteuid().as_raw();
        let others = if is_private { 0o002 } else { 0o022 };
        if facts.is_dir() && mode & others != 0 && mode & 0o1000 == 0 {
            return Some(format!("is beneath {path}, which others may write to (mode {mode:o}); {NEXT}"));
        }
    }
    None
}

fn refusal(facts: &Metadata) -> Option<String> {
    if facts.is_symlink() {
        return Some("is a link; name the directory itself".into());
    }
    if !facts.is_dir() {
        return Some("is not a directory; name another".into());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = facts.mode() & 0o777;
        if !is_own(facts) {
            return Some(format!("belongs to another user (uid {}); name a directory of your own", facts.uid()));
        }
        if mode & 0o077 != 0 {
            return Some(format!("is open to others (mode {mode:o}); name a directory of your own with mode 700"));
        }
    }
    None
}

/// Whether a file or directory belongs to this user.
pub fn is_own(facts: &Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::uid(facts) == rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    {
        let _ = facts;
        true
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_directory_of_ones_own_that_nobody_else_enters_is_private() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        make(&path("a/b")).expect("writable");
        assert_eq!(fs::metadata(path("a/b")).expect("made").permissions().mode() & 0o777, 0o700);
        make(&path("a/b/")).expect("it is there and private");
        symlink("a", path("link")).expect("a link");
        fs::write(path("file"), "").expect("writable");
        for (name, why) in [("link", "is a link"), ("link/", "is a link"), ("file", "not a directory")] {
            let error = check(&path(name)).expect_err(name).to_string();
            assert!(error.contains(why) && error.contains("; name "), "{error}");
        }
        for beneath in [check(&path("file/a; b")), make(&path("file/a; b"))] {
            let error = beneath.expect_err("a file is no directory").to_string();
            assert!(error.contains("cannot be used") && error.ends_with("; name another directory"), "{error}");
        }
        for mode in [0o755, 0o770, 0o701] {
            fs::set_permissions(path("a"), fs::Permissions::from_mode(mode)).expect("its owner may");
            assert!(make(&path("a")).is_err_and(|error| error.to_string().contains("mode 700")), "{mode:o}");
        }
    }

    #[test]
    fn nothing_is_private_where_others_can_exchange_a_directory_above_it() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        let may = |name: &str, mode| fs::set_permissions(path(name), fs::Permissions::from_mode(mode));
        make(&path("open/own/kept")).expect("writable");
        symlink("open/own", path("link")).expect("a link");
        for (mode, is_private) in [(0o755, true), (0o777, false), (0o772, false), (0o1777, true)] {
            may("open", mode).expect("its owner may");
            for name in ["open/own/kept", "open/new", "link/kept", "open/own/../own/kept/"] {
                let checked = check(&path(name));
                assert_eq!(checked.is_ok(), is_private, "{name} {mode:o}: {checked:?}");
                let expected = |error: io::Error| error.to_string().contains("which others may write to");
                assert!(checked.map_or_else(expected, |()| true));
            }
        }
        // The directory of a link is checked, too.
        symlink("../closed", path("open/link")).expect("a link");
        make(&path("closed/kept")).expect("writable");
        may("open", 0o777).expect("its owner may");
        assert!(check(&path("closed/kept")).is_ok() && check(&path("open/link/kept")).is_err());
    }
}
