//! Translates events for one session: which events matter to a page, and what they contain.
//!
//! A session gets the events of its own runs and of its tenant's workers. The frames of an event follow from its
//! kind, so that an interrupted stream can resume in the middle of an event.

use std::collections::BTreeMap;
use std::fmt;

use laneway_core::event::JobLine;
use laneway_core::run::RunLine;
use laneway_core::{Event, EventKind, JobId, Name, RunId, Wall};
use laneway_runtime::feedback::{Body, Change, Feedback, Piece};
use laneway_runtime::store::JobView;
use laneway_runtime::{ArtifactId, Progress, ReadError, Scheduler};
use serde_json::{Value, json};

use super::containers::{container_state, is_group};
use super::frames::Stand;
use super::show::{self, Left, error_of, left_by, message_of, time};
use super::wire::NodeState;
use super::{LANE, show::node_status};

/// Most jobs and runs whose owner a stream remembers. Beyond it, owners are looked up again.
const KNOWN_MAX: usize = 10_000;
/// Most log lines of a node that are searched for artifacts.
const LINES_MAX: usize = 20_000;

/// An event for a page.
#[derive(Debug)]
pub struct StreamEvent {
    /// Its type in the dialect.
    pub kind: &'static str,
    /// The run that it belongs to.
    pub run: Option<RunId>,
    /// The worker that it belongs to.
    pub worker: Option<String>,
    /// Its data.
    pub data: Value,
}

/// The node that a job executes.
#[derive(Clone, Debug)]
struct NodeRef {
    /// Its run.
    run: RunId,
    /// The position of the node, as pages name it.
    stand: Stand,
    /// True for a container.
    group: bool,
}

impl NodeRef {
    /// The fields that every event about a node begins with.
    fn about(&self, kind: &str) -> Value {
        let mut data = json!({"kind": kind, "runId": self.run.to_string(), "nodeId": self.stand.node});
        if self.stand.task != self.stand.node {
            // The same subgraph may occur in several containers: only the task id is unique.
            data["taskId"] = json!(self.stand.task);
        }
        data
    }
}

/// Selects and translates events for a session. It remembers owners only to save look-ups.
pub struct Listener {
    scheduler: Scheduler,
    tenant: Name,
    session: Name,
    jobs: BTreeMap<JobId, Option<NodeRef>>,
    runs: BTreeMap<RunId, bool>,
}

impl Listener {
    /// A listener for the session of a tenant.
    pub fn new(scheduler: Scheduler, tenant: Name, session: Name) -> Listener {
        Listener { scheduler, tenant, session, jobs: BTreeMap::new(), runs: BTreeMap::new() }
    }

    /// Translates an event.
    pub async fn event(&mut self, event: &Event) -> Result<Vec<StreamEvent>, ReadError> {
        if event.tenant.as_ref() != Some(&self.tenant) {
            return Ok(Vec::new());
        }
        let detail = event.detail.as_deref().unwrap_or_default();
        match event.kind {
            EventKind::RunSubmitted
            | EventKind::RunStarted
            | EventKind::RunSucceeded
            | EventKind::RunFailed
            | EventKind::RunCanceled => match RunLine::parse(detail) {
                Some(line) => self.run(event.kind, line.id).await,
                None => Ok(Vec::new()),
            },
            EventKind::WorkerConnected
            | EventKind::WorkerSuperseded
            | EventKind::WorkerDegraded
            | EventKind::WorkerLost
            | EventKind::WorkerDrained
            | EventKind::WorkerSaturated
            | EventKind::WorkerDisconnected => Ok(worker(event.kind, detail, event.at).into_iter().collect()),
            EventKind::WorkerRebound => Ok(rebound(detail, event.at).into_iter().collect()),
            EventKind::CallDone | EventKind::CallRejected => {
                Ok(package(detail).or_else(|| command(detail, event.at)).into_iter().collect())
            }
            kind => match &event.job {
                // The event names its lane and session, so events of others cost nothing.
                Some(line) if line.lane.as_str() == LANE && line.agent == self.session => {
                    self.node(kind, line, event.at).await
                }
                _ => Ok(Vec::new()),
            },
        }
    }

