//! One schedule of a graph, with its proof and the schedule that it is compared with.

use super::super::CliError;
use super::Variant;
use anabranch_placement::streaming::{
    BufferSizes, CanonicalGraph, DepthError, ListSchedule, Simulation, SimulationError, StreamingDepth,
    StreamingSchedule, spatial_blocks,
};
use std::time::Instant;

/// A schedule on a number of processing elements.
pub(super) struct Outcome<'g> {
    pub(super) graph: &'g CanonicalGraph,
    pub(super) elements: usize,
    pub(super) variant: Variant,
    /// Schedule without streaming.
    pub(super) list: ListSchedule,
    pub(super) list_seconds: f64,
    pub(super) streaming: Option<Streaming>,
    /// Streaming depth of the graph, or the reason why it has none.
    pub(super) depth: Result<StreamingDepth, DepthError>,
}

pub(super) struct Streaming {
    pub(super) schedule: StreamingSchedule,
    pub(super) sizes: BufferSizes,
    /// Seconds for blocks, schedule and channel sizes.
    pub(super) seconds: f64,
    /// Simulation of the schedule, or the reason why it was not simulated.
    pub(super) proof: Result<Simulation, String>,
}

impl<'g> Outcome<'g> {
    /// Schedules the graph. Simulates it if its work is at most `steps`.
    pub(super) fn of(
        graph: &'g CanonicalGraph,
        elements: usize,
        variant: Variant,
        steps: u64,
    ) -> Result<Self, CliError> {
        let started = Instant::now();
        let list = ListSchedule::new(graph, elements);
        let list_seconds = started.elapsed().as_secs_f64();
        let streaming = match variant.blocks() {
            None => None,
            Some(blocks) => {
                let started = Instant::now();
                let schedule = StreamingSchedule::new(graph, spatial_blocks(graph, elements, blocks));
                let sizes = BufferSizes::new(graph, &schedule);
                let seconds = started.elapsed().as_secs_f64();
                let (sizes, proof) = match BufferSizes::proven(graph, &schedule, steps) {
                    Ok((sizes, simulation)) => (sizes, Ok(simulation)),
                    Err(error @ SimulationError::TooLong { .. }) => (sizes, Err(error.to_string())),
                    Err(error) => return Err(CliError::internal(error)),
                };
                Some(Streaming { schedule, sizes, seconds, proof })
            }
        };
        Ok(Outcome { graph, elements, variant, list, list_seconds, streaming, depth: StreamingDepth::of(graph) })
    }

    pub(super) fn makespan(&self) -> u64 {
        self.streaming.as_ref().map_or(self.list.makespan, |streaming| streaming.schedule.makespan())
    }

    /// Returns the speedup over one processing element.
    pub(super) fn speedup(&self) -> f64 {
        ratio(self.graph.work(), self.makespan())
    }

    /// Returns the speedup of the list schedule over one processing element.
    pub(super) fn list_speedup(&self) -> f64 {
        ratio(self.graph.work(), self.list.makespan)
    }

    /// Returns the speedup over the list schedule.
    pub(super) fn gain(&self) -> f64 {
        ratio(self.list.makespan, self.makespan())
    }

    /// Returns the makespan of a streaming schedule divided by the streaming depth.
    pub(super) fn length_ratio(&self) -> Option<f64> {
        self.streaming.as_ref()?;
        self.depth.as_ref().ok().map(|depth| ratio(self.makespan(), depth.bound))
    }

    /// Returns the share of the processing elements' time that is work.
    pub(super) fn utilisation(&self) -> f64 {
        self.speedup() / self.elements.max(1) as f64
    }

    pub(super) fn seconds(&self) -> f64 {
        self.streaming.as_ref().map_or(self.list_seconds, |streaming| streaming.seconds)
    }
}

/// Returns the ratio; 1 if there is no work.
fn ratio(above: u64, below: u64) -> f64 {
    if below == 0 { 1.0 } else { above as f64 / below as f64 }
}
