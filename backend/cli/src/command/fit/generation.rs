//! The least memory of GPUs with which a language model keeps a rate of tokens. Plans for ever less memory; nothing
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
use anabranch::planning::PlatformFile;
use anabranch::session::SessionError;
use anabranch_report::table::Table;
use serde::Serialize;
use std::path::Path;

/// Memory limits that are planned for, evenly apart.
const LIMITS: u64 = 12;

/// Halvings of the distance between the least limit that keeps the rate and the next lower one.
const HALVINGS: usize = 4;

/// Tokens of the prompt, and tokens that follow, if none are given.
const BENCH: Bench = (512, 128);

pub(super) struct Generation<'c> {
    pub(super) command: &'c FitCommand,
    pub(super) folder: &'c Path,
}

/// Plans under one limit.
#[derive(Clone, Serialize)]
struct Tried {
    /// Bytes that each GPU may hold; `null` for no limit.
    limit_bytes: Option<u64>,
    /// Most bytes that a GPU holds.
    peak_bytes: u64,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    kept: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    gpus: Vec<String>,
    prompt: usize,
    tokens: usize,
    /// Rate of decoding that is to be kept.
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
        let given = [
            (command.repeat.is_some(), "--repeat", "nothing is run"),
            (command.devices_file.is_some(), "a file of DEVICES", "a language model is planned for a --platform"),
        ];
        refuse_given(&given, "a language model")?;
        let (mut generator, mut file) = self.open(output)?;
        let gpus = gpus_of(&generator, &file);
        if gpus.is_empty() {
            let what = "there is no GPU whose memory could be sought";
            return Err(CliError::input(format!("{what}; give --platform FILE, or the example --platform one-gpu")));
        }
        let bench = command.generation.bench.unwrap_or(BENCH);
        let progress = Progress::new(output, "limits", LIMITS + 1 + HALVINGS as u64);
        let mut tried = |limit: Option<u64>, goal: f64| {
            progress.advance();
            let devices = file.devices.iter_mut().filter(|device| gpus.contains(&device.name));
            devices.for_each(|device| device.memory = limit);
            plan(&mut generator, bench, &file, &gpus, limit, goal)
        };
        let whole = tried(None, 0.0)?.ok_or_else(|| CliError::input("there is no plan, even without a limit"))?;
        let best = 1000.0 / whole.decode_tokens_per_second;
        let goal = command.generation.tokens_per_second.unwrap_or_else(|| 1000.0 / command.goal().deadline(best, 1.0));
        let whole = Tried { kept: whole.decode_tokens_per_second >= goal, ..whole };
        let mut all = Vec::new();
        for part in 0..LIMITS {
            all.extend(tried(Some(whole.peak_bytes / LIMITS * part), goal)?);
        }
        all.push(whole);
        for _ in 0..HALVINGS {
            // The next lower limit does not keep the rate, or there is none.
            let Some(at) = all.iter().position(|tried| tried.kept).filter(|at| *at > 0) else { break };
            let end = all[at].limit_bytes.unwrap_or(all[at].peak_bytes);
            let limit = all[at - 1].limit_bytes.unwrap_or(0).midpoint(end);
            match tried(Some(limit), goal)? {
                Some(between) => all.insert(at, between),
                None => break,
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

    /// The model, and the devices to plan for.
    fn open(&self, output: Output) -> Result<(Generator, PlatformFile), CliError> {
        let command = self.command;
        let place = PlaceArgs::any(&command.constraints);
        let model = ModelArgs { model: Some(self.folder.to_owned()), ..command.model.clone() };
        let (mut options, _) = options(&command.devices, None, &model, &place, false)?;
        options.strategy = open::strategy("auto");
        let open = || Generator::open(self.folder, None, options);
        let generator = waiting(output, "opening the model", open).map_err(failed)?;
        waiting(output, "measuring the devices", || generator.session().calibrate())?;
        let session = generator.session();
        let file = command.what_if.read()?;
        let file = file.unwrap_or_else(|| PlatformFile::of(session.inventory(), session.costs().here()));
        Ok((generator, file))
    }
}

/// Names of the GPUs of a platform.
fn gpus_of(generator: &Generator, file: &PlatformFile) -> Vec<String> {
    let present = &generator.session().inventory().gpus;
    let is_gpu = |name: &str, kind: Option<DeviceKind>| match kind {
        Some(kind) => kind == DeviceKind::Gpu,
        None => present.iter().any(|gpu| gpu.name == name),
    };
    let devices = file.devices.iter().filter(|device| is_gpu(&device.name, device.kind));
    devices.map(|device| device.name.clone()).collect()
}

/// The rates of the plans under a limit; `None` if there is no plan.
fn plan(
    generator: &mut Generator,
    bench: Bench,
    file: &PlatformFile,
    gpus: &[String],
    limit: Option<u64>,
    goal: f64,
) -> Result<Option<Tried>, CliError> {
    let sample = Sample { prompt: bench.0, tokens: bench.1 };
    let found = match forecast(generator, sample, Some(file)) {
        Err(error) if error.session().is_some_and(SessionError::is_infeasible) => return Ok(None),
        found => rows(sample, &found.map_err(failed)?)?,
    };
    let held = |row: &Row| {
        let on_gpus = row.devices.iter().filter(|device| gpus.contains(&device.device));
        on_gpus.map(|device| device.peak_bytes).max().unwrap_or(0)
    };
    let rate = |at: usize| found.get(at).map_or(0.0, |row| row.predicted_tokens_per_second);
    Ok(Some(Tried {
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
                "{goal:.1} tokens/s behind {} tokens need {} on {gpus}: {:.1} are predicted.",
                self.prompt + self.tokens - 1,
                format_bytes(least.limit_bytes.unwrap_or(least.peak_bytes)),
                least.decode_tokens_per_second,
            ),
            None => format!("No memory of {gpus} is enough for {goal:.1} tokens/s."),
        };
        format!("{}: predicted, not measured\n\n{table}\n{verdict}\n", self.model)
    }
}
