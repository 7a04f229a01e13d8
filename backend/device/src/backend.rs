//! Graphics interfaces through which GPUs are found.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Graphics interface to the drivers of GPUs.
///
/// If none is chosen, GPUs are found through all interfaces of the system except OpenGL: Vulkan, Metal or Direct3D 12.
/// An interface that the system does not have finds no GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuBackend {
    /// Vulkan, on Linux and Windows.
    Vulkan,
    /// Metal, on systems of Apple.
    Metal,
    /// Direct3D 12, on Windows.
    Dx12,
    /// OpenGL (ES 3.1 or later), on Linux and Windows. It lists one GPU, and its drivers bind fewer buffers.
    Gl,
}

impl GpuBackend {
    /// All interfaces, those that are used unasked first.
    pub const ALL: [Self; 4] = [Self::Vulkan, Self::Metal, Self::Dx12, Self::Gl];

    /// Whether systems like this one have the interface.
    #[cfg(feature = "gpu")]
    pub(super) fn is_of_system(self) -> bool {
        match self {
            Self::Vulkan | Self::Gl => cfg!(any(windows, target_os = "linux")),
            Self::Metal => cfg!(target_vendor = "apple"),
            Self::Dx12 => cfg!(windows),
        }
    }

    /// Returns the name of the interface in texts.
    #[cfg(feature = "gpu")]
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Vulkan => "Vulkan",
            Self::Metal => "Metal",
            Self::Dx12 => "Direct3D 12",
            Self::Gl => "OpenGL",
        }
    }
}

#[cfg(feature = "gpu")]
impl From<GpuBackend> for wgpu::Backends {
    fn from(backend: GpuBackend) -> Self {
        match backend {
            GpuBackend::Vulkan => Self::VULKAN,
            GpuBackend::Metal => Self::METAL,
            GpuBackend::Dx12 => Self::DX12,
            GpuBackend::Gl => Self::GL,
        }
    }
}

/// Formats the name used on the command line and in JSON.
impl fmt::Display for GpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for GpuBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|backend| backend.to_string().eq_ignore_ascii_case(text));
        let names = || Self::ALL.map(|backend| backend.to_string()).join(", ");
        found.ok_or_else(|| format!("there is no graphics interface `{text}`; the interfaces are {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_by_the_names_that_are_written() {
        for backend in GpuBackend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert_eq!("GL".parse(), Ok(GpuBackend::Gl));
        let error = "opencl".parse::<GpuBackend>().expect_err("there is none");
        assert!(error.contains("`opencl`") && error.ends_with("vulkan, metal, dx12, gl"), "{error}");
    }
}
