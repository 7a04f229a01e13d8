//! Reuse of slots: the step that fills a slot waits until all readers of the former value are done.
//!
//! Two successive values of a slot need an order. The first value is needed by its last local reader (or, without a
//! reader, the step that made it) and by the transfers that send it on. Each of these informs the step that brings the
//! second value. Steps of one device need not inform each other, because they run in order. All these waits go back in
//! the total order, because the memory plan puts a value into a slot only after the last use of the former value.

use super::build::{Builder, Contradiction};
use super::{After, Gate, HandOver};
use anabranch_ir::program::ValueId;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{Allocation, Route, TransferId};
use std::collections::BTreeMap;

/// Connects successive values in all slots, and frees values that CPU devices share.
pub(super) fn connect(builder: &mut Builder<'_>) -> Result<(), Contradiction> {
    let mut slots: BTreeMap<_, Vec<Allocation>> = BTreeMap::new();
    for stay in builder.plan.memory().allocations() {
        slots.entry((stay.device, stay.slot)).or_default().push(*stay);
    }
    let sends = builder.sends();
    let mut next: BTreeMap<_, Allocation> = BTreeMap::new();
    for stays in slots.values() {
        builder.land_first(&stays[0], &sends)?;
        for pair in stays.windows(2) {
            next.insert((pair[0].device, pair[0].value), pair[1]);
        }
    }
    for (key, after) in &next {
        let gate = builder.filler(after, &sends)?;
        builder.wait_for_local(*key, gate)?;
        for transfer in sends.get(&key.1).into_iter().flatten() {
            if builder.plan.transfer(*transfer).from == key.0 {
                builder.wait_for_send(*transfer, gate);
            }
        }
    }
    builder.forget_shared()
}

type Sends = BTreeMap<ValueId, Vec<TransferId>>;
type Home = (DeviceId, ValueId);

impl Builder<'_> {
    fn sends(&self) -> Sends {
        let mut sends = Sends::new();
        for (index, transfer) in self.plan.transfers().iter().enumerate() {
            sends.entry(transfer.value).or_default().push(TransferId(index as u32));
        }
        sends
    }

    /// Gate of the step, or of the link, that brings a value into its slot.
    fn filler(&self, stay: &Allocation, sends: &Sends) -> Result<Gate, Contradiction> {
        if self.plan.origin(self.program, stay.value) == Some(stay.device) {
            let index = self.maker(stay.value).ok_or("a plan never makes a value that has a slot")?;
            return Ok(Gate { worker: stay.device.0, index });
        }
        let arrives = |id: &&TransferId| self.plan.transfer(**id).to == stay.device;
        let transfer = sends.get(&stay.value).and_then(|ids| ids.iter().find(arrives)).copied();
        transfer.and_then(|id| self.on_link(id)).ok_or("nothing brings a value that has a slot")
    }

    /// Hands a slot of a CPU device over at the start, if its first value comes over a link.
    fn land_first(&mut self, stay: &Allocation, sends: &Sends) -> Result<(), Contradiction> {
        let gate = self.filler(stay, sends)?;
        if gate.worker != stay.device.0 && self.kind(stay.device) == DeviceKind::Cpu {
            let cell = self.cells.cell(stay.device, stay.value)?;
            self.hand_over_first(stay.device, HandOver { cell, gate });
        }
        Ok(())
    }

    /// Makes `gate` wait for the last step of the value's own device that touches the value. If a link fills the slot
    /// of a CPU device next, that step hands over the slot itself.
    fn wait_for_local(&mut self, (device, value): Home, gate: Gate) -> Result<(), Contradiction> {
        if gate.worker == device.0 {
            return Ok(());
        }
        let reader = self.readers(device, value).last().copied();
        let made = self.maker(value).filter(|_| self.plan.origin(self.program, value) == Some(device));
        let last = reader.max(made).ok_or("no step of a device uses a value that has a slot there")?;
        let after = match self.kind(device) {
            DeviceKind::Cpu => After::HandOver(HandOver { cell: self.cells.cell(device, value)?, gate }),
            _ => After::Open(gate),
        };
        self.open_after(device, last, gate, after);
        Ok(())
    }

    /// Makes `gate` wait until a transfer has read the value.
    fn wait_for_send(&mut self, transfer: TransferId, gate: Gate) {
        match self.on_link(transfer) {
            Some(at) if at.worker == gate.worker => {}
            Some(at) => self.open_after_transfer(at, gate),
            None => {
                let (to, value) = (self.plan.transfer(transfer).to, self.plan.transfer(transfer).value);
                if let Some(last) = self.readers(to, value).last().copied() {
                    self.open_after(to, last, gate, After::Open(gate));
                }
            }
        }
    }

    /// Drops each shared value after its last reader, and the caller's tensors on the host, before other workers are
    /// informed.
    fn forget_shared(&mut self) -> Result<(), Contradiction> {
        for (index, transfer) in self.plan.transfers().iter().enumerate() {
            if transfer.route == Route::Shared {
                debug_assert!(self.kind(transfer.to) == DeviceKind::Cpu, "transfer {index}");
                let cell = self.cells.cell(transfer.to, transfer.value)?;
                if let Some(last) = self.readers(transfer.to, transfer.value).last().copied() {
                    self.forget_after(transfer.to, last, cell);
                }
            }
        }
        Ok(())
    }
}