    /// Translates progress of a job.
    pub async fn progress(&mut self, progress: &Progress) -> Result<Vec<StreamEvent>, ReadError> {
        if progress.tenant != self.tenant {
            return Ok(Vec::new());
        }
        let node = self.node_of(progress.job).await?;
        Ok(node.map(|node| state(&node, &show::state_of_progress(progress))).into_iter().collect())
    }

    /// Translates output and intermediate results of a job.
    pub async fn feedback(&mut self, feedback: &Feedback) -> Result<Vec<StreamEvent>, ReadError> {
        if feedback.tenant != self.tenant {
            return Ok(Vec::new());
        }
        let Some(node) = self.node_of(feedback.job).await? else { return Ok(Vec::new()) };
        let pieces = feedback.pieces.iter().map(piece);
        let parts = pieces.chain(feedback.changes.iter().map(change));
        let numbered = (feedback.first..).zip(parts);
        Ok(numbered.map(|(sequence, part)| delta(&node, feedback.attempt, sequence, part)).collect())
    }

    async fn run(&mut self, kind: EventKind, id: RunId) -> Result<Vec<StreamEvent>, ReadError> {
        if !self.owns(id).await? {
            return Ok(Vec::new());
        }
        let Some(view) = self.scheduler.run(Some(self.tenant.clone()), id).await? else {
            return Ok(Vec::new());
        };
        let run = show::snapshot(&self.scheduler, &view);
        let status = match kind {
            EventKind::RunSubmitted => "queued",
            EventKind::RunStarted => "running",
            EventKind::RunSucceeded => "succeeded",
            EventKind::RunFailed => "failed",
            _ => "cancelled",
        };
        let mut data = json!({"kind": "run.status", "runId": run.run_id, "status": status});
        // A replayed start of a run must not include its end.
        if kind != EventKind::RunSubmitted {
            put(&mut data, "startedAt", &run.started_at);
        }
        if !matches!(kind, EventKind::RunSubmitted | EventKind::RunStarted) {
            put(&mut data, "finishedAt", &run.finished_at);
            put(&mut data, "reason", &run.error.as_ref().map(|error| &error.message));
        }
        let about = |kind, data| StreamEvent { kind, run: Some(id), worker: None, data };
        let snapshot = json!({"kind": "run.snapshot", "run": run});
        Ok(vec![about("run.status", data), about("run.snapshot", snapshot)])
    }

    async fn node(
        &mut self,
        kind: EventKind,
        line: &JobLine,
        at: Wall,
    ) -> Result<Vec<StreamEvent>, ReadError> {
        let stage = match kind {
            EventKind::JobQueued
            | EventKind::JobRetrying
            | EventKind::JobDeferred
            | EventKind::JobReturned => "queued",
            EventKind::JobAssigned => "dispatching",
            EventKind::JobStarted => "running",
            EventKind::JobSucceeded | EventKind::JobFailed | EventKind::JobCanceled => "",
            _ => return Ok(Vec::new()),
        };
        let Some(node) = self.node_of(line.id).await? else { return Ok(Vec::new()) };
        if !stage.is_empty() {
            let going =
                NodeState { stage: stage.to_owned(), last_updated_at: time(at), ..NodeState::default() };
            return Ok(vec![state(&node, &going)]);
        }
        let containers = self.containers(&node).await?;
        if node.group {
            return Ok(containers);
        }
        let (id, seq) = (line.id, line.seq);
        let found = self.scheduler.read(move |reader| {
            let Some(view) = reader.job(id)? else { return Ok(None) };
            let left = left_by(reader, seq, &mut { LINES_MAX })?;
            Ok(Some((view, left)))
        });
        let ended = found.await?.map(|(view, left)| ended(&node, &view, &left, at));
        Ok(ended.unwrap_or_default().into_iter().chain(containers).collect())
    }

    /// The effect of an end on the containers around a node, innermost first; for a container, on itself.
    async fn containers(&self, node: &NodeRef) -> Result<Vec<StreamEvent>, ReadError> {
        let around = node.stand.around();
        if around.is_empty() && !node.group {
            return Ok(Vec::new());
        }
        let Some(view) = self.scheduler.run(Some(self.tenant.clone()), node.run).await? else {
            return Ok(Vec::new());
        };
        let is_meant = |stand: &Stand| match node.group {
            true => *stand == node.stand,
            false => around.iter().any(|(_, _, task)| *task == stand.task),
        };
        let mut emitted = Vec::new();
        for member in view.members.iter().rev().filter(|member| is_group(member)) {
            let stand = Stand::of(&member.row.spec);
            if is_meant(&stand) {
                let node = NodeRef { run: node.run, stand, group: true };
                emitted.push(state(&node, &container_state(member, &view.members)));
            }
        }
        Ok(emitted)
    }

