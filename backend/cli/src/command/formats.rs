//! `anabranch formats`: the files that commands exchange, each with an example and a schema.

use super::assignment::Assignment;
use super::schedule_file::ScheduleFile;
use super::{CliError, Output, pretty, write_file};
use anabranch::pipeline::StageMapping;
use anabranch::plan_file::PlanFile;
use anabranch::session::RunEvents;
use anabranch::{CostStore, PlatformFile, did_you_mean};
use anabranch_placement::format::json;
use anabranch_placement::pipeline::document;
use anabranch_report::table::Table;
use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, schema_for};
use serde::Serialize;
use serde_json::Value;
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
}

/// A format with its schema.
#[derive(Serialize)]
struct WithSchema {
    #[serde(flatten)]
    format: Format,
    schema: String,
}

/// Makes a format whose example is in `formats/`.
macro_rules! entry {
    ($name:literal, $file:literal, $holds:literal, $written:literal, $read:literal) => {
        Format {
            name: $name,
            file: $file,
            holds: $holds,
            written_by: $written,
            read_by: $read,
            example: include_str!(concat!("../formats/", $file)),
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
                let wanted = named.map_or(&FORMATS[..], std::slice::from_ref);
                let files =
                    wanted.iter().map(|format| format.files(directory)).collect::<Result<Vec<_>, _>>()?.concat();
                files.iter().try_for_each(|(path, content)| keep(path, content))?;
                files.iter().try_for_each(|(path, content)| write_file(path, content))
            }
            (None, Some(format)) if self.schema => output.text(&format.schema()?),
            (None, Some(format)) => output.text_or_json(|| described(format), &format.with_schema()?),
            (None, None) => {
                let formats = FORMATS.iter().map(Format::with_schema).collect::<Result<Vec<_>, _>>()?;
                output.text_or_json(listed, &formats)
            }
        }
    }
}

impl Format {
    /// Returns the schema of the type that reads or writes the files. CSV files, which have no type, have a schema in
    /// `formats/`.
    fn schema(&self) -> Result<String, CliError> {
        let schema = match self.name {
            "plan" => schema_for!(PlanFile),
            "platform" => schema_for!(PlatformFile),
            "problem" => json::schema(),
            "graph" => return Ok(include_str!("../formats/graph.schema.json").into()),
            "devices" => return Ok(include_str!("../formats/devices.schema.json").into()),
            "assignment" => schema_for!(Assignment),
            // No command reads a schedule.
            "schedule" => {
                SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<ScheduleFile>()
            }
            "schedule-csv" => return Ok(include_str!("../formats/schedule-csv.schema.json").into()),
            "events" => schema_for!(RunEvents),
            "pipeline" => document::schema(),
            "pipeline-csv" => return Ok(include_str!("../formats/pipeline-csv.schema.json").into()),
            "stages" => schema_for!(StageMapping),
            "costs" => schema_for!(CostStore),
            other => unreachable!("{other} is not in the list of formats"),
        };
        pretty(&self.titled(schema))
    }

    /// Adds what the list says about the format to its schema.
    fn titled(&self, mut schema: Schema) -> Schema {
        RecursiveTransform(join_lines).transform(&mut schema);
        let Self { name, holds, written_by, read_by, .. } = self;
        let mut description = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        for (what, commands) in [("Written by", written_by), ("Read by", read_by)] {
            if *commands != "—" {
                description += &format!(" {what}: {commands}.");
            }
        }
        schema.insert("title".into(), format!("{name}: {holds}").into());
        schema.insert("description".into(), description.into());
        schema
    }

    fn with_schema(&self) -> Result<WithSchema, CliError> {
        Ok(WithSchema { format: *self, schema: self.schema()? })
    }

    /// Returns the example and the schema as files of a directory.
    fn files(&self, directory: &Path) -> Result<[(PathBuf, String); 2], CliError> {
        let schema = directory.join(format!("{}.schema.json", self.name));
        Ok([(directory.join(self.file), self.example.into()), (schema, self.schema()?)])
    }
}

/// Joins the lines of a description, which is a comment in the source.
fn join_lines(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
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

    /// Returns the members of all objects that have no description, or a description with marks of rustdoc.
    fn undescribed(schema: &Value) -> Vec<&str> {
        let is_plain = |text: &str| !text.contains("[`") && !text.contains("::");
        let members = schema["properties"].as_object().into_iter().flatten();
        let lacking = members.filter(|(_, member)| !member["description"].as_str().is_some_and(is_plain));
        let mut names: Vec<_> = lacking.map(|(name, _)| name.as_str()).collect();
        let inner = schema.as_object().into_iter().flat_map(|members| members.values());
        let inner = inner.chain(schema.as_array().into_iter().flatten());
        inner.for_each(|schema| names.extend(undescribed(schema)));
        names
    }

    #[test]
    fn every_format_is_found_and_its_schema_describes_all_members() {
        for format in &FORMATS {
            assert_eq!(find(format.name).expect("it is there").file, format.file);
            let schema: Value = serde_json::from_str(&format.schema().expect("a schema")).expect(format.name);
            assert!(schema["title"].is_string() && !format.example.is_empty(), "{}", format.name);
            assert_eq!(undescribed(&schema), Vec::<&str>::new(), "{}", format.name);
        }
        let error = find("plam").expect_err("there is none").to_string();
        assert!(error.contains("did you mean `plan`?") && error.contains("schedule-csv"), "{error}");
    }
}
