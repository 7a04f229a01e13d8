//! Paths of the drops' files: in one directory only, under names from the graph or generated names.

use super::{DropsError, refused};
use anabranch_base::quoted::Name;
use anabranch_placement::logical::Drop;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// Most characters of each part of a generated name.
const LENGTH: usize = 60;

/// Rules for the names of a graph's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    stem: String,
    outside: bool,
}

impl Naming {
    /// Returns the rules for a graph of this name. The name distinguishes its file of states from those of other graphs
    /// in the directory.
    pub fn of(graph: &str) -> Self {
        Naming { stem: safe(graph), outside: false }
    }

    /// Sets whether absolute paths of the graph may be used and links may lead out of the directory (default: false).
    pub fn with_outside(self, outside: bool) -> Self {
        Naming { outside, ..self }
    }

    /// Returns the path of the file of states, relative to the directory.
    pub(super) fn state_file(&self) -> PathBuf {
        format!("{}.drops.json", self.stem).into()
    }

    /// Returns the folder for memory drops that commands read and write by a path, relative to the directory.
    pub(super) fn memory_folder(&self) -> PathBuf {
        format!(".anabranch-{}.memory", self.stem).into()
    }

    /// Returns the path of a file drop, relative to the directory unless the graph's path is absolute.
    ///
    /// As in DALiuGE, a path that ends in `/` is a folder for a generated name, and `{uid}` stands for the drop's id.
    /// `{index}` stands for its index in the groups around it.
    ///
    /// # Errors
    /// If the path leaves the directory, has control characters, or is reserved for our own files.
    pub(super) fn file(&self, drop: &Drop, filepath: Option<&str>) -> Result<PathBuf, DropsError> {
        let made = made(drop);
        let index: Vec<String> = drop.context.iter().map(u64::to_string).collect();
        let text = filepath.unwrap_or_default().replace("{uid}", &safe_id(drop)).replace("{index}", &index.join("-"));
        let text = if text.is_empty() || text.ends_with('/') { text + &made } else { text };
        let told = || format!("drop {} has the file {}", Name(&drop.name), Name(&text));
        if text.chars().any(char::is_control) {
            return refused(format!("{}, whose name has control characters; rename it", told()));
        }
        let path = Path::new(&text);
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.is_absolute() {
            match self.outside && path.components().skip(1).all(is_plain) {
                true => return Ok(path.to_owned()),
                false if self.outside => return refused(format!("{}; write it without `..`", told())),
                false => {
                    return refused(format!(
                        "{}, an absolute path; write it relative to the directory of the run, or allow it (--outside)",
                        told()
                    ));
                }
            }
        }
        if !path.components().all(is_plain) {
            return refused(format!(
                "{}, which leaves the directory of the run; keep it inside, or write an absolute path and allow it (--outside)",
                told()
            ));
        }
        let path: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if path == self.state_file() || path.starts_with(self.memory_folder()) {
            return refused(format!("{}, which is reserved for the run; rename it", told()));
        }
        match path.file_name() {
            Some(_) => Ok(path),
            None => refused(format!("{}, which is not the name of a file; rename it", told())),
        }
    }

    /// Checks that no symbolic link leads the folder of a file out of the directory, unless that is allowed. The
    /// directory must be canonical.
    pub(super) fn refuse_outside(&self, directory: &Path, path: &Path) -> io::Result<()> {
        match self.outside || is_within(directory, path) {
            true => Ok(()),
            false => Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a symbolic link leads it out of the directory of the run; remove the link, or allow it (--outside)",
            )),
        }
    }

    /// Returns the path of a memory drop, for commands that need one.
    pub(super) fn memory(&self, drop: &Drop) -> PathBuf {
        self.memory_folder().join(made(drop))
    }
}

/// Whether the folder of an absolute path lies within a canonical directory after links are resolved. If the folder
/// does not exist, its nearest existing ancestor counts.
pub(super) fn is_within(directory: &Path, path: &Path) -> bool {
    let nearest = path.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok());
    nearest.is_some_and(|folder| folder.starts_with(directory))
}

/// Returns a generated name for a drop: its name and its id.
fn made(drop: &Drop) -> String {
    format!("{}.{}", safe(&drop.name), safe_id(drop))
}

/// Returns an id as a part of a file's name, different for different ids.
fn safe_id(drop: &Drop) -> String {
    let safe = kept(&drop.id);
    if safe == drop.id { safe } else { format!("{safe}-{}", &blake3::hash(drop.id.as_bytes()).to_hex()[..12]) }
}

/// Returns a text as the beginning of a file's name.
fn safe(text: &str) -> String {
    let kept = kept(text);
    if kept.starts_with(|c: char| c.is_ascii_alphanumeric()) { kept } else { format!("_{kept}") }
}

fn kept(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    text.chars().take(LENGTH).map(plain).collect()
}

/// Returns a path quoted as one word of a shell command that is not an option.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = if text.starts_with('-') { format!("./{text}") } else { text.into_owned() };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./,+:=@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_placement::logical::parse;
    use serde_json::json;

    fn drop(key: &str, name: &str) -> Drop {
        let node = json!({"key": key, "name": name, "category": "File", "categoryType": "Data"});
        let text = json!({"nodeDataArray": [node], "linkDataArray": []}).to_string();
        parse("test", text.as_bytes()).and_then(|graph| graph.unroll()).unwrap().drops()[0].clone()
    }

    #[test]
    fn names_are_made_safe_and_stay_different() {
        let naming = Naming::of("../My graph\u{1b}");
        assert_eq!(naming.state_file(), Path::new("_.._My_graph_.drops.json"));
        let path = |key: &str, name: &str| naming.file(&drop(key, name), None).unwrap().display().to_string();
        assert_eq!(path("-3", "words"), "words.-3_0");
        let hostile = [path("../x", "-rf *"), path(".._x", "-rf *")];
        assert!(hostile[0].starts_with("_-rf__..._x_0-") && hostile[0].len() == hostile[1].len() + 13, "{hostile:?}");
        assert!(path(&"k".repeat(400), &"n".repeat(400)).len() < 150);
        let placed = |path: &str| naming.file(&drop("7", "a"), Some(path)).unwrap().display().to_string();
        assert_eq!(placed("out/"), "out/a.7_0");
        assert_eq!(placed("./x/{uid}-{index}.txt"), "x/7_0-.txt");
        assert_eq!(quoted(Path::new("-a b's")), r"'./-a b'\''s'");
        assert_eq!(quoted(Path::new("x/y.1")), "x/y.1");
    }

    #[test]
    fn nothing_leaves_the_directory_unless_it_may() {
        let (naming, drop) = (Naming::of("g"), drop("1", "a"));
        for (path, part) in [
            ("../../x", "leaves the directory"),
            ("a/../../x", "leaves the directory"),
            ("/etc/x", "--outside"),
            ("a\nb", "control characters"),
            ("\u{1b}[31m", "control characters"),
            ("g.drops.json", "reserved for the run"),
            ("./g.drops.json", "reserved for the run"),
            (".anabranch-g.memory/x", "reserved for the run"),
            (".", "not the name of a file"),
        ] {
            let error = naming.file(&drop, Some(path)).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\u{1b}'), "{path:?}: {error}");
        }
        let naming = naming.with_outside(true);
        assert_eq!(naming.file(&drop, Some("/tmp/x")).unwrap(), Path::new("/tmp/x"));
        assert!(naming.file(&drop, Some("/tmp/../x")).is_err() && naming.file(&drop, Some("../x")).is_err());
    }
}
