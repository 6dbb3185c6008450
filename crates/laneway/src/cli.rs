//! The command line: the global options and the list of subcommands.

use clap::{Parser, Subcommand};

use crate::client::ServerArgs;
use crate::commands::{
    artifacts, backup, bench, browsers, capacity, completions, config, deliveries, demo, drain, events,
    instances, jobs, lanes, leases, man, mcp, open, profiles, runs, schedules, serve, sessions, stats, store,
    submit, token, top, worker, workers,
};
use crate::exit::EXIT_CODES_HELP;
use crate::output::ColorChoice;

/// A durable job scheduler for agents.
#[derive(Debug, Parser)]
#[command(
    name = "laneway",
    version,
    about = "Laneway: a durable job scheduler for agents.\n\n`laneway serve` starts a server that needs nothing beside \
             itself; the other commands are its clients.",
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES_HELP}"),
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Write JSON instead of tables
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// When to use colours; `auto` respects NO_COLOR
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN", help_heading = GLOBAL)]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

/// The heading of the global options, so that they do not mix with those of a subcommand.
pub const GLOBAL: &str = "Global options";

const EXAMPLES: &str = "\
Examples:
  laneway demo                                     see it move
  laneway serve                                    start a server on 127.0.0.1:7717
  laneway submit echo --payload '{\"n\": 1}' --wait  run a first job
  laneway jobs list --state failed                 recent failures
  laneway jobs explain ID                          why is it not running?
  laneway jobs wait ID                             wait for its end, with progress
  laneway sessions stop chat-42                    end what runs in a conversation
  laneway schedules create daily report --cron '0 9 * * 1-5' --zone Europe/Berlin";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Async(AsyncCommand),
    /// Run benchmarks on this machine, each beside its raw limit
    // It starts its own runtimes: the measured code must not share one.
    Bench(bench::BenchArgs),
    /// Write completions for a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages to a directory
    Man(man::ManArgs),
}

/// The subcommands that run in the runtime of the program.
#[derive(Debug, Subcommand)]
pub enum AsyncCommand {
    /// Start a server
    Serve(serve::ServeArgs),
    /// Submit a job
    Submit(Box<submit::SubmitArgs>),
    /// List, show, wait for, cancel, retry and explain jobs
    Jobs(jobs::JobsArgs),
    /// Submit, list, show and cancel runs: jobs that depend on one another
    Runs(runs::RunsArgs),
    /// List and download the artifacts of a job
    Artifacts(artifacts::ArtifactsArgs),
    /// List, show and resend webhook deliveries
    Deliveries(deliveries::DeliveriesArgs),
    /// List, pause, resume, limit and delete lanes
    Lanes(lanes::LanesArgs),
    /// Create, list, change, trash, restore and delete browser profiles
    Profiles(profiles::ProfilesArgs),
    /// List, start, stop and open the browsers of the server's machine
    Browsers(browsers::BrowsersArgs),
    /// List, put and delete servers of browser tabs
    Instances(instances::InstancesArgs),
    /// List, request, release and revoke leases of pull workers
    Leases(leases::LeasesArgs),
    /// Show the machine's capacity and its use
    Capacity(capacity::CapacityArgs),
    /// List, show, stop and reset sessions
    Sessions(sessions::SessionsArgs),
    /// Create, list, change, fire and delete schedules
    Schedules(schedules::SchedulesArgs),
    /// Reject new jobs while waiting and running jobs go on, or admit new jobs again
    Drain(drain::DrainArgs),
    /// Show current statistics
    Stats(stats::StatsArgs),
    /// Show whether the server is well
    Health,
    /// Watch lanes, agents, jobs and workers, and act on them
    Top(top::TopArgs),
    /// Open the dashboard in a browser
    Open(open::OpenArgs),
    /// Follow the stream of events
    Events(events::EventsArgs),
    /// Write the store to one file, with or without a running server
    Backup(backup::BackupArgs),
    /// Restore a backup into a data directory
    Restore(backup::RestoreArgs),
    /// Check the store for damage
    Store(store::StoreArgs),
    /// Check, show or import a configuration
    Config(config::ConfigArgs),
    /// Create, import, list, rotate and revoke tokens
    Token(token::TokenArgs),
    /// List, show, drain and equip workers
    Workers(workers::WorkersArgs),
    /// Run a worker whose handlers are programs
    Worker(Box<worker::WorkerArgs>),
    /// Let an agent call the server over MCP, on standard input and output
    Mcp(mcp::McpArgs),
    /// Watch a server run a stream of sample jobs
    Demo(demo::DemoArgs),
}
