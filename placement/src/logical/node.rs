//! Node of a logical graph, with the meaning of its fields.

use crate::format::Refusal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Application,
    /// A group with several parallel copies.
    Scatter,
    /// A group with one copy per `count` inputs.
    Gather,
    /// A group with one copy per index of a scatter.
    GroupBy,
    /// A group that runs several times in sequence.
    Loop,
    /// A group with one copy.
    SubGraph,
    Unsupported,
}

impl Kind {
    /// Returns the kind of a category; `None` if its nodes are not unrolled.
    pub(super) fn of(category: &str, category_type: Option<&str>) -> Option<Self> {
        match (category, category_type) {
            ("Comment" | "Description" | "Variables" | "Start" | "GlobalVariable", _) => None,
            ("Scatter", _) => Some(Kind::Scatter),
            ("Gather", _) => Some(Kind::Gather),
            ("GroupBy", _) => Some(Kind::GroupBy),
            ("Loop", _) => Some(Kind::Loop),
            ("SubGraph", _) => Some(Kind::SubGraph),
            ("MKN" | "MPI" | "Mpi" | "Service" | "ExclusiveForceNode", _) => Some(Kind::Unsupported),
            ("End", _) | (_, Some("Data")) => Some(Kind::Data),
            (_, Some("Application" | "Control")) => Some(Kind::Application),
            (category, _) if DATA.contains(&category) => Some(Kind::Data),
            (_, Some("Unknown") | None) => Some(Kind::Application),
            (_, Some(_)) => Some(Kind::Unsupported),
        }
    }

    pub(super) fn is_group(self) -> bool {
        matches!(self, Kind::Scatter | Kind::Gather | Kind::GroupBy | Kind::Loop | Kind::SubGraph)
    }
}

/// Categories of data in files without a category type.
const DATA: [&str; 12] = [
    "Data",
    "File",
    "Memory",
    "SharedMemory",
    "NGAS",
    "S3",
    "ParameterSet",
    "EnvironmentVariables",
    "Plasma",
    "PlasmaFlight",
    "Array",
    "Null",
];

/// Node of a logical graph.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogicalNode {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) category: String,
    /// Position of the construct that contains the node.
    pub(super) group: Option<usize>,
    /// Number of copies of a scatter, inputs of a gather, or iterations of a loop; otherwise 1.
    pub(super) count: u32,
    /// Keys of the scatters that a group-by groups by; empty for the innermost scatter.
    pub(super) group_keys: Vec<String>,
    pub(super) starts_group: bool,
    pub(super) ends_group: bool,
    /// Time of an application.
    pub(super) time: f64,
    pub(super) cores: u64,
    /// Volume of a datum.
    pub(super) volume: u64,
    /// All fields of the node.
    pub(super) fields: Arc<BTreeMap<String, String>>,
}

/// Default volume of data, and default time of applications, as in DALiuGE.
const USUAL: f64 = 5.0;

/// Error for a field with an invalid value.
pub(super) struct Odd {
    field: &'static str,
    found: String,
    expected: &'static str,
}

impl Odd {
    pub(super) fn at(self, place: &str) -> Refusal {
        let Self { field, found, expected } = self;
        Refusal::Text { place: format!("{field} of {place}"), found, expected }
    }
}

impl LogicalNode {
    pub(super) fn new(
        key: &str,
        name: &str,
        kind: Kind,
        category: &str,
        fields: &BTreeMap<String, String>,
    ) -> Result<Self, Odd> {
        let counted: &[&'static str] = match kind {
            Kind::Scatter => &["num_of_copies", "num_of_splits", "Number of copies"],
            Kind::Gather => &["num_of_inputs", "Number of inputs", "gather_width"],
            Kind::Loop => &["num_of_iter", "Number of Iterations", "Number of loops"],
            _ => &[],
        };
        let usual_count = if kind == Kind::Scatter { 4.0 } else { 1.0 };
        let keys = fields.get("group_key").map_or("", String::as_str);
        let flag = |field: &str| fields.get(field).is_some_and(|value| is_true(value));
        Ok(LogicalNode {
            key: key.into(),
            name: name.into(),
            kind,
            category: category.into(),
            group: None,
            count: number(fields, counted, usual_count, is_count, "a whole number from 1 to a million")? as u32,
            group_keys: match keys {
                "" | "None" | "-1" => Vec::new(),
                keys => keys.split(',').map(|key| key.trim().to_owned()).collect(),
            },
            starts_group: flag("group_start"),
            ends_group: flag("group_end"),
            time: number(fields, &["execution_time"], USUAL, upto(1e15), "a time of 0 or more")?,
            cores: number(fields, &["num_cpus"], 1.0, upto(1e9), "a number of cores")? as u64,
            volume: number(fields, &["data_volume"], USUAL, upto(9e15), "a size of 0 or more")? as u64,
            fields: Arc::new(fields.clone()),
        })
    }
}

/// Whether a field's text means true.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes")
}

/// Whether a number is a valid count of copies, inputs or iterations.
fn is_count(value: f64) -> bool {
    (1.0..=1e6).contains(&value) && value.fract() == 0.0
}

/// Whether a number is from 0 to `most`.
fn upto(most: f64) -> impl Fn(f64) -> bool {
    move |value| (0.0..=most).contains(&value)
}

/// Returns the value of the first of some fields that exists and is not empty; `usual` if there is none.
fn number(
    fields: &BTreeMap<String, String>,
    names: &[&'static str],
    usual: f64,
    is_right: impl Fn(f64) -> bool,
    expected: &'static str,
) -> Result<f64, Odd> {
    let said = names.iter().find_map(|&name| Some((name, fields.get(name).filter(|value| !value.trim().is_empty())?)));
    let Some((field, text)) = said else { return Ok(usual) };
    match text.trim().parse::<f64>() {
        Ok(value) if is_right(value) => Ok(value),
        _ => Err(Odd { field, found: text.trim().to_owned(), expected }),
    }
}
