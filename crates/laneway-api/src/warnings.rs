//! Warnings in the response to a submit: jobs that were admitted and that no handler runs now.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use laneway_core::Name;
use laneway_core::nearest::nearest;
use laneway_wire::Warning;

use crate::api::Api;

/// The number of kinds of one request that get a suggestion, because the comparison takes time.
const SUGGESTIONS_MAX: usize = 16;
/// The kinds that a tenant can use are read from the engine at most this often: a submit must not cost a second request.
const SERVED_AGE_MAX: Duration = Duration::from_millis(500);
/// The tenants whose kinds are kept.
const TENANTS_MAX: usize = 1_024;
/// The kinds of a tenant whose suggestion is kept as long as the kinds are.
const KEPT_SUGGESTIONS_MAX: usize = 64;

/// The kinds that each tenant can use, as they were a moment ago.
#[derive(Default)]
pub struct ServedKinds(Mutex<HashMap<Name, (Instant, Kinds)>>);

type Kinds = Arc<Served>;

/// The kinds that a tenant can use.
struct Served {
    kinds: BTreeSet<Name>,
    /// The suggestions that were made for kinds that are not among them. A comparison with every kind would cost a fifth of
    /// what a submit costs the server's own code, and clients submit the same kind again and again.
    suggestions: Mutex<HashMap<Box<str>, Option<Name>>>,
}

impl Served {
    /// The kind that is nearest to this one.
    fn nearest_to(&self, kind: &str) -> Option<Name> {
        let kept = || self.suggestions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(near) = kept().get(kind) {
            return near.clone();
        }
        let near = nearest(kind, self.kinds.iter().map(Name::as_str));
        let near = near.and_then(|near| self.kinds.get(near).cloned());
        let mut kept = kept();
        if kept.len() < KEPT_SUGGESTIONS_MAX {
            kept.insert(kind.into(), near.clone());
        }
        near
    }
}

impl ServedKinds {
    async fn of(&self, api: &Api, tenant: &Name) -> Kinds {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read_at, kinds)) = kept().get(tenant)
            && read_at.elapsed() < SERVED_AGE_MAX
        {
            return Arc::clone(kinds);
        }
        // The job is admitted, even if the scheduler has stopped since.
        let kinds = api.scheduler.kinds_served(tenant.clone()).await.unwrap_or_default();
        let kinds = Arc::new(Served { kinds, suggestions: Mutex::default() });
        let mut kept = kept();
        if kept.len() >= TENANTS_MAX {
            kept.retain(|_, (read_at, _)| read_at.elapsed() < SERVED_AGE_MAX);
        }
        if kept.len() < TENANTS_MAX {
            kept.insert(tenant.clone(), (Instant::now(), Arc::clone(&kinds)));
        }
        kinds
    }
}

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
    let served = api.served_kinds.of(api, tenant).await;
    let warning = |(index, kind): (usize, &str)| {
        let near = if index < SUGGESTIONS_MAX { served.nearest_to(kind) } else { None };
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
