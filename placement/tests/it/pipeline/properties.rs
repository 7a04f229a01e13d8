//! Random problems: the checker agrees with the formulas, nothing beats the optimum or the bound, limits hold.

use super::random::{self, Links};
use super::reference;
use anabranch_placement::pipeline::check::{check, play};
use anabranch_placement::pipeline::equal::least_latency;
use anabranch_placement::pipeline::exact::{Exact, ExactOptions, optimum};
use anabranch_placement::pipeline::{
    ChooseError, Communication, Goal, Link, Parallel, Performance, Problem, Processors, Rules, Sharing, Stage,
    StageKind, Stages, choose, evaluate, heuristics, lower_bound,
};
use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + b.abs())
}

/// On identical links the computed period equals the simulated one, and the computed latency is not less. On different
/// links both are upper bounds.
#[test]
fn what_is_played_is_what_is_computed() {
    let mut valid = 0;
    arbtest(|random| {
        let links = *random.choose(&[Links::Alike, Links::Different])?;
        let problem = random::problem(random, 6, 6, links)?;
        let mapping = random::mapping(random, &problem)?;
        let Ok(performance) = evaluate(&problem, &mapping) else {
            let claimed = Performance { period: f64::INFINITY, latency: f64::INFINITY };
            assert!(!check(&problem, &mapping, claimed).is_empty(), "{mapping:?}");
            return Ok(());
        };
        valid += 1;
        assert_eq!(check(&problem, &mapping, performance), [], "{mapping:?}");
        let played = play(&problem, &mapping, performance.period);
        if links == Links::Alike {
            assert!(near(played.period, performance.period), "{played:?} {performance:?} {mapping:?}");
        }
        if mapping.intervals.iter().all(|interval| interval.sharing != Sharing::Replicated) {
            assert!(near(played.period, performance.period), "{played:?} {performance:?} {mapping:?}");
            assert!(near(played.latency, performance.latency), "{played:?} {performance:?} {mapping:?}");
        }
        Ok(())
    })
    .budget_ms(1500);
    assert!(valid > 0, "no mapping was valid");
}

/// A performance better than the simulated one is rejected.
#[test]
fn claims_that_are_too_good_are_refused() {
    arbtest(|random| {
        let problem = random::problem(random, 5, 5, Links::Alike)?;
        let mapping = random::mapping(random, &problem)?;
        if let Ok(Performance { period, .. }) = evaluate(&problem, &mapping)
            && period > 0.0
        {
            let claimed = Performance { period: period * 0.99, latency: f64::INFINITY };
            assert!(!check(&problem, &mapping, claimed).is_empty(), "{mapping:?}");
        }
        Ok(())
    })
    .budget_ms(300);
}

fn goals(random: &mut Unstructured<'_>, fastest: Performance, quickest: Performance) -> Result<[Goal; 4]> {
    let between = |low: f64, high: f64, part: u8| low + (high - low) * f64::from(part) / 10.0;
    Ok([
        Goal::Period,
        Goal::Latency,
        Goal::PeriodWithin { latency: between(quickest.latency, fastest.latency, random.int_in_range(0..=10)?) },
        Goal::LatencyWithin { period: between(fastest.period, quickest.period, random.int_in_range(0..=10)?) },
    ])
}

#[test]
fn the_exact_search_finds_the_best_of_all_mappings() {
    let mut proven = 0;
    arbtest(|random| {
        let links = *random.choose(&[Links::Alike, Links::Different])?;
        let problem = random::problem(random, 4, 4, links)?;
        let all = reference::all_mappings(&problem);
        let (Some(fastest), Some(quickest)) =
            (reference::best(&all, Goal::Period), reference::best(&all, Goal::Latency))
        else {
            assert!(choose(&problem, Goal::Period).is_err());
            return Ok(());
        };
        for goal in goals(random, fastest, quickest)? {
            let best = reference::best(&all, goal);
            let bound = lower_bound(&problem, goal);
            match optimum(&problem, goal, f64::INFINITY, ExactOptions::default()) {
                Exact::Optimum(mapping) => {
                    proven += 1;
                    let found = goal.key(evaluate(&problem, &mapping).unwrap());
                    let best = goal.key(best.expect("one was found"));
                    assert!(
                        near(found.0, best.0) && near(found.1, best.1),
                        "{goal:?} {found:?} {best:?} {mapping:?} {problem:?}"
                    );
                }
                Exact::Infeasible => assert!(best.is_none(), "{goal:?} {best:?} {problem:?}"),
                Exact::Unknown => {}
            }
            if let Some(best) = best {
                assert!(bound <= goal.key(best).0, "{goal:?}: bound {bound}, best {best:?} {problem:?}");
                let found = heuristics(&problem, goal, 1).into_iter();
                for (name, mapping, performance) in found.filter(|(.., performance)| goal.admits(*performance)) {
                    assert_eq!(check(&problem, &mapping, performance), [], "{name}");
                    assert!(goal.key(performance).0 >= goal.key(best).0 * (1.0 - 1e-12), "{name} {goal:?}");
                }
            }
            match choose(&problem, goal) {
                Ok(chosen) => {
                    let best = goal.key(best.expect("one was chosen"));
                    assert!(goal.admits(chosen.performance), "{goal:?} {chosen:?}");
                    assert_eq!(check(&problem, &chosen.mapping, chosen.performance), []);
                    assert!(chosen.lower_bound <= best.0 * (1.0 + 1e-9) + 1e-12, "{goal:?} {chosen:?} {best:?}");
                    assert!(
                        !chosen.proven || near(goal.key(chosen.performance).0, best.0),
                        "{goal:?} {chosen:?} {best:?}"
                    );
                }
                Err(ChooseError::OutOfReach { nearest }) => assert!(!goal.admits(nearest)),
                Err(error) => assert!(!problem.processors().memories().is_empty(), "{error}: {problem:?}"),
            }
        }
        Ok(())
    })
    .budget_ms(3000);
    assert!(proven > 0, "no optimum was proven");
}

