//! Measured costs of one machine: its devices, its links, and its runs as a whole.

use super::history::{History, MOST_NANOSECONDS, RECENT, Sample};
use super::link::LinkCosts;
use super::robust::median;
use anabranch_kernels::op::{Family, NodeSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Suffix of the keys of runs.
const THREADS: &str = " threads beside the caller's";

/// Most versions of the kernels with measurements of one node; the oldest is dropped first.
const VERSIONS: usize = 3;

/// Measured costs of one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineCosts {
    /// Costs of devices, by device key.
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceCosts>,
    /// Costs of links, by the keys of both ends, `from -> to`.
    #[serde(default)]
    pub links: BTreeMap<String, LinkCosts>,
    /// Overhead of runs beyond their nodes and transfers, by the number of threads, `N threads beside the caller's`.
    #[serde(default)]
    pub runs: BTreeMap<String, RunCosts>,
    /// Slowdown of a device while another device works, by the keys of both, `device beside other`.
    #[serde(default)]
    pub slowdowns: BTreeMap<String, Slowdown>,
    /// Finished steps of a full calibration, with the version of the measured kernels.
    #[serde(default)]
    pub calibrated: BTreeMap<String, u32>,
}

/// Measured costs of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceCosts {
    /// Peak rates, if the device was calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// Times of nodes, by the node's key: operation, types and shapes.
    // Copies of a store share them, because there are many.
    #[serde(default)]
    pub nodes: BTreeMap<String, Arc<NodeCosts>>,
    /// For GPUs: the host's time to encode a node.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub encode: History,
    /// For GPUs: time from the submission until an idle device starts.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub dispatch: History,
    /// For CPUs: extra time per MiB of constants that are not in the cores' own caches.
    #[serde(default, rename = "far", skip_serializing_if = "History::is_empty")]
    pub misses: History,
}

/// A device's rates as measured by calibration: the parameters of a roofline (Williams 2009).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rates {
    /// Floating-point operations per second of a large matrix product.
    pub matmul_flops: f64,
    /// Floating-point operations per second of a 3×3 convolution.
    pub conv_flops: f64,
    /// Floating-point operations per second of a long element-wise expression.
    pub map_flops: f64,
    /// Bytes read and written per second by an element-wise node on tensors larger than the caches.
    pub bandwidth: f64,
    /// Seconds of the smallest node.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub launch: f64,
}

/// Measured costs of one node on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeCosts {
    /// The op's name.
    #[serde(default)]
    pub op: String,
    /// Floating-point operations.
    #[serde(default)]
    pub flops: f64,
    /// Bytes read and written.
    #[serde(default)]
    pub bytes: f64,
    /// Name of the kernel class; empty in a store of an older version, until the node is measured again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub family: String,
    /// Amounts of work of the kernel class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<f64>,
    /// Histories by the version of the measured kernels.
    // Boxed, because a map node reserves space for several histories but nearly always holds one.
    pub versions: BTreeMap<u32, Box<History>>,
}

/// Overhead of a run beyond its nodes and transfers, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunCosts {
    /// Time from the call until the calling thread starts its first step.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub start: History,
    /// Time from the call until another thread starts its first step.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub join: History,
    /// Time from the end of the last node or transfer until the caller has the outputs.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub finish: History,
    /// Time from the arrival of a transfer until the waiting CPU device continues.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub wake: History,
}

/// Slowdown of a device while another device works: the last ratios measured in runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slowdown {
    /// Ratios, the newest last; at most 16.
    pub recent: Vec<f64>,
}

impl RunCosts {
    fn histories(&mut self) -> [&mut History; 4] {
        [&mut self.start, &mut self.join, &mut self.finish, &mut self.wake]
    }
}

impl Slowdown {
    /// Largest plausible ratio: greater ratios have another cause.
    pub(super) const MOST: f64 = 8.0;

