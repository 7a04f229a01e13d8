//! `anabranch completions` and `anabranch man`: the command's completions for shells, and its manual.

use super::{Cli, CliError, Output, write_file};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Print the completion script of a shell
#[derive(Args, Clone, Debug)]
#[command(after_help = "bash:  anabranch completions bash > ~/.local/share/bash-completion/completions/anabranch\n\
    fish:  anabranch completions fish > ~/.config/fish/completions/anabranch.fish")]
pub(crate) struct CompletionsCommand {
    /// Shell to print the script for
    shell: Shell,
}

/// Write the manual: one page per command
#[derive(Args, Clone, Debug)]
#[command(after_help = "anabranch man ~/.local/share/man/man1 && man anabranch-run")]
pub(crate) struct ManCommand {
    /// Directory for the pages
    directory: PathBuf,
}

impl CompletionsCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "anabranch", &mut script);
        let script = String::from_utf8(script).map_err(CliError::internal)?;
        output.text_or_json(|| script.clone(), &script)
    }
}

impl ManCommand {
    pub(crate) fn run(&self) -> Result<(), CliError> {
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(|error| CliError::in_file(directory, error))?;
        let mut command = Cli::command();
        command.build();
        pages(&command, directory)
    }
}

/// Writes the page of a command, and of each subcommand.
fn pages(command: &clap::Command, directory: &Path) -> Result<(), CliError> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = |command: clap::Command| -> io::Result<Vec<u8>> {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        Ok(page)
    };
    let text = page(command.clone()).map_err(CliError::internal)?;
    write_file(&directory.join(format!("{name}.1")), text)?;
    let below = command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set());
    below.into_iter().try_for_each(|below| pages(below, directory))
}