#[test]
fn what_may_be_replicated_is_no_worse_than_what_may_not() {
    let mut compared = 0;
    arbtest(|random| {
        let links = *random.choose(&[Links::Alike, Links::Different])?;
        let problem = random::problem(random, 24, 6, links)?;
        for goal in [Goal::Period, Goal::Latency] {
            let found = [true, false].map(|replication| {
                let rules = Rules { replication, ..problem.rules() };
                let problem = Problem::new(problem.stages().clone(), problem.processors().clone(), rules);
                choose(&problem.expect("sound"), goal)
            });
            if let [replicated, Ok(single)] = &found {
                let replicated = replicated.as_ref().expect("the single one is a mapping, too");
                assert!(!goal.prefers(single.performance, replicated.performance), "{goal:?} {found:?} {problem:?}");
                compared += 1;
            }
        }
        Ok(())
    })
    .budget_ms(3000);
    assert!(compared > 10, "{compared} were compared");
}

/// Two of the processors cannot run the first stage, so the first stage alone does not determine what groups with them
/// receive.
#[test]
fn who_cannot_run_a_stage_receives_no_faster() {
    let stage = |name: &str, times: [Option<f64>; 4], kind| Stage::new(name, times.to_vec()).with_kind(kind);
    let stages = vec![
        stage("a", [Some(4.25), None, None, Some(3.75)], StageKind::DataParallel),
        stage("b", [Some(3.5), None, Some(4.0), Some(0.25)], StageKind::DataParallel),
        stage("c", [Some(0.0), None, Some(4.25), None], StageKind::Monolithic),
    ];
    let link = Link { latency: 0.0, bandwidth: 4.0 };
    let processors = Processors::uniform((0..4).map(|at| at.to_string()).collect(), link);
    let rules = Rules { communication: Communication::OnePort, replication: false, parallel: Parallel::Interval };
    let problem = Problem::new(Stages::new(stages, vec![5, 8, 8, 6]), processors, rules).expect("sound");
    let Exact::Optimum(mapping) = optimum(&problem, Goal::Period, f64::INFINITY, ExactOptions::default()) else {
        panic!("it is small");
    };
    let best = evaluate(&problem, &mapping).expect("sound");
    assert_eq!((best.period, best.latency), (7.0, 12.0), "{mapping:?}");
}

/// The corrected recurrence of the slides is optimal for stages of equal work.
#[test]
fn the_recurrence_for_equal_stages_is_optimal() {
    arbtest(|random| {
        let (stages, processors) = (random.int_in_range(1..=4)?, random.int_in_range(1..=4)?);
        let speeds =
            (0..processors).map(|_| Ok(f64::from(random.int_in_range(1..=6u8)?))).collect::<Result<Vec<f64>>>()?;
        let list = (0..stages).map(|_| Stage::of_work("stage", 12.0, &speeds)).collect();
        let names = speeds.iter().map(f64::to_string).collect();
        let stages_and_data = Stages::new(list, vec![0; stages + 1]);
        let problem = Problem::new(stages_and_data, Processors::uniform(names, Link::FREE), Rules::default()).unwrap();
        let period = f64::from(random.int_in_range(1..=40u8)?) / 2.0;
        let all = reference::all_mappings(&problem);
        let best = reference::best(&all, Goal::LatencyWithin { period }).map(|best| best.latency);
        let found = least_latency(stages, 12.0, &speeds, period);
        assert_eq!(best.is_some(), found.is_some(), "{speeds:?} {period}");
        if let (Some(best), Some(found)) = (best, found) {
            assert!(near(best, found), "{stages} on {speeds:?} within {period}: {best} {found}");
        }
        let latency = f64::from(random.int_in_range(1..=60u8)?);
        for goal in [Goal::Period, Goal::Latency, Goal::LatencyWithin { period }, Goal::PeriodWithin { latency }] {
            let best = reference::best(&all, goal).map(|best| goal.key(best).0);
            let equal = heuristics(&problem, goal, 0).into_iter().find(|(name, ..)| *name == "equal");
            let found = equal.map(|(_, _, performance)| goal.key(performance).0);
            let same = best.zip(found).is_some_and(|(best, found)| near(best, found));
            assert!(same || best.is_none() && found.is_none(), "{speeds:?} {goal:?}: {best:?} {found:?}");
        }
        Ok(())
    })
    .budget_ms(700);
}
