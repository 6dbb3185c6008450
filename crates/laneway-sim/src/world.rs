//! One world: a server, its disk, its clocks, its clients and its attempts, all moved by one seeded generator.
//!
//! The server is the code that runs in production: `laneway_runtime::Driver` around the engine, over a store that fails on
//! demand. The world only plays the outside: what is asked, what fails, what time does, how attempts behave.

mod attempts;
mod calendars;
mod clients;
mod documents;
mod graphs;
mod pull_workers;
mod push_workers;
mod replaced;
mod scheduler;
mod webhooks;

use laneway_core::command::{AdminCommand, SessionCommand, WorkerCommand};
use std::collections::{BTreeMap, VecDeque};

use laneway_core::worker::WorkerReport;
use laneway_core::{
    Command, ConnectionId, ExecutorOffer, Fence, JobId, Name, Origin, RunId, Settings, Span, Task,
};
use laneway_runtime::Driver;

use crate::attempts::SimAttempt;
use crate::checker::Checker;
use crate::clock::Clock;
use crate::faulty::{Disk, StoreKind};
use crate::log::Log;
use crate::reference::workers::WorkerKey;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::violation::{Checked, Violation};
use push_workers::{Process, Socket};
use webhooks::DeliveryTry;

/// Late reports are about one of this many attempts.
const REMEMBERED_FENCES: usize = 24;
/// Cancels and looks are about one of this many jobs.
const REMEMBERED_JOBS: usize = 24;
/// A healed world must come to rest within this many batches; each job needs a handful.
const HEAL_BATCHES_MAX: u32 = 4_000;

/// How a world is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Steps with faults, before the world heals.
    pub steps: u32,
    /// How many of the last lines of what happened are kept, for people.
    pub log_lines: usize,
    /// Take a fingerprint of everything that was written and published.
    pub fingerprint: bool,
    /// What the disk is made of.
    pub store: StoreKind,
}

