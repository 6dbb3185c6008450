//! Executes the actions of the protocol: sockets, handlers, packages, clocks.
//!
//! One task owns all state. Handlers, downloads and the writing half of the socket run in other tasks and use
//! bounded channels.

mod link;
mod reads;
mod supervise;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_wire::frame::{
    Auth, AuthMode, ErrorCode, Frame, JsonObject, Message, NextRequest, NextResponse, PackageEvent,
    PackageOutcome, Register, ResourceData, Secret, Text, Timestamp, Vitals,
};
use serde_json::json;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::link::{Incoming, Link};
use super::connect::Dialer;
use super::ended::Ended;
use super::handlers::Handlers;
use super::metrics::Metrics;
use super::outbox::TaskKey;
use super::packages::{PackageError, Packages};
use super::protocol::{Action, CloseReason, Environment, Now, Protocol};
use super::resources::Resources;
use super::state::WorkerState;
use super::task::Task;
use super::tasks::{Order, Rejection};
use super::vitals::Probe;
use super::{Offer, TokenSource};

/// Most events of handlers that wait for the loop.
pub(super) const EVENTS_MAX: usize = 1_024;
/// Most `next` requests that wait for an answer.
const NEXTS_MAX: usize = 1_024;
/// Most packages that are being installed or removed, one after the other.
const PACKAGE_CHANGES_MAX: usize = 16;
/// How often expired resources are removed.
const COLLECT_EVERY: Duration = Duration::from_secs(60);

/// An event for the loop.
pub(super) enum Event {
    /// A running task sends a message.
    TaskMessage {
        /// The attempt.
        key: TaskKey,
        /// The message.
        message: Message,
    },
    /// A middleware requests the rest of its chain.
    Next {
        /// The attempt.
        key: TaskKey,
        /// The request.
        request: NextRequest,
        /// Receives the answer.
        sender: oneshot::Sender<NextResponse>,
    },
    /// An attempt has ended.
    Ended {
        /// The attempt.
        key: TaskKey,
        /// Distinguishes starts: a later one may have the same key.
        start: u64,
        /// How it ended.
        ended: Ended,
    },
    /// A package was installed or removed, or the change failed.
    Packaged {
        /// The requesting frame.
        asked: Text,
        /// The outcome.
        event: PackageEvent,
    },
    /// A part of a resource was read, or the read failed.
    Read {
        /// The requesting frame.
        asked: Text,
        /// The part.
        answer: Result<ResourceData, Rejection>,
    },
}

/// A command from a handle.
pub(super) enum Command {
    /// Take no more tasks; running tasks get this long.
    Drain(Option<Duration>),
}

/// Why a worker ended without a drain.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// Another worker connected with the same id.
    #[error("another worker connected with the same id; give each worker an id of its own")]
    Superseded,
}

/// The state of the loop.
pub(super) struct Driver {
    pub(super) protocol: Protocol,
    pub(super) offer: Offer,
    pub(super) handlers: Handlers,
    pub(super) packages: Option<Packages>,
    pub(super) resources: Resources,
    pub(super) probe: Probe,
    pub(super) metrics: Arc<Metrics>,
    pub(super) dialer: Dialer,
    pub(super) token: TokenSource,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) state: watch::Sender<WorkerState>,
    pub(super) began: Instant,
    pub(super) runs: BTreeMap<TaskKey, Run>,
    pub(super) starts: u64,
    pub(super) nexts: BTreeMap<Text, (TaskKey, oneshot::Sender<NextResponse>)>,
    pub(super) collected: Duration,
    pub(super) package_changes: usize,
    /// How many parts of resources are being read.
    pub(super) reads: usize,
    pub(super) stop_grace: Duration,
}

/// A running handler.
pub(super) struct Run {
    token: CancellationToken,
    start: u64,
    _task: AbortOnDropHandle<()>,
}

struct WorkerEnvironment<'a> {
    handlers: &'a Handlers,
    resources: &'a Resources,
    probe: &'a Probe,
}

impl Environment for WorkerEnvironment<'_> {
    fn fits(&self, order: &Order, now: Now) -> Result<(), Rejection> {
        self.handlers.find(&order.dispatch)?;
        self.resources.check(&order.dispatch, now.wall.0)
    }

    fn vitals(&self) -> Vitals {
        let (handles, bytes) = self.resources.usage();
        let mut vitals = self.probe.read();
        let more = [("resource_handles", handles), ("resource_bytes", bytes)]
            .map(|(name, value)| (Text::fixed(name), json!(value)));
        vitals.more = laneway_wire::frame::Table::new(more.into()).unwrap_or_default();
        vitals
    }
}

