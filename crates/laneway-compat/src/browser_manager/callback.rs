//! Webhooks at the end of a job, with the headers `X-BM-Event`, `X-BM-Timestamp` and `X-BM-Signature`.

use laneway_runtime::webhooks::{CallbackFormat, Ended, PlainSignature, Rendered};
use serde_json::json;

use super::translate::{self, Status};

/// The name of the format.
pub const FORMAT: &str = "browser_manager";

/// Sends the job as `GET /api/jobs/{jobId}` returns it.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobCallback;

impl CallbackFormat for JobCallback {
    fn render(&self, ended: &Ended<'_>) -> Rendered {
        let event = event_of(Status::of(ended.job.state()));
        let job = translate::job(ended.job);
        let body = json!({"event": event, "data": job, "timestamp": job.finished_at});
        Rendered {
            signed: Some(PlainSignature { timestamp: "x-bm-timestamp", signature: "x-bm-signature" }),
            content_type: "application/json",
            headers: vec![("x-bm-event", event.to_owned())],
            body: body.to_string().into_bytes(),
        }
    }
}

/// The name of the event. The webhooks of the original spell them in their own way.
fn event_of(status: Status) -> &'static str {
    match status {
        Status::Canceled => "job.cancelled",
        Status::Failed => "job.failed",
        Status::Succeeded | Status::Queued | Status::Running => "job.completed",
    }
}
