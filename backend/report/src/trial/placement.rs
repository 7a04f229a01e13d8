//! A placement of a problem, simulated and checked.

use anabranch::did_you_mean;
use anabranch_placement::check::{Violation, check_placement, check_schedule};
use anabranch_placement::order::{Fifo, Frugal, Msr, Order, Pct, Planned};
use anabranch_placement::place::{Auto, Placement, Placer, strategy_by_name, strategy_names};
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
    /// Greatest path computation time
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

/// Name of the search strategy, which is not among [`STRATEGIES`](anabranch_placement::place::STRATEGIES).
pub const AUTO: &str = "auto";

/// Returns the strategy called `name`. The search strategy is `auto`.
///
/// # Errors
/// If there is none of that name.
pub fn strategy(name: &str, auto: Auto) -> Result<Box<dyn Placer>, TrialError> {
    if name == AUTO {
        return Ok(Box::new(auto));
    }
    strategy_by_name(name).ok_or_else(|| {
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
    planned: Option<Schedule>,
}

impl TrialPlacement {
    /// Places `problem`, and checks the result.
    ///
    /// # Errors
    /// If the strategy finds no placement, or an invalid one.
    pub fn by(placer: &dyn Placer, problem: &Problem<'_>) -> Result<Self, TrialError> {
        let started = Instant::now();
        let Placement { strategy, device_of, planned, .. } =
            placer.place(problem).map_err(|error| TrialError::Input(error.to_string()))?;
        let time = started.elapsed();
        match check_placement(problem, &device_of).first() {
            None => Ok(TrialPlacement { strategy, device_of, time, planned }),
            Some(violation) => Err(fault(strategy, OrderName::Planned, violation)),
        }
    }

    /// Takes a given placement, whether it keeps all constraints or not.
    pub fn given(device_of: Vec<DeviceId>) -> Self {
        TrialPlacement { strategy: "given", device_of, time: Duration::ZERO, planned: None }
    }

    /// Simulates it under an order, and checks the schedule.
    ///
    /// # Errors
    /// If the strategy planned no order and `planned` is requested, or the simulation fails.
    pub fn schedule(&self, problem: &Problem<'_>, order: OrderName) -> Result<Schedule, TrialError> {
        let planned = self.planned.as_ref().map(|planned| Planned::new(&planned.order));
        let rule: &dyn Order = match order {
            OrderName::Pct => &Pct,
            OrderName::Msr => &Msr,
            OrderName::Fifo => &Fifo,
            OrderName::Frugal => &Frugal,
            OrderName::Planned => planned.as_ref().ok_or_else(|| {
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
