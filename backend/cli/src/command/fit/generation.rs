//! The least memory of GPUs with which a language model keeps a rate of tokens. Plans for less and less memory; nothing
//! runs.

use super::super::args::{ModelArgs, PlaceArgs, refuse_given};
use super::super::device_share::DeviceShare;
use super::super::generate::failed;
use super::super::generate::forecast::{Row, rows};
use super::super::generate::rates::Bench;
use super::super::open::{self, config};
use super::super::progress::{Progress, waiting};
use super::super::{CliError, Output, lossy};
use super::FitCommand;
use anabranch::DeviceKind;
use anabranch::device::format_bytes;
use anabranch::generate::{Forecast, GenerateError, Generator, Sample, forecast};
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

/// Plans of a model for a platform under limits of its GPUs.
struct Plans {
    generator: Generator,
    platform: PlatformFile,
    /// Names of the GPUs, and the bytes that each may hold in any case.
    gpus: Vec<(String, Option<u64>)>,
    sample: Sample,
    /// Wanted rate of decoding, in tokens per second.
    goal: f64,
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
        let mut plans = self.open(output)?;
        let progress = Progress::new(output, "limits", LIMITS + 1 + HALVINGS);
        let mut whole = plans.without_limit()?;
        let own = self.command.generation.tokens_per_second;
        let best = 1000.0 / whole.decode_tokens_per_second;
        plans.goal = own.unwrap_or_else(|| 1000.0 / self.command.goal().deadline(best, 1.0));
        whole.kept = whole.decode_tokens_per_second >= plans.goal;
        let tried = plans.search(whole, &progress)?;
        drop(progress);
        let report = Report {
            model: lossy(&plans.generator.config().model),
            gpus: plans.gpus.into_iter().map(|(name, _)| name).collect(),
            prompt: plans.sample.prompt,
            tokens: plans.sample.tokens,
            goal_tokens_per_second: plans.goal,
            least: tried.iter().find(|tried| tried.kept).cloned(),
            tried,
        };
        output.text_or_json(|| report.text(), &report)
    }

    /// Rejects the options of other inputs.
    fn refuse(&self) -> Result<(), CliError> {
        let command = self.command;
        command.alike.refuse("a language model")?;
        let given = [
            (command.repeat.is_some(), "--repeat", "nothing is run"),
            (!command.model.input.is_empty(), "--input", "--bench sets the number of tokens"),
            (command.model.random.is_some(), "--random", "--bench sets the number of tokens"),
            (command.devices_file.is_some(), "a file of DEVICES", "a language model is planned for a --platform"),
        ];
        refuse_given(&given, "a language model")
    }

    /// The model, and all devices to plan for.
    fn open(&self, output: Output) -> Result<Plans, CliError> {
        let command = self.command;
        self.refuse()?;
        let (prompt, tokens) = command.generation.bench.unwrap_or(BENCH);
        if tokens == 0 {
            let what = "--bench P,0 decodes no tokens, so there is no rate to keep";
            return Err(CliError::input(format!("{what}; give at least 1 token, as in --bench 512,128")));
        }
        let place = PlaceArgs::any(&command.constraints);
        let model = ModelArgs { model: Some(self.folder.to_owned()), ..command.model.clone() };
        let (mut config, _) = config(&command.devices, command.what_if.read()?, &model, &place, false)?;
        // The whole search makes some hundred plans.
        config.place = Some(open::strategy(command.place.first().map_or("heft", |place| place)));
        let open = || Generator::open(self.folder, None, config);
        let generator = waiting(output, "opening the model", open).map_err(failed)?;
        waiting(output, "measuring the devices", || generator.session().calibrate())?;
        let session = generator.session();
        let platform = match session.platform() {
            Some(file) => file.resolved(session.inventory())?,
            None => PlatformFile::of(session.inventory(), session.costs().here()),
        };
        let is_gpu = |device: &&DeviceEntry| device.kind == Some(DeviceKind::Gpu);
        let gpus: Vec<_> = platform.devices.iter().filter(is_gpu).map(|gpu| (gpu.name.clone(), gpu.memory)).collect();
        if gpus.is_empty() {
            let what = "there is no GPU whose memory could be reduced";
            return Err(CliError::input(format!("{what}; give --platform FILE, or the example --platform one-gpu")));
        }
        Ok(Plans { generator, platform, gpus, sample: Sample { prompt, tokens }, goal: 0.0 })
    }
}

