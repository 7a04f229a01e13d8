//! Options for placing and running a session's model.

use super::loss::OnDeviceLoss;
use anabranch_costs::CostStore;
use anabranch_device::{DetectError, DetectOptions, Inventory};
use anabranch_onnx::import::Limits;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::PlanOptions;
use anabranch_planning::{Constraints, Order, PlanChoice, PlatformFile, Strategy};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Options of a [`Session`](super::Session). Start from [`Default`] and set the options that differ:
///
/// ```
/// # mod anabranch { pub use anabranch_planning::Strategy; pub use anabranch_session::SessionOptions; }
/// use anabranch::{SessionOptions, Strategy};
/// let options = SessionOptions::default().with_strategy(Strategy::AUTO).with_dim("batch", 4);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Devices to use, and the number of threads of each CPU device.
    pub devices: DetectOptions,
    /// Strategy that decides on which devices nodes run. Default: HEFT.
    pub strategy: Strategy,
    /// Rule that selects among a device's ready nodes. Default: PCT.
    pub order: Order,
    /// Pins and colocations.
    pub constraints: Constraints,
    /// Sizes of dimensions that no input's shape binds, by symbol (`batch`) or by input and axis (`x[1]`).
    pub dims: BTreeMap<String, usize>,
    /// Positions that costs take caches of keys and values to hold. A run may have any other number. Default: their
    /// capacity.
    pub cached: Option<usize>,
    /// Rewrites that fuse neighbouring operators into one node (default: all).
    pub fuse: Rewrites,
    /// Options of plans, such as streaming.
    pub plan: PlanOptions,
    /// Costs to predict with; [`Session::learn`](super::Session::learn) adds to them.
    pub costs: CostStore,
    /// Devices to plan for instead of the present devices; runs always use the present devices.
    pub platform: Option<PlatformFile>,
    /// Number of plans that are kept ready, at least 1; the least recently used is dropped first. Default: 8.
    ///
    /// Each set of input shapes, with the elements of inputs that decide further shapes, has its own plan.
    pub plan_capacity: usize,
    /// Whether to calibrate devices without calibrated rates before the first placement, which takes about a second per
    /// device. Otherwise, rates are assumed until [`Session::calibrate`](super::Session::calibrate) measures them.
    /// Default: no.
    pub calibrate: bool,
    /// Limits beyond which a model is rejected.
    pub limits: Limits,
    /// Behaviour of a run that loses a GPU. Default: it fails.
    pub on_device_loss: OnDeviceLoss,
    /// Names in [`SETTINGS`](super::SETTINGS) whose default values are stated explicitly; a [compiled](crate::compiled)
    /// model otherwise brings its own values. [`Self::set`] adds the names that it sets. Default: none.
    pub stated: BTreeSet<&'static str>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            devices: DetectOptions::default(),
            strategy: Strategy::default(),
            order: Order::default(),
            constraints: Constraints::default(),
            dims: BTreeMap::new(),
            cached: None,
            fuse: Rewrites::ALL,
            plan: PlanOptions::default(),
            costs: CostStore::default(),
            platform: None,
            limits: Limits::default(),
            plan_capacity: 8,
            calibrate: false,
            on_device_loss: OnDeviceLoss::default(),
            stated: BTreeSet::new(),
        }
    }
}

impl SessionOptions {
    /// Detects the devices. Memory limits of devices of the platform file hold there, and for devices of these names
    /// here.
    pub(crate) fn detected(
        &mut self,
        detect: fn(&DetectOptions) -> Result<Inventory, DetectError>,
    ) -> Result<Inventory, DetectError> {
        let Some(file) = &mut self.platform else { return detect(&self.devices) };
        let is_described = |(name, _): &(String, u64)| file.devices.iter().any(|entry| entry.name == *name);
        let (described, own) = self.devices.memory_overrides.iter().cloned().partition::<Vec<_>, _>(is_described);
        let known: Vec<_> = file.devices.iter().map(|entry| entry.name.as_str()).collect();
        let known = format!("; the platform file describes {}", known.join(", "));
        let here = DetectOptions { memory_overrides: own, ..self.devices.clone() };
        let mut inventory = detect(&here).map_err(|error| error.with(&known))?;
        for (name, bytes) in described {
            file.devices.iter_mut().filter(|entry| entry.name == name).for_each(|entry| entry.memory = Some(bytes));
            if inventory.device(&name).is_some() {
                inventory.set_memory(&name, bytes)?;
            }
        }
        Ok(inventory)
    }

