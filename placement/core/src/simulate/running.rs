//! Current items of the devices and their ends, which depend on slowdowns from other busy devices.

use super::engine::{Events, Happening};
use crate::platform::DeviceId;
use crate::rules::Slowdowns;
use std::cmp::Reverse;

/// State of the devices at one moment.
#[derive(Default)]
pub(super) struct Running {
    busy: Vec<bool>,
    /// Work of each device, if devices slow each other down.
    work: Vec<Work>,
}

/// Current item of a device.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    item: usize,
    /// Remaining time of the item at `since`, without slowdowns.
    left: f64,
    since: f64,
    /// Slowdown from `since` on; 0 if not computed yet.
    slowness: f64,
    /// Expected end, as bits.
    due: u64,
}

impl Running {
    pub(super) fn reset(&mut self, devices: usize) {
        self.busy.clear();
        self.busy.resize(devices, false);
        self.work.clear();
        self.work.resize(devices, Work::default());
    }

    /// Whether each device is busy.
    pub(super) fn busy(&self) -> &[bool] {
        &self.busy
    }

    /// Starts an item that takes `time` without slowdowns. Its end is scheduled here or by [`Self::retime`].
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

    /// Whether the device ends `item` at `time`: false if a slowdown has changed its end since the event was scheduled.
    pub(super) fn finish(&mut self, slowdowns: &Slowdowns, device: DeviceId, item: usize, time: u64) -> bool {
        let work = &self.work[device.index()];
        let done = slowdowns.is_none() || (self.busy[device.index()] && (work.item, work.due) == (item, time));
        self.busy[device.index()] &= !done;
        done
    }

    /// Reschedules the ends of items on devices whose slowdown has changed. `O(devices²)` if devices slow each other
    /// down.
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
