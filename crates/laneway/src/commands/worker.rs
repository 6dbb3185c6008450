//! `laneway worker`: a worker whose handlers are programs.

mod file;
mod metrics;
mod program;
mod workshop;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use laneway_client::worker::{
    BuildError, ConnectError, InstalledPackage, Loader, TlsFiles, Worker, WorkerBuilder, WorkerError,
    WorkerHandle,
};
use laneway_runtime::config::{LogConfig, LogFormat, parse_span};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::ServerArgs;
use crate::exit::{Exit, Trouble};
use crate::log;
use crate::screen::{Paint, Screen};
use file::{KindFile, WorkerFile};
use program::Program;
use workshop::Workshop;

/// Which programs to run, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A handler is a program. It gets the task's parameters as JSON on standard input and gives its result as JSON on standard \
output (at most 1 MiB). What it writes to standard error is sent along line by line. LANEWAY_TASK_ID, LANEWAY_RUN_ID, \
LANEWAY_SEQ and LANEWAY_KIND say what it runs for. Files that it leaves in the folder LANEWAY_ARTIFACTS become artifacts, \
which can be read through the server. Exit code 0 is success, 75 a failure that may be tried again, \
everything else one that may not. When a task is canceled or takes too long, the program and all that it started get \
SIGTERM and, after --stop-grace, SIGKILL.

Signals: SIGTERM and SIGINT drain: no more tasks are taken, those that run have --drain-limit to end, results are \
brought home. A second one stops at once what runs, a third one ends the process.

Examples:
  laneway worker --kind resize='./resize --fast' --kind thumb=./thumb --max-parallel 4
  laneway worker --file worker.toml --packages ./packages --metrics 127.0.0.1:9717
  laneway --url https://laneway.example worker --token-file token --kind echo=cat")]
pub struct WorkerArgs {
    /// Run tasks of this kind with this program; may be given several times. The command is split at spaces; quotes
    /// keep words together
    #[arg(long = "kind", value_name = "NAME=COMMAND", value_parser = parse_kind)]
    kinds: Vec<(String, KindFile)>,
    /// Read kinds and settings from this TOML file; flags outweigh it
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The worker's name: the same after every restart, and nobody else's. Defaults to the machine's name
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// Whose jobs to run. Defaults to `default`
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Most tasks at once. Defaults to 1
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    /// Most tasks of one kind at once; may be given several times
    #[arg(long = "limit", value_name = "KIND=N", value_parser = parse_limit)]
    limits: Vec<(String, u32)>,
    /// Take jobs of this lane only; may be given several times. Defaults to every lane
    #[arg(long = "lane", value_name = "NAME")]
    lanes: Vec<String>,
    /// Keep packages here, and let the server install and remove them
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
    /// Let programs make artifacts in here. Defaults to the system's folder for what is temporary
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// How long artifacts are kept. Defaults to 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    artifacts_ttl: Option<Duration>,
    /// Read the token from this file at every connect, so that it can be replaced while the worker runs;
    /// outweighs --token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Where workers connect on the server
    #[arg(long, value_name = "PATH", default_value = "/v1/workers/connect")]
    endpoint: String,
    /// How long a program has to end after SIGTERM. Defaults to 10s
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    stop_grace: Option<Duration>,
    /// How long what runs may take when the worker is told to stop. Defaults to 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    drain_limit: Option<Duration>,
    /// Serve the worker's figures for Prometheus here, at /metrics
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// How log lines look on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    log_format: LogStyle,
    /// Which log lines are written: a level, or levels by part, such as `info,laneway_client=debug`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_filter: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogStyle {
    /// One object a line.
    Json,
    /// For people.
    Text,
}

/// Runs a worker until a signal stops it, or the server drains it.
pub async fn run(screen: &Screen, server: &ServerArgs, args: &WorkerArgs) -> anyhow::Result<()> {
    let format = match args.log_format {
        LogStyle::Json => LogFormat::Json,
        LogStyle::Text => LogFormat::Text,
    };
    log::start(&LogConfig { format, filter: args.log_filter.clone() }, screen.color)?;
    // Before the worker starts, so that an early signal is not the default one that kills.
    let mut signals = Signals::new()?;
    let settings = Settings::new(args)?;
    let url = socket_url(&server.url, &args.endpoint)?;
    let workshop = Workshop::open(settings.artifacts.as_deref(), settings.artifacts_ttl)?;
    let worker = settings.builder(&url, server, args, &workshop).build().map_err(wrong)?;
    let handle = worker.handle();
    let figures = match args.metrics {
        Some(address) => Some(metrics::serve(address, handle.clone()).await?),
        None => None,
    };
    banner(screen, &settings, &url, figures.as_ref().map(|(address, _)| *address))?;
    let mut work = std::pin::pin!(worker.run());
    loop {
        tokio::select! {
            done = &mut work => return ended(screen, done),
            () = signals.next() => signals.asked += 1,
        }
        stop(screen, &handle, signals.asked).await?;
    }
}

