//! Lanes that work side by side and slow each other down: a discrete-event simulation.
//!
//! Each lane does its operations in a given order, one at a time. An operation begins when its lane is free and a delay has passed since
//! the end of each operation that it comes after. While other lanes are at work it goes on at a fraction of its speed: what shares
//! cores or memory is never as fast as alone.

use std::collections::VecDeque;

/// Something that a lane does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operation {
    /// Which lane.
    pub(super) lane: usize,
    /// Seconds that it takes alone.
    pub(super) seconds: f64,
    /// Operations that come before, and the seconds from the end of each until this can begin.
    pub(super) after: Vec<(usize, f64)>,
}

/// The lanes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lanes {
    /// When each lane can begin.
    pub(super) ready: Vec<f64>,
    /// `slowdown[a][b]`: how many times as long `a` takes while `b` is at work, at least 1.
    pub(super) slowdown: Vec<Vec<f64>>,
}

/// The state of a lane.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<usize>,
    /// What it is at, and the seconds of it that are left, alone.
    running: Option<(usize, f64)>,
    free: f64,
}

/// Start and end of each operation. Each lane does its operations in ascending order; `after` must refer to smaller numbers only.
/// O(operations × lanes²).
pub(super) fn play(operations: &[Operation], setup: &Lanes) -> Vec<(f64, f64)> {
    let mut lanes: Vec<Lane> = setup.ready.iter().map(|free| Lane { free: *free, ..Lane::default() }).collect();
    for (number, operation) in operations.iter().enumerate() {
        lanes[operation.lane].waiting.push_back(number);
    }
    let mut spans: Vec<Option<(f64, Option<f64>)>> = vec![None; operations.len()];
    let mut now = 0.0;
    loop {
        let mut next = f64::INFINITY;
        for lane in lanes.iter_mut().filter(|lane| lane.running.is_none()) {
            let Some(begin) = lane.waiting.front().and_then(|head| beginning(&operations[*head], lane.free, &spans))
            else {
                continue;
            };
            if begin <= now {
                let head = lane.waiting.pop_front().unwrap_or_default();
                spans[head] = Some((now, None));
                lane.running = Some((head, operations[head].seconds));
            } else {
                next = next.min(begin);
            }
        }
        let busy: Vec<bool> = lanes.iter().map(|lane| lane.running.is_some()).collect();
        let slowness: Vec<f64> = (0..lanes.len()).map(|lane| slowness(&setup.slowdown[lane], lane, &busy)).collect();
        let left = |lane: usize, seconds: f64| seconds * slowness[lane];
        for (at, lane) in lanes.iter().enumerate() {
            next = lane.running.map_or(next, |(_, seconds)| next.min(now + left(at, seconds)));
        }
        if next.is_infinite() {
            break;
        }
        for (at, lane) in lanes.iter_mut().enumerate() {
            let Some((number, seconds)) = lane.running else { continue };
            if now + left(at, seconds) <= next {
                (lane.running, lane.free) = (None, next);
                if let Some((_, end)) = &mut spans[number] {
                    *end = Some(next);
                }
            } else {
                lane.running = Some((number, seconds - (next - now) / slowness[at]));
            }
        }
        now = next;
    }
    spans.into_iter().map(|span| span.map_or((now, now), |(start, end)| (start, end.unwrap_or(now)))).collect()
}

/// When an operation can begin, once all before it are done.
fn beginning(operation: &Operation, free: f64, spans: &[Option<(f64, Option<f64>)>]) -> Option<f64> {
    operation.after.iter().try_fold(free, |begin, (before, delay)| Some(begin.max(spans[*before]?.1? + delay)))
}

/// How many times as long a lane takes beside those that are busy.
fn slowness(slowdown: &[f64], own: usize, busy: &[bool]) -> f64 {
    let others = slowdown.iter().zip(busy).enumerate().filter(|(lane, (_, busy))| *lane != own && **busy);
    others.map(|(_, (factor, _))| factor.max(1.0)).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(lane: usize, seconds: f64, after: &[(usize, f64)]) -> Operation {
        Operation { lane, seconds, after: after.to_vec() }
    }

    fn lanes(count: usize, slowdown: f64) -> Lanes {
        Lanes { ready: vec![0.0; count], slowdown: vec![vec![slowdown; count]; count] }
    }

    #[test]
    fn lanes_run_side_by_side_and_wait_for_each_other() {
        let operations = [
            operation(0, 2.0, &[]),
            operation(1, 1.0, &[]),
            operation(1, 1.0, &[(0, 0.5)]),
            operation(0, 0.0, &[(2, 0.0)]),
        ];
        assert_eq!(play(&operations, &lanes(2, 1.0)), [(0.0, 2.0), (0.0, 1.0), (2.5, 3.5), (3.5, 3.5)]);
        let late = Lanes { ready: vec![1.0, 0.0], ..lanes(2, 1.0) };
        assert_eq!(play(&operations[..2], &late), [(1.0, 3.0), (0.0, 1.0)]);
    }

    #[test]
    fn what_runs_beside_another_takes_longer_for_as_long() {
        // Both at half speed until the shorter is done at 2; then one second of the longer is left.
        let operations = [operation(0, 2.0, &[]), operation(1, 1.0, &[])];
        assert_eq!(play(&operations, &lanes(2, 2.0)), [(0.0, 3.0), (0.0, 2.0)]);
    }

    #[test]
    fn work_is_never_lost() {
        arbtest::arbtest(|random| {
            let count = random.int_in_range(1..=30usize)?;
            let mut operations = Vec::new();
            for number in 0..count {
                let seconds = f64::from(random.int_in_range(0..=9u8)?);
                let mut after = Vec::new();
                for _ in 0..random.int_in_range(0..=2u8)? {
                    if number > 0 {
                        after.push((random.int_in_range(0..=number - 1)?, f64::from(random.int_in_range(0..=2u8)?)));
                    }
                }
                operations.push(Operation { lane: random.int_in_range(0..=2)?, seconds, after });
            }
            let spans = play(&operations, &lanes(3, 1.5));
            for (operation, (start, end)) in operations.iter().zip(&spans) {
                assert!(end - start >= operation.seconds - 1e-9 && end - start <= operation.seconds * 2.25 + 1e-9);
                assert!(operation.after.iter().all(|(before, delay)| *start >= spans[*before].1 + delay - 1e-9));
            }
            for (a, b) in operations.iter().enumerate().flat_map(|(b, _)| (0..b).map(move |a| (a, b))) {
                assert!(operations[a].lane != operations[b].lane || spans[a].1 <= spans[b].0 + 1e-9);
            }
            Ok(())
        })
        .budget_ms(200);
    }
}
