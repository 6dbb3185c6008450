//! The dialect `astraflow`: workflow runs, the workers that execute their nodes, and a stream of events.
//!
//! A workflow is a run in the lane `astraflow`. Each node is a job whose kind is the node's type and whose
//! placement constraints name the node's package. `workflow.rs` parses workflows and `layout.rs` makes runs of
//! them; `frames.rs` and `containers.rs` handle nodes of containers; `show.rs` renders runs and nodes;
//! `events.rs` translates events and `stream.rs` sends them. There is one file for the handlers of each noun;
//! every error is in `error.rs`. Workers do not use these routes: they connect at `/ws/worker`.

mod canonical;
mod config;
mod containers;
mod error;
mod events;
mod frames;
mod layout;
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

use axum::http::Method;
use laneway_runtime::caller::Right;
use laneway_runtime::cursor::Cursors;
use laneway_runtime::dialect::{Dialect, Route};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Scheduler, Shares, TenantPermits};

pub use config::SECTION;

/// The name of the dialect in the configuration.
const NAME: &str = "astraflow";

/// The lane of every node.
pub const LANE: &str = "astraflow";

/// How many large workflows are parsed at once. More would take the cores of the runtime.
const PARSERS_MAX: usize = 2;

/// What every handler holds: handles and limits. The dialect itself has no state.
#[derive(Clone)]
struct Astraflow {
    scheduler: Scheduler,
    live: LiveConfig,
    /// The limit on event streams.
    streams: Shares,
    cursors: Arc<Cursors>,
    /// Large workflows are parsed on blocking threads, one per tenant at a time.
    parsers: TenantPermits,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: LiveConfig) -> Dialect {
    let cursors = Arc::new(Cursors::fresh().expect("the system has random numbers"));
    let config = live.current();
    let (max, name) = (config.dialect(NAME).count("streams_max"), "dialects.astraflow.streams_max");
    let streams = Shares::new(max, name, &config.streams);
    let parsers = TenantPermits::new(PARSERS_MAX);
    let held = Astraflow { scheduler, live, streams, cursors, parsers };
    let (get, post) = (Method::GET, Method::POST);
    let (look, submit, operate) = (Right::Look, Right::Submit, Right::Operate);
    let routes = vec![
        Route::new(&held, &post, "/api/v1/runs", "start_run", submit, runs::start_run),
        Route::new(&held, &get, "/api/v1/runs", "list_runs", look, runs::list_runs),
        Route::new(&held, &get, "/api/v1/runs/{runId}", "get_run", look, runs::get_run),
        Route::new(&held, &post, "/api/v1/runs/{runId}/cancel", "cancel_run", submit, runs::cancel_run),
        Route::new(
            &held,
            &get,
            "/api/v1/runs/{runId}/definition",
            "get_run_definition",
            look,
            runs::get_run_definition,
        ),
        Route::new(&held, &get, "/api/v1/workers", "list_workers", look, workers::list_workers),
        Route::new(&held, &get, "/api/v1/workers/{workerId}", "get_worker", look, workers::get_worker),
        Route::new(
            &held,
            &post,
            "/api/v1/workers/{workerId}/commands",
            "send_worker_command",
            operate,
            workers::send_worker_command,
        ),
        Route::new(&held, &get, "/api/v1/events", "stream_events", look, stream::stream_events),
    ];
    // Workers connect at the address of their scheduler, and pages download artifacts from the address of
    // their events.
    let native = &["connect_v1_worker", "get_artifact"];
    Dialect { name: NAME, prefix: String::new(), routes, denied: error::denied, native }
}
