//! The command line as a whole: what every subcommand shares, and which subcommands there are.

use clap::{Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::client::ServerArgs;
use crate::commands::{
    artifacts, capacity, completions, config, deliveries, demo, events, instances, jobs, lanes, leases, runs,
    schedules, serve, sessions, stats, submit, token, worker, workers,
};
use crate::exit::EXIT_CODES_HELP;
use crate::screen::ColorChoice;

/// A durable job scheduler for agents.
#[derive(Debug, Parser)]
#[command(
    name = "laneway",
    version,
    about = "Laneway: a durable job scheduler for agents.\n\n`laneway serve` starts a server that needs nothing beside \
             itself; everything else talks to one.",
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

/// Heads the options that every subcommand takes, so that they do not stand between its own.
pub const GLOBAL: &str = "Global options";

const EXAMPLES: &str = "\
Examples:
  laneway demo                                     see it move
  laneway serve                                    start a server on 127.0.0.1:7717
  laneway submit echo --payload '{\"n\": 1}' --wait  run a first job
  laneway jobs list --state failed                 what went wrong lately
  laneway jobs explain ID                          why is it not running?
  laneway sessions stop chat-42                    end what runs in a conversation
  laneway schedules create daily report --cron '0 9 * * 1-5' --zone Europe/Berlin";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a server
    Serve(serve::ServeArgs),
    /// Submit a job
    Submit(Box<submit::SubmitArgs>),
    /// List, show, cancel, retry and explain jobs
    Jobs(jobs::JobsArgs),
    /// Submit, list, show and cancel runs: jobs that depend on one another
    Runs(runs::RunsArgs),
    /// List and fetch what the runs of a job made on workers
    Artifacts(artifacts::ArtifactsArgs),
    /// List, show and resend webhook deliveries
    Deliveries(deliveries::DeliveriesArgs),
    /// List, pause, resume and limit lanes
    Lanes(lanes::LanesArgs),
    /// List, put and take back servers of browser tabs
    Instances(instances::InstancesArgs),
    /// List, request, release and revoke leases of workers that ask for work
    Leases(leases::LeasesArgs),
    /// Show how much the machine can take, and who holds it
    Capacity(capacity::CapacityArgs),
    /// List, show, stop and reset sessions
    Sessions(sessions::SessionsArgs),
    /// Make, list, change, run and delete schedules
    Schedules(schedules::SchedulesArgs),
    /// Show figures of now
    Stats(stats::StatsArgs),
    /// Follow the stream of events
    Events(events::EventsArgs),
    /// Check a configuration, or show it
    Config(config::ConfigArgs),
    /// Make, list, replace and revoke tokens
    Token(token::TokenArgs),
    /// List, show, drain and equip workers
    Workers(workers::WorkersArgs),
    /// Run a worker whose handlers are programs
    Worker(Box<worker::WorkerArgs>),
    /// Measure this machine: every figure beside its raw limit
    Bench(BenchArgs),
    /// Watch a server at work on a stream of sample jobs
    Demo(demo::DemoArgs),
    /// Write completions for a shell
    Completions(completions::CompletionsArgs),
}
