use super::*;
use crate::check::{check_placement, check_schedule};
use crate::format::{Loaded, json, parse};
use crate::generate::{Grain, Shape, Sweep};
use crate::order::Pct;
use crate::place::{ListScheduler, Placer};
use crate::simulate::simulate;
use std::convert::Infallible;

/// Returns the makespan of a strategy, whose results the checker judges.
fn makespan(placer: &dyn Placer, loaded: &LoadedProblem) -> f64 {
    let problem = loaded.problem().unwrap();
    let device_of = placer.place(&problem).unwrap().device_of;
    let schedule = simulate(&problem, &device_of, &Pct).unwrap();
    assert_eq!(check_placement(&problem, &device_of), []);
    assert_eq!(check_schedule(&problem, &device_of, &schedule), []);
    schedule.makespan
}

fn ratio(loaded: &LoadedProblem) -> Result<Option<f64>, Infallible> {
    Ok(Some(makespan(&ListScheduler::HEFT, loaded) / makespan(&ListScheduler::CPOP, loaded)))
}

#[test]
fn the_worst_instance_has_its_ratio_also_after_it_was_written_and_read() {
    let (start, ranges) = random_start(1).unwrap();
    let annealing = Annealing { steps: 400, seed: 1, ..Annealing::default() };
    let worst = annealing.search(&start, &ranges, ratio).unwrap().unwrap();
    assert!(worst.ratio > 1.1 && worst.ratio >= worst.start, "{} {}", worst.ratio, worst.start);
    assert_eq!(annealing.search(&start, &ranges, ratio).unwrap().unwrap(), worst);
    let mut bytes = Vec::new();
    json::write_problem(&worst.problem, &mut bytes).unwrap();
    let Loaded::Problems(read) = parse("worst", &bytes).unwrap() else { panic!() };
    assert_eq!(ratio(&read[0]).unwrap(), Some(worst.ratio));
}

/// Every step of a long walk, in which all changes are kept, is a valid problem within its ranges.
#[test]
fn changes_keep_to_their_ranges_and_to_constraints() {
    let graph = Shape::Cholesky { tiles: 3 }.generate(&Grain::default()).unwrap();
    let times = Sweep::default().problem("cholesky", graph, 1).unwrap();
    let (chain, wide) = random_start(3).unwrap();
    for (start, ranges) in [(&times, Ranges::of(&times)), (&chain, wide)] {
        let annealing = Annealing { steps: 2000, hottest: 1e9, coldest: 1e9, ..Annealing::default() };
        let mut edges = std::collections::BTreeSet::new();
        let judge = |loaded: &LoadedProblem| -> Result<Option<f64>, Infallible> {
            let found = Ranges::of(loaded);
            assert!(found.work <= ranges.work && found.bytes <= ranges.bytes, "{found:?}");
            assert!(found.speed <= ranges.speed && found.rate <= ranges.rate, "{found:?}");
            assert!(loaded.platform.devices().iter().all(|d| d.speed >= Ranges::LEAST * ranges.speed));
            assert!(loaded.problem().is_ok());
            edges.insert(loaded.graph.edge_count());
            Ok(Some(1.0))
        };
        let worst = annealing.search(start, &ranges, judge).unwrap().unwrap();
        assert_eq!((worst.judged, worst.kept), (2000, 2000));
        assert!(edges.len() > 3, "{edges:?}");
    }
}

#[test]
fn problems_without_a_ratio_and_errors_end_the_search() {
    let (start, ranges) = random_start(0).unwrap();
    let none = Annealing::default().search(&start, &ranges, |_| Ok::<_, Infallible>(None)).unwrap();
    assert_eq!(none, None);
    assert_eq!(Annealing::default().search(&start, &ranges, |_| Err::<Option<f64>, _>("no")), Err("no"));
    let empty = LoadedProblem::new(
        "empty",
        GraphBuilder::new().build().unwrap(),
        Platform::uniform(vec![], 0.0, 1.0).unwrap(),
        MemoryRule::Ignore,
    );
    let still = Annealing::default().search(&empty, &Ranges::of(&empty), |_| Ok::<_, Infallible>(Some(1.0)));
    assert_eq!(still.unwrap().unwrap().problem, empty);
}

#[test]
fn an_interruption_ends_the_search() {
    let (start, ranges) = random_start(1).unwrap();
    let due = std::sync::Arc::new(|| true);
    let same = |_: &LoadedProblem| Ok::<_, Infallible>(Some(1.0));
    let search = || Annealing::default().search(&start, &ranges, same).unwrap().unwrap();
    assert_eq!(interruption::under(Some(due), search).judged, 0);
}
