//! HEFT and CPOP by the letter of Topcuoglu 2002, and HEFT with allowed nodes, against an established library.
//!
//! `ANABRANCH_GOLDEN` may name a folder with a larger `schedulers/related.json` of the same form.

use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::format::{Loaded, LoadedProblem, read};
use anabranch_placement::place::{Cpop, Heft, Placer};
use anabranch_placement::simulate::SimulateOptions;
use std::path::PathBuf;

fn problems() -> Vec<LoadedProblem> {
    let path = match std::env::var_os("ANABRANCH_GOLDEN") {
        Some(folder) => PathBuf::from(folder).join("schedulers/related.json"),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/related.json"),
    };
    match read(path).unwrap() {
        Loaded::Problems(problems) => problems,
        other => panic!("{other:?}"),
    }
}

/// The makespan that `strategy` plans, if the schedule is valid.
fn makespan(loaded: &LoadedProblem, strategy: &dyn Placer) -> f64 {
    let problem = loaded.problem().unwrap();
    let placement = strategy.place(&problem).unwrap();
    let planned = placement.planned.unwrap();
    assert_eq!(check_placement(&problem, &placement.device_of), [], "{}", loaded.name);
    assert_eq!(check_schedule(&problem, &placement.device_of, &planned, &SimulateOptions::default()), []);
    planned.makespan
}

/// Every makespan is equal; ties of ranks, where results may differ, lead to none here.
#[test]
fn heft_and_cpop_reach_the_makespans_of_the_paper() {
    let mut compared = 0;
    for loaded in problems() {
        for (figure, strategy) in [("textbook.HEFT", &Heft as &dyn Placer), ("textbook.CPoP", &Cpop)] {
            let Some(expected) = loaded.facts.figures.get(figure) else { continue };
            let found = makespan(&loaded, strategy);
            assert!((found - expected).abs() <= 1e-9 * expected, "{}: {found} for {figure} {expected}", loaded.name);
            compared += 1;
        }
    }
    assert!(compared >= 38);
}

/// The library's means range over all nodes, links of a node to itself among them. Ours try that and means over allowed nodes.
#[test]
fn heft_keeps_to_allowed_nodes_and_is_never_worse() {
    let mut better = 0;
    let constrained = problems().into_iter().filter(|loaded| !loaded.only_on.is_empty());
    for loaded in constrained {
        let expected = loaded.facts.figures["constrained_heft.makespan"];
        let found = makespan(&loaded, &Heft);
        assert!(found <= expected * (1.0 + 1e-9), "{}: {found} instead of {expected}", loaded.name);
        better += u32::from(found < expected * (1.0 - 1e-9));
    }
    assert!(better >= 3, "{better}");
}
