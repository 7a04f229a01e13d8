//! Converts element-wise nodes and epilogues to canonical tasks: one task each, which reads as many elements of each
//! operand as it writes.

use super::writer::{GraphWriter, Id, ValueSource};
use anabranch_kernels::Shape;

/// Writes a [`Map`](anabranch_kernels::op::Map): an element-wise task.
pub(super) fn map(writer: &mut GraphWriter<'_>) -> Option<()> {
    let operands = (0..writer.node().inputs.len()).map(|place| operand(writer, place)).collect::<Option<Vec<Id>>>()?;
    let volume = writer.written()?;
    let task = writer.task("elements", &operands, volume, volume);
    writer.hold(0, ValueSource::Stream(task));
    Some(())
}

/// Writes the epilogue of a node with the given `result`, if it has one, as an element-wise task. Holds the node's
/// output.
pub(super) fn epilogue(writer: &mut GraphWriter<'_>, result: ValueSource) -> Option<()> {
    let op = &writer.node().spec.op;
    let start = op.epilogue_inputs_start();
    if op.epilogue().is_none() {
        writer.hold(0, result);
        return Some(());
    }
    let volume = writer.written()?;
    let mut operands = vec![writer.whole("result", &result, volume)];
    for place in start..writer.node().inputs.len() {
        operands.push(operand(writer, place)?);
    }
    let task = writer.task("epilogue", &operands, volume, volume);
    writer.hold(0, ValueSource::Stream(task));
    Some(())
}

/// Returns the node's input `place` in the order and number of its output's elements.
///
/// If broadcasting repeats each element of a stream, an upsampler repeats them. If it repeats the whole input, the
/// input is stored and memory is read in that order.
fn operand(writer: &mut GraphWriter<'_>, place: usize) -> Option<Id> {
    let (read, written, value) = (writer.read(place)?, writer.written()?, writer.input(place)?);
    if read == written {
        return Some(writer.stream(value));
    }
    let node = writer.node();
    let repeats = repeats_elements(&node.spec.inputs.get(place)?.shape, &node.spec.outputs.first()?.shape)?;
    match *writer.held(value) {
        ValueSource::Stream(task) if repeats => Some(writer.task(&format!("repeat {place}"), &[task], read, written)),
        _ => Some(writer.memory(value, written)),
    }
}

/// Whether broadcasting only repeats each element: along trailing axes only.
fn repeats_elements(shape: &Shape, target: &Shape) -> Option<bool> {
    let strides = shape.broadcast_strides(target).ok()?;
    let repeated: Vec<bool> =
        strides.iter().zip(target.dims()).filter(|(_, size)| **size > 1).map(|(stride, _)| *stride == 0).collect();
    Some(repeated.is_sorted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_axes_repeat_elements_and_leading_axes_the_whole() {
        let shape = |dims: &[usize]| Shape::new(dims).expect("small");
        let repeats = |from: &[usize], to: &[usize]| repeats_elements(&shape(from), &shape(to));
        assert_eq!(repeats(&[3, 1], &[3, 4]), Some(true));
        assert_eq!(repeats(&[1, 3, 1, 1], &[1, 3, 4, 4]), Some(true));
        assert_eq!(repeats(&[4], &[3, 4]), Some(false));
        assert_eq!(repeats(&[3, 1], &[2, 3, 4]), Some(false));
        assert_eq!(repeats(&[5], &[3, 4]), None);
    }
}
