//! One WebSocket connection, from the upgrade to the close.
//!
//! There is no send buffer that could overflow: events are read from the event log at the client's pace, and a
//! client that accepts nothing for [`WRITE_TIMEOUT`] is disconnected. So is a client that falls so far behind
//! that the next events are only in the store: it gets one `gap` and a close, and fetches the current state when
//! it reconnects. A slow client does not affect others.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use laneway_core::{EventKind, Name};
use laneway_runtime::caller::{Authenticator, Credentials};
use laneway_runtime::unauthenticated::{
    Arrival, ReadBudget, UNAUTHENTICATED_BYTES_MAX, UnauthenticatedSocket,
};
use laneway_runtime::{Interest, Item, Jobs, NoShare, Share, Subscription, websocket};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use super::frame::{self, Code, FRAME_MAX, Problem, Request};
use super::member::{Level, Member};
use super::params::Params;
use super::{Goclaw, events, methods};

/// The interval of pings.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that is silent for this long is disconnected.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an unauthenticated connection may stay open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sending a frame may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of the read buffer: small, because most clients send little.
const READ_BUFFER: usize = 8 << 10;
/// When a member beyond the connection limit may try again.
const RETRY_MS: u64 = 1_000;
/// Later than the end of any socket, and valid for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Opens a WebSocket, within the connection limit. A client with a valid token in its request is a member at
/// once; any other one may stay unauthenticated for a short time and send little.
pub async fn open_socket(
    State(goclaw): State<Goclaw>,
    Extension(authenticator): Extension<Authenticator>,
    Extension(arrival): Extension<Arrival>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let busy = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    let shown =
        arrival.shown.as_ref().and(authenticator.admit(Credentials { token: None, tenant: None }).ok());
    let slot = if let Some(caller) = shown {
        match goclaw.sockets.take(&caller) {
            Ok(share) => Slot::Member(share),
            Err(none) => return busy(format!("too many sockets are open: {none}\n")),
        }
    } else {
        arrival.budget.limit(UNAUTHENTICATED_BYTES_MAX);
        Slot::Unauthenticated(goclaw.unauthenticated.enter(arrival.address), arrival.budget)
    };
    let upgrade = upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX);
    upgrade.read_buffer_size(READ_BUFFER).on_upgrade(move |socket| async move {
        Conversation::new(socket, goclaw, authenticator, slot).run().await;
    })
}

/// The limit that a connection counts against.
enum Slot {
    Member(Share),
    Unauthenticated(UnauthenticatedSocket, ReadBudget),
}

impl Slot {
    /// Waits until the connection must give way to another one, and returns why.
    async fn displaced(&self) -> Over {
        match self {
            Slot::Member(share) => {
                share.revoked().await;
                Over(close_code::AGAIN, "all sockets are taken and another caller has fewer")
            }
            Slot::Unauthenticated(socket, _) => {
                socket.displaced().await;
                Over(close_code::POLICY, "connect came too late: there are newer sockets")
            }
        }
    }
}

struct Conversation {
    socket: WebSocket,
    goclaw: Goclaw,
    authenticator: Authenticator,
    member: Option<Member>,
    events: Subscription,
    /// When the client is disconnected unless it sends something.
    silent_at: Instant,
    /// When the token expires.
    ends_at: Instant,
    slot: Slot,
}

