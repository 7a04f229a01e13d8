//! Fingerprint of everything that decides which GPUs are found, without loading a driver: if it is unchanged, so are
//! the GPUs.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Variables that tell Vulkan's loader, or wgpu, what to find.
const VARIABLES: [&str; 6] = [
    "LD_LIBRARY_PATH",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "VK_LOADER_DEVICE_SELECT",
    "VK_LAYER_PATH",
    "MESA_VK_DEVICE_SELECT",
];

/// Variables that name the files of drivers.
const FILES: [&str; 3] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"];

/// Vulkan's loader, and its folders besides the folder of the architecture.
const LOADER: &str = "libvulkan.so.1";
const LIBRARIES: [&str; 4] = ["usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64"];

/// Folders that list drivers for all users.
const FOLDERS: [&str; 3] = ["etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d"];

/// Prefixes of the device nodes that drivers use.
const NODES: [&str; 3] = ["nvidia", "dri", "dxg"];

/// Returns a hash, in digits, of the loader, the listed and selected drivers, the display devices on the bus, their
/// nodes with owners and rights, and the user.
///
/// Returns `None` on systems other than Linux, where these facts may not decide what is found. All paths except the
/// user's own lists are below `root` (`/`, except in tests). The libraries that the lists name are not read.
pub(super) fn graphics(root: &Path) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: String| _ = hasher.update(text.as_bytes()).update(b"\n");
    VARIABLES.iter().chain(&FILES).for_each(|name| add(format!("{name} {:?}", env::var_os(name))));
    let named = FILES.iter().filter_map(env::var_os);
    named.for_each(|paths| env::split_paths(&paths).for_each(|path| add(format!("{path:?} {}", state(&path)))));
    let own = format!("usr/lib/{}-linux-gnu", env::consts::ARCH);
    for folder in LIBRARIES.iter().copied().chain([own.as_str()]) {
        add(format!("{folder} {}", state(&root.join(folder).join(LOADER))));
    }
    let folders = FOLDERS.iter().map(|folder| root.join(folder)).chain(own_folders());
    folders.for_each(|folder| entries(&folder).iter().for_each(|path| add(format!("{path:?} {}", state(path)))));
    let is_node = |path: &PathBuf| {
        path.file_name().is_some_and(|name| NODES.iter().any(|node| name.to_string_lossy().starts_with(node)))
    };
    let nodes = entries(&root.join("dev")).into_iter().filter(is_node);
    let nodes = nodes.chain(entries(&root.join("dev/dri")));
    nodes.for_each(|path| add(format!("{path:?} {}", rights(&path))));
    add(whose());
    for path in entries(&root.join("sys/bus/pci/devices")) {
        let text = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        let class = text("class");
        // Base class of display controllers.
        if class.starts_with("0x03") {
            add(format!("{path:?} {class} {} {}", text("vendor"), text("device")));
        }
    }
    Some(hasher.finalize().to_hex()[..32].to_owned())
}

/// Folders that list the drivers of the user and of their desktop session.
fn own_folders() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| env::var_os(name).unwrap_or_default();
    let home = PathBuf::from(variable("HOME"));
    let lists = ["XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS"].map(variable);
    let named: Vec<PathBuf> = lists.iter().flat_map(env::split_paths).collect();
    let usual = [home.join(".config"), home.join(".local/share"), PathBuf::from("/etc/xdg")];
    named.into_iter().chain(usual).filter(|path| path.is_absolute()).map(|path| path.join("vulkan/icd.d"))
}

/// Sorted entries of a directory; empty if there is no directory.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()).collect();
    paths.sort();
    paths
}

/// Mode, owner and group of a node.
#[cfg(unix)]
fn rights(node: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{:?}", fs::metadata(node).ok().map(|facts| (facts.mode(), facts.uid(), facts.gid())))
}

/// User and groups of this process.
#[cfg(unix)]
fn whose() -> String {
    use rustix::process::{getegid, geteuid, getgroups};
    format!("{:?} {:?} {:?}", geteuid(), getegid(), getgroups().ok())
}

#[cfg(not(unix))]
fn rights(_: &Path) -> String {
    String::new()
}

#[cfg(not(unix))]
fn whose() -> String {
    String::new()
}

/// Size and modification time of a file.
fn state(path: &Path) -> String {
    let facts = fs::metadata(path).ok();
    let changed = facts.as_ref().and_then(|facts| facts.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    format!("{:?} {changed:?}", facts.map(|facts| facts.len()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_driver_a_device_and_its_node_are_seen_to_come_and_to_change() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let add = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("within")).and_then(|()| fs::write(path, text)).expect("writable");
        };
        let mut seen = vec![graphics(root.path()).expect("Linux")];
        assert_eq!(seen, [graphics(root.path()).expect("nothing has changed")]);
        for (path, text) in [
            ("usr/lib/libvulkan.so.1", ""),
            ("usr/share/vulkan/icd.d/a.json", "{}"),
            ("usr/share/vulkan/icd.d/a.json", "{\"\": 1}"),
            ("etc/vulkan/icd.d/b.json", "{}"),
            ("dev/nvidia0", ""),
            ("dev/dri/renderD128", ""),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200"),
        ] {
            add(path, text);
            let now = graphics(root.path()).expect("Linux");
            assert!(!seen.contains(&now), "{path}");
            seen.push(now);
        }
        // A network card does not change the hash.
        add("sys/bus/pci/devices/0000:02:00.0/class", "0x020000");
        assert_eq!(graphics(root.path()).as_ref(), seen.last());
    }
}
