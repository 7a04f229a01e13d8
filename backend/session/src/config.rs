//! The configuration of a session: the options that the command, Python, C, the execution provider, compiled models and
//! files set, each of them optional.

mod build;
mod resolved;
mod value;

pub use resolved::ResolvedConfig;

use super::loss::OnDeviceLoss;
use anabranch_costs::CostStore;
use anabranch_device::{CpuGranularity, DetectOptions, GpuBackend};
use anabranch_kernels::op::Precision;
use anabranch_onnx::import::Limits;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::{ChunkRule, PlanOptions, Residency, StreamMode};
use anabranch_planning::{Constraints, Order, PlatformFile, Split, Strategy};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Defines the configuration, its merge, its reader by names, and the list of names, each from the same lines.
macro_rules! config {
    (
        options { $($(#[$option_attribute:meta])* $option:ident: $type:ty = $read:path, $help:literal;)* }
        others { $($(#[$attribute:meta])* $other:ident: $other_type:ty = $other_read:path;)* }
    ) => {
        /// Configuration of a [`Session`](super::Session). Every option may be left out.
        ///
        /// A [compiled](crate::compiled) model and JSON hold configurations, too. [`Self::or`] merges two of them, and
        /// [`Self::resolve`] gives every option that is still left out its default. What is serialized is what compiled
        /// models store: all but `costs`, `platform` and `limits`.
        ///
        /// ```
        /// # mod anabranch { pub use anabranch_planning::Strategy; pub use anabranch_session::SessionConfig; }
        /// use anabranch::{SessionConfig, Strategy};
        /// let config = SessionConfig::default().with_strategy(Strategy::AUTO).with_dim("batch", 4);
        /// let file: SessionConfig = serde_json::from_str(r#"{"place": "mite", "memory": {"gpu0": "2GiB"}}"#)?;
        /// let options = config.or(file).resolve();
        /// assert!(options.strategy == Strategy::AUTO && options.devices.memory_overrides.len() == 1);
        /// # Ok::<(), serde_json::Error>(())
        /// ```
        #[derive(Clone, Debug, Default, Serialize)]
        #[non_exhaustive]
        #[allow(rustdoc::broken_intra_doc_links, reason = "help texts are for terminals, where `x[1]` is no link")]
        pub struct SessionConfig {
            $(
                #[doc = concat!("Option `", stringify!($option), "`: ", $help, ".")]
                #[serde(skip_serializing_if = "Option::is_none")]
                $(#[$option_attribute])*
                pub $option: Option<$type>,
            )*
            $(
                #[serde(skip_serializing_if = "Option::is_none")]
                $(#[$attribute])*
                pub $other: Option<$other_type>,
            )*
        }

        /// The options that [`SessionConfig::set`] knows, and their values. The options of the command's `run`, of
        /// Python, of C and of the execution provider for ONNX Runtime have these names.
        pub const SETTINGS: &[(&str, &str)] = &[$((stringify!($option), $help)),*];

        impl SessionConfig {
            /// Returns this configuration, with `base`'s value for each option that is left out.
            #[must_use]
            pub fn or(self, base: Self) -> Self {
                Self { $($option: self.$option.or(base.$option),)* $($other: self.$other.or(base.$other)),* }
            }

            /// Sets the option of this name to the value that `value` describes.
            fn read(&mut self, name: &str, value: &Value) -> Result<(), String> {
                match name {
                    $(stringify!($option) => self.$option = Some($read(value)?),)*
                    _ => return Err("there is no such option".into()),
                }
                Ok(())
            }

            /// Sets what only compiled models store besides the options; returns whether `name` is that.
            fn read_other(&mut self, name: &str, value: &Value) -> Result<bool, String> {
                match name {
                    $(stringify!($other) => self.$other = Some($other_read(value)?),)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

config! {
    options {
        devices: Vec<String> = value::list, "names of the devices to use, such as cpu0,gpu0; else all devices";
        gpu: bool = value::truth, "0: no GPU is looked for, and no graphics driver is loaded";
        cpu_devices: CpuGranularity = value::parsed, "cores that make one CPU device: machine, package, numa, l3 or core";
        threads: NonZeroUsize = value::parsed, "threads of each CPU device";
        software_gpu: bool = value::truth, "1: a software adapter counts as a GPU";
        gpu_backend: GpuBackend = value::parsed, "graphics interface through which GPUs are found: vulkan, metal, dx12 or gl; else all of the system except gl";
        memory: BTreeMap<String, u64> = value::memory, "bytes that devices may fill, such as gpu0=2GiB,cpu0=512MiB";
        emulate: BTreeMap<String, f64> = value::parsed_map, "factors by which CPU devices are slowed down, such as cpu1=4";
        #[serde(serialize_with = "as_text")]
        place: Strategy = value::parsed, "strategy that places the nodes (heft, auto, mite, cp, …), a device, or a plan file that ends in .json";
        order: Order = value::parsed, "order of ready nodes: pct, msr, fifo or frugal";
        stream: StreamMode = value::stream, "off, auto or always";
        chunk: ChunkRule = value::chunk, "size of a streamed chunk, such as 256KiB or 7rows";
        weights: Residency = value::weights, "weights that stay on GPUs: resident, staged or auto";
        pinned: bool = value::truth, "0: all values between CPUs and GPUs go through staging buffers";
        pin: Vec<(String, String)> = value::pins, "devices by patterns of nodes' names, such as *conv*=gpu0; the first pattern that matches counts";
        split: Split = value::parsed, "rows of a batch divided among devices, such as batch=auto or batch=gpu0:28,cpu0:4";
        colocate: Vec<String> = value::list, "patterns of nodes' names; all nodes that match one pattern share a device";
        #[serde(serialize_with = "rewrite_names")]
        fuse: Rewrites = value::rewrites, "0: every operator is a node of its own";
        precision: Precision = value::parsed, "arithmetic of matrix products on GPUs with matrix units: f32, f16x3 or f16; else f32";
        #[serde(skip)]
        costs: CostStore = value::costs, "file of the cost store to predict with";
        calibrate: bool = value::truth, "1: devices of unknown speed are measured first, about a second each";
        #[serde(skip)]
        platform: PlatformFile = value::platform, "platform file: plans are for its devices, and runs use the present devices";
        on_device_loss: OnDeviceLoss = value::on_device_loss, "behaviour of a run that loses a GPU: fail or replace";
        plan_capacity: NonZeroUsize = value::parsed, "number of sets of input shapes whose plans are kept ready";
        dims: BTreeMap<String, usize> = value::parsed_map, "sizes of dimensions that no input binds, by symbol or by input and axis, such as batch=4,x[1]=128";
        cached: usize = value::parsed, "positions that costs take caches of keys and values to hold; else their capacity";
        #[serde(skip)]
        limits: Limits = value::limits, "limits on what a model may ask for, such as nodes=2000000,tensor_bytes=128GiB; other limits keep their defaults";
    }
    others {
        /// Inputs and outputs that stay on a device from run to run, by name, see [`Self::with_resident`].
        resident: Vec<(String, String)> = value::pins;
        /// Least number of chunks of one stream in flight, at least 2.
        chunks_in_flight: u32 = value::parsed;
    }
}

/// Former names of options, and today's.
const FORMER: [(&str, &str); 2] = [("strategy", "place"), ("plans", "plan_capacity")];

/// Error of an unknown option, or of an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option `{name}` = `{value}`: {why}")]
pub struct SettingError {
    name: String,
    value: String,
    why: String,
}

impl SessionConfig {
    /// Sets the option of this name, one of [`SETTINGS`].
    ///
    /// Lists are separated by commas. Lists and maps may also be JSON, which allows names with commas. A later value
    /// replaces an earlier one.
    ///
    /// ```
    /// # mod anabranch { pub use anabranch_planning::Strategy; pub use anabranch_session::SessionConfig; }
    /// use anabranch::{SessionConfig, Strategy};
    /// let mut config = SessionConfig::default();
    /// config.set("place", "auto")?;
    /// config.set("dims", "batch=4")?;
    /// config.set("pin", r#"[["*conv*", "cpu0"]]"#)?;
    /// assert!(config.place == Some(Strategy::AUTO) && config.dims.is_some());
    /// assert!(config.set("speed", "11").is_err());
    /// # Ok::<(), anabranch_session::SettingError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such option, or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        self.set_json(name, &Value::from(value))
    }

    /// Sets the option of this name to a JSON value: the text that [`Self::set`] reads, a number, a bool, a list, or an
    /// object for a map. A map may also be a list of pairs, which has an order.
    ///
    /// # Errors
    /// If there is no such option, or the value is invalid.
    pub fn set_json(&mut self, name: &str, value: &Value) -> Result<(), SettingError> {
        let today = FORMER.iter().find(|(former, _)| *former == name).map_or(name, |(_, today)| today);
        let shown = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.read(today, value).map_err(|why| SettingError { name: name.to_owned(), value: shown(), why })
    }

    /// Reads what a compiled model stores: options, and what else its plan depends on.
    pub(crate) fn from_stored(stored: &Map<String, Value>) -> Result<Self, String> {
        let mut config = Self::default();
        for (name, value) in stored {
            if !config.read_other(name, value)? {
                config.read(name, value)?;
            }
        }
        Ok(config)
    }

    /// Returns the options of a session, with the defaults of those that are left out.
    pub fn resolve(self) -> ResolvedConfig {
        let (usual, plan) = (DetectOptions::default(), PlanOptions::default());
        let mut constraints = Constraints::default();
        for (pattern, device) in self.pin.unwrap_or_default() {
            constraints = constraints.with_pin(pattern, device);
        }
        for (name, device) in self.resident.unwrap_or_default() {
            constraints = constraints.with_resident(name, device);
        }
        constraints.colocated = self.colocate.unwrap_or_default();
        let usual_strategy = if self.split.is_some() { Strategy::Split } else { Strategy::default() };
        constraints.split = self.split;
        ResolvedConfig {
            devices: DetectOptions {
                cpu_granularity: self.cpu_devices.unwrap_or(usual.cpu_granularity),
                threads: self.threads,
                no_gpu: self.gpu.map_or(usual.no_gpu, |wanted| !wanted),
                software_gpu: self.software_gpu.unwrap_or(usual.software_gpu),
                gpu_backend: self.gpu_backend,
                memory_overrides: self.memory.into_iter().flatten().collect(),
                slowdowns: self.emulate.into_iter().flatten().collect(),
                // A set of devices has no order: each order gives the same plans and the same files of a cache.
                only: self.devices.into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect(),
            },
            strategy: self.place.unwrap_or(usual_strategy),
            order: self.order.unwrap_or_default(),
            constraints,
            dims: self.dims.unwrap_or_default(),
            cached: self.cached,
            fuse: self.fuse.unwrap_or_default(),
            precision: self.precision.unwrap_or_default(),
            plan: PlanOptions {
                streaming: self.stream.unwrap_or(plan.streaming),
                chunk: self.chunk.unwrap_or(plan.chunk),
                capacity: self.chunks_in_flight.unwrap_or(plan.capacity),
                weights: self.weights.unwrap_or(plan.weights),
            },
            pinned: self.pinned.unwrap_or(true),
            costs: self.costs.unwrap_or_default(),
            platform: self.platform,
            plan_capacity: self.plan_capacity.map_or(8, NonZeroUsize::get),
            calibrate: self.calibrate.unwrap_or(false),
            limits: self.limits.unwrap_or_default(),
            on_device_loss: self.on_device_loss.unwrap_or_default(),
        }
    }
}

/// Reads an object of options, as [`SessionConfig::set_json`] does for each.
impl<'de> Deserialize<'de> for SessionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Self::default();
        for (name, value) in &Map::deserialize(deserializer)? {
            config.set_json(name, value).map_err(D::Error::custom)?;
        }
        Ok(config)
    }
}

fn as_text<S: Serializer>(strategy: &Option<Strategy>, serializer: S) -> Result<S::Ok, S::Error> {
    strategy.as_ref().map(Strategy::to_string).serialize(serializer)
}

fn rewrite_names<S: Serializer>(rewrites: &Option<Rewrites>, serializer: S) -> Result<S::Ok, S::Error> {
    rewrites.map(|all| all.iter().map(|rewrite| rewrite.to_string()).collect::<Vec<_>>()).serialize(serializer)
}

#[cfg(test)]
mod tests;
