//! Runs of one probe of the calibration, and the times that they show.

use super::CalibrationError;
use crate::observation::observe;
use anabranch_base::quantile::{ascending, lower_quartile};
use anabranch_execute::{Executor, RunOptions, RunOutput};
use anabranch_ir::program::Program;
use anabranch_kernels::Tensor;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::HOST;
use std::mem;
use std::sync::Arc;

/// Runs of one probe.
pub(super) struct Trial {
    pub(super) program: Arc<Program>,
    pub(super) executor: Executor,
    pub(super) inputs: Vec<Tensor>,
    pub(super) runs: Vec<RunOutput>,
    /// Outputs of the last run.
    pub(super) outputs: Vec<Tensor>,
}

impl Trial {
    /// Runs once more, into the last run's outputs.
    ///
    /// The first touch of fresh memory takes longer than many links, and is not part of the link's time.
    pub(super) fn run(&mut self) -> Result<(), CalibrationError> {
        let mut run = RunOutput { outputs: mem::take(&mut self.outputs), ..RunOutput::default() };
        let inputs: Vec<_> = self.inputs.iter().collect();
        self.executor.run_into(&inputs, &RunOptions::default().with_profile(true), &mut run)?;
        self.outputs = mem::take(&mut run.outputs);
        self.runs.push(run);
        Ok(())
    }

    /// Runs and replaces the last run, unless that was the first: caches then hold what they do when a network runs
    /// again.
    pub(super) fn run_again(&mut self) -> Result<(), CalibrationError> {
        self.runs.truncate((self.runs.len() - 1).max(1));
        self.run()
    }

    /// Least time of a node, which was disturbed least.
    pub(super) fn least_node(&self) -> f64 {
        let nodes = self.runs.iter().flat_map(|run| observe(&self.program, self.executor.plan(), run).nodes);
        nodes.map(|node| node.seconds).fold(f64::INFINITY, f64::min)
    }

    /// Usual time of a node on the device: the lower quartile over the warm runs, of all nodes except the program's
    /// first.
    pub(super) fn usual_node(&self, device: DeviceId) -> f64 {
        let runs = self.runs.iter().skip(1);
        let nodes = runs.flat_map(|run| observe(&self.program, self.executor.plan(), run).nodes);
        let times: Vec<f64> =
            nodes.filter(|node| node.device == device && node.node.0 > 0).map(|node| node.seconds).collect();
        lower_quartile(&ascending(&times)).unwrap_or(0.0)
    }

    /// Bytes and least seconds of the transfers from the host, or back to it.
    pub(super) fn least_transfer(&self, back: bool) -> Option<(f64, f64)> {
        let plan = self.executor.plan();
        let transfers = self.runs.iter().flat_map(|run| observe(&self.program, plan, run).transfers);
        let times = transfers.filter(|(id, _)| (plan.transfer(*id).to == HOST) == back);
        let (id, seconds) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((plan.transfer(id).bytes as f64, seconds))
    }
}
