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
mod staged;
mod stream;
mod sweep;
mod table;
mod trial;

use crate::text::{message, printable};
use anabranch::files;
use clap::{Parser, Subcommand};
use hints::hint;
use serde::Serialize;
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
    Devices(devices::DevicesCommand),
    Run(Box<run::RunCommand>),
    Compare(Box<compare::CompareCommand>),
    Place(Box<place::PlaceCommand>),
    Profile(Box<profile::ProfileCommand>),
    Platform(platform::PlatformCommand),
    Calibrate(calibrate::CalibrateCommand),
    Graph(Box<graph::GraphCommand>),
    Simulate(Box<simulate::SimulateCommand>),
    Sweep(Box<sweep::SweepCommand>),
    Stream(Box<stream::StreamCommand>),
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

    /// Whether it is Anabranch's.
    pub(crate) fn is_fault(&self) -> bool {
        self.code == 1
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

pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CliError> {
    write_with(path, |file| file.write_all(content.as_ref()))
}

/// Writes what `emit` gives, whole or not at all.
pub(crate) fn write_with(path: &Path, emit: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    files::write(path, emit).map_err(|error| CliError::in_file(path, error))
}

/// Reads a file that the command line names.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    files::read(path, files::MOST_BYTES).map_err(|error| CliError::in_file(path, error))
}

/// Says something to the user on standard error, safe to show; where that is closed or full, nobody hears it.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", message(&text.to_string()));
}

/// A path in JSON, which cannot hold the bytes of one that is not UTF-8.
pub(crate) fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Where results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON object instead of text.
    pub(crate) json: bool,
}

impl Output {
    /// Prints text, safe to show.
    pub(crate) fn text(self, text: &str) -> Result<(), CliError> {
        finish(io::stdout().write_all(printable(text).as_bytes()))
    }

    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), CliError> {
        finish(io::stdout().write_all(pretty(value)?.as_bytes()))
    }

    /// Prints a text, or the value where JSON is wanted.
    pub(crate) fn text_or_json(self, text: impl FnOnce() -> String, value: &impl Serialize) -> Result<(), CliError> {
        if self.json { self.json(value) } else { self.text(&text()) }
    }
}

/// A value as JSON for people to read and edit.
pub(crate) fn pretty(value: &impl Serialize) -> Result<String, CliError> {
    Ok(serde_json::to_string_pretty(value).map_err(CliError::internal)? + "\n")
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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return told(&usage),
    };
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
            say(format_args!("anabranch: {}", error.message));
            ExitCode::from(error.code)
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn told(usage: &clap::Error) -> ExitCode {
    match finish(usage.print()) {
        Ok(()) => ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2)),
        Err(error) => {
            say(format_args!("anabranch: {}", error.message));
            ExitCode::from(error.code)
        }
    }
}
