//! Text to typed steps. Parsing looks nothing up: jobs, runs and schedules stay names until the step is carried out.

mod args;
mod job;
mod run;
mod schedule;
mod settings;
mod worker;

use super::{START, Scenario};
use crate::command::{AdminCommand, ExecutorMode, ExecutorOffer, LeaseCommand, SessionCommand, StopWhat};
use crate::engine::Restart;
use crate::lease::LeaseUpdate;
use crate::worker::{Register, WorkerReport};
use crate::{
    Claim, Command, ConnectionId, Failure, Holder, JobPatch, Key, LoadReading, Member, Name, Outcome,
    QuietState, RecordCommand, RunSpec, SchedulePatch, Settings, Span, StartAt, TryOutcome,
};
pub(super) use args::{Args, Context, Parsed, name, number, span};
pub(super) use job::Job;

/// One command of a scenario.
pub(super) enum Step {
    /// A command of the engine that names nothing of the scenario.
    Send(Command),
    Submit {
        name: String,
        job: Box<Job>,
    },
    Batch {
        names: Vec<String>,
        job: Box<Job>,
        atomic: bool,
    },
    /// Submits a job and requests its lease.
    Lease {
        name: String,
        job: Box<Job>,
        holder: Holder,
    },
    SubmitRun {
        name: String,
        spec: Box<RunSpec>,
        members: Vec<Member>,
    },
    Named(Named),
    Worker(WorkerStep),
    Configure(Box<Settings>),
    /// Time passes. Without a tick the engine does not notice it.
    Pass {
        by: Span,
        tick: bool,
    },
    /// The wall clock jumps by this many seconds.
    Jump(i64),
    Restart(Restart),
    Show(Show),
}

/// A command about a job, a run or a schedule of the scenario.
pub(super) enum Named {
    Start(AttemptRef),
    Beat(AttemptRef),
    Finish(AttemptRef, Outcome),
    Cancel {
        job: String,
        tenant: Option<Name>,
    },
    Change {
        job: String,
        tenant: Option<Name>,
        patch: JobPatch,
    },
    Erase {
        job: String,
        tenant: Option<Name>,
    },
    Release {
        job: String,
        tenant: Option<Name>,
    },
    /// Requests the lease of a job that exists.
    Ack {
        job: String,
        holder: Holder,
    },
    LeaseMessage {
        attempt: AttemptRef,
        worker: Option<Name>,
        pid: Option<u32>,
        update: LeaseUpdate,
    },
    CancelRun {
        run: String,
        tenant: Option<Name>,
    },
    Next {
        attempt: AttemptRef,
        request: Name,
        index: u32,
        timeout: Option<Span>,
        payload: Option<String>,
    },
    Schedule {
        name: String,
        tenant: Option<Name>,
        action: ScheduleAction,
    },
    Tried {
        job: String,
        outcome: TryOutcome,
    },
    Redeliver {
        job: String,
        tenant: Option<Name>,
    },
}

/// A message of a push worker.
pub(super) enum WorkerStep {
    /// `None`: the process has all of its tasks.
    Register {
        register: Box<Register>,
        tasks: Option<Vec<AttemptRef>>,
    },
    Message {
        connection: ConnectionId,
        report: WorkerReport,
    },
    Accept {
        connection: ConnectionId,
        task: AttemptRef,
    },
    Reject {
        connection: ConnectionId,
        task: AttemptRef,
        code: Name,
    },
    Result {
        connection: ConnectionId,
        task: AttemptRef,
        outcome: Outcome,
    },
}

impl From<Named> for Step {
    fn from(named: Named) -> Step {
        Step::Named(named)
    }
}

impl From<WorkerStep> for Step {
    fn from(step: WorkerStep) -> Step {
        Step::Worker(step)
    }
}

/// A change of a schedule that exists.
pub(super) enum ScheduleAction {
    Update(Box<SchedulePatch>),
    Toggle(bool),
    Delete,
    Fire { only_due: bool },
}

/// A question about the engine or the store.
pub(super) enum Show {
    Active(Name),
    Capacity,
    Counts(Name),
    Decisions,
    Dispatches,
    Explain(String),
    Firings(Option<Name>),
    Kept,
    KeyUse(Key),
    Records { tenant: Name, collection: Name, after: Option<Name>, limit: usize },
    Run(String),
    Schedule(String),
    Session(Name),
    Workers,
}

/// `a1` is the latest attempt of a job, `a1#2` its second one, `a1!` one with a forged id.
pub(super) struct AttemptRef {
    pub(super) job: String,
    pub(super) number: Option<u32>,
    pub(super) forged: bool,
}

