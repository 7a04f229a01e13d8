//! Traces in files of either format.

use super::{CliError, write_with};
use anabranch_report::tensors::ending;
use anabranch_report::trace::Trace;
use clap::ValueEnum;
use std::path::Path;

/// A format of traces.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceFormat {
    /// Chrome's trace events, which Perfetto opens
    Chrome,
    /// Paje
    Paje,
}

/// Writes a trace in this format, or in the format of the file's extension.
pub(super) fn write(path: &Path, format: Option<TraceFormat>, trace: &Trace) -> Result<(), CliError> {
    let by_name = match ending(path).as_deref() {
        Some("paje") => TraceFormat::Paje,
        _ => TraceFormat::Chrome,
    };
    match format.unwrap_or(by_name) {
        TraceFormat::Chrome => write_with(path, |file| trace.write_chrome(file)),
        TraceFormat::Paje => write_with(path, |file| trace.write_paje(file)),
    }
}
