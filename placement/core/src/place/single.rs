//! Strategy that puts everything on the fastest device of a kind, as far as tasks can run there.

use super::assignment::Assignment;
use super::slowness::fastest_first;
use super::{PlaceError, Placement, Placer, Reason};
use crate::graph::UnitId;
use crate::platform::DeviceKind;
use crate::problem::Problem;

/// Puts every unit on the fastest device of `kind` that can take it; if there is none, on the fastest other device.
/// With one device of each kind, `cpu` uses the CPU and `gpu` the GPU, with the rest on the other device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Single {
    /// The wanted kind.
    pub kind: DeviceKind,
}

const WANTED: &str = "fastest device of the wanted kind";
const NOT_WANTED: &str = "cannot run on the wanted device";

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
                None => {
                    let device = assignment.first_with_memory(unit, preferred.iter())?;
                    let wanted = problem.platform().device(device).kind == self.kind;
                    (device, Reason::Rule(if wanted { WANTED } else { NOT_WANTED }))
                }
            };
            assignment.assign(unit, task, device, reason)?;
        }
        Ok(assignment.finish(self.name(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::TimeTable;
    use crate::graph::Task;
    use crate::loaded::Costs;
    use crate::platform::{Device, DeviceId, DeviceKinds};
    use crate::problem::MemoryRule;
    use crate::sample;

    #[test]
    fn the_fastest_of_the_kind_takes_what_it_can() {
        let mut builder = sample::tasks(&[0.0, 0.0]);
        builder.task(Task::new("large").with_memory(60));
        builder.task(Task::new("host").with_allowed(DeviceKinds::CPU));
        builder.task(Task::new("pinned").with_pin(DeviceId(0)));
        let devices = [(DeviceKind::Cpu, 60), (DeviceKind::Cpu, 60), (DeviceKind::Gpu, 50), (DeviceKind::Gpu, 50)];
        let devices = devices.map(|(kind, memory)| Device::new("d", kind).with_memory(memory));
        let mut loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        loaded.costs = Costs::Times(TimeTable::from_fn(5, 4, |_, device| Some(f64::from(4 - device.0))).unwrap());
        let problem = loaded.problem().unwrap();
        let placement = Single { kind: DeviceKind::Gpu }.place(&problem).unwrap();
        assert_eq!(placement.device_of, [3, 3, 1, 1, 0].map(DeviceId));
        let (wanted, other) = (Reason::Rule(WANTED), Reason::Rule(NOT_WANTED));
        assert_eq!(placement.reasons, [wanted.clone(), wanted, other.clone(), other, Reason::Pinned]);
    }
}
