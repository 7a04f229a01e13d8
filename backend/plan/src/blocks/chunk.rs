//! Number of rows that go through a block at a time.

use super::BlockNode;
use crate::{ChunkRule, MachineDevice};
use anabranch_placement_core::platform::DeviceKind;

/// Assumed level 2 cache of a core in bytes, if it is unknown.
const ASSUMED_CACHE: u64 = 256 << 10;

/// Least number of chunks per thread, if there are enough rows: the last chunks then leave threads idle only briefly.
const CHUNKS_A_THREAD: usize = 4;

/// Least size of a chunk in bytes, unless rows run out: a few microseconds of a core's memory traffic.
const LEAST_BYTES: u64 = 32 << 10;

/// Bytes that a chunk may touch: half of the cache, because constants and stacks are there, too.
pub(super) fn chunk_budget(device: &MachineDevice) -> u64 {
    if device.cache == 0 { ASSUMED_CACHE / 2 } else { device.cache / 2 }
}

/// Returns the rows of a chunk, at least one.
///
/// Under [`ChunkRule::Auto`], all that a chunk touches fits half of the core's level 2 cache, and every thread gets
/// some chunks. Under [`ChunkRule::Bytes`], a chunk fits these bytes. A GPU takes all rows at once, because its kernel
/// keeps values between members in registers.
///
/// The result depends on shapes and caches alone, not on measured times: a block whose chunks changed from run to run
/// would have no history.
pub fn chunk_rows(block: &BlockNode, rule: ChunkRule, device: &MachineDevice) -> usize {
    let (rows, row) = (block.rows(), block.row_bytes().max(1));
    let fitting = |bytes: u64| usize::try_from(bytes / row).unwrap_or(usize::MAX);
    let wanted = match rule {
        _ if device.kind != DeviceKind::Cpu => rows,
        ChunkRule::Rows(rows) => rows,
        ChunkRule::Bytes(bytes) => fitting(bytes as u64),
        ChunkRule::Auto => {
            let shared = rows.div_ceil(device.threads.max(1) * CHUNKS_A_THREAD);
            fitting(chunk_budget(device)).min(shared.max(fitting(LEAST_BYTES)))
        }
    };
    wanted.clamp(1, rows)
}
