//! `anabranch demo`: one network on devices of different speeds, predicted, run, learned from, compared, and fitted
//! into memory.

mod story;

use super::files::file_of;
use super::interrupt::cancel_on_interrupt;
use super::measuring::measured;
use super::progress::waiting;
use super::{CliError, Output, open, platform, say, settled, write_file};
use anabranch::compare::{CompareOptions, Comparison, Outcome};
use anabranch::costs::CostStore;
use anabranch::device::{CpuGranularity, DetectOptions, GpuBackend, Inventory, detect};
use anabranch::execute::RunOptions;
use anabranch::plan::{Residency, StreamMode};
use anabranch::planning::{Order, PlanChoice, PlatformFile, Strategy};
use anabranch::session::{ErrorKind, Inputs, Session, SessionConfig};
use anabranch_report::comparison::Compared;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use story::Story;

/// A residual network that reads an image, and a transformer that reads a sentence. `models/generate.py` writes it.
const NETWORK: &[u8] = include_bytes!("../../models/towers.onnx");
/// Name of the network in tables.
const NAME: &str = "towers";
/// Default file of the page.
const PAGE: &str = "anabranch-demo.html";
/// Factor by which the second CPU device is slowed down.
const SLOWDOWN: f64 = 2.0;
/// Rounds of learning between the two comparisons.
const ROUNDS: u32 = 2;
/// Memory limits to try, as shares of the network's memory on one device, the highest first.
const SHARES: [f64; 3] = [0.9, 0.75, 0.6];

/// GPUs that alone take more than this many times as long as `auto` are not compared again: a software GPU takes
/// minutes.
const SLOW: f64 = 20.0;

/// Show what planning gains on this machine, with a built-in network
#[derive(Args, Clone, Debug)]
#[command(after_help = "This takes about half a minute without a software GPU. Measurements are not \
     kept.\n\nExamples:\n  anabranch demo --no-gpu\n  anabranch demo --software-gpu --html demo.html")]
pub(crate) struct DemoCommand {
    /// Write the HTML page to this file, replacing an older page
    #[arg(long, value_name = "FILE.html", default_value = PAGE, value_parser = file_of(&["html"]))]
    html: PathBuf,
    /// Count a software adapter (llvmpipe) as a GPU
    #[arg(long)]
    software_gpu: bool,
    /// Find GPUs by vulkan, metal, dx12 or gl
    #[arg(long, value_name = "API", hide_short_help = true)]
    gpu_backend: Option<GpuBackend>,
    /// Use no GPU
    #[arg(long, conflicts_with_all = ["software_gpu", "gpu_backend"])]
    no_gpu: bool,
}

/// Results of the demo.
#[derive(Serialize)]
struct Findings {
    /// Comparison of the plans before any learning.
    before: Comparison,
    /// Comparison of the plans after [`ROUNDS`] rounds of learning.
    after: Comparison,
    /// The run under a memory limit; `None` if no limit rules out each device alone and still leaves a plan.
    limited: Option<Limited>,
    /// Error that ended the search for a memory limit.
    limited_error: Option<String>,
    /// Predictions for other machines.
    elsewhere: Vec<Elsewhere>,
    /// Error that ended the predictions for other machines.
    elsewhere_error: Option<String>,
}

/// The findings with their verdicts, as JSON.
#[derive(Serialize)]
struct Verdicts<'a> {
    #[serde(flatten)]
    findings: &'a Findings,
    /// Topics and sentences, as the text has them.
    verdicts: &'a [(&'static str, String)],
}

/// The network under a memory limit that is too small for each device alone.
#[derive(Serialize)]
struct Limited {
    /// Limit of each device, in bytes.
    limit_bytes: u64,
    /// Least memory that the network takes on one device alone, in bytes.
    alone_bytes: u64,
    /// Errors of the plans for each device alone, by device.
    refused: Vec<(String, String)>,
    /// The run of HEFT's plan.
    comparison: Comparison,
}

/// Prediction for the network on another machine.
#[derive(Serialize)]
struct Elsewhere {
    /// Name of a built-in platform.
    platform: &'static str,
    about: &'static str,
    predicted_ms: f64,
}

