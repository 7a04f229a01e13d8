//! Options by name, as text or JSON: the options of sessions in other languages.

use super::loss::OnDeviceLoss;
use super::options::SessionOptions;
use anabranch_costs::CostStore;
use anabranch_device::parse_bytes;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::{Residency, StreamMode};
use anabranch_planning::{Constraints, PlatformFile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// The options that [`SessionOptions::set`] knows, and their values. The options of the command's `run`, of Python, of
/// C and of the execution provider for ONNX Runtime have these names.
pub const SETTINGS: [(&str, &str); 22] = [
    ("devices", "names of the devices to use, such as cpu0,gpu0; else all that are there"),
    ("gpu", "0: no GPU is looked for, and no graphics driver loaded"),
    ("cpu_devices", "cores that make one CPU device: machine, package, numa, l3 or core"),
    ("threads", "threads of each CPU device"),
    ("software_gpu", "1: a software adapter counts as a GPU"),
    ("memory", "what devices may fill, such as gpu0=2GiB,cpu0=512MiB"),
    ("emulate", "how many times slower CPU devices are to run than they can, such as cpu1=4"),
    ("place", "who places the nodes: heft, auto, mite, cp, …, a device's name, or a plan file that ends in .json"),
    ("order", "which ready node goes first: pct, msr, fifo or frugal"),
    ("stream", "off, auto or always"),
    ("weights", "which weights stay on GPUs: resident, staged or auto"),
    ("pin", "devices by patterns of nodes' names, such as *conv*=gpu0; of several that match, the first counts"),
    ("colocate", "patterns of nodes' names; the nodes that match one share a device"),
    ("fuse", "0: every operator is a node of its own"),
    ("costs", "a cost store to predict with"),
    ("calibrate", "1: devices of unknown speed are measured first, about a second each"),
    ("platform", "a platform file: plans are for its devices, and runs on those that are here"),
    ("on_device_loss", "what a run does that loses a GPU: fail or replace"),
    ("plan_capacity", "for how many sets of input shapes plans are kept ready"),
    ("dims", "sizes of dimensions that no input tells, by symbol or input and axis, such as batch=4,x[1]=128"),
    ("cached", "positions that costs take caches of keys and values to hold; else their capacity"),
    ("limits", "how much a model may ask for, such as nodes=2000000,tensor_bytes=128GiB"),
];

/// Names of an earlier version, and today's.
const FORMER: [(&str, &str); 2] = [("strategy", "place"), ("plans", "plan_capacity")];

/// Error of an unknown option, or of an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option `{name}` = `{value}`: {why}")]
pub struct SettingError {
    name: String,
    value: String,
    why: String,
}

impl SessionOptions {
    /// Sets the option of this name, one of [`SETTINGS`].
    ///
    /// Lists are separated by commas. Lists and maps may also be JSON, which allows names with commas.
    ///
    /// ```
    /// # mod anabranch { pub use anabranch_planning::Strategy; pub use anabranch_session::SessionOptions; }
    /// use anabranch::{SessionOptions, Strategy};
    /// let mut options = SessionOptions::default();
    /// options.set("place", "auto")?;
    /// options.set("dims", "batch=4")?;
    /// options.set("pin", r#"[["*conv*", "cpu0"]]"#)?;
    /// assert!(options.strategy == Strategy::AUTO && options.dims["batch"] == 4);
    /// assert!(options.set("speed", "11").is_err());
    /// # Ok::<(), anabranch_session::SettingError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such option, or it has no such value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        self.set_value(name, &Value::from(value), value)
    }

    /// Sets the option of this name to a JSON value: what [`Self::set`] reads, or a number, a bool, a list, or an
    /// object for a map. A map may also be a list of pairs, which has an order.
    ///
    /// # Errors
    /// If there is no such option, or it has no such value.
    pub fn set_json(&mut self, name: &str, value: &Value) -> Result<(), SettingError> {
        self.set_value(name, value, &value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    fn set_value(&mut self, name: &str, value: &Value, shown: &str) -> Result<(), SettingError> {
        let today = FORMER.iter().find(|(former, _)| *former == name).map_or(name, |(_, today)| today);
        let wrong = |why| SettingError { name: name.to_owned(), value: shown.to_owned(), why };
        self.apply(today, value).map_err(wrong)?;
        self.stated.extend(SETTINGS.iter().map(|(known, _)| *known).find(|known| *known == today));
        Ok(())
    }

    fn apply(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match name {
            "devices" => self.devices.only = list(value)?,
            "gpu" => self.devices.no_gpu = !truth(value)?,
            "cpu_devices" => self.devices.cpu_granularity = parsed(value)?,
            "threads" => self.devices.threads = Some(parsed(value)?),
            "software_gpu" => self.devices.software_gpu = truth(value)?,
            "memory" => {
                let limit = |(device, bytes): (String, String)| Ok((device, parse_bytes(&bytes).map_err(told)?));
                let limits = map(value)?.into_iter().map(limit).collect::<Result<_, String>>()?;
                self.devices.memory_overrides = named_once(limits)?.into_iter().collect();
            }
            "emulate" => self.devices.slowdowns = parsed_map(value)?.into_iter().collect(),
            "place" => self.strategy = parsed(value)?,
            "order" => self.order = parsed(value)?,
            "stream" => {
                let modes = [("off", StreamMode::Off), ("auto", StreamMode::Auto), ("always", StreamMode::Always)];
                self.plan.streaming = one_of(value, modes)?;
            }
            "weights" => {
                let (resident, staged) = (("resident", Residency::Resident), ("staged", Residency::Staged));
                let weights = one_of(value, [resident, staged, ("auto", Residency::Auto)])?;
                self.plan = self.plan.clone().with_weights(weights);
            }
            "pin" => {
                let pins = map(value)?;
                named_once(pins.clone())?;
                let mut others = self.constraints.clone();
                others.pins.clear();
                let pinned = |all: Constraints, (pattern, device)| all.with_pin(pattern, device);
                self.constraints = pins.into_iter().fold(others, pinned);
            }
            "colocate" => self.constraints.colocated = list(value)?,
            "fuse" => self.fuse = if truth(value)? { Rewrites::ALL } else { Rewrites::NONE },
            "costs" => self.costs = CostStore::load(text(value)?.as_ref()).map_err(told)?.store,
            "calibrate" => self.calibrate = truth(value)?,
            "platform" => self.platform = Some(PlatformFile::read(text(value)?.as_ref()).map_err(told)?),
            "on_device_loss" => {
                let (fail, replace) = (("fail", OnDeviceLoss::Fail), ("replace", OnDeviceLoss::Replace));
                self.on_device_loss = one_of(value, [fail, replace])?;
            }
            "plan_capacity" => self.plan_capacity = parsed::<NonZeroUsize>(value)?.get(),
            "dims" => self.dims = parsed_map(value)?,
            "cached" => self.cached = Some(parsed(value)?),
            "limits" => {
                let limits = named_once(map(value)?)?;
                limits.iter().try_for_each(|(name, value)| self.limits.set(name, value)).map_err(told)?;
            }
            _ => return Err("there is no such option".into()),
        }
        Ok(())
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// Returns a value that is no list and no map as text.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err("write a number, a string or a bool".into()),
    }
}

fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<T, String> {
    text(value)?.parse().map_err(told)
}

fn truth(value: &Value) -> Result<bool, String> {
    match &*text(value)? {
        "1" | "true" | "True" => Ok(true),
        "0" | "false" | "False" => Ok(false),
        _ => Err("write 1 or 0".into()),
    }
}

/// Returns the value of this name among the known values.
fn one_of<T, const N: usize>(value: &Value, known: [(&str, T); N]) -> Result<T, String> {
    let name = text(value)?;
    let names = known.each_ref().map(|(name, _)| *name).join(", ");
    let found = known.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, meant)| meant).ok_or_else(|| format!("write one of {names}"))
}

