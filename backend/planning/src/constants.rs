//! Constants of a program, and the caches of CPU devices that hold them between runs.
//!
//! All constants that a device reads in a run, and the other data of its largest node, may exceed the cache. Where a
//! node's weights are when it starts therefore depends on the other nodes of its device.

use anabranch_costs::MachineCosts;
use anabranch_ir::program::{Node, NodeId, Origin, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::MachineDevice;
use std::collections::BTreeMap;

/// Constants that the nodes of a program read.
pub(super) struct Constants {
    /// Constants that each node reads, and the bytes that it touches of each.
    read: Vec<Vec<(ValueId, f64)>>,
    /// Bytes of all other data that each node reads or writes.
    others: Vec<f64>,
}

impl Constants {
    /// Collects the constants of all nodes. O(nodes × tensors of a node).
    pub(super) fn of(program: &Program) -> Self {
        let read: Vec<_> = program.nodes.iter().map(|node| constants_of(program, node)).collect();
        let others = program.nodes.iter().zip(&read);
        let others = others.map(|(node, read)| (node.spec.work().bytes() - bytes(read)).max(0.0)).collect();
        Self { read, others }
    }

    /// Returns the bytes of constants that a node touches.
    pub(super) fn bytes(&self, node: NodeId) -> f64 {
        bytes(&self.read[node.index()])
    }

    /// Whether the constants of each device are out of its cache, if all nodes are on that device.
    ///
    /// They are not on GPUs and on devices whose cache is unknown. O(devices + reads × log reads).
    pub(super) fn uncached_alone(&self, devices: &[MachineDevice]) -> Vec<bool> {
        let held = self.held(1, |_| 0)[0];
        devices.iter().map(|device| exceeds(held, device)).collect()
    }

    /// Whether the constants of each device are out of its cache, if nodes are on the devices that `device_of` names.
    pub(super) fn uncached(&self, devices: &[MachineDevice], device_of: impl Fn(NodeId) -> DeviceId) -> Vec<bool> {
        let held = self.held(devices.len(), |node| device_of(node).index());
        devices.iter().zip(held).map(|(device, held)| exceeds(held, device)).collect()
    }

    /// Bytes that each place holds: all constants of its nodes, each once, and the other data of its largest node.
    fn held(&self, places: usize, place_of: impl Fn(NodeId) -> usize) -> Vec<f64> {
        let mut constants: BTreeMap<(usize, ValueId), f64> = BTreeMap::new();
        let mut others = vec![0.0f64; places];
        for (node, (read, other)) in (0u32..).zip(self.read.iter().zip(&self.others)) {
            let place = place_of(NodeId(node));
            others[place] = others[place].max(*other);
            for (value, bytes) in read {
                let known = constants.entry((place, *value)).or_default();
                *known = known.max(*bytes);
            }
        }
        constants.into_iter().for_each(|((place, _), bytes)| others[place] += bytes);
        others
    }
}

/// Places the nodes on these CPU devices in consecutive stretches whose constants fit each device's own cache.
///
/// `None` if one device's cache holds all constants, if all caches together do not, or if the gain is unknown.
/// O(nodes + reads × log reads).
pub(super) fn divided(
    program: &Program,
    devices: &[MachineDevice],
    known: &MachineCosts,
    is_there: impl Fn(DeviceId) -> bool,
) -> Option<Vec<DeviceId>> {
    let constants = Constants::of(program);
    let most = constants.others.iter().copied().fold(0.0, f64::max);
    // The other data of a node needs space in the cache, too.
    let left = |device: &MachineDevice| cache(device).map(|cache| cache - most).filter(|left| *left > 0.0);
    let cpus = (0u32..).zip(devices).filter(|(at, device)| is_there(DeviceId(*at)) && known.misses(&device.key) > 0.0);
    let cpus: Vec<(DeviceId, f64)> = cpus.filter_map(|(at, device)| Some((DeviceId(at), left(device)?))).collect();
    let read: Vec<f64> = constants.read.iter().map(|read| bytes(read)).collect();
    let (all, caches): (f64, f64) = (read.iter().sum(), cpus.iter().map(|(_, cache)| cache).sum());
    if all > caches || cpus.iter().any(|(_, cache)| all <= *cache) {
        return None;
    }
    let (mut cpus, mut before) = (cpus.into_iter(), 0.0);
    let mut here = cpus.next()?;
    let mut end = here.1 / caches * all;
    let place = |read: &f64| {
        // A node goes to the device that holds the middle of its constants.
        while before + read / 2.0 > end {
            let Some(next) = cpus.next() else { break };
            here = next;
            end += here.1 / caches * all;
        }
        before += read;
        here.0
    };
    Some(read.iter().map(place).collect())
}

/// Total size of the own caches of a CPU device's cores in bytes, if it is known.
fn cache(device: &MachineDevice) -> Option<f64> {
    let cache = device.cache.saturating_mul(device.threads as u64);
    (device.kind == DeviceKind::Cpu && cache > 0).then_some(cache as f64)
}

/// Whether `held` bytes are more than the cache of a device holds.
fn exceeds(held: f64, device: &MachineDevice) -> bool {
    cache(device).is_some_and(|cache| held > cache)
}

/// Constants that a node reads, and the bytes of each; a table counts with the bytes that the node touches.
fn constants_of(program: &Program, node: &Node) -> Vec<(ValueId, f64)> {
    let touched = node.spec.work().bytes();
    let is_constant = |value: &&ValueId| matches!(program.value(**value).origin, Origin::Constant(_));
    let constants = node.inputs.iter().filter(is_constant);
    constants.map(|value| (*value, (program.value(*value).spec.bytes() as f64).min(touched))).collect()
}

fn bytes(constants: &[(ValueId, f64)]) -> f64 {
    constants.iter().map(|(_, bytes)| bytes).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use anabranch_costs::Sample;
    use anabranch_ir::program::floats;
    use anabranch_kernels::Tensor;
    use anabranch_kernels::op::{MatMul, Op};

    /// A row times four matrices of 4 KiB.
    pub(crate) fn program() -> Program {
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

    /// Devices whose cores have 10 KiB of cache each, and a GPU.
    pub(crate) fn devices(threads: usize) -> [MachineDevice; 3] {
        let device = |key: &str, kind: DeviceKind| MachineDevice {
            name: key.into(),
            kind,
            key: key.into(),
            memory: (1 << 30).into(),
            times: 2.0,
            threads,
            cache: 10 << 10,
        };
        [device("a", DeviceKind::Cpu), device("b", DeviceKind::Cpu), device("c", DeviceKind::Gpu)]
    }

    /// Measurements of an extra 1 ms per MiB on all devices.
    pub(crate) fn known() -> MachineCosts {
        let mut known = MachineCosts::default();
        for key in ["a", "b", "c"] {
            let misses = &mut known.devices.entry(key.into()).or_default().misses;
            assert!(misses.add(Sample { nanoseconds: 1e6, cold: false, at: 0 }));
        }
        known
    }

    /// Whether each node's constants are out of cache.
    fn uncached(threads: usize, device_of: &[u32]) -> Vec<bool> {
        let (program, devices) = (program(), devices(threads));
        let (constants, on) = (Constants::of(&program), |node: NodeId| DeviceId(device_of[node.index()]));
        let uncached = constants.uncached(&devices, on);
        if device_of.iter().all(|device| *device == device_of[0]) {
            let at = device_of[0] as usize;
            assert_eq!(constants.uncached_alone(&devices)[at], uncached[at], "as if all were there");
        }
        program.node_ids().map(|node| uncached[on(node).index()]).collect()
    }

    #[test]
    fn constants_are_out_of_cache_if_a_device_reads_more_than_its_cache_holds() {
        assert_eq!(uncached(1, &[0; 4]), [true; 4]);
        // One core holds two matrices with the node's other data; two cores hold all four.
        assert_eq!(uncached(1, &[0, 0, 1, 1]), [false; 4]);
        assert_eq!(uncached(2, &[0; 4]), [false; 4]);
        assert_eq!(uncached(1, &[0, 1, 0, 0]), [true, false, true, true]);
        assert_eq!(uncached(1, &[2; 4]), [false; 4], "a GPU has no such cache");
    }

    #[test]
    fn a_constant_that_several_nodes_read_is_held_once() {
        let mut program = program();
        let first = program.nodes[0].inputs[1];
        program.nodes.iter_mut().for_each(|node| node.inputs[1] = first);
        assert_eq!(Constants::of(&program).uncached_alone(&devices(1)), [false; 3]);
    }

    #[test]
    fn constants_are_divided_if_only_all_caches_together_hold_them() {
        let known = known();
        let of = |devices: &[MachineDevice]| {
            let on = divided(&program(), devices, &known, |device| device != DeviceId(2));
            on.map(|on| on.iter().map(|on| on.0).collect())
        };
        assert_eq!(of(&devices(1)), Some(vec![0, 0, 1, 1]));
        assert_eq!(of(&devices(2)), None, "one holds all");
        assert_eq!(of(&devices(1)[..1]), None, "all together hold less");
        assert_eq!(divided(&program(), &devices(1), &MachineCosts::default(), |_| true), None, "nothing is known");
        let mut uneven = devices(1);
        uneven[0].cache = 5 << 10;
        uneven[1].cache = 14 << 10;
        assert_eq!(of(&uneven), Some(vec![0, 1, 1, 1]));
    }
}
