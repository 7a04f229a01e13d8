//! Problems for sweeps: any graph on devices of a wanted heterogeneity, with links of a wanted weight (Topcuoglu 2002, section 5).

use super::{GenerateError, MAX_DEVICES, Random, check_count, check_parameter};
use crate::format::{Costs, LoadedProblem, MAX_CELLS, TimeTable};
use crate::graph::TaskGraph;
use crate::platform::{Device, DeviceKind, Platform};
use crate::problem::MemoryRule;

/// Whether a device that is fast for one task is fast for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heterogeneity {
    /// It is: a device has one factor for all tasks.
    Related,
    /// It may be slow for others: each task has a factor of its own on each device, as in the paper.
    Unrelated,
}

/// What devices and links a problem gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sweep {
    /// Number of devices: CPUs and GPUs by turns, so that constrained tasks have a place.
    pub devices: u32,
    /// How factors are drawn.
    pub heterogeneity: Heterogeneity,
    /// Factors are uniform from `1 − range/2` to `1 + range/2`: β of the paper, which takes 0.1, 0.25, 0.5, 0.75 and 1.
    pub range: f64,
    /// Mean transfer of an edge over mean time of a task (CCR); the paper takes 0.1, 0.5, 1, 5 and 10.
    pub communication: f64,
    /// Mean time of a task.
    pub mean_time: f64,
}

impl Default for Sweep {
    fn default() -> Self {
        let heterogeneity = Heterogeneity::Unrelated;
        Sweep { devices: 4, heterogeneity, range: 1.0, communication: 1.0, mean_time: 1.0 }
    }
}

impl Sweep {
    /// Puts `graph` on devices and links. A task's mean time is in proportion to its operations, and all links are alike, with a rate
    /// that gives the wanted weight; it is infinite where nothing is to be sent, or in no time. Memory is not limited.
    ///
    /// # Errors
    /// A parameter outside its range, or more devices than are made for so many tasks.
    pub fn problem(&self, name: &str, graph: TaskGraph, seed: u64) -> Result<LoadedProblem, GenerateError> {
        check_parameter("range", self.range, 0.0..=1.99, "from 0 to 1.99")?;
        check_parameter("communication", self.communication, 0.0..=1e100, "finite and not negative")?;
        check_parameter("mean_time", self.mean_time, 0.0..=1e100, "finite and not negative")?;
        check_count("devices", self.devices.into(), MAX_DEVICES)?;
        let cells = graph.task_count() as u128 * u128::from(self.devices);
        check_count("pairs of a task and a device", cells, MAX_CELLS)?;

        let mut random = Random::stream(seed, 1);
        let factors: Vec<f64> = (0..self.devices).map(|_| self.factor(&mut random)).collect();
        let platform = Platform::uniform(self.devices(&factors), 0.0, self.rate(&graph))?;
        let operations: f64 = graph.tasks().iter().map(|task| task.operations).sum();
        let scale = if operations > 0.0 { self.mean_time * graph.task_count() as f64 / operations } else { 0.0 };
        let mut random = Random::stream(seed, 2);
        let times = TimeTable::from_fn(graph.task_count(), factors.len(), |task, device| {
            let factor = match self.heterogeneity {
                Heterogeneity::Related => factors[device.index()],
                Heterogeneity::Unrelated => self.factor(&mut random),
            };
            Some(graph.task(task).operations * scale * factor)
        })?;
        let problem = LoadedProblem::new(name, graph, platform, MemoryRule::Ignore);
        Ok(LoadedProblem { costs: Costs::Times(times), ..problem })
    }

    fn factor(&self, random: &mut Random) -> f64 {
        random.uniform(1.0 - self.range / 2.0, 1.0 + self.range / 2.0)
    }

    fn devices(&self, factors: &[f64]) -> Vec<Device> {
        let device = |(number, factor): (usize, &f64)| {
            let kind = if number % 2 == 0 { DeviceKind::Cpu } else { DeviceKind::Gpu };
            let device = Device::new(format!("device {number}"), kind);
            if self.heterogeneity == Heterogeneity::Related { device.with_speed(1.0 / factor) } else { device }
        };
        factors.iter().enumerate().map(device).collect()
    }

    fn rate(&self, graph: &TaskGraph) -> f64 {
        let uses = graph.datum_ids().map(|datum| graph.bytes(datum) as f64 * graph.consumers(datum).len() as f64);
        let mean = uses.sum::<f64>() / graph.edge_count().max(1) as f64;
        let rate = mean / (self.communication * self.mean_time);
        if rate > 0.0 { rate } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::RandomDag;
    use crate::graph::GraphBuilder;
    use crate::platform::DeviceId;

    fn graph() -> TaskGraph {
        RandomDag { tasks: 500, ..RandomDag::default() }.generate(1).unwrap()
    }

    #[test]
    fn means_ranges_and_weights_are_as_wanted() {
        for heterogeneity in [Heterogeneity::Related, Heterogeneity::Unrelated] {
            let sweep = Sweep { devices: 40, heterogeneity, range: 0.5, communication: 5.0, mean_time: 20.0 };
            let loaded = sweep.problem("p", graph(), 3).unwrap();
            let problem = loaded.problem().unwrap();
            let graph = problem.graph();
            let mean = graph.task_ids().map(|task| problem.mean_time(task)).sum::<f64>() / 500.0;
            assert!((mean - 20.0).abs() < 1.0, "{mean}");
            let edges = graph.datum_ids().map(|datum| problem.mean_transfer_time(graph.bytes(datum)));
            let transfer = edges.sum::<f64>() / graph.edge_count() as f64;
            assert!((transfer - 100.0).abs() < 1e-6, "{transfer}");
            let ratios: Vec<f64> = graph
                .task_ids()
                .map(|task| problem.time(task, DeviceId(0)) / problem.time(task, DeviceId(1)))
                .filter(|ratio| ratio.is_finite())
                .collect();
            let (low, high) =
                ratios.iter().fold((f64::MAX, 0.0), |(low, high), &ratio| (ratio.min(low), ratio.max(high)));
            assert!(low >= 0.75 / 1.25 - 1e-9 && high <= 1.25 / 0.75 + 1e-9);
            assert_eq!(high - low < 1e-9, heterogeneity == Heterogeneity::Related, "{low} {high}");
        }
    }

    #[test]
    fn what_sends_nothing_has_links_without_limit() {
        let free = Sweep { communication: 0.0, ..Sweep::default() }.problem("p", graph(), 0).unwrap();
        assert_eq!(free.platform.rate(DeviceId(0), DeviceId(1)), f64::INFINITY);
        let empty = Sweep::default().problem("p", GraphBuilder::new().build().unwrap(), 0).unwrap();
        assert!(empty.problem().is_ok());
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for sweep in [
            Sweep { range: 2.0, ..Sweep::default() },
            Sweep { communication: f64::NAN, ..Sweep::default() },
            Sweep { mean_time: -1.0, ..Sweep::default() },
            Sweep { devices: u32::MAX, ..Sweep::default() },
        ] {
            assert!(sweep.problem("p", graph(), 0).is_err(), "{sweep:?}");
        }
    }
}
