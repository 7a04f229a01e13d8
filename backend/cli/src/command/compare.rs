//! `anabranch compare`: strategies, orders and streaming on the real devices, predicted against measured.

use super::args::{ConstraintArgs, DeviceArgs, ModelArgs, PlaceArgs, Streamed, WeightArgs};
use super::configurations::{choices, usual, write_csv};
use super::files::file_of;
use super::interrupt::cancel_on_interrupt;
use super::open::{self, Opened, open};
use super::progress::Progress;
use super::{CliError, Output, if_named, settled, write_file};
use anabranch::Session;
use anabranch::compare::{CompareOptions, Comparison, compare_seen};
use anabranch::device::format_bytes;
use anabranch::execute::RunOptions;
use anabranch::planning::{Order, PlanChoice};
use anabranch::session::{Inputs, Run};
use anabranch_report::comparison::{
    Compared, DEFINITIONS, Names, Picture, agreement, distinct, fastest, matrix_text, page,
};
use anabranch_report::run::{busy, one_device};
use anabranch_report::table::Table;
use anabranch_report::text::{WIDTH, digits, duration, error, interval, wrapped};
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Places that are compared by default.
const PLACES: [&str; 5] = ["auto", "heft", "mite", "cpu", "gpu"];

/// Run a model in several configurations, and without a plan, and compare predicted with measured times
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch compare model.onnx --random 1\n  \
    anabranch compare model.onnx --place heft,auto,gpu --stream off,auto --refine 3 --csv configurations.csv\n  \
    anabranch compare a.onnx b.onnx c.onnx --html configurations.html\n\n\
    A scheduler that decides at run time takes part as `dynamic`. Configurations are run in turn. For several models, percentiles, \
    throughput and changes since an earlier result there is `anabranch bench`, which measures with the same engine.")]
pub(crate) struct CompareCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// More models, each compared in the same configurations; with a summary of all
    #[arg(value_name = "MODEL", conflicts_with = "input")]
    more: Vec<PathBuf>,
    /// Strategies, devices or plan files [default: auto,heft,mite,cpu,gpu]
    ///
    /// `anabranch strategies` lists strategies. By default `gpu` takes part where there is one.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', help_heading = "Configurations")]
    place: Vec<String>,
    /// Compare these orders of ready nodes: pct, msr, fifo, frugal
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_value = "pct", help_heading = "Configurations")]
    order: Vec<Order>,
    /// Compare these modes of streaming
    #[arg(
        long,
        value_enum,
        value_name = "A,B,…",
        value_delimiter = ',',
        default_value = "auto",
        help_heading = "Configurations"
    )]
    stream: Vec<Streamed>,
    /// Measured runs of each configuration
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Runs of each configuration before those that count
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value_t = 2, hide_short_help = true, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// Rounds of learning from all configurations before they are compared
    ///
    /// Learned costs are kept in the cost store.
    #[arg(help_heading = "Measuring", long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    refine: u32,
    /// Write one line for each configuration as CSV
    #[arg(help_heading = "Files", long, value_name = "FILE.csv", value_parser = file_of(&["csv"]))]
    csv: Option<PathBuf>,
    /// Write a page with charts and tables; it needs no network
    #[arg(help_heading = "Files", long, value_name = "FILE.html", value_parser = file_of(&["html"]))]
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
        let mut saved = Vec::new();
        let compared = self.compare_all(output, &mut saved);
        settled(saved.into_iter().chain([compared.and_then(|all| self.report(&all, output))]))
    }

    /// Compares each model. Adds to `saved` whether its learned costs were saved.
    fn compare_all(&self, output: Output, saved: &mut Vec<Result<(), CliError>>) -> Result<Vec<Compared>, CliError> {
        let others = self.more.iter().map(|path| ModelArgs { model: Some(path.clone()), ..self.model.clone() });
        let models: Vec<ModelArgs> = std::iter::once(self.model.clone()).chain(others).collect();
        let run = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        let mut all = Vec::with_capacity(models.len());
        for model in &models {
            let opened = open(&self.devices, None, model, &PlaceArgs::any(&self.constraints), true)?;
            if all.is_empty() {
                open::print_all_notes(&opened.session, output);
            }
            all.push(self.compare(&opened, model, &run, output)?);
            saved.push(opened.save_costs());
        }
        Ok(all)
    }

    /// Prints the results, and writes them to the files that the command line names.
    fn report(&self, all: &[Compared], output: Output) -> Result<(), CliError> {
        let comparisons: Vec<_> = all.iter().map(|one| &one.comparison).collect();
        let printed = match comparisons[..] {
            [one] => output.text_or_json(|| text(one), one),
            _ => {
                let each = || comparisons.iter().map(|one| text(one) + "\n").collect::<String>();
                output.text_or_json(|| each() + &matrix_text(&comparisons), &comparisons)
            }
        };
        settled([
            printed,
            if_named(self.csv.as_ref(), |path| write_csv(path, &comparisons)),
            if_named(self.html.as_ref(), |path| write_file(path, page(all))),
        ])
    }

    fn compare(
        &self,
        opened: &Opened,
        model: &ModelArgs,
        run: &RunOptions,
        output: Output,
    ) -> Result<Compared, CliError> {
        let configurations = self.configurations(!opened.session.inventory().gpus.is_empty())?;
        let options = CompareOptions::new(open::model_name(model), configurations)
            .with_runs(self.repeat, self.warmup)
            .with_refine(self.refine)
            .with_run(run.clone());
        measured(&opened.session, &opened.inputs, &options, output, self.html.is_some())
    }

    /// Returns every combination, places first.
    fn configurations(&self, has_gpu: bool) -> Result<Vec<PlanChoice>, CliError> {
        let places = if self.place.is_empty() { usual(&PLACES, has_gpu) } else { self.place.clone() };
        let streams: Vec<_> = self.stream.iter().map(|stream| stream.mode()).collect();
        choices("--place", &places, &self.order, &streams, &self.weights.residency())
    }
}