    /// The node that a job executes, if its run belongs to this session.
    async fn node_of(&mut self, job: JobId) -> Result<Option<NodeRef>, ReadError> {
        if let Some(known) = self.jobs.get(&job) {
            return Ok(known.clone());
        }
        let view = self.scheduler.read(move |reader| reader.job(job)).await?;
        let found = view.filter(|view| view.row.spec.tenant == self.tenant).and_then(|view| {
            let member = view.row.spec.member.as_ref()?;
            let node = NodeRef { run: member.run, stand: Stand::of(&view.row.spec), group: member.group };
            Some((member.run, node))
        });
        let node = match found {
            Some((run, node)) if self.owns(run).await? => Some(node),
            _ => None,
        };
        remember(&mut self.jobs, job, node.clone());
        Ok(node)
    }

    /// True for a run of this dialect that this session started.
    async fn owns(&mut self, id: RunId) -> Result<bool, ReadError> {
        if let Some(known) = self.runs.get(&id) {
            return Ok(*known);
        }
        let row = self.scheduler.read(move |reader| reader.run(id)).await?;
        let owns = row.is_some_and(|row| {
            let spec = row.spec;
            spec.tenant == self.tenant
                && spec.lane.as_str() == LANE
                && spec.client.as_ref() == Some(&self.session)
        });
        remember(&mut self.runs, id, owns);
        Ok(owns)
    }
}

fn remember<K: Ord, V>(known: &mut BTreeMap<K, V>, key: K, value: V) {
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(key, value);
}

/// The events for a node that has ended.
fn ended(node: &NodeRef, view: &JobView, left: &Left, at: Wall) -> Vec<StreamEvent> {
    let Some(end) = &view.end else { return Vec::new() };
    let error = error_of(end);
    let last = NodeState {
        stage: node_status(view).to_owned(),
        progress: None,
        last_updated_at: time(at),
        message: message_of(end),
        metrics: BTreeMap::new(),
        error: error.clone(),
    };
    let mut emitted = vec![state(node, &last)];
    let about = |kind, data| StreamEvent { kind, run: Some(node.run), worker: None, data };
    if let Some(error) = error {
        let mut data = node.about("node.error");
        data["error"] = json!(error);
        emitted.push(about("node.error", data));
    }
    let succeeded = end.state == laneway_core::JobState::Succeeded;
    if let Some(content) = show::result_of(end).or_else(|| succeeded.then(|| show::object(b"{}"))) {
        let mut data = node.about("node.result.snapshot");
        extend(
            &mut data,
            json!({"revision": end.attempts, "format": "json", "content": content, "complete": true}),
        );
        if !left.made.is_empty() {
            data["artifacts"] = json!(left.made);
        }
        emitted.push(about("node.result.snapshot", data));
    }
    for artifact in &left.made {
        let mut data = node.about("artifact.ready");
        data["artifactId"] = json!(artifact.resource_id);
        put(&mut data, "expiresAt", &artifact.expires_at);
        put(&mut data, "sizeBytes", &artifact.size_bytes);
        if artifact.inline != Some(true) {
            data["href"] = json!(ArtifactId { job: view.row.id, line: artifact.line }.href());
        }
        emitted.push(about("artifact.ready", data));
    }
    emitted
}

fn state(node: &NodeRef, state: &NodeState) -> StreamEvent {
    let mut data = node.about("node.state");
    data["state"] = json!(state);
    StreamEvent { kind: "node.state", run: Some(node.run), worker: None, data }
}

/// A numbered change of a node. Text chunks and changes share the numbers of their attempt.
fn delta(node: &NodeRef, attempt: u32, sequence: u64, part: Value) -> StreamEvent {
    let mut data = node.about("node.result.delta");
    extend(&mut data, json!({"revision": attempt, "sequence": sequence}));
    extend(&mut data, part);
    StreamEvent { kind: "node.result.delta", run: Some(node.run), worker: None, data }
}

