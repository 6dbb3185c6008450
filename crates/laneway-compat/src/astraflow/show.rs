//! Renders runs and nodes in the format of the dialect.

use std::collections::BTreeMap;

use jiff::Timestamp;
use laneway_core::worker::{Affinity, ResourceRef};
use laneway_core::{JobEnd, JobState, Name, Reason, RunRow, RunState, Seq, Wall};
use laneway_runtime::feedback::{REPORTS, Reported};
use laneway_runtime::store::{JobView, Reader, StoreError};
use laneway_runtime::{ARTIFACTS, Progress, ReadError, RunView, Scheduler};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::containers::{is_group, rolled_up};
use super::frames::Stand;
use super::wire::{Artifact, Node, NodeState, ResultError, Run};
use super::workflow::definition_hash;

/// Most bytes of results in one response. Further results are left out, and their nodes are marked.
const RESULTS_BYTES_MAX: usize = 32 << 20;
/// Most log lines that are searched for artifacts of a run.
const LINES_MAX: usize = 100_000;
/// How many log lines are read at once.
const LINES_PAGE: usize = 1_000;

/// A time, in UTC.
pub fn time(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::MAX).to_string()
}

/// The dialect's name of a run state.
pub fn run_status(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Canceled => "cancelled",
    }
}

/// The dialect's name of a node state. A node that was offered to a worker counts as running.
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

/// A run with its nodes, their results and artifacts.
pub async fn whole(scheduler: &Scheduler, view: RunView) -> Result<Run, ReadError> {
    let seqs: Vec<(usize, Seq)> = (0..).zip(&view.members).map(|(at, view)| (at, view.row.seq)).collect();
    let left = scheduler
        .read(move |reader| {
            let mut lines = LINES_MAX;
            seqs.iter().map(|(_, seq)| left_by(reader, *seq, &mut lines)).collect::<Result<Vec<_>, _>>()
        })
        .await?;
    let mut run = snapshot(scheduler, &view);
    let mut bytes = 0;
    for ((node, member), left) in run.nodes.iter_mut().flatten().zip(&view.members).zip(&left) {
        node.artifacts.clone_from(&left.made);
        let Reported { metrics, metadata, .. } = &left.reported;
        // Fields of the node itself are not overwritten.
        for (name, value) in metadata {
            node.metadata.entry(name).or_insert_with(|| value.clone());
        }
        if !metrics.is_empty() {
            node.metadata.insert("metrics".to_owned(), metrics.clone().into());
        }
        let Some(result) = member.end.as_ref().and_then(result_of) else { continue };
        bytes += result.get().len();
        match bytes <= RESULTS_BYTES_MAX {
            true => node.result = Some(result),
            false => drop(node.metadata.insert("resultLeftOut".to_owned(), true.into())),
        }
    }
    run.artifacts = Some(left.into_iter().flat_map(|left| left.made).collect());
    Ok(run)
}

/// A run with its nodes, without results and artifacts: those have events of their own.
pub fn snapshot(scheduler: &Scheduler, view: &RunView) -> Run {
    let shown = |member: &JobView| {
        let shown = node(member, scheduler.progress(member.row.id).as_ref());
        if is_group(member) { rolled_up(shown, member, &view.members) } else { shown }
    };
    let nodes = view.members.iter().map(shown);
    Run {
        started_at: view.members.iter().filter_map(started_at).min().map(time),
        error: first_error(&view.members),
        nodes: Some(nodes.collect()),
        ..row(&view.row)
    }
}

fn node(view: &JobView, progress: Option<&Progress>) -> Node {
    let spec = &view.row.spec;
    let stand = Stand::of(spec);
    let wants = spec.placement.as_deref();
    let open = view.open.as_ref().filter(|_| view.end.is_none());
    let mut metadata = Map::new();
    metadata.insert("jobId".to_owned(), view.row.id.to_string().into());
    metadata.extend(stand.metadata().map(|frame| ("__frame".to_owned(), frame)));
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
        task_id: stand.task,
        node_id: stand.node,
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

/// The state of a node. Progress reports count while it runs.
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
        metrics: BTreeMap::new(),
        error: view.end.as_ref().and_then(error_of),
    }
}

