//! Options as text, for callers in other languages: a name and a value.

use super::loss::OnDeviceLoss;
use super::options::SessionOptions;
use anabranch_costs::CostStore;
use anabranch_device::parse_memory_override;
use anabranch_plan::{Residency, StreamMode};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// The options that [`SessionOptions::set`] knows, and what their values are.
pub const SETTINGS: [(&str, &str); 17] = [
    ("devices", "names of the devices to use, such as cpu0,gpu0; else all that are there"),
    ("gpu", "0: no GPU is looked for, and no graphics driver loaded"),
    ("cpu_devices", "cores that make one CPU device: machine, package, numa, l3 or core"),
    ("threads", "threads of each CPU device"),
    ("software_gpu", "1: a software adapter counts as a GPU"),
    ("memory", "what devices may fill, such as gpu0=2GiB,cpu0=512MiB"),
    ("strategy", "who places the nodes: heft, auto, mite, cp, …, a device's name, or a plan file that ends in .json"),
    ("order", "which ready node goes first: pct, msr, fifo or frugal"),
    ("stream", "off, auto or always"),
    ("weights", "which weights stay on GPUs: resident, staged or auto"),
    ("costs", "a cost store to predict with"),
    ("calibrate", "1: devices of unknown speed are measured first, about a second each"),
    ("on_device_loss", "what a run does that loses a GPU: fail or replace"),
    ("plan_capacity", "for how many sets of input shapes plans are kept ready"),
    ("dims", "sizes of dimensions that no input tells, by symbol or input and axis, such as batch=4,x[1]=128"),
    ("cached", "positions that costs take caches of keys and values to hold; else their capacity"),
    ("limits", "how much a model may ask for, such as nodes=2000000,tensor_bytes=128GiB"),
];

/// Error of an unknown option, or of an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option `{name}` = `{value}`: {why}")]
pub struct SettingError {
    name: String,
    value: String,
    why: String,
}

impl SessionOptions {
    /// Sets the option of this name, one of [`SETTINGS`]; lists are separated by commas.
    ///
    /// ```
    /// # mod anabranch { pub use anabranch_planning::Strategy; pub use anabranch_session::SessionOptions; }
    /// use anabranch::{SessionOptions, Strategy};
    /// let mut options = SessionOptions::default();
    /// options.set("strategy", "auto")?;
    /// options.set("dims", "batch=4")?;
    /// assert!(options.strategy == Strategy::AUTO && options.dims["batch"] == 4);
    /// assert!(options.set("speed", "11").is_err());
    /// # Ok::<(), anabranch_session::SettingError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such option, or it has no such value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let wrong = |why| SettingError { name: name.to_owned(), value: value.to_owned(), why };
        self.apply(name, value).map_err(wrong)?;
        self.stated.extend(SETTINGS.iter().map(|(known, _)| *known).find(|known| *known == name));
        Ok(())
    }

    fn apply(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "devices" => self.devices.only = list(value).map(str::to_owned).collect(),
            "gpu" => self.devices.no_gpu = !truth(value)?,
            "cpu_devices" => self.devices.cpu_granularity = parsed(value)?,
            "threads" => self.devices.threads = Some(parsed(value)?),
            "software_gpu" => self.devices.software_gpu = truth(value)?,
            "memory" => {
                let limits: Result<Vec<_>, _> = list(value).map(parse_memory_override).collect();
                self.devices.memory_overrides = named_once(limits.map_err(told)?)?.into_iter().collect();
            }
            "strategy" => self.strategy = parsed(value)?,
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
            "costs" => self.costs = CostStore::load(value.as_ref()).map_err(told)?.store,
            "calibrate" => self.calibrate = truth(value)?,
            "on_device_loss" => {
                let (fail, replace) = (("fail", OnDeviceLoss::Fail), ("replace", OnDeviceLoss::Replace));
                self.on_device_loss = one_of(value, [fail, replace])?;
            }
            "plan_capacity" => self.plan_capacity = parsed::<NonZeroUsize>(value)?.get(),
            "dims" => self.dims = named_once(list(value).map(dimension).collect::<Result<_, _>>()?)?,
            "cached" => self.cached = Some(parsed(value)?),
            "limits" => {
                let limits = named_once(list(value).map(named).collect::<Result<_, _>>()?)?;
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

fn parsed<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(told)
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "1" | "true" | "True" => Ok(true),
        "0" | "false" | "False" => Ok(false),
        _ => Err("write 1 or 0".into()),
    }
}

/// Returns the value of this name among the known values.
fn one_of<T, const N: usize>(value: &str, known: [(&str, T); N]) -> Result<T, String> {
    let names = known.each_ref().map(|(name, _)| *name).join(", ");
    let found = known.into_iter().find(|(name, _)| *name == value);
    found.map(|(_, meant)| meant).ok_or_else(|| format!("write one of {names}"))
}

fn dimension(entry: &str) -> Result<(String, usize), String> {
    let (name, size) = named(entry)?;
    Ok((name, parsed(&size)?))
}

fn named(entry: &str) -> Result<(String, String), String> {
    let (name, value) = entry.rsplit_once('=').ok_or("write NAME=SIZE")?;
    Ok((name.to_owned(), value.to_owned()))
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

    #[test]
    fn all_settings_are_known_and_wrong_ones_refused_in_words() {
        let given = [
            ("devices", "cpu0, gpu0"),
            ("gpu", "0"),
            ("cpu_devices", "core"),
            ("threads", "2"),
            ("software_gpu", "1"),
            ("memory", "cpu0=1GiB"),
            ("strategy", "auto"),
            ("order", "msr"),
            ("stream", "off"),
            ("weights", "staged"),
            ("costs", "/nowhere/costs.json"),
            ("calibrate", "0"),
            ("on_device_loss", "replace"),
            ("plan_capacity", "3"),
            ("dims", "batch=4, x[1]=7"),
            ("cached", "300"),
            ("limits", "nodes=5, tensor_bytes=1KiB"),
        ];
        assert!(given.iter().map(|(name, _)| *name).eq(SETTINGS.iter().map(|(name, _)| *name)));
        let mut options = SessionOptions::default();
        given.iter().for_each(|(name, value)| options.set(name, value).expect(name));
        assert_eq!(options.devices.only, ["cpu0", "gpu0"]);
        assert_eq!(options.devices.memory_overrides, [("cpu0".to_owned(), 1 << 30)]);
        assert_eq!((options.plan.streaming, options.plan_capacity), (StreamMode::Off, 3));
        assert_eq!((options.dims["batch"], options.dims["x[1]"]), (4, 7));
        assert_eq!((options.limits.nodes, options.limits.tensor_bytes, options.cached), (5, 1024, Some(300)));
        assert!(options.devices.no_gpu && options.strategy == Strategy::AUTO);
        let wrong = [
            ("place", "heft"),
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
}
