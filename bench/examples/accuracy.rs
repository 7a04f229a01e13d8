//! Errors of predictions, and whether the chosen plan is the fastest, for every model of a directory. There are three
//! states of knowledge: assumed rates, calibrated rates, and costs after rounds of refinement.
//!
//! Run `cargo run --release -p anabranch-bench --example accuracy -- DIR`; it prints tables in Markdown to standard
//! output. The inputs are those in an `.npz` next to the model (members `in__NAME`), else random ones. `--seconds`
//! bounds the time: fewer seconds mean fewer runs of each configuration, but at least five.

mod shared;

use anabranch::compare::{CompareOptions, Comparison, DYNAMIC, Outcome, compare};
use anabranch::costs::CostStore;
use anabranch::execute::RunOptions;
use anabranch::planning::PlanChoice;
use anabranch::{Session, SessionConfig};
use anabranch_bench::models::models;
use anabranch_bench::turns::Failure;
use clap::Parser;
use shared::{Common, name};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Strategies that are compared, in addition to the dynamic scheduler and single devices.
const STRATEGIES: [&str; 8] = ["auto", "heft", "peft", "cpop", "minmin", "cp", "mite", "cpu"];

/// Minimum and maximum measured runs of a configuration.
const RUNS: (f64, f64) = (5.0, 31.0);

/// Predicted against measured, for every model of a directory
#[derive(Parser, Debug)]
struct Arguments {
    /// Directory with .onnx files
    directory: PathBuf,
    #[command(flatten)]
    common: Common,
    /// Rounds of refinement before the last table
    #[arg(long, default_value_t = 3)]
    refine: u32,
    /// Seconds that all runs together should take, placing apart
    #[arg(long, default_value_t = 400.0)]
    seconds: f64,
    /// Write all comparisons as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Knowledge about the devices before the comparison.
#[derive(Clone, Copy, Debug)]
enum Knowledge {
    Assumed,
    Calibrated,
    Refined,
}

impl Knowledge {
    const ALL: [Self; 3] = [Self::Assumed, Self::Calibrated, Self::Refined];

