//! Memory available to this process: the limit of its control groups, or the machine's memory.

use std::fs::read_to_string;
use std::path::Path;

/// Source of the available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    Cgroup,
    Machine,
}

/// Returns the available memory in bytes: the smallest of the limits of the process's control
/// groups (version 1 or 2), and of the machine's memory. Returns `None` if the system reports
/// neither.
pub fn memory_there_is() -> Option<(u64, MemorySource)> {
    memory_below(Path::new("/"))
}

fn memory_below(root: &Path) -> Option<(u64, MemorySource)> {
    let machine = machine_bytes(root).map(|bytes| (bytes, MemorySource::Machine));
    let cgroup = cgroup_bytes(root).map(|bytes| (bytes, MemorySource::Cgroup));
    // In version 1, a group without a limit reports more bytes than any machine has.
    let both = cgroup.into_iter().chain(machine);
    both.min_by_key(|(bytes, _)| *bytes)
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

fn cgroup_bytes(root: &Path) -> Option<u64> {
    let groups = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (controllers, path) = (parts.nth(1), parts.next().unwrap_or_default());
        let (directory, file) = match controllers {
            Some("") => ("sys/fs/cgroup", "memory.max"),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // The limits of all parent groups apply as well. In a container, the visible groups begin
        // at its own.
        let above = Path::new(path).ancestors().map(|group| {
            let group = group.strip_prefix("/").unwrap_or(group);
            let text = read_to_string(root.join(directory).join(group).join(file)).ok()?;
            text.trim().parse().ok()
        });
        above.flatten().collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(files: &[(&str, &str)], expected: Option<(u64, MemorySource)>) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(memory_below(root.path()), expected, "{files:?}");
    }

    #[test]
    fn the_least_limit_holds() {
        let machine = (
            "proc/meminfo",
            "MemTotal:       1048576 kB\nMemFree: 1 kB\n",
        );
        let (group, of_machine) = (
            MemorySource::Cgroup,
            Some((1_024 * MIB, MemorySource::Machine)),
        );
        check(&[], None);
        check(&[machine], of_machine);
        // Version 2: a parent group has the limit. In a container, the root is the process's own
        // group.
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let above = ("sys/fs/cgroup/a/memory.max", "536870912\n");
        let none = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        check(&[machine, own, none], of_machine);
        check(&[machine, own, none, above], Some((512 * MIB, group)));
        let container = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1048576"),
        ];
        check(&container, Some((MIB, group)));
        // Version 1, in a container that sees its path on the host.
        let own = ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/1\n0::/\n");
        let limit = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");
        check(&[machine, own, limit], Some((2 * MIB, group)));
        let none = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        check(&[machine, own, none], of_machine);
    }
}
