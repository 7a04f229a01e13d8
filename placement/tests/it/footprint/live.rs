//! The memory bound of data against orders: no order holds more, and each holds at least as much as its greatest task.

use super::random;
use anabranch_placement::footprint::live_bytes;
use anabranch_placement::graph::{TaskGraph, TaskId};

/// Returns the most live bytes of data in an order of starts and ends, with tasks one after the other or in parallel.
fn peak(graph: &TaskGraph, events: &[(TaskId, bool)]) -> u64 {
    let (mut left, mut held, mut most) = (Vec::new(), 0u64, 0u64);
    left.extend(graph.datum_ids().map(|datum| graph.consumers(datum).len()));
    for &(task, starts) in events {
        if starts {
            held += graph.outputs(task).iter().map(|&datum| graph.bytes(datum)).sum::<u64>();
            most = most.max(held);
        } else {
            for &datum in graph.inputs(task) {
                left[datum.index()] -= 1;
                held -= if left[datum.index()] == 0 { graph.bytes(datum) } else { 0 };
            }
        }
    }
    most
}

/// Tasks overlap: each step starts a task whose predecessors have ended, or ends a running task.
#[test]
fn no_order_holds_more_than_the_bound() {
    arbtest::arbtest(|random| {
        let graph = random::shared(random, 14)?;
        let bound = live_bytes(&graph).unwrap();
        let (mut ended, mut waiting) = (vec![false; graph.task_count()], graph.topological().to_vec());
        let (mut running, mut events): (Vec<TaskId>, Vec<(TaskId, bool)>) = (Vec::new(), Vec::new());
        while !(waiting.is_empty() && running.is_empty()) {
            let ready: Vec<usize> = (0..waiting.len())
                .filter(|&at| graph.predecessors(waiting[at]).iter().all(|from| ended[from.index()]))
                .collect();
            if running.is_empty() || (!ready.is_empty() && random.ratio(1, 2)?) {
                let task = waiting.remove(ready[random.choose_index(ready.len())?]);
                events.push((task, true));
                running.push(task);
            } else {
                let task = running.swap_remove(random.choose_index(running.len())?);
                ended[task.index()] = true;
                events.push((task, false));
            }
        }
        let peak = peak(&graph, &events);
        assert!(bound.each_order <= peak && peak <= bound.any_order, "{bound:?} {peak}");
        Ok(())
    })
    .budget_ms(1000);
}

/// All data that the bound counts can be live together: some order with enough parallel tasks reaches it.
#[test]
fn independent_chains_reach_the_bound() {
    let mut builder = anabranch_placement::graph::GraphBuilder::new();
    let mut pairs = Vec::new();
    for chain in 0..4 {
        let [make, take] = ["make", "take"].map(|name| builder.task(anabranch_placement::graph::Task::new(name)));
        builder.edge(make, take, 10 + chain);
        pairs.push((make, take));
    }
    let graph = builder.build().unwrap();
    let starts = pairs.iter().map(|&(make, _)| (make, true));
    let ends = pairs.iter().map(|&(make, _)| (make, false));
    let events: Vec<(TaskId, bool)> = starts.chain(ends).collect();
    assert_eq!(live_bytes(&graph).unwrap().any_order, peak(&graph, &events));
}
