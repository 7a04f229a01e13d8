//! A schedule over time: what each device does (Laich 2017, figure 7.9) and how many tasks it can choose from (figure 7.10).

use super::axis::{self, AXIS_HEIGHT};
use super::canvas::{Anchor, CHARACTER, Canvas, Rect, fitted};
use super::gantt::{self, Activity, Lane, SEND_COLOUR, Stay};
use super::{Format, Scale, steps};
use anabranch_placement::evaluate::decisions;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use anabranch_placement::problem::Problem;
use anabranch_placement::schedule::Schedule;

/// A schedule, and what is to be said of it.
pub struct ScheduleChart<'a> {
    /// What is shown.
    pub title: String,
    /// Its figures, in a line.
    pub subtitle: String,
    /// The problem.
    pub problem: &'a Problem<'a>,
    /// A schedule of it.
    pub schedule: &'a Schedule,
    /// What no schedule can beat.
    pub bound: f64,
    /// What times are, with their unit.
    pub time: String,
    /// How times are written.
    pub format: Format,
}

const MARGIN: f64 = 24.0;
const HEAD: f64 = 84.0;
const SECTION: f64 = 26.0;
const PLOT_WIDTH: f64 = 780.0;
/// Most room for names.
const GUTTER: f64 = 240.0;
const NOTE_WIDTH: f64 = 64.0;

impl ScheduleChart<'_> {
    /// The file.
    pub fn svg(&self) -> String {
        let lanes = self.lanes();
        let names = lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0);
        let gutter = (names as f64 * CHARACTER + 14.0).clamp(60.0, GUTTER);
        let lane = lane_height(lanes.len());
        let x = MARGIN + gutter;
        let height = lane * lanes.len() as f64;
        let utilisation = Rect { x, y: HEAD + SECTION, width: PLOT_WIDTH, height };
        let executable = Rect { y: utilisation.bottom() + AXIS_HEIGHT + SECTION + 16.0, ..utilisation };
        let end = self.schedule.makespan.max(self.bound);
        let scale = Scale::linear(end, x, x + PLOT_WIDTH);

        let mut canvas = Canvas::default();
        self.draw_head(&mut canvas);
        let heading = |canvas: &mut Canvas, plot: Rect, text: &str| {
            canvas.text((MARGIN, plot.y - 10.0), Anchor::Start, "ink heading", text);
        };
        heading(&mut canvas, utilisation, "What each device does, and the share of the time that it is busy");
        axis::draw(&mut canvas, utilisation, &scale, self.format, &self.time);
        gantt::draw(&mut canvas, utilisation, &scale, &lanes);
        let at = scale.at(self.bound);
        canvas.line((at, utilisation.y - 4.0), (at, utilisation.bottom() + 3.0), "limit");
        heading(
            &mut canvas,
            executable,
            "Executable tasks when a device decides which to run next, and the most of them",
        );
        axis::draw(&mut canvas, executable, &scale, self.format, &self.time);
        self.draw_executable(&mut canvas, executable, &scale, &lanes);

        let (width, height) = (x + PLOT_WIDTH + NOTE_WIDTH, executable.bottom() + AXIS_HEIGHT + 12.0);
        canvas.finish(width, height, &self.title, &self.subtitle)
    }

    /// Title, subtitle, and the key of the colours that occur.
    fn draw_head(&self, canvas: &mut Canvas) {
        canvas.text((MARGIN, 30.0), Anchor::Start, "ink title", &fitted(&self.title, PLOT_WIDTH * 0.7));
        canvas.text((MARGIN, 49.0), Anchor::Start, "quiet", &self.subtitle);
        let devices = self.problem.platform().devices();
        let kinds = [DeviceKind::Cpu, DeviceKind::Gpu, DeviceKind::Tpu, DeviceKind::Other];
        let present = kinds.into_iter().filter(|&kind| devices.iter().any(|device| device.kind == kind));
        let mut key: Vec<(usize, String)> =
            present.map(|kind| (colour(kind), format!("task on {}", word(kind)))).collect();
        if self.schedule.transfers.iter().any(|transfer| transfer.send_end > transfer.send_start) {
            key.push((SEND_COLOUR, "work on a send".into()));
        }
        let mut x = MARGIN;
        for (colour, text) in key {
            canvas.rect(Rect { x, y: 61.0, width: 12.0, height: 10.0 }, 2.0, &format!("c{colour}"), None);
            canvas.text((x + 17.0, 70.0), Anchor::Start, "ink", &text);
            x += 17.0 + CHARACTER * (text.chars().count() as f64 + 3.0);
        }
        canvas.line((x, 66.0), (x + 22.0, 66.0), "limit");
        canvas.text((x + 28.0, 70.0), Anchor::Start, "ink", &format!("lower bound {}", (self.format)(self.bound)));
    }

    fn lanes(&self) -> Vec<Lane> {
        let (graph, platform, schedule) = (self.problem.graph(), self.problem.platform(), self.schedule);
        let busy = schedule.busy(platform.device_count());
        let lane = |(device, busy): (DeviceId, &f64)| Lane {
            name: fitted(&platform.device(device).name, GUTTER - 14.0),
            colour: colour(platform.device(device).kind),
            note: if schedule.makespan > 0.0 {
                format!("{:.0} %", 100.0 * busy / schedule.makespan)
            } else {
                String::new()
            },
            stays: Vec::new(),
        };
        let mut lanes: Vec<Lane> = platform.device_ids().zip(&busy).map(lane).collect();
        let times = |start, end| format!("{} to {}", (self.format)(start), (self.format)(end));
        for (task, span) in graph.tasks().iter().zip(&schedule.tasks) {
            let tip = format!("{}: {}", task.name, times(span.start, span.end));
            let stay = Stay { activity: Activity::Task, start: span.start, end: span.end, tip };
            lanes[span.device.index()].stays.push(stay);
        }
        for sent in schedule.transfers.iter().filter(|sent| sent.send_end > sent.send_start) {
            let (from, to) = (&graph.task(graph.producer(sent.datum)).name, &platform.device(sent.to).name);
            let tip = format!("send of {from} to {to}: {}", times(sent.send_start, sent.send_end));
            let stay = Stay { activity: Activity::Send, start: sent.send_start, end: sent.send_end, tip };
            lanes[sent.from.index()].stays.push(stay);
        }
        lanes.iter_mut().for_each(|lane| lane.stays.sort_by(|one, other| one.start.total_cmp(&other.start)));
        lanes
    }

    fn draw_executable(&self, canvas: &mut Canvas, plot: Rect, scale: &Scale, lanes: &[Lane]) {
        let mut steps: Vec<Vec<(f64, f64)>> = vec![Vec::new(); lanes.len()];
        for decision in decisions(self.problem, self.schedule) {
            steps[decision.device.index()].push((decision.time, decision.executable as f64));
        }
        let greatest = |steps: &[(f64, f64)]| steps.iter().map(|step| step.1).fold(0.0, f64::max);
        let most = steps.iter().map(|steps| greatest(steps)).fold(0.0, f64::max);
        let height = plot.height / lanes.len().max(1) as f64;
        for (number, (lane, steps)) in lanes.iter().zip(&steps).enumerate() {
            let y = plot.y + height * number as f64;
            let track = Rect { y: y + 1.5, height: height - 2.5, ..plot };
            canvas.line((track.x, track.bottom()), (track.right(), track.bottom()), "grid");
            let end = lane.stays.last().map_or(0.0, |stay| stay.end);
            let labelled = Lane { note: greatest(steps).to_string(), stays: Vec::new(), ..lane.clone() };
            gantt::draw_labels(canvas, &labelled, track, height);
            if !steps.is_empty() {
                steps::draw(canvas, track, scale, steps, (most, end), lane.colour);
            }
        }
    }
}

