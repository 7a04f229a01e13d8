//! Which nodes of a GPU are submitted together: as its worker does it, from the plan alone.

use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{GPU_BATCH, Plan, Route, Step};
use std::collections::BTreeSet;

/// The nodes of a GPU in the order of the plan, batch by batch. A batch ends when a link waits for what a node has made, before a
/// node that waits for a link, and when it is full. Other devices have none.
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
