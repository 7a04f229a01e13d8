//! Keeps a layer of Vulkan's loader away that has nothing to do here: Mesa's implicit one, which asks a display server which GPU is the
//! desktop's, and complains on standard error where there is none. The command lists all GPUs and orders them itself.

use std::env;

/// Switches the layer off.
const OFF: &str = "NODEVICE_SELECT";

/// Variables of users who have decided something about it.
const DECIDED: [&str; 3] = [OFF, "MESA_VK_DEVICE_SELECT", "DRI_PRIME"];

/// Switches the layer off in this process, unless the user has decided otherwise. To be called before there is another thread.
pub(crate) fn without_device_selection() {
    if DECIDED.iter().all(|name| env::var_os(name).is_none()) {
        // SAFETY: `main` calls this first, so that no other thread reads or writes the environment meanwhile.
        unsafe { env::set_var(OFF, "1") };
    }
}
