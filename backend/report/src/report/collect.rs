//! Collects the data of the report's page from a planned model and a run of it: the plans of all phases on one time
//! axis, and the operators that the host computes between them. Times are in nanoseconds from the run's start, sizes in
//! bytes. Devices, nodes and transfers are referred to by index.

use super::critical::{After, ChainStep};
use super::memory;
use super::part::{About, Edge, Places, PlanPart, Timing};
use super::scopes::scopes;
use super::spans::{Steps, Times};
use crate::run::one_device;
use crate::text::count;
use anabranch::compare::{Latencies, Series};
use anabranch::device::DeviceRef;
use anabranch::plan::{HOST, Traffic};
use anabranch::planning::{Planned, PlanningError};
use anabranch::session::{HostOperator, Run, RunPrediction};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most nodes, inputs and outputs in the page, beyond the first plan: the passes of a loop are unbounded.
const MOST_TASKS: usize = 4_000;

/// Most makespans in the page: it needs no more points than pixels, and should open quickly.
const MOST_RUNS: usize = 10_000;

/// Returns the data of a plan and, if it was run, of the run that is nearest to the median.
///
/// # Errors
/// If the placement's problem cannot be built again, which is a bug in Anabranch.
pub fn data(planned: &Planned, about: &About<'_>) -> Result<Value, PlanningError> {
    let run = about.series.map(|series| &series.run);
    let whole = Whole::new(planned, about, run)?;
    let edges = whole.edges();
    let ends: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let (names, outside) = whole.names();
    let scopes = scopes(&names.iter().map(String::as_str).collect::<Vec<_>>(), outside, &ends);
    let mut nodes = whole.nodes();
    nodes.iter_mut().zip(&scopes.of).for_each(|(node, scope)| node["scope"] = json!(scope));
    let [planned_traffic, traffic] = run.map_or([planned.plan().traffic(); 2], Run::traffic);
    let total = |traffic: Traffic, makespan: u64, chain: Vec<ChainStep>| {
        let (moved, in_place) = (traffic.moved(), traffic.in_place);
        json!({
            "makespan_ns": makespan,
            "traffic": moved.bytes,
            "moved": moved,
            "in_place": in_place,
            // From the run's start to its end.
            "chain": chain,
        })
    };
    let [foreseen, took] = whole.ends(run);
    Ok(json!({
        "facts": whole.facts(run),
        "predicted": total(planned_traffic, foreseen, whole.chain(|part| Some(&part.predicted))),
        // The run nearest to the median. Null if nothing ran, as are all measured values.
        "measured": run.map(|_| total(traffic, took, whole.chain(|part| part.measured.as_ref()))),
        // The first is the host.
        "devices": whole.devices(run),
        // In topological order, then inputs and outputs of the plans.
        "nodes": nodes,
        "edges": edges,
        "transfers": whole.parts().flat_map(PlanPart::transfers).collect::<Vec<_>>(),
        // Groups of nodes, each after its parent.
        "scopes": scopes.groups,
    }))
}

/// Returns the numbers of runs, and the makespans in nanoseconds. If there are very many runs, only every n-th is
/// listed. Figures cover all runs.
fn runs(series: &Series) -> Value {
    let ns = |ms: f64| (ms * 1e6).round() as u64;
    let (median, ranks) = (series.measured_ms, Latencies::of(&series.samples_ms));
    let every = series.samples_ms.len().div_ceil(MOST_RUNS).max(1);
    json!({
        "warmup": series.warmup,
        "cold": series.cold,
        "first_ns": ns(series.first_ms),
        "count": series.samples_ms.len(),
        "every": every,
        "latencies_ns": series.samples_ms.iter().copied().step_by(every).map(ns).collect::<Vec<_>>(),
        "min_ns": ns(ranks.min),
        "p90_ns": ns(ranks.p90),
        "p99_ns": ns(ranks.p99),
        "max_ns": ns(ranks.max),
        "median_ns": ns(median.median),
        "low_ns": ns(median.low),
        "high_ns": ns(median.high),
        "confidence": median.confidence,
        "node_error_percent": series.accuracy.node_error().map(|error| 100.0 * error),
        "link_error_percent": series.accuracy.link_error().map(|error| 100.0 * error),
        // Whether the prediction was known before the run, and whether its interval is too wide to be useful.
        "predicted": series.predicted.is_some(),
        "vague": series.predicted.is_some_and(|predicted| predicted.is_vague()),
        "busy": series.load.is_busy(),
    })
}