impl AttemptRef {
    fn parse(word: &str) -> Parsed<AttemptRef> {
        let (word, forged) = word.strip_suffix('!').map_or((word, false), |word| (word, true));
        let (job, attempt) = word.split_once('#').map_or((word, None), |(job, number)| (job, Some(number)));
        Ok(AttemptRef { job: job.to_owned(), number: attempt.map(number).transpose()?, forged })
    }
}

/// Reads the words after a verb.
type Read = fn(&mut Args<'_>) -> Parsed<Step>;

/// Every verb, with the function that reads the words after it.
pub(super) const VERBS: &[(&str, Read)] = &[
    ("submit", |args| Ok(Step::Submit { name: args.text("name")?, job: job::read(args)? })),
    ("batch", |args| {
        let (atomic, names) = (args.flag("atomic"), args.rest());
        Ok(Step::Batch { names, job: job::read(args)?, atomic })
    }),
    ("start", |args| Ok(Named::Start(args.attempt()?).into())),
    ("beat", |args| Ok(Named::Beat(args.attempt()?).into())),
    ("finish", |args| Ok(Named::Finish(args.attempt()?, outcome(args)?).into())),
    ("cancel", |args| Ok(Named::Cancel { job: args.text("job")?, tenant: args.name("tenant")? }.into())),
    ("change", change),
    ("erase", |args| Ok(Named::Erase { job: args.text("job")?, tenant: args.name("tenant")? }.into())),
    ("release", |args| Ok(Named::Release { job: args.text("job")?, tenant: args.name("tenant")? }.into())),
    ("executor", executor),
    ("withdraw", |args| Ok(admin(AdminCommand::Withdraw(args.named("executor")?)))),
    ("drain", |_| Ok(admin(AdminCommand::Drain))),
    ("storage", |args| Ok(admin(AdminCommand::StorageLow(args.choice("storage", "low", "fine")?)))),
    ("admit", |args| {
        let open = args.choice("admission", "on", "off")?;
        Ok(admin(AdminCommand::SetAdmission { open, origin: Scenario::origin() }))
    }),
    ("load", load),
    ("lane", settings::lane),
    ("nolane", settings::no_lane),
    ("kind", settings::kind),
    ("tenant", settings::tenant),
    ("agent", settings::agent),
    ("key", settings::key),
    ("machine", settings::machine),
    ("server", settings::server),
    ("tick", |_| Ok(Step::Send(Command::Tick))),
    ("wait", |args| Ok(Step::Pass { by: span(args.word("time")?)?, tick: true })),
    ("sleep", |args| Ok(Step::Pass { by: span(args.word("time")?)?, tick: false })),
    ("jump", |args| {
        let by = args.word("seconds")?;
        Ok(Step::Jump(by.parse().map_err(|_| format!("{by:?} is not a number of seconds"))?))
    }),
    ("crash", |_| Ok(Step::Restart(Restart::Process))),
    ("rebuild", |_| Ok(Step::Restart(Restart::Rebuild))),
    ("claim", claim),
    ("lease", |args| {
        Ok(Step::Lease { name: args.text("name")?, holder: holder(args)?, job: job::read(args)? })
    }),
    ("ack", |args| Ok(Named::Ack { job: args.text("job")?, holder: holder(args)? }.into())),
    ("renew", |args| lease_message(args, |_| Ok(LeaseUpdate::Alive))),
    ("ended", |args| lease_message(args, |args| Ok(LeaseUpdate::Ended(outcome(args)?)))),
    ("revoke", |args| lease_message(args, |_| Ok(LeaseUpdate::Revoke("enough".into())))),
    ("worker", worker::register),
    ("offers", worker::offers),
    ("pulse", worker::pulse),
    (
        "accept",
        |args| Ok(WorkerStep::Accept { connection: args.connection()?, task: args.attempt()? }.into()),
    ),
    ("reject", |args| {
        let (connection, task, code) = (args.connection()?, args.attempt()?, args.named("code")?);
        Ok(WorkerStep::Reject { connection, task, code }.into())
    }),
    ("result", |args| {
        let (connection, task, outcome) = (args.connection()?, args.attempt()?, outcome(args)?);
        Ok(WorkerStep::Result { connection, task, outcome }.into())
    }),
    ("gone", |args| {
        Ok(WorkerStep::Message { connection: args.connection()?, report: WorkerReport::Gone }.into())
    }),
    ("drainworker", |args| worker::drain(args, true)),
    ("undrain", |args| worker::drain(args, false)),
    ("rebind", worker::rebind),
    ("submitrun", run::submit),
    (
        "cancelrun",
        |args| Ok(Named::CancelRun { run: args.text("run")?, tenant: args.name("tenant")? }.into()),
    ),
    ("next", |args| {
        Ok(Named::Next {
            attempt: args.attempt()?,
            request: args.named("request")?,
            index: args.number("index")?.unwrap_or(0),
            timeout: args.span("timeout")?,
            payload: args.option("payload").map(str::to_owned),
        }
        .into())
    }),
    ("stop", |args| stop_session(args, StopWhat::One)),
    ("stopall", |args| stop_session(args, StopWhat::All)),
    ("reset", |args| stop_session(args, StopWhat::Reset)),
    ("resetall", |_| {
        let origin = Scenario::origin();
        Ok(Step::Send(Command::Session(SessionCommand::ResetAll { origin })))
    }),
    ("usage", usage),
    ("put", put_record),
    ("remove", remove_record),
    ("schedule", schedule::put),
    ("update", schedule::update),
    ("toggle", schedule::toggle),
    ("delete", |args| schedule::change(args, |_| Ok(ScheduleAction::Delete))),
    ("fire", |args| schedule::change(args, |args| Ok(ScheduleAction::Fire { only_due: args.flag("due") }))),
    ("tried", tried),
    (
        "redeliver",
        |args| Ok(Named::Redeliver { job: args.text("job")?, tenant: args.name("tenant")? }.into()),
    ),
    ("active", |args| Ok(Step::Show(Show::Active(args.named("agent")?)))),
    ("capacity", |_| Ok(Step::Show(Show::Capacity))),
    ("counts", |args| Ok(Step::Show(Show::Counts(args.named("lane")?)))),
    ("decisions", |_| Ok(Step::Show(Show::Decisions))),
    ("dispatches", |_| Ok(Step::Show(Show::Dispatches))),
    ("explain", |args| Ok(Step::Show(Show::Explain(args.text("job")?)))),
    ("firings", |args| Ok(Step::Show(Show::Firings(args.word("schedule").ok().map(name).transpose()?)))),
    ("kept", |_| Ok(Step::Show(Show::Kept))),
    ("keyuse", |args| Ok(Step::Show(Show::KeyUse(job::key(args.word("key")?)?)))),
    ("records", |args| {
        Ok(Step::Show(Show::Records {
            tenant: args.name_or("tenant", "default")?,
            collection: args.named("collection")?,
            after: args.name("after")?,
            limit: args.number("limit")?.map_or(usize::MAX, |limit| limit as usize),
        }))
    }),
    ("session", |args| Ok(Step::Show(Show::Session(args.named("session")?)))),
    ("showrun", |args| Ok(Step::Show(Show::Run(args.text("run")?)))),
    ("showschedule", |args| Ok(Step::Show(Show::Schedule(args.text("schedule")?)))),
    ("workers", |_| Ok(Step::Show(Show::Workers))),
];

fn change(args: &mut Args<'_>) -> Parsed<Step> {
    let priority = |word: &str| word.parse().map_err(|_| format!("{word:?} is not a priority"));
    let job = args.text("job")?;
    let at = args.span("at")?.map(|at| StartAt::Time(START.wall + at));
    let start = args.span("after")?.map(StartAt::Delay).or(at);
    let patch = JobPatch { priority: args.read("priority", priority)?, start };
    Ok(Named::Change { job, tenant: args.name("tenant")?, patch }.into())
}

/// Reads one command. The error names the verb and the word that is wrong.
pub(super) fn step(command: &str, context: Context<'_>) -> Parsed<Step> {
    let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
    let (_, read) =
        VERBS.iter().find(|(known, _)| *known == verb).ok_or_else(|| format!("{verb:?} is not a verb"))?;
    let mut args = Args::new(rest, context);
    let step = read(&mut args).and_then(|step| args.end().map(|()| step));
    step.map_err(|error| format!("{verb}: {error}"))
}

/// Reads the options of a job without a verb, as `kind=echo lane=main`.
pub(super) fn job(options: &str, context: Context<'_>) -> Parsed<Box<Job>> {
    let mut args = Args::new(options, context);
    let job = job::read(&mut args)?;
    args.end().map(|()| job)
}

fn admin(command: AdminCommand) -> Step {
    Step::Send(Command::Admin(command))
}

fn executor(args: &mut Args<'_>) -> Parsed<Step> {
    let (executor, leased) = (args.named("executor")?, args.choice("mode", "leased", "attached")?);
    Ok(admin(AdminCommand::Offer(ExecutorOffer {
        executor,
        mode: if leased { ExecutorMode::Leased } else { ExecutorMode::Attached },
        kinds: args.names("kinds")?,
        slots: args.number("slots")?.ok_or("slots are missing")?,
    })))
}

fn load(args: &mut Args<'_>) -> Parsed<Step> {
    let quiet = args.option("quiet").unwrap_or("quiet");
    let quiet = QuietState::ALL.into_iter().find(|state| state.as_str() == quiet).ok_or("no quiet state")?;
    let busy = args.number("busy")?.ok_or("busy is missing")? as u8;
    Ok(admin(AdminCommand::Load(LoadReading { busy, quiet, at: args.context.now.mono })))
}

fn claim(args: &mut Args<'_>) -> Parsed<Step> {
    let worker = args.named("worker")?;
    let claim = Claim {
        tenant: args.name_or("tenant", "default")?,
        lane: args.name_or("lane", "main")?,
        agent: args.name("agent")?,
        kinds: args.names("kinds")?,
        max_cost: args.number("max")?,
        holder: Holder { worker, pid: None, boot: None },
        start: args.flag("start"),
        token: None,
    };
    Ok(Step::Send(Command::Lease(LeaseCommand::Claim(Box::new(claim)))))
}

fn holder(args: &mut Args<'_>) -> Parsed<Holder> {
    let worker = args.name("worker")?.ok_or("worker is missing")?;
    Ok(Holder { worker, pid: args.number("pid")?, boot: None })
}

fn lease_message(args: &mut Args<'_>, update: impl Fn(&mut Args<'_>) -> Parsed<LeaseUpdate>) -> Parsed<Step> {
    let (attempt, update) = (args.attempt()?, update(args)?);
    Ok(Named::LeaseMessage { attempt, worker: args.name("worker")?, pid: args.number("pid")?, update }.into())
}

