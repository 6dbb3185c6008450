//! What an answer to a submit warns of: jobs that were admitted and that nothing runs now.

use std::collections::HashMap;

use laneway_core::Name;
use laneway_core::nearest::nearest;
use laneway_wire::Warning;

use crate::api::Api;

/// Kinds of one call that get a suggestion: comparing costs time, and nobody mistypes more.
const SUGGESTIONS_MAX: usize = 16;

/// A warning for each of these kinds, which nothing serves. Suggestions are kinds that the server itself or workers of this
/// tenant serve; nothing is said of other tenants' workers.
pub async fn unserved_kinds<'a>(
    api: &Api,
    tenant: &Name,
    kinds: impl IntoIterator<Item = &'a str>,
) -> HashMap<String, Warning> {
    let mut kinds = kinds.into_iter().peekable();
    if kinds.peek().is_none() {
        return HashMap::new();
    }
    // The job is admitted, whether the scheduler still answers or not.
    let served = api.scheduler.kinds_served(tenant.clone()).await.unwrap_or_default();
    let warning = |(index, kind): (usize, &str)| {
        let near = nearest(kind, served.iter().map(Name::as_str)).filter(|_| index < SUGGESTIONS_MAX);
        let message = match near {
            Some(near) => format!("nothing serves kind {kind}; did you mean {near}?"),
            None => {
                format!("nothing serves kind {kind}; it waits until a handler, a target or a worker does")
            }
        };
        (kind.to_owned(), Warning { code: "unserved_kind".to_owned(), message })
    };
    kinds.enumerate().map(warning).collect()
}
