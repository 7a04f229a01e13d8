//! The command `anabranch`, one file per subcommand.

mod args;
mod assignment;
mod bench;
mod calibrate;
mod cases;
mod compare;
mod compile;
mod configurations;
mod costs;
mod dataflow;
mod demo;
mod device_share;
mod devices;
mod error;
mod exit;
mod expect;
mod files;
mod fit;
mod flow;
mod formats;
mod generate;
mod graph;
mod help;
mod hints;
mod html;
mod images;
mod inputs;
mod inspect;
mod interrupt;
mod live;
mod measuring;
mod open;
mod outputs;
mod parallel;
mod pipe;
mod pipeline;
mod place;
mod platform;
mod profile;
mod progress;
mod refine;
mod rules;
mod run;
mod schedule_file;
mod shell;
mod simulate;
mod slowest;
mod steps;
mod strategies;
mod sweep;
mod trace_file;
mod version;
mod vision;
mod watch;
mod why;

use anabranch::files as on_disk;
use anabranch_kernels::OutOfMemory;
use anabranch_report::text::{message, printable, printable_json};
use clap::builder::UnknownArgumentValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
pub(crate) use error::CliError;
pub(crate) use exit::Exit;
use help::MORE;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Last line of the help of `anabranch`.
const START: &str = "Start with `anabranch demo`, then `anabranch run MODEL.onnx`.";

/// Runs ONNX models on CPUs and GPUs: places each node on a device, and predicts time and memory first.
#[derive(Parser, Debug)]
#[command(name = "anabranch", version, long_version = version::long(), propagate_version = true)]
#[command(after_help = START, after_long_help = exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Print only errors on standard error
    ///
    /// This leaves out notes, progress and names of written files. `run` prints only the figures of the whole run.
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoCommand),
    Devices(devices::DevicesCommand),
    Inspect(Box<inspect::InspectCommand>),
    Run(Box<run::RunCommand>),
    Generate(Box<generate::GenerateCommand>),
    Watch(Box<watch::WatchCommand>),
    Compare(Box<compare::CompareCommand>),
    Compile(Box<compile::CompileCommand>),
    Bench(Box<bench::BenchCommand>),
    Place(Box<place::PlaceCommand>),
    Profile(Box<profile::ProfileCommand>),
    Platform(platform::PlatformCommand),
    Calibrate(calibrate::CalibrateCommand),
    Graph(Box<graph::GraphCommand>),
    Simulate(Box<simulate::SimulateCommand>),
    Sweep(Box<sweep::SweepCommand>),
    #[command(alias = "stream")]
    Dataflow(Box<dataflow::DataflowCommand>),
    Pipeline(Box<pipeline::PipelineCommand>),
    Costs(costs::CostsCommand),
    Pipe(Box<pipe::PipeCommand>),
    Flow(Box<flow::FlowCommand>),
    Fit(Box<fit::FitCommand>),
    Strategies(strategies::StrategiesCommand),
    Formats(formats::FormatsCommand),
    Completions(shell::CompletionsCommand),
    Man(shell::ManCommand),
}

pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CliError> {
    write_with(path, |file| file.write_all(content.as_ref()))
}

/// Writes a file by `emit`, atomically.
pub(crate) fn write_with(path: &Path, emit: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    on_disk::write(path, emit).map_err(|error| CliError::in_file(path, error))?;
    wrote(path);
    Ok(())
}

/// Writes a file with `write`, if the command line names one.
pub(crate) fn if_named(
    path: Option<&PathBuf>,
    write: impl FnOnce(&Path) -> Result<(), CliError>,
) -> Result<(), CliError> {
    path.map_or(Ok(()), |path| write(path))
}

/// Returns the gravest error of steps that were all attempted, and prints the other errors.
///
/// Results are printed and files are written in one list of steps, so that no failure hides or prevents another step.
pub(crate) fn settled(steps: impl IntoIterator<Item = Result<(), CliError>>) -> Result<(), CliError> {
    let mut errors: Vec<_> = steps.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|error| error.exit().gravity());
    let gravest = errors.pop();
    errors.iter().for_each(report);
    gravest.map_or(Ok(()), Err)
}

