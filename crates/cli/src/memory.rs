//! The peak memory of the program.

/// The largest resident set so far in bytes; `None` if the system does not report it.
pub(crate) fn peak_bytes() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    high_water_mark(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The field `VmHWM` of `/proc/PID/status`, which is in units of 1024 bytes.
fn high_water_mark(status: &str) -> Option<u64> {
    let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    field.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_found_among_the_fields() {
        let status = "Name:\tspandrel\nVmPeak:\t  999 kB\nVmHWM:\t    1536 kB\nVmRSS:\t  12 kB\n";
        assert_eq!(high_water_mark(status), Some(1536 * 1024));
        for broken in ["", "VmHWM:\n", "VmHWM:\t12 MB\n", "VmHWM:\tmany kB\n", "VmHWM:\t18446744073709551615 kB\n"] {
            assert_eq!(high_water_mark(broken), None, "{broken:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_touched_counts() {
        let before = peak_bytes().unwrap();
        let touched = vec![1u8; 64 << 20];
        assert!(std::hint::black_box(&touched).iter().all(|&byte| byte == 1));
        assert!(peak_bytes().unwrap() >= before.max(64 << 20));
    }
}