/// What became of a world.
#[derive(Debug)]
pub struct Outcome {
    /// The rule that was broken, if one was.
    pub violation: Option<Violation>,
    /// Steps taken.
    pub steps: u32,
    /// Batches of the server.
    pub batches: u64,
    /// Decisions of the engine that were compared with the reference.
    pub decisions: u64,
    /// Jobs that were stored.
    pub jobs: u64,
    /// How often the server was started again.
    pub restarts: u32,
    /// A fingerprint of everything that was written and published; 0 when none was requested.
    pub fingerprint: u64,
    /// The last lines of what happened.
    pub log: Vec<String>,
    /// The world's shape.
    pub shape: Shape,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client submits a job.
    Submit,
    /// A client submits several at once.
    SubmitBatch,
    /// A client cancels a job, perhaps one of another tenant.
    Cancel,
    /// An attempt reports.
    Report,
    /// A report about an attempt that is over arrives.
    ReportLate,
    /// A report with a fence that never existed arrives.
    ReportForged,
    /// An attempt writes log lines.
    Log,
    /// An operator changes settings.
    Configure,
    /// An executor comes, goes or changes its offer.
    ChangeExecutor,
    /// Storage runs low, or no longer.
    StorageLow,
    /// A try of a webhook delivery has ended.
    EndDelivery,
    /// A client requests a webhook again.
    Redeliver,
    /// An operator makes, changes or revokes a token.
    Token,
    /// A client stops a session.
    StopSession,
    /// A client reports how full the context of a session is.
    SessionUsage,
    /// An operator begins all sessions anew.
    ResetSessions,
    /// The server is asked to stop.
    Drain,
    /// The server is started anew.
    Restart,
    /// A little time passes.
    Pass,
    /// Much time passes.
    Leap,
    /// Time passes until the server wants to look at the clock.
    Wake,
    /// The wall clock is set.
    SetWall,
    /// An attempt dies, or is cut off.
    Die,
    /// A client reads: explain, stats, lists.
    Look,
    /// A client makes or changes a schedule, or fires one manually.
    Schedule,
    /// A probe reports the load of the machine.
    Load,
    /// A worker requests work.
    Claim,
    /// A worker requests to run one job now.
    Request,
    /// A message by lease id arrives.
    LeaseMessage,
    /// A client submits a workflow run.
    SubmitRun,
    /// A client cancels a workflow run.
    CancelRun,
    /// A worker connects.
    Connect,
    /// A worker's connection ends.
    Disconnect,
    /// A worker gives a sign of life.
    Pulse,
    /// An operator wants a worker to drain, or no longer.
    DrainWorker,
    /// An operator sets which lanes a worker serves.
    RebindWorker,
    /// A message about a task arrives again.
    TaskAgain,
    /// A client frees the keys that an ended job keeps.
    ReleaseKeys,
    /// A client stores or deletes a record.
    Record,
    /// A client changes the priority or the time of a job.
    UpdateJob,
    /// A client deletes a job.
    DeleteJob,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 41] = [
        Step::Submit,
        Step::SubmitBatch,
        Step::Cancel,
        Step::Report,
        Step::ReportLate,
        Step::ReportForged,
        Step::Log,
        Step::Configure,
        Step::ChangeExecutor,
        Step::StorageLow,
        Step::EndDelivery,
        Step::Redeliver,
        Step::Token,
        Step::StopSession,
        Step::SessionUsage,
        Step::ResetSessions,
        Step::Drain,
        Step::Restart,
        Step::Pass,
        Step::Leap,
        Step::Wake,
        Step::SetWall,
        Step::Die,
        Step::Look,
        Step::Schedule,
        Step::Load,
        Step::Claim,
        Step::Request,
        Step::LeaseMessage,
        Step::SubmitRun,
        Step::CancelRun,
        Step::Connect,
        Step::Disconnect,
        Step::Pulse,
        Step::DrainWorker,
        Step::RebindWorker,
        Step::TaskAgain,
        Step::ReleaseKeys,
        Step::Record,
        Step::UpdateJob,
        Step::DeleteJob,
    ];

    /// How often it usually happens, against the others.
    pub fn weight(self) -> u32 {
        match self {
            Step::Submit => 70,
            Step::SubmitBatch => 8,
            Step::Cancel => 12,
            Step::Report => 140,
            Step::ReportLate => 10,
            Step::ReportForged => 8,
            Step::Log => 4,
            Step::Configure => 8,
            Step::ChangeExecutor => 6,
            Step::StorageLow => 1,
            Step::EndDelivery => 40,
            Step::Redeliver => 4,
            Step::Token => 2,
            Step::StopSession => 8,
            Step::SessionUsage => 6,
            Step::ResetSessions => 1,
            Step::Drain => 1,
            Step::Restart => 2,
            Step::Pass => 24,
            Step::Leap => 6,
            Step::Wake => 16,
            Step::SetWall => 5,
            Step::Die => 6,
            Step::Look => 4,
            Step::Schedule => 6,
            Step::Load => 20,
            Step::Claim => 30,
            Step::Request => 10,
            Step::LeaseMessage => 20,
            Step::SubmitRun => 12,
            Step::CancelRun => 3,
            Step::Connect => 10,
            Step::Disconnect => 5,
            Step::Pulse => 30,
            Step::DrainWorker => 3,
            Step::RebindWorker => 3,
            Step::TaskAgain => 12,
            Step::ReleaseKeys => 10,
            Step::Record => 8,
            Step::UpdateJob => 16,
            Step::DeleteJob => 10,
        }
    }

    /// Worlds in which it never happens are worth a visit.
    pub fn may_be_left_out(self) -> bool {
        !matches!(self, Step::Submit | Step::Report | Step::Pass | Step::Wake)
    }

    /// It gives the server a command that others may ride with in the same batch.
    fn may_be_grouped(self) -> bool {
        use Step::*;
        matches!(
            self,
            Submit
                | SubmitBatch
                | Cancel
                | Report
                | ReportLate
                | ReportForged
                | Log
                | StopSession
                | SessionUsage
                | Schedule
                | EndDelivery
                | Redeliver
                | SubmitRun
                | CancelRun
                | TaskAgain
                | ReleaseKeys
                | Record
                | UpdateJob
                | DeleteJob
        )
    }
}

