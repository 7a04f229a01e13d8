//! The exact search finds the least makespan, and no schedule is below a bound.

use crate::instances::Instance;
use crate::small::{least_makespan, with_problem};
use anabranch_placement::bound::{BoundKind, lower_bound, lower_bounds};
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::exact::{ExactError, ExactOptions, StopReason, optimum};
use anabranch_placement::format::{LoadedProblem, read_problems, schedulers};
use anabranch_placement::graph::{GraphBuilder, Task, TaskId};
use anabranch_placement::order::{ORDERS, order_by_name};
use anabranch_placement::place::{Auto, Exact, Placer, STRATEGIES, strategy_by_name};
use anabranch_placement::platform::{Device, DeviceKind, Platform};
use anabranch_placement::problem::MemoryRule;
use anabranch_placement::rules::{LinkContention, Rules, SendCosts};
use anabranch_placement::simulate::simulate;

/// Relative difference between sums of the same times in another order.
const ROUNDING: f64 = 1e-9;

#[test]
fn the_search_finds_what_trying_everything_finds() {
    arbtest::arbtest(|random| {
        with_problem(random, 5, |problem| {
            let expected = least_makespan(problem);
            match optimum(problem, &ExactOptions::default()) {
                Err(error) => assert_eq!((error, expected), (ExactError::NoPlacement, None)),
                Ok(found) => {
                    let makespan = found.schedule.makespan;
                    assert_eq!(found.stop, StopReason::Proven);
                    assert!(
                        expected.is_some_and(|least| (makespan - least).abs() <= ROUNDING),
                        "{makespan} {expected:?}"
                    );
                    for bound in lower_bounds(problem) {
                        assert!(
                            expected.is_some_and(|least| bound.value <= least + ROUNDING),
                            "{bound:?} {expected:?}"
                        );
                    }
                    assert_eq!(check_placement(problem, &found.device_of), []);
                    assert_eq!(check_schedule(problem, &found.device_of, &found.schedule), []);
                }
            }
        })
    })
    .budget_ms(900);
}

/// The strategy `exact` reaches what trying everything finds, and says so; limits leave a gap.
#[test]
fn the_exact_strategy_proves_small_optima() {
    arbtest::arbtest(|random| {
        with_problem(random, 5, |problem| {
            let exact = Exact { auto: Auto { evaluations: Some(5), ..Auto::default() }, ..Exact::default() };
            let (expected, placed) = (least_makespan(problem), exact.place(problem));
            assert_eq!(placed.is_ok(), expected.is_some(), "{placed:?}");
            let (Ok(placed), Some(least)) = (placed, expected) else { return };
            let Some(proof) = placed.proof() else { return assert_eq!(problem.graph().task_count(), 0) };
            assert!(proof.is_optimal() && (proof.makespan - least).abs() <= ROUNDING, "{proof:?} {least}");
            assert_eq!(check_placement(problem, &placed.device_of), []);
            let schedule = placed.planned.unwrap();
            assert_eq!(
                (check_schedule(problem, &placed.device_of, &schedule), schedule.makespan),
                (vec![], proof.makespan)
            );
            let hurried = Exact { nodes: 1, ..exact }.place(problem).unwrap().proof().unwrap();
            assert!(hurried.bound <= least + ROUNDING && hurried.makespan >= least - ROUNDING);
        })
    })
    .budget_ms(900);
}

#[test]
fn auto_ends_between_the_optimum_and_the_strategies() {
    let (mut proven, mut reached) = (0, 0);
    arbtest::arbtest(|random| {
        with_problem(random, 7, |problem| {
            let auto = Auto { evaluations: Some(100), ..Auto::default() };
            let Ok(improved) = auto.improve(problem, |_, _| {}) else {
                return;
            };
            let makespan = improved.schedule.makespan;
            assert_eq!(check_placement(problem, &improved.placement().device_of), []);
            assert_eq!(check_schedule(problem, &improved.placement().device_of, &improved.schedule), []);
            assert!(improved.portfolio.iter().all(|&(_, strategy)| makespan <= strategy));
            assert_eq!(auto.place(problem).unwrap(), *improved.placement());
            if let Ok(found) = optimum(problem, &ExactOptions { nodes: 20_000, ..ExactOptions::default() })
                && found.stop == StopReason::Proven
            {
                assert!(makespan >= found.schedule.makespan * (1.0 - ROUNDING));
                proven += 1;
                reached += u32::from(makespan <= found.schedule.makespan * (1.0 + ROUNDING));
            }
        })
    })
    .budget_ms(1500);
    assert!(f64::from(reached) >= 0.9 * f64::from(proven), "{reached} of {proven}");
}

#[test]
fn no_bound_is_above_the_optimum() {
    arbtest::arbtest(|random| {
        with_problem(random, 8, |problem| {
            if let Ok(found) = optimum(problem, &ExactOptions { nodes: 20_000, ..ExactOptions::default() })
                && found.stop == StopReason::Proven
            {
                let makespan = found.schedule.makespan;
                for bound in lower_bounds(problem) {
                    assert!(bound.value <= makespan * (1.0 + ROUNDING), "{bound:?} above {makespan}");
                }
            }
        })
    })
    .budget_ms(900);
}

