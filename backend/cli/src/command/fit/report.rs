//! Results for a model: a line for each plan that was run, the smallest that kept the time, and bounds of its memory.

use super::Goal;
use super::configuration::PlannedConfiguration;
use super::machine::Part;
use anabranch::compare::{Median, Series};
use anabranch::device::format_bytes;
use anabranch::planning::{PlanChoice, Planned};
use anabranch_placement::footprint::LiveBytes;
use anabranch_report::comparison::stream_name;
use anabranch_report::table::Table;
use anabranch_report::text::{count, duration, interval};
use serde::Serialize;
use std::fmt::Write;

/// Report on one model.
#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    deadline_ms: f64,
    /// Allowed extra time over the whole machine, in percent, if that is the goal.
    within_percent: Option<f64>,
    /// Fastest plan of the whole machine.
    whole: Row,
    /// Every plan that was run or ruled out, in this order.
    pub(super) tried: Vec<Row>,
    /// Parts of the machine without a plan, with the reasons.
    pub(super) without_a_plan: Vec<(String, String)>,
    /// The fewest devices and cores that kept the deadline.
    pub(super) fewest: Option<Row>,
    /// The least memory on these that kept the deadline.
    pub(super) least_memory: Option<Row>,
    pub(super) beside: Option<Beside>,
}

/// One plan of a part of the machine.
#[derive(Clone, Serialize)]
pub(super) struct Row {
    part: Part,
    place: String,
    order: String,
    stream: &'static str,
    /// Memory limits of the plan, in the form of `--memory`.
    limits: Vec<String>,
    /// Prediction for the whole run.
    predicted_ms: f64,
    pub(super) measured_ms: Median,
    /// Whether the plan was run.
    measured: bool,
    /// Bytes that the plan takes on all devices, and the most that was taken.
    pub(super) planned_bytes: u64,
    measured_bytes: u64,
    /// Whether the median was within the deadline.
    pub(super) kept: bool,
}

/// Memory of the data in any order, compared with a run. Bytes.
#[derive(Serialize)]
pub(super) struct Beside {
    /// Upper bound on the data, over all orders.
    any_order: u64,
    /// Lower bound on the data, over all orders.
    each_order: u64,
    /// Most data in the plan's order, on all devices together.
    this_order: u64,
    /// Memory that is always taken: constants, the kernels' own data, scratch memory, buffers of links, the caller's
    /// tensors.
    other: u64,
    /// `any_order` on each device that holds data, plus `other`.
    bound: u64,
    /// Excess of the plan's slots over the values in them, at the peak.
    holes: u64,
    planned: u64,
    measured: u64,
    /// Whether the bound held for the data of the plan and, with its holes, for the memory that was taken.
    holds: bool,
}

impl Row {
    pub(super) fn measured(part: &Part, configuration: &PlannedConfiguration, series: &Series) -> Self {
        Self {
            predicted_ms: series.predicted.map_or(configuration.predicted_ms, |predicted| predicted.makespan * 1e3),
            measured_ms: series.measured_ms,
            measured: true,
            measured_bytes: series.run.peaks().iter().copied().fold(0, u64::saturating_add),
            ..Self::unmeasured(part, configuration)
        }
    }

    /// Returns the row of a plan that was not run.
    pub(super) fn unmeasured(part: &Part, configuration: &PlannedConfiguration) -> Self {
        let choice = &configuration.choice;
        Self {
            part: part.clone(),
            place: choice.strategy.to_string(),
            order: choice.order.to_string(),
            stream: stream_name(choice.plan.streaming),
            limits: Vec::new(),
            predicted_ms: configuration.predicted_ms,
            measured_ms: Median::default(),
            measured: false,
            planned_bytes: configuration.bytes(),
            measured_bytes: 0,
            kept: false,
        }
    }

    /// Sets whether the plan kept a deadline.
    pub(super) fn kept(self, deadline: f64) -> Self {
        Self { kept: self.measured && self.measured_ms.median <= deadline, ..self }
    }

    /// Sets the memory limits of the plan.
    pub(super) fn under(self, limits: &[(String, u64)]) -> Self {
        Self { limits: limits.iter().map(|(name, bytes)| format!("{name}={bytes}")).collect(), ..self }
    }

    pub(super) fn is_by(&self, choice: &PlanChoice) -> bool {
        (self.place.as_str(), self.order.as_str(), self.stream)
            == (
                choice.strategy.to_string().as_str(),
                choice.order.to_string().as_str(),
                stream_name(choice.plan.streaming),
            )
    }

    fn cells(&self) -> [String; 9] {
        let ms = |ms: f64| duration(ms * 1e-3);
        let Median { median, low, high, .. } = self.measured_ms;
        let run = |text: String| if self.measured { text } else { "–".into() };
        [
            self.part.name(),
            self.part.cores.to_string(),
            format!(
                "{}/{}/{}{}",
                self.place,
                self.order,
                self.stream,
                if self.limits.is_empty() { "" } else { "/limit" }
            ),
            ms(self.predicted_ms),
            run(ms(median)),
            run(interval(low * 1e-3, high * 1e-3)),
            format_bytes(self.planned_bytes),
            run(format_bytes(self.measured_bytes)),
            if self.kept {
                "yes"
            } else if self.measured {
                "no"
            } else {
                "not run"
            }
            .into(),
        ]
    }
}

