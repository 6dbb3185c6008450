//! Replies, effects and views to text.

use super::names::Names;
use super::store::Store;
use super::{START, Scenario};
use crate::effect::{Notice, Offer};
use crate::engine::{Counts, Hold, SessionView};
use crate::run::RunLine;
use crate::schedule::ScheduleLine;
use crate::worker::WorkerView;
use crate::{
    Effects, Event, EventKind, FiringStatus, Grant, JobId, KeptKeys, Key, Name, NextAnswer, Record, Reply,
    SessionStopped, Wall,
};

/// Renders with the names of a scenario.
pub(super) struct Render<'a> {
    pub(super) names: &'a Names,
    pub(super) store: &'a Store,
}

impl Render<'_> {
    /// `names` are those that the command gave to what it created.
    pub(super) fn reply(&self, reply: &Reply, names: &[String]) -> Vec<String> {
        let line = match reply {
            Reply::Submitted(submitted) if submitted.existing => format!("{} exists already", names[0]),
            Reply::Batch(verdicts) => {
                let verdicts = names.iter().zip(verdicts);
                let rejected = verdicts.filter_map(|(name, verdict)| {
                    let rejection = verdict.as_ref().err()?;
                    Some(format!("{name} rejected: {}", rejection.code.as_str()))
                });
                return rejected.collect();
            }
            Reply::Rejected(rejection) => format!("rejected: {rejection}"),
            Reply::NotFound => "not found".into(),
            Reply::Stale => "stale".into(),
            Reply::Alive { stop: true, .. } => "alive, but must stop".into(),
            Reply::Canceled { was, .. } => format!("was {was}"),
            Reply::Updated { state, .. } => format!("is {state}"),
            Reply::RunSubmitted(submitted) if submitted.existing => {
                format!("{} exists already, {}", names[0], submitted.state)
            }
            Reply::NextAnswered(answer) => next_answer(answer),
            Reply::RunCanceled { canceled, state } => format!("canceled {canceled} jobs, {state}"),
            Reply::SessionStopped(stopped) => self.session_stopped(stopped),
            Reply::ScheduleFiredByHand { reason: Some(reason), .. } => {
                format!("did not fire: {}", reason.as_str())
            }
            Reply::Granted(grant) => self.grant(grant),
            Reply::Denied(denial) => {
                format!("denied: {:?}, retry in {} ms", denial.reason, denial.retry_after.0)
            }
            Reply::NotYours => "not yours".into(),
            Reply::Duplicate => "duplicate".into(),
            Reply::Gap => "gap".into(),
            Reply::Registered(registered) => format!("lease {} s", registered.lease.0 / 1_000),
            Reply::KeysReleased(keys) if keys.is_empty() => "keeps no keys".into(),
            Reply::Conflict { version } => format!("conflict: version {version}"),
            Reply::Submitted(_)
            | Reply::Deleted { .. }
            | Reply::KeysReleased(_)
            | Reply::Record(_)
            | Reply::RunSubmitted(_)
            | Reply::NextCalled
            | Reply::Schedule(_)
            | Reply::ScheduleFiredByHand { .. }
            | Reply::Done
            | Reply::Alive { .. } => return Vec::new(),
        };
        vec![line]
    }

    fn grant(&self, grant: &Grant) -> String {
        let whole = self.store.live_job(grant.seq.0).and_then(|row| row.spec.timeout);
        let again = match grant.again {
            true if whole.is_some_and(|whole| grant.timeout < whole) => {
                format!(", again, {} ms left", grant.timeout.0)
            }
            true => ", again".to_owned(),
            false => String::new(),
        };
        let (name, state, lease) = (self.names.of_job(grant.fence.job), grant.state, grant.lease.0 / 1_000);
        format!("granted {name}: {state}, {} units, lease {lease} s{again}", grant.cost)
    }

    fn session_stopped(&self, stopped: &SessionStopped) -> String {
        let names =
            |jobs: &[JobId]| jobs.iter().map(|job| self.names.of_job(*job)).collect::<Vec<_>>().join(",");
        let SessionStopped { running, waiting, running_count, waiting_count, generation } = stopped;
        assert_eq!((running.len(), waiting.len()), (*running_count as usize, *waiting_count as usize));
        format!("ran [{}], waited [{}], generation {generation}", names(running), names(waiting))
    }

    /// Events, then notices. A submit is not shown: the scenario has it.
    pub(super) fn effects(&self, effects: &Effects) -> Vec<String> {
        let events = effects.events.iter().filter(|event| event.kind != EventKind::JobSubmitted);
        let notices = effects.notices.iter().filter_map(|notice| self.notice(notice));
        events.map(|event| self.event(event)).chain(notices).collect()
    }

    fn event(&self, event: &Event) -> String {
        let detail = event.detail.as_deref().unwrap_or_default();
        let action = event.kind.as_str().split_once('.').map_or("", |(_, action)| action);
        if let Some(job) = &event.job {
            let reason = job.reason.map_or(String::new(), |reason| format!(" ({reason})"));
            return format!("{} {action} #{}{reason}", self.names.of_job(job.id), job.attempt);
        }
        if matches!(event.kind, EventKind::KeysKept | EventKind::KeysReleased) {
            let (job, rest) = detail.strip_prefix("job ").and_then(|rest| rest.split_once(' ')).unwrap();
            return format!("{} {} {rest}", event.kind, self.names.of_job_text(job));
        }
        if event.kind >= EventKind::WorkerConnected {
            return format!("{} {detail}", event.kind);
        }
        if let Some(line) = ScheduleLine::parse(detail) {
            return format!("schedule {} {}", line.name, line.action);
        }
        match RunLine::parse(detail) {
            Some(line) => format!("{} {action}", self.names.of_run(line.id)),
            None => event.kind.as_str().to_owned(),
        }
    }

    fn notice(&self, notice: &Notice) -> Option<String> {
        Some(match notice {
            Notice::Offer(offer) => return self.offer(offer),
            Notice::Waited { .. } => return None,
            Notice::Stop { fence, connection, .. } => {
                let at = connection.map_or(String::new(), |connection| format!(" at {connection}"));
                format!("stop {}{at}", self.names.of_job(fence.job))
            }
            Notice::Superseded(connection) => format!("{connection} is superseded"),
            Notice::DrainConnection(connection) => format!("drain {connection}"),
            Notice::ProbeConnection(connection) => format!("probe {connection}"),
            Notice::Unserved { schedule, kind, .. } => {
                format!("warn: schedule {schedule}: no executor offers the kind {kind}")
            }
            Notice::Next { fence, request, answer, .. } => {
                format!("answer {} {request}: {}", self.names.of_job(fence.job), next_answer(answer))
            }
            Notice::Deliver { job, number, .. } => {
                format!("deliver {} try {number}", self.names.of_job(*job))
            }
        })
    }

    /// Offers to executors follow from the events; only those to workers are shown.
    fn offer(&self, offer: &Offer) -> Option<String> {
        let to = offer.to.as_ref()?;
        let whole = self.store.live_job(offer.seq.0).and_then(|row| row.spec.timeout);
        let again = match offer.timeout {
            Some(left) if to.again && whole.is_some_and(|whole| left < whole) => {
                format!(" again, {} ms left", left.0)
            }
            _ if to.again => " again".to_owned(),
            _ => String::new(),
        };
        let name = self.names.of_job(offer.fence.job);
        Some(format!("offer {name}#{} to {}{again}", offer.dispatch_seq, to.connection))
    }
}

