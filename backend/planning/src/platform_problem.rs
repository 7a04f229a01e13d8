//! Platform files in the placement simulator: their devices and links for a task graph, or instead of a problem's own.

use super::error::PlanningError;
use super::platform_file::{DeviceEntry, LinkEntry, PlatformFile};
use anabranch_placement_core::cost::TimeTable;
use anabranch_placement_core::loaded::{Costs, LoadedProblem};
use anabranch_placement_core::platform::{Device, DeviceId, Platform};

/// Unit of all times in platform files.
const SECONDS: &str = "s";

impl PlatformFile {
    /// Returns the devices and links for graphs whose tasks have numbers of operations. A device does `matmul_flops /
    /// times` operations per second.
    ///
    /// # Errors
    ///
    /// If the file only describes differences from the present machine, a device has no rates, a link is missing or
    /// names an unknown device, or a value is invalid.
    pub fn platform(&self) -> Result<Platform, PlanningError> {
        if self.extends {
            let problem = "it extends this machine, whose devices are unknown here; write the whole platform";
            return Err(PlanningError::platform(problem));
        }
        let devices = self.entries_over(&[])?.iter().map(DeviceEntry::device).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<_> = devices.iter().map(|device| device.name.clone()).collect();
        let between = |from: &String, to: &String| {
            let missing = || PlanningError::platform(format!("it has no link from `{from}` to `{to}`"));
            let link = self.link(from, to).ok_or_else(missing)?;
            Ok::<_, PlanningError>((link.latency.unwrap_or(0.0), link.rate.unwrap_or(f64::INFINITY)))
        };
        let mut links = Vec::with_capacity(names.len() * names.len());
        for from in &names {
            for to in &names {
                links.push(if from == to { (0.0, f64::INFINITY) } else { between(from, to)? });
            }
        }
        let link = |from: DeviceId, to: DeviceId| links[from.index() * names.len() + to.index()];
        Platform::new(devices, link).map_err(|error| PlanningError::platform(error.to_string()))
    }

    /// Returns a problem in seconds as it would be on this file's devices, matched by name: with their memories, links
    /// and `times`.
    ///
    /// A device that the file omits or removes runs nothing. Rates have no effect, because the problem has times of its
    /// own.
    ///
    /// # Errors
    /// If the problem's times are in another unit, the file names a device that the problem does not have, or a value
    /// is invalid.
    pub fn over(&self, problem: LoadedProblem) -> Result<LoadedProblem, PlanningError> {
        if problem.facts.time_unit.as_deref() != Some(SECONDS) {
            let unit = problem.facts.time_unit.as_deref().unwrap_or("an unnamed unit");
            let problem = format!("its times are in seconds, but those of `{}` are in {unit}", problem.name);
            return Err(PlanningError::platform(problem));
        }
        let names: Vec<_> = problem.platform.devices().iter().map(|device| device.name.clone()).collect();
        self.check_names(&problem.name, &names)?;
        let entries: Vec<Option<&DeviceEntry>> = names.iter().map(|name| self.entry(name)).collect();
        let runs = |at: usize| !self.remove.contains(&names[at]) && (self.extends || entries[at].is_some());
        let times = |at: usize| entries[at].map_or(1.0, |entry| entry.times);
        let changed = |(at, device): (usize, &Device)| {
            let memory = entries[at].and_then(|entry| entry.memory).or(device.memory);
            Device { memory, ..device.clone() }
        };
        let devices = problem.platform.devices().iter().enumerate().map(changed).collect();
        let link = |from: DeviceId, to: DeviceId| {
            let given = self.link(&names[from.index()], &names[to.index()]);
            let (latency, rate) = (problem.platform.latency(from, to), problem.platform.rate(from, to));
            let given = |of: fn(&LinkEntry) -> Option<f64>| given.and_then(of);
            (given(|link| link.latency).unwrap_or(latency), given(|link| link.rate).unwrap_or(rate))
        };
        let platform = Platform::new(devices, link).map_err(|error| PlanningError::platform(error.to_string()))?;
        let time = |task, device: DeviceId| {
            let time = anabranch_placement_core::cost::CostModel::nominal_time(&problem, task, device)?;
            runs(device.index()).then(|| time * times(device.index()))
        };
        let table = TimeTable::from_fn(problem.graph.task_count(), names.len(), time);
        let costs = Costs::Times(table.map_err(|error| PlanningError::platform(error.to_string()))?);
        Ok(LoadedProblem { costs, platform, ..problem })
    }

    fn entry(&self, name: &str) -> Option<&DeviceEntry> {
        self.devices.iter().find(|entry| entry.name == name)
    }

    /// Rejects names that the problem does not have, and invalid values.
    fn check_names(&self, problem: &str, known: &[String]) -> Result<(), PlanningError> {
        self.devices.iter().try_for_each(DeviceEntry::check)?;
        self.links.iter().try_for_each(LinkEntry::check)?;
        let ends = self.links.iter().flat_map(|link| [&link.from, &link.to]);
        let mut names = self.devices.iter().map(|device| &device.name).chain(&self.remove).chain(ends);
        names.find(|name| !known.contains(name)).map_or(Ok(()), |name| {
            let (known, model) = (known.join(", "), "`anabranch graph MODEL --platform FILE`");
            Err(PlanningError::platform(format!(
                "it names `{name}`, but `{problem}` has only the times of {known}; {model} writes a problem for \
                 other devices"
            )))
        })
    }
}

