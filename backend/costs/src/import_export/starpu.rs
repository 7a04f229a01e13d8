//! Costs as StarPU's history-based performance models: one file per op, named `SYMBOL.HOST`.
//!
//! A footprint is the CRC-32C of the node's key. Data that the format cannot hold (keys of the machine, the devices and
//! the nodes) stands in comments before the first value, which StarPU skips. A model that StarPU itself wrote is filed
//! under a machine with its host's name, and predicts for no other machine.

use super::starpu_text::{Combination, Device, Entry, Model, parse, print};
use crate::history::History;
use crate::machine::NodeCosts;
use crate::store::CostStore;
use anabranch_kernels::VERSION;
use std::collections::BTreeMap;
use std::sync::Arc;

/// StarPU's number for CPUs.
const CPU: u64 = 0;

/// StarPU's number for GPUs of any maker.
const OPENCL: u64 = 2;

/// Returns name and text of the files of this machine, by op.
pub(super) fn models(store: &CostStore) -> Vec<(String, String)> {
    let mut models: BTreeMap<&str, Model> = BTreeMap::new();
    let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
    for (key, device) in &store.here().devices {
        let kind = if key.starts_with("gpu") { OPENCL } else { CPU };
        let number = numbers.entry(kind).or_default();
        let mut combinations: BTreeMap<&str, (Combination, Vec<String>)> = BTreeMap::new();
        for (name, node) in device.nodes.iter().filter(|(_, node)| !node.op.is_empty()) {
            let Some(history) = node.versions.get(&VERSION).filter(|history| history.count > 0) else { continue };
            let devices = vec![Device { kind, number: *number, cores: 1 }];
            let (combination, comments) = combinations
                .entry(&node.op)
                .or_insert_with(|| (Combination { devices, entries: Vec::new() }, Vec::new()));
            let mut footprint = crc32c(name.as_bytes());
            while combination.entries.iter().any(|entry| entry.footprint == footprint) {
                footprint = footprint.wrapping_add(1);
            }
            comments.push(format!("{footprint:08x} {name}"));
            combination.entries.push(Entry {
                footprint,
                bytes: node.bytes as u64,
                flops: node.flops,
                mean: history.mean * 1e-3,
                deviation: history.deviation() * 1e-3,
                count: history.count,
            });
        }
        for (op, (combination, comments)) in combinations {
            let model = models.entry(op).or_default();
            let at = model.combinations.len();
            model.comments.push(format!("anabranch device {at} {key}"));
            model.comments.extend(comments.iter().map(|comment| format!("anabranch node {at} {comment}")));
            model.combinations.push(combination);
        }
        *number += 1;
    }
    let named = |(op, mut model): (&str, Model)| {
        model.comments.insert(0, format!("anabranch machine {VERSION} {}", store.fingerprint()));
        (format!("{op}.{}", host(store.fingerprint())), print(&model))
    };
    models.into_iter().map(named).collect()
}

/// Short form of a fingerprint for a file name.
fn host(fingerprint: &str) -> String {
    let words = fingerprint.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// Reads the model in a file of this name. The error names the problem and the line.
pub(super) fn read(name: &str, text: &[u8]) -> Result<CostStore, String> {
    let model = parse(text)?;
    let (symbol, host) = name.split_once('.').unwrap_or((name, "unknown"));
    let own = Own::of(&model.comments);
    let (version, machine) = own.machine.unwrap_or_else(|| (VERSION, format!("StarPU on {host}")));
    let mut store = CostStore::default();
    for (at, combination) in model.combinations.iter().enumerate() {
        let device = own.devices.get(&at).cloned().unwrap_or_else(|| device_name(&combination.devices));
        for entry in &combination.entries {
            let known = own.nodes.get(&(at, entry.footprint)).cloned();
            let key = known.unwrap_or_else(|| format!("{symbol} footprint {:08x}", entry.footprint));
            let mean = entry.mean * 1e3;
            let (count, variance) = (entry.count, (entry.deviation * 1e3).powi(2));
            let history = History { count, mean, variance, min: mean, ..History::default() };
            let node = store.machine_mut(&machine).devices.entry(device.clone()).or_default().nodes.entry(key);
            let new = || NodeCosts {
                op: symbol.to_owned(),
                flops: entry.flops,
                bytes: entry.bytes as f64,
                ..NodeCosts::default()
            };
            let node = Arc::make_mut(node.or_insert_with(|| Arc::new(new())));
            // Several implementations of one footprint share one history here.
            node.versions.entry(version).or_default().merge(&history);
        }
    }
    match store.machine_mut(&machine).clean() {
        0 => Ok(store),
        wrong => Err(format!("invalid times: {wrong}; measure them again")),
    }
}

/// Data of our own comments.
#[derive(Default)]
struct Own {
    machine: Option<(u32, String)>,
    devices: BTreeMap<usize, String>,
    nodes: BTreeMap<(usize, u32), String>,
}

impl Own {
    /// Reads the comments; foreign and incomplete comments are ignored.
    fn of(comments: &[String]) -> Self {
        let mut own = Self::default();
        for comment in comments {
            let Some((what, rest)) = comment.strip_prefix("anabranch ").and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            let Some((number, text)) = rest.split_once(' ') else { continue };
            match (what, number.parse::<u32>()) {
                ("machine", Ok(version)) => own.machine = Some((version, text.to_owned())),
                ("device", Ok(at)) => drop(own.devices.insert(at as usize, text.to_owned())),
                ("node", Ok(at)) => {
                    if let Some((footprint, key)) = text.split_once(' ')
                        && let Ok(footprint) = u32::from_str_radix(footprint, 16)
                    {
                        own.nodes.insert((at as usize, footprint), key.to_owned());
                    }
                }
                _ => {}
            }
        }
        own
    }
}

fn device_name(devices: &[Device]) -> String {
    let name = |device: &Device| format!("type {} number {} cores {}", device.kind, device.number, device.cores);
    devices.iter().map(name).collect::<Vec<_>>().join(" with ")
}

/// CRC-32C (Castagnoli 1993), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::super::tests::filled;
    use super::*;

    #[test]
    fn footprints_are_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn there_is_one_model_an_op_with_one_combination_a_device() {
        let models = models(&filled());
        let names: Vec<_> = models.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["map.a-machine-with-quotes", "matmul.a-machine-with-quotes"]);
        assert_eq!(parse(models[1].1.as_bytes()).expect("a model").combinations.len(), 2);
    }

    #[test]
    fn without_our_comments_a_model_is_filed_under_its_host() {
        let (name, text) = models(&filled()).remove(1);
        let bare: String =
            text.lines().filter(|line| !line.starts_with("# anabranch")).map(|line| format!("{line}\n")).collect();
        let mut store = read(&name, bare.as_bytes()).expect("a model");
        assert_eq!(store.others().collect::<Vec<_>>(), ["StarPU on a-machine-with-quotes"]);
        assert!(store.settle("m")[0].contains("kept and not used"));
    }
}
