//! Starts Chromium and waits until its DevTools endpoint has answered.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::arguments;
use super::browser::Browser;
use super::find::Chromium;
use super::output::Output;
use super::ports::DebugPort;
use super::process::{Exit, Process};
use super::record::{self, Identity, Record};
use crate::devtools::{Connection, DevToolsError, Hub, HubOptions, auto_attach};
use crate::proxy::{Proxy, Relay, Scheme};

/// How to start a browser.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// The directory of the profile. It is created if it does not exist.
    pub data_dir: PathBuf,
    /// The proxy for all requests. Defaults to none.
    pub proxy: Option<Proxy>,
    /// Width and height of the window in pixels. Defaults to Chromium's own.
    pub window: Option<(u32, u32)>,
    /// The user agent that pages see. Defaults to Chromium's own.
    pub user_agent: Option<String>,
    /// The language that pages see, such as `de-DE`. Defaults to the system's.
    pub locale: Option<String>,
    /// The time zone that pages see, such as `Europe/Berlin`. Defaults to the system's.
    pub time_zone: Option<String>,
    /// Without a window. Defaults to true.
    pub headless: bool,
    /// Pages may save files, into `Downloads` below the data directory. Defaults to false.
    pub allow_downloads: bool,
    /// Actions and scripts may open `file:` URLs. Defaults to false.
    pub allow_file_urls: bool,
    /// How long the start may take until DevTools answers. Defaults to 30 s.
    pub start_limit: Duration,
}

impl LaunchOptions {
    /// The defaults, for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> LaunchOptions {
        LaunchOptions {
            data_dir: data_dir.into(),
            proxy: None,
            window: None,
            user_agent: None,
            locale: None,
            time_zone: None,
            headless: true,
            allow_downloads: false,
            allow_file_urls: false,
            start_limit: Duration::from_secs(30),
        }
    }
}

/// Why there is no browser. Nothing of it is left: no process and no slot.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program could not be started at all.
    #[error("cannot start {}: {source}; install Chromium (Debian and Ubuntu: apt-get install chromium)", .program.display())]
    Missing {
        /// Which one.
        program: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}: {source}", .path.display())]
    DataDir {
        /// Which one.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another browser has the data directory open.
    #[error("the data directory {} is in use by another browser; close that browser first", .path.display())]
    InUse {
        /// Which one.
        path: PathBuf,
    },
    /// An option has a value that cannot be passed on.
    #[error("{field} is not valid: {reason}")]
    BadOption {
        /// The option.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// It ended before DevTools answered.
    #[error("the browser ended while it started ({exit}){}", .last_lines)]
    Crashed {
        /// How it ended.
        exit: Exit,
        /// Its last lines of output, each after a line break.
        last_lines: String,
    },
    /// It could not listen on a debug port.
    #[error("the browser could not listen on a debug port{last_lines}")]
    PortBind {
        /// Its last lines of output, each after a line break.
        last_lines: String,
    },
    /// It did not answer in time, and was killed.
    #[error("the browser did not answer within {} ms and was killed{last_lines}", .limit.as_millis())]
    Hung {
        /// The limit.
        limit: Duration,
        /// Its last lines of output, each after a line break.
        last_lines: String,
    },
    /// It answered, but not as DevTools does.
    #[error("the browser's DevTools endpoint failed: {0}")]
    DevTools(#[from] DevToolsError),
    /// The caller canceled the start.
    #[error("the start was canceled")]
    Canceled,
}

impl LaunchError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            LaunchError::Missing { .. } => "browser_missing",
            LaunchError::DataDir { .. } => "data_dir",
            LaunchError::InUse { .. } => "profile_in_use",
            LaunchError::BadOption { .. } => "bad_option",
            LaunchError::Crashed { .. } => "browser_crashed",
            LaunchError::PortBind { .. } => "port_bind",
            LaunchError::Hung { .. } => "browser_hung",
            LaunchError::DevTools(_) => "devtools_failed",
            LaunchError::Canceled => "canceled",
        }
    }

    /// True if another attempt may succeed: the process crashed or hung, or the port could not be bound.
    pub fn retryable(&self) -> bool {
        matches!(
            self,
            LaunchError::Crashed { .. }
                | LaunchError::PortBind { .. }
                | LaunchError::Hung { .. }
                | LaunchError::DevTools(_)
        )
    }
}

