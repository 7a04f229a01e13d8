//! Finds adapters that are one GPU seen through several drivers or backends.
#![forbid(unsafe_code)]

use super::pci::PciAddress;

/// Indices of `infos` without adapters that name an earlier GPU again through another driver or backend.
///
/// PCI addresses identify GPUs. If one of two adapters has no address, the n-th adapter of a model under one driver
/// counts as the n-th adapter of that model under another.
pub(super) fn unique(infos: &[wgpu::AdapterInfo], notes: &mut Vec<String>) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for (at, info) in infos.iter().enumerate() {
        match kept.iter().find(|&&other| same_gpu(infos, other, at)) {
            None => kept.push(at),
            Some(&other) => notes.push(format!(
                "{} is reported twice, by {} and by {}; the first is used",
                info.name,
                driven_by(&infos[other]),
                driven_by(info)
            )),
        }
    }
    kept
}

fn same_gpu(infos: &[wgpu::AdapterInfo], left: usize, right: usize) -> bool {
    let (a, b) = (&infos[left], &infos[right]);
    let pci = |info: &wgpu::AdapterInfo| PciAddress::parse(&info.device_pci_bus_id);
    match (pci(a), pci(b)) {
        // DX12's address is that of any card of the model, so that it does not distinguish two cards under DX12.
        (Some(x), Some(y)) => x == y && (a.backend, b.backend) != (wgpu::Backend::Dx12, wgpu::Backend::Dx12),
        _ => {
            let model = |info: &wgpu::AdapterInfo| (info.vendor, info.device);
            let route = |info: &wgpu::AdapterInfo| (info.backend, info.driver.clone());
            let ordinal = |at: usize| {
                let alike =
                    |info: &&wgpu::AdapterInfo| model(info) == model(&infos[at]) && route(info) == route(&infos[at]);
                infos[..at].iter().filter(alike).count()
            };
            model(a) == model(b) && route(a) != route(b) && ordinal(left) == ordinal(right)
        }
    }
}

fn driven_by(info: &wgpu::AdapterInfo) -> String {
    format!("{} ({})", info.driver, info.backend)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A discrete card whose model number is the length of its name.
    pub(in super::super) fn info(name: &str, backend: wgpu::Backend, driver: &str, pci: &str) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, backend);
        info.name = name.to_owned();
        info.vendor = 0x10de;
        info.device = name.len() as u32;
        info.driver = driver.to_owned();
        info.device_pci_bus_id = pci.to_owned();
        info
    }

    #[test]
    fn one_gpu_through_two_drivers_counts_once() {
        use wgpu::Backend::{Dx12, Vulkan};
        let (one, two) = ("0000:01:00.0", "0000:02:00.0");
        type Case = (&'static str, Vec<wgpu::AdapterInfo>, Vec<usize>);
        let table: Vec<Case> = vec![
            ("two cards", vec![info("A", Vulkan, "nv", one), info("A", Vulkan, "nv", two)], vec![0, 1]),
            ("two cards, no addresses", vec![info("A", Vulkan, "nv", ""), info("A", Vulkan, "nv", "")], vec![0, 1]),
            ("two drivers", vec![info("A", Vulkan, "radv", one), info("A (x)", Vulkan, "amdvlk", one)], vec![0]),
            (
                "the driver is registered twice",
                vec![info("A", Vulkan, "nv", one), info("A", Vulkan, "nv", one)],
                vec![0],
            ),
            (
                "two cards through two backends",
                vec![
                    info("A", Vulkan, "nv", one),
                    info("A", Vulkan, "nv", two),
                    info("A", Dx12, "nv", ""),
                    info("A", Dx12, "nv", ""),
                ],
                vec![0, 1],
            ),
            ("one model, DX12 only", vec![info("A", Dx12, "nv", one), info("A", Dx12, "nv", one)], vec![0, 1]),
            ("two models", vec![info("A", Vulkan, "nv", ""), info("BB", Dx12, "nv", "")], vec![0, 1]),
        ];
        for (case, infos, expected) in table {
            let mut notes = Vec::new();
            assert_eq!(unique(&infos, &mut notes), expected, "{case}");
            assert_eq!(notes.len(), infos.len() - expected.len(), "{case}: {notes:?}");
        }
    }
}
