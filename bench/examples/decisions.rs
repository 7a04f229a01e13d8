//! Agreement of the predicted order of plans with the measured one, and whether the chosen plan is the fastest.
//!
//! Run `cargo run --release -p anabranch-bench --example decisions -- DIR`; it prints a table in Markdown to standard
//! output.
//!
//! For every model of a directory, all strategies, orders and single devices are run and learned from. Random plans
//! (stretches of the default plan moved to other devices) are added until there are enough different plans. After
//! learning, strategies choose other plans, often the same one. Random plans are therefore added again until there are
//! enough, and all plans are learned from once more, planned again, and run in turn. The order of the predicted
//! makespans is then compared with that of the measured medians (Kendall's τ: 1 is the same order, 0 none, −1 the
//! reverse). A pair of plans counts if its medians differ by more than 5 % and their intervals of 95 % do not meet:
//! plans that take equally long have an order by chance.
//!
//! The least of twenty medians is too small by chance. For the regret, the plan of `auto` and the three plans with the
//! least medians are therefore run again, in turn and four times as often. The regret is the new median of `auto`
//! divided by the least new median.

mod shared;

use anabranch::compare::{CompareOptions, Comparison, Median, Outcome, compare};
use anabranch::costs::CostStore;
use anabranch::plan::StreamMode;
use anabranch::planning::{Order, PlanChoice, Planned};
use anabranch::{Inputs, PlanOptions, Session, SessionConfig, Strategy};
use anabranch_bench::models::models;
use anabranch_bench::turns::Failure;
use anabranch_placement::generate::Random;
use clap::Parser;
use serde_json::{Value, json};
use shared::{Common, name};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Relative difference below which two medians have no order.
const ALIKE: f64 = 0.05;

/// Random plans that are tried for each plan that is needed.
const TRIES: usize = 8;

/// One of this many random plans moves nodes to a GPU, if there is one.
const TO_GPU: u64 = 4;

