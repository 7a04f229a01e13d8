//! Devices of Anabranch among those that ONNX Runtime lets applications choose from.

use super::abi::EpFactory;
use super::api::Api;
use super::status::{Failure, Result};
use anabranch::DeviceKind;
use anabranch::device::{DetectOptions, DeviceRef, detect};
use ort_sys::{OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType as Hardware, OrtKeyValuePairs};
use std::ffi::CString;
use std::ptr;

/// Key of a device's name in its metadata.
const DEVICE: &str = "anabranch.device";

/// Makes a choice for each device: a GPU belongs to a GPU that ONNX Runtime knows, all others to the CPU.
///
/// # Errors
/// If the host fails.
///
/// # Safety
/// `factory` must be the one that ONNX Runtime asks, and `hardware` must come from ONNX Runtime.
pub(crate) unsafe fn choices(
    api: Api,
    factory: *mut EpFactory,
    hardware: &[*const OrtHardwareDevice],
    room: &mut [*mut OrtEpDevice],
) -> Result<usize> {
    // SAFETY: by this function's contract.
    let find = |kind| hardware.iter().copied().find(|device| unsafe { (api.ort.HardwareDevice_Type)(*device) } == kind);
    let cpu = find(Hardware::OrtHardwareDeviceType_CPU);
    let gpu = find(Hardware::OrtHardwareDeviceType_GPU).or(cpu);
    let inventory = detect(&DetectOptions::default()).map_err(Failure::new)?;
    let mut given = 0;
    for device in inventory.devices() {
        let (kind, at) = match device {
            DeviceRef::Cpu(_) => (DeviceKind::Cpu, cpu),
            DeviceRef::Gpu(_) => (DeviceKind::Gpu, gpu),
        };
        let (Some(at), Some(place)) = (at, room.get_mut(given)) else { continue };
        let entries = [
            (DEVICE, device.name().to_owned()),
            ("anabranch.kind", format!("{kind:?}").to_lowercase()),
            ("anabranch.memory_bytes", device.memory().to_string()),
            ("anabranch.key", device.key().to_owned()),
        ];
        // SAFETY: by this function's contract; the metadata is copied, and released once.
        unsafe {
            let metadata = pairs(api, &entries)?;
            let made = (api.ep.CreateEpDevice)(factory, at, metadata, ptr::null(), place);
            (api.ort.ReleaseKeyValuePairs)(metadata);
            api.done(made)?;
        }
        given += 1;
    }
    Ok(given)
}

/// Returns a set of keys and values, which the caller releases.
fn pairs(api: Api, entries: &[(&str, String)]) -> Result<*mut OrtKeyValuePairs> {
    let text = |text: &str| CString::new(text).map_err(Failure::new);
    let texts: Vec<(CString, CString)> =
        entries.iter().map(|(key, value)| Ok((text(key)?, text(value)?))).collect::<Result<_>>()?;
    let mut pairs = ptr::null_mut();
    // SAFETY: strings end with a zero byte, and are copied.
    unsafe {
        (api.ort.CreateKeyValuePairs)(&raw mut pairs);
        texts.iter().for_each(|(key, value)| (api.ort.AddKeyValuePair)(pairs, key.as_ptr(), value.as_ptr()));
    }
    Ok(pairs)
}

/// Returns the names of the devices that a session was given. At least one is a CPU device, because some nodes run
/// nowhere else.
///
/// # Safety
/// `metadata` must be the metadata that ONNX Runtime gave for the chosen devices.
pub(crate) unsafe fn chosen(api: Api, metadata: &[*const OrtKeyValuePairs]) -> Vec<String> {
    // SAFETY: by this function's contract.
    let entries = metadata.iter().flat_map(|pairs| unsafe { api.pairs(*pairs) });
    let mut names: Vec<String> = entries.filter(|(key, _)| key == DEVICE).map(|(_, name)| name).collect();
    if !names.is_empty() && !names.iter().any(|name| name.starts_with("cpu")) {
        names.insert(0, "cpu0".to_owned());
    }
    names
}
