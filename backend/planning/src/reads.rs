//! Nodes that read data just written by another CPU device: the lines come from the other device's cache, which takes
//! extra time.

use super::machine::link;
use anabranch_costs::MachineCosts;
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{MachineDevice, Plan, Route, Step};
use std::collections::BTreeMap;

/// A value that another CPU device made, at the first node of a device that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstRead {
    /// Device that made the value.
    from: DeviceId,
    bytes: u64,
    /// Number of pieces in which the value arrives.
    pieces: usize,
}

/// Returns the first reads of all nodes that have any.
///
/// The caller's inputs do not count: from the second run on they are in the cache of their reader.
pub(super) fn first_reads(program: &Program, plan: &Plan) -> BTreeMap<NodeId, Vec<FirstRead>> {
    let cpu = |device: DeviceId| plan.device(device).kind == DeviceKind::Cpu;
    let crossing = plan.transfers().iter().filter(|transfer| cpu(transfer.from) && cpu(transfer.to));
    let made = crossing.filter(|transfer| matches!(program.value(transfer.value).origin, Origin::Node(_)));
    let mut unread: BTreeMap<(ValueId, DeviceId), FirstRead> = made
        .map(|transfer| {
            let (bytes, pieces) = match &transfer.route {
                Route::Streamed(stream) => (stream.chunk_bytes(), stream.chunks()),
                Route::Shared | Route::Copied => (transfer.bytes, 1),
            };
            ((transfer.value, transfer.to), FirstRead { from: transfer.from, bytes, pieces })
        })
        .collect();
    let mut reads: BTreeMap<NodeId, Vec<FirstRead>> = BTreeMap::new();
    for step in plan.steps() {
        let Step::Node(node) = step else { continue };
        let device = plan.device_of(*node);
        let first = program.node(*node).inputs.iter().filter_map(|value| unread.remove(&(*value, device)));
        for read in first {
            reads.entry(*node).or_default().push(read);
        }
    }
    reads
}

/// Extra seconds of these reads on the device `to`.
pub(super) fn read_seconds(known: &MachineCosts, devices: &[MachineDevice], to: DeviceId, reads: &[FirstRead]) -> f64 {
    let seconds = |read: &FirstRead| {
        let curve = link(known, &devices[read.from.index()], &devices[to.index()]).read_curve();
        read.pieces as f64 * curve.time(read.bytes)
    };
    reads.iter().map(seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::super::forecast::threads;
    use super::*;
    use anabranch_costs::{LinkCosts, Sample};
    use anabranch_plan::PlanOptions;
    use anabranch_plan::test_programs::{Maker, PlacedProgram, add, relu};

    fn plan(program: Program, device_of: &[u32]) -> (Program, Plan) {
        let placed = PlacedProgram::new(program, &["cpu", "cpu"], device_of);
        let plan = placed.plan(&PlanOptions::default()).expect("a plan");
        (placed.program, plan)
    }

    /// `a` is read twice on the other device and `c` comes back; the caller's tensor is read there as well.
    fn program() -> Program {
        let mut maker = Maker::new();
        let x = maker.input(&[256]);
        let a = maker.node(relu(), &[x], &[256]);
        let b = maker.node(relu(), &[a], &[256]);
        let c = maker.node(add(), &[a, b], &[256]);
        let d = maker.node(relu(), &[c], &[256]);
        let e = maker.node(relu(), &[x], &[256]);
        maker.finish(&[d, e])
    }

    #[test]
    fn only_the_first_reader_pays_and_only_for_what_another_core_has_made() {
        let (program, plan) = plan(program(), &[0, 1, 1, 0, 1]);
        let read = |from: u32| vec![FirstRead { from: DeviceId(from), bytes: 1024, pieces: 1 }];
        let expected = BTreeMap::from([(NodeId(1), read(0)), (NodeId(3), read(1))]);
        assert_eq!(first_reads(&program, &plan), expected);
    }

    #[test]
    fn threads_are_of_devices_that_have_something_to_do() {
        assert_eq!(threads(&plan(program(), &[0; 5]).1), 0);
        assert_eq!(threads(&plan(program(), &[0, 1, 1, 0, 1]).1), 1);
    }

    #[test]
    fn reads_cost_what_was_measured_and_nothing_before() {
        let device = |key: &str| MachineDevice {
            name: key.into(),
            kind: DeviceKind::Cpu,
            key: key.into(),
            memory: (1 << 30).into(),
            times: 1.0,
            threads: 1,
            cache: 1 << 20,
        };
        let devices = ["a", "b"].map(device);
        let reads = [FirstRead { from: DeviceId(0), bytes: 2048, pieces: 2 }];
        let mut known = MachineCosts::default();
        assert_eq!(read_seconds(&known, &devices, DeviceId(1), &reads), 0.0);
        let mut link = LinkCosts::affine(5e-6, 4e10);
        assert!(link.record_read(4096, Sample { nanoseconds: 4e3, cold: false, at: 0 }));
        known.links.insert(MachineCosts::link_key("a", "b"), link);
        assert!((read_seconds(&known, &devices, DeviceId(1), &reads) - 4e-6).abs() < 1e-12);
        // Data larger than all measured sizes is in no cache any more.
        let large = [FirstRead { bytes: 1 << 30, pieces: 1, ..reads[0] }];
        assert!((read_seconds(&known, &devices, DeviceId(1), &large) - 4e-6).abs() < 1e-12);
    }
}