/// The views that a scenario can ask for.
impl Scenario {
    pub(super) fn show_kept(&self) -> Vec<String> {
        let line = |row: KeptKeys| {
            let keys: Vec<String> =
                row.keys.iter().map(|key| format!("{}:{}", key.name, key.value)).collect();
            let since = row.since.since(START.wall).0 / 1_000;
            let (job, tenant) = (self.names.of_job(row.job), row.tenant);
            format!("{job} of {tenant} keeps {} since {since} s", keys.join(","))
        };
        self.engine.kept_keys(None).into_iter().map(line).collect()
    }

    pub(super) fn show_key_use(&self, key: &Key) -> String {
        let used = self.engine.key_use(&Name::fixed("default"), key);
        let full = if used.is_full() { ", full" } else { "" };
        format!("{} open, {} kept, limit {}{full}", used.open, used.kept, used.limit)
    }

    pub(super) fn show_records(
        &self,
        tenant: &Name,
        collection: &Name,
        after: Option<&Name>,
        limit: usize,
    ) -> Vec<String> {
        let line = |record: &Record| {
            let body = String::from_utf8_lossy(&record.body);
            let since = |at: Wall| at.since(START.wall).0 / 1_000;
            let (created, updated) = (since(record.created_at), since(record.updated_at));
            let (id, version) = (&record.name.id, record.version);
            format!("{id} version {version}: {body:?}, created at {created} s, updated at {updated} s")
        };
        self.engine.records_in(tenant, collection, after, limit).iter().map(line).collect()
    }

