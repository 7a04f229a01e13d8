//! Finds the GPUs that wgpu reports, each once, with the CPUs near it. Software adapters and OpenGL count only on
//! request, and adapters that can run no kernel are left out.
#![forbid(unsafe_code)]

use super::backend::GpuBackend;
use super::cpu::CpuDevice;
use super::duplicates::unique;
use super::gpu::{GpuDevice, GpuFeatures, GpuKind, GpuLimits, MemorySource};
use super::heaps::Heaps;
use super::inventory::{DetectOptions, Found};
use super::key::device_key;
use super::pci::{self, PciAddress};
use super::vulkan::heaps;
use anabranch_base::lock::lock;
use anabranch_kernels::gpu::{GpuLimits as KernelLimits, one_at_a_time};
use std::path::Path;
use std::sync::Mutex;

/// Every GPU of the machine under `root` (`/`, but for tests), best driver first, named `gpu0`, `gpu1`, …
///
/// `options` say through which interface, and whether software adapters are included. Adapters without their own memory
/// share `host_memory`.
pub(super) fn detect(root: &Path, options: &DetectOptions, host_memory: u64, cpus: &[CpuDevice]) -> Found {
    let (software, backend) = (options.software_gpu, options.gpu_backend);
    let all = adapters(backend.map_or(wgpu::Backends::PRIMARY, wgpu::Backends::from));
    let all: Vec<_> = all.into_iter().map(|adapter| (adapter.get_info(), adapter)).collect();
    let reported: Vec<wgpu::AdapterInfo> = all.iter().map(|(info, _)| info.clone()).collect();
    let mut notes = Vec::new();
    let is_fit = |(info, adapter): &(wgpu::AdapterInfo, wgpu::Adapter)| match KernelLimits::lack(adapter) {
        Some(lack) => {
            notes.push(format!("{} is left out: {lack}", info.name));
            false
        }
        None => true,
    };
    // Another driver of a GPU may do what one lacks.
    let (infos, adapters): (Vec<_>, Vec<_>) = all.into_iter().filter(is_fit).unzip();
    let mut gpus: Vec<GpuDevice> = Vec::new();
    for at in unique(&infos, &mut notes) {
        if software || infos[at].device_type != wgpu::DeviceType::Cpu {
            let name = format!("gpu{}", gpus.len());
            gpus.push(gpu(name, &adapters[at], &infos[at], host_memory, root, cpus));
        }
    }
    notes.extend(absence(&reported, software, backend));
    // Other interfaces than Vulkan do not report all GPUs of the bus.
    if matches!(backend, None | Some(GpuBackend::Vulkan)) {
        notes.extend(undriven(root, &reported));
    }
    notes.extend(gpus.iter().filter(|gpu| gpu.memory_source == MemorySource::Limits).map(|gpu| {
        format!(
            "{}: its memory is not known; plans assume the size of its largest buffer, unless you give the bytes",
            gpu.name
        )
    }));
    Found { gpus, notes }
}

/// Lists all adapters: those of discrete GPUs first, then by backend, else as the driver lists them.
fn adapters(backends: wgpu::Backends) -> Vec<wgpu::Adapter> {
    let mut adapters = one_at_a_time(|| pollster::block_on(instance(backends).enumerate_adapters(backends)));
    adapters.sort_by_key(|adapter| preference(&adapter.get_info()));
    adapters
}

