//! The WebSocket of a job: it gets the job as it is, then every transition, and is closed when the job has ended.
//!
//! Transitions come from the event bus at the client's pace. A client that accepts nothing for [`WRITE_TIMEOUT`], or that falls
//! so far behind that the next events are only in the store, is disconnected, and asks for the job again.

use std::time::Duration;

use axum::extract::Path;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use laneway_core::{Event, EventKind, JobId};
use laneway_runtime::store::JobView;
use laneway_runtime::{Caller, Interest, Item, Jobs, ReadError, Share, Subscription, websocket};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::BrowserManager;
use super::error::{Code, Problem};
use super::logs::{error_in, status_after};
use super::translate::{self, Status, time};
use super::wire::Job;
use crate::body::Call;

/// The interval of pings.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long sending a frame may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest frame of a client: it has nothing to say.
const FRAME_MAX: usize = 4 << 10;
/// Later than the end of any socket, and valid for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Opens the WebSocket of a job.
pub async fn follow_job(
    Call(browser_manager, caller): Call<BrowserManager>,
    Path(id): Path<String>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let view = browser_manager.find(&caller, &id).await?;
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(Code::MissingField, format!("this path is a WebSocket: {}", rejection.body_text()))
    })?;
    let share = browser_manager.listener(&caller)?;
    let interest = Interest::in_jobs(caller.scope().cloned(), Jobs::One(view.row.id));
    let events = browser_manager.scheduler.events().listen(interest, None);
    let began_after = browser_manager.scheduler.events().latest();
    let upgrade = upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let id = view.row.id;
        Conversation { socket, browser_manager, caller, share, events, id, known: 0, began_after }
            .run()
            .await;
    }))
}

struct Conversation {
    socket: WebSocket,
    browser_manager: BrowserManager,
    caller: Caller,
    share: Share,
    events: Subscription,
    id: JobId,
    /// Events up to this one are in what was sent.
    known: u64,
    /// Events up to this one happened before the socket was opened.
    began_after: u64,
}

/// Why a connection ends: the close code and reason.
struct Over(u16, &'static str);

/// The client has left; no close frame is needed.
const GONE: Over = Over(close_code::ABNORMAL, "");
/// The job has ended.
const ENDED: Over = Over(close_code::NORMAL, "the job has ended");
/// The server stops.
const STOPPED: Over = Over(close_code::AWAY, "the agent stops");

impl Conversation {
    async fn run(mut self) {
        let Over(code, reason) = match self.converse().await {
            Ok(()) => return,
            Err(over) => over,
        };
        if code != close_code::ABNORMAL {
            websocket::close(&mut self.socket, code, reason).await;
        }
    }

    /// Runs until the client closes (`Ok`), or something else ends the connection.
    async fn converse(&mut self) -> Result<(), Over> {
        let view = self.read().await?;
        self.known = translate::last_event(&view);
        self.send(translate::job(&view), Status::of(view.state())).await?;
        let scheduler = self.browser_manager.scheduler.clone();
        let mut tokens = scheduler.token_changes();
        let left = self.caller.expires_at.map(|at| Duration::from_millis(at.since(scheduler.wall()).0));
        let ends_at = Instant::now() + left.unwrap_or(FAR).min(FAR);
        let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(ends_at) => {
                    return Err(Over(close_code::POLICY, "the token has expired"));
                }
                () = self.share.revoked() => {
                    return Err(Over(close_code::AGAIN, "all sockets are taken and another caller has fewer"));
                }
                changed = tokens.changed() => {
                    changed.map_err(|_| STOPPED)?;
                    if !self.caller.is_still_allowed(&scheduler.tokens(), scheduler.wall()) {
                        return Err(Over(close_code::POLICY, "the token was revoked"));
                    }
                }
                received = self.socket.recv() => match received {
                    None | Some(Err(_)) => return Err(GONE),
                    Some(Ok(Message::Close(_))) => return Ok(()),
                    // There is nothing to say to the server.
                    Some(Ok(_)) => {}
                },
                item = self.events.next_unless_behind() => self.handle(item).await?,
                _ = ping.tick() => self.put(Message::Ping(Vec::new().into())).await?,
            }
        }
    }

    async fn handle(&mut self, item: Result<Option<Item>, ReadError>) -> Result<(), Over> {
        match item {
            Err(_) => Err(STOPPED),
            Ok(None) => Err(Over(close_code::AGAIN, "transitions were taken too slowly; connect again")),
            Ok(Some(Item::Event(event)))
                if event.kind == EventKind::DrainBegan && event.number > self.began_after =>
            {
                Err(STOPPED)
            }
            Ok(Some(Item::Event(event))) if event.number > self.known => match status_after(&event) {
                Some(status) => self.send_transition(&event, status).await,
                None => Ok(()),
            },
            Ok(Some(_)) => Ok(()),
        }
    }

    /// Sends the job as it was after the event, although it may have gone on since.
    async fn send_transition(&mut self, event: &Event, status: Status) -> Result<(), Over> {
        let view = self.read().await?;
        let mut job = translate::job(&view);
        let went_on = translate::last_event(&view) != event.number || job.status != status.as_str();
        if went_on && !status.is_terminal() {
            let line = event.job.as_ref();
            job.status = status.as_str();
            job.error_message = line.and_then(error_in);
            job.retry_count = line.map_or(0, |line| match status {
                Status::Queued => line.attempt,
                _ => line.attempt.saturating_sub(1),
            });
            job.started_at = (status == Status::Running).then(|| time(event.at));
            (job.result, job.finished_at) = Default::default();
        } else if event.kind == EventKind::JobRetrying {
            job.error_message = event.job.as_ref().and_then(error_in);
        }
        self.known = event.number;
        self.send(job, status).await
    }

    async fn read(&mut self) -> Result<JobView, Over> {
        let id = self.id;
        let found = self.browser_manager.scheduler.read(move |reader| reader.job(id)).await;
        found.map_err(|_| STOPPED)?.ok_or(Over(close_code::NORMAL, "the job was removed"))
    }

    /// Sends a state of the job. After a terminal one the connection is over.
    async fn send(&mut self, job: Job, status: Status) -> Result<(), Over> {
        let timestamp = time(self.browser_manager.scheduler.wall());
        let message = json!({"event": "job.status", "data": job, "timestamp": timestamp});
        self.put(Message::Text(message.to_string().into())).await?;
        if status.is_terminal() { Err(ENDED) } else { Ok(()) }
    }

    async fn put(&mut self, message: Message) -> Result<(), Over> {
        match tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(GONE),
        }
    }
}
