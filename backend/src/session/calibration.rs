//! Calibration: a device's peak rates and its links' latency and rate, measured by running probes through the very
//! executor that will run the models.

use super::error::SessionError;
use super::machine::{Machine, targets};
use super::placing::{Placing, Target, Wish, WishedBlocks, Wishes};
use super::prepared::{devices, plan_devices};
use super::probe::Probe;
use crate::device::Inventory;
use crate::execute::{Activity, Executor, Kernels, RunOptions};
use crate::plan::{Plan, PlanOptions, StreamMode};
use crate::profile::{CostStore, LinkCosts, Rates};
use crate::program::{NodeId, Program};
use crate::tasks::HOST;
use anabranch_kernels::Tensor;
use anabranch_kernels::gpu::GpuLimits;
use anabranch_placement::order::Pct;
use anabranch_placement::place::Fixed;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::sync::Arc;

/// Runs of each probe; the least time counts, as the one that was disturbed least.
const RUNS: usize = 4;

/// The fastest rate that a link is believed to have: what is faster took no time that could be measured.
const MOST_RATE: f64 = 1e12;

/// What the runs of one probe on one device showed, in seconds: least times.
struct Shown {
    node: f64,
    /// Host to device, and back; `None` on the host itself.
    there: Option<f64>,
    back: Option<f64>,
}

/// Measures every device that the store has no rates for, and its links with the host. Takes about a second a device. A
/// device on which probes do not fit keeps assumed rates.
///
/// # Errors
/// If a probe fails to run: then models would, too.
pub(super) fn calibrate(inventory: &Inventory, store: &mut CostStore) -> Result<(), SessionError> {
    let targets = targets(inventory);
    for (index, target) in targets.iter().enumerate() {
        let known = store.devices.get(&target.key).is_some_and(|costs| costs.rates.is_some());
        if known || !room(target, inventory) {
            continue;
        }
        let device = DeviceId(index as u32);
        let mut shown = Vec::new();
        for probe in Probe::ALL {
            shown.push((probe, show(probe.program(), device, inventory, &targets)?));
        }
        let of = |probe: Probe| shown.iter().find(|(p, _)| *p == probe).map(|(_, shown)| shown);
        let (Some(bandwidth), Some(launch)) = (of(Probe::Bandwidth), of(Probe::Launch)) else { continue };
        let costs = store.devices.entry(target.key.clone()).or_default();
        costs.rates = Some(rates(&|probe| of(probe).map_or(launch.node, |shown| shown.node)));
        learn_links(store, &targets, target, bandwidth, launch);
    }
    Ok(())
}

/// Whether the probes fit: the largest needs two tensors of 32 MiB, and staging.
fn room(target: &Target, inventory: &Inventory) -> bool {
    let bound = inventory.gpus.iter().find(|gpu| gpu.name == target.name).map(|gpu| GpuLimits::of(&gpu.adapter));
    target.memory >= 256 << 20 && bound.is_none_or(|limits| limits.binding_bytes >= 64 << 20)
}

fn rates(seconds: &dyn Fn(Probe) -> f64) -> Rates {
    let launch = seconds(Probe::Launch);
    // The launch is part of every node's time; a probe is long enough that at least a tenth of it is work.
    let rate = |probe: Probe, work: f64| work / (seconds(probe) - launch).max(seconds(probe) * 0.1).max(1e-9);
    let flops = |probe: Probe| probe.program().nodes[0].spec.work().flops;
    Rates {
        matmul_flops: rate(Probe::MatMul, flops(Probe::MatMul)),
        conv_flops: rate(Probe::Conv, flops(Probe::Conv)),
        map_flops: rate(Probe::Map, flops(Probe::Map)),
        bandwidth: rate(Probe::Bandwidth, Probe::Bandwidth.program().nodes[0].spec.work().bytes()),
        launch,
    }
}

fn learn_links(store: &mut CostStore, targets: &[Target], target: &Target, large: &Shown, small: &Shown) {
    let bytes = Probe::Bandwidth.program().values[0].spec.bytes() as f64;
    let link = |large: f64, small: f64| LinkCosts {
        latency: small,
        rate: (bytes / (large - small).max(1e-9)).clamp(1.0, MOST_RATE),
    };
    // All CPU devices stand in one memory, so what holds between host and device holds for the other CPUs, too.
    for cpu in targets.iter().filter(|other| other.kind == DeviceKind::Cpu) {
        if let (Some(large), Some(small)) = (large.there, small.there) {
            store.links.insert(CostStore::link_key(&cpu.key, &target.key), link(large, small));
        }
        if let (Some(large), Some(small)) = (large.back, small.back) {
            store.links.insert(CostStore::link_key(&target.key, &cpu.key), link(large, small));
        }
    }
}

/// Runs a probe with all its nodes on one device.
fn show(program: Program, device: DeviceId, inventory: &Inventory, targets: &[Target]) -> Result<Shown, SessionError> {
    let program = Arc::new(program);
    let machine = Machine::present(inventory, &CostStore::default());
    let runs = machine.gpu_runs(&program);
    let wishes = Wishes::default();
    let placing = Placing::new(&program, targets, &machine.store, &wishes, &|node: NodeId| runs[node.index()])?;
    let mut assignment = vec![device; program.nodes.len()];
    assignment.resize(program.nodes.len() + program.inputs.len() + program.outputs.len(), HOST);
    let wish = Wish {
        placer: Box::new(Fixed::new(assignment)),
        rule: Box::new(Pct),
        order: None,
        blocks: WishedBlocks::Formed,
    };
    let placed = placing.place(&wish, &machine.memory())?;
    let kernels = Arc::new(Kernels::new(Arc::clone(&program)));
    let plan_devices = plan_devices(targets);
    let whole = PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() };
    let chosen = (&placed.placement, &placed.schedule);
    let plan = Plan::build(&program, &plan_devices, chosen, Vec::new(), kernels.as_ref(), &whole)?;
    let executor = Executor::new(plan, kernels, devices(inventory))?;
    let inputs: Vec<_> = program.inputs.iter().map(|id| Tensor::zeroed(program.value(*id).spec.clone())).collect();
    let mut shown = Shown { node: f64::INFINITY, there: None, back: None };
    for _ in 0..RUNS {
        let run = executor.run(&inputs, &RunOptions { profile: true, ..RunOptions::default() })?;
        for event in &run.events {
            let seconds = event.end.saturating_sub(event.start) as f64 * 1e-9;
            let least = |so_far: Option<f64>| Some(so_far.map_or(seconds, |least| least.min(seconds)));
            match event.what {
                Activity::Node(_) => shown.node = shown.node.min(seconds),
                Activity::Transfer(id) if executor.plan().transfer(id).to == HOST => shown.back = least(shown.back),
                Activity::Transfer(_) => shown.there = least(shown.there),
            }
        }
    }
    Ok(shown)
}
