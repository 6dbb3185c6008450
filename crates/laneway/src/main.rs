//! The `laneway` program: reads the command line and the environment, runs one command, ends with its code.

mod bench;
mod cli;
mod client;
mod commands;
mod dialects;
mod exit;
mod log;
mod moment;
mod samples;
mod screen;
mod server;
mod settings;
mod sse;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::client::Client;
use crate::exit::Exit;
use crate::screen::{Paint, Screen};
use crate::settings::Environment;

/// The engine and the API make and forget many small things; see docs/decisions/0004-allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let screen = Screen::new(cli.json, cli.color, no_color);
    match run(cli, &screen, &environment()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&screen, &error, no_color);
            exit::code_of(&error).into()
        }
    }
}

/// The variables that may mean something to us. What is not text cannot.
fn environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("LANEWAY_") || name.starts_with("GOCLAW_LANE_"))
        .collect()
}

fn run(cli: Cli, screen: &Screen, environment: &Environment) -> anyhow::Result<()> {
    match &cli.command {
        Command::Completions(args) => {
            commands::completions::run(screen, args);
            return Ok(());
        }
        // It starts runtimes of its own: what it measures must not share one with us.
        Command::Bench(_) => {
            let Command::Bench(args) = cli.command else { unreachable!("just matched") };
            return bench::run(args, screen);
        }
        _ => {}
    }
    // The loop has a thread of its own; a core less for the others saves both from getting in each other's way.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(1).max(1))
        .enable_all()
        .build()?;
    let done = runtime.block_on(run_async(cli, screen, environment));
    // A handler that blocks its thread must not keep the program from ending.
    runtime.shutdown_background();
    done
}

async fn run_async(cli: Cli, screen: &Screen, environment: &Environment) -> anyhow::Result<()> {
    let client = Client::new(&cli.server)?;
    match cli.command {
        Command::Serve(args) => commands::serve::run(screen, environment, &args).await,
        Command::Submit(args) => commands::submit::run(screen, &client, &args).await,
        Command::Jobs(args) => commands::jobs::run(screen, &client, &args).await,
        Command::Artifacts(args) => commands::artifacts::run(screen, &client, &args).await,
        Command::Deliveries(args) => commands::deliveries::run(screen, &client, &args).await,
        Command::Lanes(args) => commands::lanes::run(screen, &client, &args).await,
        Command::Instances(args) => commands::instances::run(screen, &client, &args).await,
        Command::Workers(args) => commands::workers::run(screen, &client, &args).await,
        Command::Leases(args) => commands::leases::run(screen, &client, &args).await,
        Command::Capacity(args) => commands::capacity::run(screen, &client, &args).await,
        Command::Runs(args) => commands::runs::run(screen, &client, &args).await,
        Command::Sessions(args) => commands::sessions::run(screen, &client, &args).await,
        Command::Schedules(args) => commands::schedules::run(screen, &client, &args).await,
        Command::Stats(args) => commands::stats::run(screen, &client, &args).await,
        Command::Events(args) => commands::events::run(screen, &client, &args).await,
        Command::Config(args) => commands::config::run(screen, &client, environment, &args).await,
        Command::Token(args) => commands::token::run(screen, &client, environment, &args).await,
        Command::Worker(args) => commands::worker::run(screen, &cli.server, &args).await,
        Command::Demo(args) => commands::demo::run(screen, &client, &cli.server, &args).await,
        Command::Bench(_) | Command::Completions(_) => unreachable!("these need no runtime"),
    }
}

/// One clear message on standard error; the server's own words as JSON where JSON was asked for.
fn report(screen: &Screen, error: &anyhow::Error, no_color: bool) {
    if screen.json {
        screen.aside(exit::document(error).to_string());
        return;
    }
    let painted = Screen { color: screen.color || (std::io::stderr().is_terminal() && !no_color), ..*screen };
    let head = match exit::code_of(error) {
        Exit::NotAllowed => "not allowed:",
        Exit::NotFound => "not found:",
        _ => "error:",
    };
    painted.aside(format!("{} {error:#}", painted.paint(Paint::Red, head)));
}