    /// Sets the devices to use (default: all devices of the machine).
    pub fn with_devices(self, devices: DetectOptions) -> Self {
        Self { devices, ..self }
    }

    /// Sets the number of threads of each CPU device, limited by its processing units (default: one per core).
    ///
    /// There is one CPU device for each L3 cache unless [`DetectOptions::cpu_granularity`] says otherwise. Results do
    /// not depend on the number of threads.
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.devices.threads = Some(threads);
        self
    }

    /// Sets the placement strategy (default: HEFT).
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// Sets the rule that selects among a device's ready nodes (default: PCT).
    pub fn with_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Sets the constraints of the placement (default: none).
    pub fn with_constraints(self, constraints: Constraints) -> Self {
        Self { constraints, ..self }
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
    /// #     pub use anabranch_session::{Inputs, Session, SessionOptions};
    /// # }
    /// use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
    /// use anabranch::{Inputs, Session, SessionOptions, Shape, Tensor};
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
    /// let options = SessionOptions::default().with_resident("state_in", device).with_resident("state_out", device);
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
    pub fn with_resident(self, name: impl Into<String>, device: impl Into<String>) -> Self {
        Self { constraints: self.constraints.with_resident(name, device), ..self }
    }

    /// Sets the size of a dimension: a symbol (`batch`), or an axis of an input (`x[1]`). Default: from the inputs.
    pub fn with_dim(mut self, name: impl Into<String>, size: usize) -> Self {
        self.dims.insert(name.into(), size);
        self
    }

    /// Plans and predicts for caches of keys and values that hold so many positions.
    pub fn with_cached(self, positions: usize) -> Self {
        Self { cached: Some(positions), ..self }
    }

    /// Fuses neighbouring operators in these ways.
    pub fn with_fusion(self, fuse: Rewrites) -> Self {
        Self { fuse, ..self }
    }

    /// Sets the options of plans, such as streaming (default: [`PlanOptions::default`]).
    pub fn with_plan(self, plan: PlanOptions) -> Self {
        Self { plan, ..self }
    }

    /// Sets the costs for predictions (default: none, so that rates are assumed).
    pub fn with_costs(self, costs: CostStore) -> Self {
        Self { costs, ..self }
    }

    /// Sets the number of plans that are kept ready, see [`Self::plan_capacity`] (default: 8).
    pub fn with_plan_capacity(self, plan_capacity: usize) -> Self {
        Self { plan_capacity, ..self }
    }

    /// Sets whether to calibrate devices of unknown rates before the first placement (default: false).
    pub fn with_calibration(self, calibrate: bool) -> Self {
        Self { calibrate, ..self }
    }

    /// Sets the limits of models (default: [`Limits::default`]).
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the behaviour of runs that lose a GPU (default: they fail).
    pub fn with_on_device_loss(self, on_device_loss: OnDeviceLoss) -> Self {
        Self { on_device_loss, ..self }
    }

    /// Makes the setting of this name apply even if it is the default, see [`Self::stated`].
    pub fn with_stated(mut self, name: &'static str) -> Self {
        self.stated.insert(name);
        self
    }

    /// Whether the setting of this name is stated.
    pub(crate) fn states(&self, name: &str) -> bool {
        self.stated.contains(name)
    }

    /// Returns the choice for the session's own plans.
    pub fn choice(&self) -> PlanChoice {
        PlanChoice { strategy: self.strategy.clone(), order: self.order, plan: self.plan.clone() }
    }
}
