//! Callbacks: checks their URLs, and renders webhooks in the native format.

use laneway_core::{Callback, JobState, Name, Reason};
use laneway_runtime::webhooks::{CallbackFormat, Ended, Guard, GuardError, NATIVE_FORMAT, Rendered};

use crate::error::ApiError;
use crate::render;

/// The native format: the job object of `GET /v1/jobs/{id}`.
pub struct JobFormat;

impl CallbackFormat for JobFormat {
    fn render(&self, ended: &Ended<'_>) -> Rendered {
        let reason = ended.job.end.as_ref().map(|end| end.reason);
        let event = match (ended.job.state(), reason) {
            (JobState::Succeeded, _) => "job.succeeded",
            // Not `job.canceled`: the job that it was merged into runs for it.
            (JobState::Canceled, Some(Reason::Merged)) => "job.merged",
            (JobState::Canceled, _) => "job.canceled",
            _ => "job.failed",
        };
        Rendered {
            signed: None,
            content_type: "application/json",
            headers: vec![
                ("laneway-event", event.to_owned()),
                ("laneway-job-id", ended.job.row.id.to_string()),
            ],
            body: serde_json::to_vec(&render::job(ended.job, None)).expect("a job is written to memory"),
        }
    }
}

/// The callback of a job with this URL, if the server may call it.
pub(crate) async fn check(guard: &Guard, url: &str) -> Result<Callback, ApiError> {
    guard
        .check(url)
        .await
        .map_err(|error| ApiError::field("callback", format!("{error}; {}", remedy(error))))?;
    Ok(native(url))
}

/// A callback in the native format, without a check of its URL.
pub(crate) fn native(url: &str) -> Callback {
    Callback { url: url.into(), format: Name::fixed(NATIVE_FORMAT) }
}

fn remedy(error: GuardError) -> &'static str {
    match error {
        GuardError::Invalid => "send a full URL of at most 2048 bytes, such as https://hooks.example/done",
        GuardError::Scheme => "use https:// or http://",
        GuardError::NoHost => "add a host, such as https://hooks.example/done",
        GuardError::Credentials => "remove user and password; verify the signature of webhooks instead",
        GuardError::NotAllowed => "the server calls only public addresses and hosts in webhooks.allow_hosts",
        GuardError::Unresolved => "check the name, or submit again later",
    }
}
