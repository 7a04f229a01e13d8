//! The cache of a decoder: how its length shows in the shapes of runs, and so in the number of plans.

use super::names::Names;
use anabranch_onnx::import::{Dim, Model, Node};
use anabranch_session::{Session, StatePair};
use std::collections::BTreeSet;

/// Capacity of a cache in tokens at first, if the context is not shorter.
const LEAST: usize = 256;

/// Relation between the length of a cache and the shapes of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Operators take the cache as a buffer with a capacity of so many tokens. No shape depends on its length.
    Buffer(usize),
    /// Operators take the cache as a buffer, whose capacity the model declares.
    Fixed(usize),
    /// Steps concatenate the cache with new keys. It is padded on the left, and the mask hides the padding. Steps with
    /// these capacities were compared with steps without padding.
    Padded(BTreeSet<usize>),
    /// Steps concatenate the cache with new keys: each length has shapes of its own.
    Exact,
}

impl Cache {
    /// Returns how a model keeps its state.
    pub(crate) fn of(session: &Session, state: &[StatePair], names: &Names) -> Self {
        let model = session.model();
        let is_buffer = |pair: &StatePair| {
            let mut readers = readers(model, pair).peekable();
            readers.peek().is_some() && readers.all(|(node, _)| is_grouped(node))
        };
        match fixed(session, state) {
            Some(capacity) if state.iter().all(is_buffer) => Self::Fixed(capacity),
            None if state.iter().all(|pair| pair.growing.is_some() && is_buffer(pair)) => Self::Buffer(0),
            _ if names.mask.is_some() && state.iter().any(|pair| pair.growing.is_some()) => {
                Self::Padded(BTreeSet::new())
            }
            _ => Self::Exact,
        }
    }
}

/// Returns the capacity of the cache for `tokens` tokens: a power of two, and 256 at least, but never more than leaves
/// a place for another token in the context.
pub(crate) fn padded_to(tokens: usize, context: usize) -> usize {
    tokens.next_power_of_two().max(LEAST).min(context.saturating_sub(1)).max(tokens)
}

/// Returns the capacity of a buffer for `tokens` tokens that had `capacity` before: at least twice as much.
pub(crate) fn grown(capacity: usize, tokens: usize, context: usize) -> usize {
    tokens.next_power_of_two().max(capacity.saturating_mul(2)).max(LEAST).min(context)
}

/// Returns the least capacity that the model declares for a cache that an operator takes as a buffer.
pub(crate) fn fixed(session: &Session, state: &[StatePair]) -> Option<usize> {
    let model = session.model();
    let capacity = |pair: &StatePair| {
        let dims = session.input_info(&pair.input)?.dims()?;
        let axis = readers(model, pair).find_map(|(node, input)| match &*node.op_type {
            "GroupQueryAttention" if is_grouped(node) => Some(2),
            "TensorScatter" if input == 0 => dims.len().checked_sub(2),
            _ => None,
        })?;
        if let Some(Dim::Known(capacity)) = dims.get(axis) { Some(*capacity) } else { None }
    };
    state.iter().filter_map(capacity).min()
}

/// Nodes that read a state, and the places among their inputs.
fn readers<'m>(model: &'m Model, pair: &StatePair) -> impl Iterator<Item = (&'m Node, usize)> {
    let state = model.inputs.iter().find(|input| input.name == pair.input).map(|input| input.value);
    let place = move |node: &'m Node| node.inputs.iter().position(|input| state.is_some() && *input == state);
    model.nodes.iter().filter_map(move |node| Some((node, place(node)?)))
}

fn is_grouped(node: &Node) -> bool {
    node.op_type == "GroupQueryAttention" && node.domain == "com.microsoft"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_double_and_leave_room_for_a_token() {
        for (tokens, context, want) in
            [(1, 2048, 256), (256, 2048, 256), (257, 2048, 512), (1500, 2048, 2047), (2047, 2048, 2047), (9, 20, 19)]
        {
            assert_eq!(padded_to(tokens, context), want, "{tokens} of {context}");
        }
        for (capacity, tokens, want) in [(0, 1, 256), (256, 257, 512), (256, 700, 1024), (1024, 1025, 1500)] {
            assert_eq!(grown(capacity, tokens, 1500), want, "{tokens} after {capacity}");
        }
    }
}
