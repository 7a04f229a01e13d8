//! Copies of pieces between values and staging buffers. A large piece is copied by several threads, because one core
//! does not reach the bandwidth of memory or of a bus.

use anabranch_base::sync::{Mutex, lock};
use anabranch_kernels::cpu::Team;
use wgpu::WriteOnly;

/// Bytes from which several threads copy a piece. Waking them takes as long as copying half of it.
pub(crate) const LARGE: u64 = 1 << 20;

/// Bytes that a thread takes at a time.
const BLOCK: usize = 128 << 10;

/// Copies a piece to a value of the same length.
pub(crate) fn copy(team: &Team, source: &[u8], target: &mut [u8]) {
    if (source.len() as u64) < LARGE {
        return target.copy_from_slice(source);
    }
    team.run_pieces(target, BLOCK, &|at, block| block.copy_from_slice(&source[at * BLOCK..][..block.len()]));
}

/// Copies a piece to a mapped buffer of the same length.
pub(super) fn write(team: &Team, source: &[u8], mut target: WriteOnly<'_, [u8]>) {
    if (source.len() as u64) < LARGE {
        return target.copy_from_slice(source);
    }
    let (blocks, mut rest) = target.into_chunks::<BLOCK>();
    let (sources, last) = source.as_chunks::<BLOCK>();
    let blocks: Vec<_> = blocks.into_iter().map(|block| Mutex::new(Some(block))).collect();
    team.run(blocks.len(), &|at| {
        if let Some(block) = lock(&blocks[at]).take() {
            WriteOnly::<[u8]>::from(block).copy_from_slice(&sources[at]);
        }
    });
    rest.copy_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_sizes_arrive_whole() {
        let large = LARGE as usize;
        for threads in [1, 4] {
            let team = Team::new(threads, |_| {});
            for bytes in [0, 1, large - 1, large, large + 1, 3 * large + BLOCK + 4095] {
                let source: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
                let mut target = vec![0; bytes];
                copy(&team, &source, &mut target);
                assert!(target == source, "{bytes} bytes by {threads} threads");
                target.fill(0);
                write(&team, &source, WriteOnly::from_mut(&mut target[..]));
                assert!(target == source, "{bytes} bytes by {threads} threads");
            }
        }
    }
}
