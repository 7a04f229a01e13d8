//! Everything on one device: the fastest of a kind, as far as tasks can run there.

use super::assignment::Assignment;
use super::slowness::fastest_first;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::UnitId;
use crate::platform::{DeviceId, DeviceKind};
use crate::problem::Problem;

/// Puts every unit on the fastest device of `kind` that can take it, and what no such device can take on the fastest other
/// device. With one device of each kind that is the CPU for `cpu` and the GPU for `gpu`, the rest on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Single {
    /// The wanted kind.
    pub kind: DeviceKind,
}

impl Placer for Single {
    fn name(&self) -> &'static str {
        match self.kind {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
            DeviceKind::Tpu => "tpu",
            DeviceKind::Other => "other",
        }
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let graph = problem.graph();
        let units: Vec<UnitId> = graph.unit_ids().collect();
        let mut preferred = fastest_first(problem, &units);
        preferred.sort_by_key(|&device| problem.platform().device(device).kind != self.kind);
        let mut assignment = Assignment::new(problem)?;
        for unit in units {
            let task = graph.members(unit)[0];
            let (device, reason) = match assignment.forced(unit) {
                Some(forced) => forced,
                None => self.choose(problem, &assignment, &preferred, unit)?,
            };
            assignment.assign(unit, task, device, reason);
        }
        Ok(assignment.finish(self.name(), None))
    }
}

impl Single {
    fn choose(
        &self,
        problem: &Problem<'_>,
        assignment: &Assignment<'_>,
        preferred: &[DeviceId],
        unit: UnitId,
    ) -> Result<(DeviceId, Reason), PlaceError> {
        let takes = |device: &&DeviceId| problem.is_feasible(unit, **device) && assignment.room().holds(unit, **device);
        let &device = preferred.iter().find(takes).ok_or_else(|| assignment.room().refusal(unit))?;
        let wanted = problem.platform().device(device).kind == self.kind;
        Ok((device, if wanted { Reason::WantedKind } else { Reason::NotOnWantedKind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::graph::Task;
    use crate::platform::{Device, DeviceKinds, Platform};
    use crate::problem::MemoryRule;
    use crate::sample;

    #[test]
    fn the_fastest_of_the_kind_takes_what_it_can() {
        let mut builder = sample::tasks(&[0.0, 0.0]);
        builder.task(Task::new("large").with_memory(60));
        builder.task(Task::new("host").with_allowed(DeviceKinds::CPU));
        builder.task(Task::new("pinned").with_pin(DeviceId(0)));
        let graph = builder.build().unwrap();
        let kinds = [DeviceKind::Cpu, DeviceKind::Cpu, DeviceKind::Gpu, DeviceKind::Gpu];
        let devices =
            kinds.map(|kind| Device::new("d", kind).with_memory(50 + 10 * u64::from(kind == DeviceKind::Cpu)));
        let platform = Platform::uniform(devices.to_vec(), 0.0, 1.0).unwrap();
        let seconds = [4.0, 3.0, 2.0, 1.0];
        let costs = CostTable::from_fn(&graph, &platform, |_, device| Some(seconds[device.index()])).unwrap();
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Resident).unwrap();
        let placement = Single { kind: DeviceKind::Gpu }.place(&problem).unwrap();
        assert_eq!(placement.device_of, [3, 3, 1, 1, 0].map(DeviceId));
        let (wanted, other) = (Reason::WantedKind, Reason::NotOnWantedKind);
        assert_eq!(placement.reasons, [wanted.clone(), wanted, other.clone(), other, Reason::Pinned]);
    }
}