impl Chromium {
    /// Starts a browser. It returns when DevTools has answered; after an error, nothing of the browser is left.
    pub async fn launch(
        &self,
        options: &LaunchOptions,
        stop: &CancellationToken,
    ) -> Result<Browser, LaunchError> {
        let start = Start::prepare(self, options).await?;
        let (process, mut output) = start.spawn()?;
        let waited = tokio::select! {
            biased;
            () = stop.cancelled() => Err(LaunchError::Canceled),
            ready = tokio::time::timeout(options.start_limit, start.ready(&process, &mut output)) => {
                ready.unwrap_or_else(|_| Err(LaunchError::Hung {
                    limit: options.start_limit,
                    last_lines: output.last_lines(),
                }))
            }
        };
        let ready = match waited {
            Ok(ready) => ready,
            Err(error) => {
                process.kill();
                process.exited().await;
                return Err(error);
            }
        };
        // A full pipe would block the browser.
        tokio::spawn(output.drain());
        Ok(Browser::new(process, ready))
    }
}

/// Everything that is decided before the process exists.
struct Start {
    program: PathBuf,
    data_dir: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    hub: HubOptions,
    time_zone: Option<String>,
    downloads: Option<PathBuf>,
    relay: Option<Relay>,
}

impl Start {
    async fn prepare(chromium: &Chromium, options: &LaunchOptions) -> Result<Start, LaunchError> {
        options.check()?;
        let unusable = |source| LaunchError::DataDir { path: options.data_dir.clone(), source };
        let data_dir = record::prepare(&options.data_dir)
            .map_err(unusable)?
            .ok_or_else(|| LaunchError::InUse { path: options.data_dir.clone() })?;
        let relay = match &options.proxy {
            Some(proxy) if proxy.scheme() == Scheme::Socks5 && proxy.user().is_some() => {
                Some(Relay::start(proxy.clone()).await.map_err(|error| LaunchError::BadOption {
                    field: "proxy",
                    reason: format!("the local relay for the proxy cannot listen: {error}"),
                })?)
            }
            _ => None,
        };
        let proxy_server = match (&relay, &options.proxy) {
            (Some(relay), _) => Some(format!("socks5://127.0.0.1:{}", relay.port())),
            (None, proxy) => proxy.as_ref().map(Proxy::to_string),
        };
        let hub = HubOptions {
            proxy_credentials: options
                .proxy
                .as_ref()
                .filter(|_| relay.is_none())
                .and_then(Proxy::credentials),
            locale: options.locale.clone(),
            allow_file_urls: options.allow_file_urls,
        };
        Ok(Start {
            program: chromium.program().to_owned(),
            arguments: arguments::of(options, &data_dir, proxy_server.as_deref()),
            environment: arguments::environment_of(options, &data_dir),
            hub,
            time_zone: options.time_zone.clone(),
            downloads: options.allow_downloads.then(|| data_dir.join("Downloads")),
            data_dir,
            relay,
        })
    }

