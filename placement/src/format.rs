//! Reading and writing of graphs, platforms and problems.
//!
//! | format | read | written | module |
//! |---|---|---|---|
//! | our JSON: graph, platform, times, links | yes | yes | [`json`] |
//! | CSV files of graphs and devices (Laich 2017), with the feature `csv` | yes | yes | `thesis` |
//! | JSON instances of list-scheduling libraries | yes | | [`schedulers`] |
//! | JSON of profiled networks on CPUs and accelerators | yes | | [`profiled`] |
//! | WfCommons workflows, schema 1.2 to 1.6 | yes | | [`wfcommons`] |
//! | instances of SAGA and DAGBench | yes | | [`saga`] |
//! | logical graphs of DALiuGE, unrolled | yes | | [`logical`] |
//! | physical graphs of DALiuGE | | yes | [`logical`] |
//! | DOT | | yes | [`dot`] |
//!
//! [`read`] detects the format of a file by its content. For any content it returns a value or a [`FormatError`] that
//! names file and position. Sizes are checked before anything is allocated for them.

mod amount;
mod detect;
pub mod dot;
mod error;
pub mod json;
mod loaded;
pub mod profiled;
pub mod saga;
pub mod schedulers;
#[cfg(feature = "csv")]
pub mod thesis;
pub mod wfcommons;

pub use crate::cost::TimeTable;
pub use crate::loaded::{Costs, Facts, LoadedProblem};
pub use detect::{Format, detect};
pub use error::{FormatError, Refusal, WriteError};
pub use loaded::{Loaded, LoadedGraph};

use crate::logical;
use crate::problem::MemoryRule;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Greatest length of a file, in bytes.
pub const MAX_BYTES: u64 = 1 << 28;

/// Most pairs of a task and a device in all problems of one file.
pub const MAX_CELLS: u64 = 1 << 27;

/// Reads a file of any format that [`detect()`] knows.
///
/// # Errors
/// Returns an error if a file cannot be read, is longer than [`MAX_BYTES`], has an unknown format, or does not follow
/// its format.
pub fn read(path: impl AsRef<Path>) -> Result<Loaded, FormatError> {
    let (name, bytes) = load(path.as_ref())?;
    parse(&name, &bytes)
}

/// Returns the name of a file for errors, and its bytes: at most one more than the limit.
pub(crate) fn load(path: &Path) -> Result<(String, Vec<u8>), FormatError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let mut load = || File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    match load() {
        Ok(_) => Ok((name, bytes)),
        Err(error) => Err(FormatError::new(&name, error.into())),
    }
}

/// Parses the contents of a file. `name` is the file's name in errors. Parts without a name in the file are called
/// `name` without folders and extension.
///
/// # Errors
/// As [`read`].
pub fn parse(name: &str, bytes: &[u8]) -> Result<Loaded, FormatError> {
    parse_content(&stem(name), bytes).map_err(|refusal| FormatError::new(name, refusal))
}

fn parse_content(name: &str, bytes: &[u8]) -> Result<Loaded, Refusal> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Refusal::TooLong { limit: MAX_BYTES });
    }
    let graph = |(graph, task_ids), memory_rule, time_unit: Option<&str>| {
        let (name, time_unit) = (name.into(), time_unit.map(Into::into));
        Loaded::Graph(Box::new(LoadedGraph { name, graph, memory_rule, time_unit, task_ids }))
    };
    let loaded = match detect(bytes)? {
        Format::Anabranch => json::parse(name, bytes)?,
        #[cfg(feature = "csv")]
        Format::ThesisGraph => graph(thesis::read_graph(bytes)?, MemoryRule::SizeEstimate, None),
        #[cfg(feature = "csv")]
        Format::ThesisPlatform => Loaded::Platform(thesis::read_platform(bytes)?),
        #[cfg(not(feature = "csv"))]
        Format::ThesisGraph | Format::ThesisPlatform => return Err(Refusal::WithoutCsv),
        Format::WfCommons => graph((wfcommons::parse(bytes)?, Vec::new()), MemoryRule::Resident, Some("s")),
        Format::Logical => {
            let workload = logical::parse(name, bytes)?.unroll()?.workload(0)?;
            graph((workload.graph, Vec::new()), MemoryRule::Resident, None)
        }
        Format::Saga => Loaded::Problems(vec![saga::parse(name, bytes)?]),
        Format::Profiled => Loaded::Problems(vec![profiled::parse(name, bytes)?]),
        Format::Related => Loaded::Problems(schedulers::parse_related(name, bytes)?),
        Format::RelatedSet => Loaded::Problems(schedulers::parse_related_set(bytes)?),
        Format::Unrelated => Loaded::Problems(schedulers::parse_unrelated(name, bytes)?),
        Format::UnrelatedSet => Loaded::Problems(schedulers::parse_unrelated_set(bytes)?),
    };
    if let Loaded::Problems(problems) = &loaded {
        loaded::check_cells(
            problems.iter().map(|problem| (problem.graph.task_count(), problem.platform.device_count())),
        )?;
    }
    Ok(loaded)
}

