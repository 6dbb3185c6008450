//! The tenants of a server, for readers that see all of them. Each has a dashboard of its own below `@` and its name.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::StatusCode;
use laneway_wire::Stats;

use crate::call::{Failure, segment};
use crate::context::{Answer, Context, Reply};
use crate::format::count;

#[derive(Template)]
#[template(path = "tenants.html")]
struct Tenants {
    base: String,
    tenants: Vec<Row>,
}

struct Row {
    name: String,
    href: String,
    agents: String,
    waiting: String,
    running: String,
    succeeded: String,
    failed: String,
}

#[derive(Default)]
struct Sum {
    agents: u64,
    waiting: u64,
    running: u64,
    succeeded: u64,
    failed: u64,
}

/// Lists the tenants with jobs since the start of the server, or leads to the one that the reader names.
pub async fn list(context: &Context) -> Answer {
    if context.reader.tenant != "*" {
        let detail = format!("your token is bound to the tenant {}", context.reader.tenant);
        return Err(Failure::new(StatusCode::FORBIDDEN, &detail));
    }
    if let Some(tenant) = context.field("tenant") {
        let to = format!("{}@{}/", context.base, segment(tenant));
        return Ok(Reply::Raw(crate::dashboard::redirect(&to)));
    }
    let stats: Stats = context.api.get("/v1/stats").await?;
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for agent in &stats.agents {
        let sum = sums.entry(&agent.tenant).or_default();
        sum.agents += 1;
        sum.waiting += agent.waiting;
        sum.running += agent.running;
        sum.succeeded += agent.counts.succeeded;
        sum.failed += agent.counts.failed;
    }
    let tenants = sums.into_iter().map(|(name, sum)| Row {
        href: format!("{}@{}/", context.base, segment(name)),
        name: name.to_owned(),
        agents: count(&sum.agents),
        waiting: count(&sum.waiting),
        running: count(&sum.running),
        succeeded: count(&sum.succeeded),
        failed: count(&sum.failed),
    });
    let page = Tenants { base: context.base.clone(), tenants: tenants.collect() };
    context.page("tenants", "Tenants", &page)
}
