//! `anabranch compare`: strategies, orders and streaming on the real devices, predicted against measured.

mod page;

use super::args::{ConstraintArgs, DeviceArgs, ModelArgs, PlaceArgs, Streamed, WeightArgs};
use super::html::command;
use super::interrupt::{cancel_on_interrupt, cancelled};
use super::open::{self, Opened, open};
use super::progress::Progress;
use super::table::{Table, digits, duration, error, interval};
use super::trial::strategy_help;
use super::{CliError, Output, write_file, write_with};
use crate::report::utc;
use anabranch::compare::{CompareOptions, Comparison, DYNAMIC, DeviceOutcome, Outcome, Way, compare};
use anabranch::device::format_bytes;
use anabranch::execute::RunOptions;
use anabranch::plan::{PlanOptions, StreamMode};
use anabranch::planning::{Order, PlanChoice};
use clap::Args;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Run a model placed in several ways, and without a plan, and compare what was predicted with what was measured
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch compare model.onnx --random 1\n  \
    anabranch compare model.onnx --place heft,auto,gpu --stream off,auto --refine 3 --csv ways.csv\n\n\
    A scheduler that decides at run time takes part as `dynamic`. Ways are run in turn.")]
pub(crate) struct CompareCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Strategies, devices' names or plan files [default: auto,heft,mite,cpu, and gpu where there is one]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', help_heading = "Ways",
        long_help = strategy_help("Plan files that `anabranch place` wrote, devices' names, or strategies [default: \
            auto,heft,mite,cpu, and gpu where there is one]:"))]
    place: Vec<String>,
    /// Which of a device's ready nodes goes first: pct, msr, fifo, frugal
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_value = "pct", help_heading = "Ways")]
    order: Vec<Order>,
    /// What is streamed in chunks
    #[arg(
        long,
        value_enum,
        value_name = "A,B,…",
        value_delimiter = ',',
        default_value = "auto",
        help_heading = "Ways"
    )]
    stream: Vec<Streamed>,
    /// Measured runs of each way
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Runs of each way before those that count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// First run all ways and learn from it so often, placing them anew each time; what is learned is kept in the cost store
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    refine: u32,
    /// Write one line for each way as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with charts and tables; it needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    constraints: ConstraintArgs,
    #[command(flatten)]
    weights: WeightArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl CompareCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let opened = open(&self.devices, None, &self.model, &PlaceArgs::any(&self.constraints), true)?;
        open::print_notes(&opened.session, output);
        let comparison = self.compare(&opened, output)?;
        let saved = opened.save_costs();
        if let Some(path) = &self.csv {
            write_csv(path, &comparison)?;
        }
        if let Some(path) = &self.html {
            let text = page::html(&comparison, &Names::of(&comparison), &facts(&opened, &comparison));
            write_file(path, text)?;
        }
        output.text_or_json(|| text(&comparison), &comparison)?;
        saved
    }

    fn compare(&self, opened: &Opened, output: Output) -> Result<Comparison, CliError> {
        let ways = self.ways(!opened.session.inventory().gpus.is_empty())?;
        let options = CompareOptions::new(open::model_name(&self.model), ways)
            .with_runs(self.repeat, self.warmup)
            .with_refine(self.refine)
            .with_run(RunOptions::default().with_cancel(cancel_on_interrupt()?));
        let progress = Progress::new(output, "runs", options.steps());
        compare(&opened.session, &opened.inputs, &options, &mut || progress.advance()).map_err(cancelled)
    }

    /// Every combination, places first.
    fn ways(&self, has_gpu: bool) -> Result<Vec<PlanChoice>, CliError> {
        let mut places = self.place.clone();
        if places.is_empty() {
            let usual = ["auto", "heft", "mite", "cpu", "gpu"].iter().filter(|place| has_gpu || **place != "gpu");
            places = usual.map(ToString::to_string).collect();
        }
        let mut ways: Vec<PlanChoice> = Vec::new();
        for place in places.iter().filter(|place| *place != DYNAMIC) {
            for order in &self.order {
                for stream in &self.stream {
                    let weights = self.weights.residency();
                    let plan = PlanOptions::default().with_streaming(stream.mode()).with_weights(weights);
                    let way = PlanChoice { strategy: open::strategy(place), order: *order, plan };
                    if !ways.contains(&way) {
                        ways.push(way);
                    }
                }
            }
        }
        if ways.is_empty() {
            return Err(CliError::input("--place: name a strategy to compare with `dynamic`, which always takes part"));
        }
        Ok(ways)
    }
}

