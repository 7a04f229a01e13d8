//! `anabranch calibrate`: measures the rates of this machine's devices and links.

use super::args::DeviceArgs;
use super::costs::{StoreFile, open_store};
use super::hints::notes;
use super::interrupt::cancel_on_interrupt;
use super::progress::Progress;
use super::{CliError, Output, note};
use anabranch::costs::{CostStore, History, LinkCosts, MachineCosts};
use anabranch::device::{DeviceRef, Inventory, detect, format_bytes};
use anabranch::learning::Calibrator;
use anabranch_report::run::busy_calibration;
use anabranch_report::table::Table;
use anabranch_report::text::duration;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Measure devices and links, and keep the results
///
/// This takes some seconds per CPU device, and up to a minute for a software GPU. Each step takes a few seconds at most
/// and is saved when it is done: after an interruption, the same command continues. If standard error is not a
/// terminal, it names each step.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch calibrate\n  anabranch calibrate --cpu-devices core --software-gpu\n  \
    anabranch calibrate --redo --json > machine.json")]
pub(crate) struct CalibrateCommand {
    /// Measure again, even if results exist
    ///
    /// Old measurements lose weight if new ones disagree.
    #[arg(long)]
    redo: bool,
    /// Use this cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl CalibrateCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let (store_file, mut store) = open_store(self.costs.as_ref())?;
        store_file.ready()?;
        let inventory = detect(&self.devices.options()?)?;
        let settled = store.settle(&inventory.fingerprint());
        if !output.json {
            notes(&inventory).iter().chain(&settled).for_each(note);
        }
        let measured = self.measure(&inventory, &mut store, &store_file, output)?;
        show(&inventory, store.here(), measured, output)
    }

    /// Does the steps that are left, and saves each. Returns their number, and the number of all steps.
    fn measure(
        &self,
        inventory: &Inventory,
        store: &mut CostStore,
        store_file: &StoreFile,
        output: Output,
    ) -> Result<[usize; 2], CliError> {
        let cancel = cancel_on_interrupt()?;
        let calibrator = Calibrator::new(inventory);
        let steps = calibrator.steps();
        let left_out: Vec<&str> = calibrator.without_room().collect();
        if !left_out.is_empty() {
            let (devices, room) = (left_out.join(", "), format_bytes(Calibrator::ROOM));
            note(format_args!(
                "not measured: {devices}; calibration needs up to {room} on the device and on the first device \
                 (--memory)"
            ));
        }
        let left: Vec<_> = steps.iter().filter(|step| self.redo || !calibrator.is_done(step, store.here())).collect();
        let progress = Progress::new(output, "calibrating", left.len() as u64);
        for step in &left {
            if cancel.is_cancelled() {
                return Err(CliError::interrupted());
            }
            progress.begin(output, step);
            calibrator.measure(step, store.here_mut())?;
            store_file.save(store)?;
            progress.advance();
        }
        busy_calibration(&calibrator.load()).iter().for_each(note);
        Ok([left.len(), steps.len()])
    }
}

/// A link from a device to another, with its costs.
type KnownLink<'a> = (DeviceRef<'a>, DeviceRef<'a>, &'a LinkCosts);

/// Seconds to move a number of bytes over a link.
#[derive(Serialize)]
struct TransferTime {
    bytes: u64,
    whole_s: Option<f64>,
    chunks_s: Option<f64>,
    /// Between CPU devices: extra time of a node that is the first to read data just made by the other device.
    read_s: Option<f64>,
}

/// Slowdown of a device while another works.
#[derive(Serialize)]
struct Contention {
    device: String,
    beside: String,
    ratio: f64,
}

fn show(inventory: &Inventory, known: &MachineCosts, steps: [usize; 2], output: Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&as_json(inventory, known, steps));
    }
    let (machine, [measured, all]) = (inventory.fingerprint(), steps);
    let mut text =
        format!("{machine}: {measured} of {all} steps measured; the other results are in the cost store\n\n");
    text.push_str(&format!("{}\n", device_table(inventory, known)));
    let links = link_table(inventory, known).to_string();
    if !links.is_empty() {
        text.push_str(&format!("{links}\n"));
    }
    for Contention { device, beside, ratio } in contentions(inventory, known) {
        text.push_str(&format!("{device} takes {ratio:.2} times as long while {beside} runs\n"));
    }
    output.text(&text)
}

/// Returns the extra seconds per MiB of constants that a device's own caches do not hold; `None` if not measured.
fn cache_miss_seconds(known: &MachineCosts, device: &str) -> Option<f64> {
    let seconds = known.misses(device) * f64::from(1 << 20);
    (seconds > 0.0).then_some(seconds)
}

