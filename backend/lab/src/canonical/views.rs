//! Transpositions, slices, borders, gathering and concatenation: no task, only an order in which memory is read (section 7.3).

use super::writer::{GraphWriter, Held};

/// What the node makes is what it reads, in another order or number.
pub(super) fn view(writer: &mut GraphWriter<'_>) -> Option<()> {
    let written = writer.written()?;
    let mut parts = Vec::new();
    for &value in &writer.node().inputs {
        parts.extend(writer.givers(value));
    }
    // What was given from the start stays in memory: no node has to store it.
    let held = if parts.is_empty() { Held::Given } else { writer.join(parts, written) };
    writer.hold(0, held);
    Some(())
}
