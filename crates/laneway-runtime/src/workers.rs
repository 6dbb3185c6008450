//! Connections of workers, and the messages to each of them.
//!
//! The owner of a socket connects here ([`Scheduler::connect_worker`]), sends the reports of its worker, and receives the
//! messages of the engine after their commit. Payloads are read here, in batches, before a task is sent. The messages that
//! wait for one connection are limited: a connection that is too slow is cut off, and its tasks are offered again when its
//! worker reconnects.

use laneway_core::command::WorkerCommand;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use laneway_core::command::LogLine;
use laneway_core::effect::OfferTo;
use laneway_core::worker::{Orders, Register, WorkerMessage, WorkerOffer, WorkerReport};
use laneway_core::{
    Bytes, Command, ConnectionId, Failure, Fence, JobRow, Name, NextAnswer, Origin, Reply, Seq, Span, SpanOf,
    Task, TasksKept, Wall,
};
use laneway_store::Runnable;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::artifacts::PartOrder;
use crate::bindings::is_bound;
use crate::event_loop::RunnerMessage;
use crate::events::Progress;
use crate::executors::logs::LogBuffer;
use crate::executors::read_jobs::read_jobs;
use crate::executors::{Offered, Work, cut};
use crate::feedback::{Feedback, Piece, bounded, changes_of};
use crate::scheduler::{Scheduler, Shared, Stopped};

/// Most messages that wait for one connection: more than a worker that reads them ever has.
const WAITING_MAX: usize = 4_096;
/// Longest text of a progress report, in bytes: it is kept in memory for every running job.
const PROGRESS_LEN_MAX: usize = 1_024;
/// Longest name of a stage or of a metric, in bytes.
const STAGE_LEN_MAX: usize = 128;
/// Most metrics of one run that are kept in memory.
const METRICS_MAX: usize = 64;

/// A message to a connection.
#[derive(Debug)]
pub enum ToWorker {
    /// This attempt is the connection's from now on; its payload is being read.
    Bound(BoundTask),
    /// Run this attempt. Whether or not it was bound before, it is now.
    Run(Box<WorkerTask>),
    /// The payload of a bound attempt cannot be read: it must be handed back.
    Unreadable(Task),
    /// The payload of a bound attempt cannot be composed: the attempt has failed.
    Unfit(Task, Box<Failure>),
    /// This attempt must stop.
    Stop(Task),
    /// The answer to a call of an attempt of this connection.
    Next {
        /// The attempt that called.
        task: Task,
        /// Its own name for the call.
        request: Name,
        /// The answer.
        answer: NextAnswer,
    },
    /// Another connection has replaced this one.
    Superseded,
    /// Another process wants the worker's name: show that you are there.
    Probe,
    /// Take nothing new, end what runs, and go.
    Drain,
    /// Install a package.
    Install(PackageOrder),
    /// Remove a package.
    Uninstall {
        /// Its name.
        name: Box<str>,
        /// Only this version.
        version: Option<Box<str>>,
    },
    /// Give a part of what a task made there.
    Read(PartOrder),
}

/// A package to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageOrder {
    /// Its name.
    pub name: Box<str>,
    /// Its version.
    pub version: Box<str>,
    /// Where the archive is.
    pub url: Box<str>,
    /// The SHA-256 of the archive, in hexadecimal digits.
    pub sha256: Box<str>,
}

/// An attempt that belongs to a connection.
#[derive(Clone, Debug)]
pub struct BoundTask {
    /// How the connection names it.
    pub task: Task,
    /// The fence of every report on the attempt.
    pub fence: Fence,
    /// Its kind.
    pub kind: Name,
}

/// One attempt for a worker.
#[derive(Debug)]
pub struct WorkerTask {
    /// How the connection names it.
    pub task: Task,
    /// The job with everything that a run needs.
    pub work: Work,
    /// When it was offered.
    pub at: Wall,
    /// True: it was offered before, over another connection.
    pub again: bool,
}

