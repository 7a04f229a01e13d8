//! Time to choose a mapping of 60 stages on 17 processors. A session does this when it opens, so it should stay near 10
//! ms.
//!
//! Processors are identical, 16 identical and one other, two classes of 8 and one other, or all different. Links within
//! a class are faster than between classes.

use anabranch_placement::generate::Random;
use anabranch_placement::pipeline::{
    Communication, Goal, Link, Port, Problem, Processors, Rules, Stage, Stages, choose,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const STAGES: usize = 60;
const PROCESSORS: usize = 17;

/// Function that returns the class of a processor.
type Class = fn(usize) -> usize;

fn problem(class: Class) -> Problem {
    let mut random = Random::new(1);
    let speeds: Vec<f64> = (0..PROCESSORS).map(|_| random.uniform(1.0, 20.0)).collect();
    let mut stage = |number: usize| {
        let times: Vec<f64> = speeds.iter().map(|speed| random.uniform(0.5, 1.5) * 1e-3 / speed).collect();
        Stage::new(number.to_string(), (0..PROCESSORS).map(|it| Some(times[class(it)])).collect())
    };
    let stages = (0..STAGES).map(&mut stage).collect();
    let data = (0..=STAGES).map(|_| random.between(&(10_000..=1_000_000))).collect();
    let of = |port| match port {
        Port::Outside => 0,
        Port::Processor(it) => class(it),
    };
    let link = |from, to| match of(from) == of(to) {
        true => Link { latency: 2e-6, bandwidth: f64::INFINITY },
        false => Link { latency: 2e-5, bandwidth: 1e10 },
    };
    let processors = Processors::new((0..PROCESSORS).map(|it| it.to_string()).collect(), link);
    let rules = Rules { communication: Communication::Overlapped, ..Rules::default() };
    Problem::new(Stages::new(stages, data), processors, rules).expect("all numbers are in range")
}

fn choosing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    group.sample_size(10);
    let classes: [(&str, Class); 4] =
        [("alike", |_| 0), ("16 and 1", |it| it / 16), ("8, 8 and 1", |it| it / 8), ("different", |it| it)];
    for (name, class) in classes {
        let problem = problem(class);
        for (sought, goal) in [("period", Goal::Period), ("latency", Goal::Latency)] {
            group.bench_function(BenchmarkId::new(sought, name), |bencher| bencher.iter(|| choose(&problem, goal)));
        }
    }
    group.finish();
}

criterion_group!(benches, choosing);
criterion_main!(benches);
