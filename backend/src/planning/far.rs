//! Constants that come from beyond a core's own cache, because all that a device reads in a run is more than that holds: where a node's weights
//! are when it begins depends on what else its device does.

use crate::plan::MachineDevice;
use crate::profile::MachineCosts;
use crate::program::{Node, NodeId, Origin, Program, ValueId};
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// What each node of a program reads.
pub(crate) struct Reads {
    /// Bytes of constants.
    constants: Vec<f64>,
    /// Bytes of all else that it reads or writes.
    others: Vec<f64>,
}

impl Reads {
    /// Of all nodes. O(nodes × tensors of a node).
    pub(crate) fn of(program: &Program) -> Self {
        let constants: Vec<f64> = program.nodes.iter().map(|node| constant_bytes(program, node)).collect();
        let others = program.nodes.iter().zip(&constants);
        let others = others.map(|(node, constants)| (node.spec.work().bytes() - constants).max(0.0)).collect();
        Self { constants, others }
    }

    /// Seconds that a node's constants take longer to come where each byte takes so much longer.
    pub(crate) fn seconds(&self, node: NodeId, far: f64) -> f64 {
        self.constants[node.index()] * far
    }

    /// By device, seconds that each byte of constants takes longer to come if all nodes are there: 0 where its own cache holds all that they
    /// read in a run, on GPUs, and where nothing was measured. O(nodes + devices).
    pub(crate) fn alone(&self, devices: &[MachineDevice], known: &MachineCosts) -> Vec<f64> {
        let most = self.others.iter().copied().fold(0.0, f64::max);
        let held = self.constants.iter().sum::<f64>() + most;
        devices.iter().map(|device| far(device, known, held)).collect()
    }

    /// The same where nodes are on the devices that `device_of` names.
    pub(crate) fn placed(
        &self,
        devices: &[MachineDevice],
        known: &MachineCosts,
        device_of: impl Fn(NodeId) -> DeviceId,
    ) -> Vec<f64> {
        let mut held = vec![(0.0, 0.0f64); devices.len()];
        for (node, (constants, others)) in (0u32..).zip(self.constants.iter().zip(&self.others)) {
            let held = &mut held[device_of(NodeId(node)).index()];
            *held = (held.0 + constants, held.1.max(*others));
        }
        devices.iter().zip(held).map(|(device, (constants, others))| far(device, known, constants + others)).collect()
    }
}

/// Seconds that each byte of constants takes longer on a device whose nodes read so many bytes in a run.
fn far(device: &MachineDevice, known: &MachineCosts, held: f64) -> f64 {
    let far = room(device).is_some_and(|room| held > room);
    if far { known.far(&device.key) * device.times } else { 0.0 }
}

/// Where each node is if CPU devices share them out, each a stretch whose constants its own cache holds: none where one device's cache holds all
/// constants, or those of all together do not. O(nodes).
pub(super) fn spread(program: &Program, devices: &[MachineDevice]) -> Option<Vec<DeviceId>> {
    let cpus = (0u32..).zip(devices).filter_map(|(at, device)| Some((DeviceId(at), room(device)?)));
    let cpus: Vec<(DeviceId, f64)> = cpus.collect();
    let read: Vec<f64> = program.nodes.iter().map(|node| constant_bytes(program, node)).collect();
    let (all, rooms): (f64, f64) = (read.iter().sum(), cpus.iter().map(|(_, room)| room).sum());
    if all > rooms || cpus.iter().any(|(_, room)| all <= *room) {
        return None;
    }
    let (mut cpus, mut before, mut end) = (cpus.into_iter().peekable(), 0.0, 0.0);
    let mut here = cpus.next()?;
    end += here.1 / rooms * all;
    let place = |read: &f64| {
        // A node belongs where the middle of its constants does.
        while before + read / 2.0 > end && cpus.peek().is_some() {
            here = cpus.next().unwrap_or(here);
            end += here.1 / rooms * all;
        }
        before += read;
        here.0
    };
    Some(read.iter().map(place).collect())
}

/// Bytes that the cores of a CPU device have of caches of their own, if that is known.
fn room(device: &MachineDevice) -> Option<f64> {
    let room = device.cache * device.threads as u64;
    (device.kind == DeviceKind::Cpu && room > 0).then_some(room as f64)
}

