//! Between a session and the scheduler: turns questions into commands and replies into answers.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Instant;

use laneway_core::worker::{WorkerOffer, WorkerSaid};
use laneway_core::{
    AttemptEnd, ClosedAttempt, EventKind, JobEnd, JobState, Name, NextAnswer, NextCall, Origin, Outcome,
    Reason, Reply, Span, Task,
};
use laneway_runtime::feedback::{Body, Piece};
use laneway_runtime::metrics::Retry;
use laneway_runtime::store::{Reader, StoreError};
use laneway_runtime::{
    ARTIFACTS, BoundTask, Scheduler, Stopped, ToWorker, WorkerLink, WorkerRun, WorkerTask,
};
use laneway_wire::frame::{Chunk, Feedback, NextRequest, NextResponse, PackageEvent, Register};
use serde::Deserialize;
use serde_json::Value;

use super::chain::{Place, brought};
use super::offer::{self, beat_of, offer_after, offer_of};
use super::words::{Answer, Ended, Member, Question};

/// The answer to a question, once it is known.
pub type Pending = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a connection needs of the house.
pub struct House {
    scheduler: Scheduler,
    link: WorkerLink,
    member: Member,
    actor: Name,
    heartbeat: Span,
    offer: Option<WorkerOffer>,
    runs: BTreeMap<Task, Run>,
}

/// A run on the worker.
struct Run {
    run: WorkerRun,
    sent: Instant,
    place: Option<Place>,
}

impl House {
    /// For a worker that has shown who it is. `actor` is whose right it came by.
    pub fn new(
        scheduler: Scheduler,
        link: WorkerLink,
        member: Member,
        actor: Name,
        heartbeat: Span,
    ) -> House {
        House { scheduler, link, member, actor, heartbeat, offer: None, runs: BTreeMap::new() }
    }

    /// What the connection is told.
    pub fn link(&mut self) -> &mut WorkerLink {
        &mut self.link
    }

    /// A task is the connection's from now on.
    pub fn holds(&mut self, bound: &BoundTask) {
        let run = self.link.run(self.member.tenant.clone(), bound);
        self.runs.insert(bound.task, Run { run, sent: Instant::now(), place: None });
    }

    /// A task is about to be sent.
    pub fn begins(&mut self, task: &WorkerTask) {
        let (kind, fence) = (task.work.row.spec.kind.clone(), task.work.fence);
        let workers = self.scheduler.metrics().workers();
        workers.dispatched(&self.member.tenant, &kind);
        if task.again {
            workers.retried(Retry::Rebound);
        }
        self.holds(&BoundTask { task: task.task, fence, kind });
        if let Some(run) = self.runs.get_mut(&task.task) {
            run.place = Place::of(&task.work.row.spec);
        }
    }

    /// What a call of the next element is answered. `None`: the task that called is not here any more.
    pub fn response(&self, task: Task, request: &Name, answer: &NextAnswer) -> Option<NextResponse> {
        Some(self.runs.get(&task)?.place.as_ref()?.response(request, answer))
    }

    /// A middleware calls the next element of its chain. The answer comes as a word of its own, at once or later.
    fn next(&mut self, task: Task, asked: &NextRequest) -> Pending {
        let Some(Run { run, place, .. }) = self.runs.get_mut(&task) else {
            return Box::pin(ready(Answer::Stale));
        };
        let place = place.get_or_insert_with(|| Place::asked(asked));
        let Ok(request) = Name::new(&asked.request_id) else {
            return Box::pin(ready(Answer::Refused(
                "`requestId` has more than 128 bytes or is no name".into(),
            )));
        };
        let index = asked.chain_index.map_or(place.index, |index| u32::try_from(index).ok());
        let (timeout, fence) = (asked.timeout_ms.map(Span), run.fence());
        let payload = brought(asked);
        let (scheduler, connection) = (self.scheduler.clone(), self.link.connection());
        Box::pin(async move {
            // A host, or a place that there is not, calls nobody: the engine says so.
            let index = index.unwrap_or(u32::MAX);
            let call = NextCall { fence, request: request.clone(), index, timeout, payload };
            match scheduler.call_next(call).await {
                Ok(Reply::NextCalled) => Answer::Done,
                Ok(Reply::NextAnswered(answer)) => {
                    // A connection that is gone has nobody to tell.
                    scheduler.tell_worker(connection, ToWorker::Next { task, request, answer });
                    Answer::Done
                }
                Ok(reply) => settled(reply),
                Err(Stopped) => stopped(),
            }
        })
    }

    /// Nothing more is heard of a task here.
    fn forgets(&mut self, task: Task) {
        if let Some(Run { run, .. }) = self.runs.remove(&task) {
            run.forget();
        }
    }

    /// Forgets the tasks that are not the connection's any more.
    pub fn keeps(&mut self, is_bound: impl Fn(Task) -> bool) {
        self.runs.retain(|task, _| is_bound(*task));
    }

