//! Vulkan's validation layer beneath the tests, if `ANABRANCH_TEST_VALIDATION` is set: it sees what wgpu asks of the
//! driver. The loader leaves a layer out that it does not find, so that a test checks that it is there.

use std::env;
use std::io::Write;

/// The layer's library, on Linux.
const LAYER: &str = "libVkLayer_khronos_validation.so";

/// Message of layers such as Debian 12's (1.3.239), which do not know that WGSL is a source language.
const OUTDATED: &str = "Invalid source language operand: 10";

/// Whether the tests run under the layer.
fn is_wanted() -> bool {
    env::var_os("ANABRANCH_TEST_VALIDATION").is_some()
}

/// Returns the flags of the tests' instance. Every error that the layer reports then ends the process.
pub(crate) fn flags() -> wgpu::InstanceFlags {
    if !is_wanted() {
        return wgpu::InstanceFlags::default();
    }
    // A second call finds the logger set.
    let _ = log::set_logger(&Strict);
    log::set_max_level(log::LevelFilter::Error);
    wgpu::InstanceFlags::default() | wgpu::InstanceFlags::VALIDATION | wgpu::InstanceFlags::DEBUG
}

/// wgpu writes the layer's messages to the log.
struct Strict;

impl log::Log for Strict {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        let is_message = record.level() == log::Level::Error && text.starts_with("VALIDATION");
        if is_message && !text.contains(OUTDATED) {
            // The harness keeps what a test prints, and wgpu catches panics here.
            let _ = writeln!(std::io::stderr(), "{text}");
            std::process::abort();
        }
    }

    fn flush(&self) {}
}

#[test]
fn the_validation_layer_is_there_if_it_is_wanted() {
    let gpu = super::testing::gpu();
    if !is_wanted() || !cfg!(target_os = "linux") {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
    assert!(maps.contains(LAYER), "{LAYER} is not loaded: install the package vulkan-validationlayers");
    assert_eq!(gpu.fault(), None);
}
