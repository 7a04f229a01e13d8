//! `anabranch compile`: lowers, places and plans a model once, and keeps it in a file that opens at once.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs, SplitArgs};
use super::files::file_of;
use super::interrupt::end_on_interrupt;
use super::open::{self, inputs_of, open_session};
use super::progress::waiting;
use super::{CliError, Output, lossy, note, version, wrote};
use anabranch::device::format_bytes;
use anabranch_report::text::count;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  anabranch compile model.onnx --dim batch=8 --place auto -o model.anabranch
  anabranch run model.anabranch

Options given with the file (--place, --cpu-devices …) replace those it was compiled with; all other options stay as compiled. On another \
machine, with other devices or with another version, the model is opened from its source. If the source is gone or has changed, the command \
ends with an error. If the file was modified, a damaged weight is an error when it is first read. `anabranch inspect` verifies all weights, and \
shows what the file was compiled for.";

/// Plan a model once, and write a file that opens at once
///
/// The file holds the plan and the weights, for these input shapes and this machine. If the model runs in phases, each
/// run plans the later phases.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompileCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Write this file
    #[arg(help_heading = "Files", short, long, value_name = "FILE.anabranch", value_parser = file_of(&["anabranch"]))]
    output: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl CompileCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        if self.model.cache.is_some() {
            return Err(CliError::input("--cache is for commands that run the model; leave it out"));
        }
        end_on_interrupt()?;
        let (session, store, sets) =
            open_session(&self.devices, None, &self.model, &self.place.divided(&self.split), true)?;
        open::print_notes(&session, output);
        let inputs = inputs_of(&self.model, &sets, &session)?;
        let compile = || session.compile(&inputs, &self.output, &version::short());
        let about = waiting(output, "compiling", compile)?;
        store.save_costs(&session)?;
        wrote(&self.output);
        let model = open::model_name(&self.model);
        let text = || {
            let (weights, nodes) = (format_bytes(about.weights), about.nodes);
            let later = match about.later {
                0 => String::new(),
                later => format!("; {} planned when the shapes are known", count(later, "operator")),
            };
            let nodes = count(nodes, "node");
            format!("{model}: {nodes}, placed by {}{later}; constants of {weights}\n", about.strategy)
        };
        if !about.fixed.is_empty() {
            let names = about.fixed.join(", ");
            note(format_args!(
                "shapes depend on the elements of {names}: the file is valid only for the elements of this call"
            ));
        }
        let value = json!({ "model": model, "file": lossy(&self.output), "compiled": about });
        output.text_or_json(text, &value)
    }
}
