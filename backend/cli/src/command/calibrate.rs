//! `anabranch calibrate`: what the devices and links of this machine can do, measured.

use super::args::DeviceArgs;
use super::costs::store_path;
use super::interrupt::cancel_on_interrupt;
use super::progress::Progress;
use super::table::{Align, Table, duration};
use super::{CliError, Output};
use anabranch::device::{DeviceRef, Inventory, detect, format_bytes};
use anabranch::profile::{CostStore, LinkCosts, MachineCosts};
use anabranch::session::Calibrator;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Measure what each device and each link of this machine can do, and keep it in the cost store
///
/// Takes less than a minute on a small machine. Every step is saved as it is done: after an interruption the same command goes on where
/// it was.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch calibrate\n  anabranch calibrate --cpu-devices core --software-gpu\n  \
    anabranch calibrate --redo --json > machine.json")]
pub(crate) struct CalibrateCommand {
    /// Measure again what is measured already; what was known is kept, and fades where it no longer holds
    #[arg(long)]
    redo: bool,
    /// The cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl CalibrateCommand {
    /// Runs the command.
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let path = store_path(self.costs.as_ref())?;
        let loaded = CostStore::load(&path)?;
        loaded.warnings.iter().for_each(|warning| eprintln!("anabranch: {warning}"));
        let inventory = detect(&self.devices.options())?;
        let mut store = loaded.store;
        let notes = store.settle(&inventory.fingerprint());
        if !output.json {
            inventory.notes.iter().chain(&notes).for_each(|note| eprintln!("note: {note}"));
        }
        let measured = self.measure(&inventory, &mut store, &path, output)?;
        show(&inventory, store.here(), measured, output)
    }

    /// Does the steps that are left, and saves each; how many of how many.
    fn measure(
        &self,
        inventory: &Inventory,
        store: &mut CostStore,
        path: &std::path::Path,
        output: Output,
    ) -> Result<(usize, usize), CliError> {
        let cancel = cancel_on_interrupt()?;
        let calibrator = Calibrator::new(inventory);
        let steps = calibrator.steps();
        let left: Vec<_> = steps.iter().filter(|step| self.redo || !calibrator.is_done(step, store.here())).collect();
        let progress = Progress::new(output, "calibrating", left.len() as u64);
        for step in &left {
            if cancel.is_cancelled() {
                return Err(CliError::interrupted());
            }
            calibrator.measure(step, store.here_mut())?;
            store.save(path)?;
            progress.advance();
        }
        Ok((left.len(), steps.len()))
    }
}

fn show(
    inventory: &Inventory,
    known: &MachineCosts,
    (measured, steps): (usize, usize),
    output: Output,
) -> Result<(), CliError> {
    if output.json {
        return output.json(&as_json(inventory, known, (measured, steps)));
    }
    let mut text =
        format!("{}: {measured} of {steps} steps measured, the others were known\n\n", inventory.fingerprint());
    text.push_str(&format!("{}\n", device_table(inventory, known)));
    let links = link_table(inventory, known);
    if let Some(links) = links {
        text.push_str(&format!("{links}\n"));
    }
    for (first, second, slowdown) in slowdowns(inventory, known) {
        text.push_str(&format!("{first} takes {slowdown:.2} times as long while {second} is at work\n"));
    }
    output.text(&text)
}

fn device_table(inventory: &Inventory, known: &MachineCosts) -> Table {
    let columns = ["matmul GFLOP/s", "conv GFLOP/s", "element-wise GFLOP/s", "memory GB/s", "launch", "nodes known"];
    let columns: Vec<_> = columns.into_iter().map(|name| (name, Align::Right)).collect();
    let mut table = Table::new(&[&[("device", Align::Left)], &columns[..]].concat());
    for device in inventory.devices() {
        let costs = known.devices.get(device.key().as_str());
        let rates = costs.and_then(|costs| costs.rates);
        let giga = |rate: f64| format!("{:.1}", rate / 1e9);
        let cell = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        table.row([
            device.name().to_owned(),
            cell(rates.map(|rates| giga(rates.matmul_flops))),
            cell(rates.map(|rates| giga(rates.conv_flops))),
            cell(rates.map(|rates| giga(rates.map_flops))),
            cell(rates.map(|rates| giga(rates.bandwidth))),
            cell(rates.map(|rates| duration(rates.launch))),
            costs.map_or(0, |costs| costs.nodes.len()).to_string(),
        ]);
    }
    table
}

