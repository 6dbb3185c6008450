//! `laneway sessions`: list, show, stop and reset sessions.

use clap::Subcommand;
use laneway_wire::{Session, SessionList, SessionStopped, SessionUsageRequest, SessionsReset};
use reqwest::Method;

use crate::client::Client;
use crate::commands::jobs::show::{field, label, maybe};
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for sessions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Stop cancels the job that has run longest, or the first waiting one when none runs. Stopall cancels all \
running and waiting jobs, and jobs that were sent before it are rejected later. A canceled job holds its \
session until its attempt has ended.

Examples:
  laneway sessions list
  laneway sessions show agent:a7:chat:42
  laneway sessions stop agent:a7:chat:42
  laneway sessions stopall agent:a7:chat:42
  laneway sessions reset --all
  laneway sessions usage agent:a7:chat:42 --tokens 90000 --window 128000")]
pub struct SessionsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Sessions with jobs, and those with a stored state
    List {
        /// Only sessions after this name
        #[arg(long, value_name = "KEY")]
        after: Option<String>,
        /// How many at most
        #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// One session
    Show {
        /// The session
        session: String,
    },
    /// Cancel the job that has run longest, or the first waiting one
    Stop {
        /// The session
        session: String,
    },
    /// Cancel all running and waiting jobs
    Stopall {
        /// The session
        session: String,
    },
    /// Cancel all jobs, and begin a new generation
    Reset {
        /// The session
        #[arg(required_unless_present = "all")]
        session: Option<String>,
        /// Every session that has jobs: of your tenant, or of all tenants for a server-wide token without
        /// a tenant
        #[arg(long, conflicts_with = "session")]
        all: bool,
    },
    /// Set how full its context is; from 60 % on its jobs start one by one
    Usage {
        /// The session
        session: String,
        /// Tokens used
        #[arg(long, value_name = "N")]
        tokens: u64,
        /// Tokens that fit in the context; 0: unknown
        #[arg(long, value_name = "N")]
        window: u64,
    },
}

/// Runs a command for sessions.
pub async fn run(output: &Output, client: &Client, args: &SessionsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List { after, limit } => list(output, client, after.as_deref(), *limit).await,
        Verb::Show { session } => show(output, &client.get(&["v1", "sessions", session], &[]).await?),
        Verb::Stop { session } => stop(output, client, session, "stop").await,
        Verb::Stopall { session } => stop(output, client, session, "stopall").await,
        Verb::Reset { session: Some(session), .. } => stop(output, client, session, "reset").await,
        Verb::Reset { session: None, .. } => reset_all(output, client).await,
        Verb::Usage { session, tokens, window } => {
            let usage = SessionUsageRequest { tokens: *tokens, window: *window };
            show(output, &client.send(Method::PUT, &["v1", "sessions", session, "usage"], &usage).await?)
        }
    }
}

async fn list(output: &Output, client: &Client, after: Option<&str>, limit: u32) -> anyhow::Result<()> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(after.map(|after| ("after", after.to_owned())));
    let list: SessionList = client.get(&["v1", "sessions"], &query).await?;
    if output.json {
        return output.document(&list);
    }
    if list.sessions.is_empty() {
        output.line(output.paint(Paint::Dim, "no sessions"));
        return Ok(());
    }
    table(&list.sessions).print(output);
    if let Some(next) = &list.next {
        output.line(output.paint(Paint::Dim, &format!("there are more: --limit N, or --after '{next}'")));
    }
    Ok(())
}

