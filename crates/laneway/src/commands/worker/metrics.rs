//! The worker's figures over HTTP, for Prometheus.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use laneway_client::worker::WorkerHandle;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The format that Prometheus knows the text by.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/metrics`; as long as what is given back lives. Gives the address that was really taken.
pub async fn serve(
    address: SocketAddr,
    worker: WorkerHandle,
) -> anyhow::Result<(SocketAddr, AbortOnDropHandle<()>)> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on --metrics {address}"))?;
    let taken = listener.local_addr()?;
    let figures = get(move || {
        let text = worker.metrics();
        async move { ([(CONTENT_TYPE, OPEN_METRICS)], text) }
    });
    let router = Router::new().route("/metrics", figures);
    let serving = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the figures are not served any more");
        }
    });
    Ok((taken, AbortOnDropHandle::new(serving)))
}