    fn title(self, refine: u32) -> String {
        match self {
            Self::Assumed => "Nothing is known: rates are assumed".into(),
            Self::Calibrated => "Devices and links are calibrated, no model was run".into(),
            Self::Refined => format!("After {refine} rounds of refinement"),
        }
    }
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let models = models(&arguments.directory)?;
    let share = arguments.seconds / (models.len() * Knowledge::ALL.len()) as f64;
    let mut calibrated = CostStore::default();
    let mut tables: Vec<(String, Vec<Comparison>)> = Vec::new();
    for knowledge in Knowledge::ALL {
        let mut comparisons = Vec::new();
        for model in &models {
            let started = Instant::now();
            let comparison = judge(&arguments, model, knowledge, share, &mut calibrated)?;
            eprintln!("{}: {knowledge:?} in {:.0} s", comparison.model, started.elapsed().as_secs_f64());
            comparisons.push(comparison);
        }
        tables.push((knowledge.title(arguments.refine), comparisons));
    }
    for (title, comparisons) in &tables {
        print_table(title, comparisons);
    }
    if let Some(path) = &arguments.json {
        serde_json::to_writer_pretty(std::fs::File::create(path)?, &tables)?;
    }
    Ok(())
}

/// Compares all configurations for one model. Calibrated costs are kept for the following models; costs learned from
/// one model are not.
fn judge(
    arguments: &Arguments,
    file: &Path,
    knowledge: Knowledge,
    share: f64,
    calibrated: &mut CostStore,
) -> Result<Comparison, Failure> {
    let calibrate = !matches!(knowledge, Knowledge::Assumed);
    let costs = if calibrate { calibrated.clone() } else { CostStore::default() };
    let options =
        SessionConfig::default().with_devices(arguments.common.devices()).with_costs(costs).with_calibration(calibrate);
    let session = Session::open(file, options)?;
    let inputs = arguments.common.inputs(&session, file)?;
    let choice = |place: &str| {
        let Ok(strategy) = place.parse();
        PlanChoice { strategy, ..session.choice() }
    };
    let gpus = session.inventory().gpus.iter().map(|gpu| gpu.name.as_str());
    let configurations: Vec<_> = STRATEGIES.into_iter().chain(gpus).map(choice).collect();
    let single = session.ready(&session.plan_with(&inputs, &choice("cpu"))?)?;
    if calibrate {
        *calibrated = session.costs();
    }
    session.run_prepared(&single, &inputs, &RunOptions::default())?;
    let seconds = session.run_prepared(&single, &inputs, &RunOptions::default())?.measured.makespan.as_secs_f64();
    drop(single);
    let refine = if matches!(knowledge, Knowledge::Refined) { arguments.refine } else { 0 };
    // Each configuration is assumed to be twice as slow as the CPU, and to need the same time again for runs that do
    // not count.
    let repeat = (share / (seconds * 4.0 * configurations.len() as f64)).clamp(RUNS.0, RUNS.1) as u32;
    let options = CompareOptions::new(name(file), configurations).with_runs(repeat, 2).with_refine(refine);
    Ok(compare(&session, &inputs, &options, &mut || {})?)
}

fn print_table(title: &str, comparisons: &[Comparison]) {
    println!("## {title}\n");
    println!("| model | way | predicted ms | measured ms | interval ms | (p − m)/m % | nodes off % | runs |");
    println!("|---|---|---:|---:|---|---:|---:|---:|");
    for comparison in comparisons {
        for outcome in &comparison.outcomes {
            println!("| {} | {} |", comparison.model, row(comparison, outcome));
        }
    }
    println!("\n| model | nodes | fastest | auto / fastest other | auto / dynamic |");
    println!("|---|---:|---|---:|---:|");
    for comparison in comparisons {
        let ratio = |ratio: Option<f64>| ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
        let fastest = comparison.best().map_or("–", |outcome| &outcome.configuration.place);
        let (others, dynamic) = (ratio(comparison.against_others("auto")), ratio(against_dynamic(comparison)));
        println!("| {} | {} | {fastest} | {others} | {dynamic} |", comparison.model, comparison.nodes);
    }
    let planned = || comparisons.iter().flat_map(|c| &c.outcomes).filter(|outcome| outcome.error_percent.is_some());
    let makespans = mean(planned().filter_map(|outcome| outcome.error_percent.map(f64::abs)));
    let nodes = mean(planned().filter_map(|outcome| outcome.node_error_percent));
    let wrong = comparisons.iter().flat_map(|c| &c.outcomes).filter(|outcome| !outcome.outputs.within).count();
    println!(
        "\nMean absolute error of makespans {makespans:.1} %; nodes are off by {nodes:.1} % of their measured time \
         (Σ |predicted − measured| of Σ measured) in the mean of the configurations; {wrong} configurations with other outputs.\n"
    );
}

fn row(comparison: &Comparison, outcome: &Outcome) -> String {
    let text = |figure: Option<f64>| figure.map_or("–".into(), |figure| format!("{figure:.1}"));
    let median = outcome.measured_ms;
    format!(
        "{} | {} | {:.3} | {:.3} – {:.3} | {} | {} | {}",
        outcome
            .same_plan_as
            .as_ref()
            .map_or(outcome.configuration.place.clone(), |o| format!("{} = {o}", outcome.configuration.place)),
        outcome.predicted_ms.map_or("–".into(), |ms| format!("{ms:.3}")),
        median.median,
        median.low,
        median.high,
        text(outcome.error_percent),
        text(outcome.node_error_percent),
        comparison.repeat,
    )
}

fn against_dynamic(comparison: &Comparison) -> Option<f64> {
    let median = |place: &str| {
        let found = comparison.outcomes.iter().find(|outcome| outcome.configuration.place == place);
        found.map(|outcome| outcome.measured_ms.median)
    };
    Some(median("auto")? / median(DYNAMIC)?)
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0.0f64), |(sum, count), figure| (sum + figure, count + 1.0));
    sum / count.max(1.0)
}
