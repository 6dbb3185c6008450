//! Scenarios as text. A test is one transcript: lines at the margin are commands, the indented lines below them are
//! what followed. [`check`] plays the commands and compares the whole transcript, so a scenario is written by
//! writing its commands and running the test with `UPDATE_EXPECT=1`.
//!
//! ```text
//! given lane main running=1
//! submit a1 | submit a2
//!     a1 started #1
//! finish a1 ok
//!     a1 succeeded #1 (done)
//!     a2 started #1
//! ```
//!
//! Several commands share a line with `|`. After every command the engine recounts itself
//! (`Engine::check_invariants`), and a fake store checks that the changes fit together. An executor `local` offers the
//! kinds `k`, `k2` and `k3`; jobs have the kind `k`, the agent `A` and the lane `main` where they name no other. Time
//! stands still until `wait`, `sleep` or `jump`.
//!
//! A transcript may begin with `given` lines: set-up whose effects are not shown. A command of the set-up must not be
//! rejected. `given` takes every verb below, and the named set-ups of `given.rs`.
//!
//! Words: `a1` is a job, `a1#2` its second attempt, `a1!` an attempt with a forged id; `r/n` is the job of node `n` of
//! run `r`, `s/1` the first job of schedule `s`; `c1` is a connection of a worker; times are `500ms` or `30s`. An
//! outcome is `ok`, `ok:result`, `keep:browser,profile` (succeeded, keeping these keys), `skip`, `fail`, `fail:5s` (retry
//! after), `permanent`, `canceled`, `back` (handed back) or `interrupted`.
//!
//! # Jobs
//!
//! | example | meaning |
//! |---|---|
//! | `submit a1 agent=B kind=k2 priority=-1` | Submits a job. Options: see below. |
//! | `batch a1 a2 atomic` | Submits several jobs in one call, with the same options. |
//! | `start a1` | A leased executor starts the attempt. |
//! | `beat a1` | A leased executor renews the lease of the attempt. |
//! | `finish a1 ok` | The executor reports the outcome of the attempt. |
//! | `cancel a1 tenant=t1` | Cancels the job, for a caller of that tenant. |
//! | `change a1 priority=-1 after=60s tenant=t1` | Changes a waiting job. `at=60s` is a time after the start of the scenario. |
//! | `erase a1 tenant=t1` | Deletes the ended job. |
//! | `release a1 tenant=t1` | Frees the keys that the job keeps, for a caller of that tenant. |
//!
//! Options of a job: `tenant` `kind` `agent` `lane` `priority` `keys=profile:a` `idem=key/body` `callback=host`
//! `after=5s` `deadline=9s` `queue=5s` `timeout=5s` `retries=1` `losses=1` `record=yes` (a rejection is recorded)
//! `strict=yes` (the lane must exist); sessions: `session=chat/2` `mode=interrupt` `cap=2` `drop=new` `debounce=800ms`
//! `debounce_max=2s` `sent=5s` (ago); capacity: `cost=30` `quiet=quiet` `unique=yes` `expects=60s` `hours=22:00-06:00`;
//! placement: `package=p@1` `features=gpu` `labels=zone:a` `stick=k/60s` `prefer=k` `pin=w1/60s`.
//!
//! # Server and configuration
//!
//! | example | meaning |
//! |---|---|
//! | `executor far leased kinds=w slots=9` | An executor (`leased` or `attached`) offers kinds. |
//! | `withdraw far` | The executor withdraws its offer. |
//! | `drain` | The server drains. |
//! | `storage low` | The disk is nearly full, or `fine` again. |
//! | `admit off` | An operator closes admission, or opens it with `on`. |
//! | `load busy=7 quiet=busy` | A reading of the machine's load. |
//! | `lane main running=1 queued=9 per_agent=1 dispatch=claim` | Sets a lane. Also `queued_per_agent` `paused` `order` `aging` `lease` `lost` `stop`. |
//! | `nolane other` | Removes a lane. |
//! | `kind k running=1` | Limits a kind. |
//! | `tenant t1 running=1 queued=2` | Limits a tenant. |
//! | `agent A weight=2 hours=22:00-06:00` | Sets an agent's share and hours. |
//! | `key profile limit=1` | Limits the holders of each value of a key. |
//! | `machine total=100 reserve=10 bypasses=2 measured=no` | Sets the machine's capacity. |
//! | `server running=9 queued=9 strict=yes nodes=9` | Sets server limits. Also `depth` `dependencies` `open_nodes` and `webhooks_open` `webhooks_host` `webhooks_pending` `webhooks_tenant`. |
//!
//! # Time and restarts
//!
//! | example | meaning |
//! |---|---|
//! | `tick` | The engine looks at the clock. |
//! | `wait 5s` | Time passes, then a tick. |
//! | `sleep 5s` | Time passes without a tick. |
//! | `jump -30` | The wall clock jumps by seconds, then a tick. |
//! | `crash` | The process dies, and a new one reads the store. |
//! | `rebuild` | The engine is built again from the store in the same process. |
//!
//! # Pull workers
//!
//! | example | meaning |
//! |---|---|
//! | `claim w1 lane=main kinds=k max=30 start` | A worker claims the next job that fits. Also `tenant` `agent`. |
//! | `lease a1 worker=w1 kind=k cost=30` | Submits a job and requests its lease in one call. |
//! | `ack a1 worker=w1 pid=7` | Requests the lease of a job that exists. |
//! | `renew a1 worker=w1 pid=7` | The worker renews its lease. |
//! | `ended a1 ok worker=w1` | The worker reports the outcome by its lease. |
//! | `revoke a1` | An operator revokes the lease. |
//!
//! # Push workers
//!
//! | example | meaning |
//! |---|---|
//! | `worker w1 c1 slots=2 kinds=w` | A worker registers over a connection. Also `every=5s` (heartbeat) `boot=b1` `tasks=a1#1` `limits=w:1` `packages=p@1` `features` `labels` `lanes` `tenant`. |
//! | `offers w1 c1 slots=3 kinds=w` | The worker changes its registration. |
//! | `pulse c1 mem=90 disk=95 unhealthy draining` | A heartbeat with the worker's state. |
//! | `accept c1 a1` | The worker starts a task. |
//! | `reject c1 a1 E.BUSY` | The worker rejects a task. |
//! | `result c1 a1 ok` | The worker reports the outcome of a task. |
//! | `gone c1` | The connection is lost. |
//! | `drainworker w1` | An operator drains the worker. |
//! | `undrain w1` | An operator ends that. |
//! | `rebind w1 main,other` | An operator sets the lanes of the worker; none: the worker's own. |
//!
//! # Workflow runs
//!
//! | example | meaning |
//! |---|---|
//! | `submitrun r a b@k2+5s c<a,b h m1 chain=h:m1 group=c:b failure=continue` | Submits a run: `@kind`, `+` not before, `<` after these nodes. Also `key` `digest` and options of jobs, for every node. |
//! | `cancelrun r` | Cancels the run. |
//! | `next r/m1 q1 index=1 timeout=5s payload=x` | A middleware calls the next element of its chain. |
//!
//! # Sessions
//!
//! | example | meaning |
//! |---|---|
//! | `stop chat` | Cancels the oldest job of the session. |
//! | `stopall chat` | Cancels all jobs of the session. |
//! | `reset chat` | Cancels all jobs and starts the next generation. |
//! | `resetall` | Resets every session. |
//! | `usage chat 60/100` | Reports tokens used of a window. |
//!
//! # Records
//!
//! | example | meaning |
//! |---|---|
//! | `put profiles/p1 body=x expected=0 tenant=t1` | Stores a record, if it has the expected version. |
//! | `remove profiles/p1 expected=7 tenant=t1` | Deletes a record, if it has the expected version. |
//!
//! # Schedules and webhooks
//!
//! | example | meaning |
//! |---|---|
//! | `schedule s every=10s overlap=queue catch=all:3 once off` | Creates a schedule, also with `at=5s` or `cron=0_9_*_*_*` `zone` `anchor` `jitter` `bytes` `keep` and options of jobs. |
//! | `update s every=20s as=t1` | Changes it, for a caller of that tenant. |
//! | `toggle s off` | Disables or enables it. |
//! | `delete s` | Deletes it. |
//! | `fire s due` | Fires it by hand, or only when a slot is due. |
//! | `tried a1 200` | The webhook of a job was answered, or `down` or `forbidden`. |
//! | `redeliver a1` | Sends the webhook again. |
//!
//! # Questions
//!
//! | example | meaning |
//! |---|---|
//! | `active A` | In how many sessions the agent runs. |
//! | `capacity` | The machine's units. |
//! | `counts main` | The statistics of a lane and its agents. |
//! | `decisions` | The latest decisions about leases. |
//! | `dispatches` | The dispatch records of the event log since the last time. |
//! | `explain a1` | The state of a job, and by what it is blocked. |
//! | `firings s` | The firing log of one schedule, or of all. |
//! | `kept` | The keys that ended jobs keep. |
//! | `keyuse browser:open` | How much of a key is taken. |
//! | `records profiles after=p1 limit=2 tenant=t1` | The records of a collection. |
//! | `session chat` | The state of a session. |
//! | `showrun r` | The state of a run, and its results. |
//! | `showschedule s` | The state of a schedule. |
//! | `workers` | Every registered worker. |