/// An offer to a worker, as the loop hands it over.
pub(crate) struct WorkerOffered {
    pub(crate) offered: Offered,
    pub(crate) kind: Name,
    pub(crate) to: OfferTo,
}

impl WorkerOffered {
    fn task(&self) -> Task {
        Task { job: self.offered.fence.job, dispatch_seq: self.offered.dispatch_seq }
    }
}

/// Every live connection.
#[derive(Default)]
pub(crate) struct Connections {
    last: AtomicU64,
    open: Mutex<HashMap<ConnectionId, mpsc::Sender<ToWorker>>>,
    /// Where payloads are read: the runtime of the first connection.
    handle: OnceLock<Handle>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<ConnectionId, mpsc::Sender<ToWorker>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to a connection. False: it is gone, or was cut off because it does not read.
    pub(crate) fn send(&self, connection: ConnectionId, message: ToWorker) -> bool {
        let mut open = self.open();
        let Some(sender) = open.get(&connection) else { return false };
        if sender.try_send(message).is_ok() {
            return true;
        }
        tracing::warn!(%connection, waiting = WAITING_MAX, "a worker takes nothing up; its connection is cut");
        open.remove(&connection);
        false
    }

    /// Hands attempts to their connections. Called from the loop: what is not in memory is read elsewhere.
    pub(crate) fn offer(shared: &Arc<Shared>, offers: Vec<WorkerOffered>) {
        let (kept, missing): (Vec<_>, Vec<_>) = offers
            .into_iter()
            .partition(|offer| offer.offered.kept.as_ref().is_some_and(|(row, _)| !is_bound(row)));
        for mut offer in kept {
            if let Some((row, payload)) = offer.offered.kept.take() {
                run(shared, offer, row, payload, Vec::new());
            }
        }
        if missing.is_empty() {
            return;
        }
        for offer in &missing {
            let (fence, kind) = (offer.offered.fence, offer.kind.clone());
            let bound = BoundTask { task: offer.task(), fence, kind };
            shared.workers.send(offer.to.connection, ToWorker::Bound(bound));
        }
        if let Some(handle) = shared.workers.handle.get() {
            handle.spawn(read_and_run(Arc::clone(shared), missing));
        }
    }
}

/// Reads the payloads of several attempts at once, and sends the attempts to their workers.
async fn read_and_run(shared: Arc<Shared>, missing: Vec<WorkerOffered>) {
    let jobs: Vec<Seq> = missing.iter().map(|offer| offer.offered.seq).collect();
    let Some(rows) = read_jobs(&shared, &jobs).await else {
        for offer in missing {
            shared.workers.send(offer.to.connection, ToWorker::Unreadable(offer.task()));
        }
        return;
    };
    for (offer, job) in missing.into_iter().zip(rows) {
        match job {
            Ok(Runnable { row, payload, merged }) => run(&shared, offer, Arc::new(row), payload, merged),
            Err(clash) => {
                let (task, to) = (offer.task(), offer.to.connection);
                shared.workers.send(to, ToWorker::Unfit(task, Box::new(clash)));
            }
        }
    }
}

fn run(shared: &Shared, offer: WorkerOffered, row: Arc<JobRow>, payload: Bytes, merged: Vec<Bytes>) {
    let task = offer.task();
    let WorkerOffered { offered, kind: _, to } = offer;
    let Offered { seq: _, fence, timeout, deadline, at, kept: _, dispatch_seq } = offered;
    let waited_for_others = row.spec.member.as_ref().is_some_and(|member| !member.depends_on.is_empty());
    if fence.attempt == 1 && !to.again && !waited_for_others {
        let eligible = row.spec.not_before.map_or(row.created_at, |at| at.max(row.created_at));
        shared.metrics.waited(at.since(eligible));
    }
    let trace = shared.trace_below(&row, SpanOf::Attempt(fence.attempt));
    let work = Work { row, payload, merged, fence, timeout, deadline, dispatch_seq, trace };
    let task = WorkerTask { task, work, at, again: to.again };
    shared.workers.send(to.connection, ToWorker::Run(Box::new(task)));
}

