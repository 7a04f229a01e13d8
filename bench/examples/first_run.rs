//! Error of the prediction for a model that was never run, on a calibrated machine. For every model of some
//! directories, it is the predicted makespan with its interval, made before any run, and the median of the runs after
//! it.
//!
//! Run `cargo run --release -p anabranch-bench --example first_run -- DIR…`; it prints a table in Markdown to standard
//! output. The inputs are those in an `.npz` next to the model (members `in__NAME`), else random ones. Costs learned
//! from a model are not kept for the next one.

mod shared;

use anabranch::costs::CostStore;
use anabranch::device::{Inventory, detect};
use anabranch::execute::RunOptions;
use anabranch::learning::Calibrator;
use anabranch::planning::Planned;
use anabranch::program::NodeId;
use anabranch::session::Inputs;
use anabranch::{Session, SessionConfig};
use anabranch_bench::models::models;
use anabranch_bench::turns::{Failure, median};
use clap::Parser;
use serde_json::{Value, json};
use shared::{Common, name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Minimum share of the run for a node to count.
const SHARE: f64 = 0.01;

/// Runs before the runs that count.
const WARM_UP: usize = 3;

/// First runs of models on a calibrated machine: predicted and measured
///
/// Calibrates the devices, or takes a store that was calibrated. For each model it plans with the default strategy,
/// predicts, and then runs. Calibration and runs should come from the same minutes: a virtual machine's speed
/// changes.
#[derive(Parser, Debug)]
struct Arguments {
    /// Directories with .onnx files
    #[arg(required = true)]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
    /// Use no GPU
    #[arg(long)]
    no_gpu: bool,
    /// Use this cost store instead of calibrating; it must not know the models
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Write the store that calibration made
    #[arg(long, value_name = "FILE")]
    save_costs: Option<PathBuf>,
    /// Runs of each model, of which the median counts
    #[arg(long, default_value_t = 15)]
    repeat: usize,
    /// Write all nodes of all models as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A node of a model.
struct NodeRun {
    name: String,
    family: &'static str,
    amounts: Vec<f64>,
    source: String,
    predicted: f64,
    uncertainty: Option<f64>,
    measured: f64,
}

/// Seconds of all runs of a model, and of each node in them.
#[derive(Default)]
struct Times {
    makespans: Vec<f64>,
    nodes: BTreeMap<NodeId, Vec<f64>>,
}

/// First run of a model; times in seconds.
struct FirstRun {
    model: String,
    predicted: f64,
    interval: Option<(f64, f64)>,
    measured: f64,
    nodes: Vec<NodeRun>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let mut devices = arguments.common.devices();
    if arguments.no_gpu {
        devices = devices.without_gpu();
    }
    let mut costs = match &arguments.costs {
        Some(path) => CostStore::load(path)?.store,
        None => calibrated(&detect(&devices)?)?,
    };
    if let Some(path) = &arguments.save_costs {
        costs.save(path)?;
    }
    let mut runs = Vec::new();
    for directory in &arguments.directories {
        for model in models(directory)? {
            let options = SessionConfig::default().with_devices(devices.clone()).with_costs(costs.clone());
            runs.push(first_run(&arguments, &model, options)?);
        }
    }
    print_table(&runs);
    if let Some(path) = &arguments.json {
        serde_json::to_writer_pretty(std::fs::File::create(path)?, &as_json(&runs))?;
    }
    Ok(())
}

fn calibrated(inventory: &Inventory) -> Result<CostStore, Failure> {
    let mut store = CostStore::default();
    store.settle(&inventory.fingerprint());
    let calibrator = Calibrator::new(inventory);
    let started = Instant::now();
    for step in calibrator.steps() {
        let begun = Instant::now();
        calibrator.measure(&step, store.here_mut())?;
        eprintln!("{:6.2} s  {step}", begun.elapsed().as_secs_f64());
    }
    eprintln!("calibrated in {:.1} s", started.elapsed().as_secs_f64());
    Ok(store)
}

/// Plans and predicts, then runs.
fn first_run(arguments: &Arguments, file: &Path, options: SessionConfig) -> Result<FirstRun, Failure> {
    let session = Session::open(file, options)?;
    let inputs = arguments.common.inputs(&session, file)?;
    let planned = session.plan_with(&inputs, &session.choice())?;
    let times = measured(arguments, &session, &planned, &inputs)?;
    let plan = planned.plan();
    let cost = |node: NodeId| planned.placed.costs[node.index()][plan.device_of(node).index()];
    let family = |node: NodeId| planned.program.node(node).spec.family();
    let predicted = plan.predicted().makespan;
    let node_run = |(node, times): (NodeId, Vec<f64>)| NodeRun {
        name: planned.program.node(node).name.clone(),
        family: family(node).name,
        amounts: family(node).amounts,
        source: cost(node).map_or_else(String::new, |cost| cost.source.to_string()),
        predicted: plan.predicted().busy[node.index()],
        uncertainty: cost(node).and_then(|cost| cost.uncertainty),
        measured: median(times),
    };
    Ok(FirstRun {
        model: name(file),
        predicted,
        interval: plan.predicted().interval,
        measured: median(times.makespans),
        nodes: times.nodes.into_iter().map(node_run).collect(),
    })
}

fn measured(
    arguments: &Arguments,
    session: &Session,
    planned: &Arc<Planned>,
    inputs: &Inputs,
) -> Result<Times, Failure> {
    let prepared = session.ready(planned)?;
    let mut times = Times::default();
    for number in 0..WARM_UP + arguments.repeat.max(1) {
        let run = session.run_prepared(&prepared, inputs, &RunOptions::default().with_profile(true))?;
        if number >= WARM_UP {
            times.makespans.push(run.measured.makespan.as_secs_f64());
            run.measured.node_times().for_each(|(node, seconds)| times.nodes.entry(node).or_default().push(seconds));
        }
    }
    Ok(times)
}

impl NodeRun {
    fn error(&self) -> f64 {
        (self.predicted - self.measured) / self.measured.max(1e-9)
    }
}

impl FirstRun {
    fn error(&self) -> f64 {
        (self.predicted - self.measured) / self.measured
    }

    fn is_inside(&self) -> bool {
        self.interval.is_some_and(|(low, high)| (low..=high).contains(&self.measured))
    }

    fn long_nodes(&self) -> impl Iterator<Item = &NodeRun> {
        self.nodes.iter().filter(|node| node.measured >= SHARE * self.measured)
    }

    /// Returns the mean magnitude of the nodes' errors.
    fn node_error<'a>(nodes: impl Iterator<Item = &'a NodeRun>) -> f64 {
        let (sum, count) = nodes.fold((0.0, 0.0f64), |(sum, count), node| (sum + node.error().abs(), count + 1.0));
        sum / count.max(1.0)
    }

    fn worst(&self) -> Option<&NodeRun> {
        self.long_nodes().max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()))
    }
}