/// Returns the entries of a list, or of a text that is JSON or has commas between them.
fn entries(value: &Value) -> Result<Vec<Value>, String> {
    let parsed;
    let value = match value {
        Value::String(text) if text.trim_start().starts_with(['[', '{']) => {
            parsed = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
            &parsed
        }
        other => other,
    };
    match value {
        Value::String(text) => {
            Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Value::from).collect())
        }
        Value::Array(all) => Ok(all.clone()),
        Value::Object(all) => {
            Ok(all.iter().map(|(name, value)| Value::from([name.clone().into(), value.clone()])).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Err("write a list, or a string with commas in it".into()),
    }
}

fn list(value: &Value) -> Result<Vec<String>, String> {
    entries(value)?.iter().map(text).collect()
}

/// Returns the entries of an object, of a list of pairs, or of texts `NAME=VALUE`, in their order.
fn map(value: &Value) -> Result<Vec<(String, String)>, String> {
    let pair = |entry: &Value| match entry {
        Value::Array(pair) => match &pair[..] {
            [name, value] => Ok((text(name)?, text(value)?)),
            _ => Err("write pairs of a name and a value".into()),
        },
        other => {
            let entry = text(other)?;
            let (name, value) = entry.rsplit_once('=').ok_or("write NAME=VALUE")?;
            Ok((name.to_owned(), value.to_owned()))
        }
    };
    entries(value)?.iter().map(pair).collect()
}

