//! One try at a problem: placed, simulated and checked, under rules that several commands share.

use super::CliError;
use anabranch::did_you_mean;
use anabranch_placement::check::{Violation, check_placement, check_schedule};
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::order::{Fifo, Frugal, Msr, Order, Pct, Planned};
use anabranch_placement::place::{Auto, Placement, Placer, strategy_by_name, strategy_names};
use anabranch_placement::platform::DeviceId;
use anabranch_placement::problem::{MemoryRule, Problem, ProblemError};
use anabranch_placement::quoted::Line;
use anabranch_placement::rules::{LinkContention, Rules, SendCosts};
use anabranch_placement::schedule::Schedule;
use anabranch_placement::simulate::simulate;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// What counts beside tasks and transfers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct RuleArgs {
    /// Operations that a send takes on the sending device; the thesis' evaluation charges 10
    #[arg(long, value_name = "OPERATIONS", default_value_t = 0.0)]
    pub(super) send_ops: f64,
    /// Let a link carry one transfer at a time; without this, transfers do not disturb each other
    #[arg(long)]
    pub(super) contention: bool,
    /// What counts against a device's memory [default: what the file says]
    #[arg(long, value_enum)]
    pub(super) memory_rule: Option<Memory>,
}

/// What counts against a device's memory.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// What stays there
    Resident,
    /// What stays there, and each task's inputs and outputs
    SizeEstimate,
    /// Nothing
    Ignore,
}

/// Which of the ready tasks of a device runs next.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(super) enum OrderName {
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
    /// As typed on a command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            OrderName::Pct => "pct",
            OrderName::Msr => "msr",
            OrderName::Fifo => "fifo",
            OrderName::Frugal => "frugal",
            OrderName::Planned => "planned",
        }
    }
}

impl RuleArgs {
    /// What else holds. Receives count as much in path computation times as sends, as in the thesis' evaluation.
    fn rules(&self) -> Rules {
        let send_costs = SendCosts { send_operations: self.send_ops, receive_operations: self.send_ops };
        let contention = if self.contention { LinkContention::Serial } else { LinkContention::None };
        Rules::default().with_send_costs(send_costs).with_contention(contention)
    }

    /// Puts the memory rule of the command line in place of the file's.
    pub(super) fn apply(&self, problem: &mut LoadedProblem) {
        problem.memory_rule = match self.memory_rule {
            Some(Memory::Resident) => MemoryRule::Resident,
            Some(Memory::SizeEstimate) => MemoryRule::SizeEstimate,
            Some(Memory::Ignore) => MemoryRule::Ignore,
            None => problem.memory_rule,
        };
    }

    /// The problem under the rules of the command line.
    pub(super) fn problem<'a>(&self, loaded: &'a LoadedProblem) -> Result<Problem<'a>, ProblemError> {
        loaded.problem()?.under(self.rules())
    }
}

/// A memory rule as typed on a command line.
pub(super) fn memory_rule_name(rule: MemoryRule) -> &'static str {
    match rule {
        MemoryRule::Resident => "resident",
        MemoryRule::SizeEstimate => "size-estimate",
        MemoryRule::Ignore => "ignore",
    }
}

/// The strategy that searches, and is not among [`STRATEGIES`](anabranch_placement::place::STRATEGIES).
pub(super) const AUTO: &str = "auto";

/// How far the strategy that searches goes.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchArgs {
    /// Placements that auto simulates [default: what takes a minute at most]
    #[arg(long, value_name = "COUNT")]
    pub(super) evaluations: Option<u64>,
}

/// The strategy called `name`; the one that searches is `auto`.
pub(super) fn strategy(name: &str, auto: Auto) -> Result<Box<dyn Placer>, CliError> {
    if name == AUTO {
        return Ok(Box::new(auto));
    }
    strategy_by_name(name).ok_or_else(|| {
        let meant = did_you_mean(name, strategy_names());
        CliError::input(format!("there is no strategy `{name}`{meant}; known are {}", strategy_names().join(", ")))
    })
}

