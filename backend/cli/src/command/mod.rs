//! The command `anabranch`, one file a command.

mod args;
mod assignment;
mod blocks;
mod calibrate;
mod compare;
mod costs;
mod devices;
mod gantt;
mod graph;
mod hints;
mod html;
mod inputs;
mod interrupt;
mod open;
mod place;
mod platform;
mod profile;
mod progress;
mod refine;
mod report;
mod run;
mod simulate;
mod stream;
mod sweep;
mod table;
mod trial;

use clap::{Parser, Subcommand};
use hints::hint;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Run one dataflow graph over all the devices of this machine.
#[derive(Parser, Debug)]
#[command(name = "anabranch", version, propagate_version = true)]
#[command(after_help = "Start with `anabranch devices`, then `anabranch run MODEL.onnx --random 1`.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the CPU devices and GPUs that plans can use
    Devices(devices::DevicesCommand),
    /// Place a model on the devices, run it, and compare what was predicted with what was measured
    Run(Box<run::RunCommand>),
    /// Run a model placed in several ways, and without a plan, and compare what was predicted with what was measured
    Compare(Box<compare::CompareCommand>),
    /// Place a model and write the plan, with the reason for each node's device
    Place(Box<place::PlaceCommand>),
    /// Measure every node of a model on every kind of device, and keep the times in the cost store
    Profile(Box<profile::ProfileCommand>),
    /// Show or write the devices and links that plans are made for
    Platform(platform::PlatformCommand),
    /// Measure what each device and each link can do, and keep it in the cost store
    Calibrate(calibrate::CalibrateCommand),
    /// Write a model's task graph: what placement decides over
    Graph(Box<graph::GraphCommand>),
    /// Place a task graph on devices, simulate it, check the schedule, and measure it
    Simulate(Box<simulate::SimulateCommand>),
    /// Compare strategies and orders over graphs, devices and seeds
    Sweep(Box<sweep::SweepCommand>),
    /// Schedule a graph whose tasks stream to each other, as on a dataflow device
    Stream(Box<stream::StreamCommand>),
    /// Show, locate or forget measured costs
    Costs(costs::CostsCommand),
}

/// What ends a command: one line for the user, and the exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    message: String,
    code: u8,
}

impl CliError {
    /// Bad input or an infeasible wish: exit code 2.
    pub(crate) fn input(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), code: 2 }
    }

    /// A file that cannot be read, written or used: exit code 2.
    pub(crate) fn in_file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::input(format!("{}: {error}", path.display()))
    }

    /// Something that should not happen: exit code 1.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), code: 1 }
    }

    /// The user interrupted: exit code 130, as shells have it.
    pub(crate) fn interrupted() -> Self {
        Self { message: "interrupted".into(), code: 130 }
    }
}

impl<E: std::error::Error + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        let error: &dyn std::error::Error = &error;
        if let Some(hint) = error.downcast_ref().and_then(hint) {
            message = format!("{message} ({hint})");
        }
        Self { message, code: 2 }
    }
}

/// Writes a file.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CliError> {
    fs::write(path, content).map_err(|error| CliError::in_file(path, error))
}

/// Where results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON object instead of text.
    pub(crate) json: bool,
}

impl Output {
    /// Prints text as it is.
    pub(crate) fn text(self, text: &str) -> Result<(), CliError> {
        finish(io::stdout().write_all(text.as_bytes()))
    }

    /// Prints a JSON value.
    pub(crate) fn json(self, value: &Value) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).map_err(CliError::internal)?;
        self.text(&format!("{text}\n"))
    }

    /// Prints a line, or the value where JSON is wanted.
    pub(crate) fn text_or_json(self, line: &str, value: &Value) -> Result<(), CliError> {
        if self.json { self.json(value) } else { self.text(&format!("{line}\n")) }
    }
}

/// A reader that went away (`| head`) is no error.
fn finish(written: io::Result<()>) -> Result<(), CliError> {
    match written.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::internal(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Parses the process' arguments, runs the command, and says how it ended: 0 for success, 1 for a fault of Anabranch, 2 for
/// input that cannot be used, 130 after an interruption.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output { json: cli.json };
    let result = match &cli.command {
        Command::Devices(command) => command.run(output),
        Command::Run(command) => command.run(output),
        Command::Compare(command) => command.run(output),
        Command::Place(command) => command.run(output),
        Command::Profile(command) => command.run(output),
        Command::Platform(command) => command.run(output),
        Command::Calibrate(command) => command.run(output),
        Command::Graph(command) => command.run(output),
        Command::Simulate(command) => command.run(output),
        Command::Sweep(command) => command.run(output),
        Command::Stream(command) => command.run(output),
        Command::Costs(command) => command.run(output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("anabranch: {}", error.message);
            ExitCode::from(error.code)
        }
    }
}
