//! Gangs: nodes on different devices that compute at the same time and pass each other chunks of rows.
//!
//! A producer and the nodes that read its value row by row on other devices need not run one after the other. Each
//! chunk is transferred and read while the next chunk is computed. This is a streaming block of De Matteis 2023,
//! section 4, whose processing elements are the devices and the links between them. A gang stands at consecutive
//! positions of the total order, and all other inputs of its members are present before it starts. All members
//! therefore become next on their devices, and from then on they wait only for each other's chunks.
//!
//! All members cut their tensors into the same number of rows, a divisor of each member's own number, and compute
//! chunks of equally many rows. For each chunk that a member makes, it takes one chunk of every stream that it reads.

use super::channels;
use super::stream::{ChunkRule, Gang, Stream, StreamMode, granule, parts};
use super::timeline::{Lags, Timeline, Times};
use super::uses::Uses;
use super::{PlanDevice, PlanOptions, Step};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_placement_core::schedule::Schedule;
use std::collections::BTreeSet;

/// Default bytes of a chunk between CPU devices: the few chunks in flight stay in a core's cache.
const AUTO_BYTES: usize = 1 << 18;

/// Default bytes of a chunk over a link.
const AUTO_LINK_BYTES: usize = 1 << 20;

/// Least time of a chunk, as a multiple of the time to pass it on.
const HOPS_A_CHUNK: f64 = 20.0;

/// Input for the forming of gangs.
pub(super) struct Former<'a> {
    pub(super) program: &'a Program,
    pub(super) devices: &'a [PlanDevice],
    pub(super) device_of: &'a [DeviceId],
    pub(super) uses: &'a Uses,
    pub(super) schedule: &'a Schedule,
    pub(super) lags: &'a Lags,
    pub(super) options: &'a PlanOptions,
    /// Position of each task in the schedule's order.
    pub(super) places: Vec<usize>,
}

/// Gangs of a plan, and an order in which each gang's members stand together.
#[derive(Clone, Debug)]
pub(super) struct Gangs {
    pub(super) gangs: Vec<Gang>,
    pub(super) order: Vec<TaskId>,
    /// Expected start and end of each node, in seconds.
    pub(super) expected: Vec<(f64, f64)>,
}

