//! Last and most expensive attempt to refute a makespan: a search that tries devices for groups of tasks.
//!
//! [`separation`](super) explains the rules and the groups. First, a device is closed to a group if the rules find a
//! contradiction with the group there (probing). Then a depth-first search branches on the devices that are left. A
//! number of steps limits both.

use super::trial::Trial;

/// Most steps for one makespan, each about one comparison of times.
const MOST_STEPS: usize = 6_000_000;
/// Rounds of the rules that one attempt takes on average.
const ROUNDS: usize = 3;

/// Whether a search over the devices of groups refutes the makespan of `trial`.
pub(super) fn refutes(mut trial: Trial<'_>) -> bool {
    let mut left = MOST_STEPS / (ROUNDS * trial.scene.steps()).max(1);
    let known = left;
    trial.is_refuted()
        || (left > 0 && probe(&mut trial, &mut left))
        // Probing may have closed devices.
        || (left < known && (trial.is_refuted() || branch(trial, &mut left)))
}

/// Closes devices where a group leads to a contradiction, until there is none; returns whether a group has none left.
/// `left` limits the attempts.
fn probe(trial: &mut Trial<'_>, left: &mut usize) -> bool {
    let mut any = true;
    while std::mem::take(&mut any) {
        for root in trial.open_groups() {
            for device in trial.open_devices(root) {
                let Some(rest) = left.checked_sub(1) else { return false };
                *left = rest;
                if trial.with(root, device).is_contradictory() {
                    trial.close(root, device);
                    any = true;
                }
            }
        }
        if any && trial.is_contradictory() {
            return true;
        }
    }
    false
}

/// Whether all devices of some group lead to contradictions, in a depth-first search of at most `left` attempts.
fn branch(mut trial: Trial<'_>, left: &mut usize) -> bool {
    let Some(root) = trial.open_groups().into_iter().next() else { return false };
    trial.open_devices(root).into_iter().all(|device| {
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        let mut trial = trial.with(root, device);
        trial.is_refuted() || branch(trial, left)
    })
}
