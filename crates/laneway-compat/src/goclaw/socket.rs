//! One conversation: frames in, answers and events out, from the upgrade to the close.
//!
//! There is no buffer of things to send that could overflow: events are read from the trail at the client's pace, and a
//! client that takes nothing for [`WRITE_TIMEOUT`] is cut off. So a slow client loses nothing and slows nobody.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use laneway_core::EventKind;
use laneway_runtime::caller::Doorkeeper;
use laneway_runtime::{Item, Subscription};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior};

use super::frame::{self, Code, FRAME_MAX, Problem, Request};
use super::member::{Level, Member};
use super::params::Params;
use super::{Goclaw, events, methods};

/// How often the client is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that was silent for this long is gone.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// A client must have said who it is after this long: until then, its socket is nobody's.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A frame must have been taken after this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// When a member for whom there is no room may try again.
const RETRY_MS: u64 = 1_000;
/// Further away than any socket lives, and near enough for every clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Opens a socket, if there is room for one more stranger, and for one more member to be.
pub async fn open_socket(
    State(goclaw): State<Goclaw>,
    Extension(doorkeeper): Extension<Doorkeeper>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let busy = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    if goclaw.sockets.available_permits() == 0 {
        return busy("too many sockets are open\n");
    }
    let Ok(permit) = goclaw.strangers.clone().try_acquire_owned() else {
        return busy("too many sockets have not said connect yet; try again later\n");
    };
    upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX).on_upgrade(move |socket| async move {
        Conversation::new(socket, goclaw, doorkeeper, permit).run().await;
    })
}

struct Conversation {
    socket: WebSocket,
    goclaw: Goclaw,
    doorkeeper: Doorkeeper,
    member: Option<Member>,
    events: Subscription,
    /// When the client counts as gone unless it says something.
    silent_at: Instant,
    /// When the right to be here ends by itself.
    ends_at: Instant,
    /// Its place: among the strangers until it is a member's.
    place: OwnedSemaphorePermit,
}

/// Why a conversation ends: what the client is told.
struct Over(u16, &'static str);

/// The client is gone; nobody needs to be told.
const GONE: Over = Over(close_code::ABNORMAL, "");

impl Conversation {
    fn new(
        socket: WebSocket,
        goclaw: Goclaw,
        doorkeeper: Doorkeeper,
        permit: OwnedSemaphorePermit,
    ) -> Conversation {
        let events = goclaw.scheduler.events().subscribe(None);
        let now = Instant::now();
        Conversation {
            socket,
            goclaw,
            doorkeeper,
            member: None,
            events,
            silent_at: now + READ_TIMEOUT,
            ends_at: now + CONNECT_TIMEOUT,
            place: permit,
        }
    }

    async fn run(mut self) {
        let Over(code, reason) = match self.converse().await {
            Ok(()) => return,
            Err(over) => over,
        };
        if code != close_code::ABNORMAL {
            let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
            // Whoever does not take it is gone, and the socket with them.
            let _ = tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(close)).await;
        }
    }

    /// Until the client closes (`Ok`), or something else ends it.
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
                            Message::Text(text) => self.hear(text.as_str()).await?,
                            Message::Binary(_) => {
                                let problem = Problem::invalid("invalid frame: must be a text frame");
                                self.send(frame::answer("", &Err(problem))).await?;
                            }
                            Message::Close(_) => return Ok(()),
                            Message::Ping(_) | Message::Pong(_) => {}
                        }
                    }
                },
                item = self.events.next() => match item {
                    Ok(item) => self.tell(item).await?,
                    Err(_) => return Err(Over(close_code::AWAY, "the server stops")),
                },
                _ = ping.tick() => self.put(Message::Ping(Vec::new().into())).await?,
                () = tokio::time::sleep_until(self.silent_at) => {
                    return Err(Over(close_code::AWAY, "nothing was heard for 60 seconds"));
                }
            }
        }
    }

    /// Answers one frame. A frame that is none is told so, and the conversation goes on.
    async fn hear(&mut self, text: &str) -> Result<(), Over> {
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
        let member = Member::connect(&self.doorkeeper, params)?;
        if self.member.is_none() {
            let place = self.goclaw.sockets.clone().try_acquire_owned();
            let full =
                |_| Problem::new(Code::ResourceExhausted, "too many sockets are open").retry(Some(RETRY_MS));
            self.place = place.map_err(full)?;
        }
        let scheduler = &self.goclaw.scheduler;
        let left = member.caller.expires_at.map(|at| Duration::from_millis(at.since(scheduler.wall()).0));
        self.ends_at = Instant::now() + left.unwrap_or(FAR).min(FAR);
        // What happened before is not theirs to hear.
        self.events = scheduler.events().subscribe(None);
        let greeting = member.greeting();
        self.member = Some(member);
        Ok(greeting)
    }

    /// Tells of what happened, if it is the member's to hear.
    async fn tell(&mut self, item: Item) -> Result<(), Over> {
        let Some(member) = &self.member else { return Ok(()) };
        let frame = match item {
            Item::Event(event) => match events::told(&self.goclaw.scheduler, member, &event).await {
                Ok(told) => told.map(|(name, payload)| frame::event(name, &payload, Some(event.number))),
                Err(error) => {
                    tracing::warn!(%error, event = event.number, "an event could not be told");
                    None
                }
            },
            Item::Gap { from, to } => Some(frame::event("gap", &json!({"from": from, "to": to}), None)),
            Item::Progress(_) => None,
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

/// A call that would have changed something and did not leaves a line in the audit list, or is counted where there were
/// many equal ones of late.
async fn note(goclaw: &Goclaw, member: Option<&Member>, method: &str, problem: &Problem) {
    let Some((method, Level::Operator)) = methods::known(method) else { return };
    let Some(member) = member else { return };
    let (kind, why) = match problem.code {
        Code::Unauthorized => (EventKind::CallDenied, "denied"),
        _ => (EventKind::CallRefused, "refused"),
    };
    let sort = (member.caller.actor.clone(), method, why);
    let Some(left_out) = goclaw.notes.take(sort, Instant::now().into_std()) else { return };
    let mut detail = format!("{method}: {}", problem.message);
    if left_out > 0 {
        detail.push_str(&format!(" ({left_out} equal calls before it were not noted)"));
    }
    let (tenant, origin) = (Some(member.tenant().clone()), member.caller.origin());
    // A server that stops keeps no more lines.
    let _ = goclaw.scheduler.note(kind, tenant, &detail, origin).await;
}
