//! What happens, in their words, for one session: which of the house's events mean something to a page, and what.
//!
//! A session hears of its own runs and of no others, and of its tenant's workers. What is told of an event follows from
//! its kind, so that a stream that was cut off can go on in the middle of it.

use std::collections::BTreeMap;
use std::fmt;

use laneway_core::event::JobLine;
use laneway_core::run::RunLine;
use laneway_core::{Event, EventKind, JobId, Name, RunId, Wall};
use laneway_runtime::feedback::{Body, Change, Feedback, Piece};
use laneway_runtime::store::JobView;
use laneway_runtime::{ArtifactId, Progress, QueryError, Scheduler};
use serde_json::{Value, json};

use super::show::{self, error_of, made_by, message_of, time};
use super::wire::{Artifact, NodeState};
use super::{LANE, show::node_status};

/// Most jobs and most runs that a stream remembers the owners of; then it looks them up again.
const KNOWN_MAX: usize = 10_000;
/// Most lines of a node's log that are looked at for what it made.
const LINES_MAX: usize = 20_000;

/// Something to tell.
#[derive(Debug)]
pub struct Told {
    /// Their word for it.
    pub kind: &'static str,
    /// The run that it is about.
    pub run: Option<RunId>,
    /// The worker that it is about.
    pub worker: Option<String>,
    /// What is told.
    pub data: Value,
}

/// Where a job belongs: its run, and which node of it.
type Place = (RunId, Name);

/// Decides what a session hears. It remembers whose things are only to ask less often.
pub struct Listener {
    scheduler: Scheduler,
    tenant: Name,
    session: Name,
    jobs: BTreeMap<JobId, Option<Place>>,
    runs: BTreeMap<RunId, bool>,
}

impl Listener {
    /// For the session of a tenant.
    pub fn new(scheduler: Scheduler, tenant: Name, session: Name) -> Listener {
        Listener { scheduler, tenant, session, jobs: BTreeMap::new(), runs: BTreeMap::new() }
    }

