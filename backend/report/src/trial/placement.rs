//! A placement of a problem, simulated and checked.

use anabranch::did_you_mean;
use anabranch_placement::check::{Violation, check_placement, check_schedule};
use anabranch_placement::order::{Fifo, Frugal, InOrder, Msr, Order, Pct, Planned};
pub use anabranch_placement::place::AUTO;
use anabranch_placement::place::{
    Auto, Exact, Placement, Placer, Proof, form_of_name, strategy_by_name, strategy_names,
};
use anabranch_placement::platform::DeviceId;
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::Schedule;
use anabranch_placement::simulate::simulate;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Reason why a problem was not placed and simulated, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// The problem or the options cannot be used.
    #[error("{0}")]
    Input(String),
    /// The independent checker rejects a result, which is a bug in Anabranch.
    #[error("{0}")]
    Fault(String),
}

/// Rule by which a device's next task is chosen from the ready ones.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum OrderName {
    #[default]
    /// Greatest path computation time, or the order that auto or exact found
    Pct,
    /// Maximum successor rank
    Msr,
    /// First in, first out
    Fifo,
    /// Least memory first
    Frugal,
    /// The order that the strategy planned, where it plans one
    Planned,
}

impl OrderName {
    /// Returns the name as typed on a command line.
    pub fn name(self) -> &'static str {
        match self {
            OrderName::Pct => "pct",
            OrderName::Msr => "msr",
            OrderName::Fifo => "fifo",
            OrderName::Frugal => "frugal",
            OrderName::Planned => "planned",
        }
    }
}

/// Returns the strategy called `name`. `auto` and `exact` search as `auto` says.
///
/// # Errors
/// If there is none of that name.
pub fn strategy(name: &str, auto: Auto) -> Result<Box<dyn Placer>, TrialError> {
    if name == AUTO {
        return Ok(Box::new(auto));
    }
    if let Some(exact) = Exact::by_name(name) {
        return Ok(Box::new(Exact { auto, ..exact }));
    }
    strategy_by_name(name).ok_or_else(|| {
        if let Some(form) = form_of_name(name) {
            return TrialError::Input(format!("there is no strategy `{name}`: {form}"));
        }
        let meant = did_you_mean(name, strategy_names());
        TrialError::Input(format!(
            "there is no strategy `{name}`{meant}; the strategies are {}",
            strategy_names().join(", ")
        ))
    })
}

/// Returns the error of a violation that the independent checker found.
fn fault(strategy: &str, order: OrderName, violation: &Violation) -> TrialError {
    let order = order.name();
    TrialError::Fault(format!(
        "`{strategy}` under {order} gave an invalid result, which is a bug in Anabranch; please report it: \
         {violation}"
    ))
}

/// A placement, and its origin.
pub struct TrialPlacement {
    /// Name of the strategy, or `given`.
    pub strategy: &'static str,
    /// Device of each task.
    pub device_of: Vec<DeviceId>,
    /// Time that placing took.
    pub time: Duration,
    /// Result of the exact search, for the strategy `exact`.
    pub proof: Option<Proof>,
    planned: Option<Schedule>,
    /// Whether devices keep the planned order exactly.
    keeps_order: bool,
}

impl TrialPlacement {
    /// Places `problem`, and checks the result.
    ///
    /// # Errors
    /// If the strategy finds no placement, or an invalid one.
    pub fn by(placer: &dyn Placer, problem: &Problem<'_>) -> Result<Self, TrialError> {
        let started = Instant::now();
        let placement = placer.place(problem).map_err(|error| TrialError::Input(error.to_string()))?;
        let time = started.elapsed();
        let keeps_order = placement.order_to_keep().is_some();
        let proof = placement.proof();
        let Placement { strategy, device_of, planned, .. } = placement;
        match check_placement(problem, &device_of).first() {
            None => Ok(TrialPlacement { strategy, device_of, time, proof, planned, keeps_order }),
            Some(violation) => Err(fault(strategy, OrderName::Planned, violation)),
        }
    }

    /// Takes a given placement, whether it keeps all constraints or not.
    pub fn given(device_of: Vec<DeviceId>) -> Self {
        let (strategy, time) = ("given", Duration::ZERO);
        TrialPlacement { strategy, device_of, time, proof: None, planned: None, keeps_order: false }
    }

    /// Simulates it under an order, and checks the schedule.
    ///
    /// # Errors
    /// If the strategy planned no order and `planned` is requested, or the simulation fails.
    pub fn schedule(&self, problem: &Problem<'_>, order: OrderName) -> Result<Schedule, TrialError> {
        let planned = self.planned.as_ref().map(|planned| Planned::new(&planned.order));
        let kept = self.planned.as_ref().filter(|_| self.keeps_order).map(|planned| InOrder::new(&planned.order));
        let kept = kept.as_ref().filter(|_| [OrderName::Pct, OrderName::Planned].contains(&order));
        let rule: &dyn Order = match (kept, order) {
            (Some(kept), _) => kept,
            (None, OrderName::Pct) => &Pct,
            (None, OrderName::Msr) => &Msr,
            (None, OrderName::Fifo) => &Fifo,
            (None, OrderName::Frugal) => &Frugal,
            (None, OrderName::Planned) => planned.as_ref().ok_or_else(|| {
                let name = self.strategy;
                TrialError::Input(format!(
                    "`{name}` plans no order; use another --order, or a list scheduler such as heft"
                ))
            })?,
        };
        let schedule =
            simulate(problem, &self.device_of, rule).map_err(|error| TrialError::Input(error.to_string()))?;
        match check_schedule(problem, &self.device_of, &schedule).first() {
            None => Ok(schedule),
            Some(violation) => Err(fault(self.strategy, order, violation)),
        }
    }
}
