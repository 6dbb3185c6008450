//! The worker's metrics over HTTP, for Prometheus.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use laneway_client::worker::WorkerHandle;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The content type of the metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/metrics` until the returned guard is dropped. Returns the actual address.
pub async fn serve(
    address: SocketAddr,
    worker: WorkerHandle,
) -> anyhow::Result<(SocketAddr, AbortOnDropHandle<()>)> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on --metrics {address}"))?;
    let taken = listener.local_addr()?;
    let handler = get(move || {
        let text = worker.metrics();
        async move { ([(CONTENT_TYPE, OPEN_METRICS)], text) }
    });
    let router = Router::new().route("/metrics", handler);
    let serving = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the metrics endpoint has failed");
        }
    });
    Ok((taken, AbortOnDropHandle::new(serving)))
}
