//! The cost store: measured costs of nodes, transfers and runs, machine by machine.
//!
//! One JSON file, by default `anabranch/costs.json` under the XDG data directory. Reading changes nothing on the disk.
//! A file that is not a cost store is rejected and never overwritten, wherever its name comes from. Invalid entries are
//! dropped and counted, and the next write keeps the former file next to the new one. Several processes may add to one
//! file: each write adds what its process has learnt to the file's present content.

use super::link::LinkCosts;
use super::machine::{DeviceCosts, MachineCosts};
use super::since::Since;
use anabranch_base::files;
use anabranch_base::quoted::Line;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Largest size of a file in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// The version of the file format that this build writes.
pub const FORMAT_VERSION: u32 = 2;

/// Measured costs by machine. Predictions use only the costs of the machine at hand.
/// A file that does not exist is an empty store. `Session::save_costs` writes what a session has learned.
///
/// ```
/// # mod anabranch { pub use anabranch_costs::CostStore; }
/// use anabranch::CostStore;
///
/// # let directory = std::env::temp_dir().join(format!("anabranch-store-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("costs.json");
/// let mut store = CostStore::load(&path)?.store;
/// assert_eq!(store.machines().count(), 0);
/// store.save(&path)?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostStore {
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = FORMAT_VERSION)))]
    version: u32,
    /// Costs by the machine's fingerprint: processor, system, cores and memory.
    machines: Machines,
    /// Fingerprint of this machine.
    #[serde(skip)]
    here: String,
    /// Content of the file, as far as this store knows.
    #[serde(skip)]
    saved: Machines,
    /// Path of the store's file, if it has one.
    #[serde(skip)]
    place: Option<PathBuf>,
}

type Machines = BTreeMap<String, MachineCosts>;

/// Reason that a cost store could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(.0))]
pub struct StoreError(String);

/// A loaded store, with warnings about its file.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Usable part of the file.
    pub store: CostStore,
    /// Warnings of one line each about dropped entries.
    pub warnings: Vec<String>,
}