/// One world.
pub struct World {
    rng: Rng,
    shape: Shape,
    clock: Clock,
    disk: Disk,
    checker: Checker,
    log: Log,
    /// `None` only while a process starts.
    driver: Option<Driver>,
    boots: u64,
    /// Every settings that was ever kept; the overrides on the disk are an index into it.
    settings: Vec<Settings>,
    /// What the operator wants each executor to offer.
    executors: Vec<ExecutorOffer>,
    /// What the executors offer by the engine, after the last batch.
    offers: Vec<ExecutorOffer>,
    attempts: Vec<SimAttempt>,
    old_fences: VecDeque<Fence>,
    known_jobs: VecDeque<(JobId, Name)>,
    /// Workflow runs that a client knows, and their tenants.
    known_runs: VecDeque<(RunId, Name)>,
    /// Tries of webhook deliveries that the server handed out.
    deliveries: Vec<DeliveryTry>,
    /// Connections of workers, and how many there ever were.
    sockets: Vec<Socket>,
    /// The process of each worker, and how many were started.
    processes: BTreeMap<WorkerKey, Process>,
    processes_started: u64,
    /// Connections that the server wants to know about.
    probed: Vec<ConnectionId>,
    /// The process that was first given a dispatch of a job.
    given_to: BTreeMap<(JobId, u64), u64>,
    connections: u64,
    /// Tasks that were reported about, and over which connection.
    old_tasks: VecDeque<(ConnectionId, Task)>,
    submits: u64,
    healed: bool,
    batches: u64,
    restarts: u32,
}

impl World {
    /// Runs the world of this seed to its end.
    pub fn run(plan: Plan) -> Outcome {
        let mut world = World::new(plan);
        let mut steps = 0;
        let mut outcome = world.begin();
        while outcome.is_ok() && steps < plan.steps {
            steps += 1;
            outcome = world.step();
        }
        if outcome.is_ok() {
            outcome = world.heal();
        }
        world.close(outcome, steps)
    }

    fn new(plan: Plan) -> World {
        let mut rng = Rng::new(plan.seed);
        let shape = Shape::draw(&mut rng);
        let settings = shape.settings.clone();
        World {
            clock: Clock::new(rng.below(1 << 40)),
            disk: Disk::new(plan.store, plan.seed).expect("an empty store can be made"),
            checker: Checker::new(settings.clone()),
            log: Log::new(plan.log_lines, plan.fingerprint),
            driver: None,
            boots: 0,
            executors: shape.executors.clone(),
            settings: vec![settings],
            offers: Vec::new(),
            attempts: Vec::new(),
            old_fences: VecDeque::new(),
            known_jobs: VecDeque::new(),
            known_runs: VecDeque::new(),
            deliveries: Vec::new(),
            sockets: Vec::new(),
            processes: BTreeMap::new(),
            processes_started: 0,
            probed: Vec::new(),
            given_to: BTreeMap::new(),
            connections: 0,
            old_tasks: VecDeque::new(),
            submits: 0,
            healed: false,
            batches: 0,
            restarts: 0,
            rng,
            shape,
        }
    }

    fn close(self, outcome: Checked, steps: u32) -> Outcome {
        Outcome {
            violation: outcome.err(),
            steps,
            batches: self.batches,
            decisions: self.checker.decisions,
            jobs: self.checker.ledger.ids.len() as u64,
            restarts: self.restarts,
            fingerprint: self.log.fingerprint(),
            log: self.log.lines(),
            shape: self.shape,
        }
    }

    fn begin(&mut self) -> Checked {
        self.boot()?;
        self.offer_executors()
    }

    fn step(&mut self) -> Checked {
        let mut step = Step::ALL[self.rng.weighted(&self.shape.weights)];
        if self.checker.reference.draining && self.rng.chance(20) {
            // A server that drains has stopped before long, and is started again.
            step = Step::Restart;
        }
        if let Some(command) = self.command_of(step) {
            let mut commands = vec![command];
            let alone = matches!(
                step,
                Step::ChangeExecutor
                    | Step::Load
                    | Step::Claim
                    | Step::Request
                    | Step::Connect
                    | Step::Disconnect
                    | Step::Pulse
                    | Step::DrainWorker
                    | Step::RebindWorker
            );
            let alone = alone || is_beat(&commands[0]);
            let grouped = !alone && self.rng.chance(self.shape.faults.grouped);
            while grouped && commands.len() < 6 && self.rng.chance(60) {
                let next = Step::ALL[self.rng.weighted(&self.shape.weights)];
                if next.may_be_grouped() {
                    let next = self.command_of(next);
                    // A sign of life may open a worker's slots, so it comes alone.
                    commands.extend(next.filter(|next| !is_beat(next)));
                }
            }
            return self.batch(commands);
        }
        match step {
            Step::Restart => {
                self.log.note(|| "the server is stopped".to_owned());
                self.reboot()
            }
            Step::Pass => {
                let span = Span(self.rng.between(1, 3_000));
                self.pass(span)
            }
            Step::Leap => {
                let span = Span(self.rng.between(5, 600) * 1_000);
                self.pass(span)
            }
            Step::Wake => self.wake(),
            Step::SetWall => self.set_wall(),
            Step::Die => {
                self.strike_an_attempt();
                Ok(())
            }
            Step::Look => self.look(),
            _ => Ok(()),
        }
    }

