//! Transpositions, slices, borders, gathering and concatenation: they add no task, only an order in which memory is
//! read (section 7.3).

use super::writer::{GraphWriter, ValueSource};

/// Writes a node whose output holds its inputs' elements in another order or number.
pub(super) fn view(writer: &mut GraphWriter<'_>) -> Option<()> {
    let written = writer.written()?;
    let mut parts = Vec::new();
    for &value in &writer.node().inputs {
        parts.extend(writer.givers(value));
    }
    // Values that are in memory from the start stay there: no node has to store them.
    let held = if parts.is_empty() { ValueSource::Given } else { writer.join(parts, written) };
    writer.hold(0, held);
    Some(())
}
