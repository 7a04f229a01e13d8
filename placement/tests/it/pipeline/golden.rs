//! The worked example of Benoit and Robert, and optima found by enumeration with fractions.

use anabranch_placement::pipeline::exact::{Exact, ExactOptions, optimum};
use anabranch_placement::pipeline::{
    ChooseOptions, Goal, HEURISTICS, Link, Parallel, Performance, Problem, Processors, Rules, Stage, StageKind, Stages,
    choose, evaluate, front, heuristics,
};
use serde::Deserialize;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs().max(1.0)
}

fn example(rules: Rules) -> Problem {
    let stage = |work: f64| Stage::of_work("stage", work, &[2.0, 1.0, 1.0, 1.0]).with_kind(StageKind::DataParallel);
    let stages = Stages::new([14.0, 4.0, 2.0, 4.0].map(stage).into(), vec![0; 5]);
    Problem::new(stages, Processors::uniform(vec!["P".into(); 4], Link::FREE), rules).unwrap()
}

fn exactly(problem: &Problem, goal: Goal) -> Performance {
    match optimum(problem, goal, f64::INFINITY, ExactOptions::default()) {
        Exact::Optimum(mapping) => evaluate(problem, &mapping).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Slides 19 and 20: the values must match; the mapping that reaches them may differ.
#[test]
fn the_worked_example_is_solved() {
    let plain = example(Rules { replication: false, ..Rules::default() });
    let shared = example(Rules { parallel: Parallel::Stage, ..Rules::default() });
    let replicated = example(Rules::default());
    let cases = [
        (&plain, Goal::Period, 7.0, 17.0),
        (&plain, Goal::Latency, 12.0, 12.0),
        (&plain, Goal::LatencyWithin { period: 10.0 }, 10.0, 14.0),
        (&plain, Goal::PeriodWithin { latency: 14.0 }, 10.0, 14.0),
        (&replicated, Goal::Period, 5.0, 19.0),
        (&shared, Goal::Period, 5.0, 29.0 / 3.0),
        (&shared, Goal::Latency, 5.0, 29.0 / 3.0),
    ];
    for (problem, goal, period, latency) in cases {
        for found in [exactly(problem, goal), choose(problem, goal).unwrap().performance] {
            assert!(near(found.period, period) && near(found.latency, latency), "{goal:?}: {found:?}");
        }
    }
    let fronts: [(&Problem, &[(f64, f64)]); 3] = [
        (&plain, &[(12.0, 12.0), (10.0, 14.0), (9.0, 15.0), (7.0, 17.0)]),
        (&replicated, &[(12.0, 12.0), (10.0, 14.0), (9.0, 15.0), (7.0, 17.0), (5.0, 19.0)]),
        (&shared, &[(5.0, 29.0 / 3.0)]),
    ];
    for (problem, expected) in fronts {
        let (front, proven) = front(problem, ChooseOptions::default());
        let found: Vec<Performance> = front.iter().map(|chosen| chosen.performance).collect();
        assert!(proven && found.len() == expected.len(), "{found:?}");
        let same = |(found, expected): (&Performance, &(f64, f64))| {
            near(found.period, expected.0) && near(found.latency, expected.1)
        };
        assert!(found.iter().zip(expected).all(same), "{found:?}");
    }
}

#[derive(Deserialize)]
struct Case {
    exp: u32,
    seed: u32,
    b: f64,
    delta: Vec<u64>,
    w: Vec<f64>,
    s: Vec<f64>,
    opt_period: String,
    latency_of_that: String,
    one_to_one_opt_period: Option<String>,
    opt_latency: String,
}

fn fraction(text: &str) -> f64 {
    let number = |text: &str| text.parse::<f64>().unwrap();
    text.split_once('/').map_or_else(|| number(text), |(above, below)| number(above) / number(below))
}

#[test]
fn all_optima_are_found() {
    let cases: Vec<Case> = serde_json::from_slice(include_bytes!("../../data/pipeline/optima.json")).unwrap();
    assert_eq!(cases.len(), 30);
    for Case { exp, seed, b, delta, w, s, opt_period, latency_of_that, one_to_one_opt_period, opt_latency } in cases {
        let stages = w.iter().map(|&work| Stage::of_work("stage", work, &s)).collect();
        let names = s.iter().map(f64::to_string).collect();
        let processors = Processors::uniform(names, Link { latency: 0.0, bandwidth: b });
        let rules = Rules { replication: false, ..Rules::default() };
        let problem = Problem::new(Stages::new(stages, delta), processors, rules).unwrap();
        let fastest = exactly(&problem, Goal::Period);
        assert!(near(fastest.period, fraction(&opt_period)), "{exp}, {seed}: {fastest:?}");
        // The expected latency is that of the first mapping with the least period, which need not be the least latency.
        assert!(fastest.latency <= fraction(&latency_of_that) * (1.0 + 1e-12), "{exp}, {seed}: {fastest:?}");
        assert!(near(exactly(&problem, Goal::Latency).latency, fraction(&opt_latency)), "{exp}, {seed}");
        let found = heuristics(&problem, Goal::Period, 0);
        assert_eq!(found.len(), HEURISTICS.len(), "{exp}, {seed}");
        if let Some(one_to_one) = one_to_one_opt_period {
            let h5 = found.iter().find(|(name, ..)| *name == "h5").unwrap().2;
            assert!(near(h5.period, fraction(&one_to_one)), "{exp}, {seed}: {h5:?}");
        }
        let chosen = choose(&problem, Goal::Period).unwrap();
        assert!(chosen.proven && near(chosen.performance.period, fraction(&opt_period)), "{exp}, {seed}: {chosen:?}");
    }
}
