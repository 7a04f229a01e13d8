//! Machine that a graph is placed on: devices with a kind, a memory and a speed, and a link between any two of them.

use crate::ids::id;
use crate::network::Network;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Position of a device in its platform, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceId(pub u32);

id!(DeviceId, "device");

/// Kind of hardware of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// Cores of a processor.
    Cpu,
    /// A graphics processor.
    Gpu,
    /// A tensor processor.
    Tpu,
    /// Any other accelerator.
    Other,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Gpu => "GPU",
            DeviceKind::Tpu => "TPU",
            DeviceKind::Other => "other",
        })
    }
}

/// Set of device kinds on which a task may run (default: all). In JSON it is a list of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "Vec<DeviceKind>", into = "Vec<DeviceKind>")]
pub struct DeviceKinds(u8);

impl Default for DeviceKinds {
    fn default() -> Self {
        DeviceKinds::ALL
    }
}

impl DeviceKinds {
    /// The empty set.
    pub const NONE: DeviceKinds = DeviceKinds(0);
    /// Processors only.
    pub const CPU: DeviceKinds = DeviceKinds(1);
    /// Graphics processors only.
    pub const GPU: DeviceKinds = DeviceKinds(2);
    /// Tensor processors only.
    pub const TPU: DeviceKinds = DeviceKinds(4);
    /// Other accelerators only.
    pub const OTHER: DeviceKinds = DeviceKinds(8);
    /// Every kind.
    pub const ALL: DeviceKinds = DeviceKinds(15);

    /// Returns the kinds in either set.
    pub const fn union(self, other: DeviceKinds) -> DeviceKinds {
        DeviceKinds(self.0 | other.0)
    }

    /// Returns the kinds in both sets.
    pub const fn intersection(self, other: DeviceKinds) -> DeviceKinds {
        DeviceKinds(self.0 & other.0)
    }

    /// Whether the set holds `kind`.
    pub fn contains(self, kind: DeviceKind) -> bool {
        self.0 & DeviceKinds::from(kind).0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<DeviceKind> for DeviceKinds {
    fn from(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Cpu => DeviceKinds::CPU,
            DeviceKind::Gpu => DeviceKinds::GPU,
            DeviceKind::Tpu => DeviceKinds::TPU,
            DeviceKind::Other => DeviceKinds::OTHER,
        }
    }
}

impl From<Vec<DeviceKind>> for DeviceKinds {
    fn from(kinds: Vec<DeviceKind>) -> Self {
        kinds.into_iter().fold(DeviceKinds::NONE, |all, kind| all.union(kind.into()))
    }
}

impl From<DeviceKinds> for Vec<DeviceKind> {
    fn from(kinds: DeviceKinds) -> Self {
        let all = [DeviceKind::Cpu, DeviceKind::Gpu, DeviceKind::Tpu, DeviceKind::Other];
        all.into_iter().filter(|&kind| kinds.contains(kind)).collect()
    }
}

impl fmt::Display for DeviceKinds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = Vec::from(*self).iter().map(DeviceKind::to_string).collect();
        if names.is_empty() { formatter.write_str("no kind") } else { formatter.write_str(&names.join("|")) }
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Capacity in bytes (default: no limit).
    #[serde(default)]
    pub memory: Option<u64>,
    /// Operations per time unit, greater than zero (default: 1). Only times that are operations over speed need it.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub speed: f64,
}

fn one() -> f64 {
    1.0
}

impl Device {
    /// Creates a device of speed 1 without a memory limit.
    pub fn new(name: impl Into<String>, kind: DeviceKind) -> Self {
        Device { name: name.into(), kind, memory: None, speed: 1.0 }
    }

    /// Sets the memory in bytes (default: no limit).
    pub fn with_memory(self, bytes: u64) -> Self {
        Device { memory: Some(bytes), ..self }
    }

    /// Sets the speed in operations per time unit (default: 1).
    pub fn with_speed(self, speed: f64) -> Self {
        Device { speed, ..self }
    }
}

