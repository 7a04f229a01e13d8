//! Models that do not fit their devices as placed are planned again so that they fit. The machines of these tests do
//! not exist.

use anabranch::planning::Planned;
use anabranch::session::{Session, SessionError};
use anabranch::{DeviceId, ErrorKind, PlatformFile, SessionConfig, Strategy};
use anabranch_tests::{model, one_cpu, reference, strategy};
use serde_json::json;

/// Floating-point operations per second of the GPU: slower and faster than the CPU.
const GPUS: [f64; 2] = [2e9, 8e10];

/// Returns a machine with a CPU of 1e10 operations per second and a GPU, with these bytes of memory.
fn machine(gpu: f64, bytes: [u64; 2]) -> PlatformFile {
    let device = |name: &str, kind: &str, flops: f64, bytes: u64| {
        json!({"name": name, "kind": kind, "memory": bytes, "rates": {"matmul_flops": flops, "conv_flops": flops,
               "map_flops": flops / 4.0, "bandwidth": flops, "launch": 1e-6}})
    };
    let devices = [device("cpu0", "cpu", 1e10, bytes[0]), device("gpu0", "gpu", gpu, bytes[1])];
    let file = json!({"format": "anabranch-platform", "version": 1, "devices": devices});
    serde_json::from_value(file).expect("a sound platform")
}

fn plan(name: &str, options: SessionConfig) -> Result<Planned, SessionError> {
    let session = Session::open(model(name), options).expect("a bundled model opens");
    session.plan(&reference(name).0)
}

fn plan_on(name: &str, strategy: Strategy, platform: PlatformFile) -> Result<Planned, SessionError> {
    plan(name, one_cpu().with_strategy(strategy).with_platform(platform))
}

fn peaks(planned: &Planned) -> [u64; 2] {
    [0, 1].map(|device| planned.plan().memory().devices()[device].peak())
}

#[test]
fn what_moved_for_memory_says_so_and_the_same_moves_again() {
    let [peak, _] = peaks(&plan_on("unet", Strategy::CPU, machine(GPUS[0], [u64::MAX; 2])).expect("no limit"));
    for strategy in [Strategy::CPU, Strategy::HEFT] {
        let limited =
            || plan_on("unet", strategy.clone(), machine(GPUS[0], [peak / 2, u64::MAX])).expect("the GPU has room");
        let (planned, again) = (limited(), limited());
        assert!(planned.is_same_plan(&again), "{strategy}");
        let moved = planned.program.node_ids().filter(|node| planned.plan().device_of(*node) == DeviceId(1));
        let reasons: Vec<_> = moved.map(|node| planned.plan().reason(node)).collect();
        let names_bytes =
            |reason: &&&str| reason.contains("memory is short there: it held") && reason.ends_with("bytes");
        assert!(reasons.iter().any(|reason| names_bytes(&reason)), "{strategy}: {reasons:?}");
        assert_eq!(planned.plan().strategy(), strategy.to_string());
    }
}

#[test]
fn auto_names_the_strategy_whose_placement_it_changed() {
    let [peak, _] = peaks(&plan_on("encoder", Strategy::CPU, machine(GPUS[0], [u64::MAX; 2])).expect("no limit"));
    let platform = machine(GPUS[0], [peak * 9 / 10, peak / 2]);
    let planned = plan_on("encoder", Strategy::AUTO, platform).expect("together they have room");
    let names: Vec<_> = planned.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    assert!(names.contains(&"repaired cpu") && !names.contains(&"cpu"), "the CPU alone is too small: {names:?}");
    let start = names[0].strip_prefix("repaired ").expect("a changed one is the shortest");
    let moved = planned.program.node_ids().map(|node| planned.plan().reason(node));
    let moved: Vec<_> = moved.filter(|reason| reason.starts_with("moved from")).collect();
    let names_start = |reason: &&str| reason.contains(&format!(", where {start} had it, "));
    assert!(!moved.is_empty() && moved.iter().all(names_start), "{start}: {moved:?}");
    assert_eq!(planned.plan().strategy(), "auto");
}

#[test]
fn a_given_placement_stays() {
    let limited = |bytes| {
        let planned = plan_on("unet", strategy("cpu0"), machine(GPUS[1], [bytes, u64::MAX]))?;
        assert!(planned.program.node_ids().all(|node| planned.plan().device_of(node) == DeviceId(0)));
        Ok::<_, SessionError>(peaks(&planned)[0])
    };
    let peak = limited(u64::MAX).expect("no limit");
    limited(peak).expect("exactly as much as there is");
    let refused = limited(1000).expect_err("nothing may leave the CPU");
    assert_eq!((refused.kind(), refused.device()), (ErrorKind::Memory, Some("cpu0")), "{refused}");
}
