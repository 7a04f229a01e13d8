//! Parts of a divided batch, and nodes that left their devices because memory is short.

use crate::text::count;
use anabranch::plan::Displaced;
use anabranch::planning::Planned;
use serde::Serialize;

/// Rows of a batch that one device computes.
#[derive(Clone, Debug, Serialize)]
pub struct PartLine {
    device: String,
    rows: usize,
}

impl PartLine {
    /// Returns the parts of a plan, if it divides a batch.
    pub fn all(planned: &Planned) -> Vec<Self> {
        let parts = planned.divided.iter().flat_map(|divided| &divided.parts);
        parts.map(|(device, rows)| Self { device: device.clone(), rows: *rows }).collect()
    }

    /// Returns a line with all parts; `None` if there are none.
    pub fn line(parts: &[Self]) -> Option<String> {
        let told: Vec<_> =
            parts.iter().map(|Self { device, rows }| format!("{} on {device}", count(*rows, "row"))).collect();
        (!told.is_empty()).then(|| format!("split     {}", told.join(", ")))
    }
}

/// Returns a line for a device that nodes left.
pub fn displaced_line(displaced: &Displaced) -> String {
    let Displaced { device, nodes } = displaced;
    let (nodes, verb) = (count(*nodes, "node"), if *nodes == 1 { "runs" } else { "run" });
    format!("memory    {nodes} of {device} {verb} elsewhere, because memory is short")
}
