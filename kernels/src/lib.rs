//! Tensors, the operator set that models are lowered to, and the kernels that compute it on CPUs and GPUs.
//!
//! A model is lowered to a program of [`op::Op`]s over dense row-major tensors whose shapes are all known.
//! [`cpu::prepare`] turns one op into a kernel for a team of threads, [`gpu::compile`] into a few dispatches of compute
//! shaders; both see the same [`op::NodeSpec`], and both compute the same function to within rounding. Some nodes have
//! no GPU kernel, and `compile` refuses them.
//!
//! This crate does not know graphs, or the placement of nodes on devices.

#![forbid(unsafe_code)]

#[doc(inline)]
pub use anabranch_cpu as cpu;
#[doc(inline)]
pub use anabranch_gpu as gpu;
#[doc(inline)]
pub use anabranch_op::{
    Block, Buffer, DType, KernelError, OutOfMemory, Recycler, Shape, Tensor, TensorSpec, dtype, error, op, shape,
    tensor,
};

use std::any::Any;

/// Returns the message of a panic, if its payload is a string.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Version of the kernels, stored with measured times and compiled models.
///
/// It is raised by hand whenever a kernel may have become faster or slower, or [`Layout::pack`](cpu::Layout::pack)
/// makes other bytes. Times of another version are kept, but no longer count as exact. Compiled models of another
/// version are compiled again.
pub const VERSION: u32 = 27;

#[cfg(test)]
mod tests {
    use super::VERSION;
    use super::cpu::{FilterSizes, Layout};
    use super::op::WinogradTile;

    /// Compiled models keep packed constants: if these bytes change, [`VERSION`] must change too.
    #[test]
    fn packed_bytes_are_those_of_this_version() {
        assert_eq!(VERSION, 27, "what is packed may be other bytes now: write down their hashes");
        let floats = [
            (Layout::right(2, [5, 37], false, 16), 0x4a95_6b11_8faf_4d83),
            (Layout::right(2, [5, 37], true, 48), 0xb6fe_86df_03f6_a54b),
            (Layout::windows([2, 21, 3, 9], 16), 0x3e64_8d71_b0ab_d491),
            (Layout::filters([1, 21, 5], WinogradTile::Two, 16), 0x2c3e_0273_a678_4e4f),
        ];
        let bytes = [
            (Layout::narrow([64, 37], 8, None), 0xd731_7567_ecfc_5d27),
            (Layout::narrow([64, 37], 4, Some(32)), 0xfa2c_a259_3d7a_52d0),
            (Layout::quads(2, [7, 37], true), 0x5d32_094e_6a77_eca0),
            (
                Layout::filters_of_integers(FilterSizes { count: 42, channels: 3, window: [3, 3] }, true),
                0x2951_45d6_656c_55d7,
            ),
        ];
        let number = |at: usize| (at * at % 61) as u8;
        for (index, (layout, known)) in floats.into_iter().chain(bytes).enumerate() {
            let size = layout.pieces(usize::MAX).map(|piece| piece.end).max().expect("a piece");
            let raw: Vec<u8> = match index {
                0..4 => (0..size / 4).flat_map(|at| f32::from(number(at)).to_le_bytes()).collect(),
                _ => (0..size).map(number).collect(),
            };
            let mut packed = vec![0; layout.bytes()];
            layout.pack(&raw, &mut packed);
            // FNV-1a.
            let hash = packed.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
            assert_eq!(hash, known, "{layout:?}");
        }
    }
}