/// Bytes of constants that a node reads: of a table no more than it touches.
fn constant_bytes(program: &Program, node: &Node) -> f64 {
    let is_constant = |value: &&ValueId| matches!(program.value(**value).origin, Origin::Constant(_));
    let constants = node.inputs.iter().filter(is_constant).map(|value| program.value(*value).spec.bytes() as f64);
    constants.sum::<f64>().min(node.spec.work().bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Sample;
    use crate::program::floats;
    use anabranch_kernels::Tensor;
    use anabranch_kernels::op::{MatMul, Op};

    /// A row times four matrices of 4 KiB.
    fn program() -> Program {
        let mut program = Program::default();
        let mut last = program.add_input("x", floats(&[1, 32]));
        for at in 0..4 {
            let spec = floats(&[32, 32]);
            let weights = Tensor::from_elements(spec.shape.clone(), &[0f32; 1024]).expect("as many");
            let weights = program.add_value(format!("w{at}"), spec, Origin::Constant(weights.into()));
            last =
                program.add_node(format!("y{at}"), Op::MatMul(MatMul::default()), &[last, weights], floats(&[1, 32]));
        }
        program.add_output("y", last);
        program
    }

    /// Cores of 10 KiB of cache each, and a GPU.
    fn devices(threads: usize) -> [MachineDevice; 3] {
        let device = |key: &str, kind: DeviceKind| MachineDevice {
            name: key.into(),
            kind,
            key: key.into(),
            memory: 1 << 30,
            times: 2.0,
            threads,
            cache: 10 << 10,
        };
        [device("a", DeviceKind::Cpu), device("b", DeviceKind::Cpu), device("c", DeviceKind::Gpu)]
    }

    /// On the first and the last of the devices it was measured that a MiB takes 1 ms longer from beyond.
    fn seconds(threads: usize, device_of: &[u32]) -> Vec<f64> {
        let mut known = MachineCosts::default();
        for key in ["a", "c"] {
            let far = &mut known.devices.entry(key.into()).or_default().far;
            assert!(far.add(Sample { nanoseconds: 1e6, cold: false, at: 0 }));
        }
        let (program, devices) = (program(), devices(threads));
        let (reads, on) = (Reads::of(&program), |node: NodeId| DeviceId(device_of[node.index()]));
        let far = reads.placed(&devices, &known, on);
        if device_of.iter().all(|device| *device == device_of[0]) {
            let at = device_of[0] as usize;
            assert_eq!(reads.alone(&devices, &known)[at], far[at], "as if all were there");
        }
        program.node_ids().map(|node| reads.seconds(node, far[on(node).index()])).collect()
    }

    #[test]
    fn constants_are_far_where_a_device_reads_more_than_its_cache_holds() {
        let far = 2.0 * 1e-3 / 256.0;
        assert_eq!(seconds(1, &[0; 4]), [far; 4]);
        // Two matrices and what goes in and out; two cores hold all four.
        assert_eq!(seconds(1, &[0, 0, 1, 1]), [0.0; 4]);
        assert_eq!(seconds(2, &[0; 4]), [0.0; 4]);
        assert_eq!(seconds(1, &[0, 1, 0, 0]), [far, 0.0, far, far]);
        // Nothing was measured there, and a GPU has its own ways.
        assert_eq!(seconds(1, &[1; 4]), [0.0; 4]);
        assert_eq!(seconds(1, &[2; 4]), [0.0; 4]);
    }

    #[test]
    fn constants_are_spread_where_all_caches_together_hold_them() {
        let of = |devices: &[MachineDevice]| spread(&program(), devices).map(|on| on.iter().map(|on| on.0).collect());
        assert_eq!(of(&devices(1)), Some(vec![0, 0, 1, 1]));
        assert_eq!(of(&devices(2)), None, "one holds all");
        assert_eq!(of(&devices(1)[..1]), None, "all together hold less");
        let mut uneven = devices(1);
        uneven[0].cache = 5 << 10;
        uneven[1].cache = 14 << 10;
        assert_eq!(of(&uneven), Some(vec![0, 1, 1, 1]));
    }
}
