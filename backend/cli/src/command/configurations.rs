//! Configurations of a model, for commands that run several of them, with their names and CSV lines.

use super::{CliError, write_with};
use anabranch::compare::{Comparison, DYNAMIC, DeviceOutcome, Outcome};
use anabranch::plan::{PlanOptions, Residency, StreamMode};
use anabranch::planning::{Order, PlanChoice};
use anabranch_report::comparison::stream_name;
use std::io::{self, Write};
use std::path::Path;

/// Returns the places that exist, on a machine with a GPU or without.
pub(super) fn usual(places: &[&str], has_gpu: bool) -> Vec<String> {
    places.iter().filter(|place| has_gpu || **place != "gpu").map(ToString::to_string).collect()
}

/// Returns every combination once, places first. The run-time scheduler, which has no plan, is not among them.
///
/// # Errors
/// If `flag` names no place but the run-time scheduler, which is compared with plans.
pub(super) fn choices(
    flag: &str,
    places: &[String],
    orders: &[Order],
    streams: &[StreamMode],
    weights: &Residency,
) -> Result<Vec<PlanChoice>, CliError> {
    let mut choices: Vec<PlanChoice> = Vec::new();
    for place in places.iter().filter(|place| *place != DYNAMIC) {
        for order in orders {
            for stream in streams {
                let plan = PlanOptions::default().with_streaming(*stream).with_weights(weights.clone());
                let choice = PlanChoice { strategy: super::open::strategy(place), order: *order, plan };
                if !choices.contains(&choice) {
                    choices.push(choice);
                }
            }
        }
    }
    match choices.is_empty() {
        true => Err(CliError::input(format!(
            "{flag}: `{DYNAMIC}` has no plan, and outputs are compared with those of the first plan; add a strategy or \
             a device, as in {flag} heft,{DYNAMIC}"
        ))),
        false => Ok(choices),
    }
}

/// Writes one line for each configuration of each model. All models have the same devices; their columns have the names
/// of the first model's devices.
pub(super) fn write_csv(path: &Path, comparisons: &[&Comparison]) -> Result<(), CliError> {
    write_with(path, |file| emit_csv(file, comparisons))
}

fn emit_csv(file: &mut dyn Write, comparisons: &[&Comparison]) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(file);
    let devices = comparisons.first().into_iter().flat_map(|comparison| &comparison.devices);
    let of_devices = devices.flat_map(|facts| DEVICE_COLUMNS.map(|(name, _)| format!("{name}_{}", facts.name)));
    let head = COLUMNS.map(|(name, _)| name.to_owned()).into_iter().chain(of_devices);
    writer.write_record(head.collect::<Vec<_>>())?;
    for comparison in comparisons {
        for outcome in &comparison.outcomes {
            let of_devices = outcome.devices.iter().flat_map(|device| DEVICE_COLUMNS.map(|(_, value)| value(device)));
            let line = COLUMNS.map(|(_, value)| value(comparison, outcome)).into_iter().chain(of_devices);
            writer.write_record(line.collect::<Vec<_>>())?;
        }
    }
    writer.flush()
}

/// Name of a column, and its cell for an item.
type Column<T> = (&'static str, fn(&T) -> String);
type ConfigurationColumn = (&'static str, fn(&Comparison, &Outcome) -> String);

/// Columns of the CSV.
const COLUMNS: [ConfigurationColumn; 22] = [
    ("model", |comparison, _| comparison.model.clone()),
    ("place", |_, outcome| outcome.configuration.place.clone()),
    ("order", |_, outcome| or_empty(outcome.configuration.order)),
    ("stream", |_, outcome| or_empty(outcome.configuration.stream.map(stream_name))),
    ("runs", |_, outcome| outcome.samples_ms.len().to_string()),
    ("callers", |comparison, _| comparison.callers.to_string()),
    ("predicted_ms", |_, outcome| or_empty(outcome.predicted_ms)),
    ("measured_ms", |_, outcome| outcome.measured_ms.median.to_string()),
    ("low_ms", |_, outcome| outcome.measured_ms.low.to_string()),
    ("high_ms", |_, outcome| outcome.measured_ms.high.to_string()),
    ("p90_ms", |_, outcome| outcome.latencies_ms.p90.to_string()),
    ("p95_ms", |_, outcome| outcome.latencies_ms.p95.to_string()),
    ("p99_ms", |_, outcome| outcome.latencies_ms.p99.to_string()),
    ("runs_per_second", |_, outcome| outcome.runs_per_second.to_string()),
    ("error_percent", |_, outcome| or_empty(outcome.error_percent)),
    ("node_error_percent", |_, outcome| or_empty(outcome.node_error_percent)),
    ("link_error_percent", |_, outcome| or_empty(outcome.link_error_percent)),
    ("predicted_traffic_bytes", |_, outcome| or_empty(outcome.predicted_traffic_bytes)),
    ("traffic_bytes", |_, outcome| outcome.traffic_bytes.to_string()),
    ("place_ms", |_, outcome| or_empty(outcome.place_ms)),
    ("same_bits", |_, outcome| outcome.outputs.same_bits.to_string()),
    ("within", |_, outcome| outcome.outputs.within.to_string()),
];

const DEVICE_COLUMNS: [Column<DeviceOutcome>; 5] = [
    ("nodes", |device| device.nodes.to_string()),
    ("predicted_utilisation", |device| or_empty(device.predicted_utilisation)),
    ("utilisation", |device| device.utilisation.to_string()),
    ("predicted_peak_bytes", |device| or_empty(device.predicted_peak_bytes)),
    ("peak_bytes", |device| device.peak_bytes.to_string()),
];

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::usual;

    #[test]
    fn without_a_gpu_it_is_no_place() {
        assert_eq!(usual(&["auto", "gpu", "cpu"], false), ["auto", "cpu"]);
        assert_eq!(usual(&["auto", "gpu"], true), ["auto", "gpu"]);
    }
}
