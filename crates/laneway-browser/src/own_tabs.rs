//! Actions on tabs of browsers of this machine, without an instance between: over DevTools, for the tenant of the browser only.
//!
//! Answers have the form of an instance's: a status and a JSON body.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::forward::{Action, Answered};
use crate::page::{Page, PageAction, PageError, PageLimits};

/// How long an action may take, if its caller sets no limit.
const TIME: Duration = Duration::from_secs(30);
/// Largest screenshot or PDF, in bytes: as base64 it must fit into the result of a job.
const CAPTURE_BYTES_MAX: usize = 4 << 20;

/// Does the action. `None`: it was canceled.
pub(crate) async fn act(page: Page, action: &Action, stop: &CancellationToken) -> Option<Answered> {
    let parsed = match serde_json::from_slice::<Value>(&action.body) {
        Ok(body) => PageAction::parse(&body).map_err(|bad| bad.to_string()),
        Err(error) => Err(format!("the body is no JSON: {error}")),
    };
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return Some(error_answer(400, "bad_action", &message)),
    };
    if parsed.runs_javascript() && !action.may_script {
        let message = format!(
            "the action {} runs code of the caller, who lacks the role for it (browsers.script_role)",
            parsed.kind()
        );
        return Some(error_answer(403, "forbidden", &message));
    }
    let limits = PageLimits {
        time: action.time_left.unwrap_or(TIME),
        capture_bytes: CAPTURE_BYTES_MAX,
        ..PageLimits::default()
    };
    match page.act(&parsed, &limits, stop).await {
        Ok(result) => Some(answer(200, &json!({"success": true, "result": result}))),
        Err(PageError::Canceled) => None,
        Err(error) => Some(error_answer(status_of(&error), error.code(), &error.to_string())),
    }
}

fn status_of(error: &PageError) -> u16 {
    match error {
        PageError::NoElement(_) | PageError::NoFrame(_) | PageError::Closed => 404,
        PageError::StaleRef(_) => 409,
        PageError::BadSelector { .. } => 400,
        PageError::NotUsable { .. } | PageError::Evaluate(_) | PageError::ResultTooLarge { .. } => 422,
        PageError::UrlNotAllowed { .. } => 403,
        PageError::Navigation { .. } | PageError::TabCrashed | PageError::DevTools(_) => 502,
        PageError::TimedOut { .. } => 504,
        PageError::Canceled => 499,
    }
}

fn error_answer(status: u16, code: &str, message: &str) -> Answered {
    answer(status, &json!({"code": code, "error": message}))
}

fn answer(status: u16, body: &Value) -> Answered {
    let content_type = Some("application/json".to_owned());
    Answered { status, content_type, body: body.to_string().into_bytes() }
}
