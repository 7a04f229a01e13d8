//! Options that an application sets for the provider.

use super::status::{Failure, Result};
use anabranch::SessionConfig;
use anabranch::session::SETTINGS;
use std::path::PathBuf;

/// Name of the provider in ONNX Runtime.
pub(crate) const NAME: &str = "AnabranchExecutionProvider";

/// Option that only the provider has.
const REPORT: (&str, &str) = ("report", "a file for a report on the nodes that run here, and the reasons for others");

/// Options of sessions that do not apply here: parts have no file or open dimensions, ONNX Runtime decides whether
/// there are GPUs, and parts only run.
const OTHERS: [&str; 4] = ["gpu", "dims", "limits", "platform"];

/// Options of the provider.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) session: SessionConfig,
    pub(crate) report: Option<PathBuf>,
    /// Whether the options choose the devices. The names of a session's chosen devices then refer to other devices.
    pub(crate) other_devices: bool,
}

impl Options {
    /// Reads the entries of a session's configuration that are for this provider.
    ///
    /// # Errors
    /// If an option is unknown or has an invalid value.
    pub(crate) fn of(entries: &[(String, String)]) -> Result<Self> {
        let prefix = format!("ep.{}.", NAME.to_lowercase());
        let mut options = Self { session: SessionConfig::default(), report: None, other_devices: false };
        for (key, value) in entries {
            if let Some(key) = key.strip_prefix(&prefix) {
                options.set(key, value).map_err(|why| wrong(&why))?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> std::result::Result<(), String> {
        match key {
            "report" => self.report = Some(value.into()),
            _ if OTHERS.contains(&key) => return Err(format!("option `{key}` is not an option of the provider")),
            _ => self.session.set(key, value).map_err(|error| error.to_string())?,
        }
        self.other_devices |= ["devices", "cpu_devices", "software_gpu", "gpu_backend"].contains(&key);
        Ok(())
    }
}

fn wrong(why: &str) -> Failure {
    let known = SETTINGS.iter().filter(|(key, _)| !OTHERS.contains(key)).chain([&REPORT]);
    let known: String = known.map(|(key, what)| format!("\n  {key}: {what}")).collect();
    Failure::argument(format_args!("{why}. The options are{known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(entries: &[(&str, &str)]) -> Result<Options> {
        let prefixed =
            |(key, value): &(&str, &str)| (format!("ep.anabranchexecutionprovider.{key}"), value.to_string());
        Options::of(&entries.iter().map(prefixed).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_those_of_sessions_and_a_report_and_others_refused_with_the_list() {
        let given = [("devices", "cpu0, gpu0"), ("memory", "cpu0=1GiB"), ("place", "auto"), ("report", "report.json")];
        let options = options(&given).expect("all are known");
        assert_eq!(options.session.devices, Some(vec!["cpu0".to_owned(), "gpu0".to_owned()]));
        assert_eq!(options.session.memory, Some([("cpu0".to_owned(), 1 << 30)].into()));
        assert!(options.other_devices && options.session.place == Some(anabranch::Strategy::AUTO));
        assert_eq!(options.report, Some("report.json".into()));
        for wrong in [("speed", "11"), ("threads", "0"), ("dims", "batch=1"), ("gpu", "0"), ("memory", "much")] {
            let error = super::tests::options(&[wrong]).expect_err("wrong").to_string();
            assert!(
                error.contains(&format!("option `{}`", wrong.0)) && error.contains("\n  cpu_devices: cores"),
                "{error}"
            );
            assert!(error.contains("\n  report: ") && !error.contains("\n  dims: "), "{error}");
        }
        let others = Options::of(&[("session.intra_op_num_threads".into(), "4".into())]).expect("another's");
        assert!(!others.other_devices);
    }
}
