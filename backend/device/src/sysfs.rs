//! Reads the topology from Linux's `/sys/devices/system`, if hwloc is absent or fails.
#![forbid(unsafe_code)]

use super::cpulist::parse_list;
use super::memory::meminfo_field;
use super::topology::{Cache, NumaNode, Pu, Source, Topology};
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// Reads the machine under `root` (`/`, except in tests); `None` if it lists no processing unit.
///
/// Missing facts get defaults: a unit without a topology is a core of package 0, a unit without a node is near node 0.
/// Caches and cores are numbered by their lowest unit.
pub(super) fn read(root: &Path) -> Option<Topology> {
    let system = root.join("sys/devices/system");
    let units = list(&system.join("cpu/online"))?;
    let (numa, unit_nodes) = nodes(&system.join("node"));
    let node_of = |unit: u32| {
        unit_nodes.iter().find(|(_, units)| units.binary_search(&unit).is_ok()).map_or(0, |(node, _)| *node)
    };
    let mut pus: Vec<Pu> =
        units.iter().map(|&unit| pu(&system.join(format!("cpu/cpu{unit}")), unit, node_of(unit))).collect();
    pus.sort_by_key(|pu| (pu.package, pu.numa, pu.caches[2].map(|cache| cache.id), pu.core, pu.index));
    (!pus.is_empty()).then_some(Topology { source: Source::Sysfs, pus, numa })
}

