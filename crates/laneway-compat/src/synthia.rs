//! The dialect `synthia`: heavy work of add-ons, limited by the load of their host.
//!
//! A job intent is a job of the lane `synthia`, which reserves jobs for pull workers. A base job, and the job
//! behind a lease that was requested without one, is a job of the lane `synthia_jobs`. `decode.rs` parses
//! requests like the original server, `vocabulary.rs` and `translate.rs` translate names and objects, `wire.rs`
//! has the objects, `error.rs` every error. There is one file for the handlers of each noun.

mod admission;
mod audit;
mod config;
mod counts;
mod decode;
mod dispatchable;
mod error;
mod history;
mod intents;
mod jobs;
mod leases;
mod load;
mod lookup;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod time;
mod translate;
mod vocabulary;
mod wire;

use axum::handler::Handler;
use axum::http::Method;
use laneway_runtime::caller::Right;
use laneway_runtime::dialect::{Answering, Dialect, Route};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Scheduler, Shares};

pub use config::SECTION;

/// The name of the dialect in the configuration.
const NAME: &str = "synthia";

/// The lane of job intents.
pub const LANE: &str = "synthia";
/// The lane of base jobs and of leases without a job.
pub const JOBS_LANE: &str = "synthia_jobs";

/// What every handler holds: handles and limits. The dialect itself has no state.
#[derive(Clone)]
struct Synthia {
    scheduler: Scheduler,
    /// The limit on calls that wait: streams and long polls.
    listeners: Shares,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: &LiveConfig) -> Dialect {
    let streams = &live.current().streams;
    let listeners = Shares::new(streams.max, "streams.max", streams);
    let synthia = Synthia { scheduler, listeners };
    let mut routes = Vec::new();
    add_queue(&synthia, &mut routes);
    add_jobs(&synthia, &mut routes);
    add_leases(&synthia, &mut routes);
    add_stats(&synthia, &mut routes);
    Dialect { name: NAME, prefix: String::new(), routes, denied: error::denied, native: &[] }
}

fn add_queue(synthia: &Synthia, routes: &mut Vec<Route>) {
    let mut add = Adder { synthia, routes };
    add.post(
        "/api/system/scheduler/queue/jobs/submit",
        "submit_intent",
        Right::Submit,
        intents::submit_intent,
    );
    add.get("/api/system/scheduler/queue/jobs", "list_intents", intents::list_intents);
    add.get("/api/system/scheduler/queue/jobs/{job_id}", "get_intent", intents::get_intent);
    add.get(
        "/api/system/scheduler/queue/jobs/{job_id}/events",
        "list_intent_events",
        audit::list_intent_events,
    );
    add.post(
        "/api/system/scheduler/queue/jobs/{job_id}/ack",
        "ack_intent",
        Right::Report,
        intents::ack_intent,
    );
    add.post(
        "/api/system/scheduler/queue/jobs/{job_id}/complete",
        "complete_intent",
        Right::Report,
        intents::complete_intent,
    );
    add.post(
        "/api/system/scheduler/queue/jobs/{job_id}/cancel",
        "cancel_intent",
        Right::Submit,
        intents::cancel_intent,
    );
    add.work(
        "/api/system/scheduler/queue/dispatchable",
        "list_dispatchable",
        dispatchable::list_dispatchable,
    );
    add.post(
        "/api/system/scheduler/queue/dispatchable",
        "claim_dispatchable",
        Right::Work,
        dispatchable::claim_dispatchable,
    );
    add.post("/api/system/scheduler/queue/kick", "kick_queue", Right::Administer, stats::kick_queue);
    add.get("/api/system/scheduler/queue/stats", "get_queue_stats", stats::get_queue_stats);
    add.work("/api/system/scheduler/queue/events", "stream_intent_events", stream::stream_intent_events);
}

