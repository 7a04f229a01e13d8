//! Growth of the time of each strategy with the tasks of a graph and with the devices of a platform.
//!
//! The graphs are layered, like the synthetic graph 4 of Laich 2017, Table 7.1 (about four edges per task). They have
//! 1,000 to 8,000 tasks on 16 devices, and 2,000 tasks on 4 to 64 devices. If a strategy's documentation says `O(V ×
//! devices)`, its time doubles with either; `V log V` and searches for gaps add a little. The bench also measures the
//! simulator and the lower bounds.
//!
//! It is here and not among the benches of the workspace, because it needs only the placement crate.

use anabranch_placement::bound::lower_bound;
use anabranch_placement::format::LoadedProblem;
use anabranch_placement::generate::{Devices, Layered};
use anabranch_placement::order::Pct;
use anabranch_placement::place::{STRATEGIES, strategy_by_name};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::rules::Rules;
use anabranch_placement::simulate::simulate;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

/// Levels of the graph; each has 50 tasks on average.
const LEVELS: [u32; 4] = [20, 40, 80, 160];
const DEVICES: [u32; 5] = [4, 8, 16, 32, 64];

fn problem(levels: u32, devices: u32) -> LoadedProblem {
    let graph = Layered { levels, ..Layered::default() }.generate(0).expect("the parameters are in range");
    let platform = Devices { count: devices, ..Devices::default() }.generate(0).expect("the parameters are in range");
    LoadedProblem::new("layered", graph, platform, MemoryRule::SizeEstimate)
}

fn under_thesis_rules(loaded: &LoadedProblem) -> Problem<'_> {
    let problem = loaded.problem().expect("every unit has a device");
    problem.under(Rules::THESIS).expect("the thesis' rules are valid")
}

/// Measures every strategy that does not search, the simulator and the bounds.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, problem: &Problem<'_>, size: u64) {
    group.throughput(Throughput::Elements(problem.graph().task_count() as u64));
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    for &(name, _) in STRATEGIES {
        let strategy = strategy_by_name(name).expect("every listed strategy is known");
        group.bench_function(BenchmarkId::new(name, size), |bencher| bencher.iter(|| strategy.place(problem)));
    }
    let heft = strategy_by_name("heft").expect("it is listed").place(problem).expect("memory is plenty");
    let run = || simulate(problem, &heft.device_of, &Pct);
    group.bench_function(BenchmarkId::new("simulation", size), |bencher| bencher.iter(run));
    group.bench_function(BenchmarkId::new("lower bound", size), |bencher| bencher.iter(|| lower_bound(problem)));
}

fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tasks");
    for levels in LEVELS {
        let loaded = problem(levels, 16);
        let problem = under_thesis_rules(&loaded);
        measure(&mut group, &problem, problem.graph().task_count() as u64);
    }
    group.finish();
    let mut group = criterion.benchmark_group("devices");
    for devices in DEVICES {
        let loaded = problem(40, devices);
        measure(&mut group, &under_thesis_rules(&loaded), devices.into());
    }
    group.finish();
}

criterion_group!(benches, growth);
criterion_main!(benches);
