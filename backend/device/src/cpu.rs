//! A CPU device: cores that work as one team on one node at a time.
#![forbid(unsafe_code)]

use super::CacheSummary;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// Part of the machine's cores that forms one CPU device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuGranularity {
    /// All cores are one device.
    Machine,
    /// One device per package (socket).
    Package,
    /// One device per NUMA node.
    Numa,
    /// One device per last-level (L3) cache. The cores of a NUMA node without L3 form one device.
    #[default]
    L3,
    /// One device per core.
    Core,
}

impl CpuGranularity {
    /// All granularities, from the coarsest to the finest.
    pub const ALL: [Self; 5] = [Self::Machine, Self::Package, Self::Numa, Self::L3, Self::Core];
}

/// Formats the name used on the command line and in JSON.
impl fmt::Display for CpuGranularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for CpuGranularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|division| division.to_string().eq_ignore_ascii_case(text));
        let names = || Self::ALL.map(|division| division.to_string()).join(", ");
        found.ok_or_else(|| format!("there is no division `{text}` of the cores; the divisions are {}", names()))
    }
}

/// Cores that run one node together at a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuDevice {
    /// Name in plans and on the command line: `cpu0`, `cpu1`, …
    pub name: String,
    /// Identity for the cost store.
    pub key: String,
    /// The processor's model.
    pub description: String,
    /// Number of cores.
    pub cores: usize,
    /// Threads of the team: one per core, unless the options set another number.
    pub threads: usize,
    /// Processing units: first one unit of each core, then the further hardware threads.
    pub pus: Vec<u32>,
    /// Level 1 data caches.
    pub l1d: Option<CacheSummary>,
    /// Level 2 caches.
    pub l2: Option<CacheSummary>,
    /// Level 3 caches.
    pub l3: Option<CacheSummary>,
    /// Bytes of memory that the device may fill: its cores' share of their NUMA nodes (see
    /// [`Inventory`](super::Inventory)).
    pub memory: u64,
    /// NUMA nodes of its cores, ascending.
    pub numa: Vec<u32>,
    /// Packages of its cores, ascending.
    pub packages: Vec<u32>,
    /// Factor by which nodes are slowed down, to emulate a slower device; 1 for none.
    pub slowdown: f64,
}

impl CpuDevice {
    /// Returns the processing unit of each thread of the team: one per core before any core has two.
    pub fn team(&self) -> &[u32] {
        &self.pus[..self.threads.min(self.pus.len())]
    }

    /// Returns this device slowed down by a factor, with a key and thus costs of its own.
    pub fn slowed(self, times: f64) -> Self {
        Self { slowdown: times, key: format!("{} | {times} times slower", self.key), ..self }
    }

    /// Sets the number of threads, as far as there are processing units. The key changes, so that the costs of the
    /// usual team stay separate.
    pub(super) fn use_threads(&mut self, threads: NonZeroUsize) {
        let threads = threads.get().min(self.pus.len());
        if threads != self.threads {
            self.threads = threads;
            self.key = format!("{} | by {threads} threads", self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granularities_read_back_from_their_names() {
        for granularity in CpuGranularity::ALL {
            assert_eq!(granularity.to_string().parse(), Ok(granularity));
        }
        assert_eq!("NUMA".parse(), Ok(CpuGranularity::Numa));
        let error = "socket".parse::<CpuGranularity>().expect_err("there is none").to_string();
        assert!(error.contains("`socket`") && error.contains("machine, package"), "{error}");
    }
}
