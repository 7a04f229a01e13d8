//! Memory heaps and types of a Vulkan adapter, which wgpu does not report. The only file of `device` with `unsafe`.

use super::heaps::Heaps;

/// Returns the heaps of `adapter`; `None` if it is not driven through Vulkan.
#[cfg(any(windows, target_os = "linux"))]
pub(super) fn heaps(adapter: &wgpu::Adapter) -> Option<Heaps> {
    use super::heaps::{Heap, MemoryType};
    use ash::{ext, vk};

    // SAFETY: nothing of the adapter is destroyed: the guard is only read from and dropped at the end of this function.
    let raw = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let capabilities = raw.physical_device_capabilities();
    let is_new =
        raw.shared_instance().instance_api_version().min(capabilities.properties().api_version) >= vk::API_VERSION_1_1;
    let has_budgets = is_new && capabilities.supports_extension(ext::memory_budget::NAME);
    let instance = raw.shared_instance().raw_instance();
    let device = raw.raw_physical_device();
    let mut budgets = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let properties = if has_budgets {
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budgets);
        // SAFETY: the physical device was enumerated from this very instance, and the guard keeps both alive. Both are
        // of Vulkan 1.1, which has this function, and the driver knows the structure in the chain.
        unsafe { instance.get_physical_device_memory_properties2(device, &mut properties) };
        properties.memory_properties
    } else {
        // SAFETY: the physical device was enumerated from this very instance, and the guard keeps both alive.
        unsafe { instance.get_physical_device_memory_properties(device) }
    };
    let heap = |(at, heap): (usize, &vk::MemoryHeap)| Heap {
        bytes: heap.size,
        budget: has_budgets.then(|| budgets.heap_budget.get(at).copied()).flatten(),
    };
    let kind =
        |kind: &vk::MemoryType| MemoryType { flags: kind.property_flags.as_raw(), heap: kind.heap_index as usize };
    Some(Heaps {
        heaps: properties.memory_heaps_as_slice().iter().enumerate().map(heap).collect(),
        types: properties.memory_types_as_slice().iter().map(kind).collect(),
    })
}

/// Returns `None`: on this system wgpu is built without Vulkan.
#[cfg(not(any(windows, target_os = "linux")))]
pub(super) fn heaps(_: &wgpu::Adapter) -> Option<Heaps> {
    None
}
