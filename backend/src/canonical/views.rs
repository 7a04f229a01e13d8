//! Transpositions, slices, borders, gathering and concatenation: no task, only an order in which memory is read (section 7.3).

use super::weave::{Held, Weave};

/// What the node makes is what it reads, in another order or number.
pub(super) fn view(weave: &mut Weave<'_>) -> Option<()> {
    let written = weave.written()?;
    let mut parts = Vec::new();
    for &value in &weave.node().inputs {
        parts.extend(weave.givers(value));
    }
    // What was given from the start stays in memory: no node has to store it.
    let held = if parts.is_empty() { Held::Given } else { weave.join(parts, written) };
    weave.hold(0, held);
    Some(())
}
