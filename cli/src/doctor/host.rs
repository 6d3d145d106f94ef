//! Checks of the host: processor, shared memory and process limits.

use super::report::ReportGroup;
use super::system::System;

/// Minimum size of `/dev/shm` on a host with cards, as in the vLLM containers for Ascend. With a
/// container's default of 64 MiB, data loaders and libraries fail with a bus error.
const LEAST_SHM_BYTES: u64 = 1 << 30;

pub(super) fn check(system: &System, has_cards: bool) -> ReportGroup {
    let mut group = ReportGroup::new("host");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = system.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    group.seen("system", format!("{} {}, {cores} cores", std::env::consts::ARCH, kernel.trim()));
    group.seen("page size", format!("{} bytes", rustix::param::page_size()));
    let nodes = system.names("/sys/devices/system/node");
    let nodes =
        nodes.iter().filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<usize>().is_ok()));
    group.seen("NUMA nodes", nodes.count().to_string());
    if system.has("/.dockerenv") || system.has("/run/.containerenv") {
        group.seen("container", "yes");
    }
    for (limit, name) in [("Max open files", "open files"), ("Max locked memory", "locked memory")] {
        let text = system.read("/proc/self/limits").unwrap_or_default();
        if let Some(line) = text.lines().find_map(|line| line.strip_prefix(limit)) {
            group.seen(name, line.split_whitespace().next().unwrap_or_default());
        }
    }
    if let Some(granted) = huge_pages(system).filter(|_| !has_cards) {
        let advice = match granted.as_str() {
            "never" | "deny" => {
                "; write `advise` to /sys/kernel/mm/transparent_hugepage/shmem_enabled for a faster first collective on a buffer between \
                 emulated processes"
            }
            _ => "",
        };
        group.seen("huge pages of shared memory", format!("{granted}{advice}"));
    }
    let Some(bytes) = shared_memory(system) else { return group };
    let seen = ascend_tp::base::Bytes(bytes).to_string();
    if has_cards && bytes < LEAST_SHM_BYTES {
        let expected = format!("at least {}", ascend_tp::base::Bytes(LEAST_SHM_BYTES));
        group.finding(
            "/dev/shm",
            seen,
            expected,
            "start the container with --shm-size=16g, or remount /dev/shm with a larger size",
        );
    } else {
        group.well("/dev/shm", seen);
    }
    group
}

/// Returns the bracketed word: the huge-page setting of shared memory.
fn huge_pages(system: &System) -> Option<String> {
    let words = system.read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")?;
    words.split_whitespace().find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

/// Returns the size of `/dev/shm` in bytes. The default of tmpfs is half of the memory.
fn shared_memory(system: &System) -> Option<u64> {
    let mounts = system.read("/proc/mounts")?;
    let options = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "/dev/shm").then(|| words.nth(1))?
    })?;
    let sized = options.split(',').find_map(|option| option.strip_prefix("size=")).and_then(kibibytes);
    let half = || {
        let memory = system.read("/proc/meminfo")?;
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(total.split_whitespace().next()?.parse::<u64>().ok()? * 1024 / 2)
    };
    sized.or_else(half)
}

/// Parses a size such as `65536k` into bytes.
fn kibibytes(text: &str) -> Option<u64> {
    match text.strip_suffix('k') {
        Some(number) => Some(number.parse::<u64>().ok()? * 1024),
        None => text.parse().ok(),
    }
}
