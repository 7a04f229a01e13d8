//! A schedule in files for other tools: device, start and end of each task as CSV or JSON, and as a trace.

use super::files::file_of;
use super::{CliError, pretty, trace_file, write_file, write_with};
use anabranch_report::tensors::ending;
use anabranch_report::trace::{Group, Slice, Trace, Track};
use anabranch_report::trial::nanoseconds;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

const FORMAT: &str = "anabranch-schedule";
const VERSION: u32 = 1;

/// Options of the schedule's files.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub(super) struct ScheduleArgs {
    /// Write the schedule: FILE.json also has transfers
    #[arg(long, value_name = "FILE", value_parser = file_of(&["csv", "json"]))]
    schedule: Option<PathBuf>,
    /// Write the schedule as a trace, FILE.json or FILE.paje
    ///
    /// FILE.json is for ui.perfetto.dev, FILE.paje for ViTE and pj_dump.
    #[arg(long, value_name = "FILE", value_parser = file_of(&["json", "paje"]))]
    trace: Option<PathBuf>,
}

/// A schedule. Times are in its unit, since its start.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct ScheduleFile {
    /// Name of the format.
    #[schemars(extend("const" = FORMAT))]
    format: &'static str,
    /// Version of the format.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// Unit of all times, such as `s`; null if it is unknown.
    time_unit: Option<String>,
    /// End of the last task.
    makespan: f64,
    /// Tasks in the order of the graph.
    tasks: Vec<TaskRow>,
    /// Transfers between devices.
    transfers: Vec<TransferRow>,
}

/// Run of a task on its device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct TaskRow {
    /// Name of the task.
    pub(super) task: String,
    /// Device that runs it.
    pub(super) device: String,
    /// Start of the task.
    pub(super) start: f64,
    /// End of the task.
    pub(super) finish: f64,
}

/// A transfer of data.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct TransferRow {
    /// Name of the data, or of the task that makes them.
    pub(super) data: String,
    /// Sending device.
    pub(super) from: String,
    /// Receiving device.
    pub(super) to: String,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Time when it starts to use the link.
    pub(super) start: f64,
    /// Time when all of it has arrived.
    pub(super) finish: f64,
}

impl ScheduleArgs {
    /// Whether there is anything to write.
    pub(super) fn is_wanted(&self) -> bool {
        self.schedule.is_some() || self.trace.is_some()
    }

    /// Writes the requested files.
    pub(super) fn write(&self, schedule: impl FnOnce() -> ScheduleFile) -> Result<(), CliError> {
        if !self.is_wanted() {
            return Ok(());
        }
        let schedule = schedule();
        if let Some(path) = &self.schedule {
            match ending(path).as_deref() {
                Some("json") => write_file(path, pretty(&schedule)?)?,
                _ => write_with(path, |file| schedule.write_csv(file))?,
            }
        }
        self.trace.as_ref().map_or(Ok(()), |path| trace_file::write(path, None, &schedule.trace()))
    }
}

impl ScheduleFile {
    pub(super) fn new(
        time_unit: Option<String>,
        makespan: f64,
        tasks: Vec<TaskRow>,
        transfers: Vec<TransferRow>,
    ) -> Self {
        Self { format: FORMAT, version: VERSION, time_unit, makespan, tasks, transfers }
    }

    fn write_csv(&self, file: &mut dyn std::io::Write) -> std::io::Result<()> {
        let mut writer = csv::Writer::from_writer(file);
        writer.write_record(["task", "device", "start", "finish"])?;
        for TaskRow { task, device, start, finish } in &self.tasks {
            writer.write_record([task, device, &start.to_string(), &finish.to_string()])?;
        }
        writer.flush()
    }

