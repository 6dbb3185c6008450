//! `laneway bench`: benchmarks on this machine, each beside its raw limit, interleaved in the same run.
//!
//! Each part alternates between its raw limit and Laneway, `--runs` times, and reports medians, spreads and the
//! median of the ratios. `raw.rs` defines the raw limits of SQLite and the disk, `load.rs` that of HTTP. The
//! benchmarks start their own servers in their own folder and change nothing else.

mod child;
mod drain;
mod engine;
mod enqueue;
mod latency;
mod load;
mod raw;
mod report;
mod scale;
mod streams;
mod workers;

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;
use report::{Goal, Measurement, Unit};

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  laneway bench                        everything; takes about seven minutes
  laneway bench --quick                everything, smaller: a rough result only
  laneway bench --only engine,drain    two parts
  laneway bench --json > bench.json    for programs")]
pub struct BenchArgs {
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// How often each benchmark runs; the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// A tenth of the work: a rough result only
    #[arg(long)]
    quick: bool,
    /// Where to put data; a new folder inside it is created and removed. Defaults to the current folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Serve the bare echo that enqueue is compared with
    #[arg(long, hide = true, value_name = "ADDR")]
    echo: Option<std::net::SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The engine alone, in memory
    Engine,
    /// One job per call over HTTP
    Enqueue,
    /// A thousand jobs per call over HTTP
    Batch,
    /// Jobs run by handlers that do nothing
    Drain,
    /// From submit to handler on an idle server
    Latency,
    /// Jobs run by workers over WebSockets: one fast worker, two thousand idle ones
    Workers,
    /// Jobs beside a thousand streams of events
    Streams,
    /// A million queued jobs, five million ended ones
    Scale,
}

/// What every part uses.
struct Bench {
    dir: PathBuf,
    runs: u32,
    quick: bool,
    bar: ProgressBar,
}

impl Bench {
    /// `count`, or a tenth of it with `--quick`.
    fn sized(&self, count: u64) -> u64 {
        if self.quick { count / 10 } else { count }
    }

    /// An empty folder for one measurement.
    fn fresh_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("failed to empty {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        Ok(dir)
    }

    /// Shows which benchmark runs.
    fn now(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }
}

/// Runs the benchmarks and shows the results.
pub fn run(args: BenchArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(address) = args.echo {
        return raw::serve_echo(address);
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; results from it mean nothing (use --release)");
    }
    let root =
        args.dir.unwrap_or(std::env::current_dir()?).join(format!("laneway-bench-{}", std::process::id()));
    std::fs::create_dir_all(&root).with_context(|| format!("failed to create {}", root.display()))?;
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}").expect("the template is valid"),
    );
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let bench = Bench { dir: root.clone(), runs: args.runs, quick: args.quick, bar };
    let parts: Vec<Part> = Part::value_variants()
        .iter()
        .copied()
        .filter(|part| args.only.is_empty() || args.only.contains(part))
        .collect();
    let measured = measure(&bench, &parts);
    bench.bar.finish_and_clear();
    let removed =
        std::fs::remove_dir_all(&root).with_context(|| format!("failed to remove {}", root.display()));
    report::show(output, &measured?, args.quick)?;
    removed
}

fn measure(bench: &Bench, parts: &[Part]) -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for part in parts {
        match part {
            Part::Engine => measurements.extend(measure_engine(bench)),
            Part::Enqueue => measurements.push(enqueue::one_a_call(bench)?),
            Part::Batch => measurements.extend(enqueue::thousand_a_call(bench)?),
            Part::Drain => measurements.push(drain::by_local_handlers(bench)?),
            Part::Latency => measurements.extend(latency::idle(bench)?),
            Part::Workers => measurements.extend(workers::over_sockets(bench)?),
            Part::Streams => measurements.extend(streams::beside_readers(bench)?),
            Part::Scale => measurements.extend(scale::million(bench)?),
        }
    }
    Ok(measurements)
}

/// The engine has no raw limit: its goals are absolute, for one core.
fn measure_engine(bench: &Bench) -> Vec<Measurement> {
    let goals = [250_000.0, 150_000.0, 40_000.0];
    engine::Mix::ALL
        .into_iter()
        .zip(goals)
        .map(|(mix, goal)| {
            bench.now(format!("engine, {} mix", mix.as_str()));
            let cycles = bench.sized(if mix == engine::Mix::Adversarial { 200_000 } else { 500_000 });
            let ours = (0..bench.runs).map(|_| engine::cycles_per_second(mix, cycles)).collect();
            Measurement::absolute(
                format!("engine cycles, {}", mix.as_str()),
                Unit::PerSecond,
                ours,
                Goal::AtLeast(goal),
            )
        })
        .collect()
}
