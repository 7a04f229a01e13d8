//! `anabranch sweep`: runs every strategy under every order on every graph and platform, on all cores. Each result is
//! written at once, so that an interrupted sweep can continue.

mod adversarial;
mod charts;
mod jobs;
mod results;
mod stochastic;
mod units;
mod work;

use super::args::parse_count;
use super::cases::{self, Case};
use super::files::file_of;
use super::interrupt::cancel_on_interrupt;
use super::progress::Progress;
use super::rules::{RuleArgs, SearchArgs};
use super::{CliError, MORE, Output, note, wrote};
use adversarial::AdversarialArgs;
use anabranch_placement::place::{Auto, Exact, STRATEGIES};
use anabranch_placement::quoted::Line;
use anabranch_report::chart::Bar;
use anabranch_report::table::Table;
use anabranch_report::text::{amount, count, duration, terminal_width, wrapped};
use anabranch_report::trial::{AUTO, OrderName, strategy, time_format};
use charts::SeedGroup;
use clap::Args;
use results::{Key, Results, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use stochastic::StochasticArgs;
use units::Units;
use work::{Unit, Work};

const EXAMPLES: &str = "\
Graphs are files or FAMILY:SIZE. Devices are files, random:COUNT (Laich 2017, chapter 6), or related:COUNT:CCR and
unrelated:COUNT:CCR (Topcuoglu 2002, section 5). CCR is the mean transfer divided by the mean task; the default is 1.

Families: chain, fork-join, in-tree, out-tree, wavefront, fft, gauss, cholesky, random, layered, and table-7.1. The message about another
name says what each size means.

layered:SIZE takes the parameters of Laich 2017, chapter 6, as in layered:20,tasks=10-30,decay=0.5: tasks, edge-probability, limit or
decay, long-range-share, tensor-size, operations, memory, cpu-only, gpu-only and colocation. random:COUNT takes cpu-share, speed, rate and
memory-times-speed. The message about another key says what each one means.

A result has the makespan, its lower bound and the gap to it, the schedule length ratio and the speedup, the traffic by sends and by cut
edges, the utilisation and peak memory of each device, and the seconds of placing and simulating. If there is no result, it has the reason.

Examples:
  anabranch sweep graph.csv --devices devices_7.csv --devices devices_50.csv --send-ops 10 -o results.csv --chart charts
  anabranch sweep cholesky:10 fft:32 random:200 --devices unrelated:8:0.5 --strategies heft,peft,etf --seeds 20
  anabranch sweep layered:20,colocation=0 layered:20,colocation=0.5 --devices random:8,cpu-share=0.5 --seeds 10
  anabranch sweep problem.json --strategies all --orders pct,msr,fifo --json
  anabranch sweep --adversarial heft,cpop --seeds 5 --instances worst
  anabranch sweep --adversarial heft,cpop,mite,cp --seeds 5 --chart charts
  anabranch sweep graph.json --strategies heft,cp --stochastic --draws 1000";

/// Most results of one sweep: they are all in memory, for means and charts.
const MOST_RESULTS: u64 = 1_000_000;

/// Compare strategies and orders over graphs, devices and seeds
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = MORE)]
pub(crate) struct SweepCommand {
    /// Files of graphs or problems, or families such as fft:16
    #[arg(required_unless_present = "adversarial", value_name = "GRAPH|PROBLEM|FAMILY:SIZE")]
    graphs: Vec<String>,
    /// Use these devices: a file, or random:10; may be repeated
    #[arg(long, value_name = "FILE|KIND:COUNT")]
    devices: Vec<String>,
    /// Place with these strategies; all leaves out auto and exact
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "all")]
    strategies: Vec<String>,
    /// Use these orders
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAMES", default_value = "pct")]
    orders: Vec<OrderName>,
    /// Set the seeds of graphs, devices, draws, auto and exact
    #[arg(long, value_name = "COUNT|FIRST..END", default_value = "1", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Append each result to this file; skip results that it holds
    #[arg(short, long, value_name = "FILE.csv", value_parser = file_of(&["csv"]))]
    output: Option<PathBuf>,
    /// Draw the results here, and write a page of the charts
    #[arg(long, value_name = "DIR")]
    chart: Option<PathBuf>,
    /// Use this many threads [default: one per core]; 1 gives the steadiest times
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    threads: Option<NonZero<usize>>,
    #[command(flatten)]
    adversarial: AdversarialArgs,
    #[command(flatten)]
    stochastic: StochasticArgs,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    rules: RuleArgs,
}

