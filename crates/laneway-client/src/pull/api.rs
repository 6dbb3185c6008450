//! The HTTP calls of a pull worker, for the native API and for the dialect `synthia`.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use thiserror::Error;

use super::{PullOptions, PullOutcome};

/// Longest response that is read, in bytes: a payload and its envelope.
const RESPONSE_LEN_MAX: usize = 8 << 20;
/// The lease time that is assumed when the server names none.
const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// The API that a pull worker uses, and which jobs it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `/v1/leases`: the next job of a lane with `dispatch = "claim"` or `"reserve"`.
    Native {
        /// The lane.
        lane: String,
        /// Request only jobs of these kinds. Empty: any kind.
        kinds: Vec<String>,
    },
    /// `/api/system/scheduler/leases`: the next base job.
    Synthia {
        /// What the worker can do. It is sent to the server, which ignores it.
        capabilities: Vec<String>,
    },
}

/// Why a call failed.
#[derive(Debug, Error)]
pub enum PullError {
    /// The server could not be reached, or the connection broke.
    #[error("the server does not respond: {0}")]
    Unreachable(#[source] reqwest::Error),
    /// The server rejected the call.
    #[error("the server responded with {status}: {detail}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The error text of the server.
        detail: String,
    },
    /// The response is not valid for this call.
    #[error("the response is invalid: {0}")]
    InvalidResponse(String),
}

impl PullError {
    /// True when the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            PullError::Unreachable(_) => true,
            PullError::Rejected { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            PullError::InvalidResponse(_) => false,
        }
    }
}

/// The response to a request for work.
pub(super) enum WorkResponse {
    Granted(Box<Work>),
    Denied { reason: String, retry_after: Duration },
}

/// A job that the worker got.
pub(super) struct Work {
    pub(super) job: String,
    pub(super) lease: String,
    pub(super) kind: String,
    pub(super) payload: Value,
    pub(super) traceparent: Option<String>,
    pub(super) tracestate: Option<String>,
    pub(super) ttl: Duration,
}

/// The response to a heartbeat.
pub(super) enum Beat {
    Alive { ttl: Option<Duration> },
    Stop,
}

/// The response to the report of an outcome.
pub(super) enum OutcomeResponse {
    Accepted,
    Gone,
}

/// The HTTP calls.
pub(super) struct Api {
    http: Client,
    options: PullOptions,
}

impl Api {
    pub(super) fn new(options: PullOptions) -> Result<Api, PullError> {
        let http = Client::builder().no_proxy().timeout(options.call_timeout).build();
        Ok(Api { http: http.map_err(PullError::Unreachable)?, options })
    }

    /// Requests work.
    pub(super) async fn request(&self) -> Result<WorkResponse, PullError> {
        let worker = &self.options.worker;
        let pid = std::process::id();
        match &self.options.dialect {
            Dialect::Native { lane, kinds } => {
                let mut body = json!({"worker": worker, "pid": pid, "lane": lane});
                if !kinds.is_empty() {
                    body["kinds"] = json!(kinds);
                }
                if let Some(max) = self.options.max_cost {
                    body["max_cost"] = json!(max);
                }
                native_response(&self.ask(self.post("/v1/leases"), &body).await?)
            }
            Dialect::Synthia { capabilities } => {
                let max_units = self.options.max_cost;
                let body = json!({"worker_id": worker, "capabilities": capabilities, "max_units": max_units});
                synthia_response(&self.ask(self.post("/api/system/scheduler/leases/request"), &body).await?)
            }
        }
    }

    /// Sends a heartbeat.
    pub(super) async fn beat(&self, lease: &str) -> Result<Beat, PullError> {
        let answer = self.ask(self.about(lease, "heartbeat"), &self.with_worker()).await?;
        let stop = answer["stop"].as_bool().unwrap_or(false);
        Ok(if stop { Beat::Stop } else { Beat::Alive { ttl: ttl_of(&answer) } })
    }

    /// Reports progress.
    pub(super) async fn report(&self, lease: &str, progress: f64, message: &str) -> Result<(), PullError> {
        let mut body = self.with_worker();
        (body["progress"], body["message"]) = (json!(progress), json!(message));
        self.ask(self.about(lease, "report"), &body).await.map(drop)
    }

