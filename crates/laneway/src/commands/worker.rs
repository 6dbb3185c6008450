//! `laneway worker`: a worker whose handlers are programs.

mod artifact_dir;
mod file;
mod guard;
mod metrics;
mod program;

use std::collections::BTreeMap;
use std::io::IsTerminal;
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
use crate::exit::{CliError, Exit};
use crate::log;
use crate::output::{Output, Paint};
use artifact_dir::ArtifactDir;
use file::{KindFile, WorkerFile};
use guard::Guard;
pub use guard::helper;
use program::Program;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A handler is a program. It reads the task's parameters as JSON from standard input and writes its result as JSON to standard \
output (at most 1 MiB). Its standard error is sent to the server line by line. LANEWAY_TASK_ID, LANEWAY_RUN_ID, \
LANEWAY_SEQ and LANEWAY_KIND identify the task. Files that it leaves in the folder LANEWAY_ARTIFACTS become artifacts, \
which can be downloaded through the server. When a task is canceled or times out, the program and its child processes get \
SIGTERM and, after --stop-grace, SIGKILL.

Exit codes of a handler:
  0       success
  65      a permanent failure: a retry cannot help (EX_DATAERR, the input is wrong)
  others  a failure that is retried by the job's retry policy; a kill by a signal counts as one

Signals: SIGTERM and SIGINT drain: the worker takes no more tasks, running tasks have --drain-limit to end, and results are \
delivered. A second signal stops running tasks at once, a third one ends the process.

Examples:
  laneway worker --kind resize='./resize --fast' --kind thumb=./thumb --max-parallel 4
  laneway worker --file worker.toml --packages ./packages --metrics 127.0.0.1:9717
  laneway --url https://laneway.example worker --token-file token --kind echo=cat")]
pub struct WorkerArgs {
    /// Run tasks of this kind with this program; may be repeated. The command is split at spaces; quotes keep
    /// an argument together
    #[arg(long = "kind", value_name = "NAME=COMMAND", value_parser = parse_kind)]
    kinds: Vec<(String, KindFile)>,
    /// Read kinds and settings from this TOML file; flags override it
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The worker's name. Only one process at a time may use it: a second one is denied while the first one
    /// is connected. Defaults to the machine's name and a few random digits, new for each process
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// The tenant whose jobs to run. Defaults to `default`
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Most tasks at once. Defaults to 1
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    /// Most tasks of one kind at once; may be repeated
    #[arg(long = "limit", value_name = "KIND=N", value_parser = parse_limit)]
    limits: Vec<(String, u32)>,
    /// Take jobs of this lane only; may be repeated. Defaults to every lane
    #[arg(long = "lane", value_name = "NAME")]
    lanes: Vec<String>,
    /// Keep packages here, and let the server install and remove them
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
    /// The folder for artifacts. Defaults to the system's temporary folder
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// How long artifacts are kept. Defaults to 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    artifacts_ttl: Option<Duration>,
    /// The path of the worker endpoint on the server
    #[arg(long, value_name = "PATH", default_value = "/v1/workers/connect")]
    endpoint: String,
    /// How long a program has to end after SIGTERM. Defaults to 10s
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    stop_grace: Option<Duration>,
    /// How long running tasks may take when the worker stops. Defaults to 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    drain_limit: Option<Duration>,
    /// Serve metrics for Prometheus at this address, at /metrics
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// The format of log lines on standard error; auto is text on a terminal and JSON elsewhere
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "auto")]
    log_format: LogStyle,
    /// The log filter: a level, or levels by module, such as `info,laneway_client=debug`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_filter: String,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogStyle {
    // Plain comments: clap would print doc comments in the help.
    // Text where standard error is a terminal, else JSON.
    Auto,
    // One object per line.
    Json,
    // For people.
    Text,
}

/// Runs a worker until a signal stops it, or the server drains it.
pub async fn run(output: &Output, server: &ServerArgs, args: &WorkerArgs) -> anyhow::Result<()> {
    let format = match args.log_format {
        LogStyle::Auto if std::io::stderr().is_terminal() => LogFormat::Text,
        LogStyle::Auto | LogStyle::Json => LogFormat::Json,
        LogStyle::Text => LogFormat::Text,
    };
    log::start_worker(
        &LogConfig { format, filter: args.log_filter.clone(), keep: Duration::ZERO },
        output.color,
    )?;
    // Before the worker starts, so that an early signal does not kill the process.
    let mut signals = Signals::new()?;
    let settings = Settings::new(args)?;
    let url = socket_url(&server.url, &args.endpoint)?;
    let artifact_dir = ArtifactDir::open(settings.artifacts.as_deref(), settings.artifacts_ttl)?;
    let guard = Guard::start();
    let worker = settings.builder(&url, server, &artifact_dir, &guard).build().map_err(wrong)?;
    let handle = worker.handle();
    let metrics = match args.metrics {
        Some(address) => Some(metrics::serve(address, handle.clone()).await?),
        None => None,
    };
    banner(output, &settings, &url, metrics.as_ref().map(|(address, _)| *address))?;
    let mut work = std::pin::pin!(worker.run());
    loop {
        tokio::select! {
            done = &mut work => return ended(output, done),
            () = signals.next() => signals.asked += 1,
        }
        stop(output, &handle, signals.asked).await?;
    }
}