    /// Adds a ratio. A ratio outside 1 to 8 is clamped; infinite and NaN ratios are ignored.
    pub fn add(&mut self, ratio: f64) {
        if ratio.is_finite() {
            if self.recent.len() >= RECENT {
                self.recent.remove(0);
            }
            self.recent.push(ratio.clamp(1.0, Self::MOST));
        }
    }

    /// Returns the median; 1 without measurements.
    pub fn ratio(&self) -> f64 {
        median(&self.recent).unwrap_or(1.0)
    }

    fn is_sane(&self) -> bool {
        self.recent.len() <= RECENT && self.recent.iter().all(|ratio| (1.0..=Self::MOST).contains(ratio))
    }
}

impl MachineCosts {
    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the key of a directed link.
    pub fn link_key(from: &str, to: &str) -> String {
        format!("{from} -> {to}")
    }

    /// Returns the key of runs with this many threads besides the calling thread.
    pub fn run_key(threads: usize) -> String {
        format!("{threads}{THREADS}")
    }

    /// Returns the overhead of runs with this many threads besides the calling thread, or with the nearest measured
    /// number of threads.
    pub fn run(&self, threads: usize) -> Option<&RunCosts> {
        let known = self.runs.iter().filter_map(|(key, run)| Some((key.strip_suffix(THREADS)?.parse().ok()?, run)));
        known.min_by_key(|(count, _): &(usize, _)| count.abs_diff(threads)).map(|(_, run)| run)
    }

    /// Returns the slowdown of the device with this key while the other device works.
    pub fn slowdown(&self, device: &str, other: &str) -> f64 {
        self.slowdowns.get(&Self::slowdown_key(device, other)).map_or(1.0, Slowdown::ratio)
    }

    /// Returns the extra seconds per byte of constants that are not in the device's own cache; 0 if it was not
    /// measured.
    pub fn misses(&self, device: &str) -> f64 {
        let misses = self.devices.get(device).and_then(|costs| costs.misses.undisturbed());
        misses.map_or(0.0, |estimate| estimate.seconds() / f64::from(1 << 20))
    }

    /// Returns the key of a slowdown.
    pub fn slowdown_key(device: &str, other: &str) -> String {
        format!("{device} beside {other}")
    }

    /// Adds a measured time of a node on the device with this key, with this build's kernels. Returns whether it was
    /// accepted.
    pub fn record(&mut self, device: &str, node: &NodeSpec, sample: Sample) -> bool {
        if !(sample.nanoseconds.is_finite() && sample.nanoseconds > 0.0) {
            return false;
        }
        let nodes = match self.devices.get_mut(device) {
            Some(costs) => &mut costs.nodes,
            None => &mut self.devices.entry(device.to_owned()).or_default().nodes,
        };
        let costs = Arc::make_mut(nodes.entry(node.key()).or_default());
        // Kernels of another version may have had another law.
        if costs.family.is_empty() || !costs.versions.contains_key(&anabranch_kernels::VERSION) {
            let (work, Family { name, amounts }) = (node.work(), node.family());
            (costs.op, costs.flops, costs.bytes) = (node.op.name().to_owned(), work.flops, work.bytes());
            (costs.family, costs.amounts) = (name.to_owned(), amounts);
        }
        costs.current_mut().add(sample)
    }

    /// Returns the history of a node on a device with this build's kernels.
    pub fn node(&self, device: &str, node: &str) -> Option<&History> {
        self.devices.get(device)?.nodes.get(node)?.versions.get(&anabranch_kernels::VERSION).map(Box::as_ref)
    }

