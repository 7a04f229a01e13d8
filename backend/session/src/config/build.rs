//! Builder methods of the configuration, for Rust.

use super::SessionConfig;
use crate::OnDeviceLoss;
use anabranch_costs::CostStore;
use anabranch_device::{CpuGranularity, DetectOptions, GpuBackend};
use anabranch_kernels::op::Precision;
use anabranch_onnx::import::Limits;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::PlanOptions;
use anabranch_planning::{Constraints, Order, PlatformFile, Split, Strategy};
use std::num::NonZeroUsize;

impl SessionConfig {
    /// Sets all options of devices, also those that have their defaults there; only the number of threads and the
    /// graphics interface may still be left out. Each can also be set by itself, as in [`Self::with_threads`].
    pub fn with_devices(self, devices: DetectOptions) -> Self {
        let DetectOptions {
            cpu_granularity,
            threads,
            no_gpu,
            software_gpu,
            gpu_backend,
            memory_overrides,
            slowdowns,
            only,
        } = devices;
        Self {
            devices: Some(only),
            gpu: Some(!no_gpu),
            cpu_devices: Some(cpu_granularity),
            threads,
            software_gpu: Some(software_gpu),
            gpu_backend,
            memory: Some(memory_overrides.into_iter().collect()),
            emulate: Some(slowdowns.into_iter().collect()),
            ..self
        }
    }

    /// Sets the division of the cores into CPU devices (default: one per L3 cache).
    pub fn with_cpu_devices(self, granularity: CpuGranularity) -> Self {
        Self { cpu_devices: Some(granularity), ..self }
    }

    /// Sets the number of threads of each CPU device, limited by its processing units (default: one per core).
    ///
    /// Results do not depend on the number of threads.
    pub fn with_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Skips the search for GPUs, so that no graphics driver is loaded (default: GPUs are detected).
    pub fn without_gpu(self) -> Self {
        Self { gpu: Some(false), ..self }
    }

    /// Sets whether a software adapter counts as a GPU (default: false).
    pub fn with_software_gpu(self, software_gpu: bool) -> Self {
        Self { software_gpu: Some(software_gpu), ..self }
    }

    /// Finds GPUs through one graphics interface (default: all of the system except OpenGL).
    pub fn with_gpu_backend(self, gpu_backend: GpuBackend) -> Self {
        Self { gpu_backend: Some(gpu_backend), ..self }
    }

    /// Sets whether GPUs copy from and to memory of the host by themselves, if they can (default: true). Otherwise all
    /// values go through staging buffers, with the same bits.
    pub fn with_pinned(self, pinned: bool) -> Self {
        Self { pinned: Some(pinned), ..self }
    }

    /// Sets the bytes that a device may fill (default: the detected memory). A later limit of a device replaces an
    /// earlier one.
    pub fn with_memory(mut self, device: impl Into<String>, bytes: u64) -> Self {
        self.memory.get_or_insert_default().insert(device.into(), bytes);
        self
    }

