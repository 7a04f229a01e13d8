//! Number of weights that stay on GPUs with too little memory for all: as many as fit, so that each run sends as few
//! bytes as possible.

use super::super::error::PlanningError;
use super::Repair;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{MemoryItem, Residency};
use std::collections::BTreeMap;

/// The number of staying bytes is found to within one part in `EXACT` of all bytes.
const EXACT: u64 = 32;

impl Repair<'_> {
    /// Returns the residency that keeps the most bytes on GPUs and fits the assignment; `None` if none fits. Makes
    /// about log₂ [`EXACT`] plans for each GPU that is short.
    ///
    /// # Errors
    /// If a plan cannot be made for another reason than memory.
    pub(super) fn staged(&self, device_of: &[DeviceId]) -> Result<Option<Residency>, PlanningError> {
        let mut stay = BTreeMap::new();
        loop {
            let residency = Residency::Within(stay.clone());
            let Err(shortage) = self.with_weights(residency.clone()).planned(device_of)? else {
                return Ok(Some(residency));
            };
            let short = self.position(&shortage);
            let gpu = self.machine.devices[short.index()].kind == DeviceKind::Gpu;
            if !gpu || stay.contains_key(&short) {
                return Ok(None);
            }
            let constants = shortage.holdings.iter().filter(|held| matches!(held.what, MemoryItem::Constant(_)));
            let all: u64 = constants.map(|held| held.bytes).sum();
            stay.insert(short, 0);
            if !self.fits(device_of, short, &stay)? {
                return Ok(None);
            }
            let (mut least, mut most) = (0, all);
            while most - least > (all / EXACT).max(1) {
                let middle = least + (most - least) / 2;
                stay.insert(short, middle);
                *(if self.fits(device_of, short, &stay)? { &mut least } else { &mut most }) = middle;
            }
            stay.insert(short, least);
        }
    }

    /// Whether a device is not short if it keeps `stay` bytes, regardless of other devices.
    fn fits(
        &self,
        device_of: &[DeviceId],
        device: DeviceId,
        stay: &BTreeMap<DeviceId, u64>,
    ) -> Result<bool, PlanningError> {
        let planned = self.with_weights(Residency::Within(stay.clone())).planned(device_of)?;
        let limit = self.machine.memory()[device.index()];
        Ok(planned.map_or_else(|shortage| shortage.peaks[device.index()] <= limit, |_| true))
    }
}
