//! A server to talk to: real sockets, a clock that stands still, and a client that writes dialogues down.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use laneway_api::{Api, mint, serve};
use laneway_core::{Mono, Name, Now, Origin, Role, Seed, Wall};
use laneway_runtime::config::{Layers, Overrides};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Clock, Handlers, Options, Running, Scheduler};
use laneway_store::{MemoryStore, SqliteOptions, SqliteStore, Store};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// When every test begins: 2023-11-14T22:13:20Z.
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
    /// A server over a store in memory, with what the embedded defaults say.
    pub async fn new() -> World {
        World::with_config("").await
    }

    /// The same with a configuration, written as TOML.
    pub async fn with_config(toml: &str) -> World {
        World::over(Box::new(MemoryStore::new()), toml).await
    }

    /// A server over SQLite in `dir`.
    pub async fn in_dir(dir: &Path) -> World {
        World::over(Box::new(SqliteStore::open(dir, SqliteOptions::default()).unwrap()), "").await
    }

    /// A server with one token, a server-wide admin's, which the client sends.
    pub async fn closed() -> World {
        let mut world = World::new().await;
        world.close().await;
        world
    }

    /// Makes a token, a server-wide admin's, which the client sends from now on.
    pub async fn close(&mut self) {
        self.token = Some(self.token(None, Role::Admin).await);
    }

    /// A server over any store.
    pub async fn over(store: Box<dyn Store>, toml: &str) -> World {
        World::around(start_api(store, toml)).await
    }

    /// A server that keeps only so many events in memory.
    pub async fn with_ring(events_len_max: usize) -> World {
        let adjust = |options: &mut Options| options.events_len_max = events_len_max;
        World::around(start_api_with(Box::new(MemoryStore::new()), "", adjust)).await
    }

    async fn around((api, scheduler, clock, running): (Api, Scheduler, Clock, Running)) -> World {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, api.clone(), shutdown.clone()));
        let client = Client::builder().no_proxy().build().unwrap();
        World { api, scheduler, clock, address, client, shutdown, token: None, running, serving }
    }

    /// Stops the server and waits until nothing of it is left.
    pub async fn stop(self) {
        let World { api, scheduler, client, shutdown, running, serving, .. } = self;
        shutdown.cancel();
        serving.await.unwrap().unwrap();
        drop((api, client));
        scheduler.drain(Duration::from_secs(5)).await.unwrap();
        drop(scheduler);
        running.ended().await.unwrap();
    }

    /// Makes a token behind the API's back.
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

    /// Says something and gives the whole answer as text, with what differs from run to run left out.
    pub async fn talk(&self, method: &str, path: &str, body: &str) -> String {
        let mut request = self.request(method, path);
        if !body.is_empty() {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        write_down(request).await
    }

    /// Says something that must succeed and gives the JSON of the answer.
    pub async fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, value) = answer(self.request(method, path).body(body.to_owned())).await;
        assert!(status.is_success(), "{method} {path}: {status} {value}");
        value
    }

    /// Submits a job and gives its id.
    pub async fn submit(&self, body: &str) -> String {
        self.ask("POST", "/v1/jobs", body).await["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a worker stands so.
    pub async fn worker_is(&self, worker: &str, standing: &str) {
        for _ in 0..6_000 {
            if self.ask("GET", &format!("/v1/workers/{worker}"), "").await["state"] == standing {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("worker {worker} never is {standing}");
    }

    /// Waits until the job has ended.
    pub async fn wait(&self, id: &str) {
        self.scheduler.wait(laneway_core::JobId::parse(id).unwrap()).await.unwrap();
    }
}

/// The API over a store, on a clock that stands still.
pub fn start_api(store: Box<dyn Store>, toml: &str) -> (Api, Scheduler, Clock, Running) {
    start_api_with(store, toml, |_| ())
}

/// The same, with a say in the options.
fn start_api_with(
    store: Box<dyn Store>,
    toml: &str,
    adjust: impl FnOnce(&mut Options),
) -> (Api, Scheduler, Clock, Running) {
    let layers = Layers::read(None, [], toml.parse().unwrap()).unwrap();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let clock = Clock::manual(START);
    let mut options = Options::new(config.settings().clone());
    (options.clock, options.seed) = (clock.clone(), Some(Seed::from(7)));
    adjust(&mut options);
    let (scheduler, running) = Scheduler::start(store, options).unwrap();
    let live = LiveConfig::new(layers, Overrides::none(), config, scheduler.clone());
    (Api::new(scheduler.clone(), live).unwrap(), scheduler, clock, running)
}

/// The status and the JSON of the answer.
pub async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The whole answer as text.
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
