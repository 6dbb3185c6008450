//! Audit entries for requests that have no event of the engine: rejected and denied ones.
//!
//! A change is an event of the engine, in the same commit. An audit entry of this module is a commit of its own, so a
//! client that is rejected in a tight loop could fill the disk. Above a rate, equal entries are only counted, and the
//! next one that is written says how many are missing.

use std::time::Instant;

use laneway_core::{EventKind, Name, Origin};

use crate::api::Api;
use crate::authority::{Authority, Reach};
use crate::error::{ApiError, Code};

/// The longest detail of an entry, in bytes.
const DETAIL_MAX: usize = 500;

/// The caller, as far as it is known.
pub struct Who {
    /// A token's id, a certificate's identity, `open` or `unknown`.
    pub actor: Name,
    /// The tenant of the request.
    pub tenant: Option<Name>,
    /// The request's id.
    pub request: Name,
}

impl From<laneway_runtime::Caller> for Who {
    fn from(caller: laneway_runtime::Caller) -> Who {
        Who { actor: caller.actor, tenant: Some(caller.tenant), request: caller.request }
    }
}

/// Records a request that failed, if the audit rules require it.
pub async fn note_failure(api: &Api, authority: Authority, mut who: Who, error: &ApiError) {
    let kind = match error.code {
        Code::Unauthorized | Code::Forbidden | Code::OriginDenied | Code::Misdirected => {
            EventKind::CallDenied
        }
        // The flood of bad tokens has an entry already.
        Code::TooManyAttempts => return,
        _ if authority.mutates => EventKind::CallRejected,
        _ => return,
    };
    let detail = format!("{}: {}: {}", authority.operation, error.code.as_str(), error.detail);
    who.tenant = who.tenant.filter(|_| authority.reach == Reach::Tenant);
    note(api, authority.operation, who, kind, error.code, detail).await;
}

/// Records a request that changed something without a command.
pub async fn note_done(api: &Api, who: Who, detail: &str) {
    let origin = Origin { actor: who.actor, request: Some(who.request) };
    if api.scheduler.note(EventKind::CallDone, who.tenant, detail, origin).await.is_err() {
        tracing::warn!(detail, "the scheduler has stopped; a call is missing in the audit list");
    }
}

/// Records a request, or only counts it when there were many equal ones recently.
pub async fn note(
    api: &Api,
    operation: &'static str,
    who: Who,
    kind: EventKind,
    code: Code,
    mut detail: String,
) {
    let Some(left_out) = api.notes.take((who.actor.clone(), operation, code.as_str()), Instant::now()) else {
        return;
    };
    if detail.len() > DETAIL_MAX {
        let end = (0..=DETAIL_MAX).rev().find(|&at| detail.is_char_boundary(at)).unwrap_or(0);
        detail.truncate(end);
    }
    if left_out > 0 {
        detail.push_str(&format!(" ({left_out} equal requests before it were not recorded)"));
    }
    let origin = Origin { actor: who.actor, request: Some(who.request) };
    if api.scheduler.note(kind, who.tenant, &detail, origin).await.is_err() {
        tracing::warn!(detail, "the scheduler has stopped; a call is missing in the audit list");
    }
}