/// The process's only wgpu instance for these backends.
///
/// For each further instance a driver may load its libraries again, which takes time and memory. Some drivers cannot be
/// loaded as often as sessions are opened.
fn instance(backends: wgpu::Backends) -> wgpu::Instance {
    static INSTANCES: Mutex<Vec<(wgpu::Backends, wgpu::Instance)>> = Mutex::new(Vec::new());
    let mut instances = lock(&INSTANCES);
    if let Some((_, known)) = instances.iter().find(|(of, _)| *of == backends) {
        return known.clone();
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    let instance = wgpu::Instance::new(descriptor);
    instances.push((backends, instance.clone()));
    instance
}

/// Preference of an adapter; lower is better.
fn preference(info: &wgpu::AdapterInfo) -> (u8, u8) {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::VirtualGpu => 1,
        wgpu::DeviceType::IntegratedGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    let backend = match info.backend {
        wgpu::Backend::Vulkan => 0,
        wgpu::Backend::Metal => 1,
        wgpu::Backend::Dx12 => 2,
        _ => 3,
    };
    (kind, backend)
}

fn gpu(
    name: String,
    adapter: &wgpu::Adapter,
    info: &wgpu::AdapterInfo,
    host_memory: u64,
    root: &Path,
    cpus: &[CpuDevice],
) -> GpuDevice {
    let kind = GpuKind::of(info.device_type);
    let limits = GpuLimits::of(&adapter.limits());
    let (memory, memory_source) = memory(heaps(adapter), kind, host_memory, limits.buffer);
    let pci = PciAddress::parse(&info.device_pci_bus_id);
    let locality = pci.and_then(|address| pci::locality(root, address)).unwrap_or_default();
    let model = format!("{:04x}:{:04x}", info.vendor, info.device);
    let backend = info.backend.to_str();
    GpuDevice {
        name,
        key: device_key("gpu", &[&info.name, &model, backend, &info.driver, &info.driver_info]),
        description: info.name.clone(),
        kind,
        vendor: info.vendor,
        device: info.device,
        backend: backend.to_owned(),
        driver: info.driver.clone(),
        driver_info: info.driver_info.clone(),
        memory,
        memory_source,
        pci,
        numa: locality.numa,
        near: near(&locality, cpus),
        subgroup_size: [info.subgroup_min_size, info.subgroup_max_size],
        features: GpuFeatures::of(adapter.features()),
        limits,
        adapter: adapter.clone(),
    }
}

/// Bytes that buffers may fill. Memory that a GPU shares with the host is the host's, and what other programs use of it
/// counts there as little as for CPU devices.
fn memory(heaps: Option<Heaps>, kind: GpuKind, host: u64, largest_buffer: u64) -> (u64, MemorySource) {
    let heaps = heaps.unwrap_or_default();
    match (heaps.of_buffers(), heaps.capacity()) {
        (Some(heap), _) if kind.shares_host_memory() => (host.min(heap.bytes), MemorySource::Host),
        (_, Some((bytes, true))) => (bytes, MemorySource::Budget),
        (_, Some((bytes, false))) => (bytes, MemorySource::Heaps),
        _ if kind.shares_host_memory() => (host, MemorySource::Host),
        _ => (largest_buffer, MemorySource::Limits),
    }
}

/// Names of the CPU devices with a processing unit near the GPU; else of those in its NUMA node.
///
/// If neither is known (no address, or no near unit may be used), all CPU devices are near.
fn near(locality: &pci::Locality, cpus: &[CpuDevice]) -> Vec<String> {
    let names = |is_near: &dyn Fn(&CpuDevice) -> bool| -> Vec<String> {
        cpus.iter().filter(|cpu| is_near(cpu)).map(|cpu| cpu.name.clone()).collect()
    };
    let by_unit = names(&|cpu| cpu.pus.iter().any(|pu| locality.pus.contains(pu)));
    if !by_unit.is_empty() {
        return by_unit;
    }
    let by_node = names(&|cpu| locality.numa.is_some_and(|node| cpu.numa.contains(&node)));
    if by_node.is_empty() { names(&|_| true) } else { by_node }
}

/// Reason that there is no GPU, if there is none.
fn absence(infos: &[wgpu::AdapterInfo], software: bool, backend: Option<GpuBackend>) -> Option<String> {
    if let Some(foreign) = backend.filter(|backend| !backend.is_of_system()) {
        let own = GpuBackend::ALL.into_iter().filter(|backend| backend.is_of_system());
        let own: Vec<String> = own.map(|backend| backend.to_string()).collect();
        let (title, own) = (foreign.title(), own.join(" or "));
        return Some(format!("no GPU: this system has no {title}; choose {own}, or leave the interface out"));
    }
    if infos.is_empty() {
        let interface = backend.map_or(if cfg!(target_os = "linux") { "Vulkan" } else { "GPU" }, GpuBackend::title);
        return Some(format!("no GPU: no {interface} driver was found; everything runs on the CPU"));
    }
    let all_software = infos.iter().all(|info| info.device_type == wgpu::DeviceType::Cpu);
    (all_software && !software)
        .then(|| format!("no GPU: only a software adapter was found ({}); it is used only on request", infos[0].name))
}

/// GPUs on the bus without an adapter: their driver is missing.
fn undriven(root: &Path, infos: &[wgpu::AdapterInfo]) -> Vec<String> {
    let known = |gpu: &pci::BusGpu| {
        infos.iter().any(|info| match PciAddress::parse(&info.device_pci_bus_id) {
            Some(address) => address == gpu.address,
            None => (info.vendor, info.device) == (gpu.vendor, gpu.device),
        })
    };
    let missing = pci::bus_gpus(root).into_iter().filter(|gpu| !known(gpu));
    let note = |gpu: pci::BusGpu| {
        format!(
            "the GPU at PCI address {} ({:04x}:{:04x}) has no Vulkan driver that reports it; install one to use it",
            gpu.address, gpu.vendor, gpu.device
        )
    };
    missing.map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::super::child;
    use super::super::cpu::CpuGranularity;
    use super::super::duplicates::tests::info;
    use super::super::granularity::cpu_devices;
    use super::super::heaps::{Heap, MemoryType};
    use super::super::pci::tests::bus;
    use super::super::topology::synthetic::{EPYC, Shape, machine};
    use super::*;

    #[test]
    fn a_gpu_is_near_the_cpus_that_its_address_says() {
        let shape = Shape { cores_per_l3: 2, ..EPYC };
        let cpus = cpu_devices(&machine(shape), CpuGranularity::L3, "Model", 1 << 40);
        let at = |numa, pus: &[u32]| near(&pci::Locality { numa, pus: pus.to_vec() }, &cpus);
        assert_eq!(at(Some(1), &[4, 5, 6, 7, 12, 13, 14, 15]), ["cpu2", "cpu3"]);
        assert_eq!(at(None, &[8]), ["cpu0"], "a second hardware thread tells as well");
        assert_eq!(at(Some(0), &[]), ["cpu0", "cpu1"]);
        assert_eq!(at(Some(1), &[99]), ["cpu2", "cpu3"]);
        assert_eq!(at(None, &[]), ["cpu0", "cpu1", "cpu2", "cpu3"]);
    }

    #[test]
    fn the_absence_of_a_gpu_has_one_reason() {
        let mut software = info("llvmpipe", wgpu::Backend::Vulkan, "llvmpipe", "");
        software.device_type = wgpu::DeviceType::Cpu;
        let real = info("A", wgpu::Backend::Vulkan, "nv", "");
        let own = GpuBackend::ALL.into_iter().find(|backend| backend.is_of_system()).expect("each system has one");
        let absence = |infos: &[wgpu::AdapterInfo], software| absence(infos, software, Some(own));
        let wanted = format!("no GPU: no {} driver", own.title());
        assert!(absence(&[], true).is_some_and(|note| note.contains(&wanted)));
        let foreign = if cfg!(windows) { GpuBackend::Metal } else { GpuBackend::Dx12 };
        let note = super::absence(&[], true, Some(foreign)).expect("there is none");
        assert!(note.contains(&format!("this system has no {}; choose ", foreign.title())), "{note}");
        assert!(absence(&[software.clone()], false).is_some_and(|note| note.contains("on request")));
        assert_eq!(absence(&[software.clone()], true), None);
        assert_eq!(absence(&[real, software], false), None);
    }

    #[test]
    fn a_gpu_on_the_bus_without_a_driver_is_noted() {
        let files = [("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x0001")];
        let root = bus(&[("0000:01:00.0", &files)]);
        let notes = |infos: &[wgpu::AdapterInfo]| undriven(root.path(), infos);
        assert!(matches!(&notes(&[])[..], [note] if note.contains("0000:01:00.0 (10de:0001)")));
        assert_eq!(notes(&[info("A", wgpu::Backend::Vulkan, "nv", "0000:01:00.0")]), Vec::<String>::new());
        assert_eq!(notes(&[info("A", wgpu::Backend::Vulkan, "nv", "")]), Vec::<String>::new());
        assert_eq!(notes(&[info("A", wgpu::Backend::Vulkan, "nv", "0000:02:00.0")]).len(), 1);
    }

    #[test]
    fn memory_is_that_of_the_heap_of_buffers() {
        let heap = |bytes, budget| Heap { bytes, budget };
        let kinds = [MemoryType { flags: 1, heap: 1 }, MemoryType { flags: 7, heap: 0 }];
        let heaps = |budget| Heaps { heaps: vec![heap(246, None), heap(1600, budget)], types: kinds.to_vec() };
        let of = |budget, kind| memory(Some(heaps(budget)), kind, 10_000, 3);
        assert_eq!(of(None, GpuKind::Discrete), (1500, MemorySource::Heaps));
        assert_eq!(of(Some(800), GpuKind::Discrete), (750, MemorySource::Budget));
        assert_eq!(of(Some(800), GpuKind::Virtual), (750, MemorySource::Budget));
        assert_eq!(of(Some(800), GpuKind::Integrated), (1600, MemorySource::Host));
        assert_eq!(memory(Some(heaps(None)), GpuKind::Software, 99, 3), (99, MemorySource::Host));
        assert_eq!(memory(Some(Heaps::default()), GpuKind::Discrete, 10, 3), (3, MemorySource::Limits));
    }

    #[test]
    fn memory_without_heaps_is_the_hosts_or_the_largest_buffer() {
        assert_eq!(memory(None, GpuKind::Integrated, 10, 3), (10, MemorySource::Host));
        assert_eq!(memory(None, GpuKind::Discrete, 10, 3), (3, MemorySource::Limits));
    }

    /// Does nothing except in the child process.
    #[test]
    fn adapter_child() {
        if !child::is_child() {
            return;
        }
        let options = DetectOptions {
            software_gpu: std::env::var_os(SOFTWARE).is_some(),
            gpu_backend: std::env::var(BACKEND).ok().map(|name| name.parse().expect("an interface")),
            ..DetectOptions::default()
        };
        let found = detect(Path::new("/"), &options, 1 << 30, &[]);
        for gpu in &found.gpus {
            println!("gpu: {} {} {} {:?} {}", gpu.name, gpu.kind, gpu.memory, gpu.memory_source, gpu.backend);
        }
        for note in &found.notes {
            println!("note: {note}");
        }
    }

    const SOFTWARE: &str = "ANABRANCH_TEST_SOFTWARE_GPU";
    const BACKEND: &str = "ANABRANCH_TEST_GPU_BACKEND";

    /// Lines of the child process that begin with `gpu:` or `note:`.
    fn in_child(drivers: &str, variables: &[(&str, &str)]) -> Vec<String> {
        // Older and newer name of the loader's list of drivers.
        let all: Vec<_> =
            [("VK_ICD_FILENAMES", drivers), ("VK_DRIVER_FILES", drivers)].iter().chain(variables).copied().collect();
        let output = child::run(concat!(module_path!(), "::adapter_child"), &all);
        // The test harness may write before the first line.
        let from_mark =
            |line: &str| ["gpu: ", "note: "].iter().find_map(|mark| Some(line[line.find(mark)?..].to_owned()));
        output.lines().filter_map(from_mark).collect()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_machine_without_vulkan_drivers_has_no_gpu_and_says_so() {
        let lines = in_child("/nonexistent", &[(SOFTWARE, "1")]);
        assert!(lines.iter().all(|line| line.starts_with("note:")), "{lines:?}");
        assert_eq!(
            lines.iter().filter(|line| line.starts_with("note: no GPU: no Vulkan driver")).count(),
            1,
            "{lines:?}"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_software_adapter_counts_only_when_asked_for() {
        let folder = Path::new("/usr/share/vulkan/icd.d");
        let manifests = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_lavapipe = |path: &std::path::PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("lvp_icd"))
        };
        let Some(lavapipe) = manifests.into_iter().find(is_lavapipe) else {
            eprintln!("skipped: Mesa's lavapipe is not installed");
            return;
        };
        let lavapipe = lavapipe.to_string_lossy();
        let asked = in_child(&lavapipe, &[(SOFTWARE, "1")]);
        let expected = format!("gpu: gpu0 software {} Host vulkan", 1_u64 << 30);
        assert!(asked.contains(&expected), "{asked:?}");
        let not_asked = in_child(&lavapipe, &[]);
        assert!(!not_asked.iter().any(|line| line.starts_with("gpu:")), "{not_asked:?}");
        assert!(not_asked.iter().any(|line| line.contains("on request")), "{not_asked:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_interface_that_is_asked_for_is_the_only_one() {
        let lines = in_child("/nonexistent", &[(SOFTWARE, "1"), (BACKEND, "metal")]);
        assert!(lines.iter().any(|line| line.starts_with("note: no GPU: this system has no Metal")), "{lines:?}");
        // Vulkan has no driver here, so that a GPU is OpenGL's.
        let lines = in_child("/nonexistent", &[(SOFTWARE, "1"), (BACKEND, "gl")]);
        let is_there = lines.iter().any(|line| line.starts_with("gpu: gpu0 ") && line.ends_with(" gl"));
        let is_missed = lines.iter().any(|line| line.starts_with("note: no GPU: no OpenGL driver"));
        assert!(is_there != is_missed, "{lines:?}");
    }
}
