//! The checker sees every kind of damage: valid results are damaged in one place and must then be refused for that reason.

mod instances;

use anabranch_placement::check::{Violation, check_placement, check_schedule};
use anabranch_placement::graph::TaskId;
use anabranch_placement::order::Pct;
use anabranch_placement::place::{CriticalPath, Placer};
use anabranch_placement::platform::DeviceId;
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::schedule::{Schedule, Span};
use anabranch_placement::simulate::{LinkContention, SimulateOptions, simulate};
use arbtest::arbitrary::{Result, Unstructured};
use instances::Instance;

/// Whether a violation is the one that a damage must lead to.
type Expected = fn(&Violation) -> bool;

/// Damages a schedule and says which violation must be found; `None` where this schedule offers nothing to damage.
type Damage = fn(&Problem<'_>, &mut Schedule, &mut Unstructured<'_>) -> Result<Option<Expected>>;

const DAMAGES: &[(&str, Damage)] = &[
    ("shrink a task", shrink),
    ("move a task to another device", relocate),
    ("start a task before an input", hasten),
    ("put a task on top of another", overlap),
    ("exchange a task with its successor", exchange),
    ("drop a transfer", drop_transfer),
    ("repeat a transfer", repeat_transfer),
    ("start a transfer before its datum", hasten_transfer),
    ("shorten a transfer", shorten_transfer),
    ("change the size of a transfer", resize_transfer),
    ("send while a task runs", send_beside_work),
    ("leave a task out of the order", shorten_order),
    ("name a task twice in the order", repeat_in_order),
    ("turn the order round", reverse_order),
    ("change the makespan", change_makespan),
    ("change the traffic", change_traffic),
    ("lose a time", lose_time),
];

fn any<'t, T>(list: &'t [T], random: &mut Unstructured<'_>) -> Result<Option<&'t T>> {
    if list.is_empty() { Ok(None) } else { random.choose(list).map(Some) }
}

fn shrink(_: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    let mut long: Vec<_> = schedule.tasks.iter_mut().filter(|span| span.end > span.start).collect();
    if long.is_empty() {
        return Ok(None);
    }
    let chosen = random.int_in_range(0..=long.len() - 1)?;
    long[chosen].end = (long[chosen].start + long[chosen].end) / 2.0;
    Ok(Some(|violation| matches!(violation, Violation::Duration { .. })))
}

fn relocate(problem: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    let devices = problem.platform().device_count() as u32;
    if schedule.tasks.is_empty() || devices == 1 {
        return Ok(None);
    }
    let chosen = random.int_in_range(0..=schedule.tasks.len() - 1)?;
    let device = &mut schedule.tasks[chosen].device;
    *device = DeviceId((device.0 + 1) % devices);
    Ok(Some(|violation| matches!(violation, Violation::OtherDevice { .. })))
}

fn hasten(problem: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    let graph = problem.graph();
    let ends_late =
        |task: &TaskId| graph.predecessors(*task).iter().any(|before| schedule.tasks[before.index()].end > 0.1);
    let late: Vec<TaskId> = graph.task_ids().filter(ends_late).collect();
    let Some(&task) = any(&late, random)? else { return Ok(None) };
    let span = &mut schedule.tasks[task.index()];
    (span.start, span.end) = (0.0, span.end - span.start);
    Ok(Some(|violation| matches!(violation, Violation::Precedence { .. })))
}

fn overlap(_: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    let mut pairs = Vec::new();
    for (one, first) in schedule.tasks.iter().enumerate() {
        for (other, second) in schedule.tasks.iter().enumerate() {
            if one != other && first.device == second.device && first.end > first.start && second.end > second.start {
                pairs.push((one, other));
            }
        }
    }
    let Some(&(one, other)) = any(&pairs, random)? else { return Ok(None) };
    let duration = schedule.tasks[other].end - schedule.tasks[other].start;
    schedule.tasks[other].start = schedule.tasks[one].start;
    schedule.tasks[other].end = schedule.tasks[one].start + duration;
    Ok(Some(|violation| matches!(violation, Violation::Overlap { .. })))
}

