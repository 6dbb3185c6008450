//! Warnings in the response to a submit: jobs that were admitted and that no handler runs now.

use std::collections::HashMap;

use laneway_core::Name;
use laneway_core::nearest::nearest;
use laneway_wire::Warning;

use crate::api::Api;

/// The number of kinds of one request that get a suggestion, because the comparison takes time.
const SUGGESTIONS_MAX: usize = 16;

/// A warning for each of these unserved kinds. Suggestions are kinds that the server itself or workers of this tenant
/// serve; kinds of other tenants are not revealed.
pub async fn unserved_kinds<'a>(
    api: &Api,
    tenant: &Name,
    kinds: impl IntoIterator<Item = &'a str>,
) -> HashMap<String, Warning> {
    let mut kinds = kinds.into_iter().peekable();
    if kinds.peek().is_none() {
        return HashMap::new();
    }
    // The job is admitted, even if the scheduler has stopped since.
    let served = api.scheduler.kinds_served(tenant.clone()).await.unwrap_or_default();
    let warning = |(index, kind): (usize, &str)| {
        let near = nearest(kind, served.iter().map(Name::as_str)).filter(|_| index < SUGGESTIONS_MAX);
        let message = match near {
            Some(near) => format!("no handler serves kind {kind}; did you mean {near}?"),
            None => {
                format!(
                    "no handler serves kind {kind}; the job waits until a handler, a target or a worker does"
                )
            }
        };
        (kind.to_owned(), Warning { code: "unserved_kind".to_owned(), message })
    };
    kinds.enumerate().map(warning).collect()
}
