//! Networks: named links, and the route of links between each two devices.
//!
//! A transfer from one device to another uses all links of its route at the same time, as if they were one circuit. Its
//! time without contention is the sum of their latencies, plus its bytes over the least of their rates. Under
//! contention ([`LinkContention::Serial`](crate::rules::LinkContention::Serial)), a link carries one transfer at a
//! time, in either direction:
//!
//! 1. A transfer that is ready waits until all links of its route are free.
//! 2. It then occupies all of them until it has arrived, or shorter by the time in
//!    [`Delays`](crate::rules::Delays).
//! 3. If links become free, the waiting transfers are examined in this order: the earliest ready first, then the
//!    greatest priority, then the smallest datum and receiver. Each one whose links are all free starts. So a transfer
//!    may overtake an earlier one that waits for another link.
//!
//! Links without a direction are shared by both directions. Two links, one per direction, model full duplex. Placement
//! strategies count times without contention.

use crate::platform::{Device, DeviceId, Platform, PlatformError};
use std::collections::BTreeSet;

/// Link that several routes may share.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkLink {
    /// Name of the link.
    pub name: String,
    /// Time before the first byte moves.
    pub latency: f64,
    /// Bytes per time unit; may be infinite.
    pub rate: f64,
}

/// Links, and a route of links for each ordered pair of different devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    links: Vec<NetworkLink>,
    devices: usize,
    /// Positions of links by sender, then receiver; empty on the diagonal.
    routes: Vec<Vec<u32>>,
}

impl Network {
    /// Builds the network of `devices` devices. `route(from, to)` returns positions in `links`, and is called for pairs
    /// of different devices only. `O(devices² × length of routes)`.
    ///
    /// # Errors
    /// Returns an error for two links of one name, and for a route that is empty, or has an unknown link or one twice.
    pub fn new(
        devices: &[Device],
        links: Vec<NetworkLink>,
        mut route: impl FnMut(DeviceId, DeviceId) -> Vec<u32>,
    ) -> Result<Self, PlatformError> {
        let mut names = BTreeSet::new();
        if let Some(link) = links.iter().find(|link| !names.insert(&link.name)) {
            return Err(PlatformError::SameLink(link.name.clone()));
        }
        let mut routes = Vec::with_capacity(devices.len() * devices.len());
        for (from, sender) in devices.iter().enumerate() {
            for (to, receiver) in devices.iter().enumerate() {
                let links_of = if from == to { Vec::new() } else { route(DeviceId(from as u32), DeviceId(to as u32)) };
                let distinct: BTreeSet<u32> = links_of.iter().copied().collect();
                let known = links_of.iter().all(|link| (*link as usize) < links.len());
                if !known || distinct.len() < links_of.len() || links_of.is_empty() && from != to {
                    return Err(PlatformError::Route { from: sender.name.clone(), to: receiver.name.clone() });
                }
                routes.push(links_of);
            }
        }
        Ok(Network { links, devices: devices.len(), routes })
    }

    /// Returns all links.
    pub fn links(&self) -> &[NetworkLink] {
        &self.links
    }

    /// Returns the positions of the links between two devices; none from a device to itself.
    pub fn route(&self, from: DeviceId, to: DeviceId) -> &[u32] {
        &self.routes[from.index() * self.devices + to.index()]
    }

    /// Returns the latency and the rate of a route without contention.
    fn alone(&self, from: DeviceId, to: DeviceId) -> (f64, f64) {
        let links = || self.route(from, to).iter().map(|&link| &self.links[link as usize]);
        (links().map(|link| link.latency).sum(), links().map(|link| link.rate).fold(f64::INFINITY, least))
    }
}

/// Returns the lesser number; NaN if any is not a number, so that it is refused later.
fn least(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() { f64::NAN } else { one.min(other) }
}

impl Platform {
    /// Builds a platform whose devices are connected by a network.
    ///
    /// # Errors
    /// As [`Platform::new`]; also for a network of another number of devices.
    pub fn networked(devices: Vec<Device>, network: Network) -> Result<Self, PlatformError> {
        if network.devices != devices.len() {
            return Err(PlatformError::NetworkSize { network: network.devices, devices: devices.len() });
        }
        let platform = Platform::new(devices, |from, to| network.alone(from, to))?;
        Ok(platform.with_network(network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::DeviceKind;

    fn devices(count: usize) -> Vec<Device> {
        (0..count).map(|number| Device::new(format!("d{number}"), DeviceKind::Cpu)).collect()
    }

    fn link(name: &str, latency: f64, rate: f64) -> NetworkLink {
        NetworkLink { name: name.into(), latency, rate }
    }

    /// Devices on two switches: times are sums of latencies and least rates.
    #[test]
    fn a_route_has_the_latency_of_all_links_and_the_rate_of_the_slowest() {
        let links = vec![link("a", 1.0, 10.0), link("b", 2.0, 20.0), link("trunk", 4.0, 5.0)];
        let route = |from: DeviceId, to: DeviceId| if from.0 + to.0 == 1 { vec![0, 1] } else { vec![0, 2, 1] };
        let network = Network::new(&devices(3), links, route).unwrap();
        let platform = Platform::networked(devices(3), network).unwrap();
        let time = |from, to| platform.transfer_time(100, DeviceId(from), DeviceId(to));
        assert_eq!([time(0, 1), time(0, 2), time(2, 0), time(1, 1)], [13.0, 27.0, 27.0, 0.0]);
        assert_eq!(platform.network().unwrap().route(DeviceId(2), DeviceId(1)), [0, 2, 1]);
    }

    #[test]
    fn impossible_networks_are_refused() {
        let two = || vec![link("a", 0.0, 1.0), link("b", 0.0, 1.0)];
        for route in [vec![], vec![2], vec![0, 1, 0]] {
            let refused = Network::new(&devices(2), two(), |_, _| route.clone());
            assert!(matches!(refused, Err(PlatformError::Route { .. })), "{route:?}");
        }
        let same = Network::new(&devices(2), vec![link("a", 0.0, 1.0), link("a", 0.0, 1.0)], |_, _| vec![0]);
        assert_eq!(same, Err(PlatformError::SameLink("a".into())));
        let network = Network::new(&devices(2), two(), |_, _| vec![0]).unwrap();
        assert!(matches!(Platform::networked(devices(3), network), Err(PlatformError::NetworkSize { .. })));
        for (latency, rate) in [(-1.0, 1.0), (0.0, 0.0), (f64::NAN, 1.0), (0.0, f64::NAN)] {
            let network = Network::new(&devices(2), vec![link("a", latency, rate)], |_, _| vec![0]).unwrap();
            assert!(Platform::networked(devices(2), network).is_err(), "{latency} {rate}");
        }
    }
}
