//! `laneway demo`: a server that runs a stream of sample jobs, as a live demonstration.
//!
//! The demo is an HTTP client like any other: of a server in this process, on a free port and with a temporary
//! directory. Another server gets sample jobs only if `--url` names it.

mod feed;
mod fleet;
mod shop;
mod tally;
mod view;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use laneway_browser::Chromium;
use laneway_runtime::config::{Layers, parse_span};
use laneway_wire::{Event, Stats};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use toml::Value;

use crate::client::{Client, ServerArgs};
use crate::commands::top;
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint};
use crate::server::Server;
use crate::settings::{Environment, wrong_config};
use crate::sse::Messages;
use feed::Feed;
use fleet::Fleet;
use tally::Tally;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts its own temporary server on a free port. With --url the jobs go to that server, which keeps the lanes \
demo-chat, demo-browsers and demo-bulk; LANEWAY_URL is ignored.

With --browser the server runs four real browsers, which visit a shop on this machine. It needs Chromium; \
LANEWAY_BROWSERS__CHROMIUM names one that is not in PATH.

Examples:
  laneway demo
  laneway demo --browser --for 30s
  laneway demo --for 20s
  laneway demo --for 5s --color never | cat")]
pub struct DemoArgs {
    /// End after this long instead of at Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_for)]
    length: Option<Duration>,
    /// Run a fleet of real browsers instead of sample jobs; needs Chromium
    #[arg(long)]
    browser: bool,
    /// The same seed submits the same jobs
    #[arg(long, default_value_t = 4711, value_name = "N")]
    seed: u64,
}

fn parse_for(text: &str) -> Result<Duration, String> {
    parse_span(text)
        .map(|span| Duration::from_millis(span.0))
        .ok_or("write a duration such as 20s".to_owned())
}

/// How often a line is written when there is no terminal.
const LINE: Duration = Duration::from_secs(1);
/// How long the demo's own server may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// The same with browsers, which write their profiles to disk when they close.
const FLEET_STOP_LIMIT: Duration = Duration::from_secs(15);
/// The variable with the path of Chromium.
const CHROMIUM_VARIABLE: &str = "LANEWAY_BROWSERS__CHROMIUM";

/// Runs the demo until its time is up, Ctrl-C, SIGTERM or SIGHUP, or its output is closed.
pub async fn run(
    output: &Output,
    client: &Client,
    server: &ServerArgs,
    environment: &Environment,
    args: &DemoArgs,
) -> anyhow::Result<()> {
    let chromium =
        environment.iter().find(|(name, _)| name == CHROMIUM_VARIABLE).map(|(_, path)| path.as_str());
    if args.browser {
        check_browser(server, chromium)?;
    }
    let mut signals = Signals::new()?;
    if server.is_asked_for {
        let watched = watch(output, client, args, &mut signals).await?;
        finish(output, &watched);
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let own = Server::start(demo_layers(dir.path(), chromium)?).await?;
    let client =
        Client::new(&ServerArgs { url: own.url(), token: None, token_file: None, ..server.clone() })?;
    let watched = watch(output, &client, args, &mut signals).await;
    own.stop(if args.browser { FLEET_STOP_LIMIT } else { STOP_LIMIT }).await?;
    // Before more output is written: writing to a closed pipe would end the process.
    remove(dir.path()).await?;
    finish(output, &watched?);
    Ok(())
}

/// A fleet needs Chromium, and a server of its own: profiles would stay on another one.
fn check_browser(server: &ServerArgs, chromium: Option<&str>) -> Result<(), CliError> {
    if server.is_asked_for {
        let message = "--browser runs on a server of its own; leave out --url";
        return Err(CliError::new(Exit::Usage, message));
    }
    let found = Chromium::find(chromium.map(Path::new));
    found.map(drop).map_err(|missing| {
        let message = format!("{missing} (here: {CHROMIUM_VARIABLE}); `laneway demo` needs no browser");
        CliError::new(Exit::Rejected, message)
    })
}

/// The results of the demo.
struct Watched {
    tally: Arc<Mutex<Tally>>,
    took: Duration,
    server: String,
    /// What the fleet has done.
    fleet: Option<String>,
}

/// What submits jobs.
enum Source {
    Samples(Feed),
    Fleet(Fleet),
}

impl Source {
    async fn new(client: &Client, args: &DemoArgs) -> anyhow::Result<Source> {
        let (client, seed) = (client.clone(), args.seed);
        Ok(match args.browser {
            true => Source::Fleet(Fleet::new(client, seed).await?),
            false => Source::Samples(Feed::new(client, seed).await?),
        })
    }

    async fn run(&mut self, end: Option<Instant>) -> anyhow::Result<()> {
        match self {
            Source::Samples(feed) => feed.run(end).await,
            Source::Fleet(fleet) => fleet.run(end).await,
        }
    }

    async fn finish(&self) -> anyhow::Result<Option<String>> {
        match self {
            Source::Samples(feed) => feed.finish().await.map(|()| None),
            Source::Fleet(fleet) => fleet.finish().await.map(Some),
        }
    }
}

/// Deletes a directory. Processes of a browser that has just ended may still write to its data for a moment.
async fn remove(dir: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match tokio::fs::remove_dir_all(dir).await {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty && begun.elapsed() < STOP_LIMIT =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            removed => return removed,
        }
    }
}

