//! Exact memory of a plan: every value's slot and lifetime, and every device's peak.

use super::ring::{self, Ring};
use super::slots::{self, Lifetime};
use super::staged::Staged;
use super::uses::{Uses, input_device, output_device};
use super::{
    HOST, InPlace, KernelNeeds, LinkPlan, MemoryShortage, PackedConstant, PlanDevice, PlanError, Route, Step, Transfer,
    TransferId,
};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::cpu::Layout;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Allocation of a value in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Allocated value.
    pub value: ValueId,
    /// Device of the slot.
    pub device: DeviceId,
    /// Index of the slot on the device.
    pub slot: usize,
    /// Bytes of the value; the slot may be larger.
    pub bytes: u64,
    /// Position in the total order at which the value is made or arrives. A whole gang counts at its first position.
    pub from: u32,
    /// Position of the last use, with gangs as above. For an output on the host it is past the end: the caller takes
    /// the buffer.
    pub until: u32,
}

/// A constant that a device keeps, shared with all plans of a session that need it in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedConstant {
    /// Value of the constant.
    pub value: ValueId,
    /// Layout of a kernel; `None` for the constant's own layout.
    pub layout: Option<Layout>,
    /// Size in bytes.
    pub bytes: u64,
}

/// Memory of one device that a plan takes, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Unpacked constants, except staged ones. CPU devices share them: they count on the first device that reads them.
    /// On the host, constants that are sent to GPUs count, too.
    pub constants: u64,
    /// Memory that kernels keep: tables, and packed constants, which CPU devices share like unpacked constants.
    pub kernels: u64,
    /// Largest scratch memory of a kernel.
    pub scratch: u64,
    /// The caller's tensors: inputs, and on a GPU outputs that are copied out of their slots.
    pub given: u64,
    /// Buffers of streams that arrive here, or are made here chunk by chunk.
    pub rings: u64,
    /// Staging buffers of links that end here ([`LinkPlan::staging_bytes`]).
    pub staging: u64,
    /// Slots for values.
    pub slots: Vec<u64>,
    /// Constants and kernel memory that other plans may share.
    pub shared: Vec<SharedConstant>,
}

impl DeviceMemory {
    /// Returns the bytes that stay allocated between runs for the model.
    pub fn resident(&self) -> u64 {
        self.constants.saturating_add(self.kernels)
    }

    /// Returns the sum of all parts.
    pub fn peak(&self) -> u64 {
        let parts = [self.constants, self.kernels, self.scratch, self.given, self.rings, self.staging];
        parts.iter().chain(&self.slots).fold(0, |sum: u64, part| sum.saturating_add(*part))
    }
}

/// Memory of every device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    devices: Vec<DeviceMemory>,
    allocations: Vec<Allocation>,
    homes: BTreeMap<(DeviceId, ValueId), usize>,
    needs: Arc<[KernelNeeds]>,
    rings: Vec<Vec<Ring>>,
}

impl MemoryPlan {
    /// Returns the rings of a CPU device through which its nodes pass chunks on: for the nodes' first output, for the
    /// second, and so on. All nodes of the device share them.
    pub fn rings(&self, device: DeviceId) -> &[Ring] {
        self.rings.get(device.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns the memory of each device.
    pub fn devices(&self) -> &[DeviceMemory] {
        &self.devices
    }

    /// Returns all allocations, by device and then by their first position.
    pub fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }

    /// Returns a value's allocation on a device, if it has a slot there.
    pub fn home(&self, device: DeviceId, value: ValueId) -> Option<&Allocation> {
        self.homes.get(&(device, value)).map(|at| &self.allocations[*at])
    }

    /// Returns the position of the last use of the former content of a value's slot, by device and value, for slots
    /// that were in use before.
    pub fn emptied(&self) -> BTreeMap<(DeviceId, ValueId), u32> {
        let mut last: BTreeMap<(DeviceId, usize), u32> = BTreeMap::new();
        // Allocations are sorted by device and position.
        let before = |it: &Allocation| Some(((it.device, it.value), last.insert((it.device, it.slot), it.until)?));
        self.allocations.iter().filter_map(before).collect()
    }

    /// Returns the memory that a node's kernel needs.
    pub fn needs(&self, node: NodeId) -> &KernelNeeds {
        &self.needs[node.index()]
    }
}

/// Everything that determines the memory of a plan.
pub(super) struct Frame<'a> {
    pub(super) program: &'a Program,
    pub(super) devices: &'a [PlanDevice],
    pub(super) device_of: &'a [DeviceId],
    pub(super) uses: &'a Uses,
    pub(super) steps: &'a [Step],
    pub(super) gangs: &'a [Range<usize>],
    pub(super) transfers: &'a [Transfer],
    pub(super) links: &'a [LinkPlan],
    pub(super) staged: &'a Staged,
    /// Needs of each node's kernel.
    pub(super) needs: &'a Arc<[KernelNeeds]>,
    /// Expected start and end of each node, in seconds.
    pub(super) expected: &'a [(f64, f64)],
}

