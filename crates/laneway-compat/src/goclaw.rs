//! The dialect `goclaw`: cron jobs of agents, over a WebSocket.
//!
//! A cron job is a schedule whose template is an agent turn (see `agent_turn.rs`): kind
//! `agent_turn`, lane `cron`, one session for each job. `frame.rs` parses and writes frames, `member.rs` holds
//! the authenticated client, `socket.rs` is one connection, `methods.rs` has the methods, `params.rs` and
//! `translate.rs` translate requests and answers, `events.rs` translates events. `outbound.rs`
//! decides what becomes of a job's answer.

mod config;
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
use laneway_core::Name;
use laneway_runtime::audit_rate::AuditRate;
use laneway_runtime::caller::{Denied, Right};
use laneway_runtime::dialect::{Dialect, Route};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::unauthenticated::UnauthenticatedSockets;
use laneway_runtime::{Scheduler, Shares};

pub use config::SECTION;

/// The name of the dialect in the configuration.
const NAME: &str = "goclaw";

/// The protocol version that `connect` returns.
pub const PROTOCOL: u32 = 3;

/// What every connection holds: handles and a limit. The dialect itself has no state.
#[derive(Clone)]
struct Goclaw {
    scheduler: Scheduler,
    /// The limit on authenticated connections.
    sockets: Shares,
    /// The unauthenticated connections. They do not count against the limit of members.
    unauthenticated: UnauthenticatedSockets,
    /// How often equal rejections are written to the audit log.
    notes: Arc<AuditRate>,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: &LiveConfig) -> Dialect {
    let config = live.current();
    let settings = config.dialect(NAME);
    let sockets = Shares::new(settings.count("sockets_max"), "dialects.goclaw.sockets_max", &config.streams);
    let max = settings.count("unauthenticated_max");
    let per_address_max = settings.count("unauthenticated_per_address_max");
    let unauthenticated = UnauthenticatedSockets::new(max, per_address_max);
    let goclaw = Goclaw { scheduler, sockets, unauthenticated, notes: Arc::default() };
    // Clients authenticate in their first frame.
    let right = Right::Converse;
    let route = Route::new(&goclaw, &Method::GET, "/ws", "open_socket", right, socket::open_socket);
    Dialect { name: NAME, prefix: String::new(), routes: vec![route], denied, native: &[] }
}

/// Errors before the upgrade to a WebSocket are plain text, as on the original server.
fn denied(why: &Denied, _: &Name) -> Response {
    let (status, text) = match why {
        Denied::MissingToken | Denied::BadToken | Denied::EndedToken => {
            (StatusCode::UNAUTHORIZED, "unauthorized")
        }
        Denied::TooManyAttempts { retry_after } => {
            let seconds = retry_after.0.div_ceil(1_000).max(1).to_string();
            let headers = [(header::RETRY_AFTER, seconds)];
            return (StatusCode::TOO_MANY_REQUESTS, headers, "too many attempts\n").into_response();
        }
        Denied::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "too many requests"),
        Denied::Forbidden(why) | Denied::Misdirected(why) | Denied::ForeignOrigin(why) => {
            (StatusCode::FORBIDDEN, why.as_str())
        }
        Denied::UnknownMethod => (StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        Denied::UnknownPath => (StatusCode::NOT_FOUND, "not found"),
        Denied::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    };
    (status, format!("{text}\n")).into_response()
}
