//! Batches of GPU nodes that are submitted together: as the GPU's worker forms them, from the plan alone.

use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{GPU_BATCH, Plan, Route, Step};
use std::collections::BTreeSet;

/// Returns the nodes of a GPU in the order of the plan, batch by batch; none for other devices.
///
/// A batch ends when a link waits for a node's output, before a node that waits for a link, and when the batch is full.
pub fn batches(program: &Program, plan: &Plan, device: DeviceId) -> Vec<Vec<NodeId>> {
    let mut batches: Vec<Vec<NodeId>> = Vec::new();
    if plan.device(device).kind == DeviceKind::Cpu {
        return batches;
    }
    let moved = || plan.transfers().iter().filter(|transfer| transfer.route != Route::Shared);
    let leaving: BTreeSet<_> = moved().filter(|transfer| transfer.from == device).map(|t| t.value).collect();
    let mut coming: BTreeSet<_> = moved().filter(|transfer| transfer.to == device).map(|t| t.value).collect();
    let mut open = false;
    for step in plan.steps() {
        let Step::Node(id) = step else { continue };
        if plan.device_of(*id) != device {
            continue;
        }
        let node = program.node(*id);
        // Only the first reader waits.
        let waits = node.inputs.iter().filter(|value| coming.remove(*value)).count() > 0;
        match batches.last_mut().filter(|batch| open && !waits && batch.len() < GPU_BATCH) {
            Some(batch) => batch.push(*id),
            None => batches.push(vec![*id]),
        }
        open = !node.outputs.iter().any(|value| leaving.contains(value));
    }
    batches
}
