//! Runs the mutated simulator once for each mutant, until it breaks a rule.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Mutant, build, load, workspace};

/// A mutant that this many seeds do not catch is not caught.
const SEEDS_MAX: u64 = 6_000;
/// With no mutant on, this many seeds must break no rule; and so many on SQLite, which is slower.
const SEEDS_WITHOUT: u64 = 300;
const SEEDS_WITHOUT_SQLITE: u64 = 30;
/// Mutants that run at once.
const THREADS: usize = 2;
/// The variable that the switch reads.
const SWITCH: &str = "LANEWAY_MUTANT";

/// The result of the seeds of one mutant.
enum Outcome {
    /// The number of seeds that were needed, and the broken rule with its story.
    Caught(u64, String),
    /// No seed broke a rule.
    Green,
    /// The program itself failed.
    Failed(String),
}

/// Runs every mutant, or one, and prints the seeds that each needed and the rule that it broke.
pub fn run_all(only: Option<&str>, steps: u32) -> ExitCode {
    match prepare(only).and_then(|(program, mutants)| run_mutants(&program, &mutants, steps)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

/// Replays one seed with a mutant on.
pub fn replay(mutant: &str, arguments: &[String]) -> ExitCode {
    let status = prepare(Some(mutant)).and_then(|(program, _)| {
        let mut command = Command::new(&program);
        command.args(arguments).env(SWITCH, mutant).status().map_err(|error| error.to_string())
    });
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the mutated simulator and selects the mutants.
fn prepare(only: Option<&str>) -> Result<(std::path::PathBuf, Vec<Mutant>), String> {
    let (_, mut mutants) = load(&workspace())?;
    if let Some(only) = only {
        let names = mutants.iter().map(|mutant| mutant.name.as_str()).collect::<Vec<_>>().join(", ");
        mutants.retain(|mutant| mutant.name == only);
        if mutants.is_empty() {
            return Err(format!("there is no mutant {only:?}; the mutants are: {names}"));
        }
    }
    eprintln!("building the simulator with all mutants");
    Ok((build()?, mutants))
}

/// Gives true when every mutant was caught, and the mutated simulator breaks no rule while none is on.
fn run_mutants(program: &Path, mutants: &[Mutant], steps: u32) -> Result<bool, String> {
    for (seeds, sqlite) in [(SEEDS_WITHOUT, false), (SEEDS_WITHOUT_SQLITE, true)] {
        match run_seeds(program, None, sqlite, seeds, steps) {
            Outcome::Green => eprintln!("no mutant is on: {seeds} seeds break no rule"),
            Outcome::Caught(_, story) | Outcome::Failed(story) => {
                return Err(format!("a rule is broken although no mutant is on: {story}"));
            }
        }
    }
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run_seeds(program, Some(&mutant.name), mutant.sqlite, SEEDS_MAX, steps);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    eprintln!("{done}/{} {}", mutants.len(), mutant.name);
                    outcomes.lock().expect("no thread panics").push((&mutant.name, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no thread panics");
    outcomes.sort_by_key(|(name, _)| *name);
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Caught(seeds, story) => println!("{name:<34} {seeds:>5}  {story}"),
            Outcome::Green => println!("{name:<34}        not caught within {SEEDS_MAX} seeds"),
            Outcome::Failed(fault) => println!("{name:<34}        {fault}"),
        }
    }
    let caught = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Caught(..))).count();
    println!("{caught} of {} mutants were caught", mutants.len());
    Ok(caught == mutants.len())
}

/// Runs seeds on one thread until one breaks a rule.
fn run_seeds(program: &Path, mutant: Option<&str>, sqlite: bool, seeds: u64, steps: u32) -> Outcome {
    let mut command = Command::new(program);
    command.args(sqlite.then_some("--sqlite"));
    command.args(["--threads", "1", "--seeds", &format!("0..{seeds}"), "--steps", &steps.to_string()]);
    match mutant {
        Some(name) => command.env(SWITCH, name),
        None => command.env_remove(SWITCH),
    };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Outcome::Failed(format!("{}: {error}", program.display())),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let broken = text.lines().find_map(|line| {
        let (seed, story) = line.strip_prefix("seed ")?.split_once(" breaks ")?;
        Some((seed.parse::<u64>().ok()?, story.to_owned()))
    });
    match (broken, output.status.success()) {
        (Some((seed, story)), _) => Outcome::Caught(seed + 1, story),
        (None, true) => Outcome::Green,
        (None, false) => Outcome::Failed(format!("the simulator ended with {}", output.status)),
    }
}