/// Parts of a report, in the order of time.
enum Shown<'a> {
    Plan(Box<PlanPart<'a>>),
    /// With its index among the nodes, and its predicted start.
    HostOperator(&'a HostOperator, usize, u64),
}

/// Everything that is shown.
struct Whole<'a> {
    shown: Vec<Shown<'a>>,
    about: &'a About<'a>,
    planned: &'a Planned,
    /// Number of plans' runs and steps that are left out, because there are too many.
    left_out: usize,
}

impl<'a> Whole<'a> {
    fn new(planned: &'a Planned, about: &'a About<'a>, run: Option<&'a Run>) -> Result<Self, PlanningError> {
        let (mut shown, mut left_out) = (Vec::new(), 0);
        match run {
            None => shown.push(Shown::Plan(Box::new(PlanPart::planned(planned, about)?))),
            Some(run) => left_out = show(&mut shown, run, about)?,
        }
        number(&mut shown);
        Ok(Self { shown, about, planned, left_out })
    }

    fn parts(&self) -> impl Iterator<Item = &PlanPart<'a>> {
        self.shown.iter().filter_map(|shown| match shown {
            Shown::Plan(part) => Some(&**part),
            Shown::HostOperator(..) => None,
        })
    }

    /// Returns the names of nodes, and the numbers of inputs and outputs. If there are several plans, names are grouped
    /// by phase.
    fn names(&self) -> (Vec<String>, [usize; 2]) {
        let (several, mut phase, mut names) = (self.parts().count() > 1, 0, Vec::new());
        for shown in &self.shown {
            match shown {
                Shown::Plan(part) => {
                    let own = part.program.node_ids().map(|id| &part.program.node(id).name);
                    names.extend(own.map(|name| if several { format!("phase {phase}/{name}") } else { name.clone() }));
                    phase += 1;
                }
                Shown::HostOperator(step, ..) => names.push(format!("host operators/{}", step.name)),
            }
        }
        let count = |of: fn(&PlanPart<'_>) -> usize| self.parts().map(of).sum();
        (names, [count(|part| part.program.inputs.len()), count(|part| part.program.outputs.len())])
    }

    /// Returns the nodes of all plans and the steps between them, then all inputs, then all outputs.
    fn nodes(&self) -> Vec<Value> {
        let mut nodes = Vec::new();
        for shown in &self.shown {
            match shown {
                Shown::Plan(part) => nodes.extend(part.nodes()),
                Shown::HostOperator(step, _, foreseen) => nodes.push(host_operator_node(step, *foreseen)),
            }
        }
        nodes.extend(self.parts().flat_map(PlanPart::inputs));
        nodes.extend(self.parts().flat_map(PlanPart::outputs));
        nodes
    }

    /// Returns the edges within plans, and edges between parts: from the maker of a value to the later plan or step
    /// that reads it under the same name.
    fn edges(&self) -> Vec<Edge> {
        let mut edges: Vec<Edge> = self.parts().flat_map(PlanPart::edges).collect();
        let mut made: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let link = |made: &BTreeMap<&str, (usize, usize)>, name: &str, to| {
            made.get(name).map(|(from, port)| Edge { from: *from, to, port: *port, transfer: None })
        };
        for shown in &self.shown {
            match shown {
                Shown::Plan(part) => {
                    for (at, value) in part.program.inputs.iter().enumerate() {
                        let (name, place) = (part.program.value(*value).name.as_str(), part.places.inputs + at);
                        edges.extend(link(&made, name, place));
                        made.entry(name).or_insert((place, 0));
                    }
                    let outputs = part.program.outputs.iter().enumerate();
                    made.extend(outputs.map(|(at, output)| (output.name.as_str(), (part.places.outputs + at, 0))));
                }
                Shown::HostOperator(step, place, _) => {
                    edges.extend(step.reads.iter().filter_map(|name| link(&made, name, *place)));
                    made.extend(step.makes.iter().enumerate().map(|(port, name)| (name.as_str(), (*place, port))));
                }
            }
        }
        edges
    }

    /// Returns the chains of all plans, one after the other.
    fn chain(&self, timing: impl for<'p> Fn(&'p PlanPart<'a>) -> Option<&'p Timing>) -> Vec<ChainStep> {
        let (mut steps, mut ended) = (Vec::<ChainStep>::new(), 0);
        for part in self.parts() {
            let Some(timing) = timing(part) else { continue };
            for step in &timing.chain.steps {
                let first = step.after == After::Start && !steps.is_empty();
                let times = match step.kind {
                    "node" => timing.spans.tasks[step.index],
                    _ => timing.spans.transfers[step.index].unwrap_or_default(),
                };
                let index =
                    if step.kind == "node" { part.place(step.index) } else { part.places.transfers + step.index };
                let (after, pause_ns) = match first {
                    true => (After::Host, times.start.saturating_sub(ended)),
                    false => (step.after, step.pause_ns),
                };
                ended = times.end;
                steps.push(ChainStep { kind: step.kind, index, after, pause_ns });
            }
        }
        steps
    }

    /// Returns the ends, as predicted and as measured.
    fn ends(&self, run: Option<&Run>) -> [u64; 2] {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        let foreseen = run.map_or_else(|| self.planned.plan().predicted().makespan, Run::foreseen);
        let mut ends = [ns(foreseen), run.map_or(0, |run| run.took().as_nanos() as u64)];
        for part in self.parts() {
            ends[0] = ends[0].max(part.predicted.spans.makespan);
            ends[1] = ends[1].max(part.measured.as_ref().map_or(0, |timing| timing.spans.makespan));
        }
        ends
    }

    fn facts(&self, run: Option<&Run>) -> Value {
        let About { model, command, date, inventory, series, .. } = self.about;
        let host = &inventory.host;
        json!({
            "model": model,
            "command": command,
            "date": date,
            "one_device": one_device(self.planned.plan().devices().len()),
            "machine": format!("{} ({}, {}, {})", host.model, count(host.allowed_cores, "core"), host.os, host.arch),
            "version": env!("CARGO_PKG_VERSION"),
            "strategy": self.planned.plan().strategy(),
            "candidates": self.planned.candidates,
            "place_ns": self.planned.place_time.as_nanos() as u64,
            "runs": series.map(runs),
            // Null if the model does not run in phases.
            "phases": run.filter(|run| run.later.is_some()).map(|run| self.phases(run)),
        })
    }

    /// Returns the plans that a run executed, in order.
    fn phases(&self, run: &Run) -> Value {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        let parts = run.parts();
        let phase = |part: &anabranch::session::Part<'_>| {
            json!({
                "plan": part.plan,
                "nodes": part.planned.program.nodes.len(),
                "begun_ns": part.begun.as_nanos() as u64,
                "took_ns": part.measured.makespan.as_nanos() as u64,
                "predicted_ns": ns(RunPrediction::of(part.planned).makespan),
            })
        };
        let later = run.later.as_ref();
        json!({
            "each": parts.iter().take(self.parts().count()).map(phase).collect::<Vec<_>>(),
            "host_ns": later.map_or(0, |later| later.on_host(run).as_nanos() as u64),
            "planning_ns": later.map_or(0, |later| later.planning.as_nanos() as u64),
            "left_out": self.left_out,
        })
    }

    fn devices(&self, run: Option<&Run>) -> Vec<Value> {
        let description = |name: &str| match self.about.inventory.device(name) {
            Some(DeviceRef::Cpu(cpu)) => cpu.description.clone(),
            Some(DeviceRef::Gpu(gpu)) => gpu.description.clone(),
            None => String::new(),
        };
        let peaks = run.map(Run::peaks);
        let device = |(index, device): (usize, &anabranch::plan::PlanDevice)| {
            let most = |of: fn(&anabranch::plan::DeviceMemory) -> u64| {
                self.parts().map(|part| of(&part.plan.memory().devices()[index])).max()
            };
            json!({
                "name": device.name,
                "kind": device.kind.to_string(),
                "description": description(&device.name),
                "limit": device.limit,
                // Memory that is held between runs: constants and the kernels' own data.
                "resident": most(|memory| memory.resident()),
                "planned_peak": most(|memory| memory.peak()),
                "measured_peak": peaks.as_ref().and_then(|peaks| peaks.get(index)),
                "memory_predicted": self.steps(|part| Some(&part.predicted), |timing| &timing.memory[index]),
                "memory_measured": self.steps(|part| part.measured.as_ref(), |timing| &timing.memory[index]),
                "executable_predicted": self.steps(|part| Some(&part.predicted), |timing| &timing.executable[index]),
                "executable_measured": self.steps(|part| part.measured.as_ref(), |timing| &timing.executable[index]),
            })
        };
        self.planned.plan().devices().iter().enumerate().map(device).collect()
    }

    /// Returns memory over time in all plans.
    fn steps(
        &self,
        timing: impl for<'p> Fn(&'p PlanPart<'a>) -> Option<&'p Timing>,
        steps: impl Fn(&Timing) -> &Steps,
    ) -> Steps {
        let mut all = Steps::new();
        for timing in self.parts().filter_map(timing) {
            memory::go_on(&mut all, steps(timing), timing.begun);
        }
        all
    }
}

