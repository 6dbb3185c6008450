//! Sample frames: a valid one of every type, and ways to break it.

use serde_json::{Value, json};

/// An envelope of `kind` around `payload`.
pub fn frame(kind: &str, payload: Value) -> Value {
    let role = match kind {
        "cmd.dispatch"
        | "cmd.cancel"
        | "cmd.drain"
        | "pkg.install"
        | "pkg.uninstall"
        | "middleware.next_response"
        | "resource.read" => "scheduler",
        _ => "worker",
    };
    json!({
        "type": kind, "id": format!("{kind}-1"), "ts": "2030-01-01T08:00:00+01:00", "tenant": "acme",
        "sender": {"role": role, "id": "w-1"}, "payload": payload
    })
}

/// A full payload of every type, every optional field included.
pub fn payloads() -> Vec<(&'static str, Value)> {
    vec![
        (
            "handshake",
            json!({"protocol": 1, "auth": {"mode": "token", "token": "s3cret", "fingerprint": null},
                "worker": {"id": "w-1", "version": "0.1.0", "hostname": "host"}}),
        ),
        (
            "register",
            json!({"capabilities": {"concurrency": {"max_parallel": 4, "per_node_limits": {"resize": 2}},
                "runtimes": ["process"], "features": ["kind:resize"]},
                "packages": [{"name": "img", "version": "1.0.0", "status": "installed"}], "channels": ["default"],
                "manifests": [{"name": "img", "version": "1.0.0", "manifest": {"nodes": []}}],
                "boot_id": "boot-1", "tasks": [{"task_id": "t1", "seq": 1}]}),
        ),
        ("ack", json!({"ok": true, "for": "handshake-1", "info": "lease_ms=30000"})),
        (
            "heartbeat",
            json!({"healthy": true, "metrics": {"inflight": 1, "cpu_pct": 12.5, "mem_pct": 40, "disk_pct": 50.0,
                "latency_ms": 3, "resource_handles": 2}, "packages": {"drift": false}}),
        ),
        ("cmd.dispatch", dispatch()),
        ("cmd.cancel", json!({"run_id": "r1", "task_id": "t1", "reason": "stopped by a user"})),
        ("cmd.drain", json!({"reason": "upgrade", "limit_ms": 60000})),
        (
            "feedback",
            json!({"run_id": "r1", "task_id": "t1", "stage": "running", "progress": 0.5, "message": "half",
                "chunks": [{"channel": "stdout", "index": 0, "mime_type": "text/plain", "text": "a",
                    "metadata": {"terminal": true}}, {"channel": "custom", "data_base64": "AAE="}],
                "metrics": {"loss": 0.25}, "metadata": {"results": {"a": 1}}}),
        ),
        (
            "result",
            json!({"run_id": "r1", "task_id": "t1", "status": "FAILED", "result": {"a": [1, 2]}, "duration_ms": 12,
                "metadata": {"retryable": true}, "artifacts": [{"resource_id": "f1", "worker_id": "w-1",
                "type": "file", "size_bytes": 3, "inline": false, "expires_at": "2030-01-01T09:00:00Z",
                "metadata": {}}], "error": {"code": "E.RUNNER.FAILURE", "message": "no", "remediation": "try again"}}),
        ),
        (
            "error",
            json!({"code": "E.TIMEOUT", "message": "too long", "remediation": "ask for more time",
                "context": {"where": "worker.runner", "details": {"task_id": "t1"}}}),
        ),
        (
            "pkg.install",
            json!({"name": "img", "version": "1.0.0", "url": "https://example.org/img.zip", "sha256": "ab"}),
        ),
        ("pkg.uninstall", json!({"name": "img", "version": "1.0.0"})),
        (
            "pkg.event",
            json!({"name": "img", "version": "1.0.0", "status": "installed", "log_url": "https://example.org/log",
                "details": {"operation": "install"}}),
        ),
        (
            "middleware.next_request",
            json!({"requestId": "q1", "runId": "r1", "nodeId": "n1", "middlewareId": "m1", "chainIndex": 0,
                "hostCtx": {}, "middlewareCtx": {}, "payload": {}, "timeoutMs": 1000}),
        ),
        (
            "middleware.next_response",
            json!({"requestId": "q1", "runId": "r1", "nodeId": "n1", "middlewareId": "m1", "result": {},
                "error": {"code": "next_timeout"}, "trace": {}}),
        ),
        ("resource.read", json!({"resource_id": "f1", "offset": 65536, "limit": 65536})),
        (
            "resource.data",
            json!({"resource_id": "f1", "offset": 65536, "size_bytes": 65538, "data_base64": "AAE="}),
        ),
    ]
}

