//! The one place where scenarios meet the engine: words to commands, effects to words.

use std::collections::BTreeMap;

use crate::capacity::Hours;
use crate::command::{PlaceMode, PlaceOffer, Submission};
use crate::effect::Notice;
use crate::engine::{Engine, Hold, Recovery, Restart};
use crate::job::IdempotencyKey;
use crate::lease::{LeaseFor, LeaseRequest, LeaseWord, Said};
use crate::settings::{AgentSettings, KindSettings, LaneOrder, LaneSettings, ShutdownPolicy, TenantSettings};
use crate::{
    Backoff, Change, Claim, Command, Dispatch, Effects, Failure, Fence, Holder, Jitter, JobId, JobRow,
    JobSpec, Key, LoadReading, LostPolicy, Mono, Name, Needs, Now, OpenAttempt, Origin, Outcome, Prior,
    QuietRule, QuietState, Reply, RetryPolicy, Session, Settings, Span, Wall,
};

/// An engine, its stored rows, and the names that the scenario gave to its jobs.
pub(super) struct Story {
    engine: Engine,
    now: Now,
    settings: Settings,
    jobs: BTreeMap<String, JobId>,
    fences: BTreeMap<(String, u32), Fence>,
    rows: BTreeMap<u64, JobRow>,
    open: BTreeMap<u64, OpenAttempt>,
    ended: BTreeMap<u64, JobRow>,
    keys: BTreeMap<Name, Prior>,
    last_event: u64,
}

