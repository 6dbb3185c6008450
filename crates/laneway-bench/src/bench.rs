//! The parts of the benchmarks, what all of them use, and the order in which they run.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;

use crate::measurement::{Goal, Measurement, Unit};
use crate::{dashboard, drain, engine, enqueue, latency, scale, streams, sustained, workers};

/// What to measure, and where.
pub struct Plan<'a> {
    /// The parts. Empty: all of them.
    pub parts: Vec<Part>,
    /// How often each benchmark runs.
    pub runs: u32,
    /// A tenth of the work.
    pub quick: bool,
    /// The folder for all data.
    pub dir: PathBuf,
    /// Where the picture of [`Part::Sustained`] goes. `None`: none is drawn.
    pub picture: Option<PathBuf>,
    /// A PostgreSQL database: its store is measured instead. The parts do not apply.
    pub postgres: Option<String>,
    /// Is called with the name of each benchmark before it runs.
    pub progress: &'a dyn Fn(String),
}

/// A group of benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
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
    /// Pages of the dashboard beside a million queued jobs and five million ended ones, and 200 open dashboards
    Dashboard,
    /// A million queued jobs, five million ended ones
    Scale,
    /// Submitting and running for ten minutes. Runs only when it is named
    Sustained,
}

/// What every part uses.
pub(crate) struct Bench<'a> {
    dir: PathBuf,
    pub(crate) runs: u32,
    pub(crate) quick: bool,
    pub(crate) picture: Option<PathBuf>,
    progress: &'a dyn Fn(String),
}

impl Bench<'_> {
    /// `count`, or a tenth of it with `--quick`.
    pub(crate) fn sized(&self, count: u64) -> u64 {
        if self.quick { count / 10 } else { count }
    }

    /// An empty folder for one measurement.
    pub(crate) fn fresh_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("failed to empty {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        Ok(dir)
    }

    /// Shows which benchmark runs.
    pub(crate) fn now(&self, what: impl Into<String>) {
        (self.progress)(what.into());
    }
}

/// Runs the benchmarks. Starts its own runtimes: the measured code must not share one.
pub fn run(plan: Plan<'_>) -> anyhow::Result<Vec<Measurement>> {
    let Plan { parts, runs, quick, dir, picture, postgres, progress } = plan;
    let bench = Bench { dir, runs, quick, picture, progress };
    if let Some(url) = postgres {
        return crate::postgres::measure(&bench, &url);
    }
    let chosen = |part: &Part| parts.contains(part) || (parts.is_empty() && *part != Part::Sustained);
    measure(&bench, Part::value_variants().iter().copied().filter(chosen))
}

fn measure(bench: &Bench<'_>, parts: impl Iterator<Item = Part>) -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for part in parts {
        match part {
            Part::Engine => measurements.extend(measure_engine(bench)),
            Part::Enqueue => {
                measurements.push(enqueue::one_a_call(bench)?);
                measurements.push(enqueue::one_by_one(bench)?);
            }
            Part::Batch => measurements.extend(enqueue::thousand_a_call(bench)?),
            Part::Drain => measurements.push(drain::by_local_handlers(bench)?),
            Part::Latency => measurements.extend(latency::idle(bench)?),
            Part::Workers => measurements.extend(workers::over_sockets(bench)?),
            Part::Streams => measurements.extend(streams::beside_readers(bench)?),
            Part::Dashboard => measurements.extend(dashboard::pages(bench)?),
            Part::Scale => measurements.extend(scale::million(bench)?),
            Part::Sustained => measurements.extend(sustained::enqueue_and_drain(bench)?),
        }
    }
    Ok(measurements)
}

/// The engine has no raw limit: its goals are absolute, for one core.
fn measure_engine(bench: &Bench<'_>) -> Vec<Measurement> {
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
