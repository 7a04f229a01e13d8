//! What ONNX Runtime finds in this library: a factory of providers.

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

/// [`NAME`](super::options::NAME) as ONNX Runtime reads it.
pub(crate) const NAME_TEXT: &CStr = c"AnabranchExecutionProvider";

const VENDOR: &CStr = c"Anabranch";

/// Providers of software have no number of a vendor of devices.
const VENDOR_ID: u32 = 0;

/// It begins with what ONNX Runtime knows of it.
#[repr(C)]
struct Factory {
    base: EpFactory,
    api: Api,
}

/// Gives ONNX Runtime the factory.
///
/// # Safety
/// ONNX Runtime calls it, with its functions and room for a factory.
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
    // SAFETY: as this function's.
    match unsafe { Api::of(base) } {
        Err(ort) => guarded(ort, || {
            Err(Failure::new(format_args!(
                "this release of ONNX Runtime is older than 1.{VERSION}; install a newer one"
            )))
        }),
        Ok(api) => guarded(api.ort, || {
            if room == 0 {
                return Err(Failure::new("there is no room for a factory"));
            }
            let factory = Box::into_raw(Box::new(Factory { base: table(), api }));
            // SAFETY: as this function's; there is room.
            unsafe {
                *factories = factory.cast();
                *given = 1;
            }
            Ok(())
        }),
    }
}

/// Takes the factory back.
///
/// # Safety
/// ONNX Runtime calls it, once, with what [`CreateEpFactories`] gave it.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name that ONNX Runtime looks for")]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut c_void) -> OrtStatusPtr {
    // SAFETY: as this function's.
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
    // SAFETY: ONNX Runtime gives what `CreateEpFactories` gave it, `count` devices, and room for `room` choices.
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
    // SAFETY: ONNX Runtime gives what `CreateEpFactories` gave it, the metadata of `count` devices, and where to write.
    unsafe {
        let api = (*factory.cast::<Factory>()).api;
        guarded(api.ort, || {
            let mut options = Options::of(&api.entries(options)?)?;
            if !options.other_devices {
                let chosen = devices::chosen(api, listed(metadata, count));
                // Without a GPU, no driver is loaded.
                options.session.devices.no_gpu = !chosen.iter().any(|name| name.starts_with("gpu"));
                options.session.devices.only = chosen;
            }
            *provider = Box::into_raw(Box::new(Provider::new(api, logger, options))).cast();
            Ok(())
        })
    }
}

/// What `count` pointers point to; nothing if there are none.
///
/// # Safety
/// There must be as many.
unsafe fn listed<'a, T>(first: *const *const T, count: usize) -> &'a [*const T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: as this function's.
    unsafe { slice::from_raw_parts(first, count) }
}

unsafe extern "system" fn release(factory: *mut EpFactory, provider: *mut Ep) {
    // SAFETY: ONNX Runtime gives back what `create` gave it, once.
    let status = unsafe {
        guarded((*factory.cast::<Factory>()).api.ort, || {
            drop(Box::from_raw(provider.cast::<Provider>()));
            Ok(())
        })
    };
    // There is nobody to tell.
    let _ = status;
}

// Tensors stay in the host's memory, where ONNX Runtime has its own allocators and no transfers or streams are needed.

unsafe extern "system" fn no_allocator(
    _: *mut EpFactory,
    _: *const c_void,
    _: *const c_void,
    allocator: *mut *const c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime says where to write.
    unsafe { *allocator = ptr::null() };
    OrtStatusPtr::default()
}

unsafe extern "system" fn release_no_allocator(_: *mut EpFactory, _: *const c_void) {}

unsafe extern "system" fn no_data_transfer(_: *mut EpFactory, transfer: *mut *const c_void) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime says where to write.
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
    // SAFETY: ONNX Runtime says where to write.
    unsafe { *stream = ptr::null() };
    OrtStatusPtr::default()
}