/// Shows the plans and steps of a run by time, as many as fit into the page. Returns the number of those left out.
fn show<'a>(shown: &mut Vec<Shown<'a>>, run: &'a Run, about: &'a About<'a>) -> Result<usize, PlanningError> {
    let (mut tasks, mut left_out) = (0, run.later.as_ref().map_or(0, |later| later.left_out));
    let mut steps = run.host_operators().iter().peekable();
    let mut since = None;
    for part in run.parts() {
        while let Some(step) = steps.next_if(|step| step.begun < part.begun) {
            show_host_operator(shown, step, since);
        }
        let program = &part.planned.program;
        tasks += program.nodes.len() + program.inputs.len() + program.outputs.len();
        if since.is_some() && tasks > MOST_TASKS {
            left_out += 1;
            continue;
        }
        let ended = part.begun + part.measured.makespan;
        let foreseen = part.foreseen.as_secs_f64() + RunPrediction::of(part.planned).makespan;
        since = Some((ended.as_nanos() as u64, (foreseen * 1e9) as u64));
        shown.push(Shown::Plan(Box::new(PlanPart::ran(&part, about)?)));
    }
    steps.for_each(|step| show_host_operator(shown, step, since));
    Ok(left_out)
}

/// Shows a step. Its predicted start follows the plan before it at the measured distance.
fn show_host_operator<'a>(shown: &mut Vec<Shown<'a>>, step: &'a HostOperator, since: Option<(u64, u64)>) {
    if shown.len() < MOST_TASKS {
        let begun = step.begun.as_nanos() as u64;
        let foreseen = since.map_or(begun, |(ended, foreseen)| foreseen + begun.saturating_sub(ended));
        shown.push(Shown::HostOperator(step, 0, foreseen));
    }
}

