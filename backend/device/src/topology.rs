//! The machine's cores, caches and memory domains as one flat table: a row per processing unit.
//!
//! A tree would hold the same facts less conveniently. Every question of placement (which units share a cache, which
//! domain is near) is a grouping of rows. Tests write a table by hand as easily as hwloc fills it.
#![forbid(unsafe_code)]

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One cache: its identity and its size. `id` is unique among the caches of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
}

/// One processing unit (hardware thread), and the parts of the machine that contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pu {
    /// The operating system's index of the unit.
    pub(crate) index: u32,
    /// Core, unique in the machine.
    pub(crate) core: u32,
    /// Package (socket).
    pub(crate) package: u32,
    /// Index of the NUMA node whose memory is nearest.
    pub(crate) numa: u32,
    /// Data or unified caches of levels 1 to 3.
    pub(crate) caches: [Option<Cache>; 3],
}

/// Memory of one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// The operating system's index of the node.
    pub index: u32,
    /// Bytes of memory; 0 if unknown.
    pub memory: u64,
}

/// Source of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// hwloc.
    Hwloc,
    /// Linux's `/sys` and `/proc`.
    Sysfs,
    /// The number of processing units only.
    Count,
}

/// Processing units with neighbours next to each other (by package, cache, core), and NUMA nodes by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) source: Source,
    pub(crate) pus: Vec<Pu>,
    pub(crate) numa: Vec<NumaNode>,
}

/// The caches of one level among some processing units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheSummary {
    /// Bytes of one cache (of the smallest, if they differ).
    pub bytes: u64,
    /// Number of caches.
    pub count: usize,
    /// Cores that share a cache (the most, if the caches differ).
    pub cores: usize,
}

impl Topology {
    /// `count` cores that share nothing known, if no other source has an answer.
    pub(crate) fn flat(count: u32) -> Self {
        let pus = (0..count).map(|index| Pu { index, core: index, package: 0, numa: 0, caches: [None; 3] }).collect();
        Self { source: Source::Count, pus, numa: vec![NumaNode { index: 0, memory: 0 }] }
    }

    /// Returns the part of the machine that consists of the processing units `allowed`. All NUMA nodes stay.
    pub(crate) fn restricted_to(&self, allowed: &BTreeSet<u32>) -> Self {
        let pus = self.pus.iter().filter(|pu| allowed.contains(&pu.index)).cloned().collect();
        Self { source: self.source, pus, numa: self.numa.clone() }
    }
}

/// Number of distinct values of `part` among `pus`.
pub(crate) fn count_of(pus: &[Pu], part: impl Fn(&Pu) -> u32) -> usize {
    pus.iter().map(part).collect::<BTreeSet<u32>>().len()
}

/// Caches of `level` (1 to 3) among `pus`; `None` if none is reported.
pub(crate) fn caches_of(pus: &[Pu], level: usize) -> Option<CacheSummary> {
    let mut cores: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut smallest = u64::MAX;
    for pu in pus {
        if let Some(cache) = pu.caches[level - 1] {
            cores.entry(cache.id).or_default().insert(pu.core);
            smallest = smallest.min(cache.bytes);
        }
    }
    let most_shared = cores.values().map(BTreeSet::len).max()?;
    Some(CacheSummary { bytes: smallest, count: cores.len(), cores: most_shared })
}

/// Synthetic machines for tests.
#[cfg(test)]
pub(crate) mod synthetic {
    use super::*;

    /// Numbers of the parts of a machine, each within the part before it.
    #[derive(Clone, Copy)]
    pub(crate) struct Shape {
        pub(crate) packages: u32,
        pub(crate) numa_per_package: u32,
        pub(crate) l3_per_numa: u32,
        pub(crate) cores_per_l3: u32,
        pub(crate) pus_per_core: u32,
        pub(crate) has_l3: bool,
    }

    /// Two packages of one NUMA node each. Each node has two L3 caches, each shared by four cores of two threads.
    pub(crate) const EPYC: Shape =
        Shape { packages: 2, numa_per_package: 1, l3_per_numa: 2, cores_per_l3: 4, pus_per_core: 2, has_l3: true };

    /// The machine of `shape`: 8 GiB per node, 48 KiB L1d, 1 MiB L2, 32 MiB L3. As on Linux, the first hardware threads
    /// of all cores are numbered before the second threads.
    pub(crate) fn machine(shape: Shape) -> Topology {
        let numa_count = shape.packages * shape.numa_per_package;
        let l3_count = numa_count * shape.l3_per_numa;
        let cores = l3_count * shape.cores_per_l3;
        let mut pus = Vec::new();
        for core in 0..cores {
            let l3 = core / shape.cores_per_l3;
            let numa = l3 / shape.l3_per_numa;
            let cache = |id, bytes| Some(Cache { id, bytes });
            let caches = [cache(core, 48 << 10), cache(core, 1 << 20), cache(l3, 32 << 20).filter(|_| shape.has_l3)];
            for thread in 0..shape.pus_per_core {
                let package = numa / shape.numa_per_package;
                pus.push(Pu { index: core + thread * cores, core, package, numa, caches });
            }
        }
        let numa = (0..numa_count).map(|index| NumaNode { index, memory: 8 << 30 }).collect();
        Topology { source: Source::Hwloc, pus, numa }
    }
}

#[cfg(test)]
mod tests {
    use super::synthetic::{EPYC, machine};
    use super::*;

    #[test]
    fn parts_are_counted() {
        let topology = machine(EPYC);
        assert_eq!(topology.pus.len(), 32);
        assert_eq!(count_of(&topology.pus, |pu| pu.core), 16);
        assert_eq!(count_of(&topology.pus, |pu| pu.package), 2);
        assert_eq!(caches_of(&topology.pus, 3), Some(CacheSummary { bytes: 32 << 20, count: 4, cores: 4 }));
        assert_eq!(caches_of(&topology.pus, 1), Some(CacheSummary { bytes: 48 << 10, count: 16, cores: 1 }));
        assert_eq!(caches_of(&Topology::flat(4).pus, 2), None);
    }

    #[test]
    fn a_restricted_machine_keeps_only_what_is_allowed() {
        let allowed = BTreeSet::from([0, 1, 17, 99]);
        let part = machine(EPYC).restricted_to(&allowed);
        assert_eq!(part.pus.iter().map(|pu| pu.index).collect::<Vec<_>>(), [0, 1, 17]);
        assert_eq!(count_of(&part.pus, |pu| pu.core), 2);
        assert_eq!(part.numa.len(), 2);
    }
}
