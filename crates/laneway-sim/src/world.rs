//! One world: a house, its disk, its clocks, its clients and its runs, all moved by one seeded generator.
//!
//! The house is the code that runs in production: `laneway_runtime::Driver` around the engine, over a store that fails on
//! demand. The world only plays the outside: what is asked, what fails, what time does, how runs behave.

mod askers;
mod calendars;
mod clients;
mod crew;
mod graphs;
mod house;
mod news;
mod workers;

use laneway_core::command::{AdminCommand, SessionCommand, WorkerCommand};
use std::collections::{BTreeMap, VecDeque};

use laneway_core::worker::WorkerReport;
use laneway_core::{
    Command, ConnectionId, ExecutorOffer, Fence, JobId, Name, Origin, RunId, Settings, Span, Task,
};
use laneway_runtime::Driver;

use crate::checker::Checker;
use crate::clock::Clock;
use crate::diary::Diary;
use crate::faulty::{Disk, StoreKind};
use crate::reference::crew::Who;
use crate::rng::Rng;
use crate::runs::Run;
use crate::shape::Shape;
use crate::violation::{Checked, Violation};
use crew::{Hand, Process};
use news::News;

/// Late words are about one of this many attempts.
const REMEMBERED_FENCES: usize = 24;
/// Cancels and looks are about one of this many jobs.
const REMEMBERED_JOBS: usize = 24;
/// A healed world must come to rest within this many turns; each job needs a handful.
const HEAL_TURNS_MAX: u32 = 4_000;

