//! The `laneway` program: parses the command line and the environment, runs one command, and exits with its code.

mod cli;
mod client;
mod commands;
mod dialects;
mod exit;
mod inbox;
mod log;
mod mcp;
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

use crate::cli::{AsyncCommand, Cli, Command};
use crate::client::{Client, ServerArgs};
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
    let Cli { server, command, .. } = cli;
    match command {
        Command::Async(command) => in_runtime(run_async(command, &server, output, environment)),
        Command::Bench(args) => commands::bench::run(output, &args),
        Command::Completions(args) => {
            commands::completions::run(output, &args);
            Ok(())
        }
        Command::Man(args) => commands::man::run(output, &args),
    }
}

/// Runs a command in a new runtime.
fn in_runtime(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // The loop has its own thread; one worker thread less avoids contention with it.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(1).max(1))
        .enable_all()
        .build()?;
    let done = runtime.block_on(command);
    // A handler that blocks its thread must not keep the program from ending.
    runtime.shutdown_background();
    done
}

async fn run_async(
    command: AsyncCommand,
    server: &ServerArgs,
    output: &Output,
    environment: &Environment,
) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match command {
        AsyncCommand::Serve(args) => commands::serve::run(output, environment, &args).await,
        AsyncCommand::Submit(args) => commands::submit::run(output, &client, &args).await,
        AsyncCommand::Jobs(args) => commands::jobs::run(output, &client, &args).await,
        AsyncCommand::Artifacts(args) => commands::artifacts::run(output, &client, &args).await,
        AsyncCommand::Deliveries(args) => commands::deliveries::run(output, &client, &args).await,
        AsyncCommand::Lanes(args) => commands::lanes::run(output, &client, &args).await,
        AsyncCommand::Profiles(args) => commands::profiles::run(output, &client, &args).await,
        AsyncCommand::Browsers(args) => commands::browsers::run(output, &client, &args).await,
        AsyncCommand::Instances(args) => commands::instances::run(output, &client, &args).await,
        AsyncCommand::Workers(args) => commands::workers::run(output, &client, &args).await,
        AsyncCommand::Leases(args) => commands::leases::run(output, &client, &args).await,
        AsyncCommand::Capacity(args) => commands::capacity::run(output, &client, &args).await,
        AsyncCommand::Runs(args) => commands::runs::run(output, &client, &args).await,
        AsyncCommand::Sessions(args) => commands::sessions::run(output, &client, &args).await,
        AsyncCommand::Schedules(args) => commands::schedules::run(output, &client, &args).await,
        AsyncCommand::Drain(args) => commands::drain::run(output, &client, &args).await,
        AsyncCommand::Stats(args) => commands::stats::run(output, &client, &args).await,
        AsyncCommand::Health => commands::health::run(output, &client).await,
        AsyncCommand::Top(args) => commands::top::run(output, &client, &args).await,
        AsyncCommand::Open(args) => commands::open::run(output, &client, &args).await,
        AsyncCommand::Events(args) => commands::events::run(output, &client, &args).await,
        AsyncCommand::Backup(args) => commands::backup::back_up(output, environment, args).await,
        AsyncCommand::Restore(args) => commands::backup::restore(output, environment, args).await,
        AsyncCommand::Store(args) => commands::store::run(output, environment, args).await,
        AsyncCommand::Config(args) => commands::config::run(output, &client, environment, &args).await,
        AsyncCommand::Token(args) => commands::token::run(output, &client, environment, &args).await,
        AsyncCommand::Worker(args) => commands::worker::run(output, server, &args).await,
        AsyncCommand::Mcp(commands::mcp::McpArgs {}) => commands::mcp::run(&client).await,
        AsyncCommand::Demo(args) => commands::demo::run(output, &client, server, environment, &args).await,
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
