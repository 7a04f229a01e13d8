//! Arguments that several commands share.

use super::CliError;
use super::trial::strategy_help;
use anabranch::device::{CpuGranularity, DetectOptions, parse_bytes, parse_memory_override};
use anabranch::plan::{ChunkRule, PlanOptions, Residency, StreamMode};
use anabranch::planning::{Order, PlatformFile};
use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Which devices there are.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Devices")]
pub(crate) struct DeviceArgs {
    /// Cores that make one CPU device: machine, package, numa, l3 or core
    #[arg(long, value_name = "DIVISION", default_value = "l3")]
    pub(crate) cpu_devices: CpuGranularity,
    /// Threads of each CPU device, instead of one a core
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Count a software Vulkan adapter (llvmpipe) as a GPU
    #[arg(long)]
    pub(crate) software_gpu: bool,
    /// Take no GPU at all
    #[arg(long, conflicts_with = "software_gpu")]
    pub(crate) no_gpu: bool,
    /// Memory that a device may use, for example gpu0=2GiB; may be repeated
    #[arg(long, value_name = "DEVICE=BYTES", value_parser = parse_memory_override)]
    pub(crate) memory: Vec<(String, u64)>,
    /// Let a CPU device take so many times longer than it needs, as a slower one would, for example cpu1=4; may be repeated
    #[arg(long, value_name = "DEVICE=TIMES", value_parser = parse_slowdown)]
    pub(crate) emulate: Vec<(String, f64)>,
}

/// The model, and what its inputs are.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// An ONNX file; without one, a small residual network that is built in
    pub(crate) model: Option<PathBuf>,
    /// NAME=FILE.npy for one input, or FILE.npz whose members are named as the inputs; may be repeated
    #[arg(long, value_name = "[NAME=]FILE")]
    pub(crate) input: Vec<String>,
    /// Fill inputs that are not given with random elements; 0 is used where a model is run without any input
    #[arg(long, value_name = "SEED")]
    pub(crate) random: Option<u64>,
    /// Size of a symbolic dimension that no given input binds, for example batch=4; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = parse_dimension)]
    pub(crate) dim: Vec<(String, usize)>,
    /// Run every operator as a node of its own
    #[arg(long)]
    pub(crate) no_fuse: bool,
}

/// Where nodes run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Placement")]
pub(crate) struct PlaceArgs {
    /// Strategy, or a plan file that `anabranch place` wrote; --help lists the strategies
    #[arg(long, value_name = "STRATEGY|PLAN.json", default_value = "heft",
        long_help = strategy_help("A plan file that `anabranch place` wrote, or a strategy:"))]
    pub(crate) place: String,
    /// Which of a device's ready nodes goes first: pct, msr, fifo or frugal; a plan file brings its own order along
    #[arg(long, value_name = "ORDER", default_value = "pct")]
    pub(crate) order: Order,
    #[command(flatten)]
    pub(crate) constraints: ConstraintArgs,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    #[command(flatten)]
    pub(crate) streaming: StreamArgs,
}

/// What GPUs keep.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Placement")]
pub(crate) struct WeightArgs {
    /// Which weights stay in a GPU's memory from run to run, and which are sent there in each shortly before they are read. A plan file says
    /// itself how many bytes stay, unless this is `resident` or `staged`
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub(crate) weights: Weights,
}

/// What goes through devices in chunks.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Streaming")]
pub(crate) struct StreamArgs {
    /// What is streamed in chunks: between devices, and through the nodes of one device. A plan file names its own blocks
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Streamed::Auto)]
    pub(crate) stream: Streamed,
    /// Size of a chunk, for example 256KiB or 7rows [default: from the caches' sizes; about 1 MiB between devices]
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk)]
    pub(crate) chunk: Option<ChunkRule>,
}

/// A [`StreamMode`] on the command line.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// Nothing: every tensor is whole before it is read
    Off,
    /// What is predicted to gain time
    Auto,
    /// Whatever can be
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
    /// For commands that do not place, or place in ways of their own.
    pub(crate) fn any(constraints: &ConstraintArgs) -> Self {
        let streaming = StreamArgs { stream: Streamed::Off, chunk: None };
        let weights = WeightArgs::default();
        Self { place: "heft".into(), order: Order::Pct, constraints: constraints.clone(), weights, streaming }
    }

    /// The options of plans.
    pub(crate) fn options(&self) -> PlanOptions {
        let StreamArgs { stream, chunk } = self.streaming;
        let options = PlanOptions::default().with_streaming(stream.mode()).with_chunk(chunk.unwrap_or_default());
        options.with_weights(self.weights.residency())
    }
}

