//! Gangs: nodes on different devices that compute at the same time and pass each other chunks of rows.
//!
//! A producer and those who read its value row by row elsewhere need not run one after the other: each chunk travels, and
//! is read, while the next one is computed. This is a streaming block of De Matteis 2023, section 4, whose processing
//! elements are the devices and the links between them. A gang stands at consecutive places of the total order, and
//! everything else that its members read is there before; so all of them come to be next on their devices, and from then
//! on they wait only for each other's chunks.
//!
//! All members cut their tensors into the same number of rows (a divisor of each one's own), and compute as many of them at
//! a time. Each takes one chunk of every stream that it reads for each chunk that it makes.

use super::channels;
use super::lifetime::{Reader, Uses};
use super::order;
use super::predict::{Forecast, Lags};
use super::stream::{ChunkRule, Stream, StreamMode, granule, parts};
use super::{PlanDevice, PlanOptions};
use crate::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement::graph::TaskId;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use anabranch_placement::schedule::Schedule;
use std::collections::BTreeSet;

/// Bytes of a chunk between CPU devices unless told otherwise: the few that are under way stay in a core's cache.
const AUTO_BYTES: usize = 1 << 18;

/// Bytes of a chunk over a link.
const AUTO_LINK_BYTES: usize = 1 << 20;

/// Seconds that it takes to pass a chunk to a thread that sleeps.
const HOP: f64 = 5e-6;

/// Seconds that it takes to pass one through a GPU's queue.
const LINK_HOP: f64 = 1e-4;

/// A chunk is to take this many times as long as its passing on.
const HOPS_A_CHUNK: f64 = 20.0;

/// Nodes that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gang {
    /// On pairwise different devices, each behind those that it reads from.
    pub(super) members: Vec<NodeId>,
    /// What passes between them.
    pub(super) streams: Vec<(ValueId, Stream)>,
    /// Seconds by which a chunk is late at the next member.
    pub(super) hop: f64,
}

impl Gang {
    /// Chunks of each stream.
    pub(super) fn chunks(&self) -> usize {
        self.streams.first().map_or(1, |(_, stream)| stream.chunks())
    }
}

/// What gangs are formed from.
pub(super) struct Former<'a> {
    pub(super) program: &'a Program,
    pub(super) devices: &'a [PlanDevice],
    pub(super) device_of: &'a [DeviceId],
    pub(super) uses: &'a Uses,
    pub(super) schedule: &'a Schedule,
    pub(super) lags: &'a Lags,
    pub(super) options: &'a PlanOptions,
}

/// The gangs of a plan, and everything in an order in which each gang's members stand together.
#[derive(Clone, Debug, Default)]
pub(super) struct Formed {
    pub(super) gangs: Vec<Gang>,
    pub(super) order: Vec<TaskId>,
    pub(super) forecast: Option<Forecast>,
}

