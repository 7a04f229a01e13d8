//! The simulation behind a plan: streams, gangs and memory follow from its times.

use crate::{Displaced, PlanDevice, PlanOptions};
use anabranch_placement_core::platform::DeviceId;
use anabranch_placement_core::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// Seconds that no schedule exceeds.
const ENDLESS: f64 = 1e9;

/// Number of chunks of one stream in flight that no plan exceeds.
const CHUNKS: u32 = 1 << 16;

/// Input of [`Plan::build`](crate::Plan::build) that a plan file does not name otherwise.
///
/// With it, the plan is made again bit for bit, even if the costs have changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// Devices as the plan sees them.
    pub devices: Vec<PlanDevice>,
    /// Options of the plan. The plan file names the weights that stay on GPUs, so that the options leave them open.
    pub options: PlanOptions,
    /// Placement in time.
    pub schedule: Schedule,
    /// Whether the plan differs from the requested plan, because that did not fit.
    pub repaired: bool,
    /// Nodes that left their devices because memory is short.
    pub displaced: Vec<Displaced>,
}

impl Simulation {
    /// Finds what does not belong to tasks on these devices, with `data` values between them. O(tasks + transfers).
    ///
    /// # Errors
    /// The text says what differs.
    pub fn verify(&self, device_of: &[DeviceId], data: usize) -> Result<(), &'static str> {
        let Schedule { tasks, transfers, makespan, .. } = &self.schedule;
        let is_known = |device: DeviceId| device.index() < self.devices.len();
        if !is_span(0.0, *makespan) || self.options.capacity >= CHUNKS {
            return Err("has invalid times or streams");
        }
        let mut spans = tasks.iter().zip(device_of);
        let same = spans.all(|(span, on)| span.device == *on && is_known(*on) && is_span(span.start, span.end));
        if tasks.len() != device_of.len() || !same {
            return Err("has other tasks");
        }
        let sound = transfers.iter().all(|sent| {
            is_known(sent.from) && is_known(sent.to) && sent.datum.index() < data && is_span(sent.send_start, sent.end)
        });
        if sound { Ok(()) } else { Err("has other transfers") }
    }
}

fn is_span(start: f64, end: f64) -> bool {
    0.0 <= start && start <= end && end < ENDLESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::PlacedProgram;

    #[test]
    fn what_does_not_belong_to_the_tasks_is_named() {
        let placed = PlacedProgram::chain(&["cpu", "cpu"], &[0, 1], &[8, 4]);
        let device_of = placed.placement.device_of.clone();
        let PlacedProgram { devices, schedule, .. } = placed;
        let sound =
            Simulation { devices, options: PlanOptions::default(), schedule, repaired: false, displaced: Vec::new() };
        assert_eq!(sound.verify(&device_of, 9), Ok(()));
        assert_eq!(sound.verify(&device_of[1..], 9), Err("has other tasks"));
        type Slip = (fn(&mut Simulation), &'static str);
        let slips: [Slip; 5] = [
            (|slip| slip.schedule.makespan = f64::NAN, "has invalid times or streams"),
            (|slip| slip.options.capacity = CHUNKS, "has invalid times or streams"),
            (|slip| slip.schedule.tasks[0].device = DeviceId(1), "has other tasks"),
            (|slip| slip.schedule.tasks[0].end = -1.0, "has other tasks"),
            (|slip| slip.devices.truncate(1), "has other tasks"),
        ];
        for (edit, problem) in slips {
            let mut slip = sound.clone();
            edit(&mut slip);
            assert_eq!(slip.verify(&device_of, 9), Err(problem));
        }
    }
}
