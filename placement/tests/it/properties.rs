//! For every problem, every strategy under every order gives results that the independent checker accepts.

use crate::instances::Instance;
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::generate::{Family, Sweep};
use anabranch_placement::graph::TaskId;
use anabranch_placement::order::{ORDERS, Order, Pct, Planned, order_by_name};
use anabranch_placement::place::{PlaceError, Placement, STRATEGIES, strategy_by_name};
use anabranch_placement::problem::Problem;
use anabranch_placement::rules::{Delays, LinkContention, Rules, SendCosts, Slowdowns};
use anabranch_placement::schedule::Schedule;
use anabranch_placement::simulate::simulate;
use anabranch_placement::transfer::Sends;

/// Returns the rules under which schedules are simulated.
fn all_rules(devices: usize) -> [Rules; 5] {
    let send_costs = SendCosts { send_operations: 0.5, receive_operations: 0.0 };
    let serial = Rules::default().with_send_costs(send_costs).with_contention(LinkContention::Serial);
    let slowdowns = Slowdowns::from_fn(devices, |a, b| 1.0 + 0.25 * f64::from(a.0 + b.0));
    let delayed = serial.clone().with_delays(Delays::from_fn(devices, |from, to| f64::from(from.0 + to.0)));
    [Rules::default(), Rules::THESIS, serial.clone(), serial.with_slowdowns(slowdowns), delayed]
}

fn under<'a>(problem: &Problem<'a>, rules: Rules) -> Problem<'a> {
    problem.clone().under(rules).unwrap()
}

