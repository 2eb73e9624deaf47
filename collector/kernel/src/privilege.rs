//! Checks the capabilities of the calling thread.

use crate::start_error::StartError;

const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Checks that this thread has the capabilities that eBPF needs. The error names the missing ones;
/// the kernel's own error would be less clear.
pub(crate) fn check_ebpf() -> Result<(), StartError> {
    // The capabilities of this thread count: others may have dropped theirs. Without /proc they are
    // unknown, and the kernel decides.
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    effective(&status).map_or(Ok(()), missing)
}

fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn missing(capabilities: u64) -> Result<(), StartError> {
    let has = |bit: u32| capabilities >> bit & 1 == 1;
    let missing: Vec<&str> = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|&(bit, _)| !has(bit) && !has(SYS_ADMIN))
        .map(|(_, name)| name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(StartError::Privilege {
        missing: missing.join(" and "),
        grant: "cap_bpf,cap_perfmon+ep".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(capabilities: u64, expected: Option<&str>) {
        let said = missing(capabilities).err().map(|error| error.to_string());
        match expected {
            None => assert_eq!(said, None),
            Some(part) => assert!(
                said.as_deref().is_some_and(|said| said.contains(part)),
                "{said:?}"
            ),
        }
    }

    #[test]
    fn names_what_is_missing() {
        check(1 << SYS_ADMIN, None);
        check(1 << BPF | 1 << PERFMON, None);
        check(1 << BPF, Some("needs CAP_PERFMON;"));
        check(0, Some("needs CAP_BPF and CAP_PERFMON; run as root"));
        assert_eq!(
            effective("Name:\tx\nCapEff:\t00000000000000ff\n"),
            Some(255)
        );
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
