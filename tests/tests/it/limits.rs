//! Under memory limits, `auto` finds a plan whenever another strategy does, and its forecast is at least as fast.
//! Limits range from a model's unlimited need down to the smallest that any strategy manages. The machines do not
//! exist; the graphs are bundled models and graphs of other shapes.

use anabranch::costs::MachineCosts;
use anabranch::device::{CpuGranularity, DetectOptions, detect};
use anabranch::execute::Weights;
use anabranch::plan::Residency;
use anabranch::planning::{Constraints, Lowered, Machine, PlanChoice, Planned, Planner, PlanningError};
use anabranch::program::Program;
use anabranch::{ErrorKind, PlanOptions, PlatformFile, Strategy};
use anabranch_tests::programs::{branches, bundled, few_bytes, many_weights, skips, wide_middle};
use serde_json::json;
use std::sync::Arc;

/// Smallest limit that is tried, relative to the greatest.
const FINEST: f64 = 1.0 / 16.0;

/// Device that does not exist: its kind, its floating-point operations per second, and its share of a limit.
type Described = (&'static str, f64, f64);

/// Machines: one CPU; a CPU and a faster GPU; two CPU devices and a slower GPU.
const MACHINES: [&[Described]; 3] = [
    &[("cpu", 1e10, 1.0)],
    &[("cpu", 1e10, 1.0), ("gpu", 8e10, 0.5)],
    &[("cpu", 1e10, 1.0), ("cpu", 1e10, 0.5), ("gpu", 2e9, 0.5)],
];

fn machine(devices: &[Described], limit: f64) -> Machine {
    let device = |(at, (kind, flops, part)): (usize, &Described)| {
        json!({"name": format!("{kind}{at}"), "kind": kind, "memory": (limit * part) as u64,
               "rates": {"matmul_flops": flops, "conv_flops": flops, "map_flops": flops / 4.0, "bandwidth": flops,
                         "launch": 1e-6}})
    };
    let devices: Vec<_> = devices.iter().enumerate().map(device).collect();
    let file = json!({"format": "anabranch-platform", "version": 1, "devices": devices});
    let file: PlatformFile = serde_json::from_value(file).expect("a sound platform");
    let options = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    let inventory = detect(&options).expect("there is a CPU");
    Machine::described(&file, &inventory, &MachineCosts::default()).expect("a sound platform")
}

fn lowered(program: Program) -> Lowered {
    Lowered { program: Arc::new(program), weights: Arc::new(Weights::default()), rest: None }
}

fn plan(lowered: &Lowered, machine: &Machine, strategy: &str) -> Result<Planned, PlanningError> {
    let strategy = Strategy::algorithm(strategy).expect("one of the algorithms");
    let planner = Planner { lowered, machine, constraints: &Constraints::default() };
    planner.plan(&PlanChoice { strategy, ..PlanChoice::default() })
}

fn peaks(planned: &Planned) -> Vec<u64> {
    planned.plan().memory().devices().iter().map(|memory| memory.peak()).collect()
}

/// Returns all strategies but `exact`, which begins with the result of `auto` and takes long.
fn algorithms() -> impl Iterator<Item = &'static str> {
    Strategy::algorithms().map(|(algorithm, _)| algorithm).filter(|name| *name != "exact")
}

/// Returns the strategies that have a plan, and the forecast time of each, in seconds. All plans keep the limits.
fn fitting(name: &str, lowered: &Lowered, machine: &Machine) -> Vec<(&'static str, f64)> {
    let has_gpu = machine.devices.iter().any(|device| device.name.starts_with("gpu"));
    let algorithms = algorithms().filter(|name| has_gpu || *name != "gpu");
    let fits = |algorithm| match plan(lowered, machine, algorithm) {
        Ok(planned) => {
            let (peaks, memory) = (peaks(&planned), machine.memory());
            assert!(peaks.iter().zip(&memory).all(|(peak, limit)| peak <= limit), "{name} by {algorithm}: {peaks:?}");
            assert_eq!(anabranch::plan::check(&planned.program, planned.plan()), [], "{name} by {algorithm}");
            Some((algorithm, planned.plan().predicted().makespan))
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Memory, "{name} by {algorithm}: {error}");
            None
        }
    };
    algorithms.filter_map(fits).collect()
}

/// Checks that `auto` is as good as any strategy within a limit. Returns whether any strategy has a plan.
fn auto_is_best(name: &str, lowered: &Lowered, machine: &Machine) -> bool {
    let fitting = fitting(name, lowered, machine);
    let least = fitting.iter().map(|(_, makespan)| *makespan).reduce(f64::min);
    let auto = fitting.iter().find(|(algorithm, _)| *algorithm == "auto").map(|(_, makespan)| *makespan);
    assert_eq!(auto, least, "{name} within {:?} bytes: {fitting:?}", machine.memory());
    auto.is_some()
}