mod given;
mod names;
mod parse;
mod render;
mod store;
mod tests;

use std::sync::Arc;

use crate::command::{
    AdminCommand, DeliveryCommand, LeaseCommand, ScheduleCommand, Submission, WorkerCommand, WorkflowCommand,
};
use crate::engine::{Engine, Restart};
use crate::lease::{LeaseFor, LeaseMessage, LeaseRequest};
use crate::schedule::FireMode;
use crate::worker::{DispatchLine, WorkerMessage, WorkerReport};
use crate::{
    Backoff, Change, Command, ConnectionId, DeliveryRow, Effects, Jitter, Mono, Name, NextCall, Now, Origin,
    Record, Reply, RetryPolicy, RunSubmission, Settings, Span, TasksKept, Wall,
};
use expect_test::Expect;
use names::Names;
use parse::{Context, Job, Named, ScheduleAction, Show, Step, WorkerStep};
use render::Render;
use store::Store;

/// The time at which every scenario starts: 2027-01-15 08:00 UTC.
pub(super) const START: Now = Now { mono: Mono(1_000_000), wall: Wall(1_800_000_000_000) };

/// Plays the commands of a transcript and compares the whole transcript.
pub(super) fn check(expect: Expect) {
    let mut scenario = Scenario::new();
    let mut transcript = String::new();
    let indented = |line: &str| line.len() - line.trim_start().len();
    let lines = expect.data().trim_start_matches('\n').lines().zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim().is_empty());
    let margin = lines.clone().map(|(line, _)| indented(line)).min().unwrap_or(0);
    let mut commands = lines.filter(|(line, _)| indented(line) == margin).peekable();
    while let Some((line, number)) = commands.next_if(|(line, _)| line.trim().starts_with("given ")) {
        scenario.line = number;
        transcript.push_str(&format!("{}\n", line.trim()));
        given::play(&mut scenario, line.trim());
    }
    for (line, number) in commands {
        scenario.line = number;
        transcript.push_str(&format!("{}\n", line.trim()));
        for command in line.split('|') {
            for effect in scenario.play(command.trim()) {
                transcript.push_str(&format!("    {effect}\n"));
            }
        }
    }
    expect.assert_eq(&transcript);
}

