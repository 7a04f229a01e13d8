//! Free times of a device, for insertion-based list scheduling.
//!
//! A timeline keeps the gaps between its tasks in a B-tree, and next to it the time when everything ends. Each branch
//! has an upper bound of the durations that fit into its gaps, so a search skips branches without a gap that is long
//! enough. The bound allows for rounding: the search finds each gap that holds the sum of start and duration in `f64`.
//! Gaps of length zero stay between two adjacent tasks: a task without duration fits in there.
//!
//! Time: `O(log gaps)` per search and change. Gaps that are too short by no more than the rounding of their ends are
//! tried one by one.

/// Most gaps of a leaf, and most branches of a node.
const FULL: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Gap {
    start: f64,
    end: f64,
}

impl Gap {
    /// Returns the earliest start of `duration` in the gap that is not before `ready`, if it fits.
    fn fit(self, ready: f64, duration: f64) -> Option<f64> {
        let start = self.start.max(ready);
        (start + duration <= self.end).then_some(start)
    }

    /// Returns an upper bound of the durations that fit. The sum of start and duration may round down to the end.
    fn capacity(self) -> f64 {
        (self.end.next_up() - self.start).next_up()
    }
}

/// Part of the tree. All gaps and branches are ascending.
#[derive(Debug, Clone)]
struct Branch {
    /// End of the last gap.
    end: f64,
    /// Upper bound of the durations that fit into the gaps.
    capacity: f64,
    /// Gaps of a leaf; empty in other branches.
    gaps: Vec<Gap>,
    branches: Vec<Branch>,
}

impl Branch {
    fn new(gaps: Vec<Gap>, branches: Vec<Branch>) -> Self {
        let mut branch = Branch { end: 0.0, capacity: 0.0, gaps, branches };
        branch.measure();
        branch
    }

    fn measure(&mut self) {
        let ends = self.gaps.last().map(|gap| gap.end).or(self.branches.last().map(|branch| branch.end));
        self.end = ends.unwrap_or(f64::NEG_INFINITY);
        let gaps = self.gaps.iter().map(|gap| gap.capacity());
        self.capacity =
            gaps.chain(self.branches.iter().map(|branch| branch.capacity)).fold(f64::NEG_INFINITY, f64::max);
    }

    /// Returns the position of the first gap or branch that ends at `ready` or later.
    fn first(&self, ready: f64) -> usize {
        if self.branches.is_empty() {
            self.gaps.partition_point(|gap| gap.end < ready)
        } else {
            self.branches.partition_point(|branch| branch.end < ready)
        }
    }

    fn earliest(&self, ready: f64, duration: f64) -> Option<f64> {
        let first = self.first(ready);
        if self.branches.is_empty() {
            return self.gaps[first..].iter().find_map(|gap| gap.fit(ready, duration));
        }
        let able = self.branches[first..].iter().filter(|branch| branch.capacity >= duration);
        able.into_iter().find_map(|branch| branch.earliest(ready, duration))
    }

    /// Occupies `duration` from `start` on in the gap that [`Self::earliest`] finds for them. Returns whether there is
    /// such a gap.
    fn occupy(&mut self, start: f64, duration: f64) -> bool {
        let first = self.first(start);
        if self.branches.is_empty() {
            let fits = |gap: &Gap| gap.fit(start, duration).is_some();
            let Some(place) = self.gaps[first..].iter().position(fits).map(|place| first + place) else { return false };
            let gap = self.gaps[place];
            let (before, after) = (Gap { end: start, ..gap }, Gap { start: start + duration, ..gap });
            let takes_no_time = duration == 0.0 && (before.start == before.end || after.start == after.end);
            if !takes_no_time {
                self.gaps[place] = before;
                self.gaps.insert(place + 1, after);
                self.measure();
            }
            return true;
        }
        for place in first..self.branches.len() {
            if self.branches[place].capacity >= duration && self.branches[place].occupy(start, duration) {
                self.split(place);
                self.measure();
                return true;
            }
        }
        false
    }

