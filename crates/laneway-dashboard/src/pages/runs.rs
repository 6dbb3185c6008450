//! Runs: jobs that depend on one another, as a list and as a graph.

use askama::Template;
use laneway_wire::{Run, RunList};

use crate::call::{query, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, between, duration, short, visible};
use crate::graph::{self, Node};
use crate::pages::jobs::JobRow;
use crate::widgets::{Button, State, Svg};

/// The states of runs.
const STATES: [&str; 5] = ["queued", "running", "succeeded", "failed", "canceled"];

#[derive(Template)]
#[template(path = "runs.html")]
struct Runs {
    root: String,
    chips: Vec<(&'static str, String, bool)>,
    runs: Vec<Row>,
    next: Option<String>,
    is_filtered: bool,
}

struct Row {
    id: String,
    href: String,
    name: String,
    state: State,
    lane: String,
    nodes: usize,
    created: Moment,
    took: String,
    client: String,
}

fn row(context: &Context, run: &Run<'_>) -> Row {
    Row {
        href: format!("{}runs/{}", context.root, segment(&run.id)),
        id: short(&run.id).to_owned(),
        name: run.name.as_deref().unwrap_or("unnamed").to_owned(),
        state: State::new(&run.state),
        lane: run.lane.clone().into_owned(),
        nodes: run.node_count,
        created: Moment::new(&run.created_at, context.now),
        took: run
            .finished_at
            .as_deref()
            .and_then(|end| between(&run.created_at, end))
            .map(duration)
            .unwrap_or_default(),
        client: run.client.as_deref().unwrap_or_default().to_owned(),
    }
}

/// Lists runs.
pub async fn list(context: &Context) -> Answer {
    let (state, cursor) =
        (context.field("state").unwrap_or_default(), context.field("cursor").unwrap_or_default());
    let asked = query([("state", state), ("cursor", cursor), ("limit", "50")]);
    let found: RunList<'static> = context.api.get(&format!("/v1/runs{asked}")).await?;
    let chips = STATES.map(|name| {
        let is_on = name == state;
        (name, format!("runs{}", query([("state", if is_on { "" } else { name })])), is_on)
    });
    let page = Runs {
        root: context.root.clone(),
        chips: chips.into(),
        runs: found.runs.iter().map(|run| row(context, run)).collect(),
        next: found.next.map(|next| format!("runs{}", query([("state", state), ("cursor", next.as_str())]))),
        is_filtered: !state.is_empty(),
    };
    context.page("runs", "Runs", &page)
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    root: String,
    id: String,
    run: Row,
    failure: String,
    error: Option<(String, String, String)>,
    buttons: Vec<Button>,
    graph: Svg,
    nodes: Vec<(String, String, JobRow)>,
}

/// Shows a run with its graph.
pub async fn show(context: &Context, id: &str) -> Answer {
    let run: Run<'static> = context.api.get(&format!("/v1/runs/{}", segment(id))).await?;
    let drawn: Vec<Node<'_>> = run
        .nodes
        .iter()
        .map(|node| Node {
            name: &node.node,
            state: &node.job.state,
            after: node.depends_on.iter().chain(&node.within).map(|name| &**name).collect(),
            href: format!("{}jobs/{}", context.root, segment(&node.job.id)),
        })
        .collect();
    let at = format!("runs/{}", segment(id));
    let may_cancel = context.may().submit && run.finished_at.is_none();
    let cancel = Button::new(context, &format!("{at}/cancel"), "Cancel run")
        .danger()
        .ask("Cancel this run? All of its jobs are canceled.")
        .back(at);
    let page = RunPage {
        root: context.root.clone(),
        id: run.id.clone().into_owned(),
        failure: run.failure.clone().into_owned(),
        error: run
            .error
            .as_ref()
            .map(|error| (error.node.clone(), error.code.clone(), visible(&error.message))),
        buttons: if may_cancel { vec![cancel] } else { Vec::new() },
        graph: Svg(graph::draw(&drawn)),
        nodes: run
            .nodes
            .iter()
            .map(|node| {
                (node.node.clone().into_owned(), node.depends_on.join(", "), JobRow::new(context, &node.job))
            })
            .collect(),
        run: row(context, &run),
    };
    context.page("runs", page.run.name.clone(), &page)
}

/// Cancels a run.
pub async fn cancel(context: &Context, id: &str) -> Answer {
    context.api.post(&format!("/v1/runs/{}/cancel", segment(id))).await?;
    context.back(format!("runs/{}", segment(id)), "The run is canceled.")
}