    /// Starts the process, and records it in its data directory.
    fn spawn(&self) -> Result<(Process, Output), LaunchError> {
        let unusable = |source| LaunchError::DataDir { path: self.data_dir.clone(), source };
        let mut record = Record::starting();
        if let Some(record) = &record {
            record.write(&self.data_dir).map_err(unusable)?;
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        // The thread that notices the end removes the record. It must not do so before the record is written for the last time.
        let has_ended = Arc::new(Mutex::new(false));
        let (data_dir, ending) = (self.data_dir.clone(), has_ended.clone());
        let spawned = Process::spawn(&mut command, move || {
            *ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
            Record::remove(&data_dir);
        });
        let (process, stderr) = spawned.map_err(|source| {
            Record::remove(&self.data_dir);
            LaunchError::Missing { program: self.program.clone(), source }
        })?;
        if let Some(record) = &mut record {
            record.browser = Identity::of(process.pid());
            let has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
            if record.browser.is_some() && !*has_ended {
                record.write(&self.data_dir).map_err(unusable)?;
            }
        }
        Ok((process, Output::new(stderr).map_err(unusable)?))
    }

    /// Waits until DevTools answers.
    async fn ready(self, process: &Process, output: &mut Output) -> Result<Ready, LaunchError> {
        let url = loop {
            match output.next_line().await {
                Some(line) => {
                    if let Some(url) = line.strip_prefix("DevTools listening on ") {
                        break url.trim().to_owned();
                    }
                }
                None => {
                    let exit = process.exited().await;
                    return Err(self.ended(exit, output.last_lines()));
                }
            }
        };
        let port = port_of(&url).ok_or_else(|| DevToolsError::Connect {
            url: url.clone(),
            reason: "it is no address on loopback".to_owned(),
        })?;
        let port = DebugPort::new(port);
        let hub = Arc::new(Hub::new(self.hub.clone()));
        let connected = tokio::select! {
            connected = self.connect(port.number(), &url, &hub) => connected,
            exit = process.exited() => Err(self.ended(exit, output.last_lines())),
        };
        let connection = connected?;
        Ok(Ready { data_dir: self.data_dir, port, url, connection, hub, relay: self.relay })
    }

    async fn connect(&self, port: u16, url: &str, hub: &Arc<Hub>) -> Result<Connection, LaunchError> {
        let connection = Connection::open(port, url, hub.clone()).await?;
        let downloads = match &self.downloads {
            Some(path) => json!({"behavior": "allow", "downloadPath": path}),
            None => json!({"behavior": "deny"}),
        };
        connection.call(None, "Browser.setDownloadBehavior", downloads).await?;
        connection.call(None, "Target.setDiscoverTargets", json!({"discover": true})).await?;
        connection.call(None, "Target.setAutoAttach", auto_attach()).await?;
        if let Some(time_zone) = &self.time_zone {
            self.check_time_zone(&connection, hub, time_zone).await?;
        }
        Ok(connection)
    }

    /// The process has its time zone from the environment, where a wrong one would go unnoticed. JavaScript knows which ones there are.
    async fn check_time_zone(
        &self,
        connection: &Connection,
        hub: &Hub,
        time_zone: &str,
    ) -> Result<(), LaunchError> {
        let Some(tab) = hub.any_attached().await else { return Err(DevToolsError::Closed.into()) };
        let format = json!({"timeZone": time_zone});
        let params = json!({"expression": format!("void new Intl.DateTimeFormat('en', {format})")});
        let evaluated = connection.call(Some(&tab.session), "Runtime.evaluate", params).await?;
        if evaluated["exceptionDetails"].is_null() {
            return Ok(());
        }
        let reason = format!("Chromium does not know {time_zone:?}; give a name such as Europe/Berlin");
        Err(LaunchError::BadOption { field: "time_zone", reason })
    }

    /// Why a process that has ended did so.
    fn ended(&self, exit: Exit, last_lines: String) -> LaunchError {
        let has = |texts: &[&str]| texts.iter().any(|text| last_lines.contains(text));
        if has(&["profile appears to be in use", "Opening in existing browser session"]) {
            return LaunchError::InUse { path: self.data_dir.clone() };
        }
        if has(&["Cannot start http server for devtools"]) {
            return LaunchError::PortBind { last_lines };
        }
        LaunchError::Crashed { exit, last_lines }
    }
}

/// The port of a DevTools URL, if it is on loopback.
fn port_of(url: &str) -> Option<u16> {
    let address = url.strip_prefix("ws://127.0.0.1:").or_else(|| url.strip_prefix("ws://localhost:"))?;
    address.split_once('/')?.0.parse().ok()
}

/// What a browser that answered consists of, apart from its process.
pub(super) struct Ready {
    pub(super) data_dir: PathBuf,
    pub(super) port: DebugPort,
    pub(super) url: String,
    pub(super) connection: Connection,
    pub(super) hub: Arc<Hub>,
    pub(super) relay: Option<Relay>,
}
