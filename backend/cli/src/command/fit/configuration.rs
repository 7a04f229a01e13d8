//! A plan of a part of the machine, with the prediction for whole runs.

use super::super::open::Opened;
use anabranch::execute::RunOptions;
use anabranch::planning::{PlanChoice, Planned};
use anabranch::session::SessionError;
use anabranch_report::run::planned_peak;
use std::sync::Arc;

/// A plan, with the choice that made it.
#[derive(Clone)]
pub(super) struct PlannedConfiguration {
    pub(super) choice: PlanChoice,
    pub(super) planned: Arc<Planned>,
    /// Predicted time of a run. If the model runs in phases: of all its plans, plus the host's time in one run.
    pub(super) predicted_ms: f64,
    /// Planned bytes of a run on each device.
    pub(super) peaks: Vec<u64>,
}

impl PlannedConfiguration {
    /// Plans as `choice` says. If the model runs in phases, one run shows the plans of later phases.
    ///
    /// # Errors
    /// If there is no plan, or that run fails.
    pub(super) fn of(opened: &Opened, choice: PlanChoice, run: &RunOptions) -> Result<Self, SessionError> {
        let planned = opened.session.plan_with(&opened.inputs, &choice)?;
        let peaks = |plans: &[&Arc<Planned>]| {
            (0..planned.plan().devices().len()).map(|device| planned_peak(plans, device)).collect()
        };
        let (predicted, peaks) = if planned.rest().is_none() {
            (planned.plan().predicted().makespan, peaks(&[&planned]))
        } else {
            let prepared = opened.session.ready(&planned)?;
            let run = opened.session.run_prepared(&prepared, &opened.inputs, &run.clone().with_profile(true))?;
            (run.foreseen(), peaks(&run.plans()))
        };
        Ok(Self { choice, planned, predicted_ms: predicted * 1e3, peaks })
    }

    /// Planned bytes of a run on all devices.
    pub(super) fn bytes(&self) -> u64 {
        self.peaks.iter().copied().fold(0, u64::saturating_add)
    }
}
