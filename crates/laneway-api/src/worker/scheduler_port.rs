//! The interface between a worker session and the scheduler: questions become commands, replies become answers.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Instant;

use laneway_core::worker::{WorkerOffer, WorkerReport};
use laneway_core::{EventKind, Name, NextAnswer, NextCall, Origin, Reply, Span, Task};
use laneway_runtime::feedback::{Body, Piece, REPORTS, report_line};
use laneway_runtime::metrics::Retry;
use laneway_runtime::{
    ARTIFACTS, BoundTask, Report, Scheduler, Stopped, ToWorker, WorkerLink, WorkerRun, WorkerTask,
};
use laneway_wire::frame::{Chunk, Feedback, JsonObject, NextRequest, NextResponse, PackageEvent, Register};
use serde_json::{Map, Value, json};

use super::chain::{ChainPosition, call_payload};
use super::messages::{Answer, Ended, Member, Question};
use super::offer::{self, beat_of, offer_after, offer_of, process_of};

/// The answer to a question, once it is known.
pub type Pending = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The parts of the scheduler that a connection uses.
pub struct SchedulerPort {
    scheduler: Scheduler,
    link: WorkerLink,
    member: Member,
    actor: Name,
    heartbeat: Span,
    offer: Option<WorkerOffer>,
    active: BTreeMap<Task, ActiveTask>,
}

/// A task that the worker has.
struct ActiveTask {
    run: WorkerRun,
    sent: Instant,
    position: Option<ChainPosition>,
}

impl SchedulerPort {
    /// For an authenticated worker. `actor` names its token or certificate.
    pub fn new(
        scheduler: Scheduler,
        link: WorkerLink,
        member: Member,
        actor: Name,
        heartbeat: Span,
    ) -> SchedulerPort {
        SchedulerPort { scheduler, link, member, actor, heartbeat, offer: None, active: BTreeMap::new() }
    }

    /// The link that carries the commands of the engine to this connection.
    pub fn link(&mut self) -> &mut WorkerLink {
        &mut self.link
    }

    /// Registers a task of this connection.
    pub fn track_task(&mut self, bound: &BoundTask) {
        let run = self.link.run(self.member.tenant.clone(), bound);
        self.active.insert(bound.task, ActiveTask { run, sent: Instant::now(), position: None });
    }

    /// A task is about to be sent.
    pub fn track_dispatch(&mut self, task: &WorkerTask) {
        let (kind, fence) = (task.work.row.spec.kind.clone(), task.work.fence);
        let workers = self.scheduler.metrics().workers();
        workers.dispatched(&self.member.tenant, &kind);
        if task.again {
            workers.retried(Retry::Rebound);
        }
        self.track_task(&BoundTask { task: task.task, fence, kind });
        if let Some(run) = self.active.get_mut(&task.task) {
            run.position = ChainPosition::of(&task.work.row.spec);
        }
    }

    /// The answer to a call of the next element. `None`: the task that called has ended here.
    pub fn response(&self, task: Task, request: &Name, answer: &NextAnswer) -> Option<NextResponse> {
        Some(self.active.get(&task)?.position.as_ref()?.response(request, answer))
    }

