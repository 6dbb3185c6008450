//! The protocol from outside, without a network: requests of streamable HTTP, and lines of a pipe, against a scripted API.

use std::sync::Mutex;

use axum::body::to_bytes;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, watch};

use super::*;
use crate::api::{Answering, ApiRequest, ApiResponse, Method};
use crate::tools;

/// The job of every story.
const JOB: &str = "01990000-0000-7000-8000-000000000001";

/// The largest body of the API in these tests, in bytes.
const BODY_MAX: usize = 1024;

/// An API that answers with one job, and keeps what it was asked.
struct Scripted {
    state: &'static str,
    /// The requests, in their order.
    seen: Mutex<Vec<Seen>>,
    /// Requests that wait do not end by themselves.
    blocks: bool,
    waiting: Notify,
    /// The number of waiting requests that were given up.
    dropped: watch::Sender<usize>,
}

/// A request, with the token and the mark of its connection.
type Seen = (ApiRequest, Option<String>, Option<Connection>);

/// Stands for the connection that a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection(u8);

/// Counts itself when it is dropped.
struct Counted<'a>(&'a watch::Sender<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count += 1);
    }
}

impl Scripted {
    fn with(state: &'static str, blocks: bool) -> Arc<Scripted> {
        let (dropped, _) = watch::channel(0);
        Arc::new(Scripted { state, seen: Mutex::default(), blocks, waiting: Notify::new(), dropped })
    }

    fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(request, _, _)| request.path.clone()).collect()
    }
}

impl ApiClient for Scripted {
    fn call<'a>(&'a self, request: ApiRequest, http: Option<&'a Parts>) -> Answering<'a> {
        Box::pin(async move {
            let token = http
                .and_then(|http| http.headers.get(AUTHORIZATION))
                .map(|value| value.to_str().unwrap().to_owned());
            let connection = http.and_then(|http| http.extensions.get::<Connection>()).copied();
            let (is_wait, is_cancel) = (request.path.contains("?wait="), request.path.ends_with("/cancel"));
            let is_known = request.method == Method::Post || request.path.contains(JOB);
            self.seen.lock().unwrap().push((request, token, connection));
            if is_wait && self.blocks {
                let _counted = Counted(&self.dropped);
                self.waiting.notify_one();
                std::future::pending::<()>().await;
            }
            let problem = |status: u16, code: &str| json!({"type": "urn:x", "title": "x", "status": status, "detail": "it does not exist", "code": code});
            let (status, body) = match (is_known, is_cancel && self.state != "running") {
                (false, _) => (404, problem(404, "not_found")),
                (true, true) => (409, problem(409, "already_ended")),
                (true, false) => (
                    200,
                    json!({
                        "id": JOB, "state": self.state, "kind": "echo", "agent": "a", "lane": "main", "tenant": "t", "priority": 0,
                        "attempt": 1, "failures": 0, "losses": 0, "created_at": "2030-01-01T08:00:00Z", "result": {"n": 1},
                    }),
                ),
            };
            Ok(ApiResponse { status, body: body.to_string().into_bytes() })
        })
    }
}

fn endpoint(api: &Arc<Scripted>) -> HttpEndpoint {
    HttpEndpoint::new(api.clone(), CancellationToken::new())
}

/// A request of protocol 2026-07-28.
fn request(method: &str, mut params: Value, knows_tasks: bool) -> Request {
    let extensions = if knows_tasks { json!({"io.modelcontextprotocol/tasks": {}}) } else { json!({}) };
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": extensions},
    });
    let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default().to_owned();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("authorization", "Bearer lw_1");
    if !name.is_empty() {
        request = request.header("mcp-name", name);
    }
    request.extension(Connection(7)).body(Body::from(body.to_string())).unwrap()
}

async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
}

