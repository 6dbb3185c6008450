//! The audit list: who did what, when, and what became of it.

use axum::extract::State;
use laneway_runtime::store::EventFilter;
use laneway_wire::{AuditList, Problem};

use crate::api::Api;
use crate::auth::Caller;
use crate::query::Parameters;
use crate::reply::{self, Answer};
use crate::show;

/// Lists calls that changed something or were not allowed to, newest first.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_audit", tag = "audit",
    params(("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = AuditList), (status = 400, description = "invalid_cursor", body = Problem))
)]
pub async fn list_audit(State(api): State<Api>, caller: Caller, list: Parameters) -> Answer {
    let list = list.only(&["limit", "cursor"])?;
    let limit = list.limit()?;
    let filter = EventFilter { tenant: caller.scope().cloned(), called: true };
    let name = format!("audit {filter:?}");
    let before = list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?;
    let page = api.scheduler.query(move |reader| reader.events_before(&filter, before, limit)).await?;
    let entries = page.items.iter().map(show::audit_entry).collect();
    reply::ok(&AuditList { entries, next: page.next.map(|next| api.cursors.write(&name, next)) })
}
