//! Status words, in which kernels report values that make their nodes undefined.
//!
//! A kernel cannot stop a run. If it meets such a value, it computes with an allowed value instead. It also raises its
//! node's word to `u32::MAX − position`, with the position of the value in its tensor. The word is 0 if there is no
//! such value. An atomic maximum raises it, so that it holds the first position in any order of threads. The caller of
//! a kernel clears the word before, and must not use results before it has read the word.

use super::Shader;
use super::kernel::Recorder;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};

/// Word of a node's kernel in a buffer that kernels may share.
#[derive(Clone, Copy, Debug)]
pub struct StatusWord<'a> {
    /// Buffer of status words, with the usage `STORAGE`.
    pub buffer: &'a wgpu::Buffer,
    /// Number of the word in the buffer.
    pub word: usize,
}

/// Bytes of a status word.
pub(super) const BYTES: u64 = 4;

/// Declares `refuse(position)`, which reports the value at this position, in the shader of a kernel with a status word.
pub(super) fn declare<'a>(recorder: &Recorder<'a>, shader: &mut Shader<'a>) -> Result<(), KernelError> {
    let status = recorder.status()?;
    shader.write("status", "atomic<u32>", status.buffer).parameter("status_word", status.word).code(REFUSE);
    Ok(())
}

const REFUSE: &str = "fn refuse(position: u32) {
    atomicMax(&status[parameters.status_word], 0xffffffffu - position);
}
";

/// Returns the error that a node's status word reports after a run, if it reports an error.
pub fn status_error(node: &NodeSpec, word: u32) -> Option<KernelError> {
    let position = u32::MAX - word;
    let Op::Gather(op) = &node.op else { return None };
    if word == 0 {
        return None;
    }
    let size = node.inputs[0].shape.dims().get(op.axis).copied().unwrap_or(0);
    let reason = format!("the index at position {position} is outside an axis of {size}");
    Some(KernelError::Value { op: node.op.name(), reason })
}
