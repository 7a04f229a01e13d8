//! The inventory of devices: taken once at the start, read by everything after.
#![forbid(unsafe_code)]

use super::backend::GpuBackend;
use super::cpu::{CpuDevice, CpuGranularity};
use super::gpu::{GpuDevice, MemorySource};
use super::granularity::cpu_devices;
use super::host::{self, Host};
use anabranch_base::bytes::format_bytes;
use anabranch_base::suggest::did_you_mean;
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;
use std::path::Path;
use thiserror::Error;

/// Options of the detection of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DetectOptions {
    /// Division of the cores into devices.
    pub cpu_granularity: CpuGranularity,
    /// Threads of each CPU device, at most one per processing unit; `None` for one per core. Results do not depend on
    /// it.
    pub threads: Option<NonZeroUsize>,
    /// Whether to skip the search for GPUs, so that no graphics driver is loaded.
    pub no_gpu: bool,
    /// Whether a software adapter counts as a GPU.
    pub software_gpu: bool,
    /// Graphics interface through which GPUs are found; `None` for all of the system except OpenGL.
    #[serde(default)]
    pub gpu_backend: Option<GpuBackend>,
    /// Bytes that a device may fill, by its name, instead of the detected memory.
    pub memory_overrides: Vec<(String, u64)>,
    /// Factor by which a CPU device is slowed down, by its name.
    pub slowdowns: Vec<(String, f64)>,
    /// Names of the devices to use, at least one of them a CPU device; empty for all devices.
    pub only: Vec<String>,
}

impl DetectOptions {
    /// Sets the division of the cores into devices (default: one per L3 cache).
    pub fn with_cpu_granularity(self, cpu_granularity: CpuGranularity) -> Self {
        Self { cpu_granularity, ..self }
    }

    /// Sets the number of threads of each CPU device (default: one per core).
    pub fn with_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Skips the search for GPUs (default: GPUs are detected).
    pub fn without_gpu(self) -> Self {
        Self { no_gpu: true, ..self }
    }

    /// Sets whether a software adapter counts as a GPU (default: false).
    pub fn with_software_gpu(self, software_gpu: bool) -> Self {
        Self { software_gpu, ..self }
    }

    /// Finds GPUs through one graphics interface (default: all of the system except OpenGL).
    pub fn with_gpu_backend(self, gpu_backend: GpuBackend) -> Self {
        Self { gpu_backend: Some(gpu_backend), ..self }
    }

