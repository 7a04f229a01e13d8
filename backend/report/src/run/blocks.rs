//! Streaming blocks of a plan: their members, their predicted times with and without streaming, and their measured
//! times.

use crate::table::Table;
use crate::text::duration;
use anabranch::costs::NodeCost;
use anabranch::device::format_bytes;
use anabranch::execute::RunOutput;
use anabranch::planning::Planned;
use serde::Serialize;

/// A block. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct BlockLine {
    block: String,
    device: String,
    members: Vec<String>,
    rows: usize,
    chunk_rows: usize,
    /// Bytes that a chunk touches.
    chunk_bytes: u64,
    /// Bytes of tensors that pass only between members, and never exist as a whole.
    kept_bytes: u64,
    without: Predicted,
    with: Predicted,
    measured_ms: Option<f64>,
    /// Predicted time of the members without streaming, minus the measured time.
    saved_ms: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct Predicted {
    ms: f64,
    source: String,
}

impl Predicted {
    fn of(cost: NodeCost) -> Self {
        Self { ms: cost.seconds * 1e3, source: cost.source.to_string() }
    }

    fn text(&self) -> String {
        format!("{} {}", duration(self.ms * 1e-3), self.source)
    }
}

impl BlockLine {
    /// Returns the blocks of a plan, with their times in a run if there was one.
    pub fn all(planned: &Planned, run: Option<&RunOutput>) -> Vec<Self> {
        let (program, plan) = (&planned.program, planned.plan());
        let line = |block: &anabranch::blocks::BlockSummary| {
            let took = run.and_then(|run| run.node_times().find(|(node, _)| *node == block.node));
            let measured_ms = took.map(|(_, seconds)| seconds * 1e3);
            let without = Predicted::of(block.gain.without);
            Self {
                block: program.node(block.node).name.clone(),
                device: plan.device(plan.device_of(block.node)).name.clone(),
                members: block.members.clone(),
                rows: block.rows,
                chunk_rows: block.chunk_rows,
                chunk_bytes: block.chunk_bytes,
                kept_bytes: block.kept_bytes,
                saved_ms: measured_ms.map(|took| without.ms - took),
                without,
                with: Predicted::of(block.gain.with),
                measured_ms,
            }
        };
        planned.blocks.iter().map(line).collect()
    }

    /// Returns a table with a line for each block, with measured times if there was a run.
    pub fn table(lines: &[Self]) -> Table {
        let mut table = Table::new(">nodes | >rows | >chunk | >kept | without | with | >measured | block on device");
        for line in lines {
            table.row([
                line.members.len().to_string(),
                line.rows.to_string(),
                line.chunk_rows.to_string(),
                format_bytes(line.kept_bytes),
                line.without.text(),
                line.with.text(),
                line.measured_ms.map_or("–".into(), |ms| duration(ms * 1e-3)),
                format!("{} on {}", line.block, line.device),
            ]);
        }
        table
    }
}