    /// A middleware calls the next element of its chain. The answer is a message of its own, at once or later.
    fn next(&mut self, task: Task, asked: &NextRequest) -> Pending {
        let Some(ActiveTask { run, position, .. }) = self.active.get_mut(&task) else {
            return Box::pin(ready(Answer::Stale));
        };
        let position = position.get_or_insert_with(|| ChainPosition::asked(asked));
        let Ok(request) = Name::new(&asked.request_id) else {
            return Box::pin(ready(Answer::Rejected(
                "`requestId` has more than 128 bytes or is no name".into(),
            )));
        };
        let index = asked.chain_index.map_or(position.index, |index| u32::try_from(index).ok());
        let (timeout, fence) = (asked.timeout_ms.map(Span), run.fence());
        let payload = call_payload(asked);
        let (scheduler, connection) = (self.scheduler.clone(), self.link.connection());
        Box::pin(async move {
            // A host has no next element, and an index may be out of range: the engine rejects both.
            let index = index.unwrap_or(u32::MAX);
            let call = NextCall { fence, request: request.clone(), index, timeout, payload };
            match scheduler.call_next(call).await {
                Ok(Reply::NextCalled) => Answer::Done,
                Ok(Reply::NextAnswered(answer)) => {
                    // The message is dropped if the connection has closed.
                    scheduler.send_to_worker(connection, ToWorker::Next { task, request, answer });
                    Answer::Done
                }
                Ok(reply) => settled(reply),
                Err(Stopped) => stopped(),
            }
        })
    }

    /// Removes a task that sends no more messages here.
    fn forget_task(&mut self, task: Task) {
        if let Some(ActiveTask { run, .. }) = self.active.remove(&task) {
            run.forget();
        }
    }

    /// Removes the tasks that no longer belong to this connection.
    pub fn retain_tasks(&mut self, is_bound: impl Fn(Task) -> bool) {
        self.active.retain(|task, _| is_bound(*task));
    }

    /// Sends a question to the scheduler.
    pub fn ask(&mut self, question: Question) -> Pending {
        match question {
            Question::Register(register) => self.register(&register),
            Question::Heartbeat(heartbeat) => self.report(WorkerReport::Beat(beat_of(&heartbeat)), alive),
            Question::Accepted(task) => self.report(WorkerReport::Accepted(task), settled),
            Question::Rejected(task, rejection) => {
                self.scheduler.metrics().workers().retried(Retry::Rejected);
                tracing::info!(
                    tenant = self.member.tenant.as_str(),
                    "sender.id" = self.member.worker.as_str(),
                    "type" = "cmd.dispatch",
                    corr = %task.job,
                    seq = task.dispatch_seq,
                    code = rejection.code.as_str(),
                    reason = &*rejection.message,
                    "a worker rejected a task"
                );
                self.forget_task(task);
                let code = Name::new(&rejection.code).unwrap_or_else(|_| Name::fixed("E.CMD.UNKNOWN"));
                self.report(WorkerReport::Rejected(task, code), settled)
            }
            Question::Ended(ended) => self.ended(*ended),
            Question::Feedback(task, feedback) => {
                if let Some(ActiveTask { run, .. }) = self.active.get(&task) {
                    record_feedback(run, &feedback);
                }
                Box::pin(ready(Answer::Done))
            }
            Question::Package(event) => self.packaged(&event),
            Question::Next(task, request) => self.next(task, &request),
        }
    }

    /// The connection has closed.
    pub async fn close(mut self) {
        for (_, ActiveTask { run, .. }) in std::mem::take(&mut self.active) {
            run.flush().await;
        }
        self.link.gone().await;
    }

    fn register(&mut self, register: &Register) -> Pending {
        let offer = match offer_of(&self.member, register) {
            Ok(offer) => offer,
            Err(why) => return Box::pin(ready(Answer::Rejected(why.into()))),
        };
        self.offer = Some(offer.clone());
        let (scheduler, named) = (self.scheduler.clone(), offer.clone());
        let (boot, tasks) = match process_of(register) {
            Ok(process) => process,
            Err(why) => return Box::pin(ready(Answer::Rejected(why.into()))),
        };
        let registering = self.link.register(offer, self.heartbeat, boot, tasks);
        Box::pin(async move {
            match registering.await {
                Ok(Reply::Registered(registered)) => {
                    warn_of_foreign_lanes(&scheduler, named).await;
                    Answer::Alive { lease: registered.lease }
                }
                Ok(Reply::Rejected(rejection)) => Answer::Rejected(rejection.message),
                Ok(other) => unexpected(&other),
                Err(Stopped) => stopped(),
            }
        })
    }

