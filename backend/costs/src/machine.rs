//! What one machine was measured to do: its devices, its links, and its runs as a whole.

use super::history::{History, MOST_NANOSECONDS, RECENT, Sample};
use super::link::LinkCosts;
use super::robust::median;
use anabranch_kernels::op::{Family, NodeSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// How keys of runs end.
const THREADS: &str = " threads beside the caller's";

/// Versions of the kernels whose measurements are kept for one node at most; the oldest goes first.
const VERSIONS: usize = 3;

/// Measured costs of one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineCosts {
    /// By device key.
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceCosts>,
    /// By the keys of both ends, `from -> to`.
    #[serde(default)]
    pub links: BTreeMap<String, LinkCosts>,
    /// What runs take beside their nodes and transfers, by the number of threads that take part (see [`Self::run_key`]).
    #[serde(default)]
    pub runs: BTreeMap<String, RunCosts>,
    /// How many times as long a device takes while another is at work, by the keys of both, `device beside other`.
    #[serde(default)]
    pub slowdowns: BTreeMap<String, Slowdown>,
    /// The steps of a full calibration that are done, with the version of the kernels that they measured.
    #[serde(default)]
    pub calibrated: BTreeMap<String, u32>,
}

/// What one device was measured to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceCosts {
    /// Peak rates, if the device was calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// Times of nodes by [`NodeSpec::key`].
    #[serde(default)]
    /// Shared between copies of a store, which have many of them.
    pub nodes: BTreeMap<String, Arc<NodeCosts>>,
    /// Of a GPU: the host's time to encode a node.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub encode: History,
    /// Of a GPU: from the submission to an idle device until that begins.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub dispatch: History,
    /// Of a CPU: what a MiB of constants takes longer to come from beyond its cores' own caches.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub far: History,
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

/// What one node was measured to take on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The family's name ([`NodeSpec::family`]); empty in a store of an older version, until the node is measured again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub family: String,
    /// The family's amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<f64>,
    /// By the version of the kernels ([`anabranch_kernels::VERSION`]) that were measured.
    /// A map has room for several, and a node nearly always one.
    pub versions: BTreeMap<u32, Box<History>>,
}

/// What a run takes beside its nodes and transfers, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunCosts {
    /// From the call until the calling thread turns to its first step.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub start: History,
    /// From the call until another thread does.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub join: History,
    /// From the end of the last node or transfer until the caller has the outputs.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub finish: History,
    /// From the arrival of a transfer until a CPU device that waits for it goes on.
    #[serde(default, skip_serializing_if = "History::is_empty")]
    pub wake: History,
}

/// How many times as long a device takes while another is at work: the last ratios that runs showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    /// The newest last; at most [`RECENT`].
    pub recent: Vec<f64>,
}

impl RunCosts {
    fn histories(&mut self) -> [&mut History; 4] {
        [&mut self.start, &mut self.join, &mut self.finish, &mut self.wake]
    }
}

impl Slowdown {
    /// The most that is believed: more than that is another cause.
    const MOST: f64 = 8.0;

    /// Adds a ratio; one that is no number is ignored, and one outside 1 to 8 is taken for the nearest of these.
    pub fn add(&mut self, ratio: f64) {
        if ratio.is_finite() {
            if self.recent.len() >= RECENT {
                self.recent.remove(0);
            }
            self.recent.push(ratio.clamp(1.0, Self::MOST));
        }
    }

    /// The median; 1 where nothing is known.
    pub fn ratio(&self) -> f64 {
        median(&self.recent).unwrap_or(1.0)
    }

    fn is_sane(&self) -> bool {
        self.recent.len() <= RECENT && self.recent.iter().all(|ratio| (1.0..=Self::MOST).contains(ratio))
    }
}

impl MachineCosts {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The key of a directed link.
    pub fn link_key(from: &str, to: &str) -> String {
        format!("{from} -> {to}")
    }

    /// The key of what runs cost in which so many threads take part beside the calling one.
    pub fn run_key(threads: usize) -> String {
        format!("{threads}{THREADS}")
    }

    /// What runs cost in which so many threads take part beside the calling one; where none such was measured, those of the nearest number
    /// of threads.
    pub fn run(&self, threads: usize) -> Option<&RunCosts> {
        let known = self.runs.iter().filter_map(|(key, run)| Some((key.strip_suffix(THREADS)?.parse().ok()?, run)));
        known.min_by_key(|(count, _): &(usize, _)| count.abs_diff(threads)).map(|(_, run)| run)
    }

    /// How many times as long the device of this key takes while the other is at work.
    pub fn slowdown(&self, device: &str, other: &str) -> f64 {
        self.slowdowns.get(&Self::slowdown_key(device, other)).map_or(1.0, Slowdown::ratio)
    }