    /// Restricts the devices to these names (default: all devices).
    pub fn with_only(self, only: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { only: only.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the bytes that a device may fill (default: the detected memory).
    pub fn with_memory(mut self, device: impl Into<String>, bytes: u64) -> Self {
        self.memory_overrides.push((device.into(), bytes));
        self
    }
}

/// The machine and its devices.
///
/// Memory is counted once among CPU devices: each has its cores' share of their NUMA nodes, within the limit of the
/// process's control group. An integrated or software GPU shares the host's memory, so that its bytes are the CPUs'
/// bytes again.
#[derive(Clone, Debug, Serialize)]
pub struct Inventory {
    /// The machine as a whole.
    pub host: Host,
    /// CPU devices, neighbours together.
    pub cpus: Vec<CpuDevice>,
    /// GPUs, discrete ones first.
    pub gpus: Vec<GpuDevice>,
    /// Notes for the user: missing devices and assumptions.
    pub notes: Vec<String>,
    /// Facts that decide which GPUs are found, from before the search; `None` if there was no search, or they are
    /// unknown.
    #[serde(skip)]
    pub drivers: Option<String>,
}

/// Error in the options for this machine: the device, and what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct DetectError {
    #[doc(hidden)]
    pub device: String,
    problem: String,
}

impl DetectError {
    /// Adds text at the end.
    pub fn with(self, more: &str) -> Self {
        Self { problem: self.problem + more, ..self }
    }
}

/// The end of an error about a GPU that is not there: how to get a build that can have one. Empty in a build with the
/// feature `gpu`.
pub const GPU_HINT: &str =
    if cfg!(feature = "gpu") { "" } else { "; this build has no GPU support: build with the feature `gpu`" };

/// The GPUs found, and what is to be said about them.
#[derive(Default)]
pub(super) struct Found {
    pub(super) gpus: Vec<GpuDevice>,
    pub(super) notes: Vec<String>,
}

/// One device of either family.
#[derive(Clone, Copy, Debug)]
pub enum DeviceRef<'a> {
    /// A CPU device.
    Cpu(&'a CpuDevice),
    /// A GPU.
    Gpu(&'a GpuDevice),
}

/// Takes the inventory of this machine, within the calling thread's affinity.
///
/// Takes tens of milliseconds, most of it for the GPU drivers.
///
/// # Errors
///
/// If `options` name a device that does not exist, or do not fit it. A machine on which nothing can be read counts as
/// one core.
pub fn detect(options: &DetectOptions) -> Result<Inventory, DetectError> {
    taken(options, !options.no_gpu)
}

/// Takes the inventory as [`detect`] does on a machine known to have no GPU: no graphics driver is loaded.
pub fn detect_cpus(options: &DetectOptions) -> Result<Inventory, DetectError> {
    let mut inventory = taken(options, false)?;
    if !options.no_gpu {
        inventory
            .notes
            .push("no GPU: none was found when the model was compiled, and no driver has been installed since".into());
    }
    Ok(inventory)
}

/// Returns the facts that decide which GPUs [`detect`] finds with equal options.
///
/// Returns `None` if they cannot be read without loading a graphics driver.
#[cfg(feature = "gpu")]
pub fn drivers() -> Option<String> {
    super::graphics::graphics(Path::new("/"))
}

/// Nothing is known about drivers, because a build without the feature `gpu` does not look for them.
#[cfg(not(feature = "gpu"))]
pub fn drivers() -> Option<String> {
    None
}

#[cfg(feature = "gpu")]
use super::adapters::detect as gpus;

/// No GPU, and a note that says why.
#[cfg(not(feature = "gpu"))]
fn gpus(_: &Path, _: &DetectOptions, _: u64, _: &[CpuDevice]) -> Found {
    Found { gpus: Vec::new(), notes: vec![format!("no GPU{GPU_HINT}")] }
}

fn taken(options: &DetectOptions, with_gpus: bool) -> Result<Inventory, DetectError> {
    let root = Path::new("/");
    // The facts are those of Vulkan's drivers; drivers of OpenGL have others.
    let are_known = with_gpus && options.gpu_backend != Some(GpuBackend::Gl);
    let drivers = if are_known { drivers() } else { None };
    let surveyed = host::survey(root);
    let model = &surveyed.host.model;
    let cpus = cpu_devices(&surveyed.usable, options.cpu_granularity, model, surveyed.usable_memory);
    let found = match with_gpus {
        true => gpus(root, options, surveyed.usable_memory, &cpus),
        false => Found::default(),
    };
    let notes = surveyed.notes.into_iter().chain(found.notes).collect();
    let mut inventory = Inventory { host: surveyed.host, cpus, gpus: found.gpus, notes, drivers };
    if let Some(threads) = options.threads {
        for cpu in &mut inventory.cpus {
            cpu.use_threads(threads);
            if threads.get() > cpu.threads {
                let (name, used) = (&cpu.name, cpu.threads);
                inventory
                    .notes
                    .push(format!("{name}: {threads} threads are more than its processing units; uses {used}"));
            }
        }
    }
    for (device, bytes) in &options.memory_overrides {
        inventory.set_memory(device, *bytes)?;
    }
    for (device, times) in &options.slowdowns {
        inventory.slow_down(device, *times)?;
    }
    inventory.keep(&options.only)?;
    Ok(inventory)
}

impl Inventory {
    /// Iterates over the devices: CPUs, then GPUs.
    pub fn devices(&self) -> impl Iterator<Item = DeviceRef<'_>> {
        self.cpus.iter().map(DeviceRef::Cpu).chain(self.gpus.iter().map(DeviceRef::Gpu))
    }

    /// Returns the machine's identity for the cost store: processor, system, cores, threads and memory.
    ///
    /// Devices and their drivers are distinguished by their keys.
    pub fn fingerprint(&self) -> String {
        let Host { model, os, arch, packages, cores, pus, memory, .. } = &self.host;
        // Kernels reserve a small, varying part of the memory.
        let gibibytes = memory.div_ceil(1 << 30);
        format!("{model} | {os} {arch} | {packages} packages, {cores} cores, {pus} threads | {gibibytes} GiB")
    }

    /// Returns the device called `name`.
    pub fn device(&self, name: &str) -> Option<DeviceRef<'_>> {
        self.devices().find(|device| device.name() == name)
    }

