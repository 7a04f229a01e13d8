//! Arguments that several commands share.

use super::CliError;
use super::images::ImageArgs;
use super::inputs::named;
use super::open::strategy;
use super::platform::EXAMPLES;
use anabranch::device::{CpuGranularity, DetectOptions, GpuBackend, parse_memory_override};
use anabranch::import::Limits;
use anabranch::lower::{Rewrite, Rewrites, UnknownRewrite};
use anabranch::plan::{ChunkRule, Residency, StreamMode};
use anabranch::planning::{Order, PlatformFile, Split};
use anabranch::session::{OnDeviceLoss, SessionConfig};
use anabranch_kernels::op::Precision;
use anabranch_report::tensors::picture::is_image;
use clap::{Args, ValueEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Rejects the first option that is given. Each option has whether it is given, its name, and the reason against it.
pub(crate) fn refuse_given(options: &[(bool, &str, &str)], what: &str) -> Result<(), CliError> {
    match options.iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, why)) => Err(CliError::input(format!("{option} cannot be used with {what}: {why}"))),
        None => Ok(()),
    }
}

/// Options that choose the devices.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Devices")]
pub(crate) struct DeviceArgs {
    /// Divide CPUs by machine, package, numa, l3 or core [default: l3]
    #[arg(long, value_name = "DIVISION")]
    pub(crate) cpu_devices: Option<CpuGranularity>,
    /// Set the threads of each CPU device [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Count a software adapter (llvmpipe) as a GPU
    #[arg(long)]
    pub(crate) software_gpu: bool,
    /// Find GPUs by vulkan, metal, dx12 or gl
    ///
    /// By default all interfaces of the system are used except `gl`, OpenGL.
    #[arg(long, value_name = "API", hide_short_help = true)]
    pub(crate) gpu_backend: Option<GpuBackend>,
    /// Use no GPU
    #[arg(long, conflicts_with_all = ["software_gpu", "gpu_backend"])]
    pub(crate) no_gpu: bool,
    /// Limit the memory of a device, as in gpu0=2GiB
    ///
    /// May be repeated.
    #[arg(long, value_name = "DEVICE=BYTES", value_parser = parse_memory_override)]
    pub(crate) memory: Vec<(String, u64)>,
    /// Slow a CPU device down by a factor, as in cpu1=4; may be repeated
    #[arg(long, value_name = "DEVICE=TIMES", value_parser = parse_slowdown, hide_short_help = true)]
    pub(crate) emulate: Vec<(String, f64)>,
    /// Use only these, as in cpu0,gpu0 [default: all]
    #[arg(long = "devices", value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    pub(crate) only: Vec<String>,
}

/// Options of the model and its inputs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// ONNX file or folder of an ONNX test [default: the built-in network]
    pub(crate) model: Option<PathBuf>,
    /// NAME=FILE for one input, or a FILE for all
    #[arg(
        long,
        value_name = "[NAME=]FILE",
        long_help = "NAME=FILE for one input: .npy, an ONNX tensor .pb, or an image (.png, .jpg). NAME= may be \
             left out if the model has one input. A FILE that names its inputs: .npz, .safetensors, or a folder \
             with input_0.pb and so on, like test_data_set_0 of the ONNX node tests. In archives, a prefix \
             `in__` is ignored, and members `out__…` are skipped. May be repeated.\nA sequence NAME is given by \
             its elements NAME[0], NAME[1] and so on, or by an empty array NAME[] if it is empty. An empty \
             optional is given by an empty array NAME[absent]. A .pb file holds a whole sequence or \
             optional.\nImages are for inputs of four dimensions with 1 or 3 channels. They are scaled (--image-fit) \
             and normalised (--image-norm). Several images of one input are the rows of a batch."
    )]
    pub(crate) input: Vec<OsString>,
    #[command(flatten)]
    pub(crate) images: ImageArgs,
    /// Fill the other inputs at random by this seed
    ///
    /// If no input is given at all, the seed is 0.
    #[arg(long, value_name = "SEED")]
    pub(crate) random: Option<u64>,
    /// Set a dimension, as in batch=4 or 'x[1]=576'
    ///
    /// May be repeated. Name the dimension by its symbol, or by input and axis, counted from 0. `anabranch inspect`
    /// lists the dimensions without a size.
    #[arg(long, value_name = "NAME=N", value_parser = parse_dimension)]
    pub(crate) dim: Vec<(String, usize)>,
    /// Predict for key-value caches of this many positions [default: their capacity]
    #[arg(long, value_name = "N", value_parser = parse_count, hide_short_help = true)]
    pub(crate) cached: Option<NonZeroUsize>,
    /// Keep compiled models in this directory and reuse them [default: ANABRANCH_CACHE, if set]
    ///
    /// The model is compiled for these inputs and settings, as `anabranch compile` does, and keeps its plan. If the
    /// directory grows beyond 8 GiB, the models that were unused for longest are removed.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) cache: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) fuse: FuseArgs,
    #[command(flatten)]
    pub(crate) precision: PrecisionArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Option of the arithmetic on GPUs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PrecisionArgs {
    /// Use f32, f16x3 or f16 on GPUs [default: f32]
    ///
    /// Matrix units of GPUs multiply f16. f16x3 takes three products of the two halves of each f32, and is about as
    /// precise as f32. Products are in f32 unless all GPUs have matrix units; a note then says so.
    #[arg(long, value_name = "PRECISION", hide_short_help = true)]
    pub(crate) precision: Option<Precision>,
}