/// Reads several files and combines them into problems: problems as they are, and each graph on the one platform among
/// the files.
///
/// # Errors
/// Returns the errors of [`read`], and an error for graphs without a platform, several platforms, or files without any
/// problem.
pub fn read_problems<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<LoadedProblem>, FormatError> {
    let parts = paths.iter().map(read).collect::<Result<Vec<Loaded>, FormatError>>()?;
    let names: Vec<String> = paths.iter().map(|path| path.as_ref().display().to_string()).collect();
    loaded::combine(parts).map_err(|refusal| FormatError::new(&names.join(", "), refusal))
}

/// Returns the file name of a path, without its extension.
pub(crate) fn stem(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_there_or_of_no_format_are_refused_by_name() {
        let missing = read("no/such/file.json").unwrap_err().to_string();
        assert!(missing.starts_with("no/such/file.json: "), "{missing}");
        for content in ["", "   ", "plain text", "a,b\n", "{}", "[1, 2]", "{\"a\": {\"b\": 1}}", "\"text\"", "\u{feff}"]
        {
            let error = parse("odd", content.as_bytes()).unwrap_err();
            assert!(matches!(error.refusal, Refusal::Unrecognised(_)), "{content}: {error}");
        }
    }

    #[test]
    fn broken_json_is_refused_with_its_line() {
        let error = parse("broken.json", b"{\n\"format\": \"anabranch-problem\",\n]").unwrap_err().to_string();
        assert!(error.starts_with("broken.json: ") && error.contains("line 3"), "{error}");
    }

    /// If a file is cut off, doubled or overwritten anywhere, parsing returns a value or an error.
    #[test]
    fn damaged_files_never_panic() {
        let sources: [&[u8]; 8] = [
            include_bytes!("../tests/data/formats/saga.json"),
            include_bytes!("../tests/data/formats/workflow_1.2.json"),
            include_bytes!("../tests/data/formats/related.json"),
            include_bytes!("../tests/data/formats/unrelated.json"),
            include_bytes!("../tests/data/formats/workflow_1.6.json"),
            include_bytes!("../tests/data/formats/workflow_1.4.json"),
            include_bytes!("../tests/data/formats/example.json"),
            b"id,out,in,colocated,tensor,operations,memory,constraint,name\n0,1;2,,,1,2,3,GPU,a\n1,,,0,1,2,3,NO,b\n2,,,,1,2,3,NO,c\n",
        ];
        arbtest::arbtest(|random| {
            let mut bytes = random.choose(&sources)?.to_vec();
            for _ in 0..random.int_in_range(1..=4u8)? {
                let at = random.int_in_range(0..=bytes.len() - 1)?;
                match random.int_in_range(0..=3u8)? {
                    0 => bytes.truncate(at + 1),
                    1 => bytes[at] = *random.choose(b"\"{}[],:;-0919eE.nulltrue \n\xff")?,
                    2 => {
                        let piece = bytes[at..(at + 9).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                    _ => drop(bytes.splice(at..at, *b"18446744073709551616")),
                }
            }
            if let Ok(Loaded::Problems(problems)) = parse("damaged", &bytes) {
                problems.iter().for_each(|problem| drop(problem.problem()));
            }
            Ok(())
        })
        .budget_ms(700);
    }
}
