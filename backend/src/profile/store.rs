//! The cost store: what nodes, transfers and runs were measured to cost, machine by machine.
//!
//! One JSON file, by default `anabranch/costs.json` under the XDG data directory. A file that cannot be read is set
//! aside under another name, never overwritten; an entry that makes no sense is dropped and counted, and the file as it was is kept
//! beside the new one.

use super::link::LinkCosts;
use super::machine::{DeviceCosts, MachineCosts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The version of the file format that this build writes.
pub const FORMAT_VERSION: u32 = 2;

/// Measured costs by machine. Only those of the machine that [`CostStore::settle`] names are predicted from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostStore {
    /// Format of the file.
    version: u32,
    /// By fingerprint.
    machines: BTreeMap<String, MachineCosts>,
    /// Fingerprint of the machine that this is.
    #[serde(skip)]
    here: String,
}

/// Why a cost store could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(String);

/// A store as loaded, and what had to be said about the file.
#[derive(Debug, Default)]
pub struct Loaded {
    /// What could be used.
    pub store: CostStore,
    /// One line each: set aside, entries dropped.
    pub warnings: Vec<String>,
}

impl CostStore {
    /// The default file: `$XDG_DATA_HOME/anabranch/costs.json`, or below `~/.local/share`.
    ///
    /// # Errors
    /// If the environment names neither directory.
    pub fn default_path() -> Result<PathBuf, StoreError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
        let nowhere = "no place for the cost store: neither XDG_DATA_HOME nor HOME is set; name a file";
        Ok(data.ok_or_else(|| StoreError(nowhere.into()))?.join("anabranch/costs.json"))
    }

    /// Reads a store. A missing file is an empty store. A file that is not a cost store, or one
    /// of another format, is renamed to `FILE.unreadable-N` with a warning, and an empty store is returned.
    ///
    /// # Errors
    /// If the file exists and cannot be read or set aside.
    pub fn load(path: &Path) -> Result<Loaded, StoreError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::default()),
            Err(error) => return Err(refused(path, error)),
        };
        let (store, warning) = match Self::parse(&text) {
            Ok((store, 0)) => return Ok(Loaded { store, warnings: Vec::new() }),
            Ok((store, dropped)) => {
                let aside = beside(path, "dropped").and_then(|aside| fs::copy(path, &aside).map(|_| aside));
                let aside = aside.map_err(|error| refused(path, error))?;
                let problem = format!("{dropped} entries made no sense and were dropped");
                (store, format!("{problem}; the file as it was is kept as {}", aside.display()))
            }
            Err(unusable) => {
                let aside = beside(path, "unreadable").and_then(|aside| fs::rename(path, &aside).map(|()| aside));
                let aside = aside.map_err(|error| refused(path, error))?;
                (Self::default(), format!("{unusable}; kept as {}, starting anew", aside.display()))
            }
        };
        Ok(Loaded { store, warnings: vec![format!("cost store {}: {warning}", path.display())] })
    }

    /// Writes the store: to a new file beside `path` first, which then replaces it, so that no reader ever sees half.
    ///
    /// # Errors
    /// If the directory or the file cannot be written; an existing store is then still whole.
    pub fn save(&self, path: &Path) -> Result<(), StoreError> {
        let write = || -> io::Result<()> {
            let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::create_dir_all(directory)?;
            let temporary = path.with_extension(format!("json.{}", std::process::id()));
            let mut file = fs::File::create(&temporary)?;
            file.write_all(&self.to_json()?)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|error| refused(path, error))
    }

    /// Says which machine this is: from now on the costs of this fingerprint are predicted from and added to. What was measured on
    /// a machine that has no name is taken for this one's: its devices are still told apart by their keys. Returns what a person
    /// should know.
    pub fn settle(&mut self, fingerprint: &str) -> Vec<String> {
        let mut notes = Vec::new();
        self.here = fingerprint.to_owned();
        if let Some(unnamed) = self.machines.remove("")
            && !unnamed.is_empty()
        {
            self.here_mut().merge(&unnamed);
        }
        self.version = FORMAT_VERSION;
        let others: Vec<&str> = self.others().collect();
        if self.here().is_empty() && !others.is_empty() {
            notes.push(format!(
                "the cost store knows nothing of this machine ({fingerprint}); what it holds of {} is kept and not used",
                others.join("; ")
            ));
        }
        notes
    }

    /// The fingerprint of the machine that this is; empty until [`CostStore::settle`].
    pub fn fingerprint(&self) -> &str {
        &self.here
    }

    /// The costs of the machine that this is.
    pub fn here(&self) -> &MachineCosts {
        static NOTHING: LazyLock<MachineCosts> = LazyLock::new(MachineCosts::default);
        self.machines.get(&self.here).unwrap_or(&NOTHING)
    }

    /// The costs of the machine that this is, to be added to.
    pub fn here_mut(&mut self) -> &mut MachineCosts {
        self.machines.entry(self.here.clone()).or_default()
    }

    /// The costs of any machine, to be added to.
    pub(super) fn machine_mut(&mut self, fingerprint: &str) -> &mut MachineCosts {
        self.machines.entry(fingerprint.to_owned()).or_default()
    }

    /// All machines' costs by fingerprint.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &MachineCosts)> {
        self.machines.iter().map(|(fingerprint, costs)| (fingerprint.as_str(), costs))
    }

    /// The fingerprints of the machines that this is not.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.machines.keys().map(String::as_str).filter(|fingerprint| *fingerprint != self.here)
    }

    /// Forgets all measured nodes, transfers and runs, on all machines; with `all` also what was calibrated. Returns how many nodes
    /// that were.
    pub fn forget(&mut self, all: bool) -> usize {
        let devices = || self.machines.values().flat_map(|machine| machine.devices.values());
        let forgotten = devices().map(|device| device.nodes.len()).sum();
        if all {
            self.machines.clear();
        }
        for machine in self.machines.values_mut() {
            for device in machine.devices.values_mut() {
                *device = DeviceCosts { rates: device.rates, ..DeviceCosts::default() };
            }
            for link in machine.links.values_mut() {
                *link = LinkCosts::affine(link.latency, link.rate);
            }
            machine.runs.clear();
            machine.slowdowns.clear();
            machine.calibrated.clear();
        }
        forgotten
    }

    /// Adds what another store knows, machine by machine.
    pub fn merge(&mut self, other: &Self) {
        for (fingerprint, costs) in &other.machines {
            self.machines.entry(fingerprint.clone()).or_default().merge(costs);
        }
    }

    /// The store as the file's text.
    pub(super) fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut current = Self { version: FORMAT_VERSION, ..self.clone() };
        current.machines.retain(|_, costs| !costs.is_empty());
        let mut text = serde_json::to_vec_pretty(&current)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads the file's text: the store, and how many entries made no sense. The error says why it is none.
    pub(super) fn parse(text: &[u8]) -> Result<(Self, usize), String> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if head.version != FORMAT_VERSION {
            return Err(format!("its format is {}, and this program knows {FORMAT_VERSION}", head.version));
        }
        let mut store: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let dropped = store.machines.values_mut().map(MachineCosts::clean).sum();
        Ok((store, dropped))
    }
}

