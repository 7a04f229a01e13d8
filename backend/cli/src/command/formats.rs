//! `anabranch formats`: the files that commands exchange, each with an example and a schema.

use super::{CliError, Output, write_file};
use anabranch::did_you_mean;
use anabranch_report::table::Table;
use clap::Args;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  anabranch formats platform
  anabranch formats plan --schema > plan.schema.json
  anabranch formats --write examples && anabranch simulate examples/graph.csv examples/devices.csv";

/// List files that commands exchange, with examples and schemas
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FormatsCommand {
    /// The format to show; without one, all are listed
    #[arg(value_name = "FORMAT")]
    format: Option<String>,
    /// Print its schema
    ///
    /// This is a JSON Schema (2020-12), or the columns of a CSV file as a Table Schema.
    #[arg(long, requires = "format")]
    schema: bool,
    /// Write examples and schemas into this directory
    ///
    /// Examples are of all formats, or of the format that is named.
    ///
    /// No file there that has other content is overwritten.
    #[arg(long, value_name = "DIR", conflicts_with = "schema")]
    write: Option<PathBuf>,
}

/// A format of files.
#[derive(Clone, Copy, Debug, Serialize)]
struct Format {
    name: &'static str,
    /// File name of the example.
    file: &'static str,
    holds: &'static str,
    written_by: &'static str,
    read_by: &'static str,
    example: &'static str,
    schema: &'static str,
}

/// Makes a format whose files are in `formats/`.
macro_rules! entry {
    ($name:literal, $file:literal, $holds:literal, $written:literal, $read:literal) => {
        Format {
            name: $name,
            file: $file,
            holds: $holds,
            written_by: $written,
            read_by: $read,
            example: include_str!(concat!("../formats/", $file)),
            schema: include_str!(concat!("../formats/", $name, ".schema.json")),
        }
    };
}

/// All formats.
const FORMATS: [Format; 13] = [
    entry!(
        "plan",
        "plan.json",
        "which device runs which node, and when",
        "place -o, run -o, flow -o",
        "--place, flow --allocation"
    ),
    entry!("platform", "platform.json", "devices and links", "platform -o", "--platform, simulate"),
    entry!("problem", "problem.json", "a task graph with its devices", "graph -o", "simulate, sweep, fit"),
    entry!("graph", "graph.csv", "a task graph alone", "graph -o", "simulate, sweep, fit"),
    entry!("devices", "devices.csv", "devices for a graph", "—", "simulate, sweep, fit"),
    entry!("assignment", "assignment.json", "the device of each task", "simulate -o", "simulate --assignment"),
    entry!("schedule", "schedule.json", "tasks and transfers with their times", "place, simulate --schedule", "—"),
    entry!("schedule-csv", "schedule.csv", "tasks with their times", "place, simulate --schedule", "—"),
    entry!("events", "events.json", "what happened in a run", "run --profile", "—"),
    entry!("pipeline", "pipeline.json", "a chain of stages with its processors", "—", "pipeline"),
    entry!("pipeline-csv", "stages.csv", "the same, with links all alike", "—", "pipeline"),
    entry!(
        "stages",
        "stages.json",
        "which nodes are a stage, and on which devices",
        "pipe --write-plan",
        "pipe --plan"
    ),
    entry!("costs", "costs.json", "measured times, by machine", "run, calibrate, profile", "all that plan"),
];

impl FormatsCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let named = self.format.as_deref().map(find).transpose()?;
        match (&self.write, named) {
            (Some(directory), named) => {
                fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
                let wanted = FORMATS.iter().filter(|format| named.is_none_or(|named| named.name == format.name));
                let files: Vec<_> = wanted.flat_map(|format| format.files(directory)).collect();
                files.iter().try_for_each(|(path, content)| keep(path, content))?;
                files.iter().try_for_each(|(path, content)| write_file(path, content))
            }
            (None, Some(format)) if self.schema => output.text(format.schema),
            (None, Some(format)) => output.text_or_json(|| described(format), format),
            (None, None) => output.text_or_json(listed, &FORMATS),
        }
    }
}

impl Format {
    /// Returns the example and the schema as files of a directory.
    fn files(&self, directory: &Path) -> [(PathBuf, &'static str); 2] {
        let schema = directory.join(format!("{}.schema.json", self.name));
        [(directory.join(self.file), self.example), (schema, self.schema)]
    }
}

/// Refuses to overwrite a file with other content.
fn keep(path: &Path, content: &str) -> Result<(), CliError> {
    match fs::read(path) {
        Ok(there) if there != content.as_bytes() => {
            let problem = "it exists with other content, and is not overwritten; choose another directory";
            Err(CliError::in_file(path, problem))
        }
        _ => Ok(()),
    }
}

fn find(name: &str) -> Result<&'static Format, CliError> {
    FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
        let names = || FORMATS.iter().map(|format| format.name);
        let (meant, known) = (did_you_mean(name, names()), names().collect::<Vec<_>>().join(", "));
        CliError::input(format!("there is no format `{name}`{meant}; the formats are {known}"))
    })
}

fn listed() -> String {
    let mut table = Table::new("format | holds | written by | read by");
    for Format { name, holds, written_by, read_by, .. } in &FORMATS {
        table.row([name, holds, written_by, read_by].map(ToString::to_string));
    }
    format!("{table}\n`anabranch formats FORMAT` shows an example, and with --schema the schema\n")
}

fn described(format: &Format) -> String {
    let Format { name, file, holds, written_by, read_by, example, .. } = format;
    let head = format!("{name}: {holds}\nwritten by {written_by}; read by {read_by}\n");
    format!("{head}\n{file}:\n{example}\n`anabranch formats {name} --schema` prints the schema\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_and_its_schema_is_json() {
        for format in &FORMATS {
            assert_eq!(find(format.name).expect("it is there").file, format.file);
            let schema: serde_json::Value = serde_json::from_str(format.schema).expect(format.name);
            assert!(schema["title"].is_string() && !format.example.is_empty(), "{}", format.name);
        }
        let error = find("plam").expect_err("there is none").to_string();
        assert!(error.contains("did you mean `plan`?") && error.contains("schedule-csv"), "{error}");
    }
}
