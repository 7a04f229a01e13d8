//! Why a file was refused, or could not be written.

#[cfg(feature = "csv")]
use super::thesis::ThesisError;
use crate::cost::CostError;
use crate::graph::GraphError;
use crate::platform::PlatformError;

/// A file that was refused, and why.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {refusal}")]
pub struct FormatError {
    /// The file, as it was named.
    pub file: String,
    /// What is wrong with it.
    pub refusal: Refusal,
}

impl FormatError {
    pub(super) fn new(file: &str, refusal: Refusal) -> Self {
        FormatError { file: file.into(), refusal }
    }
}

/// What is wrong with a file. Places are paths into the file, such as `graph.tasks[3]`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is longer than what is read.
    #[error("is longer than {limit} bytes, the most that is read")]
    TooLong {
        /// Bytes that are read.
        limit: u64,
    },
    /// Nothing in it says what it is.
    #[error("is of no known format: {0}")]
    Unrecognised(&'static str),
    /// No JSON, or not of the shape that its format has.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A CSV file of the thesis that is not as it should be.
    #[cfg(feature = "csv")]
    #[error(transparent)]
    Thesis(#[from] ThesisError),
    /// A CSV file, where the crate is built without them.
    #[cfg(not(feature = "csv"))]
    #[error("is CSV, which is read with the feature `csv` of anabranch-placement")]
    WithoutCsv,
    /// A version that is not known.
    #[error("is of version {found}; {known} can be read")]
    Version {
        /// What the file says.
        found: String,
        /// What is known.
        known: &'static str,
    },
    /// A number outside its range.
    #[error("{place} is {value}, and should be {expected}")]
    Number {
        /// Where.
        place: String,
        /// What stands there.
        value: f64,
        /// What should.
        expected: &'static str,
    },
    /// A name or number of something that is not there.
    #[error("{place} names the {what} {name:?}, which the file does not define")]
    Unknown {
        /// Where.
        place: String,
        /// Kind of thing.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two things of one name, or two statements about one thing.
    #[error("{place}: the {what} {name:?} is there twice")]
    Twice {
        /// Where the second is.
        place: String,
        /// Kind of thing.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Something that the format demands, or that a problem needs, is not there.
    #[error("{place} has no {what}")]
    Missing {
        /// Where.
        place: String,
        /// What is missing.
        what: &'static str,
    },
    /// Graphs could go on several platforms.
    #[error("there are several platforms; name one")]
    SeveralPlatforms,
    /// A list of the wrong length.
    #[error("{place} has {found} entries, and should have {expected}")]
    Length {
        /// The list.
        place: String,
        /// Its length.
        found: usize,
        /// What it should be.
        expected: usize,
    },
    /// More than what is read.
    #[error("has {count} {what}; at most {limit} are read")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: u64,
        /// How many are read.
        limit: u64,
    },
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
        /// The format.
        format: &'static str,
        /// What it cannot hold, and where that is.
        what: String,
    },
    /// Not one device for each task.
    #[error("the placement names {given} devices for {tasks} tasks")]
    Placement {
        /// Tasks of the graph.
        tasks: usize,
        /// Devices that were given.
        given: usize,
    },
}