/// Runs `check` on random problems in which every unit alone has a solution.
fn for_random_problems(check: impl Fn(&Problem<'_>)) {
    arbtest::arbtest(|random| {
        if let Some(instance) = Instance::draw(random)? {
            instance.with_problem(&check);
        }
        Ok(())
    })
    .budget_ms(700);
}

/// Returns every strategy's placement; a strategy may fail only for lack of memory.
fn placements(problem: &Problem<'_>) -> Vec<Placement> {
    let place = |&(name, _): &(&str, &str)| match strategy_by_name(name).unwrap().place(problem) {
        Ok(placement) => Some(placement),
        Err(PlaceError::InsufficientMemory { needed, available, .. }) if needed > available => None,
        Err(error) => panic!("{name}: {error}"),
    };
    STRATEGIES.iter().filter_map(place).collect()
}

/// Returns the longest path of the shortest times, a lower bound of any execution.
fn critical_path_bound(problem: &Problem<'_>) -> f64 {
    let graph = problem.graph();
    let mut ends = vec![0.0f64; graph.task_count()];
    for &task in graph.topological() {
        let start = graph.predecessors(task).iter().map(|before| ends[before.index()]).fold(0.0, f64::max);
        let times = problem.feasible(graph.unit(task)).map(|device| problem.time(task, device));
        ends[task.index()] = start + times.fold(f64::INFINITY, f64::min);
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// Asserts that a device is busy between the arrival of a task's inputs and the start of the task.
fn assert_never_idle(problem: &Problem<'_>, schedule: &Schedule) {
    let graph = problem.graph();
    for task in graph.task_ids() {
        let span = schedule.tasks[task.index()];
        let arrival = |datum| match graph.producer(datum) {
            producer if schedule.tasks[producer.index()].device == span.device => schedule.tasks[producer.index()].end,
            _ => schedule.transfers.iter().find(|sent| sent.datum == datum && sent.to == span.device).unwrap().end,
        };
        let ready = graph.inputs(task).iter().map(|&datum| arrival(datum)).fold(0.0, f64::max);
        let busy = |start: f64, end: f64| (end.min(span.start) - start.max(ready)).max(0.0);
        let tasks = schedule.tasks.iter().filter(|other| other.device == span.device);
        let sends = schedule.transfers.iter().filter(|sent| sent.from == span.device);
        let sum = tasks.map(|other| busy(other.start, other.end)).sum::<f64>()
            + sends.map(|sent| busy(sent.send_start, sent.send_end)).sum::<f64>();
        assert!(
            (span.start - ready - sum).abs() < 1e-6,
            "{task} waits from {ready} to {} beside {sum} of work",
            span.start
        );
    }
}

#[test]
fn placements_are_valid_and_the_same_every_time() {
    for_random_problems(|problem| {
        let first = placements(problem);
        for placement in &first {
            assert_eq!(check_placement(problem, &placement.device_of), [], "{}", placement.strategy);
            assert_eq!(placement.reasons.len(), placement.device_of.len());
            if let Some(planned) = &placement.planned {
                assert_eq!(check_schedule(problem, &placement.device_of, planned), [], "{}", placement.strategy);
                assert!(planned.makespan >= critical_path_bound(problem) - 1e-9);
            }
        }
        assert_eq!(first, placements(problem));
    });
}

#[test]
fn schedules_are_valid_under_every_order() {
    for_random_problems(|problem| {
        let bound = critical_path_bound(problem);
        let all = all_rules(problem.platform().device_count());
        for placement in placements(problem) {
            let planned = placement.planned.as_ref().map(|planned| Planned::new(&planned.order));
            let named = ORDERS.iter().map(|name| order_by_name(name).unwrap());
            let orders: Vec<Box<dyn Order + '_>> =
                named.chain(planned.map(|planned| Box::new(planned) as Box<dyn Order>)).collect();
            for (order, rules) in orders.iter().flat_map(|order| all.iter().map(move |rules| (order, rules))) {
                let problem = under(problem, rules.clone());
                let schedule = simulate(&problem, &placement.device_of, order.as_ref()).unwrap();
                let violations = check_schedule(&problem, &placement.device_of, &schedule);
                assert_eq!(violations, [], "{} {} {rules:?}", placement.strategy, order.name());
                assert!(schedule.makespan >= bound - 1e-9);
                assert_never_idle(&problem, &schedule);
            }
        }
    });
}

/// Metrics stay in their ranges and agree with the placement.
#[test]
fn metrics_are_those_of_the_placement() {
    for_random_problems(|problem| {
        let baseline = Baseline::of(problem);
        assert!(baseline.critical_path <= baseline.bound.value + 1e-9);
        for placement in placements(problem) {
            let problem = &under(problem, Rules::THESIS);
            let schedule = simulate(problem, &placement.device_of, &Pct).unwrap();
            let metrics = Metrics::of(problem, &baseline, &schedule);
            let sends = Sends::of(problem.graph(), &placement.device_of);
            let traffic = (sends.count(), sends.cut_edges(), sends.traffic(), sends.traffic_by_edge());
            assert_eq!((metrics.sends, metrics.cut_edges, metrics.traffic, metrics.traffic_per_edge), traffic);
            assert!(metrics.gap.is_none_or(|gap| gap >= -1e-9) && metrics.slr.is_none_or(|slr| slr >= 1.0 - 1e-9));
            assert!(metrics.devices.iter().all(|device| (0.0..=1.0 + 1e-9).contains(&device.utilisation)));
            for device in &metrics.devices {
                let here = |task: &TaskId| placement.device_of[task.index()] == device.device;
                let tasks: Vec<TaskId> = problem.graph().task_ids().filter(here).collect();
                let resident: u64 = tasks.iter().map(|&task| problem.graph().task(task).memory).sum();
                assert!(device.tasks == tasks.len() && device.peak_memory >= resident);
                assert!(tasks.is_empty() || device.executable >= 1.0 && device.executable <= tasks.len() as f64);
            }
        }
    });
}

/// Every family of generated graphs, with independent times for each task and device.
#[test]
fn generated_graphs_are_placed_by_every_strategy() {
    let sizes = [("layered", 2), ("random", 30), ("fft", 8), ("gauss", 6), ("cholesky", 4), ("wavefront", 5)];
    for ((family, size), seed) in sizes.into_iter().chain([("in-tree", 4), ("out-tree", 4), ("fork-join", 2)]).zip(1..)
    {
        let graph = format!("{family}:{size}").parse::<Family>().unwrap().generate(seed).unwrap();
        let loaded = Sweep { devices: 4, ..Sweep::default() }.problem(family, graph, seed).unwrap();
        let problem = under(&loaded.problem().unwrap(), Rules::THESIS);
        let placements = placements(&problem);
        assert_eq!(placements.len(), STRATEGIES.len(), "{family}");
        for (placement, order) in
            placements.iter().flat_map(|placement| ORDERS.iter().map(move |order| (placement, order)))
        {
            assert_eq!(check_placement(&problem, &placement.device_of), [], "{family} {}", placement.strategy);
            let order = order_by_name(order).unwrap();
            let schedule = simulate(&problem, &placement.device_of, order.as_ref()).unwrap();
            assert_eq!(check_schedule(&problem, &placement.device_of, &schedule), [], "{family}");
        }
    }
}

/// Contention and send costs matter only if something is sent; on one device all orders take the sum of all times.
#[test]
fn one_device_takes_the_sum_of_all_times() {
    for_random_problems(|problem| {
        if problem.platform().device_count() > 1 {
            return;
        }
        let device = problem.platform().device_ids().next().unwrap();
        let sum: f64 = problem.graph().task_ids().map(|task| problem.time(task, device)).sum();
        for placement in placements(problem) {
            for name in ORDERS {
                let order = order_by_name(name).unwrap();
                let problem = under(problem, Rules::THESIS);
                let schedule = simulate(&problem, &placement.device_of, order.as_ref()).unwrap();
                assert!((schedule.makespan - sum).abs() < 1e-9);
                assert_eq!(schedule.traffic, 0);
            }
        }
    });
}