/// What a signal means, depending on how many came before.
async fn stop(screen: &Screen, handle: &WorkerHandle, asked: u32) -> anyhow::Result<()> {
    match asked {
        1 => {
            if !screen.json {
                screen.line("draining: no more tasks; those that run may end (again: at once)");
            }
            handle.drain(None).await;
            Ok(())
        }
        2 => {
            handle.drain(Some(Duration::ZERO)).await;
            Ok(())
        }
        _ => Err(Trouble::new(Exit::Refused, "ended at once; the server gives the tasks to others").into()),
    }
}

fn ended(screen: &Screen, done: Result<(), WorkerError>) -> anyhow::Result<()> {
    done.map_err(|error| Trouble::new(Exit::Refused, error.to_string()))?;
    if !screen.json {
        screen.line("stopped");
    }
    Ok(())
}

/// What file and flags say together.
struct Settings {
    id: String,
    tenant: String,
    max_parallel: u32,
    kinds: BTreeMap<String, KindFile>,
    limits: BTreeMap<String, u32>,
    lanes: Vec<String>,
    packages: Option<PathBuf>,
    artifacts: Option<PathBuf>,
    artifacts_ttl: Option<Duration>,
    stop_grace: Duration,
    drain_limit: Duration,
}

impl Settings {
    fn new(args: &WorkerArgs) -> anyhow::Result<Settings> {
        let file = args.file.as_deref().map(WorkerFile::read).transpose()?.unwrap_or_default();
        let mut kinds = file.kinds;
        kinds.extend(args.kinds.iter().cloned());
        let packages = args.packages.clone().or(file.packages);
        if kinds.is_empty() && packages.is_none() {
            let message = "there is nothing to run; give --kind NAME=COMMAND, --file or --packages";
            return Err(Trouble::new(Exit::Usage, message).into());
        }
        let mut limits: BTreeMap<String, u32> =
            kinds.iter().filter_map(|(kind, file)| Some((kind.clone(), file.concurrency?))).collect();
        limits.extend(args.limits.iter().cloned());
        Ok(Settings {
            id: args.id.clone().or(file.id).unwrap_or_else(hostname),
            tenant: args.tenant.clone().or(file.tenant).unwrap_or_else(|| "default".to_owned()),
            max_parallel: args.max_parallel.or(file.max_parallel).unwrap_or(1),
            kinds,
            limits,
            lanes: if args.lanes.is_empty() { file.lanes } else { args.lanes.clone() },
            packages,
            artifacts: args.artifacts.clone().or(file.artifacts),
            artifacts_ttl: args.artifacts_ttl.or(file.artifacts_ttl),
            stop_grace: args.stop_grace.or(file.stop_grace).unwrap_or(Duration::from_secs(10)),
            drain_limit: args.drain_limit.or(file.drain_limit).unwrap_or(Duration::from_secs(30)),
        })
    }

    fn builder(
        &self,
        url: &str,
        server: &ServerArgs,
        args: &WorkerArgs,
        workshop: &Workshop,
    ) -> WorkerBuilder {
        let (token, token_file) = (server.token.clone(), args.token_file.clone());
        let mut builder = Worker::builder(url, &self.id)
            .tenant(&self.tenant)
            .version(env!("CARGO_PKG_VERSION"))
            .runtimes(["process"])
            .max_parallel(self.max_parallel)
            .channels(self.lanes.iter().map(String::as_str))
            .stop_grace(self.stop_grace)
            .drain_limit(self.drain_limit)
            .tls(TlsFiles { ca: server.ca.clone(), cert: server.cert.clone() })
            .token(move || read_token(token.clone(), token_file.clone()));
        for (kind, limit) in &self.limits {
            builder = builder.limit(kind, *limit);
        }
        for (kind, file) in &self.kinds {
            let program =
                Program::new(file.command.clone(), None, file.timeout, self.stop_grace, workshop.clone());
            builder = builder.boxed_handler(kind, program.handler());
        }
        match &self.packages {
            Some(folder) => builder.packages(folder.clone(), loader(self.stop_grace, workshop.clone())),
            None => builder,
        }
    }
}

/// The token of the next connection.
async fn read_token(token: Option<String>, file: Option<PathBuf>) -> Option<String> {
    let Some(path) = file else { return token };
    match tokio::fs::read_to_string(&path).await {
        Ok(text) => Some(text.trim().to_owned()).filter(|token| !token.is_empty()),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "the token cannot be read");
            None
        }
    }
}

