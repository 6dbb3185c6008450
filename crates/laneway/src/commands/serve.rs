//! `laneway serve`: runs a server until it is stopped.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use laneway_core::{Origin, Reply};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::DEFAULT_URL;
use crate::exit::{CliError, Exit};
use crate::log;
use crate::output::{Output, Paint};
use crate::server::Server;
use crate::settings::{ConfigFlags, Environment};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Configuration, weakest first: built-in defaults < --config FILE < environment (LANEWAY_SECTION__KEY) < flags. Every key \
is documented by `laneway config dump --defaults`. The file is read again when it changes and on SIGHUP.

Signals: SIGTERM and SIGINT stop the server gracefully: no new jobs start, running jobs have server.drain_limit to end, and the rest is \
handed back (a job with losses_max = 0 ends as failed instead: it may have had an effect). A second signal hands back at once, a third one ends the process. SIGHUP reads the configuration again. \
SIGUSR1 resets every session: its running jobs stop and are queued again without a lost attempt, except those with losses_max = 0, which end as failed.

Built-in kinds: echo (returns its payload), sleep ({\"ms\": n}), fail ({\"times\": n, \
\"permanent\": bool}). Kinds with a `target` in the configuration are forwarded by HTTP.

Examples:
  laneway serve
  laneway serve --listen 127.0.0.1:8080 --data-dir /var/lib/laneway
  laneway serve --store postgres://laneway@db.example/laneway
  laneway serve --config laneway.toml --set lanes.main.running_max=8
  LANEWAY_LOG__FORMAT=json laneway serve")]
pub struct ServeArgs {
    /// The address to listen on; any address but a loopback one needs tokens or TLS client certificates
    #[arg(long, short, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// Runs a server until a signal stops it, or its store fails.
pub async fn run(output: &Output, environment: &Environment, args: &ServeArgs) -> anyhow::Result<()> {
    let mut flags = args.flags.clone();
    if let Some(listen) = args.listen {
        flags.settings.push(("server.listen".to_owned(), listen.to_string().into()));
    }
    let config = flags.resolve(environment)?;
    log::start(&config.log, output.color)?;
    raise_file_limit(config.server.connections_max);
    // Before the server starts, so that an early signal does not kill the process.
    let mut signals = Signals::new()?;
    let begin = Instant::now();
    let layers = flags.layers(environment)?;
    for warning in layers.warnings() {
        tracing::warn!(%warning, "an environment variable is ignored");
    }
    let server = Server::start(layers).await?;
    tracing::info!(
        url = %server.url(),
        data_dir = %server.data_dir().display(),
        store = server.store(),
        open = server.is_open(),
        took_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
        "started"
    );
    banner(output, &server)?;
    loop {
        let asked = tokio::select! {
            () = server.broken() => return server.stop(Duration::ZERO).await,
            asked = signals.next() => asked,
        };
        match asked {
            Asked::Reload => server.reload().await,
            Asked::ResetSessions => reset_sessions(&server).await,
            Asked::Stop => return stop(output, server, signals).await,
        }
    }
}

/// Resets every session. Nothing durable is lost: running jobs are queued again.
async fn reset_sessions(server: &Server) {
    let Some(laneway) = server.laneway() else {
        return tracing::warn!("sessions not reset: another node owns them; send the signal there");
    };
    match laneway.scheduler().reset_sessions(Origin::server("signal")).await {
        Ok(Reply::Rejected(rejection)) => tracing::warn!(%rejection, "sessions not reset"),
        Ok(_) => tracing::info!("sessions reset: running jobs stop and are queued again"),
        // The store has failed, which the loop around this notices itself.
        Err(stopped) => tracing::warn!(%stopped, "sessions not reset"),
    }
}

/// Drains; a second signal hands back at once, a third one ends the process.
async fn stop(output: &Output, server: Server, mut signals: Signals) -> anyhow::Result<()> {
    let limit = server.drain_limit();
    if !output.json {
        output
            .line(format!("stopping: running jobs have {}s to end (Ctrl-C again: at once)", limit.as_secs()));
    }
    tokio::select! {
        done = server.stop(limit) => return report_stop(output, done),
        () = signals.stop() => {}
    }
    tokio::select! {
        done = server.stop(Duration::ZERO) => report_stop(output, done),
        () = signals.stop() => Err(CliError::new(Exit::Rejected, "ended at once; the next start recovers the jobs").into()),
    }
}

fn report_stop(output: &Output, done: anyhow::Result<()>) -> anyhow::Result<()> {
    done?;
    if !output.json {
        output.line("stopped");
    }
    Ok(())
}

/// What a signal requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
    ResetSessions,
}

/// The signals that a server handles.
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

/// Prints the addresses and the first commands.
fn banner(output: &Output, server: &Server) -> anyhow::Result<()> {
    let url = server.url();
    let data_dir = server.data_dir();
    if output.json {
        let dialects: serde_json::Map<_, _> =
            server.dialects().iter().map(|(name, url)| (name.to_string(), json!(url))).collect();
        return output.json_line(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "url": url,
            "dashboard": server.dashboard(),
            "dialects": dialects,
            "data_dir": data_dir,
            "store": server.store(),
            "open": server.is_open(),
        }));
    }
    let label = |name: &str| output.paint(Paint::Dim, &format!("  {name:<6}"));
    let auth = if server.is_open() {
        format!("open to this machine; `laneway {}token create --role admin` restricts it", at(&url))
    } else {
        "a token or a client certificate is needed (LANEWAY_TOKEN, --token-file, Authorization: Bearer …)"
            .to_owned()
    };
    output.line(output.paint(Paint::Bold, concat!("laneway ", env!("CARGO_PKG_VERSION"))));
    if let Some(dashboard) = server.dashboard() {
        output.line(format!("{} {dashboard}", label("web")));
    }
    output.line(format!("{} {url}/v1", label("api")));
    if let Some(line) = dialects_line(&url, server.dialects()) {
        output.line(format!("{} {line}", label("")));
    }
    output.line(format!("{} {url}/openapi.json, {url}/metrics, `laneway --help`", label("docs")));
    if let Some(store) = server.store() {
        output.line(format!("{} {store}", label("store")));
    }
    output.line(format!("{} {}", label("data"), data_dir.display()));
    output.line(format!("{} {auth}", label("auth")));
    output.line("");
    output.line("Submit a first job from another terminal:");
    for command in first_commands(&url, server.is_open()) {
        output.line(output.paint(Paint::Cyan, &format!("  {command}")));
    }
    output.line("");
    let stop = "Ctrl-C stops; jobs that still run are handed back, except those that allow no loss: they end as failed.";
    output.line(output.paint(Paint::Dim, stop));
    Ok(())
}

