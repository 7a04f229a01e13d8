//! Pipeline problems from files: JSON, and CSV with the feature `csv`.
//!
//! ```json
//! {
//! "format": "anabranch-pipeline",
//! "version": 1,
//! "name": "frames",
//! "stages": [
//!   {"name": "decode", "work": 14, "kind": "data-parallel", "serial": 0.1, "weights": 0, "activations": 4096},
//!   {"name": "detect", "times": [4.0, null, 2.5]}
//! ],
//! "data": [100, 20, 1],
//! "processors": [{"name": "cpu0", "speed": 2}, {"name": "cpu1"}, {"name": "gpu0"}],
//! "link": {"latency": 1e-5, "bandwidth": 1e10},
//! "links": [{"from": "outside", "to": "gpu0", "latency": 2e-5, "bandwidth": 8e9}],
//! "memories": [{"bytes": 1000000, "processors": ["cpu0", "cpu1"]}],
//! "teams": [["cpu0", "cpu1"]],
//! "rules": {"communication": "overlapped", "replication": true, "parallel": "stage"}
//! }
//! ```
//!
//! | member | meaning | default |
//! |---|---|---|
//! | `format`, `version` | `anabranch-pipeline`, 1 | required |
//! | `name` | name of the pipeline | name of the file |
//! | `stages[].name` | name of the stage | its number |
//! | `stages[].times` | seconds per input on each processor, `null` if it cannot run | `work` over speed |
//! | `stages[].work` | operations per input | required without `times` |
//! | `stages[].kind` | `monolithic`, `replicable` or `data-parallel` | `replicable` |
//! | `stages[].serial` | share of the time that a data-parallel group does not divide | 0 |
//! | `stages[].weights`, `.activations` | bytes that stay, and bytes that each processor needs while it runs | 0 |
//! | `data` | bytes into the first stage, between stages, and out of the last | required |
//! | `processors[].name` | unique name, not `outside` | required |
//! | `processors[].speed` | operations per second | 1 |
//! | `link` | `latency` (s) and `bandwidth` (bytes/s, `null`: no limit) of all links | links take no time |
//! | `links[]` | the link `from` a port `to` another (processor or `outside`) | as `link` |
//! | `memories[]` | `bytes` of a memory, and the `processors` that work in it | no limit |
//! | `teams[]` | processors of one memory that can form a group | any can |
//! | `rules` | [`Rules`] | one-port, replication, nothing data-parallel |
//!
//! A team is processors that can form a data-parallel group, which receives a datum as a whole. Without teams, any
//! processors can, and they receive a datum part by part.
//!
//! A CSV file has a head line and one line per stage. The columns are `stage`, `in` and `out` (bytes), optionally
//! `kind`, `weights` and `activations`, and a column of seconds per processor. The `out` of a stage equals the `in` of
//! the next. A time is empty if the stage cannot run. All links are identical.
//!
//! ```csv
//! stage,in,out,kind,cpu0,cpu1,gpu0
//! decode,100,20,replicable,0.007,0.014,
//! detect,20,1,data-parallel,0.004,0.004,0.0025
//! ```

use super::problem::{MAX_PROCESSORS, MAX_STAGES, Rules};
use super::processors::{Link, Port, Processors};
use super::stages::{Stage, StageKind, Stages};
use crate::format::{FormatError, MAX_BYTES, Refusal, load, stem};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const FORMAT: &str = "anabranch-pipeline";
const VERSION: u32 = 1;

/// Contents of a file. They are not verified: [`Problem::new`](super::Problem::new) does that.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Name in the file, or else the name of the file.
    pub name: String,
    /// The chain.
    pub stages: Stages,
    /// The processors.
    pub processors: Processors,
    /// The rules of mapping.
    pub rules: Rules,
    /// Whether the file is CSV, which does not describe links.
    pub is_table: bool,
}

/// Reads a file of either format. CSV files do not describe links: all of theirs are `link`.
///
/// # Errors
/// Returns an error if the file cannot be read, or does not follow its format.
pub fn read(path: impl AsRef<Path>, link: Link) -> Result<Document, FormatError> {
    let (name, bytes) = load(path.as_ref())?;
    parse(&name, &bytes, link)
}