fn print_table(runs: &[FirstRun]) {
    println!(
        "| model | predicted ms | interval | measured ms | error % | inside | nodes of 1 % off % | all nodes off % | worst node |"
    );
    println!("|---|---:|---|---:|---:|---|---:|---:|---|");
    for run in runs {
        let interval = run.interval.map_or("–".into(), |(low, high)| format!("{:.3} – {:.3}", low * 1e3, high * 1e3));
        let worst = run.worst().map_or("–".into(), |node| {
            format!("{} ({}) {:+.0} %", node.name.replace('|', "/"), node.family, 100.0 * node.error())
        });
        println!(
            "| {} | {:.3} | {interval} | {:.3} | {:+.1} | {} | {:.1} | {:.1} | {worst} |",
            run.model,
            run.predicted * 1e3,
            run.measured * 1e3,
            100.0 * run.error(),
            if run.is_inside() { "yes" } else { "no" },
            100.0 * FirstRun::node_error(run.long_nodes()),
            100.0 * FirstRun::node_error(run.nodes.iter()),
        );
    }
    let count = |holds: &dyn Fn(&FirstRun) -> bool| runs.iter().filter(|run| holds(run)).count();
    let (near, inside) = (count(&|run| run.error().abs() <= 0.3), count(&FirstRun::is_inside));
    let mean = runs.iter().map(|run| run.error().abs()).sum::<f64>() / runs.len().max(1) as f64;
    let nodes = FirstRun::node_error(runs.iter().flat_map(FirstRun::long_nodes));
    println!(
        "\nOf {} models {near} within 30 %, {inside} inside of their intervals; mean error of makespans {:.1} %, of nodes of at least \
         1 % of a run {:.1} %.",
        runs.len(),
        100.0 * mean,
        100.0 * nodes
    );
    let held = runs.iter().flat_map(FirstRun::long_nodes).filter_map(|node| {
        let uncertainty = node.uncertainty?;
        Some(node.measured >= node.predicted / uncertainty && node.measured <= node.predicted * uncertainty)
    });
    let (held, all) = held.fold((0, 0), |(held, all), inside| (held + usize::from(inside), all + 1));
    println!("Of {all} such nodes {held} lie within their uncertainty.");
}

fn as_json(runs: &[FirstRun]) -> Value {
    let node = |node: &NodeRun| {
        json!({
            "name": node.name, "family": node.family, "amounts": node.amounts, "source": node.source,
            "predicted_s": node.predicted, "uncertainty": node.uncertainty, "measured_s": node.measured,
        })
    };
    let run = |run: &FirstRun| {
        json!({
            "model": run.model, "predicted_s": run.predicted, "interval_s": run.interval, "measured_s": run.measured,
            "inside": run.is_inside(), "nodes": run.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    };
    runs.iter().map(run).collect()
}