/// Whether only errors are reported. Set once, by the command line.
static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Reports a file that was written.
pub(crate) fn wrote(path: &Path) {
    if !is_quiet() && !path.starts_with("/dev") && !path.starts_with("/proc") {
        say(format_args!("wrote {}", path.display()));
    }
}

/// Reads a file that the command line names.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    on_disk::read(path, on_disk::MOST_BYTES).map_err(|error| CliError::in_file(path, error))
}

/// Prints a message to the user on standard error, safe to show. If standard error is closed or full, the message is
/// lost.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", message(&on_disk::without_os_errors(&text.to_string())));
}

/// Prints a note once, unless notes are not wanted.
pub(crate) fn note(text: impl std::fmt::Display) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let text = text.to_string();
    let is_new = TOLD.lock().is_ok_and(|mut told| told.insert(text.clone()));
    if is_new && !is_quiet() {
        say(format_args!("note: {text}"));
    }
}

/// Returns a path for JSON, which can only hold UTF-8.
pub(crate) fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Form of results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether to print one JSON object instead of text.
    pub(crate) json: bool,
}

impl Output {
    /// Prints text, safe to show.
    pub(crate) fn text(self, text: &str) -> Result<(), CliError> {
        finish(io::stdout().write_all(printable(text).as_bytes()))
    }

    /// Prints a piece of text, safe to show. Returns whether it has a reader: `| head` closes its end.
    pub(crate) fn is_read(self, text: &str) -> Result<bool, CliError> {
        let written = io::stdout().write_all(printable(text).as_bytes()).and_then(|()| io::stdout().flush());
        let is_closed = written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        finish(written).map(|()| !is_closed)
    }

    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), CliError> {
        finish(io::stdout().write_all(printable_json(&pretty(value)?).as_bytes()))
    }

    /// Prints a text, or the value as JSON if that is wanted.
    pub(crate) fn text_or_json(self, text: impl FnOnce() -> String, value: &impl Serialize) -> Result<(), CliError> {
        if self.json { self.json(value) } else { self.text(&text()) }
    }
}

/// Returns a value as JSON for people to read and edit.
pub(crate) fn pretty(value: &impl Serialize) -> Result<String, CliError> {
    Ok(serde_json::to_string_pretty(value).map_err(CliError::internal)? + "\n")
}

