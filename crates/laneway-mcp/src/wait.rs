//! Waits for the end of a job in short requests, and reports progress in between.
//!
//! One request of the API waits for at most a minute, and a server that needs the connection for another caller answers sooner.

use std::time::Duration;

use axum::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::time::{Instant, sleep};

use crate::answer;
use crate::api::{ApiClient, ApiRequest, ApiResponse, Unanswered, escape};

/// How long one request waits.
const SLICE: Duration = Duration::from_secs(30);
/// How long one request waits when the client wants to see progress.
const SLICE_WITH_PROGRESS: Duration = Duration::from_secs(2);
/// The pause after a request that was answered before its time, although the job goes on.
const PAUSE: Duration = Duration::from_secs(1);

/// Where progress is reported to.
pub struct Progress<'a> {
    /// The client.
    pub peer: &'a Peer<RoleServer>,
    /// The token of its call.
    pub token: ProgressToken,
}

/// The job when it has ended, or as it is after `limit`.
pub async fn for_job(
    api: &dyn ApiClient,
    http: Option<&Parts>,
    id: &str,
    limit: Duration,
    progress: Option<Progress<'_>>,
) -> Result<ApiResponse, Unanswered> {
    let began = Instant::now();
    let slice = if progress.is_some() { SLICE_WITH_PROGRESS } else { SLICE };
    loop {
        let asked = Instant::now();
        let left = limit.saturating_sub(asked - began);
        let wait = slice.min(left);
        let path = format!("/v1/jobs/{}?wait={}ms", escape(id), wait.as_millis());
        let response = api.call(ApiRequest::get(path), http).await?;
        let Some(job) = answer::job_in(&response) else { return Ok(response) };
        if answer::has_ended(&job.state) || began.elapsed() >= limit {
            return Ok(response);
        }
        if let Some(progress) = &progress {
            progress.report(began.elapsed(), answer::sentence(&job)).await;
        }
        if asked.elapsed() < wait / 2 {
            sleep(PAUSE.min(limit.saturating_sub(began.elapsed()))).await;
        }
    }
}

impl Progress<'_> {
    /// Reports the time of the wait: the protocol requires a number that grows, and the progress of a job may stand still.
    async fn report(&self, waited: Duration, message: String) {
        let report =
            ProgressNotificationParam::new(self.token.clone(), waited.as_secs_f64()).with_message(message);
        if let Err(error) = self.peer.notify_progress(report).await {
            tracing::debug!(%error, "a client does not take progress");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::Answering;

    /// Answers with these states in turn, the last one for ever, and keeps the paths.
    struct Script {
        states: Vec<&'static str>,
        takes_time: bool,
        paths: Mutex<Vec<String>>,
    }

    impl Script {
        fn new(states: &[&'static str], takes_time: bool) -> Script {
            Script { states: states.to_vec(), takes_time, paths: Mutex::default() }
        }

        fn asked(&self) -> usize {
            self.paths.lock().unwrap().len()
        }
    }

    impl ApiClient for Script {
        fn call<'a>(&'a self, request: ApiRequest, _: Option<&'a Parts>) -> Answering<'a> {
            Box::pin(async move {
                let asked = self.asked();
                let state = self.states[asked.min(self.states.len() - 1)];
                let wait =
                    request.path.split_once("wait=").unwrap().1.trim_end_matches("ms").parse().unwrap();
                self.paths.lock().unwrap().push(request.path);
                if self.takes_time && !answer::has_ended(state) {
                    sleep(Duration::from_millis(wait)).await;
                }
                let body = json!({
                    "id": "a", "state": state, "kind": "echo", "agent": "a", "lane": "main", "tenant": "t", "priority": 0,
                    "attempt": 1, "failures": 0, "losses": 0, "created_at": "2030-01-01T08:00:00Z",
                });
                Ok(ApiResponse { status: 200, body: body.to_string().into_bytes() })
            })
        }
    }

    async fn wait(script: &Script, limit: u64) -> (String, Duration) {
        let began = Instant::now();
        let response = for_job(script, None, "a b", Duration::from_secs(limit), None).await.unwrap();
        let job: Value = serde_json::from_slice(&response.body).unwrap();
        (job["state"].as_str().unwrap().to_owned(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_in_slices_until_the_job_has_ended() {
        let script = Script::new(&["queued", "running", "succeeded"], true);
        assert_eq!(wait(&script, 3600).await, ("succeeded".to_owned(), Duration::from_secs(60)));
        assert_eq!(script.paths.lock().unwrap()[0], "/v1/jobs/a%20b?wait=30000ms");
        assert_eq!(script.asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn it_returns_the_job_as_it_is_when_the_time_is_over() {
        let script = Script::new(&["running"], true);
        assert_eq!(wait(&script, 45).await, ("running".to_owned(), Duration::from_secs(45)));
        assert_eq!(script.paths.lock().unwrap()[1], "/v1/jobs/a%20b?wait=15000ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_at_once_is_not_asked_without_pause() {
        let script = Script::new(&["running"], false);
        let (state, waited) = wait(&script, 10).await;
        assert_eq!((state.as_str(), waited), ("running", Duration::from_secs(10)));
        assert!(script.asked() <= 11, "{} requests in ten seconds", script.asked());
    }
}
