//! `anabranch inspect`: describes a model, and lists everything that stops it from running.

mod attempt;
mod candidates;
mod facts;
mod obstacles;
mod search;
mod sizes;
mod work;

use super::args::{DeviceArgs, ModelArgs};
use super::inputs::read_inputs;
use super::open::{self, BUILT_IN};
use super::progress::waiting;
use super::{CliError, Output};
use anabranch::compiled::About;
use anabranch::device::format_bytes;
use anabranch::planning::{PlanChoice, Strategy};
use anabranch::session::{Inputs, Session, SessionError};
use anabranch_report::table::Table;
use anabranch_report::text::{amount, count, wrapped};
use attempt::Tried;
use clap::Args;
use facts::Facts;
use obstacles::Obstacle;
use search::Found;
use serde::Serialize;
use serde_json::Value;
use sizes::Sizes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use work::Work;

const EXAMPLES: &str = "\
Examples:
  anabranch inspect model.onnx --dim batch=8
  anabranch inspect model.onnx --dim 'x[1]=576' --json | jq .sizes
  anabranch inspect model.onnx -q >/dev/null && echo runs

Sizes that are not given are tried: 1, sizes that the model's nodes require, and usual sizes. Exit code 3 means that the model does not run.";

/// Width of sentences, and indentation of their later lines.
const SENTENCE: (usize, usize) = (100, 6);

/// Show a model's inputs, outputs, sizes, work, and what stops it
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Results of an inspection.
#[derive(Clone, Debug, Serialize)]
struct Inspection {
    model: String,
    #[serde(flatten)]
    facts: Facts,
    /// Dimensions without a given size.
    assumed: Vec<String>,
    /// Sizes that were tried for them.
    sizes: Option<Sizes>,
    /// Whether it runs in phases, because shapes depend on computed values.
    phases: bool,
    runs: bool,
    obstacles: Vec<Obstacle>,
    /// Origin of a compiled model.
    #[serde(skip_serializing_if = "Option::is_none")]
    compiled: Option<About>,
    /// Options with which it was compiled and that differ from their defaults.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    compiled_with: BTreeMap<String, Value>,
    /// Whether the files of the compiled model's source are unchanged, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_source: Option<bool>,
    /// Work of a model that runs.
    work: Option<Work>,
}

impl InspectCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let config = self.devices.config()?.or(self.model.config()?);
        let located = open::located(&self.model)?;
        let session = match &located {
            Some(located) => waiting(output, "opening the model", || Session::survey(&located.file, config))?,
            None => Session::from_bytes(BUILT_IN, config)?,
        };
        session.verify_weights().map_err(CliError::input)?;
        let set = located.as_ref().and_then(|located| located.sets.first());
        let given = read_inputs(&self.model, set.map(PathBuf::as_path), &session)?;
        // Sizes that the model does not have are an error of the command line, not an obstacle of the model.
        session.open_dims(&given)?;
        let inspection = waiting(output, "planning", || self.inspected(&session, given));
        output.text_or_json(|| inspection.text(), &inspection)?;
        let Inspection { model, runs, obstacles, .. } = inspection;
        let found = count(obstacles.len(), "obstacle");
        if runs { Ok(()) } else { Err(CliError::unexpected(format!("{model} does not run: {found}"))) }
    }

    fn inspected(&self, session: &Session, given: Inputs) -> Inspection {
        let names: BTreeSet<_> = given.specs().map(|(name, _)| name.to_owned()).collect();
        let found = Found::search(session, &given, self.model.random.unwrap_or(0));
        let planned = found.as_ref().map_err(SessionError::clone).and_then(|found| {
            let Tried { inputs, .. } = found.best.result.as_ref().map_err(SessionError::clone)?;
            let choice = PlanChoice { strategy: Strategy::CPU, ..session.choice() };
            Ok((session.plan_with(inputs, &choice)?, inputs))
        });
        let assumed: Vec<_> = found.iter().flat_map(|found| found.best.attempt.sizes.keys().cloned()).collect();
        let random: Vec<_> = session.deciding_inputs().into_iter().filter(|name| !names.contains(name)).collect();
        let hopeless = found.as_ref().map(|found| Arc::clone(&found.best.attempt.hopeless)).unwrap_or_default();
        let obstacles = obstacles::all(session, planned.as_ref().err(), &random, &assumed, &hopeless);
        Inspection {
            model: open::model_name(&self.model),
            facts: Facts::of(session),
            assumed,
            sizes: found.as_ref().ok().map(|found| Sizes::of(found, &random)),
            phases: found.iter().any(|found| found.best.result.as_ref().is_ok_and(|tried| tried.phases)),
            runs: obstacles.is_empty(),
            obstacles,
            compiled: session.compiled().cloned(),
            compiled_with: session.compiled_settings(),
            has_source: session.has_source(),
            work: planned.ok().map(|(planned, inputs)| Work::of(session, inputs, &planned)),
        }
    }
}

impl Inspection {
    fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.model, self.facts);
        if let Some(about) = &self.compiled {
            text.push('\n');
            text += &sentence(&made(about, self.has_source, &self.compiled_with));
        }
        let sizes = self.sizes.as_ref().map_or_else(String::new, |sizes| sizes.text(self.runs));
        if !sizes.is_empty() {
            text.push('\n');
            text += &sizes;
        }
        if let Some(work) = &self.work {
            let _ = write!(text, "\n{work}");
        }
        text.push('\n');
        if self.runs {
            text.push_str("It runs on this machine.\n");
        } else {
            let _ = writeln!(text, "It does not run: {}", count(self.obstacles.len(), "obstacle"));
            self.obstacles.iter().for_each(|obstacle| text += &sentence(&obstacle.to_string()));
        }
        text
    }
}

/// Describes the origin of a compiled model, and its purpose.
fn made(about: &About, has_source: Option<bool>, options: &BTreeMap<String, Value>) -> String {
    let About { version, build, kernels, machine, strategy, nodes, later, fixed, .. } = about;
    let devices = about.devices.iter().map(|(name, key)| format!("{name} ({key})")).collect::<Vec<_>>().join(", ");
    let source = about.source.as_ref().map_or_else(
        || "a model whose file is not known".into(),
        |path| match has_source {
            Some(false) => format!("{} (deleted or changed since)", path.display()),
            _ => path.display().to_string(),
        },
    );
    let (weights, nodes) = (format_bytes(about.weights), count(*nodes, "node"));
    let elements = match fixed.is_empty() {
        true => String::new(),
        false => format!("; valid only for the elements of {} at that time, which determine shapes", fixed.join(", ")),
    };
    let later = match later {
        0 => String::new(),
        later => format!(", and {} planned when the shapes are known", count(*later, "operator")),
    };
    let options: Vec<_> = options.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    let options = match options.is_empty() {
        true => String::new(),
        false => format!("; options: {}", options.join(", ")),
    };
    format!(
        "compiled from {source} by Anabranch {version} ({build}), kernels {kernels}, for {machine}, devices \
         {devices}: {nodes} placed by {strategy}{later}; constants of {weights}, all intact{elements}{options}"
    )
}

/// Returns a value of an option as a user writes it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) if all.iter().all(Value::is_string) => all.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Returns a sentence under a heading, in lines that fit terminals.
fn sentence(text: &str) -> String {
    let (width, indent) = SENTENCE;
    wrapped(text, width - indent).iter().enumerate().fold(String::new(), |mut all, (at, line)| {
        let _ = writeln!(all, "{:indent$}{line}", "", indent = if at == 0 { indent - 2 } else { indent });
        all
    })
}
