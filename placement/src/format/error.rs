//! Why a file was refused, or could not be written.

use crate::cost::CostError;
use crate::graph::GraphError;
use crate::platform::PlatformError;
use crate::quoted::Line;

/// A file that was refused, and why.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {}", Line(refusal))]
pub struct FormatError {
    /// The file, as it was named.
    pub file: String,
    /// What is wrong with it.
    pub refusal: Refusal,
}

impl FormatError {
    pub(crate) fn new(file: &str, refusal: Refusal) -> Self {
        FormatError { file: file.into(), refusal }
    }
}

/// What is wrong with a file. Places are paths into the file, such as `graph.tasks[3]`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Refusal {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is longer than what is read.
    #[error("is longer than {limit} bytes, the most that is read")]
    TooLong { limit: u64 },
    /// Nothing in it says what it is.
    #[error("is of no known format: {0}")]
    Unrecognised(&'static str),
    /// No JSON, or not of the shape that its format has.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Not CSV.
    #[cfg(feature = "csv")]
    #[error("cannot be read as CSV: {0}")]
    Csv(#[from] csv::Error),
    /// A field of a CSV file does not hold what it should.
    #[error("line {line}: {field} is {value:?}, and should be {expected}")]
    Field { line: u64, field: &'static str, value: String, expected: &'static str },
    /// A CSV file, where the crate is built without them.
    #[cfg(not(feature = "csv"))]
    #[error("is CSV, which is read with the feature `csv` of anabranch-placement")]
    WithoutCsv,
    /// A version that is not known.
    #[error("is of version {found}; {known} can be read")]
    Version { found: String, known: &'static str },
    /// A number outside its range.
    #[error("{place} is {value}, and should be {expected}")]
    Number { place: String, value: f64, expected: &'static str },
    /// A text where something else should be.
    #[error("{place} is {found:?}, and should be {expected}")]
    Text { place: String, found: String, expected: &'static str },
    /// A name or number of something that is not there.
    #[error("{place} names the {what} {name:?}, which the file does not define")]
    Unknown { place: String, what: &'static str, name: String },
    /// Two things of one name, or two statements about one thing.
    #[error("{place}: the {what} {name:?} is there twice")]
    Twice { place: String, what: &'static str, name: String },
    /// Something that the format demands, or that a problem needs, is not there.
    #[error("{place} has no {what}")]
    Missing { place: String, what: &'static str },
    /// Graphs could go on several platforms.
    #[error("there are several platforms; name one")]
    SeveralPlatforms,
    /// A list of the wrong length.
    #[error("{place} has {found} entries, and should have {expected}")]
    Length { place: String, found: usize, expected: usize },
    /// Something of the format that is not read.
    #[error("{place} is {what}, which is not unrolled; replace it by what it stands for")]
    Unsupported { place: String, what: String },
    /// More than what is read.
    #[error("has {count} {what}; at most {limit} are read")]
    TooMany { what: &'static str, count: u64, limit: u64 },
    /// What it describes is no graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// What it describes is no platform.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// It holds a time that is none.
    #[error(transparent)]
    Cost(#[from] CostError),
}

/// Why something could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum WriteError {
    /// The target failed.
    #[error("cannot write: {0}")]
    Io(#[from] std::io::Error),
    /// A value did not become JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A row did not become CSV.
    #[cfg(feature = "csv")]
    #[error("cannot write CSV: {0}")]
    Csv(#[from] csv::Error),
    /// The format has no place for something.
    #[error("{format} has no place for {what}; write JSON instead")]
    Unrepresentable {
        format: &'static str,
        /// What it cannot hold, and where that is.
        what: String,
    },
}
