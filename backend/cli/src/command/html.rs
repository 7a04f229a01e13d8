//! `--report FILE.html`: the plan, and the run if there was one, as a page.

use super::files::file_of;
use super::open::Opened;
use super::{CliError, write_file};
use crate::report::{About, data, page, utc};
use anabranch::compare::Series;
use anabranch::planning::Planned;
use anabranch::profile::CostStore;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

/// Where the page goes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files")]
pub(super) struct HtmlArgs {
    /// Write a page: graph, schedule, memory, every node
    #[arg(long, value_name = "FILE.html", value_parser = file_of(&["html"]))]
    report: Option<PathBuf>,
}

impl HtmlArgs {
    /// Writes the page, if one is wanted. `costs` is what was known when the plan was predicted, `series` what was measured of it.
    pub(super) fn write(
        &self,
        opened: &Opened,
        model: &str,
        planned: &Planned,
        costs: &CostStore,
        series: Option<&Series>,
    ) -> Result<(), CliError> {
        let Some(path) = &self.report else { return Ok(()) };
        let (command, date) = (typed(), utc(SystemTime::now()));
        let about = About { model, command, date, inventory: opened.session.inventory(), costs, series };
        write_file(path, page(model, &data(planned, &about)?))
    }
}

/// The command that this process was started by, as one could type it again.
pub(crate) fn typed() -> String {
    command(std::env::args_os())
}

/// A command as one could type it again: the program by its name alone, in quotes what a shell would take apart.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let program = arguments.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./:=,+@%".contains(c));
    let quoted = |text: String| if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) };
    std::iter::once(name).chain(arguments.map(quoted)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_again() {
        let arguments = ["/usr/bin/anabranch", "run", "a b.onnx", "--pin", "*=gpu0", "it's"].map(OsString::from);
        assert_eq!(command(arguments.into_iter()), r"anabranch run 'a b.onnx' --pin '*=gpu0' 'it'\''s'");
    }
}
