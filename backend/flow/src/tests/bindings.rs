//! Bindings of nodes: pins, machines, allocations, and the messages that follow from them.

use super::super::{Allocation, Flow, FlowError, FlowReport, Scheduler, WorkerConfig};
use super::{all_options, options};
use anabranch_plan::plan_file::PlanFile;

/// Returns six nodes in a line behind a source of `items` items.
fn line(items: u64) -> Flow<'static> {
    let mut flow = Flow::new();
    let mut last = flow.source("node 0", 0..items);
    for number in 1..6 {
        last = flow.node(format!("node {number}"), &last, |n| n + 1);
    }
    flow
}

fn workers_of(report: &FlowReport, node: u32) -> Vec<u32> {
    let mut workers: Vec<u32> =
        report.events.iter().filter(|event| event.node == node).map(|event| event.worker).collect();
    workers.sort_unstable();
    workers.dedup();
    workers
}

#[test]
fn pins_and_machines_hold_under_every_scheduler() {
    for options in all_options() {
        let last = options.worker_config().worker_count() - 1;
        let machine = options.worker_config().machine_of(last);
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..100u64).pin(last);
        let bound = flow.node("bound", &numbers, |n| n).machine(machine);
        let free = flow.node("free", &bound, |n| n);
        let kept = flow.serializer("kept", &free, |n| n).pin(0);
        flow.collect("collected", &kept);
        let worker_config = options.worker_config().clone();
        let report = flow.run(&options.with_profile(true)).expect("a sound flow");
        assert_eq!((workers_of(&report, 0), workers_of(&report, 3)), (vec![last], vec![0]));
        assert!(workers_of(&report, 1).iter().all(|worker| worker_config.machine_of(*worker) == machine));
    }
}

/// With all nodes on machine 1, a central scheduler on machine 0 sends out each task and gets back each operand. A
/// local scheduler of machine 1 sends nothing to machine 0.
#[test]
fn local_schedulers_spare_the_messages_to_a_central_one() {
    let messages = |scheduler| {
        let mut flow = Flow::new();
        let mut last = flow.feeder("node 0", 1u64).pin(1);
        for number in 1..6 {
            last = flow.node(format!("node {number}"), &last, |n| n + 1).pin(1);
        }
        let traffic = flow.run(&options(2, 1, scheduler).with_iterations(10)).expect("a sound flow").traffic;
        (traffic.messages, traffic.bytes)
    };
    // Six tasks out and five operands back; each task but the first with one operand.
    assert_eq!(messages(Scheduler::Central), (10 * 11, 10 * 8 * (5 + 5)));
    assert_eq!(messages(Scheduler::CentralStealing), (10 * 11, 10 * 8 * (5 + 5)));
    assert_eq!((messages(Scheduler::Local), messages(Scheduler::Stealing)), ((0, 0), (0, 0)));
}

#[test]
fn an_operand_for_another_machine_is_a_message_of_its_bytes() {
    let allocation = Allocation::new((0..6).map(|node| (format!("node {node}"), node % 2)));
    let report = line(10).run(&options(2, 1, Scheduler::Local).with_allocation(allocation)).expect("a sound flow");
    assert_eq!((report.traffic.messages, report.traffic.bytes), (10 * 5, 10 * 5 * 8));
    assert_eq!(report.workers.iter().map(|worker| worker.stolen).sum::<u64>(), 0);
    let machines: Vec<_> = report.nodes.iter().map(|node| node.machine).collect();
    assert_eq!(machines, [0, 1, 0, 1, 0, 1].map(Some));
}

/// A stage of a pipeline is one node, which a static placement keeps on one machine. Stealing lets the other machines
/// run it, too.
#[test]
fn stealing_takes_a_stage_off_its_machine() {
    let run = |scheduler| {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..60u64);
        let slow = flow.node("slow", &numbers, |n| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            n
        });
        flow.collect("kept", &slow);
        let options = options(3, 1, scheduler).with_window(12).with_profile(true);
        workers_of(&flow.run(&options).expect("a sound flow"), 1)
    };
    assert_eq!(run(Scheduler::Local).len(), 1);
    assert!(run(Scheduler::Stealing).len() > 1);
}

