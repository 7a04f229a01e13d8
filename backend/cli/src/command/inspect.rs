//! `anabranch inspect`: what a model is, and all that stops it from running, at once.

mod facts;
mod obstacles;
mod work;

use super::args::{DeviceArgs, ModelArgs};
use super::inputs::read_inputs;
use super::open::{self, BUILT_IN};
use super::progress::waiting;
use super::table::Table;
use super::{CliError, Output};
use crate::text::{amount, wrapped};
use anabranch::compiled::About;
use anabranch::device::format_bytes;
use anabranch::planning::{PlanChoice, Strategy};
use anabranch::session::{Inputs, Session, SessionOptions};
use clap::Args;
use facts::Facts;
use obstacles::Obstacle;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use work::Work;

const EXAMPLES: &str = "\
Examples:
  anabranch inspect model.onnx --dim batch=8
  anabranch inspect model.onnx --json | jq -e .runs";

/// Columns that sentences keep to, and where their later lines begin.
const SENTENCE: (usize, usize) = (100, 6);

/// Show what a model is, what it takes, and all that stops it from running
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
struct Inspection {
    model: String,
    #[serde(flatten)]
    facts: Facts,
    /// Dimensions that nobody gave a size, which are taken to be 1.
    assumed: Vec<String>,
    runs: bool,
    obstacles: Vec<Obstacle>,
    /// What made it, if it is a compiled model.
    #[serde(skip_serializing_if = "Option::is_none")]
    compiled: Option<About>,
    /// Whether that model's files are there as they were, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_source: Option<bool>,
    /// Of a model that runs.
    work: Option<Work>,
}

impl InspectCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let mut options =
            SessionOptions::default().with_devices(self.devices.options()?).with_fusion(self.model.fuse.rewrites());
        options.dims = self.model.dim.iter().cloned().collect();
        let located = open::located(&self.model)?;
        let session = match &located {
            Some(located) => waiting(output, "opening the model", || Session::survey(&located.file, options))?,
            None => Session::from_bytes(BUILT_IN, options)?,
        };
        session.verify_weights().map_err(CliError::input)?;
        let set = located.as_ref().and_then(|located| located.sets.first());
        let given = read_inputs(&self.model, set.map(PathBuf::as_path), &session)?;
        let inspection = waiting(output, "planning", || self.inspected(&session, given));
        output.text_or_json(|| inspection.text(), &inspection)
    }

    fn inspected(&self, session: &Session, given: Inputs) -> Inspection {
        let names: BTreeSet<_> = given.specs().map(|(name, _)| name.to_owned()).collect();
        let mut assumed = Vec::new();
        let planned = session.fill_assumed(given, self.model.random.unwrap_or(0)).and_then(|(inputs, names)| {
            assumed = names;
            let choice = PlanChoice { strategy: Strategy::CPU, ..session.choice() };
            Ok((session.plan_with(&inputs, &choice)?, inputs))
        });
        let obstacles = obstacles::all(session, planned.as_ref().err(), &names);
        Inspection {
            model: open::model_name(&self.model),
            facts: Facts::of(session),
            assumed,
            runs: obstacles.is_empty(),
            obstacles,
            compiled: session.compiled().cloned(),
            has_source: session.has_source(),
            work: planned.ok().map(|(planned, inputs)| Work::of(session, &inputs, &planned)),
        }
    }
}

impl Inspection {
    fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.model, self.facts);
        if let Some(about) = &self.compiled {
            text.push('\n');
            text += &sentence(&made(about, self.has_source));
        }
        if !self.assumed.is_empty() {
            let names = self.assumed.join(", ");
            text.push('\n');
            text += &sentence(&format!("size 1 is assumed for {names}: --dim NAME=N or --input say otherwise"));
        }
        if let Some(work) = &self.work {
            let _ = write!(text, "\n{work}");
        }
        text.push('\n');
        if self.runs {
            text.push_str("It runs on this machine.\n");
        } else {
            let count = self.obstacles.len();
            let _ = writeln!(text, "It does not run: {count} obstacle{}", if count == 1 { "" } else { "s" });
            self.obstacles.iter().for_each(|obstacle| text += &sentence(&obstacle.to_string()));
        }
        text
    }
}

/// What made a compiled model, and for what.
fn made(about: &About, has_source: Option<bool>) -> String {
    let About { version, build, kernels, machine, strategy, nodes, fixed, .. } = about;
    let devices = about.devices.iter().map(|(name, key)| format!("{name} ({key})")).collect::<Vec<_>>().join(", ");
    let source = about.source.as_ref().map_or_else(
        || "a model whose file is not known".into(),
        |path| match has_source {
            Some(false) => format!("{} (which is gone or another by now)", path.display()),
            _ => path.display().to_string(),
        },
    );
    let weights = format_bytes(about.weights);
    let elements = match fixed.is_empty() {
        true => String::new(),
        false => format!("; for the elements that {} had then, which decide shapes", fixed.join(", ")),
    };
    format!(
        "compiled from {source} by Anabranch {version} ({build}), kernels {kernels}, for {machine}, devices {devices}: {nodes} nodes \
         placed by {strategy}; constants of {weights}, which are as they were written{elements}"
    )
}

/// A sentence under a heading, in lines that terminals can show.
fn sentence(text: &str) -> String {
    let (width, indent) = SENTENCE;
    wrapped(text, width - indent).iter().enumerate().fold(String::new(), |mut all, (at, line)| {
        let _ = writeln!(all, "{:indent$}{line}", "", indent = if at == 0 { indent - 2 } else { indent });
        all
    })
}
