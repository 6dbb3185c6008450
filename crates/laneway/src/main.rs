//! The `laneway` program: parses the command line and the environment, runs one command, and exits with its code.

mod bench;
mod cli;
mod client;
mod commands;
mod dialects;
mod exit;
mod log;
mod output;
mod samples;
mod server;
mod settings;
mod short_id;
mod sse;
mod table;
mod time_args;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::client::Client;
use crate::exit::Exit;
use crate::output::{Output, Paint};
use crate::settings::Environment;

/// The engine and the API allocate many small objects; see docs/decisions/0004-allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = commands::worker::helper(std::env::args_os()) {
        return code;
    }
    let matches = Cli::command().get_matches();
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.server.is_asked_for = matches.value_source("url") == Some(ValueSource::CommandLine);
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let output = Output::new(cli.json, cli.color, no_color, columns);
    if matches.value_source("token") == Some(ValueSource::CommandLine) && !output.json {
        output.note("warning: every user of this machine can see --token in the list of processes; use LANEWAY_TOKEN or --token-file");
    }
    match run(cli, &output, &environment()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&output, &error, no_color);
            exit::code_of(&error).into()
        }
    }
}

/// The environment variables. Variables that are not text are skipped.
fn environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("LANEWAY_") || name.starts_with("GOCLAW_LANE_"))
        .collect()
}

fn run(cli: Cli, output: &Output, environment: &Environment) -> anyhow::Result<()> {
    match &cli.command {
        Command::Completions(args) => {
            commands::completions::run(output, args);
            return Ok(());
        }
        // It starts its own runtimes: the measured code must not share one.
        Command::Bench(_) => {
            let Command::Bench(args) = cli.command else { unreachable!("just matched") };
            return bench::run(args, output);
        }
        _ => {}
    }
    // The loop has its own thread; one worker thread less avoids contention with it.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(1).max(1))
        .enable_all()
        .build()?;
    let done = runtime.block_on(run_async(cli, output, environment));
    // A handler that blocks its thread must not keep the program from ending.
    runtime.shutdown_background();
    done
}

async fn run_async(cli: Cli, output: &Output, environment: &Environment) -> anyhow::Result<()> {
    let client = Client::new(&cli.server)?;
    match cli.command {
        Command::Serve(args) => commands::serve::run(output, environment, &args).await,
        Command::Submit(args) => commands::submit::run(output, &client, &args).await,
        Command::Jobs(args) => commands::jobs::run(output, &client, &args).await,
        Command::Artifacts(args) => commands::artifacts::run(output, &client, &args).await,
        Command::Deliveries(args) => commands::deliveries::run(output, &client, &args).await,
        Command::Lanes(args) => commands::lanes::run(output, &client, &args).await,
        Command::Instances(args) => commands::instances::run(output, &client, &args).await,
        Command::Workers(args) => commands::workers::run(output, &client, &args).await,
        Command::Leases(args) => commands::leases::run(output, &client, &args).await,
        Command::Capacity(args) => commands::capacity::run(output, &client, &args).await,
        Command::Runs(args) => commands::runs::run(output, &client, &args).await,
        Command::Sessions(args) => commands::sessions::run(output, &client, &args).await,
        Command::Schedules(args) => commands::schedules::run(output, &client, &args).await,
        Command::Drain(args) => commands::drain::run(output, &client, &args).await,
        Command::Stats(args) => commands::stats::run(output, &client, &args).await,
        Command::Events(args) => commands::events::run(output, &client, &args).await,
        Command::Backup(args) => commands::backup::back_up(output, environment, args).await,
        Command::Restore(args) => commands::backup::restore(output, environment, args).await,
        Command::Store(args) => commands::store::run(output, environment, args).await,
        Command::Config(args) => commands::config::run(output, &client, environment, &args).await,
        Command::Token(args) => commands::token::run(output, &client, environment, &args).await,
        Command::Worker(args) => commands::worker::run(output, &cli.server, &args).await,
        Command::Demo(args) => commands::demo::run(output, &client, &cli.server, &args).await,
        Command::Bench(_) | Command::Completions(_) => unreachable!("these need no runtime"),
    }
}

/// Prints an error on standard error, as JSON with `--json`.
fn report(output: &Output, error: &anyhow::Error, no_color: bool) {
    if output.json {
        output.note(exit::document(error).to_string());
        return;
    }
    let painted = Output { color: output.color || (std::io::stderr().is_terminal() && !no_color), ..*output };
    let head = match exit::code_of(error) {
        Exit::NotAllowed => "not allowed:",
        Exit::NotFound => "not found:",
        Exit::Interrupted => "interrupted:",
        Exit::TimedOut => "timed out:",
        _ => "error:",
    };
    painted.note(format!("{} {error:#}", painted.paint(Paint::Red, head)));
}
