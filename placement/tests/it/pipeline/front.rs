//! Chosen mappings and the front do not contradict each other, even with little search effort.

use super::random::{self, Links};
use anabranch_placement::pipeline::check::check;
use anabranch_placement::pipeline::exact::ExactOptions;
use anabranch_placement::pipeline::{ChooseOptions, Goal, Performance, best_of, choose_with, front};
use arbtest::arbtest;

#[test]
fn no_mapping_of_the_front_beats_what_is_chosen() {
    let options = ChooseOptions { neighbours: 30, exact: ExactOptions { steps: 10 } };
    arbtest(|random| {
        let problem = random::problem(random, 12, 6, Links::Different)?;
        let (front, is_complete) = front(&problem, options);
        let Some(middle) = front.get(front.len() / 2).map(|it| it.performance) else { return Ok(()) };
        let Performance { period, latency } = middle;
        for goal in [Goal::Period, Goal::Latency, Goal::PeriodWithin { latency }, Goal::LatencyWithin { period }] {
            let alone = choose_with(&problem, goal, options);
            let chosen = best_of(alone, (&front, is_complete), &problem, goal).expect("the front has one");
            assert!(goal.admits(chosen.performance), "{goal:?} {chosen:?}");
            assert_eq!(check(&problem, &chosen.mapping, chosen.performance), []);
            let (key, _) = goal.key(chosen.performance);
            assert!(chosen.lower_bound <= key * (1.0 + 1e-9) + 1e-12, "{goal:?} {chosen:?}");
            let admitted = front.iter().filter(|other| goal.admits(other.performance));
            for other in admitted {
                assert!(!goal.prefers(other.performance, chosen.performance), "{goal:?} {chosen:?} {other:?}");
            }
        }
        Ok(())
    })
    .budget_ms(1500);
}
