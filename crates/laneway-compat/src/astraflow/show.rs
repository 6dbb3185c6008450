//! Runs and nodes in their words.

use jiff::Timestamp;
use laneway_core::worker::{Affinity, ResourceRef};
use laneway_core::{JobEnd, JobState, Name, Reason, RunRow, RunState, Seq, Wall};
use laneway_runtime::store::{JobView, Reader, StoreError};
use laneway_runtime::{ARTIFACTS, Progress, QueryError, RunView, Scheduler};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::wire::{Artifact, Node, NodeState, ResultError, Run};
use super::workflow::definition_hash;

/// Most bytes of results in one answer; those beyond are left out, and their nodes say so.
const RESULTS_BYTES_MAX: usize = 32 << 20;
/// Most lines of logs that are looked at for what the nodes of a run made.
const LINES_MAX: usize = 100_000;
/// How many lines are read at once.
const LINES_PAGE: usize = 1_000;

/// A time, in UTC.
pub fn time(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::MAX).to_string()
}

/// Their word for a run's state.
pub fn run_status(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Canceled => "cancelled",
    }
}

/// Their word for a node's state. A node that a worker was told of counts as running.
pub fn node_status(view: &JobView) -> &'static str {
    let skipped = view.end.as_ref().is_some_and(|end| end.reason == Reason::Skipped);
    match view.state() {
        JobState::Scheduled | JobState::Queued => "queued",
        JobState::Assigned | JobState::Running => "running",
        JobState::Succeeded if skipped => "skipped",
        JobState::Succeeded => "succeeded",
        JobState::Failed | JobState::Rejected => "failed",
        JobState::Canceled => "cancelled",
    }
}

/// A run without its nodes, as lists show it.
pub fn row(row: &RunRow) -> Run {
    Run {
        run_id: row.id.to_string(),
        status: run_status(row.state),
        definition_hash: definition_hash(&row.spec).to_owned(),
        client_id: row.spec.client.as_ref().map(Name::to_string).unwrap_or_default(),
        started_at: None,
        finished_at: row.finished_at.map(time),
        error: None,
        artifacts: None,
        nodes: None,
    }
}

/// A run with everything: its nodes, their results, what they made.
pub async fn whole(scheduler: &Scheduler, view: RunView) -> Result<Run, QueryError> {
    let seqs: Vec<(usize, Seq)> = (0..).zip(&view.members).map(|(at, view)| (at, view.row.seq)).collect();
    let made = scheduler
        .query(move |reader| {
            let mut left = LINES_MAX;
            seqs.iter().map(|(_, seq)| made_by(reader, *seq, &mut left)).collect::<Result<Vec<_>, _>>()
        })
        .await?;
    let mut run = snapshot(scheduler, &view);
    let mut bytes = 0;
    for ((node, member), made) in run.nodes.iter_mut().flatten().zip(&view.members).zip(&made) {
        node.artifacts.clone_from(made);
        let Some(result) = member.end.as_ref().and_then(|end| end.result.as_deref()) else { continue };
        bytes += result.len();
        match bytes <= RESULTS_BYTES_MAX {
            true => node.result = Some(object(result)),
            false => drop(node.metadata.insert("resultLeftOut".to_owned(), true.into())),
        }
    }
    run.artifacts = Some(made.into_iter().flatten().collect());
    Ok(run)
}

/// A run with its nodes, without results and what they made: those are told on their own.
pub fn snapshot(scheduler: &Scheduler, view: &RunView) -> Run {
    let nodes = view.members.iter().map(|member| node(member, scheduler.progress(member.row.id).as_ref()));
    Run {
        started_at: view.members.iter().filter_map(started_at).min().map(time),
        error: first_error(&view.members),
        nodes: Some(nodes.collect()),
        ..row(&view.row)
    }
}

fn node(view: &JobView, progress: Option<&Progress>) -> Node {
    let spec = &view.row.spec;
    let node = spec.member.as_ref().map(|member| member.node.to_string()).unwrap_or_default();
    let wants = spec.wants.as_deref();
    let open = view.open.as_ref().filter(|_| view.end.is_none());
    let mut metadata = Map::new();
    metadata.insert("jobId".to_owned(), view.row.id.to_string().into());
    if let Some(chain) = spec.member.as_ref().and_then(|member| member.chain.as_ref()) {
        match chain.index {
            Some(index) => {
                metadata.insert("host_node_id".to_owned(), chain.host.as_str().into());
                metadata.insert("chain_index".to_owned(), index.into());
            }
            None => {
                let names: Vec<&str> = chain.middlewares.iter().map(Name::as_str).collect();
                metadata.insert("middlewares".to_owned(), names.into());
            }
        }
    }
    Node {
        task_id: node.clone(),
        node_id: node,
        status: node_status(view),
        worker_id: open.and_then(|open| open.holder.as_ref()).map(|holder| holder.worker.to_string()),
        started_at: started_at(view).map(time),
        finished_at: view.end.as_ref().map(|end| time(end.finished_at)),
        seq: open.map(|open| open.dispatch_seq),
        pending_ack: open.is_some_and(|open| open.state == JobState::Assigned),
        resource_refs: wants.map(|wants| wants.resources.iter().map(resource).collect()).unwrap_or_default(),
        affinity: wants.and_then(|wants| wants.affinity.as_ref()).map(affinity),
        artifacts: Vec::new(),
        result: None,
        metadata,
        state: state(view, progress.filter(|_| open.is_some())),
        error: view.end.as_ref().and_then(error_of),
    }
}

