//! Memory limits hold before anything runs, and a run never takes more than its plan.

use anabranch::device::CpuGranularity;
use anabranch::execute::RunOptions;
use anabranch::session::{Session, SessionConfig};
use anabranch_tests::{MODELS, assert_close, options, reference, session};

/// Returns options for one CPU device and the GPU, with these limits.
fn limited(place: &str, limits: &[(String, u64)]) -> SessionConfig {
    let options = options(place).with_cpu_devices(CpuGranularity::Machine);
    limits.iter().fold(options, |options, (name, bytes)| options.with_memory(name, *bytes))
}

/// Returns the peaks of a session's plan, by device.
fn peaks(session: &Session, name: &str) -> Vec<(String, u64)> {
    let prepared = session.prepare(&reference(name).0).expect("unlimited");
    let devices = prepared.plan().devices().iter().zip(prepared.plan().memory().devices());
    devices.map(|(device, memory)| (device.name.clone(), memory.peak())).collect()
}

#[test]
fn the_measured_peak_is_at_most_the_planned_one() {
    for name in MODELS {
        for place in ["heft", "mite", "gpu"] {
            let session = session(name, options(place));
            let planned = peaks(&session, name);
            let (inputs, _) = reference(name);
            for _ in 0..3 {
                let run = session.run_with(&inputs, &RunOptions::default()).expect("runs");
                for ((device, planned), measured) in planned.iter().zip(&run.measured.peaks) {
                    assert!(measured <= planned, "{name} by {place} on {device}: {measured} bytes, {planned} planned");
                    assert!(*measured > 0 || *planned == 0, "{name} by {place} on {device}: nothing was measured");
                }
            }
        }
    }
}

#[test]
fn a_limit_at_the_peak_passes_and_one_byte_less_is_refused() {
    for (place, device) in [("cpu", "cpu0"), ("gpu", "gpu0")] {
        let limits = peaks(&session("unet", limited(place, &[])), "unet");
        let (inputs, _) = reference("unet");
        session("unet", limited(place, &limits)).run(&inputs).expect("a limit at the peak passes");
        let mut less = limits;
        less.iter_mut().filter(|(name, _)| name == device).for_each(|(_, bytes)| *bytes -= 1);
        // No other device can take the values of the CPU: the GPU is too small for anything.
        if place == "cpu" {
            less.iter_mut().filter(|(name, _)| name == "gpu0").for_each(|(_, bytes)| *bytes = 0);
        }
        let session = session("unet", limited(place, &less));
        match session.prepare(&inputs) {
            Err(refused) => {
                let message = refused.to_string();
                assert!(message.contains(device) && message.contains("node"), "{message}");
            }
            // The plan fits because values moved off the device.
            Ok(prepared) => {
                assert_eq!(place, "gpu", "one byte is missing on the only device that is left");
                let peaks = prepared.plan().memory().devices().iter().map(|memory| memory.peak());
                assert!(peaks.zip(&less).all(|(peak, (_, limit))| peak <= *limit));
            }
        }
    }
}

#[test]
fn a_model_that_fits_nowhere_is_refused_by_name() {
    let limits = [("cpu0".to_owned(), 1000), ("gpu0".to_owned(), 1000)];
    let session = session("convnet", limited("heft", &limits));
    let message = session.run(&reference("convnet").0).expect_err("1000 bytes hold no model").to_string();
    assert!(message.contains("1000") && (message.contains("cpu0") || message.contains("gpu0")), "{message}");
}

#[test]
fn what_was_moved_for_memory_runs_within_the_limits() {
    for name in ["fire", "unet", "vit"] {
        let (inputs, references) = reference(name);
        let peak = |place: &str| peaks(&session(name, limited(place, &[])), name)[0].1;
        let limit = (peak("cpu") + peak("gpu")) / 2;
        let session = session(name, limited("cpu", &[("cpu0".into(), limit)]));
        for _ in 0..2 {
            let run = session.run_with(&inputs, &RunOptions::default()).expect("the GPU has room");
            assert_close(name, &run.outputs, &references);
            let measured = run.measured.peaks[0];
            assert!(measured <= limit, "{name}: {measured} bytes of {limit}");
        }
    }
}