    /// Drops implausible times and rates. Returns the number of dropped entries.
    pub(super) fn clean(&mut self) -> usize {
        let mut dropped = 0;
        let mut keep = |good: bool| {
            dropped += usize::from(!good);
            good
        };
        for costs in self.devices.values_mut() {
            for node in costs.nodes.values_mut().map(Arc::make_mut) {
                node.versions.retain(|_, history| keep(history.is_sane()));
                // Implausible work only excludes the node from its family.
                if !(node.flops.is_finite() && node.bytes.is_finite() && node.flops >= 0.0 && node.bytes >= 0.0) {
                    (node.flops, node.bytes) = (0.0, 0.0);
                }
            }
            costs.nodes.retain(|_, node| !node.versions.is_empty());
            costs.rates = costs.rates.filter(|rates| keep(rates.is_sane()));
        }
        self.links.retain(|_, link| keep(link.is_sane()));
        for sizes in self.links.values_mut().flat_map(|link| [&mut link.sizes, &mut link.streamed, &mut link.reads]) {
            sizes.retain(|_, history| keep(history.is_sane()));
        }
        let devices =
            self.devices.values_mut().flat_map(|costs| [&mut costs.encode, &mut costs.dispatch, &mut costs.misses]);
        let runs = self.runs.values_mut().flat_map(RunCosts::histories);
        for history in devices.chain(runs).filter(|history| !history.is_empty()) {
            if !keep(history.is_sane()) {
                *history = History::default();
            }
        }
        self.slowdowns.retain(|_, slowdown| keep(slowdown.is_sane()));
        dropped
    }

    /// Returns the rates and the extra time of constants only, which show the devices that were calibrated.
    pub fn rates_only(&self) -> Self {
        let rates = |(key, costs): (&String, &DeviceCosts)| {
            (key.clone(), DeviceCosts { rates: costs.rates, misses: costs.misses.clone(), ..DeviceCosts::default() })
        };
        Self { devices: self.devices.iter().map(rates).collect(), ..Self::default() }
    }

    /// Adds another store's knowledge of the same machine. Known rates and affine links stay.
    pub fn merge(&mut self, other: &Self) {
        for (key, theirs) in &other.devices {
            let ours = self.devices.entry(key.clone()).or_default();
            ours.rates = ours.rates.or(theirs.rates);
            ours.encode.merge(&theirs.encode);
            ours.dispatch.merge(&theirs.dispatch);
            ours.misses.merge(&theirs.misses);
            for (node, costs) in &theirs.nodes {
                match ours.nodes.entry(node.clone()) {
                    Entry::Vacant(place) => drop(place.insert(Arc::clone(costs))),
                    Entry::Occupied(known) if Arc::ptr_eq(known.get(), costs) => {}
                    Entry::Occupied(known) => Arc::make_mut(known.into_mut()).merge(costs),
                }
            }
        }
        for (key, theirs) in &other.links {
            match self.links.get_mut(key) {
                Some(ours) => ours.merge(theirs),
                None => drop(self.links.insert(key.clone(), theirs.clone())),
            }
        }
        for (key, theirs) in &other.runs {
            let ours = self.runs.entry(key.clone()).or_default();
            let RunCosts { start, join, finish, wake } = theirs;
            ours.histories().into_iter().zip([start, join, finish, wake]).for_each(|(ours, theirs)| ours.merge(theirs));
        }
        for (step, version) in &other.calibrated {
            let ours = self.calibrated.entry(step.clone()).or_default();
            *ours = (*version).max(*ours);
        }
        for (key, theirs) in &other.slowdowns {
            let ours = self.slowdowns.entry(key.clone()).or_default();
            // Equal ratios are the same measurements once more.
            if ours != theirs {
                theirs.recent.iter().for_each(|ratio| ours.add(*ratio));
            }
        }
    }

    /// Takes the rates of `new`, and its affine links if they differ from `before`.
    pub(super) fn recalibrate(&mut self, new: &Self, before: Option<&Self>) {
        for (key, theirs) in &new.devices {
            if let Some(ours) = self.devices.get_mut(key) {
                ours.rates = theirs.rates.or(ours.rates);
            }
        }
        let before = |key| before.and_then(|before| before.links.get(key)).map(LinkCosts::law);
        for (key, theirs) in new.links.iter().filter(|(key, theirs)| before(*key) != Some(theirs.law())) {
            if let Some(ours) = self.links.get_mut(key) {
                (ours.latency, ours.rate) = theirs.law();
            }
        }
    }
}

