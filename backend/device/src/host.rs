//! The machine as a whole, and the part that this process may use.
#![forbid(unsafe_code)]

use super::affinity;
use super::memory::HostMemory;
use super::topology::{CacheSummary, NumaNode, Source, Topology, caches_of, count_of};
use super::{format_list, sysfs};
use serde::Serialize;
use std::path::Path;

/// The machine's CPUs and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The processor's model.
    pub model: String,
    /// Operating system.
    pub os: String,
    /// Instruction set.
    pub arch: String,
    /// Source of the topology.
    pub topology: Source,
    /// Packages (sockets).
    pub packages: usize,
    /// Cores.
    pub cores: usize,
    /// Processing units (hardware threads).
    pub pus: usize,
    /// NUMA nodes.
    pub numa: Vec<NumaNode>,
    /// Level 1 data caches.
    pub l1d: Option<CacheSummary>,
    /// Level 2 caches.
    pub l2: Option<CacheSummary>,
    /// Level 3 caches.
    pub l3: Option<CacheSummary>,
    /// Processing units on which this process may run, as a list: `0-3,8`.
    pub allowed_pus: String,
    /// Number of cores of these units.
    pub allowed_cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes that were available to programs when the inventory was taken.
    pub memory_available: Option<u64>,
    /// Limit of this process's control group in bytes, if it is below `memory`.
    pub memory_limit: Option<u64>,
}

/// A host, and the part of its topology that this process may use.
pub(super) struct Surveyed {
    pub(super) host: Host,
    pub(super) usable: Topology,
    pub(super) usable_memory: u64,
    pub(super) notes: Vec<String>,
}

/// Surveys the machine under `root` (`/`, except in tests).
pub(super) fn survey(root: &Path) -> Surveyed {
    let mut notes = Vec::new();
    let (mut topology, usable) = topology(root, &mut notes);
    sysfs::complete_node_memory(root, &mut topology.numa);
    let memory = HostMemory::read(root).unwrap_or_else(|| of_nodes(&topology.numa));
    settle_node_memory(&mut topology.numa, memory.total);
    if memory.usable() == 0 {
        notes.push("the size of the memory is not known; give the bytes of cpu0".to_owned());
    }
    notes.extend(
        std::thread::available_parallelism().ok().and_then(|threads| quota_note(threads.get(), usable.pus.len())),
    );
    let usable = Topology { numa: topology.numa.clone(), ..usable };
    let host = host(root, &topology, &usable, memory);
    Surveyed { host, usable, usable_memory: memory.usable(), notes }
}

/// Note for the user if a control group's quota allows the time of only `threads` of the `usable` hardware threads.
fn quota_note(threads: usize, usable: usize) -> Option<String> {
    (threads < usable).then(|| {
        format!(
            "a control group limits this process to the time of {threads} of its {usable} hardware threads; bind \
             it to that many threads (taskset) for steadier times"
        )
    })
}

/// Makes the nodes' memory agree with the host's.
///
/// A single node gets all memory, because some virtual machines grow without telling the node. Several nodes of unknown
/// size get equal parts.
fn settle_node_memory(nodes: &mut [NumaNode], total: u64) {
    let unknown = nodes.iter().all(|node| node.memory == 0);
    if unknown || nodes.len() == 1 {
        let part = total / (nodes.len() as u64).max(1);
        nodes.iter_mut().for_each(|node| node.memory = part);
    }
}

/// Memory of all nodes, for systems without `meminfo`.
fn of_nodes(nodes: &[NumaNode]) -> HostMemory {
    HostMemory {
        total: nodes.iter().fold(0, |sum, node| sum.saturating_add(node.memory)),
        available: None,
        limit: None,
    }
}

/// Returns the whole topology and its usable part: from hwloc, else from `/sys`, else a mere count.
fn topology(root: &Path, notes: &mut Vec<String>) -> (Topology, Topology) {
    let allowed = affinity::allowed();
    let usable_part = |topology: Topology| {
        let usable = allowed.as_ref().map_or_else(|| topology.clone(), |allowed| topology.restricted_to(allowed));
        // A description of another machine (hwloc can be told to read one) has none of our units.
        (!usable.pus.is_empty()).then_some((topology, usable))
    };
    #[cfg(feature = "hwloc")]
    if let Some(found) = super::hwloc::topology().and_then(usable_part) {
        return found;
    }
    if let Some(found) = sysfs::read(root).and_then(usable_part) {
        notes.push("hwloc does not describe this machine; its topology was read from /sys".to_owned());
        return found;
    }
    notes.push("the topology is not known: cores are counted as one device without caches".to_owned());
    let count = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    (Topology::flat(count), Topology::flat(count))
}

fn host(root: &Path, topology: &Topology, usable: &Topology, memory: HostMemory) -> Host {
    let pus = &topology.pus;
    let allowed: Vec<u32> = usable.pus.iter().map(|pu| pu.index).collect();
    let unknown_model = || format!("{} processor", std::env::consts::ARCH);
    Host {
        model: sysfs::model_name(root).unwrap_or_else(unknown_model),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        topology: topology.source,
        packages: count_of(pus, |pu| pu.package),
        cores: count_of(pus, |pu| pu.core),
        pus: pus.len(),
        numa: topology.numa.clone(),
        l1d: caches_of(pus, 1),
        l2: caches_of(pus, 2),
        l3: caches_of(pus, 3),
        allowed_pus: format_list(&allowed),
        allowed_cores: count_of(&usable.pus, |pu| pu.core),
        memory: memory.total,
        memory_available: memory.available,
        memory_limit: memory.limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_noted_where_it_binds() {
        assert!(quota_note(2, 64).is_some_and(|note| note.contains("2 of its 64")));
        assert_eq!(quota_note(64, 64), None);
    }

    #[test]
    fn nodes_agree_with_the_host() {
        let table: [(&[u64], &[u64]); 5] =
            [(&[60], &[100]), (&[0], &[100]), (&[0, 0], &[50, 50]), (&[40, 60], &[40, 60]), (&[], &[])];
        for (before, after) in table {
            let mut nodes: Vec<NumaNode> = before.iter().map(|&memory| NumaNode { index: 0, memory }).collect();
            settle_node_memory(&mut nodes, 100);
            assert_eq!(nodes.iter().map(|node| node.memory).collect::<Vec<_>>(), after);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_is_surveyed_within_the_threads_affinity() {
        let everything = survey(Path::new("/"));
        let host = &everything.host;
        assert!(host.cores >= 1 && host.pus >= host.cores && host.memory > 0, "{host:?}");
        assert!(everything.usable_memory <= host.memory);

        let one = everything.usable.pus[0].index;
        let pinned = affinity::pin_current_thread(&[one]).expect("a thread may narrow its own affinity");
        let narrowed = survey(Path::new("/"));
        drop(pinned);
        assert_eq!(narrowed.host.allowed_pus, one.to_string());
        assert_eq!(narrowed.host.allowed_cores, 1);
        assert_eq!(narrowed.host.pus, host.pus, "the machine itself is the same");
        assert_eq!(narrowed.usable.pus.len(), 1);
    }
}
