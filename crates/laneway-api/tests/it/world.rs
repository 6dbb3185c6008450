//! A server for tests: real sockets, a manual clock, and a client that records dialogues.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_api::{Api, mint, serve};
use laneway_browser::{BROWSERS, Browsers, INSTANCES};
use laneway_compat::agent_turn::is_allowed;
use laneway_core::{Mono, Name, Now, Origin, Role, Seed, Wall};
use laneway_runtime::config::{Layers, Overrides, Schema};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Clock, Handlers, Options, Running, Scheduler};
use laneway_store::{SqliteOptions, SqliteStore, Store};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::test_store::test_store;

/// The start time of every test: 2023-11-14T22:13:20Z.
pub const START: Now = Now { mono: Mono(1_000), wall: Wall(1_700_000_000_000) };

/// A server and a client.
pub struct World {
    pub api: Api,
    pub scheduler: Scheduler,
    pub clock: Clock,
    pub address: SocketAddr,
    pub client: Client,
    pub shutdown: CancellationToken,
    token: Option<String>,
    running: Running,
    serving: JoinHandle<std::io::Result<()>>,
}

impl World {
    /// A server with a store in memory and the default configuration.
    pub async fn new() -> World {
        World::with_config("").await
    }

    /// The same with a configuration, written as TOML.
    pub async fn with_config(toml: &str) -> World {
        World::over(test_store(), toml).await
    }

    /// A server with SQLite in `dir`.
    pub async fn in_dir(dir: &Path) -> World {
        World::over(Box::new(SqliteStore::open(dir, SqliteOptions::default()).unwrap()), "").await
    }

    /// A server with browsers whose profiles are in `dir`. There is no Chromium.
    pub async fn with_browsers(dir: &Path) -> World {
        let world = World::with_config("[browsers]\nchromium = \"/nowhere/chromium\"\n").await;
        let (scheduler, live) = (&world.scheduler, world.api.config());
        let browsers = Browsers::start(scheduler, live, Some(dir), None).await.unwrap();
        world.api.serve_browsers(browsers);
        world
    }

    /// A server with one token of a server-wide admin, which the client sends.
    pub async fn closed() -> World {
        let mut world = World::new().await;
        world.close().await;
        world
    }

    /// Creates a token of a server-wide admin, which the client sends from now on.
    pub async fn close(&mut self) {
        self.token = Some(self.token(None, Role::Admin).await);
    }

    /// A server with any store.
    pub async fn over(store: Box<dyn Store>, toml: &str) -> World {
        World::around(start_api(store, toml)).await
    }

    /// A server that keeps only so many events in memory.
    pub async fn with_ring(events_len_max: usize) -> World {
        let adjust = |options: &mut Options| options.events_len_max = events_len_max;
        World::around(start_api_with(test_store(), "", adjust)).await
    }

