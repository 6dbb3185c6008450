//! The calls of a worker that asks, in the words of the native API or of the dialect `synthia`.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use thiserror::Error;

use super::{PullOptions, PullOutcome};

/// Longest answer that is read, in bytes: a payload and what stands around it.
const ANSWER_MAX: usize = 8 << 20;
/// How long a lease lives where the server does not say.
const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// In which words a worker asks, and for which jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `/v1/leases`: the next job of a lane whose workers ask.
    Native {
        /// The lane.
        lane: String,
        /// Only jobs of these kinds; empty: of any.
        kinds: Vec<String>,
    },
    /// `/api/system/scheduler/leases`: the next base job.
    Synthia {
        /// What the worker can do; shown to the server, which does not look at it.
        capabilities: Vec<String>,
    },
}

/// Why a call brought nothing.
#[derive(Debug, Error)]
pub enum PullError {
    /// The server was not reached, or broke off.
    #[error("the server does not answer: {0}")]
    Unreachable(#[source] reqwest::Error),
    /// The server did not want it.
    #[error("the server answers {status}: {detail}")]
    Refused {
        /// Its status.
        status: u16,
        /// What it said.
        detail: String,
    },
    /// The answer is not one of these calls.
    #[error("the answer makes no sense: {0}")]
    Nonsense(String),
}

impl PullError {
    /// True when the same call may work in a moment.
    pub fn is_passing(&self) -> bool {
        match self {
            PullError::Unreachable(_) => true,
            PullError::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            PullError::Nonsense(_) => false,
        }
    }
}

/// The answer to a worker that asks for work.
pub(super) enum Asked {
    Granted { job: String, lease: String, kind: String, payload: Value, ttl: Duration },
    Denied { reason: String, retry_after: Duration },
}

/// The answer to a heartbeat.
pub(super) enum Beat {
    Alive { ttl: Option<Duration> },
    Stop,
}

/// The answer to the end of a run.
pub(super) enum Said {
    Taken,
    Gone,
}

/// The calls.
pub(super) struct Api {
    http: Client,
    options: PullOptions,
}

impl Api {
    pub(super) fn new(options: PullOptions) -> Result<Api, PullError> {
        let http = Client::builder().no_proxy().timeout(options.call_timeout).build();
        Ok(Api { http: http.map_err(PullError::Unreachable)?, options })
    }

    /// Asks for work.
    pub(super) async fn request(&self) -> Result<Asked, PullError> {
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
                native_asked(&self.ask(self.post("/v1/leases"), &body).await?)
            }
            Dialect::Synthia { capabilities } => {
                let max_units = self.options.max_cost;
                let body = json!({"worker_id": worker, "capabilities": capabilities, "max_units": max_units});
                synthia_asked(&self.ask(self.post("/api/system/scheduler/leases/request"), &body).await?)
            }
        }
    }

    /// Says that a run lives.
    pub(super) async fn beat(&self, lease: &str) -> Result<Beat, PullError> {
        let answer = self.ask(self.about(lease, "heartbeat"), &self.signed()).await?;
        let stop = answer["stop"].as_bool().unwrap_or(false);
        Ok(if stop { Beat::Stop } else { Beat::Alive { ttl: ttl_of(&answer) } })
    }

    /// Says how far a run is.
    pub(super) async fn report(&self, lease: &str, progress: f64, message: &str) -> Result<(), PullError> {
        let mut body = self.signed();
        (body["progress"], body["message"]) = (json!(progress), json!(message));
        self.ask(self.about(lease, "report"), &body).await.map(drop)
    }

    /// Says how a run ended.
    pub(super) async fn complete(&self, lease: &str, outcome: &PullOutcome) -> Result<Said, PullError> {
        let mut body = self.signed();
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
            Ok(_) => Ok(Said::Taken),
            Err(PullError::Refused { status: 403 | 404, .. }) => Ok(Said::Gone),
            Err(error) => Err(error),
        }
    }

    /// Says that a run which was told to stop has ended, where there is a word for it. The server finds out by itself
    /// otherwise.
    pub(super) async fn let_go(&self, lease: &str) {
        if let Dialect::Native { .. } = self.options.dialect {
            let mut body = self.signed();
            body["outcome"] = json!("canceled");
            drop(self.ask(self.about(lease, "release"), &body).await);
        }
    }

    /// A body that says who speaks.
    fn signed(&self) -> Value {
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
            if bytes.len() > ANSWER_MAX {
                return Err(PullError::Nonsense(format!("it has more than {ANSWER_MAX} bytes")));
            }
        }
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let said: Result<Value, _> = serde_json::from_slice(&bytes);
        if !status.is_success() {
            let detail = said.map(|said| said["detail"].as_str().map_or(said.to_string(), str::to_owned));
            let detail = detail.unwrap_or_default();
            return Err(PullError::Refused { status: status.as_u16(), detail });
        }
        said.map_err(|error| PullError::Nonsense(error.to_string()))
    }
}

fn native_asked(answer: &Value) -> Result<Asked, PullError> {
    if answer["granted"] == true {
        let lease = &answer["lease"];
        return Ok(Asked::Granted {
            job: text(lease, "job")?,
            lease: text(lease, "id")?,
            kind: text(lease, "kind")?,
            payload: answer["payload"].clone(),
            ttl: ttl_of(answer).unwrap_or(TTL_DEFAULT),
        });
    }
    let retry_after = Duration::from_millis(answer["retry_after_ms"].as_u64().unwrap_or(1_500));
    Ok(Asked::Denied { reason: text(answer, "message")?, retry_after })
}

fn synthia_asked(answer: &Value) -> Result<Asked, PullError> {
    if answer["denied"] == false {
        let (lease, job) = (&answer["lease"], &answer["job"]);
        return Ok(Asked::Granted {
            job: text(lease, "job_id")?,
            lease: text(lease, "lease_id")?,
            kind: job["type"].as_str().or(job["job_type"].as_str()).unwrap_or_default().to_owned(),
            payload: job["payload"].clone(),
            ttl: ttl_of(answer).unwrap_or(TTL_DEFAULT),
        });
    }
    let retry_after = Duration::from_millis(answer["retry_after_ms"].as_u64().unwrap_or(1_500));
    Ok(Asked::Denied { reason: text(answer, "reason")?, retry_after })
}

fn ttl_of(answer: &Value) -> Option<Duration> {
    let ttl = answer["ttl_ms"].as_u64().filter(|ms| *ms > 0).map(Duration::from_millis);
    ttl.or_else(|| answer["lease_ttl_sec"].as_u64().filter(|sec| *sec > 0).map(Duration::from_secs))
}

fn text(object: &Value, field: &str) -> Result<String, PullError> {
    let text = object[field].as_str().map(str::to_owned);
    text.ok_or_else(|| PullError::Nonsense(format!("it has no {field}")))
}