/// Adds all fields of one object to another.
fn extend(data: &mut Value, more: Value) {
    if let (Value::Object(data), Value::Object(more)) = (data, more) {
        data.extend(more);
    }
}

fn piece(piece: &Piece) -> Value {
    let Piece { channel, body, mime_type, metadata, is_cut } = piece;
    let mut payload = match body {
        Body::Text(text) => json!({"text": text}),
        Body::Base64(data) => json!({"data": data}),
    };
    put(&mut payload, "mimeType", mime_type);
    let mut meta = json!({"channel": channel});
    put(&mut meta, "metadata", metadata);
    if *is_cut {
        meta["cut"] = true.into();
    }
    let terminal =
        metadata.as_ref().and_then(|metadata| metadata.get("terminal")?.as_bool()).unwrap_or(false);
    json!({"operation": "append", "path": format!("/channels/{channel}"), "payload": payload, "chunkMeta": meta,
        "terminal": terminal})
}

fn change(change: &Change) -> Value {
    let Change { path, value } = change;
    match value {
        Some(value) => {
            json!({"operation": "replace", "path": path, "payload": {"value": value}, "terminal": false})
        }
        None => json!({"operation": "remove", "path": path, "terminal": false}),
    }
}

/// The state of a worker has changed.
fn worker(kind: EventKind, detail: &str, at: Wall) -> Option<StreamEvent> {
    let (worker, why) = detail.rsplit_once(": ")?;
    let status = kind.as_str().split_once('.').map_or("", |(_, name)| name);
    let data = json!({"kind": "worker.heartbeat", "workerId": worker, "at": time(at), "queues": [],
        "capacity": {"status": status, "message": why}});
    Some(StreamEvent { kind: "worker.heartbeat", run: None, worker: Some(worker.to_owned()), data })
}

/// A worker now serves other lanes.
fn rebound(detail: &str, at: Wall) -> Option<StreamEvent> {
    let (worker, lanes) = detail.split_once(": serves ")?;
    // A long list is cut off, and cannot be parsed then.
    let lanes = lanes.strip_suffix(" from now on").filter(|lanes| *lanes != "every lane");
    let queues: Vec<&str> = lanes.map_or(Vec::new(), |lanes| lanes.split(", ").collect());
    let data = json!({"kind": "worker.heartbeat", "workerId": worker, "at": time(at), "queues": queues,
        "capacity": {"status": "rebound", "message": &detail[worker.len() + 2..]}});
    Some(StreamEvent { kind: "worker.heartbeat", run: None, worker: Some(worker.to_owned()), data })
}

/// An audit entry about a package.
fn package(detail: &str) -> Option<StreamEvent> {
    let (operation, rest) = detail.strip_prefix("pkg.")?.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    let (version, rest) = rest.split_once(' ')?;
    let installs = operation == "install";
    let (worker, status, message) = match rest.strip_prefix("on worker ") {
        Some(rest) => match rest.rsplit_once(": ")? {
            (worker, "done") => (worker, if installs { "installed" } else { "removed" }, None),
            (worker, code) => (worker, "failed", Some(code)),
        },
        None => {
            let worker = rest.strip_prefix("sent to worker ")?;
            (worker, if installs { "installing" } else { "removing" }, None)
        }
    };
    let mut data = json!({"kind": "worker.package", "workerId": worker, "package": name, "status": status});
    put(&mut data, "version", &(version != "*").then_some(version));
    put(&mut data, "message", &message);
    Some(StreamEvent { kind: "worker.package", run: None, worker: Some(worker.to_owned()), data })
}

fn command(detail: &str, at: Wall) -> Option<StreamEvent> {
    let CommandLine { id, order: _, worker } = CommandLine::parse(detail)?;
    let worker = worker.to_string();
    let data =
        json!({"kind": "command.ack", "commandId": id.as_str(), "workerId": worker, "receivedAt": time(at)});
    Some(StreamEvent { kind: "command.ack", run: None, worker: Some(worker), data })
}

/// The audit entry about a command that was sent to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The command: the id of its HTTP call.
    pub id: Name,
    /// What was requested.
    pub order: Box<str>,
    /// The worker.
    pub worker: Name,
}