/// An item in a device's memory from a position of the total order on.
struct Charge {
    device: DeviceId,
    bytes: u64,
    /// Position at which the item is first needed.
    place: u32,
}

/// Plans the memory so that workers are not expected to wait for each other's slots. If a device has too little memory
/// for that, uses as few slots as possible.
pub(super) fn plan(frame: &Frame<'_>) -> Result<MemoryPlan, PlanError> {
    plan_slots(frame, true).or_else(|roomy| plan_slots(frame, false).map_err(|tight| nearer(roomy, tight)))
}

/// Returns the attempt with the smaller shortage. Slots are assigned greedily, so that fewer rules may need more
/// memory.
pub(super) fn nearer(roomy: PlanError, tight: PlanError) -> PlanError {
    match (&roomy, &tight) {
        (PlanError::Memory(one), PlanError::Memory(other))
            if one.device == other.device && one.needed < other.needed =>
        {
            roomy
        }
        _ => tight,
    }
}

fn plan_slots(frame: &Frame<'_>, in_time: bool) -> Result<MemoryPlan, PlanError> {
    let (places, in_place) = (Places::of(frame), frame.in_place_on_gpus());
    let mut memory = MemoryPlan {
        devices: vec![DeviceMemory::default(); frame.devices.len()],
        needs: Arc::clone(frame.needs),
        allocations: frame.allocations(&places, &in_place),
        homes: BTreeMap::new(),
        rings: ring::all(frame.program, frame.devices, frame.transfers),
    };
    let mut charges = frame.charge_nodes(&places, &mut memory);
    frame.charge_edges(&mut memory, &in_place);
    frame.settle(&mut memory, &mut charges, in_time, &in_place);
    frame.join(&mut memory, &places, &in_place);
    memory.homes = memory
        .allocations
        .iter()
        .enumerate()
        .map(|(at, allocation)| ((allocation.device, allocation.value), at))
        .collect();
    charges.sort_by_key(|charge| charge.place);
    for (index, device) in frame.devices.iter().enumerate() {
        if !device.limit.admits(memory.devices[index].peak()) {
            return Err(PlanError::Memory(Box::new(frame.shortage(index, &memory, &charges))));
        }
    }
    Ok(memory)
}

/// Positions of all steps in the total order.
///
/// All steps of a gang count at its first position, so that no member's input gives way to another member's output. An
/// output on the host is past the end, because the caller takes the buffer.
struct Places {
    of: BTreeMap<Step, u32>,
    end: u32,
}

impl Places {
    fn of(frame: &Frame<'_>) -> Self {
        let end = frame.steps.len() as u32;
        let mut gangs = frame.gangs.iter().peekable();
        let place = |(place, step): (usize, &Step)| {
            while gangs.next_if(|gang| gang.end <= place).is_some() {}
            let place = gangs.peek().map_or(place, |gang| gang.start.min(place)) as u32;
            match step {
                Step::Output(index) if output_device(frame.program, frame.device_of, *index) == HOST => (*step, end),
                _ => (*step, place),
            }
        };
        Self { of: frame.steps.iter().enumerate().map(place).collect(), end }
    }

    fn node(&self, node: NodeId) -> u32 {
        self.of[&Step::Node(node)]
    }

    /// Last use among these readers.
    fn last(&self, readers: &[(DeviceId, Step)]) -> u32 {
        readers.iter().map(|(_, reader)| self.of[reader]).max().unwrap_or(0)
    }
}

