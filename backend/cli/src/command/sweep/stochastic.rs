//! `sweep --stochastic`: static plans under uncertain times.

use super::super::cases::{self, Case};
use super::super::progress::Progress;
use super::super::{CliError, Output};
use super::results::Key;
use super::units::Units;
use super::{SweepCommand, in_unit, jobs};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::order::{Fifo, Msr, Order, Pct};
use anabranch_placement::place::Auto;
use anabranch_placement::quoted::Line;
use anabranch_placement::stochastic::{Drawn, Stochastic, StochasticError};
use anabranch_report::table::Table;
use anabranch_report::text::{amount, count, error, terminal_width, wrapped};
use anabranch_report::trial::{OrderName, TrialError, TrialPlacement, strategy, time_format};
use clap::Args;
use serde::Serialize;

/// Most simulations of one sweep.
const MOST_DRAWS: u64 = 1_000_000_000;

/// Options of draws.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Uncertain times")]
pub(super) struct StochasticArgs {
    /// Simulate each plan under drawn times
    ///
    /// Times of tasks and transfers are drawn. A plan keeps its devices and the order of each device. The price is its
    /// mean makespan over the mean makespan in the order that --orders chooses for the drawn times. Times with an
    /// uncertainty in the file, which `anabranch graph` writes, are drawn from that interval.
    #[arg(long, conflicts_with_all = ["adversarial", "output", "chart"])]
    pub(super) stochastic: bool,
    /// Draw times from 1 - SPREAD to 1 + SPREAD of the nominal
    #[arg(long, value_name = "SPREAD", default_value_t = 0.2, requires = "stochastic", hide_short_help = true)]
    spread: f64,
    /// Draw this many times
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "stochastic", hide_short_help = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    draws: u32,
}

/// Result of a plan. Its fields are the members of the output; times are in the graph's unit.
#[derive(Serialize, Default)]
struct Row {
    graph: String,
    devices: String,
    seed: u64,
    strategy: String,
    order: OrderName,
    draws: u32,
    spread: f64,
    makespan: Option<f64>,
    expected: Option<f64>,
    percentile_95: Option<f64>,
    /// Mean makespan in the order for the drawn times.
    reordered: Option<f64>,
    price: Option<f64>,
    error: Option<String>,
}

/// Simulates all plans under all draws.
pub(super) fn run(command: &SweepCommand, output: Output) -> Result<(), CliError> {
    let &StochasticArgs { spread, draws, .. } = &command.stochastic;
    if !(0.0..=1.0).contains(&spread) {
        return Err(CliError::input(StochasticError::Spread(spread)));
    }
    command.orders.iter().try_for_each(|&order| rule(order).map(|_| ()))?;
    let cases = cases::read(&command.graphs, &command.devices)?;
    let keys = command.keys(&cases, &command.strategies()?)?;
    if keys.len() as u64 * u64::from(draws) > MOST_DRAWS {
        let message = format!("this makes more than {MOST_DRAWS} draws of {} plans; use fewer --draws", keys.len());
        return Err(CliError::input(message));
    }
    let cancel = super::cancel_on_interrupt()?;
    let progress = Progress::new(output, "plans", keys.len() as u64);
    let mut rows: Vec<Option<Row>> = keys.iter().map(|_| None).collect();
    let job = |number: usize| row(command, &cases, &keys[number]);
    jobs::run(command.thread_count(), keys.len(), &cancel, job, |number, row| {
        progress.advance();
        rows[number] = Some(row);
        Ok(())
    })?;
    drop(progress);
    if cancel.is_cancelled() {
        return Err(CliError::interrupted());
    }
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    output.text_or_json(|| text(&rows, &Units::of(&cases)), &rows)
}

