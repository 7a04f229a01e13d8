//! Does the prediction that decides put plans into the order in which they are measured, and is the plan that it chooses the fastest?
//!
//! `cargo run --release -p anabranch-bench --example decisions -- DIR`; a table in Markdown goes to standard output. For every model of
//! a directory all strategies, orders, single devices and, until there are enough different plans, random ones (stretches of the
//! default plan moved to other devices) are run and learned from; then all are planned again, and run in turn. The order of the
//! predicted makespans is compared with that of the measured medians over all pairs of plans whose medians differ by more than 5 %
//! (Kendall's τ: 1 is the same order, 0 none, −1 the reverse); the regret is the median of the plan of `auto` over the least of all.

use anabranch::compare::{CompareOptions, Comparison, Outcome, compare};
use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::plan::StreamMode;
use anabranch::plan_file::PlanFile;
use anabranch::planning::{Order, PlanChoice, Planned};
use anabranch::profile::CostStore;
use anabranch::{Inputs, PlanOptions, Session, SessionOptions, Strategy};
use anabranch_bench::models::{inputs_beside, models, with_random};
use anabranch_bench::turns::Failure;
use anabranch_placement::generate::Random;
use clap::Parser;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Medians that differ by less than this part of the smaller one have no order.
const ALIKE: f64 = 0.05;

/// Random plans that are tried for each one that is wanted.
const TRIES: usize = 8;

/// Of so many random plans one moves nodes to a GPU, if there is one.
const TO_GPU: u64 = 4;