    /// Seconds that a byte of constants takes longer on the device of this key where its own cache does not hold it; 0 where nobody knows.
    pub fn far(&self, device: &str) -> f64 {
        let far = self.devices.get(device).and_then(|costs| costs.far.undisturbed());
        far.map_or(0.0, |estimate| estimate.nanoseconds * 1e-9 / f64::from(1 << 20))
    }

    /// The key of a slowdown.
    pub fn slowdown_key(device: &str, other: &str) -> String {
        format!("{device} beside {other}")
    }

    /// Adds a measured time of a node on the device of this key, taken with kernels of this build; whether it was taken.
    pub fn record(&mut self, device: &str, node: &NodeSpec, sample: Sample) -> bool {
        if !(sample.nanoseconds.is_finite() && sample.nanoseconds > 0.0) {
            return false;
        }
        let nodes = match self.devices.get_mut(device) {
            Some(costs) => &mut costs.nodes,
            None => &mut self.devices.entry(device.to_owned()).or_default().nodes,
        };
        let costs = Arc::make_mut(nodes.entry(node.key()).or_default());
        // Other kernels may have had another law.
        if costs.family.is_empty() || !costs.versions.contains_key(&anabranch_kernels::VERSION) {
            let (work, Family { name, amounts }) = (node.work(), node.family());
            (costs.op, costs.flops, costs.bytes) = (node.op.name().to_owned(), work.flops, work.bytes());
            (costs.family, costs.amounts) = (name.to_owned(), amounts);
        }
        costs.current_mut().add(sample)
    }

    /// What a node took on a device with kernels of this build.
    pub fn node(&self, device: &str, node: &str) -> Option<&History> {
        self.devices.get(device)?.nodes.get(node)?.versions.get(&anabranch_kernels::VERSION).map(Box::as_ref)
    }

    /// Drops what cannot be times or rates; how much that was.
    pub(super) fn clean(&mut self) -> usize {
        let mut dropped = 0;
        let mut keep = |good: bool| {
            dropped += usize::from(!good);
            good
        };
        for costs in self.devices.values_mut() {
            for node in costs.nodes.values_mut().map(Arc::make_mut) {
                node.versions.retain(|_, history| keep(history.is_sane()));
                // Work that is none only loses the node's place among its likes.
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
            self.devices.values_mut().flat_map(|costs| [&mut costs.encode, &mut costs.dispatch, &mut costs.far]);
        let runs = self.runs.values_mut().flat_map(RunCosts::histories);
        for history in devices.chain(runs).filter(|history| !history.is_empty()) {
            if !keep(history.is_sane()) {
                *history = History::default();
            }
        }
        self.slowdowns.retain(|_, slowdown| keep(slowdown.is_sane()));
        dropped
    }

    /// The rates and what constants take, and nothing else: which devices were calibrated.
    pub fn rates_only(&self) -> Self {
        let rates = |(key, costs): (&String, &DeviceCosts)| {
            (key.clone(), DeviceCosts { rates: costs.rates, far: costs.far.clone(), ..DeviceCosts::default() })
        };
        Self { devices: self.devices.iter().map(rates).collect(), ..Self::default() }
    }

    /// Adds what another store knows of the same machine. Rates and affine links that are known already stay.
    pub fn merge(&mut self, other: &Self) {
        for (key, theirs) in &other.devices {
            let ours = self.devices.entry(key.clone()).or_default();
            ours.rates = ours.rates.or(theirs.rates);
            ours.encode.merge(&theirs.encode);
            ours.dispatch.merge(&theirs.dispatch);
            ours.far.merge(&theirs.far);
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
            // The same once more tells nothing new.
            if ours != theirs {
                theirs.recent.iter().for_each(|ratio| ours.add(*ratio));
            }
        }
    }

    /// Takes the rates that `new` has, and its affine links that are others than they were `before`.
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
    /// The history under this build's kernels, made if need be.
    fn current_mut(&mut self) -> &mut History {
        if !self.versions.contains_key(&anabranch_kernels::VERSION) && self.versions.len() >= VERSIONS {
            self.versions.pop_first();
        }
        self.versions.entry(anabranch_kernels::VERSION).or_default()
    }

    /// The newest kernels that were measured, by whose laws the amounts are.
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

/// Seconds of a time at most: sums of times stay finite.
pub const MOST_SECONDS: f64 = 1e-9 * MOST_NANOSECONDS;

/// Whether a figure can be a number of bytes or operations per second. What takes the least rate still takes a finite time.
pub fn is_rate(rate: f64) -> bool {
    (1e-9..=1e30).contains(&rate)
}

impl Rates {
    /// Whether the figures can be rates.
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
        // Of a store that an older version has made.
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
        // As kernels of an older version had it.
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