#[test]
fn every_strategy_places_flows_within_their_bindings() {
    let worker_config = WorkerConfig::machines(2, 2).expect("a few workers");
    for (strategy, _) in anabranch_placement_core::place::STRATEGIES.iter().filter(|(name, _)| *name != "gpu") {
        let mut flow = line(4);
        let extra = flow.feeder("pinned", 1).pin(3).weight(4.0);
        flow.node("bound", &extra, |n| n).machine(0);
        let allocation = flow.place(strategy, &worker_config).unwrap_or_else(|error| panic!("{strategy}: {error}"));
        let of: Vec<u32> = allocation.nodes().map(|(_, worker)| worker).collect();
        assert_eq!((of[6], worker_config.machine_of(of[7])), (3, 0), "{strategy}");
        assert!(allocation.predicted().is_some_and(|schedule| schedule.makespan >= 6.0), "{strategy}");
        let options = options(2, 2, Scheduler::Local).with_allocation(allocation);
        assert!(flow.run(&options).is_ok(), "{strategy}");
    }
    let unknown = line(1).place("best", &worker_config).expect_err("no strategy");
    assert!(unknown.to_string().contains("\"best\"") && unknown.to_string().contains("heft"), "{unknown}");
}

#[test]
fn allocations_go_to_files_and_back() {
    let worker_config = WorkerConfig::machines(2, 1).expect("a few workers");
    let flow = line(1);
    let allocation = flow.place("hash", &worker_config).expect("placeable");
    let nodes: Vec<_> = allocation.nodes().collect();
    let file = serde_json::to_string(allocation.plan_file().expect("it was placed here")).expect("JSON");
    let file: PlanFile = serde_json::from_str(&file).expect("a plan file");
    let read = Allocation::from_plan_file(&file, &flow, &worker_config).expect("the same flow");
    assert_eq!(read.nodes().collect::<Vec<_>>(), nodes);
    let read = Allocation::from_list(&allocation.to_list(), &flow).expect("the same flow");
    assert_eq!(read.nodes().collect::<Vec<_>>(), nodes);
    let lone = WorkerConfig::of(1).expect("a few workers");
    assert!(Allocation::from_plan_file(&file, &flow, &lone).is_err_and(|error| error.to_string().contains("worker1")));
    let read = Allocation::from_list("5 1 # the last\n\n0 0\n1 0\n2 0\n3 0\n4 0\n", &flow).expect("in any order");
    assert_eq!(read.to_list(), "0 0\n1 0\n2 0\n3 0\n4 0\n5 1\n");
}

#[test]
fn allocations_that_do_not_fit_are_refused_by_line_and_node() {
    let flow = line(1);
    for (text, what) in [
        ("0 0\n1 0 0\n", "line 2"),
        ("0 x\n", "line 1"),
        ("6 0\n", "node 6"),
        ("0 0\n0 1\n", "second time"),
        ("0 0\n", "\"node 1\""),
    ] {
        let error = Allocation::from_list(text, &flow).expect_err(text).to_string();
        assert!(error.contains(what), "{error}");
    }
    let run = |nodes: Vec<(&str, u32)>| {
        let mut flow = Flow::new();
        let a = flow.feeder("a", 1).pin(1);
        flow.node("b", &a, |n| n);
        let options = options(2, 1, Scheduler::Local).with_allocation(Allocation::new(nodes));
        flow.run(&options).expect_err("it does not fit").to_string()
    };
    assert!(run(vec![("a", 1)]).contains("1 nodes"));
    assert!(run(vec![("a", 1), ("c", 0)]).contains("\"c\""));
    assert!(run(vec![("a", 0), ("b", 0)]).contains("pinned to worker 1"));
    assert!(run(vec![("a", 1), ("b", 9)]).contains("worker 9"));
    let elsewhere = FlowError::UnknownWorker { node: "b".into(), worker: 9, last: 1 };
    assert!(elsewhere.to_string().contains("0 to 1"));
}

#[test]
fn measured_times_become_weights() {
    let mut store = anabranch_costs::CostStore::default();
    store.settle("a machine");
    let declare = || {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..4u64);
        let slow = flow.node("slow", &numbers, |n| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            n
        });
        flow.node("quick", &slow, |n| n);
        flow
    };
    let report = declare().run(&options(1, 1, Scheduler::Local).with_profile(true)).expect("a sound flow");
    assert_eq!(report.learn("test", &mut store), 3);
    let (flow, unknown) = (declare(), declare());
    assert_eq!((flow.weigh("test", &store), unknown.weigh("other", &store)), (3, 0));
    let weights: Vec<f64> = flow.task_graph().expect("a graph").tasks().iter().map(|task| task.operations).collect();
    assert!(weights[1] >= 2e-3 && weights[2] < weights[1], "{weights:?}");
}