/// Parses the contents of a file. Errors call the file `name`.
///
/// # Errors
/// As [`read`].
pub fn parse(name: &str, bytes: &[u8], link: Link) -> Result<Document, FormatError> {
    let json =
        bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|&first| first == b'{' || first == b'[');
    if bytes.len() as u64 > MAX_BYTES {
        return Err(FormatError::new(name, Refusal::TooLong { limit: MAX_BYTES }));
    }
    let parsed = if json { parse_json(&stem(name), bytes) } else { table::parse(&stem(name), bytes, link) };
    parsed.map_err(|refusal| FormatError::new(name, refusal))
}

/// A chain of stages, and the processors that it is mapped to.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct File {
    /// Name of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = FORMAT)))]
    format: String,
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// Name of the pipeline (default: the name of the file).
    name: Option<String>,
    /// The stages, in the order in which each data set passes them.
    stages: Vec<StageEntry>,
    /// Bytes into the first stage, between stages, and out of the last stage: one number more than stages.
    #[cfg_attr(feature = "schema", schemars(inner(range(min = 0))))]
    data: Vec<f64>,
    /// The processors.
    processors: Vec<ProcessorEntry>,
    /// All links. Without this member, transfers take no time.
    #[serde(default)]
    link: LinkEntry,
    /// Links that differ from `link`.
    #[serde(default)]
    links: Vec<PairEntry>,
    /// Memories with a limit.
    #[serde(default)]
    memories: Vec<MemoryEntry>,
    /// Processors of one memory that can share a data set, which they receive as a whole. Without teams, any processors
    /// can share, and each receives its part.
    #[serde(default)]
    teams: Vec<Vec<String>>,
    /// Mappings that are allowed (default: one-port communication, replication, nothing data-parallel).
    #[serde(default)]
    rules: Rules,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct StageEntry {
    /// Name of the stage (default: its number).
    name: Option<String>,
    /// Operations per data set. A processor takes this number divided by its speed, in seconds. Required without
    /// `times`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    work: Option<f64>,
    /// Seconds per data set on each processor; null if the stage cannot run there.
    times: Option<Vec<Option<f64>>>,
    /// Number of processors that can work on the stage (default: replicable).
    #[serde(default)]
    kind: StageKind,
    /// Share of its time that processors which share a data set do not divide (default: 0).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    serial: f64,
    /// Bytes that stay on each of its processors (default: 0).
    #[serde(default)]
    weights: u64,
    /// Bytes that each of its processors needs while it runs (default: 0).
    #[serde(default)]
    activations: u64,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ProcessorEntry {
    /// Name of the processor; unique, and not `outside`.
    name: String,
    /// Operations per second (default: 1).
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    speed: f64,
}

fn one() -> f64 {
    1.0
}

#[derive(Deserialize, Default, Clone, Copy)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    /// Seconds before the first byte arrives (default: 0).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    latency: f64,
    /// Bytes per second; null is no limit (default: no limit).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    bandwidth: Option<f64>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct PairEntry {
    /// Sending processor, or `outside`, where data sets come from.
    from: String,
    /// Receiving processor, or `outside`, where results go.
    to: String,
    /// Seconds before the first byte arrives (default: 0).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    latency: f64,
    /// Bytes per second; null is no limit (default: no limit).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    bandwidth: Option<f64>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct MemoryEntry {
    /// Bytes that it holds.
    bytes: u64,
    /// Processors that work in it.
    processors: Vec<String>,
}

/// Returns the JSON Schema of a JSON file.
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(File)
}