fn device_table(inventory: &Inventory, known: &MachineCosts) -> Table {
    let mut table = Table::new(
        "device | >matmul GFLOP/s | >conv GFLOP/s | >element-wise GFLOP/s | >memory GB/s | >cache misses | >launch | >nodes known",
    );
    for device in inventory.devices() {
        let costs = known.devices.get(device.key());
        let rates = costs.and_then(|costs| costs.rates);
        let giga = |rate: f64| format!("{:.1}", rate / 1e9);
        let cell = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        table.row([
            device.name().to_owned(),
            cell(rates.map(|rates| giga(rates.matmul_flops))),
            cell(rates.map(|rates| giga(rates.conv_flops))),
            cell(rates.map(|rates| giga(rates.map_flops))),
            cell(rates.map(|rates| giga(rates.bandwidth))),
            cell(cache_miss_seconds(known, device.key()).map(|seconds| format!("+{}/MiB", duration(seconds)))),
            cell(rates.map(|rates| duration(rates.launch))),
            costs.map_or(0, |costs| costs.nodes.len()).to_string(),
        ]);
    }
    table
}

/// Returns a table with a line for each link and size. Of links between equal pairs of devices, only the first is
/// listed.
///
/// Between CPU devices no data move. The table shows how soon the other device continues, and the extra time for
/// reading from the first one's cache.
fn link_table(inventory: &Inventory, known: &MachineCosts) -> Table {
    let mut table = Table::new("link | >bytes | >whole | >GB/s | >in chunks | >read");
    let links = links(inventory, known);
    let lines = links.iter().flat_map(|(from, to, costs)| times(costs).into_iter().map(move |time| (from, to, time)));
    for (from, to, TransferTime { bytes, whole_s, chunks_s, read_s }) in lines {
        let time = |seconds: Option<f64>| seconds.map_or("–".into(), duration);
        let rate = whole_s.map_or("–".into(), |seconds| format!("{:.2}", bytes as f64 / seconds / 1e9));
        let name = format!("{} → {}", from.name(), to.name());
        table.row([name, format_bytes(bytes), time(whole_s), rate, time(chunks_s), time(read_s)]);
    }
    table
}

/// Returns the links, only the first of those with equal keys.
fn links<'a>(inventory: &'a Inventory, known: &'a MachineCosts) -> Vec<KnownLink<'a>> {
    let mut seen = BTreeSet::new();
    let link = |(from, to): (DeviceRef<'a>, DeviceRef<'a>)| {
        let key = MachineCosts::link_key(from.key(), to.key());
        let costs = known.links.get(&key).filter(|_| seen.insert(key.clone()))?;
        Some((from, to, costs))
    };
    pairs(inventory).filter_map(link).collect()
}

/// Returns each pair of devices, in both directions.
fn pairs(inventory: &Inventory) -> impl Iterator<Item = (DeviceRef<'_>, DeviceRef<'_>)> {
    let pairs = inventory.devices().flat_map(|from| inventory.devices().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from.name() != to.name())
}

fn times(costs: &LinkCosts) -> Vec<TransferTime> {
    let (whole, chunks, reads) = (&costs.sizes, &costs.streamed, &costs.reads);
    let sizes: BTreeSet<u64> = [whole, chunks, reads].into_iter().flat_map(|sizes| sizes.keys().copied()).collect();
    let seconds = |history: &History| history.undisturbed().map(|estimate| estimate.seconds());
    let time = |bytes: u64| TransferTime {
        bytes,
        whole_s: whole.get(&bytes).and_then(seconds),
        chunks_s: chunks.get(&bytes).and_then(seconds),
        read_s: reads.get(&bytes).and_then(seconds),
    };
    sizes.into_iter().map(time).collect()
}

fn contentions(inventory: &Inventory, known: &MachineCosts) -> Vec<Contention> {
    let measured = pairs(inventory).filter_map(|(device, beside)| {
        let key = MachineCosts::slowdown_key(device.key(), beside.key());
        let ratio = known.slowdowns.get(&key)?.ratio();
        Some(Contention { device: device.name().to_owned(), beside: beside.name().to_owned(), ratio })
    });
    measured.collect()
}

fn as_json(inventory: &Inventory, known: &MachineCosts, [measured, all]: [usize; 2]) -> Value {
    let device = |device: DeviceRef<'_>| {
        let costs = known.devices.get(device.key());
        json!({
            "name": device.name(),
            "key": device.key(),
            "rates": costs.and_then(|costs| costs.rates),
            "cache_miss_s_per_mib": cache_miss_seconds(known, device.key()),
            "nodes": costs.map_or(0, |costs| costs.nodes.len()),
        })
    };
    let link = |(from, to, costs): KnownLink<'_>| {
        let (from, to) = (from.name(), to.name());
        json!({ "from": from, "to": to, "latency_s": costs.latency, "rate": costs.rate, "sizes": times(costs) })
    };
    json!({
        "machine": inventory.fingerprint(),
        "steps": all,
        "measured": measured,
        "devices": inventory.devices().map(device).collect::<Vec<_>>(),
        "links": links(inventory, known).into_iter().map(link).collect::<Vec<_>>(),
        "slowdowns": contentions(inventory, known),
    })
}
