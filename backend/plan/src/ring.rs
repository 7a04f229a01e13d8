//! Sizes of the buffer rings in which a plan's CPU devices keep streamed outputs, chunk by chunk, for other devices.

use super::PlanDevice;
use super::stream::Stream;
use super::transfer::Transfer;
use anabranch_ir::program::Program;
use anabranch_placement_core::platform::DeviceKind;

/// Buffers that circulate between a producer and its readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Bytes of one buffer.
    pub bytes: u64,
    /// Number of buffers.
    pub depth: u64,
}

impl Ring {
    /// Returns the bytes of all buffers.
    pub fn total(&self) -> u64 {
        self.bytes * self.depth
    }

    /// Enlarges the ring to the size and depth that a stream needs.
    pub(super) fn hold(&mut self, stream: &Stream) {
        self.bytes = self.bytes.max(stream.chunk_bytes().next_multiple_of(4));
        self.depth = self.depth.max(u64::from(stream.capacity));
    }
}

/// Returns the rings of each device, by the number of the output: each as large and as deep as any of its streams
/// needs.
pub(super) fn all(program: &Program, devices: &[PlanDevice], transfers: &[Transfer]) -> Vec<Vec<Ring>> {
    let mut rings = vec![Vec::new(); devices.len()];
    for transfer in transfers.iter().filter(|transfer| devices[transfer.from.index()].kind == DeviceKind::Cpu) {
        let Some((stream, producer)) = transfer.stream().and_then(|stream| Some((stream, stream.producer?))) else {
            continue;
        };
        // A value that its node does not make has no ring; the executor's script reports that error.
        let outputs = &program.node(producer).outputs;
        let Some(number) = outputs.iter().position(|value| *value == transfer.value) else { continue };
        let rings: &mut Vec<Ring> = &mut rings[transfer.from.index()];
        rings.resize(rings.len().max(number + 1), Ring::default());
        rings[number].hold(stream);
    }
    rings
}
