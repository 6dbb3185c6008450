//! The meaning of a target's answer: success, a retryable failure, or a permanent one.

use std::error::Error;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use laneway_core::{Bytes, Failure, Name, Outcome, Span};
use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::json;

use super::{MESSAGE_MAX, cut, printable};

/// How much of an unwelcome answer is read and kept, in bytes.
const ERROR_BODY_MAX: usize = 1_024;

/// Judges an answer whose body is still to be read.
pub(super) async fn outcome_of(response: Response, response_max: usize) -> Outcome {
    let status = response.status();
    if !status.is_success() {
        return Outcome::Failed(rejection_of(response).await);
    }
    if response.content_length().is_some_and(|len| len > response_max as u64) {
        return too_large(response_max);
    }
    match read_body(response, response_max).await {
        Ok(Body::Whole(body)) if body.is_empty() => Outcome::Succeeded(None),
        Ok(Body::Whole(body)) => Outcome::Succeeded(Some(Bytes::from(body))),
        Ok(Body::Cut(_)) => too_large(response_max),
        Err(error) => failure_of(error),
    }
}

/// A call that got no answer, or not all of it.
pub(super) fn failure_of(error: reqwest::Error) -> Outcome {
    // Only the connect phase can end both ways at once; there the connection is what is missing, not time.
    let (code, what) = match (error.is_connect(), error.is_timeout()) {
        (true, _) => ("http_connect", "the target could not be reached"),
        (false, true) => ("http_timeout", "the target did not answer in time"),
        (false, false) => ("http_broken", "the target's answer could not be read"),
    };
    Outcome::Failed(Failure::retryable(code, printable(&format!("{what}: {}", with_causes(error)))))
}

/// The error with all its causes. The URL may hold what only the operator should see, and is left out.
pub fn with_causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    message
}

fn too_large(response_max: usize) -> Outcome {
    let message = format!(
        "the target's answer has more than {response_max} bytes; raise `target_response_max` of the kind"
    );
    Outcome::Failed(Failure::permanent("response_too_large", message))
}

async fn rejection_of(response: Response) -> Failure {
    let status = response.status();
    let asked = retry_after(response.headers());
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(printable);
    // A body that breaks off adds nothing to the status.
    let body = match read_body(response, ERROR_BODY_MAX).await {
        Ok(Body::Whole(body) | Body::Cut(body)) => printable(&String::from_utf8_lossy(&body)),
        Err(_) => String::new(),
    };
    let mut message = format!("the target answered {status}");
    if status.is_redirection() {
        message.push_str("; redirects are not followed");
    }
    if !body.is_empty() {
        message.push_str(": ");
        message.push_str(&body);
    }
    let detail = json!({"status": status.as_u16(), "retry_after": retry_after, "body": body});
    Failure {
        code: Name::fixed("http_status"),
        message: cut(&message, MESSAGE_MAX).into(),
        retryable: is_worth_another_try(status),
        detail: Some(Bytes::from(detail.to_string().into_bytes())),
        retry_after: asked,
    }
}

/// How long a target asks to be left alone: a number of seconds, or a date. A date is read by the target's own clock where
/// the answer has one. What cannot be read asks for nothing; the engine bounds the rest.
fn retry_after(headers: &HeaderMap) -> Option<Span> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds ask for the longest wait.
        return (!asked.is_empty()).then(|| Span::secs(asked.parse::<u32>().unwrap_or(u32::MAX).into()));
    }
    let date = |text: &str| rfc2822::parse(text).ok().map(|date| date.timestamp());
    let now = text(DATE).and_then(date).unwrap_or_else(Timestamp::now);
    let wait = date(asked)?.duration_since(now);
    Some(Span(u64::try_from(wait.as_millis()).unwrap_or(0)))
}

fn is_worth_another_try(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// The body of an answer.
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// The beginning of a body that is longer than asked for.
    Cut(Vec<u8>),
}

/// Reads at most `max` bytes; of a longer body no more than one chunk beyond them is ever held.
pub async fn read_body(mut response: Response, max: usize) -> Result<Body, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let left = max - body.len();
        if chunk.len() > left {
            body.extend_from_slice(&chunk[..left]);
            return Ok(Body::Cut(body));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Body::Whole(body))
}
