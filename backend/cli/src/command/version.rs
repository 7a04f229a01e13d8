//! Output of `anabranch --version`: everything that identifies the origin of a report or a cost store.

use std::sync::LazyLock;

/// Returns version, commit, and the libraries that determine which devices are found and how fast they are.
pub(super) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let hwloc = if cfg!(feature = "hwloc") { concat!("hwloc2 ", env!("ANABRANCH_HWLOC")) } else { "without hwloc" };
        format!("{}\nkernels {}\nwgpu {}\n{hwloc}", short(), anabranch_kernels::VERSION, env!("ANABRANCH_WGPU"))
    });
    &LONG
}

/// Returns version and commit alone.
pub(super) fn short() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), env!("ANABRANCH_COMMIT"))
}
