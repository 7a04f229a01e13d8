//! The devices of an inventory as the executor takes them.

use crate::device::{DeviceRef, Inventory};
use crate::execute::{ComputeDevice, CpuTeam, GpuOpener};

/// The devices of an inventory to run on, in the same order.
pub fn compute_devices(inventory: &Inventory) -> Vec<ComputeDevice> {
    let device = |device: DeviceRef<'_>| match device {
        DeviceRef::Cpu(cpu) => {
            let units = cpu.team().to_vec();
            ComputeDevice::Cpu(CpuTeam { name: cpu.name.clone(), threads: units.len(), units, slowdown: cpu.slowdown })
        }
        DeviceRef::Gpu(gpu) => ComputeDevice::Gpu(GpuOpener::new(gpu.name.clone(), gpu.adapter.clone())),
    };
    inventory.devices().map(device).collect()
}
