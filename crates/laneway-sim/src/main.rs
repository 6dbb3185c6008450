//! The command line of the simulator: many seeds, one seed again with its log, or the mutants.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use laneway_sim::marathon::{Finish, Marathon};
use laneway_sim::{Plan, Series, StoreKind, World, mutants};

/// Runs seeded worlds against the engine, the loop and a failing store, and checks every rule after every batch.
#[derive(Parser)]
#[command(name = "laneway-sim")]
struct Arguments {
    /// Replay one seed and print its shape and its last events.
    #[arg(long, conflicts_with = "time")]
    seed: Option<u64>,
    /// Seeds to run, as FIRST..END.
    #[arg(long, value_parser = parse_range, default_value = "0..2000")]
    seeds: (u64, u64),
    /// Run fresh seeds for this long instead, such as 60s or 5m. Seeds start at the first of --seeds.
    #[arg(long = "for", value_parser = parse_span)]
    time: Option<Duration>,
    /// Steps with faults in each world.
    #[arg(long, default_value_t = 500)]
    steps: u32,
    /// Lines of the log of a replayed seed.
    #[arg(long, default_value_t = 50)]
    lines: usize,
    /// Threads; as many as there are cores when left out.
    #[arg(long)]
    threads: Option<usize>,
    /// Run on real SQLite files in the directory for temporary files. Slower, for fewer seeds.
    #[arg(long)]
    sqlite: bool,
    /// Build the simulator with known bugs, switch them on one by one or only the one named, and print how each is caught.
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with_all = ["seed", "time", "sqlite"])]
    mutants: Option<Option<String>>,
    /// Replay the seed with this mutant on.
    #[arg(long, value_name = "NAME", requires = "seed")]
    mutant: Option<String>,
    /// Fire 1,000 schedules every second for this long of simulated time, with crashes: 10h, 30m.
    #[arg(long, value_parser = parse_span)]
    marathon: Option<Duration>,
}

impl Arguments {
    fn store(&self) -> StoreKind {
        if self.sqlite { StoreKind::Sqlite } else { StoreKind::Memory }
    }

    /// The arguments of a program that replays this seed.
    fn replayed(&self, seed: u64) -> Vec<String> {
        let arguments = format!("--seed {seed} --steps {} --lines {}", self.steps, self.lines);
        let sqlite = self.sqlite.then(|| "--sqlite".to_owned());
        arguments.split(' ').map(str::to_owned).chain(sqlite).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(length) = arguments.marathon {
        return marathon(length);
    }
    if let Some(only) = &arguments.mutants {
        return mutants::run_all(only.as_deref(), arguments.steps);
    }
    match (arguments.seed, &arguments.mutant) {
        (Some(seed), Some(mutant)) => mutants::replay(mutant, &arguments.replayed(seed)),
        (Some(seed), None) => replay(&arguments, seed),
        (None, _) => series(&arguments),
    }
}

fn marathon(length: Duration) -> ExitCode {
    let span = laneway_core::Span(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    let began = Instant::now();
    let plan = Marathon { seed: 1, schedules: 1_000, length: span, shortest: 1, longest: 1 };
    match plan.run() {
        Ok(Finish { slots, crashes, batches }) => {
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{slots} slots fired exactly once, with {crashes} crashes in {batches} batches, in {seconds:.1} s"
            );
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("the marathon breaks {violation}");
            ExitCode::FAILURE
        }
    }
}

fn series(arguments: &Arguments) -> ExitCode {
    let threads =
        arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (first, end) = arguments.seeds;
    let end = if arguments.time.is_some() { u64::MAX } else { end };
    let began = Instant::now();
    let shows = std::io::stderr().is_terminal();
    let progress = |done: u64| {
        if shows && done.is_multiple_of(50) {
            let rate = done as f64 / began.elapsed().as_secs_f64();
            eprint!("\r{done} seeds, {rate:.0}/s ");
            std::io::stderr().flush().ok();
        }
    };
    let series = Series {
        first,
        end,
        steps: arguments.steps,
        threads,
        time: arguments.time,
        store: arguments.store(),
    };
    let totals = series.run(&progress);
    if shows {
        eprintln!();
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds from {first} in {seconds:.1} s ({:.0}/s): {} steps, {} batches, {} decisions compared, {} jobs, {} restarts",
        totals.seeds,
        totals.seeds as f64 / seconds,
        totals.steps,
        totals.batches,
        totals.decisions,
        totals.jobs,
        totals.restarts
    );
    match totals.broken {
        None => ExitCode::SUCCESS,
        Some((seed, violation)) => {
            println!("seed {seed} breaks {violation}");
            println!("replay: cargo run -p laneway-sim -- --seed {seed} --steps {}", arguments.steps);
            ExitCode::FAILURE
        }
    }
}

fn replay(arguments: &Arguments, seed: u64) -> ExitCode {
    let outcome = World::run(Plan {
        seed,
        steps: arguments.steps,
        log_lines: arguments.lines,
        fingerprint: true,
        store: arguments.store(),
    });
    println!("{:#?}", outcome.shape);
    for line in &outcome.log {
        println!("{line}");
    }
    println!(
        "seed {seed}: {} steps, {} batches, {} decisions compared, {} jobs, {} restarts, fingerprint {:016x}",
        outcome.steps,
        outcome.batches,
        outcome.decisions,
        outcome.jobs,
        outcome.restarts,
        outcome.fingerprint
    );
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("seed {seed} breaks {violation}");
            ExitCode::FAILURE
        }
    }
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let parsed =
        text.split_once("..").and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    parsed.filter(|(first, end)| first < end).ok_or_else(|| "give FIRST..END with FIRST below END".to_owned())
}

fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| "give a number with a unit: 60s, 5m, 1h".to_owned())?;
    match unit {
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3_600)),
        _ => Err("give a number with a unit: 60s, 5m, 1h".to_owned()),
    }
}