impl Frame<'_> {
    fn kind(&self, device: DeviceId) -> DeviceKind {
        self.devices[device.index()].kind
    }

    /// Outputs of GPUs that lie in the memory of inputs.
    fn in_place_on_gpus(&self) -> Vec<InPlace> {
        let mut pairs = InPlace::among(self.program, self.device_of);
        pairs.retain(|pair| self.kind(pair.device) == DeviceKind::Gpu);
        pairs
    }

    /// Allocations of all values on all devices where they have memory of their own; slots are not assigned yet.
    fn allocations(&self, places: &Places, in_place: &[InPlace]) -> Vec<Allocation> {
        let mut allocations = Vec::new();
        let passed_through = self.passed_through();
        let mut made = |value: ValueId, device: DeviceId, from: u32| {
            let until = places.last(self.uses.on(value, device)).max(from);
            allocations.push(self.allocation(value, device, from, until));
        };
        for node in self.program.node_ids() {
            let (device, from) = (self.device_of[node.index()], places.node(node));
            let whole = self.program.node(node).outputs.iter().filter(|value| !passed_through.contains(value));
            whole.for_each(|value| made(*value, device, from));
        }
        for (index, value) in self.program.inputs.iter().enumerate() {
            let device = input_device(self.program, self.device_of, index);
            if self.kind(device) == DeviceKind::Gpu && in_place.iter().all(|pair| pair.input != index) {
                made(*value, device, places.of[&Step::Input(index)]);
            }
        }
        let origin: BTreeMap<ValueId, usize> =
            allocations.iter().enumerate().map(|(at, allocation)| (allocation.value, at)).collect();
        for (index, transfer) in self.transfers.iter().enumerate() {
            let place = places.of[&Step::Transfer(TransferId(index as u32))];
            let last = places.last(self.uses.on(transfer.value, transfer.to));
            // Position until which the sender must keep the value.
            let sent = match transfer.route {
                Route::Copied => place,
                Route::Shared | Route::Streamed(_) => last,
            };
            if let Some(at) = origin.get(&transfer.value) {
                allocations[*at].until = allocations[*at].until.max(sent);
            }
            if transfer.lands(self.kind(transfer.to)) {
                allocations.push(self.allocation(transfer.value, transfer.to, place, last));
            }
        }
        allocations.sort_by_key(|allocation| (allocation.device, allocation.from, allocation.value));
        allocations
    }

    /// Values that a CPU makes and passes on chunk by chunk, so that they never exist whole.
    fn passed_through(&self) -> BTreeSet<ValueId> {
        let made_in_parts = |transfer: &&Transfer| {
            let together = transfer.stream().is_some_and(|stream| stream.producer.is_some());
            together && self.kind(transfer.from) == DeviceKind::Cpu
        };
        self.transfers.iter().filter(made_in_parts).map(|transfer| transfer.value).collect()
    }

    fn allocation(&self, value: ValueId, device: DeviceId, from: u32, until: u32) -> Allocation {
        Allocation { value, device, slot: 0, bytes: self.bytes_on(device, value), from, until }
    }

    /// A GPU's buffers are multiples of 4 bytes, and not empty.
    fn bytes_on(&self, device: DeviceId, value: ValueId) -> u64 {
        let bytes = self.program.value(value).spec.bytes() as u64;
        if self.kind(device) == DeviceKind::Cpu { bytes } else { bytes.max(1).next_multiple_of(4) }
    }

    /// Adds constants, packed weights and scratch.
    fn charge_nodes(&self, places: &Places, memory: &mut MemoryPlan) -> Vec<Charge> {
        let mut charges = Vec::new();
        let mut counted: BTreeSet<(DeviceId, ValueId)> = BTreeSet::new();
        let mut packed: BTreeSet<PackedConstant> = BTreeSet::new();
        // Constants that the caller receives are in memory in any case.
        for (index, value) in self.program.outputs.iter().map(|output| output.value).enumerate() {
            let device = output_device(self.program, self.device_of, index);
            if self.program.constant(value).is_some() && counted.insert((device, value)) {
                let bytes = self.bytes_on(device, value);
                memory.devices[device.index()].constants += bytes;
                memory.devices[device.index()].shared.push(SharedConstant { value, layout: None, bytes });
                charges.push(Charge { device, bytes, place: places.end });
            }
        }
        // The host keeps the constants that it sends.
        for value in self.staged.values().into_iter().filter(|value| counted.insert((HOST, *value))) {
            let bytes = self.bytes_on(HOST, value);
            memory.devices[HOST.index()].constants += bytes;
            memory.devices[HOST.index()].shared.push(SharedConstant { value, layout: None, bytes });
            charges.push(Charge { device: HOST, bytes, place: places.end });
        }
        // By device first, so that constants shared by CPU devices count on the first device.
        let mut nodes: Vec<NodeId> = self.program.node_ids().collect();
        nodes.sort_by_key(|node| (self.device_of[node.index()], places.node(*node)));
        for node in nodes {
            let (device, place) = (self.device_of[node.index()], places.node(node));
            let needs = &memory.needs[node.index()];
            let owner = if self.kind(device) == DeviceKind::Cpu { HOST } else { device };
            let fresh = |(at, value): (usize, &ValueId)| {
                self.program.constant(*value)?;
                let bytes = self.bytes_on(device, *value);
                let stays = needs.is_read(at) && !self.staged.contains(device, *value);
                let fresh = stays && counted.insert((owner, *value));
                fresh.then_some(SharedConstant { value: *value, layout: None, bytes })
            };
            let raw: Vec<_> = self.program.node(node).inputs.iter().enumerate().filter_map(fresh).collect();
            let fresh = needs.packed.iter().filter(|constant| packed.insert((*constant).clone()));
            let fresh = fresh.map(|PackedConstant { value, layout }| {
                let bytes = layout.bytes() as u64;
                SharedConstant { value: *value, layout: Some(layout.clone()), bytes }
            });
            let fresh: Vec<_> = fresh.collect();
            let constants: u64 = raw.iter().map(|constant| constant.bytes).sum();
            let kept = fresh.iter().map(|constant| constant.bytes).fold(needs.resident, u64::saturating_add);
            memory.devices[device.index()].shared.extend(raw.into_iter().chain(fresh));
            let used = &mut memory.devices[device.index()];
            let scratch = needs.scratch.saturating_sub(used.scratch);
            used.constants = used.constants.saturating_add(constants);
            used.kernels = used.kernels.saturating_add(kept);
            used.scratch += scratch;
            let bytes = constants.saturating_add(kept).saturating_add(scratch);
            charges.push(Charge { device, bytes, place });
        }
        charges
    }

    /// Adds the buffers at the ends of links, and the caller's tensors.
    fn charge_edges(&self, memory: &mut MemoryPlan, in_place: &[InPlace]) {
        for link in self.links {
            for (device, bytes) in link.staging_bytes(self.devices) {
                memory.devices[device.index()].staging += bytes;
            }
            memory.devices[link.to.index()].rings += link.ring.total();
        }
        for (device, rings) in memory.rings.iter().enumerate() {
            memory.devices[device].rings += rings.iter().map(Ring::total).sum::<u64>();
        }
        for (index, value) in self.program.inputs.iter().enumerate() {
            let device = input_device(self.program, self.device_of, index);
            memory.devices[device.index()].given += self.bytes_on(device, *value);
        }
        for (index, output) in self.program.outputs.iter().enumerate() {
            let device = output_device(self.program, self.device_of, index);
            if device != HOST && in_place.iter().all(|pair| pair.output != index) {
                memory.devices[device.index()].given += self.bytes_on(device, output.value);
            }
        }
    }

    /// Converts an allocation to a lifetime for its device's slots.
    fn lifetime(
        &self,
        allocation: &Allocation,
        sent: &BTreeMap<ValueId, Vec<&Transfer>>,
        in_place: &BTreeSet<(DeviceId, ValueId)>,
    ) -> Lifetime {
        let (device, value) = (allocation.device, allocation.value);
        let made = match self.program.value(value).origin {
            Origin::Node(node) => self.expected[node.index()],
            Origin::Input => (0.0, 0.0),
            // The constant is sent just in time.
            Origin::Constant(_) => {
                let starts = self.uses.on(value, device).iter().filter_map(|(_, reader)| reader.node());
                let first = starts.map(|node| self.expected[node.index()].0).fold(f64::INFINITY, f64::min);
                (first, first)
            }
        };
        let lands = super::uses::origin(self.program, self.device_of, value) != Some(device);
        let span = |reader: &Step| reader.node().map_or((f64::INFINITY, f64::INFINITY), |n| self.expected[n.index()]);
        let read = |device| self.uses.on(value, device).iter().map(|(_, reader)| span(reader));
        let leaves = |transfer: &&Transfer| transfer.from == device;
        let sends: Vec<&Transfer> = sent.get(&value).into_iter().flatten().copied().filter(leaves).collect();
        let away = sends.iter().flat_map(|transfer| {
            // A copy is made when its first reader starts; other readers read the value here.
            let copied = transfer.route == Route::Copied;
            read(transfer.to).map(move |(start, end)| if copied { start } else { end })
        });
        let last = read(device).map(|(_, end)| end).chain(away).fold(made.1, f64::max);
        // The caller takes the slot, or has given it.
        let is_taken = allocation.until == self.steps.len() as u32 && self.kind(device) == DeviceKind::Cpu;
        let alone = is_taken || in_place.contains(&(device, value));
        let expected = (if lands { made.1 } else { made.0 }, last);
        Lifetime {
            bytes: allocation.bytes,
            from: allocation.from,
            until: allocation.until,
            alone,
            read_elsewhere: !sends.is_empty(),
            lands,
            expected,
        }
    }

    /// Assigns every value to a slot.
    fn settle(&self, memory: &mut MemoryPlan, charges: &mut Vec<Charge>, in_time: bool, in_place: &[InPlace]) {
        let in_place = in_place.iter().map(|pair| (pair.device, self.program.outputs[pair.output].value)).collect();
        let end = self.steps.len() as u32;
        let mut sent: BTreeMap<ValueId, Vec<&Transfer>> = BTreeMap::new();
        for transfer in self.transfers {
            sent.entry(transfer.value).or_default().push(transfer);
        }
        for allocations in memory.allocations.chunk_by_mut(|one, other| one.device == other.device) {
            let device = allocations[0].device;
            let lifetimes: Vec<Lifetime> =
                allocations.iter().map(|allocation| self.lifetime(allocation, &sent, &in_place)).collect();
            let (slot_of, slots) = slots::assign(&lifetimes, in_time);
            let mut wanted = vec![end; slots.len()];
            for (allocation, slot) in allocations.iter_mut().zip(slot_of) {
                allocation.slot = slot;
                wanted[slot] = wanted[slot].min(allocation.from);
            }
            let opened = slots.iter().zip(wanted).map(|(bytes, place)| Charge { device, bytes: *bytes, place });
            charges.extend(opened);
            memory.devices[device.index()].slots = slots;
        }
    }

    /// Puts inputs into the slots of the outputs that take their memory.
    fn join(&self, memory: &mut MemoryPlan, places: &Places, in_place: &[InPlace]) {
        for pair in in_place {
            let (value, made) = (self.program.inputs[pair.input], self.program.outputs[pair.output].value);
            let slot = memory.allocations.iter().find(|it| it.device == pair.device && it.value == made);
            let Some(slot) = slot.map(|it| it.slot) else { continue };
            let (from, until) = (places.of[&Step::Input(pair.input)], places.last(self.uses.on(value, pair.device)));
            memory.allocations.push(Allocation { slot, ..self.allocation(value, pair.device, from, until) });
        }
        memory.allocations.sort_by_key(|allocation| (allocation.device, allocation.from, allocation.value));
    }

    /// Names the first node with which the device's memory exceeds its limit.
    fn shortage(&self, device: usize, memory: &MemoryPlan, charges: &[Charge]) -> MemoryShortage {
        let used = &memory.devices[device];
        let available = self.devices[device].limit.or_all();
        let mut sum = used.given.saturating_add(used.rings).saturating_add(used.staging);
        let mut place = 0;
        for charge in charges.iter().filter(|charge| charge.device.index() == device) {
            sum = sum.saturating_add(charge.bytes);
            place = charge.place;
            if sum > available {
                break;
            }
        }
        MemoryShortage {
            device: self.devices[device].name.clone(),
            node: self.node_at(place as usize, DeviceId(device as u32)),
            needed: used.peak(),
            resident: used.resident(),
            available,
            holdings: self.holdings(memory, DeviceId(device as u32)),
            peaks: memory.devices.iter().map(DeviceMemory::peak).collect(),
        }
    }

    /// Node that a position of the total order belongs to: itself, or the node that a transfer feeds.
    fn node_at(&self, place: usize, device: DeviceId) -> String {
        let of_transfer = |transfer: TransferId| {
            let value = self.transfers[transfer.index()].value;
            self.uses.on(value, device).iter().find_map(|(_, reader)| reader.node())
        };
        let node = match self.steps.get(place) {
            Some(Step::Transfer(transfer)) => of_transfer(*transfer),
            step => step.and_then(|step| step.node()),
        };
        node.map_or("inputs and outputs".into(), |node| self.program.node(node).name.clone())
    }
}

#[cfg(any(test, feature = "testing"))]
impl MemoryPlan {
    #[cfg(test)]
    /// A broken plan, to test the checker.
    pub(super) fn with_all_in_slot_0(mut self) -> Self {
        self.allocations.iter_mut().for_each(|allocation| allocation.slot = 0);
        self
    }

    /// Sets the depth of all rings without a proof, to test their effect on a run.
    pub(super) fn with_ring_depth(mut self, depth: u64) -> Self {
        self.rings.iter_mut().flatten().for_each(|ring| ring.depth = depth);
        self
    }
}
