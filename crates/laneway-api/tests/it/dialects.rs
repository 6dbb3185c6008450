//! Routes of dialects behind the gate: beside the native ones, with a prefix, alone; and every denial.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use laneway_api::{router_of, router_with, serve_app};
use laneway_core::{Name, Role};
use laneway_runtime::Caller;
use laneway_runtime::caller::{Denied, Right};
use laneway_runtime::dialect::{Dialect, Route};
use reqwest::Client;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::test_store::test_store;
use crate::world::{START, start_api};

/// Returns the caller.
async fn who(request: Request) -> String {
    let caller: &Caller = request.extensions().get().unwrap();
    format!("{} for {} in {}", caller.role.as_str(), caller.tenant, caller.request)
}

async fn panics() {
    panic!("an internal secret")
}

/// Returns the reason, so that tests see it.
fn denied(denied: &Denied, _: &Name) -> Response {
    (StatusCode::IM_A_TEAPOT, format!("{denied:?}")).into_response()
}

fn dialect(prefix: &str, paths: &[&'static str]) -> Dialect {
    let route = |method: Method, path, right, handler: MethodRouter| Route {
        method,
        path,
        operation: "say_who",
        right,
        handler,
        gives_way: false,
    };
    let mut routes: Vec<Route> =
        paths.iter().map(|path| route(Method::GET, path, Right::Look, get(who))).collect();
    routes.push(route(Method::POST, "/do", Right::Submit, post(who)));
    routes.push(route(Method::POST, "/rule", Right::Administer, post(who)));
    routes.push(route(Method::GET, "/panic", Right::Look, get(panics)));
    routes.push(route(Method::POST, "/beat", Right::Report, post(who)));
    Dialect { name: "pinchtab", prefix: prefix.to_owned(), routes, denied, native: &[] }
}

/// A server with the dialect. Calls return the status and the text.
struct Served {
    base: String,
    scheduler: laneway_runtime::Scheduler,
    _running: laneway_runtime::Running,
}

impl Served {
    async fn start(toml: &str, alone: bool, dialect: Dialect) -> Served {
        let (api, scheduler, _, running) = start_api(test_store(), toml);
        let app = match alone {
            true => router_of(&api, dialect),
            false => router_with(api.clone(), vec![dialect]).unwrap(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve_app(listener, app, api, CancellationToken::new()));
        Served { base, scheduler, _running: running }
    }

    async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let client = Client::builder().no_proxy().build().unwrap();
        let mut request = client.request(method.parse().unwrap(), format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn token(&self, tenant: Option<&'static str>, role: Role) -> String {
        let tenant = tenant.map(Name::fixed);
        let (record, text) = laneway_api::mint(tenant, role, "", START.wall, None).unwrap();
        self.scheduler.put_token(record, laneway_core::Origin::server("test")).await.unwrap();
        format!("Bearer {text}")
    }
}

#[tokio::test]
async fn is_mounted_beside_the_native_routes() {
    let served = Served::start("", false, dialect("", &["/who"])).await;
    let (status, response) = served.call("GET", "/who", &[("x-request-id", "mine")]).await;
    assert_eq!((status, response.as_str()), (200, "admin for default in mine"));
    assert_eq!(served.call("GET", "/livez", &[]).await.0, 200);
    let (status, response) = served.call("GET", "/nowhere", &[]).await;
    assert_eq!(status, 404);
    assert!(
        response.contains("urn:laneway:problem:not_found"),
        "other paths are the native API's: {response}"
    );
    assert_eq!(served.call("PUT", "/who", &[]).await, (418, "UnknownMethod".to_owned()));
    assert_eq!(served.call("GET", "/panic", &[]).await, (418, "Internal".to_owned()));
}

#[tokio::test]
async fn has_a_prefix_or_its_own_address() {
    let served = Served::start("", false, dialect("/pt", &["/who"])).await;
    assert_eq!(served.call("GET", "/pt/who", &[]).await.0, 200);
    assert_eq!(served.call("GET", "/who", &[]).await.0, 404);
    let alone = Served::start("", true, dialect("", &["/who"])).await;
    assert_eq!(alone.call("GET", "/who", &[]).await.0, 200);
    assert_eq!(alone.call("GET", "/v1/jobs", &[]).await, (418, "UnknownPath".to_owned()));
}

#[tokio::test]
async fn denials_have_the_form_of_the_dialect() {
    let served = Served::start("", false, dialect("", &["/who"])).await;
    let submitter = served.token(Some("acme"), Role::Submitter).await;
    let admin = served.token(None, Role::Admin).await;
    assert_eq!(served.call("GET", "/who", &[]).await, (418, "MissingToken".to_owned()));
    assert_eq!(
        served.call("GET", "/who", &[("authorization", "Bearer no")]).await,
        (418, "BadToken".to_owned())
    );
    assert_eq!(
        served.call("GET", "/who", &[("authorization", "Basic eA==")]).await,
        (418, "BadToken".to_owned())
    );
    let as_submitter = [("authorization", submitter.as_str())];
    let (status, response) = served.call("POST", "/do", &as_submitter).await;
    assert!(status == 200 && response.starts_with("submitter for acme in "), "{response}");
    assert!(served.call("POST", "/rule", &as_submitter).await.1.starts_with("Forbidden("));
    assert_eq!(served.call("POST", "/rule", &[("authorization", admin.as_str())]).await.0, 200);
    for _ in 0..10 {
        served.call("GET", "/who", &[("authorization", "Bearer no")]).await;
    }
    let (_, response) = served.call("GET", "/who", &[("authorization", "Bearer no")]).await;
    assert!(response.starts_with("TooManyAttempts"), "{response}");
}

#[tokio::test]
async fn pages_of_other_origins_and_foreign_hosts_are_denied() {
    let served = Served::start("", false, dialect("", &["/who"])).await;
    for (header, why) in
        [(("host", "evil.example"), "Misdirected("), (("origin", "http://evil.example"), "ForeignOrigin(")]
    {
        assert!(served.call("GET", "/who", &[header]).await.1.starts_with(why), "{header:?}");
    }
}

#[tokio::test]
async fn too_many_requests_are_rejected() {
    let served = Served::start("dialects.pinchtab.requests_max = 2", false, dialect("", &["/who"])).await;
    for _ in 0..2 {
        assert_eq!(served.call("GET", "/who", &[]).await.0, 200);
    }
    let (_, response) = served.call("GET", "/who", &[]).await;
    assert_eq!(response, "TooManyRequests { max: 2, window: Span(10000) }");
    assert_eq!(served.call("GET", "/livez", &[]).await.0, 200, "native routes are not counted");
}

#[tokio::test]
async fn defect_11_reports_are_not_counted_and_tokens_are_counted_apart() {
    let served = Served::start("dialects.pinchtab.requests_max = 2", false, dialect("", &["/who"])).await;
    for _ in 0..10 {
        served.call("GET", "/who", &[]).await;
        assert_eq!(served.call("POST", "/beat", &[]).await.0, 200, "a heartbeat is never rejected");
    }
    assert!(served.call("GET", "/who", &[]).await.1.starts_with("TooManyRequests"));
    let (one, other) = (served.token(None, Role::Admin).await, served.token(None, Role::Admin).await);
    for token in [&one, &other] {
        for expected in [200, 200, 418] {
            let (status, response) = served.call("GET", "/who", &[("authorization", token)]).await;
            assert_eq!(status, expected, "{response}");
        }
    }
}

#[tokio::test]
async fn defect_11_defect_15_a_rejected_request_does_not_close_its_connection() {
    let served = Served::start("dialects.pinchtab.requests_max = 2", false, dialect("", &["/who"])).await;
    let address = served.base.strip_prefix("http://").unwrap();
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    let body = "x".repeat(300_000);
    for number in 0..20 {
        let head = format!("POST /do HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let (status, len) = read_head(&mut stream).await;
        assert_eq!(status, if number < 2 { "200" } else { "418" }, "call {number}");
        let mut answer = vec![0; len];
        stream.read_exact(&mut answer).await.unwrap();
    }
}

/// The status of the next response, and the length of its body.
async fn read_head(stream: &mut BufReader<TcpStream>) -> (String, usize) {
    let (mut status, mut len) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).await.unwrap() > 0, "the connection is closed");
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].to_owned();
        }
        if let Some(rest) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = rest.trim().parse().unwrap();
        }
        if line == "\r\n" {
            return (status, len);
        }
    }
}

