//! The least memory of GPUs with which a language model keeps a rate of tokens. Plans for less and less memory; nothing
//! runs.

use super::super::args::{ModelArgs, PlaceArgs, refuse_given};
use super::super::generate::failed;
use super::super::generate::forecast::{Row, rows};
use super::super::generate::rates::Bench;
use super::super::open::{self, options};
use super::super::progress::{Progress, waiting};
use super::super::{CliError, Output, lossy};
use super::FitCommand;
use anabranch::DeviceKind;
use anabranch::device::format_bytes;
use anabranch::generate::{Generator, Sample, forecast};
use anabranch::planning::{DeviceEntry, PlatformFile};
use anabranch::session::SessionError;
use anabranch_report::table::Table;
use serde::Serialize;
use std::path::Path;

/// Memory limits that are planned for, evenly apart.
const LIMITS: u64 = 12;

/// Halvings of the distance between the least limit that keeps the rate and the next lower one.
const HALVINGS: u64 = 4;

/// Tokens of the prompt, and tokens that follow, if none are given.
const BENCH: Bench = (512, 128);

pub(super) struct Generation<'c> {
    pub(super) command: &'c FitCommand,
    pub(super) folder: &'c Path,
}

/// Plans under one limit.
#[derive(Clone, Serialize)]
struct Tried {
    /// Limit of each GPU in bytes, besides its own; `null` for none.
    limit_bytes: Option<u64>,
    /// Maximum bytes on one GPU.
    peak_bytes: u64,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    /// Whether decoding is as fast as wanted.
    kept: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    gpus: Vec<String>,
    prompt: usize,
    tokens: usize,
    /// Wanted rate of decoding, in tokens per second.
    goal_tokens_per_second: f64,
    /// From no memory to no limit.
    tried: Vec<Tried>,
    /// The least limit that keeps the rate.
    least: Option<Tried>,
}

/// Whether a path is a folder with a language model.
pub(super) fn is_folder(path: &Path) -> bool {
    ["genai_config.json", "config.json"].iter().any(|file| path.join(file).is_file())
}

impl Generation<'_> {
    pub(super) fn run(&self, output: Output) -> Result<(), CliError> {
        let command = self.command;
        self.refuse()?;
        let bench = command.generation.bench.unwrap_or(BENCH);
        if bench.1 == 0 {
            let what = "--bench P,0 has no decoding whose rate could be kept";
            return Err(CliError::input(format!("{what}; give 1 token at least, such as --bench 512,128")));
        }
        let (mut generator, mut file) = self.open(output)?;
        let is_gpu = |device: &&DeviceEntry| device.kind == Some(DeviceKind::Gpu);
        let own: Vec<_> = file.devices.iter().filter(is_gpu).map(|gpu| (gpu.name.clone(), gpu.memory)).collect();
        if own.is_empty() {
            let what = "there is no GPU whose memory could be sought";
            return Err(CliError::input(format!("{what}; give --platform FILE, or the example --platform one-gpu")));
        }
        let gpus: Vec<String> = own.iter().map(|(name, _)| name.clone()).collect();
        let progress = Progress::new(output, "limits", LIMITS + 1 + HALVINGS);
        let mut tried = |limit: Option<u64>, goal: f64| {
            progress.advance();
            for device in &mut file.devices {
                let gpu = own.iter().find(|(name, _)| *name == device.name);
                let least =
                    |(_, own): &(String, Option<u64>)| own.map_or(limit, |own| Some(limit.unwrap_or(own).min(own)));
                device.memory = gpu.map_or(device.memory, least);
            }
            plan(&mut generator, bench, &file, &gpus, limit, goal)
        };
        let whole = tried(None, 0.0).and_then(|tried| tried)?;
        let best = 1000.0 / whole.decode_tokens_per_second;
        let goal = command.generation.tokens_per_second;
        let goal = goal.unwrap_or_else(|| 1000.0 / command.goal().deadline(best, 1.0));
        let whole = Tried { kept: whole.decode_tokens_per_second >= goal, ..whole };
        let mut all = Vec::new();
        let parts = if whole.peak_bytes > 0 { LIMITS } else { 0 };
        // The greatest limit below the least that keeps the rate.
        let mut low = 0;
        for part in 0..parts {
            let limit = whole.peak_bytes * part / LIMITS;
            let found = tried(Some(limit), goal)?.ok();
            if all.iter().all(|tried: &Tried| !tried.kept) && found.as_ref().is_none_or(|found| !found.kept) {
                low = limit;
            }
            all.extend(found);
        }
        all.push(whole);
        for _ in 0..HALVINGS {
            let Some(at) = all.iter().position(|tried| tried.kept) else { break };
            let high = all[at].limit_bytes.unwrap_or(all[at].peak_bytes);
            if high <= low + 1 {
                break;
            }
            let limit = low.midpoint(high);
            let found = tried(Some(limit), goal)?.ok();
            if found.as_ref().is_none_or(|found| !found.kept) {
                low = limit;
            }
            if let Some(found) = found {
                all.insert(at, found);
            }
        }
        drop(progress);
        let report = Report {
            model: lossy(&generator.config().model),
            gpus: gpus.clone(),
            prompt: bench.0,
            tokens: bench.1,
            goal_tokens_per_second: goal,
            least: all.iter().find(|tried| tried.kept).cloned(),
            tried: all,
        };
        output.text_or_json(|| report.text(), &report)
    }

    /// Rejects the options of other inputs.
    fn refuse(&self) -> Result<(), CliError> {
        let command = self.command;
        command.alike.refuse("a language model")?;
        let given = [
            (command.repeat.is_some(), "--repeat", "nothing is run"),
            (!command.model.input.is_empty(), "--input", "--bench says how many tokens there are"),
            (command.model.random.is_some(), "--random", "--bench says how many tokens there are"),
            (command.devices_file.is_some(), "a file of DEVICES", "a language model is planned for a --platform"),
        ];
        refuse_given(&given, "a language model")
    }

    /// The model, and all devices to plan for.
    fn open(&self, output: Output) -> Result<(Generator, PlatformFile), CliError> {
        let command = self.command;
        let place = PlaceArgs::any(&command.constraints);
        let model = ModelArgs { model: Some(self.folder.to_owned()), ..command.model.clone() };
        let (mut options, _) = options(&command.devices, command.what_if.read()?, &model, &place, false)?;
        // The whole search makes some hundred plans.
        options.strategy = open::strategy(command.place.first().map_or("heft", |place| place));
        let open = || Generator::open(self.folder, None, options);
        let generator = waiting(output, "opening the model", open).map_err(failed)?;
        waiting(output, "measuring the devices", || generator.session().calibrate())?;
        let session = generator.session();
        let file = match session.platform() {
            Some(file) => file.resolved(session.inventory())?,
            None => PlatformFile::of(session.inventory(), session.costs().here()),
        };
        Ok((generator, file))
    }
}

