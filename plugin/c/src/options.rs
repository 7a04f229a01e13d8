//! Options of a session as a JSON object.

use super::abi::anabranch_status as Status;
use super::status::{Failure, Result};
use anabranch::SessionOptions;
use anabranch::session::SETTINGS;
use serde_json::Value;

/// Option that only this interface has.
const PROFILE: (&str, &str) = ("profile", "1: reports tell when each node ran; costs a look at the clock a node");

/// Options for opening a session.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) session: SessionOptions,
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
        let given = match serde_json::from_str(text) {
            Ok(Value::Object(given)) => given,
            Ok(_) => return Err(wrong(&"the options are no JSON object")),
            Err(error) => return Err(wrong(&format_args!("the options are no JSON: {error}"))),
        };
        let mut options = Self::default();
        for (name, value) in given {
            let text = plain(&value).map_err(|why| wrong(&format_args!("option `{name}` = {value}: {why}")))?;
            match (&*name, &*text) {
                ("profile", "1" | "true") => options.profile = true,
                ("profile", "0" | "false") => options.profile = false,
                ("profile", _) => return Err(wrong(&format_args!("option `profile` = `{text}`: write true or false"))),
                _ => options.session.set(&name, &text).map_err(|error| wrong(&error))?,
            }
        }
        Ok(options)
    }
}

/// A string, or the reason why there is none.
type Text = std::result::Result<String, &'static str>;
type Parts = std::result::Result<Vec<String>, &'static str>;

/// Returns a value in the form of the command line: `2`, `cpu0,gpu0` for a list, `batch=4,length=7` for an object.
fn plain(value: &Value) -> Text {
    match value {
        Value::Array(all) => {
            let part = |value: &Value| -> Text { unseparated(scalar(value)?) };
            Ok(all.iter().map(part).collect::<Parts>()?.join(","))
        }
        Value::Object(all) => {
            let entry = |(name, value): (&String, &Value)| -> Text {
                let (name, value) = (unseparated(name.clone())?, unseparated(scalar(value)?)?);
                Ok(format!("{name}={value}"))
            };
            Ok(all.iter().map(entry).collect::<Parts>()?.join(","))
        }
        scalar_value => scalar(scalar_value),
    }
}

fn scalar(value: &Value) -> Text {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err("it is no plain value"),
    }
}

/// Checks that a part of a list stays one part on the command line.
fn unseparated(part: String) -> Text {
    match part.contains([',', '=']) {
        true => Err("names with `,` or `=` in them cannot be given, for these separate names and values"),
        false => Ok(part),
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
        assert_eq!(session.devices.threads.map(|threads| threads.get()), Some(2));
        assert_eq!((session.devices.only, session.dims["batch"]), (vec!["cpu0".to_owned(), "cpu1".to_owned()], 4));
        assert!(session.devices.no_gpu && profile);
    }

    #[test]
    fn names_that_would_fall_apart_are_refused_with_the_reason() {
        for text in [
            r#"{"devices": ["cpu0,cpu1"]}"#,
            r#"{"devices": ["a=b"]}"#,
            r#"{"dims": {"a=b": 4}}"#,
            r#"{"dims": {"a,b": 4}}"#,
            r#"{"memory": {"cpu0": "1GiB,gpu0=2GiB"}}"#,
        ] {
            let error = Options::of(text).err().expect(text).to_string();
            assert!(error.contains("names with `,` or `=`"), "{error}");
        }
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
