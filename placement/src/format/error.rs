//! Errors of reading and writing files.

use crate::cost::CostError;
use crate::graph::GraphError;
use crate::platform::PlatformError;
use crate::quoted::Line;

/// Error that names a file and the reason why it is rejected.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {}", Line(refusal))]
pub struct FormatError {
    /// File, as it was named.
    pub file: String,
    /// Reason.
    pub refusal: Refusal,
}

impl FormatError {
    pub(crate) fn new(file: &str, refusal: Refusal) -> Self {
        FormatError { file: file.into(), refusal }
    }
}

/// Reason why a file is rejected. Places are paths into the file, such as `graph.tasks[3]`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Refusal {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file exceeds the length limit.
    #[error("is longer than the limit of {limit} bytes")]
    TooLong { limit: u64 },
    /// The format is unknown.
    #[error("has an unknown format: {0}")]
    Unrecognised(&'static str),
    /// The file is not JSON, or does not have the structure of its format.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The file is not CSV.
    #[cfg(feature = "csv")]
    #[error("cannot be read as CSV: {0}")]
    Csv(#[from] csv::Error),
    /// A field of a CSV file has an invalid value.
    #[error("line {line}: {field} is {value:?}, but should be {expected}")]
    Field { line: u64, field: &'static str, value: String, expected: &'static str },
    /// The file is CSV, but the crate is built without the feature `csv`.
    #[cfg(not(feature = "csv"))]
    #[error("is CSV, which needs the feature `csv` of anabranch-placement")]
    WithoutCsv,
    /// The version is unknown.
    #[error("has the format or version {found}, but must have {known}")]
    Version { found: String, known: &'static str },
    /// The field with the version is missing.
    #[error("has no `{field}`, but must have {known}")]
    Unversioned { field: &'static str, known: &'static str },
    /// A number outside its range.
    #[error("{place} is {value}, but should be {expected}")]
    Number { place: String, value: f64, expected: &'static str },
    /// A string is invalid.
    #[error("{place} is {found:?}, but should be {expected}")]
    Text { place: String, found: String, expected: &'static str },
    /// A name or number refers to a thing that does not exist.
    #[error("{place} names the {what} {name:?}, but the file does not define it")]
    Unknown { place: String, what: &'static str, name: String },
    /// A name or a definition occurs twice.
    #[error("{place}: the {what} {name:?} occurs twice")]
    Twice { place: String, what: &'static str, name: String },
    /// A required part is missing.
    #[error("{place} has no {what}")]
    Missing { place: String, what: &'static str },
    /// There are several platforms for the graphs.
    #[error("there are several platforms; name one")]
    SeveralPlatforms,
    /// A list of the wrong length.
    #[error("{place} has {found} entries, but should have {expected}")]
    Length { place: String, found: usize, expected: usize },
    /// A construct of the format is not supported.
    #[error("{place} cannot be unrolled: it is {what}")]
    Unsupported { place: String, what: String },
    /// A number of things exceeds its limit.
    #[error("has {count} {what}, but the limit is {limit}")]
    TooMany { what: &'static str, count: u64, limit: u64 },
    /// The description is not a valid graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The description is not a valid platform.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// A time is negative or not finite.
    #[error(transparent)]
    Cost(#[from] CostError),
}

/// Reason why a value could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum WriteError {
    /// The target failed.
    #[error("cannot write: {0}")]
    Io(#[from] std::io::Error),
    /// The value could not be converted to JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A row could not be converted to CSV.
    #[cfg(feature = "csv")]
    #[error("cannot write CSV: {0}")]
    Csv(#[from] csv::Error),
    /// The format cannot represent a part of the value.
    #[error("{format} cannot hold {what}; write JSON instead")]
    Unrepresentable {
        format: &'static str,
        /// The part that it cannot represent, with its place.
        what: String,
    },
}