/// Limits on the size of a model.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LimitArgs {
    /// Set a limit on the model, as in fields=33554432
    #[arg(long, value_name = "NAME=N", value_parser = parse_limit, hide_short_help = true, long_help = limits_help())]
    limit: Vec<(String, String)>,
}

impl LimitArgs {
    /// Returns the limits: the defaults, changed by the options.
    pub(crate) fn limits(&self) -> Result<Limits, CliError> {
        let mut limits = Limits::default();
        let mut set = |(name, value): (&String, &String)| limits.set(name, value).map_err(CliError::input);
        named_once("--limit", &self.limit)?.iter().try_for_each(&mut set)?;
        Ok(limits)
    }
}

fn limits_help() -> String {
    let names = Limits::NAMES.join(", ");
    format!(
        "Raise or lower a limit on the model, as in fields=33554432 or tensor_bytes=128GiB, if you trust its file; may be repeated. The limits are {names}"
    )
}

fn parse_limit(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=N, for example fields=33554432")?;
    let name = name.replace('-', "_");
    Limits::default().set(&name, value).map_err(|error| error.to_string())?;
    Ok((name, value.to_owned()))
}

impl ModelArgs {
    /// Whether an input is an image.
    pub(super) fn has_images(&self) -> bool {
        self.image_inputs() > 0
    }

    /// Returns the number of inputs that are images.
    pub(super) fn image_inputs(&self) -> usize {
        let images = self.input.iter().map(|argument| named(argument)).filter(|(_, file)| is_image(file));
        images.map(|(name, _)| name).collect::<BTreeSet<_>>().len()
    }

    /// Returns the configuration that these options state.
    pub(super) fn config(&self) -> Result<SessionConfig, CliError> {
        let mut config = SessionConfig::default().with_limits(self.limits.limits()?);
        config.dims = Some(named_once("--dim", &self.dim)?);
        config.cached = self.cached.map(NonZeroUsize::get);
        config.fuse = self.fuse.rewrites();
        config.precision = self.precision.precision;
        Ok(config)
    }

    /// Returns the directory of compiled models, if there is one.
    pub(super) fn cache(&self) -> Option<PathBuf> {
        let set = || std::env::var_os("ANABRANCH_CACHE").filter(|folder| !folder.is_empty() && self.model.is_some());
        self.cache.clone().or_else(|| set().map(PathBuf::from))
    }
}

/// Options of fusion.
#[derive(Args, Clone, Debug)]
pub(crate) struct FuseArgs {
    /// Do not fuse operators, or leave out one rewrite
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "all",
        value_delimiter = ',', hide_short_help = true, long_help = unfused_help())]
    no_fuse: Vec<Unfused>,
}

/// Rewrites to leave out.
#[derive(Clone, Copy, Debug)]
enum Unfused {
    All,
    One(Rewrite),
}

impl FromStr for Unfused {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "all" {
            Ok(Self::All)
        } else {
            name.parse().map(Self::One).map_err(|error: UnknownRewrite| error.to_string())
        }
    }
}

impl FuseArgs {
    /// Returns the rewrites to make, if the command line names any that are left out.
    pub(crate) fn rewrites(&self) -> Option<Rewrites> {
        let without = |rewrites: Rewrites, unfused: &Unfused| match unfused {
            Unfused::All => Rewrites::NONE,
            Unfused::One(rewrite) => rewrites.without(*rewrite),
        };
        (!self.no_fuse.is_empty()).then(|| self.no_fuse.iter().fold(Rewrites::ALL, without))
    }
}