    /// Returns a trace with tracks for devices and links. An unknown unit of time is shown as a microsecond.
    fn trace(&self) -> Trace {
        let nanoseconds = nanoseconds(self.time_unit.as_deref()).unwrap_or(1e3);
        let at = |time: f64| (time * nanoseconds).round() as u64;
        let mut trace = Trace::default();
        let mut lanes = Lanes { group: trace.group("devices"), tracks: BTreeMap::new() };
        let mut tasks: Vec<_> = self.tasks.iter().collect();
        tasks.sort_by(|a, b| a.start.total_cmp(&b.start));
        for row in tasks {
            let (start, end) = (at(row.start), at(row.finish));
            let track = lanes.free(&mut trace, &row.device, start, end);
            let (name, category, arguments) = (row.task.clone(), "task", serde_json::Map::new());
            trace.slice(Slice { track, name, category, start, end, arguments });
        }
        let mut lanes = Lanes { group: trace.group("links"), tracks: BTreeMap::new() };
        let mut transfers: Vec<_> = self.transfers.iter().collect();
        transfers.sort_by(|a, b| a.start.total_cmp(&b.start));
        for row in transfers {
            let (start, end) = (at(row.start), at(row.finish));
            let track = lanes.free(&mut trace, &format!("{} → {}", row.from, row.to), start, end);
            let arguments = serde_json::Map::from_iter([("bytes".to_owned(), row.bytes.into())]);
            let (name, category) = (row.data.clone(), "transfer");
            trace.slice(Slice { track, name, category, start, end, arguments });
        }
        trace
    }
}

/// Tracks of devices or links. Transfers may share a link, but slices of one track never overlap: such transfers get
/// further tracks.
struct Lanes {
    group: Group,
    /// Tracks by name, each with the end of its last slice.
    tracks: BTreeMap<String, Vec<(Track, u64)>>,
}

impl Lanes {
    /// Returns a track of this name that is free from `start` on, and occupies it until `end`. Starts must ascend.
    fn free(&mut self, trace: &mut Trace, name: &str, start: u64, end: u64) -> Track {
        let tracks = self.tracks.entry(name.to_owned()).or_default();
        if let Some((track, taken)) = tracks.iter_mut().find(|(_, taken)| *taken <= start) {
            *taken = end;
            return *track;
        }
        let name = if tracks.is_empty() { name.to_owned() } else { format!("{name} ({})", tracks.len() + 1) };
        let track = trace.track(self.group, &name);
        tracks.push((track, end));
        track
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> ScheduleFile {
        let task = |task: &str, device: &str, start, finish| TaskRow {
            task: task.into(),
            device: device.into(),
            start,
            finish,
        };
        let tasks = vec![task("a, b", "cpu0", 0.0, 1.5), task("c", "gpu0", 2.0, 4.0)];
        let (data, from, to) = ("a, b".into(), "cpu0".into(), "gpu0".into());
        let transfers = vec![TransferRow { data, from, to, bytes: 7, start: 1.5, finish: 2.0 }];
        ScheduleFile::new(Some("ms".into()), 4.0, tasks, transfers)
    }

    #[test]
    fn a_line_of_the_table_is_a_task() {
        let mut text = Vec::new();
        schedule().write_csv(&mut text).expect("a vector takes all");
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(text, "task,device,start,finish\n\"a, b\",cpu0,0,1.5\nc,gpu0,2,4\n");
    }

    #[test]
    fn the_trace_has_every_task_and_transfer_at_its_time() {
        let mut text = Vec::new();
        schedule().trace().write_chrome(&mut text).expect("a vector takes all");
        let trace: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let slices = trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X");
        let found: Vec<_> = slices.map(|s| (s["name"].as_str(), s["ts"].as_f64(), s["dur"].as_f64())).collect();
        assert_eq!(
            found,
            [
                (Some("a, b"), Some(0.0), Some(1500.0)),
                (Some("a, b"), Some(1500.0), Some(500.0)),
                (Some("c"), Some(2000.0), Some(2000.0))
            ]
        );
    }

    #[test]
    fn transfers_at_one_time_get_tracks_of_their_own() {
        let mut schedule = schedule();
        let again = TransferRow { start: 1.6, ..schedule.transfers[0].clone() };
        schedule.transfers.extend([again.clone(), TransferRow { start: 2.0, finish: 3.0, ..again }]);
        let mut text = Vec::new();
        schedule.trace().write_chrome(&mut text).expect("a vector takes all");
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(text.contains("cpu0 → gpu0 (2)") && !text.contains("(3)"), "{text}");
    }
}