const START: Now = Now { mono: Mono(1_000_000), wall: Wall(1_800_000_000_000) };

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
            last_event: 0,
        };
        story.play("place local attached kinds=k,k2,k3 slots=100");
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
                Command::Cancel { tenant, job: self.jobs[name], origin: Origin::house("test") }
            }
            "place" => Command::Offer(place(name, rest[1], &options)),
            "withdraw" => Command::Withdraw(text(name)),
            "drain" => Command::Drain,
            "storage" => Command::StorageLow(name == "low"),
            "tick" => Command::Tick,
            "wait" => {
                self.advance(span(name));
                Command::Tick
            }
            "jump" => {
                let by: i64 = name.parse().expect("seconds");
                self.now.wall = Wall(self.now.wall.0 + by * 1_000);
                Command::Tick
            }
            "load" => Command::Load(self.reading(&options)),
            "claim" => Command::Claim(Box::new(claim(name, &options, rest.contains(&"start")))),
            "ask" => {
                let what = LeaseFor::New(Box::new(self.one(name, &options)));
                Command::RequestLease(Box::new(LeaseRequest { what, holder: holder(&options) }))
            }
            "ack" => {
                let what = LeaseFor::Job { tenant: None, job: self.jobs[name] };
                Command::RequestLease(Box::new(LeaseRequest { what, holder: holder(&options) }))
            }
            "alive" => self.word(name, &options, Said::Alive),
            "ended" => self.word(name, &options, Said::Ended(outcome(rest[1]))),
            "revoke" => self.word(name, &options, Said::Revoke("enough".into())),
            "capacity" => return vec![self.capacity()],
            "decisions" => return self.decisions(),
            "explain" => return vec![self.explain(name)],
            "crash" => {
                before = self.restart(Restart::Process);
                Command::Tick
            }
            "rebuild" => {
                before = self.restart(Restart::Rebuild);
                Command::Tick
            }
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
                    if let Ok(submitted) = verdict {
                        self.jobs.insert(name.clone(), submitted.job);
                    }
                }
            }
            _ => {}
        }
        let mut said = self.reply_words(&reply, names);
        said.extend(self.tell(&effects));
        self.engine.committed();
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
                said.push(event.kind.word().to_owned());
                continue;
            };
            if event.kind == crate::EventKind::JobSubmitted {
                continue;
            }
            let word = event.kind.word().split_once('.').expect("two parts").1;
            let reason = line.reason.map_or(String::new(), |reason| format!(" ({reason})"));
            said.push(format!("{} {word} #{}{reason}", self.name_of(line.id), line.attempt));
        }
        for change in &effects.changes {
            self.keep(change);
        }
        for notice in &effects.notices {
            if let Notice::Stop { fence, .. } = notice {
                said.push(format!("stop {}", self.name_of(fence.job)));
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
            Change::AttemptClosed(closed) => {
                let open = self.open.remove(&closed.open.seq.0).expect("an open attempt closed");
                assert_eq!(open.fence, closed.open.fence);
            }
            Change::JobEnded(end) => {
                let row = self.rows.remove(&end.seq.0).expect("a live job ended");
                self.ended.insert(end.seq.0, row);
            }
            _ => {}
        }
    }

    fn restart(&mut self, restart: Restart) -> Vec<String> {
        let head = crate::engine::Head { last_seq: 1_000, last_event: self.last_event, last_rank_time: 0 };
        let mut recovery = Recovery::new(self.settings.clone(), Vec::new(), head, 8, self.now);
        for row in self.rows.values() {
            recovery.job(row.clone());
        }
        for open in self.open.values() {
            match self.ended.get(&open.seq.0) {
                Some(row) => recovery.lingering(row.clone(), open.clone()),
                None => recovery.open(open.clone()),
            }
        }
        let offers = self.engine.offers();
        let mut effects = Effects::default();
        self.engine = recovery.finish(self.now, restart, &mut effects);
        self.engine.check_invariants().expect("the recovered engine agrees with itself");
        let mut said = self.tell(&effects);
        for offer in offers {
            said.extend(self.apply(Command::Offer(offer), &[]));
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

    fn one(&self, _name: &str, options: &BTreeMap<&str, &str>) -> Submission {
        let named = |key: &str, default: &str| text(options.get(key).copied().unwrap_or(default));
        let idempotency = options.get("idem").map(|key| {
            let (key, body) = key.split_once('/').unwrap_or((key, "0"));
            IdempotencyKey { key: text(key), digest: [body.as_bytes()[0]; 32] }
        });
        let retry = options
            .get("retries")
            .map(|retries| RetryPolicy { retries_max: number(retries), ..self.settings.retry.clone() });
        let keys = options.get("keys").map_or(Vec::new(), |keys| {
            keys.split(',')
                .map(|key| key.split_once(':').expect("name:value"))
                .map(|(name, value)| Key { name: text(name), value: text(value) })
                .collect()
        });
        let session = options.get("session").map(|session| {
            let (key, max) = session.split_once('/').unwrap_or((session, "1"));
            Session { key: text(key), max_concurrent: number(max) }
        });
        let after = |key: &str| options.get(key).map(|at| self.now.wall + span(at));
        let spec = JobSpec {
            tenant: named("tenant", "default"),
            kind: named("kind", "k"),
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
            retry_of: None,
            tags: Vec::new(),
            needs: needs(options),
        };
        let prior = idempotency.and_then(|key| self.keys.get(&key.key).copied());
        Submission { spec, payload: Vec::new().into(), origin: Origin::house("test"), prior }
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
                capacity.overtakes_max = get("overtakes").map_or(capacity.overtakes_max, |max| max as u8);
                capacity.measured &= options.get("measured") != Some(&"no");
            }
            "server" => {
                self.settings.running_max = get("running").unwrap_or(self.settings.running_max);
                self.settings.queued_max = get("queued").unwrap_or(self.settings.queued_max);
                self.settings.strict_kinds |= options.contains_key("strict");
            }
            other => panic!("{other} is no verb of a scenario"),
        }
        Command::Configure {
            settings: Box::new(self.settings.clone()),
            overrides: None,
            detail: "test".into(),
            origin: Origin::house("test"),
        }
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

    fn name_of(&self, job: JobId) -> String {
        let known = self.jobs.iter().find(|(_, id)| **id == job);
        known.map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
    }

    fn reply_words(&self, reply: &Reply, names: &[String]) -> Vec<String> {
        match reply {
            Reply::Submitted(submitted) if submitted.existing => vec![format!("{} exists already", names[0])],
            Reply::Batch(verdicts) => {
                let refused = names
                    .iter()
                    .zip(verdicts)
                    .filter_map(|(name, verdict)| Some((name, verdict.as_ref().err()?)));
                refused.map(|(name, refusal)| format!("{name} refused: {}", refusal.code.word())).collect()
            }
            Reply::Refused(refusal) => vec![format!("refused: {refusal}")],
            Reply::NotFound => vec!["not found".into()],
            Reply::Stale => vec!["stale".into()],
            Reply::Alive { stop: true, .. } => vec!["alive, but asked to stop".into()],
            Reply::Canceled { was, .. } => vec![format!("was {was}")],
            Reply::Granted(grant) => {
                let (name, cost, state) = (self.name_of(grant.fence.job), grant.cost, grant.state);
                let again = if grant.again { ", again" } else { "" };
                vec![format!(
                    "granted {name}: {state}, {cost} units, lease {} s{again}",
                    grant.lease.0 / 1_000
                )]
            }
            Reply::Denied(denial) => {
                vec![format!("denied: {:?}, ask again in {} ms", denial.reason, denial.retry_after.0)]
            }
            Reply::NotYours => vec!["not yours".into()],
            Reply::Submitted(_) | Reply::Done | Reply::Alive { .. } => Vec::new(),
        }
    }

    fn word(&self, name: &str, options: &BTreeMap<&str, &str>, said: Said) -> Command {
        let worker = options.get("worker").map(|worker| text(worker));
        let pid = options.get("pid").map(|pid| number(pid));
        let lease = self.fence(name).attempt_id;
        Command::Lease(Box::new(LeaseWord { lease, tenant: None, worker, pid, said }))
    }

    fn reading(&self, options: &BTreeMap<&str, &str>) -> LoadReading {
        let quiet = options.get("quiet").copied().unwrap_or("quiet");
        let quiet = QuietState::ALL.into_iter().find(|state| state.word() == quiet).expect("a state");
        LoadReading { busy: number(options["busy"]) as u8, quiet, at: self.now.mono }
    }

    fn capacity(&self) -> String {
        let view = self.engine.capacity(self.now);
        format!(
            "busy {} ({}), {} usable, {} used, {} reserved, {} free, {} leases",
            view.busy,
            view.quiet.word(),
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
            let verdict = decision.denied.as_ref().map_or("admitted", |reason| reason.word());
            format!("{job} {worker} {verdict}")
        });
        told.collect()
    }

    fn advance(&mut self, by: Span) {
        self.now = Now { mono: self.now.mono + by, wall: self.now.wall + by };
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
        Hold::NotBefore { at } => format!("not before {} s from the start", at.since(START.wall).0 / 1_000),
        Hold::Backoff { remaining } => format!("backoff {} ms", remaining.0),
        Hold::SessionOrder { session, ahead } => format!("session {session} {ahead} ahead"),
        Hold::SessionFull { session, used, limit } => format!("session {session} {used}/{limit}"),
        Hold::LanePaused { lane } => format!("lane {lane} paused"),
        Hold::LaneFull { lane, used, limit } => format!("lane {lane} {used}/{limit}"),
        Hold::AgentFull { agent, used, limit } => format!("agent {agent} {used}/{limit}"),
        Hold::ServerFull { used, limit } => format!("server {used}/{limit}"),
        Hold::TenantFull { used, limit } => format!("tenant {used}/{limit}"),
        Hold::KindFull { kind, used, limit } => format!("kind {kind} {used}/{limit}"),
        Hold::NoPlace { kind } => format!("no place for {kind}"),
        Hold::PlaceFull { place, used, limit } => format!("place {place} {used}/{limit}"),
        Hold::KeyFull { name, value, used, limit } => format!("key {name}:{value} {used}/{limit}"),
        Hold::NotQuiet { state, rule } => format!("{} and not {}", state.word(), rule.word()),
        Hold::NoUnits { cost, free, usable } => format!("needs {cost} of {free} free units, {usable} usable"),
        Hold::Reserved { .. } => "units are kept for another".into(),
        Hold::Unclaimed { lane } => format!("nobody of lane {lane} asks"),
        Hold::Turn => "its turn comes".into(),
    }
}