    /// Asks the scheduler.
    pub fn ask(&mut self, question: Question) -> Pending {
        match question {
            Question::Register(register) => self.register(&register),
            Question::Heartbeat(heartbeat) => self.say(WorkerSaid::Beat(beat_of(&heartbeat)), alive),
            Question::Accepted(task) => self.say(WorkerSaid::Accepted(task), settled),
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
                    "a worker refused a task"
                );
                self.forgets(task);
                let code = Name::new(&rejection.code).unwrap_or_else(|_| Name::fixed("E.CMD.UNKNOWN"));
                self.say(WorkerSaid::Rejected(task, code), settled)
            }
            Question::Ended(ended) => self.ended(*ended),
            Question::Feedback(task, feedback) => {
                if let Some(Run { run, .. }) = self.runs.get(&task) {
                    tell(run, &feedback);
                }
                Box::pin(ready(Answer::Done))
            }
            Question::Package(event) => self.packaged(&event),
            Question::Next(task, request) => self.next(task, &request),
        }
    }

    /// The connection is over.
    pub async fn closes(mut self) {
        for (_, Run { run, .. }) in std::mem::take(&mut self.runs) {
            run.flush().await;
        }
        self.link.gone().await;
    }

    fn register(&mut self, register: &Register) -> Pending {
        let offer = match offer_of(&self.member, register) {
            Ok(offer) => offer,
            Err(why) => return Box::pin(ready(Answer::Refused(why.into()))),
        };
        self.offer = Some(offer.clone());
        let (scheduler, named) = (self.scheduler.clone(), offer.clone());
        let registering = self.link.register(offer, self.heartbeat);
        Box::pin(async move {
            match registering.await {
                Ok(Reply::Registered(registered)) => {
                    warn_of_foreign_lanes(&scheduler, named).await;
                    Answer::Alive { lease: registered.lease }
                }
                Ok(Reply::Refused(refusal)) => Answer::Refused(refusal.message),
                Ok(other) => unexpected(&other),
                Err(Stopped) => stopped(),
            }
        })
    }

    /// The run's lines and what it made go before its end, so that whoever hears of the end finds them.
    fn ended(&mut self, ended: Ended) -> Pending {
        let Ended { task, outcome, artifacts } = ended;
        let said = self.link.say(WorkerSaid::Ended { task, outcome: outcome.clone(), stored: None });
        let recall = self.recall(task, outcome);
        let run = self.runs.remove(&task);
        if let Some(Run { run, sent, .. }) = &run {
            let took_ms = sent.elapsed().as_secs_f64() * 1_000.0;
            self.scheduler.metrics().workers().answered(&self.member.tenant, run.kind(), took_ms);
        }
        Box::pin(async move {
            if let Some(Run { run, .. }) = &run {
                run.flush().await;
                run.keep(&Name::fixed(ARTIFACTS), &artifacts).await;
            }
            let mut answer = answer(said.await, settled);
            if answer == Answer::Stale {
                answer = recall.await;
            }
            if let Some(Run { run, .. }) = &run {
                run.forget();
            }
            answer
        })
    }

    /// The engine does not know the attempt any more: the store may know that this very word was taken before.
    fn recall(&self, task: Task, outcome: Outcome) -> impl Future<Output = Answer> + Send + use<> {
        let (scheduler, tenant) = (self.scheduler.clone(), self.member.tenant.clone());
        let worker = self.member.worker.clone();
        let again = self.link.speaker();
        async move {
            let stored = scheduler.query(move |reader| stored_end(reader, &tenant, &worker, task)).await;
            match stored {
                Ok(Some(end)) => {
                    let said = WorkerSaid::Ended { task, outcome, stored: Some(end) };
                    answer(again.say(said).await, settled)
                }
                Ok(None) => Answer::Stale,
                Err(error) => {
                    tracing::warn!(%error, "the end of an attempt cannot be looked up");
                    Answer::Stale
                }
            }
        }
    }

    /// What became of a package: the engine hears what the worker offers now, the audit list what was done.
    fn packaged(&mut self, event: &PackageEvent) -> Pending {
        let operation = offer::operation(event);
        let code = offer::failure_code(event);
        self.scheduler.metrics().workers().packaged(&self.member.tenant, operation.word(), code.is_none());
        let detail = format!(
            "pkg.{} {} {} on worker {}: {}",
            operation.word(),
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
            self.link.say(WorkerSaid::Offers(Box::new(offer)))
        });
        Box::pin(async move {
            let kind = if code.is_none() { EventKind::CallDone } else { EventKind::CallRefused };
            let noted = scheduler.note(kind, Some(tenant), &detail, origin).await;
            match (noted, offers) {
                (Err(Stopped), _) => stopped(),
                (Ok(_), Some(offers)) => answer(offers.await, settled),
                (Ok(_), None) => Answer::Done,
            }
        })
    }

    fn say(&self, said: WorkerSaid, meaning: fn(Reply) -> Answer) -> Pending {
        let said = self.link.say(said);
        Box::pin(async move { answer(said.await, meaning) })
    }
}

