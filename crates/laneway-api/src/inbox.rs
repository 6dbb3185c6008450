//! Requests that did not come over HTTP: an application wrote them to the inbox of the database, in a transaction of its own. They
//! are the same as those of `POST /v1/jobs`, and are checked in the same way.

use std::borrow::Cow;

use axum::http::StatusCode;
use laneway_core::{JobId, Name, Role};
use laneway_runtime::Stopped;

use crate::api::Api;
use crate::auth::Caller;
use crate::body;
use crate::error::ApiError;
use crate::json;
use crate::v1::submit;

/// The name under which these jobs are submitted.
const ACTOR: &str = "inbox";

/// A request of the inbox.
#[derive(Clone, Copy, Debug)]
pub struct InboxRequest<'a> {
    /// The tenant of the job.
    pub tenant: &'a str,
    /// The idempotency key, unless the request has its own.
    pub key: &'a str,
    /// The body, as of `POST /v1/jobs`.
    pub body: &'a str,
}

impl Api {
    /// Submits jobs, each for itself. A request that was submitted before gives the same job.
    pub async fn submit_from_inbox(
        &self,
        requests: &[InboxRequest<'_>],
    ) -> Result<Vec<Result<JobId, ApiError>>, Stopped> {
        let (mut submissions, mut prepared) = (Vec::new(), Vec::new());
        for request in requests {
            match self.prepare_from_inbox(request).await {
                Ok(submission) => {
                    submissions.push(submission);
                    prepared.push(Ok(()));
                }
                Err(error) => prepared.push(Err(error)),
            }
        }
        let mut verdicts = match submissions.is_empty() {
            true => Vec::new(),
            false => self.scheduler.submit_batch(submissions, false).await?,
        }
        .into_iter();
        let verdict = |prepared: Result<(), ApiError>| {
            prepared?;
            let verdict = verdicts.next().ok_or_else(|| ApiError::internal("a submit has no verdict"))?;
            Ok(verdict?.job)
        };
        Ok(prepared.into_iter().map(verdict).collect())
    }

    async fn prepare_from_inbox(
        &self,
        request: &InboxRequest<'_>,
    ) -> Result<laneway_core::Submission, ApiError> {
        let tenant = Name::new(request.tenant).ok().filter(Name::is_plain).ok_or_else(|| {
            ApiError::field(
                "tenant",
                format!("is {:?}; use letters, digits and . _ : - only", request.tenant),
            )
        })?;
        let body_max = self.config.current().server.body_max;
        if request.body.len() > body_max {
            return Err(body::too_large(body_max));
        }
        let mut job = json::parse_job(request.body.as_bytes())?;
        if job.idempotency_key.is_none() {
            job.idempotency_key = Some(Cow::Borrowed(request.key));
        }
        let caller = Caller(laneway_runtime::Caller {
            actor: Name::fixed(ACTOR),
            role: Role::Submitter,
            bound: Some(tenant.clone()),
            tenant,
            sees_one_tenant: true,
            request: Name::fixed(ACTOR),
            expires_at: None,
            by_token: false,
        });
        submit::submission(self, &caller, &job).await
    }
}

/// True when the same request may be accepted later: a queue is full, or the server stops.
pub fn may_succeed_later(error: &ApiError) -> bool {
    let status = error.code.status();
    status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::INSUFFICIENT_STORAGE
        || status.is_server_error()
}
