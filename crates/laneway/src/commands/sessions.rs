//! `laneway sessions`: conversations and their stop button.

use clap::Subcommand;
use laneway_wire::{Session, SessionList, SessionStopped, SessionUsageRequest};
use reqwest::Method;

use crate::client::Client;
use crate::commands::jobs::show::{fact, label, maybe};
use crate::moment;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// What to do with sessions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A stop ends the job that has run longest, or the one that waits first when none runs. Stopall ends everything that runs and \
waits, and what was sent before it is refused later. A run that is told to stop holds its session until it has ended.

Examples:
  laneway sessions list
  laneway sessions show agent:a7:chat:42
  laneway sessions stop agent:a7:chat:42
  laneway sessions stopall agent:a7:chat:42
  laneway sessions usage agent:a7:chat:42 --tokens 90000 --window 128000")]
pub struct SessionsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Sessions with jobs, and those of which something is remembered
    List {
        /// Only sessions after this name
        #[arg(long, value_name = "KEY")]
        after: Option<String>,
        /// How many at most
        #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// One session as it stands
    Show {
        /// The session
        session: String,
    },
    /// End the job that has run longest, or the one that waits first
    Stop {
        /// The session
        session: String,
    },
    /// End everything that runs and waits
    Stopall {
        /// The session
        session: String,
    },
    /// End everything, and begin a new generation
    Reset {
        /// The session
        session: String,
    },
    /// Say how full its context is; from 60 % on its jobs start one by one
    Usage {
        /// The session
        session: String,
        /// Tokens used
        #[arg(long, value_name = "N")]
        tokens: u64,
        /// Tokens that the context holds; 0: not known
        #[arg(long, value_name = "N")]
        window: u64,
    },
}

/// Does what was asked with sessions.
pub async fn run(screen: &Screen, client: &Client, args: &SessionsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List { after, limit } => list(screen, client, after.as_deref(), *limit).await,
        Verb::Show { session } => show(screen, &client.get(&["v1", "sessions", session], &[]).await?),
        Verb::Stop { session } => stop(screen, client, session, "stop").await,
        Verb::Stopall { session } => stop(screen, client, session, "stopall").await,
        Verb::Reset { session } => stop(screen, client, session, "reset").await,
        Verb::Usage { session, tokens, window } => {
            let usage = SessionUsageRequest { tokens: *tokens, window: *window };
            show(screen, &client.send(Method::PUT, &["v1", "sessions", session, "usage"], &usage).await?)
        }
    }
}

async fn list(screen: &Screen, client: &Client, after: Option<&str>, limit: u32) -> anyhow::Result<()> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(after.map(|after| ("after", after.to_owned())));
    let list: SessionList = client.get(&["v1", "sessions"], &query).await?;
    if screen.json {
        return screen.document(&list);
    }
    if list.sessions.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no sessions"));
        return Ok(());
    }
    table(&list.sessions).print(screen);
    if let Some(next) = &list.next {
        screen.line(screen.paint(Paint::Dim, &format!("there are more: --limit N, or --after '{next}'")));
    }
    Ok(())
}

async fn stop(screen: &Screen, client: &Client, session: &str, verb: &str) -> anyhow::Result<()> {
    let stopped: SessionStopped = client.post(&["v1", "sessions", session, verb]).await?;
    if screen.json {
        return screen.document(&stopped);
    }
    let SessionStopped { key: _, running, waiting, running_count, waiting_count, generation } = &stopped;
    let said = match (running_count, waiting_count) {
        (0, 0) => screen.paint(Paint::Dim, "nothing to stop"),
        (ran, waited) => format!("stopped {ran} running and {waited} waiting"),
    };
    let generation = if verb == "reset" { format!(", now generation {generation}") } else { String::new() };
    screen.line(format!("{said}{generation}"));
    for (word, paint, jobs, count) in
        [("running", Paint::Cyan, running, running_count), ("waiting", Paint::Blue, waiting, waiting_count)]
    {
        for job in jobs {
            screen.line(format!("  {}  {job}", screen.paint(paint, word)));
        }
        let more = *count as usize - jobs.len().min(*count as usize);
        if more > 0 {
            screen.line(screen.paint(Paint::Dim, &format!("  and {more} more {word}")));
        }
    }
    Ok(())
}

fn show(screen: &Screen, session: &Session) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(session);
    }
    fact(screen, "session", &session.key);
    fact(screen, "tenant", &session.tenant);
    maybe(screen, "lane", session.lane.as_deref());
    let running = match session.stopping {
        0 => session.running.to_string(),
        stopping => format!("{}, and {stopping} told to stop", session.running),
    };
    fact(screen, "running", &running);
    maybe(screen, "oldest run", session.oldest_running.as_deref());
    let waiting = match (session.buffered, session.waiting) {
        (0, waiting) => waiting.to_string(),
        (buffered, 1) => format!("1, a burst of {buffered}"),
        (buffered, waiting) => format!("{waiting}, one of them a burst of {buffered}"),
    };
    fact(screen, "waiting", &waiting);
    if let Some(most) = session.max_concurrent {
        fact(screen, "at once", &most.to_string());
    }
    if session.window > 0 {
        let text = format!("{} of {} tokens ({} %)", session.tokens, session.window, percent(session));
        let throttled = if session.throttled { ", one job at a time" } else { "" };
        let paint = if session.throttled { Paint::Yellow } else { Paint::Plain };
        screen.line(format!("{} {text}{}", label(screen, "context"), screen.paint(paint, throttled)));
    }
    if let Some(at) = &session.stopped_at {
        fact(screen, "stopped", &format!("{at} ({})", moment::distance(at)));
    }
    fact(screen, "generation", &session.generation.to_string());
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
        .right("WAITING")
        .right("BURST")
        .right("AT ONCE")
        .right("CONTEXT")
        .left("STOPPED");
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
            Cell::maybe(session.stopped_at.as_deref().map(moment::distance)),
        ]);
    }
    table
}
