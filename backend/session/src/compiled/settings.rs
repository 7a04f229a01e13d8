//! Options with which a model was compiled: a session adopts them unless it was given others.

use super::error::CompiledError;
use crate::{ResolvedConfig, SessionConfig};
use anabranch_device::Inventory;
use anabranch_planning::{Constraints, Strategy};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the options that decide programs and plans.
pub(super) fn of(options: &ResolvedConfig) -> SessionConfig {
    let ResolvedConfig { devices, strategy, order, constraints, dims, cached, fuse, precision, plan, .. } =
        options.clone();
    let decided = SessionConfig::default()
        .with_devices(devices)
        .with_strategy(strategy)
        .with_order(order)
        .with_constraints(constraints)
        .with_fusion(fuse)
        .with_precision(precision)
        .with_plan(plan);
    SessionConfig { dims: Some(dims), cached, ..decided }
}

/// Returns the given options over those of the compiled model `file`.
///
/// Also returns whether the devices and constraints are then those of the compiled model, so that the stored plan is
/// usable. GPU options are dropped if GPUs are disabled.
///
/// # Errors
/// If the given options require another program: other sizes, or other rewrites.
pub(super) fn adopted(
    file: &Path,
    compiled: &SessionConfig,
    given: SessionConfig,
) -> Result<(ResolvedConfig, bool), CompiledError> {
    same_program(compiled, &given).map_err(|problem| CompiledError::elsewhere(file, problem))?;
    let stored = compiled.clone().resolve();
    let names_gpus = given.software_gpu == Some(true) || given.gpu_backend.is_some();
    let wants_gpu = given.gpu.or(names_gpus.then_some(true));
    let mut base = compiled.clone();
    if wants_gpu == Some(false) {
        (base.software_gpu, base.gpu_backend) = (None, None);
        base.memory.iter_mut().for_each(|limits| limits.retain(|name, _| !name.starts_with("gpu")));
        base.devices.iter_mut().for_each(|names| names.retain(|name| !name.starts_with("gpu")));
    }
    if given.split.is_some() && compiled.split.is_none() && given.place.is_none() {
        // The strategy of the whole batch has nothing to place in parts.
        base.place = None;
    }
    let options = SessionConfig { gpu: wants_gpu, dims: None, ..given }.or(base).resolve();
    let is_divided = options.constraints.split.is_some();
    let is_same = options.devices == stored.devices
        && options.constraints == stored.constraints
        && (!is_divided || options.strategy == stored.strategy);
    Ok((options, is_same))
}

/// Returns what names a device that is missing, if an option does that which the caller has not given.
pub(super) fn missing_device(given: &SessionConfig, options: &ResolvedConfig, inventory: &Inventory) -> Option<String> {
    let Constraints { pins, resident, .. } = &options.constraints;
    let pins = pins.iter().filter(|_| given.pin.is_none());
    let pinned = pins.map(|pin| (&pin.device, format!("`{}` is pinned to", pin.pattern)));
    let resident = resident.iter().filter(|_| given.resident.is_none());
    let kept = resident.map(|kept| (&kept.device, format!("`{}` stays on", kept.name)));
    let place = match &options.strategy {
        Strategy::Device(name) if given.place.is_none() => Some((name, "all nodes are on".to_owned())),
        _ => None,
    };
    let missing = pinned.chain(kept).chain(place).find(|(device, _)| inventory.device(device).is_none());
    missing.map(|(device, what)| {
        let known: Vec<_> = inventory.devices().map(|device| device.name().to_owned()).collect();
        format!("{what} `{device}`, but the devices are {}", known.join(", "))
    })
}

/// Returns the options that a compiled model holds and that differ from their defaults, as JSON by their names.
pub(crate) fn stated(compiled: &SessionConfig) -> BTreeMap<String, Value> {
    let values = |config: &SessionConfig| match serde_json::to_value(config) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    };
    let usual = values(&of(&SessionConfig::default().resolve()));
    values(compiled).into_iter().filter(|(name, value)| usual.get(name) != Some(value)).collect()
}

/// Checks that the given options ask for the program of the compiled model.
fn same_program(compiled: &SessionConfig, given: &SessionConfig) -> Result<(), String> {
    if given.fuse.is_some() && given.fuse != compiled.fuse {
        return Err("was compiled with other rewrites than are asked for".into());
    }
    if let (Some(wanted), known) = (given.precision, compiled.precision.unwrap_or_default())
        && wanted != known
    {
        return Err(format!("was compiled for products in {known}, not in {wanted}"));
    }
    if given.cached.is_some() && given.cached != compiled.cached {
        return Err("was compiled for caches of another length than is asked for".into());
    }
    if let (Some(wanted), Some(known)) = (&given.split, &compiled.split)
        && wanted != known
    {
        return Err(format!("was compiled with the split {known}, not with {wanted}"));
    }
    for (symbol, size) in given.dims.iter().flatten() {
        match compiled.dims.as_ref().and_then(|dims| dims.get(symbol)) {
            Some(known) if known == size => {}
            Some(known) => return Err(format!("was compiled with {symbol}={known}, not with {symbol}={size}")),
            None => {
                let fixed =
                    format!("was compiled for inputs of fixed shapes, so that {symbol}={size} cannot be chosen");
                return Err(fixed);
            }
        }
    }
    Ok(())
}