impl Former<'_> {
    /// Forms gangs greedily, from the first producer on: all that can be, or those that the forecast gains by.
    /// O(candidates × edges · log).
    pub(super) fn form(&self) -> Formed {
        let mut formed = Formed { order: self.schedule.order.clone(), ..Formed::default() };
        if self.options.streaming == StreamMode::Off {
            return formed;
        }
        let nodes = self.program.nodes.len();
        for task in self.schedule.order.iter().filter(|task| task.index() < nodes) {
            for set in self.candidates(NodeId(task.0)) {
                if let Some(better) = self.joined(&formed, set) {
                    formed = better;
                }
            }
        }
        formed
    }

    /// The node with those who might read its values while it runs. A CPU's value passes through a ring and never exists
    /// whole, so all of its readers must be there; on a GPU it does.
    fn candidates(&self, node: NodeId) -> Vec<BTreeSet<NodeId>> {
        let mut sets = Vec::new();
        for value in &self.program.node(node).outputs {
            let readers: Option<Vec<NodeId>> =
                self.uses.by_device(*value).flatten().map(|(_, reader)| reader.node()).collect();
            let elsewhere = |reader: &NodeId| self.device(*reader) != self.device(node);
            if self.kind(node) == DeviceKind::Cpu {
                sets.extend(
                    readers
                        .filter(|all| !all.is_empty() && all.iter().all(elsewhere))
                        .map(|all| all.into_iter().chain([node]).collect()),
                );
            } else {
                let all = self.uses.by_device(*value).flatten().filter_map(|(_, reader)| reader.node());
                sets.extend(all.filter(elsewhere).map(|reader| BTreeSet::from([node, reader])));
            }
        }
        sets
    }

    /// The gangs with these nodes in one, if they can be, and it is wanted.
    fn joined(&self, formed: &Formed, set: BTreeSet<NodeId>) -> Option<Formed> {
        let touched = |gang: &&Gang, set: &BTreeSet<NodeId>| gang.members.iter().any(|member| set.contains(member));
        if formed.gangs.iter().any(|gang| set.iter().all(|node| gang.members.contains(node))) {
            return None;
        }
        let set = self.closed(set, &formed.gangs)?;
        let gang = self.gang(&set)?;
        let mut gangs: Vec<Gang> = formed.gangs.iter().filter(|gang| !touched(gang, &set)).cloned().collect();
        gangs.push(gang);
        let members: Vec<&[NodeId]> = gangs.iter().map(|gang| &*gang.members).collect();
        let order = order::contracted(self.program, &self.schedule.order, &members)?;
        let forecast = |order: &[TaskId], gangs: &[Gang]| {
            Forecast::of(self.program, self.device_of, self.schedule, self.lags, (order, gangs))
        };
        let after = forecast(&order, &gangs);
        if self.options.streaming == StreamMode::Auto {
            let before = formed
                .forecast
                .as_ref()
                .map_or_else(|| forecast(&formed.order, &formed.gangs).makespan, |f| f.makespan);
            if after.makespan >= before {
                return None;
            }
        }
        Some(Formed { gangs, order, forecast: Some(after) })
    }

    /// The set with the gangs that it touches, and with all readers of what passes between its members on a CPU. `None` if two
    /// are on one device.
    fn closed(&self, mut set: BTreeSet<NodeId>, gangs: &[Gang]) -> Option<BTreeSet<NodeId>> {
        loop {
            let devices: BTreeSet<DeviceId> = set.iter().map(|node| self.device(*node)).collect();
            if devices.len() < set.len() {
                return None;
            }
            let mut more = BTreeSet::new();
            for gang in gangs.iter().filter(|gang| gang.members.iter().any(|member| set.contains(member))) {
                more.extend(gang.members.iter().copied());
            }
            for node in &set {
                for (_, value, producer) in self.inner_inputs(*node, &set) {
                    if self.kind(producer) == DeviceKind::Cpu {
                        for (_, reader) in self.uses.by_device(value).flatten() {
                            more.insert(reader.node()?);
                        }
                    }
                }
            }
            if more.is_subset(&set) {
                return Some(set);
            }
            set.extend(more);
        }
    }

    /// The inputs of a node that nodes of the set make: which, the value, the producer.
    fn inner_inputs(&self, node: NodeId, set: &BTreeSet<NodeId>) -> Vec<(usize, ValueId, NodeId)> {
        let inner = |(input, value): (usize, &ValueId)| match self.program.value(*value).origin {
            Origin::Node(producer) if set.contains(&producer) => Some((input, *value, producer)),
            _ => None,
        };
        self.program.node(node).inputs.iter().enumerate().filter_map(inner).collect()
    }

    /// A gang of exactly these nodes, if all that passes between them can be streamed.
    fn gang(&self, set: &BTreeSet<NodeId>) -> Option<Gang> {
        let mut members: Vec<NodeId> = set.iter().copied().collect();
        let place = |node: &NodeId| self.schedule.order.iter().position(|task| task.index() == node.index());
        members.sort_by_key(place);
        let (rows, granule) = self.rows(&members)?;
        let mut streams = Vec::new();
        let mut links = BTreeSet::new();
        for node in &members {
            for (input, value, producer) in self.inner_inputs(*node, set) {
                let link = (self.device(producer), self.device(*node));
                let moved = self.kind(producer) != DeviceKind::Cpu || self.kind(*node) != DeviceKind::Cpu;
                if !self.passes(*node, input, value) || (moved && !links.insert(link)) {
                    return None;
                }
                let row_bytes = self.program.value(value).spec.bytes() / rows;
                let stream = Stream {
                    node: *node,
                    input,
                    producer: Some(producer),
                    rows,
                    row_bytes,
                    chunk_rows: 0,
                    capacity: 0,
                };
                streams.push((value, stream));
            }
        }
        let widest = streams.iter().map(|(_, stream)| stream.row_bytes).max().filter(|bytes| *bytes > 0)?;
        let hop = if links.is_empty() { HOP } else { LINK_HOP };
        let chunk_rows = self.chunk_rows(&members, (rows, widest), hop).checked_next_multiple_of(granule)?;
        if chunk_rows >= rows || streams.iter().any(|(_, stream)| stream.row_bytes == 0) {
            return None;
        }
        streams.iter_mut().for_each(|(_, stream)| stream.chunk_rows = chunk_rows);
        let through = |stream: &Stream| {
            stream.producer.is_some_and(|p| links.contains(&(self.device(p), self.device(stream.node))))
        };
        channels::size(&members, &mut streams, self.options.capacity, through)?;
        Some(Gang { members, streams, hop })
    }

    /// Whether `node` reads the value once, row by row, and alone on its device.
    fn passes(&self, node: NodeId, input: usize, value: ValueId) -> bool {
        let reader = self.program.node(node);
        let windowed = parts(&reader.spec).is_some_and(|plan| plan.windowed.get(input).copied().unwrap_or(false));
        let once = reader.inputs.iter().filter(|other| **other == value).count() == 1;
        let alone = matches!(self.uses.on(value, self.device(node)), [(_, Reader::Node(_))]);
        windowed && once && alone
    }

    /// The rows that all members divide into, more than one, and the least number of them whose multiples begin where copies
    /// between host and GPU may.
    fn rows(&self, members: &[NodeId]) -> Option<(usize, usize)> {
        let mut rows = 0;
        for node in members {
            rows = common_divisor(rows, parts(&self.program.node(*node).spec)?.rows);
        }
        let windows = members.iter().flat_map(|node| {
            let spec = &self.program.node(*node).spec;
            let windowed = parts(spec).map(|plan| plan.windowed).unwrap_or_default();
            let inputs = spec.inputs.iter().zip(windowed).filter(|(_, windowed)| *windowed).map(|(spec, _)| spec);
            inputs.chain(&spec.outputs).map(|spec| spec.bytes() / rows.max(1))
        });
        let granule = windows.map(granule).max()?;
        (rows > 1).then_some((rows, granule))
    }

    /// Rows of a chunk: as the caller says; else what fits a cache, and as many that passing them on does not count.
    fn chunk_rows(&self, members: &[NodeId], (rows, row_bytes): (usize, usize), hop: f64) -> usize {
        let wanted = match self.options.chunk {
            ChunkRule::Bytes(bytes) => bytes / row_bytes,
            ChunkRule::Rows(rows) => rows,
            ChunkRule::Auto => {
                let fits = if hop > HOP { AUTO_LINK_BYTES } else { AUTO_BYTES } / row_bytes;
                let times = members.iter().filter_map(|node| self.schedule.tasks.get(node.index()));
                let slowest = times.map(|span| span.end - span.start).fold(0.0, f64::max);
                match self.options.streaming {
                    StreamMode::Auto if slowest > 0.0 => {
                        fits.max((rows as f64 * HOPS_A_CHUNK * hop / slowest).ceil() as usize)
                    }
                    StreamMode::Auto => rows,
                    StreamMode::Always | StreamMode::Off => fits,
                }
            }
        };
        wanted.clamp(1, rows)
    }

    fn device(&self, node: NodeId) -> DeviceId {
        self.device_of[node.index()]
    }

    fn kind(&self, node: NodeId) -> DeviceKind {
        self.devices[self.device(node).index()].kind
    }
}

/// The greatest common divisor; of 0 and another number, that.
fn common_divisor(mut one: usize, mut other: usize) -> usize {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}
