//! Check of a schedule: data, devices, links, order and totals.

use super::alone::Alone;
use super::{Subject, Violation};
use crate::graph::{DatumId, TaskId};
use crate::platform::{DeviceId, DeviceKind};
use crate::problem::Problem;
use crate::rules::LinkContention;
use crate::schedule::{Schedule, TransferSpan};
use std::collections::BTreeMap;

/// Relative error that sums of times may have.
const TOLERANCE: f64 = 1e-9;

/// Returns all faults of `schedule` as an execution of the placement `device_of` under the problem's rules.
///
/// `O((V + E) log (V + E))`; if devices slow each other down, also `O(V × devices²)`.
///
/// `device_of` must have passed [`check_placement`](super::check_placement).
pub fn check_schedule(problem: &Problem<'_>, device_of: &[DeviceId], schedule: &Schedule) -> Vec<Violation> {
    let tasks = problem.graph().task_count();
    for given in [device_of.len(), schedule.tasks.len()] {
        if given != tasks {
            return vec![Violation::Length { tasks, given }];
        }
    }
    let (slack, alone) = (slack(schedule), Alone { tasks: Vec::new(), sends: Vec::new() });
    let mut checker = Checker { problem, device_of, schedule, slack, alone, violations: Vec::new() };
    checker.check_times();
    if !checker.violations.is_empty() {
        // Invalid times cannot be compared.
        return checker.violations;
    }
    checker.alone = Alone::of(problem, schedule);
    checker.check_tasks();
    let needs = checker.check_transfers();
    checker.check_precedence(&needs);
    checker.check_exclusive_devices();
    checker.check_exclusive_links();
    checker.check_order();
    checker.check_sums();
    checker.violations
}

struct Checker<'a> {
    problem: &'a Problem<'a>,
    device_of: &'a [DeviceId],
    schedule: &'a Schedule,
    slack: f64,
    /// Durations of tasks and sends without slowdowns from other devices.
    alone: Alone,
    violations: Vec<Violation>,
}

/// A datum that has to be sent to a device.
struct Need {
    from: DeviceId,
    to: DeviceId,
    /// Whether there is a transfer for it.
    served: bool,
    /// End of that transfer, if it is from the right device and has the right size.
    arrival: Option<f64>,
}

/// Everything that has to be sent: by datum, then by target.
struct Needs {
    /// Position of the first need of each datum, and at last the number of needs.
    first: Vec<usize>,
    all: Vec<Need>,
}

impl Needs {
    fn of(&self, datum: DatumId) -> &[Need] {
        match self.first[datum.index().min(self.first.len() - 1)..] {
            [first, end, ..] => &self.all[first..end],
            _ => &[],
        }
    }

    /// Returns the position of the need of `datum` on `to`, if there is one.
    fn find(&self, datum: DatumId, to: DeviceId) -> Option<usize> {
        let place = self.of(datum).binary_search_by_key(&to, |need| need.to).ok()?;
        Some(self.first[datum.index()] + place)
    }
}

/// Returns the tolerance of times: a small part of the greatest time in the schedule.
fn slack(schedule: &Schedule) -> f64 {
    let tasks = schedule.tasks.iter().map(|span| span.end);
    let transfers = schedule.transfers.iter().map(|transfer| transfer.end);
    TOLERANCE * tasks.chain(transfers).filter(|end| end.is_finite()).fold(0.0, f64::max)
}

