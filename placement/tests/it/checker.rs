//! The checker finds every kind of damage: valid results are damaged in one place and must be rejected for that reason.

use crate::instances::Instance;
use anabranch_placement::check::{Violation, check_placement, check_schedule};
use anabranch_placement::graph::TaskId;
use anabranch_placement::order::Pct;
use anabranch_placement::place::{CriticalPath, Placer};
use anabranch_placement::platform::DeviceId;
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::rules::{Delays, LinkContention, Rules, Slowdowns};
use anabranch_placement::schedule::{Schedule, Span, TransferSpan};
use anabranch_placement::simulate::simulate;
use arbtest::arbitrary::{Result, Unstructured};

/// Predicate for the violation that a damage must cause.
type Expected = fn(&Violation) -> bool;

/// Damages a schedule; returns false if this schedule has nothing to damage.
type Damage = fn(&Problem<'_>, &mut Schedule, &mut Unstructured<'_>) -> Result<bool>;

/// Damages one of `list`, if there is any.
fn damage_one<T>(mut list: Vec<T>, random: &mut Unstructured<'_>, damage: impl FnOnce(T)) -> Result<bool> {
    if list.is_empty() {
        return Ok(false);
    }
    let chosen = random.int_in_range(0..=list.len() - 1)?;
    damage(list.swap_remove(chosen));
    Ok(true)
}

const DURATION: Expected = |found| matches!(found, Violation::Duration { .. });
const OVERLAP: Expected = |found| matches!(found, Violation::Overlap { .. });
const NEEDLESS: Expected = |found| matches!(found, Violation::NeedlessTransfer { .. });
const PRECEDENCE: Expected = |found| matches!(found, Violation::Precedence { .. });
const ORDER: Expected = |found| matches!(found, Violation::Order { .. });

const DAMAGES: &[(&str, Expected, Damage)] = &[
    ("shrink a task", DURATION, |_, schedule, random| {
        let long = schedule.tasks.iter_mut().filter(|span| span.end > span.start);
        damage_one(long.collect(), random, |span| span.end = (span.start + span.end) / 2.0)
    }),
    (
        "move a task to another device",
        |found| matches!(found, Violation::OtherDevice { .. }),
        |problem, schedule, random| {
            let devices = problem.platform().device_count() as u32;
            let tasks = schedule.tasks.iter_mut().filter(|_| devices > 1);
            damage_one(tasks.collect(), random, |span| span.device = DeviceId((span.device.0 + 1) % devices))
        },
    ),
    ("start a task before an input", PRECEDENCE, |problem, schedule, random| {
        let graph = problem.graph();
        let ends_late = |before: &TaskId| schedule.tasks[before.index()].end > 0.1;
        let late = graph.task_ids().filter(|&task| graph.predecessors(task).iter().any(ends_late));
        damage_one(late.collect(), random, |task| {
            let span = &mut schedule.tasks[task.index()];
            (span.start, span.end) = (0.0, span.end - span.start);
        })
    }),
    ("put a task on top of another", OVERLAP, |_, schedule, random| {
        let mut pairs = Vec::new();
        for (one, first) in schedule.tasks.iter().enumerate().filter(|(_, span)| span.end > span.start) {
            let same =
                |&(other, span): &(usize, &Span)| other != one && span.device == first.device && span.end > span.start;
            pairs.extend(schedule.tasks.iter().enumerate().filter(same).map(|(other, _)| (one, other)));
        }
        damage_one(pairs, random, |(one, other)| {
            let (start, other) = (schedule.tasks[one].start, &mut schedule.tasks[other]);
            (other.start, other.end) = (start, start + other.end - other.start);
        })
    }),
    (
        "exchange a task with its successor",
        |found| PRECEDENCE(found) || DURATION(found) || ORDER(found),
        |problem, schedule, random| {
            let (graph, spans) = (problem.graph(), &schedule.tasks);
            let edges = graph.task_ids().flat_map(|task| graph.successors(task).iter().map(move |&next| (task, next)));
            let late = |(task, next): &(TaskId, TaskId)| spans[next.index()].end > spans[task.index()].start + 0.1;
            damage_one(edges.filter(late).collect(), random, |(task, next)| {
                schedule.tasks.swap(task.index(), next.index());
            })
        },
    ),
    (
        "drop a transfer",
        |found| matches!(found, Violation::MissingTransfer { .. }),
        |_, schedule, random| {
            damage_one((0..schedule.transfers.len()).collect(), random, |sent| {
                schedule.traffic -= schedule.transfers.remove(sent).bytes;
            })
        },
    ),
    ("repeat a transfer", NEEDLESS, |_, schedule, random| {
        damage_one(schedule.transfers.clone(), random, |repeated| {
            schedule.transfers.push(repeated);
            schedule.traffic += repeated.bytes;
        })
    }),
    (
        "start a transfer before its datum",
        |found| matches!(found, Violation::EarlyTransfer { .. }),
        |problem, schedule, random| {
            let produced = |datum| schedule.tasks[problem.graph().producer(datum).index()].end;
            let late = schedule.transfers.iter_mut().filter(|sent| produced(sent.datum) > 0.1);
            damage_one(late.collect(), random, |sent| move_transfer(sent, 0.0))
        },
    ),
    ("shorten a transfer", DURATION, |_, schedule, random| {
        let long = schedule.transfers.iter_mut().filter(|sent| sent.end > sent.start);
        damage_one(long.collect(), random, |sent| sent.end = sent.start)
    }),
    ("change the size of a transfer", NEEDLESS, |_, schedule, random| {
        schedule.traffic += u64::from(!schedule.transfers.is_empty());
        damage_one(schedule.transfers.iter_mut().collect(), random, |sent| sent.bytes += 1)
    }),
    // Moves the work on a send, if it takes time, onto a task of the device; everything that depends on it stays
    // possible.
    ("send while a task runs", OVERLAP, |_, schedule, random| {
        let mut pairs = Vec::new();
        for sent in schedule.transfers.iter_mut().filter(|sent| sent.send_end > sent.send_start) {
            let later = |span: &&Span| span.device == sent.from && span.start >= sent.send_end && span.end > span.start;
            let starts: Vec<f64> = schedule.tasks.iter().filter(later).map(|span| span.start).collect();
            if !starts.is_empty() {
                pairs.push((sent, *random.choose(&starts)?));
            }
        }
        damage_one(pairs, random, |(sent, start)| move_transfer(sent, start))
    }),
    ("leave a task out of the order", ORDER, |_, schedule, _| Ok(schedule.order.pop().is_some())),
    ("name a task twice in the order", ORDER, |_, schedule, _| {
        schedule.order.extend(schedule.order.last().copied());
        Ok(!schedule.order.is_empty())
    }),
    ("turn the order round", ORDER, |problem, schedule, _| {
        schedule.order.reverse();
        Ok(problem.graph().edge_count() > 0)
    }),
    (
        "change the makespan",
        |found| matches!(found, Violation::Makespan { .. }),
        |_, schedule, _| {
            schedule.makespan = schedule.makespan * 1.01 + 1.0;
            Ok(true)
        },
    ),
    (
        "change the traffic",
        |found| matches!(found, Violation::Traffic { .. }),
        |_, schedule, _| {
            schedule.traffic += 1;
            Ok(true)
        },
    ),
    (
        "lose a time",
        |found| matches!(found, Violation::Time { .. }),
        |_, schedule, random| {
            let time = *random.choose(&[f64::NAN, f64::INFINITY, -1.0])?;
            damage_one(schedule.tasks.iter_mut().collect(), random, |span| span.start = time)
        },
    ),
];