    /// Log lines and artifacts are stored before the end is reported, so that a client that sees the end finds them.
    fn ended(&mut self, ended: Ended) -> Pending {
        let Ended { task, outcome, artifacts, reported } = ended;
        let report = self.link.report(WorkerReport::Ended { task, outcome, stored: None });
        let run = self.active.remove(&task);
        if let Some(ActiveTask { run, sent, .. }) = &run {
            let took_ms = sent.elapsed().as_secs_f64() * 1_000.0;
            self.scheduler.metrics().workers().answered(&self.member.tenant, run.kind(), took_ms);
        }
        Box::pin(async move {
            if let Some(ActiveTask { run, .. }) = &run {
                run.flush().await;
                run.keep(&Name::fixed(ARTIFACTS), &artifacts).await;
                run.keep(&Name::fixed(REPORTS), reported.as_slice()).await;
            }
            let answer = answer(report.await, settled);
            if let Some(ActiveTask { run, .. }) = &run {
                run.forget();
            }
            answer
        })
    }

    /// The outcome of a package operation: the engine gets the new offer of the worker, the audit list gets an entry.
    fn packaged(&mut self, event: &PackageEvent) -> Pending {
        let operation = offer::operation(event);
        let code = offer::failure_code(event);
        self.scheduler.metrics().workers().packaged(&self.member.tenant, operation.as_str(), code.is_none());
        let detail = format!(
            "pkg.{} {} {} on worker {}: {}",
            operation.as_str(),
            event.name,
            event.version,
            self.member.worker,
            code.as_deref().unwrap_or("done")
        );
        let scheduler = self.scheduler.clone();
        let (tenant, origin) =
            (self.member.tenant.clone(), Origin { actor: self.actor.clone(), request: None });
        let offer = self.offer.as_ref().and_then(|offer| offer_after(offer, event));
        let offers = offer.map(|offer| {
            self.offer = Some(offer.clone());
            self.link.report(WorkerReport::Offers(Box::new(offer)))
        });
        Box::pin(async move {
            let kind = if code.is_none() { EventKind::CallDone } else { EventKind::CallRejected };
            let noted = scheduler.note(kind, Some(tenant), &detail, origin).await;
            match (noted, offers) {
                (Err(Stopped), _) => stopped(),
                (Ok(_), Some(offers)) => answer(offers.await, settled),
                (Ok(_), None) => Answer::Done,
            }
        })
    }

    fn report(&self, report: WorkerReport, meaning: fn(Reply) -> Answer) -> Pending {
        let report = self.link.report(report);
        Box::pin(async move { answer(report.await, meaning) })
    }
}

/// A worker that names only unknown lanes serves every lane. A log line warns the operator.
async fn warn_of_foreign_lanes(scheduler: &Scheduler, offer: WorkerOffer) {
    if offer.lanes.is_empty() {
        return;
    }
    let found = scheduler.worker(offer.tenant.clone(), offer.worker.clone()).await;
    if let Ok(Some((view, _))) = found
        && view.lanes.is_empty()
        && view.orders.lanes.is_none()
    {
        let named: Vec<&str> = offer.lanes.iter().map(Name::as_str).collect();
        tracing::warn!(
            tenant = offer.tenant.as_str(),
            "sender.id" = offer.worker.as_str(),
            channels = named.join(", "),
            "none of a worker's channels is a lane, so it serves every one"
        );
    }
}

fn answer(reply: Result<Reply, Stopped>, meaning: fn(Reply) -> Answer) -> Answer {
    reply.map_or_else(|Stopped| stopped(), meaning)
}

fn stopped() -> Answer {
    Answer::Rejected("the server stops".into())
}

/// The answer to a heartbeat.
fn alive(reply: Reply) -> Answer {
    match reply {
        Reply::Alive { lease, .. } => Answer::Alive { lease },
        Reply::Stale | Reply::NotYours | Reply::NotFound => Answer::Superseded,
        other => unexpected(&other),
    }
}

