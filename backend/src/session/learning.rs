//! What a run teaches the cost store.

use super::opened::Run;
use super::placing::Target;
use crate::profile::CostStore;
use std::time::{SystemTime, UNIX_EPOCH};

/// Adds the measured time of each node of a run to the store, under its device's key.
pub(super) fn learn(store: &mut CostStore, run: &Run, targets: &[Target]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for (node, seconds) in run.node_times() {
        let device = run.prepared.plan().device_of(node);
        let spec = &run.prepared.program.node(node).spec;
        store.record(&targets[device.index()].key, &spec.key(), seconds * 1e9, now);
    }
}