async fn ask(api: &Arc<Scripted>, method: &str, params: Value) -> Value {
    let (status, answer) = read(endpoint(api).answer(request(method, params, true), BODY_MAX).await).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn a_call_reaches_the_api_with_its_token_and_its_connection() {
    let api = Scripted::with("queued", false);
    let answer = ask(&api, "tools/call", json!({"name": "submit_job", "arguments": {"kind": "echo"}})).await;
    assert_eq!(answer["result"]["structuredContent"]["id"], JOB);
    let seen = api.seen.lock().unwrap();
    let (request, token, connection) = &seen[0];
    assert_eq!((request.method, request.path.as_str()), (Method::Post, "/v1/jobs"));
    assert_eq!(request.body.as_deref(), Some(br#"{"kind":"echo"}"#.as_slice()));
    assert_eq!((token.as_deref(), *connection), (Some("Bearer lw_1"), Some(Connection(7))));
}

#[tokio::test]
async fn the_list_of_tools_is_the_same_every_time() {
    let api = Scripted::with("queued", false);
    let first = ask(&api, "tools/list", json!({})).await;
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), tools::all().len());
    for _ in 0..10 {
        assert_eq!(ask(&api, "tools/list", json!({})).await, first);
    }
    assert!(api.paths().is_empty(), "the list needs no call");
}

#[tokio::test]
async fn a_call_that_would_wait_is_a_task_for_a_client_that_knows_tasks() {
    let api = Scripted::with("running", true);
    let call = json!({"name": "submit_job", "arguments": {"kind": "echo", "wait_s": 60}});
    let created = ask(&api, "tools/call", call).await;
    assert_eq!(created["result"]["resultType"], "task");
    assert_eq!(
        (&created["result"]["taskId"], &created["result"]["status"]),
        (&json!(JOB), &json!("working"))
    );
    let task = ask(&api, "tasks/get", json!({"taskId": JOB})).await;
    assert_eq!(task["result"]["status"], "working");
    ask(&api, "tasks/cancel", json!({"taskId": JOB})).await;
    assert_eq!(
        api.paths(),
        ["/v1/jobs".to_owned(), format!("/v1/jobs/{JOB}"), format!("/v1/jobs/{JOB}/cancel")]
    );
}

#[tokio::test]
async fn a_task_that_has_ended_has_its_result_and_takes_a_cancel() {
    let api = Scripted::with("succeeded", false);
    let task = ask(&api, "tasks/get", json!({"taskId": JOB})).await;
    assert_eq!(task["result"]["status"], "completed");
    assert_eq!(task["result"]["result"]["structuredContent"]["result"], json!({"n": 1}));
    let acknowledged = ask(&api, "tasks/cancel", json!({"taskId": JOB})).await;
    assert!(acknowledged.get("error").is_none(), "{acknowledged}");
    let missing = ask(&api, "tasks/get", json!({"taskId": "other"})).await;
    assert_eq!(
        (&missing["error"]["code"], &missing["error"]["data"]["code"]),
        (&json!(-32602), &json!("not_found"))
    );
}

#[tokio::test]
async fn unknown_tools_and_resources_are_errors_of_the_protocol() {
    let api = Scripted::with("queued", false);
    let answer = ask(&api, "tools/call", json!({"name": "drop_tables", "arguments": {}})).await;
    assert_eq!(answer["error"]["code"], -32602);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("drop_tables") && message.contains("submit_job, get_job"), "{message}");
    let mut read_resource = request("resources/read", json!({"uri": "laneway://tokens/1"}), false);
    read_resource.headers_mut().insert("mcp-name", "laneway://tokens/1".parse().unwrap());
    let (_, answer) = read(endpoint(&api).answer(read_resource, BODY_MAX).await).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("is no resource"), "{answer}");
    assert!(api.paths().is_empty());
}

#[tokio::test]
async fn a_body_over_the_limit_is_rejected() {
    let api = Scripted::with("queued", false);
    let long = json!({"name": "submit_job", "arguments": {"kind": "x".repeat(BODY_MAX + ENVELOPE_MAX)}});
    let (status, _) = read(endpoint(&api).answer(request("tools/call", long, false), BODY_MAX).await).await;
    assert_eq!(status, 413);
    assert!(api.paths().is_empty());
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_wait() {
    let api = Scripted::with("running", true);
    let mut dropped = api.dropped.subscribe();
    let call = json!({"name": "wait_for_job", "arguments": {"id": JOB}});
    let endpoint = endpoint(&api);
    let answering = endpoint.answer(request("tools/call", call, false), BODY_MAX);
    tokio::select! {
        _ = answering => panic!("the job has not ended"),
        () = api.waiting.notified() => {}
    }
    dropped.wait_for(|count| *count == 1).await.unwrap();
}

#[tokio::test]
async fn a_stop_of_the_server_ends_the_calls_that_wait() {
    let api = Scripted::with("running", true);
    let stop = CancellationToken::new();
    let endpoint = HttpEndpoint::new(api.clone(), stop.clone());
    let call = json!({"name": "wait_for_job", "arguments": {"id": JOB}});
    let answering = endpoint.answer(request("tools/call", call, false), BODY_MAX);
    let (response, ()) = tokio::join!(answering, async {
        api.waiting.notified().await;
        stop.cancel();
    });
    assert!(response.status().is_server_error());
    api.dropped.subscribe().wait_for(|count| *count == 1).await.unwrap();
}

#[tokio::test]
async fn an_older_client_is_served_over_a_pipe() {
    let api = Scripted::with("succeeded", false);
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let handler = Handler::new(api.clone());
    let serving = tokio::spawn(async move {
        let service = handler.serve(tokio::io::split(theirs)).await.unwrap();
        service.waiting().await.unwrap();
    });
    let (reader, mut writer) = tokio::io::split(ours);
    let mut lines = BufReader::new(reader).lines();
    let mut send = async |message: Value| writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }}))
    .await;
    let mut answer =
        async || serde_json::from_str::<Value>(&lines.next_line().await.unwrap().unwrap()).unwrap();
    let welcome = answer().await;
    assert_eq!(welcome["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(welcome["result"]["serverInfo"]["name"], "laneway");
    send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait_for_job", "arguments": {"id": JOB}}}))
        .await;
    let called = answer().await;
    assert_eq!(called["result"]["structuredContent"]["state"], "succeeded");
    assert!(called["result"].get("resultType").is_none(), "an older client does not know this field");
    assert_eq!(api.paths(), [format!("/v1/jobs/{JOB}?wait=30000ms")]);
    drop((writer, lines));
    serving.await.unwrap();
}