/// A submission at the start with the options of a job, such as `kind=echo lane=main`.
pub(super) fn submission(options: &str) -> Submission {
    let context = Context { now: START, settings: &Settings::default() };
    let job = parse::job(options, context).unwrap_or_else(|error| panic!("`{options}`: {error}"));
    job.submission(None)
}

/// An engine, its stored rows, and the names of the scenario.
pub(super) struct Scenario {
    pub(super) engine: Engine,
    pub(super) now: Now,
    pub(super) settings: Settings,
    names: Names,
    store: Store,
    /// Dispatch records that were not shown yet.
    dispatches: Vec<String>,
    /// The line of the transcript that is played, for errors.
    line: usize,
    /// The latest reply, which set-up inspects.
    reply: Reply,
}

impl Scenario {
    pub(super) fn new() -> Scenario {
        let retry = RetryPolicy {
            retries_max: 2,
            losses_max: 1,
            backoff: Backoff { base: Span(1_000), factor: 2, max: Span(60_000), jitter: Jitter::None },
        };
        let settings = Settings { retry, ..Settings::default() };
        let mut scenario = Scenario {
            engine: Engine::new(settings.clone(), 7, START),
            now: START,
            settings,
            names: Names::default(),
            store: Store::default(),
            dispatches: Vec::new(),
            line: 0,
            reply: Reply::Done,
        };
        scenario.play("executor local attached kinds=k,k2,k3 slots=100");
        scenario.play("tick");
        scenario
    }

