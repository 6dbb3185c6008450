//! The capacity of the machine, and the leases that hold it.

use askama::Template;
use axum::http::Method;
use laneway_wire::{Capacity, LeaseList, LeaseRevoke};

use crate::call::segment;
use crate::context::{Answer, Context};
use crate::format::{Moment, short};
use crate::widgets::{Button, Meter, State};

#[derive(Template)]
#[template(path = "capacity.html")]
struct CapacityPage {
    root: String,
    capacity: Capacity,
    units: Meter,
    next_in_line: Option<(String, String)>,
    agents: Vec<(String, u32, Meter)>,
    leases: Vec<Row>,
}

struct Row {
    id: String,
    job: String,
    short: String,
    kind: String,
    agent: String,
    lane: String,
    worker: String,
    state: State,
    cost: u32,
    opened: Moment,
    expires: Moment,
    button: Option<Button>,
}

/// Leases that are shown.
const LEASES_SHOWN: usize = 200;

/// Shows capacity and leases.
pub async fn show(context: &Context) -> Answer {
    let capacity: Capacity = context.api.get("/v1/capacity").await?;
    let leases: LeaseList = context.api.get("/v1/leases").await?;
    let revoke = |id: &str| {
        Button::new(context, &format!("leases/{}/revoke", segment(id)), "Revoke")
            .danger()
            .ask("Revoke this lease? Its job fails.")
    };
    let rows = leases.leases.iter().take(LEASES_SHOWN).map(|lease| Row {
        id: lease.id.clone(),
        job: format!("jobs/{}", segment(&lease.job)),
        short: short(&lease.job).to_owned(),
        kind: lease.kind.clone(),
        agent: lease.agent.clone(),
        lane: lease.lane.clone(),
        worker: lease.worker.clone().unwrap_or_else(|| "not claimed yet".to_owned()),
        state: State::new(&lease.state),
        cost: lease.cost,
        opened: Moment::new(&lease.opened_at, context.now),
        expires: Moment::new(&lease.expires_at, context.now),
        button: context.may().submit.then(|| revoke(&lease.id)),
    });
    let page = CapacityPage {
        root: context.root.clone(),
        units: Meter::new(capacity.used.into(), capacity.total.into()),
        next_in_line: capacity
            .next_in_line
            .as_deref()
            .map(|job| (segment(job).to_string(), short(job).to_owned())),
        agents: capacity
            .agents
            .iter()
            .map(|agent| {
                (agent.agent.clone(), agent.units, Meter::new(agent.units.into(), capacity.total.into()))
            })
            .collect(),
        leases: rows.collect(),
        capacity,
    };
    context.page("capacity", "Capacity", &page)
}

/// Revokes a lease.
pub async fn revoke(context: &Context, id: &str) -> Answer {
    let path = format!("/v1/leases/{}/revoke", segment(id));
    let reason = LeaseRevoke { reason: Some("revoked in the dashboard".to_owned()) };
    let _: serde_json::Value = context.api.send(Method::POST, &path, &reason).await?;
    context.back("capacity", "The lease is revoked.")
}
