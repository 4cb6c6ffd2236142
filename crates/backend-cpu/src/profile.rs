//! The profile of this machine's processor: the costs of the reference core, with the threads and caches found here.
//!
//! All CPUs have to agree on formats and plans. So the costs behind these choices, and the size up to which a product
//! counts as held by a cache, are those of [`Profile::reference`] on every CPU that was not calibrated. Scaling: the
//! threads are those of the pool, each with the memory rate of the reference core. The caches are listed as the system
//! reports them and decide nothing.

use std::fs;
use std::sync::OnceLock;

use spandrel_formats::Profile;
use spandrel_formats::profile::Origin;

/// The processor of `record/cpu-*.jsonl`, on which the reference was fitted: vendor, family and model.
const MEASURED: [&str; 3] = ["AuthenticAMD", "26", "2"];

/// The profile of this machine for this many threads. The system is asked once, because reading its files takes longer
/// than solving a small system.
pub(crate) fn of(threads: usize) -> Profile {
    static MACHINE: OnceLock<Profile> = OnceLock::new();
    let mut profile = MACHINE.get_or_init(machine).clone();
    profile.memory.units = threads;
    profile.host.threads = threads;
    profile
}

/// What the system reports about this machine, for one thread.
fn machine() -> Profile {
    let mut profile = Profile::reference();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| field(&info, name);
    profile.device = field("model name").unwrap_or(std::env::consts::ARCH).to_owned();
    let is_measured = [field("vendor_id"), field("cpu family"), field("model")] == MEASURED.map(Some);
    profile.origin = if is_measured { Origin::Measured } else { Origin::Scaled };
    profile.memory.caches = caches();
    profile
}

/// Returns a field of the first processor in Linux's list.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// Sizes in bytes of the data caches of the first core, by level, as Linux reports them; empty on other systems.
fn caches() -> Vec<u64> {
    let read = |index: usize, what: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok()
    };
    (0..8)
        .filter(|&index| read(index, "type").is_some_and(|kind| kind.trim() != "Instruction"))
        .filter_map(|index| bytes(read(index, "size")?.trim()))
        .collect()
}

/// Parses `32K` or `1M` to bytes.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_read_the_reference_on_every_cpu() {
        let (one, many, reference) = (of(1), of(64), Profile::reference());
        for profile in [&one, &many] {
            assert_eq!(profile.products, reference.products);
            assert_eq!(profile.triangles, reference.triangles);
            assert_eq!(profile.memory.resident, reference.memory.resident);
            assert_eq!(profile.memory.nanoseconds_per_byte, reference.memory.nanoseconds_per_byte);
            assert_eq!(profile.factoring, None);
        }
        assert_eq!((one.memory.units, many.memory.units, many.host.threads), (1, 64, 64));
    }

    #[test]
    fn sizes_and_fields_are_read_as_linux_writes_them() {
        assert_eq!(["32K", "1M", "512", "12Q", ""].map(bytes), [Some(32768), Some(1 << 20), Some(512), None, None]);
        let info = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: A: B\n";
        assert_eq!(
            ["vendor_id", "model", "model name", "cache"].map(|name| field(info, name)),
            [Some("AuthenticAMD"), Some("2"), Some("A: B"), None]
        );
    }
}