fn add_jobs(synthia: &Synthia, routes: &mut Vec<Route>) {
    let mut add = Adder { synthia, routes };
    add.post("/api/system/scheduler/jobs", "submit_base_job", Right::Submit, jobs::submit_base_job);
    add.get("/api/system/scheduler/jobs", "list_base_jobs", jobs::list_base_jobs);
    add.post(
        "/api/system/scheduler/leases/request",
        "request_base_lease",
        Right::Work,
        leases::request_base_lease,
    );
    add.post(
        "/api/system/scheduler/leases/{lease_id}/heartbeat",
        "beat_base_lease",
        Right::Report,
        leases::beat_base_lease,
    );
    add.post(
        "/api/system/scheduler/leases/{lease_id}/report",
        "report_base_lease",
        Right::Report,
        leases::report_base_lease,
    );
    add.post(
        "/api/system/scheduler/leases/{lease_id}/complete",
        "complete_base_lease",
        Right::Report,
        leases::complete_base_lease,
    );
    add.post(
        "/api/system/scheduler/leases/{lease_id}/revoke",
        "revoke_base_lease",
        Right::Submit,
        leases::revoke_base_lease,
    );
}

fn add_leases(synthia: &Synthia, routes: &mut Vec<Route>) {
    let mut add = Adder { synthia, routes };
    add.post(
        "/api/system/scheduler/lease/request",
        "request_admission",
        Right::Work,
        admission::request_admission,
    );
    add.work("/api/system/scheduler/lease/{lease_id}", "get_admission", admission::get_admission);
    add.post(
        "/api/system/scheduler/lease/{lease_id}/heartbeat",
        "beat_admission",
        Right::Report,
        admission::beat_admission,
    );
    add.post(
        "/api/system/scheduler/lease/{lease_id}/report",
        "report_admission",
        Right::Report,
        admission::report_admission,
    );
    add.post(
        "/api/system/scheduler/lease/{lease_id}/release",
        "release_admission",
        Right::Report,
        admission::release_admission,
    );
    add.post(
        "/api/system/scheduler/lease/{lease_id}/revoke",
        "revoke_admission",
        Right::Submit,
        leases::revoke_base_lease,
    );
}

fn add_stats(synthia: &Synthia, routes: &mut Vec<Route>) {
    let mut add = Adder { synthia, routes };
    add.get("/api/system/scheduler/status", "get_scheduler_status", stats::get_scheduler_status);
    add.get("/api/system/scheduler/history/stats", "get_history_stats", history::get_history_stats);
    add.get(
        "/api/system/scheduler/history/decisions",
        "get_history_decisions",
        history::get_history_decisions,
    );
    add.post(
        "/api/system/scheduler/history/cleanup",
        "clean_history",
        Right::Administer,
        history::clean_history,
    );
    add.get("/api/system/stats/current", "get_stats_current", load::get_current);
    add.get("/api/system-stats/current", "get_system_stats_current", load::get_current);
    add.get("/api/system-stats/history", "get_load_history", load::get_history);
    add.get("/api/system-stats/health", "get_load_health", load::get_health);
    add.get("/api/supervisor/admission", "get_host_admission", load::get_admission);
}

/// Adds routes.
struct Adder<'a> {
    synthia: &'a Synthia,
    routes: &'a mut Vec<Route>,
}

impl Adder<'_> {
    fn get<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<T, Synthia, Future = Answering>,
    ) {
        self.at(&Method::GET, path, operation, Right::Look, handler);
    }

    /// A GET that workers may call, too.
    fn work<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<T, Synthia, Future = Answering>,
    ) {
        self.at(&Method::GET, path, operation, Right::Work, handler);
    }

    fn post<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, Synthia, Future = Answering>,
    ) {
        self.at(&Method::POST, path, operation, right, handler);
    }

    fn at<T: 'static>(
        &mut self,
        method: &Method,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, Synthia, Future = Answering>,
    ) {
        self.routes.push(Route::new(self.synthia, method, path, operation, right, handler));
    }
}
