//! `anabranch compile`: a model lowered, placed and planned once, kept in a file that opens at once.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs};
use super::files::file_of;
use super::open::{self, inputs_of, open_session, save_costs};
use super::progress::waiting;
use super::{CliError, Output, lossy, version, wrote};
use anabranch::device::format_bytes;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  anabranch compile model.onnx --dim batch=8 --place auto -o model.anabranch
  anabranch run model.anabranch

What else a command line says when it names the file (--place, --cpu-devices …) holds; what it leaves out, or gives as it is by default, is as it was compiled. On another machine, \
with other devices or another version, the model is opened from its source if that is still there and the same, or refused. `anabranch inspect` \
says what a file was made for, and reads all of its weights to see that they are those that were written.";

/// Lower, place and plan a model once, and keep that with its weights in a file that opens at once
///
/// It is for the shapes of these inputs and for this machine. Models that run in phases cannot be compiled.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompileCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// The file to write
    #[arg(help_heading = "Files", short, long, value_name = "FILE.anabranch", value_parser = file_of(&["anabranch"]))]
    output: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl CompileCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        if self.model.cache.is_some() {
            return Err(CliError::input("--cache is for commands that run the model; leave it out"));
        }
        let (session, store, sets) = open_session(&self.devices, None, &self.model, &self.place, true)?;
        open::print_notes(&session, output);
        let inputs = inputs_of(&self.model, &sets, &session)?;
        let compile = || session.compile(&inputs, &self.output, &version::short());
        let about = waiting(output, "compiling", compile)?;
        save_costs(&session, &store)?;
        wrote(&self.output);
        let model = open::model_name(&self.model);
        let text = || {
            let (weights, nodes) = (format_bytes(about.weights), about.nodes);
            format!("{model}: {nodes} nodes, placed by {}; weights of {weights}\n", about.strategy)
        };
        let value = json!({ "model": model, "file": lossy(&self.output), "compiled": about });
        output.text_or_json(text, &value)
    }
}