/// Why a connection ends: the close code and reason.
struct Over(u16, &'static str);

/// The client has left; no close frame is needed.
const GONE: Over = Over(close_code::ABNORMAL, "");

impl Conversation {
    fn new(socket: WebSocket, goclaw: Goclaw, authenticator: Authenticator, slot: Slot) -> Conversation {
        // An unauthenticated connection gets no event but `shutdown`.
        let events = goclaw.scheduler.events().listen(Interest::in_jobs(None, Jobs::None), None);
        let now = Instant::now();
        Conversation {
            socket,
            goclaw,
            authenticator,
            member: None,
            events,
            silent_at: now + READ_TIMEOUT,
            ends_at: now + CONNECT_TIMEOUT,
            slot,
        }
    }

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
        let mut tokens = self.goclaw.scheduler.token_changes();
        let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.ends_at) => {
                    let why = if self.member.is_some() { "the token has expired" } else { "connect came too late" };
                    return Err(Over(close_code::POLICY, why));
                }
                over = self.slot.displaced() => return Err(over),
                changed = tokens.changed() => {
                    changed.map_err(|_| Over(close_code::AWAY, "the server stops"))?;
                    if !self.is_still_allowed() {
                        return Err(Over(close_code::POLICY, "the token was revoked"));
                    }
                }
                received = self.socket.recv() => match received {
                    None | Some(Err(_)) => return Err(GONE),
                    Some(Ok(message)) => {
                        self.silent_at = Instant::now() + READ_TIMEOUT;
                        match message {
                            Message::Text(text) => self.handle_text(text.as_str()).await?,
                            Message::Binary(_) => {
                                let problem = Problem::invalid("invalid frame: must be a text frame");
                                self.send(frame::answer("", &Err(problem))).await?;
                            }
                            Message::Close(_) => return Ok(()),
                            Message::Ping(_) | Message::Pong(_) => {}
                        }
                    }
                },
                item = self.events.next_unless_behind() => match item {
                    Ok(Some(item)) => self.send_item(item).await?,
                    Ok(None) => {
                        let (after, to) = (self.events.position(), self.goclaw.scheduler.events().latest());
                        self.send_item(Item::Gap { from: after + 1, to }).await?;
                        return Err(Over(close_code::AGAIN, "events were taken too slowly; connect again"));
                    }
                    Err(_) => return Err(Over(close_code::AWAY, "the server stops")),
                },
                _ = ping.tick() => self.put(Message::Ping(Vec::new().into())).await?,
                () = tokio::time::sleep_until(self.silent_at) => {
                    return Err(Over(close_code::AWAY, "nothing was heard for 60 seconds"));
                }
            }
        }
    }

    /// Answers one frame. An invalid frame gets an error, and the connection stays open.
    async fn handle_text(&mut self, text: &str) -> Result<(), Over> {
        let (id, outcome) = match Request::read(text) {
            Ok(Request { id, method, params }) => {
                let outcome = self.handle(&method, &Params(params)).await;
                if let Err(problem) = &outcome {
                    note(&self.goclaw, self.member.as_ref(), &method, problem).await;
                }
                (id, outcome)
            }
            Err(problem) => (String::new(), Err(problem)),
        };
        self.send(frame::answer(&id, &outcome)).await
    }

    async fn handle(&mut self, method: &str, params: &Params) -> Result<Value, Problem> {
        if method == "connect" {
            return self.connect(params);
        }
        let Some(member) = &self.member else {
            return Err(Problem::denied("first request must be 'connect'"));
        };
        let Some(level) = methods::level_of(method) else {
            return Err(Problem::invalid(format!("unknown method: {method}")));
        };
        member.must_be(level, method)?;
        methods::call(&self.goclaw.scheduler, member, method, params).await
    }

    fn connect(&mut self, params: &Params) -> Result<Value, Problem> {
        let member = Member::connect(&self.authenticator, params)?;
        if let Slot::Unauthenticated(_, budget) = &self.slot {
            let full = |none: NoShare| {
                let message = format!("too many sockets are open: {none}");
                Problem::new(Code::ResourceExhausted, message).retry(Some(RETRY_MS))
            };
            let share = self.goclaw.sockets.take(&member.caller).map_err(full)?;
            budget.lift();
            self.slot = Slot::Member(share);
        }
        let scheduler = &self.goclaw.scheduler;
        let left = member.caller.expires_at.map(|at| Duration::from_millis(at.since(scheduler.wall()).0));
        self.ends_at = Instant::now() + left.unwrap_or(FAR).min(FAR);
        // Earlier events are not sent.
        self.events = scheduler.events().listen(interest(&member), None);
        let greeting = member.greeting();
        self.member = Some(member);
        Ok(greeting)
    }

    /// Sends an event, if the member may see it.
    async fn send_item(&mut self, item: Item) -> Result<(), Over> {
        let Some(member) = &self.member else { return Ok(()) };
        let frame = match item {
            Item::Event(event) => match events::translate(&self.goclaw.scheduler, member, &event).await {
                Ok(sent) => sent.map(|(name, payload)| frame::event(name, &payload, Some(event.number))),
                Err(error) => {
                    tracing::warn!(%error, event = event.number, "an event could not be read");
                    None
                }
            },
            Item::Gap { from, to } => Some(frame::event("gap", &json!({"from": from, "to": to}), None)),
            Item::Progress(_) | Item::Feedback(_) => None,
        };
        match frame {
            Some(frame) => self.send(frame).await,
            None => Ok(()),
        }
    }

    fn is_still_allowed(&self) -> bool {
        let scheduler = &self.goclaw.scheduler;
        let (tokens, now) = (scheduler.tokens(), scheduler.wall());
        self.member.as_ref().is_none_or(|member| member.caller.is_still_allowed(&tokens, now))
    }

    async fn send(&mut self, frame: String) -> Result<(), Over> {
        self.put(Message::Text(frame.into())).await
    }

    async fn put(&mut self, message: Message) -> Result<(), Over> {
        match tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(GONE),
        }
    }
}

/// The events that a member may get: those of its tenant without a job, and the stop of the server.
fn interest(member: &Member) -> Interest {
    // Cron jobs create jobs of this lane; a start is an event of the job.
    let runs = Jobs::OfLane(Name::fixed("cron"));
    Interest { others: true, ..Interest::in_jobs(Some(member.tenant().clone()), runs) }
}

/// Writes a rejected change to the audit log, or counts it if there were many equal ones lately.
async fn note(goclaw: &Goclaw, member: Option<&Member>, method: &str, problem: &Problem) {
    let Some((method, Level::Operator)) = methods::known(method) else { return };
    let Some(member) = member else { return };
    let (kind, why) = match problem.code {
        Code::Unauthorized => (EventKind::CallDenied, "denied"),
        _ => (EventKind::CallRejected, "rejected"),
    };
    let sort = (member.caller.actor.clone(), method, why);
    let Some(left_out) = goclaw.notes.take(sort, Instant::now().into_std()) else { return };
    let mut detail = format!("{method}: {}", problem.message);
    if left_out > 0 {
        detail.push_str(&format!(" ({left_out} equal calls before it were not noted)"));
    }
    let (tenant, origin) = (Some(member.tenant().clone()), member.caller.origin());
    // A server that stops writes no more entries.
    let _ = goclaw.scheduler.note(kind, tenant, &detail, origin).await;
}