/// The more devices, the lower their lanes, so that a page shows them all.
pub(super) fn lane_height(lanes: usize) -> f64 {
    match lanes {
        0..=12 => 26.0,
        13..=30 => 18.0,
        31..=60 => 13.0,
        _ => 11.0,
    }
}

fn colour(kind: DeviceKind) -> usize {
    match kind {
        DeviceKind::Cpu => 0,
        DeviceKind::Gpu => 1,
        DeviceKind::Tpu => 2,
        DeviceKind::Other => 3,
    }
}

fn word(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "a CPU",
        DeviceKind::Gpu => "a GPU",
        DeviceKind::Tpu => "a TPU",
        DeviceKind::Other => "another device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::amount;
    use anabranch_placement::format::LoadedProblem;
    use anabranch_placement::generate::{Devices, Grain, Shape};
    use anabranch_placement::order::Pct;
    use anabranch_placement::place::{Heft, Placer};
    use anabranch_placement::problem::MemoryRule;
    use anabranch_placement::simulate::{SimulateOptions, simulate};

    #[test]
    fn every_task_send_and_device_is_drawn() {
        let graph = Shape::Cholesky { tiles: 4 }.generate(&Grain::default()).expect("a graph");
        let platform = Devices { count: 3, ..Devices::default() }.generate(1).expect("a platform");
        let loaded = LoadedProblem::new("cholesky <4>", graph, platform, MemoryRule::Ignore);
        let problem = loaded.problem().expect("solvable");
        let placement = Heft.place(&problem).expect("placed");
        let schedule = simulate(&problem, &placement.device_of, &Pct, &SimulateOptions::THESIS).expect("a schedule");
        let chart = ScheduleChart {
            title: loaded.name.clone(),
            subtitle: "heft".into(),
            problem: &problem,
            schedule: &schedule,
            bound: 0.5 * schedule.makespan,
            time: "time (time units)".into(),
            format: amount,
        };
        let svg = chart.svg();
        let tips = svg.lines().filter(|line| line.starts_with("<rect") && line.contains("<title>")).count();
        assert_eq!(tips, 20 + schedule.transfers.len());
        assert_eq!(svg.matches(">device 2<").count(), 2);
        assert!(svg.contains("cholesky &lt;4&gt;") && svg.contains("lower bound") && svg.contains("task on a GPU"));
        let names: usize = svg.matches("work on a send").count();
        assert_eq!(names, usize::from(!schedule.transfers.is_empty()));
    }
}