    /// The caller of every command.
    pub(super) fn origin() -> Origin {
        Origin::server("test")
    }

    /// Plays one command and returns what followed.
    pub(super) fn play(&mut self, command: &str) -> Vec<String> {
        let context = Context { now: self.now, settings: &self.settings };
        let step = parse::step(command, context);
        let step = step.unwrap_or_else(|error| panic!("line {}, `{command}`: {error}", self.line));
        self.take(step)
    }

    /// The jobs with an open attempt, ended ones included.
    pub(super) fn open_jobs(&self) -> Vec<String> {
        self.store.open_jobs().map(|job| self.names.of_job(job)).collect()
    }

    /// The stored webhook delivery of a job.
    pub(super) fn delivery(&self, name: &str) -> &DeliveryRow {
        self.store.delivery(self.names.job(name)).expect("a delivery is stored")
    }

    /// A record that is there already.
    pub(super) fn store_record(&mut self, record: Record) {
        let change = Change::RecordPut { record: Box::new(record.clone()), replaces: None };
        self.store.commit(&Effects { changes: vec![change], ..Effects::default() });
        self.engine.resume_record(record);
    }

    pub(super) fn all_runs_ended(&self) -> bool {
        self.store.all_runs_ended()
    }

    /// Time and restarts are the scenario's own; everything else is a question or a command.
    fn take(&mut self, step: Step) -> Vec<String> {
        let mut lines = Vec::new();
        let command = match step {
            Step::Show(show) => return self.show(show),
            Step::Pass { by, tick } => {
                self.now = Now { mono: self.now.mono + by, wall: self.now.wall + by };
                if !tick {
                    return lines;
                }
                Command::Tick
            }
            Step::Jump(seconds) => {
                self.now.wall = Wall(self.now.wall.0 + seconds * 1_000);
                Command::Tick
            }
            Step::Restart(restart) => {
                lines = self.restart(restart);
                Command::Tick
            }
            Step::Configure(settings) => {
                self.settings = *settings;
                Command::Admin(AdminCommand::Configure {
                    settings: Box::new(self.settings.clone()),
                    overrides: None,
                    detail: "test".into(),
                    origin: Scenario::origin(),
                })
            }
            Step::Submit { name, job } => {
                let submission = Arc::new(self.submission_of(*job));
                return self.apply(Command::Submit(submission), &[name]);
            }
            Step::Batch { names, job, atomic } => {
                let items = Arc::new(names.iter().map(|_| self.submission_of((*job).clone())).collect());
                return self.apply(Command::SubmitBatch { items, atomic }, &names);
            }
            Step::Lease { name, job, holder } => {
                let what = LeaseFor::New(Box::new(self.submission_of(*job)));
                let request = Box::new(LeaseRequest { what, holder });
                return self.apply(Command::Lease(LeaseCommand::Request(request)), &[name]);
            }
            Step::SubmitRun { name, spec, members } => {
                let key = spec.idempotency.as_ref();
                let run = RunSubmission {
                    prior: key.and_then(|key| self.store.prior_run(&key.key)),
                    spec: *spec,
                    members,
                    definition: None,
                    origin: Scenario::origin(),
                    strict_lanes: false,
                };
                return self.apply(Command::Workflow(WorkflowCommand::Submit(Box::new(run))), &[name]);
            }
            Step::Send(command) => command,
            Step::Named(named) => self.named_command(named),
            Step::Worker(step) => self.worker_command(step),
        };
        lines.extend(self.apply(command, &[]));
        lines
    }

