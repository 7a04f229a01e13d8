//! Settings with which a model was compiled: a session adopts them unless it was given others.

use super::error::CompiledError;
use crate::SessionOptions;
use anabranch_device::DetectOptions;
use anabranch_onnx::lower::{Rewrite, Rewrites};
use anabranch_plan::PlanOptions;
use anabranch_planning::{Constraints, Order, PlanChoice, Strategy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Settings of [`SessionOptions`] that decide programs and plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    devices: DetectOptions,
    strategy: String,
    order: Order,
    constraints: Constraints,
    plan: PlanOptions,
    dims: BTreeMap<String, usize>,
    #[serde(default)]
    cached: Option<usize>,
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
            cached: options.cached,
            fuse: options.fuse.iter().map(|rewrite| rewrite.to_string()).collect(),
        }
    }

    /// Returns the choice with which plans were made.
    pub(super) fn choice(&self) -> PlanChoice {
        PlanChoice { strategy: self.strategy(), order: self.order, plan: self.plan.clone() }
    }

    fn strategy(&self) -> Strategy {
        let Ok(strategy) = self.strategy.parse();
        strategy
    }

    /// Returns the options with these settings for all options that are default and not stated.
    ///
    /// Also returns whether the devices and constraints are then these, so that the stored plan is usable. GPU settings
    /// are dropped if GPUs are disabled.
    ///
    /// # Errors
    /// If the options require another program: other sizes, or other rewrites.
    pub(super) fn adopted(&self, file: &Path, given: SessionOptions) -> Result<(SessionOptions, bool), CompiledError> {
        let usual = SessionOptions::default();
        let fuse = self.rewrites(file)?;
        if given.fuse != usual.fuse && given.fuse != fuse {
            return Err(CompiledError::elsewhere(file, "was compiled with other rewrites than are asked for"));
        }
        if let Some((symbol, size)) = given.dims.iter().find(|(symbol, size)| self.dims.get(*symbol) != Some(*size)) {
            let known = match self.dims.get(symbol) {
                Some(known) => format!("was compiled with {symbol}={known}, not with {symbol}={size}"),
                None => {
                    format!("was compiled for the shapes of inputs that were given: {symbol}={size} is no choice of it")
                }
            };
            return Err(CompiledError::elsewhere(file, known));
        }
        if given.cached.is_some() && given.cached != self.cached {
            return Err(CompiledError::elsewhere(file, "was compiled for caches of another length than is asked for"));
        }
        let devices = self.devices(&given, &usual);
        let (constraints, plan) = (self.constraints(&given, &usual), self.plan(&given, &usual));
        let same = devices == self.devices && constraints == self.constraints;
        let options = SessionOptions {
            devices,
            constraints,
            strategy: taken(given.states("place"), &given.strategy, &usual.strategy, &self.strategy()),
            order: taken(given.states("order"), &given.order, &usual.order, &self.order),
            plan,
            dims: self.dims.clone(),
            cached: self.cached,
            fuse,
            ..given
        };
        Ok((options, same))
    }

    fn devices(&self, given: &SessionOptions, usual: &SessionOptions) -> DetectOptions {
        let (own, devices, usual) = (&self.devices, &given.devices, &usual.devices);
        let mut all = DetectOptions {
            cpu_granularity: taken(
                given.states("cpu_devices"),
                &devices.cpu_granularity,
                &usual.cpu_granularity,
                &own.cpu_granularity,
            ),
            threads: devices.threads.or(own.threads),
            // Asking for a software GPU implies asking for a GPU.
            no_gpu: !devices.software_gpu && taken(given.states("gpu"), &devices.no_gpu, &usual.no_gpu, &own.no_gpu),
            software_gpu: !devices.no_gpu
                && taken(given.states("software_gpu"), &devices.software_gpu, &usual.software_gpu, &own.software_gpu),
            memory_overrides: own.memory_overrides.clone(),
            slowdowns: own.slowdowns.clone(),
            only: own.only.clone(),
        };
        if all.no_gpu {
            // Settings of GPUs have no effect without GPUs.
            all.memory_overrides.retain(|(name, _)| !name.starts_with("gpu"));
            all.only.retain(|name| !name.starts_with("gpu"));
        }
        all.memory_overrides = taken(false, &devices.memory_overrides, &usual.memory_overrides, &all.memory_overrides);
        all.slowdowns = taken(false, &devices.slowdowns, &usual.slowdowns, &all.slowdowns);
        all.only = taken(false, &devices.only, &usual.only, &all.only);
        all
    }

    fn constraints(&self, given: &SessionOptions, usual: &SessionOptions) -> Constraints {
        let (own, usual) = (&self.constraints, &usual.constraints);
        let mut all = given.constraints.clone();
        all.pins = taken(false, &all.pins, &usual.pins, &own.pins);
        all.colocated = taken(false, &all.colocated, &usual.colocated, &own.colocated);
        all.resident = taken(false, &all.resident, &usual.resident, &own.resident);
        all
    }

    fn plan(&self, given: &SessionOptions, usual: &SessionOptions) -> PlanOptions {
        let (own, plan, usual) = (&self.plan, &given.plan, &usual.plan);
        PlanOptions {
            streaming: taken(given.states("stream"), &plan.streaming, &usual.streaming, &own.streaming),
            chunk: taken(false, &plan.chunk, &usual.chunk, &own.chunk),
            capacity: taken(false, &plan.capacity, &usual.capacity, &own.capacity),
            weights: taken(given.states("weights"), &plan.weights, &usual.weights, &own.weights),
        }
    }

    fn rewrites(&self, file: &Path) -> Result<Rewrites, CompiledError> {
        let rewrite = |name: &String| name.parse::<Rewrite>().map_err(|error| CompiledError::damaged(file, error));
        self.fuse.iter().try_fold(Rewrites::NONE, |all, name| Ok(all.with(rewrite(name)?)))
    }
}

