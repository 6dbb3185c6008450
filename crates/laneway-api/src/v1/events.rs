//! The live stream of events.

use axum::http::HeaderMap;
use laneway_core::Span;
use laneway_runtime::{Interest, Jobs};
use laneway_wire::Problem;

use crate::authority;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::query::{Call, Parameters};
use crate::reply::Answer;
use crate::sse;

/// The header with the last event that a reconnecting client has seen.
const LAST_EVENT_ID: &str = "last-event-id";

/// Streams events as they happen (server-sent events).
///
/// With `Last-Event-ID` (or `after`) the stream begins with every event after that number, in order and once. If
/// events are missing, it begins with one event `gap`.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "stream_events", tag = "events",
    params(
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that the client has seen"),
        ("after" = Option<u64>, Query, description = "The same, for clients that cannot set headers"),
        ("job" = Option<String>, Query, description = "Only events of this job"),
    ),
    responses((status = 200, description = "The stream", content_type = "text/event-stream", body = String), (status = 429, description = "too_many streams are open", body = Problem))
)]
pub async fn stream_events(Call(api, caller): Call, list: Parameters, headers: HeaderMap) -> Answer {
    let list = list.only(&["after", "job"])?;
    let after = match headers.get(LAST_EVENT_ID) {
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            Some(number.ok_or_else(|| ApiError::field("Last-Event-ID", "must be the number of an event"))?)
        }
        None => list.number("after")?,
    };
    let job = list.get("job").map(convert::job_id).transpose()?;
    let share = api.streams.take(&caller).map_err(|none| {
        let mut error = ApiError::new(Code::TooMany, format!("too many event streams: {none}"));
        error.retry_after = Some(Span::secs(5));
        error
    })?;
    let audit = authority::of("list_audit").expect("the operation has a row in the permission table");
    let interest = Interest {
        tenant: caller.scope().cloned(),
        others: job.is_none(),
        jobs: job.map_or(Jobs::All, Jobs::One),
        audit: audit.allows(caller.role, caller.is_server_wide()),
        progress: true,
        feedback: false,
        stop: false,
    };
    Ok(sse::respond(api, caller, interest, after, share))
}
