//! The dialect `astraflow`: runs of workflows, the workers that run their nodes, and a stream of what happens.
//!
//! A workflow is a run of the house in the lane `astraflow`; each of its nodes is a job whose kind is the node's type and
//! which wants a worker with the node's package. `workflow.rs` reads workflows and makes runs of them, `show.rs` shows runs
//! and nodes in their words, `events.rs` says what an event means to a page, and `stream.rs` tells it. The handlers are one
//! file a noun; every error is in `error.rs`. Workers do not come this way: they connect at `/ws/worker`.

mod canonical;
mod error;
mod events;
mod ports;
mod query;
mod runs;
mod show;
mod stream;
#[cfg(test)]
mod tests;
mod wire;
mod workers;
mod workflow;

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use laneway_runtime::Scheduler;
use laneway_runtime::caller::Right;
use laneway_runtime::live_config::LiveConfig;
use tokio::sync::Semaphore;

use crate::dialect::{Dialect, Route};

/// The lane of every node.
pub const LANE: &str = "astraflow";
/// Large bodies that are read at the same time.
const LARGE_BODIES_MAX: usize = 16;

/// What every handler holds. It is handles and bounds; the dialect itself remembers nothing.
#[derive(Clone)]
struct Astraflow {
    scheduler: Scheduler,
    live: LiveConfig,
    large_bodies: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: LiveConfig) -> Dialect {
    let large_bodies = Arc::new(Semaphore::new(LARGE_BODIES_MAX));
    let streams = Arc::new(Semaphore::new(live.current().dialects.astraflow.streams_max as usize));
    let held = Astraflow { scheduler, live, large_bodies, streams };
    let (get, post) = (Method::GET, Method::POST);
    let (look, submit, operate) = (Right::Look, Right::Submit, Right::Operate);
    let routes = vec![
        route(&held, &post, "/api/v1/runs", "start_run", submit, runs::start_run),
        route(&held, &get, "/api/v1/runs", "list_runs", look, runs::list_runs),
        route(&held, &get, "/api/v1/runs/{runId}", "get_run", look, runs::get_run),
        route(&held, &post, "/api/v1/runs/{runId}/cancel", "cancel_run", submit, runs::cancel_run),
        route(
            &held,
            &get,
            "/api/v1/runs/{runId}/definition",
            "get_run_definition",
            look,
            runs::get_run_definition,
        ),
        route(&held, &get, "/api/v1/workers", "list_workers", look, workers::list_workers),
        route(&held, &get, "/api/v1/workers/{workerId}", "get_worker", look, workers::get_worker),
        route(
            &held,
            &post,
            "/api/v1/workers/{workerId}/commands",
            "send_worker_command",
            operate,
            workers::send_worker_command,
        ),
        route(&held, &get, "/api/v1/events", "stream_events", look, stream::stream_events),
    ];
    Dialect { name: "astraflow", routes, denied: error::denied }
}

fn route<T: 'static>(
    held: &Astraflow,
    method: &Method,
    path: &'static str,
    operation: &'static str,
    right: Right,
    handler: impl Handler<T, Astraflow>,
) -> Route {
    let filter = MethodFilter::try_from(method.clone()).expect("routes use common methods");
    let handler = on(filter, handler).with_state(held.clone());
    Route { method: method.clone(), path, operation, right, handler }
}