fn needs(options: &BTreeMap<&str, &str>) -> Needs {
    let rule = |word: &&str| QuietRule::ALL.into_iter().find(|rule| rule.word() == *word).expect("a rule");
    Needs {
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
    Hours { from: minute(from), until: minute(until), ahead: 0 }
}

fn holder(options: &BTreeMap<&str, &str>) -> Holder {
    Holder { worker: text(options["worker"]), pid: options.get("pid").map(|pid| number(pid)) }
}

fn claim(worker: &str, options: &BTreeMap<&str, &str>, start: bool) -> Claim {
    Claim {
        tenant: text(options.get("tenant").copied().unwrap_or("default")),
        lane: text(options.get("lane").copied().unwrap_or("main")),
        agent: options.get("agent").map(|agent| text(agent)),
        kinds: options.get("kinds").map_or(Vec::new(), |kinds| kinds.split(',').map(text).collect()),
        max_cost: options.get("max").map(|max| number(max)),
        holder: Holder { worker: text(worker), pid: None },
        start,
    }
}

fn place(name: &str, mode: &str, options: &BTreeMap<&str, &str>) -> PlaceOffer {
    PlaceOffer {
        place: text(name),
        mode: if mode == "leased" { PlaceMode::Leased } else { PlaceMode::Attached },
        kinds: options["kinds"].split(',').filter(|kind| !kind.is_empty()).map(text).collect(),
        slots: number(options["slots"]),
    }
}

fn outcome(word: &str) -> Outcome {
    match word {
        "ok" => Outcome::Succeeded(None),
        "fail" => Outcome::Failed(Failure::retryable("test", "it failed")),
        "permanent" => Outcome::Failed(Failure::permanent("test", "it cannot work")),
        "canceled" => Outcome::Canceled,
        "back" => Outcome::HandedBack,
        other => panic!("{other} is no outcome"),
    }
}

fn command_names(command: &Command, rest: &[&str]) -> Vec<String> {
    match command {
        Command::Submit(_) => vec![rest[0].to_owned()],
        Command::RequestLease(request) if matches!(request.what, LeaseFor::New(_)) => {
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

fn text(word: &str) -> Name {
    Name::new(word).expect("a name")
}

fn number(word: &str) -> u32 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

/// `500ms` or `30s`.
fn span(word: &str) -> Span {
    match word.strip_suffix("ms") {
        Some(ms) => Span(u64::from(number(ms))),
        None => Span::secs(u64::from(number(word.strip_suffix('s').expect("a unit")))),
    }
}