fn unfused_help() -> String {
    let line = |rewrite: Rewrite| format!("  {rewrite:<12}{}", rewrite.about());
    let lines = Rewrite::ALL.map(line).join("\n");
    format!(
        "Run every operator as its own node. With names (--no-fuse=pads,maps), leave out only these rewrites:\n{lines}"
    )
}

/// Options that place nodes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Placement")]
pub(crate) struct PlaceArgs {
    /// Place with a strategy, on a device, or by a plan file [default: heft]
    ///
    /// `anabranch strategies` lists the strategies and `anabranch devices` the devices; `anabranch place -o` writes
    /// plan files.
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) place: Option<String>,
    /// Order ready nodes by pct, msr, fifo or frugal [default: pct]
    ///
    /// A plan file has its own order.
    #[arg(long, value_name = "ORDER")]
    pub(crate) order: Option<Order>,
    #[command(flatten)]
    pub(crate) constraints: ConstraintArgs,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    #[command(flatten)]
    pub(crate) streaming: StreamArgs,
    /// Stage all copies between CPUs and GPUs
    ///
    /// Otherwise large values that a CPU makes for a GPU, or reads from one, lie in memory that the GPU's driver
    /// allocates, and the GPU copies them by itself. Results do not depend on it.
    #[arg(long, hide_short_help = true)]
    pub(crate) no_pinned: bool,
    /// Fail or place the model again if a GPU is lost
    ///
    /// Runs that refine or compare always fail.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t, hide_short_help = true)]
    pub(crate) on_device_loss: DeviceLoss,
    /// Division of the batch, if the command has an option of it.
    #[arg(skip)]
    pub(crate) split: Option<Split>,
}

/// Options of the division of a batch.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Placement")]
pub(crate) struct SplitArgs {
    /// Divide a batch, as in batch=auto or batch=gpu0:28,cpu0:4
    ///
    /// The left side is a symbol of the model, or an input and an axis, as in x[0]; `batch` is also the first axis of
    /// the inputs. `auto` chooses the parts by predicted speeds; with `--place auto`, one part may be chosen. Each part
    /// is computed on its device, so that other strategies have nothing to decide: `run`, `place` and `compile` refuse
    /// them, while `bench` and `compare` measure the whole batch with them.
    #[arg(long, value_name = "DIM=PARTS", hide_short_help = true)]
    split: Option<Split>,
}

impl SplitArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.split.is_some()
    }
}

/// An [`OnDeviceLoss`] on the command line.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceLoss {
    /// End with an error that names the GPU
    #[default]
    Fail,
    /// Place the model again on the remaining devices, and run it there
    Replace,
}

impl From<DeviceLoss> for OnDeviceLoss {
    fn from(loss: DeviceLoss) -> Self {
        match loss {
            DeviceLoss::Fail => Self::Fail,
            DeviceLoss::Replace => Self::Replace,
        }
    }
}

/// Options of weights on GPUs.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Placement")]
pub(crate) struct WeightArgs {
    /// Keep weights in GPU memory, or send them in each run [default: auto]
    ///
    /// Staged weights are sent in each run, shortly before they are read. A plan file states how many bytes stay,
    /// unless this option is `resident` or `staged`.
    #[arg(long, value_enum, value_name = "MODE", hide_short_help = true)]
    pub(crate) weights: Option<Weights>,
}

/// Options of streaming.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Streaming")]
pub(crate) struct StreamArgs {
    /// Stream tensors in chunks [default: auto]
    ///
    /// Tensors are streamed between devices, and through the nodes of one device. A plan file names its own blocks.
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) stream: Option<Streamed>,
    /// Set the size of a chunk, as in 256KiB or 7rows [default: from cache sizes; about 1 MiB between devices]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub(crate) chunk: Option<ChunkRule>,
}

/// A [`StreamMode`] on the command line.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// No tensor: each is complete before it is read
    Off,
    /// Tensors for which a gain is predicted
    Auto,
    /// All tensors that can be streamed
    Always,
}

impl Streamed {
    pub(crate) fn mode(self) -> StreamMode {
        match self {
            Self::Off => StreamMode::Off,
            Self::Auto => StreamMode::Auto,
            Self::Always => StreamMode::Always,
        }
    }
}

