//! Instances for tests: real HTTP servers with tabs, which record their calls.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::world::PATIENCE;

/// A call that an instance got.
#[derive(Clone, Debug)]
pub struct Call {
    pub tab: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Call {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// An instance.
pub struct Instance {
    pub address: SocketAddr,
    /// Lets one call after the other continue, for instances that hold them.
    pub release: Arc<Semaphore>,
    calls: Mutex<mpsc::Receiver<Call>>,
    lists: Arc<std::sync::atomic::AtomicUsize>,
}

/// How an instance answers.
type Answer = Arc<dyn Fn(&Call) -> Response + Send + Sync>;

#[derive(Clone)]
struct Inside {
    tabs: Arc<std::sync::Mutex<Value>>,
    answer: Answer,
    calls: mpsc::Sender<Call>,
    release: Option<Arc<Semaphore>>,
    lists: Arc<std::sync::atomic::AtomicUsize>,
}

impl Instance {
    /// Answers every action at once with its request.
    pub async fn echo(tabs: &[&str]) -> Instance {
        Instance::start(tabs, false, |call| {
            Json(json!({"success": true, "did": call.body, "tab": call.tab})).into_response()
        })
        .await
    }

    /// The same, but every call waits for a permit of `release`.
    pub async fn holding(tabs: &[&str]) -> Instance {
        Instance::start(tabs, true, |_| Json(json!({"success": true})).into_response()).await
    }

    /// Answers with a function.
    pub async fn answering(answer: impl Fn(&Call) -> Response + Send + Sync + 'static) -> Instance {
        Instance::start(&["t1"], false, answer).await
    }

    async fn start(
        tabs: &[&str],
        holds: bool,
        answer: impl Fn(&Call) -> Response + Send + Sync + 'static,
    ) -> Instance {
        let (calls, seen) = mpsc::channel(1_000);
        let release = Arc::new(Semaphore::new(0));
        let lists = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let tabs: Vec<Value> = tabs.iter().map(|tab| json!({"id": tab})).collect();
        let inside = Inside {
            tabs: Arc::new(std::sync::Mutex::new(json!({ "tabs": tabs }))),
            answer: Arc::new(answer),
            calls,
            release: holds.then(|| Arc::clone(&release)),
            lists: Arc::clone(&lists),
        };
        let app =
            Router::new().route("/tabs", get(list)).route("/tabs/{tab}/action", post(act)).with_state(inside);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Instance { address, release, calls: Mutex::new(seen), lists }
    }

    /// The next call.
    pub async fn call(&self) -> Call {
        let mut calls = self.calls.lock().await;
        tokio::time::timeout(PATIENCE, calls.recv()).await.expect("no call comes").unwrap()
    }

    /// True when no call waits.
    pub async fn is_quiet(&self) -> bool {
        self.calls.lock().await.is_empty()
    }

    /// How often its tabs were listed.
    pub fn lists(&self) -> usize {
        self.lists.load(std::sync::atomic::Ordering::SeqCst)
    }
}

async fn list(State(inside): State<Inside>) -> Json<Value> {
    inside.lists.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    Json(inside.tabs.lock().unwrap().clone())
}

async fn act(
    State(inside): State<Inside>,
    Path(tab): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let call = Call { tab, headers, body };
    inside.calls.send(call.clone()).await.unwrap();
    if let Some(release) = &inside.release {
        release.acquire().await.unwrap().forget();
    }
    (inside.answer)(&call)
}