/// What errors are, for the heads of tables.
const ERRORS: &str = "error: (predicted − measured) / measured; nodes off: Σ |predicted − measured| of Σ measured";

/// Names ways by what differs among them.
struct Names {
    orders: bool,
    streams: bool,
}

impl Names {
    fn of(comparison: &Comparison) -> Self {
        let ways = || comparison.outcomes.iter().map(|outcome| &outcome.way).filter(|way| way.order.is_some());
        let first = ways().next();
        Self {
            orders: ways().any(|way| first.is_some_and(|first| first.order != way.order)),
            streams: ways().any(|way| first.is_some_and(|first| first.stream != way.stream)),
        }
    }

    fn name(&self, way: &Way) -> String {
        let mut name = way.place.clone();
        if let Some(order) = way.order.as_ref().filter(|_| self.orders) {
            let _ = write!(name, "/{order}");
        }
        if let Some(stream) = way.stream.filter(|_| self.streams) {
            let _ = write!(name, "/{}", stream_name(stream));
        }
        name
    }
}

fn stream_name(stream: StreamMode) -> &'static str {
    match stream {
        StreamMode::Off => "off",
        StreamMode::Auto => "auto",
        StreamMode::Always => "always",
    }
}

fn text(comparison: &Comparison) -> String {
    let names = Names::of(comparison);
    let refined = match comparison.refine {
        0 => String::new(),
        rounds => format!(" after {rounds} rounds of learning"),
    };
    let mut text = format!(
        "{}: {} nodes, {} runs of each way in turn{refined}\n\n{ERRORS}\n{}\n{}\n",
        comparison.model,
        comparison.nodes,
        comparison.repeat,
        makespans(comparison, &names),
        devices(comparison, &names),
    );
    if let Some(best) = comparison.best() {
        let _ = write!(text, "fastest {}", names.name(&best.way));
        if let Some(ratio) = comparison.against_others("auto") {
            let _ = write!(text, "; auto takes {ratio:.3} × the fastest other");
        }
        text.push('\n');
    }
    if !comparison.side_by_side {
        text.push_str(
            "the plans do not fit memory side by side: each was readied and warmed up anew before each run\n",
        );
    }
    for (way, reason) in &comparison.failed {
        let _ = writeln!(text, "{}: {reason}", names.name(way));
    }
    text
}

/// What stands at the head of the page.
fn facts(opened: &Opened, comparison: &Comparison) -> Vec<(&'static str, String)> {
    let host = &opened.session.inventory().host;
    let mut facts = vec![
        ("model", format!("{}, {} nodes", comparison.model, comparison.nodes)),
        ("machine", format!("{} ({} cores, {}, {})", host.model, host.allowed_cores, host.os, host.arch)),
        ("devices", comparison.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("command", command(std::env::args_os())),
        ("date", utc(SystemTime::now())),
    ];
    let names = Names::of(comparison);
    facts.extend(comparison.best().map(|best| ("fastest", names.name(&best.way))));
    facts.extend(comparison.failed.iter().map(|(way, reason)| ("failed", format!("{}: {reason}", names.name(way)))));
    facts.extend(comparison.notes.iter().map(|note| ("note", note.clone())));
    facts
}

fn makespans(comparison: &Comparison, names: &Names) -> Table {
    let mut table =
        Table::new("way | >predicted | >measured | >interval | >error | >nodes off | >traffic | >placing | outputs");
    for outcome in &comparison.outcomes {
        let median = outcome.measured_ms;
        let ms = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| duration(ms * 1e-3));
        let same = outcome.same_plan_as.as_ref().map_or(String::new(), |other| format!(" = {other}"));
        table.row([
            names.name(&outcome.way) + &same,
            ms(outcome.predicted_ms),
            duration(median.median * 1e-3),
            interval(median.low * 1e-3, median.high * 1e-3),
            outcome.error_percent.map_or("–".into(), error),
            outcome.node_error_percent.map_or("–".into(), |off| format!("{} %", digits(off, 0))),
            format_bytes(outcome.traffic_bytes),
            ms(outcome.place_ms),
            agreement(outcome).into(),
        ]);
    }
    table
}

