//! Applications that are built in: DALiuGE's simple ones, on plain bytes instead of pickled objects.

use super::content;
use anabranch_base::bytes::format_bytes;
use anabranch_base::cancel::CancelToken;
use std::time::{Duration, Instant};

/// A function of the contents of all inputs. Its result is the content of every output.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Function {
    /// All inputs, one after the other: `CopyApp`, and the node of a group-by.
    Copy,
    /// Waits, then returns nothing (`SleepApp`) or all inputs (`SleepAndCopyApp`).
    Sleep { seconds: f64, copies: bool },
    /// Sum of the numbers in the texts of all inputs: `SumupApp`.
    Sum,
    /// A greeting: `HelloWorldApp`.
    Hello(String),
    /// Returns nothing: `NullBarrierApp`.
    Nothing,
}

/// Names of the built-in applications, as messages list them.
pub(super) const KNOWN: &str = "CopyApp, SleepApp, SleepAndCopyApp, SumupApp, HelloWorldApp and NullBarrierApp";

/// Time that a sleeper sleeps before it checks for cancellation.
const NAP: Duration = Duration::from_millis(10);

/// Most seconds to sleep: a year.
const MOST_SECONDS: f64 = 3.2e7;

impl Function {
    /// Returns the function of this name (the last part of DALiuGE's `dropclass`).
    ///
    /// `field` returns the first of some fields that has a value.
    ///
    /// # Errors
    /// If a time is not valid.
    pub(super) fn of<'f>(class: &str, field: impl Fn(&[&str]) -> Option<&'f str>) -> Result<Option<Self>, String> {
        let sleep = |copies| {
            let text = field(&["sleep_time", "sleepTime", "Sleep time", "Sleep Time"]).unwrap_or("0");
            let seconds = text.parse().ok().filter(|seconds| (0.0..=MOST_SECONDS).contains(seconds));
            let seconds = seconds.ok_or_else(|| format!("sleep_time is {text:?}; give seconds from 0 to a year"))?;
            Ok(Some(Function::Sleep { seconds, copies }))
        };
        match class {
            "CopyApp" | "GroupBy" => Ok(Some(Function::Copy)),
            "SleepApp" => sleep(false),
            "SleepAndCopyApp" => sleep(true),
            "SumupApp" => Ok(Some(Function::Sum)),
            "HelloWorldApp" => Ok(Some(Function::Hello(field(&["greet", "Greet"]).unwrap_or("World").to_owned()))),
            "NullBarrierApp" => Ok(Some(Function::Nothing)),
            _ => Ok(None),
        }
    }

    /// Computes the result. `inputs` yields the contents one after the other.
    ///
    /// # Errors
    /// If an input cannot be used: its own error. If there are more than [`content::MOST_MEMORY`] bytes, or the run is
    /// cancelled.
    pub(super) fn call(
        &self,
        inputs: &mut dyn Iterator<Item = Result<Vec<u8>, String>>,
        token: &CancelToken,
    ) -> Result<Vec<u8>, String> {
        if let Function::Sleep { seconds, .. } = self {
            sleep(Duration::from_secs_f64(*seconds), token)?;
        }
        match self {
            Function::Copy | Function::Sleep { copies: true, .. } => joined(inputs),
            Function::Sleep { .. } | Function::Nothing => Ok(Vec::new()),
            Function::Sum => sum(inputs),
            Function::Hello(name) => Ok(format!("Hello {name}").into_bytes()),
        }
    }
}

fn joined(inputs: &mut dyn Iterator<Item = Result<Vec<u8>, String>>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for input in inputs {
        let input = input?;
        if (bytes.len() + input.len()) as u64 > content::MOST_MEMORY {
            return Err(format!(
                "its inputs together are larger than {}, the limit of a function; use a command",
                format_bytes(content::MOST_MEMORY)
            ));
        }
        bytes.extend_from_slice(&input);
    }
    Ok(bytes)
}

fn sum(inputs: &mut dyn Iterator<Item = Result<Vec<u8>, String>>) -> Result<Vec<u8>, String> {
    let mut sum = 0.0;
    for input in inputs {
        let input = input?;
        for word in String::from_utf8_lossy(&input).split_whitespace() {
            sum += word.parse::<f64>().map_err(|_| format!("{word:.40?} in an input is not a number"))?;
        }
    }
    Ok(format!("{sum}\n").into_bytes())
}

fn sleep(time: Duration, token: &CancelToken) -> Result<(), String> {
    let since = Instant::now();
    while let Some(left) = time.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
        if token.is_cancelled() {
            return Err("cancelled".to_owned());
        }
        std::thread::sleep(left.min(NAP));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_what_they_are_called() {
        let call = |class: &str, field: Option<&'static str>, inputs: &[&str]| {
            let function = Function::of(class, |_| field)?.ok_or("unknown")?;
            let mut inputs = inputs.iter().map(|text| Ok(text.as_bytes().to_vec()));
            function.call(&mut inputs, &CancelToken::new()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        assert_eq!(call("CopyApp", None, &["a", "", "b"]).as_deref(), Ok("ab"));
        assert_eq!(call("SleepAndCopyApp", Some("0.001"), &["a"]).as_deref(), Ok("a"));
        assert_eq!(call("SleepApp", None, &["a"]).as_deref(), Ok(""));
        assert_eq!(call("SumupApp", None, &["1 2\n", "-0.5"]).as_deref(), Ok("2.5\n"));
        assert_eq!(call("HelloWorldApp", Some("all"), &[]).as_deref(), Ok("Hello all"));
        assert!(call("SumupApp", None, &["1 two"]).unwrap_err().contains("\"two\""));
        for time in ["-1", "NaN", "1e300", "soon"] {
            assert!(call("SleepApp", Some(time), &[]).unwrap_err().contains("sleep_time"), "{time}");
        }
        assert_eq!(call("RandomArrayApp", None, &[]), Err("unknown".to_owned()));
        let token = CancelToken::new();
        token.cancel();
        assert!(Function::Sleep { seconds: 1e6, copies: false }.call(&mut std::iter::empty(), &token).is_err());
    }
}
