//! What decides how a session places and runs its model.

use super::placing::Wishes;
use super::platform_file::PlatformFile;
use crate::device::DetectOptions;
use crate::plan::PlanOptions;
use crate::profile::CostStore;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Who decides where nodes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A strategy by its name, see [`anabranch_placement::place::STRATEGIES`]; or a device's name, for all that can run there
    /// (the rest runs on the host).
    Strategy(String),
    /// A plan file.
    File(PathBuf),
}

/// One way to place, order and stream a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChoice {
    /// Who decides where nodes run.
    pub place: Place,
    /// Which of a device's ready nodes goes first: one of [`ORDERS`](anabranch_placement::order::ORDERS). A plan file brings its
    /// own order along.
    pub order: String,
    /// What is streamed.
    pub plan: PlanOptions,
}

/// Options of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Which devices to use.
    pub devices: DetectOptions,
    /// Who decides where nodes run. Default: HEFT.
    pub place: Place,
    /// Which of a device's ready nodes goes first: see [`PlanChoice::order`]. Default: PCT.
    pub order: String,
    /// Pins and colocations.
    pub wishes: Wishes,
    /// Sizes of symbolic dimensions that no input's shape binds.
    pub dims: BTreeMap<String, usize>,
    /// Whether neighbouring operators are fused into one node. Default: yes.
    pub fuse: bool,
    /// Streaming of transfers.
    pub plan: PlanOptions,
    /// Costs to predict with; runs add to them.
    pub costs: CostStore,
    /// Devices to plan for in the place of those that are there; runs are always on those.
    pub platform: Option<PlatformFile>,
    /// Whether devices without calibrated rates are calibrated before the first placement, which takes seconds. Without it,
    /// rates are assumed. Default: yes.
    pub calibrate: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            devices: DetectOptions::default(),
            place: Place::Strategy("heft".into()),
            order: "pct".into(),
            wishes: Wishes::default(),
            dims: BTreeMap::new(),
            fuse: true,
            plan: PlanOptions::default(),
            costs: CostStore::default(),
            platform: None,
            calibrate: true,
        }
    }
}

impl SessionOptions {
    /// How the session's own plans are made.
    pub fn choice(&self) -> PlanChoice {
        PlanChoice { place: self.place.clone(), order: self.order.clone(), plan: self.plan.clone() }
    }
}

impl Place {
    /// What the command line's `--place` means: a name that ends in `.json` is a plan file.
    pub fn parse(text: &str) -> Self {
        match text.ends_with(".json") {
            true => Self::File(text.into()),
            false => Self::Strategy(text.to_owned()),
        }
    }
}
