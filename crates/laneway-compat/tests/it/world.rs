//! A server with the dialects on a free port, and a client.

use laneway_core::command::AdminCommand;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_api::{Api, mint, router_with, serve_app};
use laneway_browser::{BROWSERS, Browsers, INSTANCES, InstancePatch, Tabs, instances};
use laneway_compat::agent_turn::is_allowed;
use laneway_core::{
    Command, JobId, LoadReading, Mono, Name, Now, Origin, QuietState, Role, Seed, Span, Wall,
};
use laneway_runtime::caller::Right;
use laneway_runtime::config::{Layers, Schema};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Clock, Options, Running, Scheduler};
use laneway_store::Store;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::test_store::test_store;

/// The start of every test with a manual clock: 2023-11-14T22:13:20Z.
pub const START: Now = Now { mono: Mono(1_000), wall: Wall(1_700_000_000_000) };
/// The time limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server and a client.
pub struct World {
    pub scheduler: Scheduler,
    pub live: LiveConfig,
    pub clock: Clock,
    pub address: SocketAddr,
    pub client: Client,
    pub running: Running,
    /// Every route of a dialect that is called by GET: its operation, and the right that it needs.
    pub gets: Vec<(&'static str, Right)>,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
    /// The directory of browser profiles.
    _dir: TempDir,
}

impl World {
    /// A server over a store in memory, with a manual clock.
    pub async fn new(toml: &str) -> World {
        World::over(test_store(), toml, Clock::manual(START)).await
    }

    /// The same in real time.
    pub async fn in_real_time(toml: &str) -> World {
        World::over(test_store(), toml, Clock::system()).await
    }

    /// A server that keeps only this many events in memory.
    pub async fn with_ring(toml: &str, events_len_max: usize) -> World {
        let adjust = |options: &mut Options| options.events_len_max = events_len_max;
        World::adjusted(test_store(), toml, Clock::system(), adjust).await
    }

    /// A server over any store and clock.
    pub async fn over(store: Box<dyn Store>, toml: &str, clock: Clock) -> World {
        World::adjusted(store, toml, clock, |_| ()).await
    }

    async fn adjusted(
        mut store: Box<dyn Store>,
        toml: &str,
        clock: Clock,
        adjust: impl FnOnce(&mut Options),
    ) -> World {
        let layers = Layers::read(&schema(), None, [], toml.parse().unwrap()).unwrap();
        let stored = store.overrides().unwrap();
        let (config, overrides, left_out) = layers.resolve_stored(stored.as_ref()).unwrap();
        assert!(left_out.is_empty(), "{left_out:?}");
        let mut options = Options::new(config.settings().clone());
        (options.clock, options.seed) = (clock.clone(), Some(Seed::from(7)));
        adjust(&mut options);
        let (scheduler, running) = Scheduler::start(store, options).unwrap();
        let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
        let dir = tempfile::tempdir().unwrap();
        let browsers = Browsers::start(&scheduler, &live, Some(dir.path()), None).await.unwrap();
        let tabs = Tabs::new(&live).unwrap();
        scheduler
            .run_here(Name::fixed("tabs"), tabs.handlers(laneway_compat::pinchtab::action_text), 64)
            .await
            .unwrap();
        let api = Api::new(scheduler.clone(), live.clone(), is_allowed).unwrap();
        let pinchtab = laneway_compat::pinchtab::dialect(scheduler.clone(), live.clone(), tabs);
        let astraflow = laneway_compat::astraflow::dialect(scheduler.clone(), live.clone());
        let synthia = laneway_compat::synthia::dialect(scheduler.clone(), &live);
        let browser_manager =
            laneway_compat::browser_manager::dialect(scheduler.clone(), live.clone(), browsers);
        let dialects = vec![pinchtab, synthia, astraflow, browser_manager];
        let gets = dialects.iter().flat_map(|dialect| &dialect.routes).filter(|route| route.method == "GET");
        let gets = gets.map(|route| (route.operation, route.right)).collect();
        let app = router_with(api.clone(), dialects).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve_app(listener, app, api, shutdown.clone()));
        let client = Client::builder().no_proxy().build().unwrap();
        World { scheduler, live, clock, address, client, running, gets, shutdown, serving, _dir: dir }
    }

