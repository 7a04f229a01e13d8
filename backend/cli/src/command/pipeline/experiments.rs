//! The experiments of Benoit and Robert: every heuristic on random chains and processors, next to the optimum and the
//! bound.

use super::super::interrupt::cancel_on_interrupt;
use super::super::progress::Progress;
use super::super::{CliError, Output};
use anabranch_placement::pipeline::exact::ExactOptions;
use anabranch_placement::pipeline::experiment::{EXPERIMENTS, Experiment, Sought, Trial, trial};
use anabranch_report::table::Table;
use anabranch_report::text::amount;
use clap::Args;
use serde::Serialize;

/// Options of experiments.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Experiments")]
pub(super) struct Experiments {
    /// Compare all heuristics on random chains: e1, e2, e3, e4 [default: all]
    ///
    /// e1 has balanced stages, e2 has different communication costs, e3 has large computations, and e4 has small
    /// computations.
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "e1,e2,e3,e4", value_name = "NAMES")]
    experiments: Option<Vec<String>>,
    /// Use these numbers of stages
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "COUNTS",
        default_value = "5,10,20,30,40,50",
        requires = "experiments"
    )]
    stages: Vec<usize>,
    /// Use this many processors
    #[arg(long, value_name = "COUNT", default_value_t = 10, requires = "experiments")]
    processors: usize,
    /// Make this many problems per number of stages
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "experiments")]
    instances: u64,
    /// Allow a latency of this many times the least
    #[arg(long, value_name = "FACTOR", conflicts_with = "period_factor", requires = "experiments", value_parser = factor)]
    latency_factor: Option<f64>,
    /// Minimise latency; allow this many times the least period
    #[arg(long, value_name = "FACTOR", requires = "experiments", value_parser = factor)]
    period_factor: Option<f64>,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if factor >= 1.0 && f64::is_finite(factor) => Ok(factor),
        _ => Err("write a factor of at least 1, such as 1.5".into()),
    }
}

/// Means of one method over the problems of one number of stages.
#[derive(Serialize, Clone)]
struct Row {
    experiment: &'static str,
    processors: usize,
    stages: usize,
    method: &'static str,
    problems: u64,
    /// Number of problems on which the method kept the limit.
    admitted: usize,
    /// Mean of the goal over these problems, in seconds.
    mean: f64,
    /// Number of problems whose optimum is proven.
    proven: usize,
    /// Mean ratio to the optimum over the proven problems.
    over_optimum: Option<f64>,
    /// Number of proven problems on which the optimum was reached.
    optimal: usize,
    /// Mean ratio to the bound.
    over_bound: Option<f64>,
}

impl Experiments {
    pub(super) fn sought(&self) -> Sought {
        match (self.latency_factor, self.period_factor) {
            (Some(factor), _) => Sought::PeriodWithin(factor),
            (_, Some(factor)) => Sought::LatencyWithin(factor),
            _ => Sought::Period,
        }
    }

    pub(super) fn run(&self, output: Output, sought: Sought, exact: ExactOptions, seed: u64) -> Result<(), CliError> {
        let experiments = self.experiments.iter().flatten().map(|name| experiment(name));
        let experiments = experiments.collect::<Result<Vec<&Experiment>, CliError>>()?;
        let cancel = cancel_on_interrupt()?;
        let cases = experiments.len() * self.stages.len();
        let progress = Progress::new(output, "problems", (cases as u64).saturating_mul(self.instances));
        let mut rows = Vec::new();
        for experiment in &experiments {
            for &stages in &self.stages {
                let mut trials = Vec::new();
                for instance in 0..self.instances {
                    if cancel.is_cancelled() {
                        return Err(CliError::interrupted());
                    }
                    let seed = seed.wrapping_add(instance);
                    let problem = experiment.problem(stages, self.processors, seed).map_err(CliError::input)?;
                    trials.extend(trial(&problem, sought, exact, seed));
                    progress.advance();
                }
                rows.extend(means(experiment, self.processors, stages, &trials));
            }
        }
        drop(progress);
        output.text_or_json(|| self.text(&experiments, &rows), &rows)
    }

    fn text(&self, experiments: &[&Experiment], rows: &[Row]) -> String {
        let sought = match self.sought() {
            Sought::Period => "least period".to_owned(),
            Sought::PeriodWithin(factor) => format!("least period with at most {factor} times the least latency"),
            Sought::LatencyWithin(factor) => format!("least latency with at most {factor} times the least period"),
        };
        let table = |experiment: &&Experiment| {
            let mut table = Table::new(
                ">stages | method | >mean | >over the optimum | >optimal | >of proven | >over the bound | >within the limit",
            );
            for row in rows.iter().filter(|row| row.experiment == experiment.name) {
                let percent =
                    |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{:.1} %", 100.0 * (ratio - 1.0)));
                table.row([
                    row.stages.to_string(),
                    row.method.to_owned(),
                    amount(row.mean),
                    percent(row.over_optimum),
                    row.optimal.to_string(),
                    row.proven.to_string(),
                    percent(row.over_bound),
                    row.admitted.to_string(),
                ]);
            }
            let Experiment { name, about, .. } = experiment;
            format!(
                "{name}: {about}; {sought}; {} processors, {} problems for each number of stages\n{table}\n",
                self.processors, self.instances
            )
        };
        experiments.iter().map(table).collect()
    }
}

fn experiment(name: &str) -> Result<&'static Experiment, CliError> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        CliError::input(format!("there is no experiment {name:?}; the experiments are {}", names.join(", ")))
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns a row for each method.
fn means(experiment: &Experiment, processors: usize, stages: usize, trials: &[Trial]) -> Vec<Row> {
    let Some(first) = trials.first() else { return Vec::new() };
    let row = |(place, &(method, _)): (usize, &(&'static str, Option<f64>))| {
        let reached: Vec<(f64, &Trial)> =
            trials.iter().filter_map(|trial| Some((trial.reached[place].1?, trial))).collect();
        let values: Vec<f64> = reached.iter().map(|(value, _)| *value).collect();
        let optima: Vec<f64> = reached.iter().filter_map(|(value, trial)| Some(value / trial.optimum?)).collect();
        let bounds: Vec<f64> = reached.iter().map(|(value, trial)| value / trial.lower_bound).collect();
        Row {
            experiment: experiment.name,
            processors,
            stages,
            method,
            problems: trials.len() as u64,
            admitted: values.len(),
            mean: mean(&values).unwrap_or(0.0),
            proven: optima.len(),
            over_optimum: mean(&optima),
            optimal: optima.iter().filter(|ratio| **ratio <= 1.0 + 1e-9).count(),
            over_bound: mean(&bounds),
        }
    };
    first.reached.iter().enumerate().map(row).collect()
}
