//! `anabranch watch`: runs a model again and again, and shows its devices, links and memory.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs, parse_seconds};
use super::interrupt::cancel_on_interrupt;
use super::live::{Live, To, share};
use super::open::{self, open};
use super::{CliError, Output};
use anabranch::compare::Latencies;
use anabranch::device::format_bytes;
use anabranch::execute::{Activity, Lane, RunOptions};
use anabranch::plan::Plan;
use anabranch::session::Run;
use anabranch_report::run::{planned_peak, summed};
use anabranch_report::text::{amount, count, duration, file_name};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Least number of runs between two profiled runs, so that profiling hardly affects the rate.
const BETWEEN: u64 = 20;
/// Most latencies that are kept between two displays.
const MOST_LATENCIES: usize = 1 << 20;

/// Run a model again and again, and show devices, memory and rate
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch watch model.onnx --place auto\n  \
    anabranch watch model.onnx --random 1 --duration 60 --every 5 > rates.log\n\n\
    Utilisation of devices and links comes from profiled runs: one in 20 at most. Nothing is added to the cost store.")]
pub(crate) struct WatchCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Draw again after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "0.5")]
    every: Duration,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Observations up to now. Times in seconds, sizes in bytes.
#[derive(Serialize)]
struct Seen {
    model: String,
    strategy: String,
    runs: u64,
    seconds: f64,
    /// Rate since the last display; at the end, the rate of all runs.
    runs_per_second: f64,
    /// Median, 95th and 99th percentile of the runs between the last two displays.
    p50: f64,
    p95: f64,
    p99: f64,
    /// Number, from 1, of the profiled run from which devices and links are taken.
    profiled_run: u64,
    devices: Vec<DeviceSeen>,
    links: Vec<LinkSeen>,
}

/// A device in a profiled run. Shares are of its makespan.
#[derive(Serialize)]
struct DeviceSeen {
    name: String,
    nodes: usize,
    /// Share of the time in which it ran nodes.
    busy: f64,
    /// Share of the time in which it waited for a node's inputs.
    waiting: f64,
    peak: u64,
    planned_peak: u64,
    limit: Option<u64>,
}

#[derive(Serialize)]
struct LinkSeen {
    name: String,
    transfers: usize,
    bytes: u64,
    busy: f64,
}

impl WatchCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let opened = open(&self.devices, None, &self.model, &self.place, true)?;
        open::print_notes(&opened.session, output);
        let prepared = opened.session.prepare(&opened.inputs)?;
        // Keeps the rates that were measured for the devices.
        opened.save_costs()?;
        let token = cancel_on_interrupt()?;
        let options = RunOptions::default().with_cancel(token.clone());
        let mut watch = Watch::new(file_name(&open::model_name(&self.model)), prepared.plan());
        let mut live = Live::new(if output.json { To::Nobody } else { To::Output }, self.every);
        while !token.is_cancelled() && self.duration.is_none_or(|most| watch.begun.elapsed() < most) {
            let run = opened.session.run_prepared(
                &prepared,
                &opened.inputs,
                &options.clone().with_profile(watch.wants_profile()),
            );
            match run {
                Ok(run) => watch.add(&run),
                Err(error) if error.is_cancelled() => break,
                Err(error) => return Err(error.into()),
            }
            if live.is_due() {
                watch.settle();
                live.show(&watch.seen.picture(), &watch.seen.line())?;
            }
        }
        watch.finish();
        if output.json { output.json(&watch.seen) } else { live.show(&watch.seen.picture(), &watch.seen.line()) }
    }
}

/// Counts runs.
struct Watch {
    begun: Instant,
    /// Time of the last display, and the number of runs then.
    last: (Instant, u64),
    /// Latencies since the last display. Until the next run, latencies before it.
    latencies: Vec<f64>,
    since_profile: u64,
    seen: Seen,
}

impl Watch {
    fn new(model: &str, plan: &Plan) -> Self {
        let seen = Seen {
            model: model.to_owned(),
            strategy: plan.strategy().to_owned(),
            runs: 0,
            seconds: 0.0,
            runs_per_second: 0.0,
            p50: 0.0,
            p95: 0.0,
            p99: 0.0,
            profiled_run: 0,
            devices: Vec::new(),
            links: Vec::new(),
        };
        let now = Instant::now();
        Self { begun: now, last: (now, 0), latencies: Vec::new(), since_profile: 0, seen }
    }

    /// Whether the next run is profiled: the second, as the first touches memory for the first time, and then one in
    /// every [`BETWEEN`].
    fn wants_profile(&self) -> bool {
        self.seen.runs == 1 || self.since_profile >= BETWEEN
    }

