//! The cost store: what nodes and transfers were measured to cost on this machine's devices.
//!
//! One JSON file, by default `anabranch/costs.json` under the XDG data directory. A file that cannot be read is set
//! aside under another name, never overwritten; an entry that makes no sense is dropped and counted.

use super::statistics::Statistics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The version of the file format that this build writes.
pub const FORMAT_VERSION: u32 = 1;

/// Measured costs of one machine's devices and links. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostStore {
    /// Format of the file.
    #[serde(default)]
    pub version: u32,
    /// By device key: see [`DeviceCosts`].
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceCosts>,
    /// By the keys of both ends, `from -> to`.
    #[serde(default)]
    pub links: BTreeMap<String, LinkCosts>,
}

/// What one device was measured to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceCosts {
    /// Peak rates, if the device was calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// Times of nodes by [`NodeSpec::key`](anabranch_kernels::op::NodeSpec::key).
    #[serde(default)]
    pub nodes: BTreeMap<String, Statistics>,
}

/// A device's rates as measured by calibration: the parameters of a roofline (Williams 2009).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Floating-point operations per second of a large matrix product.
    pub matmul_flops: f64,
    /// Floating-point operations per second of a 3×3 convolution.
    pub conv_flops: f64,
    /// Floating-point operations per second of a long element-wise expression.
    pub map_flops: f64,
    /// Bytes per second read and written by an element-wise node on tensors larger than the caches.
    pub bandwidth: f64,
    /// Seconds that the smallest node takes.
    pub launch: f64,
}

/// A directed link as measured: a transfer of `n` bytes takes `latency + n / rate`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCosts {
    /// Seconds before the first byte.
    pub latency: f64,
    /// Bytes per second.
    pub rate: f64,
}

/// A cost store that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system refused.
    #[error("cost store {}: {source}; name another file with --costs", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is nowhere to put it.
    #[error("no place for the cost store: neither XDG_DATA_HOME nor HOME is set; name a file with --costs")]
    NoHome,
}

/// A store as loaded, and what had to be said about the file.
#[derive(Debug)]
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
        Ok(data.ok_or(StoreError::NoHome)?.join("anabranch/costs.json"))
    }

    /// Reads a store. A missing file is an empty store. A file that is not a cost store, or one of a newer format, is
    /// renamed to `FILE.unreadable-N` with a warning, and an empty store is returned.
    ///
    /// # Errors
    /// If the file exists and cannot be read or set aside.
    pub fn load(path: &Path) -> Result<Loaded, StoreError> {
        let io_error = |source| StoreError::Io { path: path.to_owned(), source };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Loaded { store: Self::default(), warnings: Vec::new() });
            }
            Err(error) => return Err(io_error(error)),
        };
        let unusable = match serde_json::from_slice::<Self>(&text) {
            Ok(store) if store.version <= FORMAT_VERSION => return Ok(store.cleaned(path)),
            Ok(store) => format!("its format {} is newer than this program's {FORMAT_VERSION}", store.version),
            Err(error) => error.to_string(),
        };
        let aside = set_aside(path).map_err(io_error)?;
        let warning = format!("cost store {}: {unusable}; kept as {}, starting anew", path.display(), aside.display());
        Ok(Loaded { store: Self::default(), warnings: vec![warning] })
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
            let current = Self { version: FORMAT_VERSION, ..self.clone() };
            file.write_all(&serde_json::to_vec_pretty(&current)?)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|source| StoreError::Io { path: path.to_owned(), source })
    }

    /// The key of a directed link.
    pub fn link_key(from: &str, to: &str) -> String {
        format!("{from} -> {to}")
    }

    /// Adds one measured time, in nanoseconds, of a node on a device, taken at `now` (seconds since 1970).
    pub fn record(&mut self, device: &str, node: &str, nanoseconds: f64, now: u64) {
        let nodes = match self.devices.get_mut(device) {
            Some(costs) => &mut costs.nodes,
            None => &mut self.devices.entry(device.to_owned()).or_default().nodes,
        };
        match nodes.get_mut(node) {
            Some(statistics) => statistics.add(nanoseconds, now),
            None => nodes.entry(node.to_owned()).or_default().add(nanoseconds, now),
        }
    }

    /// The statistics of a node on a device.
    pub fn node(&self, device: &str, node: &str) -> Option<&Statistics> {
        self.devices.get(device)?.nodes.get(node)
    }

    /// Drops entries whose figures cannot be times or rates, and says how many.
    fn cleaned(mut self, path: &Path) -> Loaded {
        let mut dropped = 0;
        let mut keep = |good: bool| {
            dropped += usize::from(!good);
            good
        };
        for costs in self.devices.values_mut() {
            costs.nodes.retain(|_, statistics| keep(statistics.is_sane()));
            costs.rates = costs.rates.filter(|rates| keep(rates.is_sane()));
        }
        self.links.retain(|_, link| keep(link.is_sane()));
        let warning = format!("cost store {}: {dropped} entries made no sense and were dropped", path.display());
        Loaded { store: self, warnings: if dropped > 0 { vec![warning] } else { Vec::new() } }
    }
}

