//! Reads the topology through hwloc.
//!
//! The binding (hwloc2 2.2) cannot reach NUMA nodes, whose depths hwloc 2 made negative, nor PCI devices. Its `name`
//! and `Display` free memory that they do not own. This file therefore walks down from the root by `children` only and
//! asks for types, indices, cache sizes and node sets, which are sound. NUMA nodes are distinguished by the node sets
//! of the objects near them; PCI devices are read from `/sys` elsewhere.
#![forbid(unsafe_code)]

use super::topology::{Cache, NumaNode, Pu, Source, Topology};
use hwloc2::{ObjectType, TopologyObject};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Returns the machine as hwloc sees it, without the parts that a control group forbids; `None` if hwloc fails.
///
/// hwloc is read once per process, because that takes some milliseconds, as long as opening a small model. Units that a
/// control group allows later are not seen; units that it forbids later are excluded by affinity.
pub(super) fn topology() -> Option<Topology> {
    static READ: OnceLock<Option<Topology>> = OnceLock::new();
    READ.get_or_init(read).clone()
}

fn read() -> Option<Topology> {
    let tree = hwloc2::Topology::new()?;
    let mut reader = Reader::default();
    reader.walk(tree.object_at_root(), Ancestors::default());
    if reader.pus.is_empty() {
        return None;
    }
    let numa = reader.numa.into_iter().map(|(index, memory)| NumaNode { index, memory }).collect();
    Some(Topology { source: Source::Hwloc, pus: reader.pus, numa })
}

/// Facts from the objects above an object.
#[derive(Clone, Default)]
struct Ancestors {
    package: u32,
    core: Option<u32>,
    caches: [Option<Cache>; 3],
    /// Whether the object is inside an object with one NUMA node, whose memory is then already known.
    in_node: bool,
}

#[derive(Default)]
struct Reader {
    pus: Vec<Pu>,
    numa: BTreeMap<u32, u64>,
}

impl Reader {
    /// Walks the tree. The recursion is as deep as the machine's levels, about ten.
    fn walk(&mut self, object: &TopologyObject, mut place: Ancestors) {
        self.note_nodes(object, &mut place);
        match object.object_type() {
            ObjectType::Package => place.package = object.logical_index(),
            ObjectType::L1Cache => place.caches[0] = cache(object),
            ObjectType::L2Cache => place.caches[1] = cache(object),
            ObjectType::L3Cache => place.caches[2] = cache(object),
            ObjectType::Core => place.core = Some(object.logical_index()),
            ObjectType::PU => self.pus.push(pu(object, &place)),
            _ => {}
        }
        for child in object.children() {
            self.walk(child, place.clone());
        }
    }

    /// Records the NUMA nodes near `object`.
    ///
    /// The topmost object near exactly one node contains all memory of that node and of no other node. Nodes that share
    /// an object (fast next to large memory) have no known size.
    fn note_nodes(&mut self, object: &TopologyObject, place: &mut Ancestors) {
        if place.in_node {
            return;
        }
        let nodes: Vec<u32> = object.nodeset().filter(|set| set.weight() > 0).into_iter().flatten().collect();
        if let [only] = nodes[..] {
            *self.numa.entry(only).or_default() += object.total_memory();
            place.in_node = true;
        } else {
            for node in nodes {
                self.numa.entry(node).or_default();
            }
        }
    }
}

fn cache(object: &TopologyObject) -> Option<Cache> {
    object.cache_attributes().map(|attributes| Cache { id: object.logical_index(), bytes: attributes.size() })
}

fn pu(object: &TopologyObject, place: &Ancestors) -> Pu {
    let nearest = object.nodeset().map_or(-1, |set| set.first());
    Pu {
        index: object.os_index(),
        // hwloc leaves out cores if the system reports none: each unit then is a core.
        core: place.core.unwrap_or(object.logical_index()),
        package: place.package,
        numa: u32::try_from(nearest).unwrap_or(0),
        caches: place.caches,
    }
}

#[cfg(test)]
mod tests {
    use super::super::child;
    use super::super::topology::{caches_of, count_of};
    use super::*;

    /// Output of [`hwloc_child`] with hwloc's environment variables set.
    fn in_child(variables: &[(&str, &str)]) -> String {
        child::run(concat!(module_path!(), "::hwloc_child"), variables)
    }

    /// Does nothing except in the child process.
    #[test]
    fn hwloc_child() {
        if !child::is_child() {
            return;
        }
        match read() {
            None => println!("topology: none"),
            Some(topology) => println!("topology: {}", describe(&topology)),
        }
    }

    fn describe(topology: &Topology) -> String {
        let pus = &topology.pus;
        let caches = [1, 2, 3].map(|level| caches_of(pus, level).map(|c| (c.count, c.cores, c.bytes >> 10)));
        format!(
            "{} packages, {} cores, {} pus, numa {:?}, caches {caches:?}",
            count_of(pus, |pu| pu.package),
            count_of(pus, |pu| pu.core),
            pus.len(),
            topology.numa.iter().map(|node| (node.index, node.memory >> 20)).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn machines_of_every_build_are_read() {
        let table = [
            (
                "package:2 [numa(memory=1073741824)] l3:2(size=33554432) l2:4(size=1048576) l1:1(size=49152) core:1 pu:2",
                "2 packages, 16 cores, 32 pus, numa [(0, 1024), (1, 1024)], \
                 caches [Some((16, 1, 48)), Some((16, 1, 1024)), Some((4, 4, 32768))]",
            ),
            (
                "package:1 group:2 [numa(memory=1073741824)] core:3 pu:1",
                "1 packages, 6 cores, 6 pus, numa [(0, 1024), (1, 1024)], caches [None, None, None]",
            ),
            (
                "[numa(memory=1073741824)] package:1 l3:1(size=8388608) core:2 pu:1",
                "1 packages, 2 cores, 2 pus, numa [(0, 1024)], caches [None, None, Some((1, 2, 8192))]",
            ),
            // Two kinds of memory at one package: both nodes are listed, their sizes come from elsewhere.
            (
                "package:2 [numa(memory=1073741824)] [numa(memory=2147483648)] core:2 pu:1",
                "2 packages, 4 cores, 4 pus, numa [(0, 0), (1, 0), (2, 0), (3, 0)], caches [None, None, None]",
            ),
        ];
        for (synthetic, expected) in table {
            let output = in_child(&[("HWLOC_SYNTHETIC", synthetic)]);
            assert!(output.contains(&format!("topology: {expected}\n")), "{synthetic}: {output}");
        }
    }

    #[test]
    fn a_failing_hwloc_is_no_panic() {
        let output = in_child(&[("HWLOC_COMPONENTS", "stop")]);
        assert!(output.contains("topology: none\n"), "{output}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn hwloc_and_sysfs_agree_on_this_machine() {
        let hwloc = read().expect("hwloc reads the machine it runs on");
        let sysfs = super::super::sysfs::read(std::path::Path::new("/")).expect("Linux describes its processors");
        let allowed = hwloc.pus.iter().map(|pu| pu.index).collect();
        let sysfs = sysfs.restricted_to(&allowed);
        assert_eq!(hwloc.pus.len(), sysfs.pus.len());
        for part in [|pu: &Pu| pu.core, |pu: &Pu| pu.package, |pu: &Pu| pu.numa] {
            assert_eq!(count_of(&hwloc.pus, part), count_of(&sysfs.pus, part));
        }
        for level in 1..=3 {
            assert_eq!(caches_of(&hwloc.pus, level), caches_of(&sysfs.pus, level), "level {level}");
        }
    }
}
