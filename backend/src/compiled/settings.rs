//! The settings that a model was compiled with: a session takes them over unless it was given others.

use super::error::CompiledError;
use crate::device::DetectOptions;
use crate::lower::{Rewrite, Rewrites};
use crate::plan::PlanOptions;
use crate::planning::{Constraints, Order, PlanChoice, Strategy};
use crate::session::SessionOptions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What of [`SessionOptions`] decides programs and plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    devices: DetectOptions,
    strategy: String,
    order: Order,
    constraints: Constraints,
    plan: PlanOptions,
    dims: BTreeMap<String, usize>,
    /// The rewrites that were made, by name.
    fuse: Vec<String>,
}

impl Settings {
    pub(super) fn of(options: &SessionOptions) -> Self {
        Self {
            devices: options.devices.clone(),
            strategy: options.strategy.to_string(),
            order: options.order,
            constraints: options.constraints.clone(),
            plan: options.plan.clone(),
            dims: options.dims.clone(),
            fuse: options.fuse.iter().map(|rewrite| rewrite.to_string()).collect(),
        }
    }

    /// How plans were made.
    pub(super) fn choice(&self) -> PlanChoice {
        PlanChoice { strategy: self.strategy(), order: self.order, plan: self.plan.clone() }
    }

    fn strategy(&self) -> Strategy {
        let Ok(strategy) = self.strategy.parse();
        strategy
    }

    /// The options with these settings wherever they say nothing themselves, which is where they are as by default; and whether the
    /// devices and constraints are then these, so that the kept plan is of use.
    ///
    /// # Errors
    /// If they want another program: other sizes, or other rewrites.
    pub(super) fn adopted(&self, file: &Path, given: SessionOptions) -> Result<(SessionOptions, bool), CompiledError> {
        let usual = SessionOptions::default();
        let fuse = self.rewrites(file)?;
        if given.fuse != usual.fuse && given.fuse != fuse {
            return Err(CompiledError::elsewhere(file, "was compiled with other rewrites than are asked for"));
        }
        if let Some((symbol, size)) = given.dims.iter().find(|(symbol, size)| self.dims.get(*symbol) != Some(*size)) {
            let known = self.dims.get(symbol).map_or("without it".to_owned(), |size| format!("with {symbol}={size}"));
            return Err(CompiledError::elsewhere(file, format!("was compiled {known}, not with {symbol}={size}")));
        }
        let devices = taken(given.devices, &usual.devices, &self.devices);
        let constraints = taken(given.constraints, &usual.constraints, &self.constraints);
        let same = devices == self.devices && constraints == self.constraints;
        let options = SessionOptions {
            devices,
            constraints,
            strategy: taken(given.strategy, &usual.strategy, &self.strategy()),
            order: taken(given.order, &usual.order, &self.order),
            plan: taken(given.plan, &usual.plan, &self.plan),
            dims: self.dims.clone(),
            fuse,
            ..given
        };
        Ok((options, same))
    }

    fn rewrites(&self, file: &Path) -> Result<Rewrites, CompiledError> {
        let rewrite = |name: &String| name.parse::<Rewrite>().map_err(|error| CompiledError::damaged(file, error));
        self.fuse.iter().try_fold(Rewrites::NONE, |all, name| Ok(all.with(rewrite(name)?)))
    }
}

/// What was given, unless that is as usual: then what was compiled with.
fn taken<T: Clone + PartialEq>(given: T, usual: &T, compiled: &T) -> T {
    if given == *usual { compiled.clone() } else { given }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::CpuGranularity;

    #[test]
    fn what_is_not_given_is_taken_over_and_what_is_stays() {
        let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine);
        let made =
            SessionOptions::default().with_devices(devices.clone()).with_strategy(Strategy::AUTO).with_dim("n", 4);
        let settings = Settings::of(&made);
        let path = Path::new("m.anabranch");
        let (options, same) = settings.adopted(path, SessionOptions::default()).expect("nothing else is asked for");
        assert!(same && options.devices == devices && options.strategy == Strategy::AUTO && options.dims["n"] == 4);
        let other =
            SessionOptions::default().with_strategy(Strategy::CPU).with_devices(DetectOptions::default().without_gpu());
        let (options, same) = settings.adopted(path, other).expect("plans can be made anew");
        assert!(!same && options.devices.no_gpu && options.strategy == Strategy::CPU);
        for other in [
            SessionOptions::default().with_dim("n", 5),
            SessionOptions::default().with_dim("m", 4),
            SessionOptions::default().with_fusion(Rewrites::NONE),
        ] {
            let error = settings.adopted(path, other).expect_err("another program").to_string();
            assert!(error.starts_with("m.anabranch: was compiled with") && error.contains("compile`"), "{error}");
        }
    }
}
