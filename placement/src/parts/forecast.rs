//! Times of parts: the latency of one input, and the least time between inputs.
//!
//! A device does one thing at a time: it computes a part, and then sends the part's messages one after the other, first
//! to the device whose part comes first. A device that is free takes the first of its parts whose inputs are there.
//! Receiving takes no time of the receiver. Values that stay on a device cost nothing.

use super::{Part, part_of};
use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// Predicted times of parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Times of each part, for an input that is alone.
    pub spans: Vec<PartSpan>,
    /// Messages of an input, in the order of the parts that send them.
    pub messages: Vec<Message>,
    /// Time of an input that is alone.
    pub latency: f64,
    /// Time between inputs if enough of them are in flight: that of the busiest device.
    pub period: f64,
}

/// Times of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartSpan {
    /// Start of the part.
    pub start: f64,
    /// End of its computation. Its messages leave after it.
    pub end: f64,
}

/// All values that a part sends to one device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message {
    /// The part that sends.
    pub from: usize,
    /// The first part that reads one of the values.
    pub reader: usize,
    /// Device that receives.
    pub to: DeviceId,
    /// Bytes of the values, each once.
    pub bytes: u64,
    /// Start of the transfer.
    pub start: f64,
    /// Arrival of all values.
    pub end: f64,
}

/// Predicts the times of parts, given in an order in which each comes after those that it waits for.
///
/// `overhead` holds the time that each part costs a device, by device. `O(edges × log edges + parts × (parts +
/// devices))`.
pub fn forecast(problem: &Problem<'_>, parts: &[Part], overhead: &[f64]) -> Forecast {
    let Exchange { mut outgoing, readers, mut waits } = Exchange::of(problem, parts);
    let devices = problem.platform().device_count();
    let mut spans = vec![PartSpan { start: 0.0, end: 0.0 }; parts.len()];
    let (mut ready, mut free, mut busy) = (vec![0.0f64; parts.len()], vec![0.0f64; devices], vec![0.0f64; devices]);
    let mut waiting = vec![BTreeSet::new(); devices];
    let wait = |part: usize, waiting: &mut [BTreeSet<usize>]| _ = waiting[parts[part].device.index()].insert(part);
    (0..parts.len()).filter(|part| waits[*part] == 0).for_each(|part| wait(part, &mut waiting));
    while let Some((device, part)) = next(&waiting, &ready, &free) {
        waiting[device].remove(&part);
        let work: f64 = parts[part].tasks.iter().map(|task| problem.time(*task, parts[part].device)).sum();
        let start = free[device].max(ready[part]);
        let end = start + work + overhead[device];
        spans[part] = PartSpan { start, end };
        let mut arrivals = BTreeMap::from([(device, end)]);
        let mut now = end;
        for message in &mut outgoing[part] {
            message.start = now;
            now += problem.transfer_time(message.bytes, parts[part].device, message.to);
            message.end = now;
            arrivals.insert(message.to.index(), now);
        }
        busy[device] += now - start;
        free[device] = now;
        for reader in &readers[part] {
            ready[*reader] = ready[*reader].max(arrivals[&parts[*reader].device.index()]);
            waits[*reader] -= 1;
            if waits[*reader] == 0 {
                wait(*reader, &mut waiting);
            }
        }
    }
    Forecast {
        latency: spans.iter().map(|span| span.end).fold(0.0, f64::max),
        period: busy.into_iter().fold(0.0, f64::max),
        messages: outgoing.into_iter().flatten().collect(),
        spans,
    }
}

/// Returns the device that starts a part first, with the first of its parts that are ready then.
fn next(waiting: &[BTreeSet<usize>], ready: &[f64], free: &[f64]) -> Option<(usize, usize)> {
    let start = |device: usize, part: usize| free[device].max(ready[part]);
    let earliest = |(device, parts): (usize, &BTreeSet<usize>)| {
        let first = parts.iter().map(|part| start(device, *part)).min_by(f64::total_cmp)?;
        let part = parts.iter().find(|part| start(device, **part) <= first)?;
        Some((first, device, *part))
    };
    let all = waiting.iter().enumerate().filter_map(earliest);
    all.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, device, part)| (device, part))
}

/// Values that pass between parts.
struct Exchange {
    /// Messages of each part, without times, in the order in which they leave.
    outgoing: Vec<Vec<Message>>,
    /// Parts that read values of each part.
    readers: Vec<BTreeSet<usize>>,
    /// Number of parts of which each part reads values.
    waits: Vec<usize>,
}

impl Exchange {
    fn of(problem: &Problem<'_>, parts: &[Part]) -> Self {
        let (graph, part_of) = (problem.graph(), part_of(problem, parts));
        let part = |task: TaskId| part_of[task.index()];
        let mut waits = vec![0; parts.len()];
        let (mut outgoing, mut readers) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for (own, Part { device, tasks }) in parts.iter().enumerate() {
            // First reader and bytes, by device.
            let mut messages: BTreeMap<DeviceId, (usize, u64)> = BTreeMap::new();
            let mut known = BTreeSet::new();
            for datum in tasks.iter().flat_map(|task| graph.outputs(*task)) {
                let readers = graph.consumers(*datum).iter().map(|task| part(*task)).filter(|reader| *reader != own);
                let readers: BTreeSet<usize> = readers.collect();
                let mut sent = BTreeSet::new();
                for &reader in &readers {
                    let to = parts[reader].device;
                    if to == *device {
                        continue;
                    }
                    let bytes = if sent.insert(to) { graph.bytes(*datum) } else { 0 };
                    let (first, sum) = messages.entry(to).or_insert((reader, 0));
                    (*first, *sum) = ((*first).min(reader), sum.saturating_add(bytes));
                }
                known.extend(readers);
            }
            known.iter().for_each(|reader| waits[*reader] += 1);
            readers.push(known);
            let message = |(to, (reader, bytes))| Message { from: own, reader, to, bytes, start: 0.0, end: 0.0 };
            let mut messages: Vec<Message> = messages.into_iter().map(message).collect();
            messages.sort_by_key(|message| message.reader);
            outgoing.push(messages);
        }
        Self { outgoing, readers, waits }
    }
}