/// Numbers everything that is shown by its position in the page.
fn number(shown: &mut [Shown<'_>]) {
    let mut next = Places::default();
    for shown in shown.iter_mut() {
        match shown {
            Shown::Plan(part) => {
                part.places = next;
                next.nodes += part.program.nodes.len();
                next.inputs += part.program.inputs.len();
                next.outputs += part.program.outputs.len();
                next.transfers += part.plan.transfers().len();
            }
            Shown::HostOperator(_, place, _) => {
                *place = next.nodes;
                next.nodes += 1;
            }
        }
    }
    let [inputs, outputs] = [next.nodes, next.nodes + next.inputs];
    for shown in shown {
        if let Shown::Plan(part) = shown {
            part.places.inputs += inputs;
            part.places.outputs += outputs;
        }
    }
}

/// Returns an operator that the host computed between plans, as a node.
fn host_operator_node(step: &HostOperator, foreseen: u64) -> Value {
    let ports = |names: &[String]| {
        let port = |name: &String| json!({ "name": name, "spec": "", "bytes": 0, "constant": false });
        names.iter().map(port).collect::<Vec<_>>()
    };
    let measured = Times::of_host_operator(step);
    let predicted = Times { ready: foreseen, start: foreseen, end: foreseen + measured.busy, busy: measured.busy };
    json!({
        "name": step.name, "role": "node", "op": step.operator, "class": "host operator", "flops": 0.0,
        "inputs": ports(&step.reads), "outputs": ports(&step.makes), "operators": [], "attributes": [], "block": null, "costs": [],
        "device": HOST.index(), "predicted": predicted, "measured": measured,
        "critical_predicted": false, "critical_measured": false,
        "why": { "text": "the host computes it between two plans, because its result alone tells its shape", "terms": [], "candidates": [], "seconds": false },
    })
}
