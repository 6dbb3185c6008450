//! A small collector: it takes requests of OTLP over HTTP, and can be slow, full or broken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::otlp::{self, Metrics, Span};

/// The longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How the collector behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It takes everything.
    Well,
    /// It answers this many requests with this status.
    Answers(u16, u32),
    /// It never answers.
    Hangs,
}

#[derive(Default)]
struct Taken {
    spans: Vec<Span>,
    metrics: Vec<Metrics>,
    headers: Vec<HeaderMap>,
    /// Requests that could not be read.
    errors: Vec<String>,
}

/// The collector. It listens until the test ends.
#[derive(Clone)]
pub struct Collector {
    pub url: String,
    taken: Arc<Mutex<Taken>>,
    mood: Arc<Mutex<Mood>>,
    requests: watch::Sender<usize>,
}

impl Collector {
    pub async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (taken, mood) = (Arc::default(), Arc::new(Mutex::new(Mood::Well)));
        let collector = Collector { url, taken, mood, requests: watch::Sender::new(0) };
        let app = Router::new()
            .route("/v1/traces", post(take_traces))
            .route("/v1/metrics", post(take_metrics))
            .with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        collector
    }

    pub fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Requests that came, answered or not.
    pub fn requests(&self) -> usize {
        *self.requests.borrow()
    }

    /// Waits until this many requests have come.
    pub async fn requests_until(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        let came = requests.wait_for(|came| *came >= count);
        tokio::time::timeout(PATIENCE, came).await.expect("requests come").unwrap();
    }

    /// A header of the last request.
    pub fn header(&self, name: &str) -> Option<String> {
        let taken = self.taken.lock().unwrap();
        Some(taken.headers.last()?.get(name)?.to_str().unwrap().to_owned())
    }

    pub fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        assert_eq!(taken.errors, Vec::<String>::new(), "every request is right");
        taken.spans.clone()
    }

    /// The spans, once they are as `enough` says.
    pub async fn spans_until(&self, enough: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        self.until(|| Some(self.spans()).filter(|spans| enough(spans)), || format!("{:#?}", self.spans()))
            .await
    }

    /// The first metrics that are as `enough` says.
    pub async fn metrics_until(&self, enough: impl Fn(&Metrics) -> bool) -> Metrics {
        let find = || {
            let taken = self.taken.lock().unwrap();
            assert_eq!(taken.errors, Vec::<String>::new(), "every request is right");
            taken.metrics.iter().find(|metrics| enough(metrics)).cloned()
        };
        self.until(find, || format!("{:#?}", self.taken.lock().unwrap().metrics.last())).await
    }

    async fn until<T>(&self, find: impl Fn() -> Option<T>, shown: impl Fn() -> String) -> T {
        let mut requests = self.requests.subscribe();
        let search = async {
            loop {
                requests.borrow_and_update();
                if let Some(found) = find() {
                    return found;
                }
                requests.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, search).await.unwrap_or_else(|_| panic!("it never came: {}", shown()))
    }

    /// Takes a request down, as its mood allows.
    async fn take(
        &self,
        headers: HeaderMap,
        read: impl FnOnce(&mut Taken) -> Result<(), String>,
    ) -> Response {
        let mood = {
            let mut mood = self.mood.lock().unwrap();
            let now = *mood;
            if let Mood::Answers(status, left) = now {
                *mood = if left > 1 { Mood::Answers(status, left - 1) } else { Mood::Well };
            }
            now
        };
        let answer = match mood {
            Mood::Well => {
                let mut taken = self.taken.lock().unwrap();
                taken.headers.push(headers);
                match read(&mut taken) {
                    Ok(()) => StatusCode::OK.into_response(),
                    Err(error) => {
                        taken.errors.push(error);
                        StatusCode::BAD_REQUEST.into_response()
                    }
                }
            }
            Mood::Answers(status, _) => {
                (StatusCode::from_u16(status).unwrap(), [("retry-after", "0")]).into_response()
            }
            Mood::Hangs => {
                self.requests.send_modify(|count| *count += 1);
                std::future::pending().await
            }
        };
        self.requests.send_modify(|count| *count += 1);
        answer
    }
}

async fn take_traces(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Response {
    collector
        .take(headers, |taken| {
            taken.spans.extend(otlp::traces(&body)?);
            Ok(())
        })
        .await
}

async fn take_metrics(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Response {
    collector
        .take(headers, |taken| {
            taken.metrics.push(otlp::metrics(&body)?);
            Ok(())
        })
        .await
}