/// Checks limits from the peak of the CPU alone to the smallest that any strategy manages.
fn down_to_the_smallest(name: &str, program: Program) {
    let lowered = lowered(program);
    for devices in MACHINES {
        let alone = plan(&lowered, &machine(devices, 1e15), "cpu").expect("no limit");
        let peak = peaks(&alone).into_iter().max().expect("there are devices") as f64;
        assert!(auto_is_best(name, &lowered, &machine(devices, peak)), "{name} in what it takes without a limit");
        let (mut refused, mut managed) = (0.0, 1.0);
        while managed - refused > FINEST {
            let middle = (refused + managed) / 2.0;
            let fits = auto_is_best(name, &lowered, &machine(devices, peak * middle));
            *(if fits { &mut managed } else { &mut refused }) = middle;
        }
        assert!(refused > 0.0, "{name}: something has to be too small");
    }
}

#[test]
fn no_strategy_is_better_than_auto_with_a_bundled_model() {
    for name in ["encoder", "fire", "lstm", "unet"] {
        down_to_the_smallest(name, bundled(name));
    }
}

#[test]
fn no_strategy_is_better_than_auto_with_other_shapes() {
    let shapes = [("wide middle", wide_middle()), ("branches", branches()), ("skips", skips())];
    shapes
        .into_iter()
        .chain([("many weights", many_weights())])
        .for_each(|(name, made)| down_to_the_smallest(name, made));
}

/// A GPU that is worth uploading weights to, with less and less memory: the plan with streamed weights is chosen only
/// if it is shorter.
#[test]
fn weights_are_staged_where_that_is_forecast_to_be_shorter() {
    let lowered = lowered(many_weights());
    let devices = [("cpu", 1e9, 1e6), ("gpu", 8e11, 1.0)];
    let by = |strategy, limit, weights| {
        let machine = machine(&devices, limit);
        let planner = Planner { lowered: &lowered, machine: &machine, constraints: &Constraints::default() };
        let plan = PlanOptions::default().with_weights(weights);
        planner.plan(&PlanChoice { strategy, plan, ..PlanChoice::default() }).expect("the CPU has room")
    };
    let planned = |limit, weights| by(Strategy::AUTO, limit, weights);
    let sent = |planned: &Planned| planned.plan().staged(&planned.program).values().map(|sent| sent.bytes).sum::<u64>();
    let peak = peaks(&planned(1e12, Residency::Resident))[1] as f64;
    let mut staged = 0;
    for part in [1.0, 0.8, 0.5, 0.2] {
        let [auto, resident] = [Residency::Auto, Residency::Resident].map(|weights| planned(peak * part, weights));
        let [shorter, other] = [&auto, &resident].map(|planned| planned.plan().predicted().makespan);
        assert!(shorter <= other && sent(&resident) == 0, "{part} of {peak} bytes: {shorter} {other}");
        assert!(sent(&auto) == 0 || shorter < other, "{part} of {peak} bytes: {shorter} {other}");
        assert!(part < 1.0 || sent(&auto) == 0, "all weights fit");
        assert!(peaks(&auto)[1] as f64 <= peak * part);
        staged += usize::from(sent(&auto) > 0);
    }
    assert!(staged > 1, "nothing was staged");
    let all = by(Strategy::GPU, peak / 2.0, Residency::Staged);
    assert_eq!(sent(&all), 16 * 256 * 256 * 4, "every weight of 256 KiB is sent, and no bias");
}

#[test]
fn weights_of_a_few_bytes_are_staged_byte_by_byte() {
    let lowered = lowered(few_bytes());
    let planned = |limit: u64| {
        let machine = machine(&[("cpu", 1e9, 1e6), ("gpu", 8e11, 1.0)], limit as f64);
        let planner = Planner { lowered: &lowered, machine: &machine, constraints: &Constraints::default() };
        planner.plan(&PlanChoice { strategy: Strategy::Device("gpu1".into()), ..PlanChoice::default() })
    };
    let peak = peaks(&planned(1 << 30).expect("no limit"))[1];
    let fits: Vec<bool> =
        (1..=16).map(|less| planned(peak - less).is_ok_and(|p| peaks(&p)[1] <= peak - less)).collect();
    assert!(fits[0] && fits.is_sorted_by_key(|fits| !fits), "{fits:?}");
}

#[test]
fn no_strategy_refuses_where_a_gpu_has_room() {
    for (name, flops) in [("fire", 2e9), ("vit", 8e10)] {
        let devices = [("cpu", 1e10, 1.0), ("gpu", flops, 1e6)];
        let lowered = lowered(bundled(name));
        let on_host = |strategy| peaks(&plan(&lowered, &machine(&devices, 1e12), strategy).expect("no limit"))[0];
        // Memory on the CPU if a GPU runs all nodes.
        let (peak, least) = (on_host("cpu"), on_host("gpu"));
        for limit in [0.99, 0.6, 0.25].map(|part| peak as f64 * part).into_iter().filter(|limit| *limit >= least as f64)
        {
            let fitting = fitting(name, &lowered, &machine(&devices, limit));
            assert_eq!(fitting.len(), algorithms().count(), "{name} in {limit} of {peak} bytes: {fitting:?}");
        }
    }
}