/// The dialects as one line, with the address of each that has its own.
fn dialects_line(url: &str, dialects: &[(&'static str, String)]) -> Option<String> {
    let named = |(name, at): &(&'static str, String)| match at.strip_prefix(url) {
        Some("") => (*name).to_owned(),
        Some(prefix) if prefix.starts_with('/') => format!("{name} at {prefix}"),
        _ => format!("{name} at {at}"),
    };
    let names: Vec<String> = dialects.iter().map(named).collect();
    (!names.is_empty()).then(|| format!("dialects: {} (docs/compat)", names.join(", ")))
}

/// The option that a command needs to reach the server; empty for the default address.
fn at(url: &str) -> String {
    if url == DEFAULT_URL { String::new() } else { format!("--url {url} ") }
}

/// Two commands that submit a first job.
fn first_commands(url: &str, open: bool) -> [String; 2] {
    let at = at(url);
    let token = if open { "" } else { "--token-file FILE " };
    let header = if open { "" } else { "-H 'authorization: Bearer …' " };
    [
        format!("laneway {at}{token}submit echo --payload '{{\"hello\": \"world\"}}' --wait"),
        format!("curl {header}-H 'content-type: application/json' -d '{{\"kind\": \"echo\"}}' {url}/v1/jobs"),
    ]
}

/// Raises the limit of open files to the maximum: every connection is one. With too few, new connections would
/// wait until others end.
fn raise_file_limit(connections_max: u32) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let limit = getrlimit(Resource::Nofile).current;
    if limit.is_some_and(|limit| limit <= u64::from(connections_max)) {
        tracing::warn!(
            limit,
            connections_max,
            "the system allows fewer open files than connections; raise the limit (ulimit -n), or lower \
             server.connections_max"
        );
    }
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
