//! Processors for stages: each core of the session's CPU devices, several cores of one device as a group, and each GPU
//! with a core that feeds it.

use super::teams::Team;
use anabranch_costs::MachineCosts;
use anabranch_device::{CpuDevice, CpuGranularity, DetectOptions, Inventory, detect};
use anabranch_execute::{ComputeDevice, DevicePool, GpuOpener};
use anabranch_kernels::op::Precision;
use anabranch_placement_core::platform::DeviceId;
use anabranch_planning::{Machine, compute_devices};
use anabranch_session::{Session, SessionError};
use std::sync::Arc;

/// A processor that a stage can run on.
#[derive(Clone)]
pub(super) struct Processor {
    /// Name in reports: `cpu0.1` is the second core of `cpu0`.
    pub(super) name: String,
    /// Key of its costs in the cost store.
    pub(super) key: String,
    /// Devices that a stage's plan is made for: the core, and the GPU that it feeds.
    pub(super) devices: Inventory,
    /// Index of the session's device that each of these is, or is a part of.
    pub(super) homes: Vec<usize>,
}

impl Processor {
    /// Whether it is a core.
    pub(super) fn is_core(&self) -> bool {
        self.devices.gpus.is_empty()
    }

    /// Returns the machine that a stage on it is planned for.
    pub(super) fn machine(&self, costs: &MachineCosts) -> Machine {
        Machine::present(&self.devices, costs)
    }

    /// Makes its threads and devices. A GPU is the one that the session has opened.
    pub(super) fn pool(&self, session: &Session) -> Arc<DevicePool> {
        let mut devices = compute_devices(&self.devices, Precision::F32);
        if let Some(gpu @ ComputeDevice::Gpu(_)) = devices.last_mut() {
            let (pool, id) = (Arc::clone(&session.pool), DeviceId(self.homes[1] as u32));
            let open = move || pool.gpu(id).map_err(|error| anabranch_kernels::KernelError::Gpu(error.to_string()));
            *gpu = ComputeDevice::Gpu(GpuOpener::with(gpu.name().to_owned(), open));
        }
        DevicePool::with_pinned(devices, session.pool.pins_memory())
    }
}

/// Returns the processors of a session's devices, cores first, and the cores that belong to one device.
///
/// GPUs that the session has given up are left out.
///
/// # Errors
/// If the machine's cores cannot be told apart.
pub(super) fn processors(session: &Session) -> Result<(Vec<Processor>, Vec<Team>), SessionError> {
    let inventory = session.inventory();
    let fine = detect(&DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core))?;
    let part = |cpus: Vec<CpuDevice>| Inventory { cpus, gpus: Vec::new(), notes: Vec::new(), ..inventory.clone() };
    let (mut all, mut teams) = (Vec::new(), Vec::new());
    for (home, device) in inventory.cpus.iter().enumerate() {
        let first = all.len();
        for core in cores(device, &fine.cpus) {
            let (name, key) = (core.name.clone(), core.key.clone());
            all.push(Processor { name, key, devices: part(vec![core]), homes: vec![home] });
        }
        if all.len() > first + 1 {
            teams.push(Team { device: device.clone(), home, cores: (first..all.len()).collect() });
        }
    }
    // The last core: a pipeline of few stages leaves it idle.
    let feeding = all.last().cloned();
    let lost = session.lost_devices();
    // Indices count all GPUs: filter after numbering.
    for (place, gpu) in inventory.gpus.iter().enumerate().filter(|(_, gpu)| !lost.contains(&gpu.name)) {
        if let Some(Processor { devices, homes, .. }) = &feeding {
            let devices = Inventory { gpus: vec![gpu.clone()], ..devices.clone() };
            let homes = vec![homes[0], inventory.cpus.len() + place];
            all.push(Processor { name: gpu.name.clone(), key: gpu.key.clone(), devices, homes });
        }
    }
    Ok((all, teams))
}

/// Returns each of a session's devices as one processor: CPU devices with all their cores, and GPUs with the first CPU
/// device, which feeds them. GPUs that the session has given up are left out.
pub(super) fn whole_devices(session: &Session) -> Vec<Processor> {
    let inventory = session.inventory();
    let part =
        |cpu: &CpuDevice, gpus| Inventory { cpus: vec![cpu.clone()], gpus, notes: Vec::new(), ..inventory.clone() };
    let cpu = |(home, device): (usize, &CpuDevice)| Processor {
        name: device.name.clone(),
        key: device.key.clone(),
        devices: part(device, Vec::new()),
        homes: vec![home],
    };
    let mut all: Vec<Processor> = inventory.cpus.iter().enumerate().map(cpu).collect();
    let lost = session.lost_devices();
    if let Some(feeding) = inventory.cpus.first() {
        for (place, gpu) in inventory.gpus.iter().enumerate().filter(|(_, gpu)| !lost.contains(&gpu.name)) {
            let (name, key, devices) = (gpu.name.clone(), gpu.key.clone(), part(feeding, vec![gpu.clone()]));
            all.push(Processor { name, key, devices, homes: vec![0, inventory.cpus.len() + place] });
        }
    }
    all
}

/// Splits a device into devices of one core each. A device of one thread stays as it is.
fn cores(device: &CpuDevice, fine: &[CpuDevice]) -> Vec<CpuDevice> {
    let mut left: Vec<_> = fine.iter().collect();
    let mut cores = Vec::new();
    for unit in device.team() {
        if let Some(at) = left.iter().position(|core| core.pus.contains(unit)) {
            let core = left.remove(at).clone();
            let name = format!("{}.{}", device.name, cores.len());
            let core = CpuDevice { name, threads: 1, pus: vec![*unit], memory: device.memory, ..core };
            cores.push(if device.slowdown > 1.0 { core.slowed(device.slowdown) } else { core });
        }
    }
    if cores.len() < 2 { vec![device.clone()] } else { cores }
}