impl CostStore {
    /// Returns the default file: `$XDG_DATA_HOME/anabranch/costs.json`, or below `~/.local/share`.
    ///
    /// # Errors
    /// If the environment names neither directory.
    pub fn default_path() -> Result<PathBuf, StoreError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
        let nowhere = "the cost store has no path: neither XDG_DATA_HOME nor HOME is set; name a file";
        Ok(data.ok_or_else(|| StoreError(nowhere.into()))?.join("anabranch/costs.json"))
    }

    /// Loads a store. A missing file is an empty store.
    ///
    /// # Errors
    /// If the file cannot be read or is not a cost store of this format; it stays unchanged.
    pub fn load(path: &Path) -> Result<Loaded, StoreError> {
        let Some((mut store, dropped)) = Self::there(path)? else { return Ok(Loaded::default()) };
        store.saved.clone_from(&store.machines);
        store.place = fs::canonicalize(path).ok();
        let text = || format!("invalid entries, not used: {dropped}; the next write keeps a copy of the present file");
        let warnings = (dropped > 0).then(|| format!("cost store {}: {}", path.display(), text()));
        Ok(Loaded { store, warnings: warnings.into_iter().collect() })
    }

    /// Reads the store of a file, and the number of its invalid entries.
    fn there(path: &Path) -> Result<Option<(Self, usize)>, StoreError> {
        match files::read(path, MOST_BYTES) {
            Ok(text) => Ok(Some(Self::parse(&text).map_err(|problem| no_store(path, &problem))?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(path, error)),
        }
    }

    /// Creates the file's directory if necessary, and checks that the store can be written, before anything is
    /// measured.
    ///
    /// # Errors
    /// If the directory cannot be created or the file cannot be written.
    pub fn ready(path: &Path) -> Result<(), StoreError> {
        files::ready(path).map_err(|error| refused(path, error))
    }

    /// Adds everything learnt since the last load or save to the file's present content, in one step.
    ///
    /// Readers never see half a file. Additions of other processes stay in the file, and this store knows them
    /// afterwards. If this store was neither loaded from the file nor last saved to it, the whole store is added. A
    /// session saves its costs by `Session::save_costs`.
    ///
    /// Forgotten costs ([`Self::forget`]) may stay in the file: they come back if another process has written
    /// meanwhile. [`Self::replace`] leaves nothing.
    ///
    /// # Errors
    /// If the file is no longer a cost store or cannot be written. The old content is then still whole, and a later
    /// save adds nothing twice.
    pub fn save(&mut self, path: &Path) -> Result<(), StoreError> {
        self.write(path, true)
    }

    /// Replaces the file's content by this store.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn replace(&mut self, path: &Path) -> Result<(), StoreError> {
        self.write(path, false)
    }

    fn write(&mut self, path: &Path, add: bool) -> Result<(), StoreError> {
        files::make_directory(path).map_err(|error| refused(path, error))?;
        let _held = files::DirectoryLock::beside(path).map_err(|error| refused(path, error))?;
        if let Some((mut there, dropped)) = Self::there(path)? {
            if dropped > 0 {
                keep_aside(path).map_err(|error| refused(path, error))?;
            }
            there.settle(&self.here);
            if add {
                self.add_to(there.machines, fs::canonicalize(path).ok());
            }
        }
        let text = self.to_json().map_err(|error| refused(path, error))?;
        files::write_known(path, |file| file.write_all(&text)).map_err(|error| refused(path, error))?;
        self.saved.clone_from(&self.machines);
        self.place = fs::canonicalize(path).ok();
        Ok(())
    }

    /// Merges new measurements into the content of the file at `place`. From then on the store knows that content,
    /// whether or not it is written.
    fn add_to(&mut self, there: Machines, place: Option<PathBuf>) {
        if place != self.place {
            self.saved.clear();
        }
        if there != self.saved {
            let new = self.machines.since(&self.saved).unwrap_or_default();
            self.machines.clone_from(&there);
            self.add(&new, &self.saved.clone());
        }
        (self.saved, self.place) = (there, place);
    }

    /// Adds the measurements that `later` made after its copy `earlier`, from which this store was made, too.
    pub fn catch_up(&mut self, earlier: &Self, later: &Self) {
        let new = later.machines.since(&earlier.machines).unwrap_or_default();
        self.add(&new, &earlier.machines);
    }

    /// Adds the additions since `before`.
    fn add(&mut self, new: &Machines, before: &Machines) {
        for (fingerprint, costs) in new {
            let machine = self.machines.entry(fingerprint.clone()).or_default();
            machine.merge(costs);
            machine.recalibrate(costs, before.get(fingerprint));
        }
    }

    /// Names this machine: predictions and new measurements use the costs of this fingerprint from now on.
    ///
    /// Measurements of a machine without a name are assigned to this machine; its devices are still distinguished by
    /// their keys. Returns notes for the user.
    pub fn settle(&mut self, fingerprint: &str) -> Vec<String> {
        let mut notes = Vec::new();
        self.here = fingerprint.to_owned();
        for machines in [&mut self.machines, &mut self.saved] {
            if let Some(unnamed) = machines.remove("").filter(|unnamed| !unnamed.is_empty()) {
                machines.entry(fingerprint.to_owned()).or_default().merge(&unnamed);
            }
        }
        self.version = FORMAT_VERSION;
        let others: Vec<&str> = self.others().collect();
        if self.here().is_empty() && !others.is_empty() {
            notes.push(format!(
                "the cost store has no measurements of this machine ({fingerprint}); those of {} are kept and \
                 not used",
                others.join("; ")
            ));
        }
        notes
    }

    /// Returns the fingerprint of this machine; empty until [`CostStore::settle`].
    pub fn fingerprint(&self) -> &str {
        &self.here
    }

    /// Returns the costs of this machine.
    pub fn here(&self) -> &MachineCosts {
        static NOTHING: LazyLock<MachineCosts> = LazyLock::new(MachineCosts::default);
        self.machines.get(&self.here).unwrap_or(&NOTHING)
    }

    /// Returns the costs of this machine, to add to them.
    pub fn here_mut(&mut self) -> &mut MachineCosts {
        self.machines.entry(self.here.clone()).or_default()
    }

    /// Returns the costs of any machine, to add to them.
    pub(super) fn machine_mut(&mut self, fingerprint: &str) -> &mut MachineCosts {
        self.machines.entry(fingerprint.to_owned()).or_default()
    }

    /// Iterates over all machines' costs with their fingerprints.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &MachineCosts)> {
        self.machines.iter().map(|(fingerprint, costs)| (fingerprint.as_str(), costs))
    }

    /// Iterates over the fingerprints of other machines.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.machines.keys().map(String::as_str).filter(|fingerprint| *fingerprint != self.here)
    }

    /// Drops all measured nodes, transfers and runs, on all machines; with `all` also calibrations.
    ///
    /// Returns the number of dropped nodes.
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

    /// Adds another store's knowledge, machine by machine.
    pub fn merge(&mut self, other: &Self) {
        for (fingerprint, costs) in &other.machines {
            self.machines.entry(fingerprint.clone()).or_default().merge(costs);
        }
    }

    /// Returns the text of the store's file.
    pub(super) fn to_json(&self) -> io::Result<Vec<u8>> {
        let known = self.machines.iter().filter(|(_, costs)| !costs.is_empty());
        let machines = known.map(|(fingerprint, costs)| (fingerprint.clone(), costs.clone())).collect();
        let current = Self { version: FORMAT_VERSION, machines, ..Self::default() };
        let mut text = serde_json::to_vec_pretty(&current)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Parses a file's text. Returns the store and the number of invalid entries; the error says why the text is not a
    /// store.
    pub(super) fn parse(text: &[u8]) -> Result<(Self, usize), String> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(text).map_err(|error| files::json_problem(&error))?;
        if head.version != FORMAT_VERSION {
            return Err(format!("its format is {}, but this program reads {FORMAT_VERSION}", head.version));
        }
        let mut store: Self = serde_json::from_slice(text).map_err(|error| files::json_problem(&error))?;
        let dropped = store.machines.values_mut().map(MachineCosts::clean).sum();
        Ok((store, dropped))
    }
}

