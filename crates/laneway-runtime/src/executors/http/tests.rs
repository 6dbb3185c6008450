//! Calls against a real server on a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes as Chunk};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use laneway_core::{AttemptId, Failure, Fence, JobId, Name, Outcome, Span, Wall};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Call, HttpClient};
use crate::config::{Secret, Target};

/// Far longer than any answer here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_2xx_answer_is_the_result_and_the_call_carries_who_and_which() {
    let (seen, mut calls) = mpsc::channel(1);
    let address = serve(Router::new().route(
        "/run",
        post(move |headers: HeaderMap, body: Chunk| async move {
            seen.send((headers, body)).await.unwrap();
            (StatusCode::CREATED, r#"{"ok":true}"#)
        }),
    ))
    .await;
    let mut target = target(address);
    target.token = Some(Secret::new("t0ken"));
    target.headers = vec![("x-team".to_owned(), Secret::new("blue"))];

    let outcome = forward(&target, &call()).await;

    assert_eq!(outcome, Outcome::Succeeded(Some(br#"{"ok":true}"#.to_vec().into())));
    let (headers, body) = calls.recv().await.unwrap();
    assert_eq!(body.as_ref(), br#"{"x":1}"#);
    for (name, expected) in [
        ("authorization", "Bearer t0ken"),
        ("content-type", "application/json"),
        ("idempotency-key", "00000000-0000-0000-0000-000000000007:3"),
        ("laneway-agent", "ann"),
        ("laneway-attempt", "3"),
        ("laneway-attempt-id", "00000000-0000-0000-0000-000000000009"),
        ("laneway-deadline", "2026-01-02T03:04:05.678Z"),
        ("laneway-job-id", "00000000-0000-0000-0000-000000000007"),
        ("laneway-kind", "render"),
        ("laneway-tenant", "acme"),
        ("x-team", "blue"),
    ] {
        assert_eq!(headers.get(name).map(|value| value.to_str().unwrap()), Some(expected), "{name}");
    }
}

#[tokio::test]
async fn merged_jobs_are_one_call_with_an_array_of_all_payloads() {
    let (seen, mut calls) = mpsc::channel(1);
    let address = serve(Router::new().route(
        "/run",
        post(move |headers: HeaderMap, body: Chunk| async move {
            seen.send((headers, body)).await.unwrap();
            StatusCode::OK
        }),
    ))
    .await;
    let merged = [&b"[2]"[..], b"", b"not \"JSON\""].map(|payload| payload.to_vec().into()).to_vec();
    forward(&target(address), &Call { merged, ..call() }).await;
    let (headers, body) = calls.recv().await.unwrap();
    assert_eq!(body.as_ref(), br#"[{"x":1},[2],null,"not \"JSON\""]"#);
    assert_eq!(headers["laneway-merged"], "4");
    forward(&target(address), &call()).await;
    assert_eq!(calls.recv().await.unwrap().0.get("laneway-merged"), None);
}

#[tokio::test]
async fn an_empty_answer_is_a_success_without_result() {
    let address = serve(Router::new().route("/run", post(|| async { StatusCode::NO_CONTENT }))).await;
    assert_eq!(forward(&target(address), &call()).await, Outcome::Succeeded(None));
}

#[tokio::test]
async fn a_500_is_worth_another_try_and_the_next_call_succeeds() {
    let calls = Arc::new(AtomicU32::new(0));
    let address = serve(Router::new().route(
        "/run",
        post(move || async move {
            match calls.fetch_add(1, Ordering::SeqCst) {
                0 => (StatusCode::INTERNAL_SERVER_ERROR, "boom"),
                _ => (StatusCode::OK, "fine"),
            }
        }),
    ))
    .await;
    let target = target(address);
    let failure = failed(forward(&target, &call()).await);
    assert!(failure.retryable);
    assert_eq!(failure.code.as_str(), "http_status");
    assert_eq!(&*failure.message, "the target answered 500 Internal Server Error: boom");
    assert_eq!(forward(&target, &call()).await, Outcome::Succeeded(Some(b"fine".to_vec().into())));
}

#[tokio::test]
async fn a_status_decides_whether_to_try_again() {
    for (status, retryable) in [
        (302, false),
        (400, false),
        (401, false),
        (404, false),
        (408, true),
        (409, false),
        (422, false),
        (425, true),
        (429, true),
        (500, true),
        (501, true),
        (503, true),
    ] {
        let code = StatusCode::from_u16(status).unwrap();
        let answer = move || async move { (code, [("retry-after", "7"), ("location", "/elsewhere")], "no") };
        let address = serve(Router::new().route("/run", post(answer))).await;
        let failure = failed(forward(&target(address), &call()).await);
        assert_eq!(failure.retryable, retryable, "{status}");
        let detail: serde_json::Value = serde_json::from_slice(failure.detail.as_deref().unwrap()).unwrap();
        assert_eq!(detail, serde_json::json!({"status": status, "retry_after": "7", "body": "no"}));
    }
}

#[tokio::test]
async fn defect_19_retry_after_is_read_as_seconds_or_as_a_date() {
    let at_noon = "Sun, 06 Nov 2022 12:00:00 GMT";
    for (asked, expected) in [
        ("7", Some(Span::secs(7))),
        ("0", Some(Span(0))),
        (" 120 ", Some(Span::secs(120))),
        ("99999999999999999999", Some(Span::secs(u32::MAX.into()))),
        ("Sun, 06 Nov 2022 12:00:30 GMT", Some(Span::secs(30))),
        ("Sun, 06 Nov 2022 11:00:00 GMT", Some(Span(0))),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
    ] {
        let headers = [("retry-after", asked), ("date", at_noon)];
        let answer = move || async move { (StatusCode::TOO_MANY_REQUESTS, headers, "no") };
        let address = serve(Router::new().route("/run", post(answer))).await;
        let failure = failed(forward(&target(address), &call()).await);
        assert_eq!(failure.retry_after, expected, "{asked:?}");
    }
}

#[tokio::test]
async fn an_error_text_is_bounded_and_harmless() {
    let text = format!("\u{1b}[2Jline one\r\nline two\0{}", "é".repeat(5_000));
    let answer = move || async move { (StatusCode::BAD_REQUEST, text) };
    let address = serve(Router::new().route("/run", post(answer))).await;
    let failure = failed(forward(&target(address), &call()).await);
    assert!(failure.message.len() <= 2_048, "{}", failure.message.len());
    assert!(
        failure
            .message
            .starts_with("the target answered 400 Bad Request: \\u{1b}[2Jline one\\r\\nline two\\u{0}éé")
    );
    assert!(!failure.message.chars().any(char::is_control));
}

#[tokio::test]
async fn a_slow_target_times_out() {
    let answer = || async { std::future::pending::<StatusCode>().await };
    let address = serve(Router::new().route("/run", post(answer))).await;
    let call = Call { time_left: Some(Duration::from_millis(50)), ..call() };
    let failure = failed(forward(&target(address), &call).await);
    assert_eq!((failure.code.as_str(), failure.retryable), ("http_timeout", true));
}

#[tokio::test]
async fn a_body_that_never_ends_times_out() {
    let answer = || async { Body::from_stream(Stalling) };
    let address = serve(Router::new().route("/run", post(answer))).await;
    let call = Call { time_left: Some(Duration::from_millis(50)), ..call() };
    let failure = failed(forward(&target(address), &call).await);
    assert_eq!((failure.code.as_str(), failure.retryable), ("http_timeout", true));
}

#[tokio::test]
async fn no_time_left_means_no_call() {
    let address = serve(Router::new().route("/run", post(|| async { "done" }))).await;
    let call = Call { time_left: Some(Duration::ZERO), ..call() };
    assert_eq!(failed(forward(&target(address), &call).await).code.as_str(), "http_timeout");
}

#[tokio::test]
async fn a_stop_closes_the_connection() {
    let (entered, is_in) = oneshot::channel();
    let (left, is_out) = oneshot::channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 4_096];
        assert!(socket.read(&mut bytes).await.unwrap() > 0);
        entered.send(()).unwrap();
        // Ends only when the other side closes: this server never answers.
        while socket.read(&mut bytes).await.is_ok_and(|len| len > 0) {}
        left.send(()).unwrap();
    });
    let stop = CancellationToken::new();
    let running = {
        let stop = stop.clone();
        tokio::spawn(async move { client().forward(&target(address), &call(), &stop).await })
    };
    patient(is_in).await.unwrap();
    stop.cancel();
    assert_eq!(patient(running).await.unwrap(), Outcome::Canceled);
    patient(is_out).await.unwrap();
}

#[tokio::test]
async fn a_huge_answer_is_cut_off() {
    const WHOLE: usize = 100 << 20;
    let sent = Arc::new(AtomicU32::new(0));
    let counter = sent.clone();
    let answer = move || async move { Body::from_stream(Flood { left: WHOLE, sent: counter }) };
    let address = serve(Router::new().route("/run", post(answer))).await;
    let failure = failed(forward(&target(address), &call()).await);
    assert_eq!((failure.code.as_str(), failure.retryable), ("response_too_large", false));
    let sent = sent.load(Ordering::SeqCst) as usize * FLOOD_CHUNK;
    assert!(sent < WHOLE / 2, "{sent} bytes were taken");
}

#[tokio::test]
async fn an_announced_huge_answer_is_not_read_at_all() {
    let address = serve_raw(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n").await;
    let failure = failed(forward(&target(address), &call()).await);
    assert_eq!(failure.code.as_str(), "response_too_large");
}

#[tokio::test]
async fn an_answer_of_exactly_the_largest_size_is_taken() {
    let answer = || async { vec![b'x'; 1 << 20] };
    let address = serve(Router::new().route("/run", post(answer))).await;
    match forward(&target(address), &call()).await {
        Outcome::Succeeded(Some(body)) => assert_eq!(body.len(), 1 << 20),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn garbage_is_worth_another_try() {
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.9\r\n"[..],
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        b"\0\xff\xfe",
    ] {
        let address = serve_raw(garbage).await;
        let failure = failed(forward(&target(address), &call()).await);
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_broken", true), "{garbage:?}");
    }
}

#[tokio::test]
async fn a_rejected_connection_is_worth_another_try_and_hides_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut target = target(listener.local_addr().unwrap());
    drop(listener);
    target.url.set_query(Some("key=hidden"));
    let failure = failed(forward(&target, &call()).await);
    assert_eq!((failure.code.as_str(), failure.retryable), ("http_connect", true));
    assert!(!failure.message.contains("hidden"), "{}", failure.message);
}

fn client() -> HttpClient {
    HttpClient::new().unwrap()
}

async fn forward(target: &Target, call: &Call) -> Outcome {
    patient(client().forward(target, call, &CancellationToken::new())).await
}

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("ends in time")
}

fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

fn target(address: SocketAddr) -> Target {
    let url = format!("http://{address}/run").parse().unwrap();
    Target { url, headers: Vec::new(), token: None, response_max: 1 << 20 }
}

fn call() -> Call {
    Call {
        payload: br#"{"x":1}"#.to_vec().into(),
        merged: Vec::new(),
        fence: Fence { job: JobId(7), attempt: 3, attempt_id: AttemptId(9), lease_epoch: 1 },
        kind: Name::fixed("render"),
        agent: Name::fixed("ann"),
        tenant: Name::fixed("acme"),
        time_left: Some(PATIENCE),
        ends_at: Some(Wall(1_767_323_045_678)),
        trace: None,
    }
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router.fallback(|request: Request| async move {
        (StatusCode::IM_A_TEAPOT, format!("nothing at {}", request.uri())).into_response()
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Says `answer` to the first call and closes.
async fn serve_raw(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 4_096];
        assert!(socket.read(&mut bytes).await.unwrap() > 0);
        socket.write_all(answer).await.unwrap();
        socket.shutdown().await.unwrap();
    });
    address
}

const FLOOD_CHUNK: usize = 64 << 10;

/// A body of `left` bytes that counts the chunks that were taken from it.
struct Flood {
    left: usize,
    sent: Arc<AtomicU32>,
}

impl futures_util::Stream for Flood {
    type Item = Result<Chunk, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if self.left == 0 {
            return std::task::Poll::Ready(None);
        }
        self.left -= FLOOD_CHUNK;
        self.sent.fetch_add(1, Ordering::SeqCst);
        std::task::Poll::Ready(Some(Ok(Chunk::from(vec![b'x'; FLOOD_CHUNK]))))
    }
}

/// A body that never comes.
struct Stalling;

impl futures_util::Stream for Stalling {
    type Item = Result<Chunk, std::io::Error>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Pending
    }
}