/// Returns the given setting, unless it is the default and not stated; then the compiled setting.
fn taken<T: Clone + PartialEq>(is_stated: bool, given: &T, usual: &T, compiled: &T) -> T {
    if is_stated || given != usual { given.clone() } else { compiled.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_device::CpuGranularity;
    use anabranch_plan::StreamMode;

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
            SessionOptions::default().with_cached(5),
            SessionOptions::default().with_fusion(Rewrites::NONE),
        ] {
            let error = settings.adopted(path, other).expect_err("another program").to_string();
            assert!(error.starts_with("m.anabranch: was compiled ") && error.contains("compile`"), "{error}");
        }
    }

    #[test]
    fn each_option_is_taken_over_by_itself_and_what_is_stated_stays_as_it_is_by_default() {
        let devices = DetectOptions::default()
            .with_cpu_granularity(CpuGranularity::Core)
            .with_software_gpu(true)
            .with_memory("cpu0", 1 << 30)
            .with_memory("gpu0", 1 << 28);
        let mut made = SessionOptions::default().with_devices(devices).with_strategy(Strategy::AUTO);
        made.constraints = Constraints::default().with_pin("*conv*", "cpu1");
        made.plan = PlanOptions::default().with_streaming(StreamMode::Always);
        let settings = Settings::of(&made);
        let adopted = |given: SessionOptions| settings.adopted(Path::new("m.anabranch"), given).expect("plans anew");
        let (without, same) = adopted(SessionOptions::default().with_devices(DetectOptions::default().without_gpu()));
        let (devices, cpu0) = (&without.devices, ("cpu0".to_owned(), 1u64 << 30));
        assert!(!same && devices.no_gpu && !devices.software_gpu && devices.memory_overrides == [cpu0]);
        assert!(devices.cpu_granularity == CpuGranularity::Core && without.strategy == Strategy::AUTO);
        let colocated = Constraints::default().with_colocated("*bn*");
        let (both, _) = adopted(SessionOptions::default().with_constraints(colocated));
        assert_eq!((both.constraints.pins.len(), both.constraints.colocated.len()), (1, 1));
        let (stated, _) = adopted(SessionOptions::default().with_stated("place").with_stated("stream"));
        assert!(stated.strategy == Strategy::default() && stated.plan.streaming == StreamMode::Auto);
        let mut set = SessionOptions::default();
        set.set("place", "heft").expect("known");
        set.set("cpu_devices", "l3").expect("known");
        let (set, same) = adopted(set);
        assert!(!same && set.strategy == Strategy::default() && set.devices.cpu_granularity == CpuGranularity::L3);
        assert_eq!(set.plan.streaming, StreamMode::Always);
    }
}
