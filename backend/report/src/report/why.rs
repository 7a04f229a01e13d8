//! A strategy's reason for a device, as a table of its own terms.

use crate::text::duration;
use anabranch_placement::graph::TaskId;
use anabranch_placement::place::{Reason, ScoreOn};
use anabranch_placement::platform::DeviceId;
use serde::Serialize;

/// Reason for a node's device.
#[derive(Default, Serialize)]
pub(super) struct Why {
    text: String,
    /// Terms that were compared.
    terms: Vec<&'static str>,
    /// Devices that were compared, best first, with a figure for each term.
    candidates: Vec<(usize, Vec<f64>)>,
    /// Whether the figures are seconds.
    seconds: bool,
}

impl Why {
    /// Returns a reason that is only a text.
    pub(super) fn said(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

/// Returns the reason in words, and the comparison. `node` returns a task's name, `device` a device's.
pub(super) fn why<'a>(reason: &Reason, node: &dyn Fn(TaskId) -> &'a str, device: &dyn Fn(DeviceId) -> &'a str) -> Why {
    let one = |text: &str, term, candidates: &[ScoreOn]| Why {
        text: text.to_owned(),
        terms: vec![term],
        candidates: candidates.iter().map(|on| (on.device.index(), vec![on.score])).collect(),
        seconds: true,
    };
    match reason {
        Reason::ColocatedWith(task) => Why::said(&format!("colocated with {}", node(*task))),
        Reason::EarliestFinish(found) => one("it finishes there first", "earliest finish", found),
        Reason::Smallest { what, candidates } => one(&format!("the {what} is smallest there"), what, candidates),
        Reason::LeastLoaded(found) => one("the device has the least to do", "load", found),
        Reason::Mite(found) => Why {
            text: "the product of MITE's factors is smallest there".into(),
            terms: vec!["product", "memory", "importance", "traffic", "execution"],
            candidates: found
                .iter()
                .map(|on| {
                    let factors = [on.product(), on.memory, on.importance_speed_boost, on.traffic, on.execution_time];
                    (on.device.index(), factors.to_vec())
                })
                .collect(),
            seconds: false,
        },
        Reason::Of { strategy, reason } => {
            let own = why(reason, node, device);
            Why { text: format!("as {strategy} had it: {}", own.text), ..own }
        }
        Reason::Moved { start, from, makespans: [before, after] } => {
            let (device, before, after) = (device(*from), duration(*before), duration(*after));
            Why::said(&format!("moved by the search from {device}, where {start} had it: makespan {before} → {after}"))
        }
        other => Why::said(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_placement::place::MiteFactors;

    fn of(reason: &Reason) -> Why {
        why(reason, &|_| "conv", &|_| "gpu0")
    }

    #[test]
    fn reasons_become_tables_of_their_terms() {
        let finish = |device, score| ScoreOn { device: DeviceId(device), score };
        let found = of(&Reason::EarliestFinish(vec![finish(1, 0.5), finish(0, 2.0)]));
        assert_eq!(found.candidates, [(1, vec![0.5]), (0, vec![2.0])]);
        assert!(found.seconds);
        let factors = MiteFactors {
            device: DeviceId(0),
            memory: 0.5,
            importance_speed_boost: 0.5,
            traffic: 2.0,
            execution_time: 3.0,
        };
        let found = of(&Reason::Mite(vec![factors]));
        assert_eq!(found.candidates, [(0, vec![1.5, 0.5, 0.5, 2.0, 3.0])]);
        assert_eq!(found.candidates[0].1.len(), found.terms.len());
        assert_eq!(of(&Reason::ColocatedWith(TaskId(3))).text, "colocated with conv");
        let moved = of(&Reason::Moved { start: "heft", from: DeviceId(0), makespans: [2.0, 1.0] });
        assert_eq!(moved.text, "moved by the search from gpu0, where heft had it: makespan 2.00 s → 1.00 s");
        let taken = of(&Reason::EarliestFinish(vec![finish(1, 0.5)]).credited("peft"));
        assert_eq!((taken.text.as_str(), taken.candidates.len()), ("as peft had it: it finishes there first", 1));
        assert_eq!(of(&Reason::Pinned).text, "pinned");
    }
}
