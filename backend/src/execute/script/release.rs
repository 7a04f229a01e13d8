//! Reuse of slots: whoever fills a slot waits until everybody is done with the value before.
//!
//! For two values that follow each other in a slot, those who still need the first are its last local reader (or, without
//! one, the step that made it) and the transfers that send it on. Each tells the one that brings the second. Steps of one
//! device need not tell each other: they run in order. All these waits go back in the total order, since the memory plan
//! puts a value into a slot only after the last use of the one before.

use super::Gate;
use super::build::Builder;
use crate::plan::{Allocation, Route, TransferId};
use anabranch_placement::platform::DeviceKind;
use std::collections::BTreeMap;

/// Connects all neighbours in all slots, and frees what CPU devices lend each other.
pub(super) fn connect(builder: &mut Builder<'_>) {
    let mut slots: BTreeMap<_, Vec<Allocation>> = BTreeMap::new();
    for stay in builder.plan.memory().allocations() {
        slots.entry((stay.device, stay.slot)).or_default().push(*stay);
    }
    let mut next: BTreeMap<_, Allocation> = BTreeMap::new();
    for stays in slots.values() {
        for pair in stays.windows(2) {
            next.insert((pair[0].device, pair[0].value), pair[1]);
        }
    }
    let sends = builder.sends();
    for (key, after) in &next {
        let gate = builder.filler(after, &sends);
        builder.wait_for_local(*key, gate);
        for transfer in sends.get(&key.1).into_iter().flatten() {
            if builder.plan.transfer(*transfer).from == key.0 {
                builder.wait_for_send(*transfer, gate);
            }
        }
    }
    builder.forget_shared();
}

type Sends = BTreeMap<crate::program::ValueId, Vec<TransferId>>;
type Home = (anabranch_placement::platform::DeviceId, crate::program::ValueId);

impl Builder<'_> {
    fn sends(&self) -> Sends {
        let mut sends = Sends::new();
        for (index, transfer) in self.plan.transfers().iter().enumerate() {
            sends.entry(transfer.value).or_default().push(TransferId(index as u32));
        }
        sends
    }

    /// The gate of what brings a value into its slot: a step, the landing on a CPU, or the link that writes into a GPU.
    fn filler(&self, stay: &Allocation, sends: &Sends) -> Gate {
        if self.plan.origin(self.program, stay.value) == Some(stay.device) {
            return Gate { worker: stay.device.0, index: self.maker(stay.value).unwrap_or(0) };
        }
        let arrives = |id: &&TransferId| self.plan.transfer(**id).to == stay.device;
        let transfer = sends.get(&stay.value).and_then(|ids| ids.iter().find(arrives)).copied();
        let gate = transfer.and_then(|id| self.landing(id).or_else(|| self.on_link(id)));
        gate.unwrap_or(Gate { worker: stay.device.0, index: 0 })
    }

    /// Lets `gate` wait for the last step of the value's own device that touches it.
    fn wait_for_local(&mut self, (device, value): Home, gate: Gate) {
        let reader = self.readers(device, value).last().copied();
        let made = self.maker(value).filter(|_| self.plan.origin(self.program, value) == Some(device));
        let Some(last) = reader.max(made) else { return };
        let steps = self.step_count(device);
        let in_order = gate.worker == device.0 && gate.index < steps;
        if !in_order {
            self.open_after(device, last, gate);
        }
    }

    /// Lets `gate` wait until a transfer has read the value.
    fn wait_for_send(&mut self, transfer: TransferId, gate: Gate) {
        match self.on_link(transfer) {
            Some(at) if at.worker == gate.worker => {}
            Some(at) => self.open_after_transfer(at, gate),
            None => {
                let (to, value) = (self.plan.transfer(transfer).to, self.plan.transfer(transfer).value);
                if let Some(last) = self.readers(to, value).last().copied() {
                    self.open_after(to, last, gate);
                }
            }
        }
    }

    /// Drops each shared value after its last reader, and the caller's tensors on the host; before others are told.
    fn forget_shared(&mut self) {
        for (index, transfer) in self.plan.transfers().iter().enumerate() {
            if transfer.route == Route::Shared {
                debug_assert!(self.kind(transfer.to) == DeviceKind::Cpu, "transfer {index}");
                let cell = self.cells.cell(transfer.to, transfer.value);
                if let Some(last) = self.readers(transfer.to, transfer.value).last().copied() {
                    self.forget_after(transfer.to, last, cell);
                }
            }
        }
    }
}
