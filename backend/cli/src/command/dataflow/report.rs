//! Schedules as text and as JSON.

use super::outcome::{Outcome, Streaming};
use super::source::Source;
use anabranch_placement::quoted::Line;
use anabranch_placement::streaming::{CanonicalGraph, EdgeId, NodeId};
use anabranch_report::table::Table;
use anabranch_report::text::{count, duration};
use serde_json::{Value, json};
use std::fmt::Write;

/// Most lines of a table of tasks or channels; JSON has them all.
const MOST_LINES: usize = 40;

/// Returns the graph, and one schedule in full or several as a table.
pub(super) fn text(source: &Source, outcomes: &[Outcome<'_>]) -> String {
    let mut text = facts(source, outcomes);
    match outcomes {
        [one] => text.push_str(&schedule(one)),
        several => text.push_str(&summary(several)),
    }
    text
}

/// Returns the graph and the schedules as JSON, with every task, and every channel that holds more than one element.
pub(super) fn json(source: &Source, outcomes: &[Outcome<'_>]) -> Value {
    let graph = &source.graph;
    let depth = outcomes.first().and_then(|outcome| outcome.depth.as_ref().ok());
    let detailed = outcomes.len() == 1;
    json!({
        "graph": source.name,
        "operators": source.converted.map(|(operators, _)| operators),
        "conversion_seconds": source.converted.map(|(_, seconds)| seconds),
        "nodes": graph.node_count(),
        "tasks": graph.task_ids().count(),
        "edges": graph.edges().len(),
        "work": graph.work(),
        "streaming_depth": depth.map(|depth| depth.bound),
        "depth_lower_bound": depth.map(|depth| depth.lower),
        "levels": depth.map(|depth| depth.levels),
        "schedules": outcomes.iter().map(|outcome| schedule_json(outcome, detailed)).collect::<Vec<_>>(),
    })
}

fn facts(source: &Source, outcomes: &[Outcome<'_>]) -> String {
    let graph = &source.graph;
    let (tasks, work) = (graph.task_ids().count(), graph.work());
    let memory = graph.node_count() - tasks;
    let parts = [(tasks, "task"), (memory, "memory"), (graph.edges().len(), "edge")];
    let parts = parts.map(|(number, noun)| count(number, noun)).join(", ");
    let mut text = format!("{}: {parts}", Line(&source.name));
    if let Some((operators, seconds)) = source.converted {
        let _ = write!(text, "; of {}, converted in {}", count(operators, "operator"), duration(seconds));
    }
    let _ = write!(text, "\n  work {work} time units (on one processing element), ");
    let _ = match outcomes.first().map(|outcome| &outcome.depth) {
        Some(Ok(depth)) => writeln!(text, "streaming depth {} (at least {})", depth.bound, depth.lower),
        Some(Err(error)) => writeln!(text, "no streaming depth: {error}"),
        None => writeln!(text),
    };
    text
}

fn schedule(outcome: &Outcome<'_>) -> String {
    let mut text = format!(
        "\n{} on {}: makespan {} time units, scheduled in {}\n  speedup {:.2}, utilisation {:.1} %",
        outcome.variant.name(),
        count(outcome.elements, "processing element"),
        outcome.makespan(),
        duration(outcome.seconds()),
        outcome.speedup(),
        100.0 * outcome.utilisation()
    );
    if let Some(ratio) = outcome.length_ratio() {
        let _ = write!(text, ", SSLR {ratio:.3}");
    }
    text.push('\n');
    match &outcome.streaming {
        None => text.push_str(&list_tasks(outcome).to_string()),
        Some(streaming) => {
            let (list, seconds) = (outcome.list.makespan, duration(outcome.list_seconds));
            let _ = writeln!(
                text,
                "  {:.2} times as fast as without streaming (makespan {list} time units, speedup {:.2}, scheduled in {seconds})",
                outcome.gain(),
                outcome.list_speedup()
            );
            let _ = writeln!(text, "  {}", proof(streaming));
            text.push_str(&blocks(outcome, streaming));
        }
    }
    text
}

fn proof(streaming: &Streaming) -> String {
    let capacity = streaming.sizes.total();
    match &streaming.proof {
        Ok(simulation) => format!(
            "channels hold {capacity} elements; simulated element by element: no deadlock, the last task ends at {}{}",
            simulation.makespan,
            if simulation.makespan > streaming.schedule.makespan() { ", later than estimated" } else { "" }
        ),
        Err(reason) => {
            format!(
                "channels hold {capacity} elements by equation 5; not simulated, as {reason}: raise --steps for the proof"
            )
        }
    }
}

fn blocks(outcome: &Outcome<'_>, streaming: &Streaming) -> String {
    let (graph, schedule) = (outcome.graph, &streaming.schedule);
    let mut table = Table::new(">block | >start | >first out | >last out | >reads | >writes | >interval | task");
    let tasks = || {
        schedule
            .blocks()
            .lists()
            .iter()
            .enumerate()
            .flat_map(|(block, tasks)| tasks.iter().map(move |&task| (block, task)))
    };
    for (block, task) in tasks().take(MOST_LINES) {
        let (node, times) = (graph.node(task), schedule.times(task));
        let interval = schedule.steady_state().output_interval(graph, task);
        table.row([
            block.to_string(),
            times.start.to_string(),
            times.first_out.to_string(),
            times.last_out.to_string(),
            node.input().to_string(),
            node.output().to_string(),
            interval.map_or(String::new(), |interval| interval.to_string()),
            node.name().to_owned(),
        ]);
    }
    let mut text =
        format!("\n{}\n{table}{}", count(schedule.blocks().count(), "block"), rest(tasks().count(), "tasks"));
    let mut wide: Vec<EdgeId> = graph.edge_ids().filter(|&edge| streaming.sizes.of(edge) > 1).collect();
    if !wide.is_empty() {
        wide.sort_by_key(|&edge| std::cmp::Reverse(streaming.sizes.of(edge)));
        let mut table = Table::new(">capacity | >of | channel");
        for &edge in wide.iter().take(MOST_LINES) {
            let (capacity, volume) = (streaming.sizes.of(edge), graph.volume(edge));
            table.row([capacity.to_string(), volume.to_string(), channel(graph, edge)]);
        }
        let _ = write!(text, "\nchannels of more than one element\n{table}{}", rest(wide.len(), "channels"));
    }
    text
}

fn list_tasks(outcome: &Outcome<'_>) -> Table {
    let mut table = Table::new(">PE | >start | >end | task");
    let list = &outcome.list;
    let mut tasks: Vec<NodeId> = outcome.graph.task_ids().collect();
    tasks.sort_by_key(|task| (list.start[task.index()], list.element[task.index()]));
    for task in tasks.into_iter().take(MOST_LINES) {
        let (start, end) = (list.start[task.index()], list.end[task.index()]);
        let name = outcome.graph.node(task).name().to_owned();
        table.row([list.element[task.index()].to_string(), start.to_string(), end.to_string(), name]);
    }
    table
}

fn rest(count: usize, what: &str) -> String {
    match count.checked_sub(MOST_LINES).filter(|more| *more > 0) {
        Some(more) => format!("  and {more} {what} more: --json has all\n"),
        None => String::new(),
    }
}

fn channel(graph: &CanonicalGraph, edge: EdgeId) -> String {
    let (from, to) = graph.edge(edge);
    format!("{} > {}", graph.node(from).name(), graph.node(to).name())
}

/// Returns a line for each number of processing elements, with the columns of the paper's table 2, and how it was
/// reached.
fn summary(outcomes: &[Outcome<'_>]) -> String {
    let mut table = Table::new(
        ">PEs | variant | >blocks | >makespan | >speedup | >list | >gain | >SSLR | >simulated | >time | >list time",
    );
    for outcome in outcomes {
        let streaming = outcome.streaming.as_ref();
        table.row([
            outcome.elements.to_string(),
            outcome.variant.name().to_owned(),
            streaming.map_or(String::new(), |streaming| streaming.schedule.blocks().count().to_string()),
            outcome.makespan().to_string(),
            format!("{:.1}", outcome.speedup()),
            format!("{:.1}", outcome.list_speedup()),
            format!("{:.2}", outcome.gain()),
            outcome.length_ratio().map_or(String::new(), |ratio| format!("{ratio:.2}")),
            streaming.map_or(String::new(), |streaming| match &streaming.proof {
                Ok(simulation) => simulation.makespan.to_string(),
                Err(_) => "no".into(),
            }),
            duration(outcome.seconds()),
            duration(outcome.list_seconds),
        ]);
    }
    let unproven = outcomes.iter().find_map(|outcome| outcome.streaming.as_ref()?.proof.as_ref().err());
    let note =
        unproven.map_or(String::new(), |reason| format!("not simulated: {reason}; raise --steps for the proof\n"));
    format!("\n{table}{note}")
}

fn schedule_json(outcome: &Outcome<'_>, detailed: bool) -> Value {
    let mut value = json!({
        "elements": outcome.elements,
        "variant": outcome.variant.name(),
        "makespan": outcome.makespan(),
        "speedup": outcome.speedup(),
        "utilisation": outcome.utilisation(),
        "sslr": outcome.length_ratio(),
        "seconds": outcome.seconds(),
        "list_makespan": outcome.list.makespan,
        "list_speedup": outcome.list_speedup(),
        "list_seconds": outcome.list_seconds,
        "gain": outcome.gain(),
    });
    if let Some(streaming) = &outcome.streaming {
        value["blocks"] = streaming.schedule.blocks().count().into();
        value["capacity"] = streaming.sizes.total().into();
        value["simulated_makespan"] = json!(streaming.proof.as_ref().ok().map(|simulation| simulation.makespan));
        value["not_simulated"] = json!(streaming.proof.as_ref().err());
    }
    if detailed {
        value["tasks"] = outcome.graph.task_ids().map(|task| task_json(outcome, task)).collect();
        value["channels"] = channels_json(outcome);
    }
    value
}

fn task_json(outcome: &Outcome<'_>, task: NodeId) -> Value {
    let node = outcome.graph.node(task);
    match &outcome.streaming {
        Some(Streaming { schedule, .. }) => {
            let (times, flow) = (schedule.times(task), schedule.steady_state());
            let interval = flow.output_interval(outcome.graph, task);
            json!({
                "name": node.name(), "in": node.input(), "out": node.output(), "block": schedule.blocks().of(task),
                "start": times.start, "first_out": times.first_out, "last_out": times.last_out,
                "interval": interval.map(|interval| interval.to_string()),
            })
        }
        None => {
            let list = &outcome.list;
            json!({
                "name": node.name(), "in": node.input(), "out": node.output(), "element": list.element[task.index()],
                "start": list.start[task.index()], "end": list.end[task.index()],
            })
        }
    }
}

fn channels_json(outcome: &Outcome<'_>) -> Value {
    let Some(streaming) = &outcome.streaming else { return Value::Null };
    let graph = outcome.graph;
    let wide = graph.edge_ids().filter(|&edge| streaming.sizes.of(edge) > 1);
    wide.map(|edge| {
        let (from, to) = graph.edge(edge);
        let (from, to) = (graph.node(from).name(), graph.node(to).name());
        json!({ "from": from, "to": to, "capacity": streaming.sizes.of(edge), "volume": graph.volume(edge) })
    })
    .collect()
}
