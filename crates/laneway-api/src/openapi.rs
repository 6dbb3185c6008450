//! The OpenAPI document, generated from the handlers and the wire types. Servers serve the file that a test compares it with.

mod constrain;
mod fields;
mod spans;

use std::sync::LazyLock;

use serde_json::Value;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    Components, Content, OpenApi as Document, Ref, RefOr, Required, Response, SecurityRequirement,
};
use utoipa::{Modify, OpenApi};

use crate::authority::{self, Who};
use crate::v1::{
    artifacts, audit, browsers, config, deliveries, drain, events, instances, jobs, lanes, leases,
    operations, profiles, runs, schedules, server, sessions, stats, submit, tokens, workers,
};
use crate::worker::socket;

/// The document.
pub fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let mut document = serde_json::to_value(Described::openapi()).expect("the document is JSON");
        constrain::constrain(&mut document);
        document
    });
    &DOCUMENT
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Laneway",
        description = "A durable job scheduler for agents. Every error is application/problem+json; docs/http-api.md has the cause and the remedy of each code."
    ),
    paths(
        server::get_index, server::get_livez, server::get_readyz, server::get_health, server::get_metrics,
        server::get_openapi,
        submit::submit_job, submit::submit_batch,
        jobs::list_jobs, operations::start_bulk, operations::list_operations, operations::get_operation, operations::cancel_operation, jobs::count_jobs, jobs::get_job, jobs::get_job_payload, jobs::update_job, jobs::delete_job, jobs::cancel_job, jobs::retry_job, jobs::explain_job,
        jobs::list_job_logs, artifacts::list_job_artifacts, artifacts::get_artifact, jobs::list_job_events, jobs::list_attempts,
        runs::submit_run, runs::list_runs, runs::get_run, runs::cancel_run,
        deliveries::list_deliveries, deliveries::get_delivery, deliveries::replay_delivery,
        events::stream_events, stats::get_stats, stats::get_stats_history,
        lanes::list_lanes, lanes::get_lane, lanes::put_lane, lanes::delete_lane, lanes::pause_lane, lanes::resume_lane,
        instances::list_instances, instances::get_instance, instances::put_instance, instances::delete_instance,
        profiles::list_profiles, profiles::create_profile, profiles::get_profile, profiles::update_profile,
        profiles::trash_profile, profiles::restore_profile, profiles::delete_profile,
        browsers::list_browsers, browsers::list_browser_tabs, browsers::start_browser, browsers::stop_browser,
        leases::list_leases, leases::request_lease, leases::get_lease, leases::beat_lease, leases::report_lease,
        leases::release_lease, leases::revoke_lease, leases::get_capacity,
        sessions::list_sessions, sessions::get_session, sessions::stop_session, sessions::stop_whole_session,
        sessions::reset_session, sessions::reset_all_sessions, sessions::report_session_usage,
        drain::get_drain, drain::begin_drain, drain::end_drain,
        schedules::list_schedules, schedules::create_schedule, schedules::preview_schedule,
        schedules::list_all_schedule_firings,
        schedules::get_schedule, schedules::update_schedule, schedules::delete_schedule, schedules::pause_schedule,
        schedules::resume_schedule, schedules::fire_schedule, schedules::list_schedule_firings,
        config::get_config, config::patch_config, config::reload_config,
        audit::list_audit,
        tokens::list_tokens, tokens::create_token, tokens::get_token, tokens::revoke_token, tokens::rotate_token,
        tokens::get_caller,
        workers::list_workers, workers::get_worker, workers::drain_worker, workers::rebind_worker,
        workers::change_worker_packages, workers::get_schema,
        socket::connect_worker, socket::connect_v1_worker,
    ),
    components(schemas(laneway_wire::Event, laneway_wire::Gap, laneway_wire::JobProgress)),
    modifiers(&Bearer, &Problems, &Tenants)
)]
struct Described;

/// Adds the token to the document.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_with(Components::new);
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    }
}

/// Adds the errors to every operation, and marks the operations that require no token.
struct Problems;

impl Modify for Problems {
    fn modify(&self, document: &mut Document) {
        for item in document.paths.paths.values_mut() {
            let operations =
                [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                for response in operation.responses.responses.values_mut() {
                    if let RefOr::T(response) = response {
                        name_media_type(response);
                    }
                }
                let mut any = Response::new("Any other error; docs/http-api.md lists all codes");
                any.content.insert(PROBLEM.to_owned(), Content::new(Some(Ref::from_schema_name("Problem"))));
                operation.responses.responses.insert("default".to_owned(), RefOr::T(any));
                let row = operation.operation_id.as_deref().and_then(authority::of);
                if row.is_some_and(|row| row.who == Who::Anyone) {
                    operation.security = Some(Vec::new());
                }
            }
        }
    }
}

/// Adds the tenant header to every operation that authenticates its caller.
struct Tenants;

impl Modify for Tenants {
    fn modify(&self, document: &mut Document) {
        for item in document.paths.paths.values_mut() {
            let operations =
                [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let row = operation.operation_id.as_deref().and_then(authority::of);
                if row.is_some_and(|row| row.who != Who::Anyone) {
                    operation.parameters.get_or_insert_default().push(tenant_header());
                }
            }
        }
    }
}

fn tenant_header() -> Parameter {
    let text = "The tenant that a server-wide caller acts for. Other callers act for their own tenant";
    ParameterBuilder::new()
        .name("Laneway-Tenant")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(text))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// The media type of every error.
const PROBLEM: &str = "application/problem+json";

fn name_media_type(response: &mut Response) {
    let is_problem = |content: &Content| matches!(&content.schema, Some(RefOr::Ref(schema)) if schema.ref_location.ends_with("/Problem"));
    if response.content.get("application/json").is_some_and(is_problem)
        && let Some(content) = response.content.shift_remove("application/json")
    {
        response.content.insert(PROBLEM.to_owned(), content);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn describes_every_route_and_no_other() {
        let text = document();
        let mut described = BTreeSet::new();
        for (path, methods) in text["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                described.insert((
                    method.to_uppercase(),
                    path.clone(),
                    operation["operationId"].as_str().unwrap().to_owned(),
                ));
            }
        }
        let mounted: BTreeSet<_> = crate::routes()
            .iter()
            .map(|route| (route.method.to_string(), route.path.to_owned(), route.operation.to_owned()))
            .collect();
        assert_eq!(described, mounted);
    }
}