/// Reason why a platform is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum PlatformError {
    /// A speed that is not a positive finite number.
    #[error("device {device:?} has speed {speed}; a speed is a finite number greater than zero")]
    Speed { device: String, speed: f64 },
    /// A latency that is negative or not finite.
    #[error("the link from {from:?} to {to:?} has latency {latency}; a latency is finite and not negative")]
    Latency { from: String, to: String, latency: f64 },
    /// A rate that is zero, negative or not a number.
    #[error("the link from {from:?} to {to:?} has rate {rate}; a rate is greater than zero")]
    Rate { from: String, to: String, rate: f64 },
    /// Two links of a network have one name.
    #[error("two links have the name {0:?}; give each link a name of its own")]
    SameLink(String),
    /// A route that is empty, or has a link twice or one that does not exist.
    #[error("the route from {from:?} to {to:?} must have at least one link, each known and only once")]
    Route { from: String, to: String },
    /// A network of another number of devices.
    #[error("the network connects {network} devices, but there are {devices}")]
    NetworkSize { network: usize, devices: usize },
    /// More devices than an id can number.
    #[error("{0} devices are too many; use at most 65536")]
    TooMany(usize),
}

/// Validated devices and links.
///
/// Links are two full matrices, so that the two directions may differ. On the diagonal the latency is 0 and the rate
/// infinite.
/// ```
/// use anabranch_placement::platform::{Device, DeviceId, DeviceKind, Platform};
///
/// let devices = vec![Device::new("cpu0", DeviceKind::Cpu), Device::new("gpu0", DeviceKind::Gpu).with_memory(8 << 30)];
/// // Seconds and bytes per second: to the GPU 12 GB/s, back 10 GB/s.
/// let rate = |to: DeviceId| if to.index() == 1 { 12e9 } else { 10e9 };
/// let platform = Platform::new(devices, |_, to| (20e-6, rate(to)))?;
/// assert_eq!(platform.device(DeviceId(1)).memory, Some(8 << 30));
/// # Ok::<(), anabranch_placement::platform::PlatformError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Platform {
    devices: Vec<Device>,
    latency: Vec<f64>,
    rate: Vec<f64>,
    /// Links that routes share, if the platform has them; shared, because platforms are cloned.
    network: Option<Arc<Network>>,
}

impl Platform {
    /// Most devices of a platform: its matrices hold the square of this number.
    pub const MAX_DEVICES: usize = 65_536;

    /// Builds a platform from its devices and a function for its links.
    ///
    /// `link(a, b)` returns the (latency, rate) of the link from `a` to `b`, in time units and bytes per time unit. It
    /// is called for pairs of different devices only. `O(devices²)`.
    ///
    /// # Errors
    /// Returns an error for a speed, latency or rate outside its range, or for too many devices.
    pub fn new(
        devices: Vec<Device>,
        mut link: impl FnMut(DeviceId, DeviceId) -> (f64, f64),
    ) -> Result<Self, PlatformError> {
        let count = devices.len();
        if count > Self::MAX_DEVICES {
            return Err(PlatformError::TooMany(count));
        }
        if let Some(device) = devices.iter().find(|device| !(device.speed > 0.0 && device.speed.is_finite())) {
            return Err(PlatformError::Speed { device: device.name.clone(), speed: device.speed });
        }
        let mut latency = vec![0.0; count * count];
        let mut rate = vec![f64::INFINITY; count * count];
        for (from, sender) in devices.iter().enumerate() {
            for (to, receiver) in devices.iter().enumerate().filter(|&(to, _)| to != from) {
                let (seconds, bytes_a_second) = link(DeviceId(from as u32), DeviceId(to as u32));
                validate_link(sender, receiver, seconds, bytes_a_second)?;
                latency[from * count + to] = seconds;
                rate[from * count + to] = bytes_a_second;
            }
        }
        Ok(Platform { devices, latency, rate, network: None })
    }

    /// Builds a platform whose links are all identical.
    ///
    /// # Errors
    /// As [`Platform::new`].
    pub fn uniform(devices: Vec<Device>, latency: f64, rate: f64) -> Result<Self, PlatformError> {
        Self::new(devices, |_, _| (latency, rate))
    }

