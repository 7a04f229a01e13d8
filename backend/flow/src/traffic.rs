//! Counts messages from machine to machine, in a run on several.

use super::hand::Hand;
use super::options::FlowOptions;
use super::queues::Task;
use anabranch_base::sync::AtomicU64;
use std::sync::atomic::Ordering;

pub(super) struct TrafficCount {
    is_central: bool,
    window: usize,
    /// By node and slot: bytes of the operands that wait there.
    waiting: Vec<AtomicU64>,
}

impl TrafficCount {
    pub(super) fn new(nodes: usize, window: usize, options: &FlowOptions) -> Self {
        let waiting = (0..nodes * window).map(|_| AtomicU64::new(0)).collect();
        TrafficCount { is_central: !options.scheduler.is_local(), window, waiting }
    }

    fn waiting(&self, task: Task) -> &AtomicU64 {
        &self.waiting[task.node as usize * self.window + task.slot as usize]
    }

    /// Counts an operand that goes to the scheduler of its reader: the central scheduler on machine 0, or the scheduler
    /// of the reader's machine.
    pub(super) fn put(&self, reader: Task, machine: u32, bytes: u64, hand: &mut Hand) {
        self.waiting(reader).fetch_add(bytes, Ordering::Relaxed);
        if hand.machine != if self.is_central { 0 } else { machine } {
            hand.log.traffic.add(bytes);
        }
    }

    /// Counts a task that goes from its scheduler to the worker that runs it. Under local schedulers, this is the
    /// scheduler of its machine. If an operand was dropped, there is nothing to run or count.
    pub(super) fn take(&self, task: Task, machine: u32, is_dropped: bool, hand: &mut Hand) {
        let bytes = self.waiting(task).swap(0, Ordering::Relaxed);
        if !is_dropped && hand.machine != if self.is_central { 0 } else { machine } {
            hand.log.traffic.add(bytes);
            hand.log.tally.stolen += u64::from(!self.is_central);
        }
    }
}