/// What restricts where nodes run, and what is known of their costs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Placement")]
pub(crate) struct ConstraintArgs {
    /// Run the nodes whose names match on this device, for example '*conv*=gpu0'; may be repeated
    #[arg(long, value_name = "PATTERN=DEVICE", value_parser = parse_pin)]
    pub(crate) pin: Vec<(String, String)>,
    /// Run the nodes whose names match all on one device, whichever; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) colocate: Vec<String>,
    /// The cost store [default: anabranch/costs.json in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,
}

/// A [`Residency`] on the command line.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weights {
    /// All stay
    Resident,
    /// Those of 256 KiB and more are sent
    Staged,
    /// As many stay as fit, where such a plan is predicted to be the fastest that fits
    #[default]
    Auto,
}

impl WeightArgs {
    pub(crate) fn residency(self) -> Residency {
        match self.weights {
            Weights::Resident => Residency::Resident,
            Weights::Staged => Residency::Staged,
            Weights::Auto => Residency::Auto,
        }
    }
}

/// Devices that are not there.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Devices")]
pub(crate) struct WhatIfArgs {
    /// Plan for the devices and links of this file; `anabranch platform -o FILE` writes one to edit
    #[arg(long, value_name = "FILE")]
    pub(crate) platform: Option<PathBuf>,
}

impl WhatIfArgs {
    /// The file's content.
    pub(super) fn read(&self) -> Result<Option<PlatformFile>, CliError> {
        self.platform.as_deref().map(PlatformFile::read).transpose().map_err(|error| match error.to_string() {
            text if text.contains("`anabranch platform") => CliError::input(text),
            text => CliError::input(format!("{text}; `anabranch platform -o FILE` writes one to start from")),
        })
    }
}

impl DeviceArgs {
    /// The options of the inventory.
    pub(crate) fn options(&self) -> DetectOptions {
        let mut options = DetectOptions::default();
        (options.cpu_granularity, options.threads) = (self.cpu_devices, self.threads);
        (options.software_gpu, options.no_gpu) = (self.software_gpu, self.no_gpu);
        (options.memory_overrides, options.slowdowns) = (self.memory.clone(), self.emulate.clone());
        options
    }
}

pub(super) fn parse_dimension(text: &str) -> Result<(String, usize), String> {
    let (name, size) = text.split_once('=').ok_or("write NAME=N, for example batch=4")?;
    Ok((name.to_owned(), size.parse().map_err(|e| format!("{size} is no size: {e}"))?))
}

fn parse_slowdown(text: &str) -> Result<(String, f64), String> {
    let (device, times) = text.split_once('=').ok_or("write DEVICE=TIMES, for example cpu1=4")?;
    Ok((device.to_owned(), times.parse().map_err(|e| format!("{times} is no number: {e}"))?))
}

fn parse_chunk(text: &str) -> Result<ChunkRule, String> {
    let some = |size: usize| if size > 0 { Ok(size) } else { Err("a chunk has at least one byte or row".to_owned()) };
    if let Some(rows) = text.strip_suffix("rows").or_else(|| text.strip_suffix("row")) {
        let rows = rows.trim().parse().map_err(|error| format!("{text} is no number of rows: {error}"))?;
        return some(rows).map(ChunkRule::Rows);
    }
    let bytes = parse_bytes(text).map_err(|error| format!("{error}; or a number of rows, as in 7rows"))?;
    some(usize::try_from(bytes).unwrap_or(usize::MAX)).map(ChunkRule::Bytes)
}

fn parse_pin(text: &str) -> Result<(String, String), String> {
    let (pattern, device) = text.rsplit_once('=').ok_or("write PATTERN=DEVICE, for example '*conv*=gpu0'")?;
    Ok((pattern.to_owned(), device.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_sizes_or_rows() {
        assert_eq!(parse_chunk("256KiB"), Ok(ChunkRule::Bytes(256 << 10)));
        assert_eq!(parse_chunk("7rows"), Ok(ChunkRule::Rows(7)));
        assert_eq!(parse_chunk("1 row"), Ok(ChunkRule::Rows(1)));
        for wrong in ["", "rows", "0rows", "0", "many", "-1rows"] {
            assert!(parse_chunk(wrong).is_err(), "{wrong}");
        }
    }
}
