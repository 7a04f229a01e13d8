//! Units of the makespans in a sweep: those of the files, by graph and devices.

use super::super::cases::Case;
use anabranch_report::chart::Format;
use anabranch_report::trial::time_format;
use std::collections::BTreeMap;

/// Units of time by graph and devices.
pub(super) struct Units<'c>(BTreeMap<(&'c str, &'c str), Option<&'c str>>);

impl<'c> Units<'c> {
    /// Returns the units of these cases.
    pub(super) fn of(cases: &'c [Case]) -> Self {
        let unit = |case: &'c Case| ((case.graph.as_str(), case.devices.as_str()), case.time_unit());
        Self(cases.iter().map(unit).collect())
    }

    /// Returns the unit of a graph's times on these devices.
    pub(super) fn unit(&self, graph: &str, devices: &str) -> Option<&'c str> {
        self.0.get(&(graph, devices)).copied().flatten()
    }

    /// Returns the name of an axis of makespans of all cases, and their format.
    pub(super) fn axis(&self) -> (String, Format) {
        let mut units = self.0.values();
        let first = units.next().copied().flatten();
        match units.all(|unit| *unit == first) {
            true => {
                let (format, time) = time_format(first);
                (time.replacen("time", "makespan", 1), format)
            }
            false => ("makespan, in the unit of each graph".into(), time_format(None).0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_the_unit_that_all_cases_share() {
        let axis = |units: &[Option<&'static str>]| {
            let names = ["a", "b"].into_iter().zip(units);
            let (name, format) = Units(names.map(|(graph, unit)| ((graph, "own"), *unit)).collect()).axis();
            format!("{name}: {}", format(2.0))
        };
        assert_eq!(axis(&[Some("s"), Some("s")]), "makespan: 2.00 s");
        assert_eq!(axis(&[Some("ms")]), "makespan (ms): 2");
        assert_eq!(axis(&[Some("s"), None]), "makespan, in the unit of each graph: 2");
        assert_eq!(axis(&[None, None]), "makespan (time units): 2");
    }
}
