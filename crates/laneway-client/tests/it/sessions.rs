//! Dialogues with one worker, over a real socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use laneway_client::worker::{
    Failure, Outcome, ResourceBody, Task, TlsFiles, Worker, WorkerBuilder, WorkerError, WorkerState,
};
use laneway_wire::frame::{
    AuthMode, Channel, ErrorCode, Frame, JsonObject, Message, MessageType, PackageOutcome, ResultStatus,
    TaskResult,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::peer::{Peer, Port};

fn start(worker: Worker) -> JoinHandle<Result<(), WorkerError>> {
    tokio::spawn(worker.run())
}

/// Starts a worker that connects to `port`, with its session up.
async fn connect(
    port: &Port,
    worker: WorkerBuilder,
) -> (JoinHandle<Result<(), WorkerError>>, Peer<TcpStream>) {
    let running = start(worker.build().unwrap());
    let mut peer = port.accept().await;
    peer.greet().await;
    (running, peer)
}

fn result(frame: &Frame) -> &TaskResult {
    match &frame.message {
        Message::Result(result) => result,
        other => panic!("{other:?} is not a result"),
    }
}

async fn echo(task: Task) -> Result<Outcome, Failure> {
    Outcome::of(&task.read::<Value>()?)
}

#[tokio::test]
async fn d2_the_example_exchange_of_the_protocol() {
    let port = Port::open().await;
    let worker = port.worker().handler("echo", echo).limit("echo", 2).max_parallel(3).build().unwrap();
    let handle = worker.handle();
    let running = start(worker);
    let mut peer = port.accept().await;
    let (handshake, register) = peer.greet().await;
    assert!(handshake.wants_ack() && register.wants_ack());
    let Message::Register(register) = register.message else { panic!("no register") };
    assert_eq!(register.capabilities.concurrency.max_parallel, 3);
    assert_eq!(register.capabilities.features.iter().map(|f| f.as_str()).collect::<Vec<_>>(), ["kind:echo"]);
    let id = peer.dispatch("t1", 1, "echo", json!({})).await;
    let ack = peer.receive(MessageType::Ack).await;
    assert_eq!(ack.acknowledges().unwrap().as_str(), id);
    let frame = peer.receive(MessageType::Result).await;
    assert_eq!((frame.corr.as_deref(), frame.seq, frame.wants_ack()), (Some("t1"), Some(1), true));
    assert_eq!(result(&frame).status, ResultStatus::Succeeded);
    assert_eq!(result(&frame).result.get(), "{\"task\":\"t1\"}");
    peer.ack(&frame).await;
    let beat = peer.receive(MessageType::Heartbeat).await;
    peer.ack(&beat).await;
    assert!(
        handle.metrics().contains("task_duration_ms_count{node_type=\"echo\"} 1"),
        "{}",
        handle.metrics()
    );
    handle.drain(None).await;
    running.await.unwrap().unwrap();
    assert_eq!(handle.state(), WorkerState::Closed);
}

#[tokio::test]
async fn d1_garbage_gets_an_error_and_the_connection_stays() {
    let port = Port::open().await;
    let (running, mut peer) = connect(&port, port.worker().handler("echo", echo)).await;
    for garbage in ["", "{", "[]", "{\"type\":\"cmd.dance\"}"] {
        peer.send_raw(garbage).await;
        let frame = peer.receive(MessageType::Error).await;
        assert!(
            matches!(&frame.message, Message::Error(error) if error.code == "E.CMD.UNKNOWN"),
            "{frame:?}"
        );
    }
    peer.dispatch("t1", 1, "echo", json!({})).await;
    assert_eq!(result(&peer.receive(MessageType::Result).await).status, ResultStatus::Succeeded);
    running.abort();
}

#[tokio::test]
async fn t11_a_cancel_reaches_the_handler() {
    let port = Port::open().await;
    let handler = |task: Task| async move {
        task.cancellation().cancelled().await;
        Err(Failure::permanent("stopped", "as requested"))
    };
    let (running, mut peer) = connect(&port, port.worker().handler("wait", handler)).await;
    peer.dispatch("t1", 1, "wait", json!({})).await;
    peer.receive(MessageType::Ack).await;
    peer.send("cmd.cancel", json!({"run_id": "r1", "task_id": "t1"}), Some("t1"), Some(1)).await;
    let frame = peer.receive(MessageType::Result).await;
    assert_eq!(result(&frame).status, ResultStatus::Cancelled);
    assert_eq!(result(&frame).error.as_ref().unwrap().code, ErrorCode::RunnerCancelled.as_str());
    running.abort();
}

#[tokio::test]
async fn handlers_that_hang_panic_or_fail_do_not_end_the_worker() {
    let port = Port::open().await;
    let worker = port
        .worker()
        .stop_grace(Duration::from_millis(20))
        .handler("hang", |_| std::future::pending())
        .handler("panic", |_| async { panic!("no more") })
        .handler("fail", |_| async { Err(Failure::transient("busy", "later")) });
    let (running, mut peer) = connect(&port, worker).await;
    let cases =
        [("hang", "E.TIMEOUT"), ("panic", "E.RUNNER.FAILURE"), ("fail", "busy"), ("hang", "E.TIMEOUT")];
    for (n, (kind, code)) in cases.into_iter().enumerate() {
        peer.dispatch(&format!("t{n}"), n as u64, kind, json!({"timeout_ms": 50})).await;
        let frame = peer.receive(MessageType::Result).await;
        peer.ack(&frame).await;
        assert_eq!(result(&frame).status, ResultStatus::Failed);
        assert_eq!(result(&frame).error.as_ref().unwrap().code, code);
    }
    running.abort();
}

#[tokio::test]
async fn d13_a_drain_finishes_the_last_task_and_sends_its_result() {
    let port = Port::open().await;
    let (go, gone) = tokio::sync::watch::channel(false);
    let worker = port
        .worker()
        .handler("wait", move |_| {
            let mut gone = gone.clone();
            async move {
                gone.wait_for(|go| *go).await.map_err(|_| Failure::permanent("gone", "the test ended"))?;
                Ok(Outcome::skipped())
            }
        })
        .build()
        .unwrap();
    let handle = worker.handle();
    let running = start(worker);
    let mut peer = port.accept().await;
    peer.greet().await;
    peer.dispatch("t1", 1, "wait", json!({})).await;
    peer.receive(MessageType::Ack).await;
    peer.send("cmd.drain", json!({}), None, None).await;
    assert!(handle.reached(WorkerState::Draining).await);
    peer.dispatch("t2", 2, "wait", json!({})).await;
    let rejection = peer.receive(MessageType::Error).await;
    assert_eq!(rejection.corr.as_deref(), Some("t2"));
    peer.ack(&rejection).await;
    go.send(true).unwrap();
    let frame = peer.receive(MessageType::Result).await;
    assert_eq!(result(&frame).status, ResultStatus::Skipped);
    peer.ack(&frame).await;
    running.await.unwrap().unwrap();
    while peer.try_receive().await.is_some() {}
}

#[tokio::test]
async fn d4_the_token_source_is_called_at_every_connect() {
    let port = Port::open().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let worker = port
        .worker()
        .token(move || {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            async move { Some(format!("token-{number}")) }
        })
        .handler("echo", echo)
        .build()
        .unwrap();
    let running = start(worker);
    for expected in ["token-0", "token-1"] {
        let mut peer = port.accept().await;
        let handshake = peer.receive(MessageType::Handshake).await;
        let Message::Handshake(payload) = &handshake.message else { panic!("no handshake") };
        assert_eq!(payload.auth.mode, AuthMode::Token);
        assert_eq!(payload.auth.token.as_ref().unwrap().0, expected);
        let rejection = json!({"code": "E.AUTH.INVALID_TOKEN", "message": "it has expired"});
        peer.send("error", rejection, None, None).await;
        while peer.try_receive().await.is_some() {}
    }
    running.abort();
}

#[tokio::test]
async fn w4_a_worker_whose_name_was_taken_ends_with_an_error() {
    let port = Port::open().await;
    let (running, mut peer) = connect(&port, port.worker().handler("echo", echo)).await;
    peer.send("error", json!({"code": "E.SESSION.STALE_BINDING", "message": "superseded"}), None, None).await;
    assert!(matches!(running.await.unwrap(), Err(WorkerError::Superseded)));
}

#[tokio::test]
async fn feedback_artifacts_and_resources_arrive() {
    let port = Port::open().await;
    let handler = |task: Task| async move {
        task.progress(0.5, "half");
        task.metrics(&[("loss", 0.25)]);
        task.chunk(Channel::Stdout, "first").await;
        task.chunk(Channel::Stdout, "second").await;
        task.chunk_bytes(Channel::Custom, &[0, 1]).await;
        let artifact = task.keep("file", ResourceBody::Bytes(b"abc".as_slice().into()), None)?;
        Ok(Outcome::default().artifact(artifact).artifact(task.inline("text", Some(5))?))
    };
    let worker = port.worker().handler("make", handler).build().unwrap();
    let handle = worker.handle();
    let running = start(worker);
    let mut peer = port.accept().await;
    peer.greet().await;
    peer.dispatch("t1", 1, "make", json!({})).await;
    let mut feedbacks = Vec::new();
    let frame = loop {
        let frame = peer.try_receive().await.unwrap();
        match &frame.message {
            Message::Feedback(feedback) => {
                assert_eq!((frame.corr.as_deref(), frame.seq), (Some("t1"), Some(1)));
                feedbacks.push(feedback.clone());
            }
            Message::Result(_) => break frame,
            _ => {}
        }
    };
    assert_eq!(feedbacks[0].progress, Some(0.5));
    assert_eq!(feedbacks[1].metrics.as_ref().unwrap()["loss"], 0.25);
    let chunks: Vec<_> =
        feedbacks[2..].iter().map(|feedback| feedback.chunks.as_ref().unwrap()[0].clone()).collect();
    assert_eq!(chunks.iter().map(|chunk| chunk.index.unwrap()).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(chunks[1].text.as_deref(), Some("second"));
    assert_eq!(chunks[2].data_base64.as_deref(), Some("AAE="));
    let artifact = &result(&frame).artifacts.as_ref().unwrap()[0];
    assert_eq!((artifact.size_bytes, artifact.inline), (Some(3), Some(false)));
    assert_eq!(result(&frame).artifacts.as_ref().unwrap()[1].inline, Some(true));
    assert!(
        matches!(handle.resources().body(&artifact.resource_id), Some(ResourceBody::Bytes(bytes)) if *bytes == *b"abc")
    );
    let read = json!({"resource_id": artifact.resource_id.as_str(), "offset": 1, "limit": 9});
    let asked = peer.send("resource.read", read, None, None).await;
    let part = peer.receive(MessageType::ResourceData).await;
    let Message::ResourceData(data) = &part.message else { unreachable!() };
    assert_eq!((part.corr.as_deref(), data.offset, data.size_bytes), (Some(asked.as_str()), 1, 3));
    assert_eq!(data.data_base64, "YmM=");
    let read = json!({"resource_id": "res-nowhere", "offset": 0, "limit": 9});
    let asked = peer.send("resource.read", read, None, None).await;
    let rejected = peer.receive(MessageType::Error).await;
    let Message::Error(error) = &rejected.message else { unreachable!() };
    assert_eq!((rejected.corr.as_deref(), &*error.code), (Some(asked.as_str()), "E.RESOURCE.MISSING"));
    running.abort();
}

#[tokio::test]
async fn artifacts_of_a_failed_attempt_are_dropped() {
    let port = Port::open().await;
    let (kept, mut seen) = tokio::sync::mpsc::channel(1);
    let handler = move |task: Task| {
        let kept = kept.clone();
        async move {
            let artifact = task.keep("file", ResourceBody::Bytes(b"abc".as_slice().into()), None)?;
            kept.send(artifact.resource_id).await.unwrap();
            Err::<Outcome, _>(Failure::permanent("no", "no"))
        }
    };
    let worker = port.worker().handler("make", handler).build().unwrap();
    let handle = worker.handle();
    let running = start(worker);
    let mut peer = port.accept().await;
    peer.greet().await;
    peer.dispatch("t1", 1, "make", json!({})).await;
    let id = seen.recv().await.unwrap();
    peer.receive(MessageType::Result).await;
    while handle.resources().body(&id).is_some() {
        tokio::task::yield_now().await;
    }
    running.abort();
}

#[tokio::test]
async fn t12_next_is_answered_and_a_late_answer_is_ignored() {
    let port = Port::open().await;
    let handler = |task: Task| async move {
        let limit = task.time_left().map(|_| Duration::from_millis(20));
        match task.next(JsonObject::empty(), limit).await {
            Ok(result) => Ok(Outcome { result, ..Outcome::default() }),
            Err(error) => Err(Failure::permanent("next", error.to_string())),
        }
    };
    let (running, mut peer) = connect(&port, port.worker().handler("mw", handler)).await;
    for (seq, in_time) in [(1, true), (2, false), (3, true)] {
        let task = format!("t{seq}");
        let constraints = if in_time { json!({}) } else { json!({"timeout_ms": 60_000}) };
        let mut payload = crate::peer::dispatch(&task, "mw", constraints);
        payload["node_id"] = json!("m1");
        payload["host_node_id"] = json!("host");
        payload["middleware_chain"] = json!(["m1"]);
        payload["chain_index"] = json!(0);
        peer.send("cmd.dispatch", payload, Some(&task), Some(seq)).await;
        let request = peer.receive(MessageType::NextRequest).await;
        peer.ack(&request).await;
        let Message::NextRequest(request) = request.message else { panic!("no request") };
        let answer = json!({"requestId": request.request_id.as_str(), "runId": "r1", "nodeId": "host",
            "middlewareId": "m1", "result": {"seq": seq}});
        if in_time {
            peer.send("middleware.next_response", answer, None, None).await;
            let frame = peer.receive(MessageType::Result).await;
            assert_eq!(result(&frame).result.get(), format!("{{\"seq\":{seq}}}"));
            peer.ack(&frame).await;
        } else {
            let frame = peer.receive(MessageType::Result).await;
            assert_eq!(result(&frame).error.as_ref().unwrap().code, "next");
            peer.ack(&frame).await;
            peer.send("middleware.next_response", answer, None, None).await;
        }
    }
    running.abort();
}

#[tokio::test]
async fn d18_a_worker_without_a_folder_rejects_an_install() {
    let port = Port::open().await;
    let (running, mut peer) = connect(&port, port.worker().handler("echo", echo)).await;
    let asked = peer.send("pkg.install", json!({"name": "p", "version": "1"}), None, None).await;
    let frame = peer.receive(MessageType::PackageEvent).await;
    assert_eq!(frame.corr.as_deref(), Some(asked.as_str()));
    let Message::PackageEvent(event) = frame.message else { panic!("no event") };
    assert_eq!(event.status, PackageOutcome::Failed);
    assert!(event.details.unwrap().get().contains("E.PKG.PERMISSION"));
    running.abort();
}

#[tokio::test]
async fn a_client_certificate_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let cert =
        rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (ca, both) = (folder.path().join("ca.pem"), folder.path().join("both.pem"));
    std::fs::write(&ca, cert.pem()).unwrap();
    std::fs::write(&both, cert.pem() + &key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from(cert.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let port = Port::open().await;
    let url = port.url().replace("ws://", "wss://");
    let tls = TlsFiles { ca: Some(ca), cert: Some(both) };
    let worker = Worker::builder(&url, "w-1").tenant("acme").tls(tls).handler("echo", echo).build().unwrap();
    let running = start(worker);
    let stream = TlsAcceptor::from(Arc::new(config)).accept(port.accept_raw().await).await.unwrap();
    assert!(stream.get_ref().1.peer_certificates().is_some());
    let mut peer = Peer::new(stream).await;
    let (handshake, _) = peer.greet().await;
    assert!(matches!(&handshake.message, Message::Handshake(hello) if hello.auth.mode == AuthMode::Mtls));
    running.abort();
}

#[tokio::test]
async fn errors_of_the_builder_name_the_option() {
    let builder = || Worker::builder("ws://127.0.0.1:1/x", "w");
    let wrong = [
        (Worker::builder("http://x", "w").handler("k", echo), "ws://"),
        (Worker::builder("ws://127.0.0.1:1", "").handler("k", echo), "the worker's id"),
        (builder(), "no handler"),
        (builder().handler("k", echo).max_parallel(0), "max_parallel"),
        (builder().handler("k", echo).limit("k", 0), "the limit of a kind"),
        (builder().handler("", echo), "the kind of a handler"),
        (builder().handler("k", echo).runtimes([]), "runtimes"),
    ];
    for (builder, part) in wrong {
        let error = builder.build().err().unwrap().to_string();
        assert!(error.contains(part), "{error:?} does not name {part:?}");
    }
}

/// Sends a signal when it is dropped.
struct Dropped(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

#[tokio::test]
async fn w5_w6_no_attempt_runs_beyond_the_lease() {
    let port = Port::open().await;
    let (sender, dropped) = tokio::sync::oneshot::channel();
    let sender = Arc::new(std::sync::Mutex::new(Some(sender)));
    let worker = port
        .worker()
        .heartbeat(Duration::from_millis(400), Duration::ZERO)
        .stop_grace(Duration::from_millis(50))
        .handler("hang", move |_| {
            let guard = Dropped(sender.lock().unwrap().take());
            async move {
                std::future::pending::<()>().await;
                drop(guard);
                Ok(Outcome::default())
            }
        })
        .build()
        .unwrap();
    let running = start(worker);
    let mut peer = port.accept().await;
    for kind in [MessageType::Handshake, MessageType::Register] {
        let frame = peer.receive(kind).await;
        // Without a lease time in the answer, the lease is three heartbeats.
        peer.send("ack", json!({"ok": true, "for": frame.id.as_str()}), None, None).await;
    }
    peer.dispatch("t1", 1, "hang", json!({})).await;
    // The peer is connected but sends nothing any more: half open.
    dropped.await.unwrap();
    while peer.try_receive().await.is_some() {}
    let mut peer = port.accept().await;
    peer.greet().await;
    let frame = peer.receive(MessageType::Error).await;
    assert_eq!((frame.corr.as_deref(), frame.seq), (Some("t1"), Some(1)));
    assert!(matches!(&frame.message, Message::Error(error) if error.code == "E.RUNNER.CANCELLED"));
    running.abort();
}

#[tokio::test]
async fn d8_a_duplicate_dispatch_over_a_socket_is_acknowledged_twice_and_runs_once() {
    let port = Port::open().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = port.worker().max_parallel(4).handler("count", move |task: Task| {
        counted.fetch_add(1, Ordering::SeqCst);
        echo(task)
    });
    let (running, mut peer) = connect(&port, worker).await;
    let payload = crate::peer::dispatch("t1", "count", json!({}));
    let frame =
        crate::peer::envelope("d-1", "cmd.dispatch", payload.clone(), Some("t1"), Some(1)).to_string();
    // Twice at once, again after the outcome, and the same attempt under another id.
    peer.send_raw(&frame).await;
    peer.send_raw(&frame).await;
    let mut acks = 0;
    let result = loop {
        let received = peer.try_receive().await.unwrap();
        match &received.message {
            Message::Ack(_) if received.acknowledges().is_some_and(|id| id.as_str() == "d-1") => acks += 1,
            Message::Result(_) => break received,
            _ => {}
        }
    };
    peer.send_raw(&frame).await;
    while acks < 3 {
        let received = peer.receive(MessageType::Ack).await;
        acks += usize::from(received.acknowledges().is_some_and(|id| id.as_str() == "d-1"));
    }
    peer.ack(&result).await;
    let other = crate::peer::envelope("d-2", "cmd.dispatch", payload, Some("t1"), Some(1)).to_string();
    peer.send_raw(&other).await;
    while peer.receive(MessageType::Ack).await.acknowledges().is_none_or(|id| id.as_str() != "d-2") {}
    // A task that was started by then would have been recorded by the time another task has ended.
    peer.dispatch("t2", 2, "count", json!({})).await;
    let last = loop {
        let frame = peer.receive(MessageType::Result).await;
        if frame.corr.as_deref() == Some("t2") {
            break frame;
        }
        assert_eq!(frame.id, result.id, "the same outcome, as the same frame");
    };
    peer.ack(&last).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "t1 ran once, and t2 once");
    running.abort();
}

#[tokio::test]
async fn d17_a_task_with_a_missing_resource_fails_fast_over_a_socket() {
    let port = Port::open().await;
    let (running, mut peer) = connect(&port, port.worker().handler("echo", echo)).await;
    for (seq, owner) in [(1, "w-1"), (2, "w-9")] {
        let task = format!("t{seq}");
        let mut payload = crate::peer::dispatch(&task, "echo", json!({}));
        payload["resource_refs"] = json!([{"resource_id": "gone", "worker_id": owner, "type": "file"}]);
        peer.send("cmd.dispatch", payload, Some(&task), Some(seq)).await;
        let frame = peer.receive(MessageType::Error).await;
        assert_eq!((frame.corr.as_deref(), frame.seq), (Some(task.as_str()), Some(seq)));
        let Message::Error(error) = &frame.message else { unreachable!() };
        assert_eq!(error.code, "E.RESOURCE.MISSING");
        let context = error.context.as_ref().unwrap();
        assert_eq!(context.r#where.as_deref(), Some("worker.resources"));
        peer.ack(&frame).await;
    }
    running.abort();
}