impl Driver {
    /// Runs until the worker has drained, or cannot go on.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        mut commands: mpsc::Receiver<Command>,
    ) -> Result<(), WorkerError> {
        let mut link = Link::Down;
        loop {
            let now = self.now();
            if matches!(link, Link::Down) && now.mono >= self.protocol.retry_at() {
                self.protocol.dial();
                link = Link::dial(self.dialer.clone(), Arc::clone(&self.token));
            }
            let wake = self.wake(&link);
            let mut out = Vec::new();
            tokio::select! {
                incoming = link.next() => self.handle_incoming(incoming, &mut link, &mut out),
                Some(event) = events.recv() => self.handle_event(event, &mut out),
                Some(Command::Drain(limit)) = commands.recv() => {
                    let now = self.now();
                    self.protocol.drain(now, limit, &mut out);
                }
                () = tokio::time::sleep_until((self.began + wake).into()) => {}
            }
            self.tick(&mut out);
            if let Some(why) = self.execute(out, &mut link) {
                self.publish();
                link.finish().await;
                return match why {
                    CloseReason::Superseded => Err(WorkerError::Superseded),
                    CloseReason::Done | CloseReason::Retry => Ok(()),
                };
            }
            self.publish();
        }
    }

    fn now(&self) -> Now {
        Now { mono: self.began.elapsed(), wall: Timestamp::now() }
    }

    /// When the loop must wake up.
    fn wake(&self, link: &Link) -> Duration {
        let redial = matches!(link, Link::Down).then(|| self.protocol.retry_at());
        let collect = Some(self.collected + COLLECT_EVERY);
        [redial, collect, self.protocol.next_wakeup()].into_iter().flatten().min().unwrap_or(COLLECT_EVERY)
    }

    fn tick(&mut self, out: &mut Vec<Action>) {
        let now = self.now();
        let environment =
            WorkerEnvironment { handlers: &self.handlers, resources: &self.resources, probe: &self.probe };
        self.protocol.handle_tick(now, &environment, out);
        if now.mono >= self.collected + COLLECT_EVERY {
            self.collected = now.mono;
            // Files are removed on a blocking thread.
            let resources = self.resources.clone();
            tokio::task::spawn_blocking(move || resources.collect(now.wall.0));
        }
    }

    fn publish(&self) {
        let state = self.protocol.state();
        let changed = self.state.send_if_modified(|shown| std::mem::replace(shown, state) != state);
        if changed && state == WorkerState::Heartbeating {
            tracing::info!("registered; jobs may come");
        }
        let (tally, inflight) = (self.protocol.tally(), self.protocol.tasks().len());
        self.metrics.set(&tally, inflight, self.protocol.outcomes_waiting(), state.is_up());
    }

    /// Handles a frame or a change of the connection.
    fn handle_incoming(&mut self, incoming: Incoming, link: &mut Link, out: &mut Vec<Action>) {
        let now = self.now();
        match incoming {
            Incoming::Opened(open) => {
                tracing::info!("connected");
                let auth = self.auth(open.token.as_deref());
                *link = Link::Up(open.up);
                let register = self.register();
                self.protocol.connected(now, auth, register, out);
            }
            Incoming::Failed(error) => {
                tracing::warn!(%error, "cannot connect; retrying");
                *link = Link::Down;
                self.protocol.disconnected(now);
            }
            Incoming::Text(bytes) => match Frame::parse(&bytes) {
                Ok(frame) => {
                    log_frame("received", &frame);
                    let environment = WorkerEnvironment {
                        handlers: &self.handlers,
                        resources: &self.resources,
                        probe: &self.probe,
                    };
                    self.protocol.handle_frame(now, frame, &environment, out);
                }
                Err(error) => {
                    tracing::warn!(code = error.code.as_str(), %error, "a frame cannot be read");
                    self.protocol.handle_bad_frame(now, &error, out);
                }
            },
            Incoming::Closed(reason) => {
                tracing::warn!(reason, "the connection was closed");
                *link = Link::Down;
                self.protocol.disconnected(now);
            }
        }
    }

    fn handle_event(&mut self, event: Event, out: &mut Vec<Action>) {
        let now = self.now();
        match event {
            // Messages of an attempt that was dropped are ignored.
            Event::TaskMessage { key, message } if self.runs.contains_key(&key) => {
                self.protocol.send_for_task(now, &key, message, out);
            }
            Event::Next { key, request, sender } if self.runs.contains_key(&key) => {
                if self.nexts.len() < NEXTS_MAX {
                    self.nexts.insert(request.request_id.clone(), (key.clone(), sender));
                    self.protocol.send_for_task(now, &key, Message::NextRequest(request), out);
                }
            }
            Event::TaskMessage { .. } | Event::Next { .. } => {}
            Event::Ended { key, start, ended } => {
                if self.runs.get(&key).is_some_and(|run| run.start == start) {
                    self.end(&key, ended, out);
                }
            }
            Event::Packaged { asked, event } => {
                self.package_changes = self.package_changes.saturating_sub(1);
                self.protocol.report(now, Some(asked), Message::PackageEvent(event), out);
            }
            Event::Read { asked, answer } => {
                self.reads = self.reads.saturating_sub(1);
                self.protocol.part_read(now, asked, answer, out);
            }
        }
    }

    /// An attempt has ended, or was dropped.
    fn end(&mut self, key: &TaskKey, ended: Ended, out: &mut Vec<Action>) {
        self.runs.remove(key);
        self.resources.release(key);
        self.nexts.retain(|_, (asker, _)| asker != key);
        let now = self.now();
        if let Some(run) = self.protocol.ended(now, key, ended, out) {
            if !run.gives {
                let (resources, maker) = (self.resources.clone(), key.clone());
                tokio::task::spawn_blocking(move || resources.release_made(&maker));
            }
            let code = run.code.as_deref();
            self.metrics.ended(&run.kind, run.took, code.is_some());
            tracing::info!(
                tenant = self.protocol.profile().tenant.as_str(),
                "sender.id" = self.protocol.profile().identity.id.as_str(),
                corr = key.task_id.as_str(),
                seq = key.seq,
                code,
                kind = run.kind.as_str(),
                took_ms = u64::try_from(run.took.as_millis()).unwrap_or(u64::MAX),
                "job ended"
            );
        }
    }

    /// Executes actions. Returns why the worker ends, once it does.
    fn execute(&mut self, mut out: Vec<Action>, link: &mut Link) -> Option<CloseReason> {
        while !out.is_empty() {
            for action in std::mem::take(&mut out) {
                match action {
                    Action::Send(frame) => {
                        log_frame("sent", &frame);
                        link.send(&frame);
                    }
                    Action::Start(order) => self.start(order),
                    Action::Stop(key, why) => {
                        tracing::info!(
                            corr = key.task_id.as_str(),
                            seq = key.seq,
                            ?why,
                            "job is asked to stop"
                        );
                        if let Some(run) = self.runs.get(&key) {
                            run.token.cancel();
                        }
                    }
                    Action::Abandon(key) => self.end(&key, Ended::Stopped, &mut out),
                    Action::Install(asked, install) => self.install(asked, install, &mut out),
                    Action::Uninstall(asked, uninstall) => self.uninstall(asked, uninstall, &mut out),
                    Action::Read(asked, read) => self.read(asked, read, &mut out),
                    Action::Next(response) => {
                        // An answer without a waiting caller is ignored.
                        if let Some((_, sender)) = self.nexts.remove(&response.request_id) {
                            let _ = sender.send(response);
                        }
                    }
                    Action::Close(CloseReason::Retry) => {
                        *link = Link::Down;
                        self.protocol.disconnected(self.now());
                    }
                    Action::Close(why) => return Some(why),
                }
            }
        }
        None
    }

    fn start(&mut self, order: Order) {
        let Order { key, dispatch } = order;
        tracing::info!(
            tenant = self.protocol.profile().tenant.as_str(),
            "sender.id" = self.protocol.profile().identity.id.as_str(),
            corr = key.task_id.as_str(),
            seq = key.seq,
            kind = dispatch.node_type.as_str(),
            "job started"
        );
        self.starts += 1;
        let (start, events, token) = (self.starts, self.events.clone(), CancellationToken::new());
        self.resources.hold(&dispatch, &key);
        let handler = self.handlers.find(&dispatch);
        let limit = dispatch.constraints.timeout_ms.map(Duration::from_millis);
        let grace = self.stop_grace;
        let task = Task::new(key.clone(), *dispatch, token.clone(), events.clone(), self.resources.clone());
        let ending = key.clone();
        let work = async move {
            let ended = match handler {
                Ok(handler) => supervise::supervise(handler, task, limit, grace).await,
                // The handler existed when the task was accepted: a package was removed meanwhile.
                Err(rejection) => Ended::Failed(super::ended::Failure::transient(
                    rejection.code.as_str(),
                    rejection.message,
                )),
            };
            let _ = events.send(Event::Ended { key: ending, start, ended }).await;
        };
        let run = Run { token, start, _task: AbortOnDropHandle::new(tokio::spawn(work)) };
        self.runs.insert(key, run);
    }

    fn install(&mut self, asked: Text, install: laneway_wire::frame::Install, out: &mut Vec<Action>) {
        let (events, handlers) = (self.events.clone(), self.handlers.clone());
        let packages = match self.changeable() {
            Ok(packages) => packages,
            Err(error) => {
                let event = package_event(install.name, install.version, "install", Err(error));
                return self.protocol.report(self.now(), Some(asked), Message::PackageEvent(event), out);
            }
        };
        tokio::spawn(async move {
            let done = packages.install(&install).await.map(|(package, found)| {
                handlers.add_package(package.name, package.version, found);
                Some(package.manifest)
            });
            let event = package_event(install.name, install.version, "install", done);
            let _ = events.send(Event::Packaged { asked, event }).await;
        });
    }

    fn uninstall(&mut self, asked: Text, uninstall: laneway_wire::frame::Uninstall, out: &mut Vec<Action>) {
        let (events, handlers) = (self.events.clone(), self.handlers.clone());
        let shown = uninstall.version.clone().unwrap_or_else(|| Text::fixed("*"));
        let packages = match self.changeable() {
            Ok(packages) => packages,
            Err(error) => {
                let event = package_event(uninstall.name, shown, "uninstall", Err(error));
                return self.protocol.report(self.now(), Some(asked), Message::PackageEvent(event), out);
            }
        };
        tokio::spawn(async move {
            let done = packages.uninstall(&uninstall).await.map(|versions| {
                for version in &versions {
                    handlers.remove_package(&uninstall.name, version);
                }
                None
            });
            let event = package_event(uninstall.name, shown, "uninstall", done);
            let _ = events.send(Event::Packaged { asked, event }).await;
        });
    }

    /// The packages, unless this worker has none or too many changes wait already.
    fn changeable(&mut self) -> Result<Packages, PackageError> {
        let Some(packages) = &self.packages else {
            let message = "this worker has no folder for packages".to_owned();
            return Err(PackageError { code: ErrorCode::PkgPermission, message });
        };
        if self.package_changes >= PACKAGE_CHANGES_MAX {
            let message =
                format!("{PACKAGE_CHANGES_MAX} packages are being changed already; try again later");
            return Err(PackageError { code: ErrorCode::Internal, message });
        }
        self.package_changes += 1;
        Ok(packages.clone())
    }

    fn auth(&self, token: Option<&str>) -> Auth {
        let mode =
            if token.is_none() && self.dialer.shows_certificate() { AuthMode::Mtls } else { AuthMode::Token };
        Auth { mode, token: token.map(|token| Secret(token.to_owned())), fingerprint: None }
    }

    fn register(&self) -> Register {
        let loaded = self.packages.as_ref().map(Packages::load).unwrap_or_default();
        self.offer.register(&self.handlers.kinds(), loaded.into_iter().map(|(package, _)| package))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The registry is the only owner of the files.
        self.resources.close();
    }
}

