//! Independent checker of parts: verifies from the definition that they compute the graph, and that times are those
//! which the rules give. It shares no code with the functions that make and time parts.

use super::{Forecast, Part};
use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// Fault of parts or of their forecast.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Violation {
    /// Parts, spans, messages or overheads that do not belong to each other or to the problem.
    #[error("a task, a device or a part does not exist, or there are not as many spans as parts")]
    Unknown,
    /// A task that is in no part or in several, or on a device that is not feasible.
    #[error("{task} is not in exactly one part, on a device that can run it")]
    Task { task: TaskId },
    /// A datum that a part reads before the part or the task that makes it.
    #[error("{datum} is read before it is made")]
    Order { datum: DatumId },
    /// A device whose memory is too small for its tasks.
    #[error("{device} would hold {needed} bytes, but has {memory}")]
    Memory { device: DeviceId, needed: u128, memory: u64 },
    /// Messages that are not those that the parts need.
    #[error("part {part} sends {given} bytes to {to}, but its readers there need {needed}")]
    Message { part: usize, to: DeviceId, given: u64, needed: u64 },
    /// Messages that do not leave in the order of the parts that read them first.
    #[error("the messages of part {part} do not leave in the order of their first readers")]
    MessageOrder { part: usize },
    /// A part that starts before its inputs are there or its device is free, or that starts late.
    #[error("part {part} starts at {given} s instead of {due} s")]
    Start { part: usize, given: f64, due: f64 },
    /// A part that starts although another part of its device could start before, or an earlier part at the same time.
    #[error("part {part} starts before part {before}, which is ready")]
    Turn { part: usize, before: usize },
    /// A part or a message that takes another time than its work or its link.
    #[error("part {part} or its messages do not take the time of their work and links")]
    Duration { part: usize },
    /// A latency or a period that the times do not give.
    #[error("the latency or the period is {given} s, but the times give {due} s")]
    Total { given: f64, due: f64 },
}

/// Share of the latency by which times may differ.
const ROUNDING: f64 = 1e-9;

/// Checks parts, given in an order in which each comes after those that it waits for, and their forecast. Returns all
/// faults.
pub fn check(problem: &Problem<'_>, parts: &[Part], overhead: &[f64], forecast: &Forecast) -> Vec<Violation> {
    if !belong_together(problem, parts, overhead, forecast) {
        return vec![Violation::Unknown];
    }
    let mut violations = structure(problem, parts);
    if violations.is_empty() {
        let checker = Checker { problem, parts, overhead, forecast, slack: forecast.latency.abs() * ROUNDING };
        checker.messages(&mut violations);
        checker.times(&mut violations);
    }
    violations
}

/// Whether all tasks, devices and parts exist, and each part has a span and each device an overhead.
fn belong_together(problem: &Problem<'_>, parts: &[Part], overhead: &[f64], forecast: &Forecast) -> bool {
    let (tasks, devices) = (problem.graph().task_count(), problem.platform().device_count());
    let exists = |part: &Part| part.device.index() < devices && part.tasks.iter().all(|task| task.index() < tasks);
    let mut sent = forecast.messages.iter();
    forecast.spans.len() == parts.len()
        && overhead.len() == devices
        && parts.iter().all(exists)
        && sent.all(|message| message.from < parts.len() && message.reader < parts.len())
}

