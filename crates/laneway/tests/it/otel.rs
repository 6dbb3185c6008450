//! OpenTelemetry from outside: real servers, real workers, and a collector on loopback that reads requests strictly.

mod collector;
mod failures;
mod otlp;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use laneway_client::pull::{Dialect, Poll, PullOptions, PullOutcome, PullWorker, PulledJob};
use laneway_client::worker::{Outcome, Task, Worker};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::cli::Server;
use collector::{Collector, PATIENCE};
use otlp::Span;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn traceparent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// A server whose calls are written down: it answers the first `failing` ones with 500, and hangs where it is asked to.
#[derive(Clone, Default)]
struct Target {
    calls: Arc<Mutex<Vec<HeaderMap>>>,
    failing: Arc<Mutex<u32>>,
    hanging: Arc<Mutex<bool>>,
    called: Arc<Notify>,
}

impl Target {
    async fn start(failing: u32) -> (Target, String) {
        let target = Target { failing: Arc::new(Mutex::new(failing)), ..Target::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = Router::new().route("/", post(Target::call)).with_state(target.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (target, url)
    }

    async fn call(State(target): State<Target>, headers: HeaderMap) -> (StatusCode, &'static str) {
        target.calls.lock().unwrap().push(headers);
        target.called.notify_one();
        if *target.hanging.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let mut failing = target.failing.lock().unwrap();
        match *failing {
            0 => (StatusCode::OK, "{}"),
            _ => {
                *failing -= 1;
                (StatusCode::INTERNAL_SERVER_ERROR, "{}")
            }
        }
    }

    /// The header of each call so far.
    fn headers(&self, name: &str) -> Vec<Option<String>> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .map(|headers| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
            .collect()
    }

    async fn wait_for_call(&self) {
        tokio::time::timeout(PATIENCE, self.called.notified()).await.expect("it is called");
    }
}

/// Flags for a server that exports to a collector at short intervals.
fn exporting(collector: &Collector) -> Vec<String> {
    ["otel.interval=100ms".to_owned(), format!("otel.endpoint={}", collector.url)]
        .into_iter()
        .flat_map(|set| ["--set".to_owned(), set])
        .collect()
}

fn start(dir: &TempDir, flags: &[String]) -> Server {
    Server::start(dir.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn set(flags: &mut Vec<String>, key: &str, value: &str) {
    flags.extend(["--set".to_owned(), format!("{key}={value}")]);
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn submit(server: &Server, body: &Value, headers: &[(&'static str, String)]) -> Value {
    let mut request = http().post(format!("{}/v1/jobs", server.url)).json(body);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, StatusCode::CREATED, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The one span of this name.
fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

/// The span of this name with this attribute.
fn numbered<'a>(spans: &'a [Span], name: &str, key: &str, value: &str) -> &'a Span {
    let fits =
        |span: &&Span| span.name == name && span.attributes.get(key).map(String::as_str) == Some(value);
    spans.iter().find(fits).unwrap_or_else(|| panic!("no {name} with {key}={value}: {spans:#?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_goes_from_submit_over_waits_and_attempts_to_the_webhook() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let (target, url) = Target::start(1).await;
    let (hook, callback) = Target::start(0).await;
    let mut flags = exporting(&collector);
    set(&mut flags, "kinds.crawl.target", &url);
    set(&mut flags, "webhooks.allow_hosts", "[\"127.0.0.1\"]");
    set(&mut flags, "otel.headers", "x-api-key=k%201");
    let server = start(&dir, &flags);
    let body = json!({"kind": "crawl", "agent": "a7", "callback": callback,
        "retry": {"retries_max": 3, "backoff": {"base": "10ms"}}});
    let headers = [("traceparent", traceparent()), ("tracestate", "vendor=1".to_owned())];
    let job = submit(&server, &body, &headers).await;
    assert_eq!((&job["traceparent"], &job["tracestate"]), (&json!(traceparent()), &json!("vendor=1")));
    let id = job["id"].as_str().unwrap();
    let spans = collector.spans_until(|spans| spans.iter().any(|span| span.name == "webhook crawl")).await;

    let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(Vec::from_iter(names), ["attempt crawl", "submit crawl", "wait crawl", "webhook crawl"]);
    assert_eq!(spans.len(), 6, "a submit, two waits, two attempts, a webhook: {spans:#?}");
    for span in &spans {
        assert_eq!((span.trace_id.as_str(), span.trace_state.as_str()), (TRACE, "vendor=1"), "{span:#?}");
        assert!(span.start <= span.end && span.start > 0, "{span:#?}");
        assert_eq!(span.attributes["laneway.job.id"], id);
        assert_eq!(span.attributes["laneway.agent"], "a7");
        assert_eq!(span.resource["service.name"], "laneway");
    }
    let root = named(&spans, "submit crawl");
    assert_eq!((root.parent.as_str(), root.kind), (CALLER, otlp::SERVER));
    for span in spans.iter().filter(|span| span.name != "submit crawl") {
        assert_eq!(span.parent, root.span_id, "{span:#?}");
    }
    let first = numbered(&spans, "attempt crawl", "laneway.attempt", "1");
    let second = numbered(&spans, "attempt crawl", "laneway.attempt", "2");
    assert_eq!((first.attributes["laneway.outcome"].as_str(), first.kind), ("failed", otlp::CONSUMER));
    assert_eq!(first.attributes["error.type"], "http_status");
    assert!(first.error.is_some() && second.error.is_none());
    assert_eq!(second.attributes["laneway.outcome"], "succeeded");
    for (wait, attempt) in [("1", first), ("2", second)] {
        let wait = numbered(&spans, "wait crawl", "laneway.attempt", wait);
        assert_eq!(
            (wait.end, wait.kind),
            (attempt.start, otlp::INTERNAL),
            "an attempt begins where its wait ends"
        );
    }
    // The backoff is no wait: the second one begins when the job may start again.
    assert!(numbered(&spans, "wait crawl", "laneway.attempt", "2").start >= first.end);

    let given = |span: &Span| Some(format!("00-{TRACE}-{}-01", span.span_id));
    assert_eq!(target.headers("traceparent"), [given(first), given(second)]);
    assert_eq!(target.headers("tracestate"), [Some("vendor=1".to_owned()), Some("vendor=1".to_owned())]);
    assert_eq!(hook.headers("traceparent"), [given(named(&spans, "webhook crawl"))]);
    assert_eq!(collector.header("x-api-key"), Some("k 1".to_owned()));
    assert_eq!(collector.header("content-type"), Some("application/x-protobuf".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_survives_a_kill_in_the_middle_of_an_attempt() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let (target, url) = Target::start(0).await;
    *target.hanging.lock().unwrap() = true;
    let mut flags = exporting(&collector);
    set(&mut flags, "kinds.crawl.target", &url);
    let mut server = start(&dir, &flags);
    let body = json!({"kind": "crawl", "retry": {"losses_max": 3}});
    let plain = submit(&server, &body, &[]).await["id"].as_str().unwrap().to_owned();
    target.wait_for_call().await;
    let traced = submit(&server, &body, &[("traceparent", traceparent())]).await;
    let traced = traced["id"].as_str().unwrap().to_owned();
    target.wait_for_call().await;
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    *target.hanging.lock().unwrap() = false;

    let server = start(&dir, &flags);
    let ended = |spans: &[Span], job: &str| {
        let of = |span: &&Span| span.attributes.get("laneway.job.id").map(String::as_str) == Some(job);
        spans
            .iter()
            .filter(of)
            .any(|span| span.attributes.get("laneway.outcome").map(String::as_str) == Some("succeeded"))
    };
    let spans = collector.spans_until(|spans| ended(spans, &plain) && ended(spans, &traced)).await;
    assert_eq!(server.json(&["jobs", "show", &traced])["traceparent"], traceparent());
    for (job, trace) in [(&plain, plain.replace('-', "")), (&traced, TRACE.to_owned())] {
        let of_job: Vec<Span> =
            spans.iter().filter(|span| span.attributes["laneway.job.id"] == **job).cloned().collect();
        assert!(of_job.iter().all(|span| span.trace_id == trace), "{of_job:#?}");
        let lost = numbered(&of_job, "attempt crawl", "laneway.attempt", "1");
        assert_eq!(lost.attributes["laneway.outcome"], "lost");
        let second = numbered(&of_job, "attempt crawl", "laneway.attempt", "2");
        numbered(&of_job, "wait crawl", "laneway.attempt", "2");
        // The span ids follow from the job: what the target got before the kill is the span that was exported after it.
        let calls: Vec<String> = target.headers("traceparent").into_iter().flatten().collect();
        for span in [lost, second] {
            let given = format!("00-{trace}-{}-01", span.span_id);
            assert!(calls.contains(&given), "{given} in {calls:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_workers_and_pull_workers_get_the_span_of_their_attempt() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let mut flags = exporting(&collector);
    set(&mut flags, "lanes.pulled.dispatch", "claim");
    let server = start(&dir, &flags);
    let (sender, mut seen) = tokio::sync::mpsc::channel(1);
    let worker = Worker::builder(&format!("{}/v1/workers/connect", server.url.replace("http:", "ws:")), "w1")
        .handler("push", move |task: Task| {
            let sender = sender.clone();
            async move {
                let given = (task.traceparent().map(str::to_owned), task.tracestate().map(str::to_owned));
                sender.send(given).await.unwrap();
                Outcome::of(&json!({}))
            }
        })
        .build()
        .unwrap();
    let running = tokio::spawn(worker.run());
    let body = json!({"kind": "push", "traceparent": traceparent(), "tracestate": "a=1"});
    submit(&server, &body, &[]).await;
    let (pushed, state) = tokio::time::timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
    assert_eq!(state.as_deref(), Some("a=1"));

    submit(&server, &json!({"kind": "pull", "lane": "pulled"}), &[("traceparent", traceparent())]).await;
    let dialect = Dialect::Native { lane: "pulled".into(), kinds: Vec::new() };
    let pull = PullWorker::new(PullOptions::new(&server.url, "p1", dialect)).unwrap();
    let pulled = Mutex::new(None);
    let keep = |job: PulledJob| {
        *pulled.lock().unwrap() = job.traceparent;
        std::future::ready(PullOutcome::Succeeded(None))
    };
    let polled = pull.poll_once(&keep).await.unwrap();
    assert!(matches!(polled, Poll::Done { .. }), "{polled:?}");
    let pulled = pulled.lock().unwrap().clone();

    let spans = collector
        .spans_until(|spans| {
            ["attempt push", "attempt pull"].iter().all(|name| spans.iter().any(|span| span.name == *name))
        })
        .await;
    for (name, given, worker) in [("attempt push", pushed, "w1"), ("attempt pull", pulled, "p1")] {
        let span = named(&spans, name);
        assert_eq!(given, Some(format!("00-{TRACE}-{}-01", span.span_id)));
        assert_eq!(span.attributes["laneway.worker"], worker);
    }
    running.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_batches_and_schedules_have_their_traces() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let server = start(&dir, &exporting(&collector));
    let run = json!({"nodes": [{"node": "a", "job": {"kind": "echo"}},
        {"node": "b", "job": {"kind": "echo"}, "depends_on": ["a"]}]});
    let answer = http().post(format!("{}/v1/runs", server.url)).json(&run).send().await.unwrap();
    let run: Value = answer.json().await.unwrap();
    let run = run["id"].as_str().unwrap().strip_prefix("run_").unwrap().replace('-', "");
    let batch = json!({"jobs": [{"kind": "echo"}, {"kind": "echo", "traceparent": format!("00-{}-{CALLER}-01", "1".repeat(32))}]});
    let request = http().post(format!("{}/v1/jobs/batch", server.url)).header("traceparent", traceparent());
    let batch: Value = request.json(&batch).send().await.unwrap().json().await.unwrap();
    assert_eq!(batch["items"][0]["job"]["traceparent"], traceparent());
    let schedule = json!({"name": "nightly", "every": "24h", "job": {"kind": "echo"}});
    let answer = http().post(format!("{}/v1/schedules", server.url)).json(&schedule).send().await.unwrap();
    let schedule: Value = answer.json().await.unwrap();
    let fire = format!("{}/v1/schedules/{}/fire", server.url, schedule["id"].as_str().unwrap());
    assert!(http().post(fire).send().await.unwrap().status().is_success());

    let attempts = |spans: &[Span]| spans.iter().filter(|span| span.name == "attempt echo").count();
    let spans = collector.spans_until(|spans| attempts(spans) == 5).await;
    let root = named(&spans, "submit run");
    assert_eq!((root.trace_id.as_str(), root.parent.as_str()), (run.as_str(), ""));
    assert_eq!(root.attributes["laneway.run.nodes"], "2");
    let of_run: Vec<&Span> =
        spans.iter().filter(|span| span.trace_id == run && span.name == "submit echo").collect();
    assert_eq!(of_run.len(), 2);
    assert!(of_run.iter().all(|span| span.parent == root.span_id), "{of_run:#?}");
    // The field of an item is stronger than the header of the batch.
    for trace in [TRACE.to_owned(), "1".repeat(32)] {
        assert!(spans.iter().any(|span| span.trace_id == trace && span.parent == CALLER), "{trace}");
    }
    let fired = named(&spans, "fire nightly");
    assert_eq!((fired.parent.as_str(), fired.kind), ("", otlp::INTERNAL));
    assert_eq!(fired.trace_id, fired.attributes["laneway.job.id"].replace('-', ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_flag_of_the_caller_and_the_ratio_decide_what_is_recorded() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let (target, url) = Target::start(0).await;
    let mut flags = exporting(&collector);
    set(&mut flags, "otel.sample", "0.0");
    set(&mut flags, "kinds.crawl.target", &url);
    let server = start(&dir, &flags);
    let body = json!({"kind": "crawl"});
    submit(&server, &body, &[("traceparent", format!("00-{}-{CALLER}-00", "2".repeat(32)))]).await;
    target.wait_for_call().await;
    submit(&server, &body, &[]).await;
    target.wait_for_call().await;
    let given = target.headers("traceparent");
    assert!(given.iter().flatten().all(|given| given.ends_with("-00")), "{given:?}");
    assert_eq!(given.iter().flatten().count(), 2);
    submit(&server, &body, &[("traceparent", traceparent())]).await;
    let spans = collector.spans_until(|spans| spans.iter().any(|span| span.name == "attempt crawl")).await;
    assert!(spans.iter().all(|span| span.trace_id == TRACE), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_the_names_and_values_of_the_page() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let mut flags = exporting(&collector);
    set(&mut flags, "otel.metrics_interval", "1s");
    set(&mut flags, "otel.service_name", "jobs-eu");
    let server = start(&dir, &flags);
    server.json(&["submit", "echo", "--wait"]);
    let metrics = collector
        .metrics_until(|metrics| {
            metrics.values.get("laneway_jobs_total{event=succeeded,lane=main}") == Some(&1.0)
        })
        .await;
    assert_eq!(metrics.resource["service.name"], "jobs-eu");
    let page = http().get(format!("{}/metrics", server.url)).send().await.unwrap().text().await.unwrap();
    let with_values: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .map(|name| {
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
        })
        .collect();
    let sent: BTreeSet<&str> = metrics.names.iter().map(String::as_str).collect();
    assert_eq!(sent, with_values);
    assert_eq!(metrics.counts["laneway_run_time_seconds"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_header_is_ignored_and_a_bad_field_is_named() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir, &[]);
    for bad in ["00-xyz", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""] {
        let job = submit(&server, &json!({"kind": "echo"}), &[("traceparent", bad.to_owned())]).await;
        assert_eq!(job.get("traceparent"), None, "{bad}");
    }
    let body = json!({"kind": "echo", "traceparent": "00-xyz"});
    let answer = http().post(format!("{}/v1/jobs", server.url)).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!((&problem["code"], &problem["field"]), (&json!("invalid_field"), &json!("traceparent")));
    // A retry of a request is a new span of its client, and the same job.
    let again = |parent: String| json!({"kind": "echo", "idempotency_key": "k1", "traceparent": parent});
    let first = submit(&server, &again(traceparent()), &[]).await;
    let request = http().post(format!("{}/v1/jobs", server.url));
    let second = request.json(&again(format!("00-{TRACE}-{}-01", "3".repeat(16)))).send().await.unwrap();
    assert_eq!(second.status(), StatusCode::OK);
    let second: Value = second.json().await.unwrap();
    assert_eq!((&second["id"], &second["traceparent"]), (&first["id"], &first["traceparent"]));
    // The command line has flags for it.
    let job = server.submit(&["echo", "--traceparent", &traceparent(), "--tracestate", "a=1"]);
    let shown = server.json(&["jobs", "show", &job]);
    assert_eq!((&shown["traceparent"], &shown["tracestate"]), (&json!(traceparent()), &json!("a=1")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_endpoint_a_callers_context_is_passed_on_and_nothing_is_added() {
    let dir = TempDir::new().unwrap();
    let (target, url) = Target::start(0).await;
    let mut flags = Vec::new();
    set(&mut flags, "kinds.crawl.target", &url);
    let server = start(&dir, &flags);
    submit(&server, &json!({"kind": "crawl"}), &[]).await;
    target.wait_for_call().await;
    submit(&server, &json!({"kind": "crawl"}), &[("traceparent", traceparent())]).await;
    target.wait_for_call().await;
    assert_eq!(target.headers("traceparent"), [None, Some(traceparent())]);
    let page = http().get(format!("{}/metrics", server.url)).send().await.unwrap().text().await.unwrap();
    assert!(!page.contains("laneway_otel_spans_total{"), "no span was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_of_an_attempt_have_the_ids_of_its_span() {
    let (dir, collector) = (TempDir::new().unwrap(), Collector::start().await);
    let mut flags = exporting(&collector);
    set(&mut flags, "log.format", "json");
    set(&mut flags, "log.filter", "info");
    let server = start(&dir, &flags);
    let job = submit(
        &server,
        &json!({"kind": "fail", "retry": {"retries_max": 0}}),
        &[("traceparent", traceparent())],
    )
    .await;
    let spans = collector.spans_until(|spans| spans.iter().any(|span| span.name == "attempt fail")).await;
    let attempt = named(&spans, "attempt fail").clone();
    let lines = tokio::task::spawn_blocking(move || server.log_until_stopped()).await.unwrap();
    for message in ["job submitted", "job failed"] {
        let fits = |line: &&Value| line["message"] == message && line["job"] == job["id"];
        let line = lines.iter().find(fits).unwrap_or_else(|| panic!("{message}: {lines:#?}"));
        assert_eq!(line["trace_id"], TRACE, "{line}");
        let span = if message == "job failed" { &attempt.span_id } else { &attempt.parent };
        assert_eq!(line["span_id"], json!(span), "{line}");
    }
}
