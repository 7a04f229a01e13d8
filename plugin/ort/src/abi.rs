//! Structures by which ONNX Runtime calls a provider, as `onnxruntime_ep_c_api.h` lays them out in version 1.23. A null
//! pointer stands for a missing function.
#![allow(non_snake_case, reason = "the names of ONNX Runtime's header")]

use ort_sys::{
    OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtKernelContext, OrtKeyValuePairs, OrtLogger, OrtNode,
    OrtSessionOptions, OrtStatusPtr,
};
use std::ffi::{c_char, c_void};

/// Version of the interface: ONNX Runtime 1.23. Hosts reject providers that require a newer version.
pub(crate) const VERSION: u32 = 23;

/// Pointer of a missing function.
pub(crate) type Absent = *const c_void;

/// Functions of a host for providers, besides `OrtApi`; further functions follow.
#[repr(C)]
pub(crate) struct EpApi {
    pub(crate) CreateEpDevice: unsafe extern "system" fn(
        factory: *mut EpFactory,
        hardware: *const OrtHardwareDevice,
        metadata: *const OrtKeyValuePairs,
        options: *const OrtKeyValuePairs,
        device: *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    pub(crate) ReleaseEpDevice: unsafe extern "system" fn(device: *mut OrtEpDevice),
    pub(crate) EpGraphSupportInfo_AddNodesToFuse: unsafe extern "system" fn(
        support: *mut c_void,
        nodes: *const *const OrtNode,
        count: usize,
        options: *const c_void,
    ) -> OrtStatusPtr,
}

/// Factory of providers.
#[repr(C)]
pub(crate) struct EpFactory {
    pub(crate) ort_version_supported: u32,
    pub(crate) GetName: unsafe extern "system" fn(*const EpFactory) -> *const c_char,
    pub(crate) GetVendor: unsafe extern "system" fn(*const EpFactory) -> *const c_char,
    pub(crate) GetSupportedDevices: unsafe extern "system" fn(
        factory: *mut EpFactory,
        hardware: *const *const OrtHardwareDevice,
        count: usize,
        devices: *mut *mut OrtEpDevice,
        room: usize,
        given: *mut usize,
    ) -> OrtStatusPtr,
    pub(crate) CreateEp: unsafe extern "system" fn(
        factory: *mut EpFactory,
        hardware: *const *const OrtHardwareDevice,
        metadata: *const *const OrtKeyValuePairs,
        count: usize,
        options: *const OrtSessionOptions,
        logger: *const OrtLogger,
        provider: *mut *mut Ep,
    ) -> OrtStatusPtr,
    pub(crate) ReleaseEp: unsafe extern "system" fn(*mut EpFactory, *mut Ep),
    pub(crate) GetVendorId: unsafe extern "system" fn(*const EpFactory) -> u32,
    pub(crate) GetVersion: unsafe extern "system" fn(*const EpFactory) -> *const c_char,
    pub(crate) ValidateCompiledModelCompatibilityInfo: Absent,
    pub(crate) CreateAllocator:
        unsafe extern "system" fn(*mut EpFactory, *const c_void, *const c_void, *mut *const c_void) -> OrtStatusPtr,
    pub(crate) ReleaseAllocator: unsafe extern "system" fn(*mut EpFactory, *const c_void),
    pub(crate) CreateDataTransfer: unsafe extern "system" fn(*mut EpFactory, *mut *const c_void) -> OrtStatusPtr,
    pub(crate) IsStreamAware: unsafe extern "system" fn(*const EpFactory) -> bool,
    pub(crate) CreateSyncStreamForDevice:
        unsafe extern "system" fn(*mut EpFactory, *const c_void, *const c_void, *mut *const c_void) -> OrtStatusPtr,
}

/// A provider, which one session uses.
#[repr(C)]
pub(crate) struct Ep {
    pub(crate) ort_version_supported: u32,
    pub(crate) GetName: unsafe extern "system" fn(*const Ep) -> *const c_char,
    pub(crate) GetCapability: unsafe extern "system" fn(*mut Ep, *const OrtGraph, *mut c_void) -> OrtStatusPtr,
    pub(crate) Compile: unsafe extern "system" fn(
        provider: *mut Ep,
        graphs: *const *const OrtGraph,
        nodes: *const *const OrtNode,
        count: usize,
        computed: *mut *mut NodeComputeInfo,
        context: *mut *mut OrtNode,
    ) -> OrtStatusPtr,
    pub(crate) ReleaseNodeComputeInfos: unsafe extern "system" fn(*mut Ep, *mut *mut NodeComputeInfo, usize),
    /// From `GetPreferredDataLayout` to `GetCompiledModelCompatibilityInfo`.
    pub(crate) others: [Absent; 8],
}

/// Functions that compute one part.
#[repr(C)]
pub(crate) struct NodeComputeInfo {
    pub(crate) ort_version_supported: u32,
    pub(crate) CreateState:
        unsafe extern "system" fn(*mut NodeComputeInfo, *const c_void, *mut *mut c_void) -> OrtStatusPtr,
    pub(crate) Compute:
        unsafe extern "system" fn(*mut NodeComputeInfo, *mut c_void, *mut OrtKernelContext) -> OrtStatusPtr,
    pub(crate) ReleaseState: unsafe extern "system" fn(*mut NodeComputeInfo, *mut c_void),
}