impl DemoCommand {
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let run = RunOptions::default().with_cancel(cancel_on_interrupt()?);
        let mut steps = Steps { output, done: 0 };
        steps.begin("look for devices, and measure them");
        let devices = self.devices()?;
        let session = opened(&devices, CostStore::default(), None)?;
        open::print_all_notes(&session, output);
        waiting(output, "measuring the devices", || session.calibrate())?;
        let demo = Demo { inputs: session.fill_random(Inputs::new(), 0)?, session, devices, run, output };
        steps.begin("plan from the devices' rates alone, and run every plan");
        let places = names(demo.session.inventory());
        let before = demo.compare(places, 0, 3)?.comparison;
        steps.begin("learn from two rounds of runs, plan again, and run every plan");
        let after = demo.compare(demo.quick(&before), ROUNDS, 9)?;
        steps.begin("lower the memory limit until no device holds the network alone");
        let (limited, limited_error) = or_error(demo.limited(demo.quick(&before), &before))?;
        let (elsewhere, elsewhere_error) = or_error(demo.elsewhere())?;
        let after_learning = after.comparison.clone();
        let findings = Findings { before, after: after_learning, limited, limited_error, elsewhere, elsewhere_error };
        let story = Story::of(&findings, demo.session.inventory());
        settled([
            output.text_or_json(|| story.text(), &Verdicts { findings: &findings, verdicts: story.verdicts() }),
            self.write_page(story.page(&after), output),
        ])
    }

    fn write_page(&self, page: String, output: Output) -> Result<(), CliError> {
        write_file(&self.html, page)?;
        if output.json {
            return Ok(());
        }
        let page = self.html.canonicalize().unwrap_or_else(|_| self.html.clone());
        output.text(&format!("open the page: file://{}\n", page.display()))
    }

    /// Returns two cores, of which the second is emulated slower, and each GPU.
    fn devices(&self) -> Result<DetectOptions, CliError> {
        let mut options = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core);
        (options.software_gpu, options.gpu_backend, options.no_gpu) =
            (self.software_gpu, self.gpu_backend, self.no_gpu);
        let found = detect(&options)?;
        let cpus: Vec<_> = found.cpus.iter().take(2).map(|cpu| cpu.name.clone()).collect();
        if let [_, second] = &cpus[..] {
            options.slowdowns = vec![(second.clone(), SLOWDOWN)];
        }
        let gpus = found.gpus.iter().map(|gpu| gpu.name.clone());
        Ok(options.with_only(cpus.into_iter().chain(gpus)))
    }
}

/// Announces each part of the demo.
struct Steps {
    output: Output,
    done: usize,
}

impl Steps {
    /// Number of parts of the demo.
    const COUNT: usize = 4;

    fn begin(&mut self, what: &str) {
        self.done += 1;
        if !self.output.json && !super::is_quiet() {
            say(format_args!("[{}/{}] {what}", self.done, Self::COUNT));
        }
    }
}

/// Opens a session that places by `auto`, on another platform if one is given.
fn opened(devices: &DetectOptions, costs: CostStore, platform: Option<PlatformFile>) -> Result<Session, CliError> {
    let mut config = SessionConfig::default().with_devices(devices.clone()).with_calibration(platform.is_none());
    config.platform = platform;
    Ok(Session::from_bytes(NETWORK, config.with_strategy(Strategy::AUTO).with_costs(costs))?)
}

/// The network on the devices of the demo.
struct Demo {
    session: Session,
    inputs: Inputs,
    devices: DetectOptions,
    run: RunOptions,
    output: Output,
}

impl Demo {
    /// Runs `auto`, HEFT, MITE and each of these devices alone, in turn.
    fn compare(&self, devices: Vec<String>, rounds: u32, runs: u32) -> Result<Compared, CliError> {
        let places = ["auto", "heft", "mite"].into_iter().map(str::to_owned).chain(devices);
        let options = options(places, &self.run)?.with_runs(runs, 1).with_refine(rounds);
        measured(&self.session, &self.inputs, &options, self.output, true)
    }

    /// Returns the devices without slow GPUs.
    fn quick(&self, before: &Comparison) -> Vec<String> {
        let Inventory { cpus, gpus, .. } = self.session.inventory();
        let took_ms = |place: &str| {
            let outcome = before.outcomes.iter().find(|outcome| outcome.configuration.place == place);
            outcome.map(|outcome| outcome.measured_ms.median)
        };
        quick(cpus.iter().map(|cpu| &cpu.name), gpus.iter().map(|gpu| &gpu.name), took_ms)
    }

    /// Runs HEFT's plan on these devices under the highest limit that none of them can keep alone.
    ///
    /// `auto` is not used, because it compares many plans, and each would have to be fitted to the limit, which takes
    /// long.
    fn limited(&self, names: Vec<String>, before: &Comparison) -> Result<Option<Limited>, CliError> {
        let Some(alone) = peak_alone(before, self.session.inventory(), &names) else { return Ok(None) };
        for share in SHARES {
            let limit_bytes = (alone as f64 * share) as u64;
            let devices = self.devices.clone().with_only(names.clone());
            let devices = names.iter().fold(devices, |all, name| all.with_memory(name, limit_bytes));
            let session = opened(&devices, self.session.costs(), None)?;
            let places = std::iter::once("heft".to_owned()).chain(names.iter().cloned());
            let options = options(places, &self.run)?.with_runs(9, 1).with_dynamic(false);
            let comparison = match measured(&session, &self.inputs, &options, self.output, false) {
                Ok(compared) => compared.comparison,
                // If no plan keeps this limit, none keeps lower ones.
                Err(_) if is_infeasible(&session, &self.inputs) => return Ok(None),
                Err(error) => return Err(error),
            };
            let failed =
                comparison.failed.iter().map(|(configuration, error)| (configuration.place.clone(), error.clone()));
            let refused: Vec<_> = failed.filter(|(place, _)| names.contains(place)).collect();
            if refused.len() == names.len() {
                return Ok(Some(Limited { limit_bytes, alone_bytes: alone, refused, comparison }));
            }
        }
        Ok(None)
    }