    /// Adds a gap after all others.
    fn push(&mut self, gap: Gap) {
        if let Some(last) = self.branches.len().checked_sub(1) {
            self.branches[last].push(gap);
            self.split(last);
        } else {
            self.gaps.push(gap);
        }
        (self.end, self.capacity) = (gap.end, self.capacity.max(gap.capacity()));
    }

    /// Splits the branch at `place` if it has too many parts.
    fn split(&mut self, place: usize) {
        if let Some(second) = self.branches[place].halve() {
            self.branches.insert(place + 1, second);
        }
    }

    /// Returns the second half of a branch that has too many parts, and removes it.
    fn halve(&mut self) -> Option<Branch> {
        let second = |count: usize| if count > FULL { count / 2 } else { count };
        let (gaps, branches) = (second(self.gaps.len()), second(self.branches.len()));
        let second = Branch::new(self.gaps.split_off(gaps), self.branches.split_off(branches));
        if second.end == f64::NEG_INFINITY {
            return None;
        }
        self.measure();
        Some(second)
    }
}

/// Free times from 0 on.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    root: Branch,
    /// End of everything.
    end: f64,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Timeline { root: Branch::new(Vec::new(), Vec::new()), end: 0.0 }
    }

    /// Returns the end of everything.
    pub(crate) fn end(&self) -> f64 {
        self.end
    }

    /// Returns the earliest start of a free time of length `duration` that begins at `ready` or later. Both must be
    /// finite and not negative.
    pub(crate) fn earliest(&self, ready: f64, duration: f64) -> f64 {
        let may_fit = ready <= self.root.end && duration <= self.root.capacity;
        let gap = if may_fit { self.root.earliest(ready, duration) } else { None };
        gap.unwrap_or(self.end.max(ready))
    }

    /// Occupies `duration` from `start` on, which [`Timeline::earliest`] must have found for it, or any time after the
    /// end of everything.
    pub(crate) fn occupy(&mut self, start: f64, duration: f64) {
        let may_fit = start <= self.root.end && duration <= self.root.capacity;
        if may_fit && self.root.occupy(start, duration) {
            // The gap has become shorter.
        } else if duration > 0.0 || start > self.end {
            self.root.push(Gap { start: self.end, end: start });
            self.end = start + duration;
        }
        if let Some(second) = self.root.halve() {
            let first = std::mem::replace(&mut self.root, Branch::new(Vec::new(), Vec::new()));
            self.root = Branch::new(Vec::new(), vec![first, second]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupy(timeline: &mut Timeline, ready: f64, duration: f64) -> f64 {
        let start = timeline.earliest(ready, duration);
        timeline.occupy(start, duration);
        start
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

    /// Compares fractional times, whose sums are rounded, with a search over all gaps.
    #[test]
    fn gaps_are_found_exactly_for_fractional_times() {
        arbtest::arbtest(|random| {
            let mut timeline = Timeline::new();
            let mut gaps = vec![Gap { start: 0.0, end: f64::INFINITY }];
            let unit = *random.choose(&[0.1, 1.0 / 3.0, 0.7, 1e-9])?;
            for _ in 0..random.int_in_range(0..=900)? {
                let ready = f64::from(random.int_in_range(0..=600u16)?) * unit;
                let duration = f64::from(random.int_in_range(0..=7u8)?) * unit;
                let fit = |gap: &Gap| gap.fit(ready, duration).filter(|_| gap.end >= ready);
                let (place, start) = gaps.iter().enumerate().find_map(|(place, gap)| Some((place, fit(gap)?))).unwrap();
                assert_eq!(occupy(&mut timeline, ready, duration), start);
                let gap = gaps[place];
                let (before, after) = (Gap { end: start, ..gap }, Gap { start: start + duration, ..gap });
                if duration > 0.0 || (before.start < before.end && after.start < after.end) {
                    gaps.splice(place..=place, [before, after]);
                }
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
