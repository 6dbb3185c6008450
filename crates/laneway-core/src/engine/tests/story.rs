//! The one place where scenarios meet the engine: words to commands, effects to words.

use crate::command::{
    AdminCommand, DeliveryCommand, LeaseCommand, SessionCommand, WorkerCommand, WorkflowCommand,
};
use std::collections::BTreeMap;

use super::calendar::Calendar;
use super::crew;
use super::members::Members;
use crate::capacity::{Hours, HoursClock};
use crate::command::{ExecutorMode, ExecutorOffer, Submission};
use crate::effect::Notice;
use crate::engine::{Counts, Engine, Hold, Recovery, Restart, SessionView};
use crate::job::IdempotencyKey;
use crate::lease::{LeaseFor, LeaseMessage, LeaseRequest, LeaseUpdate};
use crate::settings::{AgentSettings, KindSettings, LaneOrder, LaneSettings, ShutdownPolicy, TenantSettings};
use crate::{
    Backoff, Callback, CapacityRequest, Change, Claim, Command, DeliveryRow, DeliveryState, Dispatch,
    DropPolicy, Effects, Failure, Fence, Holder, Jitter, JobId, JobRow, JobSpec, Key, LoadReading,
    LostPolicy, Mono, Name, Now, OpenAttempt, Origin, Outcome, Prior, QuietRule, QuietState, Rejection,
    Reply, RetryPolicy, Session, SessionMode, SessionRow, SessionStopped, Settings, Span, StopWhat,
    TryOutcome, Wall,
};

/// An engine, its stored rows, and the names that the scenario gave to its jobs.
pub(super) struct Story {
    pub(super) engine: Engine,
    pub(super) now: Now,
    pub(super) settings: Settings,
    pub(super) jobs: BTreeMap<String, JobId>,
    fences: BTreeMap<(String, u32), Fence>,
    rows: BTreeMap<u64, JobRow>,
    open: BTreeMap<u64, OpenAttempt>,
    ended: BTreeMap<u64, JobRow>,
    keys: BTreeMap<Name, Prior>,
    /// Which job runs for which: (the one that runs, the one merged into it).
    merged: Vec<(u64, u64)>,
    sessions: BTreeMap<(Name, Name), SessionRow>,
    deliveries: BTreeMap<u64, DeliveryRow>,
    /// The latest notice about each.
    told: BTreeMap<u64, u32>,
    last_event: u64,
    /// What was said of dispatches and not shown yet.
    dispatches: Vec<String>,
    pub(super) calendar: Calendar,
    pub(super) members: Members,
}

pub(super) const START: Now = Now { mono: Mono(1_000_000), wall: Wall(1_800_000_000_000) };

impl Story {
    pub(super) fn new() -> Story {
        let retry = RetryPolicy {
            retries_max: 2,
            losses_max: 1,
            backoff: Backoff { base: Span(1_000), factor: 2, max: Span(60_000), jitter: Jitter::None },
        };
        let settings = Settings { retry, ..Settings::default() };
        let mut story = Story {
            engine: Engine::new(settings.clone(), 7, START),
            now: START,
            settings,
            jobs: BTreeMap::new(),
            fences: BTreeMap::new(),
            rows: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            keys: BTreeMap::new(),
            merged: Vec::new(),
            sessions: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            told: BTreeMap::new(),
            last_event: 0,
            dispatches: Vec::new(),
            calendar: Calendar::default(),
            members: Members::default(),
        };
        story.play("executor local attached kinds=k,k2,k3 slots=100");
        story.play("tick");
        story
    }

