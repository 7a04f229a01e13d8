//! Results of a sweep, and the file to which they are appended line by line.

use super::super::CliError;
use super::super::cases::Case;
use super::super::rules::{RuleArgs, SearchArgs};
use super::searches;
use anabranch::files;
use anabranch_placement::evaluate::Metrics;
use anabranch_report::trial::OrderName;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Key of a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) graph: String,
    pub(super) devices: String,
    pub(super) seed: u64,
    pub(super) strategy: String,
    /// For a strategy that searches.
    pub(super) evaluations: Option<u64>,
    pub(super) order: OrderName,
    /// Bits of the number, so that keys can be ordered.
    pub(super) send_ops: u64,
    pub(super) contention: bool,
    pub(super) memory_rule: String,
}

impl Key {
    pub(super) fn new(
        case: &Case,
        seed: u64,
        (strategy, search): (&str, SearchArgs),
        order: OrderName,
        rules: &RuleArgs,
    ) -> Self {
        let rule = rules.memory_rule.as_ref().and_then(ValueEnum::to_possible_value);
        Key {
            graph: case.graph.clone(),
            devices: case.devices.clone(),
            seed,
            strategy: strategy.into(),
            evaluations: search.evaluations.filter(|_| searches(strategy)),
            order,
            send_ops: rules.send_ops.to_bits(),
            contention: rules.contention,
            memory_rule: rule.map_or("own".into(), |rule| rule.get_name().to_owned()),
        }
    }
}

/// A result: measurements, or the reason why there are none. Its fields are the columns and members of the files.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) graph: String,
    pub(super) devices: String,
    pub(super) seed: u64,
    pub(super) strategy: String,
    /// For a strategy that searches.
    pub(super) evaluations: Option<u64>,
    pub(super) order: OrderName,
    pub(super) send_ops: f64,
    pub(super) contention: bool,
    /// `own` is the rule of the graph's file.
    pub(super) memory_rule: String,
    pub(super) tasks: usize,
    pub(super) edges: usize,
    pub(super) device_count: usize,
    pub(super) makespan: Option<f64>,
    pub(super) bound: Option<f64>,
    pub(super) gap: Option<f64>,
    pub(super) slr: Option<f64>,
    pub(super) speedup: Option<f64>,
    /// In the unit of the graph's file, as all sizes but memory.
    pub(super) traffic: Option<f64>,
    pub(super) traffic_per_edge: Option<f64>,
    pub(super) sends: Option<usize>,
    pub(super) cut_edges: Option<usize>,
    pub(super) used_devices: Option<usize>,
    pub(super) utilisation: Option<f64>,
    /// Utilisation of each device, separated by blanks.
    pub(super) utilisations: Option<String>,
    pub(super) peak_memory: Option<u64>,
    /// Peak memory of each device, separated by blanks.
    pub(super) peak_memories: Option<String>,
    pub(super) place_seconds: Option<f64>,
    pub(super) simulate_seconds: Option<f64>,
    pub(super) error: Option<String>,
}

impl Row {
    /// Makes an empty row for a key.
    pub(super) fn of(key: Key) -> Self {
        let Key { graph, devices, seed, strategy, evaluations, order, send_ops, contention, memory_rule } = key;
        let send_ops = f64::from_bits(send_ops);
        Row { graph, devices, seed, strategy, evaluations, order, send_ops, contention, memory_rule, ..Row::default() }
    }

    /// Sets the reason why there are no measurements.
    pub(super) fn refused(self, error: String) -> Self {
        Row { error: Some(error), ..self }
    }

    /// Sets the measurements. `bytes_a_unit` is the unit of sizes in bytes.
    pub(super) fn measured(self, metrics: &Metrics, bytes_a_unit: f64) -> Self {
        let joined = |values: Vec<String>| Some(values.join(" "));
        let devices = || metrics.devices.iter();
        Row {
            makespan: Some(metrics.makespan),
            bound: Some(metrics.bound.value),
            gap: metrics.gap,
            slr: metrics.slr,
            speedup: metrics.speedup,
            traffic: Some(metrics.traffic as f64 / bytes_a_unit),
            traffic_per_edge: Some(metrics.traffic_per_edge as f64 / bytes_a_unit),
            sends: Some(metrics.sends),
            cut_edges: Some(metrics.cut_edges),
            used_devices: Some(metrics.used_devices()),
            utilisation: Some(metrics.utilisation),
            utilisations: joined(devices().map(|device| format!("{:.4}", device.utilisation)).collect()),
            peak_memory: Some(metrics.peak_memory()),
            peak_memories: joined(devices().map(|device| device.peak_memory.to_string()).collect()),
            ..self
        }
    }