fn stop_session(args: &mut Args<'_>, what: StopWhat) -> Parsed<Step> {
    let (key, tenant) = (args.named("session")?, args.name_or("tenant", "default")?);
    let origin = Scenario::origin();
    Ok(Step::Send(Command::Session(SessionCommand::Stop { tenant, key, what, origin })))
}

fn usage(args: &mut Args<'_>) -> Parsed<Step> {
    let (key, tenant) = (args.named("session")?, args.name_or("tenant", "default")?);
    let (tokens, window) = args.word("usage")?.split_once('/').ok_or("the usage is tokens/window")?;
    let (tokens, window) = (number(tokens)?.into(), number(window)?.into());
    Ok(Step::Send(Command::Session(SessionCommand::Usage { tenant, key, tokens, window })))
}

fn put_record(args: &mut Args<'_>) -> Parsed<Step> {
    let (collection, id) = record_name(args)?;
    Ok(Step::Send(Command::Record(Box::new(RecordCommand::Put {
        tenant: args.name_or("tenant", "default")?,
        collection,
        id,
        expected_version: args.number("expected")?.map(u64::from),
        body: args.option("body").unwrap_or_default().as_bytes().into(),
        origin: Scenario::origin(),
    }))))
}

fn remove_record(args: &mut Args<'_>) -> Parsed<Step> {
    let (collection, id) = record_name(args)?;
    Ok(Step::Send(Command::Record(Box::new(RecordCommand::Delete {
        tenant: args.name_or("tenant", "default")?,
        collection,
        id,
        expected_version: args.number("expected")?.map(u64::from),
        origin: Scenario::origin(),
    }))))
}