impl PartialEq for CostStore {
    /// Whether both hold the same costs. The files of the stores do not matter.
    fn eq(&self, other: &Self) -> bool {
        (self.version, &self.here, &self.machines) == (other.version, &other.here, &other.machines)
    }
}

fn no_store(path: &Path, problem: &str) -> StoreError {
    StoreError(format!(
        "{} is not a cost store: {problem}; it was not changed: name another file, or move it away",
        path.display()
    ))
}

fn refused(path: &Path, error: io::Error) -> StoreError {
    StoreError(format!("cost store {}: {error}; name another file", path.display()))
}

/// Copies a file to the first free name `path.dropped-N`.
fn keep_aside(path: &Path) -> io::Result<()> {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".dropped-{number}"));
        PathBuf::from(name)
    };
    let mut free = (1..10_000).map(named).filter(|aside| fs::symlink_metadata(aside).is_err());
    let aside = free.next().ok_or_else(|| io::Error::other("there are too many old copies of it"))?;
    let text = files::read(path, MOST_BYTES)?;
    files::write(&aside, |file| file.write_all(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{History, LinkCosts, NodeCosts, Sample};
    use std::sync::Arc;

    /// A store of the machine `m` with three samples of a node and a link.
    fn filled() -> CostStore {
        let mut store = CostStore { version: FORMAT_VERSION, ..CostStore::default() };
        store.settle("m");
        let mut history = History::default();
        for nanoseconds in [10.0, 12.0, 14.0] {
            history.add(Sample { nanoseconds, cold: false, at: 7 });
        }
        let versions = BTreeMap::from([(anabranch_kernels::VERSION, Box::new(history))]);
        let node = NodeCosts { op: "map".into(), flops: 4.0, bytes: 8.0, versions, ..NodeCosts::default() };
        let here = store.here_mut();
        here.devices.entry("cpu".into()).or_default().nodes.insert("relu".into(), node.into());
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
    fn what_is_learnt_while_a_file_is_written_is_saved_next() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("costs.json");
        let before = filled();
        let (mut saved, mut later) = (before.clone(), before.clone());
        saved.save(&path).expect("writable");
        let device = later.here_mut().devices.get_mut("cpu").expect("it was filled");
        let history = device.nodes.get_mut("relu").and_then(|node| Arc::make_mut(node).versions.values_mut().next());
        history.expect("it was filled").add(Sample { nanoseconds: 16.0, cold: false, at: 8 });
        saved.catch_up(&before, &later);
        saved.save(&path).expect("writable");
        let mut loaded = CostStore::load(&path).expect("readable").store;
        loaded.settle("m");
        let samples =
            |store: &CostStore| store.here().node("cpu", "relu").and_then(History::estimate).map(|it| it.samples);
        assert_eq!((samples(&before), samples(&saved), samples(&loaded)), (Some(3), Some(4), Some(4)));
    }

    #[test]
    fn what_is_no_store_is_refused_and_left_as_it_is() {
        let whole = String::from_utf8(filled().to_json().expect("text")).expect("ASCII");
        let cuts = [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 3].map(|length| &whole[..length]);
        let others = ["{\"devices\": {", "\"text\"", "{\"version\": 1}", "{\"version\": 999}", "\u{0}"];
        for text in cuts.into_iter().chain(others) {
            let (directory, path) = written(text);
            let refused = [CostStore::load(&path).map(drop), filled().save(&path), filled().replace(&path)];
            for refused in refused {
                let message = refused.expect_err("no store").to_string();
                assert!(message.contains("is not a cost store") && message.contains("move it away"), "{message}");
            }
            assert_eq!(fs::read_to_string(&path).expect("kept"), text);
            assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
        }
    }

    #[test]
    fn entries_without_sense_are_dropped_alone_and_kept_in_a_copy_when_the_store_is_written() {
        let mut store = filled();
        let here = store.here_mut();
        here.links.insert("a -> b".into(), LinkCosts::affine(-1.0, 0.0));
        let versions = BTreeMap::from([(1, Box::default())]);
        let none = NodeCosts { versions, ..NodeCosts::default() };
        here.devices.entry("cpu".into()).or_default().nodes.insert("none".into(), none.into());
        let text = store.to_json().expect("text");
        let (directory, path) = written(&text);
        let aside = directory.path().join("costs.json.dropped-1");
        let mut loaded = CostStore::load(&path).expect("readable");
        loaded.store.settle("m");
        assert_eq!(loaded.store, filled());
        assert!(loaded.warnings[0].contains("invalid entries, not used: 2"), "{:?}", loaded.warnings);
        assert!(!aside.exists(), "reading changes nothing");
        loaded.store.save(&path).expect("writable");
        assert_eq!(fs::read(aside).expect("kept"), text);
    }

    #[test]
    fn several_processes_with_one_store_lose_nothing() {
        let (_directory, path) = written(filled().to_json().expect("text"));
        // Times differ, as measured times do: a history that equals another counts as the same history, read once more.
        let add = |store: &mut CostStore, node: &str, time: usize| {
            let devices = &mut store.here_mut().devices;
            let node = devices.entry("cpu".into()).or_default().nodes.entry(node.into()).or_default();
            let history = Arc::make_mut(node).versions.entry(anabranch_kernels::VERSION).or_default();
            assert!(history.add(Sample { nanoseconds: 11.0 + time as f64 / 100.0, cold: false, at: 8 }));
        };
        const PROCESSES: usize = 8;
        let all_read = std::sync::Barrier::new(PROCESSES);
        std::thread::scope(|scope| {
            for process in 0..PROCESSES {
                let (path, all_read) = (&path, &all_read);
                scope.spawn(move || {
                    let mut store = CostStore::load(path).expect("readable").store;
                    store.settle("m");
                    all_read.wait();
                    // Saved samples are not added again.
                    for round in 0..3 {
                        let time = 3 * process + round;
                        add(&mut store, &format!("of process {process}"), time);
                        add(&mut store, "relu", time);
                        store.save(path).expect("writable");
                    }
                });
            }
        });
        let mut store = CostStore::load(&path).expect("readable").store;
        store.settle("m");
        let count = |node: &str| store.here().node("cpu", node).map(|history| history.count);
        assert_eq!(count("relu"), Some(3 + 3 * PROCESSES as u64));
        assert!((0..PROCESSES).all(|process| count(&format!("of process {process}")) == Some(3)));
    }

    fn count(path: &Path) -> Option<u64> {
        let mut store = CostStore::load(path).expect("readable").store;
        store.settle("m");
        store.here().node("cpu", "relu").map(|history| history.count)
    }

    fn add(store: &mut CostStore, nanoseconds: f64) {
        let nodes = &mut store.here_mut().devices.entry("cpu".into()).or_default().nodes;
        let node = Arc::make_mut(nodes.entry("relu".into()).or_default());
        let history = node.versions.entry(anabranch_kernels::VERSION).or_default();
        assert!(history.add(Sample { nanoseconds, cold: false, at: 8 }));
    }

    /// Two processes that have read the same file.
    fn two(path: &Path) -> [CostStore; 2] {
        [(), ()].map(|()| {
            let mut store = CostStore::load(path).expect("readable").store;
            store.settle("m");
            store
        })
    }

    #[test]
    fn what_could_not_be_written_is_not_added_twice() {
        let (_directory, path) = written(filled().to_json().expect("text"));
        let [mut ours, mut others] = two(&path);
        add(&mut ours, 11.0);
        add(&mut others, 12.0);
        others.save(&path).expect("writable");
        let writable = fs::metadata(&path).expect("a file").permissions();
        let mut read_only = writable.clone();
        read_only.set_readonly(true);
        fs::set_permissions(&path, read_only).expect("own file");
        for _ in 0..2 {
            ours.save(&path).expect_err("marked as read-only");
        }
        fs::set_permissions(&path, writable).expect("own file");
        ours.save(&path).expect("writable");
        assert_eq!(count(&path), Some(5));
        add(&mut ours, 13.0);
        ours.save(&path).expect("writable");
        assert_eq!(count(&path), Some(6));
    }

    #[test]
    fn another_file_is_given_all_and_each_is_given_what_it_lacks() {
        let mut other = CostStore::default();
        other.settle("m");
        add(&mut other, 20.0);
        let (_directory, path) = written(filled().to_json().expect("text"));
        let (_other_directory, other_path) = written(other.to_json().expect("text"));
        let [mut store, _] = two(&path);
        add(&mut store, 11.0);
        store.save(&path).expect("writable");
        store.save(&other_path).expect("writable");
        assert_eq!((count(&path), count(&other_path)), (Some(4), Some(5)));
        // Same file under another name.
        let directory = other_path.parent().expect("a directory");
        let by_another_name = directory.join("..").join(directory.file_name().expect("named")).join("costs.json");
        add(&mut store, 12.0);
        store.save(&by_another_name).expect("writable");
        assert_eq!(count(&other_path), Some(6));
    }

    #[test]
    fn slowdowns_of_two_processes_are_all_kept_the_newest_last() {
        let (_directory, path) = written(filled().to_json().expect("text"));
        let key = MachineCosts::slowdown_key("cpu", "gpu");
        let show = |store: &mut CostStore, ratios: &[f64]| {
            let slowdown = store.here_mut().slowdowns.entry(key.clone()).or_default();
            ratios.iter().for_each(|ratio| slowdown.add(*ratio));
        };
        let [mut first, _] = two(&path);
        show(&mut first, &[1.0; 10]);
        first.save(&path).expect("writable");
        let [mut ours, mut others] = two(&path);
        show(&mut others, &[2.0, 3.0]);
        others.save(&path).expect("writable");
        show(&mut ours, &[4.0, 5.0, 6.0]);
        ours.save(&path).expect("writable");
        let kept = |store: &CostStore| store.here().slowdowns.get(&key).map(|slowdown| slowdown.recent.clone());
        let mut expected = vec![1.0; 10];
        expected.extend([2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(kept(&ours), Some(expected.clone()));
        // Full windows lose their oldest samples.
        show(&mut others, &[7.0; 3]);
        others.save(&path).expect("writable");
        expected.extend([7.0; 3]);
        assert_eq!(kept(&others), Some(expected[2..].to_vec()));
    }

    #[test]
    fn a_new_law_of_a_link_stays_whoever_writes_next() {
        let (_directory, path) = written(filled().to_json().expect("text"));
        let key = MachineCosts::link_key("cpu", "gpu");
        let law = |store: &CostStore| store.here().links.get(&key).map(|link| (link.latency, link.rate));
        let [mut ours, mut calibrated] = two(&path);
        calibrated.here_mut().links.get_mut(&key).expect("known").rate = 2e10;
        calibrated.save(&path).expect("writable");
        let link = ours.here_mut().links.get_mut(&key).expect("known");
        assert!(link.record(64, Sample { nanoseconds: 5.0, cold: false, at: 9 }));
        ours.save(&path).expect("writable");
        assert_eq!((law(&ours), law(&two(&path)[0])), (Some((1e-5, 2e10)), Some((1e-5, 2e10))));
        assert_eq!(ours.here().links.get(&key).map(|link| link.sizes.len()), Some(1));
        // A calibration of this process replaces the file's.
        add(&mut calibrated, 11.0);
        calibrated.save(&path).expect("writable");
        ours.here_mut().links.get_mut(&key).expect("known").latency = 3e-5;
        ours.save(&path).expect("writable");
        assert_eq!(law(&two(&path)[0]), Some((3e-5, 2e10)));
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
