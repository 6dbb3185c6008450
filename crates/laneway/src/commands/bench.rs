//! `laneway bench`: runs the benchmarks of `laneway-bench` and shows the results.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use laneway_bench::{Measurement, Part, Plan};
use serde_json::json;

use crate::output::{Output, Paint};
use crate::table::{Cell, Table};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  laneway bench                        everything; takes about seven minutes
  laneway bench --quick                everything, smaller: a rough result only
  laneway bench --only engine,drain    two parts
  laneway bench --only sustained --picture sustained.svg
                                       ten minutes of submitting and running, drawn over time
  laneway bench --store postgres://…   the store in an empty PostgreSQL database
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
    /// Draw the measurements of the part `sustained` over time, as SVG, into this file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Measure the store in this empty PostgreSQL database, beside raw statements
    #[arg(long, value_name = "URL", conflicts_with = "only")]
    store: Option<String>,
    /// Serve the bare echo that enqueue is compared with
    #[arg(long, hide = true, value_name = "ADDR")]
    echo: Option<std::net::SocketAddr>,
}

/// Runs the benchmarks and shows the results.
pub fn run(output: &Output, args: &BenchArgs) -> anyhow::Result<()> {
    if let Some(address) = args.echo {
        return laneway_bench::serve_echo(address);
    }
    if cfg!(debug_assertions) {
        output.note("warning: this is a debug build; results from it mean nothing (use --release)");
    }
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}").expect("the template is valid"),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let root = match &args.dir {
        Some(dir) => dir.clone(),
        None => std::env::current_dir()?,
    };
    let dir = root.join(format!("laneway-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
    let measured = laneway_bench::run(Plan {
        parts: args.only.clone(),
        runs: args.runs,
        quick: args.quick,
        dir: dir.clone(),
        picture: args.picture.clone(),
        postgres: args.store.clone(),
        progress: &|name| bar.set_message(name),
    });
    bar.finish_and_clear();
    let removed =
        std::fs::remove_dir_all(&dir).with_context(|| format!("failed to remove {}", dir.display()));
    show(output, &measured?, args.quick)?;
    removed
}

/// Shows all results: a table for people, one document for programs.
fn show(output: &Output, measurements: &[Measurement], quick: bool) -> anyhow::Result<()> {
    if output.json {
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "quick": quick,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "benchmarks": measurements.iter().map(Measurement::document).collect::<Vec<_>>(),
        });
        return output.document(&document);
    }
    let mut table = Table::new()
        .flexible("BENCHMARK")
        .right("OURS")
        .left("SPREAD")
        .spare(1)
        .right("RAW")
        .spare(2)
        .right("RATIO")
        .left("GOAL")
        .left("MET");
    for measurement in measurements {
        let met = match measurement.met() {
            None => Cell::plain(""),
            Some(true) => Cell::painted("yes", Paint::Green),
            Some(false) => Cell::painted("no", Paint::Red),
        };
        table.row(vec![
            Cell::plain(measurement.name()),
            Cell::plain(measurement.ours_text()),
            Cell::plain(measurement.spread_text()),
            Cell::plain(measurement.raw_text().map_or(String::new(), |(raw, _)| raw)),
            Cell::plain(measurement.ratio_text()),
            Cell::plain(measurement.goal_text()),
            met,
        ]);
    }
    table.print(output);
    for measurement in measurements {
        if let Some((_, raw_is)) = measurement.raw_text() {
            output.line(format!("{}: beside {raw_is}", measurement.name()));
        }
    }
    if quick {
        output.line("A quick run: rough results only.");
    }
    Ok(())
}
