//! A device's identity over time: what its measured costs are filed under.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;

/// What makes two devices alike for the cost store: model, size and driver, but not the device's number in the machine.
///
/// Two equal GPUs share a key and so share their measurements. A new driver makes a new key, since it may compile the
/// same shader to something else. The text is for reading and comparing; it may hold any character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceKey(String);

impl DeviceKey {
    /// The key made of `parts` under `family` (`cpu`, `gpu`): joined by ` | `, blanks normalised.
    pub(crate) fn new(family: &str, parts: &[&str]) -> Self {
        let mut text = family.to_owned();
        for part in parts {
            text.push_str(" | ");
            let words: Vec<&str> = part.split_whitespace().collect();
            text.push_str(&words.join(" "));
        }
        Self(text)
    }

    /// The key of such a device that stands for one that is so many times slower.
    pub(crate) fn slowed(&self, times: f64) -> Self {
        Self(format!("{} | {times} times slower", self.0))
    }

    /// The key of such a device whose team has another number of threads than usual.
    pub(crate) fn threaded(&self, threads: usize) -> Self {
        Self(format!("{} | by {threads} threads", self.0))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_readable_and_ignores_stray_blanks() {
        let key = DeviceKey::new("cpu", &["AMD  EPYC ", "2 cores"]);
        assert_eq!(key.as_str(), "cpu | AMD EPYC | 2 cores");
        assert_ne!(key, DeviceKey::new("cpu", &["AMD EPYC", "4 cores"]));
    }
}