/// Predicted order against measured order, for every model of a directory
#[derive(Parser, Debug)]
struct Arguments {
    /// Directory with .onnx files
    directory: PathBuf,
    #[command(flatten)]
    common: Common,
    /// Different plans of each model; a few may become the same in the last round of learning
    #[arg(long, default_value_t = 24)]
    plans: usize,
    /// Rounds of running all plans and learning from it, two at least
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    refine: u32,
    /// Measured runs of each plan
    #[arg(long, default_value_t = 15)]
    repeat: u32,
    /// Write all comparisons as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Number of plans, besides the chosen one, that are run again.
const BEST: usize = 3;

/// Factor by which these plans are run more often.
const AGAIN: u32 = 4;

/// All plans of one model, and the best of them measured again.
struct Judged {
    all: Comparison,
    best: Comparison,
}

/// Agreement of predictions and measurements for plans of one model.
struct Verdict {
    plans: usize,
    /// Pairs of which the measurement tells the faster plan.
    pairs: usize,
    tau: Option<f64>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let mut calibrated = CostStore::default();
    let mut all = Vec::new();
    println!("| model | nodes | plans | pairs | τ | regret | chosen | fastest | predicted ms | measured ms |");
    println!("|---|---:|---:|---:|---:|---:|---|---|---:|---:|");
    for model in models(&arguments.directory)? {
        let started = Instant::now();
        let judged = judge(&arguments, &model, folder.path(), &mut calibrated)?;
        println!("{}", row(&judged));
        eprintln!("{} in {:.0} s", judged.all.model, started.elapsed().as_secs_f64());
        all.push(judged);
    }
    if let Some(path) = &arguments.json {
        serde_json::to_writer_pretty(
            std::fs::File::create(path)?,
            &all.iter().map(|judged| [&judged.all, &judged.best]).collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}

/// Compares enough plans of one model. Calibrated costs are kept for the following models; costs learned from one model
/// are not.
fn judge(arguments: &Arguments, file: &Path, folder: &Path, calibrated: &mut CostStore) -> Result<Judged, Failure> {
    let options = SessionConfig::default().with_devices(arguments.common.devices());
    let session = Session::open(file, options.with_costs(calibrated.clone()).with_calibration(true))?;
    let inputs = arguments.common.inputs(&session, file)?;
    let (mut configurations, mut random) = (configurations(&session), Random::new(arguments.common.seed));
    add_random(&mut configurations, arguments.plans, (&session, &inputs), folder, &mut random)?;
    *calibrated = session.costs();
    let run = |configurations: &[PlanChoice], repeat: u32, refine: u32| {
        let options = CompareOptions::new(name(file), configurations.to_vec()).with_runs(repeat, 2).with_refine(refine);
        compare(&session, &inputs, &options, &mut || {})
    };
    run(&configurations, 1, arguments.refine - 1)?;
    add_random(&mut configurations, arguments.plans, (&session, &inputs), folder, &mut random)?;
    let all = run(&configurations, arguments.repeat, 1)?;
    let best = run(&best_of(&all, &configurations), AGAIN * arguments.repeat, 0)?;
    Ok(Judged { all, best })
}

/// Returns the choice of `auto`, and those of the plans with the least medians.
fn best_of(comparison: &Comparison, configurations: &[PlanChoice]) -> Vec<PlanChoice> {
    let mut planned: Vec<&Outcome> = comparison.outcomes.iter().filter(|outcome| is_distinct(outcome)).collect();
    planned.sort_by(|one, other| one.measured_ms.median.total_cmp(&other.measured_ms.median));
    let is = |choice: &PlanChoice, outcome: &Outcome| {
        let (place, order, stream) = (choice.strategy.to_string(), choice.order, choice.plan.streaming);
        (&place, Some(order), Some(stream))
            == (&outcome.configuration.place, outcome.configuration.order, outcome.configuration.stream)
    };
    let chosen = configurations.iter().filter(|choice| choice.strategy == Strategy::AUTO);
    let least =
        planned.into_iter().take(BEST).filter_map(|outcome| configurations.iter().find(|choice| is(choice, outcome)));
    chosen.chain(least).cloned().collect()
}

/// Whether an outcome's plan differs from those of all earlier choices.
fn is_distinct(outcome: &Outcome) -> bool {
    outcome.predicted_ms.is_some() && outcome.same_plan_as.is_none()
}

/// Returns every strategy, order and device, and `heft` with everything streamed and with nothing streamed.
fn configurations(session: &Session) -> Vec<PlanChoice> {
    let choice = |strategy| PlanChoice { strategy, ..session.choice() };
    let alone = session.inventory().gpus.is_empty();
    let names = Strategy::algorithms().map(|(name, _)| name).filter(|name| !(alone && *name == "gpu"));
    let strategies = names.filter_map(Strategy::algorithm);
    let mut configurations: Vec<_> =
        [Strategy::AUTO].into_iter().chain(strategies.filter(|s| *s != Strategy::AUTO)).map(choice).collect();
    let names: Vec<String> = session.inventory().devices().map(|device| device.name().to_owned()).collect();
    configurations.extend(names.iter().map(|name| choice(Strategy::Device(name.clone()))));
    configurations.extend([Order::Msr, Order::Fifo].map(|order| PlanChoice { order, ..choice(Strategy::HEFT) }));
    let streaming = |mode| PlanOptions::default().with_streaming(mode);
    let streamed = |mode| PlanChoice { plan: streaming(mode), ..choice(Strategy::HEFT) };
    configurations.extend([StreamMode::Off, StreamMode::Always].map(streamed));
    configurations
}

/// Adds random plans until there are `wanted` different plans under the current costs, or no more are found.
fn add_random(
    configurations: &mut Vec<PlanChoice>,
    wanted: usize,
    (session, inputs): (&Session, &Inputs),
    folder: &Path,
    random: &mut Random,
) -> Result<(), Failure> {
    let inventory = session.inventory();
    let choice = |strategy| PlanChoice { strategy, ..session.choice() };
    let mut known: Vec<Arc<Planned>> = Vec::new();
    let mut is_new = |choice: &PlanChoice| {
        let Ok(planned) = session.plan_with(inputs, choice) else { return false };
        let new = known.iter().all(|other| !other.is_same_plan(&planned));
        known.extend(new.then_some(planned));
        new
    };
    let mut different = configurations.iter().filter(|choice| is_new(choice)).count();
    let base = session.plan_with(inputs, &choice(Strategy::HEFT))?;
    let mut file = serde_json::to_value(base.plan_file())?;
    ["blocks", "devices"].into_iter().for_each(|part| drop(file.as_object_mut().map(|all| all.remove(part))));
    let cpus: Vec<&str> = inventory.cpus.iter().map(|cpu| cpu.name.as_str()).collect();
    let gpus: Vec<&str> = inventory.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    for _ in 0..TRIES * wanted {
        if different >= wanted {
            break;
        }
        let to_gpu = !gpus.is_empty() && random.below(TO_GPU) == 0;
        let path = folder.join(format!("random-{}.json", configurations.len()));
        let moved = moved(file.clone(), if to_gpu { &gpus } else { &cpus }, random);
        std::fs::write(&path, serde_json::to_vec(&moved)?)?;
        let choice = choice(Strategy::PlanFile(path));
        if is_new(&choice) {
            different += 1;
            configurations.push(choice);
        }
    }
    Ok(())
}

/// Returns the plan with some stretches of its nodes on other devices.
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
        let planned = comparison.outcomes.iter().filter(|outcome| is_distinct(outcome));
        let figures: Vec<(f64, &Median)> =
            planned.filter_map(|outcome| Some((outcome.predicted_ms?, &outcome.measured_ms))).collect();
        let (mut agree, mut pairs) = (0i64, 0);
        for (at, (predicted, measured)) in figures.iter().enumerate() {
            for (other_predicted, other_measured) in &figures[..at] {
                if is_decided(measured, other_measured) {
                    pairs += 1;
                    let same = (predicted - other_predicted) * (measured.median - other_measured.median);
                    agree += i64::from(same > 0.0) - i64::from(same < 0.0);
                }
            }
        }
        Self { plans: figures.len(), pairs, tau: (pairs > 0).then(|| agree as f64 / pairs as f64) }
    }
}

/// Whether the measurement tells which of two plans is faster.
fn is_decided(one: &Median, other: &Median) -> bool {
    let differ = (one.median - other.median).abs() > ALIKE * one.median.min(other.median);
    differ && (one.high < other.low || other.high < one.low)
}

fn row(Judged { all, best }: &Judged) -> String {
    let Verdict { plans, pairs, tau } = Verdict::of(all);
    let figure = |figure: Option<f64>| figure.map_or("–".into(), |figure| format!("{figure:.3}"));
    let place = |outcome: &Outcome| {
        let place = Path::new(&outcome.configuration.place)
            .file_stem()
            .map_or_else(String::new, |name| name.display().to_string());
        let order = outcome
            .configuration
            .order
            .filter(|order| *order != Order::Pct)
            .map_or(String::new(), |order| format!(", {order}"));
        let stream = match outcome.configuration.stream {
            Some(StreamMode::Off) => ", nothing streamed",
            Some(StreamMode::Always) => ", all streamed",
            Some(StreamMode::Auto) | None => "",
        };
        place + &order + stream
    };
    let planned = best.outcomes.iter().filter(|outcome| outcome.predicted_ms.is_some());
    let fastest = planned.min_by(|one, other| one.measured_ms.median.total_cmp(&other.measured_ms.median));
    let chosen = best.outcomes.iter().find(|outcome| outcome.configuration.place == "auto");
    let regret = chosen.zip(fastest).map(|(chosen, fastest)| chosen.measured_ms.median / fastest.measured_ms.median);
    let median = chosen.map(|outcome| outcome.measured_ms.median);
    format!(
        "| {} | {} | {plans} | {pairs} | {} | {} | {} | {} | {} | {} |",
        all.model,
        all.nodes,
        figure(tau),
        figure(regret),
        chosen.map_or("–".into(), place),
        fastest.map_or("–".into(), place),
        figure(chosen.and_then(|outcome| outcome.predicted_ms)),
        figure(median),
    )
}