/// Handles a signal, depending on how many came before.
async fn stop(output: &Output, handle: &WorkerHandle, asked: u32) -> anyhow::Result<()> {
    match asked {
        1 => {
            if !output.json {
                output.line("draining: no more tasks; running tasks may end (Ctrl-C again: at once)");
            }
            handle.drain(None).await;
            Ok(())
        }
        2 => {
            handle.drain(Some(Duration::ZERO)).await;
            Ok(())
        }
        _ => Err(CliError::new(Exit::Rejected, "ended at once; the server gives the tasks to other workers")
            .into()),
    }
}

fn ended(output: &Output, done: Result<(), WorkerError>) -> anyhow::Result<()> {
    done.map_err(|error| CliError::new(Exit::Rejected, error.to_string()))?;
    if !output.json {
        output.line("stopped");
    }
    Ok(())
}

/// The settings of file and flags together.
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
            return Err(CliError::new(Exit::Usage, message).into());
        }
        let mut limits: BTreeMap<String, u32> =
            kinds.iter().filter_map(|(kind, file)| Some((kind.clone(), file.concurrency?))).collect();
        limits.extend(args.limits.iter().cloned());
        Ok(Settings {
            id: args.id.clone().or(file.id).unwrap_or_else(own_name),
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
        artifact_dir: &ArtifactDir,
        guard: &Guard,
    ) -> WorkerBuilder {
        let (token, token_file) = (server.token.clone(), server.token_file.clone());
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
            let program = Program {
                command: file.command.clone(),
                folder: None,
                timeout: file.timeout,
                stop_grace: self.stop_grace,
                artifact_dir: artifact_dir.clone(),
                guard: guard.clone(),
            };
            builder = builder.boxed_handler(kind, program.handler());
        }
        match &self.packages {
            Some(folder) => {
                builder.packages(folder.clone(), loader(self.stop_grace, artifact_dir.clone(), guard.clone()))
            }
            None => builder,
        }
    }
}

/// The token of the next connection. A file is read each time, so that it can be replaced while the worker runs.
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

/// Makes handlers from a package's manifest: `{"handlers": {"resize": {"command": ["./resize"]}}}`.
fn loader(stop_grace: Duration, artifact_dir: ArtifactDir, guard: Guard) -> Loader {
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
            let program = Program {
                command: handler.command,
                folder: Some(package.folder.clone()),
                timeout: handler.timeout,
                stop_grace,
                artifact_dir: artifact_dir.clone(),
                guard: guard.clone(),
            };
            handlers.push((kind, program.handler()));
        }
        Ok(handlers)
    })
}

/// The WebSocket URL of the worker endpoint.
fn socket_url(url: &str, endpoint: &str) -> anyhow::Result<String> {
    let rest = url.strip_prefix("http").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
    let rest = rest.with_context(|| format!("--url {url:?} is not a URL; write http://host:port"))?;
    Ok(format!("ws{}/{}", rest.trim_end_matches('/'), endpoint.trim_start_matches('/')))
}

fn wrong(error: BuildError) -> anyhow::Error {
    let exit = match &error {
        BuildError::Connect(ConnectError::File { .. }) | BuildError::Packages(_) => Exit::Config,
        _ => Exit::Usage,
    };
    CliError::new(exit, error.to_string()).into()
}

/// A unique name.
fn own_name() -> String {
    format!("{}-{:06x}", hostname(), fastrand::u32(..) & 0xff_ffff)
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "worker".to_owned())
}

fn banner(
    output: &Output,
    settings: &Settings,
    url: &str,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let kinds: Vec<&String> = settings.kinds.keys().collect();
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    if output.json {
        return output.json_line(&json!({
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
    let label = |name: &str| output.paint(Paint::Dim, &format!("  {name:<8}"));
    output.line(output.paint(Paint::Bold, &format!("laneway worker {}", settings.id)));
    output.line(format!("{} {url}", label("server")));
    let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    output.line(format!("{} {}", label("kinds"), names.join(", ")));
    if !settings.lanes.is_empty() {
        output.line(format!("{} {}", label("lanes"), settings.lanes.join(", ")));
    }
    if let Some(metrics) = metrics {
        output.line(format!("{} {metrics}", label("metrics")));
    }
    Ok(())
}

/// Parses `resize='./resize --fast'`.
fn parse_kind(text: &str) -> Result<(String, KindFile), String> {
    let (kind, command) = text.split_once('=').ok_or("write NAME=COMMAND, such as echo=cat")?;
    let command = split_command(command)?;
    if kind.trim().is_empty() || command.is_empty() {
        return Err("write NAME=COMMAND, such as echo=cat".to_owned());
    }
    Ok((kind.trim().to_owned(), KindFile { command, concurrency: None, timeout: None }))
}

/// Splits at spaces; single and double quotes keep an argument together. No shell is used.
fn split_command(text: &str) -> Result<Vec<String>, String> {
    let (mut arguments, mut name, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => name.get_or_insert_default().push(c),
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                name.get_or_insert_default();
            }
            None if c.is_whitespace() => arguments.extend(name.take()),
            None => name.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    arguments.extend(name);
    Ok(arguments)
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

/// The signals that a worker handles.
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
        let arguments = |text: &str| split_command(text).unwrap();
        assert_eq!(arguments("./resize --fast"), ["./resize", "--fast"]);
        assert_eq!(arguments("sh -c 'echo \"a b\"'  ''"), ["sh", "-c", "echo \"a b\"", ""]);
        assert!(arguments("  ").is_empty());
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
