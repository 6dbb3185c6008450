//! The OpenAPI document, made of the handlers and the wire types.

use std::sync::LazyLock;

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, OpenApi as Document, SecurityRequirement};
use utoipa::{Modify, OpenApi};

use crate::v1::{audit, config, events, jobs, lanes, server, stats, submit, tokens};

/// The document.
pub fn document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(Described::openapi);
    &DOCUMENT
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Laneway",
        description = "A durable job scheduler for agents. Every error is application/problem+json; docs/http-api.md tells causes and remedies."
    ),
    paths(
        server::get_index, server::get_livez, server::get_readyz, server::get_health, server::get_metrics,
        server::get_openapi,
        submit::submit_job, submit::submit_batch,
        jobs::list_jobs, jobs::get_job, jobs::get_job_payload, jobs::cancel_job, jobs::retry_job, jobs::explain_job,
        jobs::list_job_logs, jobs::list_job_events, jobs::list_attempts,
        events::stream_events, stats::get_stats,
        lanes::list_lanes, lanes::get_lane, lanes::put_lane, lanes::pause_lane, lanes::resume_lane,
        config::get_config, config::patch_config, config::reload_config,
        audit::list_audit,
        tokens::list_tokens, tokens::create_token, tokens::get_token, tokens::revoke_token, tokens::rotate_token,
        tokens::get_caller,
    ),
    components(schemas(laneway_wire::Event, laneway_wire::Gap, laneway_wire::JobProgress)),
    modifiers(&Bearer)
)]
struct Described;

/// Says that calls carry a token.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_with(Components::new);
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn describes_every_route_and_no_other() {
        let text = serde_json::to_value(document()).unwrap();
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
