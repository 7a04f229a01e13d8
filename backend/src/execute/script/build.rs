//! Building of scripts: each device's and link's part of the total order, and who tells whom.

use super::cells::CellMap;
use super::release;
use super::{After, Channel, DeviceScript, DeviceStep, Landing, LinkScript, LinkStep, NodeScript, Operand, Scripts};
use super::{Gate, Work};
use crate::plan::HOST;
use crate::plan::{Plan, Route, Step, TransferId};
use crate::program::{NodeId, Program, ValueId};
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::collections::BTreeMap;

/// Messages of the supervisor that may be in an inbox at a time, with room to spare.
const CONTROL: usize = 16;

pub(super) struct Builder<'a> {
    pub(super) plan: &'a Plan,
    pub(super) program: &'a Program,
    pub(super) cells: CellMap,
    devices: Vec<DeviceScript>,
    links: Vec<LinkScript>,
    openers: Vec<Vec<Vec<u32>>>,
    channels: Vec<Vec<Channel>>,
    /// What follows each step of each device.
    after: Vec<Vec<Vec<After>>>,
    /// For each device and value, the device's steps that read it, ascending.
    readers: BTreeMap<(DeviceId, ValueId), Vec<u32>>,
    /// For each value, the step that makes it or brings it in, on its device of origin.
    makers: BTreeMap<ValueId, u32>,
    /// For each transfer over a link, the link and the place there.
    on_link: BTreeMap<TransferId, Gate>,
    /// For each transfer that lands on a CPU, its landing.
    landings: BTreeMap<TransferId, u32>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(plan: &'a Plan, program: &'a Program) -> Self {
        let devices = plan.devices().len();
        Self {
            plan,
            program,
            cells: CellMap::new(plan, program),
            devices: (0..devices).map(|_| DeviceScript::default()).collect(),
            links: Vec::new(),
            openers: vec![Vec::new(); devices + plan.links().len()],
            channels: vec![Vec::new(); devices + plan.links().len()],
            after: vec![Vec::new(); devices],
            readers: BTreeMap::new(),
            makers: BTreeMap::new(),
            on_link: BTreeMap::new(),
            landings: BTreeMap::new(),
        }
    }

    pub(super) fn finish(mut self) -> Scripts {
        self.lay_out_steps();
        self.lay_out_links();
        self.lay_out_landings();
        self.route_transfers();
        release::connect(&mut self);
        self.seal()
    }

    pub(super) fn kind(&self, device: DeviceId) -> DeviceKind {
        self.plan.device(device).kind
    }

    /// Notes that `from` sends a message that `gate` waits for.
    fn count(&mut self, from: u32, gate: Gate) {
        self.openers[gate.worker as usize][gate.index as usize].push(from);
    }

    /// After a step of a device, opens a gate.
    pub(super) fn open_after(&mut self, device: DeviceId, step: u32, gate: Gate) {
        let own = gate.worker == device.0;
        let steps = self.devices[device.index()].steps.len() as u32;
        self.count(device.0, gate);
        let after = if own { After::Landing(gate.index - steps) } else { After::Open(gate) };
        self.after[device.index()][step as usize].push(after);
    }

    /// After a transfer has read its source, opens a gate.
    pub(super) fn open_after_transfer(&mut self, at: Gate, gate: Gate) {
        self.count(at.worker, gate);
        let link = at.worker as usize - self.devices.len();
        self.links[link].steps[at.index as usize].after.push(gate);
    }

    /// After a step of a device, forgets a value of another device, before others are told that it was read.
    pub(super) fn forget_after(&mut self, device: DeviceId, step: u32, cell: u32) {
        self.after[device.index()][step as usize].insert(0, After::Forget(cell));
    }

    /// The number of a device's steps.
    pub(super) fn step_count(&self, device: DeviceId) -> u32 {
        self.devices[device.index()].steps.len() as u32
    }

    /// The place of a transfer on its link.
    pub(super) fn on_link(&self, transfer: TransferId) -> Option<Gate> {
        self.on_link.get(&transfer).copied()
    }

    /// The landing's gate of a transfer that lands on a CPU.
    pub(super) fn landing(&self, transfer: TransferId) -> Option<Gate> {
        let device = self.plan.transfer(transfer).to;
        let steps = self.devices[device.index()].steps.len() as u32;
        self.landings.get(&transfer).map(|landing| Gate { worker: device.0, index: steps + landing })
    }

    /// The steps of a device that read a value, ascending.
    pub(super) fn readers(&self, device: DeviceId, value: ValueId) -> &[u32] {
        self.readers.get(&(device, value)).map_or(&[], Vec::as_slice)
    }

    /// The step that makes a value on its device of origin.
    pub(super) fn maker(&self, value: ValueId) -> Option<u32> {
        self.makers.get(&value).copied()
    }

    /// A device's script.
    pub(super) fn device(&mut self, device: DeviceId) -> &mut DeviceScript {
        &mut self.devices[device.index()]
    }

    /// A step of a device.
    pub(super) fn step(&self, device: DeviceId, step: u32) -> &DeviceStep {
        &self.devices[device.index()].steps[step as usize]
    }

    /// A transfer's step on its link.
    pub(super) fn link_step(&mut self, at: Gate) -> &mut LinkStep {
        let link = at.worker as usize - self.devices.len();
        &mut self.links[link].steps[at.index as usize]
    }

    /// A new queue of a device for so many chunks.
    pub(super) fn open_queue(&mut self, device: DeviceId, chunks: usize) -> u32 {
        let queues = &mut self.devices[device.index()].queues;
        queues.push(chunks);
        queues.len() as u32 - 1
    }

    /// What a wait of a worker for a channel is called. All gates are numbered by now.
    pub(super) fn channel(&mut self, worker: u32, channel: Channel) -> u32 {
        let channels = &mut self.channels[worker as usize];
        channels.push(channel);
        (self.openers[worker as usize].len() + channels.len()) as u32 - 1
    }

    /// A channel by what it is called.
    pub(super) fn known_channel(&mut self, worker: u32, wait: u32) -> &mut Channel {
        let gates = self.openers[worker as usize].len();
        &mut self.channels[worker as usize][wait as usize - gates]
    }

    fn lay_out_steps(&mut self) {
        for step in self.plan.steps() {
            match step {
                Step::Input(index) => {
                    let value = self.program.inputs[*index];
                    let work = Work::Input { index: *index as u32, cell: self.cells.cell(HOST, value) };
                    let at = self.push(HOST, work);
                    self.makers.insert(value, at);
                }
                Step::Output(index) => {
                    let value = self.program.outputs[*index].value;
                    let work = Work::Output { index: *index as u32, cell: self.cells.cell(HOST, value) };
                    let at = self.push(HOST, work);
                    self.readers.entry((HOST, value)).or_default().push(at);
                }
                Step::Node(node) => self.lay_out_node(*node),
                Step::Transfer(_) => {}
            }
        }
    }

    fn push(&mut self, device: DeviceId, work: Work) -> u32 {
        let steps = &mut self.devices[device.index()].steps;
        steps.push(DeviceStep { work, after: 0..0, urgent: false });
        self.after[device.index()].push(Vec::new());
        self.openers[device.index()].push(Vec::new());
        steps.len() as u32 - 1
    }

    fn lay_out_node(&mut self, id: NodeId) {
        let (device, node) = (self.plan.device_of(id), self.program.node(id));
        let at = self.push(device, Work::Node(self.devices[device.index()].nodes.len() as u32));
        let rows = node.spec.row_plan();
        let count = rows.as_ref().map_or(1, |plan| plan.rows);
        let reads = &self.plan.memory().needs(id).reads;
        let first = self.devices[device.index()].operands.len() as u32;
        for (index, value) in node.inputs.iter().enumerate() {
            let read = reads.get(index).copied().unwrap_or(true) || self.program.constant(*value).is_none();
            let bytes = if read { node.spec.inputs[index].bytes() } else { 0 };
            let windowed = rows.as_ref().is_some_and(|plan| plan.windowed.get(index).copied().unwrap_or(false));
            let operand =
                Operand { cell: self.cells.cell(device, *value), bytes, row: windowed.then_some(bytes / count) };
            self.devices[device.index()].operands.push(operand);
            let steps = self.readers.entry((device, *value)).or_default();
            if steps.last() != Some(&at) {
                steps.push(at);
            }
        }
        let middle = self.devices[device.index()].operands.len() as u32;
        for (value, spec) in node.outputs.iter().zip(&node.spec.outputs) {
            let row = rows.is_some().then_some(spec.bytes() / count);
            let operand = Operand { cell: self.cells.cell(device, *value), bytes: spec.bytes(), row };
            self.devices[device.index()].operands.push(operand);
            self.makers.insert(*value, at);
        }
        let end = self.devices[device.index()].operands.len() as u32;
        let made = node.spec.outputs.iter().map(|spec| spec.bytes() as u64).sum();
        let script =
            NodeScript { node: id, inputs: first..middle, outputs: middle..end, rows: count, made, streaming: None };
        self.devices[device.index()].nodes.push(script);
    }

    fn lay_out_links(&mut self) {
        let devices = self.devices.len();
        for (at, link) in self.plan.links().iter().enumerate() {
            let worker = (devices + at) as u32;
            let mut steps = Vec::new();
            for id in &link.transfers {
                let transfer = self.plan.transfer(*id);
                self.on_link.insert(*id, Gate { worker, index: steps.len() as u32 });
                self.openers[worker as usize].push(Vec::new());
                let lands = transfer.lands(self.kind(link.to));
                steps.push(LinkStep {
                    transfer: *id,
                    bytes: transfer.bytes as usize,
                    source: self.cells.cell(link.from, transfer.value),
                    target: lands.then(|| self.cells.cell(link.to, transfer.value)),
                    arrival: None,
                    after: Vec::new(),
                    feed: None,
                    reader: None,
                    room: 0,
                });
            }
            self.links.push(LinkScript {
                from: link.from,
                to: link.to,
                steps,
                gates: Vec::new(),
                staging_bytes: link.staging_bytes,
                staging_depth: link.staging_depth,
                ring_bytes: link.ring_bytes,
                ring_depth: link.ring_depth,
            });
        }
    }

    fn lay_out_landings(&mut self) {
        for (id, gate) in self.on_link.clone() {
            let transfer = self.plan.transfer(id);
            if self.kind(transfer.to) != DeviceKind::Cpu || transfer.route != Route::Copied {
                continue;
            }
            let cell = self.cells.cell(transfer.to, transfer.value);
            let landings = &mut self.devices[transfer.to.index()].landings;
            self.landings.insert(id, landings.len() as u32);
            landings.push(Landing { cell, gate });
            self.openers[transfer.to.index()].push(Vec::new());
            self.count(transfer.to.0, gate);
        }
    }

    /// Connects each transfer with the step that makes its value and the first one that reads it.
    fn route_transfers(&mut self) {
        for (index, transfer) in self.plan.transfers().iter().enumerate() {
            let id = TransferId(index as u32);
            let cell = self.cells.cell(transfer.from, transfer.value);
            let there = self.cells.cell(transfer.to, transfer.value);
            let first = self.readers(transfer.to, transfer.value).first().copied();
            let (Some(maker), Some(first)) = (self.maker(transfer.value), first) else { continue };
            let arrival = Gate { worker: transfer.to.0, index: first };
            if let Some(stream) = transfer.stream() {
                self.route_stream((id, transfer), stream, first);
                if stream.producer.is_some() {
                    continue;
                }
            }
            let Some(on_link) = self.on_link(id) else {
                self.count(transfer.from.0, arrival);
                let share = After::Share { cell, gate: arrival, there, transfer: Some(id) };
                self.after[transfer.from.index()][maker as usize].push(share);
                continue;
            };
            self.count(transfer.from.0, on_link);
            let give = match self.kind(transfer.from) {
                DeviceKind::Cpu => After::Share { cell, gate: on_link, there: 0, transfer: None },
                _ => After::Open(on_link),
            };
            self.after[transfer.from.index()][maker as usize].push(give);
            self.devices[transfer.from.index()].steps[maker as usize].urgent = true;
            if transfer.stream().is_none() {
                self.count(on_link.worker, arrival);
                self.link_step(on_link).arrival = Some((arrival, there));
            }
        }
    }

    fn seal(mut self) -> Scripts {
        let counts = |gates: &[Vec<u32>]| gates.iter().map(|openers| openers.len() as u32).collect::<Vec<_>>();
        for (at, device) in self.devices.iter_mut().enumerate() {
            for (step, mut after) in self.after[at].drain(..).enumerate() {
                // What is lent is given back first; then links, which can begin while this device still tells others.
                after.sort_by_key(|after| match after {
                    After::Forget(_) => 0,
                    After::Share { transfer: None, .. } => 1,
                    After::Share { .. } | After::Open(_) | After::Landing(_) => 2,
                });
                let start = device.after.len() as u32;
                device.after.extend(after);
                device.steps[step].after = start..device.after.len() as u32;
            }
            device.gates = counts(&self.openers[at]);
            device.cells = std::mem::take(&mut self.cells.devices[at]);
            device.rings = self.plan.memory().rings(DeviceId(at as u32)).to_vec();
        }
        for (at, link) in self.links.iter_mut().enumerate() {
            link.gates = counts(&self.openers[self.devices.len() + at]);
        }
        let messages = (0..self.openers.len()).map(|worker| self.messages(worker)).collect();
        Scripts { devices: self.devices, links: self.links, messages, openers: self.openers, channels: self.channels }
    }

    /// How many messages one run may put into a worker's inbox at most.
    fn messages(&self, worker: usize) -> usize {
        let gates: usize = self.openers[worker].iter().map(Vec::len).sum();
        let (chunks, credits): (usize, usize) = match self.links.get(worker.wrapping_sub(self.devices.len())) {
            Some(link) => {
                let feeds = link.steps.iter().filter_map(|step| step.feed.as_ref());
                (feeds.map(|feed| feed.chunks).sum(), link.ring_depth as usize)
            }
            None => {
                let device = &self.devices[worker];
                let outs = device.nodes.iter().filter_map(|node| node.streaming.as_ref()).flat_map(|s| &s.outs);
                let depth = |output: u32| device.rings.get(output as usize).map_or(0, |ring| ring.depth as usize);
                (device.queues.iter().sum(), outs.map(|out| depth(out.output) * out.to.len()).sum())
            }
        };
        gates + chunks + credits + CONTROL
    }
}
