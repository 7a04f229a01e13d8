//! `--report FILE.html`: a page on the plan and, if there was one, its run.

use super::files::file_of;
use super::open::Opened;
use super::{CliError, write_file};
use anabranch::compare::Series;
use anabranch::costs::CostStore;
use anabranch::planning::Planned;
use anabranch_report::report::{About, data, page, typed, utc};
use clap::Args;
use std::path::PathBuf;
use std::time::SystemTime;

/// Options of the page.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files")]
pub(super) struct HtmlArgs {
    /// Write a page: graph, schedule, memory, nodes
    #[arg(long, value_name = "FILE.html", value_parser = file_of(&["html"]))]
    report: Option<PathBuf>,
}

impl HtmlArgs {
    /// Whether a page is wanted.
    pub(super) fn is_asked(&self) -> bool {
        self.report.is_some()
    }

    /// Writes the page, if one is wanted. `costs` is what was known when the plan was predicted, `series` what was
    /// measured of it.
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
