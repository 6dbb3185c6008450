//! Readings of the kernel: processor, memory, load, and the time that work waits for them (PSI).
//!
//! Only reading and parsing live here. Parts that a kernel may lack (PSI, network counters) are left out where they are
//! missing; without processor and memory there is no sample at all.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Reads the load of a machine.
pub trait LoadSource: Send {
    /// Looks at the machine. `None`: counters were read for the first time, and say nothing yet.
    fn sample(&mut self) -> io::Result<Option<HostSample>>;
}

/// How loaded a machine was between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSample {
    /// Of all processors together, in percent.
    pub cpu_percent: f64,
    /// Memory that is neither free nor can be freed at once, in percent.
    pub memory_percent: f64,
    /// Tasks that run or want to, for each processor, over the last minute.
    pub load_per_core: f64,
    /// Share of time in which some task waited for the disk, in percent over ten seconds.
    pub io_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
    /// The same for processors.
    pub cpu_pressure: Option<f64>,
    /// Packets that network devices dropped, each second.
    pub drops_per_second: Option<f64>,
}

/// Reads the files that Linux keeps in `/proc`.
pub struct ProcSource {
    root: PathBuf,
    before: Option<Counters>,
}

/// Where counters stood, and when.
#[derive(Clone, Copy)]
struct Counters {
    at: Instant,
    cpu: CpuTimes,
    drops: Option<u64>,
}

/// Time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    total: u64,
    cores: u32,
}

impl ProcSource {
    /// Reads below this directory, which is `/proc` unless a test made one.
    pub fn new(root: impl Into<PathBuf>) -> ProcSource {
        ProcSource { root: root.into(), before: None }
    }

    fn read<T>(&self, file: &str, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
        let path = self.root.join(file);
        let text = fs::read_to_string(&path).map_err(|error| about(&path, &error.to_string()))?;
        parse(&text).ok_or_else(|| about(&path, "it is not written as Linux writes it"))
    }
}

fn about(path: &std::path::Path, why: &str) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

impl LoadSource for ProcSource {
    fn sample(&mut self) -> io::Result<Option<HostSample>> {
        let now = Counters {
            at: Instant::now(),
            cpu: self.read("stat", parse_stat)?,
            drops: self.read("net/dev", parse_drops).ok(),
        };
        let memory_percent = self.read("meminfo", parse_meminfo)?;
        let load = self.read("loadavg", parse_loadavg)?;
        let Some(before) = self.before.replace(now) else { return Ok(None) };
        let total = now.cpu.total.saturating_sub(before.cpu.total);
        if total == 0 {
            // Two looks within one tick: the older counters stay.
            self.before = Some(before);
            return Ok(None);
        }
        let busy = now.cpu.busy.saturating_sub(before.cpu.busy).min(total);
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(0.001);
        let dropped = now.drops.zip(before.drops).map(|(now, before)| now.saturating_sub(before));
        Ok(Some(HostSample {
            cpu_percent: 100.0 * busy as f64 / total as f64,
            memory_percent,
            load_per_core: load / f64::from(now.cpu.cores.max(1)),
            io_pressure: self.read("pressure/io", parse_pressure).ok(),
            memory_pressure: self.read("pressure/memory", parse_pressure).ok(),
            cpu_pressure: self.read("pressure/cpu", parse_pressure).ok(),
            drops_per_second: dropped.map(|dropped| dropped as f64 / seconds),
        }))
    }
}

/// The line `cpu` of `stat`: user, nice, system, idle, iowait, irq, softirq, steal, …. Waiting for the disk is idle time.
fn parse_stat(text: &str) -> Option<CpuTimes> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let times: Option<Vec<u64>> =
        line.split_whitespace().skip(1).take(8).map(|time| time.parse().ok()).collect();
    let times = times.filter(|times| times.len() >= 4)?;
    let total = times.iter().sum();
    let idle = times[3] + times.get(4).copied().unwrap_or(0);
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let cores = u32::try_from(text.lines().filter(is_core).count()).ok()?;
    Some(CpuTimes { busy: total - idle, total, cores })
}

/// Memory in use, in percent: what is not `MemAvailable` of `MemTotal`.
fn parse_meminfo(text: &str) -> Option<f64> {
    let value = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (total, available) = (value("MemTotal")?, value("MemAvailable")?);
    (total > 0.0).then(|| 100.0 * (total - available.min(total)) / total)
}

fn parse_loadavg(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|load: &f64| load.is_finite() && *load >= 0.0)
}