/// One connection, as its socket holds it. When dropped, it is forgotten; [`WorkerLink::gone`] also informs the engine.
pub struct WorkerLink {
    connection: ConnectionId,
    inbox: mpsc::Receiver<ToWorker>,
    scheduler: Scheduler,
}

impl Scheduler {
    /// A connection without a registered worker. Must be called on a tokio runtime.
    pub fn connect_worker(&self) -> WorkerLink {
        let connections = &self.shared.workers;
        connections.handle.get_or_init(Handle::current);
        let connection = ConnectionId(connections.last.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, inbox) = mpsc::channel(WAITING_MAX);
        connections.open().insert(connection, sender);
        WorkerLink { connection, inbox, scheduler: self.clone() }
    }

    /// Sends a message that is not about a job to the connection of a worker. False: it is gone.
    pub fn send_to_worker(&self, connection: ConnectionId, message: ToWorker) -> bool {
        self.shared.workers.send(connection, message)
    }

    /// A worker is to take nothing new, or something again.
    pub async fn drain_worker(
        &self,
        tenant: Name,
        worker: Name,
        drain: bool,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Worker(WorkerCommand::Drain { tenant, worker, drain, origin })).await
    }

    /// A worker serves these lanes from now on, whatever it offers; with none, every one.
    pub async fn rebind_worker(
        &self,
        tenant: Name,
        worker: Name,
        lanes: Vec<Name>,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Worker(WorkerCommand::Rebind { tenant, worker, lanes, origin })).await
    }
}

impl WorkerLink {
    /// Its number.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Waits for the next message. `None`: the connection is cut off.
    pub async fn receive(&mut self) -> Option<ToWorker> {
        self.inbox.recv().await
    }

    /// The next message, if there is one already.
    pub fn receive_now(&mut self) -> Option<ToWorker> {
        self.inbox.try_recv().ok()
    }

    /// Registers the worker. `boot` names its process, which still has these tasks.
    pub fn register(
        &self,
        offer: WorkerOffer,
        heartbeat: Span,
        boot: Option<Name>,
        tasks: BTreeSet<Task>,
    ) -> impl Future<Output = Result<Reply, Stopped>> + Send + use<> {
        let (scheduler, connection) = (self.scheduler.clone(), self.connection);
        let (orders, tasks) = (Orders::default(), TasksKept::Listed(tasks));
        let register = Register { connection, offer, heartbeat, orders, boot, tasks };
        async move { scheduler.send(Command::Worker(WorkerCommand::Register(Box::new(register)))).await }
    }

    /// Sends a report of the worker. The reply means that its effects are durable.
    pub fn report(
        &self,
        report: WorkerReport,
    ) -> impl Future<Output = Result<Reply, Stopped>> + Send + use<> {
        let scheduler = self.scheduler.clone();
        let message = WorkerMessage { connection: self.connection, report };
        async move { scheduler.send(Command::Worker(WorkerCommand::Message(Box::new(message)))).await }
    }

    /// The connection is gone: the worker may come back over another one.
    pub async fn gone(self) {
        // A loop that has stopped needs no report.
        drop(self.report(WorkerReport::Gone).await);
    }

    /// The reporter of an attempt of this connection.
    pub fn run(&self, tenant: Name, bound: &BoundTask) -> WorkerRun {
        let BoundTask { task: _, fence, kind } = bound.clone();
        WorkerRun {
            tenant,
            kind,
            fence,
            logs: Arc::default(),
            messages: self.scheduler.messages.clone(),
            shared: Arc::clone(&self.scheduler.shared),
        }
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        self.scheduler.shared.workers.open().remove(&self.connection);
    }
}

/// Progress of an attempt. Fields that are absent stay as they were.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report<'a> {
    /// Where in its life it is.
    pub stage: Option<&'a str>,
    /// From 0 to 1.
    pub fraction: Option<f64>,
    /// For people.
    pub message: Option<&'a str>,
    /// Metrics of its own.
    pub metrics: &'a [(&'a str, f64)],
}

