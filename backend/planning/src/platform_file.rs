//! Platform files: descriptions of other or modified devices and links, so that a model can be placed and simulated for
//! another machine.
//!
//! StarPU needs a separate simulator for this; here it takes a file.
//!
//! ```json
//! { "format": "anabranch-platform", "version": 1, "extends": true,
//!   "devices": [ { "name": "gpu0", "times": 0.25, "memory": "4 GiB" },
//!                { "name": "gpu1", "kind": "gpu", "memory": "8 GiB",
//!                  "rates": { "matmul_flops": 5e12, "conv_flops": 4e12, "map_flops": 1e12, "bandwidth": 3e11, "launch": 5e-6 } } ],
//!   "links": [ { "from": "cpu0", "to": "gpu1", "latency": 2e-5, "rate": 1.2e10 } ],
//!   "remove": [] }
//! ```

use super::error::PlanningError;
use super::machine::{link, machine_devices};
use anabranch_base::bytes::{format_bytes, parse_bytes};
use anabranch_base::files;
use anabranch_base::quoted::Name;
use anabranch_costs::{MOST_SECONDS, MachineCosts, Rates, is_rate};
use anabranch_device::Inventory;
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::MachineDevice;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::path::Path;

const FORMAT: &str = PlatformFile::FORMAT;

/// The version that this build writes and reads.
const VERSION: u32 = 1;

/// Most devices of a platform: a plan looks at the links of all pairs.
const MOST_DEVICES: usize = 256;

/// Devices and links to plan for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlatformFile {
    /// Format name, `anabranch-platform`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = FORMAT)))]
    pub format: String,
    /// Format version, 1.
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Whether the file describes only differences from the present machine; else it describes everything.
    #[serde(default)]
    pub extends: bool,
    /// Devices, the host first; if the file extends the machine, devices that are added or differ.
    pub devices: Vec<DeviceEntry>,
    /// Links that differ from the measured or assumed links.
    #[serde(default)]
    pub links: Vec<LinkEntry>,
    /// Names of devices of the present machine that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// A device of a platform file. Omitted fields come from the present device of the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// Name in plans and on the command line.
    pub name: String,
    /// Kind of the device: CPU or GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<DeviceKind>,
    /// Bytes that the device may hold: a number, or a text such as `4 GiB`. If omitted for a new device, memory is
    /// unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "size")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<size::Size>"))]
    pub memory: Option<u64>,
    /// Key in the cost store of the device whose measured times this device has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Factor of all times: 0.5 is twice as fast (default: 1).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub times: f64,
    /// Roofline of the device, for devices without measurements, or to replace measurements.
    ///
    /// If the rates equal the measured rates, the measurements stay in use. Other rates replace everything that was
    /// measured of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
}

/// A directed link of a platform file: a transfer of `n` bytes takes `latency + n / rate` seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkEntry {
    /// Sending device.
    pub from: String,
    /// Receiving device.
    pub to: String,
    /// Seconds before the first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub latency: Option<f64>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

impl PlatformFile {
    /// Value of `format` in every platform file.
    pub const FORMAT: &'static str = "anabranch-platform";

