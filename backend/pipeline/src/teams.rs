//! Data-parallel groups: cores of one CPU device that work at each data set of a stage together.
//!
//! A group is planned as a CPU device whose team of threads is on its cores. Kernels divide their rows among a team's
//! threads, with the same bits for any number of threads. The stage has its weights and its memory once.
//!
//! The time of a group is derived from the times of one core and of all cores of the device together. Amdahl's law
//! gives it for each node: `t (f + (1 − f) / p)` on `p` cores, where `f` is the share of the node's time that they do
//! not divide.

use super::costs::StageCosts;
use super::mapping::refused;
use super::processors::Processor;
use anabranch_device::{CpuDevice, Inventory};
use anabranch_ir::program::NodeId;
use anabranch_session::SessionError;

/// The cores of one CPU device.
#[derive(Clone)]
pub(super) struct Team {
    /// The device, and its index among the session's devices.
    pub(super) device: CpuDevice,
    pub(super) home: usize,
    /// Indices of its cores among the processors: at least two.
    pub(super) cores: Vec<usize>,
}

impl Team {
    /// Returns some of the cores as one processor.
    pub(super) fn group(&self, cores: &[usize], processors: &[Processor]) -> Processor {
        let units = cores.iter().flat_map(|core| &processors[*core].devices.cpus).flat_map(CpuDevice::team);
        let (name, count) = (group_name(cores, processors), cores.len());
        // Filed under the device's key: how its kernels compare also holds for some of its cores.
        let (pus, key) = (units.copied().collect(), self.device.key.clone());
        let device = CpuDevice { name: name.clone(), cores: count, threads: count, pus, ..self.device.clone() };
        let devices = Inventory { cpus: vec![device], ..processors[self.cores[0]].devices.clone() };
        Processor { name, key, devices, homes: vec![self.home] }
    }

    /// Returns all cores as one processor.
    pub(super) fn whole(&self, processors: &[Processor]) -> Processor {
        self.group(&self.cores, processors)
    }
}

/// Returns the name of a taker of a stage: a processor, or the cores of a group as in `cpu0.0+cpu0.1`.
pub(super) fn group_name(cores: &[usize], processors: &[Processor]) -> String {
    cores.iter().map(|core| processors[*core].name.as_str()).collect::<Vec<_>>().join("+")
}

/// Returns the share of each node's time that `cores` cores do not divide, from its seconds on one core and on all.
pub(super) fn serial_shares(one: &[f64], all: &[f64], cores: usize) -> Vec<f64> {
    let divisible = 1.0 - 1.0 / cores as f64;
    let excess = |(one, all): (&f64, &f64)| (all - one / cores as f64).clamp(0.0, one * divisible);
    let excess: Vec<f64> = one.iter().zip(all).map(excess).collect();
    // Times of single nodes are less certain than their sum: errors of several nodes cancel out.
    let (sum, wanted) = (excess.iter().sum::<f64>(), all.iter().sum::<f64>() - one.iter().sum::<f64>() / cores as f64);
    let scale = if sum > 0.0 { (wanted / sum).clamp(0.0, 1.0) } else { 0.0 };
    let share = |(excess, one): (&f64, &f64)| if *one > 0.0 { scale * excess / (one * divisible) } else { 0.0 };
    excess.iter().zip(one).map(share).collect()
}

impl StageCosts {
    /// Returns a processor, or several cores as one.
    ///
    /// # Errors
    /// If they are not cores of one CPU device.
    pub(super) fn taker(&self, taker: &[usize]) -> Result<Processor, SessionError> {
        if let [one] = taker {
            return Ok(self.processors[*one].clone());
        }
        let team = self.teams.iter().find(|team| taker.iter().all(|core| team.cores.contains(core)));
        let apart = || {
            let name = group_name(taker, &self.processors);
            refused(format!("{name} cannot share a sample; use cores of one CPU device, as in cpu0.0+cpu0.1"))
        };
        Ok(team.ok_or_else(apart)?.group(taker, &self.processors))
    }

    /// Returns the seconds of some nodes on a processor or, by Amdahl's law, on several equal cores as one.
    pub(super) fn seconds_on(&self, nodes: &[NodeId], taker: &[usize]) -> f64 {
        let (processor, cores) = (taker[0], taker.len() as f64);
        let divided = |share: f64| share + (1.0 - share) / cores;
        nodes.iter().map(|node| self.seconds[node.index()][processor] * divided(self.serial[node.index()])).sum()
    }

    /// Returns the share of some nodes' time on a processor that a group does not divide.
    pub(super) fn serial_share(&self, nodes: &[NodeId], processor: usize) -> f64 {
        let serial = |node: &NodeId| self.seconds[node.index()][processor] * self.serial[node.index()];
        let whole = self.sum(nodes, processor);
        if whole > 0.0 { (nodes.iter().map(serial).sum::<f64>() / whole).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Moves the indivisible shares of some nodes towards the measured time of a group, as far as shares can.
    pub(super) fn learn_shares(&mut self, nodes: &[NodeId], group: &[usize], seconds: f64) {
        let (processor, cores) = (group[0], group.len() as f64);
        let whole = self.sum(nodes, processor);
        let wanted = ((seconds / whole - 1.0 / cores) / (1.0 - 1.0 / cores)).clamp(0.0, 1.0);
        let known = self.serial_share(nodes, processor);
        for node in nodes.iter().filter(|_| wanted.is_finite()) {
            let share = &mut self.serial[node.index()];
            *share = if known > 0.0 { (*share * wanted / known).min(1.0) } else { wanted };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_from_one_core_and_all() {
        let near = |found: Vec<f64>, wanted: &[f64]| {
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} {wanted:?}");
        };
        // Divided well, half, and not at all; and no time to divide.
        near(serial_shares(&[4.0, 4.0, 4.0, 0.0], &[1.0, 2.5, 4.0, 0.0], 4), &[0.0, 0.5, 1.0, 0.0]);
        // The first node is faster than the rate of all cores allows: the excess of the second makes up for it.
        near(serial_shares(&[4.0, 4.0], &[1.5, 3.0], 2), &[0.0, 0.25]);
        // All cores take longer than one core: no share explains that.
        near(serial_shares(&[2.0], &[5.0], 2), &[1.0]);
    }

    #[test]
    fn what_a_group_is_measured_to_take_is_what_it_is_said_to_take() {
        for (measured, one) in [(0.3, 1.0), (0.7, 1.0), (1.0, 1.0), (2.0, 2.0), (0.1, 0.4)] {
            let mut costs = StageCosts::made_up(4, 0.1);
            let nodes: Vec<NodeId> = costs.program().node_ids().collect();
            let count = nodes.len() as f64;
            costs.learn(&nodes, &[0, 1, 2, 3], measured * count);
            let found = (costs.seconds_on(&nodes, &[0, 1, 2, 3]) / count, costs.seconds_on(&nodes, &[2]) / count);
            // A core's own time changes only if no share explains the time of all cores.
            assert!((found.0 - measured).abs() < 1e-12 && (found.1 - one).abs() < 1e-12, "{measured}: {found:?}");
        }
    }
}
