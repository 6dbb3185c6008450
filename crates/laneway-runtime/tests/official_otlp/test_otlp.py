"""What a server sends over OTLP, read with the official protobuf types. A field that they do not know is an error."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

BINARY = os.environ["LANEWAY_BIN"]
# Longest time for one wait, in seconds: only a server that sends nothing takes so long.
PATIENCE = 60.0
TYPES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Takes requests, and reads each of them with the type of its path."""

    def __init__(self) -> None:
        received: queue.Queue[Message | Exception] = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                try:
                    assert self.headers["content-type"] == "application/x-protobuf"
                    received.put(strict(TYPES[self.path], body))
                    self.send_response(200)
                except Exception as error:
                    received.put(error)
                    self.send_response(400)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.received = received
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self, kind: type[Message]) -> Any:
        """The next request of this type."""
        while True:
            found = self.received.get(timeout=PATIENCE)
            if isinstance(found, Exception):
                raise found
            if isinstance(found, kind):
                return found


def strict(kind: type[Message], body: bytes) -> Message:
    message = kind()
    message.ParseFromString(body)
    check_known(message)
    return message


def check_known(message: Message) -> None:
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in [value] if isinstance(value, Message) else value:
                check_known(one)


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Collector, str]]:
    collector = Collector()
    sets = ["limits.storage_low=1MiB", f"otel.endpoint={collector.url}", "otel.interval=200ms", "otel.metrics_interval=1s"]
    flags = [flag for value in sets for flag in ("--set", value)]
    command = [BINARY, "--json", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *flags]
    with (tmp_path / "server.log").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    yield collector, json.loads(process.stdout.readline())["url"]
    process.terminate()
    assert process.wait(30) == 0
    collector.server.shutdown()


def test_spans_and_metrics_are_read_by_the_official_types(world: tuple[Collector, str]) -> None:
    collector, url = world
    body = json.dumps({"kind": "fail", "retry": {"retries_max": 0}}).encode()
    headers = {"content-type": "application/json", "traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/jobs", body, headers), timeout=PATIENCE) as answer:
        job = json.load(answer)["id"]
    spans: dict[str, Span] = {}
    while "attempt fail" not in spans:
        request = collector.next(ExportTraceServiceRequest)
        for of_resource in request.resource_spans:
            assert attributes(of_resource.resource.attributes)["service.name"] == "laneway"
            for scope in of_resource.scope_spans:
                assert scope.scope.name == "laneway"
                spans.update({span.name: span for span in scope.spans})
    assert set(spans) == {"submit fail", "wait fail", "attempt fail"}
    submit, attempt = spans["submit fail"], spans["attempt fail"]
    assert (submit.parent_span_id.hex(), submit.kind) == (CALLER, Span.SPAN_KIND_SERVER)
    assert (attempt.parent_span_id, attempt.kind) == (submit.span_id, Span.SPAN_KIND_CONSUMER)
    assert attempt.status.code == Status.STATUS_CODE_ERROR and attempt.status.message
    for span in spans.values():
        assert (span.trace_id.hex(), span.trace_state, span.flags) == (TRACE, "vendor=1", 1)
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert attributes(span.attributes)["laneway.job.id"] == job
    assert attributes(attempt.attributes)["laneway.attempt"] == 1

    metrics = {}
    for of_resource in collector.next(ExportMetricsServiceRequest).resource_metrics:
        metrics = {metric.name: metric for scope in of_resource.scope_metrics for metric in scope.metrics}
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        page = answer.read().decode()
    for name, metric in metrics.items():
        assert f"\n{name}" in page, name
        sort = metric.WhichOneof("data")
        if sort in ("sum", "histogram"):
            assert getattr(metric, sort).aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert metrics["laneway_jobs_total"].sum.is_monotonic
    assert "laneway_commit_seconds" in metrics and metrics["laneway_commit_seconds"].HasField("histogram")