/// A worker that names lanes, none of which is one, serves every lane: whoever meant one should hear of it.
async fn warn_of_foreign_lanes(scheduler: &Scheduler, offer: WorkerOffer) {
    if offer.lanes.is_empty() {
        return;
    }
    let (tenant, worker) = (offer.tenant.clone(), offer.worker.clone());
    let view = scheduler.read(move |engine, now| engine.worker(now, &tenant, &worker)).await;
    if let Ok(Some(view)) = view
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

/// How an attempt of this worker ended, as far as the store knows.
fn stored_end(
    reader: &dyn Reader,
    tenant: &Name,
    worker: &Name,
    task: Task,
) -> Result<Option<AttemptEnd>, StoreError> {
    let Some(view) = reader.job(task.job)?.filter(|view| view.row.spec.tenant == *tenant) else {
        return Ok(None);
    };
    // Of a node that has ended only its run knows which dispatch its last attempt was. Whatever comes now is late.
    let is_node = view.row.spec.member.is_some();
    let of_last = |end: &&JobEnd| is_node || u64::from(end.attempts) == task.dispatch_seq;
    if let Some(end) = view.end.as_ref().filter(of_last) {
        return Ok(match (end.state, end.reason) {
            (JobState::Succeeded, _) => Some(AttemptEnd::Succeeded),
            (JobState::Failed, Reason::Permanent | Reason::Exhausted) => Some(AttemptEnd::Failed),
            _ => None,
        });
    }
    let attempts = reader.attempts(view.row.seq)?;
    let of_task = |closed: &&ClosedAttempt| {
        let open = &closed.open;
        open.dispatch_seq == task.dispatch_seq
            && open.holder.as_ref().is_some_and(|holder| holder.worker == *worker)
    };
    Ok(attempts.iter().map(|attempt| &attempt.closed).find(of_task).map(|closed| closed.end))
}

fn answer(reply: Result<Reply, Stopped>, meaning: fn(Reply) -> Answer) -> Answer {
    reply.map_or_else(|Stopped| stopped(), meaning)
}

fn stopped() -> Answer {
    Answer::Refused("the server stops".into())
}

/// What the engine says to a sign of life.
fn alive(reply: Reply) -> Answer {
    match reply {
        Reply::Alive { lease, .. } => Answer::Alive { lease },
        Reply::Stale | Reply::NotYours | Reply::NotFound => Answer::Superseded,
        other => unexpected(&other),
    }
}

/// What the engine says to a word about a task.
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
        Reply::Refused(refusal) => Answer::Refused(refusal.message.clone()),
        other => {
            tracing::error!(?other, "the engine gave an answer that means nothing here");
            Answer::Refused("internal error".into())
        }
    }
}

/// Keeps and tells how a run goes.
fn tell(run: &WorkerRun, feedback: &Feedback) {
    if feedback.progress.is_some() || feedback.message.is_some() || feedback.stage.is_some() {
        let stage = feedback.stage.as_deref();
        let message = feedback.message.as_deref().or(stage).unwrap_or_default();
        run.progress(stage, feedback.progress, message);
    }
    let chunks = || feedback.chunks.iter().flat_map(|chunks| chunks.iter());
    chunks().for_each(|chunk| keep_chunk(run, chunk));
    let metadata = feedback.metadata.as_ref().and_then(|metadata| metadata.read::<Partial>().ok());
    let so_far = metadata.and_then(|Partial { results, summary }| results.or(summary));
    run.feedback(chunks().map(piece_of).collect(), so_far.as_ref());
}

/// The part of a feedback's metadata that is merged into what the task has so far.
#[derive(Deserialize)]
struct Partial {
    results: Option<Value>,
    summary: Option<Value>,
}

fn piece_of(chunk: &Chunk) -> Piece {
    let body = match (&chunk.text, &chunk.data_base64) {
        (None, Some(data)) => Body::Base64(data.to_string().into()),
        (text, _) => Body::Text(text.as_deref().unwrap_or_default().into()),
    };
    Piece {
        channel: chunk.channel.word(),
        body,
        mime_type: chunk.mime_type.as_deref().map(Box::from),
        metadata: chunk.metadata.as_ref().and_then(|metadata| serde_json::from_str(metadata.get()).ok()),
        is_cut: false,
    }
}

/// A chunk becomes lines of the job's log, under the name of its channel. Bytes stay in base64.
fn keep_chunk(run: &WorkerRun, chunk: &Chunk) {
    let stream = Name::fixed(chunk.channel.word());
    if let Some(text) = &chunk.text {
        text.lines().for_each(|line| run.log(&stream, line));
    } else if let Some(data) = &chunk.data_base64 {
        let mime = chunk.mime_type.as_deref().unwrap_or("application/octet-stream");
        run.log(&stream, &format!("data:{mime};base64,{data}"));
    }
}
