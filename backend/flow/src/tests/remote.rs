//! Runs among processes, which here are threads with a socket between each two: equal results, counted messages, and
//! ends.

use super::super::programs::{ForkJoin, Lcs, Matmul, Pipeline, Program};
use super::super::{Flow, FlowError, FlowOptions, FlowReport, Peers, Scheduler};
use super::options;
use anabranch_base::cancel::CancelToken;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Returns the result of each machine's run, the leader's first.
pub(super) fn among<T: Send>(machines: u32, run: impl Fn(Peers) -> T + Sync) -> Vec<T> {
    let (peers, run) = (Peers::pairs(machines).expect("sockets"), &run);
    thread::scope(|scope| {
        let runs: Vec<_> = peers.into_iter().map(|peers| scope.spawn(move || run(peers))).collect();
        runs.into_iter().map(|run| run.join().expect("no panic")).collect()
    })
}

fn programs(check: impl Fn(&dyn Fn(&FlowOptions) -> FlowReport, &dyn Fn(&FlowOptions) -> FlowReport)) {
    fn both<P: Program>(
        program: &P,
        check: &impl Fn(&dyn Fn(&FlowOptions) -> FlowReport, &dyn Fn(&FlowOptions) -> FlowReport),
    ) {
        let expected = program.sequential();
        let placed = |options: &FlowOptions| {
            let (flow, answers) = program.flow();
            let answers = answers.machine(0);
            let allocation = flow.place("hash", options.worker_config()).expect("placeable");
            drop(answers);
            options.clone().with_allocation(allocation)
        };
        let apart = |options: &FlowOptions| {
            let options = placed(options);
            let mut runs =
                among(options.worker_config().machine_count(), |peers| program.run_among(&options, peers)).into_iter();
            let (answer, report) = runs.next().expect("the leader's").expect("a sound run");
            assert!(answer.as_ref() == Some(&expected), "{} with {options:?}", program.name());
            assert!(runs.all(|run| run.is_ok_and(|(answer, _)| answer.is_none())));
            report
        };
        let emulated = |options: &FlowOptions| {
            let options = placed(options);
            let (flow, _) = program.flow();
            flow.run(&options).expect("a sound run")
        };
        check(&apart, &emulated);
    }
    both(&Lcs::random(60, 12, 1), &check);
    both(&Matmul::random(40, 10, 2), &check);
    both(&ForkJoin { points: 1000, parts: 10 }, &check);
    both(&Pipeline { points: 1000, parts: 30 }, &check);
}

/// Traffic over sockets equals the traffic counted with emulated machines: each operand for another machine, and its
/// bytes.
#[test]
fn what_is_sent_is_what_emulated_machines_count() {
    programs(|apart, emulated| {
        for (machines, workers) in [(1, 2), (2, 1), (2, 2), (3, 1)] {
            let options = options(machines, workers, Scheduler::Local);
            let (apart, emulated) = (apart(&options), emulated(&options));
            let sent = apart.sent.expect("processes");
            assert_eq!((sent.operands, apart.traffic), (emulated.traffic, emulated.traffic));
            assert!(
                machines == 1 || sent.all.bytes > sent.operands.bytes && sent.all.messages > sent.operands.messages
            );
            assert_eq!(apart.iterations, emulated.iterations);
            assert_eq!(apart.workers.len(), emulated.workers.len());
        }
    });
}

#[test]
fn answers_are_right_under_every_scheduler_and_window() {
    programs(|apart, _| {
        for scheduler in Scheduler::ALL {
            for (machines, workers, window) in [(2, 1, 1), (2, 2, 3), (3, 1, 8)] {
                let options = options(machines, workers, scheduler).with_window(window).with_spin(Duration::ZERO);
                let report = apart(&options.with_profile(true));
                assert_eq!(report.events.len() as u64, report.tasks());
                assert_eq!(report.sent.map(|sent| sent.operands), Some(report.traffic));
            }
        }
    });
}

