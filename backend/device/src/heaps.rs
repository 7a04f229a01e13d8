//! Chooses the heap of a GPU that its buffers fill, among the heaps and memory types that a driver lists.
//!
//! A driver may list several heaps on the device. NVIDIA's lists the 246 MiB that the host can address beside all of
//! the memory, and RADV divides the memory into two such heaps. Buffers of tensors fill only one of them.
#![forbid(unsafe_code)]

/// A heap of memory, as `VkMemoryHeap` and `VK_EXT_memory_budget` describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    pub(super) bytes: u64,
    /// Bytes of it that this process may fill, which other programs reduce; `None` if the driver does not say.
    pub(super) budget: Option<u64>,
}

/// A memory type: properties of memory of one heap, as `VkMemoryType` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryType {
    /// `VkMemoryPropertyFlags`.
    pub(super) flags: u32,
    pub(super) heap: usize,
}

/// `VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT`.
const DEVICE_LOCAL: u32 = 1;

/// Flags of the types that wgpu uses: device-local, host-visible, host-coherent and host-cached. wgpu also uses lazily
/// allocated memory, but not for buffers.
const USED: u32 = 0b1111;

/// Capacities are multiples of this, so that most small changes of other programs' memory do not change plans.
const STEP: u64 = 64 << 20;

/// A part is left to the driver, to blocks of wgpu's allocator that are not full, and to other programs: one in this
/// many bytes.
const HEADROOM: u64 = 16;

/// Heaps and memory types of an adapter, as the driver lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heaps {
    pub(super) heaps: Vec<Heap>,
    pub(super) types: Vec<MemoryType>,
}

impl Heaps {
    /// Returns the heap of the buffers that only the device reads and writes: that of the first device-local type that
    /// wgpu uses, which its allocator takes. It takes no other heap when that is full.
    pub(super) fn of_buffers(&self) -> Option<&Heap> {
        let is_chosen = |kind: &&MemoryType| kind.flags & DEVICE_LOCAL != 0 && kind.flags & !USED == 0;
        self.types.iter().find(is_chosen).and_then(|kind| self.heaps.get(kind.heap))
    }

    /// Returns the bytes that buffers may fill on a device with its own memory, and whether other programs' use is
    /// known.
    pub(super) fn capacity(&self) -> Option<(u64, bool)> {
        let heap = self.of_buffers()?;
        let free = heap.budget.map_or(heap.bytes, |budget| budget.min(heap.bytes));
        let left = free - free / HEADROOM;
        Some((if left > STEP { left / STEP * STEP } else { left }, heap.budget.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GPU: u32 = DEVICE_LOCAL;
    /// Host-visible and host-coherent.
    const HOST: u32 = 0b0110;
    const CACHED: u32 = HOST | 0b1000;
    /// Flags of AMD that wgpu does not know: device-coherent and uncached.
    const AMD: u32 = 0xc0;

    fn heaps(sizes: &[u64], types: &[(u32, usize)]) -> Heaps {
        let heap = |mib: &u64| Heap { bytes: mib * MIB, budget: None };
        let kind = |&(flags, heap): &(u32, usize)| MemoryType { flags, heap };
        Heaps { heaps: sizes.iter().map(heap).collect(), types: types.iter().map(kind).collect() }
    }

    #[test]
    fn buffers_fill_the_heap_of_the_first_device_local_type() {
        let nvidia = [(0, 1), (GPU, 0), (GPU, 0), (HOST, 1), (CACHED, 1)];
        /// Name, sizes of the heaps in MiB, types, and size of the expected heap.
        type Listed<'a> = (&'a str, &'a [u64], Vec<(u32, usize)>, u64);
        let table: [Listed<'_>; 8] = [
            ("NVIDIA", &[8192, 15_976, 246], [&nvidia[..], &[(GPU | HOST, 2)]].concat(), 8192),
            ("NVIDIA, resizable BAR", &[8192, 15_976], [&nvidia[..], &[(GPU | HOST, 0)]].concat(), 8192),
            ("RADV", &[7936, 15_976, 256], vec![(GPU, 0), (HOST, 1), (GPU | HOST, 2), (CACHED, 1)], 7936),
            (
                "RADV, resizable BAR",
                &[8176, 15_976],
                vec![(GPU | AMD, 0), (GPU, 0), (HOST, 1), (GPU | HOST, 0), (CACHED, 1), (GPU | HOST | AMD, 0)],
                8176,
            ),
            // An integrated GPU of AMD: two thirds of the memory count as the device's.
            ("RADV, integrated", &[5325, 10_650], vec![(HOST, 0), (GPU, 1), (GPU | HOST, 1), (CACHED, 0)], 10_650),
            ("ANV, integrated", &[11_800], vec![(GPU, 0), (GPU | HOST, 0), (GPU | CACHED, 0)], 11_800),
            ("llvmpipe", &[15_976], vec![(GPU | CACHED, 0)], 15_976),
            ("only memory that wgpu does not use", &[100], vec![(HOST, 0), (GPU | AMD, 0)], 0),
        ];
        for (name, sizes, types, expected) in table {
            let found = heaps(sizes, &types).of_buffers().map_or(0, |heap| heap.bytes / MIB);
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(heaps(&[], &[(GPU, 3)]).of_buffers(), None, "a type of no heap");
    }

    #[test]
    fn the_use_of_other_programs_and_a_reserve_are_no_capacity() {
        let with = |budget: Option<u64>| {
            let mut it = heaps(&[8192, 246], &[(GPU, 0), (GPU | HOST, 1)]);
            it.heaps[0].budget = budget.map(|mib| mib * MIB);
            it.capacity().map(|(bytes, is_known)| (bytes / MIB, is_known))
        };
        assert_eq!(with(None), Some((7680, false)));
        assert_eq!(with(Some(8192)), Some((7680, true)));
        assert_eq!(with(Some(7000)), Some((6528, true)), "6562.5, in steps of 64");
        assert_eq!(with(Some(6990)), with(Some(7000)), "small changes do not count");
        assert_eq!(with(Some(9000)), with(Some(8192)), "no budget exceeds its heap");
        assert_eq!(with(Some(0)), Some((0, true)));
        assert_eq!(with(Some(32)), Some((30, true)), "a small rest stays");
    }
}
