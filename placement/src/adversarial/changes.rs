//! Random changes of a scheduling problem: of a task, datum, device or link, or of one edge (PISA, section VI).

use super::Ranges;
use super::instance::{Datum, Instance};
use crate::generate::Random;
use crate::graph::TaskId;

/// Greatest change of a number, as a share of the greatest value.
const STRIDE: f64 = 0.1;

impl Instance<'_> {
    /// Makes one change. An instance without anything of the drawn kind stays as it is.
    pub(super) fn change(&mut self, ranges: &Ranges, random: &mut Random) {
        match random.below(6) {
            0 => self.change_task(ranges, random),
            1 => self.change_datum(ranges, random),
            2 => self.change_device(ranges, random),
            3 => self.change_link(ranges, random),
            4 => self.add_edge(ranges, random),
            _ => self.remove_edge(random),
        }
    }

    fn change_task(&mut self, ranges: &Ranges, random: &mut Random) {
        if self.times.is_empty() {
            if let Some(task) = pick(&mut self.tasks, random) {
                task.operations = moved(task.operations, ranges.work, random);
            }
        } else if let Some(Some(time)) = pick(&mut self.times, random) {
            *time = moved(*time, ranges.work, random);
        }
    }

    fn change_datum(&mut self, ranges: &Ranges, random: &mut Random) {
        if let Some(datum) = pick(&mut self.data, random) {
            datum.bytes = moved(datum.bytes as f64, ranges.bytes as f64, random).round() as u64;
        }
    }

    fn change_device(&mut self, ranges: &Ranges, random: &mut Random) {
        // With a table of times, speeds count only for the work of sends.
        if let Some(device) = pick(&mut self.devices, random).filter(|_| self.times.is_empty()) {
            device.speed = moved(device.speed, ranges.speed, random);
        }
    }

    fn change_link(&mut self, ranges: &Ranges, random: &mut Random) {
        let count = self.devices.len();
        if count < 2 || !self.has_own_links() {
            return;
        }
        let from = random.below(count as u64) as usize;
        let to = (from + 1 + random.below(count as u64 - 1) as usize) % count;
        let rate = self.rates[from * count + to];
        if rate.is_finite() {
            let rate = moved(rate, ranges.rate, random);
            self.rates[from * count + to] = rate;
            if self.symmetric {
                self.rates[to * count + from] = rate;
            }
        }
    }

    /// Adds an edge from a random task to a random task that neither follows it directly nor precedes it anyhow.
    fn add_edge(&mut self, ranges: &Ranges, random: &mut Random) {
        let count = self.tasks.len();
        let producer = TaskId(random.below(count as u64) as u32);
        let mut excluded = self.before(producer);
        for datum in self.data.iter().filter(|datum| datum.producer == producer) {
            datum.consumers.iter().for_each(|consumer| excluded[consumer.index()] = true);
        }
        let mut free: Vec<TaskId> =
            (0..count as u32).map(TaskId).filter(|task| excluded.get(task.index()) == Some(&false)).collect();
        let bytes = random.uniform(Ranges::LEAST, 1.0) * ranges.bytes as f64;
        if let Some(consumer) = pick(&mut free, random) {
            self.data.push(Datum { producer, bytes: bytes.round() as u64, consumers: vec![*consumer] });
        }
    }

    fn remove_edge(&mut self, random: &mut Random) {
        let edges: usize = self.data.iter().map(|datum| datum.consumers.len()).sum();
        let mut edge = random.below(edges as u64) as usize;
        for place in 0..self.data.len() {
            let consumers = &mut self.data[place].consumers;
            if edge >= consumers.len() {
                edge -= consumers.len();
                continue;
            }
            consumers.remove(edge);
            if consumers.is_empty() {
                self.data.remove(place);
            }
            return;
        }
    }

    /// Returns, for each task, whether it is `task` or precedes it. `O(V + E)`.
    fn before(&self, task: TaskId) -> Vec<bool> {
        let mut producers = vec![Vec::new(); self.tasks.len()];
        for datum in &self.data {
            datum.consumers.iter().for_each(|consumer| producers[consumer.index()].push(datum.producer));
        }
        let (mut before, mut next) = (vec![false; self.tasks.len()], vec![task]);
        while let Some(task) = next.pop() {
            if let Some(entry @ false) = before.get_mut(task.index()) {
                *entry = true;
                next.extend(&producers[task.index()]);
            }
        }
        before
    }
}

/// Returns a random item of a list; `None` if it is empty.
fn pick<'l, T>(list: &'l mut [T], random: &mut Random) -> Option<&'l mut T> {
    let place = random.below(list.len() as u64) as usize;
    list.get_mut(place)
}

/// Returns a number that is moved at random by at most [`STRIDE`] of `most`. A number outside its range comes back to
/// the range.
fn moved(value: f64, most: f64, random: &mut Random) -> f64 {
    (value + most * random.uniform(-STRIDE, STRIDE)).max(Ranges::LEAST * most).min(most)
}