impl Plans {
    /// Tries limits below what the plans without a limit hold. Returns all that have plans, from the least on.
    fn search(&mut self, whole: Tried, progress: &Progress) -> Result<Vec<Tried>, CliError> {
        // The greatest limit that was tried below the least that keeps the rate.
        let (mut low, mut all) = (0, Vec::<Tried>::new());
        let parts = if whole.peak_bytes > 0 { LIMITS } else { 0 };
        for part in 0..parts {
            progress.advance();
            let limit = whole.peak_bytes * part / LIMITS;
            let found = self.under(limit)?;
            if !all.iter().chain(&found).any(|tried| tried.kept) {
                low = limit;
            }
            all.extend(found);
        }
        all.push(whole);
        for _ in 0..HALVINGS {
            progress.advance();
            let Some(at) = all.iter().position(|tried| tried.kept) else { break };
            let high = all[at].limit_bytes.unwrap_or(all[at].peak_bytes);
            if high <= low + 1 {
                break;
            }
            let limit = low.midpoint(high);
            let found = self.under(limit)?;
            if !found.iter().any(|tried| tried.kept) {
                low = limit;
            }
            found.into_iter().for_each(|found| all.insert(at, found));
        }
        Ok(all)
    }

    /// The plans without a limit but the devices' own.
    fn without_limit(&mut self) -> Result<Tried, CliError> {
        let found = self.forecast(None).map_err(failed)?;
        self.tried(None, &found)
    }

    /// The plans under a limit of each GPU; `None` if there are none.
    fn under(&mut self, limit: u64) -> Result<Option<Tried>, CliError> {
        match self.forecast(Some(limit)) {
            Err(error) if error.session().is_some_and(SessionError::is_infeasible) => Ok(None),
            found => self.tried(Some(limit), &found.map_err(failed)?).map(Some),
        }
    }

    fn forecast(&mut self, limit: Option<u64>) -> Result<Forecast, GenerateError> {
        for (name, own) in &self.gpus {
            let gpu = self.platform.devices.iter_mut().find(|device| device.name == *name);
            gpu.into_iter().for_each(|gpu| gpu.memory = limit.into_iter().chain(*own).min());
        }
        forecast(&mut self.generator, self.sample, Some(&self.platform))
    }

    fn tried(&self, limit_bytes: Option<u64>, forecast: &Forecast) -> Result<Tried, CliError> {
        let rows = rows(self.sample, forecast)?;
        let is_gpu = |share: &&DeviceShare| self.gpus.iter().any(|(name, _)| *name == share.device);
        let held = rows.iter().flat_map(|row| row.devices.iter().filter(is_gpu)).map(|share| share.peak_bytes);
        let rate = |row: Option<&Row>| row.map_or(0.0, |row| row.predicted_tokens_per_second);
        let decode_tokens_per_second = rate(rows.last());
        Ok(Tried {
            limit_bytes,
            peak_bytes: held.max().unwrap_or(0),
            prefill_tokens_per_second: rate(rows.first()),
            decode_tokens_per_second,
            kept: decode_tokens_per_second >= self.goal,
        })
    }
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
                "{goal:.1} tokens/s after {} tokens need {} on {gpus}: the prediction is {:.1} tokens/s.",
                self.prompt + self.tokens - 1,
                format_bytes(least.limit_bytes.unwrap_or(least.peak_bytes)),
                least.decode_tokens_per_second,
            ),
            None => format!("No memory of {gpus} is enough for {goal:.1} tokens/s."),
        };
        format!("{}: predicted, not measured\n\n{table}\n{verdict}\n", self.model)
    }
}
