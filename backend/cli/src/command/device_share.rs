//! Shares of devices in a plan.

use anabranch::plan::PlanDevice;
use anabranch::planning::Planned;
use serde::Serialize;

/// Share of a device in a plan.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceShare {
    pub(super) device: String,
    /// Number of its nodes.
    pub(super) nodes: usize,
    /// Predicted seconds in which it computes.
    pub(super) busy: f64,
    /// Maximum bytes that the plan takes there.
    pub(super) peak_bytes: u64,
    /// Bytes that it may hold; `None` for no limit.
    pub(super) limit_bytes: Option<u64>,
}

impl DeviceShare {
    /// Returns the shares of all devices, in the plan's order. O(devices · nodes).
    pub(super) fn all(planned: &Planned) -> Vec<Self> {
        let (program, plan) = (&planned.program, planned.plan());
        let share = |(at, device): (usize, &PlanDevice)| {
            let own = || program.node_ids().filter(|node| plan.device_of(*node).index() == at);
            Self {
                device: device.name.clone(),
                nodes: own().count(),
                // A sum of nothing would be −0.
                busy: own().fold(0.0, |sum, node| sum + plan.predicted().busy[node.index()]),
                peak_bytes: plan.memory().devices()[at].peak(),
                limit_bytes: device.limit.bytes(),
            }
        };
        plan.devices().iter().enumerate().map(share).collect()
    }
}
