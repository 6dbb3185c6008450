//! One request to the collector, and what its answer means.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};

use super::otlp;
use super::settings::OtelSettings;
use crate::executors::cut;
use crate::executors::http::HttpError;

/// How long a collector may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const ANSWER_MAX: usize = 64 << 10;
/// Longest text about what went wrong, in bytes.
const WHY_MAX: usize = 300;

/// Spans or metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The collector has it, except for this many items, for this reason.
    Accepted { rejected: u64, why: String },
    /// It may be sent again, not before this time where the collector names one.
    TryAgain { after: Option<Duration>, why: String },
    /// It must not be sent again.
    Failed { why: String },
}

/// Where requests go.
pub(super) struct Collector {
    client: Client,
    traces: Url,
    metrics: Url,
    headers: HeaderMap,
}

impl Collector {
    pub(super) fn new(settings: &OtelSettings, endpoint: &Url) -> Result<Collector, HttpError> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.timeout)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("laneway/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        for (name, value) in &settings.headers {
            if let (Ok(name), Ok(mut value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value.reveal()))
            {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        let (traces, metrics) = (below(endpoint, "v1/traces"), below(endpoint, "v1/metrics"));
        Ok(Collector { client, traces, metrics, headers })
    }

    /// Sends one request.
    pub(super) async fn post(&self, signal: Signal, body: Vec<u8>) -> Sent {
        let url = match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
        };
        let sent = self.client.post(url.clone()).headers(self.headers.clone()).body(body).send().await;
        let response = match sent {
            Ok(response) => response,
            // Without the address: it may contain a secret.
            Err(error) => return Sent::TryAgain { after: None, why: why(&error.without_url()) },
        };
        let status = response.status();
        let after = retry_after(response.headers());
        match status {
            _ if status.is_success() => {
                let (rejected, why) = otlp::rejected(&answer(response).await).unwrap_or_default();
                Sent::Accepted { rejected, why: cut(&why, WHY_MAX).to_owned() }
            }
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Sent::TryAgain { after, why: format!("it answered {status}") },
            _ => Sent::Failed { why: format!("it answered {status}") },
        }
    }
}

/// A path below the endpoint, which may have a path of its own.
fn below(endpoint: &Url, path: &str) -> Url {
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/{path}", endpoint.path().trim_end_matches('/')));
    url
}

/// The wait in seconds that the collector asks for. A date is not read: the wait is bounded anyway.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn answer(mut response: reqwest::Response) -> Vec<u8> {
    let mut answer = Vec::new();
    while answer.len() < ANSWER_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        answer.extend_from_slice(&chunk);
    }
    answer
}

/// The error with its causes.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    cut(&text, WHY_MAX).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_endpoint() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otel.example/in/", "https://otel.example/in/v1/traces"),
            ("https://otel.example/in?x=1", "https://otel.example/in/v1/traces?x=1"),
        ] {
            assert_eq!(below(&Url::parse(endpoint).unwrap(), "v1/traces").as_str(), expected);
        }
    }
}