#[tokio::test]
async fn defect_13_request_ids_are_short_and_plain() {
    let served = Served::start("", false, dialect("", &["/who"])).await;
    let long = "a".repeat(65);
    for odd in ["<script>", "a b", "x\"y", long.as_str()] {
        let (status, response) = served.call("GET", "/who", &[("x-request-id", odd)]).await;
        assert!(status == 200 && !response.contains(odd), "{response}");
    }
    let uuid = "7f3c2e1d-94b0-4a55-8f11-6a2b0c9d8e7f";
    assert!(served.call("GET", "/who", &[("x-request-id", uuid)]).await.1.ends_with(uuid));
}

#[tokio::test]
async fn a_path_that_is_in_use_is_an_error() {
    let (api, _, _, _running) = start_api(test_store(), "");
    let clash = |dialect| router_with(api.clone(), vec![dialect]).err().unwrap().to_string();
    assert_eq!(
        clash(dialect("", &["/v1/jobs/{anything}"])),
        "the dialect pinchtab would answer /v1/jobs/{anything}, which the native API answers already; give it a prefix \
         (dialects.pinchtab.prefix) or an address of its own (dialects.pinchtab.listen)"
    );
    clash(dialect("/v1", &["/config"]));
    let twice = router_with(api.clone(), vec![dialect("", &["/a"]), dialect("", &["/b"])]);
    assert!(twice.is_err(), "two dialects on one path");
    assert!(router_with(api, vec![dialect("/x", &["/a"]), dialect("/y", &["/a"])]).is_ok());
}