    /// Sets the placement strategy (default: HEFT, or [`Strategy::Split`] with [`Self::with_split`]).
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { place: Some(strategy), ..self }
    }

    /// Sets the rule that selects among a device's ready nodes (default: PCT).
    pub fn with_order(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }

    /// Sets all constraints of the placement (default: none).
    pub fn with_constraints(self, constraints: Constraints) -> Self {
        let none =
            Self { pin: Some(Vec::new()), colocate: Some(constraints.colocated), resident: Some(Vec::new()), ..self };
        let none = Self { split: constraints.split, ..none };
        let pinned = constraints.pins.into_iter().fold(none, |all, pin| all.with_pin(pin.pattern, pin.device));
        constraints.resident.into_iter().fold(pinned, |all, kept| all.with_resident(kept.name, kept.device))
    }

    /// Pins the nodes that match `pattern` to a device, after the pins that are already there (default: no pins).
    pub fn with_pin(mut self, pattern: impl Into<String>, device: impl Into<String>) -> Self {
        add(self.pin.get_or_insert_default(), pattern.into(), device.into());
        self
    }

    /// Divides the rows of a batch among devices (default: each node computes all rows).
    pub fn with_split(self, split: Split) -> Self {
        Self { split: Some(split), ..self }
    }

    /// Keeps the input and the output of this name on a device from run to run (default: on the host).
    ///
    /// A run reads there what another run has left there, so that nothing crosses a bus. CPU devices share the host's
    /// memory. The device's name is one of the inventory's.
    ///
    /// ```
    /// # mod anabranch {
    /// #     pub use anabranch_kernels::{Shape, Tensor};
    /// #     pub use anabranch_onnx::import;
    /// #     pub use anabranch_session::{Inputs, Session, SessionConfig};
    /// # }
    /// use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
    /// use anabranch::{Inputs, Session, SessionConfig, Shape, Tensor};
    ///
    /// // `state_out = state_in + x`
    /// # let value = |name: &str| ValueInfoProto::f32s(name, &[3]);
    /// # let graph = GraphProto {
    /// #     node: vec![NodeProto::of("Add", &["state_in", "x"], &["state_out"])],
    /// #     input: vec![value("state_in"), value("x")],
    /// #     output: vec![value("state_out")],
    /// #     ..GraphProto::default()
    /// # };
    /// # let model = ModelProto::of(graph, 17).to_bytes();
    /// let device = "cpu0"; // or "gpu0", where there is one
    /// let options = SessionConfig::default().with_resident("state_in", device).with_resident("state_out", device);
    /// let session = Session::from_bytes(&model, options)?;
    /// let mut state = session.upload(device, &Tensor::from_elements(Shape::new([3])?, &[0f32; 3])?)?;
    /// for step in 0..5 {
    ///     let x = Tensor::from_elements(Shape::new([3])?, &[step as f32; 3])?;
    ///     let outputs = session.run(&Inputs::new().device_tensor("state_in", state).tensor("x", x))?;
    ///     state = outputs.device_tensor("state_out")?;
    /// }
    /// assert_eq!(state.read()?.elements::<f32>(), Some(&[10.0; 3][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_resident(mut self, name: impl Into<String>, device: impl Into<String>) -> Self {
        add(self.resident.get_or_insert_default(), name.into(), device.into());
        self
    }

    /// Sets the size of a dimension: a symbol (`batch`), or an axis of an input (`x[1]`). Default: from the inputs.
    pub fn with_dim(mut self, name: impl Into<String>, size: usize) -> Self {
        self.dims.get_or_insert_default().insert(name.into(), size);
        self
    }

    /// Plans and predicts for caches of keys and values that hold so many positions (default: their capacity).
    pub fn with_cached(self, positions: usize) -> Self {
        Self { cached: Some(positions), ..self }
    }

    /// Sets the rewrites that fuse neighbouring operators into one node (default: all).
    pub fn with_fusion(self, fuse: Rewrites) -> Self {
        Self { fuse: Some(fuse), ..self }
    }

    /// Sets the arithmetic of matrix products on GPUs with matrix units (default: `f32`).
    ///
    /// It has no effect unless all GPUs have such units; then a note of the inventory says so.
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision: Some(precision), ..self }
    }

    /// Sets all options of plans, such as streaming (default: [`PlanOptions::default`]).
    pub fn with_plan(self, plan: PlanOptions) -> Self {
        let PlanOptions { streaming, chunk, capacity, weights } = plan;
        Self {
            stream: Some(streaming),
            chunk: Some(chunk),
            chunks_in_flight: Some(capacity),
            weights: Some(weights),
            ..self
        }
    }

    /// Sets the costs for predictions; [`Session::learn`](crate::Session::learn) adds to them (default: none, so that
    /// rates are assumed).
    pub fn with_costs(self, costs: CostStore) -> Self {
        Self { costs: Some(costs), ..self }
    }

    /// Plans for the devices of a platform file; runs always use the present devices (default: the present devices).
    pub fn with_platform(self, platform: PlatformFile) -> Self {
        Self { platform: Some(platform), ..self }
    }

    /// Sets the number of plans that are kept ready, at least 1; the least recently used plan is dropped first
    /// (default: 8).
    ///
    /// Each set of input shapes, with the elements of inputs that decide further shapes, has its own plan.
    pub fn with_plan_capacity(self, plan_capacity: usize) -> Self {
        Self { plan_capacity: NonZeroUsize::new(plan_capacity.max(1)), ..self }
    }

    /// Sets whether to calibrate devices without calibrated rates before the first placement, which takes about a
    /// second per device (default: false).
    ///
    /// Otherwise, rates are assumed until [`Session::calibrate`](crate::Session::calibrate) measures them.
    pub fn with_calibration(self, calibrate: bool) -> Self {
        Self { calibrate: Some(calibrate), ..self }
    }

    /// Sets the limits beyond which a model is rejected (default: [`Limits::default`]).
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits: Some(limits), ..self }
    }

    /// Sets the behaviour of runs that lose a GPU (default: they fail).
    pub fn with_on_device_loss(self, on_device_loss: OnDeviceLoss) -> Self {
        Self { on_device_loss: Some(on_device_loss), ..self }
    }
}

/// Adds a device for a name, unless the name has one: the first counts.
fn add(devices: &mut Vec<(String, String)>, name: String, device: String) {
    if devices.iter().all(|(known, _)| *known != name) {
        devices.push((name, device));
    }
}
