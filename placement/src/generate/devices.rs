//! Random platforms of CPUs and GPUs (Laich 2017, chapter 6).

use super::parameters::{self, Field, Parameter, SpellingError};
use super::{GenerateError, MAX_DEVICES, Random, check_count, check_parameter};
use crate::platform::{Device, DeviceKind, Platform};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parameters of a random platform.
///
/// As text it is the number of devices, and after commas the parameters that differ from the default:
///
/// ```
/// use anabranch_placement::generate::Devices;
///
/// let devices: Devices = "7,cpu-share=0.5,speed=10-20".parse()?;
/// assert_eq!(devices, Devices { count: 7, cpu_share: 0.5, speed: 10..=20, ..Devices::default() });
/// # Ok::<(), anabranch_placement::generate::SpellingError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Devices {
    /// Number of devices.
    pub count: u32,
    /// Probability of a CPU; the other devices are GPUs. If all of two or more devices would be of one kind, the last
    /// one gets the other kind.
    pub cpu_share: f64,
    /// Operations per time unit.
    pub speed: RangeInclusive<u64>,
    /// Bytes per time unit of each link, in both directions.
    pub rate: RangeInclusive<u64>,
    /// Product of memory in bytes and speed: faster devices have less memory.
    pub memory_times_speed: u64,
}

impl Default for Devices {
    /// Ten devices with the ranges of Laich 2017, section 6.2.
    fn default() -> Self {
        Devices { count: 10, cpu_share: 0.6, speed: 10..=100, rate: 10..=60, memory_times_speed: 10_000_000_000 }
    }
}

/// Parameters after the number of devices.
const PARAMETERS: [Parameter<Devices>; 4] = [
    Parameter {
        key: "cpu-share",
        about: "probability of a CPU; the others are GPUs",
        field: Field::Share(|devices| &mut devices.cpu_share),
    },
    Parameter { key: "speed", about: "operations per time unit", field: Field::Range(|devices| &mut devices.speed) },
    Parameter { key: "rate", about: "bytes per time unit of a link", field: Field::Range(|devices| &mut devices.rate) },
    Parameter {
        key: "memory-times-speed",
        about: "product of a device's memory in bytes and its speed",
        field: Field::Whole(|devices| &mut devices.memory_times_speed),
    },
];

impl FromStr for Devices {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        let (count, rest) = parameters::size(text)?;
        let mut devices = Devices { count, ..Devices::default() };
        if let Some(rest) = rest {
            parameters::read(&mut devices, rest, &PARAMETERS)?;
        }
        devices.validate()?;
        Ok(devices)
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, parameters::write(self, &Devices::default(), &PARAMETERS))
    }
}

impl Devices {
    /// Draws a platform without latencies. `O(count²)`.
    ///
    /// # Errors
    /// Returns an error for a parameter outside its range.
    pub fn generate(&self, seed: u64) -> Result<Platform, GenerateError> {
        self.validate()?;
        let count = self.count as usize;
        let devices = self.draw_devices(&mut Random::stream(seed, 1));
        let mut random = Random::stream(seed, 2);
        let mut rates = vec![0.0; count * count];
        for from in 0..count {
            for to in from + 1..count {
                let rate = random.between(&self.rate) as f64;
                (rates[from * count + to], rates[to * count + from]) = (rate, rate);
            }
        }
        Ok(Platform::new(devices, |from, to| (0.0, rates[from.index() * count + to.index()]))?)
    }

    fn validate(&self) -> Result<(), GenerateError> {
        check_parameter("cpu-share", self.cpu_share, 0.0..=1.0, "a probability")?;
        for (parameter, range) in [("speed", &self.speed), ("rate", &self.rate)] {
            let expected = "a range above 0 that is not empty";
            if *range.start() == 0 || range.is_empty() {
                return Err(GenerateError::Parameter { parameter, value: *range.start() as f64, expected });
            }
        }
        check_count("devices", self.count.into(), MAX_DEVICES)
    }

    fn draw_devices(&self, random: &mut Random) -> Vec<Device> {
        let mut kinds: Vec<DeviceKind> = (0..self.count)
            .map(|_| if random.chance(self.cpu_share) { DeviceKind::Cpu } else { DeviceKind::Gpu })
            .collect();
        let missing = [DeviceKind::Cpu, DeviceKind::Gpu].into_iter().find(|kind| !kinds.contains(kind));
        let both_wanted = self.count > 1 && self.cpu_share > 0.0 && self.cpu_share < 1.0;
        // Otherwise tasks of the missing kind would have no feasible device.
        if let (true, Some(missing), Some(last)) = (both_wanted, missing, kinds.last_mut()) {
            *last = missing;
        }
        let device = |(number, kind)| {
            let speed = random.between(&self.speed);
            Device::new(format!("device {number}"), kind)
                .with_speed(speed as f64)
                .with_memory(self.memory_times_speed / speed)
        };
        kinds.into_iter().enumerate().map(device).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::DeviceId;

    #[test]
    fn devices_have_the_ranges_and_links_are_symmetric() {
        let platform = Devices { count: 100, ..Devices::default() }.generate(5).unwrap();
        let cpus = platform.devices().iter().filter(|device| device.kind == DeviceKind::Cpu).count();
        assert!((45..=75).contains(&cpus), "{cpus}");
        for device in platform.devices() {
            assert!((10.0..=100.0).contains(&device.speed));
            assert_eq!(device.memory, Some(10_000_000_000 / device.speed as u64));
        }
        for (from, to) in [(0, 1), (3, 97), (50, 51)].map(|(from, to)| (DeviceId(from), DeviceId(to))) {
            assert!((10.0..=60.0).contains(&platform.rate(from, to)));
            assert_eq!(platform.rate(from, to), platform.rate(to, from));
        }
    }

    #[test]
    fn two_devices_are_of_two_kinds() {
        for seed in 0..20 {
            let platform = Devices { count: 2, ..Devices::default() }.generate(seed).unwrap();
            assert_ne!(platform.devices()[0].kind, platform.devices()[1].kind);
        }
        let cpus = Devices { count: 3, cpu_share: 1.0, ..Devices::default() }.generate(0).unwrap();
        assert!(cpus.devices().iter().all(|device| device.kind == DeviceKind::Cpu), "all CPUs on request");
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let base = Devices::default;
        let cases = [
            Devices { cpu_share: -0.1, ..base() },
            Devices { speed: 0..=1, ..base() },
            Devices { count: u32::MAX, ..base() },
        ];
        for parameters in cases {
            assert!(parameters.generate(0).is_err(), "{parameters:?}");
        }
        assert_eq!(Devices { count: 0, ..base() }.generate(0).unwrap().device_count(), 0);
    }
}