    /// The command that a step gives to the server, if it gives one and there is something to give.
    fn command_of(&mut self, step: Step) -> Option<Command> {
        match step {
            Step::Submit => Some(self.submit()),
            Step::SubmitBatch => Some(self.submit_batch()),
            Step::Cancel => self.cancel(),
            Step::Report => self.report(),
            Step::ReportLate => self.report_late(),
            Step::ReportForged => self.report_forged(),
            Step::Log => self.log(),
            Step::Configure => Some(self.configure()),
            Step::ChangeExecutor => Some(self.change_executor()),
            Step::StorageLow => Some(Command::Admin(AdminCommand::StorageLow(self.rng.chance(40)))),
            Step::EndDelivery => self.end_delivery(),
            Step::Redeliver => self.redeliver(),
            Step::Token => Some(self.token()),
            Step::StopSession => Some(self.stop_session()),
            Step::SessionUsage => Some(self.session_usage()),
            Step::ResetSessions => {
                Some(Command::Session(SessionCommand::ResetAll { origin: Origin::server("operator") }))
            }
            Step::Drain => Some(Command::Admin(AdminCommand::Drain)),
            Step::Schedule => Some(self.schedule()),
            Step::Load => Some(self.reading()),
            Step::Claim => Some(self.claim()),
            Step::Request => self.request(),
            Step::LeaseMessage => self.lease_message(),
            Step::SubmitRun => Some(self.submit_run()),
            Step::CancelRun => self.cancel_run(),
            Step::Connect => Some(self.connect()),
            Step::Disconnect => self.disconnect(),
            Step::Pulse => self.pulse(),
            Step::DrainWorker => Some(self.drain_worker()),
            Step::RebindWorker => Some(self.rebind_worker()),
            Step::TaskAgain => self.report_task_again(),
            Step::ReleaseKeys => self.release_keys(),
            Step::Record => Some(self.record()),
            Step::UpdateJob => self.update_job(),
            Step::DeleteJob => self.delete_job(),
            _ => None,
        }
    }

    /// Time passes, and mostly the server looks at the clock.
    fn pass(&mut self, span: Span) -> Checked {
        self.clock.advance(span);
        self.attempts_look_at_clock();
        self.log.note(|| format!("{} ms pass", span.0));
        if self.rng.chance(70) { self.batch(Vec::new()) } else { Ok(()) }
    }

    /// Time passes until the server wants to look at the clock, and it does.
    fn wake(&mut self) -> Checked {
        let wakeup = self.driver.as_ref().map(|driver| driver.engine().next_wakeup()).unwrap_or_default();
        let span = self.clock.until(wakeup.mono, wakeup.wall).unwrap_or(Span::secs(1));
        self.clock.advance(span);
        self.attempts_look_at_clock();
        self.log.note(|| format!("{} ms pass until the server wakes", span.0));
        self.batch(Vec::new())
    }

    fn set_wall(&mut self) -> Checked {
        if !self.shape.faults.wall_jumps {
            return Ok(());
        }
        const TEN_YEARS_MS: u64 = 10 * 365 * 24 * 3_600 * 1_000;
        let reach = *self.rng.pick(&[2_000, 60_000, 3_600_000, TEN_YEARS_MS]);
        let by = self.rng.below(reach) as i64;
        let by = if self.rng.chance(50) { by } else { -by };
        self.clock.set_wall(by);
        self.log.note(|| format!("the wall clock is set by {by} ms"));
        if self.rng.chance(50) { self.batch(Vec::new()) } else { Ok(()) }
    }
}

fn is_beat(command: &Command) -> bool {
    matches!(command, Command::Worker(WorkerCommand::Message(message)) if matches!(message.report, WorkerReport::Beat(_)))
}