/// The share of time in which some task waited, over ten seconds.
fn parse_pressure(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let average = line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    average.parse().ok().filter(|average: &f64| average.is_finite() && *average >= 0.0)
}

/// Packets dropped by all devices but the loopback: the fourth number each way.
fn parse_drops(text: &str) -> Option<u64> {
    let mut drops = 0;
    for line in text.lines().skip(2) {
        let (device, numbers) = line.split_once(':')?;
        if device.trim() == "lo" {
            continue;
        }
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        drops += numbers.get(3)? + numbers.get(11)?;
    }
    Some(drops)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const MEMINFO: &str =
        "MemTotal:       16000000 kB\nMemFree:          800000 kB\nMemAvailable:    4000000 kB\n";
    const NET: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: 100 1 0 900 0 0 0 0 100 1 0 900 0 0 0 0\n  eth0: 5000 50 0 3 0 0 0 0 7000 70 0 4 0 0 0 0\n";

    fn stat(user: u64, idle: u64) -> String {
        format!(
            "cpu  {user} 0 0 {idle} 10 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 12\n"
        )
    }

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn each_file_is_read_as_linux_writes_it() {
        assert_eq!(parse_stat(&stat(300, 690)), Some(CpuTimes { busy: 300, total: 1_000, cores: 2 }));
        assert_eq!(parse_meminfo(MEMINFO), Some(75.0));
        assert_eq!(parse_loadavg("3.50 2.00 1.00 2/900 1234\n"), Some(3.5));
        let pressure = "some avg10=12.34 avg60=1.00 avg300=0.10 total=99\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(parse_pressure(pressure), Some(12.34));
        assert_eq!(parse_drops(NET), Some(7), "the loopback does not count");
    }

    #[test]
    fn what_is_not_so_written_is_no_figure() {
        for text in
            ["", "cpu", "cpu a b c d", "cpu0 1 2 3 4", "some avg10=x", "MemTotal: 0 kB\nMemAvailable: 0 kB"]
        {
            assert_eq!(parse_stat(text), None, "{text}");
            assert_eq!(parse_meminfo(text), None, "{text}");
            assert_eq!(parse_pressure(text), None, "{text}");
        }
        assert_eq!(parse_loadavg("nan 1 1"), None);
        assert_eq!(parse_drops("one\ntwo\nno colon"), None);
    }

    #[test]
    fn a_sample_is_what_changed_between_two_looks() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "stat", &stat(100, 900));
        write(root, "meminfo", MEMINFO);
        write(root, "loadavg", "1.00 0 0 1/1 1\n");
        let mut source = ProcSource::new(root);
        assert_eq!(source.sample().unwrap(), None, "the first look only sees where counters stand");
        assert_eq!(source.sample().unwrap(), None, "nothing has passed");
        write(root, "stat", &stat(190, 910));
        let sample = source.sample().unwrap().unwrap();
        assert_eq!((sample.cpu_percent, sample.memory_percent, sample.load_per_core), (90.0, 75.0, 0.5));
        assert_eq!((sample.io_pressure, sample.drops_per_second), (None, None), "a kernel may lack these");
        write(root, "pressure/io", "some avg10=40.00 avg60=0 avg300=0 total=1\n");
        write(root, "stat", &stat(190, 1_010));
        let sample = source.sample().unwrap().unwrap();
        assert_eq!((sample.cpu_percent, sample.io_pressure), (0.0, Some(40.0)));
    }

    #[test]
    fn a_machine_without_processor_or_memory_readings_is_not_guessed() {
        let dir = tempfile::tempdir().unwrap();
        let error = ProcSource::new(dir.path()).sample().unwrap_err();
        assert!(error.to_string().contains("stat"), "{error}");
        write(dir.path(), "stat", &stat(1, 1));
        assert!(ProcSource::new(dir.path()).sample().unwrap_err().to_string().contains("meminfo"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_can_be_read() {
        let mut source = ProcSource::new("/proc");
        source.sample().unwrap();
        let began = Instant::now();
        let sample = loop {
            // A tick of the kernel's counters is ten milliseconds; some work makes them move.
            std::hint::black_box((0..10_000_u64).sum::<u64>());
            if let Some(sample) = source.sample().unwrap() {
                break sample;
            }
            assert!(began.elapsed().as_secs() < 20, "the counters stand still");
        };
        assert!((0.0..=100.0).contains(&sample.cpu_percent), "{sample:?}");
        assert!((0.1..=100.0).contains(&sample.memory_percent), "{sample:?}");
    }
}