fn package_event(
    name: Text,
    version: Text,
    operation: &str,
    done: Result<Option<JsonObject>, PackageError>,
) -> PackageEvent {
    let (status, details) = match &done {
        Ok(manifest) => (PackageOutcome::Installed, json!({"operation": operation, "manifest": manifest})),
        Err(error) => {
            let details =
                json!({"operation": operation, "code": error.code.as_str(), "message": error.message});
            (PackageOutcome::Failed, details)
        }
    };
    let code = done.err().map(|error| error.code.as_str());
    tracing::info!(package = name.as_str(), version = version.as_str(), operation, code, "package");
    PackageEvent { name, version, status, log_url: None, details: JsonObject::of(&details).ok() }
}

/// Logs a frame, with the fields that all protocol logs have.
fn log_frame(direction: &'static str, frame: &Frame) {
    let code = match &frame.message {
        Message::Error(error) => Some(error.code.as_str()),
        Message::Result(result) => result.error.as_ref().map(|error| error.code.as_str()),
        _ => None,
    };
    tracing::debug!(
        tenant = frame.tenant.as_str(),
        "sender.id" = frame.sender.id.as_str(),
        "type" = frame.message.kind().as_str(),
        id = frame.id.as_str(),
        corr = frame.corr.as_deref(),
        code,
        seq = frame.seq,
        "{direction}"
    );
}