    pub(super) fn show_capacity(&self) -> String {
        let view = self.engine.capacity(self.now);
        format!(
            "busy {} ({}), {} usable, {} used, {} reserved, {} free, {} leases",
            view.busy,
            view.quiet.as_str(),
            view.usable,
            view.used,
            view.reserved,
            view.free,
            view.leases
        )
    }

    /// The lane's counts, then those of its agents.
    pub(super) fn show_counts(&self, lane: &Name) -> Vec<String> {
        let stats = self.engine.stats(None);
        let line = |name: &Name, counts: &Counts, waiting: u64, open: u64| {
            format!(
                "{name}: {waiting} wait, {open} open; submitted {} rejected {} succeeded {} failed {} canceled {} \
                 expired {}; dispatched {} after {} ms, {} attempts of {} ms",
                counts.submitted,
                counts.rejected,
                counts.succeeded,
                counts.failed,
                counts.canceled,
                counts.expired,
                counts.dispatched,
                counts.queue_wait.0,
                counts.runs,
                counts.run_time.0
            )
        };
        let lanes = stats.lanes.iter().filter(|of| of.lane == *lane);
        let agents = stats.agents.iter().filter(|of| of.lane == *lane);
        let lanes = lanes.map(|of| line(&of.lane, &of.counts, of.waiting, of.open));
        lanes.chain(agents.map(|of| line(&of.agent, &of.counts, of.waiting, of.open))).collect()
    }

    pub(super) fn show_decisions(&self) -> Vec<String> {
        let decisions = self.engine.decisions(None).map(|decision| {
            let job = decision.job.map_or("-".to_owned(), |job| self.names.of_job(job));
            let worker = decision.worker.as_ref().map_or("-", |worker| worker.as_str());
            let verdict = decision.denied.as_ref().map_or("admitted", |reason| reason.as_str());
            format!("{job} {worker} {verdict}")
        });
        decisions.collect()
    }

    pub(super) fn show_explanation(&self, name: &str) -> String {
        let Some(explanation) = self.engine.explain(self.now, None, self.names.job(name)) else {
            return format!("{name} is not live");
        };
        let holds: Vec<String> = explanation.holds.iter().map(hold).collect();
        let holds = if holds.is_empty() { String::new() } else { format!(": {}", holds.join(", ")) };
        format!("{name} is {}, {} ahead{holds}", explanation.state, explanation.ahead)
    }

    /// The firing log, oldest first: `nightly +10s ok`.
    pub(super) fn show_firings(&self, schedule: Option<&Name>) -> Vec<String> {
        let shown = self.store.firings().iter();
        let shown = shown.filter(|entry| schedule.is_none_or(|schedule| entry.name == *schedule));
        let line = |entry: &crate::FiringLogEntry| {
            let text = entry.error.as_deref().or(entry.summary.as_deref()).unwrap_or("");
            let text = text.split_once(" from ").map_or(text, |(before, _)| before);
            let attempts = match entry.attempts {
                0 | 1 => String::new(),
                attempts => format!(" after {attempts} attempts"),
            };
            let line = format!("{} {} {}{attempts} {text}", entry.name, since(entry.slot), entry.status);
            line.trim_end().to_owned()
        };
        shown.map(line).collect()
    }

    pub(super) fn show_run(&self, name: &str) -> String {
        let row = self.store.run(self.names.run(name)).expect("the run is stored");
        let results = self.store.results(row);
        let results: String =
            results.map(|(node, result)| format!(", {node}={}", String::from_utf8_lossy(result))).collect();
        format!("{name} is {}, {} attempts{results}", row.state, self.names.attempts_of_run(name))
    }

    /// The engine's view, which must be the stored one.
    pub(super) fn show_schedule(&self, name: &str) -> String {
        let Some(schedule) = self.engine.schedule(None, self.names.schedule(name)) else {
            return format!("{name} is not there");
        };
        assert_eq!(Some(schedule), self.store.schedule(schedule.id), "memory and store agree");
        let state = &schedule.state;
        let next = state.next_at.map_or("never".to_owned(), since);
        let last = state.last_status.map_or("none", FiringStatus::as_str);
        let switch = if schedule.spec.enabled { "on" } else { "off" };
        format!("{name} is {switch}, next {next}, last {last}, {} firings", state.firings)
    }

    pub(super) fn show_session(&self, key: &Name) -> String {
        let Some(view) = self.engine.session(&Name::fixed("default"), key) else {
            return format!("session {key} is not known");
        };
        let SessionView { running, stopping, waiting, buffered, generation, .. } = view;
        let max = view.max_concurrent.map_or("-".into(), |max| max.to_string());
        let throttled = if view.throttled { ", throttled" } else { "" };
        let cutoff = if view.cutoff.is_some() { ", cutoff" } else { "" };
        format!(
            "{key}: {running} running, {stopping} stopping, {waiting} waiting, {buffered} buffered, max {max}, \
             generation {generation}{throttled}{cutoff}"
        )
    }