/// Filters, serial nodes on several machines, and a stream that ends on a machine that does not admit iterations.
#[test]
fn streams_keep_their_order_across_processes() {
    for scheduler in Scheduler::ALL {
        for window in [1, 2, 7] {
            let runs = among(3, |peers| {
                let mut before = 0;
                let mut flow = Flow::new();
                let numbers = flow.source("numbers", 0..50u64).machine(1).travels();
                let two = flow.feeder("two", 2u64).machine(2).travels();
                let odd = flow.filter("odd", &numbers, |n| (n % 2 == 1).then_some(n)).machine(2).travels();
                let doubled = flow.node("doubled", (&odd, &two), |(n, two)| n * two).machine(0).travels();
                let steps = flow.serializer("steps", &doubled, move |n| n - std::mem::replace(&mut before, n));
                let steps = steps.machine(1).travels();
                flow.serializer("elsewhere", &numbers, |_| ()).machine(2);
                let kept = flow.collect("kept", &steps).machine(0);
                let report = flow.run_among(&options(3, 1, scheduler).with_window(window), peers).expect("a sound run");
                (kept.take(), report.iterations)
            });
            let expected: Vec<u64> = (0..25).map(|n| if n == 0 { 2 } else { 4 }).collect();
            assert_eq!(runs[0], (expected, 50), "{scheduler:?} {window}");
            assert!(runs[1..].iter().all(|(kept, _)| kept.is_empty()));
        }
    }
}

/// Returns a line over both machines. Its node on machine 1 calls `function`.
fn line(
    scheduler: Scheduler,
    peers: Peers,
    function: impl Fn(u64) -> u64 + Send + Sync,
) -> Result<FlowReport, FlowError> {
    let mut flow = Flow::new();
    let numbers = flow.source("numbers", 0..100u64).machine(0).travels();
    let far = flow.node("far", &numbers, function).machine(1).travels();
    flow.collect("kept", &far).machine(0);
    flow.run_among(&options(2, 1, scheduler), peers)
}

#[test]
fn a_panic_in_another_process_ends_all_with_its_machine_node_and_iteration() {
    for scheduler in Scheduler::ALL {
        let runs =
            among(2, |peers| line(scheduler, peers, |n| if n == 17 { std::panic::panic_any("torn") } else { n }));
        let message = runs[0].as_ref().expect_err("it panics").to_string();
        assert_eq!(message, "machine 1: node \"far\" panicked in iteration 17: torn");
        assert!(runs[1].is_err());
    }
}

#[test]
fn a_failure_of_the_leader_ends_the_others() {
    for scheduler in Scheduler::ALL {
        let runs = among(2, |peers| {
            let mut flow = Flow::new();
            let numbers = flow.source("numbers", 0u64..).machine(1).travels();
            flow.node("near", &numbers, |n| {
                if n == 9 {
                    std::panic::panic_any("torn")
                }
            })
            .machine(0);
            flow.run_among(&options(2, 1, scheduler), peers)
        });
        assert!(matches!(&runs[0], Err(FlowError::Panicked { iteration: 9, .. })), "{:?}", runs[0]);
        assert!(matches!(&runs[1], Err(FlowError::Machine { machine: 0, .. })), "{:?}", runs[1]);
    }
}

#[test]
fn a_cancelled_run_ends_in_all_processes() {
    for scheduler in Scheduler::ALL {
        let token = CancelToken::new();
        let runs = among(2, |peers| {
            let mut flow = Flow::new();
            let numbers = flow.source("numbers", 0u64..).machine(1).travels();
            let near = flow
                .node("near", &numbers, |n| {
                    if n == 9 {
                        token.cancel()
                    }
                })
                .machine(0);
            flow.collect("kept", &near).machine(0);
            let options = options(2, 1, scheduler);
            let leads = peers.machine() == 0;
            flow.run_among(&if leads { options.with_cancel(token.clone()) } else { options }, peers)
        });
        assert_eq!(runs[0].as_ref().err(), Some(&FlowError::Cancelled));
        assert!(runs[1].is_err());
    }
}

#[test]
fn what_cannot_travel_is_refused_by_the_names_of_its_nodes() {
    for scheduler in Scheduler::ALL {
        let runs = among(2, |peers| {
            let mut flow = Flow::new();
            let numbers = flow.source("numbers", 0..9u64).machine(0);
            flow.node("far", &numbers, |n| n).machine(1);
            flow.run_among(&options(2, 1, scheduler), peers)
        });
        let expected = FlowError::Homebound { node: "numbers".into(), reader: "far".into() };
        assert!(runs.iter().all(|run| run.as_ref().err() == Some(&expected)), "{runs:?}");
    }
}