async fn stop(output: &Output, client: &Client, session: &str, verb: &str) -> anyhow::Result<()> {
    let stopped: SessionStopped = client.post(&["v1", "sessions", session, verb]).await?;
    if output.json {
        return output.document(&stopped);
    }
    let SessionStopped { key: _, running, waiting, running_count, waiting_count, generation } = &stopped;
    let state = match (running_count, waiting_count) {
        (0, 0) => output.paint(Paint::Dim, "nothing to stop"),
        (ran, waited) => format!("stopped {ran} running and {waited} waiting"),
    };
    let generation = if verb == "reset" { format!(", now generation {generation}") } else { String::new() };
    output.line(format!("{state}{generation}"));
    for (name, paint, jobs, count) in
        [("running", Paint::Cyan, running, running_count), ("waiting", Paint::Blue, waiting, waiting_count)]
    {
        for job in jobs {
            output.line(format!("  {}  {job}", output.paint(paint, name)));
        }
        let more = *count as usize - jobs.len().min(*count as usize);
        if more > 0 {
            output.line(output.paint(Paint::Dim, &format!("  and {more} more {name}")));
        }
    }
    Ok(())
}

async fn reset_all(output: &Output, client: &Client) -> anyhow::Result<()> {
    let reset: SessionsReset = client.post(&["v1", "sessions", "reset"]).await?;
    if output.json {
        return output.document(&reset);
    }
    let SessionsReset { sessions, running, waiting } = reset;
    output.line(match sessions {
        0 => output.paint(Paint::Dim, "no session has jobs"),
        _ => format!("reset {sessions} sessions: stopped {running} running and {waiting} waiting"),
    });
    Ok(())
}

fn show(output: &Output, session: &Session) -> anyhow::Result<()> {
    if output.json {
        return output.document(session);
    }
    field(output, "session", &session.key);
    field(output, "tenant", &session.tenant);
    maybe(output, "lane", session.lane.as_deref());
    let running = match session.stopping {
        0 => session.running.to_string(),
        stopping => format!("{}, and {stopping} stopping", session.running),
    };
    field(output, "running", &running);
    maybe(output, "oldest run", session.oldest_running.as_deref());
    let waiting = match (session.buffered, session.waiting) {
        (0, waiting) => waiting.to_string(),
        (buffered, 1) => format!("1, a debounce batch of {buffered}"),
        (buffered, waiting) => format!("{waiting}, one of them a debounce batch of {buffered}"),
    };
    field(output, "waiting", &waiting);
    if let Some(most) = session.max_concurrent {
        field(output, "at once", &most.to_string());
    }
    if session.window > 0 {
        let text = format!("{} of {} tokens ({} %)", session.tokens, session.window, percent(session));
        let throttled = if session.throttled { ", one job at a time" } else { "" };
        let paint = if session.throttled { Paint::Yellow } else { Paint::Plain };
        output.line(format!("{} {text}{}", label(output, "context"), output.paint(paint, throttled)));
    }
    if let Some(at) = &session.stopped_at {
        field(output, "stopped", &format!("{at} ({})", time_args::distance(at)));
    }
    field(output, "generation", &session.generation.to_string());
    Ok(())
}

fn percent(session: &Session) -> u128 {
    u128::from(session.tokens) * 100 / u128::from(session.window.max(1))
}

fn table(sessions: &[Session]) -> Table {
    let mut table = Table::new()
        .flexible("SESSION")
        .left("LANE")
        .right("RUNNING")
        .right("STOPPING")
        .spare(3)
        .right("WAITING")
        .right("BATCH")
        .spare(2)
        .right("AT ONCE")
        .spare(1)
        .right("CONTEXT")
        .left("STOPPED")
        .spare(4);
    for session in sessions {
        let context = match session.window {
            0 => Cell::maybe(None::<&str>),
            _ => {
                let paint = if session.throttled { Paint::Yellow } else { Paint::Plain };
                Cell::painted(format!("{} %", percent(session)), paint)
            }
        };
        table.row(vec![
            Cell::plain(&session.key),
            Cell::maybe(session.lane.as_ref()),
            Cell::painted(
                session.running.to_string(),
                if session.running > 0 { Paint::Cyan } else { Paint::Plain },
            ),
            Cell::plain(session.stopping),
            Cell::plain(session.waiting),
            Cell::plain(session.buffered),
            Cell::maybe(session.max_concurrent),
            context,
            Cell::maybe(session.stopped_at.as_deref().map(time_args::distance)),
        ]);
    }
    table
}