/// The state in a progress report.
pub fn state_of_progress(progress: &Progress) -> NodeState {
    let stage = progress.stage.as_deref().unwrap_or("running");
    let message = progress.message.as_ref();
    NodeState {
        stage: stage.to_owned(),
        progress: Some(progress.fraction),
        last_updated_at: time(progress.at),
        message: (!message.is_empty()).then(|| message.to_owned()),
        metrics: progress.metrics.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
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

/// Why a node failed. There is always an error.
pub fn error_of(end: &JobEnd) -> Option<ResultError> {
    if !matches!(end.state, JobState::Failed | JobState::Rejected) {
        return None;
    }
    let mut details = Map::from_iter([("reason".to_owned(), Value::from(end.reason.as_str()))]);
    let mut detail = detail_of(end);
    detail.remove("result");
    if let Some(Value::Object(more)) = detail.remove("details") {
        details.extend(more);
    }
    details.extend(detail);
    let (code, message) = match (&end.error, end.reason) {
        (Some(error), Reason::TimedOut | Reason::Expired | Reason::QueueTimeout) => {
            ("E.TIMEOUT".to_owned(), error.message.to_string())
        }
        (Some(error), _) => (error.code.to_string(), error.message.to_string()),
        (None, Reason::Unavailable) => ("E.DISPATCH.UNAVAILABLE".to_owned(), "worker unavailable".to_owned()),
        (None, Reason::TimedOut) => ("E.TIMEOUT".to_owned(), "the node ran too long".to_owned()),
        (None, Reason::Expired) => ("E.TIMEOUT".to_owned(), "the node did not start in time".to_owned()),
        (None, reason) => ("E.INTERNAL".to_owned(), format!("the node failed: {reason}")),
    };
    Some(ResultError { code, message, details })
}

/// The fields of a worker's failure beside its code and message.
fn detail_of(end: &JobEnd) -> Map<String, Value> {
    let detail = end.error.as_ref().and_then(|error| error.detail.as_deref());
    detail.and_then(|detail| serde_json::from_slice(detail).ok()).unwrap_or_default()
}

/// The result of an ended node; for a failed one, the partial result that its worker sent.
pub fn result_of(end: &JobEnd) -> Option<Box<RawValue>> {
    if let Some(result) = end.result.as_deref() {
        return Some(object(result));
    }
    let brought = detail_of(end).remove("result").filter(|_| end.state == JobState::Failed)?;
    serde_json::value::to_raw_value(&brought).ok()
}

/// The first failure, with its node.
fn first_error(members: &[JobView]) -> Option<ResultError> {
    let ends = members.iter().filter_map(|view| Some((view, view.end.as_ref()?)));
    let failed = ends.filter_map(|(view, end)| Some((view, end, error_of(end)?)));
    let (view, _, mut error) = failed.min_by_key(|(_, end, _)| (end.finished_at, end.last_event))?;
    error.details.insert("nodeId".to_owned(), Stand::of(&view.row.spec).node.into());
    Some(error)
}

/// When a node started.
pub fn started_at(view: &JobView) -> Option<Wall> {
    match (&view.end, &view.open) {
        (Some(end), _) => end.started_at,
        (None, open) => open.as_ref().and_then(|open| open.started_at),
    }
}

/// A result as an object. A result that is not an object is wrapped as `value`.
pub fn object(result: &[u8]) -> Box<RawValue> {
    let text = std::str::from_utf8(result).unwrap_or_default();
    let raw: Option<Box<RawValue>> = serde_json::from_str(text).ok();
    match raw {
        Some(raw) if raw.get().starts_with('{') => raw,
        Some(raw) => wrapped(&raw),
        None => wrapped(
            &RawValue::from_string(Value::from(String::from_utf8_lossy(result)).to_string())
                .expect("a JSON text is valid JSON"),
        ),
    }
}

fn wrapped(raw: &RawValue) -> Box<RawValue> {
    RawValue::from_string(format!("{{\"value\":{}}}", raw.get()))
        .expect("JSON within an object is valid JSON")
}

/// What a node has written to its log.
#[derive(Default)]
pub struct Left {
    /// Its artifacts.
    pub made: Vec<Artifact>,
    /// The other reports of its latest attempt.
    pub reported: Reported,
}

/// Reads what a node has written to its log, at most `lines` lines.
pub fn left_by(reader: &dyn Reader, job: Seq, lines: &mut usize) -> Result<Left, StoreError> {
    let (mut after, mut left): (u64, Left) = (0, Left::default());
    while *lines > 0 {
        let page = reader.logs(job, after, LINES_PAGE.min(*lines))?;
        *lines -= page.len();
        for line in &page {
            if line.stream.as_str() == REPORTS {
                left.reported.add(line.attempt, &line.text);
            }
            if line.stream.as_str() != ARTIFACTS {
                continue;
            }
            let made = &mut left.made;
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
    Ok(left)
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
    let mut shown = json!({"key": key.as_str(), "mode": mode.as_str()});
    if let Some(at) = expires_at {
        shown["expiresAt"] = time(*at).into();
    }
    shown
}
