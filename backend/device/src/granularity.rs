//! Divides the machine's cores into CPU devices: a pure function of the topology.
#![forbid(unsafe_code)]

use super::CacheSummary;
use super::cpu::{CpuDevice, CpuGranularity};
use super::key::device_key;
use super::topology::{Pu, Topology, caches_of};
use anabranch_base::bytes::format_bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the CPU devices of `topology`, in its order, named `cpu0`, `cpu1`, …
///
/// `memory` is the limit of the whole process. A device's share of a NUMA node is the share of its cores among the
/// topology's cores in that node. The devices of one node together thus have the node's memory, once. If the shares
/// exceed `memory` (a control group's limit), all shrink in proportion. Nodes without a core of the topology contribute
/// nothing.
pub(super) fn cpu_devices(
    topology: &Topology,
    granularity: CpuGranularity,
    model: &str,
    memory: u64,
) -> Vec<CpuDevice> {
    let shares = MemoryShares::new(topology, memory);
    let groups = group(&topology.pus, granularity);
    let devices = groups.into_iter().enumerate();
    devices.map(|(number, pus)| device(number, &pus, model, shares.of(&pus))).collect()
}

/// Groups processing units; groups stand in the order of their first member.
fn group(pus: &[Pu], granularity: CpuGranularity) -> Vec<Vec<Pu>> {
    let mut groups: Vec<((CpuGranularity, u32), Vec<Pu>)> = Vec::new();
    for pu in pus {
        let shared = shared(pu, granularity);
        match groups.iter_mut().find(|(other, _)| *other == shared) {
            Some((_, members)) => members.push(pu.clone()),
            None => groups.push((shared, vec![pu.clone()])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// Returns the part of the machine that a unit shares with the other units of its device: a level, and an index there.
fn shared(pu: &Pu, granularity: CpuGranularity) -> (CpuGranularity, u32) {
    match (granularity, pu.caches[2]) {
        (CpuGranularity::Machine, _) => (granularity, 0),
        (CpuGranularity::Package, _) => (granularity, pu.package),
        (CpuGranularity::L3, Some(cache)) => (granularity, cache.id),
        (CpuGranularity::Numa | CpuGranularity::L3, _) => (CpuGranularity::Numa, pu.numa),
        (CpuGranularity::Core, _) => (granularity, pu.core),
    }
}

fn device(number: usize, pus: &[Pu], model: &str, memory: u64) -> CpuDevice {
    let (cores, order) = one_per_core_first(pus);
    let [l1d, l2, l3] = [1, 2, 3].map(|level| caches_of(pus, level));
    CpuDevice {
        name: format!("cpu{number}"),
        key: key(model, cores, [l1d, l2, l3]),
        description: model.to_owned(),
        cores,
        threads: cores,
        pus: order,
        l1d,
        l2,
        l3,
        memory,
        numa: distinct(pus, |pu| pu.numa),
        packages: distinct(pus, |pu| pu.package),
        slowdown: 1.0,
    }
}

/// Returns the number of cores, and the units' indices: the first of each core, then the second of each, and so on.
fn one_per_core_first(pus: &[Pu]) -> (usize, Vec<u32>) {
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, u32)> = Vec::with_capacity(pus.len());
    for pu in pus {
        let rank = seen.entry(pu.core).or_default();
        ranked.push((*rank, pu.index));
        *rank += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    (seen.len(), ranked.into_iter().map(|(_, index)| index).collect())
}

fn key(model: &str, cores: usize, caches: [Option<CacheSummary>; 3]) -> String {
    let mut parts = vec![model.to_owned(), format!("{cores} cores")];
    for (level, cache) in ["L1d", "L2", "L3"].into_iter().zip(caches) {
        if let Some(cache) = cache {
            parts.push(format!("{level} {}x{}", cache.count, format_bytes(cache.bytes)));
        }
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    device_key("cpu", &parts)
}

fn distinct(pus: &[Pu], part: impl Fn(&Pu) -> u32) -> Vec<u32> {
    pus.iter().map(part).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// Divides the memory of NUMA nodes among cores.
struct MemoryShares {
    /// Bytes and cores of each node.
    nodes: BTreeMap<u32, (u64, BTreeSet<u32>)>,
    /// Limit of the process, and total memory of the nodes of its cores.
    limit: u64,
    total: u128,
}

impl MemoryShares {
    fn new(topology: &Topology, limit: u64) -> Self {
        let mut nodes: BTreeMap<u32, (u64, BTreeSet<u32>)> = BTreeMap::new();
        for pu in &topology.pus {
            let node = topology.numa.iter().find(|node| node.index == pu.numa);
            let bytes = node.map_or(0, |node| node.memory);
            nodes.entry(pu.numa).or_insert_with(|| (bytes, BTreeSet::new())).1.insert(pu.core);
        }
        let total = nodes.values().map(|(bytes, _)| u128::from(*bytes)).sum();
        Self { nodes, limit, total }
    }

    fn of(&self, pus: &[Pu]) -> u64 {
        let mut cores: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for pu in pus {
            cores.entry(pu.numa).or_default().insert(pu.core);
        }
        let share = |(node, mine): (&u32, &BTreeSet<u32>)| {
            self.nodes.get(node).map_or(0, |(bytes, all)| u128::from(*bytes) * mine.len() as u128 / all.len() as u128)
        };
        let sum: u128 = cores.iter().map(share).sum();
        let scaled = if self.total > u128::from(self.limit) { sum * u128::from(self.limit) / self.total } else { sum };
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::synthetic::{EPYC, Shape, machine};
    use super::*;

    const GIB: u64 = 1 << 30;
    const NO_L3: Shape = Shape { has_l3: false, ..EPYC };
    const SUB_NUMA: Shape = Shape { packages: 1, numa_per_package: 4, l3_per_numa: 1, ..EPYC };

    fn devices(shape: Shape, granularity: CpuGranularity) -> Vec<CpuDevice> {
        cpu_devices(&machine(shape), granularity, "Model", 1 << 40)
    }

    #[test]
    fn every_granularity_divides_the_machine_as_it_says() {
        use CpuGranularity::*;
        // (shape, granularity, devices, cores each, memory each)
        let table = [
            (EPYC, Machine, 1, 16, 16 * GIB),
            (EPYC, Package, 2, 8, 8 * GIB),
            (EPYC, Numa, 2, 8, 8 * GIB),
            (EPYC, L3, 4, 4, 4 * GIB),
            (EPYC, Core, 16, 1, GIB),
            (NO_L3, L3, 2, 8, 8 * GIB),
            (SUB_NUMA, Package, 1, 16, 32 * GIB),
            (SUB_NUMA, Numa, 4, 4, 8 * GIB),
            (SUB_NUMA, L3, 4, 4, 8 * GIB),
        ];
        for (shape, granularity, count, cores, memory) in table {
            let devices = devices(shape, granularity);
            assert_eq!(devices.len(), count, "{granularity}");
            for (number, device) in devices.iter().enumerate() {
                assert_eq!(device.name, format!("cpu{number}"));
                assert_eq!((device.cores, device.memory), (cores, memory), "{granularity} {}", device.name);
                assert_eq!(device.pus.len(), 2 * cores);
            }
            let mut all: Vec<u32> = devices.iter().flat_map(|device| device.pus.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..32).collect::<Vec<u32>>(), "every unit belongs to one device");
        }
    }

    #[test]
    fn a_team_has_one_unit_of_each_core_and_the_threads_follow() {
        let second = &devices(EPYC, CpuGranularity::L3)[1];
        assert_eq!(second.team(), [4, 5, 6, 7]);
        assert_eq!(second.pus, [4, 5, 6, 7, 20, 21, 22, 23]);
        assert_eq!((second.numa.as_slice(), second.packages.as_slice()), ([0].as_slice(), [0].as_slice()));
        assert_eq!(second.l3, Some(CacheSummary { bytes: 32 << 20, count: 1, cores: 4 }));
        assert_eq!(second.l2, Some(CacheSummary { bytes: 1 << 20, count: 4, cores: 1 }));
    }

    #[test]
    fn a_restricted_process_gets_what_it_may_use() {
        // One core of the first L3 (its second thread only), two of the third.
        let part = machine(EPYC).restricted_to(&BTreeSet::from([16, 8, 9, 24]));
        let devices = cpu_devices(&part, CpuGranularity::L3, "Model", 1 << 40);
        let seen: Vec<_> = devices.iter().map(|d| (d.cores, d.pus.clone(), d.memory)).collect();
        assert_eq!(seen, [(1, vec![16], 8 * GIB), (2, vec![8, 9, 24], 8 * GIB)]);
        assert!(cpu_devices(&machine(EPYC).restricted_to(&BTreeSet::new()), CpuGranularity::L3, "", 0).is_empty());
    }

    #[test]
    fn a_cache_over_two_numa_nodes_takes_from_both() {
        let mut topology = machine(SUB_NUMA);
        for pu in &mut topology.pus {
            pu.caches[2] = pu.caches[2].map(|cache| super::super::topology::Cache { id: cache.id / 2, ..cache });
        }
        let devices = cpu_devices(&topology, CpuGranularity::L3, "Model", 1 << 40);
        assert_eq!(devices.len(), 2);
        assert_eq!((devices[0].memory, devices[0].numa.as_slice()), (16 * GIB, [0, 1].as_slice()));
    }

    #[test]
    fn shares_never_add_up_to_more_than_the_limit() {
        let limit = 5 * GIB + 3;
        for shape in [EPYC, SUB_NUMA, Shape { packages: 1, ..EPYC }] {
            for granularity in CpuGranularity::ALL {
                let devices = cpu_devices(&machine(shape), granularity, "Model", limit);
                let sum: u64 = devices.iter().map(|device| device.memory).sum();
                assert!(sum <= limit && sum > limit - 64, "{granularity}: {sum}");
            }
        }
    }

    #[test]
    fn equal_devices_share_a_key_and_unequal_ones_do_not() {
        let by_cache = devices(EPYC, CpuGranularity::L3);
        assert_eq!(by_cache[0].key, by_cache[3].key);
        assert_ne!(by_cache[0].key, devices(EPYC, CpuGranularity::Package)[0].key);
        assert_eq!(by_cache[0].key, "cpu | Model | 4 cores | L1d 4x48 KiB | L2 4x1 MiB | L3 1x32 MiB");
    }
}
