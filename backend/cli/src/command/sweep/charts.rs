//! A sweep's results as charts: means over seeds, with deviations.

use super::super::{CliError, write_file};
use super::results::{Key, Row};
use super::units::Units;
use anabranch_report::chart::{Axis, Bar, BarChart, Base, Format, Group, Panel, page};
use anabranch_report::text::{amount, duration};
use anabranch_report::trial::OrderName;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Results that differ only in the seed: their key, with 0 for the seed, and the rows.
pub(super) type SeedGroup<'r> = (Key, Vec<&'r Row>);

/// Groups results by everything but the seed.
pub(super) fn groups<'r>(rows: &[&'r Row]) -> Vec<SeedGroup<'r>> {
    grouped(rows.iter().map(|row| (Key { seed: 0, ..row.key() }, *row)))
}

/// Groups items by key, in the order in which keys first occur.
fn grouped<K: Ord + Clone, T>(things: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    let mut places: BTreeMap<K, usize> = BTreeMap::new();
    for (key, thing) in things {
        let place = *places.entry(key).or_insert_with_key(|key| {
            groups.push((key.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(thing);
    }
    groups
}

/// Quantity of a chart.
struct Quantity {
    file: &'static str,
    title: &'static str,
    /// Name and format of the values; a makespan has those of its unit.
    value: Option<(&'static str, Format)>,
    logarithmic: bool,
    /// Whether it depends on the order; if not, one bar is enough.
    by_order: bool,
    /// Whether it can be compared between graphs, so that one panel covers all.
    overall: bool,
    /// Computes the value, given the least makespan of all on the same problem.
    of: fn(&Row, f64) -> Option<f64>,
    limit: fn(&Row) -> Option<f64>,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity {
        file: "makespan.svg",
        title: "Makespan",
        value: None,
        logarithmic: false,
        by_order: true,
        overall: false,
        of: |row, _| row.makespan,
        limit: |row| row.bound,
    },
    Quantity {
        file: "relative.svg",
        title: "Makespan against the best",
        value: Some(("makespan over the least of all on the same problem", amount)),
        logarithmic: false,
        by_order: true,
        overall: true,
        of: |row, least| row.makespan.filter(|_| least > 0.0).map(|makespan| makespan / least),
        limit: |_| None,
    },
    Quantity {
        file: "traffic.svg",
        title: "Traffic between devices",
        value: Some(("traffic, in the graph's unit of size", amount)),
        logarithmic: false,
        by_order: false,
        overall: false,
        of: |row, _| row.traffic,
        limit: |_| None,
    },
    Quantity {
        file: "place_seconds.svg",
        title: "Time to place",
        value: Some(("time to place", duration)),
        logarithmic: true,
        by_order: false,
        overall: false,
        of: |row, _| row.place_seconds,
        limit: |_| None,
    },
];

/// Writes a file for each chart, and a page with all of them.
pub(super) fn write(directory: &Path, rows: &[&Row], units: &Units<'_>) -> Result<(), CliError> {
    fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
    let mut charts = Vec::new();
    for quantity in &QUANTITIES {
        let svg = chart(quantity, rows, units).svg();
        let path = directory.join(quantity.file);
        write_file(&path, &svg)?;
        charts.push(svg);
    }
    let path = directory.join("index.html");
    let facts = [("results", rows.len().to_string()), ("seeds", seeds(rows).to_string())];
    write_file(&path, page("Placement sweep", &facts, &charts))
}

fn chart(quantity: &Quantity, rows: &[&Row], units: &Units<'_>) -> BarChart {
    let mut orders: Vec<OrderName> = Vec::new();
    for row in rows {
        if !orders.contains(&row.order) {
            orders.push(row.order);
        }
    }
    if !quantity.by_order {
        orders.truncate(1);
    }
    let panels: Vec<Panel> = panels(quantity, rows, &orders);
    let limit = panels.iter().any(|panel| panel.limit.is_some()).then(|| "lower bound".to_owned());
    let seeds = seeds(rows);
    let of_seeds = match seeds {
        _ if quantity.overall => ", means and standard deviations over all graphs, devices and seeds".into(),
        0 | 1 => String::new(),
        _ => format!(", means and standard deviations over {seeds} seeds where something is drawn"),
    };
    let rules = match (rows.first(), quantity.by_order) {
        (Some(row), true) => rules(row, &orders),
        _ => "the same for every order".into(),
    };
    let (value, format) = quantity.value.map_or_else(|| units.axis(), |(name, format)| (name.into(), format));
    BarChart {
        title: quantity.title.into(),
        subtitle: format!("{rules}{of_seeds}; shorter is better, the best is bold"),
        value,
        format,
        axis: if quantity.logarithmic { Axis::Logarithmic } else { Axis::Linear },
        base: Base::Ten,
        series: orders.iter().map(|order| order.name().to_owned()).collect(),
        emphasis: true,
        missing: "no placement".into(),
        limit,
        panels,
    }
}

/// Describes the conditions that hold for all rows.
fn rules(row: &Row, orders: &[OrderName]) -> String {
    let links = if row.contention { ", one transfer at a time on a link" } else { "" };
    let sends = format!("{} operations a send{links}", row.send_ops);
    match orders {
        [one] => format!("order {}, {sends}", one.name()),
        several => {
            let names: Vec<&str> = several.iter().map(|order| order.name()).collect();
            format!("orders {}, {sends}", names.join(", "))
        }
    }
}

fn seeds(rows: &[&Row]) -> usize {
    let mut seeds: Vec<u64> = rows.iter().map(|row| row.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds.len()
}

/// Returns the key that rows of one problem share. If only a search uses the seed, seeds do not distinguish problems,
/// but bounds do.
fn problem(row: &Row) -> (&str, &str, Option<u64>) {
    (&row.graph, &row.devices, row.bound.map(f64::to_bits))
}

/// Returns the least makespan of each problem.
fn least<'r>(rows: &[&'r Row]) -> BTreeMap<(&'r str, &'r str, Option<u64>), f64> {
    let mut least = BTreeMap::new();
    for row in rows {
        if let Some(makespan) = row.makespan {
            let best: &mut f64 = least.entry(problem(row)).or_insert(makespan);
            *best = best.min(makespan);
        }
    }
    least
}

/// Returns a panel for each graph on each platform, or one for all of them: by strategy and then by order.
fn panels(quantity: &Quantity, rows: &[&Row], orders: &[OrderName]) -> Vec<Panel> {
    let least = least(rows);
    let title = |row: &Row| match (quantity.overall, row.devices.as_str()) {
        (true, _) => "all graphs and devices".into(),
        (false, "own") => row.graph.clone(),
        (false, devices) => format!("{} on {devices}", row.graph),
    };
    let value = |row: &Row| (quantity.of)(row, least.get(&problem(row)).copied().unwrap_or(0.0));
    let group = |(strategy, rows): (&String, Vec<&Row>)| {
        let bar = |order: &OrderName| {
            let of_order = rows.iter().filter(|row| row.order == *order);
            Bar::of(&of_order.filter_map(|row| value(row)).collect::<Vec<_>>())
        };
        Group { name: strategy.clone(), bars: orders.iter().map(bar).collect() }
    };
    let panel = |(title, rows): (String, Vec<&Row>)| {
        let limits: Vec<f64> = rows.iter().filter_map(|row| (quantity.limit)(row)).collect();
        let groups = grouped(rows.into_iter().map(|row| (&row.strategy, row))).into_iter().map(group).collect();
        Panel { title, groups, limit: Bar::of(&limits).map(|bar| bar.mean) }
    };
    let drawn = rows.iter().filter(|row| orders.contains(&row.order));
    grouped(drawn.map(|row| (title(row), *row))).into_iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: &str, order: OrderName, seed: u64, makespan: Option<f64>) -> Row {
        Row {
            graph: "g".into(),
            devices: "d".into(),
            strategy: strategy.into(),
            order,
            seed,
            makespan,
            bound: makespan.map(|_| 1.0),
            ..Row::default()
        }
    }

    #[test]
    fn seeds_become_means_and_deviations_by_strategy_and_order() {
        let rows = [
            row("heft", OrderName::Pct, 0, Some(2.0)),
            row("heft", OrderName::Pct, 1, Some(4.0)),
            row("heft", OrderName::Fifo, 0, Some(5.0)),
            row("gpu", OrderName::Pct, 0, None),
        ];
        let chart = chart(&QUANTITIES[0], &rows.iter().collect::<Vec<_>>(), &Units::of(&[]));
        assert_eq!(chart.series, ["pct", "fifo"]);
        let [panel] = &chart.panels[..] else { panic!("{:?}", chart.panels) };
        assert_eq!((panel.title.as_str(), panel.limit), ("g on d", Some(1.0)));
        assert_eq!(panel.groups[0].bars[0], Bar::of(&[2.0, 4.0]));
        assert_eq!(panel.groups[0].bars[1], Bar::of(&[5.0]));
        assert_eq!(panel.groups[1].bars, [None, None]);
    }

    #[test]
    fn makespans_are_compared_with_the_best_of_their_problem() {
        let other = |row: Row| Row { graph: "h".into(), bound: Some(2.0), ..row };
        let rows = [
            row("heft", OrderName::Pct, 0, Some(2.0)),
            row("cp", OrderName::Pct, 0, Some(3.0)),
            other(row("heft", OrderName::Pct, 0, Some(40.0))),
            other(row("cp", OrderName::Pct, 0, Some(20.0))),
        ];
        let chart = chart(&QUANTITIES[1], &rows.iter().collect::<Vec<_>>(), &Units::of(&[]));
        let [panel] = &chart.panels[..] else { panic!("{:?}", chart.panels) };
        let means: Vec<f64> = panel.groups.iter().flat_map(|group| &group.bars).flatten().map(|bar| bar.mean).collect();
        assert_eq!(means, [1.5, 1.25]);
    }
}
