//! Options of a session as a JSON object.

use super::abi::anabranch_status as Status;
use super::status::{Failure, Result};
use anabranch::SessionConfig;
use anabranch::session::SETTINGS;
use serde_json::{Map, Value};

/// Option that only this interface has.
const PROFILE: (&str, &str) =
    ("profile", "true: reports hold the times of each node; this reads the clock once per node");

/// Options for opening a session.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) session: SessionConfig,
    /// Whether runs record the times of events.
    pub(crate) profile: bool,
}

impl Options {
    /// Reads options from a JSON object of names and values.
    ///
    /// # Errors
    /// If it is not an object, or an option is unknown or has an invalid value.
    pub(crate) fn of(text: &str) -> Result<Self> {
        let wrong = |why: &dyn std::fmt::Display| {
            let known: String =
                SETTINGS.iter().chain([&PROFILE]).map(|(name, what)| format!("\n  {name}: {what}")).collect();
            Failure::new(Status::Option, format_args!("{why}. The options are{known}"))
        };
        let mut given: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| wrong(&format_args!("the options are not a JSON object: {error}")))?;
        let profile = match given
            .remove(PROFILE.0)
            .map(|value| value.to_string())
            .as_deref()
            .map(|text| text.trim_matches('"'))
        {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(value) => {
                return Err(wrong(&format_args!("option `{}` = `{value}`: write true or false", PROFILE.0)));
            }
        };
        let session = serde_json::from_value(Value::Object(given)).map_err(|error| wrong(&error))?;
        Ok(Self { session, profile })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_numbers_lists_and_objects() {
        let text =
            r#"{"threads": 2, "gpu": false, "devices": ["cpu0", "cpu1"], "dims": {"batch": 4}, "profile": true}"#;
        let Options { session, profile } = Options::of(text).expect("all are known");
        let resolved = session.resolve();
        assert_eq!(resolved.devices.threads.map(|threads| threads.get()), Some(2));
        assert_eq!((resolved.devices.only, resolved.dims["batch"]), (vec!["cpu0".to_owned(), "cpu1".to_owned()], 4));
        assert!(resolved.devices.no_gpu && profile);
    }

    #[test]
    fn what_is_wrong_is_refused_with_the_list() {
        for text in
            ["", "[]", "{", r#"{"speed": 1}"#, r#"{"threads": null}"#, r#"{"dims": {"a": []}}"#, r#"{"profile": 2}"#]
        {
            let error = Options::of(text).err().expect(text).to_string();
            assert!(error.contains("\n  plan_capacity: ") && error.contains("\n  profile: "), "{error}");
        }
    }
}
