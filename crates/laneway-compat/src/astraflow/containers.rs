//! Containers as pages see them: nodes that run nothing themselves, with a state derived from the nodes in them.

use laneway_core::{JobState, Wall};
use laneway_runtime::store::JobView;

use super::show::{error_of, node_status, started_at, time};
use super::wire::{Node, NodeState, ResultError};

/// True for a container.
pub fn is_group(view: &JobView) -> bool {
    view.row.spec.member.as_ref().is_some_and(|member| member.group)
}

/// The derived state of a container.
struct RollUp {
    status: &'static str,
    started_at: Option<Wall>,
    /// How many of its nodes have succeeded, and how many there are.
    done: (usize, usize),
    /// Its first failure.
    error: Option<ResultError>,
}

/// A container as pages see it. `members`: all nodes of its run.
pub fn rolled_up(shown: Node, view: &JobView, members: &[JobView]) -> Node {
    let rolled = roll_up(view, members);
    let mut node = Node {
        status: rolled.status,
        started_at: rolled.started_at.map(time),
        state: state(view, &rolled),
        error: rolled.error,
        ..shown
    };
    node.metadata.insert("role".to_owned(), "container".into());
    node
}

/// The state of a container, for the stream.
pub fn container_state(view: &JobView, members: &[JobView]) -> NodeState {
    state(view, &roll_up(view, members))
}

fn state(view: &JobView, rolled: &RollUp) -> NodeState {
    let (done, all) = rolled.done;
    let at = view.end.as_ref().map(|end| end.finished_at).or(rolled.started_at);
    NodeState {
        stage: rolled.status.to_owned(),
        progress: (all > 0).then(|| done as f64 / all as f64),
        last_updated_at: time(at.unwrap_or(view.row.created_at)),
        message: Some(format!("{done}/{all} child nodes complete")),
        metrics: Default::default(),
        error: rolled.error.clone(),
    }
}

fn roll_up(view: &JobView, members: &[JobView]) -> RollUp {
    let inside = inside(view, members);
    let direct = inside.iter().filter(|(_, depth)| *depth == 0);
    let done = direct.clone().filter(|(view, _)| view.state() == JobState::Succeeded).count();
    let runs = |view: &&JobView| !is_group(view);
    let nodes = || inside.iter().map(|(view, _)| *view).filter(runs);
    let failed = nodes().filter_map(|view| Some((view.end.as_ref()?, error_of(view.end.as_ref()?)?)));
    let error = failed.min_by_key(|(end, _)| (end.finished_at, end.last_event)).map(|(_, error)| error);
    let begun = |view: &JobView| view.end.is_some() || view.open.is_some() || view.row.status.attempts > 0;
    let status = match (node_status(view), &error) {
        ("succeeded" | "skipped", _) => node_status(view),
        (_, Some(_)) => "failed",
        ("queued", None) if nodes().any(begun) => "running",
        (status, None) => status,
    };
    RollUp {
        status,
        started_at: nodes().filter_map(started_at).min(),
        done: (done, direct.count()),
        error: error.filter(|_| status == "failed"),
    }
}

/// The nodes in a container, including those of inner containers, each with the number of containers between.
fn inside<'a>(view: &JobView, members: &'a [JobView]) -> Vec<(&'a JobView, usize)> {
    let name = |view: &JobView| view.row.spec.member.as_ref().map(|member| member.node.clone());
    let mut groups: Vec<_> = name(view).into_iter().collect();
    let (mut found, mut depth) = (Vec::new(), 0);
    while !groups.is_empty() {
        let within = |view: &&JobView| {
            let group = view.row.spec.member.as_ref().and_then(|member| member.within.as_ref());
            group.is_some_and(|group| groups.contains(group))
        };
        let next: Vec<&JobView> = members.iter().filter(within).collect();
        found.extend(next.iter().map(|view| (*view, depth)));
        groups = next.into_iter().filter(|view| is_group(view)).filter_map(name).collect();
        depth += 1;
    }
    found
}