impl Rates {
    /// Whether the figures can be rates.
    pub fn is_sane(&self) -> bool {
        let rates = [self.matmul_flops, self.conv_flops, self.map_flops, self.bandwidth];
        rates.iter().all(|rate| rate.is_normal() && *rate > 0.0) && self.launch.is_finite() && self.launch >= 0.0
    }
}

impl LinkCosts {
    fn is_sane(&self) -> bool {
        self.latency.is_finite() && self.latency >= 0.0 && self.rate.is_normal() && self.rate > 0.0
    }
}

/// Renames `path` to the first free `path.unreadable-N`.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 1..10_000 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".unreadable-{number}"));
        let aside = PathBuf::from(name);
        if !aside.exists() {
            fs::rename(path, &aside)?;
            return Ok(aside);
        }
    }
    Err(io::Error::other("too many unreadable copies beside it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> CostStore {
        let mut store = CostStore { version: FORMAT_VERSION, ..CostStore::default() };
        for time in [10.0, 12.0, 14.0] {
            store.record("cpu", "relu", time, 7);
        }
        store.links.insert(CostStore::link_key("cpu", "gpu"), LinkCosts { latency: 1e-5, rate: 1e10 });
        store
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("new/costs.json");
        filled().save(&path).expect("writable");
        let loaded = CostStore::load(&path).expect("readable");
        assert_eq!((loaded.store, loaded.warnings), (filled(), vec![]));
    }

    #[test]
    fn an_unreadable_store_is_kept_aside() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("costs.json");
        for (number, text) in ["{\"devices\": {", "\"text\"", "{\"version\": 999}", "\u{0}"].iter().enumerate() {
            fs::write(&path, text).expect("writable");
            let loaded = CostStore::load(&path).expect("set aside");
            assert_eq!(loaded.store, CostStore::default());
            assert_eq!(loaded.warnings.len(), 1);
            let aside = directory.path().join(format!("costs.json.unreadable-{}", number + 1));
            assert_eq!(fs::read_to_string(aside).expect("kept"), *text);
        }
    }

    #[test]
    fn entries_without_sense_are_dropped_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("costs.json");
        let mut store = filled();
        store.links.insert("a -> b".into(), LinkCosts { latency: -1.0, rate: 0.0 });
        store.devices.entry("cpu".into()).or_default().nodes.insert("none".into(), Statistics::default());
        store.save(&path).expect("writable");
        let loaded = CostStore::load(&path).expect("readable");
        assert_eq!(loaded.store, filled());
        assert!(loaded.warnings[0].contains("2 entries"), "{:?}", loaded.warnings);
    }
}