/// Predicted order against measured order, for every model of a directory
#[derive(Parser, Debug)]
struct Arguments {
    /// Directory with .onnx files
    directory: PathBuf,
    /// Cores that make one CPU device: machine, package, numa, l3 or core
    #[arg(long, default_value = "core")]
    cpu_devices: CpuGranularity,
    /// Count a software Vulkan adapter as a GPU
    #[arg(long)]
    software_gpu: bool,
    /// Different plans of each model; some may become the same after learning
    #[arg(long, default_value_t = 24)]
    plans: usize,
    /// Rounds of running all plans and learning from it
    #[arg(long, default_value_t = 2)]
    refine: u32,
    /// Measured runs of each plan
    #[arg(long, default_value_t = 15)]
    repeat: u32,
    /// Seed of random plans and inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of all symbolic dimensions for which there is no input beside the model
    #[arg(long, default_value_t = 1)]
    size: usize,
    /// Write all comparisons as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How well plans of one model were told apart.
struct Verdict {
    plans: usize,
    /// Pairs whose medians differ.
    pairs: usize,
    tau: Option<f64>,
    regret: Option<f64>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let mut calibrated = CostStore::default();
    let mut comparisons = Vec::new();
    println!("| model | nodes | plans | pairs | τ | regret | chosen | fastest | predicted ms | measured ms |");
    println!("|---|---:|---:|---:|---:|---:|---|---|---:|---:|");
    for model in models(&arguments.directory)? {
        let started = Instant::now();
        let comparison = judge(&arguments, &model, folder.path(), &mut calibrated)?;
        println!("{}", row(&comparison));
        eprintln!("{} in {:.0} s", comparison.model, started.elapsed().as_secs_f64());
        comparisons.push(comparison);
    }
    if let Some(path) = &arguments.json {
        serde_json::to_writer_pretty(std::fs::File::create(path)?, &comparisons)?;
    }
    Ok(())
}

/// Compares enough plans of one model. Calibrated costs are kept for the models that follow; what one model taught is not.
fn judge(arguments: &Arguments, file: &Path, folder: &Path, calibrated: &mut CostStore) -> Result<Comparison, Failure> {
    let devices =
        DetectOptions::default().with_software_gpu(arguments.software_gpu).with_cpu_granularity(arguments.cpu_devices);
    let options = SessionOptions::default().with_devices(devices).with_costs(calibrated.clone()).with_calibration(true);
    let session = Session::open(file, options)?;
    let given = inputs_beside(file)?.unwrap_or_default();
    let inputs = with_random(&session, given, arguments.size, arguments.seed)?;
    let ways = ways(arguments, &session, &inputs, folder)?;
    *calibrated = session.costs();
    let model = file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let options = CompareOptions::new(model, ways).with_runs(arguments.repeat, 2).with_refine(arguments.refine);
    Ok(compare(&session, &inputs, &options, &mut || {})?)
}

/// Every strategy, order and device, `heft` with everything streamed and nothing, and random plans.
fn ways(arguments: &Arguments, session: &Session, inputs: &Inputs, folder: &Path) -> Result<Vec<PlanChoice>, Failure> {
    let choice = |strategy| PlanChoice { strategy, ..session.choice() };
    let strategies = Strategy::algorithms().filter_map(|(name, _)| Strategy::algorithm(name));
    let mut ways: Vec<_> =
        [Strategy::AUTO].into_iter().chain(strategies.filter(|s| *s != Strategy::AUTO)).map(choice).collect();
    let inventory = session.inventory();
    let names: Vec<String> = inventory.devices().map(|device| device.name().to_owned()).collect();
    ways.extend(names.iter().map(|name| choice(Strategy::Device(name.clone()))));
    ways.extend([Order::Msr, Order::Fifo].map(|order| PlanChoice { order, ..choice(Strategy::HEFT) }));
    let streaming = |mode| PlanOptions::default().with_streaming(mode);
    let streamed = |mode| PlanChoice { plan: streaming(mode), ..choice(Strategy::HEFT) };
    ways.extend([StreamMode::Off, StreamMode::Always].map(streamed));
    let mut known: Vec<Arc<Planned>> = Vec::new();
    let mut is_new = |choice: &PlanChoice| {
        let Ok(planned) = session.plan_with(inputs, choice) else { return false };
        let new = known.iter().all(|other| !other.is_same_plan(&planned));
        known.extend(new.then_some(planned));
        new
    };
    let mut different = ways.iter().filter(|choice| is_new(choice)).count();
    let base = session.plan_with(inputs, &choice(Strategy::HEFT))?;
    let mut file = serde_json::to_value(PlanFile::of(base.plan(), &base.program, &base.blocks))?;
    ["blocks", "devices"].into_iter().for_each(|part| drop(file.as_object_mut().map(|all| all.remove(part))));
    let cpus: Vec<&str> = inventory.cpus.iter().map(|cpu| cpu.name.as_str()).collect();
    let gpus: Vec<&str> = inventory.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let mut random = Random::new(arguments.seed);
    for number in 0..TRIES * arguments.plans {
        if different >= arguments.plans {
            break;
        }
        let to_gpu = !gpus.is_empty() && random.below(TO_GPU) == 0;
        let path = folder.join(format!("random-{number}.json"));
        let moved = moved(file.clone(), if to_gpu { &gpus } else { &cpus }, &mut random);
        std::fs::write(&path, serde_json::to_vec(&moved)?)?;
        let choice = choice(Strategy::PlanFile(path));
        if is_new(&choice) {
            different += 1;
            ways.push(choice);
        }
    }
    Ok(ways)
}

/// The plan with some stretches of its nodes on other devices.
fn moved(mut file: Value, devices: &[&str], random: &mut Random) -> Value {
    let Some(nodes) = file["nodes"].as_array_mut() else { return file };
    let longest = (nodes.len() as u64 / 3).max(1);
    for _ in 0..=random.below(3) {
        let first = random.below(nodes.len() as u64) as usize;
        let length = 1 + random.below(longest) as usize;
        let device = devices[random.below(devices.len() as u64) as usize];
        nodes[first..].iter_mut().take(length).for_each(|node| node["device"] = json!(device));
    }
    file
}

impl Verdict {
    fn of(comparison: &Comparison) -> Self {
        let distinct = |outcome: &&Outcome| outcome.same_plan_as.is_none();
        let planned = comparison.outcomes.iter().filter(distinct);
        let figures: Vec<(f64, f64)> =
            planned.filter_map(|outcome| Some((outcome.predicted_ms?, outcome.measured_ms.median))).collect();
        let (mut agree, mut pairs) = (0i64, 0);
        for (at, (predicted, measured)) in figures.iter().enumerate() {
            for (other_predicted, other_measured) in &figures[..at] {
                if (measured - other_measured).abs() > ALIKE * measured.min(*other_measured) {
                    pairs += 1;
                    let same = (predicted - other_predicted) * (measured - other_measured);
                    agree += i64::from(same > 0.0) - i64::from(same < 0.0);
                }
            }
        }
        let least = figures.iter().map(|(_, measured)| *measured).reduce(f64::min);
        let chosen = comparison.outcomes.iter().find(|outcome| outcome.way.place == "auto");
        Self {
            plans: figures.len(),
            pairs,
            tau: (pairs > 0).then(|| agree as f64 / pairs as f64),
            regret: chosen.zip(least).map(|(chosen, least)| chosen.measured_ms.median / least),
        }
    }
}

fn row(comparison: &Comparison) -> String {
    let Verdict { plans, pairs, tau, regret } = Verdict::of(comparison);
    let figure = |figure: Option<f64>| figure.map_or("–".into(), |figure| format!("{figure:.3}"));
    let place = |outcome: &Outcome| {
        let place =
            Path::new(&outcome.way.place).file_stem().map_or_else(String::new, |name| name.display().to_string());
        let order =
            outcome.way.order.filter(|order| *order != Order::Pct).map_or(String::new(), |order| format!(", {order}"));
        let stream = match outcome.way.stream {
            Some(StreamMode::Off) => ", nothing streamed",
            Some(StreamMode::Always) => ", all streamed",
            Some(StreamMode::Auto) | None => "",
        };
        place + &order + stream
    };
    let planned = comparison.outcomes.iter().filter(|outcome| outcome.predicted_ms.is_some());
    let fastest = planned.min_by(|one, other| one.measured_ms.median.total_cmp(&other.measured_ms.median));
    let chosen = comparison.outcomes.iter().find(|outcome| outcome.way.place == "auto");
    let median = chosen.map(|outcome| outcome.measured_ms.median);
    format!(
        "| {} | {} | {plans} | {pairs} | {} | {} | {} | {} | {} | {} |",
        comparison.model,
        comparison.nodes,
        figure(tau),
        figure(regret),
        chosen.map_or("–".into(), place),
        fastest.map_or("–".into(), place),
        figure(chosen.and_then(|outcome| outcome.predicted_ms)),
        figure(median),
    )
}