    /// What the session hears of an event.
    pub async fn event(&mut self, event: &Event) -> Result<Vec<Told>, QueryError> {
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
            EventKind::CallDone | EventKind::CallRefused => {
                Ok(package(detail).or_else(|| command(detail, event.at)).into_iter().collect())
            }
            kind => match &event.job {
                // Nodes of this session say so themselves, so that others cost nothing.
                Some(line) if line.lane.as_str() == LANE && line.agent == self.session => {
                    self.node(kind, line, event.at).await
                }
                _ => Ok(Vec::new()),
            },
        }
    }

    /// What the session hears of how far a job is.
    pub async fn progress(&mut self, progress: &Progress) -> Result<Vec<Told>, QueryError> {
        if progress.tenant != self.tenant {
            return Ok(Vec::new());
        }
        let place = self.place_of(progress.job).await?;
        Ok(place.map(|place| state(&place, &show::state_of_progress(progress))).into_iter().collect())
    }

    /// What the session hears of what a job writes and has so far.
    pub async fn feedback(&mut self, feedback: &Feedback) -> Result<Vec<Told>, QueryError> {
        if feedback.tenant != self.tenant {
            return Ok(Vec::new());
        }
        let Some(place) = self.place_of(feedback.job).await? else { return Ok(Vec::new()) };
        let pieces = feedback.pieces.iter().map(piece);
        let parts = pieces.chain(feedback.changes.iter().map(change));
        let numbered = (feedback.first..).zip(parts);
        Ok(numbered.map(|(sequence, part)| delta(&place, feedback.attempt, sequence, part)).collect())
    }

    async fn run(&mut self, kind: EventKind, id: RunId) -> Result<Vec<Told>, QueryError> {
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
        // A replayed beginning does not tell of the end.
        if kind != EventKind::RunSubmitted {
            put(&mut data, "startedAt", &run.started_at);
        }
        if !matches!(kind, EventKind::RunSubmitted | EventKind::RunStarted) {
            put(&mut data, "finishedAt", &run.finished_at);
            put(&mut data, "reason", &run.error.as_ref().map(|error| &error.message));
        }
        let about = |kind, data| Told { kind, run: Some(id), worker: None, data };
        let snapshot = json!({"kind": "run.snapshot", "run": run});
        Ok(vec![about("run.status", data), about("run.snapshot", snapshot)])
    }

    async fn node(&mut self, kind: EventKind, line: &JobLine, at: Wall) -> Result<Vec<Told>, QueryError> {
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
        let Some(place) = self.place_of(line.id).await? else { return Ok(Vec::new()) };
        if !stage.is_empty() {
            let going =
                NodeState { stage: stage.to_owned(), last_updated_at: time(at), ..NodeState::default() };
            return Ok(vec![state(&place, &going)]);
        }
        let (id, seq) = (line.id, line.seq);
        let found = self.scheduler.query(move |reader| {
            let Some(view) = reader.job(id)? else { return Ok(None) };
            let made = made_by(reader, seq, &mut { LINES_MAX })?;
            Ok(Some((view, made)))
        });
        let ended = found.await?.map(|(view, made)| ended(&place, &view, &made, at));
        Ok(ended.unwrap_or_default())
    }

    /// Where a job belongs, if it is a node of a run of this session.
    async fn place_of(&mut self, job: JobId) -> Result<Option<Place>, QueryError> {
        if let Some(known) = self.jobs.get(&job) {
            return Ok(known.clone());
        }
        let view = self.scheduler.query(move |reader| reader.job(job)).await?;
        let member =
            view.filter(|view| view.row.spec.tenant == self.tenant).and_then(|view| view.row.spec.member);
        let place = match member {
            Some(member) if self.owns(member.run).await? => Some((member.run, member.node)),
            _ => None,
        };
        remember(&mut self.jobs, job, place.clone());
        Ok(place)
    }

    /// True for a run of this dialect that this session started.
    async fn owns(&mut self, id: RunId) -> Result<bool, QueryError> {
        if let Some(known) = self.runs.get(&id) {
            return Ok(*known);
        }
        let row = self.scheduler.query(move |reader| reader.run(id)).await?;
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

/// What is told of a node that has ended.
fn ended(place: &Place, view: &JobView, made: &[Artifact], at: Wall) -> Vec<Told> {
    let Some(end) = &view.end else { return Vec::new() };
    let error = error_of(end);
    let last = NodeState {
        stage: node_status(view).to_owned(),
        progress: None,
        last_updated_at: time(at),
        message: message_of(end),
        error: error.clone(),
    };
    let mut told = vec![state(place, &last)];
    let (run, node) = (place.0.to_string(), place.1.as_str());
    let about = |kind, data| Told { kind, run: Some(place.0), worker: None, data };
    if let Some(error) = error {
        let data = json!({"kind": "node.error", "runId": run, "nodeId": node, "error": error});
        told.push(about("node.error", data));
    } else if end.state == laneway_core::JobState::Succeeded {
        let content = show::object(end.result.as_deref().unwrap_or(b"{}"));
        let mut data = json!({"kind": "node.result.snapshot", "runId": run, "nodeId": node, "revision": end.attempts,
            "format": "json", "content": content, "complete": true});
        if !made.is_empty() {
            data["artifacts"] = json!(made);
        }
        told.push(about("node.result.snapshot", data));
    }
    for artifact in made {
        let mut data = json!({"kind": "artifact.ready", "runId": run, "nodeId": node,
            "artifactId": artifact.resource_id});
        put(&mut data, "expiresAt", &artifact.expires_at);
        put(&mut data, "sizeBytes", &artifact.size_bytes);
        if artifact.inline != Some(true) {
            data["href"] = json!(ArtifactId { job: view.row.id, line: artifact.line }.href());
        }
        told.push(about("artifact.ready", data));
    }
    told
}

fn state(place: &Place, state: &NodeState) -> Told {
    let (run, node) = place;
    let data =
        json!({"kind": "node.state", "runId": run.to_string(), "nodeId": node.as_str(), "state": state});
    Told { kind: "node.state", run: Some(*run), worker: None, data }
}

/// One of a node's numbered changes. Pieces and changes share the numbers of their attempt.
fn delta(place: &Place, attempt: u32, sequence: u64, part: Value) -> Told {
    let (run, node) = place;
    let mut data = json!({"kind": "node.result.delta", "runId": run.to_string(), "nodeId": node.as_str(),
        "revision": attempt, "sequence": sequence});
    if let (Value::Object(data), Value::Object(part)) = (&mut data, part) {
        data.extend(part);
    }
    Told { kind: "node.result.delta", run: Some(*run), worker: None, data }
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

/// A worker's standing has changed.
fn worker(kind: EventKind, detail: &str, at: Wall) -> Option<Told> {
    let (worker, why) = detail.rsplit_once(": ")?;
    let status = kind.word().split_once('.').map_or("", |(_, word)| word);
    let data = json!({"kind": "worker.heartbeat", "workerId": worker, "at": time(at), "queues": [],
        "capacity": {"status": status, "message": why}});
    Some(Told { kind: "worker.heartbeat", run: None, worker: Some(worker.to_owned()), data })
}

/// A worker serves other lanes than before.
fn rebound(detail: &str, at: Wall) -> Option<Told> {
    let (worker, lanes) = detail.split_once(": serves ")?;
    // A long list is cut, and then says nothing for programs.
    let lanes = lanes.strip_suffix(" from now on").filter(|lanes| *lanes != "every lane");
    let queues: Vec<&str> = lanes.map_or(Vec::new(), |lanes| lanes.split(", ").collect());
    let data = json!({"kind": "worker.heartbeat", "workerId": worker, "at": time(at), "queues": queues,
        "capacity": {"status": "rebound", "message": &detail[worker.len() + 2..]}});
    Some(Told { kind: "worker.heartbeat", run: None, worker: Some(worker.to_owned()), data })
}

/// A line of the audit list about a package, as calls and workers leave it.
fn package(detail: &str) -> Option<Told> {
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
            let worker = rest.strip_prefix("asked of worker ")?;
            (worker, if installs { "installing" } else { "removing" }, None)
        }
    };
    let mut data = json!({"kind": "worker.package", "workerId": worker, "package": name, "status": status});
    put(&mut data, "version", &(version != "*").then_some(version));
    put(&mut data, "message", &message);
    Some(Told { kind: "worker.package", run: None, worker: Some(worker.to_owned()), data })
}

