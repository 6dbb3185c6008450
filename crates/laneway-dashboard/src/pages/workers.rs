//! Workers: their load, versions and labels, and the way to drain one.

use askama::Template;
use axum::http::Method;
use laneway_wire::{DrainRequest, Worker, WorkerList};

use crate::call::segment;
use crate::context::{Answer, Context};
use crate::format::{Moment, duration};
use crate::widgets::{Button, Meter, State};

#[derive(Template)]
#[template(path = "workers.html")]
struct Workers {
    workers: Vec<Row>,
}

struct Row {
    id: String,
    state: State,
    version: String,
    host: String,
    load: Meter,
    running: u32,
    kinds: String,
    lanes: String,
    labels: Vec<String>,
    health: String,
    silent: String,
    connected: Moment,
    drained: bool,
    button: Option<Button>,
}

/// Lists workers.
pub async fn list(context: &Context) -> Answer {
    let found: WorkerList = context.api.get("/v1/workers").await?;
    let workers = found.workers.iter().map(|worker| row(context, worker)).collect();
    context.page("workers", "Workers", &Workers { workers })
}

fn row(context: &Context, worker: &Worker) -> Row {
    let percent = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.0} %"));
    let health =
        [percent("cpu", worker.cpu_pct), percent("memory", worker.mem_pct), percent("disk", worker.disk_pct)];
    let at = format!("workers/{}", segment(&worker.id));
    let button = match worker.drained {
        true => Button::new(context, &format!("{at}/resume"), "Resume").primary(),
        false => Button::new(context, &format!("{at}/drain"), "Drain")
            .ask(format!("Drain the worker {}? It finishes its tasks and gets no new ones.", worker.id)),
    };
    Row {
        id: worker.id.clone(),
        state: State::new(&worker.state),
        version: worker.version.clone(),
        host: worker.hostname.clone(),
        load: Meter::new(worker.running.into(), worker.max_parallel.into()),
        running: worker.running,
        kinds: worker.kinds.join(", "),
        lanes: if worker.lanes.is_empty() { "all".to_owned() } else { worker.lanes.join(", ") },
        labels: worker.labels.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        health: health.into_iter().flatten().collect::<Vec<_>>().join(" · "),
        silent: duration(worker.silent_ms),
        connected: Moment::new(&worker.connected_at, context.now),
        drained: worker.drained,
        button: context.may().operate.then_some(button),
    }
}

/// Drains a worker, or lets it get tasks again.
pub async fn act(context: &Context, id: &str, action: &str) -> Answer {
    let drain = action == "drain";
    let path = format!("/v1/workers/{}/drain", segment(id));
    let _: serde_json::Value =
        context.api.send(Method::POST, &path, &DrainRequest { drain: Some(drain) }).await?;
    let done = if drain { "gets no new tasks" } else { "gets tasks again" };
    context.back("workers", format!("The worker {id} {done}."))
}
