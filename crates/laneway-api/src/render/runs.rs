//! Renders runs.

use laneway_core::{JobState, Name, RunRow};
use laneway_runtime::RunView;
use laneway_runtime::store::JobView;
use laneway_wire as wire;

use super::{optional_time, time};

/// A run without its nodes, for lists.
pub fn run_row(row: &RunRow) -> wire::Run<'_> {
    let RunRow { first: _, id, spec, nodes, created_at, submitted_by, state, finished_at } = row;
    wire::Run {
        id: id.to_string().into(),
        state: state.as_str().into(),
        name: spec.name.as_ref().map(|name| name.as_str().into()),
        lane: spec.lane.as_str().into(),
        failure: spec.failure.as_str().into(),
        client: spec.client.as_ref().map(|client| client.as_str().into()),
        tags: spec.tags.iter().map(|tag| tag.as_str().into()).collect(),
        tenant: spec.tenant.as_str().into(),
        created_at: time(*created_at).into(),
        finished_at: optional_time(*finished_at),
        submitted_by: submitted_by.as_str().into(),
        node_count: nodes.len(),
        error: None,
        nodes: Vec::new(),
        existing: false,
    }
}

/// A run with its nodes.
pub fn run(view: &RunView) -> wire::Run<'_> {
    wire::Run {
        error: first_failure(&view.members),
        nodes: view.members.iter().map(node).collect(),
        ..run_row(&view.row)
    }
}

fn node(view: &JobView) -> wire::RunNode<'_> {
    let member = view.row.spec.member.as_deref();
    wire::RunNode {
        node: member.map_or("", |member| member.node.as_str()).into(),
        depends_on: member.map_or(&[][..], |member| &member.depends_on).iter().map(name_text).collect(),
        middleware: member.and_then(|member| member.chain.as_ref()).map(|chain| wire::NodeChain {
            host: name_text(&chain.host),
            chain: chain.middlewares.iter().map(name_text).collect(),
            index: chain.index,
        }),
        group: member.is_some_and(|member| member.group),
        within: member.and_then(|member| member.within.as_ref()).map(name_text),
        dispatch_seq: view.open.as_ref().map(|open| open.dispatch_seq),
        job: super::job(view, None),
    }
}

fn name_text(name: &Name) -> std::borrow::Cow<'_, str> {
    name.as_str().into()
}

/// The first failure. For a node without an error, the reason of its end.
fn first_failure(members: &[JobView]) -> Option<wire::RunError> {
    let failed = members.iter().filter(|view| view.state() == JobState::Failed);
    let first = failed.min_by_key(|view| view.end.as_ref().map(|end| (end.finished_at, end.last_event)))?;
    let end = first.end.as_ref()?;
    let (code, message) = match &end.error {
        Some(error) => (error.code.to_string(), error.message.to_string()),
        None => (end.reason.to_string(), format!("the node failed: {}", end.reason)),
    };
    let node = first.row.spec.member.as_ref()?.node.to_string();
    Some(wire::RunError { node, code, message })
}