    /// Removes all devices except those of these names, if there are any names.
    fn keep(&mut self, only: &[String]) -> Result<(), DetectError> {
        let error = |device: &str, problem| DetectError { device: device.to_owned(), problem };
        let Some(first) = only.first() else { return Ok(()) };
        if let Some(unknown) = only.iter().find(|name| self.device(name).is_none()) {
            let meant = did_you_mean(unknown, self.devices().map(|device| device.name()));
            let known = self.devices().map(DeviceRef::name).collect::<Vec<_>>().join(", ");
            return Err(error(
                unknown,
                format!("there is no device `{unknown}`{meant}; the devices are {known}{}", hint(unknown)),
            ));
        }
        self.cpus.retain(|cpu| only.contains(&cpu.name));
        self.gpus.retain(|gpu| only.contains(&gpu.name));
        match self.cpus.is_empty() {
            true => Err(error(first, "GPUs also need a CPU device; name one as well".to_owned())),
            false => Ok(()),
        }
    }

    /// Lets a CPU device emulate a slower device with costs of its own.
    fn slow_down(&mut self, name: &str, times: f64) -> Result<(), DetectError> {
        let known = self.cpus.iter().map(|cpu| cpu.name.as_str()).collect::<Vec<_>>().join(", ");
        match self.cpus.iter_mut().find(|cpu| cpu.name == name) {
            Some(cpu) if (1.0..=1000.0).contains(&times) => {
                *cpu = cpu.clone().slowed(times);
                self.notes.push(format!("{name} is emulated: each node takes {times} times as long"));
                Ok(())
            }
            None => {
                let problem = format!("there is no CPU device `{name}` to slow down; the CPU devices are {known}");
                Err(DetectError { device: name.to_owned(), problem })
            }
            Some(_) => {
                let advice = format!("name a CPU device ({known}) and a factor from 1 to 1000");
                let problem = format!("`{name}` cannot be made {times} times slower: {advice}");
                Err(DetectError { device: name.to_owned(), problem })
            }
        }
    }

    /// Sets the bytes that a device may fill.
    ///
    /// # Errors
    /// If there is no device of this name.
    pub fn set_memory(&mut self, name: &str, bytes: u64) -> Result<(), DetectError> {
        let found = if let Some(cpu) = self.cpus.iter_mut().find(|cpu| cpu.name == name) {
            std::mem::replace(&mut cpu.memory, bytes)
        } else if let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.name == name) {
            gpu.memory_source = MemorySource::Override;
            std::mem::replace(&mut gpu.memory, bytes)
        } else {
            let known = self.devices().map(DeviceRef::name).collect::<Vec<_>>().join(", ");
            let meant = did_you_mean(name, self.devices().map(|device| device.name()));
            let problem = format!("memory is set for `{name}`, but the devices are {known}{meant}{}", hint(name));
            return Err(DetectError { device: name.to_owned(), problem });
        };
        if bytes > found {
            let (wanted, found) = (format_bytes(bytes), format_bytes(found));
            self.notes.push(format!("{name}: the memory limit is {wanted}, but the device has only {found}"));
        }
        Ok(())
    }
}

/// [`GPU_HINT`] for the name of a GPU.
fn hint(name: &str) -> &'static str {
    if name.starts_with("gpu") { GPU_HINT } else { "" }
}

