//! Status words of a GPU's kernels, and their way to the host.
//!
//! A kernel cannot stop a run: it reports a value that makes its node undefined in its status word, and goes on with an
//! allowed value. The words of all nodes on a GPU lie in one buffer. It is cleared before the first of these nodes of a
//! run, and copied after the last one with the same submission. The host reads the copy before the run ends well, so
//! that results of undefined nodes are never given out.

use super::lost::failure;
use crate::error::FailureSite;
use crate::link::Staging;
use crate::run_channels::Halt;
use crate::worker::Site;
use anabranch_ir::program::NodeId;
use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::{Gpu, StatusWord, status_error};
use anabranch_kernels::op::NodeSpec;
use anabranch_plan::Kernels;

/// Bytes of a word.
const BYTES: usize = size_of::<u32>();

/// Status words of a GPU's nodes.
pub(crate) struct StatusWords {
    buffer: wgpu::Buffer,
    /// Node of each word, in the order in which nodes run.
    nodes: Vec<(NodeId, NodeSpec)>,
}

impl StatusWords {
    /// Creates the words of those of these nodes that have one; `None` if there are none.
    pub(super) fn new(
        gpu: &Gpu,
        nodes: impl Iterator<Item = NodeId>,
        kernels: &Kernels,
    ) -> Result<Option<Self>, KernelError> {
        let with_word = nodes.filter(|node| kernels.has_status(*node));
        let nodes: Vec<_> = with_word.map(|node| (node, kernels.program().node(node).spec.clone())).collect();
        let buffer = (!nodes.is_empty()).then(|| gpu.storage((nodes.len() * BYTES) as u64)).transpose()?;
        Ok(buffer.map(|buffer| Self { buffer, nodes }))
    }

    /// Returns the word of a node, if it has one.
    pub(crate) fn word(&self, node: NodeId) -> Option<StatusWord<'_>> {
        let word = self.nodes.iter().position(|(known, _)| *known == node)?;
        Some(StatusWord { buffer: &self.buffer, word })
    }

    /// Whether the node is the first with a word in a run.
    pub(super) fn begins_at(&self, node: NodeId) -> bool {
        self.nodes.first().is_some_and(|(first, _)| *first == node)
    }

    /// Whether the node is the last with a word in a run.
    pub(super) fn ends_at(&self, node: NodeId) -> bool {
        self.nodes.last().is_some_and(|(last, _)| *last == node)
    }

    /// Creates a buffer for a copy on the host.
    pub(crate) fn staging(&self, gpu: &Gpu) -> Result<Staging, KernelError> {
        Staging::new(gpu, self.buffer.size(), wgpu::MapMode::Read)
    }

    /// Encodes that no value was reported yet.
    pub(crate) fn clear(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.clear_buffer(&self.buffer, 0, None);
    }

    /// Encodes the copy to the host.
    pub(crate) fn copy(&self, encoder: &mut wgpu::CommandEncoder, to: &Staging) {
        encoder.copy_buffer_to_buffer(&self.buffer, 0, to.buffer(), 0, self.buffer.size());
    }

    /// Requests the copy after its submission.
    pub(crate) fn submitted(&self, copy: &mut Staging, submission: wgpu::SubmissionIndex) {
        copy.submitted(submission, wgpu::MapMode::Read, self.buffer.size());
    }

    /// Waits for the copy.
    ///
    /// # Errors
    /// The error of the first node that reports a value.
    pub(crate) fn check(&self, gpu: &Gpu, copy: &Staging, site: Site<'_>) -> Result<(), Halt> {
        let mut reported = None;
        copy.read(gpu, self.nodes.len() * BYTES, site, |bytes| {
            let words = bytes.as_chunks::<BYTES>().0.iter().map(|word| u32::from_ne_bytes(*word));
            let error = |((node, spec), word): (&(NodeId, NodeSpec), u32)| Some((*node, status_error(spec, word)?));
            reported = self.nodes.iter().zip(words).find_map(error);
            Ok(())
        })?;
        match reported {
            None => Ok(()),
            Some((node, error)) => Err(failure(gpu, FailureSite::Node(node), error).into()),
        }
    }
}
