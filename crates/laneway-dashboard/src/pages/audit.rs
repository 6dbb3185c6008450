//! The audit entries: who changed what, and what was denied.

use askama::Template;
use laneway_wire::AuditList;

use crate::call::{query, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, short, visible};
use crate::widgets::State;

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    root: String,
    action: String,
    entries: Vec<Row>,
    next: Option<String>,
}

struct Row {
    number: u64,
    at: Moment,
    actor: String,
    action: String,
    outcome: State,
    tenant: String,
    job: Option<(String, String)>,
    detail: String,
}

/// Lists audit entries.
pub async fn list(context: &Context) -> Answer {
    let (action, cursor) =
        (context.field("action").unwrap_or_default(), context.field("cursor").unwrap_or_default());
    let asked = query([("action", action), ("cursor", cursor), ("limit", "100")]);
    let found: AuditList = context.api.get(&format!("/v1/audit{asked}")).await?;
    let entries = found.entries.iter().map(|entry| Row {
        number: entry.number,
        at: Moment::new(&entry.at, context.now),
        actor: entry.actor.clone(),
        action: entry.action.clone(),
        outcome: State::new(&entry.outcome),
        tenant: entry.tenant.clone().unwrap_or_default(),
        job: entry.job_id.as_deref().map(|job| (segment(job).to_string(), short(job).to_owned())),
        detail: visible(entry.detail.as_deref().unwrap_or_default()),
    });
    let page = Audit {
        root: context.root.clone(),
        action: action.to_owned(),
        entries: entries.collect(),
        next: found
            .next
            .map(|next| format!("audit{}", query([("action", action), ("cursor", next.as_str())]))),
    };
    context.page("audit", "Audit", &page)
}
