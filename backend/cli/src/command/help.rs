//! Help in three lengths: `-h` is one screen, `--help` lists all options, `anabranch help COMMAND` explains them.

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap::builder::Resettable::Reset;
use std::ffi::OsString;
use std::fmt::Write;

/// Last line of short help if `--help` has more.
pub(super) const MORE: &str = "--help has all options, and examples.";

/// The commands, in the order of the help, by purpose.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run models", &["demo", "run", "generate", "pipe", "watch", "compile"]),
    ("Look at models and plans", &["inspect", "devices", "place", "fit", "platform"]),
    ("Measure", &["bench", "compare", "profile", "calibrate", "costs"]),
    ("Laboratory (task graphs instead of models)", &["graph", "simulate", "sweep", "dataflow", "pipeline", "flow"]),
    ("Reference", &["strategies", "formats", "completions", "man", "help"]),
];

/// Returns the command with its subcommands listed by purpose.
pub(super) fn grouped(command: Command) -> Command {
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        about.map_or_else(|| "Explain every option of a command".to_owned(), ToString::to_string)
    };
    let mut listed = String::new();
    for (purpose, names) in GROUPS {
        _ = writeln!(listed, "{purpose}:");
        names.iter().for_each(|name| _ = writeln!(listed, "  {name:<13}{}", about(name)));
        listed.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}{{after-help}}\n"
    ))
}

/// Whether the arguments ask for the list of all options.
pub(super) fn asks_for_options(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--help")
}

/// Returns the command for help alone: its help lists all options, in a line or two each.
pub(super) fn of_options(command: Command) -> Command {
    of_command(command, "anabranch help")
}

fn of_command(command: Command, explained: &str) -> Command {
    let command = command.mut_subcommands(|below| {
        let explained = format!("{explained} {}", below.get_name());
        of_command(below, &explained)
    });
    let about = command.get_long_about().or(command.get_about()).cloned();
    let after =
        command.get_after_long_help().or(command.get_after_help()).map_or(String::new(), |text| format!("{text}"));
    let is_explained = command.get_arguments().any(|argument| argument.get_long_help().is_some());
    let what = if command.has_subcommands() { " COMMAND" } else { "" };
    let more = if is_explained { format!("\n`{explained}{what}` explains each option.") } else { String::new() };
    let command = command.mut_args(|argument| {
        // A value with a help of its own would make the whole help long.
        let values: Vec<_> = argument.get_possible_values().into_iter().map(|value| value.help(Reset)).collect();
        let argument = argument.long_help(Reset).hide_short_help(false);
        if values.is_empty() { argument } else { argument.value_parser(PossibleValuesParser::new(values)) }
    });
    let command = command.long_about(Reset).after_long_help(Reset).after_help((after + &more).trim_start().to_owned());
    match about {
        Some(about) => command.about(about),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_listed_once() {
        let command = super::super::Cli::command();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
        let shown: BTreeSet<&str> = shown.chain(["help"]).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(listed.len(), shown.len());
    }
}
