//! The caller's constraints on a placement: pinned nodes, colocated nodes, and tensors that stay on devices.

use super::error::PlanningError;
use super::name_pattern::matches;
use super::split::Split;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::suggest::did_you_mean;
use anabranch_ir::program::{NodeId, Program};
use anabranch_kernels::op::NodeSpec;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::tasks::Residence;
use anabranch_plan::{HOST, InPlace, MachineDevice};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Constraints on a placement. In patterns over node names, `*` stands for any text, `?` for one character.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Constraints {
    /// Nodes that must run on one device. If several pins match a node, the first counts.
    pub pins: Vec<Pin>,
    /// Patterns of node names; all nodes that match one pattern run on one device.
    pub colocated: Vec<String>,
    /// Inputs and outputs that stay on a device, by name. CPU devices share the host's memory.
    pub resident: Vec<Resident>,
    /// Division of the rows of a batch among devices.
    #[serde(skip)]
    pub split: Option<Split>,
    #[serde(skip)]
    of_parts: bool,
    #[serde(skip)]
    goes_on: bool,
}

/// An input or output that the caller keeps on a device from run to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Name of the input, of the output, or of both.
    pub name: String,
    /// The device's name.
    pub device: String,
}

/// Nodes that must run on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Pattern of the nodes' names.
    pub pattern: String,
    /// The device's name.
    pub device: String,
}

impl Constraints {
    /// Pins the nodes that match `pattern` to a device (default: no pins).
    pub fn with_pin(mut self, pattern: impl Into<String>, device: impl Into<String>) -> Self {
        self.pins.push(Pin { pattern: pattern.into(), device: device.into() });
        self
    }

    /// Keeps the nodes that match `pattern` on one device (default: no colocation).
    pub fn with_colocated(mut self, pattern: impl Into<String>) -> Self {
        self.colocated.push(pattern.into());
        self
    }

    /// Keeps the input and the output of this name on a device (default: on the host).
    pub fn with_resident(mut self, name: impl Into<String>, device: impl Into<String>) -> Self {
        self.resident.push(Resident { name: name.into(), device: device.into() });
        self
    }

    /// Lets runs go on with a state in its memory (default: each run copies it): where that can be, an append costs its
    /// new positions alone.
    pub fn with_state_in_place(mut self) -> Self {
        self.goes_on = true;
        self
    }

    /// Returns these constraints for programs that are parts of a model: patterns may match none of their nodes.
    pub fn of_parts(&self) -> Self {
        Self { of_parts: true, ..self.clone() }
    }

    /// Returns these constraints without the division of the batch.
    pub(super) fn undivided(&self) -> Self {
        Self { split: None, ..self.clone() }
    }

    /// Returns the constraints on tensors only.
    pub(super) fn of_tensors(&self) -> Self {
        Self { resident: self.resident.clone(), goes_on: self.goes_on, ..Self::default() }
    }

    /// Returns the device of each input and output.
    pub(super) fn residence(&self, program: &Program, devices: &[MachineDevice]) -> Result<Residence, PlanningError> {
        let mut residence = Residence::host(program);
        for Resident { name, device } in &self.resident {
            let at = position(devices, device, || format!("`{name}` is to stay on"))?;
            let home = if devices[at].kind == DeviceKind::Cpu { HOST } else { DeviceId(at as u32) };
            let inputs = program.inputs.iter().map(|input| &program.value(*input).name).zip(&mut residence.inputs);
            let outputs = program.outputs.iter().map(|output| &output.name).zip(&mut residence.outputs);
            let named: Vec<_> = inputs.chain(outputs).filter(|(known, _)| *known == name).collect();
            if named.is_empty() {
                let inputs = program.inputs.iter().map(|input| program.value(*input).name.as_str());
                let known: Vec<_> = inputs.chain(program.outputs.iter().map(|output| output.name.as_str())).collect();
                return Err(refused(format!(
                    "`{name}` cannot stay on a device: it is not an input or output; these are {}",
                    known.join(", ")
                )));
            }
            named.into_iter().for_each(|(_, place)| *place = home);
        }
        Ok(residence)
    }

    /// Returns the nodes that write new positions in place if they run on the device that keeps the state, which is
    /// given, and nodes that cost as much.
    pub(super) fn appends_in_place(
        &self,
        program: &Program,
        residence: &Residence,
    ) -> BTreeMap<NodeId, (DeviceId, NodeSpec)> {
        let possible = if self.goes_on { InPlace::possible(program) } else { Vec::new() };
        let at_home = possible.into_iter().filter_map(|(node, input, output)| {
            let home = residence.inputs[input];
            let written = InPlace::written(&program.node(node).spec);
            (residence.outputs[output] == home).then_some((node, (home, written)))
        });
        at_home.collect()
    }

    /// Returns the device to which each node is pinned, if any.
    pub(super) fn pinned(
        &self,
        program: &Program,
        devices: &[MachineDevice],
    ) -> Result<Vec<Option<DeviceId>>, PlanningError> {
        let mut pinned = vec![None; program.nodes.len()];
        for Pin { pattern, device } in self.pins.iter().rev() {
            let position = position(devices, device, || format!("nodes `{pattern}` are pinned to"))?;
            for node in self.matching(program, pattern)? {
                pinned[node.index()] = Some(DeviceId(position as u32));
            }
        }
        Ok(pinned)
    }

    /// Returns pairs of nodes that must share a device.
    pub(super) fn pairs(&self, program: &Program) -> Result<Vec<(NodeId, NodeId)>, PlanningError> {
        let mut pairs = Vec::new();
        for pattern in &self.colocated {
            let nodes = self.matching(program, pattern)?;
            pairs.extend(nodes.windows(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(pairs)
    }

    /// Returns the nodes with an operator whose name matches.
    fn matching(&self, program: &Program, pattern: &str) -> Result<Vec<NodeId>, PlanningError> {
        let named = |node: &NodeId| {
            let node = program.node(*node);
            matches(pattern, &node.name) || node.operators.iter().any(|operator| matches(pattern, &operator.name))
        };
        let nodes: Vec<_> = program.node_ids().filter(named).collect();
        if nodes.is_empty() && !self.of_parts {
            let meant = did_you_mean(pattern, program.nodes.iter().map(|node| node.name.as_str()));
            return Err(refused(format!(
                "no node name matches `{pattern}`{meant}; a plan lists the names; operators that only change a shape, \
                 or are computed ahead of runs, have no node"
            )));
        }
        Ok(nodes)
    }
}

/// Returns the index of the device called `name`; `what` describes its use for the error.
fn position(devices: &[MachineDevice], name: &str, what: impl FnOnce() -> String) -> Result<usize, PlanningError> {
    devices.iter().position(|device| device.name == name).ok_or_else(|| {
        let known: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        let (what, meant, known) = (what(), did_you_mean(name, known.iter().copied()), known.join(", "));
        refused(format!("{what} `{name}`, but there is no such device{meant}; the devices are {known}")).at_device(name)
    })
}

fn refused(text: String) -> PlanningError {
    PlanningError::new(ErrorKind::Constraint, text)
}
