//! Links that a plan uses, and their buffers.

use super::PlanDevice;
use super::ring::Ring;
use super::transfer::{Transfer, TransferId};
use crate::HOST;
use anabranch_ir::program::{Origin, Program};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use std::collections::BTreeMap;

/// The largest staging buffers of one end: one is filled, one is transferred, one is emptied.
pub const STAGING: Ring = Ring { bytes: 4 << 20, depth: 3 };

/// Most bytes of values that go to a GPU with one submission. A submission takes about as long as the host's copy of
/// this much, and the copy of a value to the GPU begins with it.
pub const ROUND: u64 = 256 << 10;

/// Bytes of a staging buffer if memory is short: values are cut into more pieces, each of which costs some calls to the
/// GPU's driver.
pub(super) const SMALL_STAGING: u64 = 256 << 10;

/// A directed link over which bytes move. There are no links between CPU devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Sending end.
    pub from: DeviceId,
    /// Receiving end.
    pub to: DeviceId,
    /// Transfers over the link, in order.
    pub transfers: Vec<TransferId>,
    /// Staging buffers at each GPU end; their bytes are multiples of 4.
    pub staging: Ring,
    /// Ring in which streams arrive on a CPU; empty without streams.
    pub ring: Ring,
}

impl LinkPlan {
    /// Returns the bytes of staging buffers that count on each device.
    ///
    /// They count on the CPU end, or on the host between two GPUs. Those through which values go to a GPU count there,
    /// too: if the host can address the GPU's memory, they lie in it.
    pub fn staging_bytes(&self, devices: &[PlanDevice]) -> Vec<(DeviceId, u64)> {
        let is_cpu = |end: DeviceId| devices[end.index()].kind == DeviceKind::Cpu;
        let total = self.staging.total();
        let ends = [self.from, self.to];
        let gpu_ends = ends.iter().filter(|end| !is_cpu(**end)).count() as u64;
        let host = ends.into_iter().find(|end| is_cpu(*end)).unwrap_or(HOST);
        let in_gpu = (!is_cpu(self.to)).then_some((self.to, total));
        std::iter::once((host, total * gpu_ends)).chain(in_gpu).collect()
    }
}

/// Collects the links of these transfers, which are in total order, by their ends. Values are cut into pieces of at
/// most `piece` bytes.
pub(super) fn all(program: &Program, devices: &[PlanDevice], transfers: &[Transfer], piece: u64) -> Vec<LinkPlan> {
    let mut links: BTreeMap<(DeviceId, DeviceId), LinkPlan> = BTreeMap::new();
    let mut together = BTreeMap::new();
    for (index, transfer) in transfers.iter().enumerate().filter(|(_, t)| t.moves(devices)) {
        let link = links.entry((transfer.from, transfer.to)).or_insert_with(|| LinkPlan {
            from: transfer.from,
            to: transfer.to,
            transfers: Vec::new(),
            staging: Ring { bytes: 4, ..STAGING },
            ring: Ring::default(),
        });
        link.transfers.push(TransferId(index as u32));
        // A chunk of a stream goes through one staging buffer; other values are cut into as many pieces as necessary.
        let own = transfer.stream().map_or(transfer.bytes.min(piece), |stream| stream.chunk_bytes());
        link.staging.bytes = link.staging.bytes.max(own.next_multiple_of(4));
        let from_gpu = devices[transfer.from.index()].kind != DeviceKind::Cpu;
        if transfer.stream().is_none() && (from_gpu || matches!(program.value(transfer.value).origin, Origin::Input)) {
            let all = together.entry((transfer.from, transfer.to)).or_insert(0_u64);
            *all = all.saturating_add(transfer.bytes.next_multiple_of(8));
        }
        if let Some(stream) = transfer.stream()
            && devices[transfer.to.index()].kind == DeviceKind::Cpu
        {
            link.ring.hold(stream);
        }
    }
    // Values that leave a GPU at the same time, and the inputs of a run, go through one buffer together.
    for (ends, bytes) in together {
        let link = links.get_mut(&ends).expect("it has a transfer");
        let most = if devices[ends.0.index()].kind == DeviceKind::Cpu { piece.min(ROUND) } else { piece };
        link.staging.bytes = link.staging.bytes.max(bytes.min(most).next_multiple_of(4));
    }
    links.into_values().collect()
}

#[cfg(test)]
mod tests {
    use crate::test_programs::{Maker, PlacedProgram, add, relu};
    use crate::{PlanOptions, ROUND};

    #[test]
    fn staging_buffers_hold_the_inputs_of_a_run_together() {
        let bytes = |elements: usize, inputs: usize| {
            let mut maker = Maker::new();
            let dims = [elements];
            let made = maker.input(&dims);
            let mut sum = maker.node(relu(), &[made], &dims);
            for _ in 0..inputs {
                let next = maker.input(&dims);
                sum = maker.node(add(), &[sum, next], &dims);
            }
            let placed =
                PlacedProgram::new(maker.finish(&[sum]), &["cpu", "gpu"], &[&[0][..], &vec![1; inputs]].concat());
            let plan = placed.plan(&PlanOptions::default()).expect("no limit");
            plan.links().iter().find(|link| link.from.0 == 0).expect("inputs go to the GPU").staging.bytes
        };
        assert_eq!(bytes(3, 1), 16, "one input of 12 bytes, and a value that is made later");
        assert_eq!(bytes(3, 5), 5 * 16);
        assert_eq!(bytes(10_000, 5), 200_000);
        assert_eq!(bytes(10_000, 9), ROUND, "more go in several rounds");
        assert_eq!(bytes(100_000, 9), 400_000, "a larger value is not cut");
    }
}
