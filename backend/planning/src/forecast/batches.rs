//! Batches of GPU nodes that are submitted together: as the GPU's worker forms them, from the plan alone.

use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{Plan, Route, Step, gpu_batch};
use std::collections::BTreeSet;

/// Returns the nodes of a GPU in the order of the plan, batch by batch; none for other devices.
///
/// A batch ends when a link waits for a node's output, before a node that waits for a link, and when the batch is full
/// ([`gpu_batch`]).
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
        let most = gpu_batch(batches.len().saturating_sub(1));
        match batches.last_mut().filter(|batch| open && !waits && batch.len() < most) {
            Some(batch) => batch.push(*id),
            None => batches.push(vec![*id]),
        }
        open = !node.outputs.iter().any(|value| leaving.contains(value));
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_plan::PlanOptions;
    use anabranch_plan::test_programs::PlacedProgram;

    #[test]
    fn the_first_batches_grow_so_that_the_device_starts_early() {
        let placed = PlacedProgram::chain(&["cpu", "gpu"], &[1; 70], &[4]);
        let plan = placed.plan(&PlanOptions::default()).expect("no limits");
        let sizes: Vec<usize> = batches(&placed.program, &plan, DeviceId(1)).iter().map(Vec::len).collect();
        assert_eq!(sizes, [4, 8, 16, 32, 10]);
        assert_eq!(batches(&placed.program, &plan, DeviceId(0)), Vec::<Vec<NodeId>>::new(), "a CPU has none");
        assert_eq!(gpu_batch(usize::MAX), 32);
    }
}
