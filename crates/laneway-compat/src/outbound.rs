//! Outbound messages: answers of cron turns, and empty messages that clear the typing indicator of a canceled turn.
//!
//! A gateway with channels listens for the event `outbound`. [`Deliveries`] follows the event log and publishes one message
//! for every firing that succeeded and is to be delivered, and an empty message for every canceled agent turn. Each message
//! names the event that caused it, so the event log itself says where to continue: a restart leaves no message out and
//! sends none twice.

use laneway_core::command::AdminCommand;
use laneway_core::schedule::ScheduleLine;
use laneway_core::{Command, Event, EventKind, JobState, Name, Reason, Reply, Span};
use laneway_runtime::store::{EventFilter, FiringLogFilter, JobView};
use laneway_runtime::{Interest, Item, ReadError, Scheduler, Stopped, job_log};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::agent_turn::{AGENT_TURN, AgentTurn, answer_of, asks_for_silence};

/// Longest content of a message, in bytes; what is longer is cut between two characters.
const CONTENT_BYTES_MAX: usize = 16 * 1024;
/// Most events that are read in the search for the last message.
const LOOKED_BACK_MAX: usize = 20_000;
/// How long to wait before a read of the store is retried.
const AGAIN_AFTER: Span = Span::secs(1);
/// Events that are read at once in that search.
const PAGE: usize = 512;

/// An outbound message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbound {
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The channel; empty where the session's own is meant.
    #[serde(default)]
    pub channel: String,
    /// Whom it goes to there.
    #[serde(default)]
    pub to: String,
    /// The text. Empty: there is none, and indicators such as "typing" are cleared.
    #[serde(default)]
    pub content: String,
    /// How the run ended: `ok` or `cancelled`. `rejected`: there was a message, and it cannot go out; `error` says why.
    pub status: String,
    /// Why the message cannot go out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The sender's name for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// What traces of the run are filed under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The cron job that asked for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_job: Option<String>,
    /// Whose message it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The number of the event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
}

impl Outbound {
    /// Reads the detail of an `outbound` event.
    pub fn read(detail: &str) -> Option<Outbound> {
        serde_json::from_str(detail).ok()
    }
}

/// Publishes an outbound message as an event.
pub async fn publish(scheduler: &Scheduler, tenant: Name, message: &Outbound) -> Result<Reply, Stopped> {
    let mut message = message.clone();
    cut(&mut message.content);
    let detail = serde_json::to_string(&message).expect("texts are JSON").into();
    scheduler.send(Command::Admin(AdminCommand::Publish { tenant, detail })).await
}

