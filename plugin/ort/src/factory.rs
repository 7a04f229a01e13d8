//! Entry point for ONNX Runtime: a factory of providers.

use super::abi::{Ep, EpFactory, VERSION};
use super::api::Api;
use super::devices;
use super::options::Options;
use super::provider::Provider;
use super::status::{Failure, guarded};
use ort_sys::{
    OrtApiBase, OrtEpDevice, OrtHardwareDevice, OrtKeyValuePairs, OrtLogger, OrtSessionOptions, OrtStatusPtr,
};
use std::ffi::{CStr, c_char, c_void};
use std::{ptr, slice};

/// [`NAME`](super::options::NAME) as a C string.
pub(crate) const NAME_TEXT: &CStr = c"AnabranchExecutionProvider";

const VENDOR: &CStr = c"Anabranch";

/// Providers of software have no vendor number of devices.
const VENDOR_ID: u32 = 0;

/// The factory. It begins with the fields that ONNX Runtime knows.
#[repr(C)]
struct Factory {
    base: EpFactory,
    api: Api,
}

/// Returns the factory to ONNX Runtime.
///
/// # Safety
/// ONNX Runtime calls it, with its functions and memory for a factory.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name that ONNX Runtime looks for")]
pub unsafe extern "C" fn CreateEpFactories(
    _name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    factories: *mut *mut c_void,
    room: usize,
    given: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: by this function's contract.
    match unsafe { Api::of(base) } {
        Err(ort) => guarded(ort, || {
            Err(Failure::new(format_args!(
                "this release of ONNX Runtime is older than 1.{VERSION}; install a newer one"
            )))
        }),
        Ok(api) => guarded(api.ort, || {
            if room == 0 {
                return Err(Failure::new("ONNX Runtime gives no space for a factory"));
            }
            let factory = Box::into_raw(Box::new(Factory { base: table(), api }));
            // SAFETY: by this function's contract; there is room.
            unsafe {
                *factories = factory.cast();
                *given = 1;
            }
            Ok(())
        }),
    }
}

/// Frees the factory.
///
/// # Safety
/// ONNX Runtime calls it, once, with the pointer from [`CreateEpFactories`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name that ONNX Runtime looks for")]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut c_void) -> OrtStatusPtr {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(factory.cast::<Factory>()) });
    OrtStatusPtr::default()
}

fn table() -> EpFactory {
    EpFactory {
        ort_version_supported: VERSION,
        GetName: name,
        GetVendor: vendor,
        GetSupportedDevices: supported_devices,
        CreateEp: create,
        ReleaseEp: release,
        GetVendorId: vendor_id,
        GetVersion: version,
        ValidateCompiledModelCompatibilityInfo: ptr::null(),
        CreateAllocator: no_allocator,
        ReleaseAllocator: release_no_allocator,
        CreateDataTransfer: no_data_transfer,
        IsStreamAware: no_streams,
        CreateSyncStreamForDevice: no_stream,
    }
}

unsafe extern "system" fn name(_: *const EpFactory) -> *const c_char {
    NAME_TEXT.as_ptr()
}

unsafe extern "system" fn vendor(_: *const EpFactory) -> *const c_char {
    VENDOR.as_ptr()
}

unsafe extern "system" fn vendor_id(_: *const EpFactory) -> u32 {
    VENDOR_ID
}

unsafe extern "system" fn version(_: *const EpFactory) -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

unsafe extern "system" fn supported_devices(
    factory: *mut EpFactory,
    hardware: *const *const OrtHardwareDevice,
    count: usize,
    choices: *mut *mut OrtEpDevice,
    room: usize,
    given: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the pointer from `CreateEpFactories`, `count` devices, and room for `room` choices.
    unsafe {
        let api = (*factory.cast::<Factory>()).api;
        guarded(api.ort, || {
            let (hardware, choices) = (listed(hardware, count), slice::from_raw_parts_mut(choices, room));
            *given = devices::choices(api, factory, hardware, choices)?;
            Ok(())
        })
    }
}

unsafe extern "system" fn create(
    factory: *mut EpFactory,
    _hardware: *const *const OrtHardwareDevice,
    metadata: *const *const OrtKeyValuePairs,
    count: usize,
    options: *const OrtSessionOptions,
    logger: *const OrtLogger,
    provider: *mut *mut Ep,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the pointer from `CreateEpFactories`, the metadata of `count` devices, and a writable
    // pointer.
    unsafe {
        let api = (*factory.cast::<Factory>()).api;
        guarded(api.ort, || {
            let mut options = Options::of(&api.entries(options)?)?;
            if !options.other_devices {
                let chosen = devices::chosen(api, listed(metadata, count));
                // Without a GPU, no driver is loaded.
                options.session.gpu = Some(chosen.iter().any(|name| name.starts_with("gpu")));
                options.session.devices = Some(chosen);
            }
            *provider = Box::into_raw(Box::new(Provider::new(api, logger, options))).cast();
            Ok(())
        })
    }
}

/// Returns a list of `count` pointers; empty if it is null.
///
/// # Safety
/// `first` must be null or point to `count` pointers.
unsafe fn listed<'a, T>(first: *const *const T, count: usize) -> &'a [*const T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { slice::from_raw_parts(first, count) }
}

unsafe extern "system" fn release(factory: *mut EpFactory, provider: *mut Ep) {
    // SAFETY: ONNX Runtime passes the pointer that `create` returned, once.
    let status = unsafe {
        guarded((*factory.cast::<Factory>()).api.ort, || {
            drop(Box::from_raw(provider.cast::<Provider>()));
            Ok(())
        })
    };
    // The error cannot be reported: this function returns nothing.
    let _ = status;
}

// Tensors stay in the host's memory. ONNX Runtime has its own allocators for it, and needs no transfers or streams.

unsafe extern "system" fn no_allocator(
    _: *mut EpFactory,
    _: *const c_void,
    _: *const c_void,
    allocator: *mut *const c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a writable pointer.
    unsafe { *allocator = ptr::null() };
    OrtStatusPtr::default()
}

unsafe extern "system" fn release_no_allocator(_: *mut EpFactory, _: *const c_void) {}

unsafe extern "system" fn no_data_transfer(_: *mut EpFactory, transfer: *mut *const c_void) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a writable pointer.
    unsafe { *transfer = ptr::null() };
    OrtStatusPtr::default()
}

unsafe extern "system" fn no_streams(_: *const EpFactory) -> bool {
    false
}

unsafe extern "system" fn no_stream(
    _: *mut EpFactory,
    _: *const c_void,
    _: *const c_void,
    stream: *mut *const c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a writable pointer.
    unsafe { *stream = ptr::null() };
    OrtStatusPtr::default()
}
