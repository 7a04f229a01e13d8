//! Durations that tasks and sends would have had without slowdowns from other devices.

use crate::problem::Problem;
use crate::schedule::{Schedule, Span, TransferSpan};

/// Returns the duration of each of `spans` without slowdowns. Each part of a span is divided by the slowdown from the
/// devices that are busy at that time. `O(spans × (log spans + devices²))`.
fn alone(problem: &Problem<'_>, spans: &[Span]) -> Vec<f64> {
    let slowdowns = &problem.rules().slowdowns;
    if slowdowns.is_none() {
        return spans.iter().map(|span| span.end - span.start).collect();
    }
    let mut moments: Vec<(f64, bool, usize)> = Vec::with_capacity(2 * spans.len());
    for (number, span) in spans.iter().enumerate().filter(|(_, span)| span.end > span.start) {
        moments.extend([(span.start, true, number), (span.end, false, number)]);
    }
    moments.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut busy: Vec<Vec<usize>> = vec![Vec::new(); problem.platform().device_count()];
    let (mut done, mut before) = (vec![0.0; spans.len()], 0.0);
    for (time, begins, number) in moments {
        for device in problem.platform().device_ids() {
            let others =
                problem.platform().device_ids().filter(|other| *other != device && !busy[other.index()].is_empty());
            let slowness = others.fold(1.0, |slowness, other| slowness + slowdowns.factor(device, other) - 1.0);
            busy[device.index()].iter().for_each(|span| done[*span] += (time - before) / slowness);
        }
        before = time;
        let there = &mut busy[spans[number].device.index()];
        if begins { there.push(number) } else { there.retain(|span| *span != number) }
    }
    done
}

/// Durations without slowdowns, by task, and by transfer for the work of its sender.
pub(super) struct Alone {
    pub(super) tasks: Vec<f64>,
    pub(super) sends: Vec<f64>,
}

impl Alone {
    /// Computes the durations of a schedule. Its times must be finite and its devices must exist.
    pub(super) fn of(problem: &Problem<'_>, schedule: &Schedule) -> Self {
        let send = |at: &TransferSpan| Span { device: at.from, start: at.send_start, end: at.send_end };
        let spans: Vec<Span> = schedule.tasks.iter().copied().chain(schedule.transfers.iter().map(send)).collect();
        let mut tasks = alone(problem, &spans);
        let sends = tasks.split_off(schedule.tasks.len());
        Alone { tasks, sends }
    }
}