/// Publishes outbound messages until it is dropped.
pub struct Deliveries {
    following: JoinHandle<()>,
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Deliveries {
    /// Continues after the last message in the event log. One for each scheduler is enough. Must be called on a tokio
    /// runtime.
    pub fn start(scheduler: Scheduler) -> Deliveries {
        // Read first: events from now on are followed, whatever the search in the event log finds.
        let from = scheduler.events().latest();
        let following = tokio::spawn(async move {
            // Ends with the loop.
            while let Err(error) = follow(&scheduler, from).await
                && !matches!(error, ReadError::Stopped(_))
            {
                tracing::error!(%error, "outbound messages cannot be published; retrying");
                scheduler.sleep(AGAIN_AFTER).await;
            }
        });
        Deliveries { following }
    }
}

async fn follow(scheduler: &Scheduler, latest: u64) -> Result<(), ReadError> {
    let after = scheduler.read(move |reader| {
        let (mut before, mut looked_at, mut oldest) = (None, 0, latest);
        while looked_at < LOOKED_BACK_MAX {
            let page = reader.events_before(&EventFilter::default(), before, PAGE)?;
            looked_at += PAGE;
            for event in &page.items {
                oldest = oldest.min(event.number.saturating_sub(1));
                if let Some(caused_by) = cause_of(event) {
                    return Ok(caused_by);
                }
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(oldest)
    });
    let mut events = scheduler
        .events()
        .listen(Interest { progress: false, feedback: false, ..Interest::everything() }, Some(after.await?));
    loop {
        if let Item::Event(event) = events.next().await?
            && let Some((tenant, message)) = asked_for(scheduler, &event).await?
        {
            send_out(scheduler, tenant, &message).await?;
        }
    }
}

/// Publishes a message. If it is rejected, a short message with the reason is published instead, so that listeners and the
/// event log know that the turn has ended.
async fn send_out(scheduler: &Scheduler, tenant: Name, message: &Outbound) -> Result<(), Stopped> {
    let Reply::Rejected(rejection) = publish(scheduler, tenant.clone(), message).await? else {
        return Ok(());
    };
    scheduler.metrics().outbound_rejected();
    let job = message.job.as_deref().unwrap_or_default();
    tracing::warn!(target: job_log::TARGET, job, error = %rejection.message, "outbound message rejected");
    let rejected = Outbound {
        session: message.session.clone(),
        status: "rejected".to_owned(),
        error: Some(rejection.message.to_string()),
        job: message.job.clone(),
        cron_job: message.cron_job.clone(),
        // A user id that is not a name may be the part that is too long.
        user_id: message.user_id.clone().filter(|user| Name::new(user).is_ok()),
        event: message.event,
        ..Outbound::default()
    };
    publish(scheduler, tenant, &rejected).await?;
    Ok(())
}

/// The number of the event that caused this outbound message.
fn cause_of(event: &Event) -> Option<u64> {
    if event.kind != EventKind::Outbound {
        return None;
    }
    Outbound::read(event.detail.as_deref()?)?.event
}

/// The message that an event causes.
async fn asked_for(scheduler: &Scheduler, event: &Event) -> Result<Option<(Name, Outbound)>, ReadError> {
    let Some(tenant) = event.tenant.clone() else { return Ok(None) };
    let message = match event.kind {
        EventKind::JobCanceled => clears(scheduler, event).await?,
        EventKind::ScheduleFiringEnded => delivers(scheduler, &tenant, event).await?,
        _ => None,
    };
    Ok(message.map(|message| (tenant, message)))
}

/// The empty message of a canceled turn. A turn that was merged into another one has no message of its own.
async fn clears(scheduler: &Scheduler, event: &Event) -> Result<Option<Outbound>, ReadError> {
    let of_turn = event
        .job
        .as_ref()
        .filter(|job| job.kind.as_str() == AGENT_TURN && job.reason != Some(Reason::Merged));
    let Some(job) = of_turn else { return Ok(None) };
    let Some((view, turn)) = turn_of(scheduler, job.id).await? else { return Ok(None) };
    Ok(Some(message(&view, turn, event.number, "cancelled", String::new())))
}

/// The answer of a firing, if it is to be delivered.
async fn delivers(
    scheduler: &Scheduler,
    tenant: &Name,
    event: &Event,
) -> Result<Option<Outbound>, ReadError> {
    let line = event.detail.as_deref().and_then(ScheduleLine::parse);
    if line.is_none_or(|line| &*line.action != "ok") {
        return Ok(None);
    }
    let Some(job) = run_of(scheduler, tenant, event.number).await?.and_then(|log| log.job) else {
        return Ok(None);
    };
    let Some((view, turn)) = turn_of(scheduler, job).await? else { return Ok(None) };
    let ended = view.end.as_ref().filter(|end| end.state == JobState::Succeeded);
    let Some(answer) = ended.map(|end| answer_of(end.result.as_deref().unwrap_or_default())) else {
        return Ok(None);
    };
    if turn.deliver && turn.goes_to().is_none() {
        tracing::warn!(job = %view.row.id, "an answer is to be delivered, but no channel and recipient are set");
    }
    let sent = turn.goes_to().is_some() && !asks_for_silence(&answer);
    Ok(sent.then(|| message(&view, turn, event.number, "ok", answer)))
}

/// The entry of the firing log with this number.
pub async fn run_of(
    scheduler: &Scheduler,
    tenant: &Name,
    number: u64,
) -> Result<Option<laneway_core::FiringLogEntry>, ReadError> {
    if let Some(log) = scheduler.recent_firing(tenant.clone(), number).await? {
        return Ok(Some(log));
    }
    let filter = FiringLogFilter { tenant: Some(tenant.clone()), schedule: None };
    let page = scheduler.firing_log(filter, Some(number.saturating_add(1)), 1).await?;
    Ok(page.items.into_iter().next().filter(|log| log.number == number))
}

/// A job and the turn that it is, if it is one.
pub async fn turn_of(
    scheduler: &Scheduler,
    job: laneway_core::JobId,
) -> Result<Option<(JobView, AgentTurn)>, ReadError> {
    let found = scheduler.read(move |reader| {
        let Some(view) = reader.job(job)? else { return Ok(None) };
        let payload = reader.payload(view.row.seq)?;
        Ok(payload.map(|payload| (view, payload)))
    });
    let turn = |(view, payload): (JobView, laneway_core::Bytes)| {
        let is_turn = view.row.spec.kind.as_str() == AGENT_TURN;
        is_turn.then(|| AgentTurn::read(&payload).ok()).flatten().map(|turn| (view, turn))
    };
    Ok(found.await?.and_then(turn))
}

fn message(view: &JobView, turn: AgentTurn, event: u64, status: &str, content: String) -> Outbound {
    let spec = &view.row.spec;
    Outbound {
        session: spec.session.as_ref().map(|session| session.key.to_string()),
        channel: turn.deliver_channel,
        to: turn.deliver_to,
        content,
        status: status.to_owned(),
        error: None,
        job: Some(view.row.id.to_string()),
        run_id: turn.run_id,
        trace_id: turn.trace_id,
        cron_job: spec.schedule.as_ref().map(|of| of.id.to_string()),
        user_id: turn.user_id,
        event: Some(event),
    }
}

fn cut(content: &mut String) {
    if content.len() > CONTENT_BYTES_MAX {
        let end = (0..=CONTENT_BYTES_MAX).rev().find(|at| content.is_char_boundary(*at)).unwrap_or(0);
        content.truncate(end);
        content.push_str("...[truncated]");
    }
}
