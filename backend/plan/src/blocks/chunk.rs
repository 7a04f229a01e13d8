//! How many rows go through a block at a time.

use super::BlockNode;
use crate::{ChunkRule, MachineDevice};
use anabranch_placement_core::platform::DeviceKind;

/// Bytes of level 2 cache that a core is assumed to have where nobody knows.
const ASSUMED_CACHE: u64 = 256 << 10;

/// Chunks that each thread gets at least, if there are so many rows: so few that the last ones do not leave threads idle.
const CHUNKS_A_THREAD: usize = 4;

/// Bytes below which a chunk is not made smaller to have more of them: a few microseconds of a core's memory traffic.
const LEAST_BYTES: u64 = 32 << 10;

/// Bytes that a chunk may touch: half of the cache, because constants and stacks are there too.
pub(super) fn room(device: &MachineDevice) -> u64 {
    if device.cache == 0 { ASSUMED_CACHE / 2 } else { device.cache / 2 }
}

/// The rows of a chunk: under [`ChunkRule::Auto`] so many that all that a chunk touches fits half of the core's level 2
/// cache, and that every thread has some chunks; under [`ChunkRule::Bytes`] so many that it fits those bytes; at least
/// one. A GPU takes all rows at once, because its kernel keeps what passes between members in registers.
///
/// It depends on shapes and caches alone, not on measured times: a block whose chunks changed from run to run would have
/// no history.
pub fn chunk_rows(block: &BlockNode, rule: ChunkRule, device: &MachineDevice) -> usize {
    let (rows, row) = (block.rows(), block.row_bytes().max(1));
    let fitting = |bytes: u64| usize::try_from(bytes / row).unwrap_or(usize::MAX);
    let wanted = match rule {
        _ if device.kind != DeviceKind::Cpu => rows,
        ChunkRule::Rows(rows) => rows,
        ChunkRule::Bytes(bytes) => fitting(bytes as u64),
        ChunkRule::Auto => {
            let shared = rows.div_ceil(device.threads.max(1) * CHUNKS_A_THREAD);
            fitting(room(device)).min(shared.max(fitting(LEAST_BYTES)))
        }
    };
    wanted.clamp(1, rows)
}
