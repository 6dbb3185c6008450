//! Connections of workers: who is there, and what each of them is told.
//!
//! Whoever holds a socket connects here ([`Scheduler::connect_worker`]), says what its worker says, and hears what the
//! engine has for it, after the commit. Payloads are read here, in batches, before an offer goes out. What a connection is
//! too slow to take up is bounded: it is cut off, and what it held is offered again when its worker comes back.

use laneway_core::command::WorkerCommand;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use laneway_core::command::LogLine;
use laneway_core::effect::OfferTo;
use laneway_core::worker::{Orders, Register, WorkerMessage, WorkerOffer, WorkerReport};
use laneway_core::{
    Command, ConnectionId, Failure, Fence, Name, NextAnswer, Origin, Reply, Seq, Span, Task, TasksKept, Wall,
};
use laneway_store::Runnable;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::artifacts::PartOrder;
use crate::bindings::is_bound;
use crate::event_loop::RunnerMessage;
use crate::events::Progress;
use crate::executors::local::runnable;
use crate::executors::logs::LogBuffer;
use crate::executors::{Offered, Work, cut};
use crate::feedback::{Feedback, Piece, bounded, changes_of};
use crate::scheduler::{Scheduler, Shared, Stopped, read_store};

/// Most words that wait for one connection: more than a worker can be told at once, unless it takes nothing up.
const WAITING_MAX: usize = 4_096;
/// How often jobs on offer are read before they are handed back.
const READS_MAX: u32 = 5;
/// How long a store that could not be read is left alone.
const READ_AGAIN_AFTER: Span = Span::secs(1);
/// Longest text of a progress report, in bytes: it is kept in memory for every running job.
const PROGRESS_LEN_MAX: usize = 1_024;
/// Longest word for a stage and longest name of a metric, in bytes.
const STAGE_LEN_MAX: usize = 128;
/// Most metrics of one run that are kept in memory.
const METRICS_MAX: usize = 64;

/// What a connection is told.
#[derive(Debug)]
pub enum ToWorker {
    /// This attempt is the connection's from now on; its payload is being read.
    Bound(BoundTask),
    /// Run this attempt. Whether or not it was bound before, it is now.
    Run(Box<WorkerTask>),
    /// The payload of a bound attempt cannot be read: it must be handed back.
    Unreadable(Task),
    /// What a bound attempt would get cannot be put together: it has failed.
    Unfit(Task, Box<Failure>),
    /// This attempt must stop.
    Stop(Task),
    /// What an attempt here called is answered.
    Next {
        /// The attempt that called.
        task: Task,
        /// Its own name for the call.
        request: Name,
        /// The answer.
        answer: NextAnswer,
    },
    /// Another connection has taken this one's place.
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
    /// What every word about the attempt must carry.
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
    /// Where payloads are read: the runtime of whoever connected first.
    handle: OnceLock<Handle>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<ConnectionId, mpsc::Sender<ToWorker>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a connection something. False: it is gone, or was cut off because it takes nothing up.
    pub(crate) fn tell(&self, connection: ConnectionId, word: ToWorker) -> bool {
        let mut open = self.open();
        let Some(sender) = open.get(&connection) else { return false };
        if sender.try_send(word).is_ok() {
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
                run(shared, offer, Runnable { row: *row, payload, merged: Vec::new() });
            }
        }
        if missing.is_empty() {
            return;
        }
        for offer in &missing {
            let (fence, kind) = (offer.offered.fence, offer.kind.clone());
            let bound = BoundTask { task: offer.task(), fence, kind };
            shared.workers.tell(offer.to.connection, ToWorker::Bound(bound));
        }
        if let Some(handle) = shared.workers.handle.get() {
            handle.spawn(read_and_run(Arc::clone(shared), missing));
        }
    }
}

/// Reads what several attempts need in one go, and hands them out.
async fn read_and_run(shared: Arc<Shared>, missing: Vec<WorkerOffered>) {
    let jobs: Vec<Seq> = missing.iter().map(|offer| offer.offered.seq).collect();
    for _ in 0..READS_MAX {
        let asked = jobs.clone();
        match read_store(&shared.readers, &shared.reader, move |reader| runnable(reader, &asked)).await {
            Ok(rows) => {
                for (offer, job) in missing.into_iter().zip(rows) {
                    match job {
                        Ok(job) => run(&shared, offer, job),
                        Err(clash) => {
                            let (task, to) = (offer.task(), offer.to.connection);
                            shared.workers.tell(to, ToWorker::Unfit(task, Box::new(clash)));
                        }
                    }
                }
                return;
            }
            Err(error) => tracing::error!(%error, "jobs on offer cannot be read"),
        }
        shared.clock.sleep(READ_AGAIN_AFTER).await;
    }
    for offer in missing {
        shared.workers.tell(offer.to.connection, ToWorker::Unreadable(offer.task()));
    }
}

