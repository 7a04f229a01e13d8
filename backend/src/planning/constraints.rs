//! What the caller demands of a placement: nodes pinned to devices, nodes kept together, tensors kept on devices.

use super::error::PlacingError;
use super::machine::MachineDevice;
use super::name_pattern::matches;
use crate::plan::HOST;
use crate::program::{NodeId, Program};
use crate::tasks::Residence;
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// What a placement must respect. Patterns are over node names: `*` stands for any text, `?` for one character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Constraints {
    /// Nodes that must run on one device. Of several pins that match a node, the first counts.
    pub pins: Vec<Pin>,
    /// Nodes whose names match one of these patterns all run on one device.
    pub colocated: Vec<String>,
    /// Inputs and outputs that stay on a device, by their names. CPU devices share the host's memory.
    pub resident: Vec<Resident>,
}

/// An input or output that the caller keeps on a device from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The name of the input, of the output, or of both.
    pub name: String,
    /// The device's name.
    pub device: String,
}

/// Nodes that must run on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The pattern of the nodes' names.
    pub pattern: String,
    /// The device's name.
    pub device: String,
}

impl Constraints {
    /// Adds a pin of the nodes that match `pattern` to a device.
    pub fn with_pin(mut self, pattern: impl Into<String>, device: impl Into<String>) -> Self {
        self.pins.push(Pin { pattern: pattern.into(), device: device.into() });
        self
    }

    /// Keeps the nodes that match `pattern` on one device.
    pub fn with_colocated(mut self, pattern: impl Into<String>) -> Self {
        self.colocated.push(pattern.into());
        self
    }

    /// Keeps the input and the output of this name on a device.
    pub fn with_resident(mut self, name: impl Into<String>, device: impl Into<String>) -> Self {
        self.resident.push(Resident { name: name.into(), device: device.into() });
        self
    }

    /// The same demands on tensors, and none on nodes.
    pub(super) fn of_tensors(&self) -> Self {
        Self { resident: self.resident.clone(), ..Self::default() }
    }

    /// The device that each input and output is on.
    pub(super) fn residence(&self, program: &Program, devices: &[MachineDevice]) -> Result<Residence, PlacingError> {
        let mut residence = Residence::host(program);
        for Resident { name, device } in &self.resident {
            let at = devices.iter().position(|known| known.name == *device);
            let at = at.ok_or_else(|| PlacingError::UnknownHome {
                name: name.clone(),
                device: device.clone(),
                known: devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            let home = if devices[at].kind == DeviceKind::Cpu { HOST } else { DeviceId(at as u32) };
            let inputs = program.inputs.iter().map(|input| &program.value(*input).name).zip(&mut residence.inputs);
            let outputs = program.outputs.iter().map(|output| &output.name).zip(&mut residence.outputs);
            let named: Vec<_> = inputs.chain(outputs).filter(|(known, _)| *known == name).collect();
            if named.is_empty() {
                let inputs = program.inputs.iter().map(|input| program.value(*input).name.as_str());
                let known: Vec<_> = inputs.chain(program.outputs.iter().map(|output| output.name.as_str())).collect();
                return Err(PlacingError::UnknownTensor { name: name.clone(), known: known.join(", ") });
            }
            named.into_iter().for_each(|(_, place)| *place = home);
        }
        Ok(residence)
    }

    /// The device that each node is pinned to.
    pub(super) fn pinned(
        &self,
        program: &Program,
        devices: &[MachineDevice],
    ) -> Result<Vec<Option<DeviceId>>, PlacingError> {
        let mut pinned = vec![None; program.nodes.len()];
        for Pin { pattern, device } in self.pins.iter().rev() {
            let position = devices.iter().position(|known| known.name == *device);
            let position = position.ok_or_else(|| PlacingError::UnknownDevice {
                pattern: pattern.clone(),
                device: device.clone(),
                known: devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            for node in matching(program, pattern)? {
                pinned[node.index()] = Some(DeviceId(position as u32));
            }
        }
        Ok(pinned)
    }

    /// Pairs of nodes that must share a device.
    pub(super) fn pairs(&self, program: &Program) -> Result<Vec<(NodeId, NodeId)>, PlacingError> {
        let mut pairs = Vec::new();
        for pattern in &self.colocated {
            let nodes = matching(program, pattern)?;
            pairs.extend(nodes.windows(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(pairs)
    }
}

/// The nodes one of whose operators' names matches.
fn matching(program: &Program, pattern: &str) -> Result<Vec<NodeId>, PlacingError> {
    let named = |node: &NodeId| {
        let node = program.node(*node);
        matches(pattern, &node.name) || node.operators.iter().any(|operator| matches(pattern, &operator.name))
    };
    let nodes: Vec<_> = program.node_ids().filter(named).collect();
    if nodes.is_empty() {
        return Err(PlacingError::NoMatch { pattern: pattern.to_owned() });
    }
    Ok(nodes)
}
