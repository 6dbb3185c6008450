//! The capacity of the machine, and the leases that hold it.

use askama::Template;
use axum::http::Method;
use laneway_wire::{Capacity, HistoryPoint, LeaseList, LeaseRevoke, StatsHistory};

use crate::call::segment;
use crate::chart::{self, Frame, Series};
use crate::context::{Answer, Context};
use crate::format::{Moment, short};
use crate::widgets::{Button, Meter, State, Svg};

#[derive(Template)]
#[template(path = "capacity.html")]
struct CapacityPage {
    root: String,
    capacity: Capacity,
    units: Meter,
    next_in_line: Option<(String, String)>,
    agents: Vec<(String, u32, Meter)>,
    leases: Vec<Row>,
    curve: Curve,
}

/// The load of the machine over time, and against the number of open attempts.
struct Curve {
    is_day: bool,
    over_time: Svg,
    against_running: Svg,
    running_max: u64,
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
    let is_day = context.field("range") == Some("1d");
    let path = if is_day { "/v1/stats/history?range=1d" } else { "/v1/stats/history?range=1h" };
    let past: StatsHistory = context.api.get(path).await?;
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
        // A lease whose job has ended is open until its worker has stopped.
        button: (context.may().submit && matches!(&*lease.state, "assigned" | "running"))
            .then(|| revoke(&lease.id)),
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
        curve: curve(&past.points, capacity.total, is_day),
        capacity,
    };
    context.page("capacity", "Capacity", &page)
}

/// The charts. All of them are in percent of the machine.
fn curve(points: &[HistoryPoint], total: u32, is_day: bool) -> Curve {
    let percent = |of: fn(&laneway_wire::HistoryLoad) -> f64, whole: f64| -> Vec<f64> {
        let value =
            |point: &HistoryPoint| point.load.as_ref().map_or(f64::NAN, |load| of(load) * 100.0 / whole);
        points.iter().map(value).collect()
    };
    let units = f64::from(total.max(1));
    let busy = percent(|load| f64::from(load.busy), 10.0);
    let usable = percent(|load| f64::from(load.usable), units);
    let used = percent(|load| f64::from(load.used), units);
    let series = [
        Series { class: "failed", values: &busy },
        Series { class: "ok", values: &usable },
        Series { class: "running", values: &used },
    ];
    let measured = points.iter().filter_map(|point| Some((point.running as f64, point.load?.busy)));
    let pairs: Vec<(f64, f64)> = measured.map(|(running, busy)| (running, f64::from(busy) * 10.0)).collect();
    let frame = |label| Frame { width: 600, height: 120, top: Some(100.0), label };
    let is_empty = pairs.is_empty();
    let lines =
        chart::lines(&series, &frame("Load of the machine, usable units and units in use, over time"));
    Curve {
        is_day,
        over_time: Svg(if is_empty { String::new() } else { lines }),
        against_running: Svg(chart::dots(
            &pairs,
            &frame("Load of the machine against the number of open attempts"),
        )),
        running_max: points
            .iter()
            .filter(|point| point.load.is_some())
            .map(|point| point.running)
            .max()
            .unwrap_or(0),
    }
}

/// Revokes a lease.
pub async fn revoke(context: &Context, id: &str) -> Answer {
    let path = format!("/v1/leases/{}/revoke", segment(id));
    let reason = LeaseRevoke { reason: Some("revoked in the dashboard".to_owned()) };
    context.api.send_only(Method::POST, &path, &reason).await?;
    context.back("capacity", "The lease is revoked.")
}
