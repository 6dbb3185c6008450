//! A server with the dialect on an address of its own, handlers that follow rules, and a client.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_api::{Api, mint, router_of, router_with, serve_app};
use laneway_browser::Browsers;
use laneway_browser::kinds::KINDS;
use laneway_compat::agent_turn::is_allowed;
use laneway_core::{Failure, JobId, JobSpec, JobState, Name, Origin, Outcome, Role, Seed, Span, Submission};
use laneway_runtime::config::Layers;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Clock, Handlers, Interest, Item, JobContext, Jobs, Options, Running, Scheduler};
use laneway_store::Store;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::test_store::test_store;
use crate::world::{PATIENCE, START, schema};

/// The executor of the kinds.
const EXECUTOR: &str = "browsers";
/// No test is slowed down by the rate limit, except the one about it.
const NO_RATE_LIMIT: &str = "dialects.browser_manager.requests_max = 0\n";

/// What a handler does with its next job.
pub enum Rule {
    /// Waits until it is released or stopped, and succeeds.
    Hold,
    /// Fails.
    Fail { code: &'static str, message: String, retryable: bool },
    /// Writes to the log, and succeeds.
    Lines(Vec<(&'static str, String)>),
}

impl Rule {
    pub fn fail(message: &str) -> Rule {
        Rule::Fail { code: "test", message: message.to_owned(), retryable: false }
    }

    pub fn retry(message: &str) -> Rule {
        Rule::Fail { code: "test", message: message.to_owned(), retryable: true }
    }

    pub fn fail_with(code: &'static str, message: &str) -> Rule {
        Rule::Fail { code, message: message.to_owned(), retryable: false }
    }

    pub fn log(lines: &[(&'static str, &str)]) -> Rule {
        Rule::Lines(lines.iter().map(|(stream, text)| (*stream, (*text).to_owned())).collect())
    }
}

/// The rules of every kind, in their order. A job without a rule succeeds.
#[derive(Clone, Default)]
pub struct Rules(Arc<Mutex<HashMap<String, VecDeque<Rule>>>>);

impl Rules {
    pub fn add(&self, kind: &str, rule: Rule) {
        self.0.lock().unwrap().entry(kind.to_owned()).or_default().push_back(rule);
    }

    fn next(&self, kind: &str) -> Option<Rule> {
        self.0.lock().unwrap().get_mut(kind)?.pop_front()
    }
}

/// A server and a client.
pub struct World {
    pub scheduler: Scheduler,
    pub live: LiveConfig,
    pub browsers: Browsers,
    pub clock: Clock,
    /// The dialect's own address.
    pub address: SocketAddr,
    pub client: Client,
    pub rules: Rules,
    release: Arc<Semaphore>,
    _dir: TempDir,
    _running: Running,
    shutdown: CancellationToken,
    _serving: JoinHandle<std::io::Result<()>>,
}

impl World {
    /// The dialect on an address of its own, with a manual clock.
    pub async fn new(toml: &str) -> World {
        World::start(&format!("{NO_RATE_LIMIT}{toml}"), Clock::manual(START), Mount::Apart, true).await
    }

    /// The same in real time.
    pub async fn in_real_time(toml: &str) -> World {
        World::start(&format!("{NO_RATE_LIMIT}{toml}"), Clock::system(), Mount::Apart, true).await
    }

    /// The same with the real handlers, which start browsers.
    pub async fn with_browsers(toml: &str) -> World {
        World::start(&format!("{NO_RATE_LIMIT}{toml}"), Clock::system(), Mount::Apart, false).await
    }

    /// The same with the rate limit of the configuration.
    pub async fn limited(toml: &str) -> World {
        World::start(toml, Clock::manual(START), Mount::Apart, true).await
    }

    /// The dialect beside the native API.
    pub async fn on_the_main_port(toml: &str) -> World {
        World::start(&format!("{NO_RATE_LIMIT}{toml}"), Clock::manual(START), Mount::Beside, true).await
    }

    /// Over another store.
    pub async fn over(store: Box<dyn Store>) -> World {
        World::start_over(store, NO_RATE_LIMIT, Clock::manual(START), Mount::Apart, true).await
    }

    async fn start(toml: &str, clock: Clock, mount: Mount, by_rules: bool) -> World {
        World::start_over(test_store(), toml, clock, mount, by_rules).await
    }

    async fn start_over(
        store: Box<dyn Store>,
        toml: &str,
        clock: Clock,
        mount: Mount,
        by_rules: bool,
    ) -> World {
        let layers = Layers::read(&schema(), None, [], toml.parse().unwrap()).unwrap();
        let (config, overrides, _) = layers.resolve_stored(None).unwrap();
        let mut options = Options::new(config.settings().clone());
        (options.clock, options.seed) = (clock.clone(), Some(Seed::from(7)));
        let (scheduler, running) = Scheduler::start(store, options).unwrap();
        let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
        let dir = tempfile::tempdir().unwrap();
        let browsers = Browsers::start(&scheduler, &live, Some(dir.path()), None).await.unwrap();
        let (rules, release) = (Rules::default(), Arc::new(Semaphore::new(0)));
        if by_rules {
            // It takes the place of the real one.
            scheduler.run_here(Name::fixed(EXECUTOR), handlers(&rules, &release), 1_000).await.unwrap();
        }
        let api = Api::new(scheduler.clone(), live.clone(), is_allowed).unwrap();
        let dialect =
            laneway_compat::browser_manager::dialect(scheduler.clone(), live.clone(), browsers.clone());
        let app = match mount {
            Mount::Apart => router_of(&api, dialect),
            Mount::Beside => router_with(api.clone(), vec![dialect]).unwrap(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve_app(listener, app, api, shutdown.clone()));
        let client = Client::builder().no_proxy().build().unwrap();
        World {
            scheduler,
            live,
            browsers,
            clock,
            address,
            client,
            rules,
            release,
            _dir: dir,
            _running: running,
            shutdown,
            _serving: serving,
        }
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// The status and the JSON of an answer.
    pub async fn answer(&self, request: RequestBuilder) -> (u16, Value) {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.answer(self.request(method, path).body(body)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, body).await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, Value::Null).await
    }

    /// Creates a profile, and returns its id.
    pub async fn profile(&self, name: &str) -> String {
        let (status, answer) = self.post("/api/env/create/quick", json!({"name": name})).await;
        assert_eq!(status, 200, "{answer}");
        answer["data"]["id"].as_str().unwrap().to_owned()
    }

    /// Creates a profile in the recycle bin, and returns its id.
    pub async fn trashed_profile(&self, name: &str) -> String {
        let id = self.profile(name).await;
        let (_, answer) = self.post("/api/env/removeToRecycleBin/batch", json!({"ids": [id]})).await;
        assert_eq!(answer["data"]["removed"], json!([id]), "{answer}");
        id
    }

    /// Enqueues a job, and returns its id.
    pub async fn enqueue(&self, path: &str, body: Value) -> String {
        let (status, answer) = self.post(path, body).await;
        assert_eq!((status, &answer["code"]), (200, &json!(0)), "{path}: {answer}");
        answer["data"]["jobId"].as_str().unwrap().to_owned()
    }

    /// Submits a job that does not belong to the dialect.
    pub async fn submit_native(&self, kind: &'static str) -> String {
        let spec = JobSpec::new(Name::fixed("default"), Name::fixed(kind));
        let submission = Submission::new(spec, Vec::new().into(), Origin::server("test"));
        self.scheduler.submit(submission).await.unwrap().unwrap().job.to_string()
    }

    /// How many jobs the dialect has.
    pub async fn job_count(&self) -> usize {
        let (_, answer) = self.get("/api/jobs?pageSize=100").await;
        answer["data"]["list"].as_array().unwrap().len()
    }

    /// Shows a job.
    pub async fn job(&self, id: &str) -> Value {
        let (status, answer) = self.get(&format!("/api/jobs/{id}")).await;
        assert_eq!(status, 200, "{answer}");
        answer["data"].clone()
    }

    /// Waits until the job runs.
    pub async fn running(&self, id: &str) {
        self.reached(id, &[JobState::Running]).await;
    }

    /// Waits until the job waits, such as for a retry after an attempt.
    pub async fn queued(&self, id: &str) {
        self.reached(id, &[JobState::Scheduled, JobState::Queued]).await;
    }

    /// Waits until the job has ended, and shows it.
    pub async fn ended(&self, id: &str) -> Value {
        let job = JobId::parse(id).unwrap();
        tokio::time::timeout(PATIENCE, self.scheduler.wait(job)).await.expect("the job never ends").unwrap();
        self.job(id).await
    }

    async fn reached(&self, id: &str, states: &[JobState]) {
        let job = JobId::parse(id).unwrap();
        let mut events = self.scheduler.events().listen(Interest::in_jobs(None, Jobs::One(job)), None);
        loop {
            if self.scheduler.state_of(job).await.unwrap().is_some_and(|state| states.contains(&state)) {
                return;
            }
            let next = tokio::time::timeout(PATIENCE, events.next()).await;
            assert!(matches!(next.expect("the job never gets there").unwrap(), Item::Event(_)));
        }
    }

    /// Lets one held job continue.
    pub fn release(&self) {
        self.release.add_permits(1);
    }

    /// Advances the clock and handles everything that becomes due.
    pub async fn advance(&self, span: Span) {
        self.clock.advance(span);
        self.scheduler.kick().await.unwrap();
    }

    /// Creates a token without the API.
    pub async fn token(&self, tenant: Option<&'static str>, role: Role) -> String {
        let (record, text) = mint(tenant.map(Name::fixed), role, "", START.wall, None).unwrap();
        self.scheduler.put_token(record, Origin::server("test")).await.unwrap();
        text
    }

    /// The tokens of submitters of two tenants.
    pub async fn two_tenants(&self) -> (String, String) {
        let acme = self.token(Some("acme"), Role::Submitter).await;
        (acme, self.token(Some("globex"), Role::Submitter).await)
    }

    /// The server stops within `limit`.
    pub async fn drain(&self, limit: Duration) {
        self.scheduler.drain(limit).await.unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Where the dialect is.
enum Mount {
    Apart,
    Beside,
}

fn handlers(rules: &Rules, release: &Arc<Semaphore>) -> Handlers {
    KINDS.into_iter().fold(Handlers::new(), |handlers, kind| {
        let (rules, release) = (rules.clone(), Arc::clone(release));
        handlers.on(kind, move |context| run(context, rules.clone(), Arc::clone(&release)))
    })
}

async fn run(context: JobContext, rules: Rules, release: Arc<Semaphore>) -> Outcome {
    let kind = context.kind().to_string();
    let done = || {
        let result = match kind.as_str() {
            "browser_start" => json!({
                "debugPort": 9222, "devtoolsUrl": "ws://127.0.0.1:9222/devtools/browser/x", "pid": 7,
                "profileId": context.json::<Value>().unwrap()["profileId"],
            }),
            _ => json!({"payload": context.json::<Value>().unwrap()}),
        };
        Outcome::Succeeded(Some(result.to_string().into_bytes().into()))
    };
    match rules.next(&kind) {
        None => done(),
        Some(Rule::Hold) => tokio::select! {
            permit = release.acquire() => {
                permit.unwrap().forget();
                done()
            }
            () = context.cancellation().cancelled() => Outcome::Canceled,
        },
        Some(Rule::Fail { code, message, retryable }) => {
            Outcome::Failed(Failure { retryable, ..Failure::permanent(code, message) })
        }
        Some(Rule::Lines(lines)) => {
            for (stream, text) in lines {
                context.log_to(&Name::fixed(stream), &text);
            }
            done()
        }
    }
}
