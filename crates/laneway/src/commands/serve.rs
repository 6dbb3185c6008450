//! `laneway serve`: starts a server and keeps it until it is told to stop.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use laneway_core::{Origin, Reply};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::DEFAULT_URL;
use crate::exit::{Exit, Trouble};
use crate::log;
use crate::screen::{Paint, Screen};
use crate::server::Server;
use crate::settings::{ConfigFlags, Environment};

/// How to start.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Configuration, weakest first: built-in defaults < --config FILE < environment (LANEWAY_SECTION__KEY) < flags. Every key \
is explained by `laneway config dump --defaults`. The file is read again when it changes and on SIGHUP.

Signals: SIGTERM and SIGINT stop the server: nothing new starts, what runs has server.drain_limit to end, the rest is \
handed back. A second one hands back at once, a third one ends the process. SIGHUP reads the configuration again. \
SIGUSR1 begins every session anew: its runs here stop, and their jobs are queued again at no cost.

Kinds that every server runs by itself: echo (gives its payload back), sleep ({\"ms\": n}), fail ({\"times\": n, \
\"permanent\": bool}). Kinds with a `target` in the configuration are forwarded by HTTP.

Examples:
  laneway serve
  laneway serve --listen 127.0.0.1:8080 --data-dir /var/lib/laneway
  laneway serve --config laneway.toml --set lanes.main.running_max=8
  LANEWAY_LOG__FORMAT=json laneway serve")]
pub struct ServeArgs {
    /// Listen here; any address but a loopback one needs tokens or TLS client certificates
    #[arg(long, short, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// Runs a server until a signal stops it, or its store fails.
pub async fn run(screen: &Screen, environment: &Environment, args: &ServeArgs) -> anyhow::Result<()> {
    let mut flags = args.flags.clone();
    if let Some(listen) = args.listen {
        flags.settings.push(("server.listen".to_owned(), listen.to_string().into()));
    }
    let config = flags.resolve(environment)?;
    log::start(&config.log, screen.color)?;
    // Before the server starts, so that an early signal is not the default one that kills.
    let mut signals = Signals::new()?;
    let begin = Instant::now();
    let layers = flags.layers(environment)?;
    for warning in layers.warnings() {
        tracing::warn!(%warning, "a variable of the environment is ignored");
    }
    let server = Server::start(layers).await?;
    tracing::info!(
        url = %server.url(),
        data_dir = %server.data_dir().display(),
        open = server.is_open(),
        took_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
        "started"
    );
    banner(screen, &server)?;
    loop {
        let asked = tokio::select! {
            () = server.broken() => return server.stop(Duration::ZERO).await,
            asked = signals.next() => asked,
        };
        match asked {
            // The reload logs what became of it.
            Asked::Reload => drop(server.laneway().reload().await),
            Asked::ResetSessions => reset_sessions(&server).await,
            Asked::Stop => return stop(screen, server, signals).await,
        }
    }
}

/// Begins every session anew. Nothing durable is lost: jobs that ran are queued again.
async fn reset_sessions(server: &Server) {
    match server.laneway().scheduler().reset_sessions(Origin::house("signal")).await {
        Ok(Reply::Refused(refusal)) => tracing::warn!(%refusal, "sessions not reset"),
        Ok(_) => tracing::info!("sessions reset: their runs stop, and their jobs are queued again"),
        // The store has failed, which the loop around this hears by itself.
        Err(stopped) => tracing::warn!(%stopped, "sessions not reset"),
    }
}

/// Drains; a second signal hands back at once, a third one ends the process.
async fn stop(screen: &Screen, server: Server, mut signals: Signals) -> anyhow::Result<()> {
    let limit = server.laneway().live_config().current().server.drain_limit;
    if !screen.json {
        screen.line(format!("stopping: what runs has {}s to end (again: at once)", limit.as_secs()));
    }
    tokio::select! {
        done = server.stop(limit) => return tell_stopped(screen, done),
        () = signals.stop() => {}
    }
    tokio::select! {
        done = server.stop(Duration::ZERO) => tell_stopped(screen, done),
        () = signals.stop() => Err(Trouble::new(Exit::Refused, "ended at once; the next start recovers").into()),
    }
}

fn tell_stopped(screen: &Screen, done: anyhow::Result<()>) -> anyhow::Result<()> {
    done?;
    if !screen.json {
        screen.line("stopped");
    }
    Ok(())
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
    ResetSessions,
}

/// The signals that mean something to a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.user.recv() => Asked::ResetSessions,
        }
    }

    async fn stop(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}

/// Where everything is, and how to begin.
fn banner(screen: &Screen, server: &Server) -> anyhow::Result<()> {
    let url = server.url();
    let data_dir = server.data_dir();
    if screen.json {
        let dialects: serde_json::Map<_, _> =
            server.dialects().iter().map(|(name, url)| (name.to_string(), json!(url))).collect();
        return screen.json_line(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "url": url,
            "dialects": dialects,
            "data_dir": data_dir,
            "open": server.is_open(),
        }));
    }
    let label = |word: &str| screen.paint(Paint::Dim, &format!("  {word:<6}"));
    let auth = if server.is_open() {
        format!("open to this machine; `laneway {}token create --role admin` closes it", at(&url))
    } else {
        "a token or a client certificate is needed (--token, LANEWAY_TOKEN, Authorization: Bearer …)"
            .to_owned()
    };
    screen.line(screen.paint(Paint::Bold, concat!("laneway ", env!("CARGO_PKG_VERSION"))));
    screen.line(format!("{} {url}/v1", label("api")));
    for (name, url) in server.dialects() {
        screen.line(format!("{} {url} speaks {name}", label("")));
    }
    screen.line(format!("{} {url}/openapi.json, {url}/metrics, `laneway --help`", label("docs")));
    screen.line(format!("{} {}", label("data"), data_dir.display()));
    screen.line(format!("{} {auth}", label("auth")));
    screen.line("");
    screen.line("Submit a first job from another terminal:");
    for command in first_commands(&url, server.is_open()) {
        screen.line(screen.paint(Paint::Cyan, &format!("  {command}")));
    }
    screen.line("");
    screen
        .line(screen.paint(Paint::Dim, "Ctrl-C stops; what still runs is handed back and nothing is lost."));
    Ok(())
}

/// What a command needs to find the server; nothing where it looks by itself.
fn at(url: &str) -> String {
    if url == DEFAULT_URL { String::new() } else { format!("--url {url} ") }
}

/// Two ways to submit a first job, ready to be copied.
fn first_commands(url: &str, open: bool) -> [String; 2] {
    let at = at(url);
    let token = if open { "" } else { "--token … " };
    let header = if open { "" } else { "-H 'authorization: Bearer …' " };
    [
        format!("laneway {at}{token}submit echo --payload '{{\"hello\": \"world\"}}' --wait"),
        format!("curl {header}-H 'content-type: application/json' -d '{{\"kind\": \"echo\"}}' {url}/v1/jobs"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_a_server_that_is_elsewhere() {
        assert_eq!(at(DEFAULT_URL), "");
        assert_eq!(at("http://127.0.0.1:8080"), "--url http://127.0.0.1:8080 ");
    }
}
