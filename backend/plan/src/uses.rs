//! Readers of values, by device.

use super::staged::Staged;
use crate::{HOST, Step};
use anabranch_ir::program::{Origin, Program, ValueId};
use anabranch_placement_core::platform::DeviceId;

/// Readers of every value by device: nodes, each once even if several of its inputs are the value, and the caller's
/// outputs. For constants, only the readers to which they are sent.
pub(super) struct Uses {
    of: Vec<Vec<(DeviceId, Step)>>,
}

impl Uses {
    /// Collects the uses of a program whose task `t` is on `device_of[t]`. O(nodes + edges · log).
    pub(super) fn of(program: &Program, device_of: &[DeviceId], staged: &Staged) -> Self {
        let mut of: Vec<Vec<_>> = vec![Vec::new(); program.values.len()];
        for node in program.node_ids() {
            for input in &program.node(node).inputs {
                of[input.index()].push((device_of[node.index()], Step::Node(node)));
            }
        }
        for (index, output) in program.outputs.iter().enumerate() {
            of[output.value.index()].push((output_device(program, device_of, index), Step::Output(index)));
        }
        for (index, (readers, value)) in of.iter_mut().zip(&program.values).enumerate() {
            if matches!(value.origin, Origin::Constant(_)) {
                readers.retain(|(device, _)| staged.contains(*device, ValueId(index as u32)));
            }
            readers.sort_unstable();
            readers.dedup();
        }
        Self { of }
    }

    /// Readers of a value, one non-empty slice per device, by ascending device.
    pub(super) fn by_device(&self, value: ValueId) -> impl Iterator<Item = &[(DeviceId, Step)]> {
        self.of[value.index()].chunk_by(|one, other| one.0 == other.0)
    }

    /// Readers of a value on a device.
    pub(super) fn on(&self, value: ValueId, device: DeviceId) -> &[(DeviceId, Step)] {
        self.by_device(value).find(|readers| readers[0].0 == device).unwrap_or(&[])
    }
}

/// Device on which the caller gives an input; `device_of` has all tasks, here and below.
pub(super) fn input_device(program: &Program, device_of: &[DeviceId], index: usize) -> DeviceId {
    device_of[program.nodes.len() + index]
}

/// Device on which the caller receives an output.
pub(super) fn output_device(program: &Program, device_of: &[DeviceId], index: usize) -> DeviceId {
    device_of[program.nodes.len() + program.inputs.len() + index]
}

/// Device on which a value is made: its node's, or the device on which the caller gives it. `None` for a constant.
pub(super) fn origin(program: &Program, device_of: &[DeviceId], value: ValueId) -> Option<DeviceId> {
    match program.value(value).origin {
        Origin::Constant(_) => None,
        Origin::Input => {
            let index = program.inputs.iter().position(|input| *input == value);
            Some(index.map_or(HOST, |index| input_device(program, device_of, index)))
        }
        Origin::Node(node) => Some(device_of[node.index()]),
    }
}