fn exchange(problem: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    let graph = problem.graph();
    let spans = &schedule.tasks;
    let edges: Vec<(TaskId, TaskId)> = graph
        .task_ids()
        .flat_map(|task| graph.successors(task).iter().map(move |&next| (task, next)))
        .filter(|(task, next)| spans[next.index()].end > spans[task.index()].start + 0.1)
        .collect();
    let Some(&(task, next)) = any(&edges, random)? else { return Ok(None) };
    schedule.tasks.swap(task.index(), next.index());
    Ok(Some(|violation| {
        matches!(violation, Violation::Precedence { .. } | Violation::Duration { .. } | Violation::Order { .. })
    }))
}

fn drop_transfer(_: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    if schedule.transfers.is_empty() {
        return Ok(None);
    }
    let chosen = random.int_in_range(0..=schedule.transfers.len() - 1)?;
    let dropped = schedule.transfers.remove(chosen);
    schedule.traffic -= dropped.bytes;
    Ok(Some(|violation| matches!(violation, Violation::MissingTransfer { .. })))
}

fn repeat_transfer(
    _: &Problem<'_>,
    schedule: &mut Schedule,
    random: &mut Unstructured<'_>,
) -> Result<Option<Expected>> {
    let Some(&repeated) = any(&schedule.transfers, random)? else { return Ok(None) };
    schedule.transfers.push(repeated);
    schedule.traffic += repeated.bytes;
    Ok(Some(|violation| matches!(violation, Violation::NeedlessTransfer { .. })))
}

fn hasten_transfer(
    problem: &Problem<'_>,
    schedule: &mut Schedule,
    random: &mut Unstructured<'_>,
) -> Result<Option<Expected>> {
    let produced = |datum| schedule.tasks[problem.graph().producer(datum).index()].end;
    let late: Vec<usize> =
        (0..schedule.transfers.len()).filter(|&sent| produced(schedule.transfers[sent].datum) > 0.1).collect();
    let Some(&sent) = any(&late, random)? else { return Ok(None) };
    let sent = &mut schedule.transfers[sent];
    let (send, transfer) = (sent.send_end - sent.send_start, sent.end - sent.start);
    (sent.send_start, sent.send_end, sent.start, sent.end) = (0.0, send, send, send + transfer);
    Ok(Some(|violation| matches!(violation, Violation::EarlyTransfer { .. })))
}

fn shorten_transfer(
    _: &Problem<'_>,
    schedule: &mut Schedule,
    random: &mut Unstructured<'_>,
) -> Result<Option<Expected>> {
    let long: Vec<usize> = (0..schedule.transfers.len())
        .filter(|&sent| schedule.transfers[sent].end > schedule.transfers[sent].start)
        .collect();
    let Some(&sent) = any(&long, random)? else { return Ok(None) };
    schedule.transfers[sent].end = schedule.transfers[sent].start;
    Ok(Some(|violation| matches!(violation, Violation::Duration { .. })))
}

fn resize_transfer(
    _: &Problem<'_>,
    schedule: &mut Schedule,
    random: &mut Unstructured<'_>,
) -> Result<Option<Expected>> {
    if schedule.transfers.is_empty() {
        return Ok(None);
    }
    let chosen = random.int_in_range(0..=schedule.transfers.len() - 1)?;
    schedule.transfers[chosen].bytes += 1;
    schedule.traffic += 1;
    Ok(Some(|violation| matches!(violation, Violation::NeedlessTransfer { .. })))
}

fn shorten_order(_: &Problem<'_>, schedule: &mut Schedule, _: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    Ok(schedule.order.pop().map(|_| -> Expected { |violation| matches!(violation, Violation::Order { .. }) }))
}

