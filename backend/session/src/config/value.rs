//! Values of options, as text or JSON.

use crate::OnDeviceLoss;
use anabranch_base::bytes::parse_bytes;
use anabranch_costs::CostStore;
use anabranch_onnx::import::Limits;
use anabranch_onnx::lower::Rewrites;
use anabranch_plan::{ChunkRule, Residency, StreamMode};
use anabranch_planning::PlatformFile;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

pub(super) fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<T, String> {
    text(value)?.parse().map_err(message)
}

pub(super) fn truth(value: &Value) -> Result<bool, String> {
    match &*text(value)? {
        "1" | "true" | "True" => Ok(true),
        "0" | "false" | "False" => Ok(false),
        _ => Err("write 1 or 0".into()),
    }
}

pub(super) fn list(value: &Value) -> Result<Vec<String>, String> {
    entries(value)?.iter().map(text).collect()
}

/// Returns bytes by device.
pub(super) fn memory(value: &Value) -> Result<BTreeMap<String, u64>, String> {
    let limit = |(device, bytes): (String, String)| Ok((device, parse_bytes(&bytes).map_err(message)?));
    named_once(map(value)?.into_iter().map(limit).collect::<Result<_, String>>()?)
}

/// Returns devices by patterns or names, in their order.
pub(super) fn pins(value: &Value) -> Result<Vec<(String, String)>, String> {
    let pins = map(value)?;
    named_once(pins.clone())?;
    Ok(pins)
}

pub(super) fn stream(value: &Value) -> Result<StreamMode, String> {
    one_of(value, [("off", StreamMode::Off), ("auto", StreamMode::Auto), ("always", StreamMode::Always)])
}

pub(super) fn chunk(value: &Value) -> Result<ChunkRule, String> {
    if value.is_object() { stored(value) } else { parsed(value) }
}

pub(super) fn weights(value: &Value) -> Result<Residency, String> {
    let named = [("resident", Residency::Resident), ("staged", Residency::Staged), ("auto", Residency::Auto)];
    if value.is_object() { stored(value) } else { one_of(value, named) }
}

/// Returns all or no rewrites for a bool, and the rewrites that a JSON list names.
pub(super) fn rewrites(value: &Value) -> Result<Rewrites, String> {
    let Value::Array(names) = value else {
        return Ok(if truth(value)? { Rewrites::ALL } else { Rewrites::NONE });
    };
    names.iter().try_fold(Rewrites::NONE, |all, name| Ok(all.with(text(name)?.parse().map_err(message)?)))
}

pub(super) fn costs(value: &Value) -> Result<CostStore, String> {
    Ok(CostStore::load(text(value)?.as_ref()).map_err(message)?.store)
}

pub(super) fn platform(value: &Value) -> Result<PlatformFile, String> {
    PlatformFile::read(text(value)?.as_ref()).map_err(message)
}

pub(super) fn on_device_loss(value: &Value) -> Result<OnDeviceLoss, String> {
    one_of(value, [("fail", OnDeviceLoss::Fail), ("replace", OnDeviceLoss::Replace)])
}

/// Returns the default limits, changed by those that are named.
pub(super) fn limits(value: &Value) -> Result<Limits, String> {
    let mut limits = Limits::default();
    named_once(map(value)?)?.iter().try_for_each(|(name, value)| limits.set(name, value)).map_err(message)?;
    Ok(limits)
}

/// Returns a value from the form in which compiled models store it.
fn stored<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(message)
}

fn message(error: impl Display) -> String {
    error.to_string()
}

/// Returns a value that is no list and no map as text.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err("write a number, a string or a bool".into()),
    }
}

/// Returns the value of this name among the known values.
fn one_of<T, const N: usize>(value: &Value, known: [(&str, T); N]) -> Result<T, String> {
    let name = text(value)?;
    let names = known.each_ref().map(|(name, _)| *name).join(", ");
    let found = known.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, meant)| meant).ok_or_else(|| format!("write one of {names}"))
}

/// Returns the entries of a list, or of a text that is JSON or has commas between them.
fn entries(value: &Value) -> Result<Vec<Value>, String> {
    let parsed;
    let value = match value {
        Value::String(text) if text.trim_start().starts_with(['[', '{']) => {
            parsed = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
            &parsed
        }
        other => other,
    };
    match value {
        Value::String(text) => {
            Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Value::from).collect())
        }
        Value::Array(all) => Ok(all.clone()),
        Value::Object(all) => {
            Ok(all.iter().map(|(name, value)| Value::from([name.clone().into(), value.clone()])).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Err("write a list, or a string with commas in it".into()),
    }
}

/// Returns the entries of an object, of a list of pairs, or of texts `NAME=VALUE`, in their order.
fn map(value: &Value) -> Result<Vec<(String, String)>, String> {
    let pair = |entry: &Value| match entry {
        Value::Array(pair) => match &pair[..] {
            [name, value] => Ok((text(name)?, text(value)?)),
            _ => Err("write pairs of a name and a value".into()),
        },
        other => {
            let entry = text(other)?;
            let (name, value) = entry.rsplit_once('=').ok_or("write NAME=VALUE")?;
            Ok((name.to_owned(), value.to_owned()))
        }
    };
    entries(value)?.iter().map(pair).collect()
}

pub(super) fn parsed_map<T: FromStr<Err: Display> + Display>(value: &Value) -> Result<BTreeMap<String, T>, String> {
    let entry = |(name, value): (String, String)| match value.parse() {
        Ok(value) => Ok((name, value)),
        Err(error) => Err(format!("{name}: {error}")),
    };
    named_once(map(value)?.into_iter().map(entry).collect::<Result<_, _>>()?)
}

/// Collects the values by name.
///
/// # Errors
/// If two values have the same name.
fn named_once<T: Display>(given: Vec<(String, T)>) -> Result<BTreeMap<String, T>, String> {
    let mut all = BTreeMap::new();
    for (name, value) in given {
        if let Some(first) = all.get(&name) {
            return Err(format!("{name} is given twice, as {first} and as {value}; leave out one of them"));
        }
        all.insert(name, value);
    }
    Ok(all)
}
