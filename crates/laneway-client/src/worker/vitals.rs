//! The load of the machine: processors, memory and disk, read from the kernel. Values that cannot be read are
//! left out.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use laneway_wire::frame::Vitals;

/// Reads the load of the machine.
#[derive(Debug)]
pub struct Probe {
    disk: PathBuf,
    /// Busy and total ticks of the processors at the last reading.
    last: Mutex<Option<(u64, u64)>>,
}

impl Probe {
    /// A probe for the machine, and for the disk that holds `disk`.
    pub fn new(disk: impl Into<PathBuf>) -> Probe {
        Probe { disk: disk.into(), last: Mutex::new(None) }
    }

    /// The current load. The processor share is that since the last reading.
    pub fn read(&self) -> Vitals {
        let ticks = std::fs::read_to_string("/proc/stat").ok().and_then(|text| cpu_ticks(&text));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu_pct = last.zip(ticks).and_then(|(before, now)| share(before, now));
        *last = ticks.or(*last);
        let mem_pct = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_pct(&text));
        Vitals { cpu_pct, mem_pct, disk_pct: disk_pct(&self.disk), ..Vitals::default() }
    }
}

/// Busy and total ticks from the first line of `/proc/stat`.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|token| token.parse().ok()).collect();
    // The first eight are disjoint; guest time is already part of user time.
    let total = ticks.get(..8)?.iter().sum::<u64>();
    Some((total - ticks[3] - ticks[4], total))
}

fn share((busy_before, total_before): (u64, u64), (busy, total): (u64, u64)) -> Option<f64> {
    let total = total.checked_sub(total_before).filter(|total| *total > 0)?;
    let busy = busy.saturating_sub(busy_before);
    Some(percent(busy, total))
}

fn mem_pct(meminfo: &str) -> Option<f64> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let total = field("MemTotal").filter(|total| *total > 0)?;
    Some(percent(total.saturating_sub(field("MemAvailable")?), total))
}

fn disk_pct(path: &Path) -> Option<f64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    // As `df` counts: the blocks reserved for root are neither used nor free.
    let used = disk.f_blocks.saturating_sub(disk.f_bfree);
    let usable = used + disk.f_bavail;
    (usable > 0).then(|| percent(used, usable))
}

fn percent(part: u64, whole: u64) -> f64 {
    (part as f64 / whole as f64 * 1_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_files_of_the_kernel() {
        let before = cpu_ticks("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2").unwrap();
        let now = cpu_ticks("cpu  150 0 150 800 100 0 0 0 7 0\n").unwrap();
        assert_eq!((before, now), ((200, 1_000), (300, 1_200)));
        assert_eq!(share(before, now), Some(50.0));
        assert_eq!(share(now, now), None);
        assert_eq!(mem_pct("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\n"), Some(75.0));
        assert_eq!(mem_pct("MemTotal: 0 kB\n"), None);
        assert_eq!(cpu_ticks("intr 1 2 3"), None);
    }

    #[test]
    fn reads_the_load_of_this_machine() {
        let probe = Probe::new("/");
        probe.read();
        let vitals = probe.read();
        assert!(vitals.mem_pct.is_some_and(|pct| (0.0..=100.0).contains(&pct)), "{vitals:?}");
        assert!(vitals.disk_pct.is_some_and(|pct| (0.0..=100.0).contains(&pct)), "{vitals:?}");
    }
}