fn command(detail: &str, at: Wall) -> Option<Told> {
    let CommandLine { id, order: _, worker } = CommandLine::parse(detail)?;
    let worker = worker.to_string();
    let data =
        json!({"kind": "command.ack", "commandId": id.as_str(), "workerId": worker, "receivedAt": time(at)});
    Some(Told { kind: "command.ack", run: None, worker: Some(worker), data })
}

/// The line of the audit list about a command that was passed on to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The command: the id of the call that brought it.
    pub id: Name,
    /// What was asked for.
    pub order: Box<str>,
    /// The worker.
    pub worker: Name,
}

impl CommandLine {
    /// Reads the detail of an event back.
    pub fn parse(detail: &str) -> Option<CommandLine> {
        let (order, rest) = detail.strip_prefix("command ")?.split_once(" for worker ")?;
        // Ids of calls hold no colon that is followed by a space; names may hold anything.
        let (worker, id) = rest.rsplit_once(", call ")?;
        Some(CommandLine { id: Name::new(id).ok()?, order: order.into(), worker: Name::new(worker).ok()? })
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {} for worker {}, call {}", self.order, self.worker, self.id)
    }
}

/// Puts a value into an object, if there is one.
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

    /// T17: a chunk is told as what is appended to its channel.
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

    /// T18: what changes in a result is told place by place.
    #[test]
    fn t18_a_change_replaces_or_removes() {
        let told: Vec<_> = changes_of(&json!({"a/b": {"c": 1}, "d": null})).iter().map(change).collect();
        assert_eq!(
            told,
            [
                json!({"operation": "replace", "path": "/a~1b/c", "payload": {"value": 1}, "terminal": false}),
                json!({"operation": "remove", "path": "/d", "terminal": false}),
            ]
        );
    }

    #[test]
    fn lines_about_workers_are_read_back() {
        let at = Wall(0);
        let told = worker(EventKind::WorkerLost, "w: 1: three heartbeats are missing", at).unwrap();
        assert_eq!(told.worker.as_deref(), Some("w: 1"));
        assert_eq!(
            told.data["capacity"],
            json!({"status": "lost", "message": "three heartbeats are missing"})
        );
        let told = rebound("w: 1: serves gpu, main from now on", at).unwrap();
        assert_eq!((told.worker.as_deref(), &told.data["queues"]), (Some("w: 1"), &json!(["gpu", "main"])));
        assert_eq!(told.data["capacity"]["message"], "serves gpu, main from now on");
        let told = rebound("w1: serves every lane from now on", at).unwrap();
        assert_eq!(told.data["queues"], json!([]));
        let told = package("pkg.install img 1.0 on worker w 1: done").unwrap();
        assert_eq!(
            told.data,
            json!({"kind": "worker.package", "workerId": "w 1", "package": "img", "version": "1.0", "status": "installed"})
        );
        let told = package("pkg.uninstall img * on worker w: E.PKG.INVALID").unwrap();
        assert_eq!(
            (&told.data["status"], &told.data["message"]),
            (&json!("failed"), &json!("E.PKG.INVALID"))
        );
        assert_eq!(
            package("pkg.install img 1.0 asked of worker w").unwrap().data["status"],
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
