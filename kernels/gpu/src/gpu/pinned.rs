//! Host memory that a Vulkan device copies from and to by itself: an allocation of the driver, mapped once, behind both
//! a host buffer and a buffer of wgpu.
//!
//! The proof that its unsafe blocks refer to:
//!
//! - **Who touches the bytes.** The host does, through the [`Buffer`] alone. The device does, in the copies of
//!   [`PinnedCopy`](super::PinnedCopy) alone, since no other code gets the wgpu buffer. A copy to the host takes the
//!   only handle of the host buffer, and gives it back when the device is done. No reference to the bytes exists while
//!   they change. A copy from the host keeps a handle until the device is done, and only a sole handle can write.
//! - **When the memory is freed.** `Allocation` frees it, and has two owners: the host buffer, and the callback that
//!   wgpu drops with its buffer, after the last submission that uses it.
//! - **That the device outlives it.** wgpu's buffer keeps the device, and so does the host buffer, which drops its
//!   share of the allocation first.
//! - **A lost device.** Vulkan takes its work for finished, and its memory stays mapped until it is freed, with any
//!   content. A copy whose end no poll has found never gives its handle back, and a run that finds the loss ends before
//!   it reads the content.

use super::device::Gpu;
use anabranch_op::tensor::Buffer;

/// Most allocations of a GPU: drivers allow as few as 4096 of all kinds.
#[cfg(any(windows, target_os = "linux"))]
const MOST: usize = 256;

#[cfg(any(windows, target_os = "linux"))]
pub(super) use vulkan::Pinned;

impl Gpu {
    /// Allocates zeroed host memory from and to which this GPU copies by itself ([`PinnedCopy`](super::PinnedCopy)).
    ///
    /// Returns `None` if `bytes` is 0, or if the interface, the driver or the limits of memory do not allow it.
    pub fn pinned(&self, bytes: usize) -> Option<Buffer> {
        #[cfg(any(windows, target_os = "linux"))]
        return vulkan::allocate(self, bytes);
        #[cfg(not(any(windows, target_os = "linux")))]
        None
    }
}

/// Returns the memory type for host memory that the device uses, among types with these flags and heaps: coherent, and
/// cached, because CPUs read it. `allowed` has a bit for each type that suits.
///
/// Memory of the device itself is chosen only if all heaps are the device's: then it is the host's, too. On a card, the
/// host would reach it over the bus.
#[cfg(any(windows, target_os = "linux", test))]
fn memory_type(types: &[(u32, usize)], is_local: &[bool], allowed: u32) -> Option<u32> {
    /// `VK_MEMORY_PROPERTY_*`: device-local, and host-visible, host-coherent and host-cached.
    const LOCAL: u32 = 1;
    const HOST: u32 = 0b1110;
    let shared = is_local.iter().all(|local| *local);
    let suits = |(at, (flags, _)): &(u32, &(u32, usize))| {
        let known = flags & HOST == HOST && flags & !(HOST | LOCAL) == 0;
        known && (flags & LOCAL == 0 || shared) && allowed.checked_shr(*at).is_some_and(|rest| rest & 1 == 1)
    };
    let found: Vec<_> = (0..).zip(types).filter(suits).collect();
    found.iter().min_by_key(|(_, (flags, _))| flags & LOCAL).map(|(at, _)| *at)
}

#[cfg(any(windows, target_os = "linux"))]
mod vulkan {
    use super::{MOST, memory_type};
    use crate::gpu::device::Gpu;
    use anabranch_op::tensor::Buffer;
    use ash::vk;
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use wgpu::hal;

    /// Keeper of a host buffer. The fields are dropped in this order: the device is the last.
    pub(in crate::gpu) struct Pinned {
        pub(in crate::gpu) buffer: wgpu::Buffer,
        allocation: Arc<Allocation>,
        _device: wgpu::Device,
    }

    /// A buffer of Vulkan and its memory, freed when dropped.
    struct Allocation {
        device: ash::Device,
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
        /// Number of allocations of the GPU.
        live: Arc<AtomicUsize>,
    }

    impl Pinned {
        /// Whether the memory is pinned for this GPU.
        pub(in crate::gpu) fn is_of(&self, gpu: &Gpu) -> bool {
            Arc::ptr_eq(&self.allocation.live, gpu.pinned_allocations())
        }

