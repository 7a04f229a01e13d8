//! Events of a run with names, and as a file.

use super::run::Run;
use super::whole::Part;
use anabranch_execute::{Activity, Event, Lane};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::HOST;
use serde::{Deserialize, Serialize};

impl Part<'_> {
    fn device_name(&self, device: DeviceId) -> &str {
        &self.planned.plan().device(device).name
    }

    /// Returns the device's name, or the names of both ends of the link.
    pub fn lane_name(&self, lane: Lane) -> String {
        match lane {
            Lane::Device(device) => self.device_name(device).to_owned(),
            Lane::Link { from, to } => format!("{} → {}", self.device_name(from), self.device_name(to)),
        }
    }

    /// Returns the name of the node, or of the transferred value.
    pub fn name(&self, what: Activity) -> &str {
        let (program, plan) = (&self.planned.program, self.planned.plan());
        match what {
            Activity::Node(node) => &program.node(node).name,
            Activity::Transfer(transfer) => &program.value(plan.transfer(transfer).value).name,
        }
    }

    /// Iterates over its events, with times since the whole run's start.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        let begun = self.begun.as_nanos() as u64;
        self.measured.events.iter().map(move |event| Event {
            ready: event.ready + begun,
            start: event.start + begun,
            end: event.end + begun,
            ..*event
        })
    }
}

/// Events of a run, as files of them hold them. Times are in nanoseconds since the run's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunEvents {
    /// Time from the run's start until its last output was present, through all phases.
    pub makespan_ns: u64,
    /// Nodes, transfers and operators on the host, of all phases.
    pub events: Vec<RunEvent>,
    /// Number of runs of later plans that are not among the events, because there were too many: nothing is kept after
    /// the first.
    #[serde(default)]
    pub left_out: usize,
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunEvent {
    /// Kind of the event.
    pub kind: EventKind,
    /// Name of the node, of the transferred tensor, or of the operator that the host computes between two phases.
    pub name: String,
    /// Device, or both ends of the link.
    pub on: String,
    /// Time at which all that it needs was present.
    pub ready_ns: u64,
    /// Time of its start.
    pub start_ns: u64,
    /// Time of its end.
    pub end_ns: u64,
    /// Time between its start and its end in which it waited for chunks of others.
    pub waited_ns: u64,
    /// Bytes of its outputs, or bytes transferred.
    pub bytes: u64,
    /// Number of its plan among the run's plans, if the model runs in phases; a loop's body counts in each iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<usize>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Work of a device.
    Node,
    /// Transfer over a link.
    Transfer,
    /// Operator that the host computes between two phases.
    Step,
}

impl RunEvents {
    /// Returns all events of a run: those of all its phases, and the operators that the host computed in between.
    pub fn of(run: &Run) -> Self {
        let phase = |number: usize| run.later.is_some().then_some(number);
        let parts = run.parts();
        let parts = parts.iter().enumerate();
        let planned =
            parts.flat_map(|(at, part)| part.events().map(move |event| RunEvent::of(part, &event, phase(at))));
        let host = run.prepared.plan().device(HOST).name.as_str();
        let steps = run.host_operators().iter().map(|step| {
            let (start, took) = (step.begun.as_nanos() as u64, step.took.as_nanos() as u64);
            RunEvent {
                kind: EventKind::Step,
                name: step.name.clone(),
                on: host.to_owned(),
                ready_ns: start,
                start_ns: start,
                end_ns: start + took,
                waited_ns: 0,
                bytes: step.bytes,
                phase: None,
            }
        });
        Self {
            makespan_ns: run.took().as_nanos() as u64,
            events: planned.chain(steps).collect(),
            left_out: run.later.as_ref().map_or(0, |later| later.left_out),
        }
    }
}

impl RunEvent {
    fn of(part: &Part<'_>, event: &Event, phase: Option<usize>) -> Self {
        Self {
            kind: match event.what {
                Activity::Node(_) => EventKind::Node,
                Activity::Transfer(_) => EventKind::Transfer,
            },
            name: part.name(event.what).to_owned(),
            on: part.lane_name(event.lane),
            ready_ns: event.ready,
            start_ns: event.start,
            end_ns: event.end,
            waited_ns: event.waited,
            bytes: event.bytes,
            phase,
        }
    }
}