/// A dispatch of the second middleware of a host.
pub fn dispatch() -> Value {
    json!({"run_id": "r1", "task_id": "t1", "node_id": "m2", "node_type": "resize", "package_name": "img",
        "package_version": "1.0.0", "parameters": {"width": 3}, "constraints": {"timeout_ms": 5000}, "priority": 5,
        "host_node_id": "n1", "middleware_chain": ["m1", "m2"], "chain_index": 1, "concurrency_key": "r1:m2",
        "resource_refs": [{"resource_id": "f0", "worker_id": "w-1", "type": "file", "scope": "run",
            "expires_at": "2030-01-01T09:00:00Z", "metadata": {"a": 1}}],
        "affinity": {"key": "model-7", "mode": "sticky", "expires_at": "2030-01-01T09:00:00Z"},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"})
}

/// Payloads that must be rejected: the type, the change (a pointer and a value; `None` removes), and the field that
/// the error names.
pub fn bad_payloads() -> Vec<(&'static str, &'static str, Option<Value>, &'static str)> {
    vec![
        ("handshake", "/protocol", Some(json!(0)), "protocol"),
        ("handshake", "/protocol", Some(json!("1")), "protocol"),
        ("handshake", "/auth/mode", Some(json!("magic")), "auth.mode"),
        ("handshake", "/auth", Some(json!(["token"])), "auth"),
        ("handshake", "/worker/id", Some(json!("")), "worker.id"),
        ("handshake", "/worker/hostname", None, "worker"),
        ("handshake", "/extra", Some(json!(1)), "extra"),
        (
            "register",
            "/capabilities/concurrency/max_parallel",
            Some(json!(0)),
            "capabilities.concurrency.max_parallel",
        ),
        (
            "register",
            "/capabilities/concurrency/per_node_limits/resize",
            Some(json!(0)),
            "capabilities.concurrency.per_node_limits.resize",
        ),
        ("register", "/capabilities/runtimes", Some(json!([])), "capabilities.runtimes"),
        ("register", "/capabilities/features/0", Some(json!("")), "capabilities.features[0]"),
        ("register", "/packages", None, ""),
        ("register", "/packages/0/status", Some(json!("new")), "packages[0].status"),
        ("register", "/channels", Some(Value::Null), "channels"),
        ("register", "/boot_id", Some(json!("")), "boot_id"),
        ("register", "/tasks", Some(Value::Null), "tasks"),
        ("register", "/tasks/0/seq", Some(json!(-1)), "tasks[0].seq"),
        ("ack", "/for", Some(json!(1)), "for"),
        ("ack", "/ok", Some(json!("yes")), "ok"),
        ("heartbeat", "/healthy", Some(json!(1)), "healthy"),
        ("heartbeat", "/metrics/inflight", Some(json!(-1)), "metrics.inflight"),
        ("heartbeat", "/metrics/cpu_pct", Some(json!(-0.5)), "metrics.cpu_pct"),
        ("heartbeat", "/metrics/inflight", None, "metrics"),
        ("cmd.dispatch", "/task_id", None, ""),
        ("cmd.dispatch", "/parameters", Some(json!([])), "parameters"),
        ("cmd.dispatch", "/constraints/timeout_ms", Some(json!(0)), "constraints.timeout_ms"),
        ("cmd.dispatch", "/constraints", None, ""),
        ("cmd.dispatch", "/affinity/mode", Some(json!("glued")), "affinity.mode"),
        ("cmd.dispatch", "/resource_refs/0/type", None, "resource_refs[0]"),
        (
            "cmd.dispatch",
            "/resource_refs/0/expires_at",
            Some(json!("2030-01-01T09:00:00")),
            "resource_refs[0].expires_at",
        ),
        ("cmd.cancel", "/run_id", Some(json!("")), "run_id"),
        ("cmd.drain", "/limit_ms", Some(json!(0)), "limit_ms"),
        ("feedback", "/progress", Some(json!(1.5)), "progress"),
        ("feedback", "/chunks/0/channel", Some(json!("pipe")), "chunks[0].channel"),
        ("feedback", "/chunks/0/data_base64", Some(json!("AAE=")), "chunks[0]"),
        ("feedback", "/metrics/loss", Some(json!("low")), "metrics.loss"),
        ("result", "/status", Some(json!("DONE")), "status"),
        ("result", "/result", Some(Value::Null), "result"),
        ("result", "/duration_ms", Some(json!(-1)), "duration_ms"),
        ("result", "/artifacts/0/size_bytes", Some(json!("3")), "artifacts[0].size_bytes"),
        ("result", "/error/message", None, "error"),
        ("error", "/message", Some(json!("")), "message"),
        ("error", "/context/where", Some(json!(1)), "context.where"),
        ("pkg.install", "/version", None, ""),
        ("pkg.install", "/sha256", Some(json!("")), "sha256"),
        ("pkg.uninstall", "/name", Some(json!(1)), "name"),
        ("pkg.event", "/status", Some(json!("uninstalled")), "status"),
        ("middleware.next_request", "/requestId", None, ""),
        ("middleware.next_response", "/result", Some(json!(1)), "result"),
        ("resource.read", "/resource_id", Some(json!("")), "resource_id"),
        ("resource.read", "/offset", Some(json!(-1)), "offset"),
        ("resource.read", "/limit", Some(json!(0)), "limit"),
        ("resource.read", "/limit", Some(json!(1_048_577)), "limit"),
        ("resource.data", "/size_bytes", None, ""),
        ("resource.data", "/data_base64", Some(Value::Null), "data_base64"),
        ("resource.data", "/data_base64", Some(json!("A".repeat(1_398_105))), "data_base64"),
    ]
}

/// `payload` with the value at `pointer` replaced, or removed.
pub fn broken(mut payload: Value, pointer: &str, value: Option<Value>) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match payload.pointer_mut(parent).unwrap() {
        Value::Object(map) => match value {
            Some(value) => drop(map.insert(key.to_owned(), value)),
            None => drop(map.remove(key).unwrap()),
        },
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.unwrap(),
        other => panic!("{other} has no parts"),
    }
    payload
}