impl Beside {
    pub(super) fn of(planned: &Planned, live: &LiveBytes, row: &Row) -> Self {
        let memory = planned.plan().memory();
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        let other = memory
            .devices()
            .iter()
            .map(|it| sum(&[it.constants, it.kernels, it.scratch, it.rings, it.staging, it.given]));
        let other = sum(&other.collect::<Vec<_>>());
        let slots = sum(&memory.devices().iter().map(|device| sum(&device.slots)).collect::<Vec<_>>());
        let holding = memory.devices().iter().filter(|device| !device.slots.is_empty()).count() as u64;
        let this_order = data_of(planned);
        let data = live.any_order.saturating_mul(holding);
        let (bound, holes) = (data.saturating_add(other), slots.saturating_sub(this_order));
        let (planned, measured) = (row.planned_bytes, row.measured_bytes);
        let holds = this_order <= data && measured <= bound.saturating_add(holes);
        let LiveBytes { any_order, each_order, .. } = *live;
        Self { any_order, each_order, this_order, other, bound, holes, planned, measured, holds }
    }
}

/// Returns the most bytes of values in slots of all devices at one position of the plan's order.
fn data_of(planned: &Planned) -> u64 {
    let allocations = planned.plan().memory().allocations();
    let mut changes: Vec<(u32, bool, u64)> = Vec::with_capacity(2 * allocations.len());
    for it in allocations {
        changes.extend([(it.from, true, it.bytes), (it.until.saturating_add(1), false, it.bytes)]);
    }
    // Values that end at a position are gone before others begin there.
    changes.sort_unstable();
    let (mut held, mut most) = (0u64, 0u64);
    for (_, begins, bytes) in changes {
        held = if begins { held.saturating_add(bytes) } else { held.saturating_sub(bytes) };
        most = most.max(held);
    }
    most
}

impl Report {
    pub(super) fn new(model: String, goal: Goal, deadline_ms: f64, whole: Row) -> Self {
        let within_percent = match goal {
            // Hides rounding errors of the factor.
            Goal::Within(times) => Some(((times - 1.0) * 1e8).round() / 1e6),
            Goal::Deadline(_) => None,
        };
        let tried = vec![whole.clone()];
        let (without_a_plan, fewest, least_memory, beside) = (Vec::new(), None, None, None);
        Self { model, deadline_ms, within_percent, whole, tried, without_a_plan, fewest, least_memory, beside }
    }

    pub(super) fn text(&self) -> String {
        let ms = |ms: f64| duration(ms * 1e-3);
        let why = match self.within_percent {
            Some(percent) => {
                format!("{percent} % over the {} of the whole machine", ms(self.whole.measured_ms.median))
            }
            None => format!("the whole machine takes {}", ms(self.whole.measured_ms.median)),
        };
        let mut text = format!("{}: at most {} ({why})\n\n", self.model, ms(self.deadline_ms));
        let mut table = Table::new(
            "devices | >cores | placed | >predicted | >measured | >interval | >memory planned | >memory measured | keeps it",
        );
        self.tried.iter().for_each(|row| table.row(row.cells()));
        // Cannot fail: this writes to a string.
        let _ = writeln!(text, "{table}");
        for (part, reason) in &self.without_a_plan {
            let _ = writeln!(text, "{part}: no plan: {reason}");
        }
        match (&self.fewest, &self.least_memory) {
            (Some(fewest), least) => {
                let row = least.as_ref().unwrap_or(fewest);
                let (devices, cores) = (row.part.name(), row.part.cores);
                let cores = count(cores, "core");
                let limits = row.limits.iter().map(|limit| format!(", --memory {limit}")).collect::<String>();
                let _ = writeln!(
                    text,
                    "{devices} with {cores} and {} keep it: {} measured, {} predicted, placed by {} in the order {}, streams {}{limits}",
                    format_bytes(row.measured_bytes),
                    ms(row.measured_ms.median),
                    ms(row.predicted_ms),
                    row.place,
                    row.order,
                    row.stream,
                );
            }
            _ => text.push_str("no plan met the goal; allow more time, or run `anabranch run --refine 3` first\n"),
        }
        if let Some(beside) = &self.beside {
            let Beside { any_order, each_order, this_order, other, bound, holes, measured, .. } = beside;
            let [any_order, each_order, this_order, other, bound, holes, measured] =
                [any_order, each_order, this_order, other, bound, holes, measured].map(|bytes| format_bytes(*bytes));
            let verdict = if beside.holds { "the bound held" } else { "the bound did NOT hold" };
            let _ = writeln!(
                text,
                "data take {each_order} at least and {any_order} at most in any order, and {this_order} in this one; with {other} that are there all \
                 the time, {bound} at most\n{verdict}: {measured} were taken, {holes} of them in slots that are larger than their values"
            );
        }
        text
    }
}
