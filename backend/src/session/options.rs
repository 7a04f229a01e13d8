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
    /// A strategy by its name: see [`anabranch_placement::place::STRATEGIES`].
    Strategy(String),
    /// A plan file.
    File(PathBuf),
}

/// Options of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Which devices to use.
    pub devices: DetectOptions,
    /// Who decides where nodes run. Default: HEFT.
    pub place: Place,
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

impl Place {
    /// What the command line's `--place` means: a name that ends in `.json` is a plan file.
    pub fn parse(text: &str) -> Self {
        match text.ends_with(".json") {
            true => Self::File(text.into()),
            false => Self::Strategy(text.to_owned()),
        }
    }
}