fn parsed_map<T: FromStr<Err: Display> + Display>(value: &Value) -> Result<BTreeMap<String, T>, String> {
    let entry = |(name, value): (String, String)| match value.parse() {
        Ok(value) => Ok((name, value)),
        Err(error) => Err(format!("{name}: {error}")),
    };
    named_once(map(value)?.into_iter().map(entry).collect::<Result<_, _>>()?)
}

/// Collects the values by name.
///
/// # Errors
/// If two values have the same name.
fn named_once<T: Display>(given: Vec<(String, T)>) -> Result<BTreeMap<String, T>, String> {
    let mut all = BTreeMap::new();
    for (name, value) in given {
        if let Some(first) = all.get(&name) {
            return Err(format!("{name} is given twice, as {first} and as {value}; leave out one of them"));
        }
        all.insert(name, value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_planning::Strategy;
    use serde_json::json;

    #[test]
    fn all_settings_are_known_and_wrong_ones_refused_in_words() {
        let given = [
            ("devices", "cpu0, gpu0"),
            ("gpu", "0"),
            ("cpu_devices", "core"),
            ("threads", "2"),
            ("software_gpu", "1"),
            ("memory", "cpu0=1GiB"),
            ("emulate", "cpu0=2.5"),
            ("place", "auto"),
            ("order", "msr"),
            ("stream", "off"),
            ("weights", "staged"),
            ("pin", "b*=cpu0,a=cpu0"),
            ("colocate", "x*,y*"),
            ("fuse", "0"),
            ("costs", "/nowhere/costs.json"),
            ("calibrate", "0"),
            ("platform", ""),
            ("on_device_loss", "replace"),
            ("plan_capacity", "3"),
            ("dims", "batch=4, x[1]=7"),
            ("cached", "300"),
            ("limits", "nodes=5, tensor_bytes=1KiB"),
        ];
        assert!(given.iter().map(|(name, _)| *name).eq(SETTINGS.iter().map(|(name, _)| *name)));
        let mut options = SessionOptions::default();
        let settable = given.iter().filter(|(name, _)| *name != "platform");
        settable.for_each(|(name, value)| options.set(name, value).expect(name));
        assert_eq!(options.devices.only, ["cpu0", "gpu0"]);
        assert_eq!(options.devices.memory_overrides, [("cpu0".to_owned(), 1 << 30)]);
        assert_eq!((options.plan.streaming, options.plan_capacity), (StreamMode::Off, 3));
        assert_eq!((options.dims["batch"], options.dims["x[1]"]), (4, 7));
        assert_eq!((options.limits.nodes, options.limits.tensor_bytes, options.cached), (5, 1024, Some(300)));
        assert!(options.devices.no_gpu && options.strategy == Strategy::AUTO && options.fuse == Rewrites::NONE);
        assert_eq!(options.devices.slowdowns, [("cpu0".to_owned(), 2.5)]);
        let patterns: Vec<_> = options.constraints.pins.iter().map(|pin| pin.pattern.as_str()).collect();
        assert_eq!((patterns, options.constraints.colocated.len()), (vec!["b*", "a"], 2));
        let wrong = [
            ("speed", "11"),
            ("platform", "/nowhere/platform.json"),
            ("pin", "a=cpu0,a=cpu1"),
            ("colocate", "[1"),
            ("threads", "0"),
            ("stream", "perhaps"),
            ("memory", "much"),
            ("dims", "batch"),
            ("dims", "n=1,n=2"),
            ("memory", "cpu0=1GiB,cpu0=2GiB"),
        ];
        for (name, value) in wrong {
            let error = options.set(name, value).expect_err(name).to_string();
            assert!(error.starts_with(&format!("option `{name}` = `{value}`: ")), "{error}");
        }
    }

    #[test]
    fn json_sets_what_text_sets_and_separates_names_that_text_cannot() {
        let pairs = [
            ("threads", json!(2), "2"),
            ("gpu", json!(false), "0"),
            ("devices", json!(["cpu0", "gpu0"]), "cpu0,gpu0"),
            ("memory", json!({"cpu0": 1024, "gpu0": "1KiB"}), "gpu0=1KiB,cpu0=1024"),
            ("pin", json!([["b*", "cpu0"], ["a", "gpu0"]]), "b*=cpu0,a=gpu0"),
            ("pin", json!(["b*=cpu0", "a=gpu0"]), r#"[["b*", "cpu0"], ["a", "gpu0"]]"#),
            ("dims", json!({"batch": 4, "x[1]": 7}), "x[1]=7,batch=4"),
            ("limits", json!({"nodes": 5}), "nodes=5"),
            ("strategy", json!("mite"), "mite"),
            ("plans", json!(3), "3"),
        ];
        for (name, value, as_text) in pairs {
            let (mut by_json, mut by_text) = (SessionOptions::default(), SessionOptions::default());
            by_json.set_json(name, &value).expect(name);
            by_text.set(name, as_text).expect(name);
            assert_eq!(format!("{by_json:?}"), format!("{by_text:?}"), "{name}");
            assert_ne!(format!("{by_json:?}"), format!("{:?}", SessionOptions::default()), "{name}");
        }
        let mut options = SessionOptions::default();
        options.set_json("dims", &json!({"a,b=c": 4})).expect("a name with separators");
        options.set_json("devices", &json!(["cpu0,cpu1"])).expect("one name with a comma");
        assert_eq!((options.dims["a,b=c"], options.devices.only.len()), (4, 1));
        for (name, value) in [
            ("threads", json!(null)),
            ("threads", json!([2])),
            ("threads", json!(2.5)),
            ("gpu", json!("perhaps")),
            ("devices", json!(3)),
            ("devices", json!([["cpu0"]])),
            ("dims", json!({"a": []})),
            ("dims", json!({"a": -1})),
            ("pin", json!([["a", "b", "c"]])),
            ("emulate", json!({"cpu0": "fast"})),
        ] {
            let error = options.set_json(name, &value).expect_err(name).to_string();
            assert!(error.starts_with(&format!("option `{name}` = `")), "{error}");
        }
    }
}