/// Moves the work on a send, where it takes time, onto a task of the same device; what follows from it stays possible.
fn send_beside_work(
    _: &Problem<'_>,
    schedule: &mut Schedule,
    random: &mut Unstructured<'_>,
) -> Result<Option<Expected>> {
    let mut pairs = Vec::new();
    for (place, sent) in schedule.transfers.iter().enumerate().filter(|(_, sent)| sent.send_end > sent.send_start) {
        let later = |span: &&Span| span.device == sent.from && span.start >= sent.send_end && span.end > span.start;
        pairs.extend(schedule.tasks.iter().filter(later).map(|span| (place, span.start)));
    }
    let Some(&(place, start)) = any(&pairs, random)? else { return Ok(None) };
    let sent = &mut schedule.transfers[place];
    let (send, transfer) = (sent.send_end - sent.send_start, sent.end - sent.start);
    (sent.send_start, sent.send_end) = (start, start + send);
    (sent.start, sent.end) = (start + send, start + send + transfer);
    Ok(Some(|violation| matches!(violation, Violation::Overlap { .. })))
}

fn repeat_in_order(_: &Problem<'_>, schedule: &mut Schedule, _: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    let Some(&last) = schedule.order.last() else { return Ok(None) };
    schedule.order.push(last);
    Ok(Some(|violation| matches!(violation, Violation::Order { .. })))
}

fn reverse_order(problem: &Problem<'_>, schedule: &mut Schedule, _: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    schedule.order.reverse();
    let any_edge = problem.graph().edge_count() > 0;
    Ok(any_edge.then_some(|violation| matches!(violation, Violation::Order { .. })))
}

fn change_makespan(_: &Problem<'_>, schedule: &mut Schedule, _: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    schedule.makespan = schedule.makespan * 1.01 + 1.0;
    Ok(Some(|violation| matches!(violation, Violation::Makespan { .. })))
}

fn change_traffic(_: &Problem<'_>, schedule: &mut Schedule, _: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    schedule.traffic += 1;
    Ok(Some(|violation| matches!(violation, Violation::Traffic { .. })))
}

fn lose_time(_: &Problem<'_>, schedule: &mut Schedule, random: &mut Unstructured<'_>) -> Result<Option<Expected>> {
    if schedule.tasks.is_empty() {
        return Ok(None);
    }
    let chosen = random.int_in_range(0..=schedule.tasks.len() - 1)?;
    schedule.tasks[chosen].start = *random.choose(&[f64::NAN, f64::INFINITY, -1.0])?;
    Ok(Some(|violation| matches!(violation, Violation::Time { .. })))
}

/// CP spreads tasks over devices, so that there is something to send.
fn damage_and_check(problem: &Problem<'_>, random: &mut Unstructured<'_>) -> Result<()> {
    let Ok(placement) = CriticalPath.place(problem) else { return Ok(()) };
    let options = *random.choose(&[SimulateOptions::default(), SimulateOptions::THESIS])?;
    let valid = simulate(problem, &placement.device_of, &Pct, &options).unwrap();
    for (name, damage) in DAMAGES {
        let mut damaged = valid.clone();
        if let Some(expected) = damage(problem, &mut damaged, random)? {
            let found = check_schedule(problem, &placement.device_of, &damaged, &options);
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

/// A task that moves alone leaves its group, its kinds or its pin, or it is allowed to move.
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

/// Everything on one device: refused exactly where its memory does not hold it, if nothing else is wrong with it.
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

/// Without contention transfers overlap on a link, which a check for serial links must see.
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
    let serial = SimulateOptions { contention: LinkContention::Serial, ..SimulateOptions::default() };
    let free = simulate(&problem, &device_of, &Pct, &SimulateOptions::default()).unwrap();
    let shared = simulate(&problem, &device_of, &Pct, &serial).unwrap();
    assert_eq!((free.makespan, shared.makespan), (5.0, 6.0));
    assert_eq!(check_schedule(&problem, &device_of, &shared, &serial), []);
    let found = check_schedule(&problem, &device_of, &free, &serial);
    assert!(matches!(found[..], [Violation::SharedLink { .. }]), "{found:?}");
}