/// Runs all configurations. Keeps the data for a page's drawings if a page is wanted.
pub(super) fn measured(
    session: &Session,
    inputs: &Inputs,
    options: &CompareOptions,
    output: Output,
    is_drawn: bool,
) -> Result<Compared, CliError> {
    let progress = Progress::new(output, "runs", options.steps());
    let mut pictures = BTreeMap::new();
    let mut see = |plan: usize, run: &Run| {
        if is_drawn {
            pictures.insert(plan, Picture::of(run));
        }
    };
    let compared = compare_seen(session, inputs, options, &mut || progress.advance(), &mut see);
    Ok(Compared::new(session, compared?, pictures))
}

fn text(comparison: &Comparison) -> String {
    let names = Names::of(comparison);
    let refined = match comparison.refine {
        0 => String::new(),
        rounds => format!(" after {rounds} rounds of learning"),
    };
    let mut text = format!(
        "{}: {} nodes, {} runs of each configuration in turn{refined}\n\n{}\n{}\n{}\n",
        comparison.model,
        comparison.nodes,
        comparison.repeat,
        DEFINITIONS.join("\n"),
        makespans(comparison, &names),
        devices(comparison, &names),
    );
    text.push_str(&verdict(comparison, &names));
    if !comparison.side_by_side {
        text.push_str(
            "the plans do not fit memory side by side: each was readied and warmed up anew before each run\n",
        );
    }
    for (configuration, reason) in &comparison.failed {
        let _ = writeln!(text, "{}: {reason}", names.name(configuration));
    }
    text
}

/// Describes the fastest configuration if intervals decide it, the rank of `auto`, and a busy machine.
fn verdict(comparison: &Comparison, names: &Names) -> String {
    let mut text = fastest(comparison, names).map_or(String::new(), |fastest| format!("fastest: {fastest}\n"));
    if let Some(ratio) = comparison.against_others("auto") {
        let _ = writeln!(
            text,
            "auto takes {ratio:.3} times the shortest median of the configurations with another plan or none"
        );
    }
    if let Some(busy) = busy(&comparison.load) {
        let _ = writeln!(text, "{busy}");
    }
    if let Some(advice) = one_device(comparison.devices.len()) {
        let _ = writeln!(text, "{}", wrapped(advice, WIDTH).join("\n"));
    }
    text
}

fn makespans(comparison: &Comparison, names: &Names) -> Table {
    let mut table = Table::new(
        "configuration | >predicted | >measured | >interval | >error | >nodes off | >traffic | >placing | outputs",
    );
    for (name, outcome) in distinct(comparison, names) {
        let median = outcome.measured_ms;
        let ms = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| duration(ms * 1e-3));
        table.row([
            name,
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

fn devices(comparison: &Comparison, names: &Names) -> Table {
    let mut table = Table::new("configuration | device | >nodes | >busy predicted | >busy | >peak planned | >peak");
    for (name, outcome) in distinct(comparison, names) {
        for (facts, device) in comparison.devices.iter().zip(&outcome.devices) {
            let percent = |part: f64| format!("{} %", digits(part * 100.0, 0));
            table.row([
                name.clone(),
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