#[test]
fn different_flows_are_no_run() {
    let runs = among(2, |peers| {
        let mut flow = Flow::new();
        flow.feeder(format!("of {}", peers.machine()), 1u8).machine(0);
        flow.run_among(&options(2, 1, Scheduler::Local), peers)
    });
    assert!(
        runs[0]
            .as_ref()
            .is_err_and(|error| error.to_string().starts_with("machine 1: its flow, options or version differ")),
        "{runs:?}"
    );
    assert!(runs[1].is_err());
    let crowd = among(2, |peers| line(Scheduler::Local, peers, |n| n).map(|_| ()));
    assert!(crowd.iter().all(Result::is_ok));
    let alone = Peers::pairs(1).expect("no sockets").remove(0);
    assert!(line(Scheduler::Local, alone, |n| n).is_err_and(|error| error.to_string().contains("1 processes")));
    assert!(Peers::pairs(0).is_err() && Peers::pairs(33).is_err());
}

fn pair() -> [Peers; 2] {
    Peers::pairs(2).expect("sockets").try_into().expect("two")
}

fn only(peers: Peers) -> UnixStream {
    peers.streams.into_iter().flatten().next().expect("one peer")
}

/// Returns the first message of machine 1.
fn ready(scheduler: Scheduler, mut leader: UnixStream, honest: Peers) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(|| line(scheduler, honest, |n| n));
        let mut ready = vec![0; 25];
        leader.read_exact(&mut ready).expect("a head");
        let length = u32::from_le_bytes([ready[21], ready[22], ready[23], ready[24]]);
        (&leader).take(u64::from(length)).read_to_end(&mut ready).expect("a text");
        drop(leader);
        ready
    })
}

/// A peer that sends arbitrary messages after it was ready.
#[test]
fn whatever_a_peer_says_is_an_error_that_names_it() {
    let head = |kind: u8, node: u32, port: u32, slot: u32, iteration: u64, length: u32| {
        let words = [node, port, slot].map(u32::to_le_bytes).concat();
        [&[kind][..], &words, &iteration.to_le_bytes(), &length.to_le_bytes()].concat()
    };
    let with = |head: Vec<u8>, content: &[u8]| [&head[..], content].concat();
    let said = [
        vec![],
        b"anything".to_vec(),
        vec![0xff; 25],
        head(0, 0, 0, 0, 0, u32::MAX),
        head(0, 2, 0, 0, 0, 1 << 30),
        with(head(0, 2, 0, 0, 0, 3), b"odd"),
        head(1, 9, 0, 0, 0, 0),
        head(1, 2, 7, 0, 0, 0),
        head(1, 2, 0, 999, 0, 0),
        head(1, 2, 0, 0, 999, 0),
        head(1, 1, 0, 0, 0, 0),
        head(2, 0, 0, 0, 0, 0),
        head(3, 0, 0, 0, 0, 0),
        head(4, 0, 0, 0, 0, 0),
        head(5, 1, 1, 0, 0, 0),
        head(6, 1, 1, 0, 0, 0),
        with(head(6, 1, 1, 0, 0, 1), &[0]),
        with(head(7, 0, 0, 0, 0, 4), b"true"),
        with(head(7, 0, 0, 0, 0, 22), b"{\"Done\":{\"iterations\":1}}"),
        with(
            head(7, 0, 0, 0, 0, 67),
            b"{\"Share\":{\"logs\":[],\"items\":[],\"sent\":{\"operands\":{},\"all\":{}}}}   ",
        ),
        // One message twice.
        [head(1, 2, 0, 0, 0, 0), head(1, 2, 0, 0, 0, 0)].concat(),
    ];
    for scheduler in [Scheduler::Local, Scheduler::Central] {
        for said in &said {
            let ([leader, other], [there, honest]) = (pair(), pair());
            let (mut stream, ready) = (only(other), ready(scheduler, only(there), honest));
            let run = thread::scope(|scope| {
                let run = scope.spawn(|| line(scheduler, leader, |n| n));
                // Once it has seen an invalid message, it reads no more.
                let _ = stream.write_all(&[&ready[..], said].concat());
                drop(stream);
                run.join().expect("no panic")
            });
            let error = run.expect_err("no peer of this run").to_string();
            assert!(error.starts_with("machine 1: "), "{said:?}: {error}");
        }
    }
}