    /// The command, with the ids of the jobs, runs and schedules that it names.
    fn named_command(&self, named: Named) -> Command {
        let origin = Scenario::origin();
        match named {
            Named::Start(attempt) => Command::Start(self.names.fence(&attempt)),
            Named::Beat(attempt) => Command::Heartbeat(self.names.fence(&attempt)),
            Named::Finish(attempt, outcome) => Command::Finish(self.names.fence(&attempt), outcome),
            Named::Cancel { job, tenant } => Command::Cancel { tenant, job: self.names.job(&job), origin },
            Named::Change { job, tenant, patch } => {
                Command::Update { tenant, job: self.names.job(&job), patch, origin }
            }
            Named::Erase { job, tenant } => {
                let job = self.names.job(&job);
                Command::Delete { tenant, job, stored: self.store.stored_job(job).map(Box::new), origin }
            }
            Named::Release { job, tenant } => {
                Command::ReleaseKeys { tenant, job: self.names.job(&job), origin }
            }
            Named::Ack { job, holder } => {
                let what = LeaseFor::Job { tenant: None, job: self.names.job(&job) };
                Command::Lease(LeaseCommand::Request(Box::new(LeaseRequest { what, holder })))
            }
            Named::LeaseMessage { attempt, worker, pid, update } => {
                let lease = self.names.fence(&attempt).attempt_id;
                let message = LeaseMessage { lease, tenant: None, worker, pid, update };
                Command::Lease(LeaseCommand::Message(Box::new(message)))
            }
            Named::CancelRun { run, tenant } => {
                Command::Workflow(WorkflowCommand::Cancel { tenant, run: self.names.run(&run), origin })
            }
            Named::Next { attempt, request, index, timeout, payload } => {
                let (fence, payload) =
                    (self.names.fence(&attempt), payload.map(|text| text.as_bytes().into()));
                let call = NextCall { fence, request, index, timeout, payload };
                Command::Workflow(WorkflowCommand::CallNext(Box::new(call)))
            }
            Named::Schedule { name, tenant, action } => {
                let id = self.names.schedule(&name);
                Command::Schedule(match action {
                    ScheduleAction::Update(patch) => ScheduleCommand::Update { tenant, id, patch, origin },
                    ScheduleAction::Toggle(enabled) => {
                        ScheduleCommand::Toggle { tenant, id, enabled, origin }
                    }
                    ScheduleAction::Delete => ScheduleCommand::Delete { tenant, id, origin },
                    ScheduleAction::Fire { only_due } => {
                        let mode = if only_due { FireMode::Due } else { FireMode::Force };
                        ScheduleCommand::Fire { tenant, id, mode, origin }
                    }
                })
            }
            Named::Tried { job, outcome } => {
                let row = self.delivery(&job);
                let (seq, number, took) = (row.seq, self.store.latest_try(row), Span(3));
                Command::Delivery(DeliveryCommand::Tried { seq, number, took, outcome })
            }
            Named::Redeliver { job, tenant } => {
                let job = self.names.job(&job);
                let stored = self.store.delivery(job).cloned().map(Box::new);
                Command::Delivery(DeliveryCommand::Redeliver { tenant, job, stored, origin })
            }
        }
    }