    pub(super) fn key(&self) -> Key {
        Key {
            graph: self.graph.clone(),
            devices: self.devices.clone(),
            seed: self.seed,
            strategy: self.strategy.clone(),
            evaluations: self.evaluations,
            order: self.order,
            send_ops: self.send_ops.to_bits(),
            contention: self.contention,
            memory_rule: self.memory_rule.clone(),
        }
    }
}

/// File to which results are appended.
pub(super) struct Results {
    path: PathBuf,
    file: File,
    headed: bool,
}

impl Results {
    /// Opens or makes the file, and reads its results. An incomplete last line is cut off.
    pub(super) fn open(path: &Path) -> Result<(Self, BTreeMap<Key, Row>), CliError> {
        if path.extension().is_none_or(|extension| extension != "csv") {
            return Err(CliError::in_file(path, "results are written as CSV; use the extension .csv"));
        }
        let refuse = |error: std::io::Error| CliError::in_file(path, error);
        let text = match files::read_text(path, files::MOST_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(refuse(error)),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let foreign = |error: String| CliError::in_file(path, format!("{error}; name another file or remove this one"));
        let heading = lines(&Row::default(), true)?;
        let heading = heading.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        // An interruption may have left only a part of the heading.
        if !text.as_bytes().starts_with(heading) && !heading.starts_with(text.as_bytes()) {
            return Err(foreign("it does not begin with the columns of results".into()));
        }
        let rows = parse(whole).map_err(foreign)?;
        let file = files::append(path).map_err(refuse)?;
        file.set_len(whole.len() as u64).map_err(refuse)?;
        let results = Results { path: path.into(), file, headed: !whole.is_empty() };
        Ok((results, rows.into_iter().map(|row| (row.key(), row)).collect()))
    }

    /// Appends a result as one whole line, after the heading if it is the first.
    pub(super) fn append(&mut self, row: &Row) -> Result<(), CliError> {
        let lines = lines(row, !self.headed)?;
        self.headed = true;
        self.file.write_all(&lines).map_err(|error| CliError::in_file(&self.path, error))
    }
}

/// Returns a result in the form in which it is appended, with or without the heading.
fn lines(row: &Row, headed: bool) -> Result<Vec<u8>, CliError> {
    let mut writer = csv::WriterBuilder::new().has_headers(headed).from_writer(Vec::new());
    writer.serialize(row)?;
    writer.into_inner().map_err(CliError::internal)
}

fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows = reader.deserialize().enumerate();
    rows.map(|(number, row)| row.map_err(|error| format!("line {} is not a result: {error}", number + 2))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn row(graph: &str) -> Row {
        Row { graph: graph.into(), seed: 7, send_ops: 0.1, makespan: Some(0.1 + 0.2), ..Row::default() }
    }

    /// Results that were appended are there when the file is opened again; half a line is not.
    #[test]
    fn results_survive_an_interruption() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("results.csv");
        let (mut results, done) = Results::open(&path).expect("made");
        assert!(done.is_empty());
        results.append(&row("a, \"b\"")).expect("written");
        results.append(&row("c").refused("no room".into())).expect("written");
        let text = fs::read_to_string(&path).expect("there");
        fs::write(&path, format!("{text}half of a li")).expect("written");
        let (mut results, done) = Results::open(&path).expect("readable");
        let found: Vec<&Row> = done.values().collect();
        assert_eq!(found, [&row("a, \"b\""), &row("c").refused("no room".into())]);
        assert_eq!(fs::read_to_string(&path).expect("there"), text);
        results.append(&row("d")).expect("written");
        assert_eq!(Results::open(&path).expect("readable").1.len(), 3);
    }

    #[test]
    fn files_of_another_kind_are_refused_and_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let message = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("written");
            let refused = Results::open(&path).map(|_| ()).expect_err("refused").to_string();
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
            refused
        };
        assert!(message("a.txt", "").contains("extension .csv"));
        for foreign in ["x,y\n1,2\n", "x,y\n", "a note without an end"] {
            let refused = message("a.csv", foreign);
            assert!(refused.contains("columns of results"), "{refused}");
        }
    }
}