impl SweepCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        if let Some(names) = &self.adversarial.adversarial {
            return adversarial::run(self, names, output);
        }
        if self.stochastic.stochastic {
            return stochastic::run(self, output);
        }
        let cases = cases::read(&self.graphs, &self.devices)?;
        let keys = self.keys(&cases, &self.strategies()?)?;
        let (mut results, done) = self.output.as_deref().map(Results::open).transpose()?.unzip();
        let mut done = done.unwrap_or_default();
        let units = units(&keys, &done);
        let missing: usize = units.iter().map(|unit| unit.keys.len()).sum();
        if !output.json && missing < keys.len() {
            note(format_args!("{} of {} results exist already", keys.len() - missing, keys.len()));
        }
        let cancel = cancel_on_interrupt()?;
        let progress = Progress::new(output, "simulations", missing as u64);
        let work = Work { cases: &cases, rules: &self.rules, search: self.search, units, cancel: &cancel };
        work.run(self.thread_count(), |row| {
            results.as_mut().map_or(Ok(()), |results| results.append(&row))?;
            done.insert(row.key(), row);
            progress.advance();
            Ok(())
        })?;
        drop(progress);
        if cancel.is_cancelled() {
            if let Some(path) = &self.output {
                note(format_args!("finished results are in {}; the same command continues from there", path.display()));
            }
            return Err(CliError::interrupted());
        }
        let rows: Vec<&Row> = keys.iter().filter_map(|(_, key)| done.get(key)).collect();
        self.output.iter().for_each(|path| wrote(path));
        let units = Units::of(&cases);
        if let Some(directory) = &self.chart {
            charts::write(directory, &rows, &units)?;
        }
        output.text_or_json(|| summary(&rows, &units), &rows)
    }

    fn thread_count(&self) -> usize {
        self.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
    }

    fn strategies(&self) -> Result<Vec<&str>, CliError> {
        let mut strategies: Vec<&str> = Vec::new();
        for name in &self.strategies {
            match name.as_str() {
                "all" => strategies.extend(STRATEGIES.iter().map(|(name, _)| *name)),
                name => strategies.push(strategy(name, Auto::default()).map(|_| name)?),
            }
        }
        let mut seen = BTreeSet::new();
        strategies.retain(|name| seen.insert(*name));
        Ok(strategies)
    }

    /// Returns every combination, with its case. Cases and strategies that do not use the seed have only the first.
    fn keys(&self, cases: &[Case], strategies: &[&str]) -> Result<Vec<(usize, Key)>, CliError> {
        let mut orders = self.orders.clone();
        orders.sort_unstable();
        orders.dedup();
        let seeds = self.seeds.end - self.seeds.start;
        let most = seeds.saturating_mul((cases.len() * strategies.len() * orders.len()) as u64);
        if most > MOST_RESULTS {
            let message = format!(
                "this makes up to {most} results, but the limit is {MOST_RESULTS}; use fewer graphs, devices, \
                 strategies or seeds"
            );
            return Err(CliError::input(message));
        }
        let mut keys = Vec::new();
        for (place, case) in cases.iter().enumerate() {
            for seed in self.seeds.clone() {
                let first = seed == self.seeds.start;
                let draws = first || case.draws() || self.stochastic.stochastic;
                for strategy in strategies.iter().filter(|name| draws || searches(name)) {
                    let key = |order| Key::new(case, seed, (strategy, self.search), order, &self.rules);
                    keys.extend(orders.iter().map(|&order| (place, key(order))));
                }
            }
        }
        Ok(keys)
    }
}

/// Whether a strategy searches with random numbers, for a number of evaluations: `auto` or `exact`.
fn searches(strategy: &str) -> bool {
    strategy == AUTO || Exact::by_name(strategy).is_some()
}

/// Returns the work that is not done yet, placement by placement.
fn units(keys: &[(usize, Key)], done: &BTreeMap<Key, Row>) -> Vec<Unit> {
    let same = |one: &(usize, Key), other: &(usize, Key)| {
        one.0 == other.0 && one.1.seed == other.1.seed && one.1.strategy == other.1.strategy
    };
    let unit = |group: &[(usize, Key)]| {
        let keys: Vec<Key> = group.iter().map(|(_, key)| key).filter(|key| !done.contains_key(key)).cloned().collect();
        (!keys.is_empty()).then(|| Unit { case: group[0].0, keys })
    };
    keys.chunk_by(same).filter_map(unit).collect()
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("`{text}` is not a seed: {error}"));
    let seeds = match text.split_once("..") {
        Some((first, end)) => number(first)?..number(end)?,
        None => 0..number(text)?,
    };
    if seeds.is_empty() {
        Err("the range holds no seeds; write a COUNT of at least 1, or FIRST..END".into())
    } else {
        Ok(seeds)
    }
}

