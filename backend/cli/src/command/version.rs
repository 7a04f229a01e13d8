//! What `anabranch --version` tells: enough to say what a report or a cost store was made with.

use std::sync::LazyLock;

/// Version, commit, and what decides which devices are seen and how fast they are.
pub(super) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let hwloc = if cfg!(feature = "hwloc") { concat!("hwloc2 ", env!("ANABRANCH_HWLOC")) } else { "without hwloc" };
        format!("{}\nkernels {}\nwgpu {}\n{hwloc}", short(), anabranch_kernels::VERSION, env!("ANABRANCH_WGPU"))
    });
    &LONG
}

/// Version and commit alone.
pub(super) fn short() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), env!("ANABRANCH_COMMIT"))
}
