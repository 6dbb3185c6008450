//! The immediate path: an action on a tab that bypasses the queue.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use laneway_browser::{Action, ForwardError};
use tokio_util::sync::CancellationToken;

use super::Pinchtab;
use super::decode::read_body;
use super::error::{Problem, forward_text};
use super::tasks::Answer;
use crate::body::Call;

/// How long an instance may take to answer: clients do not wait longer.
const TIME_MAX: Duration = Duration::from_secs(60);
/// The agent of the call.
const AGENT: HeaderName = HeaderName::from_static("x-agent-id");

/// Does the action on a tab of this machine, or forwards it to the instance that has the tab, and returns the answer unchanged.
pub async fn act_on_tab(
    Call(pinchtab, caller): Call<Pinchtab>,
    Path(tab): Path<String>,
    request: Request,
) -> Answer {
    let agent =
        request.headers().get(AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let body = read_body(request).await?;
    let action = Action {
        tab,
        tenant: caller.tenant.clone(),
        may_script: pinchtab.tabs.may_script(caller.role),
        agent,
        scheduled: false,
        body,
        time_left: Some(TIME_MAX),
    };
    // When the client disconnects, this call is dropped, and the connection with it.
    let answered = pinchtab.tabs.forward(&action, &CancellationToken::new()).await;
    let answered = answered.map_err(|error| match error {
        ForwardError::Unresolved { source, .. } => Problem::not_found(source.to_string()),
        ForwardError::Deadline => Problem::generic(StatusCode::GATEWAY_TIMEOUT, forward_text(&error)),
        ForwardError::Request(_) | ForwardError::Read(_) | ForwardError::Canceled => {
            Problem::generic(StatusCode::BAD_GATEWAY, forward_text(&error))
        }
    })?;
    let mut response = Response::new(Body::from(answered.body));
    *response.status_mut() = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let content_type = answered.content_type.and_then(|text| HeaderValue::from_str(&text).ok());
    if let Some(content_type) = content_type {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    Ok(response)
}