/// Returns a table for each graph on each platform, with means over the seeds.
fn summary(rows: &[&Row], units: &Units<'_>) -> String {
    let groups = charts::groups(rows);
    let same =
        |one: &SeedGroup, other: &SeedGroup| (&one.0.graph, &one.0.devices) == (&other.0.graph, &other.0.devices);
    let text = |case: &[SeedGroup]| {
        let unit = units.unit(&case[0].0.graph, &case[0].0.devices);
        let heading = wrapped(&heading(&case[0], unit), terminal_width()).join("\n");
        format!("{heading}\n{}{}\n", table(case, unit), refusals(case))
    };
    let tables: String = groups.chunk_by(same).map(text).collect();
    format!("± dev: standard deviation of the makespan over the seeds\n\n{tables}")
}

fn heading((_, rows): &SeedGroup<'_>, unit: Option<&str>) -> String {
    let Row { graph, devices, tasks, edges, device_count, .. } = rows[0];
    let there = count(*device_count, "device");
    let (platform, means) = match (devices.as_str(), rows.len()) {
        ("own", _) => (format!("{there} of its own"), String::new()),
        (_, 1) => (format!("{devices} ({there})"), String::new()),
        (_, seeds) => (format!("{devices} ({there})"), format!(", means over {seeds} seeds")),
    };
    let [tasks, edges] = [count(*tasks, "task"), count(*edges, "edge")];
    format!("{} ({tasks}, {edges}) on {platform}{means}{}", Line(graph), in_unit(unit))
}

/// Returns the unit of makespans as the end of a line. Seconds stand with each of them.
fn in_unit(unit: Option<&str>) -> String {
    match unit {
        Some("s") => String::new(),
        unit => format!("; makespans in {}", Line(unit.unwrap_or("time units"))),
    }
}

/// Returns the reasons why some strategies have no result, for one seed each.
fn refusals(case: &[SeedGroup<'_>]) -> String {
    let refusal = |(key, rows): &SeedGroup| {
        let error = rows.iter().find_map(|row| row.error.as_ref())?;
        Some(format!("  {} under {}: {}\n", key.strategy, key.order.name(), Line(error)))
    };
    case.iter().filter_map(refusal).collect()
}

fn table(case: &[SeedGroup<'_>], unit: Option<&str>) -> Table {
    let (time, _) = time_format(unit);
    let mut table =
        Table::new("strategy | order | >makespan | >± dev | >gap | >slr | >traffic | >sends | >used | >placed in");
    for (key, rows) in case {
        let values =
            |value: fn(&Row) -> Option<f64>| -> Vec<f64> { rows.iter().filter_map(|row| value(row)).collect() };
        let mean = |value: fn(&Row) -> Option<f64>, format: fn(f64) -> String| {
            Bar::of(&values(value)).map_or(String::new(), |bar| format(bar.mean))
        };
        let deviation = Bar::of(&values(|row| row.makespan)).filter(|bar| bar.above() > 0.0);
        table.row([
            key.strategy.clone(),
            key.order.name().to_owned(),
            mean(|row| row.makespan, time),
            deviation.map_or(String::new(), |bar| time(bar.above())),
            mean(|row| row.gap, |gap| format!("{:.1} %", 100.0 * gap)),
            mean(|row| row.slr, |slr| format!("{slr:.2}")),
            mean(|row| row.traffic, amount),
            mean(|row| row.sends.map(|sends| sends as f64), amount),
            mean(|row| row.used_devices.map(|used| used as f64), amount),
            mean(|row| row.place_seconds, duration),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_and_exact_search() {
        let found = ["auto", "exact", "exact:3", "heft", "list:est"].map(searches);
        assert_eq!(found, [true, true, true, false, false]);
    }

    #[test]
    fn seeds_are_a_count_or_a_range() {
        assert_eq!((parse_seeds("3"), parse_seeds("5..7")), (Ok(0..3), Ok(5..7)));
        for text in ["0", "7..5", "a", "1..b", ""] {
            assert!(parse_seeds(text).is_err(), "{text}");
        }
    }
}