    /// Stops within `limit` and waits until the server has stopped.
    pub async fn stop(self, limit: Duration) {
        let World { scheduler, live, client, shutdown, serving, running, .. } = self;
        scheduler.drain(limit).await.unwrap();
        shutdown.cancel();
        serving.await.unwrap().unwrap();
        drop((live, client, scheduler));
        running.ended().await.unwrap();
    }

    /// Ends like a crash: the store is closed while the attempt is open.
    pub async fn die(self) {
        let World { scheduler, live, client, shutdown, serving, running, .. } = self;
        shutdown.cancel();
        serving.await.unwrap().unwrap();
        drop((live, client, scheduler));
        running.ended().await.unwrap();
    }

    /// Creates a token without the API.
    pub async fn token(&self, tenant: Option<&'static str>, role: Role) -> String {
        let (record, text) = mint(tenant.map(Name::fixed), role, "", START.wall, None).unwrap();
        self.scheduler.put_token(record, Origin::server("test")).await.unwrap();
        text
    }

    /// A request.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// The status and the JSON of an answer.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = answer(self.request(method, path).body(body)).await;
        (status.as_u16(), answer)
    }

    /// Submits a task that must be accepted, and returns its id.
    pub async fn submit(&self, task: Value) -> String {
        let (status, answer) = self.ask("POST", "/tasks", &task).await;
        assert_eq!(status, 202, "{answer}");
        answer["taskId"].as_str().unwrap().to_owned()
    }

    /// Shows a task.
    pub async fn task(&self, id: &str) -> Value {
        let (status, task) = self.ask("GET", &format!("/tasks/{id}"), &Value::Null).await;
        assert_eq!(status, 200, "{task}");
        task
    }

    /// Waits until the task has ended, and shows it.
    pub async fn ended(&self, id: &str) -> Value {
        let job = JobId::parse(id.strip_prefix("tsk_").unwrap()).unwrap();
        tokio::time::timeout(PATIENCE, self.scheduler.wait(job)).await.expect("the task never ends").unwrap();
        self.task(id).await
    }

    /// The current statistics.
    pub async fn stats(&self) -> Value {
        let (status, stats) = self.ask("GET", "/scheduler/stats", &Value::Null).await;
        assert_eq!(status, 200, "{stats}");
        stats
    }

    /// Adds an instance without the API.
    pub async fn put_instance(&self, id: &'static str, address: SocketAddr, tabs: &[&str]) {
        let patch = InstancePatch {
            url: Some(format!("http://{address}")),
            tabs: Some(tabs.iter().map(|tab| (*tab).to_owned()).collect()),
            ..Default::default()
        };
        instances::put(&self.live, Name::fixed(id), patch, Origin::server("test")).await.unwrap();
    }

    /// Advances the clock and handles everything that becomes due.
    pub async fn advance(&self, span: Span) {
        self.clock.advance(span);
        self.scheduler.kick().await.unwrap();
    }

    /// Sets the load of the machine, as a probe would.
    pub async fn load(&self, busy: u8, quiet: QuietState) {
        let at = self.clock.now().mono;
        self.scheduler
            .send(Command::Admin(AdminCommand::Load(LoadReading { busy, quiet, at })))
            .await
            .unwrap();
    }

    /// Changes the configuration without the API.
    pub async fn configure(&self, patch: Value) {
        self.live.patch(patch, Origin::server("test")).await.unwrap();
    }
}

/// The sections of every dialect, and the instances.
pub fn schema() -> Arc<Schema> {
    Schema::new(&laneway_compat::SECTIONS, &[&INSTANCES], &[&BROWSERS])
}

/// A task that clicks.
pub fn click(agent: &str) -> Value {
    json!({"agentId": agent, "action": "click", "tabId": "t1"})
}

/// The status and the JSON of the answer.
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
