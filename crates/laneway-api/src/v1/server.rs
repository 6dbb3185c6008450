//! The state of the server: its paths, health, readiness and metrics.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use laneway_core::engine::Stats;
use laneway_wire::{Health, HealthQueue, Index, Problem, Readiness};

use crate::api::Api;
use crate::error::ApiError;
use crate::gate;
use crate::render;
use crate::reply::{self, Answer};

/// Public statistics are read from the engine at most this often.
const LOAD_AGE_MAX: Duration = Duration::from_millis(500);

/// The OpenAPI document.
const OPENAPI: &str = include_str!("../../../../docs/schema/openapi.json");

/// Lists the paths of the server.
#[utoipa::path(get, path = "/", operation_id = "get_index", tag = "server", responses((status = 200, body = Index)))]
pub async fn get_index(State(api): State<Api>, headers: HeaderMap) -> Answer {
    // A person with a browser wants the dashboard.
    if let Some(path) = api.dashboard.get().filter(|_| wants_page(&headers)) {
        // Relative, so that it holds behind a proxy that adds a path.
        return reply::see_other(&format!("{}/", path.trim_start_matches('/')));
    }
    let links = [
        ("api", "/v1"),
        ("openapi", "/openapi.json"),
        ("health", "/health"),
        ("live", "/livez"),
        ("ready", "/readyz"),
        ("metrics", "/metrics"),
        ("events", "/v1/events"),
    ];
    let dashboard = api.dashboard.get().map(|path| ("dashboard", path.as_str()));
    let links = links.into_iter().chain(dashboard);
    reply::ok(&Index {
        name: "laneway".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        links: links.map(|(name, path)| (name.to_owned(), path.to_owned())).collect(),
    })
}

/// True for a browser that opens the address: it names HTML, and programs do not.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

/// Responds while the process is alive.
#[utoipa::path(get, path = "/livez", operation_id = "get_livez", tag = "server", responses((status = 200, description = "Alive", content_type = "text/plain", body = String)))]
pub async fn get_livez() -> &'static str {
    "ok\n"
}

/// Shows whether the server admits jobs: 200, or 503 while it stops or storage is low.
#[utoipa::path(get, path = "/readyz", operation_id = "get_readyz", tag = "server", responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub async fn get_readyz(State(api): State<Api>) -> Answer {
    let load = load(&api).await;
    let readiness = match &load {
        _ if !api.scheduler.ready() => "draining",
        Err(_) => "draining",
        Ok(load) if load.closed => "draining",
        Ok(load) if load.storage_low => "storage_low",
        Ok(_) => "ready",
    };
    let status = if readiness == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply::json(status, &Readiness { status: readiness.to_owned() })
}

/// Shows the health of the server. Only server-wide callers see its load.
#[utoipa::path(get, path = "/health", operation_id = "get_health", tag = "server", responses((status = 200, body = Health), (status = 503, description = "unavailable", body = Problem)))]
pub async fn get_health(State(api): State<Api>, request: Request) -> Answer {
    let (load, store) = (load(&api).await?, api.scheduler.store_health().await);
    let reason = match load {
        _ if api.scheduler.is_draining() => Some("the server is stopping"),
        ServerLoad { closed: true, .. } => Some("the server is drained and admits no jobs"),
        ServerLoad { storage_low: true, .. } => Some("storage is low; the server admits no jobs"),
        _ => store.reason(),
    };
    reply::ok(&Health {
        status: if reason.is_none() { "ok" } else { "degraded" }.to_owned(),
        reason: reason.map(str::to_owned),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: api.started.elapsed().as_secs(),
        queue: gate::sees_server_load(&api, &request).then_some(HealthQueue {
            queued: load.waiting,
            running: load.open,
            max_concurrent: load.running_max,
        }),
        db: store.as_str().to_owned(),
        timestamp: render::time(api.scheduler.wall()),
    })
}

/// The metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "server", responses((status = 200, description = "The page", content_type = "application/openmetrics-text", body = String)))]
pub async fn get_metrics(State(api): State<Api>) -> Answer {
    let mut response = Response::new(Body::from(api.scheduler.render_metrics().await?));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// The OpenAPI document of this API.
#[utoipa::path(get, path = "/openapi.json", operation_id = "get_openapi", tag = "server", responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub async fn get_openapi() -> Answer {
    Ok(reply::document(OPENAPI))
}

/// The load of the whole server.
#[derive(Clone, Copy)]
pub struct ServerLoad {
    read_at: Instant,
    waiting: u64,
    open: u64,
    running_max: u32,
    storage_low: bool,
    closed: bool,
}

impl ServerLoad {
    fn of(stats: &Stats) -> ServerLoad {
        ServerLoad {
            read_at: Instant::now(),
            waiting: stats.scheduled + stats.queued,
            open: stats.assigned + stats.running + stats.still_running,
            running_max: stats.running_max,
            storage_low: stats.storage_low,
            closed: stats.closed,
        }
    }
}

async fn load(api: &Api) -> Result<ServerLoad, ApiError> {
    // The lock is held during the read on purpose: many requests at once cause one read.
    let mut kept = api.load.lock().await;
    match *kept {
        Some(load) if load.read_at.elapsed() < LOAD_AGE_MAX => Ok(load),
        _ => {
            let load = ServerLoad::of(&api.scheduler.stats(None).await?);
            *kept = Some(load);
            Ok(load)
        }
    }
}