fn record_name(args: &mut Args<'_>) -> Parsed<(Name, Name)> {
    let (collection, id) = args.word("record")?.split_once('/').ok_or("a record is collection/id")?;
    Ok((name(collection)?, name(id)?))
}

fn tried(args: &mut Args<'_>) -> Parsed<Step> {
    let job = args.text("job")?;
    let outcome = match args.word("answer")? {
        "down" => TryOutcome::Unanswered("no answer".into()),
        "forbidden" => TryOutcome::NotAllowed("it is not allowed".into()),
        status => TryOutcome::Answered(number(status)?.try_into().map_err(|_| "no status")?),
    };
    Ok(Named::Tried { job, outcome }.into())
}

/// `ok`, `ok:result`, `keep:key,key`, `skip`, `fail`, `fail:5s` (retry after), `permanent`, `canceled`, `back` or `interrupted`.
fn outcome(args: &mut Args<'_>) -> Parsed<Outcome> {
    let word = args.word("outcome")?;
    let failure = Failure::retryable("test", "it failed");
    Ok(match word.split_once(':').unwrap_or((word, "")) {
        ("ok", "") => Outcome::Succeeded(None),
        ("ok", result) => Outcome::Succeeded(Some(result.as_bytes().into())),
        ("keep", keys) => {
            let keys = keys.split(',').map(name).collect::<Parsed<Vec<Name>>>()?;
            Outcome::SucceededKeeping { result: None, keys }
        }
        ("skip", "") => Outcome::Skipped(None),
        ("fail", "") => Outcome::Failed(failure),
        ("fail", later) => Outcome::Failed(Failure { retry_after: Some(span(later)?), ..failure }),
        ("permanent", "") => Outcome::Failed(Failure::permanent("test", "it cannot work")),
        ("canceled", "") => Outcome::Canceled,
        ("back", "") => Outcome::HandedBack,
        ("interrupted", "") => Outcome::Interrupted,
        _ => return Err(format!("{word:?} is not an outcome")),
    })
}
