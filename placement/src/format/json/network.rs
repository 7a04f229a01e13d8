//! Networks of shared links in documents.

use super::check_rows;
use super::document::{LinkPart, NetworkPart};
use crate::format::Refusal;
use crate::network::{Network, NetworkLink};
use crate::platform::{Device, DeviceId, Platform};
use std::collections::BTreeMap;

/// Reads a platform with a network.
pub(super) fn read(devices: Vec<Device>, part: NetworkPart) -> Result<Platform, Refusal> {
    check_rows("platform.network.routes", &part.routes, devices.len(), devices.len())?;
    let places: BTreeMap<&str, u32> = part.links.iter().zip(0..).map(|(link, at)| (link.name.as_str(), at)).collect();
    let routes =
        part.routes.iter().enumerate().flat_map(|(from, row)| row.iter().enumerate().map(move |to| (from, to)));
    for (from, (to, route)) in routes.filter(|(from, (to, _))| from != to) {
        if let Some(name) = route.iter().find(|name| !places.contains_key(name.as_str())) {
            let place = format!("platform.network.routes[{from}][{to}]");
            return Err(Refusal::Unknown { place, what: "link", name: name.clone() });
        }
    }
    let route = |from: DeviceId, to: DeviceId| {
        part.routes[from.index()][to.index()].iter().filter_map(|name| places.get(name.as_str()).copied()).collect()
    };
    let link = |link: &LinkPart| NetworkLink {
        name: link.name.clone(),
        latency: link.latency,
        rate: link.rate.unwrap_or(f64::INFINITY),
    };
    let network = Network::new(&devices, part.links.iter().map(link).collect(), route)?;
    Ok(Platform::networked(devices, network)?)
}

/// Returns the network of a platform as a part of a document.
pub(super) fn part(platform: &Platform, network: &Network) -> NetworkPart {
    let link = |link: &NetworkLink| LinkPart {
        name: link.name.clone(),
        latency: link.latency,
        rate: Some(link.rate).filter(|rate| rate.is_finite()),
    };
    let name = |link: &u32| network.links()[*link as usize].name.clone();
    let row = |from| platform.device_ids().map(|to| network.route(from, to).iter().map(name).collect()).collect();
    NetworkPart { links: network.links().iter().map(link).collect(), routes: platform.device_ids().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use crate::format::{Loaded, parse};
    use crate::platform::DeviceId;

    const PLATFORM: &str = r#"{"format": "anabranch-problem", "version": 1, "platform": {
        "devices": [{"name": "a", "kind": "cpu"}, {"name": "b", "kind": "gpu"}, {"name": "c", "kind": "gpu"}],
        "network": {"links": [{"name": "switch", "latency": 1, "rate": 10}, {"name": "peer"}],
            "routes": [[[], ["switch"], ["switch"]], [["switch"], [], ["peer"]], [["switch"], ["peer"], []]]}}}"#;

    #[test]
    fn routes_are_read_by_names_of_links() {
        let Loaded::Platform(platform) = parse("file", PLATFORM.as_bytes()).unwrap() else { panic!() };
        let time = |from, to| platform.transfer_time(20, DeviceId(from), DeviceId(to));
        assert_eq!([time(0, 1), time(1, 2)], [3.0, 0.0]);
        assert_eq!(platform.network().unwrap().route(DeviceId(2), DeviceId(0)), [0]);
        let itself = PLATFORM.replacen("[[], [\"switch\"]", "[[\"hub\"], [\"switch\"]", 1);
        assert!(parse("file", itself.as_bytes()).is_ok(), "the diagonal is ignored");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            (
                "[[], [\"switch\"], [\"switch\"]]",
                "[[], [\"hub\"], [\"switch\"]]",
                "routes[0][1] names the link \"hub\"",
            ),
            ("[[], [\"switch\"], [\"switch\"]]", "[[], [\"switch\"]]", "routes[0] has 2 entries"),
            ("[[], [\"switch\"], [\"switch\"]]", "[[], [], [\"switch\"]]", "route from \"a\" to \"b\""),
            ("{\"name\": \"peer\"}", "{\"name\": \"peer\"}, {\"name\": \"peer\"}", "have the name \"peer\""),
            ("\"rate\": 10", "\"rate\": 0", "rate 0"),
            ("\"network\"", "\"latency\": [], \"network\"", "latency or rate"),
            ("\"rate\": 10", "\"bandwidth\": 10", "unknown field `bandwidth`"),
        ];
        for (from, to, expected) in cases {
            assert!(PLATFORM.contains(from), "{from}");
            let error = parse("file", PLATFORM.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