/// What the independent checker found.
fn fault(strategy: &str, order: OrderName, violation: &Violation) -> CliError {
    let order = order.name();
    CliError::internal(format!(
        "`{strategy}` under {order} gave an invalid result, which is a fault of Anabranch: {violation}"
    ))
}

/// A placement, and where it comes from.
pub(super) struct Placed {
    /// The strategy, or `given`.
    pub(super) strategy: &'static str,
    /// By task.
    pub(super) device_of: Vec<DeviceId>,
    /// How long placing took.
    pub(super) time: Duration,
    planned: Option<Schedule>,
}

impl Placed {
    /// Places `problem`, and has the result checked.
    pub(super) fn by(placer: &dyn Placer, problem: &Problem<'_>) -> Result<Self, CliError> {
        let started = Instant::now();
        let Placement { strategy, device_of, planned, .. } = placer.place(problem).map_err(CliError::input)?;
        let time = started.elapsed();
        match check_placement(problem, &device_of).first() {
            None => Ok(Placed { strategy, device_of, time, planned }),
            Some(violation) => Err(fault(strategy, OrderName::Planned, violation)),
        }
    }

    /// A placement that was given, whether it keeps all constraints or not.
    pub(super) fn given(device_of: Vec<DeviceId>) -> Self {
        Placed { strategy: "given", device_of, time: Duration::ZERO, planned: None }
    }

    /// Simulates it under an order, and has the schedule checked.
    pub(super) fn schedule(&self, problem: &Problem<'_>, order: OrderName) -> Result<Schedule, CliError> {
        let planned = self.planned.as_ref().map(|planned| Planned::new(&planned.order));
        let rule: &dyn Order = match order {
            OrderName::Pct => &Pct,
            OrderName::Msr => &Msr,
            OrderName::Fifo => &Fifo,
            OrderName::Frugal => &Frugal,
            OrderName::Planned => planned.as_ref().ok_or_else(|| {
                let name = self.strategy;
                CliError::input(format!(
                    "`{name}` plans no order; take another with --order, or a list scheduler such as heft"
                ))
            })?,
        };
        let schedule = simulate(problem, &self.device_of, rule).map_err(CliError::input)?;
        match check_schedule(problem, &self.device_of, &schedule).first() {
            None => Ok(schedule),
            Some(violation) => Err(fault(self.strategy, order, violation)),
        }
    }
}

/// How times are written, and what their axis is called: seconds with their unit, others as numbers.
pub(super) fn time_format(unit: Option<&str>) -> (fn(f64) -> String, String) {
    match unit {
        Some("s") => (super::table::duration, "time".into()),
        Some(unit) => (crate::chart::amount, format!("time ({})", Line(unit))),
        None => (crate::chart::amount, "time (time units)".into()),
    }
}

/// A time with its unit, for there is no axis that names it.
pub(super) fn with_unit(unit: Option<&str>, time: f64) -> String {
    let (format, _) = time_format(unit);
    match unit {
        Some("s") => format(time),
        unit => format!("{} {}", format(time), Line(unit.unwrap_or("time units"))),
    }
}

/// The length of a unit of time, where it is known.
pub(super) fn nanoseconds(unit: Option<&str>) -> Option<f64> {
    match unit? {
        "s" => Some(1e9),
        "ms" => Some(1e6),
        // The sign for micro, and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1e3),
        "ns" => Some(1.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_time_are_known_or_none() {
        let of = |unit| nanoseconds(Some(unit));
        assert_eq!([of("s"), of("ms"), of("us"), of("ns")], [1e9, 1e6, 1e3, 1.0].map(Some));
        assert_eq!([of("\u{b5}s"), of("\u{3bc}s")], [Some(1e3); 2]);
        assert_eq!((of("fortnights"), nanoseconds(None)), (None, None));
        assert_eq!((with_unit(None, 3.0), with_unit(Some("ms"), 3.0)), ("3 time units".into(), "3 ms".into()));
    }
}
