//! Disables an implicit layer of Vulkan's loader. Mesa's device selection asks a display server for the desktop's GPU,
//! and complains on standard error if there is none. The command lists all GPUs and orders them itself.

use std::env;

/// Variable that disables the layer.
const OFF: &str = "NODEVICE_SELECT";

/// Variables of users who have configured the layer.
const DECIDED: [&str; 3] = [OFF, "MESA_VK_DEVICE_SELECT", "DRI_PRIME"];

/// Disables the layer in this process, unless the user has configured it. Must be called before there is another
/// thread.
pub(crate) fn without_device_selection() {
    if DECIDED.iter().all(|name| env::var_os(name).is_none()) {
        // SAFETY: `main` calls this first, so that no other thread reads or writes the environment meanwhile.
        unsafe { env::set_var(OFF, "1") };
    }
}
