//! A schedule as a chart: the activity of each device (Laich 2017, figure 7.9) and the number of tasks that it can
//! choose from (figure 7.10).

use super::Outcome;
use super::units::{time_format, with_unit};
use crate::chart::{Interval, Lane, Quantity, SEND_COLOUR, Sample, TimePanel, Timeline};
use crate::text::count;
use anabranch_placement::evaluate::decisions;
use anabranch_placement::platform::DeviceKind;
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::Schedule;

const KINDS: [DeviceKind; 4] = [DeviceKind::Cpu, DeviceKind::Gpu, DeviceKind::Tpu, DeviceKind::Other];

/// Returns the chart of a problem's outcome, whose tasks were ordered by `order`.
pub fn chart(problem: &Problem<'_>, outcome: &Outcome<'_>, order: &str) -> Timeline {
    let unit = outcome.loaded.facts.time_unit.as_deref();
    let (format, time) = time_format(unit);
    let Outcome { metrics, loaded, placed, schedule, .. } = outcome;
    let (tasks, devices) = (loaded.graph.task_count(), loaded.platform.device_count());
    let (makespan, bound) = (metrics.makespan, metrics.bound.value);
    let lanes = lanes(problem, schedule, format);
    let choices = choices(problem, schedule, &lanes);
    Timeline {
        title: format!("{}: {} on {}", loaded.name, count(tasks, "task"), count(devices, "device")),
        subtitle: format!(
            "placed by {}, order {order}, makespan {}, {}",
            placed.strategy,
            with_unit(unit, makespan),
            count(metrics.sends, "send")
        ),
        key: key(problem, schedule),
        marks: vec![bound],
        marks_name: format!("lower bound {}", format(bound)),
        panels: vec![
            TimePanel::of("What each device does, and the share of the time that it is busy", lanes),
            TimePanel::of("Executable tasks when a device decides which to run next, and the most of them", choices),
        ],
        end: schedule.makespan.max(bound),
        time,
        format,
    }
}

/// Returns the colours that occur.
fn key(problem: &Problem<'_>, schedule: &Schedule) -> Vec<Sample> {
    let devices = problem.platform().devices();
    let present = KINDS.into_iter().filter(|&kind| devices.iter().any(|device| device.kind == kind));
    let word = |kind| match kind {
        DeviceKind::Cpu => "task on a CPU",
        DeviceKind::Gpu => "task on a GPU",
        DeviceKind::Tpu => "task on a TPU",
        DeviceKind::Other => "task on another device",
    };
    let mut key: Vec<Sample> =
        present.map(|kind| Sample { colour: colour(kind), name: word(kind).to_owned() }).collect();
    if schedule.transfers.iter().any(|transfer| transfer.send_end > transfer.send_start) {
        key.push(Sample { colour: SEND_COLOUR, name: "work on a send".into() });
    }
    key
}

fn lanes(problem: &Problem<'_>, schedule: &Schedule, format: fn(f64) -> String) -> Vec<Lane> {
    let (graph, platform) = (problem.graph(), problem.platform());
    let mut lanes: Vec<Vec<Interval>> = vec![Vec::new(); platform.device_count()];
    let times = |start, end| format!("{} to {}", format(start), format(end));
    for (task, span) in graph.tasks().iter().zip(&schedule.tasks) {
        let colour = colour(platform.device(span.device).kind);
        let tip = format!("{}: {}", task.name, times(span.start, span.end));
        lanes[span.device.index()].push(Interval { start: span.start, end: span.end, colour, tip });
    }
    for sent in schedule.transfers.iter().filter(|sent| sent.send_end > sent.send_start) {
        let (from, to) = (&graph.task(graph.producer(sent.datum)).name, &platform.device(sent.to).name);
        let tip = format!("send of {from} to {to}: {}", times(sent.send_start, sent.send_end));
        let interval = Interval { start: sent.send_start, end: sent.send_end, colour: SEND_COLOUR, tip };
        lanes[sent.from.index()].push(interval);
    }
    lanes.iter_mut().for_each(|lane| lane.sort_by(|one, other| one.start.total_cmp(&other.start)));
    let lanes = platform.devices().iter().zip(lanes);
    lanes.map(|(device, intervals)| Lane::of(device.name.clone(), intervals, schedule.makespan)).collect()
}

/// Returns the number of tasks that each device can choose from, over time.
fn choices(problem: &Problem<'_>, schedule: &Schedule, lanes: &[Lane]) -> Vec<Lane> {
    let mut steps: Vec<Vec<(f64, f64)>> = vec![Vec::new(); lanes.len()];
    for decision in decisions(problem, schedule) {
        steps[decision.device.index()].push((decision.time, decision.executable as f64));
    }
    let greatest = |steps: &[(f64, f64)]| steps.iter().map(|step| step.1).fold(0.0, f64::max);
    let most = steps.iter().map(|steps| greatest(steps)).fold(0.0, f64::max);
    let devices = problem.platform().devices();
    let lane = |(number, steps): (usize, Vec<(f64, f64)>)| Lane {
        name: lanes[number].name.clone(),
        note: greatest(&steps).to_string(),
        intervals: Vec::new(),
        quantity: Some(Quantity {
            colour: colour(devices[number].kind),
            steps,
            most,
            end: lanes[number].intervals.last().map_or(0.0, |interval| interval.end),
        }),
    };
    steps.into_iter().enumerate().map(lane).collect()
}

fn colour(kind: DeviceKind) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::amount;
    use anabranch_placement::format::LoadedProblem;
    use anabranch_placement::generate::{Devices, Grain, Shape};
    use anabranch_placement::order::Pct;
    use anabranch_placement::place::{ListScheduler, Placer};
    use anabranch_placement::problem::MemoryRule;
    use anabranch_placement::rules::Rules;
    use anabranch_placement::simulate::simulate;

    #[test]
    fn every_task_send_and_choice_is_there() {
        let graph = Shape::Cholesky { tiles: 4 }.generate(&Grain::default()).expect("a graph");
        let platform = Devices { count: 3, ..Devices::default() }.generate(1).expect("a platform");
        let loaded = LoadedProblem::new("cholesky", graph, platform, MemoryRule::Ignore);
        let problem = loaded.problem().expect("solvable").under(Rules::THESIS).expect("valid rules");
        let placement = ListScheduler::HEFT.place(&problem).expect("placed");
        let schedule = simulate(&problem, &placement.device_of, &Pct).expect("a schedule");
        let lanes = lanes(&problem, &schedule, amount);
        let intervals: usize = lanes.iter().map(|lane| lane.intervals.len()).sum();
        assert_eq!((lanes.len(), intervals), (3, 20 + schedule.transfers.len()));
        assert!(lanes.iter().all(|lane| lane.intervals.is_sorted_by(|one, other| one.end <= other.start)));
        let choices = choices(&problem, &schedule, &lanes);
        let decided: usize = choices.iter().filter_map(|lane| Some(lane.quantity.as_ref()?.steps.len())).sum();
        assert_eq!((choices.len(), decided), (3, 20));
        let sends = key(&problem, &schedule).iter().filter(|sample| sample.name == "work on a send").count();
        assert_eq!(sends, usize::from(!schedule.transfers.is_empty()));
    }
}
