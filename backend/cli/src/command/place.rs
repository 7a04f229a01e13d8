//! `anabranch place`: the plan, and the reason for each node's device.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs, SplitArgs, WhatIfArgs};
use super::device_share::DeviceShare;
use super::files::file_of;
use super::html::HtmlArgs;
use super::open::{self, Opened, open};
use super::progress::waiting;
use super::schedule_file::{ScheduleArgs, ScheduleFile, TaskRow, TransferRow};
use super::why::Why;
use super::{CliError, Output, pretty, write_file};
use anabranch::device::format_bytes;
use anabranch::plan::{Route, Transfer};
use anabranch::planning::{DeviceEntry, Planned, PlatformFile};
use anabranch::program::NodeId;
use anabranch_report::plan::dot;
use anabranch_report::run::{self, BlockLine, PartLine, Staged, displaced_line, traffic_text};
use anabranch_report::table::Table;
use anabranch_report::text::{WIDTH, amount, count, duration, durations, wrapped};
use clap::{Args, ValueEnum};
use std::fmt::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  anabranch place model.onnx --place mite
  anabranch place model.onnx --platform one-gpu
  anabranch place model.onnx --place auto -o plan.json && anabranch run model.onnx --place plan.json
  anabranch platform -o other.json && $EDITOR other.json && anabranch place model.onnx --platform other.json";

/// Place a model, and write the plan with each device's reason
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlaceCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Choose the form of the plan; --json is --format json
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the plan to a file: .json, .dot, or .txt for text
    #[arg(help_heading = "Files", short, long, value_name = "FILE", value_parser = file_of(&["json", "dot", "txt"]))]
    output: Option<PathBuf>,
    /// Explain the device of one node
    ///
    /// Shows why it is there, its times on the other devices, and what it waits for.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["format", "output"])]
    why: Option<String>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    #[command(flatten)]
    html: HtmlArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For people
    Table,
    /// For `run --place FILE`, and for editing
    Json,
    /// For Graphviz: nodes coloured by device
    Dot,
}

impl PlaceCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let platform = self.what_if.read()?;
        let opened = open(&self.devices, platform.clone(), &self.model, &self.place.divided(&self.split), true)?;
        open::print_notes(&opened.session, output);
        if platform.is_some() {
            // Plans for a platform file measure nothing, but use what is measured here.
            waiting(output, "measuring the devices", || opened.session.calibrate())?;
        }
        let planned = waiting(output, "planning", || opened.session.plan(&opened.inputs))?;
        opened.save_costs()?;
        let model = open::model_name(&self.model);
        self.html.write(&opened, &model, &planned, &opened.session.costs(), None)?;
        self.schedule.write(|| schedule(&planned))?;
        if let Some(name) = &self.why {
            let why = Why::of(&opened.session, &planned, name)?;
            return output.text_or_json(|| why.to_string(), &why);
        }
        let text = match self.format(output) {
            Format::Table => {
                let compared = platform.map(|platform| self.compared(&platform, &opened, &planned, output));
                compared.transpose()?.unwrap_or_default() + &table(&model, &planned, self.output.is_some())
            }
            Format::Json => pretty(&planned.plan_file())?,
            Format::Dot => dot(&planned),
        };
        match &self.output {
            Some(path) => write_file(path, text),
            None => output.text(&text),
        }
    }

    /// Returns the predicted times with the devices of the platform, and on this machine.
    fn compared(
        &self,
        platform: &PlatformFile,
        opened: &Opened,
        planned: &Planned,
        output: Output,
    ) -> Result<String, CliError> {
        let present = opened.session.inventory();
        let is_assumed = |device: &&DeviceEntry| present.device(&device.name).is_none();
        let assumed: Vec<_> = platform.devices.iter().filter(is_assumed).collect();
        let mut devices = self.devices.clone();
        // Limits of assumed devices would be refused on this machine.
        devices.memory.retain(|(name, _)| assumed.iter().all(|device| device.name != *name));
        let here = open(&devices, None, &self.model, &self.place.divided(&self.split), false).and_then(|here| {
            let planned = waiting(output, "planning for this machine", || here.session.plan(&here.inputs))?;
            Ok(duration(planned.plan().predicted().makespan))
        });
        let here = match here {
            Err(error) if error.is_interruption() => return Err(error),
            here => here.unwrap_or_else(|error| format!("no plan ({error})")),
        };
        let assumed: Vec<_> = assumed.into_iter().map(|device| described(device, &self.devices.memory)).collect();
        let with = match assumed.is_empty() {
            true => "With the platform's figures".to_owned(),
            false => format!("With assumed {}", assumed.join(", ")),
        };
        let there = duration(planned.plan().predicted().makespan);
        Ok(format!("{with}: {there}.\nOn this machine: {here}. Times are predicted, not measured.\n\n"))
    }

    fn format(&self, output: Output) -> Format {
        let extension = self.output.as_ref().and_then(|path| path.extension()?.to_str());
        match extension {
            _ if output.json => Format::Json,
            Some("json") => Format::Json,
            Some("dot") => Format::Dot,
            _ => self.format,
        }
    }
}