/// How a world is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Steps with faults, before the world heals.
    pub steps: u32,
    /// How many of the last lines of what happened are kept, for people.
    pub diary: usize,
    /// Take a fingerprint of everything that was written and told.
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
    /// Turns of the house.
    pub turns: u64,
    /// Decisions of the engine that were compared with the reference.
    pub decisions: u64,
    /// Jobs that were stored.
    pub jobs: u64,
    /// How often the house was started again.
    pub restarts: u32,
    /// A fingerprint of everything that was written and told; 0 when none was asked for.
    pub fingerprint: u64,
    /// The last lines of what happened.
    pub diary: Vec<String>,
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
    /// A client cancels a job, perhaps somebody else's.
    Cancel,
    /// A run says the next thing.
    Speak,
    /// Somebody says something about an attempt that is over.
    SpeakLate,
    /// Somebody says something with a fence that never was.
    SpeakForged,
    /// A run writes log lines.
    Log,
    /// An operator changes settings.
    Configure,
    /// A place comes, goes or changes its offer.
    ChangePlace,
    /// Storage runs low, or no longer.
    StorageLow,
    /// A call that tells news has ended.
    Tell,
    /// A client wants to hear news again.
    Redeliver,
    /// An operator makes, changes or revokes a token.
    Token,
    /// A client stops a session.
    StopSession,
    /// Somebody says how full the context of a session is.
    SessionUsage,
    /// An operator begins all sessions anew.
    ResetSessions,
    /// The house is told to stop.
    Drain,
    /// The house is started anew.
    Restart,
    /// A little time passes.
    Pass,
    /// Much time passes.
    Leap,
    /// Time passes until the house wants to look at the clock.
    Wake,
    /// Somebody sets the wall clock.
    SetWall,
    /// A run dies, or is cut off.
    Die,
    /// Somebody looks: explain, stats, lists.
    Look,
    /// A client makes or changes a schedule, or runs one by hand.
    Schedule,
    /// A probe says how the machine is.
    Load,
    /// A worker asks for work.
    Claim,
    /// A worker asks to run one job now.
    Request,
    /// Somebody speaks by a lease's id.
    LeaseMessage,
    /// A client submits a run.
    SubmitRun,
    /// A client cancels a run.
    CancelRun,
    /// A worker connects.
    Connect,
    /// A worker's connection ends.
    Disconnect,
    /// A worker gives a sign of life.
    Pulse,
    /// An operator wants a worker to drain, or no longer.
    DrainWorker,
    /// An operator says which lanes a worker serves.
    RebindWorker,
    /// Somebody says something about a task that was spoken of before.
    TaskAgain,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 37] = [
        Step::Submit,
        Step::SubmitBatch,
        Step::Cancel,
        Step::Speak,
        Step::SpeakLate,
        Step::SpeakForged,
        Step::Log,
        Step::Configure,
        Step::ChangePlace,
        Step::StorageLow,
        Step::Tell,
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
    ];

    /// How often it usually happens, against the others.
    pub fn weight(self) -> u32 {
        match self {
            Step::Submit => 70,
            Step::SubmitBatch => 8,
            Step::Cancel => 12,
            Step::Speak => 140,
            Step::SpeakLate => 10,
            Step::SpeakForged => 8,
            Step::Log => 4,
            Step::Configure => 8,
            Step::ChangePlace => 6,
            Step::StorageLow => 1,
            Step::Tell => 40,
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
        }
    }

    /// Worlds in which it never happens are worth a visit.
    pub fn may_be_left_out(self) -> bool {
        !matches!(self, Step::Submit | Step::Speak | Step::Pass | Step::Wake)
    }

    /// It gives the house a command that others may ride with in the same turn.
    fn may_be_grouped(self) -> bool {
        use Step::*;
        matches!(
            self,
            Submit
                | SubmitBatch
                | Cancel
                | Speak
                | SpeakLate
                | SpeakForged
                | Log
                | StopSession
                | SessionUsage
                | Schedule
                | Tell
                | Redeliver
                | SubmitRun
                | CancelRun
                | TaskAgain
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
    diary: Diary,
    /// `None` only while a process starts.
    house: Option<Driver>,
    boots: u64,
    /// Every settings that was ever kept; the overrides on the disk are an index into it.
    settings: Vec<Settings>,
    /// What the operator wants each place to offer.
    executors: Vec<ExecutorOffer>,
    /// What the engine said that its places offer, after the last turn.
    offers: Vec<ExecutorOffer>,
    runs: Vec<Run>,
    old_fences: VecDeque<Fence>,
    known_jobs: VecDeque<(JobId, Name)>,
    /// Runs that a client was told of, and whose they are.
    known_runs: VecDeque<(RunId, Name)>,
    /// News that the house wants told.
    news: Vec<News>,
    /// Connections of workers, and how many there ever were.
    hands: Vec<Hand>,
    /// The process of each worker, and how many were started.
    processes: BTreeMap<Who, Process>,
    processes_started: u64,
    /// Connections that the house wants to know about.
    probed: Vec<ConnectionId>,
    /// The process that was first given a dispatch of a job.
    given_to: BTreeMap<(JobId, u64), u64>,
    connections: u64,
    /// Tasks that were spoken of, and over which connection.
    old_tasks: VecDeque<(ConnectionId, Task)>,
    submits: u64,
    healed: bool,
    turns: u64,
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
            disk: Disk::new(plan.store).expect("an empty store can be made"),
            checker: Checker::new(settings.clone()),
            diary: Diary::new(plan.diary, plan.fingerprint),
            house: None,
            boots: 0,
            executors: shape.executors.clone(),
            settings: vec![settings],
            offers: Vec::new(),
            runs: Vec::new(),
            old_fences: VecDeque::new(),
            known_jobs: VecDeque::new(),
            known_runs: VecDeque::new(),
            news: Vec::new(),
            hands: Vec::new(),
            processes: BTreeMap::new(),
            processes_started: 0,
            probed: Vec::new(),
            given_to: BTreeMap::new(),
            connections: 0,
            old_tasks: VecDeque::new(),
            submits: 0,
            healed: false,
            turns: 0,
            restarts: 0,
            rng,
            shape,
        }
    }

    fn close(self, outcome: Checked, steps: u32) -> Outcome {
        Outcome {
            violation: outcome.err(),
            steps,
            turns: self.turns,
            decisions: self.checker.decisions,
            jobs: self.checker.ledger.ids.len() as u64,
            restarts: self.restarts,
            fingerprint: self.diary.fingerprint(),
            diary: self.diary.lines(),
            shape: self.shape,
        }
    }

    fn begin(&mut self) -> Checked {
        self.boot()?;
        self.offer_places()
    }

    fn step(&mut self) -> Checked {
        let mut step = Step::ALL[self.rng.weighted(&self.shape.weights)];
        if self.checker.reference.draining && self.rng.chance(20) {
            // A house that stops has stopped before long, and somebody starts it again.
            step = Step::Restart;
        }
        if let Some(command) = self.command_of(step) {
            let mut commands = vec![command];
            let alone = matches!(
                step,
                Step::ChangePlace
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
            return self.turn(commands);
        }
        match step {
            Step::Restart => {
                self.diary.note(|| "the house is stopped".to_owned());
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
                self.strike_a_run();
                Ok(())
            }
            Step::Look => self.look(),
            _ => Ok(()),
        }
    }

    /// The command that a step gives to the house, if it gives one and there is something to give.
    fn command_of(&mut self, step: Step) -> Option<Command> {
        match step {
            Step::Submit => Some(self.submit()),
            Step::SubmitBatch => Some(self.submit_batch()),
            Step::Cancel => self.cancel(),
            Step::Speak => self.speak(),
            Step::SpeakLate => self.speak_late(),
            Step::SpeakForged => self.speak_forged(),
            Step::Log => self.log(),
            Step::Configure => Some(self.configure()),
            Step::ChangePlace => Some(self.change_place()),
            Step::StorageLow => Some(Command::Admin(AdminCommand::StorageLow(self.rng.chance(40)))),
            Step::Tell => self.tell(),
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
            Step::TaskAgain => self.speak_about_a_task(),
            _ => None,
        }
    }

    /// Time passes, and mostly the house looks at the clock.
    fn pass(&mut self, span: Span) -> Checked {
        self.clock.advance(span);
        self.runs_look_at_clock();
        self.diary.note(|| format!("{} ms pass", span.0));
        if self.rng.chance(70) { self.turn(Vec::new()) } else { Ok(()) }
    }

    /// Time passes until the house wants to look at the clock, and it does.
    fn wake(&mut self) -> Checked {
        let wakeup = self.house.as_ref().map(|house| house.engine().next_wakeup()).unwrap_or_default();
        let span = self.clock.until(wakeup.mono, wakeup.wall).unwrap_or(Span::secs(1));
        self.clock.advance(span);
        self.runs_look_at_clock();
        self.diary.note(|| format!("{} ms pass until the house wakes", span.0));
        self.turn(Vec::new())
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
        self.diary.note(|| format!("the wall clock is set by {by} ms"));
        if self.rng.chance(50) { self.turn(Vec::new()) } else { Ok(()) }
    }
}

fn is_beat(command: &Command) -> bool {
    matches!(command, Command::Worker(WorkerCommand::Message(word)) if matches!(word.report, WorkerReport::Beat(_)))
}