/// Stores a configuration as JSON text, whose maps may have numbers as keys.
pub(super) mod json {
    use crate::SessionConfig;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    pub(in super::super) fn serialize<S: Serializer>(config: &SessionConfig, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::to_string(config).map_err(ser::Error::custom)?.serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SessionConfig, D::Error> {
        let stored = serde_json::from_str(&String::deserialize(deserializer)?).map_err(de::Error::custom)?;
        SessionConfig::from_stored(&stored).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_device::{CpuGranularity, DetectOptions, GpuBackend};
    use anabranch_onnx::lower::Rewrites;
    use anabranch_plan::{PlanOptions, Residency, StreamMode};

    fn usual() -> SessionConfig {
        SessionConfig::default()
    }

    fn compiled(config: SessionConfig) -> SessionConfig {
        of(&config.resolve())
    }

    #[test]
    fn options_left_out_are_adopted_and_given_options_stay() {
        let made =
            compiled(usual().with_cpu_devices(CpuGranularity::Machine).with_strategy(Strategy::AUTO).with_dim("n", 4));
        let path = Path::new("m.anabranch");
        let (options, same) = adopted(path, &made, usual()).expect("nothing else is asked for");
        assert!(same && options.strategy == Strategy::AUTO && options.dims["n"] == 4);
        assert_eq!(options.devices.cpu_granularity, CpuGranularity::Machine);
        let other = usual().with_strategy(Strategy::CPU).without_gpu();
        let (options, same) = adopted(path, &made, other).expect("plans can be made anew");
        assert!(!same && options.devices.no_gpu && options.strategy == Strategy::CPU);
        for other in [
            usual().with_dim("n", 5),
            usual().with_dim("m", 4),
            usual().with_cached(5),
            usual().with_fusion(Rewrites::NONE),
            usual().with_precision(anabranch_kernels::op::Precision::F16),
        ] {
            let error = adopted(path, &made, other).expect_err("another program").to_string();
            assert!(error.starts_with("m.anabranch: was compiled ") && error.contains("compile`"), "{error}");
        }
    }

    #[test]
    fn each_option_is_adopted_by_itself_and_a_given_default_stays() {
        let made = usual()
            .with_cpu_devices(CpuGranularity::Core)
            .with_software_gpu(true)
            .with_gpu_backend(GpuBackend::Gl)
            .with_memory("cpu0", 1 << 30)
            .with_memory("gpu0", 1 << 28)
            .with_strategy(Strategy::AUTO)
            .with_pin("*conv*", "cpu1");
        let made = compiled(SessionConfig { stream: Some(StreamMode::Always), ..made });
        let adopted = |given| adopted(Path::new("m.anabranch"), &made, given).expect("another plan");
        let (without, same) = adopted(usual().without_gpu());
        let (devices, cpu0) = (&without.devices, ("cpu0".to_owned(), 1u64 << 30));
        assert!(!same && devices.no_gpu && !devices.software_gpu && devices.memory_overrides == [cpu0]);
        assert_eq!(devices.gpu_backend, None);
        assert!(devices.cpu_granularity == CpuGranularity::Core && without.strategy == Strategy::AUTO);
        let (both, _) = adopted(SessionConfig { colocate: Some(vec!["*bn*".into()]), ..usual() });
        assert_eq!((both.constraints.pins.len(), both.constraints.colocated.len()), (1, 1));
        let mut given = usual();
        for (name, value) in [("place", "heft"), ("stream", "auto"), ("cpu_devices", "l3"), ("pin", "")] {
            given.set(name, value).expect("known");
        }
        let (given, same) = adopted(given);
        assert!(!same && given.strategy == Strategy::default() && given.devices.cpu_granularity == CpuGranularity::L3);
        assert!(given.plan.streaming == StreamMode::Auto && given.constraints.pins.is_empty());
    }

    #[test]
    fn asking_for_a_software_gpu_or_an_interface_asks_for_a_gpu() {
        let made = compiled(usual().without_gpu());
        let adopted = |given| adopted(Path::new("m"), &made, given).expect("another plan");
        let (options, same) = adopted(usual().with_software_gpu(true));
        assert!(!same && !options.devices.no_gpu && options.devices.software_gpu);
        let (options, same) = adopted(usual().with_gpu_backend(GpuBackend::Gl));
        assert!(!same && !options.devices.no_gpu && options.devices.gpu_backend == Some(GpuBackend::Gl));
    }

    #[test]
    fn a_stored_configuration_comes_back_as_it_was() {
        let weights = Residency::Within(BTreeMap::from([(anabranch_placement_core::platform::DeviceId(1), 7)]));
        let made = usual()
            .with_devices(DetectOptions {
                slowdowns: vec![("cpu1".into(), 2.5), ("cpu0".into(), 4.0)],
                memory_overrides: vec![("gpu0".into(), 7), ("cpu0".into(), 5), ("cpu0".into(), 6)],
                ..DetectOptions::default()
            })
            .with_plan(PlanOptions::default().with_chunk(anabranch_plan::ChunkRule::Rows(7)).with_weights(weights))
            .with_strategy(Strategy::PlanFile("plans/p.json".into()))
            .with_pin("a=b,c", "cpu0")
            .with_pin("a=b,c", "cpu1")
            .with_resident("state", "cpu0")
            .with_fusion(Rewrites::ALL.without(anabranch_onnx::lower::Rewrite::ALL[0]))
            .with_dim("x[1]", 3);
        let made = compiled(made);
        let text = serde_json::to_string(&made).expect("no map has keys that JSON cannot have");
        let stored = serde_json::from_str(&text).expect("just written");
        let back = SessionConfig::from_stored(&stored).expect("just written");
        let resolved = back.clone().resolve();
        assert_eq!(format!("{resolved:?}"), format!("{:?}", made.resolve()));
        assert_eq!(resolved.devices.memory_overrides, [("cpu0".to_owned(), 6), ("gpu0".to_owned(), 7)]);
        assert_eq!((&*resolved.constraints.pins[0].device, resolved.constraints.pins.len()), ("cpu0", 1));
    }
}
