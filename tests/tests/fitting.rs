//! What does not fit the devices as it was placed is planned so that it does, on machines that are not there: with limits from the peak
//! without limits down to a quarter of it.

use anabranch::planning::Planned;
use anabranch::session::{Session, SessionError};
use anabranch::{DeviceId, ErrorKind, PlatformFile, SessionOptions, Strategy};
use anabranch_tests::{model, one_cpu, reference, strategy};
use serde_json::json;

/// Limits in percent of the peak.
const STEPS: [u64; 3] = [99, 60, 25];

/// Floating-point operations per second of the GPU: slower and faster than the CPU.
const GPUS: [f64; 2] = [2e9, 8e10];

/// A CPU of 1e10 operations per second and a GPU, with so many bytes each.
fn machine(gpu: f64, bytes: [u64; 2]) -> PlatformFile {
    let device = |name: &str, kind: &str, flops: f64, bytes: u64| {
        json!({"name": name, "kind": kind, "memory": bytes, "rates": {"matmul_flops": flops, "conv_flops": flops,
               "map_flops": flops / 4.0, "bandwidth": flops, "launch": 1e-6}})
    };
    let devices = [device("cpu0", "cpu", 1e10, bytes[0]), device("gpu0", "gpu", gpu, bytes[1])];
    let file = json!({"format": "anabranch-platform", "version": 1, "devices": devices});
    serde_json::from_value(file).expect("a sound platform")
}

fn plan(name: &str, options: SessionOptions) -> Result<Planned, SessionError> {
    let session = Session::open(model(name), options).expect("a bundled model opens");
    session.plan(&reference(name).0)
}

fn plan_on(name: &str, strategy: Strategy, platform: PlatformFile) -> Result<Planned, SessionError> {
    let mut options = one_cpu().with_strategy(strategy);
    options.platform = Some(platform);
    plan(name, options)
}

fn peaks(planned: &Planned) -> [u64; 2] {
    [0, 1].map(|device| planned.plan().memory().devices()[device].peak())
}

/// Plans by every strategy, and asserts that what fits keeps the limits and that `auto` fits if any does. The strategies that do.
fn fitting(name: &str, gpu: f64, limits: [u64; 2]) -> Vec<&'static str> {
    let fits = |algorithm: &&str| match plan_on(name, strategy(algorithm), machine(gpu, limits)) {
        Ok(planned) => {
            let peaks = peaks(&planned);
            assert!(peaks.iter().zip(limits).all(|(peak, limit)| *peak <= limit), "{name} by {algorithm}: {peaks:?}");
            assert_eq!(anabranch::plan::check(&planned.program, planned.plan()), [], "{name} by {algorithm}");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Memory, "{name} by {algorithm} within {limits:?}: {error}");
            false
        }
    };
    let fitting: Vec<_> = Strategy::algorithms().map(|(algorithm, _)| algorithm).filter(fits).collect();
    assert!(fitting.is_empty() || fitting.contains(&"auto"), "{name} within {limits:?}: only {fitting:?}");
    fitting
}

#[test]
fn what_some_strategy_can_plan_auto_can() {
    for (name, gpu) in ["fire", "vit"].into_iter().zip(GPUS) {
        let free = |strategy| peaks(&plan_on(name, strategy, machine(gpu, [u64::MAX; 2])).expect("no limit"))[0];
        // What a GPU that does all leaves on the CPU.
        let (peak, least) = (free(Strategy::CPU), free(Strategy::GPU));
        for step in STEPS {
            let limit = peak * step / 100;
            let roomy = fitting(name, gpu, [limit, u64::MAX]);
            let missing = Strategy::algorithms().count() - roomy.len();
            assert!(limit < least || missing == 0, "{name} with {limit} of {peak} bytes: only {roomy:?}");
            fitting(name, gpu, [limit, limit]);
        }
    }
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