        /// Makes the device's last writes visible to the host when the commands are done.
        pub(in crate::gpu) fn show_to_host(&self, encoder: &mut wgpu::CommandEncoder) {
            let writes = vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE);
            let (before, after) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST);
            let (device, none) = (&self.allocation.device, vk::DependencyFlags::empty());
            // SAFETY: the command buffer is of this device and is being recorded; nothing else records to it meanwhile,
            // and wgpu ends it.
            unsafe {
                encoder.as_hal_mut::<hal::api::Vulkan, _, _>(|raw| {
                    if let Some(raw) = raw {
                        device.cmd_pipeline_barrier(raw.raw_handle(), before, after, none, &[writes], &[], &[]);
                    }
                });
            }
        }
    }

    impl Drop for Allocation {
        fn drop(&mut self) {
            // SAFETY: both owners are gone, so that neither the host nor a submission uses the memory; the device is
            // still there, and the handles are its own or null. Freeing mapped memory unmaps it.
            unsafe {
                self.device.destroy_buffer(self.buffer, None);
                self.device.free_memory(self.memory, None);
            }
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns a zeroed host buffer over an allocation of its own.
    pub(super) fn allocate(gpu: &Gpu, bytes: usize) -> Option<Buffer> {
        let size = u64::try_from(bytes).ok()?.checked_next_multiple_of(4).filter(|size| *size > 0)?;
        let (allocation, start) = map(gpu, size)?;
        let allocation = Arc::new(allocation);
        let kept = Arc::clone(&allocation);
        // SAFETY: the buffer is destroyed with the allocation, of which the callback keeps a share until wgpu has
        // dropped its buffer. Nothing maps it through wgpu.
        let raw = unsafe { hal::vulkan::Buffer::from_raw_externally_owned(allocation.buffer, Box::new(|| drop(kept))) };
        let description = wgpu::BufferDescriptor {
            label: Some("pinned"),
            size,
            usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        let device = gpu.device().clone();
        let adopt = || {
            // SAFETY: the buffer was created from this device with this size and these usages, and is filled with 0.
            Ok(unsafe { device.create_buffer_from_hal::<hal::api::Vulkan>(raw, &description) })
        };
        let buffer = gpu.guarded("a pinned buffer", adopt).ok()?;
        let keeper = Box::new(Pinned { buffer, allocation, _device: device });
        // SAFETY: the keeper keeps the bytes, which `map` has filled. The device uses them only in copies that keep or
        // take the host buffer (see the top of the file).
        unsafe { Buffer::kept(start, bytes, keeper) }
    }

    /// Allocates and maps zeroed memory of `size` bytes.
    fn map(gpu: &Gpu, size: u64) -> Option<(Allocation, NonNull<u8>)> {
        // SAFETY: nothing of the device is destroyed: the guard is only read from and dropped at the end.
        let hal = unsafe { gpu.device().as_hal::<hal::api::Vulkan>() }?;
        let live = gpu.pinned_allocations();
        if live.fetch_add(1, Ordering::Relaxed) >= MOST {
            live.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let device = hal.raw_device().clone();
        let (buffer, memory) = (vk::Buffer::null(), vk::DeviceMemory::null());
        let mut own = Allocation { device, buffer, memory, live: Arc::clone(live) };
        // SAFETY: the physical device is that of the device, and the guard keeps the instance.
        let listed = unsafe {
            hal.shared_instance().raw_instance().get_physical_device_memory_properties(hal.raw_physical_device())
        };
        let kind = |kind: &vk::MemoryType| (kind.property_flags.as_raw(), kind.heap_index as usize);
        let types: Vec<_> = listed.memory_types_as_slice().iter().map(kind).collect();
        let is_local = |heap: &vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
        let is_local: Vec<_> = listed.memory_heaps_as_slice().iter().map(is_local).collect();
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: the guard keeps the device. The size is not 0, the memory is as large as the buffer needs and of a
        // type that suits it, and is bound and mapped once. `own` frees all that was made, also after an error.
        let start = unsafe {
            own.buffer = own.device.create_buffer(&info, None).ok()?;
            let needs = own.device.get_buffer_memory_requirements(own.buffer);
            let kind = memory_type(&types, &is_local, needs.memory_type_bits)?;
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
            own.memory = own.device.allocate_memory(&info, None).ok()?;
            own.device.bind_buffer_memory(own.buffer, own.memory, 0).ok()?;
            own.device.map_memory(own.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()).ok()?
        };
        let start = NonNull::new(start.cast::<u8>())?;
        // SAFETY: the mapping has at least this many bytes, and nothing else has its address.
        unsafe { start.write_bytes(0, usize::try_from(size).ok()?) };
        Some((own, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_host_is_chosen_and_that_of_a_card_is_not() {
        const CARD: u32 = 1;
        const VISIBLE: u32 = 0b0110;
        const CACHED: u32 = 0b1110;
        let card = [(CARD, 0), (VISIBLE, 1), (CARD | VISIBLE, 0), (CACHED, 1)];
        let separate = [true, false];
        assert_eq!(memory_type(&card, &separate, !0), Some(3));
        assert_eq!(memory_type(&card, &separate, 0b0111), None, "the buffer cannot lie there");
        assert_eq!(memory_type(&card[..3], &separate, !0), None, "no cached memory");
        assert_eq!(memory_type(&[(CARD | CACHED, 0)], &separate, !0), None, "over the bus");
        assert_eq!(memory_type(&[(CARD | CACHED, 0)], &[true], !0), Some(0), "llvmpipe: one memory for both");
        assert_eq!(memory_type(&[(CARD | CACHED, 0), (CACHED, 0)], &[true], !0), Some(1));
        assert_eq!(memory_type(&[(CACHED | 0x40, 0)], &[true], !0), None, "AMD's uncached memory");
    }
}
