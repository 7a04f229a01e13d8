//! Assigns values to buffers of devices.

use super::build::Contradiction;
use super::{Cells, ConstantCell, SlotSpec};
use anabranch_ir::program::{Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{Plan, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Size in bytes from which a slot is pinned for a GPU: then the copy to or from a staging buffer takes longer than the
/// wait for the GPU that it saves.
pub(super) const PINNED: u64 = if cfg!(test) { 64 } else { 1 << 20 };

/// Cells of all devices.
pub(super) struct CellMap {
    of: BTreeMap<(DeviceId, ValueId), u32>,
    pub(super) devices: Vec<Cells>,
}

impl CellMap {
    pub(super) fn new(plan: &Plan, program: &Program) -> Self {
        let mut map = Self { of: BTreeMap::new(), devices: Vec::new() };
        // Constants that links send count on the host.
        let mut counted: BTreeSet<_> = plan.transfers().iter().map(|transfer| transfer.value).collect();
        for at in 0..plan.devices().len() {
            let device = DeviceId(at as u32);
            let mut cells = Cells { slots: slots(plan, device), ..Cells::default() };
            let (guests, constants) = guests_and_constants(plan, program, device);
            for (at, value) in guests.iter().chain(&constants).enumerate() {
                map.of.insert((device, *value), (cells.slots.len() + at) as u32);
            }
            cells.guests = guests.len();
            let shared = plan.device(device).kind == DeviceKind::Cpu;
            let cell = |value: &ValueId| {
                let bytes = program.constant(*value)?.bytes();
                let counted = !shared || counted.insert(*value);
                Some(ConstantCell { value: *value, bytes, buffer: Arc::default(), counted })
            };
            cells.constants = constants.iter().filter_map(cell).collect();
            map.devices.push(cells);
        }
        for stay in plan.memory().allocations() {
            map.of.insert((stay.device, stay.value), stay.slot as u32);
        }
        map
    }

    /// Whether a value is in a slot of a CPU device that is pinned for a GPU.
    pub(super) fn is_pinned(&self, device: DeviceId, value: ValueId, gpu: DeviceId) -> bool {
        let cell = self.find(device, value).and_then(|cell| self.devices[device.index()].slots.get(cell as usize));
        cell.is_some_and(|slot| slot.pinned == Some(gpu))
    }

    /// Returns the cell of a value on a device, if it has a cell there.
    pub(super) fn find(&self, device: DeviceId, value: ValueId) -> Option<u32> {
        self.of.get(&(device, value)).copied()
    }

    /// Returns the cell of a value that must be on a device.
    pub(super) fn cell(&self, device: DeviceId, value: ValueId) -> Result<u32, Contradiction> {
        self.find(device, value).ok_or("a plan uses a value on a device that does not have it")
    }
}

fn slots(plan: &Plan, device: DeviceId) -> Vec<SlotSpec> {
    let bytes = &plan.memory().devices()[device.index()].slots;
    let slot = |bytes: &u64| SlotSpec { bytes: *bytes, handed_out: false, shared: false, pinned: None };
    let mut slots: Vec<_> = bytes.iter().map(slot).collect();
    let end = plan.steps().len() as u32;
    let cpu = plan.device(device).kind == DeviceKind::Cpu;
    for stay in plan.memory().allocations().iter().filter(|stay| stay.device == device && stay.until == end) {
        slots[stay.slot].handed_out = cpu;
        slots[stay.slot].shared = true;
    }
    for transfer in plan.transfers().iter().filter(|transfer| transfer.from == device || transfer.to == device) {
        let other = if transfer.from == device { transfer.to } else { transfer.from };
        if let Some(stay) = plan.memory().home(device, transfer.value) {
            let slot = &mut slots[stay.slot];
            slot.shared = true;
            let is_large = slot.bytes >= PINNED && transfer.bytes >= PINNED;
            // The memory of outputs is the caller's after a run.
            if cpu && plan.device(other).kind == DeviceKind::Gpu && is_large && !slot.handed_out {
                slot.pinned.get_or_insert(other);
            }
        }
    }
    slots
}

/// Values that a device reads without having made or received them in a slot, and the constants that it reads.
fn guests_and_constants(plan: &Plan, program: &Program, device: DeviceId) -> (Vec<ValueId>, Vec<ValueId>) {
    let (mut guests, mut constants) = (BTreeSet::new(), BTreeSet::new());
    let mut read = |value: ValueId| {
        if plan.memory().home(device, value).is_none() {
            let constant = program.constant(value).is_some();
            if constant { &mut constants } else { &mut guests }.insert(value);
        }
    };
    for step in plan.steps() {
        match step {
            Step::Node(node) if plan.device_of(*node) == device => {
                let needs = plan.memory().needs(*node);
                let inputs = program.node(*node).inputs.iter().enumerate();
                let is_read = |at, value| needs.is_read(at) || program.constant(value).is_none();
                inputs.filter(|(at, value)| is_read(*at, **value)).for_each(|(_, value)| read(*value));
            }
            Step::Output(index) if device == plan.output_device(*index) => read(program.outputs[*index].value),
            Step::Input(index) if device == plan.input_device(*index) => read(program.inputs[*index]),
            Step::Node(_) | Step::Output(_) | Step::Input(_) | Step::Transfer(_) => {}
        }
    }
    (guests.into_iter().collect(), constants.into_iter().collect())
}