    /// Sets the network, whose times without contention the links have already.
    pub(crate) fn with_network(self, network: Network) -> Self {
        Platform { network: Some(Arc::new(network)), ..self }
    }

    /// Returns the network that connects the devices, if routes share links.
    pub fn network(&self) -> Option<&Network> {
        self.network.as_deref()
    }

    /// Returns the number of devices.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Returns the ids of all devices, ascending.
    pub fn device_ids(&self) -> impl ExactSizeIterator<Item = DeviceId> + Clone + use<> {
        (0..self.devices.len() as u32).map(DeviceId)
    }

    /// Returns all devices, in id order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the device `id`, which must belong to this platform.
    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.index()]
    }

    /// Sets the memory of the device of this name, in bytes; `false` if there is none.
    pub fn limit(&mut self, name: &str, bytes: u64) -> bool {
        let found = self.devices.iter_mut().find(|device| device.name == name);
        found.map(|device| device.memory = Some(bytes)).is_some()
    }

    /// Whether `id` names a device of this platform.
    pub fn contains(&self, id: DeviceId) -> bool {
        id.index() < self.devices.len()
    }

    /// Returns the time that a transfer takes before its first byte moves.
    pub fn latency(&self, from: DeviceId, to: DeviceId) -> f64 {
        self.latency[from.index() * self.devices.len() + to.index()]
    }

    /// Returns the rate in bytes per time unit; infinite from a device to itself.
    pub fn rate(&self, from: DeviceId, to: DeviceId) -> f64 {
        self.rate[from.index() * self.devices.len() + to.index()]
    }

    /// Returns the latency plus `bytes` over the rate; 0 from a device to itself.
    pub fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        self.latency(from, to) + bytes as f64 / self.rate(from, to)
    }
}

fn validate_link(from: &Device, to: &Device, latency: f64, rate: f64) -> Result<(), PlatformError> {
    if !(latency >= 0.0 && latency.is_finite()) {
        return Err(PlatformError::Latency { from: from.name.clone(), to: to.name.clone(), latency });
    }
    if rate.is_nan() || rate <= 0.0 {
        return Err(PlatformError::Rate { from: from.name.clone(), to: to.name.clone(), rate });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(speed: f64) -> Vec<Device> {
        vec![Device::new("a", DeviceKind::Cpu), Device::new("b", DeviceKind::Gpu).with_speed(speed)]
    }

    #[test]
    fn links_have_two_directions_and_a_free_diagonal() {
        let platform = Platform::new(pair(2.0), |from, _| if from.0 == 0 { (1.0, 10.0) } else { (2.0, 5.0) }).unwrap();
        let (a, b) = (DeviceId(0), DeviceId(1));
        assert_eq!(platform.transfer_time(20, a, b), 3.0);
        assert_eq!(platform.transfer_time(20, b, a), 6.0);
        assert_eq!(platform.transfer_time(20, a, a), 0.0);
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                matches!(Platform::uniform(pair(speed), 0.0, 1.0), Err(PlatformError::Speed { device, .. }) if device == "b")
            );
        }
        for latency in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Platform::uniform(pair(1.0), latency, 1.0), Err(PlatformError::Latency { .. })));
        }
        for rate in [0.0, -1.0, f64::NAN] {
            assert!(matches!(Platform::uniform(pair(1.0), 0.0, rate), Err(PlatformError::Rate { .. })));
        }
    }

    #[test]
    fn kinds_are_sets() {
        let either = DeviceKinds::CPU.union(DeviceKinds::GPU);
        assert!(either.contains(DeviceKind::Cpu) && !either.contains(DeviceKind::Tpu));
        assert_eq!(either.intersection(DeviceKinds::GPU), DeviceKinds::GPU);
        assert!(DeviceKinds::CPU.intersection(DeviceKinds::TPU).is_empty());
        assert_eq!(either.to_string(), "CPU|GPU");
        assert_eq!(DeviceKinds::NONE.to_string(), "no kind");
    }
}
