//! Converts options from Python, given as one JSON object, to the library's options.

use super::failure::{Failure, Result};
use anabranch::device::parse_bytes;
use anabranch::lower::Rewrites;
use anabranch::plan::StreamMode;
use anabranch::planning::PlanChoice;
use anabranch::session::SETTINGS;
use anabranch::{PlatformFile, RunOptions, SessionOptions, Strategy};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, from_value};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

type Set = std::result::Result<(), String>;

/// Returns a session's options. Options that are not in the object keep the library's defaults.
pub(crate) fn session(text: &str) -> Result<SessionOptions> {
    let mut options = SessionOptions::default();
    for (key, value) in serde_json::from_str::<Map<String, Value>>(text)? {
        if let Some(text) = plain(&key, &value) {
            options.set(&key, &text).map_err(Failure::argument)?;
            continue;
        }
        let shown = value.to_string();
        set(&mut options, &key, value)
            .map_err(|why| Failure::argument(format_args!("option `{key}` = {shown}: {why}")))?;
    }
    Ok(options)
}

/// Whether the library has an option of this name, whose value it reads from a string.
fn is_known(key: &str) -> bool {
    SETTINGS.iter().any(|(name, _)| *name == key)
}

/// Returns the string that the library reads for one of its own options, from a number, a string or a bool. Lists and
/// dictionaries are read here.
fn plain(key: &str, value: &Value) -> Option<String> {
    match value {
        _ if !is_known(key) => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

fn set(options: &mut SessionOptions, key: &str, value: Value) -> Set {
    let SessionOptions { devices, constraints, .. } = options;
    match key {
        "place" => {
            options.strategy = strategy(&read::<String>(value)?);
            options.stated.insert("strategy");
        }
        "devices" => devices.only = read(value)?,
        "memory" => devices.memory_overrides = memory(read(value)?)?,
        "emulate" => devices.slowdowns = read::<BTreeMap<String, f64>>(value)?.into_iter().collect(),
        "pin" => {
            let pins = read::<Vec<(String, String)>>(value)?.into_iter();
            *constraints = pins.fold(constraints.clone(), |all, (pattern, device)| all.with_pin(pattern, device));
        }
        "colocate" => constraints.colocated = read(value)?,
        "dims" => options.dims = read(value)?,
        "limits" => {
            for (name, value) in read::<BTreeMap<String, Value>>(value)? {
                let given = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                options.limits.set(&name, &given).map_err(text)?;
            }
        }
        "fuse" => options.fuse = if read(value)? { Rewrites::ALL } else { Rewrites::NONE },
        "platform" => options.platform = Some(PlatformFile::read(Path::new(&read::<String>(value)?)).map_err(text)?),
        // `plans` is the earlier name.
        "plan_capacity" | "plans" => options.plan_capacity = read(value)?,
        _ if is_known(key) => return Err("write a number, a string, or True or False".into()),
        _ => return Err("there is no such option".into()),
    }
    Ok(())
}

/// Returns the options of a run with a token, and a time limit in seconds.
pub(crate) fn run(token: &anabranch::CancelToken, timeout: Option<f64>) -> Result<RunOptions> {
    let options = RunOptions::default().with_cancel(token.clone());
    let Some(seconds) = timeout else { return Ok(options) };
    let timeout = Duration::try_from_secs_f64(seconds);
    timeout.map(|timeout| options.with_timeout(timeout)).map_err(|error| {
        Failure::argument(format_args!("option `timeout` = {seconds}: {error}; write seconds, 0 or more"))
    })
}

/// Returns every combination of places, orders and streams. `base` holds all other choices.
pub(crate) fn configurations(
    base: &PlanChoice,
    places: &[String],
    orders: &[String],
    streams: &[String],
) -> Result<Vec<PlanChoice>> {
    let mut configurations = Vec::new();
    for place in places {
        for order in orders {
            for stream in streams {
                let order = order.parse().map_err(Failure::argument)?;
                let streaming = read::<StreamMode>(Value::String(stream.clone())).map_err(Failure::argument)?;
                let plan = base.plan.clone().with_streaming(streaming);
                configurations.push(PlanChoice { strategy: strategy(place), order, plan });
            }
        }
    }
    Ok(configurations)
}

fn strategy(place: &str) -> Strategy {
    let Ok(strategy) = place.parse();
    strategy
}

fn read<T: DeserializeOwned>(value: Value) -> std::result::Result<T, String> {
    from_value(value).map_err(text)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Reads bytes by device: a number, or a string such as `2GiB`.
fn memory(limits: BTreeMap<String, Value>) -> std::result::Result<Vec<(String, u64)>, String> {
    let limit = |(device, bytes): (String, Value)| match bytes {
        Value::String(size) => parse_bytes(&size).map(|bytes| (device, bytes)).map_err(text),
        number => read(number).map(|bytes| (device, bytes)),
    };
    limits.into_iter().map(limit).collect()
}