impl DeviceEntry {
    /// Returns the device for tasks with numbers of operations.
    fn device(&self) -> Result<Device, PlanningError> {
        let missing = |what: &str| PlanningError::platform(format!("device `{}` has no `{what}`", self.name));
        let (kind, rates) = (self.kind.ok_or_else(|| missing("kind"))?, self.rates.ok_or_else(|| missing("rates"))?);
        let device = Device::new(&self.name, kind).with_speed(rates.matmul_flops / self.times);
        Ok(self.memory.map_or(device.clone(), |bytes| device.with_memory(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_placement_core::graph::{GraphBuilder, Task, TaskId};
    use anabranch_placement_core::platform::DeviceKind;
    use anabranch_placement_core::problem::MemoryRule;

    fn file(extends: bool, text: &str) -> PlatformFile {
        let text = format!(r#"{{"format": "anabranch-platform", "version": 1, "extends": {extends}, {text}}}"#);
        serde_json::from_str(&text).expect("a platform file")
    }

    const RATES: &str = r#"{"matmul_flops": 4e9, "conv_flops": 1e9, "map_flops": 1e9, "bandwidth": 1e9, "launch": 0}"#;

    fn problem() -> LoadedProblem {
        let mut builder = GraphBuilder::new();
        let [a, b] = ["a", "b"].map(|name| builder.task(Task::new(name).with_operations(8.0)));
        builder.edge(a, b, 100);
        let devices = vec![Device::new("cpu0", DeviceKind::Cpu), Device::new("gpu0", DeviceKind::Gpu).with_speed(4.0)];
        let platform = Platform::uniform(devices, 1.0, 50.0).expect("a platform");
        let mut problem = LoadedProblem::new("p", builder.build().expect("a graph"), platform, MemoryRule::Resident);
        problem.facts.time_unit = Some("s".into());
        problem
    }

    #[test]
    fn a_problem_is_changed_where_the_file_says_so() {
        let changed = file(
            true,
            r#""devices": [{"name": "gpu0", "times": 0.5, "memory": "1 KiB"}],
               "links": [{"from": "cpu0", "to": "gpu0", "rate": 100}]"#,
        );
        let changed = changed.over(problem()).expect("it fits");
        let time = |device| anabranch_placement_core::cost::CostModel::task_time(&changed, TaskId(0), DeviceId(device));
        assert_eq!((time(0), time(1)), (Some(8.0), Some(1.0)));
        let platform = &changed.platform;
        assert_eq!((platform.device(DeviceId(0)).memory, platform.device(DeviceId(1)).memory), (None, Some(1024)));
        let times = [(0, 1), (1, 0)].map(|(a, b)| platform.transfer_time(100, DeviceId(a), DeviceId(b)));
        assert_eq!(times, [2.0, 3.0]);
        let alone = file(false, r#""devices": [{"name": "cpu0"}]"#).over(problem()).expect("it fits");
        assert_eq!(anabranch_placement_core::cost::CostModel::task_time(&alone, TaskId(1), DeviceId(1)), None);
    }

    #[test]
    fn a_whole_platform_gives_graphs_their_devices() {
        let links =
            r#""links": [{"from": "cpu0", "to": "gpu0", "latency": 1, "rate": 10}, {"from": "gpu0", "to": "cpu0"}]"#;
        let devices = format!(
            r#""devices": [{{"name": "cpu0", "kind": "cpu", "rates": {RATES}, "memory": 7}},
               {{"name": "gpu0", "kind": "gpu", "times": 0.5, "rates": {RATES}}}]"#
        );
        let platform = file(false, &format!("{devices}, {links}")).platform().expect("whole");
        let speeds: Vec<_> = platform.devices().iter().map(|device| (device.speed, device.memory)).collect();
        assert_eq!(speeds, [(4e9, Some(7)), (8e9, None)]);
        assert_eq!(platform.transfer_time(20, DeviceId(0), DeviceId(1)), 3.0);
        let removed = file(false, &format!(r#"{devices}, "remove": ["gpu0"]"#)).platform().expect("one is left");
        assert_eq!(removed.device_count(), 1);
        for (extends, text, part) in [
            (true, devices.clone(), "extends this machine"),
            (false, devices.clone(), "no link from `cpu0` to `gpu0`"),
            (false, r#""devices": [{"name": "cpu0", "kind": "cpu"}]"#.into(), "`cpu0` has no `rates`"),
            (false, format!(r#"{devices}, "remove": ["gpu7"]"#), "`remove` names `gpu7`"),
            (false, format!(r#"{devices}, "remove": ["cpu0", "gpu0"]"#), "there is no device"),
            (false, format!(r#"{devices}, {links}, "remove": ["gpu0"]"#), "a link names `gpu0`"),
            (false, format!(r#"{devices}, "links": [{{"from": "cpu0", "to": "gpu7"}}]"#), "a link names `gpu7`"),
        ] {
            let error = file(extends, &text).platform().expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_the_problem_does_not_know_is_refused() {
        let error = file(true, r#""devices": [{"name": "gpu7"}]"#).over(problem()).expect_err("unknown").to_string();
        assert!(error.contains("`gpu7`") && error.contains("cpu0, gpu0"), "{error}");
        let mut other = problem();
        other.facts.time_unit = Some("ms".into());
        let error = file(true, r#""devices": []"#).over(other).expect_err("another unit").to_string();
        assert!(error.contains("seconds") && error.contains("ms"), "{error}");
    }
}
