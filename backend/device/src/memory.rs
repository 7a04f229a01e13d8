//! The host's memory, and the part of it that a control group leaves to this process (Linux).
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of the host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostMemory {
    /// Total memory.
    pub(super) total: u64,
    /// Memory that was available to programs at the time of reading, if known.
    pub(super) available: Option<u64>,
    /// The control group's limit, if it is below the total.
    pub(super) limit: Option<u64>,
}

impl HostMemory {
    /// Reads `proc/meminfo` and `sys/fs/cgroup` under `root` (`/`, except in tests). `None` without `meminfo`.
    pub(super) fn read(root: &Path) -> Option<Self> {
        let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let total = meminfo_field(&text, "MemTotal:")?;
        let available = meminfo_field(&text, "MemAvailable:");
        let limit = control_group_limit(root).filter(|&limit| limit < total);
        Some(Self { total, available, limit })
    }

    /// Returns the bytes that this process may fill.
    pub(super) fn usable(&self) -> u64 {
        self.limit.unwrap_or(self.total)
    }
}

/// Reads the bytes of a line `… NAME  N kB` of a `meminfo` file; the files of NUMA nodes have `Node 0` before the name.
pub(super) fn meminfo_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.split_once(name).map(|(_, rest)| rest))?;
    let kibibytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the lowest memory limit of the process's control group and of the groups above it, of either version.
fn control_group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().flat_map(|line| limits_of(root, line)).min()
}

/// Limits along the path of one line `ID:CONTROLLERS:PATH` of `/proc/self/cgroup`, from the group to its root.
fn limits_of(root: &Path, line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        list if list.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let mount = root.join(mount);
    let relative: PathBuf = Path::new(path.trim_start_matches('/')).components().collect();
    let limit = |group: &Path| fs::read_to_string(mount.join(group).join(file)).ok()?.trim().parse().ok();
    relative.ancestors().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\n";

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("every test path has a folder")).expect("the folder can be made");
            fs::write(path, text).expect("the file can be written");
        }
        root
    }

    fn read(files: &[(&str, &str)]) -> Option<HostMemory> {
        HostMemory::read(tree(files).path())
    }

    #[test]
    fn memory_is_read_with_the_limits_of_control_groups() {
        let total = 16 << 20;
        let free = HostMemory { total, available: Some(8 << 20), limit: None };
        let limited = |limit| HostMemory { limit: Some(limit), ..free };
        let table: [(&[(&str, &str)], HostMemory); 6] = [
            (&[], free),
            (&[("proc/self/cgroup", "0::/a/b\n"), ("sys/fs/cgroup/a/b/memory.max", "max\n")], free),
            (
                &[
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "5000\n"),
                    ("sys/fs/cgroup/a/memory.max", "4000\n"),
                ],
                limited(4000),
            ),
            // The path of a container may exist only outside the container.
            (&[("proc/self/cgroup", "0::/gone\n"), ("sys/fs/cgroup/memory.max", "7000\n")], limited(7000)),
            (
                &[
                    ("proc/self/cgroup", "9:cpu:/x\n4:memory,pids:/x\n0::/\n"),
                    ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "6000"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
                ],
                limited(6000),
            ),
            (&[("proc/self/cgroup", "garbage\n::\n\n")], free),
        ];
        for (files, expected) in table {
            let all: Vec<_> = files.iter().copied().chain([("proc/meminfo", MEMINFO)]).collect();
            let memory = read(&all);
            assert_eq!(memory, Some(expected), "{files:?}");
            assert_eq!(memory.map(|memory| memory.usable()), Some(expected.limit.unwrap_or(total)));
        }
    }

    #[test]
    fn without_a_readable_meminfo_nothing_is_known() {
        assert_eq!(read(&[("proc/self/cgroup", "0::/\n")]), None);
        assert_eq!(read(&[("proc/meminfo", "MemTotal: lots kB\n")]), None);
        assert_eq!(read(&[("proc/meminfo", "MemTotal: 99999999999999999999 kB\n")]), None);
    }

    #[test]
    fn the_file_of_a_node_is_read_alike() {
        assert_eq!(meminfo_field("\nNode 0 MemTotal:        6252756 kB\n", "MemTotal:"), Some(6_252_756 << 10));
    }
}