fn row(command: &SweepCommand, cases: &[Case], (case, key): &(usize, Key)) -> Result<Row, CliError> {
    let &StochasticArgs { spread, draws, .. } = &command.stochastic;
    let row = Row {
        graph: key.graph.clone(),
        devices: key.devices.clone(),
        seed: key.seed,
        strategy: key.strategy.clone(),
        order: key.order,
        draws,
        spread,
        ..Row::default()
    };
    let rule = rule(key.order)?;
    let mut loaded = cases[*case].problem(key.seed)?;
    command.rules.apply(&mut loaded);
    match drawn(command, key, rule, &loaded) {
        Err(TrialError::Input(said)) => Ok(Row { error: Some(said), ..row }),
        Err(fault) => Err(fault.into()),
        Ok(drawn) => Ok(Row {
            makespan: Some(drawn.nominal),
            expected: Some(drawn.mean()),
            percentile_95: Some(drawn.percentile(0.95)),
            reordered: Some(drawn.reordered_mean()),
            price: Some(drawn.price()),
            ..row
        }),
    }
}

/// Returns the rule of an order that depends on times alone.
fn rule(order: OrderName) -> Result<&'static dyn Order, CliError> {
    match order {
        OrderName::Pct => Ok(&Pct),
        OrderName::Msr => Ok(&Msr),
        OrderName::Fifo => Ok(&Fifo),
        OrderName::Frugal | OrderName::Planned => {
            let message = format!("--stochastic does not know the order {}; use pct, msr or fifo", order.name());
            Err(CliError::input(message))
        }
    }
}

/// Places a problem, and simulates the plan under all draws.
fn drawn(command: &SweepCommand, key: &Key, rule: &dyn Order, loaded: &LoadedProblem) -> Result<Drawn, TrialError> {
    let &StochasticArgs { spread, draws, .. } = &command.stochastic;
    let refused = |error: &dyn std::error::Error| TrialError::Input(error.to_string());
    let problem = command.rules.problem(loaded).map_err(|error| refused(&error))?;
    let placer = strategy(&key.strategy, Auto { evaluations: command.search.evaluations, seed: key.seed })?;
    let nominal = TrialPlacement::by(placer.as_ref(), &problem)?.schedule(&problem, key.order)?;
    let uncertainties = loaded.facts.uncertainties.as_ref();
    let uncertainty = |task, device| uncertainties.and_then(|table| table.time(task, device));
    let drawn = Stochastic { draws, seed: key.seed, spread }.run(&problem, &uncertainty, &nominal, rule);
    drawn.map_err(|error| match error {
        StochasticError::Violation(_) => TrialError::Fault(error.to_string()),
        error => refused(&error),
    })
}

/// Returns a table for each problem.
fn text(rows: &[Row], units: &Units<'_>) -> String {
    let same =
        |one: &Row, other: &Row| (&one.graph, &one.devices, one.seed) == (&other.graph, &other.devices, other.seed);
    rows.chunk_by(same).map(|rows| problem_text(rows, units.unit(&rows[0].graph, &rows[0].devices))).collect()
}

fn problem_text(rows: &[Row], unit: Option<&str>) -> String {
    let Row { graph, devices, seed, draws, spread, .. } = &rows[0];
    let devices = if devices == "own" { "its own devices" } else { devices };
    let (time, unit) = (time_format(unit).0, in_unit(unit));
    let percent = amount(100.0 * spread);
    let heading = format!(
        "{} on {devices}, seed {seed}: {} within {percent} % or the file's uncertainty{unit}",
        Line(graph),
        count(*draws, "draw")
    );
    let mut text = wrapped(&heading, terminal_width()).join("\n") + "\n";
    let mut table = Table::new("strategy | order | >makespan | >expected | >95 % | >reordered | >price of the order");
    for row in rows.iter().filter(|row| row.error.is_none()) {
        let cell = |value: Option<f64>| value.map_or(String::new(), time);
        table.row([
            row.strategy.clone(),
            row.order.name().into(),
            cell(row.makespan),
            cell(row.expected),
            cell(row.percentile_95),
            cell(row.reordered),
            row.price.map_or(String::new(), |price| error(100.0 * (price - 1.0))),
        ]);
    }
    text.push_str(&table.to_string());
    for row in rows {
        if let Some(error) = &row.error {
            text.push_str(&format!("  {} under {}: {}\n", row.strategy, row.order.name(), Line(error)));
        }
    }
    text + "\n"
}
