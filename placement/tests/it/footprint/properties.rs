//! Random problems: results pass the checker, bounds hold, and changes to results are found.

use super::random;
use anabranch_placement::footprint::check::{
    check_antichain, check_cores, check_devices, check_partitioning, check_timetable,
};
use anabranch_placement::footprint::{
    Capacity, FewestDevices, FootprintError, Problem, Timetable, fewest_cores, fewest_devices, fewest_partitions,
    heaviest_antichain, merge_rest, timetable, zero_and_merge, zero_edges,
};
use anabranch_placement::graph::TaskGraph;
use anabranch_placement::pipeline::Link;
use arbtest::arbitrary::{Result, Unstructured};

fn problem<'g>(random: &mut Unstructured<'_>, graph: &'g TaskGraph) -> Result<Problem<'g>> {
    let mut draw =
        |most: u8| (0..graph.task_count()).map(|_| random.int_in_range(0..=most)).collect::<Result<Vec<u8>>>();
    let (cores, times) = (draw(3)?, draw(9)?);
    let memory = random.int_in_range(4..=20)?;
    let capacity = Capacity { cores: random.int_in_range(3..=6)?, memory: random.ratio(1, 2)?.then_some(memory) };
    let link =
        Link { latency: f64::from(random.int_in_range(0..=2u8)?), bandwidth: f64::from(random.int_in_range(1..=8u8)?) };
    let (cores, times) = (cores.into_iter().map(u64::from).collect(), times.into_iter().map(f64::from).collect());
    Ok(Problem::new(graph, cores, times, capacity, link).expect("no task takes more than a device has"))
}

#[test]
fn antichains_are_as_heavy_as_brute_force_finds() {
    arbtest::arbtest(|random| {
        let graph = random::graph(random, 12)?;
        let weights = (0..graph.task_count()).map(|_| random.int_in_range(0..=5)).collect::<Result<Vec<u64>>>()?;
        let mut found = heaviest_antichain(&graph, &weights).unwrap();
        assert_eq!(found.weight, random::heaviest(&graph, &weights));
        assert_eq!(check_antichain(&graph, &weights, &found), []);
        found.weight += 1;
        assert!(!check_antichain(&graph, &weights, &found).is_empty());
        if let Some(starts) = found.cover.starts.iter_mut().find(|starts| **starts > 0) {
            found.weight -= 1;
            *starts -= 1;
            assert!(!check_antichain(&graph, &weights, &found).is_empty());
        }
        Ok(())
    })
    .budget_ms(800);
}

#[test]
fn partitions_pass_the_checker_and_changed_ones_do_not() {
    arbtest::arbtest(|random| {
        let graph = random::graph(random, 24)?;
        let problem = problem(random, &graph)?;
        let both = zero_and_merge(&problem);
        assert_eq!(both, [zero_edges(&problem), merge_rest(&problem)]);
        for partitioning in both {
            assert_eq!(check_partitioning(&problem, &partitioning), []);
            let mut wrong = partitioning.clone();
            wrong.completion += 1.0;
            assert!(!check_partitioning(&problem, &wrong).is_empty());
            let mut wrong = partitioning;
            wrong.parts[0].parallelism += 1;
            assert!(!check_partitioning(&problem, &wrong).is_empty());
        }
        Ok(())
    })
    .budget_ms(800);
}

/// Deadlines start at the longest path. Without a memory limit, some number of devices keeps the deadline that a device
/// per partition keeps.
#[test]
fn deadlines_are_kept_and_bounds_are_not_beaten() {
    arbtest::arbtest(|random| {
        let graph = random::graph(random, 20)?;
        let problem = problem(random, &graph)?;
        let path = problem.longest_path(|_, _| false);
        let deadline = path * (1.0 + f64::from(random.int_in_range(0..=20u8)?) / 10.0);
        let fewest = fewest_cores(&problem, deadline).unwrap();
        assert!(fewest.bound <= fewest.cores && fewest.cores <= problem.parallelism().max(fewest.bound));
        assert_eq!(check_cores(&problem, &fewest), []);
        if graph.task_count() > 0 {
            let mut apart = fewest.clone();
            apart.timetable.device_of[0] = 1;
            assert!(!check_cores(&problem, &apart).is_empty());
        }
        assert!(fewest.timetable.makespan <= deadline * (1.0 + 1e-9));
        let merged = merge_rest(&problem);
        match fewest_devices(&problem, &merged, deadline) {
            Ok(found) => {
                assert!(found.bound <= found.devices);
                assert_eq!(check_devices(&problem, &found), []);
                if graph.task_count() > 0 {
                    let fewer = FewestDevices { devices: 0, ..found.clone() };
                    assert!(!check_devices(&problem, &fewer).is_empty());
                }
                assert!(found.timetable.makespan <= deadline * (1.0 + 1e-9));
            }
            Err(error) => assert!(matches!(error, FootprintError::NotReached { .. }), "{error}"),
        }
        if let Ok(found) = fewest_partitions(&problem, merged.clone(), deadline) {
            assert!(
                found.bound <= found.partitioning.parts.len()
                    && found.partitioning.completion <= deadline * (1.0 + 1e-9)
            );
            // A device per partition never has too few cores, so no task waits.
            let alone = timetable(&problem, &found.partitioning.part_of, problem.capacity().cores);
            assert!((alone.makespan - found.partitioning.completion).abs() <= 1e-9 * alone.makespan.max(1.0));
            assert!(fewest_devices(&problem, &merged, deadline).is_ok());
        }
        if path > 0.0 {
            assert!(matches!(fewest_cores(&problem, path * 0.99), Err(FootprintError::Deadline { .. })));
        }
        Ok(())
    })
    .budget_ms(1500);
}

#[test]
fn timetables_that_overlap_or_start_early_are_found() {
    arbtest::arbtest(|random| {
        let graph = random::graph(random, 12)?;
        let problem = problem(random, &graph)?;
        let widest = problem.parallelism().max(3);
        let found = timetable(&problem, &vec![0; graph.task_count()], widest);
        let Some(late) = found.starts.iter().position(|&start| start > 0.0) else { return Ok(()) };
        let mut early = found.clone();
        early.starts[late] = 0.0;
        assert!(!check_timetable(&problem, widest, &early).is_empty());
        for no_time in [f64::NAN, f64::INFINITY] {
            let endless = Timetable { makespan: no_time, ..found.clone() };
            assert!(!check_timetable(&problem, widest, &endless).is_empty());
            early.starts[late] = no_time;
            assert!(!check_timetable(&problem, widest, &early).is_empty());
        }
        let most =
            (0..graph.task_count()).map(|task| problem.cores(anabranch_placement::graph::TaskId(task as u32))).max();
        let running = |task: usize| problem.time(anabranch_placement::graph::TaskId(task as u32)) > 0.0;
        if most.is_some_and(|most| most > 0) && (0..graph.task_count()).all(running) {
            assert!(!check_timetable(&problem, most.unwrap_or(1) - 1, &found).is_empty());
        }
        Ok(())
    })
    .budget_ms(500);
}