impl Checker<'_> {
    fn check_times(&mut self) {
        let impossible = |times: &[f64]| times.iter().any(|time| !(time.is_finite() && *time >= 0.0));
        for (number, span) in self.schedule.tasks.iter().enumerate() {
            if impossible(&[span.start, span.end]) {
                self.violations.push(Violation::Time { what: Subject::Task(TaskId(number as u32)) });
            }
        }
        for transfer in &self.schedule.transfers {
            if impossible(&[transfer.send_start, transfer.send_end, transfer.start, transfer.end]) {
                self.violations.push(Violation::Time { what: Subject::Transfer(transfer.datum, transfer.to) });
            }
        }
    }

    fn check_tasks(&mut self) {
        for (number, span) in self.schedule.tasks.iter().enumerate() {
            let (task, placed) = (TaskId(number as u32), self.device_of[number]);
            if span.device != placed {
                self.violations.push(Violation::OtherDevice { task, placed, runs: span.device });
            }
            match self.problem.costs().task_time(task, placed) {
                None => self.violations.push(Violation::CannotRun { task, device: placed }),
                Some(cost) => self.check_duration(Subject::Task(task), self.alone.tasks[number], cost),
            }
        }
    }

    fn check_duration(&mut self, what: Subject, taken: f64, cost: f64) {
        if (taken - cost).abs() > self.slack + TOLERANCE * cost {
            self.violations.push(Violation::Duration { what, taken, cost });
        }
    }

    /// Checks every transfer, and that each needed (datum, target) is served once. Returns the arrivals.
    fn check_transfers(&mut self) -> Needs {
        let mut needs = self.needs();
        let schedule = self.schedule;
        for (number, transfer) in schedule.transfers.iter().enumerate() {
            let &TransferSpan { datum, from, to, bytes, end, .. } = transfer;
            let need = needs.find(datum, to).and_then(|need| needs.all.get_mut(need)).filter(|need| !need.served);
            let from_there = need.is_some_and(|need| {
                need.served = true;
                let right = need.from == from && bytes == self.problem.graph().bytes(datum);
                need.arrival = right.then_some(end);
                right
            });
            if from_there {
                self.check_transfer(number, transfer);
            } else {
                self.violations.push(Violation::NeedlessTransfer { datum, from, to });
            }
        }
        for datum in self.problem.graph().datum_ids() {
            let missing = needs.of(datum).iter().filter(|need| !need.served);
            self.violations.extend(missing.map(|need| Violation::MissingTransfer { datum, to: need.to }));
        }
        needs
    }

    /// Returns every (datum, target) with a consumer on another device than the producer's.
    fn needs(&self) -> Needs {
        let graph = self.problem.graph();
        let mut needs = Needs { first: vec![0], all: Vec::new() };
        let mut targets: Vec<DeviceId> = Vec::new();
        for datum in graph.datum_ids() {
            let from = self.device_of[graph.producer(datum).index()];
            targets.clear();
            targets.extend(graph.consumers(datum).iter().map(|consumer| self.device_of[consumer.index()]));
            targets.sort_unstable();
            targets.dedup();
            let others = targets.iter().filter(|&&to| to != from);
            needs.all.extend(others.map(|&to| Need { from, to, served: false, arrival: None }));
            needs.first.push(needs.all.len());
        }
        needs
    }

    fn check_transfer(&mut self, number: usize, transfer: &TransferSpan) {
        let &TransferSpan { datum, from, to, bytes, send_start, send_end, start, end } = transfer;
        let produced = self.schedule.tasks[self.problem.graph().producer(datum).index()].end;
        for (start, available) in [(send_start, produced), (start, send_end)] {
            if start < available - self.slack {
                self.violations.push(Violation::EarlyTransfer { datum, to, start, available });
            }
        }
        let send_cost = self.problem.rules().send_costs.send_operations / self.problem.platform().device(from).speed;
        self.check_duration(Subject::Send(datum, to), self.alone.sends[number], send_cost);
        let cost = self.problem.costs().transfer_time(bytes, from, to);
        self.check_duration(Subject::Transfer(datum, to), end - start, cost);
    }

    fn check_precedence(&mut self, needs: &Needs) {
        let graph = self.problem.graph();
        for datum in graph.datum_ids() {
            let producer = graph.producer(datum).index();
            for &task in graph.consumers(datum) {
                let (start, device) = (self.schedule.tasks[task.index()].start, self.device_of[task.index()]);
                let available = if device == self.device_of[producer] {
                    Some(self.schedule.tasks[producer].end)
                } else {
                    needs.find(datum, device).and_then(|need| needs.all[need].arrival)
                };
                // A missing transfer has been reported already.
                if let Some(available) = available
                    && start < available - self.slack
                {
                    self.violations.push(Violation::Precedence { task, start, datum, available });
                }
            }
        }
    }

    fn check_exclusive_devices(&mut self) {
        let mut work: BTreeMap<DeviceId, Vec<(f64, f64, Subject)>> = BTreeMap::new();
        for (number, span) in self.schedule.tasks.iter().enumerate() {
            work.entry(span.device).or_default().push((span.start, span.end, Subject::Task(TaskId(number as u32))));
        }
        for transfer in &self.schedule.transfers {
            let send = Subject::Send(transfer.datum, transfer.to);
            // A send that costs nothing does not occupy the device.
            if self.problem.rules().send_costs.send_operations > 0.0 {
                work.entry(transfer.from).or_default().push((transfer.send_start, transfer.send_end, send));
            }
        }
        for (device, mut spans) in work {
            let overlap = |(first, second)| Violation::Overlap { device, first, second };
            self.violations.extend(overlaps(&mut spans, self.slack).into_iter().map(overlap));
        }
    }

    fn check_exclusive_links(&mut self) {
        if self.problem.rules().contention == LinkContention::None {
            return;
        }
        let mut links: BTreeMap<_, Vec<(f64, f64, DatumId)>> = BTreeMap::new();
        let mut shared: BTreeMap<u32, Vec<(f64, f64, DatumId)>> = BTreeMap::new();
        for transfer in &self.schedule.transfers {
            if self.problem.rules().contention == LinkContention::SerialCopies && self.is_read_in_place(transfer) {
                continue;
            }
            let left = transfer.end - self.problem.rules().delays.time(transfer.from, transfer.to);
            let span = (transfer.start, left.max(transfer.start), transfer.datum);
            match self.problem.platform().network() {
                None => links.entry((transfer.from, transfer.to)).or_default().push(span),
                Some(network) => {
                    let route = network.route(transfer.from, transfer.to).iter();
                    route.for_each(|link| shared.entry(*link).or_default().push(span));
                }
            }
        }
        for (link, mut spans) in shared {
            let network = self.problem.platform().network();
            let name = network.map_or(String::new(), |network| network.links()[link as usize].name.clone());
            let overlap = |(first, second)| Violation::NetworkLink { link: name.clone(), first, second };
            self.violations.extend(overlaps(&mut spans, self.slack).into_iter().map(overlap));
        }
        for ((from, to), mut spans) in links {
            let overlap = |(first, second)| Violation::SharedLink { from, to, first, second };
            self.violations.extend(overlaps(&mut spans, self.slack).into_iter().map(overlap));
        }
    }

    /// Whether a transfer is between CPU devices.
    fn is_read_in_place(&self, transfer: &TransferSpan) -> bool {
        let kind = |device| self.problem.platform().device(device).kind;
        [transfer.from, transfer.to].into_iter().all(|end| kind(end) == DeviceKind::Cpu)
    }

    fn check_order(&mut self) {
        let graph = self.problem.graph();
        let mut place = vec![None; graph.task_count()];
        let mut before = 0.0;
        for (position, &task) in self.schedule.order.iter().enumerate() {
            let known = place.get_mut(task.index());
            let Some(entry @ None) = known else {
                return self.violations.push(Violation::Order { task });
            };
            *entry = Some(position);
            let start = self.schedule.tasks[task.index()].start;
            if start < before - self.slack {
                self.violations.push(Violation::Order { task });
            }
            before = f64::max(before, start);
        }
        for task in graph.task_ids() {
            let late = graph.predecessors(task).iter().any(|before| place[before.index()] >= place[task.index()]);
            if place[task.index()].is_none() || late {
                self.violations.push(Violation::Order { task });
            }
        }
    }

    fn check_sums(&mut self) {
        let last = self.schedule.tasks.iter().map(|span| span.end).fold(0.0, f64::max);
        let given = self.schedule.makespan;
        // The comparison is also false if the makespan is NaN.
        let agrees = (given - last).abs() <= self.slack;
        if !agrees {
            self.violations.push(Violation::Makespan { given, last });
        }
        let sum = self.schedule.transfers.iter().map(|transfer| u128::from(transfer.bytes)).sum::<u128>();
        let given = self.schedule.traffic;
        if u128::from(given) != sum.min(u128::from(u64::MAX)) {
            self.violations.push(Violation::Traffic { given, sum });
        }
    }
}

/// Returns pairs of spans, neighbours in time, in which the second starts before the first has ended.
fn overlaps<T: Copy>(spans: &mut [(f64, f64, T)], slack: f64) -> Vec<(T, T)> {
    spans.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
    let mut found = Vec::new();
    let mut last: Option<(f64, T)> = None;
    for &(start, end, what) in spans.iter() {
        if let Some((until, before)) = last
            && start < until - slack
        {
            found.push((before, what));
        }
        if last.is_none_or(|(until, _)| end >= until) {
            last = Some((end, what));
        }
    }
    found
}