/// One line for each link and size; of links between equal pairs of devices only the first.
fn link_table(inventory: &Inventory, known: &MachineCosts) -> Option<Table> {
    let mut table = Table::new(&[
        ("link", Align::Left),
        ("bytes", Align::Right),
        ("whole", Align::Right),
        ("GB/s", Align::Right),
        ("in chunks", Align::Right),
    ]);
    let mut any = false;
    for (from, to, link) in links(inventory, known) {
        for (bytes, whole, streamed) in sizes(link) {
            any = true;
            let time = |seconds: Option<f64>| seconds.map_or("–".into(), duration);
            let rate = whole.map_or("–".into(), |seconds| format!("{:.2}", bytes as f64 / seconds / 1e9));
            let name = format!("{} → {}", from.name(), to.name());
            table.row([name, format_bytes(bytes), time(whole), rate, time(streamed)]);
        }
    }
    any.then_some(table)
}

/// Links with other keys than those before.
fn links<'a>(inventory: &'a Inventory, known: &'a MachineCosts) -> Vec<(DeviceRef<'a>, DeviceRef<'a>, &'a LinkCosts)> {
    let mut seen = Vec::new();
    let pairs = inventory.devices().flat_map(|from| inventory.devices().map(move |to| (from, to)));
    let mut new = |key: &String| {
        !seen.contains(key) && {
            seen.push(key.clone());
            true
        }
    };
    pairs
        .filter(|(from, to)| from.name() != to.name())
        .map(|(from, to)| (from, to, MachineCosts::link_key(from.key().as_str(), to.key().as_str())))
        .filter(|(_, _, key)| new(key))
        .filter_map(|(from, to, key)| Some((from, to, known.links.get(&key)?)))
        .collect()
}

/// Bytes, and seconds whole and in chunks.
fn sizes(link: &LinkCosts) -> Vec<(u64, Option<f64>, Option<f64>)> {
    let mut all: Vec<u64> = link.sizes.keys().chain(link.streamed.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    let seconds =
        |history: &anabranch::profile::History| history.estimate().map(|estimate| estimate.nanoseconds * 1e-9);
    let times =
        |bytes: u64| (bytes, link.sizes.get(&bytes).and_then(seconds), link.streamed.get(&bytes).and_then(seconds));
    all.into_iter().map(times).collect()
}

/// Names of two devices, and how much slower the first is beside the second.
fn slowdowns(inventory: &Inventory, known: &MachineCosts) -> Vec<(String, String, f64)> {
    let pairs = inventory.devices().flat_map(|a| inventory.devices().map(move |b| (a, b)));
    let measured = pairs.filter(|(a, b)| a.name() != b.name()).filter_map(|(a, b)| {
        let key = MachineCosts::slowdown_key(a.key().as_str(), b.key().as_str());
        Some((a.name().to_owned(), b.name().to_owned(), known.slowdowns.get(&key)?.ratio()))
    });
    measured.collect()
}

fn as_json(inventory: &Inventory, known: &MachineCosts, (measured, steps): (usize, usize)) -> Value {
    let device = |device: DeviceRef<'_>| {
        let costs = known.devices.get(device.key().as_str());
        json!({
            "name": device.name(),
            "key": device.key(),
            "rates": costs.and_then(|costs| costs.rates),
            "nodes": costs.map_or(0, |costs| costs.nodes.len()),
        })
    };
    let link = |(from, to, link): (DeviceRef<'_>, DeviceRef<'_>, &LinkCosts)| {
        let sizes: Vec<_> = sizes(link)
            .into_iter()
            .map(|(bytes, whole, streamed)| json!({ "bytes": bytes, "whole_s": whole, "chunks_s": streamed }))
            .collect();
        json!({ "from": from.name(), "to": to.name(), "latency_s": link.latency, "rate": link.rate, "sizes": sizes })
    };
    let slowdown =
        |(device, beside, ratio): (String, String, f64)| json!({ "device": device, "beside": beside, "ratio": ratio });
    json!({
        "machine": inventory.fingerprint(),
        "steps": steps,
        "measured": measured,
        "devices": inventory.devices().map(device).collect::<Vec<_>>(),
        "links": links(inventory, known).into_iter().map(link).collect::<Vec<_>>(),
        "slowdowns": slowdowns(inventory, known).into_iter().map(slowdown).collect::<Vec<_>>(),
    })
}