/// Ignores the error of a reader that went away (`| head`).
fn finish(written: io::Result<()>) -> Result<(), CliError> {
    match written.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::input(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Parses the process' arguments, runs the command, and returns its exit code, one of those in its help.
pub fn main() -> ExitCode {
    let usual = panic::take_hook();
    // A shortage of memory is not a bug in Anabranch: it is caught and reported as any error.
    panic::set_hook(Box::new(move |panic| {
        if !panic.payload().is::<OutOfMemory>() {
            usual(panic);
        }
    }));
    panic::catch_unwind(main_or_panic).unwrap_or_else(|payload| match payload.downcast_ref::<OutOfMemory>() {
        Some(shortage) => ended(&CliError::input(shortage.to_string())),
        None => panic::resume_unwind(payload),
    })
}

fn main_or_panic() -> ExitCode {
    let cli = match parsed(&spelled_out(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(usage) => return told(&usage),
    };
    let output = Output { json: cli.json };
    QUIET.store(cli.quiet, Ordering::Relaxed);
    let result = match &cli.command {
        Command::Demo(command) => command.run(output),
        Command::Devices(command) => command.run(output),
        Command::Inspect(command) => command.run(output),
        Command::Run(command) => command.run(output),
        Command::Generate(command) => command.run(output),
        Command::Watch(command) => command.run(output),
        Command::Compare(command) => command.run(output),
        Command::Compile(command) => command.run(output),
        Command::Bench(command) => command.run(output),
        Command::Place(command) => command.run(output),
        Command::Profile(command) => command.run(output),
        Command::Platform(command) => command.run(output),
        Command::Calibrate(command) => command.run(output),
        Command::Graph(command) => command.run(output),
        Command::Simulate(command) => command.run(output),
        Command::Sweep(command) => command.run(output),
        Command::Dataflow(command) => command.run(output),
        Command::Pipeline(command) => command.run(output),
        Command::Costs(command) => command.run(output),
        Command::Pipe(command) => command.run(output),
        Command::Flow(command) => command.run(output),
        #[cfg(target_os = "linux")]
        Command::Fit(command) => command.run(output),
        Command::Strategies(command) => command.run(output),
        Command::Formats(command) => command.run(output),
        Command::Completions(command) => command.run(output),
        Command::Man(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ended(&error),
    }
}

/// Reads a command line. A number below 0 is the value of the option before it, which refuses it in its own words.
fn parsed(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = match command.try_get_matches_from_mut(arguments) {
        Err(shown) if shown.kind() == ErrorKind::DisplayHelp && help::asks_for_options(arguments) => {
            return Err(help::of_options(self::command()).try_get_matches_from(arguments).err().unwrap_or(shown));
        }
        matches => matches?,
    };
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn command() -> clap::Command {
    help::grouped(refusing_platforms(taking_negatives(Cli::command())))
}

fn taking_negatives(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let is_option = argument.get_action().takes_values() && !argument.is_positional();
        argument.allow_negative_numbers(is_option)
    });
    command.mut_subcommands(taking_negatives)
}

/// Answers `--platform` with advice in commands that run models, which need the devices.
fn refusing_platforms(command: clap::Command) -> clap::Command {
    let refused = || {
        clap::Arg::new("other machine").long("platform").value_name("FILE").hide(true).value_parser(
            UnknownArgumentValueParser::suggest(
                "this command needs real devices; `anabranch place MODEL --platform one-gpu` predicts for other machines",
            ),
        )
    };
    command.mut_subcommands(|command| {
        let has = |flag: &str| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
        if has("no-gpu") && !has("platform") { command.arg(refused()) } else { command }
    })
}

/// Returns the arguments with `demo` for `run`, if there is neither a model nor an option of `run`, and with the option
/// alone for `help -h`.
fn spelled_out(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_global = |argument: &OsString| ["--json", "-q", "--quiet"].iter().any(|global| argument == global);
    let mut own = arguments.iter_mut().skip(1).filter(|argument| !is_global(argument));
    match (own.next(), own.next(), own.next()) {
        (Some(run), None, None) if run == "run" => *run = "demo".into(),
        // The help of `help` is that of the whole command.
        (Some(help), Some(form), None) if help == "help" && (form == "-h" || form == "--help") => *help = form.clone(),
        _ => {}
    }
    arguments
}

/// Prints an error of a command.
fn report(error: &CliError) {
    say(format_args!("anabranch: {error}"));
}

/// Prints the error that ends a command, and returns its exit code.
fn ended(error: &CliError) -> ExitCode {
    report(error);
    error.exit().into()
}

/// Prints help, the version, or the error in the arguments.
fn told(usage: &clap::Error) -> ExitCode {
    let code = if usage.use_stderr() { Exit::Input.into() } else { ExitCode::SUCCESS };
    if usage.use_stderr() && usage.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say(format_args!("anabranch: {}", usage_error(&usage.render().to_string())));
        return code;
    }
    match finish(usage.print()) {
        Ok(()) => code,
        Err(error) => ended(&error),
    }
}

/// Returns the parser's error in one line; the parser uses several.
fn usage_error(text: &str) -> String {
    let (mut said, mut help) = (String::new(), String::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("For more information"))
    {
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let command: Vec<_> = usage.split(' ').take_while(|word| !word.starts_with(['[', '<', '-'])).collect();
            help = format!("; `{} --help` lists all options", command.join(" "));
            continue;
        }
        let between = if said.is_empty() {
            ""
        } else if line.starts_with("tip: ") {
            "; "
        } else {
            " "
        };
        said = format!("{said}{between}{}", line.trim_start_matches("error: ").trim_start_matches("tip: "));
    }
    said + &help
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_is_one_line() {
        let refused = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
            let error = parsed(&arguments).expect_err("refused arguments");
            usage_error(&error.render().to_string())
        };
        for (arguments, parts) in [
            (
                &["anabranch", "run", "m.onnx", "--dim", "N=N"][..],
                &["--dim", "`N` is not a whole number", "whole number"][..],
            ),
            (&["anabranch", "run", "m.onnx", "--dim", "4"], &["--dim", "write NAME=N"]),
            (&["anabranch", "run", "m.onnx", "--repaet", "2"], &["--repaet", "--repeat", "; `anabranch run --help`"]),
            (&["anabranch", "comprae"], &["comprae", "compare"]),
            (&["anabranch", "run", "m.onnx", "--stream", "alwais"], &["alwais", "[possible values: ", "always"]),
            (&["anabranch", "inspect", "a.onnx", "b.onnx"], &["b.onnx", "; `anabranch inspect --help`"]),
            (&["anabranch", "generate", "m", "--top-k", "-1"], &["--top-k", "`-1` is too small", "at least 1"]),
            (
                &["anabranch", "generate", "m", "--max-length", "-5"],
                &["--max-length", "`-5` is too small", "at least 0"],
            ),
            (&["anabranch", "generate", "m", "--seed", "-1"], &["--seed", "`-1` is too small", "at least 0"]),
            (&["anabranch", "run", "m.onnx", "--repeat", "-3"], &["--repeat", "-3"]),
            (
                &["anabranch", "run", "m.onnx", "--platform", "one-gpu"],
                &["--platform", "real devices", "`anabranch place "],
            ),
            (&["anabranch", "compare", "m.onnx", "--platform=x"], &["--platform", "real devices", "`anabranch place "]),
            (&["anabranch", "run", "m.onnx", "--plan", "p.json"], &["'--plan'", "'--place'"]),
        ] {
            let said = refused(arguments);
            assert!(!said.contains('\n') && !said.contains("error: ") && !said.contains("-- "), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }

    #[test]
    fn the_gravest_of_several_errors_ends_a_command() {
        let errors = || {
            [
                CliError::input("full"),
                CliError::unexpected("differs".into()),
                CliError::interrupted(),
                CliError::internal("fault"),
            ]
        };
        for (count, exit) in [Exit::Input, Exit::Unexpected, Exit::Interrupted, Exit::Fault].into_iter().enumerate() {
            let some = || errors().into_iter().take(count + 1).map(Err);
            let either = [settled(some().chain([Ok(())])), settled(some().rev())];
            assert!(either.iter().all(|ended| ended.as_ref().is_err_and(|error| error.exit() == exit)), "{either:?}");
        }
        assert!(settled([Ok(()), Ok(())]).is_ok());
    }

    #[test]
    fn run_without_model_and_options_is_the_demo_in_any_form() {
        let command = |arguments: &[&str]| {
            let arguments = ["anabranch"].iter().chain(arguments).map(OsString::from).collect();
            parsed(&spelled_out(arguments)).expect("known arguments")
        };
        for (bare, json, quiet) in [
            (&["run"][..], false, false),
            (&["run", "-q"], false, true),
            (&["--json", "run"], true, false),
            (&["run", "--quiet", "--json"], true, true),
        ] {
            let cli = command(bare);
            assert!(matches!(cli.command, Command::Demo(_)), "{bare:?}");
            assert_eq!((cli.json, cli.quiet), (json, quiet), "{bare:?}");
        }
        for other in [&["run", "--repeat", "2"][..], &["run", "run"], &["run", "m.onnx"], &["run", "--no-gpu"]] {
            assert!(matches!(command(other).command, Command::Run(_)), "{other:?}");
        }
    }
}
