//! Constants that come from beyond a core's own cache, because all that a device reads in a run is more than that holds: where a node's weights
//! are when it begins depends on what else its device does.

use crate::plan::MachineDevice;
use crate::profile::MachineCosts;
use crate::program::{Node, NodeId, Origin, Program, ValueId};
use anabranch_placement::platform::{DeviceId, DeviceKind};

/// By node, the seconds that its constants take longer to come where nodes are on the devices that `device_of` names; 0 where a device's own
/// cache holds all that its nodes read in a run, on GPUs, and where nothing was measured. O(nodes × tensors of a node).
pub(crate) fn far_seconds(
    program: &Program,
    devices: &[MachineDevice],
    known: &MachineCosts,
    device_of: impl Fn(NodeId) -> DeviceId,
) -> Vec<f64> {
    let mut constants = vec![0.0; devices.len()];
    let mut made = vec![0.0f64; devices.len()];
    let read: Vec<f64> = program.nodes.iter().map(|node| constant_bytes(program, node)).collect();
    for id in program.node_ids() {
        let (device, node) = (device_of(id).index(), program.node(id));
        constants[device] += read[id.index()];
        made[device] = made[device].max((node.spec.work().bytes() - read[id.index()]).max(0.0));
    }
    let rate = |at: usize| {
        let device = &devices[at];
        let far = room(device).is_some_and(|room| constants[at] + made[at] > room);
        if far { known.far(&device.key) * device.times } else { 0.0 }
    };
    let rates: Vec<f64> = (0..devices.len()).map(rate).collect();
    program.node_ids().map(|id| read[id.index()] * rates[device_of(id).index()]).collect()
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
        far_seconds(&program(), &devices(threads), &known, |node| DeviceId(device_of[node.index()]))
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