fn parse_json(stem: &str, bytes: &[u8]) -> Result<Document, Refusal> {
    let file: File = serde_json::from_slice(bytes)?;
    if file.format != FORMAT {
        return Err(Refusal::Unrecognised("`format` is not anabranch-pipeline"));
    }
    if file.version != VERSION {
        return Err(Refusal::Version { found: file.version.to_string(), known: "1" });
    }
    check_counts(file.stages.len(), file.processors.len())?;
    let names: Vec<String> = file.processors.iter().map(|processor| processor.name.clone()).collect();
    let ports = ports(&names)?;
    let speed = |(place, processor): (usize, &ProcessorEntry)| match processor.speed {
        speed if speed > 0.0 && speed.is_finite() => Ok(speed),
        value => Err(Refusal::Number {
            place: format!("processors[{place}].speed"),
            value,
            expected: "finite and greater than zero",
        }),
    };
    let speeds = file.processors.iter().enumerate().map(speed).collect::<Result<Vec<f64>, Refusal>>()?;
    let stages = file.stages.into_iter().enumerate();
    let stages = stages.map(|(place, entry)| stage(place, entry, &speeds)).collect::<Result<Vec<Stage>, Refusal>>()?;
    let processors = processors(names, &ports, file.link, &file.links, &file.memories, &file.teams)?;
    let data = file.data.into_iter().enumerate().map(|(place, value)| bytes_of(place, value));
    let data = data.collect::<Result<Vec<u64>, Refusal>>()?;
    let name = file.name.unwrap_or_else(|| stem.to_owned());
    Ok(Document { name, stages: Stages::new(stages, data), processors, rules: file.rules, is_table: false })
}

/// Returns a number of bytes that is written as a float: 1e6 and 1000000.0 are equal.
fn bytes_of(place: usize, value: f64) -> Result<u64, Refusal> {
    /// Floating point represents every whole number up to here.
    const MOST: f64 = (1u64 << 53) as f64;
    match value.fract() == 0.0 && (0.0..=MOST).contains(&value) {
        true => Ok(value as u64),
        false => {
            let place = format!("data[{place}]");
            Err(Refusal::Number { place, value, expected: "a whole number of bytes, at most 2⁵³" })
        }
    }
}

fn check_counts(stages: usize, processors: usize) -> Result<(), Refusal> {
    for (what, count, limit) in [("stages", stages, MAX_STAGES), ("processors", processors, MAX_PROCESSORS)] {
        if count > limit {
            return Err(Refusal::TooMany { what, count: count as u64, limit: limit as u64 });
        }
    }
    Ok(())
}

fn stage(place: usize, entry: StageEntry, speeds: &[f64]) -> Result<Stage, Refusal> {
    let times = match (entry.times, entry.work) {
        (Some(times), _) => times,
        (None, Some(work)) => speeds.iter().map(|speed| Some(work / speed)).collect(),
        (None, None) => return Err(Refusal::Missing { place: format!("stages[{place}]"), what: "`times` or `work`" }),
    };
    let name = entry.name.unwrap_or_else(|| place.to_string());
    Ok(Stage::new(name, times)
        .with_kind(entry.kind)
        .with_serial(entry.serial)
        .with_memory(entry.weights, entry.activations))
}

/// Returns the ports by name.
fn ports(names: &[String]) -> Result<BTreeMap<String, Port>, Refusal> {
    let mut ports = BTreeMap::from([("outside".to_owned(), Port::Outside)]);
    for (place, name) in names.iter().enumerate() {
        if ports.insert(name.clone(), Port::Processor(place)).is_some() {
            let place = format!("processors[{place}]");
            return Err(Refusal::Twice { place, what: "processor", name: name.clone() });
        }
    }
    Ok(ports)
}

fn processors(
    names: Vec<String>,
    ports: &BTreeMap<String, Port>,
    all: LinkEntry,
    links: &[PairEntry],
    memories: &[MemoryEntry],
    teams: &[Vec<String>],
) -> Result<Processors, Refusal> {
    let place = |port: Port| match port {
        Port::Outside => names.len(),
        Port::Processor(place) => place,
    };
    let port = |place: String, name: &String| {
        let unknown = || Refusal::Unknown { place, what: "processor", name: name.clone() };
        ports.get(name).copied().ok_or_else(unknown)
    };
    let link = |latency, bandwidth: Option<f64>| Link { latency, bandwidth: bandwidth.unwrap_or(f64::INFINITY) };
    let mut own = BTreeMap::new();
    for (number, entry) in links.iter().enumerate() {
        let from = port(format!("links[{number}].from"), &entry.from)?;
        let to = port(format!("links[{number}].to"), &entry.to)?;
        own.insert((place(from), place(to)), link(entry.latency, entry.bandwidth));
    }
    let all = link(all.latency, all.bandwidth);
    let between = |from, to| own.get(&(place(from), place(to))).copied().unwrap_or(all);
    let mut processors = Processors::new(names.clone(), between);
    let member = |place: &String, name: &String| match port(place.clone(), name)? {
        Port::Processor(processor) => Ok(processor),
        Port::Outside => Err(Refusal::Unknown { place: place.clone(), what: "processor", name: name.clone() }),
    };
    let members = |place: String, names: &[String]| {
        names.iter().map(|name| member(&place, name)).collect::<Result<Vec<_>, Refusal>>()
    };
    for (number, memory) in memories.iter().enumerate() {
        let members = members(format!("memories[{number}].processors"), &memory.processors)?;
        processors = processors.with_memory(memory.bytes, members);
    }
    for (number, team) in teams.iter().enumerate() {
        processors = processors.with_team(members(format!("teams[{number}]"), team)?);
    }
    Ok(processors)
}

