//! Extra time of constants that do not stay in a device's own cache between runs.
//!
//! All constants that a device reads in a run, and the other data of its largest node, may exceed the cache. Where a
//! node's weights are when it starts therefore depends on the other nodes of its device.

use anabranch_costs::{CostSource, MachineCosts, NodeCost};
use anabranch_ir::program::{Node, NodeId, Origin, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::MachineDevice;
use std::collections::BTreeMap;

/// Largest extra time of constants, as a multiple of the node's time with cached constants: kernels hide much of it
/// behind arithmetic.
const MOST: f64 = 4.0;

/// Constants that the nodes of a program read.
pub struct Constants {
    /// Constants that each node reads, and the bytes that it touches of each.
    read: Vec<Vec<(ValueId, f64)>>,
    /// Bytes of all other data that each node reads or writes.
    others: Vec<f64>,
}

/// Seconds of a node that takes `near` seconds with cached constants, if loading its constants takes `far` extra
/// seconds.
pub fn with_far(near: f64, far: f64) -> f64 {
    near + far.min(MOST * near)
}

/// Seconds that a node would take with cached constants: the inverse of [`with_far`].
pub fn without_far(seconds: f64, far: f64) -> f64 {
    seconds - far.min(MOST / (1.0 + MOST) * seconds)
}

impl Constants {
    /// Collects the constants of all nodes. O(nodes × tensors of a node).
    pub fn of(program: &Program) -> Self {
        let read: Vec<_> = program.nodes.iter().map(|node| constants_of(program, node)).collect();
        let others = program.nodes.iter().zip(&read);
        let others = others.map(|(node, read)| (node.spec.work().bytes() - bytes(read)).max(0.0)).collect();
        Self { read, others }
    }

    /// Extra seconds for a node's constants if each byte takes `far` extra seconds.
    pub fn seconds(&self, node: NodeId, far: f64) -> f64 {
        bytes(&self.read[node.index()]) * far
    }

    /// Predicted cost of a node with cached constants, if each of their bytes takes `far` extra seconds.
    ///
    /// Rates include the time of bytes from memory, so that the extra time is subtracted from them.
    pub(super) fn near(&self, node: NodeId, cost: NodeCost, far: f64) -> NodeCost {
        match cost.source {
            CostSource::Scaled { .. } | CostSource::Roofline | CostSource::Assumed => {
                NodeCost { seconds: without_far(cost.seconds, self.seconds(node, far)), ..cost }
            }
            CostSource::Measured { .. }
            | CostSource::Cold { .. }
            | CostSource::Fitted { .. }
            | CostSource::OtherKernels { .. } => cost,
        }
    }

    /// Returns [`Self::seconds`] for a node with this predicted cost; 0 if other kernels were measured, whose times
    /// still include the extra time.
    pub(super) fn of_cost(&self, node: NodeId, cost: &NodeCost, far: f64) -> f64 {
        if matches!(cost.source, CostSource::OtherKernels { .. }) { 0.0 } else { self.seconds(node, far) }
    }

    /// Extra seconds per byte of constants, by device, if all nodes are on that device.
    ///
    /// 0 if the device's cache holds all that the nodes read in a run, on GPUs, and without measurements. O(devices +
    /// reads × log reads).
    pub(crate) fn alone(&self, devices: &[MachineDevice], known: &MachineCosts) -> Vec<f64> {
        let held = self.held(1, |_| 0)[0];
        devices.iter().map(|device| far(device, known, held)).collect()
    }

    /// Extra seconds per byte of constants, by device, if nodes are on the devices that `device_of` names.
    pub fn placed(
        &self,
        devices: &[MachineDevice],
        known: &MachineCosts,
        device_of: impl Fn(NodeId) -> DeviceId,
    ) -> Vec<f64> {
        let held = self.held(devices.len(), |node| device_of(node).index());
        devices.iter().zip(held).map(|(device, held)| far(device, known, held)).collect()
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

/// Extra seconds per byte of constants on a device that would have to hold `held` bytes.
fn far(device: &MachineDevice, known: &MachineCosts, held: f64) -> f64 {
    let far = room(device).is_some_and(|room| held > room);
    if far { known.far(&device.key) * device.times } else { 0.0 }
}

/// Places the nodes on these CPU devices in consecutive stretches whose constants fit each device's own cache.
///
/// `None` if one device's cache holds all constants, if all caches together do not, or if the gain is unknown.
/// O(nodes + reads × log reads).
pub(super) fn spread(
    program: &Program,
    devices: &[MachineDevice],
    known: &MachineCosts,
    is_there: impl Fn(DeviceId) -> bool,
) -> Option<Vec<DeviceId>> {
    let constants = Constants::of(program);
    let most = constants.others.iter().copied().fold(0.0, f64::max);
    // The other data of a node needs space in the cache, too.
    let room = |device: &MachineDevice| room(device).map(|room| room - most).filter(|room| *room > 0.0);
    let cpus = (0u32..).zip(devices).filter(|(at, device)| is_there(DeviceId(*at)) && known.far(&device.key) > 0.0);
    let cpus: Vec<(DeviceId, f64)> = cpus.filter_map(|(at, device)| Some((DeviceId(at), room(device)?))).collect();
    let read: Vec<f64> = constants.read.iter().map(|read| bytes(read)).collect();
    let (all, rooms): (f64, f64) = (read.iter().sum(), cpus.iter().map(|(_, room)| room).sum());
    if all > rooms || cpus.iter().any(|(_, room)| all <= *room) {
        return None;
    }
    let (mut cpus, mut before) = (cpus.into_iter(), 0.0);
    let mut here = cpus.next()?;
    let mut end = here.1 / rooms * all;
    let place = |read: &f64| {
        // A node goes to the device that holds the middle of its constants.
        while before + read / 2.0 > end {
            let Some(next) = cpus.next() else { break };
            here = next;
            end += here.1 / rooms * all;
        }
        before += read;
        here.0
    };
    Some(read.iter().map(place).collect())
}

/// Total size of the own caches of a CPU device's cores in bytes, if it is known.
fn room(device: &MachineDevice) -> Option<f64> {
    let room = device.cache.saturating_mul(device.threads as u64);
    (device.kind == DeviceKind::Cpu && room > 0).then_some(room as f64)
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
mod tests {
    use super::*;
    use anabranch_costs::Sample;
    use anabranch_ir::program::floats;
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

    /// Devices whose cores have 10 KiB of cache each, and a GPU.
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

    /// Measurements of an extra 1 ms per MiB on all devices.
    fn known() -> MachineCosts {
        let mut known = MachineCosts::default();
        for key in ["a", "b", "c"] {
            let far = &mut known.devices.entry(key.into()).or_default().far;
            assert!(far.add(Sample { nanoseconds: 1e6, cold: false, at: 0 }));
        }
        known
    }

    fn seconds(threads: usize, device_of: &[u32]) -> Vec<f64> {
        let known = known();
        let (program, devices) = (program(), devices(threads));
        let (constants, on) = (Constants::of(&program), |node: NodeId| DeviceId(device_of[node.index()]));
        let far = constants.placed(&devices, &known, on);
        if device_of.iter().all(|device| *device == device_of[0]) {
            let at = device_of[0] as usize;
            assert_eq!(constants.alone(&devices, &known)[at], far[at], "as if all were there");
        }
        program.node_ids().map(|node| constants.seconds(node, far[on(node).index()])).collect()
    }

    #[test]
    fn constants_are_far_where_a_device_reads_more_than_its_cache_holds() {
        let far = 2.0 * 1e-3 / 256.0;
        assert_eq!(seconds(1, &[0; 4]), [far; 4]);
        // One core holds two matrices with the node's other data; two cores hold all four.
        assert_eq!(seconds(1, &[0, 0, 1, 1]), [0.0; 4]);
        assert_eq!(seconds(2, &[0; 4]), [0.0; 4]);
        assert_eq!(seconds(1, &[0, 1, 0, 0]), [far, 0.0, far, far]);
        // GPUs and unmeasured devices have no extra time.
        assert_eq!(seconds(1, &[2; 4]), [0.0; 4]);
        let unknown = Constants::of(&program()).alone(&devices(1), &MachineCosts::default());
        assert_eq!(unknown, [0.0; 3]);
    }

    #[test]
    fn a_constant_that_several_nodes_read_is_held_once() {
        let mut program = program();
        let first = program.nodes[0].inputs[1];
        program.nodes.iter_mut().for_each(|node| node.inputs[1] = first);
        assert_eq!(Constants::of(&program).alone(&devices(1), &known()), [0.0; 3]);
    }

    #[test]
    fn what_is_charged_is_taken_out_again() {
        for (near, far) in [(1e-6, 0.0), (1e-6, 3e-6), (1e-6, 9e-6), (5e-3, 1e-6)] {
            let seconds = with_far(near, far);
            assert!(seconds <= 5.0 * near * (1.0 + 1e-12) && (without_far(seconds, far) / near - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_rates_say_has_constants_come_from_memory() {
        let (constants, node) = (Constants::of(&program()), NodeId(0));
        let near = |source| {
            let cost = NodeCost { seconds: 10e-6, spread: None, source };
            constants.near(node, cost, 1e-3 / f64::from(1 << 20)).seconds
        };
        let far = 1e-3 / 256.0;
        assert!((near(CostSource::Roofline) - (10e-6 - far)).abs() < 1e-12);
        assert!((near(CostSource::Scaled { nodes: 2 }) - (10e-6 - far)).abs() < 1e-12);
        assert_eq!(near(CostSource::Measured { samples: 3 }), 10e-6);
    }

    #[test]
    fn constants_are_spread_where_all_caches_together_hold_them() {
        let known = known();
        let of = |devices: &[MachineDevice]| {
            let on = spread(&program(), devices, &known, |device| device != DeviceId(2));
            on.map(|on| on.iter().map(|on| on.0).collect())
        };
        assert_eq!(of(&devices(1)), Some(vec![0, 0, 1, 1]));
        assert_eq!(of(&devices(2)), None, "one holds all");
        assert_eq!(of(&devices(1)[..1]), None, "all together hold less");
        assert_eq!(spread(&program(), &devices(1), &MachineCosts::default(), |_| true), None, "nothing is known");
        let mut uneven = devices(1);
        uneven[0].cache = 5 << 10;
        uneven[1].cache = 14 << 10;
        assert_eq!(of(&uneven), Some(vec![0, 1, 1, 1]));
    }
}