impl NodeCosts {
    /// Returns the history under this build's kernels, and creates it if necessary.
    fn current_mut(&mut self) -> &mut History {
        if !self.versions.contains_key(&anabranch_kernels::VERSION) && self.versions.len() >= VERSIONS {
            self.versions.pop_first();
        }
        self.versions.entry(anabranch_kernels::VERSION).or_default()
    }

    /// Returns the newest measured version, which determines the amounts.
    fn newest(&self) -> Option<u32> {
        self.versions.last_key_value().map(|(version, _)| *version)
    }

    fn merge(&mut self, other: &Self) {
        if self.family.is_empty() || self.newest() < other.newest() {
            (self.op, self.flops, self.bytes) = (other.op.clone(), other.flops, other.bytes);
            (self.family, self.amounts) = (other.family.clone(), other.amounts.clone());
        }
        for (version, history) in &other.versions {
            self.versions.entry(*version).or_default().merge(history);
        }
        while self.versions.len() > VERSIONS {
            self.versions.pop_first();
        }
    }
}

/// Longest time in seconds: sums of times stay finite.
pub const MOST_SECONDS: f64 = 1e-9 * MOST_NANOSECONDS;

/// Whether a value can be bytes or operations per second. Even work at the least rate takes a finite time.
pub fn is_rate(rate: f64) -> bool {
    (1e-9..=1e30).contains(&rate)
}

impl Rates {
    /// Whether the values can be rates.
    pub fn is_sane(&self) -> bool {
        let rates = [self.matmul_flops, self.conv_flops, self.map_flops, self.bandwidth];
        rates.into_iter().all(is_rate) && (0.0..=MOST_SECONDS).contains(&self.launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_ir::program::{floats, map};
    use anabranch_kernels::op::{Expression, Unary};

    #[test]
    fn runs_of_a_number_of_threads_that_was_not_measured_are_like_the_nearest() {
        let mut costs = MachineCosts::default();
        assert_eq!(costs.run(1), None);
        for (threads, start) in [(0, 300.0), (1, 5e3), (4, 2e4)] {
            let run = costs.runs.entry(MachineCosts::run_key(threads)).or_default();
            assert!(run.start.add(Sample { nanoseconds: start, cold: false, at: 0 }));
        }
        // A key from a store of an older version.
        costs.runs.insert("2 CPUs, 0 GPUs, 0 links".into(), RunCosts::default());
        for (threads, start) in [(0, 300.0), (1, 5e3), (2, 5e3), (3, 2e4), (9, 2e4)] {
            assert_eq!(costs.run(threads).map(|run| run.start.min), Some(start), "{threads}");
        }
    }

    #[test]
    fn a_nodes_amounts_are_those_of_the_newest_kernels() {
        let spec = NodeSpec {
            op: map(Expression::unary(Unary::Abs)),
            inputs: vec![floats(&[50])],
            outputs: vec![floats(&[50])],
        };
        let sample = Sample { nanoseconds: 9.0, cold: false, at: 0 };
        let mut new = MachineCosts::default();
        assert!(new.record("cpu", &spec, sample));
        // A node as measured with kernels of an older version.
        let mut old = new.clone();
        let node = old.devices.get_mut("cpu").and_then(|costs| costs.nodes.get_mut(&spec.key())).expect("recorded");
        let node = Arc::make_mut(node);
        let history = node.versions.remove(&anabranch_kernels::VERSION).expect("recorded");
        (node.family, node.amounts) = ("ancient".into(), vec![1.0]);
        node.versions.insert(0, history);
        let known = |costs: &MachineCosts| {
            let node = &costs.devices["cpu"].nodes[&spec.key()];
            assert_eq!(node.family, "map");
            node.amounts.clone()
        };
        let (mut again, mut merged, mut kept) = (old.clone(), old.clone(), new.clone());
        assert!(again.record("cpu", &spec, sample));
        merged.merge(&new);
        kept.merge(&old);
        for costs in [again, merged, kept] {
            assert_eq!(known(&costs), spec.family().amounts);
        }
    }
}