impl PlaceArgs {
    /// Returns the options of commands that do not place, or that choose their own configurations.
    pub(crate) fn any(constraints: &ConstraintArgs) -> Self {
        let streaming = StreamArgs { stream: Some(Streamed::Off), chunk: None };
        let weights = WeightArgs::default();
        Self {
            place: None,
            order: None,
            constraints: constraints.clone(),
            weights,
            streaming,
            no_pinned: false,
            on_device_loss: DeviceLoss::default(),
            split: None,
        }
    }

    /// Returns these options with the division of the batch.
    pub(crate) fn divided(&self, split: &SplitArgs) -> Self {
        Self { split: split.split.clone(), ..self.clone() }
    }

    /// Returns the configuration that these options state.
    pub(crate) fn config(&self) -> Result<SessionConfig, CliError> {
        let ConstraintArgs { pin, colocate, .. } = &self.constraints;
        named_once("--pin", pin)?;
        let mut config = SessionConfig::default();
        config.place = self.place.as_deref().map(strategy);
        config.order = self.order;
        config.pin = stated(pin);
        config.colocate = stated(colocate);
        config.split.clone_from(&self.split);
        config.stream = self.streaming.stream.map(Streamed::mode);
        config.chunk = self.streaming.chunk;
        config.weights = self.weights.weights.map(Weights::residency);
        config.pinned = self.no_pinned.then_some(false);
        config.on_device_loss = Some(self.on_device_loss.into());
        Ok(config)
    }
}

/// Returns a list that the command line states: one with elements.
fn stated<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// Options that restrict where nodes run, and the store of their costs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Placement")]
pub(crate) struct ConstraintArgs {
    /// Run nodes whose names match on a device, as in '*conv*=gpu0'
    ///
    /// May be repeated.
    #[arg(long, value_name = "PATTERN=DEVICE", value_parser = parse_pin)]
    pub(crate) pin: Vec<(String, String)>,
    /// Run all nodes whose names match on one device
    ///
    /// May be repeated.
    #[arg(long, value_name = "PATTERN", hide_short_help = true)]
    pub(crate) colocate: Vec<String>,
    /// Use this cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) costs: Option<PathBuf>,
}

/// A [`Residency`] on the command line.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weights {
    /// Keep all weights
    Resident,
    /// Send weights of 256 KiB and more
    Staged,
    /// Keep all that fit, if such a plan is predicted to be the fastest
    #[default]
    Auto,
}

impl Weights {
    pub(crate) fn residency(self) -> Residency {
        match self {
            Self::Resident => Residency::Resident,
            Self::Staged => Residency::Staged,
            Self::Auto => Residency::Auto,
        }
    }
}

impl WeightArgs {
    pub(crate) fn residency(self) -> Residency {
        self.weights.unwrap_or_default().residency()
    }
}

/// Options for devices that this machine does not have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Devices")]
pub(crate) struct WhatIfArgs {
    /// Plan for the devices of a file, or for one-gpu or two-gpus
    ///
    /// `anabranch platform -o FILE` writes a file to edit. The examples `one-gpu` and `two-gpus` are built in: they add
    /// one or two workstation GPUs of 8 GiB to this machine.
    #[arg(long, value_name = "FILE|EXAMPLE")]
    pub(crate) platform: Option<PathBuf>,
}

impl WhatIfArgs {
    /// Reads the file or the built-in example. A file has priority over an example of the same name.
    pub(super) fn read(&self) -> Result<Option<PlatformFile>, CliError> {
        let named = |path: &PathBuf| EXAMPLES.iter().find(|example| path.as_os_str() == example.name && !path.exists());
        if let Some(example) = self.platform.as_ref().and_then(named) {
            return example.file().map(Some);
        }
        self.platform.as_deref().map(PlatformFile::read).transpose().map_err(|error| match error.to_string() {
            text if text.contains("`anabranch platform") => CliError::input(text),
            text => CliError::input(format!("{text}; `anabranch platform -o FILE` writes one to start from")),
        })
    }
}

impl DeviceArgs {
    /// Returns the options of the inventory.
    pub(crate) fn options(&self) -> Result<DetectOptions, CliError> {
        Ok(self.config()?.resolve().devices)
    }