fn run(shared: &Shared, offer: WorkerOffered, job: Runnable) {
    let task = offer.task();
    let WorkerOffered { offered, kind: _, to } = offer;
    let Offered { seq: _, fence, timeout, deadline, at, kept: _, dispatch_seq } = offered;
    let Runnable { row, payload, merged } = job;
    let waited_for_others = row.spec.member.as_ref().is_some_and(|member| !member.depends_on.is_empty());
    if fence.attempt == 1 && !to.again && !waited_for_others {
        let eligible = row.spec.not_before.map_or(row.created_at, |at| at.max(row.created_at));
        shared.metrics.waited(at.since(eligible));
    }
    let work = Work { row: Box::new(row), payload, merged, fence, timeout, deadline, dispatch_seq };
    let task = WorkerTask { task, work, at, again: to.again };
    shared.workers.tell(to.connection, ToWorker::Run(Box::new(task)));
}

/// One connection, as its socket holds it. Dropped, it is forgotten; [`WorkerLink::gone`] is the polite way.
pub struct WorkerLink {
    connection: ConnectionId,
    told: mpsc::Receiver<ToWorker>,
    scheduler: Scheduler,
}

impl Scheduler {
    /// A connection that nobody is registered on. Must be called where a tokio runtime is at hand.
    pub fn connect_worker(&self) -> WorkerLink {
        let connections = &self.shared.workers;
        connections.handle.get_or_init(Handle::current);
        let connection = ConnectionId(connections.last.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, told) = mpsc::channel(WAITING_MAX);
        connections.open().insert(connection, sender);
        WorkerLink { connection, told, scheduler: self.clone() }
    }

    /// Tells the connection of a worker something that is no job. False: it is gone.
    pub fn tell_worker(&self, connection: ConnectionId, word: ToWorker) -> bool {
        self.shared.workers.tell(connection, word)
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

    /// What the connection is told next. `None`: it is cut off.
    pub async fn told(&mut self) -> Option<ToWorker> {
        self.told.recv().await
    }

    /// What the connection is told next, if there is something already.
    pub fn told_now(&mut self) -> Option<ToWorker> {
        self.told.try_recv().ok()
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

    /// Hands on what the worker says. The answer means that it is durable.
    pub fn say(&self, said: WorkerReport) -> impl Future<Output = Result<Reply, Stopped>> + Send + use<> {
        let speaker = self.speaker();
        async move { speaker.say(said).await }
    }

    /// The voice of the connection.
    pub fn speaker(&self) -> Speaker {
        Speaker { connection: self.connection, scheduler: self.scheduler.clone() }
    }

    /// The connection is gone: the worker may come back over another one.
    pub async fn gone(self) {
        // A loop that has stopped needs no word.
        drop(self.say(WorkerReport::Gone).await);
    }

    /// What a run of this connection says of itself.
    pub fn run(&self, tenant: Name, bound: &BoundTask) -> WorkerRun {
        let BoundTask { task: _, fence, kind } = bound.clone();
        WorkerRun {
            tenant,
            kind,
            fence,
            logs: Arc::default(),
            words: self.scheduler.words.clone(),
            shared: Arc::clone(&self.scheduler.shared),
        }
    }
}

/// The voice of a connection, for words that are said later.
#[derive(Clone)]
pub struct Speaker {
    connection: ConnectionId,
    scheduler: Scheduler,
}

impl Speaker {
    /// Hands on what the worker says. The answer means that it is durable.
    pub async fn say(&self, said: WorkerReport) -> Result<Reply, Stopped> {
        let word = WorkerMessage { connection: self.connection, report: said };
        self.scheduler.send(Command::Worker(WorkerCommand::Message(Box::new(word)))).await
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        self.scheduler.shared.workers.open().remove(&self.connection);
    }
}

/// What a run reports of how it goes. What is absent stays as it was.
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
    words: mpsc::Sender<RunnerMessage>,
    shared: Arc<Shared>,
}

impl WorkerRun {
    /// Its kind.
    pub fn kind(&self) -> &Name {
        &self.kind
    }

    /// What every word about the attempt must carry.
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

    /// Tells whoever listens what the run writes, and what it has so far. May be lost; kept nowhere.
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
        // A loop that has stopped keeps nothing more; there is nobody to tell.
        drop(self.words.send(RunnerMessage { command, reply: None }).await);
    }

    /// Sends what was logged so far to the loop.
    pub async fn flush(&self) {
        if let Some(command) = self.logs.take(self.fence) {
            // A loop that has stopped keeps nothing more; there is nobody to tell.
            drop(self.words.send(RunnerMessage { command, reply: None }).await);
        }
    }

    /// The run is over: forgets its progress.
    pub fn forget(&self) {
        self.shared.progress.remove(self.fence.job, self.fence.attempt);
    }
}