impl Former<'_> {
    /// Forms gangs greedily, from the first producer on: all possible gangs, or those that improve the forecast.
    /// O(candidates × (positions between their members + log)) per round.
    pub(super) fn form(&self) -> Gangs {
        let span = |node: usize| self.schedule.tasks.get(node).map_or((0.0, 0.0), |span| (span.start, span.end));
        let expected = (0..self.program.nodes.len()).map(span).collect();
        let mut formed = Gangs { gangs: Vec::new(), order: self.schedule.order.clone(), expected };
        let gaining = self.options.streaming == StreamMode::Auto;
        if self.options.streaming == StreamMode::Off {
            return formed;
        }
        let Self { program, device_of, schedule, lags, .. } = *self;
        let mut timeline = Timeline::new(Times { program, device_of, devices: self.devices.len(), schedule, lags });
        let mut makespan = timeline.predict().makespan;
        // A producer may join its readers' gang only after that was formed.
        while self.grow(&mut timeline, gaining) {
            let better = timeline.predict();
            if gaining && better.makespan >= makespan {
                break;
            }
            let (gangs, order) = timeline.gangs();
            formed = Gangs { gangs, order, expected: better.nodes };
            makespan = better.makespan;
        }
        formed
    }

    /// Joins each producer with its readers if possible; returns whether anything changed.
    fn grow(&self, timeline: &mut Timeline<'_>, gaining: bool) -> bool {
        let nodes = self.program.nodes.len();
        let mut grown = false;
        for task in self.schedule.order.iter().filter(|task| task.index() < nodes) {
            for set in self.candidates(NodeId(task.0)) {
                grown |= self.joined(timeline, set).is_some_and(|gang| timeline.join(gang, gaining));
            }
        }
        grown
    }

    /// Sets of the node and the nodes that might read its values while it runs.
    ///
    /// A CPU's value passes through a ring and never exists whole, so that all its readers must be in the set. On a GPU
    /// the value exists whole.
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

    /// Gang of these nodes and the members of their gangs, if they can form a gang and do not form one yet.
    fn joined(&self, timeline: &Timeline<'_>, set: BTreeSet<NodeId>) -> Option<Gang> {
        let first = timeline.gang(*set.first()?);
        if first.is_some_and(|gang| set.iter().all(|node| gang.members.contains(node))) {
            return None;
        }
        self.gang(&self.closed(set, timeline)?)
    }

    /// Extends the set by the gangs that it touches, and by all readers of values that pass between its members on a
    /// CPU. `None` if two nodes are on one device.
    fn closed(&self, mut set: BTreeSet<NodeId>, timeline: &Timeline<'_>) -> Option<BTreeSet<NodeId>> {
        loop {
            let devices: BTreeSet<DeviceId> = set.iter().map(|node| self.device(*node)).collect();
            if devices.len() < set.len() {
                return None;
            }
            let mut more = BTreeSet::new();
            for node in &set {
                more.extend(timeline.gang(*node).into_iter().flat_map(|gang| &gang.members).copied());
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

    /// Inputs of a node that nodes of the set make: the input's index, the value, the producer.
    fn inner_inputs(&self, node: NodeId, set: &BTreeSet<NodeId>) -> Vec<(usize, ValueId, NodeId)> {
        let inner = |(input, value): (usize, &ValueId)| match self.program.value(*value).origin {
            Origin::Node(producer) if set.contains(&producer) => Some((input, *value, producer)),
            _ => None,
        };
        self.program.node(node).inputs.iter().enumerate().filter_map(inner).collect()
    }

    /// Gang of exactly these nodes, if all values between them can be streamed.
    fn gang(&self, set: &BTreeSet<NodeId>) -> Option<Gang> {
        let mut members: Vec<NodeId> = set.iter().copied().collect();
        members.sort_by_key(|node| self.places[node.index()]);
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
        let wakes = streams.iter().map(|(_, stream)| self.devices[self.device(stream.node).index()].wake_ns);
        let hop = wakes.max().unwrap_or(0) as f64 * 1e-9;
        let cached = if links.is_empty() { AUTO_BYTES } else { AUTO_LINK_BYTES } / widest;
        let chunk_rows = self.chunk_rows(&members, rows, (widest, cached), hop).checked_next_multiple_of(granule)?;
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

    /// Whether `node` reads the value once, row by row, and is its only reader on the device.
    fn passes(&self, node: NodeId, input: usize, value: ValueId) -> bool {
        let reader = self.program.node(node);
        let windowed = parts(&reader.spec).is_some_and(|plan| plan.windowed.get(input).copied().unwrap_or(false));
        let once = reader.inputs.iter().filter(|other| **other == value).count() == 1;
        let alone = matches!(self.uses.on(value, self.device(node)), [(_, Step::Node(_))]);
        windowed && once && alone
    }

    /// Common number of rows of all members, above one, and the least number of rows whose multiples begin where copies
    /// between host and GPU may begin.
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

    /// Rows of a chunk, for rows of this many bytes.
    ///
    /// The caller's rule decides; by default, a chunk fits the cache (`fits`) and is large enough that passing it on
    /// takes little time.
    fn chunk_rows(&self, members: &[NodeId], rows: usize, (row_bytes, fits): (usize, usize), hop: f64) -> usize {
        let wanted = match self.options.chunk {
            ChunkRule::Bytes(bytes) => bytes / row_bytes,
            ChunkRule::Rows(rows) => rows,
            ChunkRule::Auto => {
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

/// Greatest common divisor; if one number is 0, the other number.
pub(crate) fn common_divisor(mut one: usize, mut other: usize) -> usize {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::Staged;
    use crate::test_programs::{Maker, PlacedProgram, add, gangs, relu};
    use crate::{KernelNeeds, Route, order, transfer};

    const DIMS: [usize; 2] = [1024, 256];

    fn options(streaming: StreamMode, chunk: ChunkRule) -> PlanOptions {
        PlanOptions { streaming, chunk, ..PlanOptions::default() }
    }

    /// Three nodes one after the other, which take 0, 1 and 2 units of 0.1 ms, times `factor`.
    fn chain(factor: f64, device_of: &[u32]) -> PlacedProgram {
        let mut placed = PlacedProgram::chain(&["cpu", "cpu", "cpu"], device_of, &DIMS);
        for span in &mut placed.schedule.tasks {
            (span.start, span.end) = (span.start * factor, span.end * factor);
        }
        placed.schedule.makespan *= factor;
        placed
    }

    /// Expected start and end of each node.
    fn expected(placed: &PlacedProgram, options: &PlanOptions) -> Vec<(f64, f64)> {
        let PlacedProgram { program, devices, schedule, .. } = placed;
        let device_of = &placed.placement.device_of;
        let needs = vec![KernelNeeds::default(); program.nodes.len()];
        let staged = Staged::of(program, devices, device_of, &needs, &options.weights);
        let uses = Uses::of(program, device_of, &staged);
        let lags = Lags::of(&transfer::all(program, devices, device_of, &uses), schedule);
        let places = order::places(&schedule.order);
        let former = Former { program, devices, device_of, uses: &uses, schedule, lags: &lags, options, places };
        former.form().expected
    }

    #[test]
    fn auto_forms_gangs_of_what_takes_long_enough_and_expects_the_gain() {
        let auto = options(StreamMode::Auto, ChunkRule::Auto);
        let placed = chain(1000.0, &[0, 0, 1]);
        let plan = placed.plan(&auto).expect("feasible");
        assert_eq!(gangs(&plan), [[NodeId(1), NodeId(2)]]);
        // 0.1 s, then 0.2 s: the first of four chunks passes after 25 ms, then one passes every 50 ms.
        let [_, first, second] = expected(&placed, &auto)[..] else { panic!("three nodes") };
        assert!((0.225..0.23).contains(&second.1) && placed.schedule.makespan > 0.299, "{second:?}");
        assert!(second.0 > first.0 && second.0 < first.1 && first.1 < second.1, "{first:?} {second:?}");
        // In 20 µs, no chunk takes twenty times as long as passing it on.
        let placed = chain(0.1, &[0, 0, 1]);
        let short = placed.plan(&auto).expect("feasible");
        assert_eq!(gangs(&short), Vec::<Vec<NodeId>>::new());
        assert_eq!(expected(&placed, &auto)[2].1, placed.schedule.tasks[2].end);
    }

    #[test]
    fn nothing_is_streamed_when_that_is_off() {
        let plan = chain(1000.0, &[0, 0, 1]).plan(&options(StreamMode::Off, ChunkRule::Auto)).expect("feasible");
        assert!(plan.gangs().is_empty() && plan.transfers().iter().all(|transfer| transfer.stream().is_none()));
    }

    #[test]
    fn gangs_grow_along_chains_and_end_where_a_device_comes_again() {
        let always = options(StreamMode::Always, ChunkRule::Rows(1 << 10));
        let plan = |device_of: &[u32]| chain(1.0, device_of).plan(&always).expect("feasible");
        assert_eq!(gangs(&plan(&[0, 1, 2])), [[0, 1, 2].map(NodeId).to_vec()]);
        assert_eq!(gangs(&plan(&[1, 2, 1])), [[0, 1].map(NodeId).to_vec()]);
        assert_eq!(gangs(&plan(&[1, 1, 1])), Vec::<Vec<NodeId>>::new());
    }

    #[test]
    fn a_channel_beside_a_longer_path_holds_what_is_on_its_way_there() {
        let mut maker = Maker::new();
        let x = maker.input(&DIMS);
        let a = maker.node(relu(), &[x], &DIMS);
        let b = maker.node(relu(), &[a], &DIMS);
        let c = maker.node(relu(), &[b], &DIMS);
        let d = maker.node(add(), &[a, c], &DIMS);
        let placed = PlacedProgram::new(maker.finish(&[d]), &["cpu"; 4], &[1, 2, 3, 0]);
        let plan = placed.plan(&options(StreamMode::Always, ChunkRule::Rows(1 << 12))).expect("feasible");
        assert_eq!(gangs(&plan), [[0, 1, 2, 3].map(NodeId)]);
        let capacity = |node: u32, value| {
            let of = |transfer: &&crate::Transfer| transfer.stream().is_some_and(|s| s.node == NodeId(node));
            let stream = plan.transfers().iter().filter(of).find(|transfer| transfer.value == value);
            stream.and_then(|transfer| transfer.stream()).expect("streamed").capacity
        };
        assert!(capacity(3, a) > capacity(3, c), "two nodes lie between a and d, none between c and d");
        assert_eq!(capacity(3, a), capacity(1, a), "one ring for all readers");
    }

    #[test]
    fn rows_of_a_gang_divide_those_of_its_members() {
        let mut maker = Maker::new();
        let x = maker.input(&[12, 10]);
        let bias = maker.constant(&[10], |at| at as f32);
        let a = maker.node(relu(), &[x], &[12, 10]);
        let b = maker.node(add(), &[a, bias], &[12, 10]);
        let placed = PlacedProgram::new(maker.finish(&[b]), &["cpu", "cpu"], &[0, 1]);
        let plan = placed.plan(&options(StreamMode::Always, ChunkRule::Rows(5))).expect("feasible");
        let stream = plan.transfers().iter().find_map(|transfer| match &transfer.route {
            Route::Streamed(stream) => Some(*stream),
            Route::Shared | Route::Copied => None,
        });
        // The stream has 120 elements: 12 rows of 10 for a reader of rows of ten.
        assert_eq!(stream.map(|s| (s.rows, s.row_bytes, s.chunk_rows, s.chunks())), Some((12, 40, 5, 3)));
        assert_eq!([common_divisor(0, 7), common_divisor(120, 12), common_divisor(9, 10)], [7, 12, 1]);
    }
}