/// The answer to a report on a task.
fn settled(reply: Reply) -> Answer {
    match reply {
        Reply::Done | Reply::Alive { .. } => Answer::Done,
        Reply::Duplicate => Answer::Duplicate,
        Reply::Stale | Reply::NotYours | Reply::NotFound => Answer::Stale,
        Reply::Gap => Answer::Gap,
        other => unexpected(&other),
    }
}

fn unexpected(reply: &Reply) -> Answer {
    match reply {
        Reply::Rejected(rejection) => Answer::Rejected(rejection.message.clone()),
        other => {
            tracing::error!(?other, "the engine gave an answer that means nothing here");
            Answer::Rejected("internal error".into())
        }
    }
}

/// Stores and publishes the progress of a task.
fn record_feedback(run: &WorkerRun, feedback: &Feedback) {
    let metrics: Vec<(&str, f64)> = feedback
        .metrics
        .iter()
        .flat_map(|metrics| metrics.iter())
        .map(|(name, value)| (&**name, *value))
        .collect();
    let (stage, fraction, message) =
        (feedback.stage.as_deref(), feedback.progress, feedback.message.as_deref());
    if fraction.is_some() || message.is_some() || stage.is_some() || !metrics.is_empty() {
        run.progress(Report { stage, fraction, message, metrics: &metrics });
    }
    let chunks = || feedback.chunks.iter().flat_map(|chunks| chunks.iter());
    chunks().for_each(|chunk| keep_chunk(run, chunk));
    let mut metadata = feedback.metadata.as_ref().and_then(read_object).unwrap_or_default();
    // These two replace the earlier values; the others are kept.
    let (results, summary) = (metadata.remove("results"), metadata.remove("summary"));
    if !metrics.is_empty() || !metadata.is_empty() {
        let metrics: Map<String, Value> =
            metrics.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let mut report = Map::new();
        for (field, fields) in [("metrics", metrics), ("metadata", metadata)] {
            if !fields.is_empty() {
                report.insert(field.to_owned(), fields.into());
            }
        }
        run.log(&Name::fixed(REPORTS), &report_line(&report.into()));
    }
    run.feedback(chunks().map(piece_of).collect(), results.or(summary).as_ref());
}

fn read_object(object: &JsonObject) -> Option<Map<String, Value>> {
    serde_json::from_str(object.get()).ok()
}

fn piece_of(chunk: &Chunk) -> Piece {
    let body = match (&chunk.text, &chunk.data_base64) {
        (None, Some(data)) => Body::Base64(data.to_string().into()),
        (text, _) => Body::Text(text.as_deref().unwrap_or_default().into()),
    };
    Piece {
        channel: chunk.channel.as_str(),
        body,
        mime_type: chunk.mime_type.as_deref().map(Box::from),
        metadata: chunk.metadata.as_ref().and_then(|metadata| serde_json::from_str(metadata.get()).ok()),
        is_cut: false,
    }
}

/// A chunk becomes lines of the job's log, under the name of its channel. Bytes stay in base64.
fn keep_chunk(run: &WorkerRun, chunk: &Chunk) {
    let stream = Name::fixed(chunk.channel.as_str());
    if let Some(text) = &chunk.text {
        text.lines().for_each(|line| run.log(&stream, line));
    } else if let Some(data) = &chunk.data_base64 {
        let mime = chunk.mime_type.as_deref().unwrap_or("application/octet-stream");
        run.log(&stream, &format!("data:{mime};base64,{data}"));
    }
    if let Some(metadata) = chunk.metadata.as_ref().and_then(read_object) {
        let report =
            json!({"chunk": {"channel": chunk.channel.as_str(), "index": chunk.index, "metadata": metadata}});
        run.log(&Name::fixed(REPORTS), &report_line(&report));
    }
}