    /// Plays one command and says what followed.
    pub(super) fn play(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, rest) = words.split_first().expect("a command has a verb");
        let options: BTreeMap<&str, &str> = rest.iter().filter_map(|word| word.split_once('=')).collect();
        let name = rest.first().copied().unwrap_or("");
        let mut before = Vec::new();
        let command = match *verb {
            "submit" => self.submission(name, &options),
            "batch" => self.batch(rest, &options),
            "start" => Command::Start(self.fence(name)),
            "beat" => Command::Heartbeat(self.fence(name)),
            "finish" => Command::Finish(self.fence(name), outcome(rest[1])),
            "cancel" => {
                let tenant = options.get("tenant").map(|tenant| text(tenant));
                Command::Cancel { tenant, job: self.jobs[name], origin: Origin::server("test") }
            }
            "executor" => Command::Admin(AdminCommand::Offer(executor(name, rest[1], &options))),
            "withdraw" => Command::Admin(AdminCommand::Withdraw(text(name))),
            "drain" => Command::Admin(AdminCommand::Drain),
            "storage" => Command::Admin(AdminCommand::StorageLow(name == "low")),
            "tick" => Command::Tick,
            "wait" => {
                self.advance(span(name));
                Command::Tick
            }
            // Time passes and nobody looks.
            "sleep" => {
                self.advance(span(name));
                return Vec::new();
            }
            "jump" => {
                let by: i64 = name.parse().expect("seconds");
                self.now.wall = Wall(self.now.wall.0 + by * 1_000);
                Command::Tick
            }
            "tried" => self.tried(name, rest[1]),
            "redeliver" => self.redeliver(name, &options),
            "counts" => return self.counts(name),
            "load" => Command::Admin(AdminCommand::Load(self.reading(&options))),
            "claim" => {
                Command::Lease(LeaseCommand::Claim(Box::new(claim(name, &options, rest.contains(&"start")))))
            }
            "ask" => {
                let what = LeaseFor::New(Box::new(self.one(name, &options)));
                Command::Lease(LeaseCommand::Request(Box::new(LeaseRequest {
                    what,
                    holder: holder(&options),
                })))
            }
            "ack" => {
                let what = LeaseFor::Job { tenant: None, job: self.jobs[name] };
                Command::Lease(LeaseCommand::Request(Box::new(LeaseRequest {
                    what,
                    holder: holder(&options),
                })))
            }
            "alive" => self.word(name, &options, LeaseUpdate::Alive),
            "ended" => self.word(name, &options, LeaseUpdate::Ended(outcome(rest[1]))),
            "revoke" => self.word(name, &options, LeaseUpdate::Revoke("enough".into())),
            "capacity" => return vec![self.capacity()],
            "decisions" => return self.decisions(),
            "explain" => return vec![self.explain(name)],
            "session" => return vec![self.show_session(name)],
            "active" => {
                let count = self.engine.active_sessions_of(&text("default"), &text(name));
                return vec![format!("{name} runs in {count} sessions")];
            }
            "stop" | "stopall" | "reset" | "usage" => self.session_command(verb, name, rest, &options),
            "submitrun" | "cancelrun" => self.run_command(verb, rest, &options),
            "next" => Command::Workflow(WorkflowCommand::CallNext(Box::new(crate::NextCall {
                fence: self.fence(name),
                request: text(rest[1]),
                index: options.get("index").map_or(0, |index| number(index)),
                timeout: options.get("timeout").map(|timeout| span(timeout)),
                payload: options.get("payload").map(|payload| payload.as_bytes().into()),
            }))),
            "showrun" => return vec![self.members.show(name)],
            "admit" => Command::Admin(AdminCommand::SetAdmission {
                open: name == "on",
                origin: Origin::server("test"),
            }),
            "resetall" => Command::Session(SessionCommand::ResetAll { origin: Origin::server("test") }),
            "show" => return vec![self.show_schedule(name)],
            "runs" => return self.calendar.runs(name),
            "schedule" | "update" | "toggle" | "delete" | "run" => {
                self.schedule_command(verb, rest, &options)
            }
            "crash" => {
                before = self.restart(Restart::Process);
                Command::Tick
            }
            "rebuild" => {
                before = self.restart(Restart::Rebuild);
                Command::Tick
            }
            "worker" | "pulse" | "accept" | "reject" | "result" | "offers" | "gone" | "drainworker"
            | "undrain" | "rebind" => crew::command(self, verb, rest, &options),
            "workers" => return crew::workers(self),
            "dispatches" => return std::mem::take(&mut self.dispatches),
            _ => self.configure(verb, name, &options),
        };
        let names = command_names(&command, rest);
        before.extend(self.apply(command, &names));
        before
    }

    fn apply(&mut self, command: Command, names: &[String]) -> Vec<String> {
        let mut effects = Effects::default();
        let reply = self.engine.apply(self.now, command, &mut effects);
        match &reply {
            Reply::Submitted(submitted) => {
                self.jobs.insert(names[0].clone(), submitted.job);
            }
            Reply::Granted(grant) if !names.is_empty() => {
                self.jobs.insert(names[0].clone(), grant.fence.job);
            }
            Reply::Batch(verdicts) => {
                for (name, verdict) in names.iter().zip(verdicts) {
                    let job = match verdict {
                        Ok(submitted) => Some(submitted.job),
                        Err(rejection) => rejection.recorded,
                    };
                    self.jobs.extend(job.map(|job| (name.clone(), job)));
                }
            }
            Reply::Schedule(schedule) => self.calendar.named(schedule),
            Reply::RunSubmitted(submitted) => self.members.named(&names[0], submitted.run),
            Reply::Rejected(Rejection { recorded: Some(job), .. }) => {
                self.jobs.insert(names[0].clone(), *job);
            }
            _ => {}
        }
        for change in &effects.changes {
            if let Change::JobCreated { row, .. } = change
                && let Some(of) = &row.spec.member
            {
                // Jobs of a run are named by it and their node: `r/a`.
                self.jobs.insert(format!("{}/{}", names[0], of.node), row.id);
            }
            if let Change::JobCreated { row, .. } = change
                && let Some(of) = &row.spec.schedule
            {
                // Jobs of a schedule are named by it: `nightly/1`, `nightly/2`, ….
                let made = self.calendar.made(of);
                self.jobs.insert(made, row.id);
            }
        }
        let mut said = self.reply_words(&reply, names);
        said.extend(self.tell(&effects));
        let batch = self.engine.end_batch();
        self.engine.committed(batch);
        self.engine.check_invariants().expect("the engine agrees with itself");
        said
    }

    /// Keeps what a store would keep, and puts the effects into words.
    fn tell(&mut self, effects: &Effects) -> Vec<String> {
        let mut said = Vec::new();
        for event in &effects.events {
            assert_eq!(event.number, self.last_event + 1, "events are numbered without gaps");
            self.last_event = event.number;
            let Some(line) = &event.job else {
                let schedule = event.detail.as_deref().and_then(crate::schedule::ScheduleLine::parse);
                let run = event.detail.as_deref().and_then(crate::run::RunLine::parse);
                said.push(match schedule {
                    _ if event.kind >= crate::EventKind::WorkerConnected => {
                        format!("{} {}", event.kind, event.detail.as_deref().unwrap_or_default())
                    }
                    None if run.is_some() => {
                        let word = event.kind.as_str().split_once('.').expect("two parts").1;
                        format!("{} {word}", self.members.name_of(run.expect("a run").id))
                    }
                    Some(line) => format!("schedule {} {}", line.name, line.action),
                    None => event.kind.as_str().to_owned(),
                });
                continue;
            };
            if event.kind == crate::EventKind::JobSubmitted {
                continue;
            }
            if let Some(line) = event.detail.as_deref().and_then(crate::worker::DispatchLine::parse) {
                self.dispatches.push(line.to_string());
            }
            let word = event.kind.as_str().split_once('.').expect("two parts").1;
            let reason = line.reason.map_or(String::new(), |reason| format!(" ({reason})"));
            said.push(format!("{} {word} #{}{reason}", self.name_of(line.id), line.attempt));
        }
        for change in &effects.changes {
            self.keep(change);
        }
        for notice in &effects.notices {
            match notice {
                Notice::Offer(offer) => {
                    let name = self.name_of(offer.fence.job);
                    self.members.offered(&name, offer);
                    if let Some(to) = &offer.to {
                        let whole = self.rows.get(&offer.seq.0).and_then(|row| row.spec.timeout);
                        let again = match offer.timeout {
                            Some(left) if to.again && whole.is_some_and(|whole| left < whole) => {
                                format!(" again, {} ms left", left.0)
                            }
                            _ if to.again => " again".to_owned(),
                            _ => String::new(),
                        };
                        said.push(format!("offer {name}#{} to {}{again}", offer.dispatch_seq, to.connection));
                    }
                    self.fences.insert((name, offer.fence.attempt), offer.fence);
                }
                Notice::Stop { fence, connection, .. } => {
                    let at = connection.map_or(String::new(), |connection| format!(" at {connection}"));
                    said.push(format!("stop {}{at}", self.name_of(fence.job)));
                }
                Notice::Superseded(connection) => said.push(format!("{connection} is superseded")),
                Notice::DrainConnection(connection) => said.push(format!("drain {connection}")),
                Notice::ProbeConnection(connection) => said.push(format!("probe {connection}")),
                Notice::Unserved { schedule, kind, .. } => {
                    said.push(format!("warn: schedule {schedule}: no executor offers the kind {kind}"));
                }
                Notice::Next { fence, request, answer, .. } => {
                    said.push(format!(
                        "{} hears {request}: {}",
                        self.name_of(fence.job),
                        answer_words(answer)
                    ));
                }
                Notice::Deliver { seq, job, number } => {
                    self.told.insert(seq.0, *number);
                    said.push(format!("tell {} try {number}", self.name_of(*job)));
                }
            }
        }
        said
    }

    fn keep(&mut self, change: &Change) {
        match change {
            Change::JobCreated { row, .. } => {
                if let Some(key) = &row.spec.idempotency {
                    self.keys.insert(key.key.clone(), Prior { job: row.id, digest: key.digest });
                }
                self.rows.insert(row.seq.0, (**row).clone());
            }
            Change::JobMoved { seq, status } => {
                self.rows.get_mut(&seq.0).expect("a live job moved").status = status.clone();
            }
            Change::AttemptOpened(open) => {
                assert!(self.open.insert(open.seq.0, open.clone()).is_none(), "one open attempt per job");
                let name = self.name_of(open.fence.job);
                self.fences.insert((name, open.fence.attempt), open.fence);
            }
            Change::AttemptStarted(open) => {
                self.open.insert(open.seq.0, open.clone());
            }
            Change::AttemptRebound(open) => {
                let before = self.open.insert(open.seq.0, open.clone()).expect("an open attempt is rebound");
                assert_eq!(before.fence.lease_epoch + 1, open.fence.lease_epoch);
                assert_eq!(before.fence.attempt_id, open.fence.attempt_id);
                let name = self.name_of(open.fence.job);
                self.fences.insert((name, open.fence.attempt), open.fence);
            }
            Change::AttemptClosed(closed) => {
                let open = self.open.remove(&closed.open.seq.0).expect("an open attempt closed");
                assert_eq!(open.fence, closed.open.fence);
            }
            Change::JobEnded(end) => {
                let row = self.rows.remove(&end.seq.0).expect("a live job ended");
                self.members.ended(row.id, end);
                self.ended.insert(end.seq.0, row);
                if let Some(into) = end.merged_into {
                    self.merged.push((into.seq.0, end.seq.0));
                }
            }
            Change::DeliveryPut(row) => {
                self.deliveries.insert(row.seq.0, (**row).clone());
            }
            Change::SessionPut(row) => {
                self.sessions.insert((row.tenant.clone(), row.key.clone()), (**row).clone());
            }
            Change::SessionForgotten { tenant, key } => {
                let was = self.sessions.remove(&(tenant.clone(), key.clone()));
                assert!(was.is_some(), "a stored session is forgotten");
            }
            Change::RunCreated(_)
            | Change::RunDefined { .. }
            | Change::RunMoved { .. }
            | Change::RunsPruned { .. }
            | Change::CallPut(_) => {
                self.members.keep(change);
            }
            other => self.calendar.keep(other),
        }
    }

    /// `200`, `down` or `forbidden`.
    fn tried(&self, name: &str, word: &str) -> Command {
        let row = self.delivery(name);
        let outcome = match word {
            "down" => TryOutcome::Unanswered("nobody answers".into()),
            "forbidden" => TryOutcome::NotAllowed("it is not allowed".into()),
            status => TryOutcome::Answered(number(status).try_into().expect("a status")),
        };
        Command::Delivery(DeliveryCommand::Tried {
            seq: row.seq,
            number: self.told[&row.seq.0],
            took: Span(3),
            outcome,
        })
    }

    fn redeliver(&self, name: &str, options: &BTreeMap<&str, &str>) -> Command {
        let job = self.jobs[name];
        Command::Delivery(DeliveryCommand::Redeliver {
            tenant: options.get("tenant").map(|tenant| text(tenant)),
            job,
            stored: self.deliveries.values().find(|row| row.job == job).cloned().map(Box::new),
            origin: Origin::server("test"),
        })
    }

    pub(super) fn delivery(&self, name: &str) -> &DeliveryRow {
        let job = self.jobs[name];
        self.deliveries.values().find(|row| row.job == job).expect("a delivery is owed")
    }

    /// The lane's counts, then those of its agents.
    fn counts(&self, lane: &str) -> Vec<String> {
        let stats = self.engine.stats(None);
        let words = |name: &Name, counts: &Counts, waiting: u64, open: u64| {
            format!(
                "{name}: {waiting} wait, {open} open; submitted {} rejected {} succeeded {} failed {} canceled {} \
                 expired {}; dispatched {} after {} ms, {} runs of {} ms",
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
        let lanes = stats.lanes.iter().filter(|figures| figures.lane.as_str() == lane);
        let agents = stats.agents.iter().filter(|figures| figures.lane.as_str() == lane);
        let lanes = lanes.map(|lane| words(&lane.lane, &lane.counts, lane.waiting, lane.open));
        lanes
            .chain(agents.map(|agent| words(&agent.agent, &agent.counts, agent.waiting, agent.open)))
            .collect()
    }

    fn restart(&mut self, restart: Restart) -> Vec<String> {
        let last_seq = self.rows.keys().chain(self.ended.keys()).copied().fold(1_000, u64::max);
        let head = crate::engine::StoreCounters {
            last_seq,
            last_event: self.last_event,
            last_rank_time: 0,
            clock_seen: None,
        };
        let mut recovery = Recovery::new(self.settings.clone(), Vec::new(), head, 8, self.now);
        for schedule in self.calendar.schedules.values() {
            recovery.schedule(schedule.clone());
        }
        self.members.restart(&mut recovery);
        for row in self.rows.values() {
            recovery.job(row.clone());
        }
        for open in self.open.values() {
            match self.ended.get(&open.seq.0) {
                Some(row) => recovery.still_running(row.clone(), open.clone()),
                None => recovery.open(open.clone()),
            }
        }
        self.members.calls.values().for_each(|row| recovery.call(row.clone()));
        for row in self.sessions.values() {
            recovery.session(row.clone());
        }
        for row in self.deliveries.values().filter(|row| row.state == DeliveryState::Waiting) {
            let under_way =
                restart == Restart::Rebuild && self.told.get(&row.seq.0) == Some(&(row.tries + 1));
            recovery.delivery(row.clone(), under_way);
        }
        let offers = self.engine.offers();
        let registrations = self.engine.registrations();
        let mut effects = Effects::default();
        self.engine = recovery.finish(self.now, restart, &mut effects);
        self.engine.check_invariants().expect("the recovered engine agrees with itself");
        let mut said = self.tell(&effects);
        for offer in offers {
            said.extend(self.apply(Command::Admin(AdminCommand::Offer(offer)), &[]));
        }
        for register in registrations.into_iter().filter(|_| restart == Restart::Rebuild) {
            said.extend(self.apply(Command::Worker(WorkerCommand::Register(Box::new(register))), &[]));
        }
        said
    }

    fn submission(&mut self, name: &str, options: &BTreeMap<&str, &str>) -> Command {
        Command::Submit(Box::new(self.one(name, options)))
    }

    fn batch(&mut self, rest: &[&str], options: &BTreeMap<&str, &str>) -> Command {
        let items = names_of(rest).iter().map(|name| self.one(name, options)).collect();
        Command::SubmitBatch { items, atomic: rest.contains(&"atomic") }
    }

    pub(super) fn one(&self, _name: &str, options: &BTreeMap<&str, &str>) -> Submission {
        let named = |key: &str, default: &str| text(options.get(key).copied().unwrap_or(default));
        let idempotency = options.get("idem").map(|key| {
            let (key, body) = key.split_once('/').unwrap_or((key, "0"));
            IdempotencyKey { key: text(key), digest: [body.as_bytes()[0]; 32] }
        });
        let limit = |key: &str, default: u32| options.get(key).map_or(default, |value| number(value));
        let retry = (options.contains_key("retries") || options.contains_key("losses")).then(|| {
            let RetryPolicy { retries_max, losses_max, backoff } = self.settings.retry.clone();
            let (retries_max, losses_max) = (limit("retries", retries_max), limit("losses", losses_max));
            RetryPolicy { retries_max, losses_max, backoff }
        });
        let keys = options.get("keys").map_or(Vec::new(), |keys| {
            keys.split(',')
                .map(|key| key.split_once(':').expect("name:value"))
                .map(|(name, value)| Key { name: text(name), value: text(value) })
                .collect()
        });
        let session = options.get("session").map(|session| {
            let (key, max) = session.split_once('/').unwrap_or((session, "1"));
            session_of(Session { max_concurrent: number(max), ..Session::new(text(key)) }, options, self.now)
        });
        let after = |key: &str| options.get(key).map(|at| self.now.wall + span(at));
        let spec = JobSpec {
            agent: named("agent", "A"),
            lane: named("lane", "main"),
            session,
            keys,
            priority: options.get("priority").map_or(0, |value| value.parse().expect("a number")),
            not_before: after("after"),
            deadline: after("deadline"),
            queue_timeout: options.get("queue").map(|value| span(value)),
            timeout: options.get("timeout").map(|value| span(value)),
            retry,
            idempotency: idempotency.clone(),
            callback: options
                .get("callback")
                .map(|host| Callback { url: format!("https://{host}/done").into(), format: text("laneway") }),
            capacity: needs(options),
            placement: crew::wants(options, self.now),
            ..JobSpec::new(named("tenant", "default"), named("kind", "k"))
        };
        let prior = idempotency.and_then(|key| self.keys.get(&key.key).copied());
        let record_rejection = options.contains_key("record");
        let strict_lane = options.contains_key("strict");
        let origin = Origin::server("test");
        Submission {
            prior,
            record_rejection,
            strict_lane,
            ..Submission::new(spec, Vec::new().into(), origin)
        }
    }

    /// `lane NAME …`, `kind NAME …`, `tenant NAME …`, `agent NAME weight=2`, `key NAME limit=2`, `server …`.
    fn configure(&mut self, verb: &str, name: &str, options: &BTreeMap<&str, &str>) -> Command {
        let get = |key: &str| options.get(key).map(|value| number(value));
        match verb {
            "nolane" => {
                self.settings.lanes.remove(&text(name));
            }
            "lane" => set_lane(self.settings.lanes.entry(text(name)).or_default(), options),
            "kind" => {
                let kind = KindSettings { running_max: get("running"), ..KindSettings::default() };
                self.settings.kinds.insert(text(name), kind);
            }
            "tenant" => {
                let defaults = self.settings.tenant_default;
                let tenant = TenantSettings {
                    running_max: get("running").unwrap_or(defaults.running_max),
                    queued_max: get("queued").unwrap_or(defaults.queued_max),
                };
                self.settings.tenants.insert(text(name), tenant);
            }
            "agent" => {
                self.settings.agents.insert(
                    text(name),
                    AgentSettings {
                        weight: get("weight").unwrap_or(1),
                        hours: options.get("hours").map(|text| hours(text)),
                    },
                );
            }
            "key" => {
                self.settings.keys.insert(text(name), get("limit").expect("a limit"));
            }
            "machine" => {
                let capacity = &mut self.settings.capacity;
                capacity.total = get("total").unwrap_or(capacity.total);
                capacity.reserve = get("reserve").unwrap_or(capacity.reserve);
                capacity.bypasses_max = get("overtakes").map_or(capacity.bypasses_max, |max| max as u8);
                capacity.measured &= options.get("measured") != Some(&"no");
            }
            "server" => {
                self.settings.running_max = get("running").unwrap_or(self.settings.running_max);
                self.settings.queued_max = get("queued").unwrap_or(self.settings.queued_max);
                self.settings.strict_kinds |= options.contains_key("strict");
                let webhooks = &mut self.settings.webhooks;
                let runs = &mut self.settings.runs;
                runs.nodes_max = get("nodes").unwrap_or(runs.nodes_max);
                runs.depth_max = get("depth").unwrap_or(runs.depth_max);
                runs.dependencies_max = get("dependencies").unwrap_or(runs.dependencies_max);
                runs.open_nodes_max = get("open_nodes").unwrap_or(runs.open_nodes_max);
                webhooks.open_max = get("news_open").unwrap_or(webhooks.open_max);
                webhooks.open_per_host_max = get("news_host").unwrap_or(webhooks.open_per_host_max);
                webhooks.pending_max = get("news_pending").unwrap_or(webhooks.pending_max);
                webhooks.pending_per_tenant_max =
                    get("news_tenant").unwrap_or(webhooks.pending_per_tenant_max);
            }
            other => panic!("{other} is no verb of a scenario"),
        }
        Command::Admin(AdminCommand::Configure {
            settings: Box::new(self.settings.clone()),
            overrides: None,
            detail: "test".into(),
            origin: Origin::server("test"),
        })
    }

    fn explain(&self, name: &str) -> String {
        let Some(explanation) = self.engine.explain(self.now, None, self.jobs[name]) else {
            return format!("{name} is not live");
        };
        let holds: Vec<String> = explanation.holds.iter().map(hold_words).collect();
        format!("{name} is {}, {} ahead: {}", explanation.state, explanation.ahead, holds.join(", "))
    }

    /// The fence of a job's latest offer; `name#2` names an older one, `name!` a forged one.
    fn fence(&self, name: &str) -> Fence {
        if let Some(name) = name.strip_suffix('!') {
            let fence = self.fence(name);
            return Fence { attempt_id: crate::AttemptId(fence.attempt_id.0 ^ 1), ..fence };
        }
        if let Some((name, attempt)) = name.split_once('#') {
            return self.fences[&(name.to_owned(), number(attempt))];
        }
        let offers = self.fences.range((name.to_owned(), 0)..=(name.to_owned(), u32::MAX));
        *offers.last().unwrap_or_else(|| panic!("{name} was never offered")).1
    }

    /// The number of a job's latest attempt; 1 before the first.
    pub(super) fn latest_attempt(&self, name: &str) -> u32 {
        let offers = self.fences.range((name.to_owned(), 0)..=(name.to_owned(), u32::MAX));
        offers.last().map_or(1, |((_, attempt), _)| *attempt)
    }

    /// The jobs with an open attempt, ended ones included.
    pub(super) fn open_jobs(&self) -> Vec<String> {
        self.open.values().map(|open| self.name_of(open.fence.job)).collect()
    }

    fn name_of(&self, job: JobId) -> String {
        let known = self.jobs.iter().find(|(_, id)| **id == job);
        known.map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
    }

    fn reply_words(&self, reply: &Reply, names: &[String]) -> Vec<String> {
        match reply {
            Reply::Submitted(submitted) if submitted.existing => vec![format!("{} exists already", names[0])],
            Reply::Batch(verdicts) => {
                let rejected = names
                    .iter()
                    .zip(verdicts)
                    .filter_map(|(name, verdict)| Some((name, verdict.as_ref().err()?)));
                rejected
                    .map(|(name, rejection)| format!("{name} rejected: {}", rejection.code.as_str()))
                    .collect()
            }
            Reply::Rejected(rejection) => vec![format!("rejected: {rejection}")],
            Reply::NotFound => vec!["not found".into()],
            Reply::Stale => vec!["stale".into()],
            Reply::Alive { stop: true, .. } => vec!["alive, but asked to stop".into()],
            Reply::Canceled { was, .. } => vec![format!("was {was}")],
            Reply::RunSubmitted(submitted) if submitted.existing => {
                vec![format!("{} exists already, {}", names[0], submitted.state)]
            }
            Reply::RunSubmitted(_) | Reply::NextCalled => Vec::new(),
            Reply::NextAnswered(answer) => vec![answer_words(answer)],
            Reply::RunCanceled { canceled, state } => vec![format!("canceled {canceled} jobs, {state}")],
            Reply::SessionStopped(stopped) => vec![self.stopped_words(stopped)],
            Reply::ScheduleFiredByHand { reason: Some(reason), .. } => {
                vec![format!("did not run: {}", reason.as_str())]
            }
            Reply::Schedule(_) | Reply::ScheduleFiredByHand { .. } => Vec::new(),
            Reply::Granted(grant) => {
                let (name, cost, state) = (self.name_of(grant.fence.job), grant.cost, grant.state);
                let whole = self.rows.get(&grant.seq.0).and_then(|row| row.spec.timeout);
                let again = match grant.again {
                    true if whole.is_some_and(|whole| grant.timeout < whole) => {
                        format!(", again, {} ms left", grant.timeout.0)
                    }
                    true => ", again".to_owned(),
                    false => String::new(),
                };
                vec![format!(
                    "granted {name}: {state}, {cost} units, lease {} s{again}",
                    grant.lease.0 / 1_000
                )]
            }
            Reply::Denied(denial) => {
                vec![format!("denied: {:?}, ask again in {} ms", denial.reason, denial.retry_after.0)]
            }
            Reply::NotYours => vec!["not yours".into()],
            Reply::Duplicate => vec!["duplicate".into()],
            Reply::Gap => vec!["gap".into()],
            Reply::Registered(registered) => vec![format!("lease {} s", registered.lease.0 / 1_000)],
            Reply::Submitted(_) | Reply::Done | Reply::Alive { .. } => Vec::new(),
        }
    }

    fn stopped_words(&self, stopped: &SessionStopped) -> String {
        let names = |jobs: &[JobId]| jobs.iter().map(|job| self.name_of(*job)).collect::<Vec<_>>().join(",");
        let SessionStopped { running, waiting, running_count, waiting_count, generation } = stopped;
        assert_eq!((running.len(), waiting.len()), (*running_count as usize, *waiting_count as usize));
        format!("ran [{}], waited [{}], generation {generation}", names(running), names(waiting))
    }

    /// `stop KEY`, `stopall KEY`, `reset KEY`, `usage KEY 60/100`.
    fn session_command(
        &self,
        verb: &str,
        key: &str,
        rest: &[&str],
        options: &BTreeMap<&str, &str>,
    ) -> Command {
        let tenant = text(options.get("tenant").copied().unwrap_or("default"));
        let what = match verb {
            "usage" => {
                let (tokens, window) = rest[1].split_once('/').expect("tokens/window");
                let (tokens, window) = (number(tokens).into(), number(window).into());
                return Command::Session(SessionCommand::Usage { tenant, key: text(key), tokens, window });
            }
            "stop" => StopWhat::One,
            "stopall" => StopWhat::All,
            _ => StopWhat::Reset,
        };
        Command::Session(SessionCommand::Stop {
            tenant,
            key: text(key),
            what,
            origin: Origin::server("test"),
        })
    }

    fn show_session(&self, key: &str) -> String {
        let Some(view) = self.engine.session(&text("default"), &text(key)) else {
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

    fn word(&self, name: &str, options: &BTreeMap<&str, &str>, said: LeaseUpdate) -> Command {
        let worker = options.get("worker").map(|worker| text(worker));
        let pid = options.get("pid").map(|pid| number(pid));
        let lease = self.fence(name).attempt_id;
        Command::Lease(LeaseCommand::Message(Box::new(LeaseMessage {
            lease,
            tenant: None,
            worker,
            pid,
            update: said,
        })))
    }

    fn reading(&self, options: &BTreeMap<&str, &str>) -> LoadReading {
        let quiet = options.get("quiet").copied().unwrap_or("quiet");
        let quiet = QuietState::ALL.into_iter().find(|state| state.as_str() == quiet).expect("a state");
        LoadReading { busy: number(options["busy"]) as u8, quiet, at: self.now.mono }
    }

    fn capacity(&self) -> String {
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

    fn decisions(&self) -> Vec<String> {
        let told = self.engine.decisions(None).map(|decision| {
            let job = decision.job.map_or("-".to_owned(), |job| self.name_of(job));
            let worker = decision.worker.as_ref().map_or("-", |worker| worker.as_str());
            let verdict = decision.denied.as_ref().map_or("admitted", |reason| reason.as_str());
            format!("{job} {worker} {verdict}")
        });
        told.collect()
    }

    fn advance(&mut self, by: Span) {
        self.now = Now { mono: self.now.mono + by, wall: self.now.wall + by };
    }
}

/// `mode=interrupt cap=2 drop=new debounce=800ms debounce_max=2s sent=5s` (ago).
fn session_of(session: Session, options: &BTreeMap<&str, &str>, now: Now) -> Session {
    let word = |key: &str| options.get(key).copied();
    Session {
        mode: word("mode").map_or(session.mode, |mode| SessionMode::parse(mode).expect("a mode")),
        cap: word("cap").map(number),
        drop: word("drop").map_or(session.drop, |drop| DropPolicy::parse(drop).expect("a policy")),
        debounce: word("debounce").map(span),
        debounce_max: word("debounce_max").map(span),
        sent_at: word("sent").map(|ago| now.wall.before(span(ago))),
        ..session
    }
}

fn set_lane(lane: &mut LaneSettings, options: &BTreeMap<&str, &str>) {
    for (key, value) in options {
        match *key {
            "running" => lane.running_max = number(value),
            "per_agent" => lane.running_per_agent_max = number(value),
            "queued" => lane.queued_max = number(value),
            "queued_per_agent" => lane.queued_per_agent_max = number(value),
            "paused" => lane.paused = *value == "yes",
            "order" => lane.order = if *value == "fair" { LaneOrder::Fair } else { LaneOrder::Priority },
            "aging" => lane.aging_step = (*value != "none").then(|| span(value)),
            "dispatch" => {
                lane.pull.dispatch = match *value {
                    "reserve" => Dispatch::Reserve,
                    "claim" => Dispatch::Claim,
                    _ => Dispatch::Push,
                }
            }
            "lease" => lane.pull.lease = Some(span(value)),
            "lost" => {
                lane.pull.on_lease_lost =
                    if *value == "fail" { LostPolicy::Fail } else { LostPolicy::Requeue }
            }
            "stop" => {
                lane.on_shutdown =
                    if *value == "cancel" { ShutdownPolicy::Cancel } else { ShutdownPolicy::Keep }
            }
            other => panic!("{other} is no setting of a lane"),
        }
    }
}

fn hold_words(hold: &Hold) -> String {
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
        Hold::NoExecutor { kind } => format!("no place for {kind}"),
        Hold::ExecutorFull { executor, used, limit } => format!("executor {executor} {used}/{limit}"),
        Hold::KeyFull { name, value, used, limit } => format!("key {name}:{value} {used}/{limit}"),
        Hold::NotQuiet { state, rule } => format!("{} and not {}", state.as_str(), rule.as_str()),
        Hold::NoUnits { cost, free, usable } => format!("needs {cost} of {free} free units, {usable} usable"),
        Hold::Reserved { .. } => "units are kept for another".into(),
        Hold::Unclaimed { lane } => format!("nobody of lane {lane} asks"),
        Hold::Turn => "its turn comes".into(),
    }
}

fn needs(options: &BTreeMap<&str, &str>) -> CapacityRequest {
    let rule = |word: &&str| QuietRule::ALL.into_iter().find(|rule| rule.as_str() == *word).expect("a rule");
    CapacityRequest {
        cost: options.get("cost").map_or(0, |cost| number(cost)),
        quiet: options.get("quiet").map(rule),
        unique: options.contains_key("unique"),
        expected_duration: options.get("expects").map(|expects| span(expects)),
        hours: options.get("hours").map(|text| hours(text)),
    }
}

/// `22:00-06:00`, by UTC.
fn hours(text: &str) -> Hours {
    let minute = |time: &str| {
        let (hour, minute) = time.split_once(':').expect("HH:MM");
        (number(hour) * 60 + number(minute)) as u16
    };
    let (from, until) = text.split_once('-').expect("from-until");
    Hours { from: minute(from), until: minute(until), clock: HoursClock::Ahead(0) }
}

fn holder(options: &BTreeMap<&str, &str>) -> Holder {
    Holder { worker: text(options["worker"]), pid: options.get("pid").map(|pid| number(pid)), boot: None }
}

fn claim(worker: &str, options: &BTreeMap<&str, &str>, start: bool) -> Claim {
    Claim {
        tenant: text(options.get("tenant").copied().unwrap_or("default")),
        lane: text(options.get("lane").copied().unwrap_or("main")),
        agent: options.get("agent").map(|agent| text(agent)),
        kinds: options.get("kinds").map_or(Vec::new(), |kinds| kinds.split(',').map(text).collect()),
        max_cost: options.get("max").map(|max| number(max)),
        holder: Holder { worker: text(worker), pid: None, boot: None },
        start,
        token: None,
    }
}

fn answer_words(answer: &crate::NextAnswer) -> String {
    match answer {
        crate::NextAnswer::Done(result) => {
            let result = result.as_deref().map_or("nothing".into(), String::from_utf8_lossy);
            format!("done with {result}")
        }
        crate::NextAnswer::Failed(code, message) => format!("{} ({message})", code.as_str()),
    }
}

fn executor(name: &str, mode: &str, options: &BTreeMap<&str, &str>) -> ExecutorOffer {
    ExecutorOffer {
        executor: text(name),
        mode: if mode == "leased" { ExecutorMode::Leased } else { ExecutorMode::Attached },
        kinds: options["kinds"].split(',').filter(|kind| !kind.is_empty()).map(text).collect(),
        slots: number(options["slots"]),
    }
}

fn outcome(word: &str) -> Outcome {
    match word {
        "ok" => Outcome::Succeeded(None),
        result if result.starts_with("ok:") => Outcome::Succeeded(Some(result.as_bytes()[3..].into())),
        "skip" => Outcome::Skipped(None),
        "fail" => Outcome::Failed(Failure::retryable("test", "it failed")),
        later if later.starts_with("fail:") => Outcome::Failed(Failure {
            retry_after: Some(span(&later[5..])),
            ..Failure::retryable("test", "it failed")
        }),
        "permanent" => Outcome::Failed(Failure::permanent("test", "it cannot work")),
        "canceled" => Outcome::Canceled,
        "back" => Outcome::HandedBack,
        "interrupted" => Outcome::Interrupted,
        other => panic!("{other} is no outcome"),
    }
}

fn command_names(command: &Command, rest: &[&str]) -> Vec<String> {
    match command {
        Command::Submit(_) | Command::Workflow(WorkflowCommand::Submit(_)) => vec![rest[0].to_owned()],
        Command::Lease(LeaseCommand::Request(request)) if matches!(request.what, LeaseFor::New(_)) => {
            vec![rest[0].to_owned()]
        }
        Command::SubmitBatch { .. } => names_of(rest),
        _ => Vec::new(),
    }
}

fn names_of(rest: &[&str]) -> Vec<String> {
    rest.iter()
        .filter(|word| !word.contains('=') && **word != "atomic")
        .map(|word| (*word).to_owned())
        .collect()
}

pub(super) fn text(word: &str) -> Name {
    Name::new(word).expect("a name")
}

pub(super) fn number(word: &str) -> u32 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

/// `500ms` or `30s`.
pub(super) fn span(word: &str) -> Span {
    match word.strip_suffix("ms") {
        Some(ms) => Span(u64::from(number(ms))),
        None => Span::secs(u64::from(number(word.strip_suffix('s').expect("a unit")))),
    }
}
