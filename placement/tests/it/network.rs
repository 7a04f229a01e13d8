//! Networks whose links are shared, against a simulator written from the definition, and against the checker.

use anabranch_placement::check::{Violation, check_schedule};
use anabranch_placement::format::{Loaded, LoadedProblem, json, parse};
use anabranch_placement::generate::{Random, RandomDag};
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::network::{Network, NetworkLink};
use anabranch_placement::order::{Pct, PlacedGraph, path_computation_times};
use anabranch_placement::place::{STRATEGIES, strategy_by_name};
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::rules::{LinkContention, Rules};
use anabranch_placement::simulate::simulate;

/// Returns devices on two switches with a trunk between them: each device has a link, and odd devices have one more.
fn network(devices: u32, random: &mut Random) -> Platform {
    let list: Vec<Device> = (0..devices).map(|at| Device::new(format!("d{at}"), DeviceKind::Cpu)).collect();
    let mut link = |name: String| {
        let [latency, rate] = [random.below(3), 1 + random.below(3)].map(|number| number as f64);
        NetworkLink { name, latency, rate }
    };
    let names = (0..devices).map(|at| format!("link {at}")).chain(["trunk".into()]);
    let links: Vec<NetworkLink> = names.map(&mut link).collect();
    let route = |from: DeviceId, to: DeviceId| match from.0 % 2 == to.0 % 2 {
        true => vec![from.0, to.0],
        false => vec![to.0, devices, from.0],
    };
    let network = Network::new(&list, links, route).unwrap();
    Platform::networked(list, network).unwrap()
}

/// Returns a random graph of whole numbers, so that many events happen at the same time.
fn graph(random: &mut Random) -> TaskGraph {
    let seed = random.bits();
    let shape = RandomDag { tasks: 20, ..RandomDag::default() }.generate(seed).unwrap();
    let mut builder = GraphBuilder::new();
    for task in shape.tasks() {
        builder.task(Task::new(&task.name).with_operations(1.0 + random.below(4) as f64));
    }
    for datum in shape.datum_ids() {
        let copy = builder.datum(shape.producer(datum), 1 + random.below(6));
        shape.consumers(datum).iter().for_each(|consumer| builder.consume(copy, *consumer));
    }
    builder.build().unwrap()
}

/// Returns the start of each task and of each transfer by the definition of `network`, all transfers examined again at
/// each moment.
fn naive(problem: &Problem<'_>, device_of: &[DeviceId]) -> (Vec<f64>, Vec<f64>) {
    let placed = PlacedGraph::new(problem, device_of);
    let (graph, network, rank) =
        (problem.graph(), problem.platform().network().unwrap(), path_computation_times(&placed));
    let sends = placed.sends().all();
    let end = |start: Option<f64>, time: f64| start.map_or(f64::INFINITY, |start| start + time);
    let mut tasks: Vec<Option<f64>> = vec![None; graph.task_count()];
    let mut transfers: Vec<Option<f64>> = vec![None; sends.len()];
    let mut now = 0.0;
    loop {
        let task_end = |tasks: &[Option<f64>], task: TaskId| end(tasks[task.index()], placed.time(placed.item(task)));
        let sent = |transfers: &[Option<f64>], send: usize| end(transfers[send], placed.transfer_time(send));
        // Transfers start in the order of readiness, priority and number.
        let produced = |send: usize| task_end(&tasks, graph.producer(sends[send].datum));
        let mut waiting: Vec<usize> =
            (0..sends.len()).filter(|&send| transfers[send].is_none() && produced(send) <= now).collect();
        waiting.sort_by(|&one, &other| {
            produced(one).total_cmp(&produced(other)).then(rank[other].total_cmp(&rank[one])).then(one.cmp(&other))
        });
        for send in waiting {
            let occupied = |link: &u32| {
                (0..sends.len()).any(|other| {
                    transfers[other].is_some()
                        && sent(&transfers, other) > now
                        && network.route(sends[other].from, sends[other].to).contains(link)
                })
            };
            if !network.route(sends[send].from, sends[send].to).iter().any(occupied) {
                transfers[send] = Some(now);
            }
        }
        for device in problem.platform().device_ids() {
            let mine = |task: &TaskId| device_of[task.index()] == device;
            if graph.task_ids().filter(mine).any(|task| tasks[task.index()].is_some() && task_end(&tasks, task) > now) {
                continue;
            }
            let has = |task: TaskId, datum| match placed.sends().to(datum, device) {
                Some(send) => sent(&transfers, send) <= now,
                None => task_end(&tasks, graph.producer(datum)) <= now && mine(&task),
            };
            let ready = graph.task_ids().filter(mine).filter(|task| tasks[task.index()].is_none());
            let ready = ready.filter(|&task| graph.inputs(task).iter().all(|&datum| has(task, datum)));
            let best = ready.max_by(|&one, &other| {
                rank[placed.item(one)].total_cmp(&rank[placed.item(other)]).then(other.cmp(&one))
            });
            if let Some(task) = best {
                tasks[task.index()] = Some(now);
            }
        }
        let ends = graph.task_ids().map(|task| task_end(&tasks, task));
        let ends = ends.chain((0..sends.len()).map(|send| sent(&transfers, send)));
        match ends.filter(|end| *end > now && end.is_finite()).reduce(f64::min) {
            Some(next) => now = next,
            None => return (tasks.into_iter().flatten().collect(), transfers.into_iter().flatten().collect()),
        }
    }
}