fn structure(problem: &Problem<'_>, parts: &[Part]) -> Vec<Violation> {
    let graph = problem.graph();
    let mut violations = Vec::new();
    let all = || parts.iter().flat_map(|part| part.tasks.iter().map(|task| (*task, part.device)));
    for task in graph.task_ids() {
        let places: Vec<DeviceId> = all().filter(|(other, _)| *other == task).map(|(_, device)| device).collect();
        if places.len() != 1 || !problem.is_feasible(graph.unit(task), places[0]) {
            violations.push(Violation::Task { task });
        }
    }
    let mut made = BTreeSet::new();
    for (task, _) in all() {
        let missing = graph.inputs(task).iter().filter(|datum| !made.contains(&graph.producer(**datum)));
        violations.extend(missing.map(|datum| Violation::Order { datum: *datum }));
        made.insert(task);
    }
    for device in problem.platform().device_ids() {
        let units: BTreeSet<_> = all().filter(|(_, on)| *on == device).map(|(task, _)| graph.unit(task)).collect();
        let needed: u128 = units.into_iter().map(|unit| u128::from(problem.demand(unit))).sum();
        if let Some(memory) = problem.platform().device(device).memory
            && needed > u128::from(memory)
        {
            violations.push(Violation::Memory { device, needed, memory });
        }
    }
    violations
}

struct Checker<'a> {
    problem: &'a Problem<'a>,
    parts: &'a [Part],
    overhead: &'a [f64],
    forecast: &'a Forecast,
    slack: f64,
}