    /// Describes the present machine: all devices, and all links as measured or assumed.
    pub fn of(inventory: &Inventory, known: &MachineCosts) -> Self {
        let devices = machine_devices(inventory);
        let pairs = devices.iter().flat_map(|from| devices.iter().map(move |to| (from, to)));
        let entry = |(from, to): (&MachineDevice, &MachineDevice)| {
            let costs = link(known, from, to);
            let (from, to) = (from.name.clone(), to.name.clone());
            LinkEntry { from, to, latency: Some(costs.latency), rate: Some(costs.rate) }
        };
        Self {
            format: FORMAT.into(),
            version: VERSION,
            extends: false,
            devices: devices.iter().map(|device| DeviceEntry::of(device).with_rates(known)).collect(),
            links: pairs.filter(|(from, to)| from.name != to.name).map(entry).collect(),
            remove: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a platform file of this version.
    pub fn read(path: &Path) -> Result<Self, PlanningError> {
        let refused = |problem: &str| PlanningError::platform_file(path, problem);
        let text = files::read(path, files::MOST_BYTES).map_err(|error| refused(&error.to_string()))?;
        let file: Self = serde_json::from_slice(&text).map_err(|e| {
            refused(&format!("{}; start with a platform that `PlatformFile::of` returns", files::json_problem(&e)))
        })?;
        let Self { format, version, .. } = &file;
        if format != FORMAT || *version != VERSION {
            return Err(PlanningError::platform(format!(
                "`format` and `version` are {} {version}, but this program reads `{FORMAT}` {VERSION}",
                Name(format)
            )));
        }
        Ok(file)
    }

    /// Returns all devices of the platform, with omitted fields taken from `present`, and checks their values. The
    /// first device is the host, a CPU.
    pub(super) fn devices_over(&self, present: &[MachineDevice]) -> Result<Vec<DeviceEntry>, PlanningError> {
        let devices = self.entries_over(present)?;
        match devices.first() {
            Some(host) if host.kind != Some(DeviceKind::Cpu) => {
                let problem =
                    format!("the first device, `{}`, is not a CPU; put a CPU first, for inputs and outputs", host.name);
                Err(PlanningError::platform(problem))
            }
            _ => Ok(devices),
        }
    }

    /// Returns all devices of the platform like [`Self::devices_over`], but accepts any first device; there must be at
    /// least one.
    pub(super) fn entries_over(&self, present: &[MachineDevice]) -> Result<Vec<DeviceEntry>, PlanningError> {
        let unknown = |what: &str, name: &str, devices: &[DeviceEntry]| {
            let known: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            PlanningError::platform(format!("{what} names `{name}`, but the devices are {}", known.join(", ")))
        };
        self.refuse_too_many(self.devices.len())?;
        let detected: Vec<_> = present.iter().map(DeviceEntry::of).collect();
        let mut devices: Vec<DeviceEntry> = if self.extends { detected.clone() } else { Vec::new() };
        for entry in &self.devices {
            let filled = entry.filled(detected.iter().find(|other| other.name == entry.name))?;
            match devices.iter_mut().find(|other| other.name == entry.name) {
                Some(place) => *place = filled,
                None => devices.push(filled),
            }
        }
        for name in &self.remove {
            let place = devices.iter().position(|device| device.name == *name);
            devices.remove(place.ok_or_else(|| unknown("`remove`", name, &devices))?);
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.devices.iter().find(|device| !names.insert(&device.name)) {
            return Err(PlanningError::platform(format!("two devices are called `{}`", twice.name)));
        }
        if devices.is_empty() {
            return Err(PlanningError::platform("there is no device"));
        }
        self.refuse_too_many(devices.len())?;
        for link in &self.links {
            link.check()?;
            for name in [&link.from, &link.to] {
                if !devices.iter().any(|device| device.name == *name) {
                    return Err(unknown("a link", name, &devices));
                }
            }
        }
        Ok(devices)
    }

    /// Rejects more devices, or more links between them, than a plan can look at.
    fn refuse_too_many(&self, devices: usize) -> Result<(), PlanningError> {
        let links = MOST_DEVICES * MOST_DEVICES;
        if devices <= MOST_DEVICES && self.links.len() <= links {
            return Ok(());
        }
        let found = format!("it has {devices} devices and {} links", self.links.len());
        let text =
            format!("{found}, but at most {MOST_DEVICES} devices and {links} links are supported; leave some out");
        Err(PlanningError::platform(text))
    }

    /// Returns the file's entry of a link.
    pub(super) fn link(&self, from: &str, to: &str) -> Option<&LinkEntry> {
        self.links.iter().rev().find(|link| link.from == from && link.to == to)
    }
}

impl DeviceEntry {
    /// Describes a present device.
    pub(super) fn of(device: &MachineDevice) -> Self {
        Self {
            name: device.name.clone(),
            kind: Some(device.kind),
            memory: device.memory.bytes(),
            key: Some(device.key.clone()),
            times: 1.0,
            rates: None,
        }
    }

    /// Adds the measured rates to the entry.
    fn with_rates(self, known: &MachineCosts) -> Self {
        let costs = self.key.as_ref().and_then(|key| known.devices.get(key));
        Self { rates: costs.and_then(|costs| costs.rates), ..self }
    }

    /// Returns the device as placement sees it, under a key of its own.
    pub(super) fn machine_device(&self) -> MachineDevice {
        MachineDevice {
            name: self.name.clone(),
            kind: self.kind.unwrap_or(DeviceKind::Cpu),
            key: format!("platform file | {}", self.name),
            memory: self.memory.into(),
            times: self.times,
            threads: 1,
            cache: 0,
        }
    }

    /// Checks the entry's values.
    pub(super) fn check(&self) -> Result<(), PlanningError> {
        if !(f64::MIN_POSITIVE..=1e30).contains(&self.times) {
            return Err(wrong_figure("times", &self.name, self.times, "a number above 0, and at most 10^30"));
        }
        if let Some(rates) = self.rates.filter(|rates| !rates.is_sane()) {
            return Err(wrong_figure(
                "one of the rates",
                &self.name,
                rates.matmul_flops,
                "a number from 10^-9 to 10^30, like all rates",
            ));
        }
        Ok(())
    }

    fn filled(&self, detected: Option<&Self>) -> Result<Self, PlanningError> {
        self.check()?;
        let Some(kind) = self.kind.or(detected.and_then(|d| d.kind)) else {
            return Err(PlanningError::platform(format!(
                "the kind of device `{}` is unknown; give its `kind`: `cpu` or `gpu`",
                self.name
            )));
        };
        // A device with its own roofline does not have the times measured on the present device.
        let key = self.key.clone().or_else(|| detected.filter(|_| self.rates.is_none())?.key.clone());
        let memory = self.memory.or(detected.and_then(|d| d.memory));
        Ok(Self { name: self.name.clone(), kind: Some(kind), memory, key, times: self.times, rates: self.rates })
    }
}

impl LinkEntry {
    pub(super) fn check(&self) -> Result<(), PlanningError> {
        let figure =
            |what, value, expected| Err(wrong_figure(what, &format!("{} -> {}", self.from, self.to), value, expected));
        match (self.latency, self.rate) {
            (Some(latency), _) if !(0.0..=MOST_SECONDS).contains(&latency) => {
                figure("latency", latency, "a number of seconds, 0 or more, and at most 10^10")
            }
            (_, Some(rate)) if !is_rate(rate) => {
                figure("rate", rate, "a number of bytes per second from 10^-9 to 10^30")
            }
            _ => Ok(()),
        }
    }
}

fn wrong_figure(what: &str, name: &str, value: f64, expected: &str) -> PlanningError {
    PlanningError::platform(format!("{what} of `{name}` is {value}; it must be {expected}"))
}

fn one() -> f64 {
    1.0
}

fn is_one(times: &f64) -> bool {
    *times == 1.0
}

/// Sizes as numbers or as text with units.
mod size {
    use super::{Deserialize, Deserializer, Serializer, format_bytes, parse_bytes};

    /// A size in bytes.
    #[derive(Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(untagged)]
    pub(super) enum Size {
        /// Number of bytes.
        Bytes(u64),
        /// Text with a unit, such as `4 GiB`.
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(size: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match size {
            // Text is used only if it means exactly the same number.
            Some(bytes) if parse_bytes(&format_bytes(*bytes)) == Ok(*bytes) => {
                serializer.serialize_str(&format_bytes(*bytes))
            }
            Some(bytes) => serializer.serialize_u64(*bytes),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        match Option::<Size>::deserialize(deserializer)? {
            None => Ok(None),
            Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Size::Text(text)) => parse_bytes(&text).map(Some).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> Vec<MachineDevice> {
        let device = |name: &str, kind, memory: u64| MachineDevice {
            name: name.into(),
            kind,
            key: format!("{name}'s key"),
            memory: memory.into(),
            times: 1.0,
            threads: 1,
            cache: 0,
        };
        vec![device("cpu0", DeviceKind::Cpu, 1 << 30), device("gpu0", DeviceKind::Gpu, 1 << 20)]
    }

    fn devices(text: &str) -> Result<Vec<DeviceEntry>, String> {
        let text = format!("{{\"format\": \"{FORMAT}\", \"version\": 1, {text}}}");
        let file: PlatformFile = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        file.devices_over(&present()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_that_extends_says_only_what_differs() {
        let found = devices(
            r#""extends": true, "devices": [{"name": "gpu0", "times": 0.5, "memory": "2 MiB"},
               {"name": "gpu1", "kind": "gpu", "key": "gpu0's key"}], "remove": []"#,
        );
        let found = found.expect("sound");
        assert_eq!(found.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["cpu0", "gpu0", "gpu1"]);
        assert_eq!((found[0].memory, found[0].times), (Some(1 << 30), 1.0));
        assert_eq!((found[1].memory, found[1].times), (Some(2 << 20), 0.5));
        assert_eq!(found[1].key.as_deref(), Some("gpu0's key"));
        assert_eq!(found[2].memory, None);
    }

    #[test]
    fn a_roofline_takes_the_place_of_measured_times() {
        let rates = r#"{"matmul_flops": 1e12, "conv_flops": 1e12, "map_flops": 1e12, "bandwidth": 1e11, "launch": 0}"#;
        let text = format!(r#""extends": true, "devices": [{{"name": "gpu0", "rates": {rates}}}]"#);
        assert_eq!(devices(&text).expect("sound")[1].key, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let cpu = r#"{"name": "cpu0"}"#;
        for (text, part) in [
            (r#""devices": [{"name": "x"}]"#.to_owned(), "give its `kind`"),
            (r#""devices": [{"name": "x", "kind": "tpu"}]"#.to_owned(), "tpu"),
            (r#""devices": [{"name": "gpu0"}]"#.to_owned(), "the first device, `gpu0`, is not a CPU"),
            (r#""devices": []"#.to_owned(), "there is no device"),
            (format!(r#""devices": [{cpu}, {cpu}]"#), "two devices are called `cpu0`"),
            (r#""devices": [{"name": "cpu0", "times": -1}]"#.to_owned(), "times of `cpu0` is -1"),
            (r#""devices": [{"name": "cpu0", "memory": "much"}]"#.to_owned(), "much"),
            (r#""devices": [{"name": "cpu0", "speed": 2}]"#.to_owned(), "unknown field `speed`"),
            (format!(r#""devices": [{cpu}], "remove": ["gpu7"]"#), "`remove` names `gpu7`"),
            (format!(r#""devices": [{cpu}], "links": [{{"from": "cpu0", "to": "x"}}]"#), "a link names `x`"),
            (
                format!(r#""devices": [{cpu}], "links": [{{"from": "cpu0", "to": "cpu0", "rate": 0}}]"#),
                "rate of `cpu0 -> cpu0` is 0",
            ),
        ] {
            let error = devices(&text).expect_err(&text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_written_as_people_read_them_where_that_is_exact() {
        let entry = |memory| DeviceEntry { memory: Some(memory), ..DeviceEntry::of(&present()[0]) };
        for (bytes, text) in [(1 << 30, "\"1 GiB\""), ((1 << 30) + 1, "1073741825")] {
            let written = serde_json::to_string(&entry(bytes)).expect("plain data");
            assert!(written.contains(text), "{written}");
            assert_eq!(serde_json::from_str::<DeviceEntry>(&written).expect("as written"), entry(bytes));
        }
    }
}