    fn add(&mut self, run: &Run) {
        if self.seen.runs == self.last.1 {
            self.latencies.clear();
        }
        self.seen.runs += 1;
        self.since_profile += 1;
        if self.latencies.len() < MOST_LATENCIES {
            self.latencies.push(run.took().as_secs_f64());
        }
        if !run.measured.events.is_empty() {
            self.since_profile = 0;
            self.seen.look(run);
        }
    }

    /// Sums up the runs since the last display.
    fn settle(&mut self) {
        let (last, runs) = std::mem::replace(&mut self.last, (Instant::now(), self.seen.runs));
        let seen = &mut self.seen;
        seen.seconds = self.begun.elapsed().as_secs_f64();
        seen.runs_per_second = (seen.runs - runs) as f64 / last.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let Latencies { p50, p95, p99, .. } = Latencies::of(&self.latencies);
        [seen.p50, seen.p95, seen.p99] = [p50, p95, p99];
    }

    /// Sets the rate of all runs.
    fn finish(&mut self) {
        self.settle();
        self.seen.runs_per_second = self.seen.runs as f64 / self.seen.seconds.max(f64::MIN_POSITIVE);
    }
}

impl Seen {
    /// Takes the state of devices and links from a profiled run.
    fn look(&mut self, run: &Run) {
        let (plan, parts, plans, peaks) = (run.prepared.plan(), run.parts(), run.plans(), run.peaks());
        let whole = run.took().as_secs_f64().max(f64::MIN_POSITIVE);
        let events = || parts.iter().flat_map(|part| &part.measured.events);
        let nodes =
            |at: usize| events().filter(move |event| matches!(event.lane, Lane::Device(on) if on.index() == at));
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        self.profiled_run = self.runs;
        self.devices = (plan.devices().iter().enumerate())
            .map(|(at, device)| DeviceSeen {
                name: device.name.clone(),
                nodes: nodes(at).count(),
                busy: summed(nodes(at).map(|event| seconds(event.busy()))) / whole,
                waiting: summed(nodes(at).map(|event| seconds(event.start - event.ready))) / whole,
                peak: peaks.get(at).copied().unwrap_or(0),
                planned_peak: planned_peak(&plans, at),
                limit: device.limit.bytes(),
            })
            .collect();
        let mut links: BTreeMap<_, LinkSeen> = BTreeMap::new();
        for event in events() {
            let (Activity::Transfer(_), Lane::Link { from, to }) = (event.what, event.lane) else { continue };
            let link = links.entry((from, to)).or_insert_with(|| {
                let name = format!("{} → {}", plan.device(from).name, plan.device(to).name);
                LinkSeen { name, transfers: 0, bytes: 0, busy: 0.0 }
            });
            link.transfers += 1;
            link.bytes += event.bytes;
            link.busy += seconds(event.busy()) / whole;
        }
        self.links = links.into_values().collect();
    }

    /// Returns the lines for a terminal.
    fn picture(&self) -> Vec<String> {
        let names = self.devices.iter().map(|device| &device.name).chain(self.links.iter().map(|link| &link.name));
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let rate = amount(self.runs_per_second);
        let mut lines = vec![
            format!(
                "{}, placed by {}: {} in {}",
                self.model,
                self.strategy,
                count(self.runs, "run"),
                duration(self.seconds)
            ),
            format!(
                "{rate} runs/s; p50 {}, p95 {}, p99 {}",
                duration(self.p50),
                duration(self.p95),
                duration(self.p99)
            ),
        ];
        lines.extend(self.devices.iter().map(|device| {
            let DeviceSeen { name, nodes, busy, waiting, peak, planned_peak, limit } = device;
            let limit = limit.map_or(String::new(), |limit| format!(", limit {}", format_bytes(limit)));
            let memory = format!("{} of {}{limit}", format_bytes(*peak), format_bytes(*planned_peak));
            format!(
                "  {name:<width$}  {}  waiting {:.0} %  {}  memory {memory}",
                share(*busy),
                100.0 * waiting,
                count(*nodes, "node")
            )
        }));
        lines.extend(self.links.iter().map(|LinkSeen { name, transfers, bytes, busy }| {
            let flow = format_bytes((*bytes as f64 * self.runs_per_second) as u64);
            format!(
                "  {name:<width$}  {}  {}, {} a run, {flow}/s",
                share(*busy),
                count(*transfers, "transfer"),
                format_bytes(*bytes)
            )
        }));
        lines.push(format!("devices and links of run {}; Ctrl-C ends", self.profiled_run));
        lines
    }

    /// Returns the line for a file.
    fn line(&self) -> String {
        let devices = self.devices.iter().map(|device| format!("  {} {:.0} %", device.name, 100.0 * device.busy));
        format!(
            "{}  {}  {} runs/s  p50 {}  p95 {}  p99 {}{}",
            duration(self.seconds),
            count(self.runs, "run"),
            amount(self.runs_per_second),
            duration(self.p50),
            duration(self.p95),
            duration(self.p99),
            devices.collect::<String>()
        )
    }
}
