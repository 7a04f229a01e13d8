//! Limits of a device that decide whether a kernel can run on it.

pub use crate::gpu_limits::{GpuLimits, Matrices};

/// Threads in each workgroup of every kernel here: WebGPU's default limit, so that practically every adapter supports
/// it.
pub(crate) const THREADS: u32 = 256;

/// Maximum passes through loops, inner and outer ones together, that one thread of a dispatch may make. Mesa's llvmpipe
/// silently leaves all loops of a shader after 65,535 passes (`LP_MAX_TGSI_LOOP_ITERATIONS`), and a desktop's watchdog
/// ends a dispatch that runs for seconds.
pub(crate) const MOST_PASSES: usize = 60_000;

/// Bytes of workgroup memory that kernels may use: WebGPU's default limit.
pub(crate) const WORKGROUP_BYTES: u32 = 16 << 10;

/// Storage buffers that the smallest kernel binds: an input and an output.
const LEAST_BINDINGS: u32 = 2;

/// Bytes of the largest buffer that kernels read, all of which 32 bits can count. Metal binds larger buffers.
const MOST_BYTES: u64 = (1 << 32) - 4;

impl GpuLimits {
    /// Returns the limits that `adapter` offers, all of which [`Gpu::open`](super::Gpu::open) requests.
    pub fn of(adapter: &wgpu::Adapter) -> Self {
        Self { matrices: Matrices::of(adapter), ..Self::from(&adapter.limits()) }
    }

    /// Returns what `adapter` lacks to run any kernel here, if it lacks something.
    pub fn lack(adapter: &wgpu::Adapter) -> Option<String> {
        match adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
            true => Self::of(adapter).shortage(),
            false => Some("its driver has no compute shaders".to_owned()),
        }
    }

    /// Returns which of these limits are below what every kernel here needs, if some are.
    pub(crate) fn shortage(&self) -> Option<String> {
        let Self { threads, workgroup_bytes, bindings, .. } = self;
        let is_enough = *threads >= THREADS && *workgroup_bytes >= WORKGROUP_BYTES && *bindings >= LEAST_BINDINGS;
        (!is_enough).then(|| {
            format!(
                "kernels need workgroups of {THREADS} threads and {WORKGROUP_BYTES} bytes, and {LEAST_BINDINGS} storage \
                 buffers, but the device has {threads}, {workgroup_bytes} and {bindings}"
            )
        })
    }

    /// Returns the dispatch of `groups` workgroups as two dimensions `[x, y, 1]` with `x · y ≥ groups`, or `None` if
    /// that is too many. A shader computes its number as `y · x_size + x`.
    pub(crate) fn grid(&self, groups: u64) -> Option<[u32; 3]> {
        let most = u64::from(self.groups.max(1));
        let rows = groups.div_ceil(most).max(1);
        let columns = groups.div_ceil(rows).max(1);
        (rows <= most).then_some([columns as u32, rows as u32, 1])
    }
}

impl From<&wgpu::Limits> for GpuLimits {
    fn from(limits: &wgpu::Limits) -> Self {
        let bindings = limits
            .max_storage_buffers_per_shader_stage
            .min(limits.max_bindings_per_bind_group.saturating_sub(1))
            .min(limits.max_non_sampler_bindings.saturating_sub(1));
        Self {
            binding_bytes: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(MOST_BYTES),
            bindings,
            groups: limits.max_compute_workgroups_per_dimension,
            threads: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            matrices: None,
        }
    }
}

/// Features of devices with matrix units; [`Gpu::open`](super::Gpu::open) requests them.
pub(crate) const MATRIX_FEATURES: wgpu::Features =
    wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16).union(wgpu::Features::SUBGROUP);

impl Matrices {
    /// Returns the matrix units of `adapter` with the largest fragments, if kernels can use some. All its subgroups
    /// must have one size, because no shader can choose it.
    pub fn of(adapter: &wgpu::Adapter) -> Option<Self> {
        let info = adapter.get_info();
        let is_of_one_size = info.subgroup_min_size == info.subgroup_max_size;
        if !adapter.features().contains(MATRIX_FEATURES) || !is_of_one_size {
            return None;
        }
        let offered = adapter.cooperative_matrix_properties();
        let side = offered.iter().filter_map(side).max()?;
        let fits = 4 * info.subgroup_min_size <= adapter.limits().max_compute_invocations_per_workgroup;
        fits.then_some(Self { side, subgroup: info.subgroup_min_size })
    }
}

/// Returns the side of square fragments of `f16` with sums of `f32`.
fn side(offered: &wgpu::CooperativeMatrixProperties) -> Option<u32> {
    let side = offered.m_size;
    let is_square = offered.n_size == side && offered.k_size == side;
    let [of, to] = [offered.ab_type, offered.cr_type];
    let is_half = of == wgpu::CooperativeScalarType::F16 && to == wgpu::CooperativeScalarType::F32;
    (is_square && is_half && matches!(side, 8 | 16)).then_some(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_into_the_largest_binding_have_32_bits() {
        let device = |bytes| wgpu::Limits {
            max_storage_buffer_binding_size: bytes,
            max_buffer_size: bytes,
            ..wgpu::Limits::default()
        };
        for (bytes, bound) in [(1 << 27, 1 << 27), (1 << 32, MOST_BYTES), (96 << 30, MOST_BYTES)] {
            assert_eq!(GpuLimits::from(&device(bytes)).binding_bytes, bound);
        }
        assert!(u32::try_from(MOST_BYTES).is_ok());
    }

    #[test]
    fn a_device_below_a_needed_limit_is_short_of_it() {
        let enough = GpuLimits::from(&wgpu::Limits::default());
        assert_eq!(enough.shortage(), None);
        for less in [
            GpuLimits { threads: 128, ..enough },
            GpuLimits { workgroup_bytes: 8 << 10, ..enough },
            GpuLimits { bindings: 1, ..enough },
        ] {
            let shortage = less.shortage().expect("one limit is too low");
            let has = format!("has {}, {} and {}", less.threads, less.workgroup_bytes, less.bindings);
            assert!(shortage.ends_with(&has), "{shortage}");
        }
    }

    #[test]
    fn many_workgroups_become_two_dimensions() {
        let limits = GpuLimits { groups: 65_535, ..GpuLimits::from(&wgpu::Limits::default()) };
        for (groups, grid) in [
            (0, Some([1, 1, 1])),
            (1, Some([1, 1, 1])),
            (65_535, Some([65_535, 1, 1])),
            (65_536, Some([32_768, 2, 1])),
            (65_535 * 65_535, Some([65_535, 65_535, 1])),
            (65_535 * 65_535 + 1, None),
        ] {
            assert_eq!(limits.grid(groups), grid, "{groups} groups");
        }
    }
}
