//! What decides how a session places and runs its model.

use super::loss::OnDeviceLoss;
use anabranch_costs::CostStore;
use anabranch_device::DetectOptions;
use anabranch_onnx::import::Limits;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::PlanOptions;
use anabranch_planning::{Constraints, Order, PlanChoice, PlatformFile, Strategy};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Options of a [`Session`](super::Session). Start from [`Default`] and name what differs:
///
/// ```
/// # mod anabranch { pub use anabranch_planning::Strategy; pub use anabranch_session::SessionOptions; }
/// use anabranch::{SessionOptions, Strategy};
/// let options = SessionOptions::default().with_strategy(Strategy::AUTO).with_dim("batch", 4);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Which devices to use, and how many threads each CPU device has.
    pub devices: DetectOptions,
    /// Who decides where nodes run. Default: HEFT.
    pub strategy: Strategy,
    /// Which of a device's ready nodes goes first. Default: PCT.
    pub order: Order,
    /// Pins and colocations.
    pub constraints: Constraints,
    /// Sizes of dimensions that no input's shape binds, by symbol (`batch`) or by input and axis (`x[1]`).
    pub dims: BTreeMap<String, usize>,
    /// Positions that costs take caches of keys and values to hold. A run may have any other number. Default: their capacity.
    pub cached: Option<usize>,
    /// How neighbouring operators are fused into one node. Default: in every way.
    pub fuse: Rewrites,
    /// Streaming of transfers.
    pub plan: PlanOptions,
    /// Costs to predict with; [`Session::learn`](super::Session::learn) adds to them.
    pub costs: CostStore,
    /// Devices to plan for in the place of those that are there; runs are always on those.
    pub platform: Option<PlatformFile>,
    /// For how many sets of input shapes, with the elements of inputs that decide further ones, plans are kept ready, at least 1; the least recently used goes first. Default: 8.
    pub plan_capacity: usize,
    /// Whether devices without calibrated rates are calibrated before the first placement, which takes about a second a device.
    /// Without it, rates are assumed until [`Session::calibrate`](super::Session::calibrate) measures them. Default: no.
    pub calibrate: bool,
    /// Limits beyond which a model is refused.
    pub limits: Limits,
    /// What a run does that loses a GPU. Default: it fails.
    pub on_device_loss: OnDeviceLoss,
    /// Of [`SETTINGS`](super::SETTINGS), those that hold though they are as by default; a [compiled](crate::compiled) model otherwise brings its own along.
    /// [`Self::set`] adds what it sets. Default: none.
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
    /// Uses these devices.
    pub fn with_devices(self, devices: DetectOptions) -> Self {
        Self { devices, ..self }
    }

    /// Gives each CPU device so many threads, as far as it has processing units. There is one CPU device for each L3 cache unless
    /// [`DetectOptions::cpu_granularity`] says otherwise. Results do not depend on the number of threads.
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.devices.threads = Some(threads);
        self
    }

    /// Places by this strategy.
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// Orders the ready nodes of each device like this.
    pub fn with_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Places within these constraints.
    pub fn with_constraints(self, constraints: Constraints) -> Self {
        Self { constraints, ..self }
    }

    /// Keeps the input and the output of this name on a device from run to run: a run reads there what another has left there, and
    /// nothing crosses a bus. CPU devices share the host's memory. The device's name is one of the inventory's.
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

    /// Gives a dimension a size: a symbol (`batch`), or an axis of an input (`x[1]`).
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

    /// Streams like this.
    pub fn with_plan(self, plan: PlanOptions) -> Self {
        Self { plan, ..self }
    }

    /// Predicts with these costs.
    pub fn with_costs(self, costs: CostStore) -> Self {
        Self { costs, ..self }
    }

    /// Keeps so many plans ready, see [`Self::plan_capacity`].
    pub fn with_plan_capacity(self, plan_capacity: usize) -> Self {
        Self { plan_capacity, ..self }
    }

    /// Calibrates devices of unknown rates before the first placement, or not.
    pub fn with_calibration(self, calibrate: bool) -> Self {
        Self { calibrate, ..self }
    }

    /// Admits models within these limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Lets runs that lose a GPU fail, or be made again without it.
    pub fn with_on_device_loss(self, on_device_loss: OnDeviceLoss) -> Self {
        Self { on_device_loss, ..self }
    }

    /// Lets the setting of this name, see [`Self::stated`], hold as it is.
    pub fn with_stated(mut self, name: &'static str) -> Self {
        self.stated.insert(name);
        self
    }

    /// Whether the setting of this name is stated.
    pub(crate) fn states(&self, name: &str) -> bool {
        self.stated.contains(name)
    }

    /// How the session's own plans are made.
    pub fn choice(&self) -> PlanChoice {
        PlanChoice { strategy: self.strategy.clone(), order: self.order, plan: self.plan.clone() }
    }
}
