//! Sizes of a Vulkan adapter's memory heaps, which wgpu does not report. The only file of `device` with `unsafe`.

/// Bytes of an adapter's memory heaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heaps {
    /// Bytes of the heaps on the device.
    pub(super) device_local: u64,
    /// Bytes of all heaps.
    pub(super) all: u64,
}

/// Returns the heaps of `adapter`; `None` if it is not driven through Vulkan.
#[cfg(any(windows, target_os = "linux"))]
pub(super) fn heaps(adapter: &wgpu::Adapter) -> Option<Heaps> {
    // SAFETY: nothing of the adapter is destroyed: the guard is only read from and dropped at the end of this function.
    let raw = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = raw.shared_instance().raw_instance();
    // SAFETY: the physical device was enumerated from this very instance, and the guard keeps both alive.
    let properties = unsafe { instance.get_physical_device_memory_properties(raw.raw_physical_device()) };
    let mut heaps = Heaps { device_local: 0, all: 0 };
    for heap in properties.memory_heaps_as_slice() {
        heaps.all = heaps.all.saturating_add(heap.size);
        // The lowest flag is VK_MEMORY_HEAP_DEVICE_LOCAL_BIT.
        if heap.flags.as_raw() & 1 != 0 {
            heaps.device_local = heaps.device_local.saturating_add(heap.size);
        }
    }
    Some(heaps)
}

/// Returns `None`: on this system wgpu is built without Vulkan.
#[cfg(not(any(windows, target_os = "linux")))]
pub(super) fn heaps(_: &wgpu::Adapter) -> Option<Heaps> {
    None
}