    /// Predicts the network on the built-in platforms.
    fn elsewhere(&self) -> Result<Vec<Elsewhere>, CliError> {
        let predicted = |example: &platform::Example| {
            let session = opened(&self.devices, self.session.costs(), Some(example.file()?))?;
            let predicted_ms = session.plan(&self.inputs)?.plan().predicted().makespan * 1e3;
            Ok(Elsewhere { platform: example.name, about: example.about, predicted_ms })
        };
        platform::EXAMPLES.iter().map(predicted).collect()
    }
}

/// Returns the CPU devices, and the GPUs that alone took at most [`SLOW`] times as long as `auto`.
///
/// CPU devices stay however slow they are, because GPUs need one.
fn quick<'a>(
    cpus: impl Iterator<Item = &'a String>,
    gpus: impl Iterator<Item = &'a String>,
    took_ms: impl Fn(&str) -> Option<f64>,
) -> Vec<String> {
    let most = took_ms("auto").map_or(f64::INFINITY, |auto| auto * SLOW);
    cpus.chain(gpus.filter(|gpu| took_ms(gpu).is_none_or(|ms| ms <= most))).cloned().collect()
}

/// Returns the result of a part of the demo. An error is a result, too, so that the other parts are reported; only an
/// interruption ends the demo.
fn or_error<T: Default>(part: Result<T, CliError>) -> Result<(T, Option<String>), CliError> {
    match part {
        Ok(found) => Ok((found, None)),
        Err(error) if error.is_interruption() => Err(error),
        Err(error) => Ok((T::default(), Some(error.to_string()))),
    }
}

/// Whether HEFT finds no plan within the memory of the devices.
fn is_infeasible(session: &Session, inputs: &Inputs) -> bool {
    let choice = PlanChoice { strategy: Strategy::HEFT, ..session.choice() };
    let planned = session.plan_with(inputs, &choice);
    planned.is_err_and(|error| matches!(error.kind(), ErrorKind::Memory | ErrorKind::Infeasible))
}

fn names(inventory: &Inventory) -> Vec<String> {
    inventory.devices().map(|device| device.name().to_owned()).collect()
}

/// Returns options that compare these places.
fn options(places: impl Iterator<Item = String>, run: &RunOptions) -> Result<CompareOptions, CliError> {
    let places: Vec<_> = places.collect();
    let configurations =
        super::configurations::choices("--place", &places, &[Order::default()], &[StreamMode::Auto], &Residency::Auto)?;
    Ok(CompareOptions::new(NAME, configurations).with_run(run.clone()))
}

/// Returns the least bytes that the network takes on one of these devices alone.
fn peak_alone(comparison: &Comparison, inventory: &Inventory, names: &[String]) -> Option<u64> {
    let alone = comparison.outcomes.iter().filter(|outcome| names.contains(&outcome.configuration.place));
    let peak = |outcome: &Outcome| {
        let at = inventory.devices().position(|device| device.name() == outcome.configuration.place)?;
        outcome.devices.get(at)?.predicted_peak_bytes
    };
    alone.filter_map(peak).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_gpus_are_left_out_and_slow_cpus_stay() {
        let [cpus, gpus] = [["cpu0", "cpu1"], ["gpu0", "gpu1"]].map(|names| names.map(str::to_owned));
        let took = |times: [(&'static str, f64); 5]| {
            let took_ms = |place: &str| times.iter().find(|(name, _)| *name == place).map(|(_, ms)| *ms);
            quick(cpus.iter(), gpus.iter(), took_ms)
        };
        let fast_gpu = [("auto", 1.0), ("cpu0", 40.0), ("cpu1", 80.0), ("gpu0", 1.0), ("gpu1", 20.1)];
        assert_eq!(took(fast_gpu), ["cpu0", "cpu1", "gpu0"]);
        let slow_gpus = [("auto", 1.0), ("cpu0", 1.0), ("cpu1", 2.0), ("gpu0", 500.0), ("gpu1", 20.0)];
        assert_eq!(took(slow_gpus), ["cpu0", "cpu1", "gpu1"]);
        assert_eq!(quick(cpus.iter(), gpus.iter(), |_| None), ["cpu0", "cpu1", "gpu0", "gpu1"]);
    }

    #[test]
    fn an_error_of_a_part_is_a_result_and_an_interruption_ends_the_demo() {
        let part = |part: Result<u32, CliError>| or_error(part).map_err(|error| error.to_string());
        assert_eq!(part(Ok(3)), Ok((3, None)));
        assert_eq!(part(Err(CliError::input("no memory"))), Ok((0, Some("no memory".to_owned()))));
        assert_eq!(part(Err(CliError::interrupted())), Err("interrupted".to_owned()));
    }
}