fn agreement(outcome: &Outcome) -> &'static str {
    match (outcome.outputs.same_bits, outcome.outputs.within) {
        (true, _) => "same",
        (false, true) => "close",
        (false, false) => "DIFFER",
    }
}

fn devices(comparison: &Comparison, names: &Names) -> Table {
    let mut table = Table::new("way | device | >nodes | >busy predicted | >busy | >peak planned | >peak");
    for outcome in comparison.outcomes.iter().filter(|outcome| outcome.same_plan_as.is_none()) {
        for (facts, device) in comparison.devices.iter().zip(&outcome.devices) {
            let percent = |part: f64| format!("{} %", digits(part * 100.0, 0));
            table.row([
                names.name(&outcome.way),
                facts.name.clone(),
                device.nodes.to_string(),
                device.predicted_utilisation.map_or("–".into(), percent),
                percent(device.utilisation),
                device.predicted_peak_bytes.map_or("–".into(), format_bytes),
                format_bytes(device.peak_bytes),
            ]);
        }
    }
    table
}

/// One line for each way; the columns of devices bear their names.
fn write_csv(path: &Path, comparison: &Comparison) -> Result<(), CliError> {
    write_with(path, |file| emit_csv(file, comparison))
}

fn emit_csv(file: &mut dyn Write, comparison: &Comparison) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(file);
    let devices = comparison.devices.iter();
    let of_devices = devices.flat_map(|facts| DEVICE_COLUMNS.map(|(name, _)| format!("{name}_{}", facts.name)));
    let head = COLUMNS.map(|(name, _)| name.to_owned()).into_iter().chain(of_devices);
    writer.write_record(head.collect::<Vec<_>>())?;
    for outcome in &comparison.outcomes {
        let of_devices = outcome.devices.iter().flat_map(|device| DEVICE_COLUMNS.map(|(_, value)| value(device)));
        let line = COLUMNS.map(|(_, value)| value(comparison, outcome)).into_iter().chain(of_devices);
        writer.write_record(line.collect::<Vec<_>>())?;
    }
    writer.flush()
}

/// A column's name, and its cell for a thing.
type Column<T> = (&'static str, fn(&T) -> String);
type WayColumn = (&'static str, fn(&Comparison, &Outcome) -> String);

/// The columns of the CSV.
const COLUMNS: [WayColumn; 17] = [
    ("model", |comparison, _| comparison.model.clone()),
    ("place", |_, outcome| outcome.way.place.clone()),
    ("order", |_, outcome| or_empty(outcome.way.order)),
    ("stream", |_, outcome| or_empty(outcome.way.stream.map(stream_name))),
    ("runs", |comparison, _| comparison.repeat.to_string()),
    ("predicted_ms", |_, outcome| or_empty(outcome.predicted_ms)),
    ("measured_ms", |_, outcome| outcome.measured_ms.median.to_string()),
    ("low_ms", |_, outcome| outcome.measured_ms.low.to_string()),
    ("high_ms", |_, outcome| outcome.measured_ms.high.to_string()),
    ("error_percent", |_, outcome| or_empty(outcome.error_percent)),
    ("node_error_percent", |_, outcome| or_empty(outcome.node_error_percent)),
    ("link_error_percent", |_, outcome| or_empty(outcome.link_error_percent)),
    ("predicted_traffic_bytes", |_, outcome| or_empty(outcome.predicted_traffic_bytes)),
    ("traffic_bytes", |_, outcome| outcome.traffic_bytes.to_string()),
    ("place_ms", |_, outcome| or_empty(outcome.place_ms)),
    ("same_bits", |_, outcome| outcome.outputs.same_bits.to_string()),
    ("within", |_, outcome| outcome.outputs.within.to_string()),
];

const DEVICE_COLUMNS: [Column<DeviceOutcome>; 5] = [
    ("nodes", |device| device.nodes.to_string()),
    ("predicted_utilisation", |device| or_empty(device.predicted_utilisation)),
    ("utilisation", |device| device.utilisation.to_string()),
    ("predicted_peak_bytes", |device| or_empty(device.predicted_peak_bytes)),
    ("peak_bytes", |device| device.peak_bytes.to_string()),
];

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