fn refused(path: &Path, error: io::Error) -> StoreError {
    StoreError(format!("cost store {}: {error}; name another file", path.display()))
}

/// The first name `path.WHY-N` that is free.
fn beside(path: &Path, why: &str) -> io::Result<PathBuf> {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{why}-{number}"));
        PathBuf::from(name)
    };
    let mut free = (1..10_000).map(named).filter(|aside| !aside.exists());
    free.next().ok_or_else(|| io::Error::other("too many old copies beside it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{History, LinkCosts, NodeCosts, Sample};

    /// A store of machine `m` with three samples of a node and a link.
    fn filled() -> CostStore {
        let mut store = CostStore { version: FORMAT_VERSION, ..CostStore::default() };
        store.settle("m");
        let mut history = History::default();
        for nanoseconds in [10.0, 12.0, 14.0] {
            history.add(Sample { nanoseconds, cold: false, at: 7 });
        }
        let versions = BTreeMap::from([(anabranch_kernels::VERSION, history)]);
        let node = NodeCosts { op: "map".into(), flops: 4.0, bytes: 8.0, versions, ..NodeCosts::default() };
        let here = store.here_mut();
        here.devices.entry("cpu".into()).or_default().nodes.insert("relu".into(), node);
        here.links.insert(MachineCosts::link_key("cpu", "gpu"), LinkCosts::affine(1e-5, 1e10));
        store
    }

    fn written(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("costs.json");
        fs::write(&path, text).expect("writable");
        (directory, path)
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("new/costs.json");
        filled().save(&path).expect("writable");
        let mut loaded = CostStore::load(&path).expect("readable");
        assert_eq!(loaded.store.settle("m"), Vec::<String>::new());
        assert_eq!((loaded.store, loaded.warnings), (filled(), vec![]));
    }

    #[test]
    fn an_unreadable_store_is_kept_aside() {
        let whole = String::from_utf8(filled().to_json().expect("text")).expect("ASCII");
        let cuts = [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 3].map(|length| &whole[..length]);
        let others = ["{\"devices\": {", "\"text\"", "{\"version\": 1}", "{\"version\": 999}", "\u{0}"];
        for text in cuts.into_iter().chain(others) {
            let (directory, path) = written(text);
            let loaded = CostStore::load(&path).expect("set aside");
            assert_eq!(loaded.store, CostStore::default());
            assert_eq!(loaded.warnings.len(), 1);
            let aside = directory.path().join("costs.json.unreadable-1");
            assert_eq!(fs::read_to_string(aside).expect("kept"), text);
        }
    }

    #[test]
    fn entries_without_sense_are_dropped_alone_and_kept_in_a_copy() {
        let mut store = filled();
        let here = store.here_mut();
        here.links.insert("a -> b".into(), LinkCosts::affine(-1.0, 0.0));
        let versions = BTreeMap::from([(1, History::default())]);
        let none = NodeCosts { versions, ..NodeCosts::default() };
        here.devices.entry("cpu".into()).or_default().nodes.insert("none".into(), none);
        let (directory, path) = written(store.to_json().expect("text"));
        let mut loaded = CostStore::load(&path).expect("readable");
        loaded.store.settle("m");
        assert_eq!(loaded.store, filled());
        assert!(loaded.warnings[0].contains("2 entries"), "{:?}", loaded.warnings);
        assert!(directory.path().join("costs.json.dropped-1").exists());
    }

    #[test]
    fn another_machines_costs_are_kept_and_not_used() {
        let (_directory, path) = written(filled().to_json().expect("text"));
        let mut carried = CostStore::load(&path).expect("readable").store;
        let notes = carried.settle("another");
        assert!(notes.len() == 1 && notes[0].contains("kept and not used"), "{notes:?}");
        assert!(carried.here().is_empty() && carried.here().node("cpu", "relu").is_none());
        carried.save(&path).expect("writable");
        let mut home = CostStore::load(&path).expect("readable").store;
        home.settle("m");
        assert_eq!(home, filled());
    }
}