impl CommandLine {
    /// Parses the detail of an event.
    pub fn parse(detail: &str) -> Option<CommandLine> {
        // Only ids of calls and types of commands are parsed; names in between may contain anything.
        let (order, rest) = detail.strip_prefix("command ")?.split_once(" for worker ")?;
        // Ids of calls contain no colon followed by a space; names may contain anything.
        let (worker, id) = rest.rsplit_once(", call ")?;
        Some(CommandLine { id: Name::new(id).ok()?, order: order.into(), worker: Name::new(worker).ok()? })
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {} for worker {}, call {}", self.order, self.worker, self.id)
    }
}

/// Sets a field of an object, if there is a value.
fn put(data: &mut Value, name: &str, value: &Option<impl serde::Serialize>) {
    if let Some(value) = value {
        data[name] = json!(value);
    }
}

#[cfg(test)]
mod tests {
    use laneway_core::{EventKind, Name, Wall};
    use laneway_runtime::feedback::{Body, Piece, changes_of};
    use serde_json::json;

    use super::{CommandLine, change, package, piece, rebound, worker};

    /// T17: a chunk is sent as an append to its channel.
    #[test]
    fn t17_a_chunk_has_the_path_of_its_channel() {
        let chunk = Piece {
            channel: "stdout",
            body: Body::Text("hello\n".into()),
            mime_type: Some("text/plain".into()),
            metadata: Some(json!({"terminal": true})),
            is_cut: false,
        };
        assert_eq!(
            piece(&chunk),
            json!({"operation": "append", "path": "/channels/stdout", "terminal": true,
                "payload": {"text": "hello\n", "mimeType": "text/plain"},
                "chunkMeta": {"channel": "stdout", "metadata": {"terminal": true}}})
        );
        let bytes = Piece { channel: "llm", body: Body::Base64("AAE=".into()), ..Piece::default() };
        assert_eq!(
            piece(&bytes),
            json!({"operation": "append", "path": "/channels/llm", "terminal": false, "payload": {"data": "AAE="},
                "chunkMeta": {"channel": "llm"}})
        );
    }

    /// T18: changes in a result are sent one JSON pointer at a time.
    #[test]
    fn t18_a_change_replaces_or_removes() {
        let emitted: Vec<_> = changes_of(&json!({"a/b": {"c": 1}, "d": null})).iter().map(change).collect();
        assert_eq!(
            emitted,
            [
                json!({"operation": "replace", "path": "/a~1b/c", "payload": {"value": 1}, "terminal": false}),
                json!({"operation": "remove", "path": "/d", "terminal": false}),
            ]
        );
    }

    #[test]
    fn details_of_worker_events_are_parsed() {
        let at = Wall(0);
        let emitted = worker(EventKind::WorkerLost, "w: 1: three heartbeats are missing", at).unwrap();
        assert_eq!(emitted.worker.as_deref(), Some("w: 1"));
        assert_eq!(
            emitted.data["capacity"],
            json!({"status": "lost", "message": "three heartbeats are missing"})
        );
        let emitted = rebound("w: 1: serves gpu, main from now on", at).unwrap();
        assert_eq!(
            (emitted.worker.as_deref(), &emitted.data["queues"]),
            (Some("w: 1"), &json!(["gpu", "main"]))
        );
        assert_eq!(emitted.data["capacity"]["message"], "serves gpu, main from now on");
        let emitted = rebound("w1: serves every lane from now on", at).unwrap();
        assert_eq!(emitted.data["queues"], json!([]));
        let emitted = package("pkg.install img 1.0 on worker w 1: done").unwrap();
        assert_eq!(
            emitted.data,
            json!({"kind": "worker.package", "workerId": "w 1", "package": "img", "version": "1.0", "status": "installed"})
        );
        let emitted = package("pkg.uninstall img * on worker w: E.PKG.INVALID").unwrap();
        assert_eq!(
            (&emitted.data["status"], &emitted.data["message"]),
            (&json!("failed"), &json!("E.PKG.INVALID"))
        );
        assert_eq!(
            package("pkg.install img 1.0 sent to worker w").unwrap().data["status"],
            json!("installing")
        );
        assert!(package("submit_job: 400").is_none());
        let line = CommandLine {
            id: Name::fixed("abc"),
            order: "pkg.install".into(),
            worker: Name::fixed("a, call b for worker c"),
        };
        assert_eq!(CommandLine::parse(&line.to_string()), Some(line));
    }
}