#[cfg(not(feature = "csv"))]
mod table {
    use super::*;

    pub(super) fn parse(_: &str, _: &[u8], _: Link) -> Result<Document, Refusal> {
        Err(Refusal::WithoutCsv)
    }
}

#[cfg(feature = "csv")]
mod table {
    use super::*;

    const FIELDS: [&str; 6] = ["stage", "in", "out", "kind", "weights", "activations"];

    pub(super) fn parse(stem: &str, bytes: &[u8], link: Link) -> Result<Document, Refusal> {
        let mut reader = csv::Reader::from_reader(bytes);
        let head = reader.headers()?.clone();
        let column = |name| head.iter().position(|other| other.trim() == name);
        let columns = FIELDS.map(column);
        if let Some((field, _)) = FIELDS.iter().zip(columns).take(3).find(|(_, column)| column.is_none()) {
            let what = "column of that name; it needs stage, in, out, and one per processor";
            return Err(Refusal::Missing { place: format!("`{field}` is missing: the head line"), what });
        }
        let times: Vec<usize> = (0..head.len()).filter(|column| !columns.contains(&Some(*column))).collect();
        let names: Vec<String> = times.iter().map(|&column| head[column].trim().to_owned()).collect();
        check_counts(0, names.len())?;
        ports(&names)?;
        let (mut stages, mut data) = (Vec::new(), Vec::new());
        for record in reader.records() {
            let record = record?;
            let line = record.position().map_or(0, csv::Position::line);
            let row = Row { record: &record, columns, line };
            check_counts(stages.len() + 1, 0)?;
            let (incoming, outgoing) = (row.bytes(1)?, row.bytes(2)?);
            if data.last().is_some_and(|&before| before != incoming) {
                return Err(row.refusal(1, "the `out` of the stage before"));
            }
            if data.is_empty() {
                data.push(incoming);
            }
            data.push(outgoing);
            let times = times.iter().map(|&column| row.seconds(column)).collect::<Result<Vec<_>, Refusal>>()?;
            let stage = Stage::new(row.text(0), times).with_kind(row.kind()?);
            stages.push(stage.with_memory(row.bytes(4)?, row.bytes(5)?));
        }
        let (stages, processors) = (Stages::new(stages, data), Processors::uniform(names, link));
        Ok(Document { name: stem.to_owned(), stages, processors, rules: Rules::default(), is_table: true })
    }

