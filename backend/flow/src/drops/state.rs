//! States of a directory's drops, as the file of states keeps them from run to run.

use super::content::Sum;
use super::{DropsError, refused};
use anabranch_base::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Format name in a file of states.
const FORMAT: &str = "anabranch drop states";
/// Version that is written.
const VERSION: u32 = 1;
/// Most bytes of the file.
const MOST_BYTES: u64 = files::MOST_BYTES;

/// State of a drop.
///
/// The states of data (initialized, writing, completed, error) and of applications (not run, running, finished, error)
/// are DALiuGE's. Skipped and cancelled are for drops that were not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropState {
    /// Data that were not written.
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
    /// An application that has failed, or data that are missing.
    Error,
    /// A drop that depends on a drop with an error.
    Skipped,
    /// An application that was ended with the run, and its outputs.
    Cancelled,
}

impl DropState {
    /// Returns its name, as tables show it.
    pub fn name(self) -> &'static str {
        match self {
            DropState::Initialized => "initialized",
            DropState::Writing => "writing",
            DropState::Completed => "completed",
            DropState::NotRun => "not run",
            DropState::Running => "running",
            DropState::Finished => "finished",
            DropState::Error => "error",
            DropState::Skipped => "skipped",
            DropState::Cancelled => "cancelled",
        }
    }
}

/// Record of a drop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) state: DropState,
    /// For an application that has ended well: checksum of its command and its outputs' paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) work: Option<String>,
    /// For an application that has ended well: checksum of its inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inputs: Option<String>,
    /// For an application: its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    /// For completed data: their checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<String>,
    /// For completed data: their size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// Seconds since 1970 at which the state was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
}

impl Record {
    /// Returns the content of data.
    pub(super) fn sum(&self) -> Option<Sum> {
        Some(Sum { checksum: self.checksum.clone()?, bytes: self.bytes? })
    }

    pub(super) fn set_sum(&mut self, sum: &Sum) {
        (self.checksum, self.bytes) = (Some(sum.checksum.clone()), Some(sum.bytes));
    }

    /// Forgets everything but the state, so that the application is not skipped.
    pub(super) fn forget(&mut self) {
        *self = Record { state: self.state, ..Record::default() };
    }

    /// Forgets the previous results and sets the state of a new run.
    pub(super) fn begin(&mut self, state: DropState) {
        self.forget();
        self.state = state;
    }

    pub(super) fn complete(&mut self, sum: &Sum) {
        self.begin(DropState::Completed);
        self.set_sum(sum);
        self.at = Some(now());
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Records of a directory, by the drops' ids.
pub(super) type Records = BTreeMap<String, Record>;

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u32,
    drops: Records,
}

/// Reads a file of states. A missing file is empty.
///
/// # Errors
/// If it cannot be read or is not a file of states. It is left unchanged.
pub(super) fn load(path: &Path) -> Result<Records, DropsError> {
    let told = |why: String| {
        let next = "move it away to run everything again, or choose another directory (--dir)";
        refused(format!("{}: {why}; {next}", path.display()))
    };
    let bytes = match files::read(path, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Records::new()),
        Err(error) => return told(error.to_string()),
    };
    match serde_json::from_slice::<Document>(&bytes) {
        Err(error) => told(format!("is not a file of drop states: {}", files::json_problem(&error))),
        Ok(document) if document.format != FORMAT => {
            told("is not a file of drop states: its format differs".to_owned())
        }
        Ok(document) if document.version != VERSION => {
            told(format!("has version {}, but this Anabranch reads version {VERSION}", document.version))
        }
        Ok(document) => Ok(document.drops),
    }
}

/// Writes a file of states that was loaded before, atomically.
///
/// # Errors
/// If it cannot be written. An earlier file is then unchanged.
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
        let mut record = Record { state: DropState::Completed, at: Some(7), ..Record::default() };
        record.set_sum(&Sum::of(b"x"));
        let records = Records::from([("a".to_owned(), record), ("b".to_owned(), Record::default())]);
        save(&path, &records).unwrap();
        assert_eq!(load(&path), Ok(records));
        let ours = fs::read_to_string(&path).unwrap();
        let foreign = [
            ("{}".to_owned(), "format"),
            (ours[..ours.len() / 2].to_owned(), "cut off"),
            (ours.replace("drop states", "recipes"), "format differs"),
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