/// Moves a transfer and the work on its send to `start`.
fn move_transfer(sent: &mut TransferSpan, start: f64) {
    let (send, transfer) = (sent.send_end - sent.send_start, sent.end - sent.start);
    (sent.send_start, sent.send_end) = (start, start + send);
    (sent.start, sent.end) = (start + send, start + send + transfer);
}

/// CP spreads tasks over devices, so there are sends.
fn damage_and_check(problem: &Problem<'_>, random: &mut Unstructured<'_>) -> Result<()> {
    let Ok(placement) = CriticalPath.place(problem) else { return Ok(()) };
    let serial = Rules::default().with_contention(LinkContention::Serial);
    let slowdowns = Slowdowns::from_fn(problem.platform().device_count(), |a, b| 1.0 + 0.25 * f64::from(a.0 + b.0));
    let slowed = Rules::THESIS.with_slowdowns(slowdowns);
    let rules = random.choose(&[Rules::default(), Rules::THESIS, serial, slowed])?.clone();
    let problem = &problem.clone().under(rules).unwrap();
    let valid = simulate(problem, &placement.device_of, &Pct).unwrap();
    assert_eq!(check_schedule(problem, &placement.device_of, &valid), []);
    for (name, expected, damage) in DAMAGES {
        let mut damaged = valid.clone();
        if damage(problem, &mut damaged, random)? {
            let found = check_schedule(problem, &placement.device_of, &damaged);
            assert!(found.iter().any(expected), "{name}: {found:?}");
        }
    }
    Ok(())
}

#[test]
fn damaged_schedules_are_refused_for_their_damage() {
    arbtest::arbtest(|random| {
        let Some(instance) = Instance::draw(random)? else { return Ok(()) };
        instance.with_problem(|problem| damage_and_check(problem, random)).unwrap_or(Ok(()))
    })
    .budget_ms(900);
}