/// A run on a worker, for what it says while it goes on.
#[derive(Clone)]
pub struct WorkerRun {
    tenant: Name,
    kind: Name,
    fence: Fence,
    logs: Arc<LogBuffer>,
    messages: mpsc::Sender<RunnerMessage>,
    shared: Arc<Shared>,
}

impl WorkerRun {
    /// Its kind.
    pub fn kind(&self) -> &Name {
        &self.kind
    }

    /// The fence of every report on the attempt.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Reports how the run goes. Each field that is given replaces what this attempt reported before; the others stay. May
    /// be lost; only the latest is kept in memory.
    pub fn progress(&self, report: Report<'_>) {
        let Report { stage, fraction, message, metrics } = report;
        let known = self.shared.progress.get(self.fence.job);
        let known = known.filter(|known| known.attempt == self.fence.attempt);
        let (was_stage, was_fraction, was_message, mut all) = match known {
            Some(known) => (known.stage, known.fraction, known.message, known.metrics),
            None => Default::default(),
        };
        for (name, value) in metrics {
            if all.len() < METRICS_MAX || all.contains_key(*name) {
                all.insert(cut(name, STAGE_LEN_MAX).into(), *value);
            }
        }
        let progress = Progress {
            job: self.fence.job,
            tenant: self.tenant.clone(),
            attempt: self.fence.attempt,
            stage: stage.map(|stage| cut(stage, STAGE_LEN_MAX).into()).or(was_stage),
            fraction: fraction.unwrap_or(was_fraction),
            message: message.map(|message| cut(message, PROGRESS_LEN_MAX).into()).unwrap_or(was_message),
            metrics: all,
            at: self.shared.clock.now().wall,
        };
        self.shared.progress.put(progress.clone());
        self.shared.events.publish_progress(progress);
    }

    /// Sends the output and partial results of the run to listeners. They may be lost, and are not stored.
    pub fn feedback(&self, pieces: Vec<Piece>, patch: Option<&Value>) {
        let (pieces, changes) = (bounded(pieces), patch.map(changes_of).unwrap_or_default());
        let count = pieces.len() + changes.len();
        if count == 0 {
            return;
        }
        let Fence { job, attempt, .. } = self.fence;
        self.shared.events.publish_feedback(Feedback {
            job,
            tenant: self.tenant.clone(),
            attempt,
            first: self.shared.progress.count(job, attempt, count),
            pieces,
            changes,
            at: self.shared.clock.now().wall,
        });
    }

    /// Keeps a line with the job, under the name of its stream. Durable a fraction of a second later; bounded.
    pub fn log(&self, stream: &Name, text: &str) {
        let at = self.shared.clock.now().wall;
        if self.logs.push(at, stream, text) {
            let run = self.clone();
            let flush_later = async move {
                tokio::time::sleep(crate::executors::logs::FLUSH_AFTER).await;
                run.flush().await;
            };
            if let Some(handle) = self.shared.workers.handle.get() {
                handle.spawn(flush_later);
            }
        }
    }

    /// Keeps lines of a stream that must not be lost among others; it has a limit of its own.
    pub async fn keep(&self, stream: &Name, texts: &[Box<str>]) {
        if texts.is_empty() {
            return;
        }
        let at = self.shared.clock.now().wall;
        let lines = texts.iter().map(|text| LogLine { at, stream: stream.clone(), text: text.clone() });
        let command = Command::Log(self.fence, lines.collect());
        // A loop that has stopped keeps nothing more; there is no one to inform.
        drop(self.messages.send(RunnerMessage { command, reply: None }).await);
    }

    /// Sends what was logged so far to the loop.
    pub async fn flush(&self) {
        if let Some(command) = self.logs.take(self.fence) {
            // A loop that has stopped keeps nothing more; there is no one to inform.
            drop(self.messages.send(RunnerMessage { command, reply: None }).await);
        }
    }

    /// The run is over: forgets its progress.
    pub fn forget(&self) {
        self.shared.progress.remove(self.fence.job, self.fence.attempt);
    }
}
