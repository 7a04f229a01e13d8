//! Free times of a device, for insertion-based list scheduling.
//!
//! A timeline keeps its gaps in blocks, each with the length of its longest gap, so that a search skips blocks without
//! a long enough gap. Gaps of length zero stay between two adjacent tasks: a task without duration fits in there.

/// Most gaps of a block before it is split.
const BLOCK: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Gap {
    start: f64,
    end: f64,
}

#[derive(Debug, Clone)]
struct Block {
    gaps: Vec<Gap>,
    /// Upper bound of the length of the longest gap.
    longest: f64,
}

impl Block {
    fn of(gaps: Vec<Gap>) -> Self {
        let longest = gaps.iter().map(|gap| gap.end - gap.start).fold(0.0, f64::max);
        Block { gaps, longest }
    }

    /// Returns the end of the last gap of the block. A block is never empty.
    fn end(&self) -> f64 {
        self.gaps.last().map_or(f64::NEG_INFINITY, |gap| gap.end)
    }
}

/// Free times from 0 on. The last gap never ends.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    blocks: Vec<Block>,
}

/// Position of a free time: its start, and its gap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) start: f64,
    block: usize,
    gap: usize,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Timeline { blocks: vec![Block::of(vec![Gap { start: 0.0, end: f64::INFINITY }])] }
    }

    /// Returns the earliest slot of length `duration` that begins at `ready` or later. Both must be finite and not
    /// negative.
    pub(crate) fn earliest(&self, ready: f64, duration: f64) -> Slot {
        let first = self.blocks.partition_point(|block| block.end() < ready);
        for (block, candidate) in self.blocks.iter().enumerate().skip(first) {
            if candidate.longest < duration {
                continue;
            }
            let from = candidate.gaps.partition_point(|gap| gap.end < ready);
            for (gap, free) in candidate.gaps.iter().enumerate().skip(from) {
                let start = free.start.max(ready);
                if start + duration <= free.end {
                    return Slot { start, block, gap };
                }
            }
        }
        unreachable!("the last gap has no end, and ready and duration are finite")
    }

    /// Occupies `duration` from the start of `slot`, which [`Timeline::earliest`] must have found since the last
    /// change.
    pub(crate) fn occupy(&mut self, slot: Slot, duration: f64) {
        let block = &mut self.blocks[slot.block];
        let gap = block.gaps[slot.gap];
        let before = Gap { start: gap.start, end: slot.start };
        let after = Gap { start: slot.start + duration, end: gap.end };
        let takes_no_time = duration == 0.0 && (before.start == before.end || after.start == after.end);
        if takes_no_time {
            return;
        }
        block.gaps[slot.gap] = before;
        block.gaps.insert(slot.gap + 1, after);
        if block.gaps.len() > BLOCK {
            let second = block.gaps.split_off(BLOCK / 2);
            *block = Block::of(std::mem::take(&mut block.gaps));
            self.blocks.insert(slot.block + 1, Block::of(second));
        } else if gap.end - gap.start >= block.longest {
            *block = Block::of(std::mem::take(&mut block.gaps));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupy(timeline: &mut Timeline, ready: f64, duration: f64) -> f64 {
        let slot = timeline.earliest(ready, duration);
        timeline.occupy(slot, duration);
        slot.start
    }

    #[test]
    fn gaps_are_filled_from_the_left() {
        let mut timeline = Timeline::new();
        let cases =
            [(5.0, 5.0, 5.0), (0.0, 6.0, 10.0), (0.0, 2.0, 0.0), (1.0, 2.0, 2.0), (0.0, 1.0, 4.0), (0.0, 1.0, 16.0)];
        for (ready, duration, start) in cases {
            assert_eq!(occupy(&mut timeline, ready, duration), start);
        }
    }

    #[test]
    fn what_takes_no_time_fits_between_two_tasks_but_not_into_one() {
        let mut timeline = Timeline::new();
        assert_eq!(occupy(&mut timeline, 0.0, 4.0), 0.0);
        assert_eq!(occupy(&mut timeline, 4.0, 4.0), 4.0);
        assert_eq!(occupy(&mut timeline, 4.0, 0.0), 4.0);
        assert_eq!(occupy(&mut timeline, 1.0, 0.0), 4.0);
        assert_eq!(occupy(&mut timeline, 5.0, 0.0), 8.0);
        assert_eq!(occupy(&mut timeline, 9.0, 0.0), 9.0);
        assert_eq!(occupy(&mut timeline, 8.0, 2.0), 9.0, "the instant at 9 is taken");
    }

    /// Compares with a plain list of everything that is occupied.
    #[test]
    fn the_earliest_slot_is_found_in_every_state() {
        arbtest::arbtest(|random| {
            let mut timeline = Timeline::new();
            let mut busy: Vec<(f64, f64)> = Vec::new();
            for _ in 0..random.int_in_range(0..=600)? {
                let ready = f64::from(random.int_in_range(0..=2000u16)?);
                let duration = f64::from(random.int_in_range(0..=9u8)?);
                let starts = busy.iter().map(|&(_, end)| end).chain([ready]).filter(|&start| start >= ready);
                let free = |&start: &f64| {
                    let clash = |&&(from, to): &&(f64, f64)| {
                        if duration == 0.0 {
                            from < start && start < to
                        } else {
                            from.max(start) < to.min(start + duration)
                                || (from == to && start < from && from < start + duration)
                        }
                    };
                    !busy.iter().any(|span| clash(&span))
                };
                let expected = starts.filter(free).fold(f64::INFINITY, f64::min);
                assert_eq!(occupy(&mut timeline, ready, duration), expected);
                busy.push((expected, expected + duration));
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
