//! `anabranch compile`: lowers, places and plans a model once, and keeps it in a file that opens at once.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs};
use super::files::file_of;
use super::interrupt::end_on_interrupt;
use super::open::{self, inputs_of, open_session};
use super::progress::waiting;
use super::{CliError, Output, lossy, note, version, wrote};
use anabranch::device::format_bytes;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  anabranch compile model.onnx --dim batch=8 --place auto -o model.anabranch
  anabranch run model.anabranch

What else a command line says when it names the file (--place, --cpu-devices …) holds, option by option; what it leaves out is as it was compiled. \
On another machine, with other devices or another version, the model is opened from its source if that is still there and the same, or refused. \
Once the file was written to, a weight that is not as it was is refused when it is first read; `anabranch inspect` reads all of them, and says \
what a file was made for.";

/// Lower, place and plan a model once, and keep that with its weights in a file that opens at once
///
/// It is for the shapes of these inputs and for this machine. If the model runs in phases, later phases are planned in
/// each run.
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
        end_on_interrupt()?;
        let (session, store, sets) = open_session(&self.devices, None, &self.model, &self.place, true)?;
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
                count => format!("; {count} operators are planned when their shapes are known"),
            };
            format!("{model}: {nodes} nodes, placed by {}{later}; constants of {weights}\n", about.strategy)
        };
        if !about.fixed.is_empty() {
            let names = about.fixed.join(", ");
            note(format_args!("shapes follow from the elements of {names}: the file is for those of this call alone"));
        }
        let value = json!({ "model": model, "file": lossy(&self.output), "compiled": about });
        output.text_or_json(text, &value)
    }
}
