//! Webhooks, from the end of a job to the receiver's answer: over real sockets, on a manual clock.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes as Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use laneway_core::{Callback, DeliveryRow, DeliveryState, JobId, Name, Reply, Span, Submission};
use laneway_runtime::config::{Config, Layers, Overrides, Schema};
use laneway_runtime::webhooks::guard::{Resolver, Resolving};
use laneway_runtime::webhooks::sign::SigningKey;
use laneway_runtime::webhooks::{CallbackFormat, Ended, Formats, Guard, NATIVE_FORMAT, Rendered};
use laneway_runtime::{Clock, Handlers, Running, Scheduler, Webhooks};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::harness::{START, TestStore, job_once, origin, start, submit};

const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// A receiver of webhooks that counts connections and answers as the test says.
struct Receiver {
    address: SocketAddr,
    calls: mpsc::Receiver<Call>,
    connections: Arc<AtomicUsize>,
    answers: Answers,
}

type Answers = Arc<Mutex<Vec<Answer>>>;

#[derive(Clone)]
enum Answer {
    Status(u16),
    Redirect(String),
    Never,
    Endless,
}

/// What a receiver got.
#[derive(Debug)]
struct Call {
    path: String,
    headers: HeaderMap,
    body: Body,
}

impl Call {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

#[derive(Clone)]
struct Desk {
    calls: mpsc::Sender<Call>,
    answers: Answers,
}

impl Receiver {
    async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (calls_in, calls) = mpsc::channel(64);
        let (connections, answers) = (Arc::new(AtomicUsize::new(0)), Answers::default());
        let desk = Desk { calls: calls_in, answers: Arc::clone(&answers) };
        let counted = axum::serve::ListenerExt::tap_io(listener, {
            let connections = Arc::clone(&connections);
            move |_| {
                connections.fetch_add(1, Ordering::SeqCst);
            }
        });
        let app = axum::Router::new().fallback(take_call).with_state(desk);
        tokio::spawn(async move { axum::serve(counted, app).await });
        Receiver { address, calls, connections, answers }
    }

    fn url(&self) -> String {
        format!("http://{}/done?token=secret", self.address)
    }

    /// The next answers; 200 after them.
    fn answer(&self, answers: &[Answer]) {
        *self.answers.lock().unwrap() = answers.iter().rev().cloned().collect();
    }