    fn worker_command(&self, step: WorkerStep) -> Command {
        let message = |connection: ConnectionId, report: WorkerReport| {
            Command::Worker(WorkerCommand::Message(Box::new(WorkerMessage { connection, report })))
        };
        match step {
            WorkerStep::Register { mut register, tasks } => {
                if let Some(tasks) = tasks {
                    let tasks = tasks.iter().map(|task| self.names.task(task));
                    register.tasks = TasksKept::Listed(tasks.collect());
                }
                Command::Worker(WorkerCommand::Register(register))
            }
            WorkerStep::Message { connection, report } => message(connection, report),
            WorkerStep::Accept { connection, task } => {
                message(connection, WorkerReport::Accepted(self.names.task(&task)))
            }
            WorkerStep::Reject { connection, task, code } => {
                message(connection, WorkerReport::Rejected(self.names.task(&task), code))
            }
            WorkerStep::Result { connection, task, outcome } => {
                let task = self.names.task(&task);
                message(connection, WorkerReport::Ended { task, outcome, stored: None })
            }
        }
    }

    fn submission_of(&self, job: Job) -> Submission {
        let prior = job.spec.idempotency.as_ref().and_then(|key| self.store.prior(&key.key));
        job.submission(prior)
    }

    /// Applies and commits a command. `names` are those of what it creates.
    fn apply(&mut self, command: Command, names: &[String]) -> Vec<String> {
        let mut effects = Effects::default();
        self.reply = self.engine.apply(self.now, command, &mut effects);
        self.names.learn(&self.reply, &effects, names);
        self.commit(&effects);
        let render = Render { names: &self.names, store: &self.store };
        let mut lines = render.reply(&self.reply, names);
        lines.extend(render.effects(&effects));
        let batch = self.engine.end_batch();
        self.engine.committed(batch);
        self.engine.check_invariants().expect("the engine agrees with itself");
        lines
    }

    fn commit(&mut self, effects: &Effects) {
        self.store.commit(effects);
        let details = effects.events.iter().filter_map(|event| event.detail.as_deref());
        self.dispatches.extend(details.filter_map(DispatchLine::parse).map(|line| line.to_string()));
    }

    /// A new engine from the store. Executors offer again what they offered; workers do in the same process only.
    fn restart(&mut self, restart: Restart) -> Vec<String> {
        let (offers, registrations) = (self.engine.offers(), self.engine.registrations());
        let mut effects = Effects::default();
        let recovery = self.store.recovery(self.settings.clone(), self.now, restart);
        self.engine = recovery.finish(self.now, restart, &mut effects);
        self.engine.check_invariants().expect("the recovered engine agrees with itself");
        self.names.learn_effects(&effects, &[]);
        self.commit(&effects);
        let mut lines = Render { names: &self.names, store: &self.store }.effects(&effects);
        for offer in offers {
            lines.extend(self.apply(Command::Admin(AdminCommand::Offer(offer)), &[]));
        }
        for register in registrations.into_iter().filter(|_| restart == Restart::Rebuild) {
            lines.extend(self.apply(Command::Worker(WorkerCommand::Register(Box::new(register))), &[]));
        }
        lines
    }

    fn show(&mut self, show: Show) -> Vec<String> {
        match show {
            Show::Active(agent) => {
                let count = self.engine.active_sessions_of(&Name::fixed("default"), &agent);
                vec![format!("{agent} runs in {count} sessions")]
            }
            Show::Capacity => vec![self.show_capacity()],
            Show::Counts(lane) => self.show_counts(&lane),
            Show::Decisions => self.show_decisions(),
            Show::Dispatches => std::mem::take(&mut self.dispatches),
            Show::Explain(job) => vec![self.show_explanation(&job)],
            Show::Firings(schedule) => self.show_firings(schedule.as_ref()),
            Show::Kept => self.show_kept(),
            Show::KeyUse(key) => vec![self.show_key_use(&key)],
            Show::Records { tenant, collection, after, limit } => {
                self.show_records(&tenant, &collection, after.as_ref(), limit)
            }
            Show::Run(run) => vec![self.show_run(&run)],
            Show::Schedule(schedule) => vec![self.show_schedule(&schedule)],
            Show::Session(key) => vec![self.show_session(&key)],
            Show::Workers => self.show_workers(),
        }
    }
}