#[test]
fn shared_links_are_used_as_defined() {
    let serial = Rules::default().with_contention(LinkContention::Serial);
    let mut slower = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let platform = network(2 + random.below(5) as u32, &mut random);
        let device_of: Vec<DeviceId> =
            (0..20).map(|_| DeviceId(random.below(platform.device_count() as u64) as u32)).collect();
        let loaded = LoadedProblem::new("network", graph(&mut random), platform, MemoryRule::Ignore);
        let problem = loaded.problem().unwrap().under(serial.clone()).unwrap();
        let schedule = simulate(&problem, &device_of, &Pct).unwrap();
        assert_eq!(check_schedule(&problem, &device_of, &schedule), [], "seed {seed}");
        let (tasks, transfers) = naive(&problem, &device_of);
        assert_eq!(schedule.tasks.iter().map(|span| span.start).collect::<Vec<_>>(), tasks, "seed {seed}");
        assert_eq!(schedule.transfers.iter().map(|span| span.start).collect::<Vec<_>>(), transfers, "seed {seed}");
        // A schedule without contention breaks the rule of the links, or happens to keep it.
        let free = simulate(&loaded.problem().unwrap(), &device_of, &Pct).unwrap();
        let found = check_schedule(&problem, &device_of, &free);
        assert!(found.iter().all(|violation| matches!(violation, Violation::NetworkLink { .. })), "{found:?}");
        slower += usize::from(!found.is_empty() && free.makespan < schedule.makespan);
    }
    assert!(slower > 30, "{slower}");
}

/// A network of one link per ordered pair is the rule without a network.
#[test]
fn links_of_their_own_are_the_serial_links() {
    let serial = Rules::default().with_contention(LinkContention::Serial);
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let devices: Vec<Device> = (0..4).map(|at| Device::new(format!("d{at}"), DeviceKind::Cpu)).collect();
        let link = |at| NetworkLink { name: format!("{at}"), latency: 1.0, rate: 2.0 };
        let own = |from: DeviceId, to: DeviceId| vec![from.0 * 4 + to.0];
        let network = Network::new(&devices, (0..16).map(link).collect(), own).unwrap();
        let device_of: Vec<DeviceId> = (0..20).map(|_| DeviceId(random.below(4) as u32)).collect();
        let graph = graph(&mut random);
        let [routed, direct] = [
            Platform::networked(devices.clone(), network).unwrap(),
            Platform::uniform(devices.clone(), 1.0, 2.0).unwrap(),
        ]
        .map(|platform| {
            let loaded = LoadedProblem::new("network", graph.clone(), platform, MemoryRule::Ignore);
            let problem = loaded.problem().unwrap().under(serial.clone()).unwrap();
            simulate(&problem, &device_of, &Pct).unwrap()
        });
        assert_eq!(routed, direct, "seed {seed}");
    }
}

/// Every strategy places on a network, and a problem file keeps it.
#[test]
fn strategies_and_files_know_networks() {
    let mut random = Random::new(7);
    let platform = network(4, &mut random);
    let loaded = LoadedProblem::new("network", graph(&mut random), platform, MemoryRule::Ignore);
    let mut bytes = Vec::new();
    json::write_problem(&loaded, &mut bytes).unwrap();
    assert_eq!(parse("file", &bytes).unwrap(), Loaded::Problems(vec![loaded.clone()]));
    let serial = Rules::default().with_contention(LinkContention::Serial);
    let problem = loaded.problem().unwrap().under(serial).unwrap();
    for (name, _) in STRATEGIES.iter().filter(|(name, _)| *name != "gpu") {
        let placement = strategy_by_name(name).unwrap().place(&problem).unwrap();
        let schedule = simulate(&problem, &placement.device_of, &Pct).unwrap();
        assert_eq!(check_schedule(&problem, &placement.device_of, &schedule), [], "{name}");
    }
}