/// How a node goes. What a run says of itself counts as long as it runs.
fn state(view: &JobView, progress: Option<&Progress>) -> NodeState {
    if let Some(progress) = progress {
        return state_of_progress(progress);
    }
    let open = view.open.as_ref().map(|open| open.started_at.unwrap_or(open.opened_at));
    let at = view.end.as_ref().map(|end| end.finished_at).or(open).unwrap_or(view.row.created_at);
    NodeState {
        stage: node_status(view).to_owned(),
        progress: None,
        last_updated_at: time(at),
        message: view.end.as_ref().and_then(message_of),
        error: view.end.as_ref().and_then(error_of),
    }
}

/// What a run says of how it goes.
pub fn state_of_progress(progress: &Progress) -> NodeState {
    let stage = progress.stage.as_deref().unwrap_or("running");
    let message = progress.message.as_ref();
    NodeState {
        stage: stage.to_owned(),
        progress: Some(progress.fraction),
        last_updated_at: time(progress.at),
        // A run that says nothing else says its stage there, too.
        message: (!message.is_empty() && Some(message) != progress.stage.as_deref())
            .then(|| message.to_owned()),
        error: None,
    }
}

/// Why a node ended that neither succeeded nor failed, for people.
pub fn message_of(end: &JobEnd) -> Option<String> {
    let text = match (end.state, end.reason) {
        (JobState::Canceled, Reason::UpstreamFailed) => "a node that it waits for did not succeed",
        (JobState::Canceled, Reason::RunFailed) => "another node of its run failed",
        (JobState::Canceled, _) => "it was cancelled",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Why a node failed. There is always a reason.
pub fn error_of(end: &JobEnd) -> Option<ResultError> {
    if !matches!(end.state, JobState::Failed | JobState::Rejected) {
        return None;
    }
    let details = Map::from_iter([("reason".to_owned(), Value::from(end.reason.word()))]);
    let (code, message) = match (&end.error, end.reason) {
        (Some(error), _) => (error.code.to_string(), error.message.to_string()),
        (None, Reason::Unavailable) => ("E.DISPATCH.UNAVAILABLE".to_owned(), "worker unavailable".to_owned()),
        (None, Reason::TimedOut) => ("E.TIMEOUT".to_owned(), "the node ran too long".to_owned()),
        (None, reason) => ("E.INTERNAL".to_owned(), format!("the node failed: {reason}")),
    };
    Some(ResultError { code, message, details })
}

/// The failure that came first, with the node that it is of.
fn first_error(members: &[JobView]) -> Option<ResultError> {
    let ends = members.iter().filter_map(|view| Some((view, view.end.as_ref()?)));
    let failed = ends.filter_map(|(view, end)| Some((view, end, error_of(end)?)));
    let (view, _, mut error) = failed.min_by_key(|(_, end, _)| (end.finished_at, end.last_event))?;
    if let Some(member) = &view.row.spec.member {
        error.details.insert("nodeId".to_owned(), member.node.as_str().into());
    }
    Some(error)
}

fn started_at(view: &JobView) -> Option<Wall> {
    match (&view.end, &view.open) {
        (Some(end), _) => end.started_at,
        (None, open) => open.as_ref().and_then(|open| open.started_at),
    }
}

/// A result. Theirs are objects: what is none stands in one, as `value`.
pub fn object(result: &[u8]) -> Box<RawValue> {
    let text = std::str::from_utf8(result).unwrap_or_default();
    let raw: Option<Box<RawValue>> = serde_json::from_str(text).ok();
    match raw {
        Some(raw) if raw.get().starts_with('{') => raw,
        Some(raw) => wrapped(&raw),
        None => wrapped(
            &RawValue::from_string(Value::from(String::from_utf8_lossy(result)).to_string())
                .expect("a JSON text is JSON"),
        ),
    }
}

fn wrapped(raw: &RawValue) -> Box<RawValue> {
    RawValue::from_string(format!("{{\"value\":{}}}", raw.get())).expect("JSON within an object is JSON")
}

/// What a node made, of its latest attempt that made something; at most `left` lines of its log are looked at.
pub fn made_by(reader: &dyn Reader, job: Seq, left: &mut usize) -> Result<Vec<Artifact>, StoreError> {
    let (mut after, mut made): (u64, Vec<Artifact>) = (0, Vec::new());
    while *left > 0 {
        let page = reader.logs(job, after, LINES_PAGE.min(*left))?;
        *left -= page.len();
        for line in page.iter().filter(|line| line.stream.as_str() == ARTIFACTS) {
            let Ok(mut artifact) = serde_json::from_str::<Artifact>(&line.text) else { continue };
            artifact.line = line.line;
            let same = |known: &Artifact| {
                (&known.worker_id, &known.resource_id) == (&artifact.worker_id, &artifact.resource_id)
            };
            made.retain(|known| !same(known));
            made.push(artifact);
        }
        match page.last() {
            Some(line) if page.len() == LINES_PAGE => after = line.line,
            _ => break,
        }
    }
    Ok(made)
}

fn resource(resource: &ResourceRef) -> Value {
    let ResourceRef { id, worker, sort, scope, expires_at } = resource;
    let mut shown = json!({"resourceId": id.as_str(), "workerId": worker.as_str(), "type": sort.as_str()});
    if let Some(scope) = scope {
        shown["scope"] = scope.as_str().into();
    }
    if let Some(at) = expires_at {
        shown["expiresAt"] = time(*at).into();
    }
    shown
}

fn affinity(affinity: &Affinity) -> Value {
    let Affinity { key, mode, expires_at } = affinity;
    let mut shown = json!({"key": key.as_str(), "mode": mode.word()});
    if let Some(at) = expires_at {
        shown["expiresAt"] = time(*at).into();
    }
    shown
}