    async fn next(&mut self) -> Call {
        patient(self.calls.recv()).await.unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn take_call(
    State(desk): State<Desk>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, HeaderMap, axum::body::Body), StatusCode> {
    let answer = desk.answers.lock().unwrap().pop().unwrap_or(Answer::Status(200));
    desk.calls.send(Call { path: uri.path().to_owned(), headers, body }).await.unwrap();
    match answer {
        Answer::Status(status) => Err(StatusCode::from_u16(status).unwrap()),
        Answer::Redirect(to) => {
            let headers = HeaderMap::from_iter([(axum::http::header::LOCATION, to.parse().unwrap())]);
            Ok((StatusCode::TEMPORARY_REDIRECT, headers, axum::body::Body::empty()))
        }
        Answer::Never => std::future::pending().await,
        Answer::Endless => {
            let chunks = futures_util::stream::repeat_with(|| Ok::<_, io::Error>(vec![b'x'; 1 << 16]));
            Ok((StatusCode::OK, HeaderMap::new(), axum::body::Body::from_stream(chunks)))
        }
    }
}

/// Says the job's id and its payload, with a header of its own.
struct Plain;

impl CallbackFormat for Plain {
    fn render(&self, ended: &Ended<'_>) -> Rendered {
        let state = ended.job.state();
        let payload = String::from_utf8_lossy(ended.payload);
        Rendered {
            signed: None,
            content_type: "application/json",
            headers: vec![("x-event", format!("job.{state}")), ("webhook-id", "forged".to_owned())],
            body: format!(
                "{{\"id\":\"{}\",\"state\":\"{state}\",\"payload\":\"{payload}\"}}",
                ended.job.row.id
            )
            .into_bytes(),
        }
    }
}

struct Broken;

impl CallbackFormat for Broken {
    fn render(&self, _: &Ended<'_>) -> Rendered {
        panic!("this format cannot write anything down")
    }
}

/// Every name is this machine, and how often it was asked.
#[derive(Default)]
struct Home(AtomicUsize);

impl Resolver for Home {
    fn resolve(&self, _host: &str) -> Resolving {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
    }
}

/// Public at first, this machine from then on.
#[derive(Default)]
struct Rebinding(AtomicUsize);

impl Resolver for Rebinding {
    fn resolve(&self, _host: &str) -> Resolving {
        let first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        let address = if first { "93.184.216.34" } else { "127.0.0.1" };
        Box::pin(async move { Ok(vec![address.parse().unwrap()]) })
    }
}

struct World {
    scheduler: Scheduler,
    clock: Clock,
    store: TestStore,
    _running: Running,
    _webhooks: Webhooks,
}

fn config(settings: &str) -> Arc<Config> {
    let flags: toml::Table = settings.parse().unwrap();
    Arc::new(Layers::read(&Schema::native(), None, [], flags).unwrap().resolve(&Overrides::none()).unwrap())
}

impl World {
    async fn start(guard: Guard, settings: &str) -> World {
        World::start_over(TestStore::default(), guard, settings).await
    }

    async fn start_over(store: TestStore, guard: Guard, settings: &str) -> World {
        let handlers = Handlers::new()
            .on("echo", async |context: laneway_runtime::JobContext| {
                Ok::<_, laneway_core::Failure>(context.payload().clone())
            })
            .on("fail", async |_| Err::<(), _>(laneway_core::Failure::permanent("test", "it cannot work")))
            .on("hang", async |_| std::future::pending::<Result<(), laneway_core::Failure>>().await);
        let (scheduler, running, clock) = start(&store, handlers).await;
        let formats = Formats::new().with(NATIVE_FORMAT, Arc::new(Plain)).with("broken", Arc::new(Broken));
        let (_, configs) = watch::channel(config(settings));
        let webhooks = Webhooks::start_with(scheduler.clone(), configs, formats, guard).unwrap();
        World { scheduler, clock, store, _running: running, _webhooks: webhooks }
    }

    async fn submit(&self, kind: &str, url: &str) -> JobId {
        submit(&self.scheduler, with_callback(kind, url)).await
    }

    async fn delivery(&self, job: JobId) -> Option<DeliveryRow> {
        self.scheduler.read(move |reader| reader.delivery(job)).await.unwrap()
    }

    /// Waits until so many tries have ended.
    async fn tried(&self, count: u64) {
        patient(async {
            while self.scheduler.stats(None).await.unwrap().deliveries.tries < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn with_callback(kind: &str, url: &str) -> Submission {
    let mut submission = job_once(kind);
    submission.payload = b"hello".as_slice().into();
    submission.spec.callback = Some(Callback { url: url.into(), format: Name::fixed(NATIVE_FORMAT) });
    submission
}

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("ends in time")
}

fn trusting() -> Guard {
    Guard::new(Arc::new(Home::default()), &["127.0.0.1", "hooks.example"])
}

#[tokio::test]
async fn pt_w1_a_delivery_has_its_body_and_headers_keeps_the_name_and_goes_to_the_checked_address() {
    let mut receiver = Receiver::start().await;
    let home = Arc::new(Home::default());
    let world = World::start(
        Guard::new(home.clone(), &["hooks.example"]),
        &format!("[webhooks]\nsecret = \"{SECRET}\"\nsecret_previous = \"{OTHER}\""),
    )
    .await;
    let port = receiver.address.port();
    let job = world.submit("echo", &format!("http://hooks.example:{port}/done?token=secret")).await;
    let call = receiver.next().await;
    assert_eq!(
        (call.path.as_str(), call.header("host")),
        ("/done", format!("hooks.example:{port}").as_str())
    );
    let body = format!("{{\"id\":\"{job}\",\"state\":\"succeeded\",\"payload\":\"hello\"}}");
    assert_eq!(call.body, body.as_bytes());
    assert_eq!(call.header("content-type"), "application/json");
    assert_eq!(call.header("x-event"), "job.succeeded");
    let id = format!("dlv_{}", job.to_string().replace('-', ""));
    assert_eq!(call.header("webhook-id"), id, "a format cannot forge it");
    let timestamp = START.wall.0 / 1_000;
    assert_eq!(call.header("webhook-timestamp"), timestamp.to_string());
    let signed = |secret: &str| SigningKey::parse(secret).unwrap().sign(&id, timestamp, body.as_bytes());
    assert_eq!(call.header("webhook-signature"), format!("{} {}", signed(SECRET), signed(OTHER)));
    world.tried(1).await;
    let row = world.delivery(job).await.unwrap();
    assert_eq!((row.state, row.tries, row.last_status), (DeliveryState::Delivered, 1, Some(200)));
    assert_eq!(home.0.load(Ordering::SeqCst), 1, "what was checked is what is called: it is resolved once");
    let tries = world.scheduler.read(move |reader| reader.delivery_tries(row.seq)).await.unwrap();
    assert_eq!((tries.len(), tries[0].status, &tries[0].error), (1, Some(200), &None));
}

#[tokio::test]
async fn a_tenants_own_secret_goes_before_the_servers_and_without_one_nothing_is_signed() {
    let mut receiver = Receiver::start().await;
    let world = World::start(trusting(), &format!("[tenants.acme]\nwebhook_secret = \"{OTHER}\"")).await;
    world.submit("echo", &receiver.url()).await;
    assert!(!receiver.next().await.headers.contains_key("webhook-signature"));
    let mut submission = with_callback("echo", &receiver.url());
    submission.spec.tenant = Name::fixed("acme");
    submit(&world.scheduler, submission).await;
    let call = receiver.next().await;
    let timestamp = call.header("webhook-timestamp").parse().unwrap();
    let key = SigningKey::parse(OTHER).unwrap();
    assert_eq!(call.header("webhook-signature"), key.sign(call.header("webhook-id"), timestamp, &call.body));
}

#[tokio::test]
async fn pt_w2_pt_w11_a_job_without_a_callback_calls_no_receiver() {
    let receiver = Receiver::start().await;
    let world = World::start(trusting(), "").await;
    let job = submit(&world.scheduler, job_once("echo")).await;
    world.scheduler.wait(job).await.unwrap();
    assert_eq!(world.delivery(job).await, None);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn pt_w7_a_receiver_that_fails_is_called_again_with_the_same_id() {
    let mut receiver = Receiver::start().await;
    receiver.answer(&[Answer::Status(500), Answer::Status(503)]);
    let world = World::start(trusting(), "").await;
    let job = world.submit("fail", &receiver.url()).await;
    let mut ids = Vec::new();
    for (number, wait) in [(1, 6), (2, 36), (3, 0)] {
        let call = receiver.next().await;
        assert_eq!(call.header("x-event"), "job.failed");
        ids.push(call.header("webhook-id").to_owned());
        world.tried(number).await;
        world.clock.advance(Span::secs(wait));
    }
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    let row = world.delivery(job).await.unwrap();
    assert_eq!((row.state, row.tries), (DeliveryState::Delivered, 3));
}

#[tokio::test]
async fn a_receiver_that_never_answers_does_not_delay_the_webhooks_of_another() {
    let (slow, mut quick) = (Receiver::start().await, Receiver::start().await);
    slow.answer(&vec![Answer::Never; 8]);
    // Longer than the time limit of this test: no request is sent because another was given up.
    let world = World::start(trusting(), "[webhooks]\ntimeout = \"60s\"").await;
    // More than the engine hands out at once.
    let url = slow.url();
    let mut last = None;
    for _ in 0..1_100 {
        last = Some(world.submit("echo", &url).await);
    }
    world.scheduler.wait(last.unwrap()).await.unwrap();
    let job = world.submit("echo", &quick.url()).await;
    let call = quick.next().await;
    assert!(call.header("webhook-id").ends_with(&job.to_string().replace('-', "")));
    assert!(slow.connections() <= 4, "{} calls to one host", slow.connections());
}

#[tokio::test]
async fn pt_w8_a_redirect_is_not_followed() {
    let mut receiver = Receiver::start().await;
    let other = Receiver::start().await;
    receiver.answer(&[Answer::Redirect(other.url())]);
    let world = World::start(trusting(), "").await;
    let job = world.submit("echo", &receiver.url()).await;
    receiver.next().await;
    world.tried(1).await;
    let row = world.delivery(job).await.unwrap();
    assert_eq!((row.state, row.last_status), (DeliveryState::Waiting, Some(307)));
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn pt_w9_a_receiver_that_never_answers_is_given_up_in_time_and_one_that_never_ends_is_cut() {
    let mut receiver = Receiver::start().await;
    receiver.answer(&[Answer::Never, Answer::Endless]);
    let world = World::start(trusting(), "[webhooks]\ntimeout = \"200ms\"").await;
    let silent = world.submit("echo", &receiver.url()).await;
    receiver.next().await;
    world.tried(1).await;
    let row = world.delivery(silent).await.unwrap();
    assert_eq!((row.state, row.last_status), (DeliveryState::Waiting, None));
    assert_eq!(row.last_error.as_deref(), Some("the receiver did not answer in time"));
    let endless = world.submit("echo", &receiver.url()).await;
    receiver.next().await;
    world.tried(2).await;
    assert_eq!(world.delivery(endless).await.unwrap().state, DeliveryState::Delivered);
}

#[tokio::test]
async fn pt_w10_x2_every_end_is_sent_once_a_cancel_of_a_running_job_too() {
    let mut receiver = Receiver::start().await;
    let world = World::start(trusting(), "").await;
    let job = world.submit("hang", &receiver.url()).await;
    world.scheduler.cancel(None, job, origin()).await.unwrap();
    assert_eq!(receiver.next().await.header("x-event"), "job.canceled");
    world.tried(1).await;
    // The run ends after its job did; that is no second end.
    world.clock.advance(Span::secs(11));
    let stats = world.scheduler.stats(None).await.unwrap();
    assert_eq!((stats.lanes[0].counts.canceled, stats.lanes[0].counts.failed), (1, 0));
    let done = world.submit("echo", &receiver.url()).await;
    assert!(receiver.next().await.body.windows(36).any(|part| part == done.to_string().as_bytes()));
}

#[tokio::test]
async fn what_the_guard_rejects_at_the_call_is_final_and_no_connection_is_made() {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    let guard = Guard::new(Arc::new(Home::default()), &[]);
    let world = World::start(guard, "").await;
    let urls = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://private.example:{port}/"),
        format!("http://user@public.example:{port}/"),
        format!("ftp://127.0.0.1:{port}/"),
    ];
    for (number, url) in (1..).zip(&urls) {
        let job = world.submit("echo", url).await;
        world.tried(number).await;
        let row = world.delivery(job).await.unwrap();
        assert_eq!((row.state, row.tries), (DeliveryState::Failed, 1), "{url}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_that_is_bound_to_another_address_after_the_submit_is_not_called() {
    let receiver = Receiver::start().await;
    let guard = Guard::new(Arc::new(Rebinding::default()), &[]);
    let url = format!("http://rebind.example:{}/", receiver.address.port());
    guard.check(&url).await.expect("it is public when it is submitted");
    let world = World::start(guard, "").await;
    let job = world.submit("echo", &url).await;
    world.tried(1).await;
    let row = world.delivery(job).await.unwrap();
    assert_eq!(row.last_error.as_deref(), Some("callback URL host is not allowed"));
    assert_eq!((row.state, receiver.connections()), (DeliveryState::Failed, 0));
}

#[tokio::test]
async fn a_webhook_that_was_due_when_the_process_died_is_sent_by_the_next_one() {
    let mut receiver = Receiver::start().await;
    receiver.answer(&[Answer::Never]);
    let world = World::start(trusting(), "").await;
    let job = world.submit("echo", &receiver.url()).await;
    receiver.next().await;
    // The answer never came; the process is gone with the call under way.
    let store = world.store.clone();
    drop(world);
    let world = World::start_over(store, trusting(), "").await;
    assert!(receiver.next().await.body.windows(36).any(|part| part == job.to_string().as_bytes()));
    world.tried(1).await;
    assert_eq!(world.delivery(job).await.unwrap().state, DeliveryState::Delivered);
}

#[tokio::test]
async fn a_delivery_is_sent_again_by_hand() {
    let mut receiver = Receiver::start().await;
    let world = World::start(trusting(), "").await;
    let job = world.submit("echo", &receiver.url()).await;
    let first = receiver.next().await;
    world.tried(1).await;
    let other = Some(Name::fixed("acme"));
    assert_eq!(world.scheduler.redeliver(other, job, origin()).await.unwrap(), Reply::NotFound);
    assert_eq!(world.scheduler.redeliver(None, job, origin()).await.unwrap(), Reply::Done);
    let second = receiver.next().await;
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    world.tried(2).await;
    assert_eq!(world.delivery(job).await.unwrap().tries, 2);
}

#[tokio::test]
async fn a_slow_host_delays_neither_jobs_nor_webhooks_to_others() {
    let mut slow = Receiver::start().await;
    slow.answer(&vec![Answer::Never; 16]);
    let mut quick = Receiver::start().await;
    let world = World::start(trusting(), "").await;
    for _ in 0..16 {
        world.submit("echo", &slow.url()).await;
    }
    for _ in 0..4 {
        slow.next().await;
    }
    let job = world.submit("echo", &quick.url()).await;
    quick.next().await;
    world.tried(1).await;
    assert_eq!(world.delivery(job).await.unwrap().state, DeliveryState::Delivered);
    assert_eq!(slow.connections(), 4, "no more than four calls to one host");
}

#[tokio::test]
async fn a_format_that_is_not_known_or_breaks_fails_its_delivery_only() {
    let mut receiver = Receiver::start().await;
    let world = World::start(trusting(), "").await;
    for (number, format) in [(1, "broken"), (2, "unheard")] {
        let mut submission = with_callback("echo", &receiver.url());
        submission.spec.callback = Some(Callback { url: receiver.url().into(), format: Name::fixed(format) });
        let job = submit(&world.scheduler, submission).await;
        world.tried(number).await;
        assert_eq!(world.delivery(job).await.unwrap().state, DeliveryState::Failed, "{format}");
    }
    assert_eq!(receiver.connections(), 0);
    world.submit("echo", &receiver.url()).await;
    receiver.next().await;
}

#[tokio::test]
async fn a_drain_lets_calls_that_are_under_way_end() {
    let mut receiver = Receiver::start().await;
    let world = World::start(trusting(), "").await;
    let job = world.submit("echo", &receiver.url()).await;
    world.scheduler.wait(job).await.unwrap();
    patient(world.scheduler.drain(Duration::from_secs(5))).await.unwrap();
    receiver.next().await;
    assert_eq!(world.delivery(job).await.unwrap().state, DeliveryState::Delivered);
}
