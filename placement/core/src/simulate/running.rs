//! What devices are at, and when each will be done: at the speed that those leave it that are busy beside it.

use super::engine::{Events, Happening};
use crate::platform::DeviceId;
use crate::rules::Slowdowns;
use std::cmp::Reverse;

/// The devices at one moment.
#[derive(Default)]
pub(super) struct Running {
    busy: Vec<bool>,
    /// By device, where devices take something from each other.
    work: Vec<Work>,
}

/// What a device is at.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    item: usize,
    /// Time that is left of it at `since`, if the device were alone.
    left: f64,
    since: f64,
    /// How many times as long it takes from then on; 0 before that is known.
    slowness: f64,
    /// When it will be done, as bits.
    due: u64,
}

impl Running {
    pub(super) fn reset(&mut self, devices: usize) {
        self.busy.clear();
        self.busy.resize(devices, false);
        self.work.clear();
        self.work.resize(devices, Work::default());
    }

    /// By device: whether it is at work.
    pub(super) fn busy(&self) -> &[bool] {
        &self.busy
    }

    /// `device` starts an item that takes `time` alone; when it is done follows here or from [`Self::retime`].
    pub(super) fn start(
        &mut self,
        slowdowns: &Slowdowns,
        device: DeviceId,
        item: usize,
        [now, time]: [f64; 2],
        events: &mut Events,
    ) {
        self.busy[device.index()] = true;
        if slowdowns.is_none() {
            events.push(Reverse(((now + time).to_bits(), Happening::Done(item))));
        } else {
            self.work[device.index()] = Work { item, left: time, since: now, ..Work::default() };
        }
    }

    /// Whether the device is done with `item` at a time for which that was foreseen: nothing has delayed or hastened it since.
    pub(super) fn finish(&mut self, slowdowns: &Slowdowns, device: DeviceId, item: usize, time: u64) -> bool {
        let work = &self.work[device.index()];
        let done = slowdowns.is_none() || (self.busy[device.index()] && (work.item, work.due) == (item, time));
        self.busy[device.index()] &= !done;
        done
    }

    /// Foresees anew when devices will be done whose neighbours have changed. `O(devices²)` where devices take something from each
    /// other.
    pub(super) fn retime(&mut self, slowdowns: &Slowdowns, now: f64, events: &mut Events) {
        if slowdowns.is_none() {
            return;
        }
        for (number, work) in self.work.iter_mut().enumerate().filter(|(number, _)| self.busy[*number]) {
            let slowness = slowdowns.beside(DeviceId(number as u32), |other| self.busy[other.index()]);
            if slowness == work.slowness {
                continue;
            }
            if work.slowness > 0.0 {
                work.left = (work.left - (now - work.since) / work.slowness).max(0.0);
            }
            (work.since, work.slowness) = (now, slowness);
            work.due = (now + work.left * slowness).to_bits();
            events.push(Reverse((work.due, Happening::Done(work.item))));
        }
    }
}
