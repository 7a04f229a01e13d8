//! Selects the device on which a node is expected to end first.
//!
//! This is StarPU's `dmda` (Augonnet, Thibault, Namyst, Wacrenier 2011) with its default weights. On each device `start
//! = max(end of the device's queue, now + transfers)`, `end = start + length`, and the least `end + transfers` wins. A
//! transfer is thus assumed to overlap with queued work, and its bytes still count against a device. One thing is
//! added: the end of the producer, if that is only predicted yet.

use anabranch_placement_core::platform::DeviceId;

/// Work that a device was given and has not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Queue {
    /// Time at which the device started the first queued node.
    since: f64,
    /// Predicted seconds of all queued nodes.
    length: f64,
}

/// A device as a candidate for a node. Times are in seconds since the run's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) device: DeviceId,
    /// Predicted seconds of the node.
    pub(super) length: f64,
    /// Time at which all inputs of the node exist somewhere.
    pub(super) made: f64,
    /// Seconds of all transfers that the node needs there.
    pub(super) transfers: f64,
}

impl Queue {
    /// Expected end of all queued work.
    pub(super) fn end(&self, now: f64) -> f64 {
        self.since.max(now) + self.length
    }

    /// Adds a node.
    pub(super) fn push(&mut self, length: f64, now: f64) {
        if self.length == 0.0 {
            self.since = now;
        }
        self.length += length;
    }

    /// Removes the first node, which is done.
    pub(super) fn pop(&mut self, length: f64, now: f64) {
        self.since = now;
        self.length = (self.length - length).max(0.0);
    }
}

/// Returns the best candidate and its expected end; the first candidate wins ties. `None` if there is no candidate.
pub(super) fn best(
    candidates: impl Iterator<Item = Candidate>,
    queues: &[Queue],
    now: f64,
) -> Option<(Candidate, f64)> {
    let judged = candidates.map(|candidate| {
        let start = queues[candidate.device.index()].end(now).max(candidate.made.max(now) + candidate.transfers);
        let end = start + candidate.length;
        (end + candidate.transfers, candidate, end)
    });
    // `min_by` takes the first of equals.
    judged.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate, end)| (candidate, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(queues: &[Queue], candidates: &[(u32, f64, f64, f64)], now: f64) -> (u32, f64) {
        let candidates = candidates.iter().map(|&(device, length, made, transfers)| Candidate {
            device: DeviceId(device),
            length,
            made,
            transfers,
        });
        let (candidate, end) = best(candidates, queues, now).expect("there are candidates");
        (candidate.device.0, end)
    }

    #[test]
    fn the_least_expected_end_with_its_transfers_wins() {
        let mut busy = Queue::default();
        busy.push(5.0, 0.0);
        let queues = [Queue::default(), busy];
        // Idle and slow against busy and fast.
        assert_eq!(choose(&queues, &[(0, 4.0, 0.0, 0.0), (1, 1.0, 0.0, 0.0)], 0.0), (0, 4.0));
        assert_eq!(choose(&queues, &[(0, 7.0, 0.0, 0.0), (1, 1.0, 0.0, 0.0)], 0.0), (1, 6.0));
        // The transfer overlaps the queue, but counts once more.
        assert_eq!(choose(&queues, &[(0, 8.5, 0.0, 0.0), (1, 1.0, 0.0, 3.0)], 0.0), (0, 8.5));
        // The first candidate wins ties; a result that is not made yet delays the start.
        assert_eq!(choose(&queues, &[(0, 6.0, 0.0, 0.0), (1, 1.0, 0.0, 0.0)], 0.0), (0, 6.0));
        assert_eq!(choose(&queues, &[(0, 1.0, 9.0, 0.0)], 2.0), (0, 10.0));
    }

    #[test]
    fn a_queue_shrinks_as_nodes_end() {
        let mut queue = Queue::default();
        queue.push(2.0, 1.0);
        queue.push(3.0, 1.5);
        assert_eq!(queue.end(2.0), 7.0);
        queue.pop(2.0, 4.0);
        assert_eq!((queue.end(4.0), queue.end(5.0)), (7.0, 8.0));
        queue.pop(3.0, 6.0);
        assert_eq!(queue.end(10.0), 10.0);
    }
}