    struct Row<'a> {
        record: &'a csv::StringRecord,
        columns: [Option<usize>; 6],
        line: u64,
    }

    impl Row<'_> {
        fn text(&self, field: usize) -> &str {
            self.columns[field].and_then(|column| self.record.get(column)).unwrap_or("").trim()
        }

        fn refusal(&self, field: usize, expected: &'static str) -> Refusal {
            Refusal::Field { line: self.line, field: FIELDS[field], value: self.text(field).into(), expected }
        }

        fn bytes(&self, field: usize) -> Result<u64, Refusal> {
            match self.text(field) {
                "" if field > 2 => Ok(0),
                text => text.parse().map_err(|_| self.refusal(field, "a number of bytes")),
            }
        }

        fn kind(&self) -> Result<StageKind, Refusal> {
            match self.text(3) {
                "monolithic" => Ok(StageKind::Monolithic),
                "replicable" | "" => Ok(StageKind::Replicable),
                "data-parallel" => Ok(StageKind::DataParallel),
                _ => Err(self.refusal(3, "monolithic, replicable or data-parallel")),
            }
        }

        fn seconds(&self, column: usize) -> Result<Option<f64>, Refusal> {
            let text = self.record.get(column).unwrap_or("").trim();
            let expected = "seconds, or empty where the stage cannot run";
            let refusal = |_| Refusal::Field { line: self.line, field: "a time", value: text.into(), expected };
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(refusal) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Communication, Goal, Problem, choose};

    const EXAMPLE: &[u8] = include_bytes!("../../tests/data/pipeline/example.json");
    const TABLE: &[u8] = include_bytes!("../../tests/data/pipeline/example.csv");

    #[test]
    fn both_examples_are_problems() {
        let read = parse("dir/example.json", EXAMPLE, Link::FREE).unwrap();
        assert_eq!((read.name.as_str(), read.rules.communication), ("frames", Communication::Overlapped));
        assert_eq!(read.processors.link(Port::Outside, Port::Processor(3)).bandwidth, 8e9);
        assert_eq!(read.processors.memories().len(), 1);
        let problem = Problem::new(read.stages, read.processors, read.rules).unwrap();
        choose(&problem, Goal::Period).unwrap();
        let link = Link { latency: 1e-5, bandwidth: 1e9 };
        let read = parse("dir/table.csv", TABLE, link).unwrap();
        assert_eq!((read.name.as_str(), read.processors.link(Port::Outside, Port::Processor(0))), ("table", link));
        assert_eq!(read.stages.data.len(), read.stages.stages.len() + 1);
        let problem = Problem::new(read.stages, read.processors, read.rules).unwrap();
        choose(&problem, Goal::Period).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&str, &str); 10] = [
            ("", "EOF"),
            ("{}", "missing field"),
            (r#"{"format":"x","version":1,"stages":[],"data":[],"processors":[]}"#, "not anabranch-pipeline"),
            (r#"{"format":"anabranch-pipeline","version":2,"stages":[],"data":[],"processors":[]}"#, "version 2"),
            (
                r#"{"format":"anabranch-pipeline","version":1,"stages":[{}],"data":[0,0],"processors":[{"name":"a"}]}"#,
                "stages[0]",
            ),
            (
                r#"{"format":"anabranch-pipeline","version":1,"stages":[],"data":[],"processors":[{"name":"a","speed":0}]}"#,
                "processors[0].speed",
            ),
            (
                r#"{"format":"anabranch-pipeline","version":1,"stages":[],"data":[],"processors":[{"name":"a"}],"links":[{"from":"a","to":"b"}]}"#,
                "links[0].to",
            ),
            (
                r#"{"format":"anabranch-pipeline","version":1,"stages":[],"data":[],"processors":[{"name":"a"}],"teams":[["a"],["b"]]}"#,
                "teams[1]",
            ),
            ("stage,in,cpu\na,1,2\n", "out"),
            ("stage,in,out,cpu\na,1,2,3\nb,3,1,4\n", "line 3"),
        ];
        for (text, expected) in cases {
            let error = parse("odd", text.as_bytes(), Link::FREE).unwrap_err().to_string();
            assert!(error.starts_with("odd: ") && error.contains(expected), "{text}: {error}");
        }
    }

    /// If a file is cut off, doubled or overwritten anywhere, parsing returns a value or an error.
    #[test]
    fn damaged_files_never_panic() {
        arbtest::arbtest(|random| {
            let mut bytes = random.choose(&[EXAMPLE, TABLE])?.to_vec();
            for _ in 0..random.int_in_range(1..=4u8)? {
                let at = random.choose_index(bytes.len())?;
                match random.int_in_range(0..=2u8)? {
                    0 => bytes.truncate(at + 1),
                    1 => bytes[at] = *random.choose(b"\"{}[],:;-0919eE.null \n\xff")?,
                    _ => drop(bytes.splice(at..at, *b"18446744073709551616")),
                }
            }
            let read = parse("damaged", &bytes, Link::FREE).ok();
            let problem = read.and_then(|it| Problem::new(it.stages, it.processors, it.rules).ok());
            drop(problem.map(|problem| choose(&problem, Goal::Period)));
            Ok(())
        })
        .budget_ms(500);
    }
}