/// Reads the processor's model from `proc/cpuinfo` under `root`, if it is there.
pub(super) fn model_name(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let words: Vec<&str> = line.split_once(':')?.1.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// A NUMA node's index and its processing units.
type NodeUnits = (u32, Vec<u32>);

/// Reads the NUMA nodes with their memory, and each node's processing units. Without a list, there is one node of
/// unknown size.
fn nodes(folder: &Path) -> (Vec<NumaNode>, Vec<NodeUnits>) {
    let indices = list(&folder.join("online")).filter(|indices| !indices.is_empty()).unwrap_or_else(|| vec![0]);
    let node = |&index: &u32| NumaNode { index, memory: node_memory(folder, index) };
    let units = |&index: &u32| (index, list(&folder.join(format!("node{index}/cpulist"))).unwrap_or_default());
    (indices.iter().map(node).collect(), indices.iter().map(units).collect())
}

/// Memory of a node below `folder` in bytes; 0 if unknown.
fn node_memory(folder: &Path, index: u32) -> u64 {
    let text = fs::read_to_string(folder.join(format!("node{index}/meminfo"))).unwrap_or_default();
    meminfo_field(&text, "MemTotal:").unwrap_or(0)
}

/// Sets the memory of nodes that another source left at 0.
pub(super) fn complete_node_memory(root: &Path, nodes: &mut [NumaNode]) {
    for node in nodes.iter_mut().filter(|node| node.memory == 0) {
        node.memory = node_memory(&root.join("sys/devices/system/node"), node.index);
    }
}

fn pu(folder: &Path, index: u32, numa: u32) -> Pu {
    let topology = folder.join("topology");
    let siblings = ["core_cpus_list", "thread_siblings_list"].iter().find_map(|name| list(&topology.join(name)));
    Pu {
        index,
        core: siblings.and_then(|units| units.first().copied()).unwrap_or(index),
        // The kernel writes -1 for an unknown package.
        package: number(&topology.join("physical_package_id")).unwrap_or(0),
        numa,
        caches: caches(&folder.join("cache")),
    }
}

/// Reads the data and unified caches of levels 1 to 3 of one processing unit.
fn caches(folder: &Path) -> [Option<Cache>; 3] {
    let mut caches = [None; 3];
    for entry in (0..).map(|index| folder.join(format!("index{index}"))).take_while(|entry| entry.exists()) {
        let instruction = text(&entry.join("type")).as_deref() == Some("Instruction");
        let level: Option<usize> = number(&entry.join("level"));
        if let (false, Some(level @ 1..=3)) = (instruction, level) {
            caches[level - 1] = cache(&entry);
        }
    }
    caches
}

fn cache(folder: &Path) -> Option<Cache> {
    let size = text(&folder.join("size"))?;
    let bytes = super::parse_bytes(&size).ok().filter(|&bytes| bytes > 0)?;
    let id = list(&folder.join("shared_cpu_list"))?.first().copied()?;
    Some(Cache { id, bytes })
}

pub(super) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub(super) fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

pub(super) fn list(path: &Path) -> Option<Vec<u32>> {
    parse_list(&text(path)?)
}

#[cfg(test)]
mod tests {
    use super::super::topology::{CacheSummary, caches_of, count_of};
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().expect("every test path has a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }

    /// Two packages with a NUMA node and a shared L3 each, two cores per package, two threads per core. Node 2 has
    /// memory only.
    fn two_packages(root: &Path) {
        write(root, "cpu/online", "0-7\n");
        write(root, "node/online", "0-2\n");
        for node in 0..3 {
            write(root, &format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: {} kB\n", 1024 << node));
        }
        for (node, units) in ["0-1,4-5", "2-3,6-7", ""].iter().enumerate() {
            write(root, &format!("node/node{node}/cpulist"), units);
        }
        for unit in 0..8 {
            let core = unit % 4;
            let package = core / 2;
            let folder = format!("cpu/cpu{unit}");
            write(root, &format!("{folder}/topology/physical_package_id"), &package.to_string());
            write(root, &format!("{folder}/topology/thread_siblings_list"), &format!("{core},{}", core + 4));
            let own = format!("{core},{}", core + 4);
            let shared = ["0-1,4-5", "2-3,6-7"][package];
            let caches = [
                ("1", "Data", "48K", own.as_str()),
                ("1", "Instruction", "32K", &own),
                ("2", "Unified", "1024K", &own),
                ("3", "Unified", "32M", shared),
            ];
            for (index, (level, kind, size, units)) in caches.into_iter().enumerate() {
                for (file, text) in [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", units)] {
                    write(root, &format!("{folder}/cache/index{index}/{file}"), text);
                }
            }
        }
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        two_packages(root.path());
        let topology = read(root.path()).expect("the tree lists processing units");
        let order: Vec<u32> = topology.pus.iter().map(|pu| pu.index).collect();
        assert_eq!(order, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(count_of(&topology.pus, |pu| pu.core), 4);
        assert_eq!(topology.pus[5].numa, 1);
        assert_eq!(topology.numa.iter().map(|node| node.memory >> 20).collect::<Vec<_>>(), [1, 2, 4]);
        let expected = [(48 << 10, 4, 1), (1 << 20, 4, 1), (32 << 20, 2, 2)];
        for (level, (bytes, count, cores)) in expected.into_iter().enumerate() {
            assert_eq!(caches_of(&topology.pus, level + 1), Some(CacheSummary { bytes, count, cores }));
        }
    }

    #[test]
    fn what_is_missing_or_damaged_is_filled_in() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        assert_eq!(read(root.path()), None);
        write(root.path(), "cpu/online", "0-1");
        write(root.path(), "cpu/cpu0/topology/physical_package_id", "-1");
        write(root.path(), "cpu/cpu0/cache/index0/level", "1");
        write(root.path(), "cpu/cpu0/cache/index0/size", "big");
        write(root.path(), "cpu/cpu1/cache/index0/level", "9");
        let topology = read(root.path()).expect("the tree lists processing units");
        let bare = |index| Pu { index, core: index, package: 0, numa: 0, caches: [None; 3] };
        assert_eq!(topology.pus, [bare(0), bare(1)]);
        assert_eq!(topology.numa, [NumaNode { index: 0, memory: 0 }]);
    }

    #[test]
    fn nodes_without_a_size_are_completed() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        two_packages(root.path());
        let node = |index, memory| NumaNode { index, memory };
        let mut nodes = [node(0, 7), node(1, 0), node(9, 0)];
        complete_node_memory(root.path(), &mut nodes);
        assert_eq!(nodes, [node(0, 7), node(1, 2 << 20), node(9, 0)]);
    }

    #[test]
    fn the_model_is_read_without_stray_blanks() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        assert_eq!(model_name(root.path()), None);
        fs::create_dir(root.path().join("proc")).expect("the folder can be made");
        fs::write(root.path().join("proc/cpuinfo"), "processor : 0\nmodel name\t: Some  CPU @ 3 GHz\n")
            .expect("the file can be written");
        assert_eq!(model_name(root.path()).as_deref(), Some("Some CPU @ 3 GHz"));
    }
}
