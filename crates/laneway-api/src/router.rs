//! Every route of the API, one line each.
//!
//! A route is mounted behind the gate that `authority.rs` has for its operation. An operation without a row there
//! stops the server at start, and fails a test before that.

use axum::Router;
use axum::extract::State;
use axum::handler::Handler;
use axum::http::{HeaderMap, Method};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use laneway_runtime::dialect::{self, Answering, method_router};

use crate::api::Api;
use crate::authority::{self, Authority};
use crate::error::{ApiError, Code};
use crate::gate::{self, Gate};
use crate::v1::{
    artifacts, audit, browsers, config, deliveries, drain, events, instances, jobs, lanes, leases,
    operations, profiles, runs, schedules, server, sessions, stats, submit, tokens, workers,
};
use crate::worker::socket;

/// A route of the native API, with its row of the permission table.
pub type Route = dialect::Route<&'static Authority, Api>;

/// Every route.
pub fn routes() -> Vec<Route> {
    [job_routes(), server_routes(), browser_routes(), plan_routes()].into_iter().flatten().collect()
}

/// The server itself, jobs, and their results.
fn job_routes() -> Vec<Route> {
    let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
    vec![
        route(&get, "/", "get_index", server::get_index),
        route(&get, "/livez", "get_livez", server::get_livez),
        route(&get, "/readyz", "get_readyz", server::get_readyz),
        route(&get, "/health", "get_health", server::get_health),
        route(&get, "/metrics", "get_metrics", server::get_metrics),
        route(&get, "/openapi.json", "get_openapi", server::get_openapi),
        route(&post, "/v1/jobs", "submit_job", submit::submit_job),
        route(&post, "/v1/jobs/batch", "submit_batch", submit::submit_batch),
        route(&get, "/v1/jobs", "list_jobs", jobs::list_jobs),
        route(&post, "/v1/jobs/bulk", "start_bulk", operations::start_bulk),
        route(&get, "/v1/operations", "list_operations", operations::list_operations),
        route(&get, "/v1/operations/{id}", "get_operation", operations::get_operation),
        route(&post, "/v1/operations/{id}/cancel", "cancel_operation", operations::cancel_operation),
        route(&get, "/v1/jobs/counts", "count_jobs", jobs::count_jobs),
        route(&get, "/v1/jobs/{id}", "get_job", jobs::get_job),
        route(&get, "/v1/jobs/{id}/payload", "get_job_payload", jobs::get_job_payload),
        route(&patch, "/v1/jobs/{id}", "update_job", jobs::update_job),
        route(&delete, "/v1/jobs/{id}", "delete_job", jobs::delete_job),
        route(&post, "/v1/jobs/{id}/cancel", "cancel_job", jobs::cancel_job),
        route(&post, "/v1/jobs/{id}/retry", "retry_job", jobs::retry_job),
        route(&get, "/v1/jobs/{id}/explain", "explain_job", jobs::explain_job),
        route(&get, "/v1/jobs/{id}/logs", "list_job_logs", jobs::list_job_logs),
        route(&get, "/v1/jobs/{id}/artifacts", "list_job_artifacts", artifacts::list_job_artifacts),
        route(&get, "/v1/artifacts/{id}", "get_artifact", artifacts::get_artifact),
        route(&get, "/v1/jobs/{id}/events", "list_job_events", jobs::list_job_events),
        route(&get, "/v1/jobs/{id}/attempts", "list_attempts", jobs::list_attempts),
        route(&get, "/v1/deliveries", "list_deliveries", deliveries::list_deliveries),
        route(&get, "/v1/deliveries/{id}", "get_delivery", deliveries::get_delivery),
        route(&post, "/v1/deliveries/{id}/replay", "replay_delivery", deliveries::replay_delivery),
        route(&get, "/v1/events", "stream_events", events::stream_events),
        route(&get, "/v1/stats", "get_stats", stats::get_stats),
        route(&get, "/v1/stats/history", "get_stats_history", stats::get_stats_history),
    ]
}

