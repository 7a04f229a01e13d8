//! Builds worker programs: each device's and link's part of the total order, with the gates and their openers.
//!
//! While a worker program is built, every step has a gate of its own number; at the end, gates without openers are
//! dropped.

use super::cells::{CellMap, PINNED};
use super::release;
use super::{
    After, Channel, DeviceProgram, DeviceStep, Gate, GateSpec, HandOver, HandedOut, LinkProgram, LinkStep, NO_CELL,
    NO_GATE, Operand, PortSpec, Work, WorkerPrograms,
};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{HOST, InPlace, Plan, Route, Step, TransferId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Contradiction in a plan: a bug of the planner.
pub(super) type Contradiction = &'static str;

pub(super) struct Builder<'a> {
    pub(super) plan: &'a Plan,
    pub(super) program: &'a Program,
    pub(super) cells: CellMap,
    in_place: Vec<InPlace>,
    pub(super) devices: Vec<DeviceProgram>,
    links: Vec<LinkProgram>,
    /// Ports of the workers, with a gate for each step.
    pub(super) ports: Vec<PortSpec>,
    /// Actions after each step of each device.
    after: Vec<Vec<Vec<After>>>,
    /// Steps that read a value, ascending, for each device and value.
    readers: BTreeMap<(DeviceId, ValueId), Vec<u32>>,
    /// Step that makes each value or brings it in, on its device of origin.
    makers: BTreeMap<ValueId, u32>,
    /// Link and position of each transfer over a link.
    on_link: BTreeMap<TransferId, Gate>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(plan: &'a Plan, program: &'a Program) -> Self {
        let devices = plan.devices().len();
        let device_rings = (0..devices).map(|at| plan.memory().rings(DeviceId(at as u32)).to_vec());
        let link_rings = plan.links().iter().map(|link| vec![link.ring]);
        let port = |rings| PortSpec { rings, ..PortSpec::default() };
        Self {
            plan,
            program,
            cells: CellMap::new(plan, program),
            in_place: InPlace::all(plan, program),
            devices: (0..devices).map(|_| DeviceProgram::default()).collect(),
            links: Vec::new(),
            ports: device_rings.chain(link_rings).map(port).collect(),
            after: vec![Vec::new(); devices],
            readers: BTreeMap::new(),
            makers: BTreeMap::new(),
            on_link: BTreeMap::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<WorkerPrograms, Contradiction> {
        self.lay_out_steps()?;
        self.lay_out_links()?;
        self.route_transfers()?;
        release::connect(&mut self)?;
        self.send_inputs_together();
        self.verify_operands()?;
        Ok(self.seal())
    }

    pub(super) fn kind(&self, device: DeviceId) -> DeviceKind {
        self.plan.device(device).kind
    }

    /// Records that `from` opens a gate.
    fn count(&mut self, from: u32, gate: Gate) {
        self.ports[gate.worker as usize].gates[gate.index as usize].openers.push(from);
    }

    /// Opens a gate by `after`, after a step of a device.
    pub(super) fn open_after(&mut self, device: DeviceId, step: u32, gate: Gate, after: After) {
        self.count(device.0, gate);
        self.after[device.index()][step as usize].push(after);
    }

    /// Opens a gate after a transfer has read its source.
    pub(super) fn open_after_transfer(&mut self, at: Gate, gate: Gate) {
        self.count(at.worker, gate);
        self.link_step(at).after.push(gate);
    }

    /// Forgets a value of another device after a step, before other workers are told that it was read.
    pub(super) fn forget_after(&mut self, device: DeviceId, step: u32, cell: u32) {
        self.after[device.index()][step as usize].insert(0, After::Forget(cell));
    }

    /// Hands a slot to a link when the run starts.
    pub(super) fn hand_over_first(&mut self, device: DeviceId, landing: HandOver) {
        self.count(device.0, landing.gate);
        self.devices[device.index()].first_landings.push(landing);
    }

    /// Position of a transfer on its link.
    pub(super) fn on_link(&self, transfer: TransferId) -> Option<Gate> {
        self.on_link.get(&transfer).copied()
    }

    /// Steps of a device that read a value, ascending.
    pub(super) fn readers(&self, device: DeviceId, value: ValueId) -> &[u32] {
        self.readers.get(&(device, value)).map_or(&[], Vec::as_slice)
    }

    /// Step that makes a value on its device of origin.
    pub(super) fn maker(&self, value: ValueId) -> Option<u32> {
        self.makers.get(&value).copied()
    }

    /// Step of a transfer on its link.
    pub(super) fn link_step(&mut self, at: Gate) -> &mut LinkStep {
        let link = at.worker as usize - self.devices.len();
        &mut self.links[link].steps[at.index as usize]
    }

    /// Registers a channel for which a worker waits, and returns its number.
    pub(super) fn channel(&mut self, worker: u32, channel: Channel) -> u32 {
        let channels = &mut self.ports[worker as usize].channels;
        channels.push(channel);
        channels.len() as u32 - 1
    }

    fn lay_out_steps(&mut self) -> Result<(), Contradiction> {
        for step in self.plan.steps() {
            match step {
                Step::Input(index) => {
                    let value = self.program.inputs[*index];
                    let (device, number) = numbered(*index, |other| self.plan.input_device(other));
                    let work = Work::Input { index: number, cell: self.cells.cell(device, value)? };
                    let at = self.push(device, work);
                    self.makers.insert(value, at);
                }
                Step::Output(index) => {
                    let value = self.program.outputs[*index].value;
                    let (device, number) = numbered(*index, |other| self.plan.output_device(other));
                    let work = Work::Output { index: number, cell: self.cells.cell(device, value)? };
                    let at = self.push(device, work);
                    self.readers.entry((device, value)).or_default().push(at);
                    if device == HOST {
                        self.hand_out(number, value);
                    } else if self.in_place.iter().any(|pair| pair.output == *index) {
                        let slot = HandedOut { output: number, cell: self.cells.cell(device, value)? };
                        self.devices[device.index()].handed_out.push(slot);
                    }
                }
                Step::Node(node) => self.lay_out_node(*node),
                Step::Transfer(_) => {}
            }
        }
        Ok(())
    }

    /// Records the slot of a CPU device that holds an output: the host's, or that of the device that makes it.
    fn hand_out(&mut self, output: u32, value: ValueId) {
        let owners = [Some(HOST), self.plan.origin(self.program, value)];
        let home = |owner| self.plan.memory().home(owner, value).filter(|_| self.kind(owner) == DeviceKind::Cpu);
        if let Some(stay) = owners.into_iter().flatten().find_map(home) {
            let slot = HandedOut { output, cell: stay.slot as u32 };
            self.devices[stay.device.index()].handed_out.push(slot);
        }
    }

    fn push(&mut self, device: DeviceId, work: Work) -> u32 {
        let steps = &mut self.devices[device.index()].steps;
        steps.push(DeviceStep { work, gate: NO_GATE, after: 0..0, urgent: false });
        self.after[device.index()].push(Vec::new());
        let step = steps.len() as u32 - 1;
        self.ports[device.index()].gates.push(GateSpec { step, ..GateSpec::default() });
        step
    }

    fn lay_out_node(&mut self, id: NodeId) {
        let (device, node) = (self.plan.device_of(id), self.program.node(id));
        let at = self.push(device, Work::Node(self.devices[device.index()].nodes.len() as u32));
        let needs = self.plan.memory().needs(id);
        let cell = |value| self.cells.find(device, value);
        self.devices[device.index()].push_node(self.program, id, needs, cell);
        for value in &node.inputs {
            let steps = self.readers.entry((device, *value)).or_default();
            if steps.last() != Some(&at) {
                steps.push(at);
            }
        }
        self.makers.extend(node.outputs.iter().map(|value| (*value, at)));
    }

    fn lay_out_links(&mut self) -> Result<(), Contradiction> {
        let devices = self.devices.len();
        for (at, link) in self.plan.links().iter().enumerate() {
            let worker = (devices + at) as u32;
            let mut steps = Vec::new();
            for id in &link.transfers {
                let transfer = self.plan.transfer(*id);
                let step = steps.len() as u32;
                self.on_link.insert(*id, Gate { worker, index: step });
                self.ports[worker as usize].gates.push(GateSpec { step, ..GateSpec::default() });
                let lands = transfer.lands(self.kind(link.to));
                let from_gpu = self.kind(link.from) != DeviceKind::Cpu;
                let cell = |device| self.cells.cell(device, transfer.value);
                let (cpu, gpu) = if from_gpu { (link.to, link.from) } else { (link.from, link.to) };
                steps.push(LinkStep {
                    transfer: *id,
                    bytes: transfer.bytes as usize,
                    gate: NO_GATE,
                    source: from_gpu.then(|| cell(link.from)).transpose()?,
                    constant: None,
                    target: lands.then(|| cell(link.to)).transpose()?,
                    arrival: None,
                    after: Vec::new(),
                    feed: None,
                    reader: None,
                    buffer_channel: 0,
                    pinned: transfer.stream().is_none()
                        && transfer.bytes >= PINNED
                        && self.cells.is_pinned(cpu, transfer.value, gpu),
                });
            }
            self.links.push(LinkProgram { from: link.from, to: link.to, steps, staging: link.staging });
        }
        Ok(())
    }

    /// Connects each transfer with the step that makes its value and the first step that reads it.
    fn route_transfers(&mut self) -> Result<(), Contradiction> {
        let plan = self.plan;
        for (index, transfer) in plan.transfers().iter().enumerate() {
            let id = TransferId(index as u32);
            let first = self.readers(transfer.to, transfer.value).first().copied();
            let first = first.ok_or("a transfer without a reader")?;
            let arrival = Gate { worker: transfer.to.0, index: first };
            if self.program.constant(transfer.value).is_some() {
                let gate = self.on_link(id).ok_or("a constant that is sent over no link")?;
                self.arrives(gate, arrival);
                continue;
            }
            let maker = self.maker(transfer.value).ok_or("a transfer without a producer")?;
            if let Some(stream) = transfer.stream() {
                self.route_stream(id, stream, first)?;
                if stream.producer.is_some() {
                    continue;
                }
            }
            let (gate, there, noted) = match self.on_link(id) {
                None => (arrival, self.cells.cell(transfer.to, transfer.value)?, Some(id)),
                Some(gate) => (gate, NO_CELL, None),
            };
            let after = match self.kind(transfer.from) {
                DeviceKind::Cpu => {
                    let cell = self.cells.cell(transfer.from, transfer.value)?;
                    After::Share { cell, gate, there, transfer: noted }
                }
                _ => After::Open(gate),
            };
            self.open_after(transfer.from, maker, gate, after);
            if self.on_link(id).is_some() {
                self.devices[transfer.from.index()].steps[maker as usize].urgent = true;
                if transfer.route == Route::Copied {
                    self.arrives(gate, arrival);
                }
            }
        }
        Ok(())
    }

    /// Makes the transfer at a link's `gate` open the gate of the first reader.
    fn arrives(&mut self, gate: Gate, arrival: Gate) {
        self.count(gate.worker, arrival);
        self.link_step(gate).arrival = Some(arrival);
    }

    /// Makes the host share the caller's inputs after it has taken the last of those with which it begins, and that of
    /// a link's first transfer last: the link then finds all of them, and copies small ones together.
    fn send_inputs_together(&mut self) {
        let gates = &self.ports[HOST.index()].gates;
        let first = |(step, gate): &(&DeviceStep, &GateSpec)| {
            matches!(step.work, Work::Input { .. }) && gate.openers.is_empty()
        };
        let inputs = self.devices[HOST.index()].steps.iter().zip(gates).take_while(first).count();
        let after = &mut self.after[HOST.index()][..inputs];
        let mut all: Vec<After> = after.iter_mut().flat_map(std::mem::take).collect();
        all.reverse();
        if let Some(last) = after.last_mut() {
            *last = all;
        }
    }

    /// Checks that all values that nodes read and make have a cell, or pass in chunks.
    fn verify_operands(&self) -> Result<(), Contradiction> {
        for device in &self.devices {
            for node in &device.nodes {
                let streaming = node.streaming.as_deref();
                let missing = |operand: &Operand| operand.cell == NO_CELL;
                let passes_in = |at| streaming.is_some_and(|streaming| streaming.place_of(at).is_some());
                let passes_on = |at| streaming.is_some_and(|streaming| streaming.out(at).is_some());
                let mut inputs = device.operands(&node.inputs).iter().enumerate();
                let mut outputs = device.operands(&node.outputs).iter().enumerate();
                if inputs.any(|(at, operand)| missing(operand) && operand.bytes > 0 && !passes_in(at))
                    || outputs.any(|(at, operand)| missing(operand) && !passes_on(at))
                {
                    return Err("a node reads or makes a value that has no memory");
                }
            }
        }
        Ok(())
    }

    /// Numbers the remaining gates, and sorts every worker's tables.
    fn seal(mut self) -> WorkerPrograms {
        self.expect_waits();
        let numbers: Vec<Vec<u32>> = self.ports.iter_mut().map(drop_open_gates).collect();
        let number = |gate: &mut Gate| gate.index = numbers[gate.worker as usize][gate.index as usize];
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.first_landings.iter_mut().for_each(|landing| number(&mut landing.gate));
            for (step, mut after) in self.after[at].drain(..).enumerate() {
                // Lent values are returned first, then links are informed, which can start while this device still
                // informs others. A slot is handed over after its value was shared, in the order in which these were
                // recorded.
                after.sort_by_key(|after| match after {
                    After::Forget(_) => 0,
                    After::Share { transfer: None, .. } => 1,
                    After::Share { .. } | After::Open(_) | After::HandOver(_) => 2,
                });
                for after in &mut after {
                    match after {
                        After::Open(gate) | After::Share { gate, .. } => number(gate),
                        After::HandOver(landing) => number(&mut landing.gate),
                        After::Forget(_) => {}
                    }
                }
                let start = device.after.len() as u32;
                device.after.extend(after);
                device.steps[step].after = start..device.after.len() as u32;
                device.steps[step].gate = numbers[at][step];
            }
            device.cells = std::mem::take(&mut self.cells.devices[at]);
        }
        for (at, link) in self.links.iter_mut().enumerate() {
            for (place, step) in link.steps.iter_mut().enumerate() {
                step.gate = numbers[self.devices.len() + at][place];
                step.arrival.iter_mut().chain(&mut step.after).for_each(number);
            }
        }
        WorkerPrograms { devices: self.devices, links: self.links, ports: self.ports }
    }

    /// Records at each device's gates the predicted waits of its worker.
    fn expect_waits(&mut self) {
        let (predicted, mut free) = (self.plan.predicted(), vec![0.0; self.devices.len()]);
        for (at, device) in self.devices.iter().enumerate() {
            for (step, gate) in device.steps.iter().zip(&mut self.ports[at].gates) {
                let (start, end) = match step.work {
                    Work::Node(node) => {
                        let node = device.nodes[node as usize].node;
                        predicted.nodes.get(node.index()).copied().unwrap_or_default()
                    }
                    Work::Output { .. } => (predicted.makespan, predicted.makespan),
                    Work::Input { .. } => (0.0, 0.0),
                };
                gate.expected = Duration::try_from_secs_f64(start - free[at]).unwrap_or_default();
                free[at] = end.max(free[at]);
            }
        }
    }
}

/// Device of an input or output, and its number among those of the host, or among those of GPUs.
fn numbered(index: usize, device_of: impl Fn(usize) -> DeviceId) -> (DeviceId, u32) {
    let device = device_of(index);
    let alike = (0..index).filter(|other| (device_of(*other) == HOST) == (device == HOST)).count();
    (device, alike as u32)
}

/// Keeps the gates with openers; returns the new numbers.
fn drop_open_gates(port: &mut PortSpec) -> Vec<u32> {
    let mut kept = 0;
    let number = |gate: &GateSpec| {
        kept += u32::from(!gate.openers.is_empty());
        if gate.openers.is_empty() { NO_GATE } else { kept - 1 }
    };
    let numbers = port.gates.iter().map(number).collect();
    port.gates.retain(|gate| !gate.openers.is_empty());
    numbers
}
