//! Promises of a line of stages, tested with artificial stages.

use super::error::PipelineError;
use super::face::Pipeline;
use super::line::{Line, Refused, Replica, Stage, Work};
use super::options::{Among, PipelineOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_execute::ExecError;
use anabranch_session::{Inputs, Session, SessionConfig, SessionError};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Returns a stage of `replicas` replicas that all do `work`.
fn stage<T: 'static>(
    replicas: usize,
    capacity: usize,
    work: impl Fn(&mut T) -> Result<(), SessionError> + Clone + Send + 'static,
) -> Stage<T> {
    let replica = |number: usize| {
        let work = work.clone();
        Replica {
            device: format!("device{number}"),
            start: Box::new(move || -> Work<T> { Box::new(move |_, item: &mut T| work(item)) }),
        }
    };
    Stage { replicas: (0..replicas).map(replica).collect(), in_turn: false, capacity, gather: 1 }
}

/// Sleeps for a pseudo-random number of microseconds derived from `number`.
fn dawdle(number: u64) {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    thread::sleep(Duration::from_micros(scattered));
}

fn push_all(line: &Line<u64>, count: u64) {
    for number in 0..count {
        assert_eq!(line.push(number).expect("the line goes on"), number);
    }
    line.finish();
}

fn fails() -> SessionError {
    ExecError::new(ErrorKind::Kernel, "out of order").into()
}

#[test]
fn results_come_in_order_whatever_stages_take() {
    for in_turn in [false, true] {
        let slow = |factor: u64| {
            move |number: &mut u64| {
                dawdle(*number * factor);
                Ok(())
            }
        };
        let stages = [(3, 1, 7), (1, 2, 11), (4, 3, 13)];
        let stages =
            stages.map(|(replicas, capacity, factor)| Stage { in_turn, ..stage(replicas, capacity, slow(factor)) });
        let line = Line::start(stages.into(), 2, 1).expect("threads");
        thread::scope(|scope| {
            scope.spawn(|| push_all(&line, 300));
            let results: Vec<_> = std::iter::from_fn(|| line.next()).collect();
            assert_eq!(results.len(), 300);
            for (expected, (number, result)) in (0..).zip(results) {
                assert_eq!((number, result.expect("no stage fails")), (expected, expected));
            }
        });
        let done: Vec<u64> = line.times().iter().map(|stage| stage.iter().map(|times| times.count).sum()).collect();
        assert_eq!(done, [300; 3]);
    }
}

#[test]
fn no_more_is_in_flight_than_there_is_room_for() {
    let line =
        Line::start(vec![stage(2, 3, |_: &mut Arc<()>| Ok(())), stage(1, 1, |_| Ok(()))], 2, 1).expect("threads");
    let (token, pushed) = (Arc::new(()), AtomicU64::new(0));
    // The channels of three stages, and one data set at each replica.
    let most = line.capacity() + 3;
    assert_eq!(line.capacity(), 6);
    thread::scope(|scope| {
        let pusher = scope.spawn(|| {
            for _ in 0..50 {
                line.push(Arc::clone(&token)).expect("the line goes on");
                pushed.fetch_add(1, Ordering::SeqCst);
            }
            line.finish();
        });
        // No result is taken: the line fills, and the pusher waits.
        while pushed.load(Ordering::SeqCst) < line.capacity() as u64 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        assert!(pushed.load(Ordering::SeqCst) <= most as u64 && !pusher.is_finished());
        let mut taken = 0;
        while let Some((_, result)) = line.next() {
            drop(result.expect("no stage fails"));
            taken += 1;
            // One more data set may be at the pusher.
            assert!(Arc::strong_count(&token) <= most + 2);
        }
        assert_eq!(taken, 50);
    });
}