impl Checker<'_> {
    /// Parts that read a datum of a part, with the datum.
    fn reads(&self, part: usize) -> impl Iterator<Item = (usize, DatumId)> {
        let graph = self.problem.graph();
        let data = self.parts[part].tasks.iter().flat_map(|task| graph.outputs(*task));
        data.flat_map(move |datum| {
            let reads = move |other: &Part| other.tasks.iter().any(|task| graph.inputs(*task).contains(datum));
            let others = self.parts.iter().enumerate().filter(move |(at, other)| *at != part && reads(other));
            others.map(move |(at, _)| (at, *datum))
        })
    }

    fn messages(&self, violations: &mut Vec<Violation>) {
        for (part, Part { device, .. }) in self.parts.iter().enumerate() {
            let (mut needed, mut first) = (BTreeMap::<DeviceId, BTreeSet<DatumId>>::new(), BTreeMap::new());
            for (reader, datum) in self.reads(part).filter(|(reader, _)| self.parts[*reader].device != *device) {
                let to = self.parts[reader].device;
                needed.entry(to).or_default().insert(datum);
                first.entry(to).and_modify(|first: &mut usize| *first = reader.min(*first)).or_insert(reader);
            }
            let first: BTreeSet<(usize, DeviceId)> = first.into_iter().map(|(to, reader)| (reader, to)).collect();
            let sent = self.forecast.messages.iter().filter(|message| message.from == part);
            if !sent.clone().map(|message| (message.reader, message.to)).eq(first) {
                violations.push(Violation::MessageOrder { part });
            }
            let mut given: BTreeMap<DeviceId, u64> = sent.clone().map(|message| (message.to, message.bytes)).collect();
            let mut now = self.forecast.spans[part].end;
            for message in sent {
                let due = now + self.problem.transfer_time(message.bytes, *device, message.to);
                if !self.agree(message.start, now) || !self.agree(message.end, due) {
                    violations.push(Violation::Duration { part });
                }
                now = message.end;
            }
            for (to, data) in needed {
                let needed = data.iter().map(|datum| self.problem.graph().bytes(*datum)).sum();
                match given.remove(&to) {
                    Some(given) if given == needed => {}
                    given => violations.push(Violation::Message { part, to, given: given.unwrap_or(0), needed }),
                }
            }
            violations.extend(given.into_iter().map(|(to, given)| Violation::Message { part, to, given, needed: 0 }));
        }
    }

    /// Whether times are equal up to rounding. Infinite ones and those that are no number never are.
    fn agree(&self, given: f64, due: f64) -> bool {
        given.is_finite() && (given - due).abs() <= self.slack
    }

    /// Time at which the device of a part can begin with another one.
    fn released(&self, part: usize) -> f64 {
        let sent = self.forecast.messages.iter().filter(|message| message.from == part);
        sent.map(|message| message.end).fold(self.forecast.spans[part].end, f64::max)
    }

    /// Time at which the inputs of a part are on its device.
    fn ready(&self, part: usize) -> f64 {
        let device = self.parts[part].device;
        let sources = (0..self.parts.len()).filter(|source| self.reads(*source).any(|(reader, _)| reader == part));
        let arrival = |source: usize| {
            let message = self.forecast.messages.iter().find(|sent| sent.from == source && sent.to == device);
            message.map_or(self.forecast.spans[source].end, |message| message.end)
        };
        sources.map(arrival).fold(0.0, f64::max)
    }

    fn times(&self, violations: &mut Vec<Violation>) {
        let (spans, slack) = (&self.forecast.spans, self.slack);
        let ready: Vec<f64> = (0..self.parts.len()).map(|part| self.ready(part)).collect();
        for device in self.problem.platform().device_ids() {
            let own = self.parts.iter().enumerate().filter(|(_, part)| part.device == device);
            let mut turns: Vec<usize> = own.map(|(at, _)| at).collect();
            turns.sort_by(|one, other| spans[*one].start.total_cmp(&spans[*other].start));
            let mut free = 0.0;
            for (place, &part) in turns.iter().enumerate() {
                let (given, due) = (spans[part].start, f64::max(free, ready[part]));
                if !self.agree(given, due) {
                    violations.push(Violation::Start { part, given, due });
                }
                let is_before =
                    |other: &&usize| ready[**other] < given - slack && (**other < part || free < given - slack);
                if let Some(before) = turns[place + 1..].iter().find(is_before) {
                    violations.push(Violation::Turn { part, before: *before });
                }
                let work: f64 = self.parts[part].tasks.iter().map(|task| self.problem.time(*task, device)).sum();
                if !self.agree(spans[part].end, given + work + self.overhead[device.index()]) {
                    violations.push(Violation::Duration { part });
                }
                free = self.released(part);
            }
        }
        let latency = spans.iter().map(|span| span.end).fold(0.0, f64::max);
        let busy = |device: DeviceId| -> f64 {
            let own = (0..self.parts.len()).filter(|part| self.parts[*part].device == device);
            own.map(|part| self.released(part) - spans[part].start).sum()
        };
        let period = self.problem.platform().device_ids().map(busy).fold(0.0, f64::max);
        for (given, due) in [(self.forecast.latency, latency), (self.forecast.period, period)] {
            if !self.agree(given, due) {
                violations.push(Violation::Total { given, due });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::forecast;
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    #[test]
    fn faults_are_found() {
        type Change<'a> = &'a dyn Fn(&mut Vec<Part>, &mut Forecast);
        let edges = [(0, 1, 10), (0, 2, 10), (1, 3, 10), (2, 3, 10)];
        let loaded = sample::problem(sample::graph(&[1.0, 5.0, 5.0, 1.0], &edges), &[1.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let part = |device, task| Part { device: DeviceId(device), tasks: vec![TaskId(task)] };
        let sound = [part(0, 0), part(0, 1), part(1, 2), part(0, 3)];
        let overhead = [0.5, 0.5];
        let times = forecast(&problem, &sound, &overhead);
        assert_eq!(check(&problem, &sound, &overhead, &times), []);
        let faults = |change: Change<'_>| {
            let (mut parts, mut times) = (sound.to_vec(), times.clone());
            change(&mut parts, &mut times);
            check(&problem, &parts, &overhead, &times)
        };
        assert!(matches!(faults(&|parts, _| _ = parts[3].tasks.pop())[..], [Violation::Task { .. }]));
        assert!(matches!(faults(&|parts, _| parts.swap(0, 1))[..], [Violation::Order { .. }]));
        let bytes = faults(&|_, times| times.messages[0].bytes = 5);
        assert!(bytes.iter().any(|fault| matches!(fault, Violation::Message { given: 5, needed: 10, .. })));
        assert!(
            faults(&|_, times| times.messages.clear()).iter().any(|fault| matches!(fault, Violation::Message { .. }))
        );
        let early = faults(&|_, times| times.spans[2].start -= 1.0);
        assert!(early.iter().any(|fault| matches!(fault, Violation::Start { part: 2, .. })));
        assert!(matches!(faults(&|_, times| times.latency *= 0.5)[..], [Violation::Total { .. }]));
        assert!(matches!(faults(&|_, times| times.period *= 2.0)[..], [Violation::Total { .. }]));
        let turned = faults(&|parts, _| parts.swap(1, 3));
        assert!(!turned.is_empty());
        let foreign: [Change<'_>; 5] = [
            &|_, times| _ = times.spans.pop(),
            &|parts, _| parts.push(part(0, 0)),
            &|parts, _| parts[0].device = DeviceId(2),
            &|parts, _| parts[0].tasks.push(TaskId(4)),
            &|_, times| times.messages[0].from = 4,
        ];
        for change in foreign {
            assert_eq!(faults(change), [Violation::Unknown]);
        }
        assert_eq!(check(&problem, &sound, &[0.5], &times), [Violation::Unknown]);
        for endless in [f64::INFINITY, f64::NAN] {
            assert!(!faults(&|_, times| times.latency = endless).is_empty());
            assert!(!faults(&|_, times| times.spans[1].end = endless).is_empty());
        }
    }

    #[test]
    fn a_device_whose_memory_is_too_small_is_found() {
        let mut builder = GraphBuilder::new();
        let tasks = [6, 5].map(|bytes| builder.task(Task::new(bytes.to_string()).with_memory(bytes)));
        let devices = [10, 20].map(|memory| Device::new(memory.to_string(), DeviceKind::Cpu).with_memory(memory));
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        let faults = |device| {
            // A part for each task: memory is that of all parts of a device.
            let parts = tasks.map(|task| Part { device: DeviceId(device), tasks: vec![task] });
            check(&problem, &parts, &[0.0; 2], &forecast(&problem, &parts, &[0.0; 2]))
        };
        assert_eq!(faults(0), [Violation::Memory { device: DeviceId(0), needed: 11, memory: 10 }]);
        assert_eq!(faults(1), []);
    }

    #[test]
    fn a_device_that_waits_although_a_later_part_is_ready_is_found() {
        let loaded = sample::problem(sample::graph(&[1.0, 1.0, 5.0], &[(0, 1, 10)]), &[1.0, 1.0]);
        let problem = loaded.problem().unwrap();
        let parts =
            [0, 1, 1].iter().zip(0..).map(|(on, task)| Part { device: DeviceId(*on), tasks: vec![TaskId(task)] });
        let (parts, overhead) = (parts.collect::<Vec<_>>(), [0.0; 2]);
        let mut times = forecast(&problem, &parts, &overhead);
        assert_eq!(check(&problem, &parts, &overhead, &times), []);
        assert_eq!(times.latency, 6.0);
        let span = |start, end| super::super::PartSpan { start, end };
        times.spans[1..].copy_from_slice(&[span(2.0, 3.0), span(3.0, 8.0)]);
        times.latency = 8.0;
        assert_eq!(check(&problem, &parts, &overhead, &times), [Violation::Turn { part: 1, before: 2 }]);
    }

    #[test]
    fn messages_in_another_order_are_found() {
        let loaded = sample::problem(sample::graph(&[1.0, 5.0, 5.0], &[(0, 1, 10), (0, 2, 10)]), &[1.0; 3]);
        let problem = loaded.problem().unwrap();
        let parts: Vec<Part> = (0..3).map(|at| Part { device: DeviceId(at), tasks: vec![TaskId(at)] }).collect();
        let mut times = forecast(&problem, &parts, &[0.0; 3]);
        assert_eq!(check(&problem, &parts, &[0.0; 3], &times), []);
        let [one, other] = &mut times.messages[..] else { unreachable!("two readers") };
        std::mem::swap(&mut one.to, &mut other.to);
        std::mem::swap(&mut one.reader, &mut other.reader);
        times.spans.swap(1, 2);
        assert_eq!(check(&problem, &parts, &[0.0; 3], &times), [Violation::MessageOrder { part: 0 }]);
    }
}
