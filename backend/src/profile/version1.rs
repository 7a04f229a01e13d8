//! Cost stores of format 1, which knew one machine, no samples, and no versions of kernels.

use super::history::History;
use super::link::LinkCosts;
use super::machine::{DeviceCosts, MachineCosts, NodeCosts, Rates};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The format's number.
pub(super) const VERSION: u32 = 1;

/// Kernels of before there were versions.
const KERNELS: u32 = 0;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    devices: BTreeMap<String, Device>,
    #[serde(default)]
    links: BTreeMap<String, Link>,
}

#[derive(Deserialize)]
struct Device {
    rates: Option<Rates>,
    #[serde(default)]
    nodes: BTreeMap<String, Sums>,
}

#[derive(Deserialize)]
struct Sums {
    count: u64,
    mean: f64,
    variance: f64,
    min: f64,
    measured_at: u64,
}

#[derive(Deserialize)]
struct Link {
    latency: f64,
    rate: f64,
}

/// Reads a file's text. The error says what is wrong with it.
pub(super) fn read(text: &[u8]) -> Result<MachineCosts, String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let node = |sums: Sums| {
        let history = History::of_sums(sums.count, sums.mean, sums.variance, sums.min, sums.measured_at);
        NodeCosts { versions: BTreeMap::from([(KERNELS, history)]), ..NodeCosts::default() }
    };
    let device = |device: Device| DeviceCosts {
        rates: device.rates,
        nodes: device.nodes.into_iter().map(|(key, sums)| (key, node(sums))).collect(),
        ..DeviceCosts::default()
    };
    Ok(MachineCosts {
        devices: file.devices.into_iter().map(|(key, costs)| (key, device(costs))).collect(),
        links: file.links.into_iter().map(|(key, link)| (key, LinkCosts::affine(link.latency, link.rate))).collect(),
        ..MachineCosts::default()
    })
}
