//! Parts of this machine that a model might need: some of its devices, with a limited number of threads each.

use anabranch::device::Inventory;
use serde::Serialize;
use std::num::NonZeroUsize;

/// Most devices of which all subsets are tried. If there are more, the first few of each kind are tried.
const MOST_SUBSETS: usize = 5;

/// Some devices of the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Part {
    /// Number of devices.
    pub(super) count: usize,
    /// Threads of all CPU devices together, one per core.
    pub(super) cores: usize,
    /// Names of the devices, CPU devices first.
    pub(super) devices: Vec<String>,
    /// Most threads of each CPU device.
    pub(super) threads: NonZeroUsize,
}

impl Part {
    /// Returns the whole machine.
    pub(super) fn whole(inventory: &Inventory) -> Self {
        let threads = inventory.cpus.iter().map(|cpu| cpu.threads).max().and_then(NonZeroUsize::new);
        Self::of(inventory, (0..inventory.devices().count()).collect(), threads.unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns every part to try, sorted by number of devices, then of cores.
    pub(super) fn all(inventory: &Inventory) -> Vec<Self> {
        let whole = Self::whole(inventory);
        let of = |devices: Vec<usize>| {
            threads_up_to(whole.threads.get()).map(move |threads| Self::of(inventory, devices.clone(), threads))
        };
        let mut parts: Vec<Self> =
            subsets(inventory.cpus.len(), inventory.gpus.len()).into_iter().flat_map(of).collect();
        parts.sort();
        // More threads than its devices have do not make another part.
        parts.dedup_by(|one, other| one.devices == other.devices && one.cores == other.cores);
        parts
    }

    fn of(inventory: &Inventory, devices: Vec<usize>, threads: NonZeroUsize) -> Self {
        let cpus = inventory.cpus.len();
        let cores =
            devices.iter().filter(|&&at| at < cpus).map(|&at| inventory.cpus[at].threads.min(threads.get())).sum();
        let names: Vec<String> = inventory.devices().map(|device| device.name().to_owned()).collect();
        Self { count: devices.len(), cores, devices: devices.iter().map(|&at| names[at].clone()).collect(), threads }
    }

    pub(super) fn name(&self) -> String {
        self.devices.join("+")
    }
}

/// Returns 1, 2, 3, 4, then each time half as many again, and `most`.
fn threads_up_to(most: usize) -> impl Iterator<Item = NonZeroUsize> {
    let next = move |&count: &usize| (count < most).then(|| (count + (count / 2).max(1)).min(most));
    std::iter::successors(Some(1), next).filter_map(NonZeroUsize::new)
}

/// Returns sets of devices with at least one CPU device, by index, CPU devices first.
fn subsets(cpus: usize, gpus: usize) -> Vec<Vec<usize>> {
    let count = cpus + gpus;
    if count <= MOST_SUBSETS {
        let with_cpu = |&set: &u32| set & ((1 << cpus) - 1) != 0;
        let members = |set: u32| (0..count).filter(|at| set >> at & 1 == 1).collect();
        return (1..1u32 << count).filter(with_cpu).map(members).collect();
    }
    let some = |(some_cpus, some_gpus): (usize, usize)| (0..some_cpus).chain(cpus..cpus + some_gpus).collect();
    (1..=cpus).flat_map(|some_cpus| (0..=gpus).map(move |some_gpus| (some_cpus, some_gpus))).map(some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_a_cpu_device_and_few_counts_of_threads_are_tried() {
        assert_eq!(subsets(1, 1), [vec![0], vec![0, 1]]);
        assert_eq!(subsets(2, 1).len(), 6);
        assert_eq!(subsets(4, 4).len(), 20);
        assert!(subsets(4, 4).contains(&vec![0, 1, 4]));
        let threads = |most| threads_up_to(most).map(NonZeroUsize::get).collect::<Vec<_>>();
        assert_eq!((threads(1), threads(2), threads(16)), (vec![1], vec![1, 2], vec![1, 2, 3, 4, 6, 9, 13, 16]));
    }
}
