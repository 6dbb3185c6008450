//! Notes for the audit list about calls that the engine has no event for: rejected and denied ones.
//!
//! What a call changed is an event of the engine, in the same commit. A note is a commit of its own, so a client that is
//! rejected in a tight loop could fill the disk with notes. Beyond a rate, equal notes are counted, and the next one that
//! is written says how many were not.

use std::time::Instant;

use laneway_core::{EventKind, Name, Origin};

use crate::api::Api;
use crate::authority::{Authority, Reach};
use crate::error::{ApiError, Code};

/// Longest detail of a note, in bytes.
const DETAIL_MAX: usize = 500;

/// Who called, as far as it is known.
pub struct Who {
    /// A token's id, a certificate's identity, `open` or `unknown`.
    pub actor: Name,
    /// Whose call it was.
    pub tenant: Option<Name>,
    /// The call's id.
    pub request: Name,
}

impl From<laneway_runtime::Caller> for Who {
    fn from(caller: laneway_runtime::Caller) -> Who {
        Who { actor: caller.actor, tenant: Some(caller.tenant), request: caller.request }
    }
}

/// Keeps a note about a call that was not answered with success, where the audit list wants one.
pub async fn note_failure(api: &Api, authority: Authority, mut who: Who, error: &ApiError) {
    let kind = match error.code {
        Code::Unauthorized | Code::Forbidden | Code::OriginDenied | Code::Misdirected => {
            EventKind::CallDenied
        }
        // A flood of guesses was noted while it was counted.
        Code::TooManyAttempts => return,
        _ if authority.mutates => EventKind::CallRejected,
        _ => return,
    };
    let detail = format!("{}: {}: {}", authority.operation, error.code.as_str(), error.detail);
    who.tenant = who.tenant.filter(|_| authority.reach == Reach::Tenant);
    note(api, authority.operation, who, kind, error.code, detail).await;
}

/// Keeps a note about a call that changed something without a command of its own.
pub async fn note_done(api: &Api, who: Who, detail: &str) {
    let origin = Origin { actor: who.actor, request: Some(who.request) };
    if api.scheduler.note(EventKind::CallDone, who.tenant, detail, origin).await.is_err() {
        tracing::warn!(detail, "the scheduler has stopped; a call is missing in the audit list");
    }
}

/// Keeps a note about a call, or counts it where there were many equal ones of late.
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
        detail.push_str(&format!(" ({left_out} equal calls before it were not noted)"));
    }
    let origin = Origin { actor: who.actor, request: Some(who.request) };
    if api.scheduler.note(kind, who.tenant, &detail, origin).await.is_err() {
        tracing::warn!(detail, "the scheduler has stopped; a call is missing in the audit list");
    }
}
