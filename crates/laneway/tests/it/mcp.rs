//! MCP of a real server: the path `/mcp` behind the gate of the API, and the command `laneway mcp` over pipes. The official
//! client covers the rest (crates/laneway-mcp/tests/official_client).

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, laneway};

/// A call of a tool over HTTP, as clients before 2026-07-28 send it. Returns the status and the answer.
async fn call(url: &str, headers: &[(&str, &str)], tool: &str, arguments: Value) -> (u16, Value) {
    let params = json!({"name": tool, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut request = Client::builder().no_proxy().build().unwrap().post(format!("{url}/mcp")).json(&body);
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[tokio::test]
async fn a_tool_call_over_http_is_a_call_of_the_api() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let arguments = json!({"kind": "echo", "payload": {"n": 1}, "wait_s": 30});
    let (status, answer) = call(&server.url, &[], "submit_job", arguments).await;
    assert_eq!(status, 200, "{answer}");
    let job = &answer["result"]["structuredContent"];
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"n": 1})));
    assert_eq!(server.json(&["jobs", "list"])["jobs"][0]["id"], job["id"]);

    let (_, answer) = call(&server.url, &[], "submit_job", json!({"kind": "echo", "lane": "nowhere"})).await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["structuredContent"]["code"], "unknown_lane");
}

#[tokio::test]
async fn the_gate_of_the_api_is_before_mcp() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    for (headers, expected) in [
        (("host", "evil.example"), 421),
        (("origin", "https://evil.example"), 403),
        (("sec-fetch-site", "cross-site"), 403),
    ] {
        let (status, answer) = call(&server.url, &[headers], "list_jobs", json!({})).await;
        assert_eq!(status, expected, "{headers:?} {answer}");
    }
    // The first token closes the server, and must be an admin's.
    let admin = server.json(&["token", "create", "--role", "admin"]);
    let admin = admin["secret"].as_str().unwrap();
    let created = server.json(&["--token", admin, "token", "create", "--role", "viewer", "--tenant", "red"]);
    let bearer = format!("Bearer {}", created["secret"].as_str().unwrap());
    let (status, answer) = call(&server.url, &[], "list_jobs", json!({})).await;
    assert_eq!((status, &answer["code"]), (401, &json!("unauthorized")));
    let viewer = [("authorization", bearer.as_str())];
    let (status, answer) = call(&server.url, &viewer, "list_jobs", json!({})).await;
    assert_eq!((status, &answer["result"]["structuredContent"]["jobs"]), (200, &json!([])));
    let (_, answer) = call(&server.url, &viewer, "submit_job", json!({"kind": "echo"})).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "forbidden", "{answer}");
    let named = [viewer[0], ("laneway-tenant", "blue")];
    let (status, _) = call(&server.url, &named, "list_jobs", json!({})).await;
    assert_eq!(status, 403, "a token of one tenant does not act for another");
}

#[tokio::test]
async fn a_stop_of_the_server_does_not_wait_for_calls_that_wait() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--set", "server.drain_limit=0s"]);
    let url = server.url.clone();
    let submitted = server.submit(&["sleep", "--payload", r#"{"ms": 600000}"#]);
    let arguments = json!({"id": submitted, "wait_s": 3600});
    let waiting = tokio::spawn(async move { call(&url, &[], "wait_for_job", arguments).await });
    // The job runs until the server stops, so the call cannot end before.
    tokio::task::spawn_blocking(move || assert_eq!(server.stop(), Some(0))).await.unwrap();
    let (status, answer) = waiting.await.unwrap();
    assert!(status == 200 || status >= 500, "{status} {answer}");
}

#[test]
fn the_command_serves_a_client_over_pipes() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let mut process = laneway()
        .args(["--url", &server.url, "mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let mut send = |message: Value| writeln!(input, "{message}").unwrap();
    let mut answer = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }}));
    assert_eq!(answer()["result"]["serverInfo"]["name"], "laneway");
    send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let arguments = json!({"kind": "echo", "payload": 7, "wait_s": 30});
    send(
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "submit_job", "arguments": arguments}}),
    );
    assert_eq!(answer()["result"]["structuredContent"]["result"], 7);
    drop(input);
    assert!(process.wait().unwrap().success());
}

#[tokio::test]
async fn mcp_can_be_switched_off_and_its_headers_pass_cors() {
    let dir = TempDir::new().unwrap();
    let page = "https://agents.example";
    let origins = format!("server.allowed_origins=[\"{page}\"]");
    let server = Server::start(dir.path(), &["--set", &origins]);
    let http = Client::builder().no_proxy().build().unwrap();
    let preflight = http
        .request(reqwest::Method::OPTIONS, format!("{}/mcp", server.url))
        .header("origin", page)
        .header("access-control-request-method", "POST");
    let answer = preflight.send().await.unwrap();
    assert_eq!(answer.status(), 204);
    let list = |answer: &reqwest::Response, name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    for header in ["mcp-protocol-version", "mcp-session-id", "traceparent"] {
        let allowed = list(&answer, "access-control-allow-headers");
        assert!(allowed.split(", ").any(|allowed| allowed == header), "{header} in {allowed}");
    }
    let exposed = list(&answer, "access-control-expose-headers");
    assert!(exposed.contains("mcp-session-id"), "{exposed}");
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(dir.path(), &["--set", "mcp.enabled=false"]);
    let gone = http.post(format!("{}/mcp", server.url)).json(&json!({})).send().await.unwrap();
    assert_eq!(gone.status(), 404);
}

#[tokio::test]
async fn a_call_with_a_trace_makes_its_job_a_part_of_it() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let parent = |digit: &str| format!("00-{}-b7ad6b7169203331-01", digit.repeat(32));
    let traceparent = async |meta: Value, headers: &[(&str, &str)]| {
        let params = json!({"name": "submit_job", "arguments": {"kind": "echo"}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let http = Client::builder().no_proxy().build().unwrap();
        let mut request = http
            .post(format!("{}/mcp", server.url))
            .header("accept", "application/json, text/event-stream")
            .json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["result"]["structuredContent"]["traceparent"].clone()
    };
    let (of_call, of_transport) = (parent("1"), parent("2"));
    let header = [("traceparent", of_transport.as_str())];
    assert_eq!(traceparent(json!({"traceparent": of_call}), &header).await, json!(of_call));
    assert_eq!(traceparent(json!({}), &header).await, json!(of_transport));
    assert_eq!(traceparent(json!({"traceparent": "nonsense"}), &[]).await, Value::Null);
}
