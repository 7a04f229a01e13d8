//! What a directory's drops are and what is known of them, as the file of states keeps it from run to run.

use super::content::Sum;
use super::{DropsError, refused};
use anabranch_base::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a file of states says it is.
const FORMAT: &str = "anabranch drop states";
/// The version that is written.
const VERSION: u32 = 1;
/// Bytes that it may have.
const MOST_BYTES: u64 = files::MOST_BYTES;

/// The state of a drop: DALiuGE's of data (initialized, writing, completed, error) and of applications (not run, running, finished, error), and what
/// became of those that were not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Data that nobody has written.
    #[default]
    Initialized,
    /// Data whose application runs.
    Writing,
    /// Data that are there.
    Completed,
    /// An application that has not run.
    NotRun,
    /// An application that runs.
    Running,
    /// An application that has ended well.
    Finished,
    /// An application that has failed, or data that are not there.
    Error,
    /// A drop that depends on one with an error.
    Skipped,
    /// An application that was ended with the run, and what it was writing.
    Cancelled,
}

impl State {
    /// Its name, as tables have it.
    pub fn name(self) -> &'static str {
        match self {
            State::Initialized => "initialized",
            State::Writing => "writing",
            State::Completed => "completed",
            State::NotRun => "not run",
            State::Running => "running",
            State::Finished => "finished",
            State::Error => "error",
            State::Skipped => "skipped",
            State::Cancelled => "cancelled",
        }
    }
}

/// What is known of a drop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) state: State,
    /// Of an application that has ended well: the checksum of its command and the paths of its outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) work: Option<String>,
    /// The same of what it read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inputs: Option<String>,
    /// Of an application: how long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    /// Of data that are completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<String>,
    /// Of data that are completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// Seconds since 1970 at which the state was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
}

impl Record {
    /// What data hold.
    pub(super) fn sum(&self) -> Option<Sum> {
        Some(Sum { checksum: self.checksum.clone()?, bytes: self.bytes? })
    }

    pub(super) fn set_sum(&mut self, sum: &Sum) {
        (self.checksum, self.bytes) = (Some(sum.checksum.clone()), Some(sum.bytes));
    }

    /// Forgets what makes it worth keeping.
    pub(super) fn forget(&mut self) {
        *self = Record { state: self.state, ..Record::default() };
    }

    /// Forgets what was, since something new begins.
    pub(super) fn begin(&mut self, state: State) {
        self.forget();
        self.state = state;
    }

    pub(super) fn complete(&mut self, sum: &Sum) {
        self.begin(State::Completed);
        self.set_sum(sum);
        self.at = Some(now());
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The records of a directory, by the drops' ids.
pub(super) type Records = BTreeMap<String, Record>;

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u32,
    drops: Records,
}

/// Reads a file of states; a missing one is empty.
///
/// # Errors
/// A file that cannot be read or is none of ours; it stays as it is.
pub(super) fn load(path: &Path) -> Result<Records, DropsError> {
    let told = |why: String| {
        let next = "move it away, so that all is run again, or choose another directory (--dir)";
        refused(format!("{}: {why}; {next}", path.display()))
    };
    let bytes = match files::read(path, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Records::new()),
        Err(error) => return told(error.to_string()),
    };
    match serde_json::from_slice::<Document>(&bytes) {
        Err(error) => told(format!("is no file of drop states: {}", files::json_problem(&error))),
        Ok(document) if document.format != FORMAT => {
            told("is no file of drop states: its format is another".to_owned())
        }
        Ok(document) if document.version != VERSION => {
            told(format!("is of version {}, but this Anabranch knows version {VERSION}", document.version))
        }
        Ok(document) => Ok(document.drops),
    }
}

/// Writes a file of states that was loaded before, whole or not at all.
///
/// # Errors
/// If it cannot be written; an earlier one is then as it was.
pub(super) fn save(path: &Path, drops: &Records) -> Result<(), DropsError> {
    #[derive(Serialize)]
    struct Written<'r> {
        format: &'static str,
        version: u32,
        drops: &'r Records,
    }
    let document = Written { format: FORMAT, version: VERSION, drops };
    let written = files::write_known(path, |file| {
        serde_json::to_writer_pretty(&mut *file, &document)?;
        file.write_all(b"\n")
    });
    written.or_else(|error| refused(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn states_are_kept_and_what_is_none_of_ours_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g.drops.json");
        assert_eq!(load(&path), Ok(Records::new()));
        let mut record = Record { state: State::Completed, at: Some(7), ..Record::default() };
        record.set_sum(&Sum::of(b"x"));
        let records = Records::from([("a".to_owned(), record), ("b".to_owned(), Record::default())]);
        save(&path, &records).unwrap();
        assert_eq!(load(&path), Ok(records));
        let ours = fs::read_to_string(&path).unwrap();
        let foreign = [
            ("{}".to_owned(), "format"),
            (ours[..ours.len() / 2].to_owned(), "cut off"),
            (ours.replace("drop states", "recipes"), "format is another"),
            (ours.replace("\"version\": 1", "\"version\": 2"), "version 2"),
            (ours.replace("completed", "happy"), "happy"),
            ("\u{1b}[31m".to_owned(), "not JSON"),
        ];
        for (text, part) in foreign {
            fs::write(&path, &text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("move it away"), "{part}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
