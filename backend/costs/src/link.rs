//! Time of transfers over one directed link, by size.

use super::history::{History, Sample};
use super::machine::{MOST_SECONDS, is_rate};
use anabranch_placement_core::cost::TransferCurve;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Uncertainty of transfers over a link without measurements.
const UNKNOWN_UNCERTAINTY: f64 = 2.0;

/// Most sizes for which one link keeps samples.
const SIZES: usize = 64;

/// A directed link: its calibrated time `latency + bytes / rate`, and measured times of transfers by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkCosts {
    /// Seconds before the first byte.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub latency: f64,
    /// Bytes per second.
    pub rate: f64,
    /// Times of transfers, by bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sizes: BTreeMap<u64, History>,
    /// Times of transfers in chunks, by bytes, into a node with almost no work.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub streamed: BTreeMap<u64, History>,
    /// Between CPU devices: extra time of a node that is the first of its device to read bytes just written by the
    /// other device, by bytes.
    // The lines come from the other device's cache.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reads: BTreeMap<u64, History>,
}

impl LinkCosts {
    /// Creates a link without measured transfers.
    pub fn affine(latency: f64, rate: f64) -> Self {
        Self { latency, rate, sizes: BTreeMap::new(), streamed: BTreeMap::new(), reads: BTreeMap::new() }
    }

    /// Returns an assumed link: 5 µs and 40 GB/s between CPU devices (a message and cache misses), else 30 µs and 10
    /// GB/s (a bus).
    pub fn assumed(between_cpus: bool) -> Self {
        if between_cpus { Self::affine(5e-6, 4e10) } else { Self::affine(3e-5, 1e10) }
    }

    /// Returns the affine law: seconds before the first byte, and bytes per second.
    pub(super) fn law(&self) -> (f64, f64) {
        (self.latency, self.rate)
    }

    /// Adds the measured time of a transfer, and returns whether it was accepted.
    pub fn record(&mut self, bytes: u64, sample: Sample) -> bool {
        record(&mut self.sizes, bytes, sample)
    }

    /// Adds the measured time of a transfer in chunks, and returns whether it was accepted.
    pub fn record_streamed(&mut self, bytes: u64, sample: Sample) -> bool {
        record(&mut self.streamed, bytes, sample)
    }

    /// Adds the extra time of a node that reads from another device's cache, and returns whether it was accepted.
    pub fn record_read(&mut self, bytes: u64, sample: Sample) -> bool {
        record(&mut self.reads, bytes, sample)
    }

    /// Returns the time by size: through the measured sizes if there are any, parallel to the affine law outside them.
    /// O(sizes).
    pub fn curve(&self) -> TransferCurve {
        self.through(&self.sizes)
    }

    /// Returns the time of a transfer in chunks, or that of a whole transfer if none in chunks was measured.
    pub fn streamed_curve(&self) -> TransferCurve {
        self.through(if self.streamed.is_empty() { &self.sizes } else { &self.streamed })
    }

    /// Returns the extra time of a node that is the first to read data of another device; 0 without measurements.
    ///
    /// Larger data than measured costs no more, because it is no longer in a cache.
    pub fn read_curve(&self) -> TransferCurve {
        TransferCurve::through(std::iter::once((0, 0.0)).chain(points(&self.reads)), 0.0, f64::INFINITY)
    }

    /// Returns the factor within which 90 % of transfers of `bytes` bytes lie, as measured at the nearest size.
    pub fn uncertainty(&self, bytes: u64) -> f64 {
        let nearest = self.sizes.iter().min_by_key(|(size, _)| size.abs_diff(bytes));
        let nearest = nearest.and_then(|(_, history)| history.undisturbed());
        nearest.map_or(UNKNOWN_UNCERTAINTY, |estimate| estimate.uncertainty)
    }

    fn through(&self, sizes: &BTreeMap<u64, History>) -> TransferCurve {
        TransferCurve::through(points(sizes), self.latency, self.rate)
    }

    /// Whether latency and rate are plausible. Callers check the sizes one by one.
    pub(super) fn is_sane(&self) -> bool {
        (0.0..=MOST_SECONDS).contains(&self.latency) && is_rate(self.rate)
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let Self { sizes, streamed, reads, .. } = self;
        let pairs = [(sizes, &other.sizes), (streamed, &other.streamed), (reads, &other.reads)];
        for (ours, theirs) in pairs {
            for (bytes, history) in theirs {
                ours.entry(*bytes).or_default().merge(history);
            }
            while ours.len() > SIZES {
                forget_stalest(ours);
            }
        }
    }
}

/// Bytes and seconds of the measured transfers.
fn points(sizes: &BTreeMap<u64, History>) -> impl Iterator<Item = (u64, f64)> {
    let point = |(bytes, history): (&u64, &History)| Some((*bytes, history.undisturbed()?.seconds()));
    sizes.iter().filter_map(point)
}

fn record(sizes: &mut BTreeMap<u64, History>, bytes: u64, sample: Sample) -> bool {
    if !(sample.nanoseconds.is_finite() && sample.nanoseconds > 0.0) {
        return false;
    }
    if !sizes.contains_key(&bytes) && sizes.len() >= SIZES {
        forget_stalest(sizes);
    }
    sizes.entry(bytes).or_default().add(sample)
}

/// Drops the size with the oldest last measurement.
fn forget_stalest(sizes: &mut BTreeMap<u64, History>) {
    let stalest = sizes.iter().min_by_key(|(_, history)| history.measured_at).map(|(bytes, _)| *bytes);
    stalest.map(|bytes| sizes.remove(&bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_the_sizes_that_were_measured_last() {
        let mut links = [0u64, 1000].map(|first| {
            let mut link = LinkCosts::affine(1e-5, 1e10);
            for size in first..first + SIZES as u64 {
                let sample = Sample { nanoseconds: 5.0, cold: false, at: 2 * (size % 1000) + first / 1000 };
                assert!(link.record(size, sample) && link.record_streamed(size, sample));
            }
            link
        });
        let [ours, theirs] = &mut links;
        ours.merge(theirs);
        let half = SIZES as u64 / 2;
        let newest: Vec<u64> = (half..2 * half).chain(1000 + half..1000 + 2 * half).collect();
        assert!(ours.sizes.keys().eq(&newest) && ours.streamed.keys().eq(&newest));
    }
}
