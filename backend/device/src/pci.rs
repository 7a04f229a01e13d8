//! Location of a PCI device: its nearest NUMA node and processing units, from Linux's `/sys/bus/pci`.
//!
//! hwloc has these facts too, but its binding does not reach I/O objects.
#![forbid(unsafe_code)]
// A build without GPUs looks for none, and only names the type of their addresses.
#![cfg_attr(not(feature = "gpu"), allow(dead_code))]

use super::sysfs::{list, number, text};
use serde::{Serialize, Serializer};
use std::fmt;
use std::fs;
use std::path::Path;

/// Address of a PCI function: `0000:01:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// Reads `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let [domain, bus, device] = rest.split(':').collect::<Vec<&str>>()[..] else {
            return None;
        };
        let small = |digits| u8::from_str_radix(digits, 16).ok();
        Some(Self {
            domain: u32::from_str_radix(domain, 16).ok()?,
            bus: small(bus)?,
            device: small(device)?,
            function: small(function)?,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Surroundings of a PCI device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Locality {
    /// Nearest NUMA node, if the firmware names one.
    pub(super) numa: Option<u32>,
    /// Processing units near it.
    pub(super) pus: Vec<u32>,
}

/// Reads the surroundings of the device at `address` under `root` (`/`, except in tests); `None` if the device is not
/// listed.
pub(super) fn locality(root: &Path, address: PciAddress) -> Option<Locality> {
    let folder = root.join("sys/bus/pci/devices").join(address.to_string());
    if !folder.is_dir() {
        return None;
    }
    // The kernel writes -1 if the firmware names no node.
    let numa = number(&folder.join("numa_node"));
    Some(Locality { numa, pus: list(&folder.join("local_cpulist")).unwrap_or_default() })
}

/// A GPU that the bus lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BusGpu {
    pub(super) address: PciAddress,
    pub(super) vendor: u32,
    pub(super) device: u32,
}

/// GPUs of makers whose drivers support compute, by address. Display chips of servers and virtual machines are left
/// out.
pub(super) fn bus_gpus(root: &Path) -> Vec<BusGpu> {
    const MAKERS: [u32; 3] = [0x10de, 0x1002, 0x8086];
    let Ok(entries) = fs::read_dir(root.join("sys/bus/pci/devices")) else {
        return Vec::new();
    };
    let gpu = |entry: fs::DirEntry| {
        let hexadecimal =
            |name: &str| u32::from_str_radix(text(&entry.path().join(name))?.strip_prefix("0x")?, 16).ok();
        // The base class 03 covers display controllers, both VGA and 3D.
        let display = hexadecimal("class")? >> 16 == 0x03;
        let address = PciAddress::parse(entry.file_name().to_str()?)?;
        let found = BusGpu { address, vendor: hexadecimal("vendor")?, device: hexadecimal("device")? };
        (display && MAKERS.contains(&found.vendor)).then_some(found)
    };
    let mut gpus: Vec<BusGpu> = entries.flatten().filter_map(gpu).collect();
    gpus.sort_by_key(|gpu| gpu.address);
    gpus
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A root whose bus lists these devices, each an address with its files.
    pub(in super::super) fn bus(devices: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        for (address, files) in devices {
            let folder = root.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&folder).expect("the folder can be made");
            for (name, text) in *files {
                fs::write(folder.join(name), text).expect("the file can be written");
            }
        }
        root
    }

    fn address(text: &str) -> PciAddress {
        PciAddress::parse(text).expect("the test's address is well formed")
    }

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["0000:01:00.0", "0000:c1:1f.7", "10000:e1:00.0"] {
            assert_eq!(address(text).to_string(), text);
        }
        for text in ["", "01:00.0", "0000:01:00", "0000:100:00.0", "0:0:0:0.0", "g:0:0.0", "0000:01:00.0.0"] {
            assert_eq!(PciAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn surroundings_are_read_from_the_bus() {
        let root = bus(&[
            ("0000:41:00.0", &[("numa_node", "1\n"), ("local_cpulist", "8-15,24-31\n")]),
            ("0000:01:00.0", &[("numa_node", "-1\n"), ("local_cpulist", "0-1\n")]),
            ("0000:02:00.0", &[("numa_node", "?")]),
        ]);
        let of = |text| locality(root.path(), address(text));
        let pus: Vec<u32> = (8..16).chain(24..32).collect();
        assert_eq!(of("0000:41:00.0"), Some(Locality { numa: Some(1), pus }));
        assert_eq!(of("0000:01:00.0"), Some(Locality { numa: None, pus: vec![0, 1] }));
        assert_eq!(of("0000:02:00.0"), Some(Locality::default()));
        assert_eq!(of("0000:03:00.0"), None);
    }

    #[test]
    fn the_bus_lists_gpus_that_compute() {
        let nvidia: &[(&str, &str)] = &[("class", "0x030200\n"), ("vendor", "0x10de\n"), ("device", "0x2335\n")];
        let root = bus(&[
            ("0000:81:00.0", nvidia),
            ("0000:41:00.0", nvidia),
            ("0000:03:00.0", &[("class", "0x030000"), ("vendor", "0x1a03"), ("device", "0x2000")]),
            ("0000:04:00.0", &[("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1572")]),
            ("0000:05:00.0", &[("class", "display")]),
        ]);
        let gpu = |text| BusGpu { address: address(text), vendor: 0x10de, device: 0x2335 };
        assert_eq!(bus_gpus(root.path()), [gpu("0000:41:00.0"), gpu("0000:81:00.0")]);
        assert_eq!(bus_gpus(&root.path().join("absent")), []);
    }
}
