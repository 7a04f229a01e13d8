//! Checks of output files, made before anything is run.

use clap::builder::{PathBufValueParser, TypedValueParser};
use std::path::{Path, PathBuf};

/// Parses the name of a file to write, with one of these extensions or none.
///
/// Fails early if its directory does not exist or the file cannot be overwritten. Errors that only writing shows (a
/// full disk) come later.
pub(super) fn file_of(endings: &'static [&'static str]) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| {
        has_ending(&path, endings)?;
        can_be_written(&path).map(|()| path)
    })
}

/// Parses where outputs of a model go: a file of tensors, or a folder, which is made if it does not exist.
pub(super) fn tensors_to() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if anabranch_report::tensors::ending(&path).is_none() {
            let taken = path.exists() && !path.is_dir();
            return if taken {
                Err("is a file without an extension; name a file with an extension, or a folder".into())
            } else {
                Ok(path)
            };
        }
        has_ending(&path, &["npy", "npz", "safetensors", "pb"])?;
        can_be_written(&path).map(|()| path)
    })
}

/// Rejects a name with any other extension than these.
fn has_ending(path: &Path, endings: &[&str]) -> Result<(), String> {
    match anabranch_report::tensors::ending(path) {
        Some(ending) if !endings.contains(&ending.as_str()) => {
            let known: Vec<_> = endings.iter().map(|known| format!(".{known}")).collect();
            Err(format!("the extension .{ending} is not supported here; use {}", known.join(" or ")))
        }
        _ => Ok(()),
    }
}

fn can_be_written(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        None => return Err("is a directory; name a file in it".into()),
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
    };
    let is_writable = |path: &Path| path.metadata().is_ok_and(|facts| !facts.permissions().readonly());
    if path.is_dir() {
        Err("is a directory; name a file in it".into())
    } else if !folder.is_dir() {
        Err(format!("the directory {} does not exist; create it, or name another", folder.display()))
    } else if path.exists() && !is_writable(path) {
        Err("is read-only; name another file".into())
    } else {
        anabranch::files::may_write(path).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let parsed = |name: &str| {
            let path = folder.path().join(name);
            let parsed = file_of(&["csv", "json"]).parse_ref(&clap::Command::new("x"), None, OsStr::new(&path));
            parsed.map(|_| ()).map_err(|error| error.to_string())
        };
        fs::write(folder.path().join("old.csv"), "old").expect("writable");
        fs::create_dir(folder.path().join("folder.csv")).expect("writable");
        for name in ["new.csv", "NEW.JSON", "old.csv", "plain"] {
            assert_eq!(parsed(name), Ok(()), "{name}");
        }
        for (name, part) in [
            ("x.txt", "use .csv or .json"),
            ("folder.csv", "is a directory"),
            ("none/such.csv", "does not exist"),
            ("..", "is a directory"),
        ] {
            let error = parsed(name).expect_err(name);
            assert!(error.contains(part), "{error}");
        }
        let mut permissions = fs::metadata(folder.path().join("old.csv")).expect("there").permissions();
        permissions.set_readonly(true);
        fs::set_permissions(folder.path().join("old.csv"), permissions).expect("its owner may");
        assert!(parsed("old.csv").is_err_and(|error| error.contains("read-only")));
    }
}
