//! `laneway bench`: measures this machine, every figure beside its raw limit, in the same run and interleaved.
//!
//! Each part runs its raw limit and ours in turns, `--runs` times, and reports medians, spreads and the median of the
//! ratios. What "raw" means is written where it is measured: `raw.rs` for SQLite and the disk, `load.rs` for HTTP. It
//! starts servers of its own in a folder of its own and touches nothing else.

mod child;
mod drain;
mod engine;
mod enqueue;
mod latency;
mod load;
mod raw;
mod report;
mod scale;
mod workers;

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::screen::Screen;
use report::{Figure, Goal, Unit};

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  laneway bench                        everything; takes about seven minutes
  laneway bench --quick                everything in small: a first look, not a figure to quote
  laneway bench --only engine,drain    two parts
  laneway bench --json > figures.json  for machines")]
pub struct BenchArgs {
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// How often each figure is measured; the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// A tenth of the work: a first look
    #[arg(long)]
    quick: bool,
    /// Where to put data; a new folder inside it is made and removed. Defaults to the current folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Serve the bare echo that enqueue is measured against
    #[arg(long, hide = true, value_name = "ADDR")]
    echo: Option<std::net::SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The engine alone, in memory
    Engine,
    /// One job a call over HTTP
    Enqueue,
    /// A thousand jobs a call over HTTP
    Batch,
    /// Jobs run by handlers that do nothing
    Drain,
    /// From submit to handler on an idle server
    Latency,
    /// Jobs run by workers over WebSockets: one fast one, two thousand idle ones
    Workers,
    /// A million queued jobs, five million ended ones
    Scale,
}

/// What every part needs.
struct Bench {
    dir: PathBuf,
    runs: u32,
    quick: bool,
    bar: ProgressBar,
}

impl Bench {
    /// `count`, or a tenth of it for a first look.
    fn sized(&self, count: u64) -> u64 {
        if self.quick { count / 10 } else { count }
    }

    /// A folder for one measurement, empty.
    fn fresh_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("failed to empty {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
        Ok(dir)
    }

    /// Says what is being measured.
    fn now(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }
}

/// Measures and shows the figures.
pub fn run(args: BenchArgs, screen: &Screen) -> anyhow::Result<()> {
    if let Some(address) = args.echo {
        return raw::serve_echo(address);
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; figures from it mean nothing (use --release)");
    }
    let root =
        args.dir.unwrap_or(std::env::current_dir()?).join(format!("laneway-bench-{}", std::process::id()));
    std::fs::create_dir_all(&root).with_context(|| format!("failed to make {}", root.display()))?;
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}").expect("the template is ours"),
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
    report::show(screen, &measured?, args.quick)?;
    removed
}

fn measure(bench: &Bench, parts: &[Part]) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for part in parts {
        match part {
            Part::Engine => figures.extend(measure_engine(bench)),
            Part::Enqueue => figures.push(enqueue::one_a_call(bench)?),
            Part::Batch => figures.extend(enqueue::thousand_a_call(bench)?),
            Part::Drain => figures.push(drain::by_local_handlers(bench)?),
            Part::Latency => figures.extend(latency::idle(bench)?),
            Part::Workers => figures.extend(workers::over_sockets(bench)?),
            Part::Scale => figures.extend(scale::million(bench)?),
        }
    }
    Ok(figures)
}

/// The engine has no raw limit beside it: its goals are absolute, for one core.
fn measure_engine(bench: &Bench) -> Vec<Figure> {
    let goals = [250_000.0, 150_000.0, 40_000.0];
    engine::Mix::ALL
        .into_iter()
        .zip(goals)
        .map(|(mix, goal)| {
            bench.now(format!("engine, {} mix", mix.word()));
            let cycles = bench.sized(if mix == engine::Mix::Adversarial { 200_000 } else { 500_000 });
            let ours = (0..bench.runs).map(|_| engine::cycles_per_second(mix, cycles)).collect();
            Figure::absolute(
                format!("engine cycles, {}", mix.word()),
                Unit::PerSecond,
                ours,
                Goal::AtLeast(goal),
            )
        })
        .collect()
}
