//! The work is split as the cost model predicts: on a forced platform, the run's events show which node ran on which
//! device.

use anabranch::costs::{CostStore, DeviceCosts, LinkCosts, MachineCosts, Rates};
use anabranch::device::{CpuGranularity, DeviceRef};
use anabranch::execute::RunOptions;
use anabranch::session::Session;
use anabranch_tests::{options, reference, session};

/// Returns costs in which the GPU computes `speed` times as fast as a CPU of 10 GFLOP/s, over links of `rate` bytes per
/// second.
fn forced(session: &Session, speed: f64, rate: f64) -> CostStore {
    let rates = |factor: f64| Rates {
        matmul_flops: 1e10 * factor,
        conv_flops: 1e10 * factor,
        map_flops: 1e10 * factor,
        bandwidth: 1e10 * factor,
        launch: 1e-6,
    };
    let mut store = CostStore::default();
    let devices: Vec<_> = session.inventory().devices().collect();
    for device in &devices {
        let factor = if matches!(device, DeviceRef::Gpu(_)) { speed } else { 1.0 };
        let costs = DeviceCosts { rates: Some(rates(factor)), ..DeviceCosts::default() };
        store.here_mut().devices.insert(device.key().to_string(), costs);
        for other in &devices {
            let key = MachineCosts::link_key(device.key(), other.key());
            store.here_mut().links.insert(key, LinkCosts::affine(1e-6, rate));
        }
    }
    store
}

/// Returns the names of the devices, with the floating-point work that each did in a run of the convnet.
fn work_by_device(place: &str, speed: f64, rate: f64) -> Vec<(String, f64)> {
    let machine = |costs| {
        let options = options(place).with_costs(costs).with_cpu_devices(CpuGranularity::Machine);
        session("convnet", options)
    };
    let session = machine(forced(&machine(CostStore::default()), speed, rate));
    let (inputs, _) = reference("convnet");
    let run = session.run_with(&inputs, &RunOptions::default().with_profile(true)).expect("runs");
    let devices = run.prepared.plan().devices();
    let mut work: Vec<(String, f64)> = devices.iter().map(|device| (device.name.clone(), 0.0)).collect();
    for (node, device) in run.measured.executed() {
        assert_eq!(device, run.prepared.plan().device_of(node), "a node ran where it was not planned");
        work[device.index()].1 += run.prepared.program.node(node).spec.work().flops;
    }
    work
}

#[test]
fn a_gpu_four_times_as_fast_over_a_link_of_a_gigabyte_gets_the_most_work() {
    for place in ["heft", "mite", "cp"] {
        let work = work_by_device(place, 4.0, 1e9);
        let total: f64 = work.iter().map(|(_, flops)| flops).sum();
        let gpu = work.iter().find(|(name, _)| name == "gpu0").expect("there is a GPU").1;
        assert!(gpu > 0.5 * total, "{place}: {work:?}");
    }
}

#[test]
fn a_link_that_costs_more_than_it_brings_keeps_all_work_on_the_cpu() {
    let work = work_by_device("heft", 4.0, 1e3);
    assert!(work.iter().all(|(name, flops)| name == "cpu0" || *flops == 0.0), "{work:?}");
}

#[test]
fn a_slow_gpu_gets_nothing_from_heft() {
    let work = work_by_device("heft", 1e-3, 1e9);
    assert!(work.iter().all(|(name, flops)| name == "cpu0" || *flops == 0.0), "{work:?}");
}
