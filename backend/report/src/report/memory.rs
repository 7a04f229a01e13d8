//! Memory of every device over time, from the allocations of its plan.

use super::spans::{Spans, Steps, Times};
use anabranch::plan::{Plan, Step};
use anabranch::program::Program;
use std::collections::BTreeMap;

/// Returns, by device, the bytes in use from time 0 on. O(t log t) for t allocations.
///
/// Memory that a device keeps throughout is always in use: constants, the kernels' own data and scratch, the caller's
/// inputs, buffers of streams and links. A value is in use from when it is made or arrives to the end of its last use.
pub(super) fn over_time(program: &Program, plan: &Plan, spans: &Spans) -> Vec<Steps> {
    let memory = plan.memory();
    let mut changes: Vec<BTreeMap<u64, i128>> = memory
        .devices()
        .iter()
        .map(|device| {
            let parts = [device.constants, device.kernels, device.scratch, device.given, device.rings, device.staging];
            BTreeMap::from([(0, parts.iter().map(|part| i128::from(*part)).sum())])
        })
        .collect();
    let mut times: Vec<(u64, u64)> = plan.steps().iter().map(|step| times(program, spans, *step)).collect();
    for gang in plan.gangs() {
        let together = times.get_mut(gang.clone()).unwrap_or_default();
        let start = together.iter().map(|(start, _)| *start).min().unwrap_or(0);
        let end = together.iter().map(|(_, end)| *end).max().unwrap_or(0);
        together.fill((start, end));
    }
    for stay in memory.allocations() {
        let changes = &mut changes[stay.device.index()];
        let from = times.get(stay.from as usize).map_or(0, |times| times.0);
        *changes.entry(from).or_default() += i128::from(stay.bytes);
        // A value used past the end is an output, which stays.
        if let Some((_, until)) = times.get(stay.until as usize) {
            *changes.entry((*until).max(from)).or_default() -= i128::from(stay.bytes);
        }
    }
    changes.iter().map(summed).collect()
}

/// Appends the memory during a later plan's run, which begins at `begun`.
pub(super) fn go_on(held: &mut Steps, steps: &Steps, begun: u64) {
    for [time, bytes] in steps {
        let time = time + begun;
        held.pop_if(|last| last[0] >= time);
        if held.last().is_none_or(|last| last[1] != *bytes) {
            held.push([time, *bytes]);
        }
    }
}

fn times(program: &Program, spans: &Spans, step: Step) -> (u64, u64) {
    let of = |times: Times| (times.start, times.end);
    match step {
        Step::Input(_) => (0, 0),
        Step::Node(node) => of(spans.tasks[node.index()]),
        Step::Transfer(transfer) => spans.transfers[transfer.index()].map_or((0, 0), of),
        Step::Output(index) => of(spans.tasks[program.nodes.len() + program.inputs.len() + index]),
    }
}

/// Returns the sum after each change, without changes that have no effect.
pub(super) fn summed(changes: &BTreeMap<u64, i128>) -> Steps {
    let mut held = 0;
    let mut steps: Steps = Vec::with_capacity(changes.len());
    for (time, change) in changes {
        held += change;
        let bytes = u64::try_from(held).unwrap_or(0);
        if steps.last().is_none_or(|last| last[1] != bytes) {
            steps.push([*time, bytes]);
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_summed_and_what_changes_nothing_is_left_out() {
        let changes = BTreeMap::from([(0, 5), (10, 3), (12, 0), (20, -8)]);
        assert_eq!(summed(&changes), [[0, 5], [10, 8], [20, 0]]);
    }
}
