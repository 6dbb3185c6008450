//! `laneway demo`: a server at work on a stream of sample jobs, for people who want to see something move.
//!
//! It talks to the server over HTTP like everybody else. Where no server runs it starts one in this process, on a free
//! port and a directory of its own that is gone afterwards.

mod feed;
mod tally;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use laneway_runtime::config::{Layers, parse_span};
use laneway_wire::{Event, Stats};
use tokio::time::Instant;
use toml::Value;

use crate::client::{Client, ServerArgs};
use crate::screen::{Paint, Screen};
use crate::server::Server;
use crate::settings::wrong_config;
use crate::sse::Messages;
use feed::Feed;
use tally::Tally;

/// How long, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Uses the server at --url if one answers there, and leaves the lanes demo-chat, demo-browsers and demo-bulk behind. \
Otherwise starts a server of its own that is gone afterwards.

Examples:
  laneway demo
  laneway demo --for 20s
  laneway demo --for 5s --color never | cat")]
pub struct DemoArgs {
    /// End after this long instead of at Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_for)]
    length: Option<Duration>,
    /// The same seed submits the same jobs
    #[arg(long, default_value_t = 4711, value_name = "N")]
    seed: u64,
}

fn parse_for(text: &str) -> Result<Duration, String> {
    parse_span(text)
        .map(|span| Duration::from_millis(span.0))
        .ok_or("write a duration such as 20s".to_owned())
}

/// How often the picture is drawn on a terminal.
const REDRAW: Duration = Duration::from_millis(400);
/// How often a line is written elsewhere.
const LINE: Duration = Duration::from_secs(1);
/// How long the demo's own server may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Runs the demo until its time is up or Ctrl-C.
pub async fn run(
    screen: &Screen,
    client: &Client,
    server: &ServerArgs,
    args: &DemoArgs,
) -> anyhow::Result<()> {
    if client.is_there().await {
        return watch(screen, client, args).await;
    }
    let dir = tempfile::tempdir()?;
    let own = Server::start(demo_layers(dir.path())?).await?;
    let client = Client::new(&ServerArgs { url: own.url(), token: None, ..server.clone() })?;
    let watched = watch(screen, &client, args).await;
    own.stop(STOP_LIMIT).await?;
    watched
}

/// A free port, a directory that goes away, weights that show, and no word in the log that would spoil the picture.
fn demo_layers(dir: &std::path::Path) -> anyhow::Result<Layers> {
    let settings: [(&str, Value); 4] = [
        ("server.listen", "127.0.0.1:0".into()),
        ("server.data_dir", dir.display().to_string().into()),
        ("limits.storage_low", "1MiB".into()),
        ("agents.bob.weight", 2.into()),
    ];
    let flags = laneway::settings_table(settings.map(|(key, value)| (key.to_owned(), value)));
    Layers::read(None, [], flags).map_err(wrong_config)
}

async fn watch(screen: &Screen, client: &Client, args: &DemoArgs) -> anyhow::Result<()> {
    let begin = Instant::now();
    let end = args.length.map(|length| begin + length);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut messages = Messages::new(client.stream(&["v1", "events"], &[], None).await?);
    let listening = tokio::spawn({
        let tally = Arc::clone(&tally);
        async move {
            while let Ok(Some(message)) = messages.next().await {
                if let Ok(event) = serde_json::from_str::<Event>(&message.data) {
                    lock(&tally).add(event);
                }
            }
        }
    });
    let mut feed = Feed::new(client.clone(), args.seed).await?;
    let picture = Picture::begin(*screen);
    let done = tokio::select! {
        fed = feed.run(end) => fed,
        shown = show(screen, client, &tally, begin) => shown,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    drop(picture);
    feed.finish().await?;
    listening.abort();
    done?;
    finish(screen, client, &lock(&tally), begin.elapsed());
    Ok(())
}

async fn show(screen: &Screen, client: &Client, tally: &Mutex<Tally>, begin: Instant) -> anyhow::Result<()> {
    let drawn = screen.tty && !screen.json;
    let mut ticks = tokio::time::interval(if drawn { REDRAW } else { LINE });
    loop {
        ticks.tick().await;
        let stats: Stats = client.get(&["v1", "stats"], &[]).await?;
        let tally = lock(tally);
        if drawn {
            view::draw(screen, &stats, &tally, begin.elapsed(), client.base());
        } else {
            view::tell(screen, &stats, &tally, begin.elapsed())?;
        }
    }
}

fn finish(screen: &Screen, client: &Client, tally: &Tally, took: Duration) {
    if screen.json {
        return;
    }
    screen.line(
        screen.paint(Paint::Bold, &format!("the demo ran for {}s at {}", took.as_secs(), client.base())),
    );
    screen.line("");
    view::summary(tally).print(screen);
    screen.line("");
    screen.line("Next: start a server of your own with `laneway serve`, then `laneway submit echo --payload '{}' --wait`.");
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The terminal while it is drawn over: a screen of its own without a cursor, given back when this drops.
struct Picture {
    screen: Screen,
}

impl Picture {
    fn begin(screen: Screen) -> Picture {
        if screen.tty && !screen.json {
            screen.write("\x1b[?1049h\x1b[?25l\x1b[2J");
        }
        Picture { screen }
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        if self.screen.tty && !self.screen.json {
            self.screen.write("\x1b[?25h\x1b[?1049l");
        }
    }
}