/// A free port, a temporary directory, visible weights, and no log lines that would disturb the display.
fn demo_layers(dir: &Path, chromium: Option<&str>) -> anyhow::Result<Layers> {
    let settings: [(&str, Value); 5] = [
        ("server.listen", "127.0.0.1:0".into()),
        ("server.data_dir", dir.display().to_string().into()),
        ("limits.storage_low", "1MiB".into()),
        ("agents.bob.weight", 2.into()),
        ("browsers.chromium", chromium.unwrap_or_default().into()),
    ];
    let flags = laneway::settings_table(settings.map(|(key, value)| (key.to_owned(), value)));
    Layers::read(laneway::config_schema(), None, [], flags).map_err(wrong_config)
}

async fn watch(
    output: &Output,
    client: &Client,
    args: &DemoArgs,
    signals: &mut Signals,
) -> anyhow::Result<Watched> {
    let begin = Instant::now();
    let end = args.length.map(|length| begin + length);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut messages = Messages::new(client.stream(&["v1", "events"], &[], None).await?);
    let listening = tokio::spawn({
        let tally = Arc::clone(&tally);
        async move {
            while let Ok(Some(message)) = messages.next().await {
                if let Ok(event) = serde_json::from_str::<Event>(&message.data) {
                    lock(&tally).add(&event);
                }
            }
        }
    });
    let mut source = Source::new(client, args).await?;
    let done = tokio::select! {
        fed = source.run(end) => fed,
        shown = show(output, client, &tally, begin) => shown,
        () = signals.any() => Ok(()),
    };
    let took = begin.elapsed();
    let fleet = source.finish().await?;
    listening.abort();
    done?;
    Ok(Watched { tally, took, server: client.base().to_string(), fleet })
}

/// Shows how it goes: the view of `laneway top` on a terminal until the user quits, lines elsewhere until the output is
/// closed.
async fn show(output: &Output, client: &Client, tally: &Mutex<Tally>, begin: Instant) -> anyhow::Result<()> {
    if output.tty && !output.json {
        return top::show(output, client, "laneway demo").await;
    }
    let mut ticks = tokio::time::interval(LINE);
    loop {
        ticks.tick().await;
        let stats: Stats = client.get(&["v1", "stats"], &[]).await?;
        if view::print_text(output, &stats, &lock(tally), begin.elapsed()).is_err() {
            return Ok(());
        }
    }
}

fn finish(output: &Output, watched: &Watched) {
    let Watched { tally, took, server, fleet } = watched;
    if output.json {
        return;
    }
    output.line(output.paint(Paint::Bold, &format!("the demo ran for {}s at {server}", took.as_secs())));
    output.line("");
    view::summary(&lock(tally)).print(output);
    output.line("");
    if let Some(fleet) = fleet {
        output.line(fleet);
        output.line("Next: start your own server with `laneway serve`, then read docs/guides/browsers.md.");
        return;
    }
    output.line(
        "Next: start your own server with `laneway serve`, then `laneway submit echo --payload '{}' --wait`.",
    );
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals that end the demo gracefully, so that the directory is removed and the terminal is restored.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