/// A task that moves alone is rejected if it leaves its group, its kinds or its pin, and accepted otherwise.
#[test]
fn a_task_that_moves_is_refused_exactly_where_it_may_not() {
    arbtest::arbtest(|random| {
        let Some(instance) = Instance::draw(random)? else { return Ok(()) };
        instance
            .with_problem(|problem| {
                let Ok(placement) = CriticalPath.place(problem) else { return Ok(()) };
                let graph = problem.graph();
                if graph.task_count() == 0 || problem.memory_rule() != MemoryRule::Ignore {
                    return Ok(());
                }
                let task = TaskId(random.int_in_range(0..=graph.task_count() as u32 - 1)?);
                let device = DeviceId(random.int_in_range(0..=problem.platform().device_count() as u32 - 1)?);
                let stays = placement.device_of[task.index()] == device;
                let alone = graph.members(graph.unit(task)).len() == 1;
                let mut moved = placement.device_of;
                moved[task.index()] = device;
                let may = stays || alone && problem.is_feasible(graph.unit(task), device);
                assert_eq!(check_placement(problem, &moved).is_empty(), may);
                Ok(())
            })
            .unwrap_or(Ok(()))
    })
    .budget_ms(500);
}

/// All tasks on one device are rejected if and only if its memory does not suffice, if they have no other fault.
#[test]
fn an_overfull_device_is_refused() {
    arbtest::arbtest(|random| {
        let Some(instance) = Instance::draw(random)? else { return Ok(()) };
        instance.with_problem(|problem| {
            let graph = problem.graph();
            let demand: u64 = graph.unit_ids().map(|unit| problem.demand(unit)).sum();
            for device in problem.platform().device_ids() {
                if !graph.unit_ids().all(|unit| problem.is_feasible(unit, device)) {
                    continue;
                }
                let holds = problem.platform().device(device).memory.is_none_or(|memory| demand <= memory);
                let found = check_placement(problem, &vec![device; graph.task_count()]);
                assert_eq!(found.is_empty(), holds, "{found:?}");
                assert!(found.iter().all(|violation| matches!(violation, Violation::Memory { .. })), "{found:?}");
            }
        });
        Ok(())
    })
    .budget_ms(300);
}

#[test]
fn devices_that_do_not_exist_and_missing_entries_are_refused() {
    arbtest::arbtest(|random| {
        let Some(instance) = Instance::draw(random)? else { return Ok(()) };
        instance.with_problem(|problem| {
            let Ok(mut placement) = CriticalPath.place(problem) else { return };
            if placement.device_of.pop().is_some() {
                let found = check_placement(problem, &placement.device_of);
                assert!(matches!(found[..], [Violation::Length { .. }]), "{found:?}");
                placement.device_of.push(DeviceId(problem.platform().device_count() as u32));
                let found = check_placement(problem, &placement.device_of);
                assert!(
                    found.iter().any(|violation| matches!(violation, Violation::UnknownDevice { .. })),
                    "{found:?}"
                );
            }
        });
        Ok(())
    })
    .budget_ms(200);
}

/// Without contention transfers overlap on a link; a check for serial links must find this.
#[test]
fn overlapping_transfers_are_refused_on_serial_links() {
    use anabranch_placement::cost::OperationsOverSpeed;
    use anabranch_placement::graph::{GraphBuilder, Task};
    use anabranch_placement::platform::{Device, DeviceKind, Platform};
    let mut builder = GraphBuilder::new();
    let source = builder.task(Task::new("source").with_operations(1.0));
    for name in ["a", "b"] {
        let sink = builder.task(Task::new(name).with_operations(1.0));
        builder.edge(source, sink, 10);
    }
    let graph = builder.build().unwrap();
    let platform = Platform::uniform(vec![Device::new("d", DeviceKind::Cpu); 2], 1.0, 10.0).unwrap();
    let costs = OperationsOverSpeed::new(&graph, &platform);
    let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
    let device_of = [0, 1, 1].map(DeviceId);
    let serial = problem.clone().under(Rules::default().with_contention(LinkContention::Serial)).unwrap();
    let free = simulate(&problem, &device_of, &Pct).unwrap();
    let shared = simulate(&serial, &device_of, &Pct).unwrap();
    assert_eq!((free.makespan, shared.makespan), (5.0, 6.0));
    assert_eq!(check_schedule(&serial, &device_of, &shared), []);
    let found = check_schedule(&serial, &device_of, &free);
    assert!(matches!(found[..], [Violation::SharedLink { .. }]), "{found:?}");
    // Half of a transfer's time is a delay after the link, during which the other transfer may use the link.
    let rules = serial.rules().clone().with_delays(Delays::from_fn(2, |_, _| 1.0));
    let delayed = problem.clone().under(rules).unwrap();
    let staggered = simulate(&delayed, &device_of, &Pct).unwrap();
    let starts: Vec<f64> = staggered.transfers.iter().map(|transfer| transfer.start).collect();
    assert_eq!((starts, staggered.makespan), (vec![1.0, 2.0], 5.0));
    assert_eq!(check_schedule(&delayed, &device_of, &staggered), []);
    for (problem, schedule) in [(&serial, &staggered), (&delayed, &free)] {
        let found = check_schedule(problem, &device_of, schedule);
        assert!(matches!(found[..], [Violation::SharedLink { .. }]), "{found:?}");
    }
}