    /// Reports the outcome.
    pub(super) async fn complete(
        &self,
        lease: &str,
        outcome: &PullOutcome,
    ) -> Result<OutcomeResponse, PullError> {
        let mut body = self.with_worker();
        let verb = match &self.options.dialect {
            Dialect::Native { .. } => {
                match outcome {
                    PullOutcome::Succeeded(result) => {
                        body["outcome"] = json!("succeeded");
                        if let Some(result) = result {
                            body["result"] = result.clone();
                        }
                    }
                    PullOutcome::Failed(message) => {
                        (body["outcome"], body["error"]) = (json!("failed"), json!({"message": message}));
                    }
                }
                "release"
            }
            Dialect::Synthia { .. } => {
                match outcome {
                    PullOutcome::Succeeded(result) => {
                        (body["status"], body["result"]) = (json!("completed"), json!(result));
                    }
                    PullOutcome::Failed(message) => {
                        (body["status"], body["error"]) = (json!("failed"), json!(message));
                    }
                }
                "complete"
            }
        };
        match self.ask(self.about(lease, verb), &body).await {
            Ok(_) => Ok(OutcomeResponse::Accepted),
            Err(PullError::Rejected { status: 403 | 404, .. }) => Ok(OutcomeResponse::Gone),
            Err(error) => Err(error),
        }
    }

    /// Reports that a job which was asked to stop has ended, where the API has a call for that. Otherwise the
    /// lease expires.
    pub(super) async fn report_stopped(&self, lease: &str) {
        if let Dialect::Native { .. } = self.options.dialect {
            let mut body = self.with_worker();
            body["outcome"] = json!("canceled");
            drop(self.ask(self.about(lease, "release"), &body).await);
        }
    }

    /// A body with the name of the worker.
    fn with_worker(&self) -> Value {
        match self.options.dialect {
            Dialect::Native { .. } => json!({"worker": self.options.worker}),
            Dialect::Synthia { .. } => json!({"worker_id": self.options.worker}),
        }
    }

    fn about(&self, lease: &str, verb: &str) -> RequestBuilder {
        let base = match self.options.dialect {
            Dialect::Native { .. } => "/v1/leases",
            Dialect::Synthia { .. } => "/api/system/scheduler/leases",
        };
        self.post(&format!("{base}/{lease}/{verb}"))
    }

    fn post(&self, path: &str) -> RequestBuilder {
        let request = self.http.post(format!("{}{path}", self.options.url.trim_end_matches('/')));
        match &self.options.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn ask(&self, request: RequestBuilder, body: &Value) -> Result<Value, PullError> {
        let mut response = request.json(body).send().await.map_err(PullError::Unreachable)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(PullError::Unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > RESPONSE_LEN_MAX {
                return Err(PullError::InvalidResponse(format!("it has more than {RESPONSE_LEN_MAX} bytes")));
            }
        }
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let body: Result<Value, _> = serde_json::from_slice(&bytes);
        if !status.is_success() {
            let detail = body.map(|body| body["detail"].as_str().map_or(body.to_string(), str::to_owned));
            let detail = detail.unwrap_or_default();
            return Err(PullError::Rejected { status: status.as_u16(), detail });
        }
        body.map_err(|error| PullError::InvalidResponse(error.to_string()))
    }
}

fn native_response(answer: &Value) -> Result<WorkResponse, PullError> {
    if answer["granted"] == true {
        let lease = &answer["lease"];
        let optional = |field: &str| answer[field].as_str().map(str::to_owned);
        return Ok(WorkResponse::Granted(Box::new(Work {
            job: text(lease, "job")?,
            lease: text(lease, "id")?,
            kind: text(lease, "kind")?,
            payload: answer["payload"].clone(),
            traceparent: optional("traceparent"),
            tracestate: optional("tracestate"),
            ttl: ttl_of(answer).unwrap_or(TTL_DEFAULT),
        })));
    }
    let retry_after = Duration::from_millis(answer["retry_after_ms"].as_u64().unwrap_or(1_500));
    Ok(WorkResponse::Denied { reason: text(answer, "message")?, retry_after })
}

fn synthia_response(answer: &Value) -> Result<WorkResponse, PullError> {
    if answer["denied"] == false {
        let (lease, job) = (&answer["lease"], &answer["job"]);
        return Ok(WorkResponse::Granted(Box::new(Work {
            job: text(lease, "job_id")?,
            lease: text(lease, "lease_id")?,
            kind: job["type"].as_str().or(job["job_type"].as_str()).unwrap_or_default().to_owned(),
            payload: job["payload"].clone(),
            traceparent: None,
            tracestate: None,
            ttl: ttl_of(answer).unwrap_or(TTL_DEFAULT),
        })));
    }
    let retry_after = Duration::from_millis(answer["retry_after_ms"].as_u64().unwrap_or(1_500));
    Ok(WorkResponse::Denied { reason: text(answer, "reason")?, retry_after })
}

fn ttl_of(answer: &Value) -> Option<Duration> {
    let ttl = answer["ttl_ms"].as_u64().filter(|ms| *ms > 0).map(Duration::from_millis);
    ttl.or_else(|| answer["lease_ttl_sec"].as_u64().filter(|sec| *sec > 0).map(Duration::from_secs))
}

fn text(object: &Value, field: &str) -> Result<String, PullError> {
    let text = object[field].as_str().map(str::to_owned);
    text.ok_or_else(|| PullError::InvalidResponse(format!("it has no {field}")))
}