/// The rates of the plans under a limit, or the error if there is no plan.
fn plan(
    generator: &mut Generator,
    bench: Bench,
    file: &PlatformFile,
    gpus: &[String],
    limit: Option<u64>,
    goal: f64,
) -> Result<Result<Tried, CliError>, CliError> {
    let sample = Sample { prompt: bench.0, tokens: bench.1 };
    let found = match forecast(generator, sample, Some(file)) {
        Err(error) if error.session().is_some_and(SessionError::is_infeasible) => return Ok(Err(failed(error))),
        found => rows(sample, &found.map_err(failed)?)?,
    };
    let held = |row: &Row| {
        let on_gpus = row.devices.iter().filter(|device| gpus.contains(&device.device));
        on_gpus.map(|device| device.peak_bytes).max().unwrap_or(0)
    };
    let rate = |at: usize| found.get(at).map_or(0.0, |row| row.predicted_tokens_per_second);
    Ok(Ok(Tried {
        limit_bytes: limit,
        peak_bytes: found.iter().map(held).max().unwrap_or(0),
        prefill_tokens_per_second: rate(0),
        decode_tokens_per_second: rate(1),
        kept: rate(1) >= goal,
    }))
}

impl Report {
    fn text(&self) -> String {
        let mut table = Table::new(">limit of each GPU | >held | >prefill tokens/s | >decode tokens/s | keeps it");
        for tried in &self.tried {
            table.row([
                tried.limit_bytes.map_or("none".into(), format_bytes),
                format_bytes(tried.peak_bytes),
                format!("{:.1}", tried.prefill_tokens_per_second),
                format!("{:.1}", tried.decode_tokens_per_second),
                if tried.kept { "yes" } else { "no" }.to_owned(),
            ]);
        }
        let (goal, gpus) = (self.goal_tokens_per_second, self.gpus.join(", "));
        let verdict = match &self.least {
            Some(least) => format!(
                "{goal:.1} tokens/s after {} tokens need {} on {gpus}: {:.1} are predicted.",
                self.prompt + self.tokens - 1,
                format_bytes(least.limit_bytes.unwrap_or(least.peak_bytes)),
                least.decode_tokens_per_second,
            ),
            None => format!("No memory of {gpus} is enough for {goal:.1} tokens/s."),
        };
        format!("{}: predicted, not measured\n\n{table}\n{verdict}\n", self.model)
    }
}