impl<'a> DeviceRef<'a> {
    /// Returns the device's name in plans and on the command line.
    pub fn name(self) -> &'a str {
        match self {
            Self::Cpu(cpu) => &cpu.name,
            Self::Gpu(gpu) => &gpu.name,
        }
    }

    /// Returns the device's identity for the cost store.
    pub fn key(self) -> &'a str {
        match self {
            Self::Cpu(cpu) => &cpu.key,
            Self::Gpu(gpu) => &gpu.key,
        }
    }

    /// Returns the bytes of memory that the device may fill.
    pub fn memory(self) -> u64 {
        match self {
            Self::Cpu(cpu) => cpu.memory,
            Self::Gpu(gpu) => gpu.memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(memory_overrides: &[(&str, u64)]) -> DetectOptions {
        let memory_overrides = memory_overrides.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect();
        DetectOptions { software_gpu: true, memory_overrides, ..DetectOptions::default() }
    }

    #[test]
    fn a_slowed_device_has_costs_of_its_own() {
        let slowed = |name: &str, times| {
            let slowdowns = vec![(name.to_owned(), times)];
            detect(&DetectOptions { no_gpu: true, slowdowns, ..DetectOptions::default() })
        };
        let plain = detect(&DetectOptions { no_gpu: true, ..DetectOptions::default() }).expect("no device is named");
        let slow = slowed("cpu0", 4.0).expect("every machine has cpu0");
        assert_eq!(slow.cpus[0].slowdown, 4.0);
        assert_ne!(slow.cpus[0].key, plain.cpus[0].key);
        for (name, times) in [("gpu0", 2.0), ("cpu0", 0.5), ("cpu0", f64::NAN)] {
            let error = slowed(name, times).expect_err("impossible").to_string();
            assert!(error.contains(name) && error.contains("cpu0"), "{error}");
        }
    }

    #[test]
    fn memory_is_set_by_name() {
        let set = detect(&options(&[("cpu0", 4096)])).expect("every machine has cpu0");
        assert_eq!(set.device("cpu0").map(DeviceRef::memory), Some(4096));
        let most = detect(&options(&[("cpu0", u64::MAX)])).expect("every machine has cpu0");
        assert!(most.notes.iter().any(|note| note.starts_with("cpu0: the memory limit is 16 EiB")), "{:?}", most.notes);
        let error = detect(&options(&[("tpu0", 1)])).expect_err("there is no such device").to_string();
        assert!(error.contains("`tpu0`") && error.contains("cpu0"), "{error}");
    }

    #[cfg(not(feature = "gpu"))]
    #[test]
    fn a_build_without_gpus_names_the_feature_that_it_lacks() {
        let found = detect(&options(&[])).expect("no device is named");
        assert!(found.gpus.is_empty() && found.notes.iter().any(|note| note.contains("the feature `gpu`")));
        let only = DetectOptions { only: vec!["gpu0".to_owned()], ..DetectOptions::default() };
        for asked in [only, options(&[("gpu0", 4096)])] {
            let error = detect(&asked).expect_err("there is none").to_string();
            assert!(error.contains("`gpu0`") && error.contains("the feature `gpu`"), "{error}");
        }
        let unknown = detect(&options(&[("tpu0", 1)])).expect_err("there is no such device").to_string();
        assert!(!unknown.contains("feature"), "{unknown}");
    }

    #[test]
    fn without_gpus_only_cpus_are_found() {
        let inventory = detect(&DetectOptions { no_gpu: true, ..options(&[]) }).expect("no device is named");
        assert!(!inventory.cpus.is_empty() && inventory.gpus.is_empty());
        assert!(!inventory.notes.iter().any(|note| note.contains("GPU")), "what was not looked for is not missed");
    }

    #[test]
    fn threads_beyond_the_processing_units_are_noted() {
        let with = |threads: usize| {
            let threads = NonZeroUsize::new(threads).expect("not 0");
            detect(&DetectOptions::default().without_gpu().with_threads(threads)).expect("every machine has cpu0")
        };
        let noted = |inventory: &Inventory| inventory.notes.iter().any(|note| note.contains("processing units; uses"));
        assert!(!noted(&with(1)));
        let most = with(1 << 20);
        assert!(noted(&most) && most.cpus.iter().all(|cpu| cpu.threads == cpu.pus.len()), "{:?}", most.notes);
    }

    #[test]
    fn only_the_devices_that_are_named_stay() {
        let only = |names: &[&str]| DetectOptions {
            only: names.iter().map(ToString::to_string).collect(),
            cpu_granularity: CpuGranularity::Core,
            ..options(&[])
        };
        let one = detect(&only(&["cpu0"])).expect("every machine has cpu0");
        assert_eq!(one.devices().map(DeviceRef::name).collect::<Vec<_>>(), ["cpu0"]);
        let error = detect(&only(&["tpu0"])).expect_err("there is no such device").to_string();
        assert!(error.contains("`tpu0`") && error.contains("cpu0"), "{error}");
        if detect(&only(&[])).expect("all").device("gpu0").is_some() {
            assert!(detect(&only(&["gpu0"])).expect_err("no host").to_string().contains("GPUs also need a CPU device"));
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        let inventory = detect(&options(&[])).expect("no device is named");
        for device in inventory.devices() {
            let same = inventory.devices().filter(|other| other.name() == device.name());
            assert_eq!(same.count(), 1);
            assert_eq!(inventory.device(device.name()).map(DeviceRef::key), Some(device.key()));
        }
        assert!(inventory.device("gpu99").is_none());
    }
}