/// Describes a device of a platform under these memory limits: `gpuA (gpu, 8 GiB, 6000 Gflop/s, 280 GB/s)`.
fn described(device: &DeviceEntry, limits: &[(String, u64)]) -> String {
    let limit = limits.iter().find(|(name, _)| *name == device.name).map(|(_, bytes)| *bytes);
    let mut facts: Vec<_> = device.kind.iter().map(ToString::to_string).collect();
    facts.extend(limit.or(device.memory).map(format_bytes));
    facts.extend(device.rates.iter().flat_map(|rates| {
        [(rates.matmul_flops, "Gflop/s"), (rates.bandwidth, "GB/s")]
            .map(|(rate, unit)| format!("{} {unit}", amount(rate * 1e-9)))
    }));
    format!("{} ({})", device.name, facts.join(", "))
}

/// Returns the predicted schedule. Transfers over links are listed; values that are read in place are not.
fn schedule(planned: &Planned) -> ScheduleFile {
    let (program, plan) = (&planned.program, planned.plan());
    let predicted = plan.predicted();
    let task = |(id, (start, finish)): (NodeId, &(f64, f64))| TaskRow {
        task: program.node(id).name.clone(),
        device: plan.device(plan.device_of(id)).name.clone(),
        start: *start,
        finish: *finish,
    };
    let transfer = |(transfer, (start, finish)): (&Transfer, &(f64, f64))| TransferRow {
        data: program.value(transfer.value).name.clone(),
        from: plan.device(transfer.from).name.clone(),
        to: plan.device(transfer.to).name.clone(),
        bytes: transfer.bytes,
        start: *start,
        finish: *finish,
    };
    let moved =
        plan.transfers().iter().zip(&predicted.transfers).filter(|(transfer, _)| transfer.route != Route::Shared);
    let tasks = program.node_ids().zip(&predicted.nodes).map(task).collect();
    ScheduleFile::new(Some("s".into()), predicted.makespan, tasks, moved.map(transfer).collect())
}

/// Returns the plan for people. `whole` keeps long lines, for a file.
fn table(model: &str, planned: &Planned, whole: bool) -> String {
    let (program, plan) = (&planned.program, planned.plan());
    let mut text = format!(
        "{model}: {} placed by {} in {}; predicted {}, {}\n\n",
        count(program.nodes.len(), "node"),
        plan.strategy(),
        duration(planned.place_time.as_secs_f64()),
        duration(plan.predicted().makespan),
        traffic_text(&plan.traffic()),
    );
    if !planned.candidates.is_empty() {
        let _ = writeln!(text, "{}", candidates(planned));
    }
    for line in PartLine::line(&PartLine::all(planned)).into_iter().chain(planned.displaced.iter().map(displaced_line))
    {
        let _ = writeln!(text, "{line}\n");
    }
    for staged in Staged::all(plan, program) {
        let _ = writeln!(text, "{staged}\n");
    }
    if let Some(note) = run::first_phase_note(planned) {
        let _ = writeln!(text, "{note}\n");
    }
    let mut devices = Table::new("device | >nodes | >predicted busy | >peak memory | >limit");
    let shares = DeviceShare::all(planned);
    let busy = durations(&shares.iter().map(|share| share.busy).collect::<Vec<_>>());
    for (share, busy) in shares.into_iter().zip(busy) {
        devices.row([
            share.device,
            share.nodes.to_string(),
            busy,
            format_bytes(share.peak_bytes),
            share.limit_bytes.map_or("none".into(), format_bytes),
        ]);
    }
    let mut nodes =
        Table::new(">start | >time | cost | device | op | node: reason, with times that its strategy foresaw");
    // The unit of the reasons.
    let milliseconds = |seconds: f64| format!("{:.4} ms", seconds * 1e3);
    for id in program.node_ids() {
        let (node, device) = (program.node(id), plan.device_of(id));
        let source = planned.placed.costs[id.index()][device.index()].map(|cost| cost.source.to_string());
        nodes.row([
            milliseconds(plan.predicted().nodes[id.index()].0),
            milliseconds(plan.predicted().busy[id.index()]),
            source.unwrap_or_default(),
            plan.device(device).name.clone(),
            node.spec.op.name().to_owned(),
            format!("{}: {}", node.name, plan.reason(id)),
        ]);
    }
    let _ = if whole { write!(text, "{devices:#}\n{nodes:#}") } else { write!(text, "{devices}\n{nodes}") };
    if !planned.blocks.is_empty() {
        let blocks = BlockLine::table(&BlockLine::all(planned, None));
        let _ = write!(text, "\nstreamed in chunks of rows:\n{blocks}");
    }
    if let Some(advice) = run::one_device(plan.devices().len()) {
        let _ = writeln!(text, "\n{}", wrapped(advice, WIDTH).join("\n"));
    }
    text
}

/// Returns a table of the candidates for this plan.
fn candidates(planned: &Planned) -> Table {
    let mut table = Table::new("chosen from | streams | >predicted");
    let times = durations(&planned.candidates.iter().map(|candidate| candidate.makespan).collect::<Vec<_>>());
    for (candidate, time) in planned.candidates.iter().zip(times) {
        let streams = if candidate.streamed { "yes" } else { "no" };
        table.row([candidate.name.clone(), streams.into(), time]);
    }
    table
}