/// Lanes, instances, leases, workers, settings and tokens.
fn server_routes() -> Vec<Route> {
    let (get, post, put, patch, delete) =
        (Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    vec![
        route(&get, "/v1/lanes", "list_lanes", lanes::list_lanes),
        route(&get, "/v1/lanes/{name}", "get_lane", lanes::get_lane),
        route(&put, "/v1/lanes/{name}", "put_lane", lanes::put_lane),
        route(&delete, "/v1/lanes/{name}", "delete_lane", lanes::delete_lane),
        route(&post, "/v1/lanes/{name}/pause", "pause_lane", lanes::pause_lane),
        route(&post, "/v1/lanes/{name}/resume", "resume_lane", lanes::resume_lane),
        route(&get, "/v1/instances", "list_instances", instances::list_instances),
        route(&get, "/v1/instances/{id}", "get_instance", instances::get_instance),
        route(&put, "/v1/instances/{id}", "put_instance", instances::put_instance),
        route(&delete, "/v1/instances/{id}", "delete_instance", instances::delete_instance),
        route(&get, "/v1/leases", "list_leases", leases::list_leases),
        route(&post, "/v1/leases", "request_lease", leases::request_lease),
        route(&get, "/v1/leases/{id}", "get_lease", leases::get_lease),
        route(&post, "/v1/leases/{id}/heartbeat", "beat_lease", leases::beat_lease),
        route(&post, "/v1/leases/{id}/report", "report_lease", leases::report_lease),
        route(&post, "/v1/leases/{id}/release", "release_lease", leases::release_lease),
        route(&post, "/v1/leases/{id}/revoke", "revoke_lease", leases::revoke_lease),
        route(&get, "/v1/capacity", "get_capacity", leases::get_capacity),
        route(&get, "/v1/workers", "list_workers", workers::list_workers),
        route(&get, "/v1/workers/{id}", "get_worker", workers::get_worker),
        route(&post, "/v1/workers/{id}/drain", "drain_worker", workers::drain_worker),
        route(&post, "/v1/workers/{id}/rebind", "rebind_worker", workers::rebind_worker),
        route(&post, "/v1/workers/{id}/packages", "change_worker_packages", workers::change_worker_packages),
        route(&get, "/v1/schemas/{name}", "get_schema", workers::get_schema),
        route(&get, "/v1/workers/connect", "connect_worker", socket::connect_worker),
        route(&get, "/ws/worker", "connect_v1_worker", socket::connect_v1_worker),
        route(&get, "/v1/drain", "get_drain", drain::get_drain),
        route(&post, "/v1/drain", "begin_drain", drain::begin_drain),
        route(&delete, "/v1/drain", "end_drain", drain::end_drain),
        route(&get, "/v1/config", "get_config", config::get_config),
        route(&patch, "/v1/config", "patch_config", config::patch_config),
        route(&post, "/v1/config/reload", "reload_config", config::reload_config),
        route(&get, "/v1/audit", "list_audit", audit::list_audit),
        route(&get, "/v1/tokens", "list_tokens", tokens::list_tokens),
        route(&post, "/v1/tokens", "create_token", tokens::create_token),
        route(&get, "/v1/tokens/{id}", "get_token", tokens::get_token),
        route(&delete, "/v1/tokens/{id}", "revoke_token", tokens::revoke_token),
        route(&post, "/v1/tokens/{id}/rotate", "rotate_token", tokens::rotate_token),
        route(&get, "/v1/caller", "get_caller", tokens::get_caller),
    ]
}

/// Browser profiles and open browsers.
fn browser_routes() -> Vec<Route> {
    let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
    vec![
        route(&get, "/v1/profiles", "list_profiles", profiles::list_profiles),
        route(&post, "/v1/profiles", "create_profile", profiles::create_profile),
        route(&get, "/v1/profiles/{id}", "get_profile", profiles::get_profile),
        route(&patch, "/v1/profiles/{id}", "update_profile", profiles::update_profile),
        route(&delete, "/v1/profiles/{id}", "delete_profile", profiles::delete_profile),
        route(&post, "/v1/profiles/{id}/trash", "trash_profile", profiles::trash_profile),
        route(&post, "/v1/profiles/{id}/restore", "restore_profile", profiles::restore_profile),
        route(&get, "/v1/browsers", "list_browsers", browsers::list_browsers),
        route(&get, "/v1/browsers/{profile}/tabs", "list_browser_tabs", browsers::list_browser_tabs),
        route(&post, "/v1/browsers/{profile}/start", "start_browser", browsers::start_browser),
        route(&post, "/v1/browsers/{profile}/stop", "stop_browser", browsers::stop_browser),
    ]
}

/// Sessions, schedules and runs.
fn plan_routes() -> Vec<Route> {
    let (get, post, put, patch, delete) =
        (Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    vec![
        route(&post, "/v1/runs", "submit_run", runs::submit_run),
        route(&get, "/v1/runs", "list_runs", runs::list_runs),
        route(&get, "/v1/runs/{id}", "get_run", runs::get_run),
        route(&post, "/v1/runs/{id}/cancel", "cancel_run", runs::cancel_run),
        route(&get, "/v1/sessions", "list_sessions", sessions::list_sessions),
        route(&post, "/v1/sessions/reset", "reset_all_sessions", sessions::reset_all_sessions),
        route(&get, "/v1/sessions/{key}", "get_session", sessions::get_session),
        route(&post, "/v1/sessions/{key}/stop", "stop_session", sessions::stop_session),
        route(&post, "/v1/sessions/{key}/stopall", "stop_whole_session", sessions::stop_whole_session),
        route(&post, "/v1/sessions/{key}/reset", "reset_session", sessions::reset_session),
        route(&put, "/v1/sessions/{key}/usage", "report_session_usage", sessions::report_session_usage),
        route(&get, "/v1/schedules", "list_schedules", schedules::list_schedules),
        route(&post, "/v1/schedules", "create_schedule", schedules::create_schedule),
        route(&post, "/v1/schedules/preview", "preview_schedule", schedules::preview_schedule),
        route(
            &get,
            "/v1/schedules/firings",
            "list_all_schedule_firings",
            schedules::list_all_schedule_firings,
        ),
        route(&get, "/v1/schedules/{id}", "get_schedule", schedules::get_schedule),
        route(&patch, "/v1/schedules/{id}", "update_schedule", schedules::update_schedule),
        route(&delete, "/v1/schedules/{id}", "delete_schedule", schedules::delete_schedule),
        route(&post, "/v1/schedules/{id}/pause", "pause_schedule", schedules::pause_schedule),
        route(&post, "/v1/schedules/{id}/resume", "resume_schedule", schedules::resume_schedule),
        route(&post, "/v1/schedules/{id}/fire", "fire_schedule", schedules::fire_schedule),
        route(&get, "/v1/schedules/{id}/firings", "list_schedule_firings", schedules::list_schedule_firings),
    ]
}

/// The whole API as one service.
pub fn router(api: Api) -> Router {
    let mut router = Router::new();
    for Route { path, right, handler, .. } in routes() {
        let gate = Gate { api: api.clone(), authority: *right };
        router = router.route(path, handler.route_layer(from_fn_with_state(gate, gate::pass)));
    }
    router.fallback(unknown_path).method_not_allowed_fallback(unknown_method).with_state(api)
}

/// Some operations of the API, behind the same gates.
pub fn only(api: &Api, operations: &[&str]) -> Router {
    let mut router = Router::new();
    for Route { path, operation, right, handler, .. } in routes() {
        if operations.contains(&operation) {
            let gate = Gate { api: api.clone(), authority: *right };
            router = router.route(path, handler.route_layer(from_fn_with_state(gate, gate::pass)));
        }
    }
    router.method_not_allowed_fallback(unknown_method).with_state(api.clone())
}

fn route<T>(
    method: &Method,
    path: &'static str,
    operation: &'static str,
    handler: impl Handler<T, Api, Future = Answering>,
) -> Route {
    let right = authority::of(operation).expect("every operation has a row in the permission table");
    let handler = method_router(method, handler);
    Route { method: method.clone(), path, operation, right, handler, gives_way: false }
}

async fn unknown_path(State(api): State<Api>, headers: HeaderMap) -> Response {
    let error = ApiError::new(Code::NotFound, "the path does not exist; /openapi.json lists all paths");
    gate::answer_unrouted(&api, &headers, &error)
}

/// No route has the method OPTIONS, so preflights arrive here as well.
async fn unknown_method(State(api): State<Api>, method: Method, headers: HeaderMap) -> Response {
    if let Some(response) = gate::answer_preflight(&api, &method, &headers) {
        return response;
    }
    let error = ApiError::new(
        Code::MethodNotAllowed,
        "the path does not support this method; the Allow header lists the methods that it supports",
    );
    gate::answer_unrouted(&api, &headers, &error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_has_a_row_of_permissions_and_every_row_a_route() {
        let mounted: Vec<&str> = routes().iter().map(|route| route.operation).collect();
        let ruled: Vec<&str> = authority::TABLE.iter().map(|row| row.operation).collect();
        assert_eq!(
            mounted.len(),
            mounted.iter().collect::<BTreeSet<_>>().len(),
            "an operation is mounted twice"
        );
        assert_eq!(mounted.iter().collect::<BTreeSet<_>>(), ruled.iter().collect::<BTreeSet<_>>());
    }

    #[test]
    fn only_reads_are_get() {
        for route in routes() {
            let row = authority::of(route.operation).unwrap();
            // A preview has a body and stores nothing. Reports of workers are in the event log, not in the audit
            // entries.
            let exceptions =
                ["preview_schedule", "request_lease", "beat_lease", "report_lease", "release_lease"];
            let reads = route.method == Method::GET || exceptions.contains(&route.operation);
            assert_eq!(row.mutates, !reads, "{}", route.operation);
        }
    }
}
