//! Streams: their results, the order of these, and the number of iterations in flight.

use super::super::Flow;
use super::{all_options, options};
use crate::Scheduler;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[test]
fn a_stream_gives_the_same_under_every_scheduler() {
    for options in all_options() {
        let mut last = 0;
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..300u64);
        let two = flow.feeder("two", 2);
        let doubled = flow.node("doubled", (&numbers, &two), |(n, two)| n * two);
        let squares = flow.node("squares", &numbers, |n| n * n);
        let sums = flow.node("sums", (&doubled, &squares, &numbers), |(a, b, c)| a + b + c);
        let differences = flow.serializer("differences", &sums, |sum| sum - std::mem::replace(&mut last, sum));
        let differences = flow.collect("collected", &differences);
        let report = flow.run(&options).expect("a sound flow");
        let sum = |n: u64| n * n + 3 * n;
        let expected: Vec<u64> = (0..300).map(|n| sum(n) - n.checked_sub(1).map_or(0, sum)).collect();
        assert_eq!(differences.take(), expected, "{options:?}");
        assert_eq!((report.iterations, last), (300, sum(299)));
        // The feeder may run in iterations that had begun when the source ended.
        assert!((0..=16).contains(&(report.tasks() - 300 * 7)), "{}", report.tasks());
    }
}

#[test]
fn serializers_keep_the_order_whatever_comes_first() {
    for options in all_options() {
        let mut seen = Vec::new();
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..60u64);
        // The first of every four takes longest.
        let slow = flow.node("slow", &numbers, |n| {
            std::thread::sleep(std::time::Duration::from_micros((3 - n % 4) * 100));
            n
        });
        flow.serializer("seen", &slow, |n| seen.push(n));
        flow.run(&options).expect("a sound flow");
        assert_eq!(seen, (0..60).collect::<Vec<u64>>());
    }
}

#[test]
fn filters_leave_iterations_out_and_keep_what_depends_on_them_together() {
    for options in all_options() {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..100u32);
        let odd = flow.filter("odd", &numbers, |n| (n % 2 == 1).then_some(n));
        let thirds = flow.filter("thirds", &numbers, |n| (n % 3 == 0).then_some(n));
        let both = flow.node("both", (&odd, &thirds), |(a, b)| (a, b));
        let late = flow.node("late", (&both, &numbers), |((a, _), n)| a + n);
        let (late, all) = (flow.collect("late kept", &late), flow.collect("all kept", &numbers));
        flow.run(&options).expect("a sound flow");
        assert_eq!(late.take(), (0..100).filter(|n| n % 6 == 3).map(|n| 2 * n).collect::<Vec<u32>>());
        assert_eq!(all.take().len(), 100);
    }
}

#[test]
fn no_more_is_under_way_than_the_window_allows() {
    for options in all_options() {
        let options = options.with_window(3);
        let (under_way, most) = (AtomicI64::new(0), AtomicI64::new(0));
        let mut flow = Flow::new();
        let numbers = flow.source(
            "numbers",
            (0..200).inspect(|_| {
                most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            }),
        );
        let passed = flow.node("passed", &numbers, |n| n);
        flow.serializer("left", &passed, |_| under_way.fetch_sub(1, Ordering::SeqCst));
        flow.run(&options).expect("a sound flow");
        assert_eq!(under_way.into_inner(), 0);
        assert!((1..=3).contains(&most.into_inner()));
    }
}

#[test]
fn operands_are_dropped_once_read_and_moved_to_the_last_reader() {
    let made = AtomicU64::new(0);
    let mut flow = Flow::new();
    let numbers = flow.source("numbers", 0..50u64);
    let shared = flow.node("shared", &numbers, |n| {
        made.fetch_add(1, Ordering::SeqCst);
        Arc::new(n)
    });
    flow.node("left", &shared, |n| *n);
    let right = flow.node("right", &shared, |n| n);
    let counts = flow.node("counts", &right, |n| Arc::strong_count(&n));
    let counts = flow.collect("kept", &counts);
    flow.run(&options(1, 1, Scheduler::Central)).expect("a sound flow");
    assert_eq!((made.into_inner(), counts.take()), (50, vec![1; 50]));
}

#[test]
fn ports_deliver_parts_of_what_a_node_makes() {
    let mut flow = Flow::new();
    let pairs = flow.source("pairs", (0..20u64).map(|n| (n, n.to_string())));
    let (numbers, texts) = (pairs.port(|pair| pair.0), pairs.port(|pair| pair.1.clone()));
    let lengths = flow.node("lengths", &texts, |text| text.len() as u64);
    let sums = flow.node("sums", (&numbers, &lengths, &pairs), |(n, length, pair)| n + length + pair.0);
    let sums = flow.collect("kept", &sums);
    flow.run(&options(1, 2, Scheduler::Stealing)).expect("a sound flow");
    assert_eq!(sums.take(), (0..20).map(|n| 2 * n + n.to_string().len() as u64).collect::<Vec<u64>>());
}

#[test]
fn flows_without_sources_run_as_often_as_wanted() {
    for (rounds, options) in [0, 1, 7].into_iter().zip(all_options()) {
        let mut flow = Flow::new();
        let base = flow.feeder("base", 3);
        let parts: Vec<_> = (0..40).map(|n| flow.node(format!("part {n}"), &base, move |base| base * n)).collect();
        let sum = flow.node("sum", &parts[..], |parts| parts.iter().sum::<i32>());
        let sums = flow.collect("kept", &sum);
        let report = flow.run(&options.with_iterations(rounds)).expect("a sound flow");
        assert_eq!(sums.take(), vec![3 * 39 * 20; rounds as usize]);
        assert_eq!((report.iterations, report.tasks()), (rounds, rounds * 43));
    }
}

#[test]
fn a_profile_tells_of_every_task_without_overlaps() {
    for options in all_options() {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..40u64);
        let halves = flow.node("halves", &numbers, |n| n / 2);
        flow.collect("kept", &halves);
        let report = flow.run(&options.with_profile(true)).expect("a sound flow");
        assert_eq!(report.events.len() as u64, report.tasks());
        for worker in 0..report.workers.len() as u32 {
            let own: Vec<_> = report.events.iter().filter(|event| event.worker == worker).collect();
            assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
        for node in &report.nodes {
            assert_eq!(node.operands, 40, "{}", node.name);
        }
    }
}
