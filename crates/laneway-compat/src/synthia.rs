//! The dialect `synthia`: heavy work of add-ons that must not hurt their host.
//!
//! A job intent is a job of the lane `synthia`, which sets jobs aside for workers that ask; a base job, and the job behind
//! a lease that was asked for without one, is a job of the lane `synthia_jobs`. `decode.rs` reads requests the way their
//! server does, `words.rs` and `translate.rs` turn their words into ours and back, `wire.rs` has the objects, `error.rs`
//! every error. The handlers are one file a noun.

mod admission;
mod census;
mod decode;
mod dispatchable;
mod error;
mod figures;
mod history;
mod intents;
mod jobs;
mod leases;
mod load;
mod look;
mod news;
#[cfg(test)]
mod tests;
mod time;
mod trail;
mod translate;
mod wire;
mod words;

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use laneway_runtime::Scheduler;
use laneway_runtime::caller::Right;
use tokio::sync::Semaphore;

use crate::dialect::{Dialect, Route};

/// The lane of job intents.
pub const LANE: &str = "synthia";
/// The lane of base jobs and of leases without a job.
pub const JOBS_LANE: &str = "synthia_jobs";
/// Bodies that are read at the same time: 1 MiB each at most.
const BODIES_MAX: usize = 256;
/// Calls that wait for something at the same time: streams and long polls.
const LISTENERS_MAX: usize = 1_024;

/// What every handler holds. It is handles and bounds; the dialect itself remembers nothing.
#[derive(Clone)]
struct Synthia {
    scheduler: Scheduler,
    bodies: Arc<Semaphore>,
    listeners: Arc<Semaphore>,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler) -> Dialect {
    let bodies = Arc::new(Semaphore::new(BODIES_MAX));
    let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
    let synthia = Synthia { scheduler, bodies, listeners };
    let mut routes = Vec::new();
    add_queue(&synthia, &mut routes);
    add_jobs(&synthia, &mut routes);
    add_leases(&synthia, &mut routes);
    add_figures(&synthia, &mut routes);
    Dialect { name: "synthia", routes, denied: error::denied }
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
        trail::list_intent_events,
    );
    add.post("/api/system/scheduler/queue/jobs/{job_id}/ack", "ack_intent", Right::Work, intents::ack_intent);
    add.post(
        "/api/system/scheduler/queue/jobs/{job_id}/complete",
        "complete_intent",
        Right::Work,
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
    add.post("/api/system/scheduler/queue/kick", "kick_queue", Right::Administer, figures::kick_queue);
    add.get("/api/system/scheduler/queue/stats", "get_queue_stats", figures::get_queue_stats);
    add.work("/api/system/scheduler/queue/events", "stream_intent_events", news::stream_intent_events);
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
        Right::Work,
        leases::beat_base_lease,
    );
    add.post(
        "/api/system/scheduler/leases/{lease_id}/report",
        "report_base_lease",
        Right::Work,
        leases::report_base_lease,
    );
    add.post(
        "/api/system/scheduler/leases/{lease_id}/complete",
        "complete_base_lease",
        Right::Work,
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
        Right::Work,
        admission::beat_admission,
    );
    add.post(
        "/api/system/scheduler/lease/{lease_id}/report",
        "report_admission",
        Right::Work,
        admission::report_admission,
    );
    add.post(
        "/api/system/scheduler/lease/{lease_id}/release",
        "release_admission",
        Right::Work,
        admission::release_admission,
    );
    add.post(
        "/api/system/scheduler/lease/{lease_id}/revoke",
        "revoke_admission",
        Right::Submit,
        leases::revoke_base_lease,
    );
}

fn add_figures(synthia: &Synthia, routes: &mut Vec<Route>) {
    let mut add = Adder { synthia, routes };
    add.get("/api/system/scheduler/status", "get_scheduler_status", figures::get_scheduler_status);
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
        handler: impl Handler<T, Synthia>,
    ) {
        self.at(&Method::GET, path, operation, Right::Look, handler);
    }

    /// A GET that workers need, too.
    fn work<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<T, Synthia>,
    ) {
        self.at(&Method::GET, path, operation, Right::Work, handler);
    }

    fn post<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, Synthia>,
    ) {
        self.at(&Method::POST, path, operation, right, handler);
    }

    fn at<T: 'static>(
        &mut self,
        method: &Method,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, Synthia>,
    ) {
        let filter = MethodFilter::try_from(method.clone()).expect("routes use common methods");
        let handler = on(filter, handler).with_state(self.synthia.clone());
        self.routes.push(Route { method: method.clone(), path, operation, right, handler });
    }
}
