//! Audit entries.

use laneway_core::EventKind;
use laneway_core::worker::DispatchLine;
use laneway_runtime::store::EventFilter;
use laneway_wire::{AuditList, Problem};

use crate::error::ApiError;
use crate::query::{Call, Parameters};
use crate::render;
use crate::reply::{self, Answer};

/// Lists requests that changed something or were denied, newest first. With `action=cmd.dispatch`: the dispatches to
/// workers and their outcomes.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_audit", tag = "audit",
    params(
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"), ("cursor" = Option<String>, Query),
        ("action" = Option<String>, Query, description = "Only this action, such as `job.canceled` or `cmd.dispatch`; \
            dispatches are shown only where they are asked for"),
    ),
    responses((status = 200, body = AuditList), (status = 400, description = "invalid_cursor", body = Problem))
)]
pub async fn list_audit(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["limit", "cursor", "action"])?;
    let limit = list.limit()?;
    let filter = EventFilter { tenant: caller.scope().cloned(), ..read_action(list.get("action"))? };
    let name = format!("audit {filter:?}");
    let before = list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?;
    let (dispatches, tenant) = (filter.dispatches, filter.tenant.clone());
    let page = api.scheduler.list(tenant, move |reader| reader.events_before(&filter, before, limit)).await?;
    let entries = match dispatches {
        true => page.items.iter().filter_map(render::dispatch_entry).collect(),
        false => page.items.iter().map(render::audit_entry).collect(),
    };
    reply::ok(&AuditList { entries, next: page.next.map(|next| api.cursors.write(&name, next)) })
}

/// The events of an action. A busy server sends thousands of dispatches in a second. They would hide what people do,
/// so they are listed only on request.
fn read_action(action: Option<&str>) -> Result<EventFilter, ApiError> {
    let Some(action) = action else { return Ok(EventFilter { called: true, ..EventFilter::default() }) };
    if action == DispatchLine::ACTION {
        return Ok(EventFilter { dispatches: true, ..EventFilter::default() });
    }
    match EventKind::ALL.into_iter().find(|kind| kind.as_str() == action) {
        Some(kind) => Ok(EventFilter { called: true, kind: Some(kind), ..EventFilter::default() }),
        None => Err(ApiError::field(
            "action",
            format!(
                "{action:?} is not an action; use `cmd.dispatch` or the type of an event, such as `job.canceled`"
            ),
        )),
    }
}