    /// Every registered worker in a line.
    pub(super) fn show_workers(&self) -> Vec<String> {
        let line = |view: &WorkerView| {
            let connection = view.connection.map_or("-".into(), |connection| connection.to_string());
            let (worker, max, standing) =
                (&view.offer.worker, view.offer.max_parallel, view.standing.as_str());
            let lanes: Vec<&str> = view.lanes.iter().map(Name::as_str).collect();
            let lanes = if lanes.is_empty() { String::new() } else { format!(" of {}", lanes.join(",")) };
            format!("{worker} {connection} {standing} {}/{max}{lanes}", view.open)
        };
        self.engine.workers(self.now, None).iter().map(line).collect()
    }
}

fn next_answer(answer: &NextAnswer) -> String {
    match answer {
        NextAnswer::Done(result) => {
            let result = result.as_deref().map_or("nothing".into(), String::from_utf8_lossy);
            format!("done with {result}")
        }
        NextAnswer::Failed(code, message) => format!("{} ({message})", code.as_str()),
    }
}

/// A time as its distance from the start: `+10s`.
fn since(at: Wall) -> String {
    let ms = at.0 - START.wall.0;
    if ms % 1_000 == 0 { format!("{:+}s", ms / 1_000) } else { format!("{ms:+}ms") }
}

fn hold(hold: &Hold) -> String {
    match hold {
        Hold::Draining => "draining".into(),
        Hold::StorageLow => "storage low".into(),
        Hold::NotBefore { at } => format!("not before {} s from the start", at.since(START.wall).0 / 1_000),
        Hold::Backoff { remaining } => format!("backoff {} ms", remaining.0),
        Hold::Debounce { remaining } => format!("debounce {} ms", remaining.0),
        Hold::Uncalled { by } => format!("waits for a call of {by}"),
        Hold::Upstream { nodes, count } => {
            let nodes: Vec<&str> = nodes.iter().map(Name::as_str).collect();
            format!("waits for {count}: {}", nodes.join(" "))
        }
        Hold::SessionOrder { session, ahead, .. } => format!("session {session} {ahead} ahead"),
        Hold::SessionThrottled { session, tokens, window } => {
            format!("session {session} throttled {tokens}/{window}")
        }
        Hold::SessionStopping { session, runs } => format!("session {session} {runs} stopping"),
        Hold::SessionFull { session, used, limit } => format!("session {session} {used}/{limit}"),
        Hold::LanePaused { lane } => format!("lane {lane} paused"),
        Hold::LaneFull { lane, used, limit } => format!("lane {lane} {used}/{limit}"),
        Hold::AgentFull { agent, used, limit } => format!("agent {agent} {used}/{limit}"),
        Hold::ServerFull { used, limit } => format!("server {used}/{limit}"),
        Hold::TenantFull { used, limit } => format!("tenant {used}/{limit}"),
        Hold::KindFull { kind, used, limit } => format!("kind {kind} {used}/{limit}"),
        Hold::NoWorker { lacks: Some(lacks), .. } => format!("workers lack {lacks:?}"),
        Hold::NoWorker { fit, full, draining, unwell, .. } => {
            format!("{fit} workers: {full} full, {draining} draining, {unwell} unwell")
        }
        Hold::WorkerBusy { worker, standing } => {
            format!("worker {worker} is {}", standing.map_or("awaited", |standing| standing.as_str()))
        }
        Hold::NoExecutor { kind } => format!("no executor for {kind}"),
        Hold::ExecutorFull { executor, used, limit } => format!("executor {executor} {used}/{limit}"),
        Hold::KeyFull { name, value, used, limit, kept: 0 } => format!("key {name}:{value} {used}/{limit}"),
        Hold::KeyFull { name, value, used, limit, kept } => {
            format!("key {name}:{value} {used}/{limit}, {kept} kept")
        }
        Hold::NotQuiet { state, rule } => format!("{} and not {}", state.as_str(), rule.as_str()),
        Hold::NoUnits { cost, free, usable } => format!("cost {cost} of {free} free units, {usable} usable"),
        Hold::Reserved { .. } => "units are reserved for another job".into(),
        Hold::Unclaimed { lane } => format!("no worker of lane {lane} claims"),
        Hold::Turn => "next in fair order".into(),
    }
}
