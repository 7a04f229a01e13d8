//! A node of a logical graph, and what its fields say.

use crate::format::Refusal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Application,
    /// A group of which there are so many copies.
    Scatter,
    /// A group for each so many of its inputs.
    Gather,
    /// A group for each index of a scatter.
    GroupBy,
    /// A group that runs so often, one after the other.
    Loop,
    /// A group that is there once.
    SubGraph,
    Unsupported,
}

impl Kind {
    /// The kind of a category; none where it stands for nothing that runs.
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

/// Categories of data in files that do not say so themselves.
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

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogicalNode {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) category: String,
    /// The place of the construct that it is in.
    pub(super) group: Option<usize>,
    /// Copies of a scatter, inputs of a gather, iterations of a loop; 1 else.
    pub(super) count: u32,
    /// The keys of the scatters that a group-by goes by; none for the innermost.
    pub(super) group_keys: Vec<String>,
    pub(super) starts_group: bool,
    pub(super) ends_group: bool,
    /// An application's time.
    pub(super) time: f64,
    pub(super) cores: u64,
    /// A datum's volume.
    pub(super) volume: u64,
    /// All that its fields say.
    pub(super) fields: Arc<BTreeMap<String, String>>,
}

/// Volume of data of which a file does not say one, and time of such an application, as in DALiuGE.
const USUAL: f64 = 5.0;

/// A field that does not hold what it should.
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

/// Whether a field's text says yes.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes")
}

/// Whether a number counts copies, inputs or iterations.
fn is_count(value: f64) -> bool {
    (1.0..=1e6).contains(&value) && value.fract() == 0.0
}

/// Whether a number is from 0 to `most`.
fn upto(most: f64) -> impl Fn(f64) -> bool {
    move |value| (0.0..=most).contains(&value)
}

/// The first of some fields that is there and says anything; `usual` where none is.
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
