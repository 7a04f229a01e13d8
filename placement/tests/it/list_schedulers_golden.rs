//! HEFT and CPOP exactly as in Topcuoglu 2002, and HEFT with allowed nodes, against an established library.
//!
//! `ANABRANCH_GOLDEN` may name a folder with larger files of this form, `related.json` and `unrelated_heft.json` in
//! `schedulers/`.

use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::format::{Loaded, LoadedProblem, read};
use anabranch_placement::place::{ListScheduler, Placer};
use std::path::PathBuf;

fn problems() -> Vec<LoadedProblem> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let (folder, names) = match std::env::var_os("ANABRANCH_GOLDEN") {
        Some(folder) => (PathBuf::from(folder).join("schedulers"), ["related.json", "unrelated_heft.json"]),
        None => (data.clone(), ["related.json", "formats/unrelated.json"]),
    };
    let problems = |path: PathBuf| match read(path).unwrap() {
        Loaded::Problems(problems) => problems,
        other => panic!("{other:?}"),
    };
    let paths = names.iter().map(|name| folder.join(name));
    paths.chain([data.join("heft.json")]).flat_map(problems).collect()
}

/// Returns the makespan that `strategy` plans, and asserts that the schedule is valid.
fn makespan(loaded: &LoadedProblem, strategy: &dyn Placer) -> f64 {
    let problem = loaded.problem().unwrap();
    let placement = strategy.place(&problem).unwrap();
    let planned = placement.planned.unwrap();
    assert_eq!(check_placement(&problem, &placement.device_of), [], "{}", loaded.name);
    assert_eq!(check_schedule(&problem, &placement.device_of, &planned), []);
    planned.makespan
}

/// All makespans are equal; ties of ranks could lead to different results, but do not here.
#[test]
fn heft_and_cpop_reach_the_makespans_of_the_paper() {
    let mut compared = 0;
    for loaded in problems() {
        let figures: [(&str, &dyn Placer); 3] = [
            ("textbook.HEFT", &ListScheduler::HEFT),
            ("heft_makespan", &ListScheduler::HEFT),
            ("textbook.CPoP", &ListScheduler::CPOP),
        ];
        for (figure, strategy) in figures {
            let Some(expected) = loaded.facts.figures.get(figure) else { continue };
            let found = makespan(&loaded, strategy);
            assert!((found - expected).abs() <= 1e-9 * expected, "{}: {found} for {figure} {expected}", loaded.name);
            compared += 1;
        }
    }
    println!("{compared} makespans");
    assert!(compared >= 41 + 12);
}

/// The library's means range over all nodes, including links of a node to itself. Our HEFT tries these means and means
/// over allowed nodes.
#[test]
fn heft_keeps_to_allowed_nodes_and_is_never_worse() {
    let mut better = 0;
    let constrained = problems().into_iter().filter(|loaded| !loaded.only_on.is_empty());
    for loaded in constrained {
        let expected = loaded.facts.figures["constrained_heft.makespan"];
        let found = makespan(&loaded, &ListScheduler::HEFT);
        assert!(found <= expected * (1.0 + 1e-9), "{}: {found} instead of {expected}", loaded.name);
        better += u32::from(found < expected * (1.0 - 1e-9));
    }
    assert!(better >= 3, "{better}");
}
