//! Sources of a canonical graph: a file of its own, a model, or a generator.

use super::super::args::{named_once, parse_size};
use super::super::{CliError, read_file};
use super::SourceArgs;
use anabranch::canonical::{CanonicalProgram, Granularity, residual_network};
use anabranch::device::detect;
use anabranch::import;
use anabranch::lower::{LowerOptions, lower};
use anabranch::program::Program;
use anabranch::session::SessionError;
use anabranch_placement::generate::{RandomVolumes, shape_by_name};
use anabranch_placement::streaming::{CanonicalGraph, parse_canonical};
use std::num::NonZero;
use std::path::Path;
use std::time::Instant;

/// Elements that the first tasks of random graphs read: small enough to be simulated.
const RANDOM_VOLUME: u64 = 2048;

/// A graph, and its origin.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) graph: CanonicalGraph,
    /// For a model: number of operators, and seconds of the conversion.
    pub(super) converted: Option<(usize, f64)>,
}

impl Source {
    pub(super) fn read(text: &str, args: &SourceArgs) -> Result<Self, CliError> {
        let refuse = |error: &dyn std::fmt::Display| CliError::input(format!("{text}: {error}"));
        let path = Path::new(text);
        if let (false, Some((name, size))) = (path.exists(), text.split_once(':')) {
            let size: u32 = parse_size(size).map_err(|error| refuse(&error))?;
            if name == "residual" {
                let program = residual_network(size)
                    .ok_or_else(|| refuse(&"known residual networks have 50, 101 or 152 layers"))?;
                return Source::of_program(text, &program, args);
            }
            let known =
                "the shapes are chain, fork-join, in-tree, out-tree, wavefront, fft, gauss, cholesky and residual";
            let shape = shape_by_name(name, size).ok_or_else(|| refuse(&format!("the shape is unknown; {known}")))?;
            let graph = RandomVolumes { shape, volume: RANDOM_VOLUME }.generate(args.seed);
            let graph = graph.map_err(|error| refuse(&error))?;
            return Ok(Source { name: format!("{text} (seed {})", args.seed), graph, converted: None });
        }
        if path.extension().is_some_and(|extension| extension == "json") {
            let bytes = read_file(path)?;
            let graph = parse_canonical(&bytes).map_err(|error| refuse(&error))?;
            return Ok(Source { name: text.into(), graph, converted: None });
        }
        let limits = args.limits.limits()?;
        let model = import::load_within(path, &limits).map_err(SessionError::from)?;
        let dims = named_once("--dim", &args.dim)?;
        let budget = usize::try_from(limits.folded_bytes).unwrap_or(usize::MAX);
        let fuse = args.fuse.rewrites().unwrap_or_default();
        // As runs on these devices compute the model.
        let integer_convolutions = detect(&args.devices.options()?)?.gpus.is_empty();
        let options = LowerOptions { dims, fuse, budget, integer_convolutions, ..LowerOptions::default() };
        let program = lower(&model, &options).map_err(SessionError::from)?;
        Source::of_program(text, &program, args)
    }

    fn of_program(name: &str, program: &Program, args: &SourceArgs) -> Result<Self, CliError> {
        let started = Instant::now();
        let granularity = Granularity { product_tasks: args.tasks.map_or(usize::MAX, NonZero::get) };
        let converted = CanonicalProgram::of(program, granularity)?;
        let seconds = started.elapsed().as_secs_f64();
        let graph = converted.graph;
        Ok(Source { name: name.into(), graph, converted: Some((program.nodes.len(), seconds)) })
    }
}