    async fn around((api, scheduler, clock, running): (Api, Scheduler, Clock, Running)) -> World {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, api.clone(), shutdown.clone()));
        let client = Client::builder().no_proxy().build().unwrap();
        World { api, scheduler, clock, address, client, shutdown, token: None, running, serving }
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(self) {
        let World { api, scheduler, client, shutdown, running, serving, .. } = self;
        shutdown.cancel();
        serving.await.unwrap().unwrap();
        drop((api, client));
        scheduler.drain(Duration::from_secs(5)).await.unwrap();
        drop(scheduler);
        running.ended().await.unwrap();
    }

    /// Creates a token without the API.
    pub async fn token(&self, tenant: Option<&'static str>, role: Role) -> String {
        let (record, text) = mint(tenant.map(Name::fixed), role, "", START.wall, None).unwrap();
        self.scheduler.put_token(record, Origin::server("test")).await.unwrap();
        text
    }

    /// Runs these handlers.
    pub async fn run(&self, handlers: Handlers) {
        self.scheduler.run_here(Name::fixed("local"), handlers, 16).await.unwrap();
    }

    /// A request, with the world's token if it has one.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.client.request(method, format!("http://{}{path}", self.address));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// A request by the owner of `token`.
    pub fn request_as(&self, token: &str, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("http://{}{path}", self.address)).bearer_auth(token)
    }

    /// Sends a request and returns the whole response as text, without the parts that vary.
    pub async fn talk(&self, method: &str, path: &str, body: &str) -> String {
        write_down(self.request_json(method, path, body)).await
    }

    /// Sends a request that must fail and returns its problem in the short form of [`problem`].
    pub async fn problem(&self, method: &str, path: &str, body: &str) -> String {
        problem(self.request_json(method, path, body)).await
    }

    fn request_json(&self, method: &str, path: &str, body: &str) -> RequestBuilder {
        let request = self.request(method, path);
        if body.is_empty() {
            return request;
        }
        request.header("content-type", "application/json").body(body.to_owned())
    }

    /// Sends a request that must succeed and returns the JSON of the response.
    pub async fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, value) = answer(self.request(method, path).body(body.to_owned())).await;
        assert!(status.is_success(), "{method} {path}: {status} {value}");
        value
    }

    /// Submits a job and returns its id.
    pub async fn submit(&self, body: &str) -> String {
        self.ask("POST", "/v1/jobs", body).await["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a worker has this state.
    pub async fn worker_is(&self, worker: &str, standing: &str) {
        for _ in 0..6_000 {
            if self.ask("GET", &format!("/v1/workers/{worker}"), "").await["state"] == standing {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("worker {worker} never becomes {standing}");
    }

    /// Waits until the job has ended.
    pub async fn wait(&self, id: &str) {
        self.scheduler.wait(laneway_core::JobId::parse(id).unwrap()).await.unwrap();
    }
}

/// The API with a store and a manual clock.
pub fn start_api(store: Box<dyn Store>, toml: &str) -> (Api, Scheduler, Clock, Running) {
    start_api_with(store, toml, |_| ())
}

/// The sections of every dialect, the instances and the browsers.
pub fn schema() -> Arc<Schema> {
    Schema::new(&laneway_compat::SECTIONS, &[&INSTANCES], &[&BROWSERS])
}

/// The same with other options.
fn start_api_with(
    store: Box<dyn Store>,
    toml: &str,
    adjust: impl FnOnce(&mut Options),
) -> (Api, Scheduler, Clock, Running) {
    let layers = Layers::read(&schema(), None, [], toml.parse().unwrap()).unwrap();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let clock = Clock::manual(START);
    let mut options = Options::new(config.settings().clone());
    (options.clock, options.seed) = (clock.clone(), Some(Seed::from(7)));
    adjust(&mut options);
    let (scheduler, running) = Scheduler::start(store, options).unwrap();
    let live = LiveConfig::new(layers, Overrides::none(), config, scheduler.clone());
    (Api::new(scheduler.clone(), live, is_allowed).unwrap(), scheduler, clock, running)
}

/// The status and the JSON of the response.
pub async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The result of a call, how long it took, and the longest pause of another task on the same thread.
pub async fn with_pauses<T>(call: impl Future<Output = T>) -> (T, Duration, Duration) {
    let (began, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    tokio::pin!(call);
    loop {
        tokio::select! {
            done = &mut call => return (done, began.elapsed(), longest.max(last.elapsed())),
            _ = ticks.tick() => {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
        }
    }
}

/// The whole response as text.
pub async fn write_down(request: RequestBuilder) -> String {
    let response = request.send().await.unwrap();
    let mut text = format!("{}\n", response.status());
    for name in ["content-type", "location", "retry-after", "www-authenticate", "allow"] {
        if let Some(value) = response.headers().get(name) {
            writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
        }
    }
    let id = response.headers()["request-id"].to_str().unwrap().to_owned();
    let body = response.text().await.unwrap();
    match serde_json::from_str::<Value>(&body) {
        Ok(value) => writeln!(text, "{value:#}").unwrap(),
        Err(_) => text.push_str(&body),
    }
    without_ids(&text.replace(&id, "<request>"))
}

/// The problem of a response, in short: status, code and title, then field, headers and detail. The members that
/// follow from these are checked here, and there are no others.
pub async fn problem(request: RequestBuilder) -> String {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(header("content-type"), Some("application/problem+json"));
    let mut members: Map<String, Value> = response.json().await.unwrap();
    let mut text = |name: &str| members.remove(name).map(|value| value.as_str().unwrap().to_owned());
    let (code, title, detail) = (text("code").unwrap(), text("title").unwrap(), text("detail").unwrap());
    let mut short = format!("{status} {code}: {title}\n");
    if let Some(field) = text("field") {
        writeln!(short, "  field: {field}").unwrap();
    }
    for name in ["retry-after", "www-authenticate", "allow"] {
        if let Some(value) = header(name) {
            writeln!(short, "  {name}: {value}").unwrap();
        }
    }
    let mut derived = json!({"request_id": header("request-id"), "status": status, "type": format!("urn:laneway:problem:{code}")});
    if let Some(seconds) = header("retry-after") {
        derived["retry_after_ms"] = json!(seconds.parse::<u64>().unwrap() * 1_000);
    }
    assert_eq!(Value::Object(members), derived);
    without_ids(&format!("{short}  {detail}\n"))
}

/// The text with every UUID as `<id>`.
pub fn without_ids(text: &str) -> String {
    let is_id = |part: &str| {
        part.len() == 36
            && part.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let (mut out, mut at) = (String::new(), 0);
    while at < text.len() {
        match text.get(at..at + 36) {
            Some(part) if is_id(part) => {
                out.push_str("<id>");
                at += 36;
            }
            _ => {
                let next = text[at..].chars().next().unwrap();
                out.push(next);
                at += next.len_utf8();
            }
        }
    }
    out
}