/// Makes programs of a package's manifest: `{"handlers": {"resize": {"command": ["./resize"]}}}`.
fn loader(stop_grace: Duration, workshop: Workshop) -> Loader {
    Arc::new(move |package: &InstalledPackage| {
        let manifest: file::PackageManifest = package
            .manifest
            .read()
            .map_err(|error| format!("manifest.json of {} {}: {error}", package.name, package.version))?;
        let mut handlers = Vec::new();
        for (kind, handler) in manifest.handlers {
            if handler.command.is_empty() {
                return Err(format!("manifest.json: the handler {kind:?} has no command"));
            }
            let kind = laneway_wire::frame::Text::new(kind).map_err(|error| format!("a kind {error}"))?;
            let folder = Some(package.folder.clone());
            let program =
                Program::new(handler.command, folder, handler.timeout, stop_grace, workshop.clone());
            handlers.push((kind, program.handler()));
        }
        Ok(handlers)
    })
}

/// `http://host:port` with the endpoint's path, as WebSockets write it.
fn socket_url(url: &str, endpoint: &str) -> anyhow::Result<String> {
    let rest = url.strip_prefix("http").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
    let rest = rest.with_context(|| format!("--url {url:?} is no URL; write http://host:port"))?;
    Ok(format!("ws{}/{}", rest.trim_end_matches('/'), endpoint.trim_start_matches('/')))
}

fn wrong(error: BuildError) -> anyhow::Error {
    let exit = match &error {
        BuildError::Connect(ConnectError::File { .. }) | BuildError::Packages(_) => Exit::Config,
        _ => Exit::Usage,
    };
    Trouble::new(exit, error.to_string()).into()
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "worker".to_owned())
}

fn banner(
    screen: &Screen,
    settings: &Settings,
    url: &str,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let kinds: Vec<&String> = settings.kinds.keys().collect();
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    if screen.json {
        return screen.json_line(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "id": settings.id,
            "tenant": settings.tenant,
            "url": url,
            "kinds": kinds,
            "lanes": settings.lanes,
            "max_parallel": settings.max_parallel,
            "metrics": metrics,
        }));
    }
    let label = |word: &str| screen.paint(Paint::Dim, &format!("  {word:<8}"));
    screen.line(screen.paint(Paint::Bold, &format!("laneway worker {}", settings.id)));
    screen.line(format!("{} {url}", label("server")));
    let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    screen.line(format!("{} {}", label("kinds"), names.join(", ")));
    if !settings.lanes.is_empty() {
        screen.line(format!("{} {}", label("lanes"), settings.lanes.join(", ")));
    }
    if let Some(metrics) = metrics {
        screen.line(format!("{} {metrics}", label("metrics")));
    }
    Ok(())
}

/// Reads `resize='./resize --fast'`.
fn parse_kind(text: &str) -> Result<(String, KindFile), String> {
    let (kind, command) = text.split_once('=').ok_or("write NAME=COMMAND, such as echo=cat")?;
    let command = split_command(command)?;
    if kind.trim().is_empty() || command.is_empty() {
        return Err("write NAME=COMMAND, such as echo=cat".to_owned());
    }
    Ok((kind.trim().to_owned(), KindFile { command, concurrency: None, timeout: None }))
}

/// Splits at spaces; single and double quotes keep words together. No shell is asked.
fn split_command(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

fn parse_limit(text: &str) -> Result<(String, u32), String> {
    let parsed = text.split_once('=').and_then(|(kind, limit)| Some((kind, limit.parse().ok()?)));
    let (kind, limit) = parsed.filter(|(_, limit)| *limit > 0).ok_or("write KIND=N with N at least 1")?;
    Ok((kind.to_owned(), limit))
}

fn parse_time(text: &str) -> Result<Duration, String> {
    parse_span(text)
        .map(|span| Duration::from_millis(span.0))
        .ok_or("write a duration such as 20s".to_owned())
}

/// The signals that mean something to a worker.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    asked: u32,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, asked: 0 })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_without_a_shell() {
        let words = |text: &str| split_command(text).unwrap();
        assert_eq!(words("./resize --fast"), ["./resize", "--fast"]);
        assert_eq!(words("sh -c 'echo \"a b\"'  ''"), ["sh", "-c", "echo \"a b\"", ""]);
        assert!(words("  ").is_empty());
        assert!(split_command("a 'b").is_err());
    }

    #[test]
    fn kinds_and_limits_are_pairs() {
        assert_eq!(parse_kind("a=b c=d").unwrap().1.command, ["b", "c=d"]);
        for wrong in ["a", "=b", "a=", "a= "] {
            assert!(parse_kind(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse_limit("a=3").unwrap(), ("a".to_owned(), 3));
        for wrong in ["a", "a=0", "a=x"] {
            assert!(parse_limit(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_endpoint_stands_on_the_server() {
        assert_eq!(socket_url("http://h:1", "/ws/worker").unwrap(), "ws://h:1/ws/worker");
        assert_eq!(socket_url("https://h/", "x").unwrap(), "wss://h/x");
        assert!(socket_url("ftp://h", "x").is_err());
    }
}
