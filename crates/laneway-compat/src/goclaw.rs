//! The dialect `goclaw`: cron jobs of agents, over a WebSocket.
//!
//! A cron job is a schedule whose template is an agent turn (see `laneway_runtime::agent_turn`): kind `agent_turn`, lane
//! `cron`, one session for each job. `frame.rs` reads and writes frames, `member.rs` says who is at the other end,
//! `socket.rs` is one conversation, `methods.rs` the methods, `params.rs` and `translate.rs` turn their words into ours
//! and back, `events.rs` tells what happens. What a job's answer becomes is not decided here but in
//! `laneway_runtime::outbound`.

mod events;
mod frame;
mod member;
mod methods;
mod params;
mod socket;
#[cfg(test)]
mod tests;
mod translate;

use std::sync::Arc;

use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use laneway_runtime::Scheduler;
use laneway_runtime::caller::{Denied, Right};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::note_limits::NoteLimits;
use tokio::sync::Semaphore;

use crate::dialect::{Dialect, Route};

/// The version of the protocol, as `connect` tells it.
pub const PROTOCOL: u32 = 3;

/// What every conversation holds. It is handles and a bound; the dialect itself remembers nothing.
#[derive(Clone)]
struct Goclaw {
    scheduler: Scheduler,
    /// Room for members: whoever said who they are.
    sockets: Arc<Semaphore>,
    /// Room for strangers: whoever did not yet. They take no place of a member.
    strangers: Arc<Semaphore>,
    /// How often equal refusals are noted.
    notes: Arc<NoteLimits>,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: &LiveConfig) -> Dialect {
    let settings = &live.current().dialects.goclaw;
    let room = |places: u32| Arc::new(Semaphore::new(places as usize));
    let (sockets, strangers) = (room(settings.sockets_max), room(settings.strangers_max));
    let goclaw = Goclaw { scheduler, sockets, strangers, notes: Arc::default() };
    let handler = on(MethodFilter::GET, socket::open_socket);
    let route = Route {
        method: Method::GET,
        path: "/ws",
        operation: "open_socket",
        // Clients say who they are in their first frame.
        right: Right::Converse,
        handler: handler.with_state(goclaw),
    };
    Dialect { name: "goclaw", routes: vec![route], denied }
}

/// Their server answers requests that never became a socket in plain text.
fn denied(why: &Denied) -> Response {
    let (status, text) = match why {
        Denied::MissingToken | Denied::BadToken => (StatusCode::UNAUTHORIZED, "unauthorized"),
        Denied::TooManyAttempts { retry_after } => {
            let seconds = retry_after.0.div_ceil(1_000).max(1).to_string();
            let headers = [(header::RETRY_AFTER, seconds)];
            return (StatusCode::TOO_MANY_REQUESTS, headers, "too many attempts\n").into_response();
        }
        Denied::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "too many requests"),
        Denied::Forbidden(why) | Denied::Misdirected(why) => (StatusCode::FORBIDDEN, why.as_str()),
        Denied::UnknownMethod => (StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        Denied::UnknownPath => (StatusCode::NOT_FOUND, "not found"),
        Denied::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    };
    (status, format!("{text}\n")).into_response()
}