    /// Returns the configuration that these options state.
    pub(crate) fn config(&self) -> Result<SessionConfig, CliError> {
        let mut config = SessionConfig::default();
        config.devices = stated(&self.only);
        config.gpu = self.no_gpu.then_some(false);
        config.cpu_devices = self.cpu_devices;
        config.threads = self.threads;
        config.software_gpu = self.software_gpu.then_some(true);
        config.gpu_backend = self.gpu_backend;
        config.memory = Some(named_once("--memory", &self.memory)?).filter(|limits| !limits.is_empty());
        config.emulate = Some(named_once("--emulate", &self.emulate)?).filter(|factors| !factors.is_empty());
        Ok(config)
    }
}

/// Returns the values by name. Rejects a flag that gives a name two values, because it is unclear which was meant.
pub(super) fn named_once<T: Clone + Display>(
    flag: &str,
    given: &[(String, T)],
) -> Result<BTreeMap<String, T>, CliError> {
    let mut all = BTreeMap::new();
    for (name, value) in given {
        if let Some(first) = all.insert(name.clone(), value.clone()) {
            let text = format!("{flag} names {name} twice, as {first} and as {value}; leave out one of them");
            return Err(CliError::input(text));
        }
    }
    Ok(all)
}

pub(super) fn parse_dimension(text: &str) -> Result<(String, usize), String> {
    let named = text.rsplit_once('=').filter(|(name, _)| !name.trim().is_empty());
    let (name, size) = named.ok_or("write NAME=N, for example batch=4 or 'x[1]=576'")?;
    Ok((name.to_owned(), parse_size(size)?))
}

/// Parses a number of elements, nodes or the like.
pub(super) fn parse_size<T: FromStr>(text: &str) -> Result<T, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_low = text.starts_with('-') || digits.bytes().all(|byte| byte == b'0');
    text.parse().map_err(|_| match is_number {
        true if is_low => {
            let least = usize::from("0".parse::<T>().is_err());
            format!("`{text}` is too small; write a whole number of at least {least}")
        }
        true => format!("`{text}` is too large; write a smaller number"),
        false => format!("`{text}` is not a whole number; write one, such as 4"),
    })
}

/// A number of threads, tasks or the like, of which there is at least one.
pub(super) fn parse_count(text: &str) -> Result<NonZeroUsize, String> {
    NonZeroUsize::new(parse_size(text)?).ok_or_else(|| "write a whole number of at least 1".into())
}

/// Longest time that a flag takes: about a year.
const MOST_SECONDS: f64 = 3.2e7;

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| format!("`{text}` is not a number of seconds; write one, such as 1.5"))?;
    match seconds > 0.0 && seconds <= MOST_SECONDS {
        true => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        false => Err("write more than 0 seconds, and less than a year".into()),
    }
}

/// Parses a percentage, with or without its sign.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse().ok().filter(|percent| (0.0..=1e4).contains(percent));
    percent.ok_or_else(|| "write a percentage, for example 5%".into())
}

/// Parses a tolerance: 0 or a positive number.
pub(super) fn parse_tolerance(text: &str) -> Result<f64, String> {
    let tolerance = text.parse().ok().filter(|tolerance: &f64| tolerance.is_finite() && *tolerance >= 0.0);
    tolerance.ok_or_else(|| "write 0 or a positive number, for example 1e-3".into())
}

pub(super) fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && f64::is_finite(value) => Ok(value),
        _ => Err("expected a number greater than zero, such as 20".into()),
    }
}

fn parse_slowdown(text: &str) -> Result<(String, f64), String> {
    let (device, times) = text.split_once('=').ok_or("write DEVICE=TIMES, for example cpu1=4")?;
    let times = times.parse().map_err(|_| format!("`{times}` is not a number; write one, such as 4"))?;
    Ok((device.to_owned(), times))
}

fn parse_pin(text: &str) -> Result<(String, String), String> {
    let (pattern, device) = text.rsplit_once('=').ok_or("write PATTERN=DEVICE, for example '*conv*=gpu0'")?;
    Ok((pattern.to_owned(), device.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_with_or_without_their_sign() {
        assert_eq!((parse_percent("5%"), parse_percent("2.5")), (Ok(5.0), Ok(2.5)));
        assert!(["", "%", "much", "-1", "nan", "inf"].into_iter().all(|text| parse_percent(text).is_err()));
    }

    #[test]
    fn what_is_not_above_zero_is_refused() {
        assert_eq!(parse_positive("1e10"), Ok(1e10));
        assert!(["", "0", "-1", "nan", "inf"].into_iter().all(|text| parse_positive(text).is_err()));
    }
}