/// A slow device takes everything, and fast devices are nearly full or too small; transfers take long.
#[test]
fn no_bound_is_above_the_optimum_if_memory_is_tight() {
    let mut refuted = 0;
    arbtest::arbtest(|random| {
        let mut builder = GraphBuilder::new();
        let (tasks, fast) = (random.int_in_range(1..=8u32)?, random.int_in_range(1..=3u8)?);
        let mut total = 0;
        for _ in 0..tasks {
            let (memory, work) = (random.int_in_range(1..=9u64)?, random.int_in_range(1..=8u8)?);
            builder.task(Task::new("t").with_memory(memory).with_operations(f64::from(work)));
            total += memory;
        }
        for consumer in 1..tasks {
            for _ in 0..random.int_in_range(0..=2u8)? {
                builder.edge(
                    TaskId(random.int_in_range(0..=consumer - 1)?),
                    TaskId(consumer),
                    random.int_in_range(0..=20)?,
                );
            }
        }
        let mut devices = vec![Device::new("host", DeviceKind::Cpu).with_speed(0.25)];
        for _ in 0..fast {
            let memory = total * random.int_in_range(4..=12u64)? / 10 / u64::from(fast) + 1;
            devices.push(Device::new("fast", DeviceKind::Gpu).with_speed(2.0).with_memory(memory));
        }
        let mut rates = Vec::new();
        for _ in 0..devices.len() * devices.len() {
            rates.push(f64::from(random.int_in_range(1..=4u8)?));
        }
        let count = devices.len();
        let platform = Platform::new(devices, |from, to| (0.0, rates[from.index() * count + to.index()])).unwrap();
        let loaded = LoadedProblem::new("tight", builder.build().unwrap(), platform, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        let found = optimum(&problem, &ExactOptions { nodes: 20_000, ..ExactOptions::default() }).unwrap();
        if found.stop == StopReason::Proven {
            for bound in lower_bounds(&problem) {
                assert!(bound.value <= found.schedule.makespan * (1.0 + ROUNDING), "{bound:?} above {found:?}");
            }
            refuted += u32::from(lower_bound(&problem).kind == BoundKind::Separation);
        }
        Ok(())
    })
    .budget_ms(900);
    assert!(refuted > 0, "no bound was found by refutation");
}

#[test]
fn no_schedule_is_below_a_bound() {
    let send_costs = SendCosts { send_operations: 0.5, receive_operations: 0.0 };
    let serial = Rules::default().with_send_costs(send_costs).with_contention(LinkContention::Serial);
    let all = [Rules::default(), Rules::THESIS, serial];
    arbtest::arbtest(|random| {
        if let Some(instance) = Instance::draw(random)? {
            instance.with_problem(|problem| {
                let bounds = lower_bounds(problem);
                for (strategy, _) in STRATEGIES {
                    let Ok(placement) = strategy_by_name(strategy).unwrap().place(problem) else { continue };
                    let simulated = ORDERS.iter().flat_map(|order| all.iter().map(move |rules| (order, rules)));
                    let simulated = simulated.map(|(order, rules)| {
                        let (order, problem) = (order_by_name(order).unwrap(), problem.clone().under(rules.clone()));
                        simulate(&problem.unwrap(), &placement.device_of, order.as_ref()).unwrap().makespan
                    });
                    for makespan in simulated.chain(placement.planned.iter().map(|planned| planned.makespan)) {
                        for bound in &bounds {
                            assert!(
                                bound.value <= makespan * (1.0 + ROUNDING),
                                "{bound:?} above {makespan}, {strategy}"
                            );
                        }
                    }
                }
            });
        }
        Ok(())
    })
    .budget_ms(900);
}

/// Makespans of published schedulers with independent code: HEFT and CPoP of an established library.
#[test]
fn published_schedulers_are_between_optimum_and_bound() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/formats/related.json");
    let mut proven = 0;
    for loaded in read_problems(&[path]).unwrap() {
        let problem = loaded.problem().unwrap();
        let bound = lower_bound(&problem).value;
        let found = optimum(&problem, &ExactOptions { nodes: 20_000, ..ExactOptions::default() }).unwrap();
        for (name, makespan) in &loaded.facts.figures {
            assert!(bound <= makespan * (1.0 + ROUNDING), "{} {name}: {bound} above {makespan}", loaded.name);
            if found.stop == StopReason::Proven {
                assert!(found.schedule.makespan <= makespan * (1.0 + ROUNDING), "{} {name}", loaded.name);
                proven += 1;
            }
        }
    }
    assert!(proven >= 9, "{proven}");
}

/// Each kind of bound is the best for some problem; otherwise it would not be worth its time.
#[test]
fn every_kind_of_bound_is_the_best_somewhere() {
    let mut seen = Vec::new();
    for seed in 0..200u64 {
        let mut random = anabranch_placement::generate::Random::new(seed);
        let bytes: Vec<u8> = (0..4096).map(|_| random.bits() as u8).collect();
        let mut random = arbtest::arbitrary::Unstructured::new(&bytes);
        with_problem(&mut random, 8, |problem| seen.push(lower_bound(problem).kind)).unwrap();
    }
    for kind in [BoundKind::Path, BoundKind::Work, BoundKind::Window, BoundKind::Separation] {
        assert!(seen.contains(&kind), "{kind}");
    }
}

/// Topcuoglu 2002, figure 2: HEFT reaches 80, and nothing is better than 73.
#[test]
fn the_example_of_heft_has_a_better_schedule() {
    let bytes = include_bytes!("../data/formats/unrelated.json");
    let loaded = schedulers::parse_unrelated_set(bytes).unwrap().remove(0);
    let problem = loaded.problem().unwrap();
    let optimum = optimum(&problem, &ExactOptions::default()).unwrap();
    assert_eq!((optimum.stop, optimum.schedule.makespan), (StopReason::Proven, 73.0));
    assert_eq!(optimum.lower_bound, 73.0);
}
