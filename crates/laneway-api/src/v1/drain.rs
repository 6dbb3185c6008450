//! The drain of a server: it rejects new jobs, and waiting and running jobs go on.
//!
//! A restart ends the drain. A stop of the process is something else; see `drain.rs` of the runtime.

use axum::extract::State;
use laneway_wire::{Drain, Problem};

use crate::api::Api;
use crate::query::{Call, NoInput, NoParameters};
use crate::reply::{self, Answer};

/// Shows whether the server is drained, and how many jobs are left.
#[utoipa::path(get, path = "/v1/drain", operation_id = "get_drain", tag = "server", responses((status = 200, body = Drain)))]
pub async fn get_drain(State(api): State<Api>, _: NoParameters) -> Answer {
    render(&api).await
}

/// Rejects new jobs from now on, of every tenant. Waiting and running jobs go on. Idempotent.
#[utoipa::path(
    post, path = "/v1/drain", operation_id = "begin_drain", tag = "server",
    responses((status = 200, body = Drain), (status = 503, description = "draining", body = Problem))
)]
pub async fn begin_drain(Call(api, caller): Call, _: NoInput) -> Answer {
    api.scheduler.set_admission(false, caller.origin()).await?;
    render(&api).await
}

/// Admits new jobs again. Idempotent.
#[utoipa::path(
    delete, path = "/v1/drain", operation_id = "end_drain", tag = "server",
    responses((status = 200, body = Drain), (status = 503, description = "draining", body = Problem))
)]
pub async fn end_drain(Call(api, caller): Call, _: NoInput) -> Answer {
    api.scheduler.set_admission(true, caller.origin()).await?;
    render(&api).await
}

async fn render(api: &Api) -> Answer {
    let stats = api.scheduler.stats(None).await?;
    // The next readiness check reads the load again.
    *api.load.lock().await = None;
    reply::ok(&Drain {
        draining: stats.closed || stats.draining,
        waiting: stats.scheduled + stats.queued,
        running: stats.assigned + stats.running + stats.still_running,
    })
}