#[test]
fn a_failure_stands_in_its_place_and_nothing_before_it_is_lost() {
    for panics in [false, true] {
        let ill = move |number: &mut u64| match *number {
            37 if panics => std::panic::resume_unwind(Box::new("a bad stage")),
            37 => Err(fails()),
            number => {
                dawdle(number);
                Ok(())
            }
        };
        let well = |number: &mut u64| {
            dawdle(*number * 3);
            Ok(())
        };
        let line = Line::start(vec![stage(2, 2, well), stage(3, 2, ill), stage(2, 2, well)], 2, 1).expect("threads");
        let refused = Mutex::new(None);
        let results: Vec<_> = thread::scope(|scope| {
            scope.spawn(|| {
                let failed = (0..1000).find_map(|number| line.push(number).err());
                *anabranch_base::lock::lock(&refused) = failed;
                line.finish();
            });
            std::iter::from_fn(|| line.next()).collect()
        });
        let numbers: Vec<u64> = results.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..=37).collect::<Vec<_>>());
        assert!(results[..37].iter().all(|(_, result)| result.is_ok()));
        let at = |error: &PipelineError| {
            assert_eq!((error.data_set(), error.stage(), error.kind()), (Some(37), Some(1), ErrorKind::Kernel));
            let text = error.to_string();
            assert!(text.starts_with("sample 37, stage 1 on device"), "{text}");
            assert!(text.contains(if panics { "a bad stage" } else { "out of order" }), "{text}");
        };
        at(results[37].1.as_ref().expect_err("it failed"));
        match anabranch_base::lock::lock(&refused).as_ref().expect("the pusher learns it") {
            Refused::Ended(Some(failure)) => at(failure),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn of_several_failures_the_first_data_set_counts() {
    let all = |number: &mut u64| {
        // Later data sets fail sooner.
        thread::sleep(Duration::from_millis(20 - 5 * (*number).min(3)));
        Err(fails())
    };
    let line = Line::start(vec![stage(4, 4, all), stage(1, 1, |_| Ok(()))], 1, 1).expect("threads");
    let pushed = (0..4).take_while(|number| line.push(*number).is_ok()).count();
    assert!(pushed > 0);
    let (number, result) = line.next().expect("the failure");
    assert_eq!((number, result.expect_err("all fail").data_set()), (0, Some(0)));
    assert!(line.next().is_none());
}

#[test]
fn a_closed_line_keeps_nobody() {
    let line = Line::start(vec![stage(1, 1, |_: &mut u64| Ok(()))], 1, 1).expect("threads");
    thread::scope(|scope| {
        let pusher = scope.spawn(|| (0..).find_map(|number| line.push(number).err()));
        let taker = scope.spawn(|| std::iter::from_fn(|| line.next()).take(5).count());
        assert_eq!(taker.join().expect("no panic"), 5);
        line.close();
        assert!(matches!(pusher.join().expect("no panic"), Some(Refused::Ended(None))));
        assert!(line.next().is_none());
    });
    // Dropping waits for replicas that are at work.
    let sleepy = |_: &mut u64| {
        thread::sleep(Duration::from_millis(20));
        Ok(())
    };
    let line = Line::start(vec![stage(2, 2, sleepy)], 1, 1).expect("threads");
    (0..3).for_each(|number| _ = line.push(number));
    drop(line);
}

#[test]
fn a_finished_line_takes_no_more() {
    let line = Line::start(vec![stage(1, 4, |_: &mut u64| Ok(()))], 4, 1).expect("threads");
    push_all(&line, 3);
    assert!(matches!(line.push(3), Err(Refused::Finished)));
    assert_eq!(std::iter::from_fn(|| line.next()).count(), 3);
    // A full line, too, refuses without a wait.
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock();
    let own = Arc::clone(&gate);
    let work = move |_: &mut u64| {
        drop(own.lock());
        Ok(())
    };
    let line = Line::start(vec![stage(1, 1, work)], 2, 1).expect("threads");
    for number in 0..2 {
        assert!(line.has_room_within(Duration::from_secs(60)));
        assert_eq!(line.push(number).expect("the line goes on"), number);
    }
    assert!(!line.has_room_within(Duration::from_millis(1)), "one is at work, and one waits");
    line.finish();
    assert!(line.has_room_within(Duration::ZERO));
    drop(held);
    assert_eq!(std::iter::from_fn(|| line.next()).count(), 2);
}

#[test]
fn who_panics_beside_a_pipeline_keeps_nobody_waiting() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/layer.onnx");
    let options = SessionConfig::default().without_gpu().with_dim("batch", 2);
    let session = Session::open(model, options).expect("a model");
    let set = session.fill_random(Inputs::new(), 0).expect("small");
    let options = PipelineOptions::default().with_among(Among::Together).with_measuring(false);
    let open = || Pipeline::open(&session, &set, &options).expect("it fits");
    // The taker panics while the feeder waits for room.
    let pipeline = open();
    let sets = || std::iter::repeat_with(|| Ok::<_, PipelineError>(set.clone()));
    let run = || pipeline.run_all(sets().take(100), |_| resume_unwind(Box::new("a bad taker")));
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it goes on to the caller");
    assert_eq!(panic.downcast_ref(), Some(&"a bad taker"));
    // The source of data sets panics while the taker waits for results.
    let (pipeline, mut taken) = (open(), 0);
    let mut made = 0..5;
    let sets = sets().inspect(|_| _ = made.next().unwrap_or_else(|| resume_unwind(Box::new("a bad source"))));
    let run = || {
        pipeline.run_all(sets, |_| {
            taken += 1;
            Ok(())
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it goes on to the caller");
    assert_eq!((panic.downcast_ref(), taken), (Some(&"a bad source"), 5));
}
